"""The first step of a check: it selects the records that may be wrong.

`Surveyor` is the port. `TableSurveyor` makes, in one process, a compact summary of the namespace: all
directories, and a few hashes for each file.

The hashes show which records may be wrong; only those are read a second time and held in memory. So a
check takes less than 100 bytes for each file, and 150 bytes more with a log. Equal texts have equal
hashes, so no duplicate is missed; a record whose hash is equal by chance is read again needlessly.
"""

from __future__ import annotations

import abc
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.fsck.cross_checks import compare_with_store
from commitlog.namespace.fsck.problems import Finding
from commitlog.namespace.fsck.readers import (
    LogReader,
    LogSnapshot,
    ScannedRecords,
    StoreReader,
    TableReader,
    retry_on_new_checkpoint,
)
from commitlog.namespace.fsck.references import find_orphans
from commitlog.namespace.fsck.tree_checks import TreeChecks, has_path
from commitlog.namespace.log.entries import ItemState, digest_of, rank_of
from commitlog.namespace.log.epoch import FencedLog
from commitlog.namespace.model.keys import MAX_SHARDS, Keys, hash_of, parse_hash_key, shards_of_hash
from commitlog.namespace.model.records import Entry, Garbage, Record, Tombstone, record_of
from commitlog.namespace.write.content import is_content
from commitlog.oplog import Operation
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import Item, Key

__all__ = [
    "LogSurvey",
    "OpenSurveyor",
    "Survey",
    "SurveyReport",
    "Surveyor",
    "Suspects",
    "TableSurveyor",
    "garbage_item_id",
    "item_id_of",
    "log_rank",
    "survey_of_log",
]

#: Number of parts in which hashes are sorted, so that few are unpacked at a time.
_PARTS = 8
#: Bit set in the shard of a file whose object belongs to the namespace.
_OWN = 0x80
_BITS = 2**64 - 1
#: Odd, so that the same name gets different hashes in two directories.
_SPREAD = 0x9E3779B97F4A7C15


@frozen(kw_only=True)
class SurveyReport:
    """The records that may be wrong, and the log as a survey found it.

    Attributes:
        snapshot: the records that may be wrong, and those on which their checks depend.
        logged: records in which the log and the table seem to differ, by `ItemState.item_id`.
        unlisted: garbage of the log that the table does not list, and that is not a file.
        unreadable: the error of a log that cannot be read; then it was not compared.
        log_metadata: the metadata record of the namespace, as the log has it.
        has_log: whether there is a log that can be read.
        has_pending: whether operations are pending in it.
        entries, records, states: numbers of entries and records in the table, and of states in the log.
    """

    snapshot: ScannedRecords
    logged: frozenset[str] = frozenset()
    unlisted: frozenset[str] = frozenset()
    unreadable: str | None = None
    log_metadata: Item | None = None
    has_log: bool = False
    has_pending: bool = False
    entries: int = 0
    records: int = 0
    states: int = 0


class Surveyor(abc.ABC):
    """Reads a namespace and its log, and selects the records that may be wrong."""

    @abc.abstractmethod
    def survey(self, notify: Callable[[SurveyReport], object]) -> SurveyReport:
        """Read the log, then the table, and return the records that may be wrong.

        Args:
            notify: called from time to time with the numbers so far.
        """

    @abc.abstractmethod
    def read_log(self, only: Collection[str]) -> LogSnapshot:
        """Read the log again, and return the newest states of some `ItemState.item_id`."""

    @abc.abstractmethod
    def add_ancestors(self, snapshot: ScannedRecords, logged: LogSnapshot) -> None:
        """Add the directories above the records of the log to a snapshot."""

    @abc.abstractmethod
    def compare_with_store(
        self, checks: TreeChecks, store: StoreReader, notify: Callable[[int], object]
    ) -> Iterator[tuple[int, list[Finding]]]:
        """Compare the objects of all files; see `cross_checks.compare_with_store`.

        Args:
            checks: the checks of the suspect records.
            store: reader of the objects.
            notify: called with the number of listed objects, if objects are listed for this.
        """

    @abc.abstractmethod
    def find_orphans(
        self, store: StoreReader, *, until: float, notify: Callable[[int], object]
    ) -> list[ObjectInfo]:
        """Return the unreferenced objects of the store; see `references.find_orphans`."""


#: Opens a surveyor, given the keys of a namespace and its log, if it is to be compared.
OpenSurveyor: TypeAlias = Callable[[Keys, FencedLog | None], Surveyor]


@frozen(kw_only=True)
class TableSurveyor(Surveyor):
    """A surveyor that reads everything in this process.

    Args:
        table: reader of the table.
        keys: keys of the namespace.
        log: reader of the log, if there is one.

    Directories are held in memory, with a few numbers for each file.
    """

    table: TableReader
    keys: Keys
    log: LogReader | None = None

    def survey(self, notify: Callable[[SurveyReport], object]) -> SurveyReport:
        """See `Surveyor.survey`."""
        namespace, found, unreadable = self.keys.namespace, None, None
        report = SurveyReport(snapshot=ScannedRecords())

        def progress(**numbers: Any) -> None:
            nonlocal report
            report = evolve(report, **numbers)
            notify(report)

        if self.log is not None:
            try:
                found = survey_of_log(self.log, lambda states: progress(states=states))
            except (CorruptRecord, FormatTooNew) as error:
                # Other entries may be out of date without it, so skip the comparison with the log.
                unreadable = str(error)
        survey = Survey(None if found is None else found.ranks)
        snapshot = survey.snapshot
        for item in self.table.scan(unreadable=lambda bad: snapshot.refuse(bad, namespace)):
            record = snapshot.read(item, namespace)
            if record is not None:
                survey.add(record, item)
                if survey.records % 1000 == 0:
                    progress(entries=survey.entries, records=survey.records)
        progress(entries=survey.entries, records=survey.records + len(snapshot.corrupt))
        suspects = survey.suspects(TreeChecks(snapshot, self.keys))
        if suspects:
            survey.read_again(self.table, namespace, suspects)
        return evolve(
            report,
            snapshot=snapshot,
            logged=suspects.logged,
            unlisted=suspects.unlisted,
            unreadable=unreadable,
            log_metadata=None if found is None else found.metadata,
            has_log=found is not None,
            has_pending=found is not None and bool(found.pending),
        )

    def read_log(self, only: Collection[str]) -> LogSnapshot:
        """See `Surveyor.read_log`."""
        assert self.log is not None
        return self.log.read(only)

    def add_ancestors(self, snapshot: ScannedRecords, logged: LogSnapshot) -> None:
        """See `Surveyor.add_ancestors`: the snapshot has all directories."""

    def compare_with_store(
        self, checks: TreeChecks, store: StoreReader, notify: Callable[[int], object]
    ) -> Iterator[tuple[int, list[Finding]]]:
        """See `Surveyor.compare_with_store`: each object is looked up."""
        return compare_with_store(checks, store, self._entries())

    def find_orphans(
        self, store: StoreReader, *, until: float, notify: Callable[[int], object]
    ) -> list[ObjectInfo]:
        """See `Surveyor.find_orphans`."""
        return find_orphans(self.table, store, self.log, until=until, notify=notify)

    def _entries(self) -> Iterator[Entry]:
        """Yield the files and directories of the table, except those that cannot be read."""
        snapshot = ScannedRecords()
        for item in self.table.scan(unreadable=lambda bad: None):
            record = snapshot.read(item, self.keys.namespace)
            if isinstance(record, Entry):
                yield record


@frozen(kw_only=True)
class LogSurvey:
    """A compact summary of a log.

    Attributes:
        ranks: the number that `log_rank` returns for each file, directory and piece of garbage, by
            `ItemState.item_id`.
        metadata: the metadata record of the namespace, as the log has it.
        pending: operations that are not decided.
    """

    ranks: dict[str, int]
    metadata: Item | None
    pending: tuple[Operation, ...]


def survey_of_log(log: LogReader, notify: Callable[[int], object]) -> LogSurvey:
    """Return the summary of a log: every earlier change is in it, or pending.

    Args:
        log: reader of the log.
        notify: called from time to time with the number of states read so far.
    """
    return retry_on_new_checkpoint(lambda: _survey_of_log(log, notify))


def _survey_of_log(log: LogReader, notify: Callable[[int], object]) -> LogSurvey:
    pending = {each.id: each for each in log.pending()}  # in this order: see `LogReader.read`
    ranks: dict[str, int] = {}
    metadata: Item | None = None
    states = log.states(lambda id: pending.pop(id, None))
    number = 0
    for number, state in enumerate(states, 1):
        if state.item_id == "m":
            metadata = state.item
        elif not state.item_id.startswith("t/"):
            ranks[state.item_id] = max(log_rank(state), ranks.get(state.item_id, 0))
        if number % 1000 == 0:
            notify(number)
    notify(number)
    return LogSurvey(ranks=ranks, metadata=metadata, pending=tuple(pending.values()))


def log_rank(state: ItemState) -> int:
    """Return a number that orders the states of a file, directory or piece of garbage.

    It combines the rank and a digest of the record; the higher number is the current state.
    """
    return rank_of(state) << 64 | digest_of(state.item)


def _exists(number: int) -> bool:
    """Return whether the record of a number exists."""
    return (number >> 64) % 2 == 0


@frozen(kw_only=True)
class Suspects:
    """Records to read again.

    Attributes:
        files: hashes of ids.
        objects: hashes of the paths of objects that are garbage.
        tombstones: ids of directories that have tombstones, and no record.
        logged: records in which the log and the table seem to differ, by `ItemState.item_id`.
        unlisted: garbage of the log that the table does not list, and that is not a file.
        unknown: directories without any record that have files.
    """

    files: frozenset[int]
    unknown: frozenset[str]
    objects: frozenset[int]
    tombstones: frozenset[str]
    logged: frozenset[str]
    unlisted: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.files or self.unknown or self.objects or self.tombstones or self.logged)

    def includes(self, item: Item) -> bool:
        """Return whether a record of the namespace is suspect; directories are held already."""
        place = parse_hash_key(str(item["place"]))
        match place.kind:
            case "e":
                return place.id in self.unknown or hash_of(str(item.get("id"))) in self.files
            case "x":
                return bool(self.objects)
            case "t":
                return place.id in self.tombstones
        return False


@define
class Survey:
    """A collector of the records of one namespace, which selects those to read again.

    Args:
        logged: the ranks of the log, if they are to be compared; matching ones are removed.

    Attributes:
        snapshot: records held whole: directories, guard records, and unreadable items.
        entries, records: number of entries and records.
    """

    logged: dict[str, int] | None = None
    snapshot: ScannedRecords = field(factory=ScannedRecords, init=False)
    entries: int = field(default=0, init=False)
    records: int = field(default=0, init=False)
    #: For each file: hashes of its id, name and object; the number of its directory, and its shard.
    _ids: array[int] = field(factory=lambda: array("Q"), init=False)
    _names: array[int] = field(factory=lambda: array("Q"), init=False)
    _objects: array[int] = field(factory=lambda: array("Q"), init=False)
    _directories: array[int] = field(factory=lambda: array("L"), init=False)
    _shards: array[int] = field(factory=lambda: array("B"), init=False)
    #: A number for each directory that has files, by its id.
    _numbers: dict[str, int] = field(factory=dict, init=False)
    #: Hashes of the paths of own objects that are garbage.
    _garbage: array[int] = field(factory=lambda: array("Q"), init=False)
    _with_tombstones: set[str] = field(factory=set, init=False)
    #: Ids for which the table and the log have different records.
    _different: set[str] = field(factory=set, init=False)
    #: Ids of entries whose name cannot be part of a path.
    _invalid_names: set[str] = field(factory=set, init=False)

    def add(self, record: Record, item: Item) -> None:
        """Add a record of the namespace, and the item that it was read from."""
        self.records += 1
        if isinstance(record, Entry):
            self.entries += 1
            self._compare(record, item)
            if not has_path(record):
                self._invalid_names.add(record.id)
        if isinstance(record, Entry) and record.data is not None:
            place = parse_hash_key(record.key.hash)
            self._ids.append(hash_of(record.id))
            self._names.append(hash_of(record.name))
            self._objects.append(hash_of(record.data.path))
            self._directories.append(self._numbers.setdefault(place.id, len(self._numbers)))
            shard = place.shard if 0 <= place.shard < MAX_SHARDS else MAX_SHARDS
            self._shards.append(shard | _OWN * record.data.own)
        elif isinstance(record, Garbage):
            if record.data.own:
                self._garbage.append(hash_of(record.data.path))
            if self.logged is not None:
                self.logged.pop(garbage_item_id(record), None)
        elif isinstance(record, Tombstone):
            self._with_tombstones.add(parse_hash_key(record.key.hash).id)
        else:
            self.snapshot.keep(record)

    def _compare(self, entry: Entry, item: Item) -> None:
        number = entry.version << 65 | digest_of(item)
        if self.logged is not None and self.logged.pop(f"e/{entry.id}", None) != number:
            self._different.add(entry.id)

    def suspects(self, checks: TreeChecks) -> Suspects:
        """Return the files, tombstones and garbage that may be wrong.

        Args:
            checks: the checks of `snapshot`, in its current state.
        """
        files = {hash_of(id) for id in self._different | self._invalid_names}
        files |= _duplicates(lambda: iter(self._ids))
        directories = (each.id for each in self.snapshot.entries.values())
        files |= _common(map(hash_of, directories), self._ids)
        files |= self._misplaced(checks)
        duplicates = self._duplicate_slots(checks)
        objects = _duplicates(lambda: iter(self._garbage))
        objects |= _common(self._garbage, self._objects)
        repeated = _duplicates(lambda: iter(self._objects))
        shared = objects | {
            each
            for each, shard in zip(self._objects, self._shards, strict=True)
            if shard & _OWN and each in repeated
        }
        if duplicates or shared:
            rows = zip(self._ids, self._slot_hashes(), self._objects, strict=True)
            for id, slot_hash, path in rows:
                if slot_hash in duplicates or path in shared:
                    files.add(id)
        logged = {f"e/{id}" for id in self._different}
        left = {item_id for item_id, number in (self.logged or {}).items() if _exists(number)}
        unlisted = {item_id for item_id in left if item_id.startswith("x/")}
        logged |= left - unlisted
        logged |= {item_id for item_id in map(item_id_of, self.snapshot.corrupt) if item_id is not None}
        return Suspects(
            files=frozenset(files),
            unknown=frozenset(filter(checks.is_unknown, self._numbers)),
            objects=frozenset(objects),
            tombstones=frozenset(filter(checks.is_unknown, self._with_tombstones)),
            logged=frozenset(logged),
            unlisted=self._unreferenced(unlisted),
        )

    def read_again(self, table: TableReader, namespace: str, suspects: Suspects) -> None:
        """Add the current suspect records to the snapshot."""
        mine = f"{namespace}/"
        first: dict[str, Entry] = {}
        for item in table.scan(unreadable=lambda bad: None):  # the first scan has reported it
            if not str(item["place"]).startswith(mine):
                continue
            try:
                record = record_of(item) if suspects.includes(item) else None
            except (ValueError, CorruptRecord, FormatTooNew):
                continue  # the first scan has reported it, or it is being written
            if record is None or (isinstance(record, Entry) and record.is_directory):
                continue
            if isinstance(record, Entry) and record.parent in suspects.unknown:
                # One file is enough to find the directory: the first in the order of keys.
                found = first.setdefault(record.parent, record)
                first[record.parent] = min(found, record, key=lambda each: each.key)
                if hash_of(record.id) not in suspects.files:
                    continue
            self.snapshot.keep(record)
        for entry in first.values():
            self.snapshot.keep(entry)

    def _unreferenced(self, unlisted: Iterable[str]) -> frozenset[str]:
        """Return the garbage of the log whose object is neither a file nor listed under another key.

        Keys that do not contain the path of their object are left out.
        """
        paths = {item_id: item_id.split("/", 3)[-1] for item_id in unlisted}
        objects = {hash_of(path): item_id for item_id, path in paths.items() if is_content(path)}
        if not objects:
            return frozenset()
        for number in (*_common(objects, self._objects), *_common(objects, self._garbage)):
            del objects[number]
        return frozenset(objects.values())

    def _misplaced(self, checks: TreeChecks) -> set[int]:
        """Return the hashes of the ids of files that are in a shard in which readers do not look."""
        all_shards = [checks.shards_of(id) for id in self._numbers]
        found = set()
        for id, name, directory, shard in zip(
            self._ids, self._names, self._directories, self._shards, strict=True
        ):
            shards = all_shards[directory]
            if shards is not None and shard % _OWN not in shards_of_hash(name, shards.now, shards.first):
                found.add(id)
        return found

    def _duplicate_slots(self, checks: TreeChecks) -> set[int]:
        """Return the hashes, as in `_slot_hashes`, of names that a directory may have twice."""
        # The table keeps each name unique within one shard.
        sharded = {
            directory
            for directory, shard in zip(self._directories, self._shards, strict=True)
            if shard % _OWN
        }
        directories = [
            (number, place.shard, entry.name)
            for entry in self.snapshot.entries.values()
            for place in [parse_hash_key(entry.key.hash)]
            if (number := self._numbers.get(place.id)) is not None
        ]
        sharded |= {number for number, shard, _ in directories if shard}
        if not sharded:
            return set()

        def hashes() -> Iterator[int]:
            for directory, number in zip(self._directories, self._slot_hashes(), strict=True):
                if directory in sharded:
                    yield number
            for number, _, name in directories:
                if number in sharded:
                    yield _slot_hash(number, hash_of(name))

        return _duplicates(hashes)

    def _slot_hashes(self) -> Iterator[int]:
        """Yield a hash of the directory and name of each file."""
        return map(_slot_hash, self._directories, self._names)


def garbage_item_id(garbage: Garbage) -> str:
    """Return the `ItemState.item_id` of a piece of garbage."""
    return f"x/{parse_hash_key(garbage.key.hash).id}/{garbage.key.range}"


def item_id_of(key: Key) -> str | None:
    """Return the `ItemState.item_id` for the record of a key; None if the key does not show it."""
    place = parse_hash_key(key.hash)
    return f"{place.kind}/{place.id}/{key.range}" if place.kind in ("t", "x") else None


def _slot_hash(directory: int, name: int) -> int:
    return (name + directory * _SPREAD) & _BITS


def _duplicates(numbers: Callable[[], Iterable[int]]) -> set[int]:
    """Return the numbers that occur at least twice."""
    duplicates: set[int] = set()
    for part in range(_PARTS):
        ordered = sorted(number for number in numbers() if number % _PARTS == part)
        duplicates.update(one for one, other in pairwise(ordered) if one == other)
    return duplicates


def _common(few: Iterable[int], many: Iterable[int]) -> set[int]:
    wanted = set(few)
    return {number for number in many if number in wanted} if wanted else set()
