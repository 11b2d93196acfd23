"""Repairing what a check has found: a change for each finding, on condition that all is as it was found.

What is repaired is logged like any other change, and dated anew: a version more, so that nobody takes it
for what it was. Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator
from functools import cache

from attrs import frozen

from commitlog.absence import is_absent
from commitlog.errors import (
    AlreadyExists,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    TransactionTooLarge,
)
from commitlog.namespace.change import MAX_WRITES, Changes, Stale
from commitlog.namespace.confirming import is_still
from commitlog.namespace.fixes import Fixes
from commitlog.namespace.named import named_among
from commitlog.namespace.problems import Finding
from commitlog.namespace.readers import TableReader

__all__ = ["Outcome", "Repaired", "Repairer"]

_ORDER = {"no-marker": 0, "log-newer": 1, "no-root": 2}


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

        What all hangs on comes first, and what the log says: other findings may be settled by that.
        """
        in_order = sorted(findings, key=lambda each: _ORDER.get(each.problem.name, len(_ORDER)))
        objects = {each.object for each in in_order if each.object is not None}
        told = {each.id: each for each in in_order if each.id and each.problem.name == "log-newer"}
        named = cache(lambda: self._named(objects))
        for finding in in_order:
            nameless = finding.problem.name == "unnamed-object"
            # It may have become a file since it was found, and has no record that would tell. One that
            # does so from now on is found by who collects garbage.
            if not is_still(self.table, finding) or (nameless and finding.object in (named() or ())):
                yield Repaired(finding=finding, outcome=Outcome.CHANGED)
                continue
            if nameless and named() is None:
                yield Repaired(finding=finding, outcome=Outcome.LEFT)
                continue
            try:
                change = self.fixes.plan(finding, told, dry_run=dry_run)
                if change is None or len(change.writes) > MAX_WRITES:
                    yield Repaired(finding=finding, outcome=Outcome.LEFT)
                    continue
                if not dry_run:
                    self.changes.apply(change)
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

    def _named(self, objects: Collection[str]) -> frozenset[str] | None:
        """Return which of some objects are named; None if nobody can tell."""
        try:
            return named_among(objects, self.table, self.fixes.log)
        except (CorruptRecord, FormatTooNew):
            return None
