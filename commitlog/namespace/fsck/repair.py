"""Repairs of the findings of a check: one conditional change for each finding.

A change applies only if the records are still as they were found. It is logged like any other change,
and writes new versions, so that a repaired record is not taken for the old one.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from functools import cache

from attrs import evolve, frozen

from commitlog.errors import (
    AlreadyExists,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    TransactionTooLarge,
)
from commitlog.namespace.fsck.confirm import records_unchanged
from commitlog.namespace.fsck.problems import Finding
from commitlog.namespace.fsck.readers import TableReader
from commitlog.namespace.fsck.references import References
from commitlog.namespace.fsck.repair_plans import RepairContext, plan_repair
from commitlog.namespace.model.keys import kind_of
from commitlog.namespace.model.records import Entry
from commitlog.namespace.write.transaction import Change, PlanOutdated
from commitlog.tables.api import MAX_TRANSACTION_WRITES, Delete, Put

__all__ = ["Outcome", "RepairReport", "Repairer"]

_ORDER = {
    "no-metadata": 0,
    "wrong-metadata": 0,
    "corrupt-record": 1,  # the log may have the record
    "log-newer": 2,
    "record-differs": 2,
    "row-newer": 2,
    "no-root": 3,
    "duplicate-directory": 4,  # else the wrong entry could be moved, and become the newer one
    "duplicate-file": 4,
}

#: Kinds of records that the log does not have. A removed directory record means a removed directory.
_UNLOGGED = frozenset({"d", "g"})


class Outcome(enum.Enum):
    """The result of the repair of a finding."""

    PLANNED = "planned"
    """It would be repaired; nothing was written."""
    DONE = "done"
    CHANGED = "changed"
    """Another client changed it since it was found; nothing was written. Check again."""
    LEFT = "left"
    """Not repaired: there is no repair for this kind, or a record needed for it cannot be read, or the
    path of ``lost+found`` is a file."""


@frozen(kw_only=True)
class RepairReport:
    """The result for one finding, and the number of records written, or planned to be written."""

    finding: Finding
    outcome: Outcome
    writes: int = 0


@frozen(kw_only=True)
class Repairer:
    """A repairer of one namespace.

    Args:
        table: reader of the table.
        context: what the repairs use.
        references: finds the references to objects.
    """

    table: TableReader
    context: RepairContext
    references: References

    def repair(self, findings: Iterable[Finding], *, dry_run: bool) -> Iterator[RepairReport]:
        """Repair findings one by one; yield the result of each.

        Repairs on which others depend come first, then those from the log: they may resolve other
        findings. Other findings about an entry that was repaired from the log wait for the next check:
        a new version of another row with its id would supersede the log. The same holds if the repair
        from the log failed.
        """
        by_log: set[str] = set()
        for done in self._repair(findings, by_log, dry_run=dry_run):
            if _ORDER.get(done.finding.problem.name, len(_ORDER)) <= _ORDER["row-newer"]:
                by_log.update(_ids(done.finding))
            yield done

    def _repair(
        self, findings: Iterable[Finding], waiting: Set[str], *, dry_run: bool
    ) -> Iterator[RepairReport]:
        in_order = sorted(findings, key=lambda each: _ORDER.get(each.problem.name, len(_ORDER)))
        objects = {each.object for each in in_order if each.object is not None}
        from_log = {
            each.id: each
            for each in in_order
            if each.id and each.problem.name in ("log-newer", "record-differs")
        }
        referenced = cache(lambda: self._referenced(objects))
        readable = [each for each in in_order if each.problem.name in _ORDER.keys() - {"corrupt-record"}]
        references = cache(lambda: self._references_to(readable))
        for finding in in_order:
            is_orphan = finding.problem.name == "orphan-object"
            # The object may have become a file since it was found, and has no record that would show it.
            # If it becomes one from now on, garbage collection detects that.
            if not records_unchanged(self.table, finding) or (
                is_orphan and finding.object in (referenced() or ())
            ):
                yield RepairReport(finding=finding, outcome=Outcome.CHANGED)
                continue
            waits = finding.problem.name not in _ORDER and not waiting.isdisjoint(_ids(finding))
            if waits or (is_orphan and referenced() is None):
                yield RepairReport(finding=finding, outcome=Outcome.LEFT)
                continue
            try:
                change = plan_repair(self.context, finding, from_log, references, dry_run=dry_run)
                if change is None or len(change.writes) > MAX_TRANSACTION_WRITES:
                    yield RepairReport(finding=finding, outcome=Outcome.LEFT)
                    continue
                if not dry_run:
                    self._apply(change)
            except (AlreadyExists, CorruptRecord, FormatTooNew, TransactionTooLarge):
                yield RepairReport(finding=finding, outcome=Outcome.LEFT)
                continue
            except (PlanOutdated, Conflict, NotFound):
                yield RepairReport(finding=finding, outcome=Outcome.CHANGED)
                continue
            outcome = Outcome.PLANNED if dry_run else Outcome.DONE
            yield RepairReport(finding=finding, outcome=outcome, writes=len(change.writes))

    def _apply(self, change: Change) -> None:
        """Apply a change; log it, unless it only removes an unneeded directory record.

        In the log, such a removal would mean that the file or directory with that id is removed.
        """
        removed = {kind_of(write.key) for write in change.writes if isinstance(write, Delete)}
        puts = any(isinstance(write, Put) for write in change.writes)
        unlogged = "d" in removed and removed <= _UNLOGGED and not puts
        changes = evolve(self.context.changes, log=None) if unlogged else self.context.changes
        changes.apply(change)

    def _references_to(self, findings: Iterable[Finding]) -> Mapping[str, frozenset[str]] | None:
        """Return the references to the objects of rows and of the log; None if they are unknown."""
        items = (item for each in findings for item in (*each.records, each.logged) if item is not None)
        entries = (Entry.from_item(item) for item in items if "id" in item and "body" in item)
        objects = {entry.data.path for entry in entries if entry.data is not None}
        try:
            return self.references.describe(objects)
        except (CorruptRecord, FormatTooNew):
            return None

    def _referenced(self, objects: Collection[str]) -> frozenset[str] | None:
        """Return the referenced ones of some objects; None if they are unknown."""
        try:
            return self.references.find(objects)
        except (CorruptRecord, FormatTooNew):
            return None


def _ids(finding: Finding) -> set[str]:
    """Return the ids of the affected files and directories."""
    found = {str(item["id"]) for item in finding.records if "id" in item}
    return found if finding.id is None else {*found, finding.id}
