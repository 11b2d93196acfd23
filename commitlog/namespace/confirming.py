"""Looking again at what seemed to be wrong, before it is told, or repaired.

A finding counts if all records that it is based on are as they were: versions never come back, so they
were all so at one moment. Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from attrs import evolve, frozen

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.against import is_of
from commitlog.namespace.items import key_of
from commitlog.namespace.problems import Finding
from commitlog.namespace.readers import LogReader, LogSnapshot, StoreReader, TableReader
from commitlog.namespace.records import Entry, Gate
from commitlog.namespace.snapshot import record_of
from commitlog.tables.api import Item, Key

__all__ = ["Confirmer", "in_place", "is_still"]


@frozen(kw_only=True)
class Confirmer:
    """Looks again at findings of one namespace.

    Args:
        table: reads it.
        log: reads its log, if it keeps one.
        store: looks at its objects, if findings are about these.
    """

    table: TableReader
    log: LogReader | None
    store: StoreReader | None

    def confirmed(self, findings: Collection[Finding]) -> Iterator[Finding]:
        """Yield the findings that are still so, based on what is there now."""
        logged = None
        for finding in [in_place(self.table, each) for each in findings]:
            if not self._is_still(finding):
                continue
            name = finding.problem.name
            if name in ("log-newer", "row-newer", "pending-change"):
                if logged is None:
                    assert self.log is not None
                    logged = self.log.read({f"e/{each.id}" for each in findings})
                if not self._is_logged_still(finding, logged):
                    continue
            yield finding

    def _is_still(self, finding: Finding) -> bool:
        if not is_still(self.table, finding):
            return False
        if finding.problem.name in ("object-missing", "object-changed"):
            assert self.store is not None
            assert finding.object is not None
            entry = Entry.from_item(finding.records[0])
            info = self.store.begin_head(finding.object)().info
            if info is None:
                self.store.prove()
            return info is None or entry.data is None or not is_of(entry.data, info)
        return True

    def _is_logged_still(self, finding: Finding, logged: LogSnapshot) -> bool:
        if finding.problem.name == "pending-change":
            return finding.path in {each.id for each in logged.pending}
        assert finding.id is not None
        state = logged.states.get(finding.id)
        same = (None if state is None else state.item) == finding.logged
        # In this order: the record, after the log, which told the same before it.
        return same and not logged.is_touched(finding.id) and self._is_still(finding)


def in_place(table: TableReader, finding: Finding) -> Finding:
    """Base a finding on what has come to be in the place of what the log has, if there is such."""
    if finding.problem.name != "log-newer" or not finding.missing:
        return finding
    try:
        found = table.get(finding.missing[0])
        if found is None or Entry.from_item(found).id == finding.id:
            return finding
    except (CorruptRecord, FormatTooNew):  # which is told by itself
        return finding
    # As long as that is there, what the log has at this place is nowhere.
    detail = f"{finding.detail}, and something else at its path"
    return evolve(finding, detail=detail, records=(found,), missing=())


def is_still(table: TableReader, finding: Finding) -> bool:
    """Tell whether the records that a finding is based on are still as they were."""
    for item in finding.records:
        try:
            found = table.get(key_of(item))
        except CorruptRecord:  # what can be read of it is no reason to take it for another
            if finding.problem.name != "corrupt-record":
                return False
            continue
        if not _same(found, item):
            return False
    return all(_is_missing(table, key) for key in finding.missing)


def _is_missing(table: TableReader, key: Key) -> bool:
    try:
        return table.get(key) is None
    except CorruptRecord:
        return False


def _same(found: Item | None, item: Item) -> bool:
    if found is None:
        return False
    try:
        record, now = record_of(item), record_of(found)
    except (ValueError, CorruptRecord, FormatTooNew):
        return found == item
    if isinstance(record, Gate) and isinstance(now, Gate):  # whoever adds something writes a gate
        return record.shards == now.shards
    # A newer library may have added fields, which the item of a finding has lost.
    return found == item if record is None else record == now
