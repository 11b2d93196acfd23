"""What became of changes that are pending in the log, whose clients died or lost an answer: found out.

A record of an entry tells by its word which change wrote it. Where others have changed it since, the log
tells: versions grow by one, so what version was seen by whom says which changes there have been. This is
for a table that is there; without one, what happened can only be inferred: see `inference`. Imports the
operation log, its siblings, and the `Table` port.
"""

from __future__ import annotations

from collections import Counter

from attrs import frozen

from commitlog.errors import CommitError
from commitlog.namespace.logged import LoggedChange, Version, readable
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.tables.api import Key, Table

__all__ = ["Recovery"]


@frozen(kw_only=True)
class Recovery:
    """Decides what is pending in the log of one namespace.

    Args:
        table: has the namespace.
        log: its log; all clients that change the namespace must use it.
    """

    table: Table
    log: OperationLog

    def recover(self, *, older_than: float) -> tuple[Operation, ...]:
        """See `Namespace.recover`."""
        unreadable: list[CommitError] = []
        told = readable(self.log.pending(unreadable=unreadable.append), unreadable.append)
        pending = {operation.id: change for operation, change in told}
        if not pending and not unreadable:
            return ()
        committed: set[Version] = set()
        seen: set[Version] = set()
        history = self.log.history(unreadable=unreadable.append)
        for operation, change in readable(history, unreadable.append):
            seen |= change.seen
            if operation.decision is Decision.COMMITTED:
                committed |= change.seen
        rivals = Counter(version for change in pending.values() for version in change.seen)
        seen |= set(rivals)
        done = {id for id, change in pending.items() if self._bears_witness(change)}
        committed |= {version for id in done for version in pending[id].seen}

        def judge(operation: Operation) -> Decision | None:
            change = pending.get(operation.id)
            if change is None:
                return None  # begun since
            if operation.id in done:
                return Decision.COMMITTED
            return self._judge(change, committed, seen, rivals, whole=not unreadable)

        decided = self.log.recover(judge, older_than=older_than)
        if unreadable:
            raise unreadable[0]
        return decided

    def _judge(
        self,
        change: LoggedChange,
        committed: set[Version],
        seen: set[Version],
        rivals: Counter[Version],
        *,
        whole: bool,
    ) -> Decision | None:
        if change.seen & committed or any(self._is_there(*each) for each in change.before):
            return Decision.ROLLED_BACK
        if any(rivals[version] > 1 for version in change.seen):
            return None  # one of several that would have replaced the same, and no record tells which
        if not whole:
            # What cannot be read may be what has replaced it, or has seen it.
            first = {version for version in change.made if version[1] == 1}
            return Decision.COMMITTED if first & seen else None
        if change.what.startswith("repair: "):
            # What it would have replaced may have been lost before that.
            cleared = change.clears and self.table.get(change.witness) is None
            return Decision.COMMITTED if cleared or change.made & seen else Decision.ROLLED_BACK
        # What it would have replaced is gone, by nobody else; or what it would have made was seen.
        if change.seen or change.made & seen:
            return Decision.COMMITTED
        return Decision.ROLLED_BACK

    def _bears_witness(self, change: LoggedChange) -> bool:
        item = self.table.get(change.witness)
        return item is not None and item.get("word") == change.word

    def _is_there(self, key: Key, version: Version) -> bool:
        item = self.table.get(key)
        return item is not None and (item.get("id"), item.get("version")) == version
