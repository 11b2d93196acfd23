"""Recovery of pending changes in the log, whose clients died or did not get an answer.

A record has the id of the change that wrote it. If a later change replaced the record, the log has that
change: versions grow by one, so the versions that changes have read show which changes happened.
Recovery needs the table; without one, outcomes can only be inferred: see `inference`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attrs import field, frozen

from commitlog.errors import CommitError
from commitlog.namespace.log.entries import LoggedChange, Version, readable
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.tables.api import Key, Table

__all__ = ["Recovery"]


@frozen(kw_only=True)
class Recovery:
    """Recovery of pending changes in the log of one namespace.

    Args:
        table: the table of the namespace.
        log: its log; all clients that change the namespace must use it.
    """

    table: Table
    log: OperationLog

    def recover(self, *, older_than: float) -> tuple[Operation, ...]:
        """Decide pending changes: see `Maintenance.recover`.

        Other clients may go on working. A change is in the log before it changes a record. So read the
        records first and then the log: it has all changes that the records show. Only entries that
        concern the pending changes are kept; each pending change is read once more before it is decided.
        """
        unreadable: list[CommitError] = []
        traces: dict[str, _Traces] = {}

        decided: tuple[Operation, ...] = ()
        old = self.log.pending(older_than=older_than, unreadable=unreadable.append)
        for operation, change in readable(old, unreadable.append):
            traces[operation.id] = self._traces(change)
        if traces:
            evidence = self._gather_evidence(traces, unreadable)
            whole = not unreadable

            def judge(operation: Operation) -> Decision | None:
                found = traces.get(operation.id)  # None: too young when the records were read
                return None if found is None else _judge(found, evidence, whole=whole)

            decided = self.log.recover(judge, older_than=older_than)
        if unreadable:
            raise unreadable[0]
        return decided

    def _traces(self, change: LoggedChange) -> _Traces:
        witness = self.table.get(change.witness)
        done = witness is not None and witness.get("word") == change.id
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

    def _gather_evidence(
        self, traces: Mapping[str, _Traces], unreadable: list[CommitError]
    ) -> _LogEvidence:
        """Return the evidence in the log about the pending changes."""
        evidence = _LogEvidence(frozenset().union(*(each.made | each.seen for each in traces.values())))
        for found in traces.values():
            evidence.learn(found.seen)
            evidence.pending.update(found.seen)
            if found.done:
                evidence.committed.update(found.seen)
        # Keep this order: an operation decided meanwhile is then in one of them, or in both.
        others = self.log.pending(known=traces, unreadable=unreadable.append)
        for _, change in readable(others, unreadable.append):
            evidence.learn(change.seen)
            evidence.pending.update(change.seen & evidence.of)
        history = self.log.history(unreadable=unreadable.append)
        for operation, change in readable(history, unreadable.append):
            evidence.learn(change.seen)
            if operation.decision is Decision.COMMITTED:
                evidence.committed.update(change.seen & evidence.of)
        return evidence


@frozen(kw_only=True)
class _Traces:
    """A pending change, and its traces in the table before the log was read.

    Attributes:
        made, seen: see `LoggedChange`.
        done: whether the witness has the id of the change.
        undone: whether a version that the change would replace or remove still exists.
        repairs: whether the change is a repair: the versions that it replaces may have been lost
            earlier. cleared: whether the removal of the witness shows the success, and the witness is
            gone.
    """

    made: frozenset[Version]
    seen: frozenset[Version]
    done: bool
    undone: bool
    repairs: bool
    cleared: bool


@frozen
class _LogEvidence:
    """The evidence in the log about some versions.

    Attributes:
        of: the versions.
        seen: those that any change has read, to replace or remove them.
        committed: those that were replaced or removed.
        pending: number of pending changes that would replace or remove each.
    """

    of: frozenset[Version]
    seen: set[Version] = field(factory=set, init=False)
    committed: set[Version] = field(factory=set, init=False)
    pending: Counter[Version] = field(factory=Counter, init=False)

    def learn(self, seen: frozenset[Version]) -> None:
        """Add the versions that a change has read, whether it happened or not."""
        self.seen.update(seen & self.of)


def _judge(change: _Traces, evidence: _LogEvidence, *, whole: bool) -> Decision | None:
    """Return the outcome of a change; None if it cannot be determined.

    Args:
        change: the evidence in the records.
        evidence: the evidence in the log.
        whole: whether all of the log could be read.
    """
    if change.done:
        return Decision.COMMITTED
    if change.undone or change.seen & evidence.committed:
        return Decision.ROLLED_BACK
    if any(evidence.pending[version] > 1 for version in change.seen):
        return None  # several changes would replace the same version, and no record shows which did
    if not whole:
        # An unreadable change may have replaced the version, or read it.
        first = {version for version in change.made if version[1] == 1}
        return Decision.COMMITTED if first & evidence.seen else None
    if change.repairs:
        happened = change.cleared or change.made & evidence.seen
        return Decision.COMMITTED if happened else Decision.ROLLED_BACK
    # No other change removed the versions that it replaces; or a later change read a version it makes.
    if change.seen or change.made & evidence.seen:
        return Decision.COMMITTED
    return Decision.ROLLED_BACK
