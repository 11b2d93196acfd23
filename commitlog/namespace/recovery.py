"""What became of changes that are pending in the log, whose clients died or lost an answer: found out.

A record of an entry tells by its word which change wrote it. Where others have changed it since, the log
tells: versions grow by one, so what version was seen by whom says which changes there have been. This is
for a table that is there; without one, what happened can only be inferred: see `inference`. Imports the
operation log, its siblings, and the `Table` port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attrs import field, frozen

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
        """See `Namespace.recover`.

        Others go on working meanwhile. Whatever has changed a record was in the log before that, so the
        records are read first, and then the log: it knows of all that they show. Of what it tells is
        kept what is of the pending changes; of these each is read once more before it is decided.
        """
        unreadable: list[CommitError] = []
        traces: dict[str, _Traces] = {}

        decided: tuple[Operation, ...] = ()
        old = self.log.pending(older_than=older_than, unreadable=unreadable.append)
        for operation, change in readable(old, unreadable.append):
            traces[operation.id] = self._traces(change)
        if traces:
            told = self._told(traces, unreadable)
            whole = not unreadable

            def judge(operation: Operation) -> Decision | None:
                found = traces.get(operation.id)  # None: it was not old enough when records were read
                return None if found is None else _judge(found, told, whole=whole)

            decided = self.log.recover(judge, older_than=older_than)
        if unreadable:
            raise unreadable[0]
        return decided

    def _traces(self, change: LoggedChange) -> _Traces:
        witness = self.table.get(change.witness)
        done = witness is not None and witness.get("word") == change.word
        return _Traces(
            made=change.made,
            seen=change.seen,
            done=done,
            undone=not done and any(self._is_there(*each) for each in change.before),
            repairs=change.what.startswith("repair: "),
            cleared=change.clears and witness is None,
        )

    def _is_there(self, key: Key, version: Version) -> bool:
        item = self.table.get(key)
        return item is not None and (item.get("id"), item.get("version")) == version

    def _told(self, traces: Mapping[str, _Traces], unreadable: list[CommitError]) -> _Told:
        """Return what the log tells of the pending changes."""
        told = _Told(frozenset().union(*(each.made | each.seen for each in traces.values())))
        for found in traces.values():
            told.learn(found.seen)
            told.pending.update(found.seen)
            if found.done:
                told.committed.update(found.seen)
        # In this order: what is decided meanwhile is in one of them, or in both.
        others = self.log.pending(known=traces, unreadable=unreadable.append)
        for _, change in readable(others, unreadable.append):
            told.learn(change.seen)
            told.pending.update(change.seen & told.of)
        history = self.log.history(unreadable=unreadable.append)
        for operation, change in readable(history, unreadable.append):
            told.learn(change.seen)
            if operation.decision is Decision.COMMITTED:
                told.committed.update(change.seen & told.of)
        return told


@frozen(kw_only=True)
class _Traces:
    """A pending change, and what the table had of it before the log was read.

    Attributes:
        made, seen: see `LoggedChange`.
        done: whether the record that tells of its success bears its word.
        undone: whether anything is there that it would have replaced or removed.
        repairs: whether it repairs: what it would have replaced may have been lost before that.
        cleared: whether its success is told by a record that is gone, and it is.
    """

    made: frozenset[Version]
    seen: frozenset[Version]
    done: bool
    undone: bool
    repairs: bool
    cleared: bool


@frozen
class _Told:
    """What the log tells of some versions.

    Attributes:
        of: those.
        seen: which of them anybody has seen who would replace or remove them.
        committed: which of them were replaced or removed.
        pending: by how many pending changes each would be.
    """

    of: frozenset[Version]
    seen: set[Version] = field(factory=set, init=False)
    committed: set[Version] = field(factory=set, init=False)
    pending: Counter[Version] = field(factory=Counter, init=False)

    def learn(self, seen: frozenset[Version]) -> None:
        """Take in what a change has seen, whether it happened or not."""
        self.seen.update(seen & self.of)


def _judge(change: _Traces, told: _Told, *, whole: bool) -> Decision | None:
    """Tell whether a change happened; None if nothing tells.

    Args:
        change: what the records say.
        told: what the log says.
        whole: whether all of that could be read.
    """
    if change.done:
        return Decision.COMMITTED
    if change.undone or change.seen & told.committed:
        return Decision.ROLLED_BACK
    if any(told.pending[version] > 1 for version in change.seen):
        return None  # one of several that would have replaced the same, and no record tells which
    if not whole:
        # What cannot be read may be what has replaced it, or has seen it.
        first = {version for version in change.made if version[1] == 1}
        return Decision.COMMITTED if first & told.seen else None
    if change.repairs:
        happened = change.cleared or change.made & told.seen
        return Decision.COMMITTED if happened else Decision.ROLLED_BACK
    # What it would have replaced is gone, by nobody else; or what it would have made was seen.
    if change.seen or change.made & told.seen:
        return Decision.COMMITTED
    return Decision.ROLLED_BACK
