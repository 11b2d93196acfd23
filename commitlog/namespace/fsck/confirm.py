"""The second read of a suspected problem, before it is reported or repaired.

A finding counts if all of its records are unchanged. Versions never come back, so all of these records
existed at one point in time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from attrs import evolve, frozen

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.fsck.cross_checks import has_content
from commitlog.namespace.fsck.problems import Finding
from commitlog.namespace.fsck.readers import LogSnapshot, StoreReader, TableReader
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.keys import NAMESPACES, parse_hash_key
from commitlog.namespace.model.records import Entry, Guard, record_of
from commitlog.tables.api import Item, Key

__all__ = ["Confirmer", "records_unchanged", "with_occupant"]


@frozen(kw_only=True)
class Confirmer:
    """A confirmer of findings of one namespace.

    Args:
        table: reader of the table.
        read_log: returns the newest states of some `ItemState.item_id` in the log.
        store: reader of the objects, if findings are about objects.
    """

    table: TableReader
    read_log: Callable[[Collection[str]], LogSnapshot]
    store: StoreReader | None

    def confirmed(self, findings: Collection[Finding]) -> Iterator[Finding]:
        """Yield the findings that still hold, based on the current records."""
        logged = None
        for finding in [with_occupant(self.table, each) for each in findings]:
            if not self._still_holds(finding):
                continue
            if _is_of_log(finding):
                if logged is None:
                    logged = self.read_log(
                        {item_id for each in findings for item_id in _logged_ids(each)}
                    )
                if not self._log_still_agrees(finding, logged):
                    continue
            yield finding

    def _still_holds(self, finding: Finding) -> bool:
        if not records_unchanged(self.table, finding):
            return False
        if finding.problem.name in ("unlisted-garbage", "no-store-identity"):
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
                self.store.verify()
            return info is None or entry.data is None or not has_content(entry.data, info)
        return True

    def _log_still_agrees(self, finding: Finding, logged: LogSnapshot) -> bool:
        if finding.problem.name == "pending-change":
            return finding.path in {each.id for each in logged.pending}
        same = finding.waits or all(
            logged.item(item_id) == finding.logged for item_id in _logged_ids(finding)
        )
        touched = finding.id in logged.touched and not finding.waits
        # Read the record again after the log: the log agreed with it before.
        return same and not touched and self._still_holds(finding)


#: Kinds of findings that compare the table with the log.
_OF_LOG = ("log-newer", "row-newer", "record-differs", "wrong-metadata", "pending-change")


def _is_of_log(finding: Finding) -> bool:
    return finding.problem.name in _OF_LOG or finding.logged is not None


def _logged_ids(finding: Finding) -> tuple[str, ...]:
    """Return the `ItemState.item_id` that a finding compares with the log."""
    if finding.logged is not None and "id" not in finding.logged:
        key = key_of(finding.logged)
        if key.hash == NAMESPACES:
            return ("m",)
        place = parse_hash_key(key.hash)
        return (f"{place.kind}/{place.id}/{key.range}",)
    if finding.problem.name == "wrong-metadata":
        return ("m",)
    return () if finding.id is None else (f"e/{finding.id}",)


def with_occupant(table: TableReader, finding: Finding) -> Finding:
    """Base a finding on the record that now has the place of a missing one, if there is one."""
    if finding.problem.name == "orphan-directory":
        return _with_occupants(table, finding)
    if finding.problem.name != "log-newer" or not finding.missing:
        return finding
    try:
        found = table.get(finding.missing[0])
        if found is None or Entry.from_item(found).id == finding.id:
            return finding
    except (CorruptRecord, FormatTooNew):  # a finding of its own
        return finding
    # While that record exists, the one from the log has no place.
    detail = f"{finding.detail}, and another entry has its path"
    return evolve(finding, detail=detail, records=(found,), missing=())


def _with_occupants(table: TableReader, finding: Finding) -> Finding:
    """Base a finding on other entries that now have the possible places of a directory's entry."""
    records, missing = list(finding.records), []
    for key in finding.missing:
        try:
            found = table.get(key)
            if found is not None and Entry.from_item(found).id != finding.id:
                records.append(found)
                continue
        except (CorruptRecord, FormatTooNew):  # this may be the entry of the directory
            pass
        missing.append(key)
    return evolve(finding, records=tuple(records), missing=tuple(missing))


def records_unchanged(table: TableReader, finding: Finding) -> bool:
    """Return whether the records of a finding are unchanged."""
    for item in finding.records:
        try:
            found = table.get(key_of(item))
        except CorruptRecord:  # its readable part cannot show that it changed
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
    if isinstance(record, Guard) and isinstance(now, Guard):  # every added entry writes a guard record
        return record.shards == now.shards
    # A newer library may have added fields, which the finding does not have.
    return found == item if record is None else record == now
