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
from commitlog.namespace.keys import MARKERS, read_place
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
            if _is_of_log(finding):
                if logged is None:
                    assert self.log is not None
                    logged = self.log.read({of for each in findings for of in _said_of(each)})
                if not self._is_logged_still(finding, logged):
                    continue
            yield finding

    def _is_still(self, finding: Finding) -> bool:
        if not is_still(self.table, finding):
            return False
        if finding.problem.name in ("unlisted-garbage", "no-mark"):
            assert self.store is not None
            assert finding.object is not None
            there = self.store.begin_head(finding.object)().info is not None
            return there is (finding.problem.name == "unlisted-garbage")
        if finding.problem.name in ("object-missing", "object-changed", "out-of-date"):
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
        same = finding.waits or all(logged.item(of) == finding.logged for of in _said_of(finding))
        touched = finding.id in logged.touched and not finding.waits
        # In this order: the record, after the log, which told the same before it.
        return same and not touched and self._is_still(finding)


#: Kinds of findings that are about what the log says, or does not say.
_OF_LOG = ("log-newer", "row-newer", "record-differs", "wrong-marker", "pending-change")


def _is_of_log(finding: Finding) -> bool:
    return finding.problem.name in _OF_LOG or finding.logged is not None


def _said_of(finding: Finding) -> tuple[str, ...]:
    """Return what the log calls the thing that a finding compares with it."""
    if finding.logged is not None and "id" not in finding.logged:
        key = key_of(finding.logged)
        if key.hash == MARKERS:
            return ("m",)
        place = read_place(key.hash)
        return (f"{place.kind}/{place.of}/{key.range}",)
    if finding.problem.name == "wrong-marker":
        return ("m",)
    return () if finding.id is None else (f"e/{finding.id}",)


def in_place(table: TableReader, finding: Finding) -> Finding:
    """Base a finding on what has come to be in the place of what it misses, if there is such."""
    if finding.problem.name == "nameless-directory":
        return _taken(table, finding)
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


def _taken(table: TableReader, finding: Finding) -> Finding:
    """Base a finding on the entries, of something else, that have the names of a directory by now."""
    records, missing = list(finding.records), []
    for key in finding.missing:
        try:
            found = table.get(key)
            if found is not None and Entry.from_item(found).id != finding.id:
                records.append(found)
                continue
        except (CorruptRecord, FormatTooNew):  # which may be the entry of the directory
            pass
        missing.append(key)
    return evolve(finding, records=tuple(records), missing=tuple(missing))


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
