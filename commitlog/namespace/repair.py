"""Repairing what a check has found: a change for each finding, on condition that all is as it was found.

What is repaired is logged like any other change, and dated anew: a version more, so that nobody takes it
for what it was. Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from functools import cache

from attrs import evolve, frozen

from commitlog.absence import is_absent
from commitlog.errors import (
    AlreadyExists,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    TransactionTooLarge,
)
from commitlog.namespace.change import MAX_WRITES, Change, Changes, Stale
from commitlog.namespace.confirming import is_still
from commitlog.namespace.fixes import Fixes
from commitlog.namespace.named import named_among, namers
from commitlog.namespace.problems import Finding
from commitlog.namespace.readers import TableReader
from commitlog.namespace.records import Entry
from commitlog.namespace.snapshot import read_kind
from commitlog.tables.api import Delete, Put

__all__ = ["Outcome", "Repaired", "Repairer"]

_ORDER = {
    "no-marker": 0,
    "wrong-marker": 0,
    "corrupt-record": 1,  # in whose place the log may have something
    "log-newer": 2,
    "record-differs": 2,
    "row-newer": 2,
    "no-root": 3,
    "directory-named-twice": 4,  # else the wrong one of them would be moved, and be the newer one
    "file-named-twice": 4,
}

#: Kinds of records of which a log has nothing: of a directory record it has that the directory is gone.
_UNLOGGED = frozenset({"d", "g"})


class Outcome(enum.Enum):
    """What became of a finding."""

    PLANNED = "planned"
    """It would be repaired; nothing was written."""
    DONE = "done"
    CHANGED = "changed"
    """Somebody has changed it since it was found; nothing was written. Check again."""
    LEFT = "left"
    """Nothing repairs it, see what the kind says; or something that it takes cannot be read, or a file
    is where ``lost+found`` would be."""


@frozen(kw_only=True)
class Repaired:
    """What became of a finding, and how many records were, or would be, written for that."""

    finding: Finding
    outcome: Outcome
    writes: int = 0


@frozen(kw_only=True)
class Repairer:
    """Repairs one namespace.

    Args:
        table: reads it.
        fixes: says what repairs what.
        changes: those of the namespace.
    """

    table: TableReader
    fixes: Fixes
    changes: Changes

    def repair(self, findings: Iterable[Finding], *, dry_run: bool) -> Iterator[Repaired]:
        """Repair findings one by one; yield what became of each.

        What all hangs on comes first, and what the log says: other findings may be settled by that. Of
        such an entry all else waits for the next check: a new version of another row with its id, or
        where that could not be done, would outrank the log.
        """
        by_log: set[str] = set()
        for done in self._repair(findings, by_log, dry_run=dry_run):
            if _ORDER.get(done.finding.problem.name, len(_ORDER)) <= _ORDER["row-newer"]:
                by_log.update(_ids(done.finding))
            yield done

    def _repair(
        self, findings: Iterable[Finding], waiting: Set[str], *, dry_run: bool
    ) -> Iterator[Repaired]:
        in_order = sorted(findings, key=lambda each: _ORDER.get(each.problem.name, len(_ORDER)))
        objects = {each.object for each in in_order if each.object is not None}
        told = {
            each.id: each
            for each in in_order
            if each.id and each.problem.name in ("log-newer", "record-differs")
        }
        named = cache(lambda: self._named(objects))
        readable = [each for each in in_order if each.problem.name in _ORDER.keys() - {"corrupt-record"}]
        namers = cache(lambda: self._namers(readable))
        for finding in in_order:
            nameless = finding.problem.name == "unnamed-object"
            # It may have become a file since it was found, and has no record that would tell. One that
            # does so from now on is found by who collects garbage.
            if not is_still(self.table, finding) or (nameless and finding.object in (named() or ())):
                yield Repaired(finding=finding, outcome=Outcome.CHANGED)
                continue
            waits = finding.problem.name not in _ORDER and not waiting.isdisjoint(_ids(finding))
            if waits or (nameless and named() is None):
                yield Repaired(finding=finding, outcome=Outcome.LEFT)
                continue
            try:
                change = self.fixes.plan(finding, told, namers, dry_run=dry_run)
                if change is None or len(change.writes) > MAX_WRITES:
                    yield Repaired(finding=finding, outcome=Outcome.LEFT)
                    continue
                if not dry_run:
                    self._apply(change)
            except (AlreadyExists, CorruptRecord, FormatTooNew, TransactionTooLarge):
                yield Repaired(finding=finding, outcome=Outcome.LEFT)
                continue
            except (Stale, Conflict, NotFound) as error:
                if isinstance(error, NotFound) and not is_absent(error):
                    raise
                yield Repaired(finding=finding, outcome=Outcome.CHANGED)
                continue
            outcome = Outcome.PLANNED if dry_run else Outcome.DONE
            yield Repaired(finding=finding, outcome=outcome, writes=len(change.writes))

    def _apply(self, change: Change) -> None:
        """Apply a change; log it, unless it only removes a directory record that nothing needs.

        In the log that would say that the file or directory of that id is gone.
        """
        removed = {read_kind(write.key) for write in change.writes if isinstance(write, Delete)}
        puts = any(isinstance(write, Put) for write in change.writes)
        unlogged = "d" in removed and removed <= _UNLOGGED and not puts
        changes = evolve(self.changes, log=None) if unlogged else self.changes
        changes.apply(change)

    def _namers(self, findings: Iterable[Finding]) -> Mapping[str, frozenset[str]] | None:
        """Return what names the objects of rows, and of what the log has; None if nobody can tell."""
        told = [item for each in findings for item in (*each.records, each.logged) if item is not None]
        items = (item for item in told if "id" in item and "body" in item)
        objects = {entry.data.path for entry in map(Entry.from_item, items) if entry.data is not None}
        try:
            return namers(objects, self.table, self.fixes.log)
        except (CorruptRecord, FormatTooNew):
            return None

    def _named(self, objects: Collection[str]) -> frozenset[str] | None:
        """Return which of some objects are named; None if nobody can tell."""
        try:
            return named_among(objects, self.table, self.fixes.log)
        except (CorruptRecord, FormatTooNew):
            return None


def _ids(finding: Finding) -> set[str]:
    """Return the ids of the files and directories that a finding is about."""
    found = {str(item["id"]) for item in finding.records if "id" in item}
    return found if finding.id is None else {*found, finding.id}
