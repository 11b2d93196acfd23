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
from commitlog.namespace.log.entries import LoggedChange, Version, parse_changes
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
        for operation, change in parse_changes(old, unreadable.append):
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
        primary = self.table.get(change.primary)
        applied = primary is not None and primary.get("change_id") == change.id
        return _Traces(
            written=change.written,
            replaced=change.replaced,
            applied=applied,
            refuted=not applied and any(self._exists(*each) for each in change.replaced_at),
            is_repair=change.what.startswith("repair: "),
            primary_removed=change.removes_primary and primary is None,
        )

    def _exists(self, key: Key, version: Version) -> bool:
        item = self.table.get(key)
        return item is not None and (item.get("id"), item.get("version")) == version

    def _gather_evidence(
        self, traces: Mapping[str, _Traces], unreadable: list[CommitError]
    ) -> _LogEvidence:
        """Return the evidence in the log about the pending changes."""
        evidence = _LogEvidence(
            frozenset().union(*(each.written | each.replaced for each in traces.values()))
        )
        for found in traces.values():
            evidence.add_read(found.replaced)
            evidence.pending.update(found.replaced)
            if found.applied:
                evidence.committed.update(found.replaced)
        # Keep this order: an operation decided meanwhile is then in one of them, or in both.
        others = self.log.pending(known=traces, unreadable=unreadable.append)
        for _, change in parse_changes(others, unreadable.append):
            evidence.add_read(change.replaced)
            evidence.pending.update(change.replaced & evidence.versions)
        history = self.log.history(unreadable=unreadable.append)
        for operation, change in parse_changes(history, unreadable.append):
            evidence.add_read(change.replaced)
            if operation.decision is Decision.COMMITTED:
                evidence.committed.update(change.replaced & evidence.versions)
        return evidence


@frozen(kw_only=True)
class _Traces:
    """A pending change, and its traces in the table before the log was read.

    Attributes:
        written, replaced: see `LoggedChange`.
        applied: whether the primary record has the id of the change.
        refuted: whether a version that the change would replace or remove still exists.
        is_repair: whether the change is a repair: the versions that it replaces may have been lost
            earlier.
        primary_removed: whether the removal of the primary record shows the success, and it does not
            exist.
    """

    written: frozenset[Version]
    replaced: frozenset[Version]
    applied: bool
    refuted: bool
    is_repair: bool
    primary_removed: bool


@frozen
class _LogEvidence:
    """The evidence in the log about some versions.

    Attributes:
        versions: the versions.
        read: those that any change has read, to replace or remove them.
        committed: those that were replaced or removed.
        pending: number of pending changes that would replace or remove each.
    """

    versions: frozenset[Version]
    read: set[Version] = field(factory=set, init=False)
    committed: set[Version] = field(factory=set, init=False)
    pending: Counter[Version] = field(factory=Counter, init=False)

    def add_read(self, versions: frozenset[Version]) -> None:
        """Add the versions that a change has read, whether it happened or not."""
        self.read.update(versions & self.versions)


def _judge(change: _Traces, evidence: _LogEvidence, *, whole: bool) -> Decision | None:
    """Return the outcome of a change; None if it cannot be determined.

    Args:
        change: the evidence in the records.
        evidence: the evidence in the log.
        whole: whether all of the log could be read.
    """
    if change.applied:
        return Decision.COMMITTED
    if change.refuted or change.replaced & evidence.committed:
        return Decision.ROLLED_BACK
    if any(evidence.pending[version] > 1 for version in change.replaced):
        return None  # several changes would replace the same version, and no record shows which did
    if not whole:
        # An unreadable change may have replaced the version, or read it.
        first = {version for version in change.written if version[1] == 1}
        return Decision.COMMITTED if first & evidence.read else None
    if change.is_repair:
        happened = change.primary_removed or change.written & evidence.read
        return Decision.COMMITTED if happened else Decision.ROLLED_BACK
    # No other change removed the versions that it replaces; or a later change read a version it makes.
    if change.replaced or change.written & evidence.read:
        return Decision.COMMITTED
    return Decision.ROLLED_BACK
