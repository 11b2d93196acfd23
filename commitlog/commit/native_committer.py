"""Conditions enforced by the store, for stores that enforce them: one round trip.

The counterpart of `commitlog.commit.lease_committer`, and therefore a module of its own. It is used
only for operations that the store is known to enforce. This module resolves lost responses. A
retry carries the same nonce under the same condition, so a second attempt lands only if the effect of
the first was undone in between. A refusal that could be that of a second attempt is resolved by reading
back.
"""

from __future__ import annotations

from collections.abc import Callable

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit.mutation import Mutation, Reading
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import Condition, ObjectStore, PutResult

__all__ = ["NativeCommitter"]


class NativeCommitter:
    """Sends mutations with their conditions, and finds out unknown outcomes. Thread-safe.

    Args:
        store: the store of the objects.
        clock: the clock for pauses between attempts.
        backoff: the retry policy for attempts that did nothing (`Conflict`, `Unavailable`) or whose
            answer was lost.
        spelled: returns the condition of a mutation as the store understands it.

    Guarantees: as the store's own condition. Non-guarantees: after a lost answer, a copy that finds its
    target, a deletion that finds nothing, and a put that finds another's object raise
    `OutcomeUnknown`: mine may have landed first. A delayed attempt may find its condition to hold once
    more: a creation, when the object was removed again; an update, where etags are digests of the
    content, when the object returned to earlier bytes. A copy or a deletion that something on the way
    repeated is taken for refused.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock,
        backoff: Backoff,
        spelled: Callable[[Mutation], Condition] = lambda mutation: mutation.condition,
    ) -> None:
        self._store = store
        self._spelled = spelled
        self._clock = clock
        self._backoff = backoff

    def run(self, mutation: Mutation) -> PutResult | None:
        """Carry out `mutation`; see `ConditionalStore` for results and errors."""
        lost: OutcomeUnknown | None = None

        def send() -> PutResult | None:
            nonlocal lost
            try:
                return mutation.send(self._spelled(mutation), None)
            except OutcomeUnknown as error:
                lost = error
                raise

        try:
            return self._backoff.retry(self._clock, send, on=(Conflict, OutcomeUnknown, Unavailable))
        except CommitError as failure:
            # A proxy may repeat a PUT by itself (RFC 9110, 9.2.2) and pass on the refusal of the second
            # one. An upload that another client published is refused as missing or as existing. The
            # nonce decides.
            refused = isinstance(failure, (AlreadyExists, PreconditionFailed, NotFound))
            if lost is None and not (refused and mutation.nonce is not None):
                raise
            return self._read_back(mutation, lost, failure)

    def _read_back(
        self, mutation: Mutation, lost: OutcomeUnknown | None, failure: CommitError
    ) -> PutResult | None:
        try:
            info = self._store.begin_head(mutation.path)().info
        except CommitError as error:
            why = f"{failure}, and reading it back failed ({error})"
            raise mutation.unknown(why) from (failure if lost is None else lost)
        if mutation.read(info, exclusive=False) is Reading.LANDED:
            return mutation.result(info)
        if lost is None:
            raise failure
        raise mutation.unknown(f"an answer was lost, and then: {failure}") from lost
