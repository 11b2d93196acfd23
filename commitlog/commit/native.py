"""Conditions that the store itself enforces: one round trip.

Only for operations that are known to be enforced (`commitlog.commit.strategy`). What is added here is
the truth about lost answers: a retry carries the same nonce under the same condition, so a second
attempt lands only if what the first did was undone meanwhile, and a refusal after an ambiguous attempt
is resolved by reading back.

Imports the ground floor and the `ObjectStore` port.
"""

from __future__ import annotations

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.commit.mutation import Mutation, Reading
from commitlog.errors import CommitError, Conflict, OutcomeUnknown, Unavailable
from commitlog.stores.api import ObjectStore, Operation, PutResult

__all__ = ["NativeCommitter"]


class NativeCommitter:
    """Sends a mutation with its condition, and settles what its answers leave open. Thread-safe.

    Args:
        store: where.
        clock: what to wait on between attempts.
        backoff: how often, and after what pauses, an attempt is repeated that did nothing
            (`Conflict`, `Unavailable`) or whose answer was lost.

    Guarantees: as the store's own condition. Non-guarantees: after a lost answer, a copy that finds its
    target, a deletion that finds nothing, and a put that finds another's object raise
    `OutcomeUnknown`: mine may have landed first. A delayed attempt may find its condition to hold once
    more: a creation, when the object was removed again; an update, where etags are digests of the
    content, when the object returned to earlier bytes.
    """

    def __init__(self, store: ObjectStore, *, clock: Clock, backoff: Backoff) -> None:
        self._store = store
        self._clock = clock
        self._backoff = backoff

    def run(self, mutation: Mutation) -> PutResult | None:
        """Carry out `mutation`; see `ConditionalStore` for results and errors."""
        lost: OutcomeUnknown | None = None
        failure: CommitError | None = None
        for _ in self._backoff.attempts(self._clock):
            try:
                return mutation.send(mutation.condition, None)
            except OutcomeUnknown as error:
                lost = failure = error
            except (Conflict, Unavailable) as error:
                failure = error
            except CommitError as error:
                failure = error
                break
        assert failure is not None
        # An upload that was published before, by this call's first attempt or by whoever else finished
        # it, is refused as missing or as existing; its nonce tells that all is well.
        if lost is None and mutation.operation is not Operation.PUBLISH:
            raise failure
        return self._read_back(mutation, lost, failure)

    def _read_back(
        self, mutation: Mutation, lost: OutcomeUnknown | None, failure: CommitError
    ) -> PutResult | None:
        try:
            info = self._store.begin_head(mutation.path)().info
        except CommitError as error:
            if lost is None:
                raise error from failure  # whether the upload was published before cannot be told
            raise mutation.unknown(f"reading it back failed as well ({error})") from lost
        if mutation.read(info, exclusive=False) is Reading.LANDED:
            return mutation.result(info)
        if lost is None:
            raise failure
        raise mutation.unknown(f"an answer was lost, and then: {failure}") from lost
