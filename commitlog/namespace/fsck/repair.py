"""Repairs of the findings of a check: one conditional change for each finding.

A change applies only if the records are still as they were found. It is logged like any other change,
and writes new versions, so that a repaired record is not taken for the old one.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TypeAlias

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
from commitlog.namespace.fsck.repair_order import (
    Stage,
    described_objects,
    ids_of,
    in_order,
    stage_of,
)
from commitlog.namespace.fsck.repair_plans import RepairContext, plan_repair
from commitlog.namespace.log.epoch import FencedLog
from commitlog.namespace.model.keys import Keys, kind_of
from commitlog.namespace.write.transaction import Change, PlanOutdated
from commitlog.tables.api import MAX_TRANSACTION_WRITES, Delete, Put

__all__ = [
    "FindingsRepairer",
    "OpenRepairer",
    "RepairOutcome",
    "RepairReport",
    "Repairer",
    "describe_references",
    "find_referenced_objects",
]

#: Kinds of records that the log does not have. A removed directory record means a removed directory.
_UNLOGGED = frozenset({"d", "g"})


class RepairOutcome(enum.Enum):
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
    outcome: RepairOutcome
    writes: int = 0


class FindingsRepairer(abc.ABC):
    """Repairs the findings of one namespace."""

    @abc.abstractmethod
    def repair(self, findings: Iterable[Finding], *, dry_run: bool) -> Iterator[RepairReport]:
        """Repair findings; yield the result of each, in the order of `repair_order.in_order`.

        Findings of a later stage about an entry that was repaired from the log wait for the next check:
        a new version of another row with its id would supersede the log. The same holds if the repair
        from the log failed.

        Args:
            findings: the findings.
            dry_run: whether to report the repairs without making them.
        """


#: Opens what repairs findings, given the keys of a namespace, its log, if there is one, and what repairs
#: them in this process.
OpenRepairer: TypeAlias = Callable[[Keys, FencedLog | None, "Repairer"], FindingsRepairer]


@frozen(kw_only=True)
class Repairer(FindingsRepairer):
    """A repairer that makes one change after the other.

    Args:
        table: reader of the table.
        context: what the repairs use.
        references: finds the references to objects.
    """

    table: TableReader
    context: RepairContext
    references: References

    def repair(self, findings: Iterable[Finding], *, dry_run: bool) -> Iterator[RepairReport]:
        """See `FindingsRepairer.repair`."""
        return self.repair_stages(findings, tuple(Stage), dry_run=dry_run)

    def repair_stages(
        self, findings: Iterable[Finding], stages: Collection[Stage], *, dry_run: bool
    ) -> Iterator[RepairReport]:
        """Repair the findings of some stages, which follow each other; yield the result of each.

        Args:
            findings: the findings of all stages.
            stages: the stages; the repairs of earlier ones are complete.
            dry_run: whether to report the repairs without making them.
        """
        in_turn = in_order(findings)
        from_log = {
            each.id: each
            for each in in_turn
            if each.id and each.problem.name in ("log-newer", "record-differs")
        }
        waiting = {id for each in in_turn if stage_of(each) <= Stage.LOG for id in ids_of(each)}
        described = cache(lambda: describe_references(self.references, in_turn))
        referenced = cache(lambda: find_referenced_objects(self.references, in_turn))
        for finding in in_turn:
            stage = stage_of(finding)
            if stage not in stages:
                continue
            if stage >= Stage.LOG:
                described()  # unreadable records are repaired now, and nothing is replaced yet
            outcome, writes = self._repair(
                finding,
                from_log,
                described,
                referenced,
                waits=stage > Stage.DUPLICATES and not waiting.isdisjoint(ids_of(finding)),
                dry_run=dry_run,
            )
            yield RepairReport(finding=finding, outcome=outcome, writes=writes)

    def _repair(
        self,
        finding: Finding,
        from_log: Mapping[str, Finding],
        described: Callable[[], Mapping[str, frozenset[str]] | None],
        referenced: Callable[[], frozenset[str] | None],
        *,
        waits: bool,
        dry_run: bool,
    ) -> tuple[RepairOutcome, int]:
        """Repair one finding; return the outcome and the number of writes."""
        is_orphan = finding.problem.name == "orphan-object"
        # The object may have become a file since it was found, and has no record that would show it.
        # If it becomes one from now on, garbage collection detects that.
        if not records_unchanged(self.table, finding) or (
            is_orphan and finding.object in (referenced() or ())
        ):
            return RepairOutcome.CHANGED, 0
        if waits or (is_orphan and referenced() is None):
            return RepairOutcome.LEFT, 0
        try:
            change = plan_repair(self.context, finding, from_log, described, dry_run=dry_run)
            if change is None or len(change.writes) > MAX_TRANSACTION_WRITES:
                return RepairOutcome.LEFT, 0
            if not dry_run:
                self._apply(change)
        except (AlreadyExists, CorruptRecord, FormatTooNew, TransactionTooLarge):
            return RepairOutcome.LEFT, 0
        except (PlanOutdated, Conflict, NotFound):
            return RepairOutcome.CHANGED, 0
        return RepairOutcome.PLANNED if dry_run else RepairOutcome.DONE, len(change.writes)

    def _apply(self, change: Change) -> None:
        """Apply a change; log it, unless it only removes an unneeded directory record.

        In the log, such a removal would mean that the file or directory with that id is removed.
        """
        removed = {kind_of(write.key) for write in change.writes if isinstance(write, Delete)}
        puts = any(isinstance(write, Put) for write in change.writes)
        unlogged = "d" in removed and removed <= _UNLOGGED and not puts
        changes = evolve(self.context.changes, log=None) if unlogged else self.context.changes
        changes.apply(change)


def describe_references(
    references: References, findings: Iterable[Finding]
) -> Mapping[str, frozenset[str]] | None:
    """Return the references to the objects that repairs may list as garbage; None if they are unknown.

    Args:
        references: finds them, if there are such objects.
        findings: the findings of all stages.
    """
    objects = {path for finding in findings for path in described_objects(finding)}
    try:
        return references.describe(objects) if objects else {}
    except (CorruptRecord, FormatTooNew):
        return None


def find_referenced_objects(
    references: References, findings: Iterable[Finding]
) -> frozenset[str] | None:
    """Return the objects found to be unreferenced that are referenced; None if that is unknown.

    Arguments are as of `describe_references`.
    """
    orphans = {
        finding.object
        for finding in findings
        if finding.problem.name == "orphan-object" and finding.object is not None
    }
    try:
        return references.find(orphans) if orphans else frozenset()
    except (CorruptRecord, FormatTooNew):
        return None
