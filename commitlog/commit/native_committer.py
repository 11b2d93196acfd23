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
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import Condition, ObjectInfo, ObjectStore, PutResult

__all__ = ["NativeCommitter"]


class NativeCommitter:
    """Sends mutations with their conditions, and finds out unknown outcomes. Thread-safe.

    Args:
        store: the store of the objects.
        clock: the clock for pauses between attempts.
        backoff: the retry policy for attempts that did nothing (`Conflict`, `Unavailable`) or whose
            answer was lost.
        spelled: returns the condition of a mutation as the store understands it.

    Guarantees: as the store's own condition. Some stores ignore the header of their dialect in a bucket
    that keeps versions (`Dialect.needs_unversioned`). A result with a version shows that: it raises
    `OutcomeUnknown`, and later mutations in that dialect `NotSupported`, before anything is sent.

    Non-guarantees: after a lost answer, a copy that finds its target, a deletion that finds nothing, and
    a put that finds another's object raise `OutcomeUnknown`: mine may have landed first. A delayed
    attempt may find its condition to hold once more: a creation, when the object was removed again; an
    update, where etags are digests of the content, when the object returned to earlier bytes. A copy or
    a deletion that something on the way repeated is taken for refused.
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
        #: Whether a result has shown that the bucket keeps versions.
        self._versioned = False

    def run(self, mutation: Mutation) -> PutResult | None:
        """Carry out `mutation`; see `ConditionalStore` for results and errors."""
        lost: OutcomeUnknown | None = None
        if self._versioned and self._spelled(mutation).dialect.needs_unversioned:
            raise NotSupported(
                f"{self._store.url} keeps versions now, and ignores the condition of {mutation.path!r} "
                "therefore; nothing was sent. Use a table for leases, and run `commitlog probe` again"
            )

        def send() -> PutResult | None:
            nonlocal lost
            try:
                return mutation.send(self._spelled(mutation), None)
            except OutcomeUnknown as error:
                lost = error
                raise

        try:
            result = self._backoff.retry(self._clock, send, on=(Conflict, OutcomeUnknown, Unavailable))
        except CommitError as failure:
            # A proxy may repeat a PUT by itself (RFC 9110, 9.2.2) and pass on the refusal of the second
            # one. An upload that another client published is refused as missing or as existing. The
            # nonce decides.
            refused = isinstance(failure, (AlreadyExists, PreconditionFailed, NotFound))
            if lost is None and not (refused and mutation.nonce is not None):
                raise
            result = self._read_back(mutation, lost, failure)
        else:
            if lost is not None or mutation.shared:
                result = mutation.confirmed(result, self._look(mutation, "answered", lost), lost)
        return self._check_exclusive(mutation, result)

    def _check_exclusive(self, mutation: Mutation, result: PutResult | None) -> PutResult | None:
        """Return `result`, unless its version shows that the store has ignored the condition."""
        if result is None or result.version is None:
            return result
        dialect = self._spelled(mutation).dialect
        if not dialect.needs_unversioned:
            return result
        self._versioned = True
        raise OutcomeUnknown(
            f"{mutation.operation.value} of {mutation.path!r} happened, as version {result.version}. "
            f"But the bucket keeps versions, and so it ignores conditions of dialect={dialect.value}: "
            "another object may have been replaced, and is an earlier version now. Look at the versions"
        )

    def _read_back(
        self, mutation: Mutation, lost: OutcomeUnknown | None, failure: CommitError
    ) -> PutResult | None:
        info = self._look(mutation, str(failure), failure if lost is None else lost)
        if mutation.read(info, exclusive=False) is Reading.LANDED:
            return mutation.result(info)
        if lost is None:
            raise failure
        raise mutation.unknown(f"an answer was lost, and then: {failure}") from lost

    def _look(self, mutation: Mutation, what: str, cause: CommitError | None) -> ObjectInfo | None:
        """Return the present object. Raises `OutcomeUnknown` if it cannot be read."""
        try:
            return self._store.begin_head(mutation.path)().info
        except CommitError as error:
            why = f"{what}, and reading it back failed ({error})"
            raise mutation.unknown(why) from cause or error
