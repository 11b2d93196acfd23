"""A survey of a namespace in partitions: it selects the records that may be wrong.

The records of the table and the states of the log are brought together in one step: by the id of a file
or directory, to which its own records, its states and the entries in it belong; and by object. What
seems wrong there is collected with the directories above it. Then `commitlog.namespace.fsck` checks and
confirms it, as in one process. So the driver holds suspect records, and none of the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen

from commitlog.errors import CommitError, CorruptRecord, FormatTooNew, NotFound
from commitlog.namespace.fsck.cross_checks import compare_with_store
from commitlog.namespace.fsck.problems import Finding
from commitlog.namespace.fsck.readers import (
    LogSnapshot,
    ScannedRecords,
    StoreReader,
    retry_on_new_checkpoint,
)
from commitlog.namespace.fsck.references import (
    IN_LOG,
    References,
    described_references,
    object_of,
    referenced_objects,
)
from commitlog.namespace.fsck.survey import Surveyor, SurveyReport, item_id_of
from commitlog.namespace.fsck.tree_checks import TreeChecks, has_path, is_in_place
from commitlog.namespace.log.checkpoint import Checkpoint, NamespaceCheckpoints
from commitlog.namespace.log.entries import ItemState, fold, parse_change, rank_of
from commitlog.namespace.log.epoch import FencedLog
from commitlog.namespace.log.inference import CommittedFacts
from commitlog.namespace.metadata import FIRST, Epoch
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.keys import Keys, kind_of, parse_hash_key
from commitlog.namespace.model.records import Directory, Entry, Garbage, Record, record_of
from commitlog.namespace.partitioned.contents import (
    RangeFacts,
    ReadLog,
    SourcedState,
    facts_alone,
    parts_and_ranges,
    state_of,
    states_alone,
)
from commitlog.namespace.partitioned.cycles import edges_of_cycles
from commitlog.namespace.partitioned.dataset import Dataset, Engine, Keyed, OpenAccess
from commitlog.namespace.partitioned.objects import ObjectListing, StoredObjects, StoreListing
from commitlog.namespace.write.content import is_content
from commitlog.oplog import Operation, OperationLog
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import Item, Key, UnreadableItem

__all__ = ["PartitionedSurveyor"]

#: Number of segments of the table for each partition.
_SEGMENTS = 4


#: A record of the table: its kind, its item, the path of its object and whether the namespace wrote that
#: object, whether it `has_path`, and a digest of the item. The kind is ``f`` for a file, or else the
#: letter of its key. Only files and garbage have an object, and only entries a digest. Like all values
#: that are grouped, it has built-in types alone: they are packed in a fifth of the time of others.
_FoundRecord: TypeAlias = tuple[str, Item, str, bool, bool, bytes]


@frozen(kw_only=True)
class _ScanReport:
    """What a task found in its segments of the table, besides records.

    Attributes:
        entries, records: numbers of entries and of records.
        others: the metadata record, and items that cannot be read or are of an unknown kind.
    """

    entries: int
    records: int
    others: ScannedRecords


#: What a survey found: its kind, its subject, and a value.
_Fact: TypeAlias = tuple[str, str, Any]


@define(kw_only=True)
class PartitionedSurveyor(Surveyor, References):
    """A surveyor that divides its work into the partitions of an engine.

    It also finds references to objects, for repairs.

    Args:
        engine: divides the work.
        open_access: opens table, store and log in a task.
        keys: keys of the namespace.
        log: the log of the table's epoch, if there is one.
        epoch: the epoch of the table.
        objects: compares the objects of the store.
    """

    engine: Engine
    open_access: OpenAccess
    keys: Keys
    log: OperationLog | None
    epoch: Epoch
    objects: StoredObjects
    _scanned: Dataset[_FoundRecord | _ScanReport] = field(init=False)
    _tree: Dataset[_FoundRecord] = field(init=False)

    @classmethod
    def of(
        cls,
        engine: Engine,
        open_access: OpenAccess,
        keys: Keys,
        log: FencedLog | None,
        *,
        listing: ObjectListing | None = None,
    ) -> PartitionedSurveyor:
        """Return a surveyor; see `commitlog.namespace.fsck.survey.OpenSurveyor`.

        `listing` is the list of the store's objects; by default the store is listed.
        """
        return cls(
            engine=engine,
            open_access=open_access,
            keys=keys,
            log=None if log is None else log.current,
            epoch=FIRST if log is None else log.epoch(),
            objects=StoredObjects(
                engine=engine,
                open_access=open_access,
                listing=StoreListing() if listing is None else listing,
            ),
        )

    def survey(self, notify: Callable[[SurveyReport], object]) -> SurveyReport:
        """See `Surveyor.survey`."""
        report = SurveyReport(snapshot=ScannedRecords())
        read = _LogRead()
        if self.log is not None:
            read = retry_on_new_checkpoint(self._survey_log)
            report = evolve(
                report,
                unreadable=read.unreadable,
                has_log=read.unreadable is None,
                log_metadata=read.metadata,
                has_pending=read.has_pending,
                states=read.number if read.unreadable is None else 0,
            )
        notify(report)
        scan = _Scan(open_access=self.open_access, namespace=self.keys.namespace)
        with self.engine.counting("reading the table", self._number_of_items) as counter:
            segments = self.engine.distribute(self._segments())
            self._scanned = segments.map(scan).map(counter.count).keep()
            scans = self._scanned.map(_reports_alone).collect()
        for scanned in scans:
            report = evolve(
                report,
                entries=report.entries + scanned.entries,
                records=report.records + scanned.records + len(scanned.others.corrupt),
            )
            report.snapshot.corrupt.update(scanned.others.corrupt)
            report.snapshot.strange.update(scanned.others.strange)
            report.snapshot.metadata = report.snapshot.metadata or scanned.others.metadata
        notify(report)
        self._tree = self._scanned.map(_tree_alone).keep()
        return self._select(report, read.states if report.has_log else None)

    def read_log(self, only: Collection[str]) -> LogSnapshot:
        """See `Surveyor.read_log`."""
        return retry_on_new_checkpoint(partial(self._read_log, frozenset(only)))

    def add_ancestors(self, snapshot: ScannedRecords, logged: LogSnapshot) -> None:
        """See `Surveyor.add_ancestors`."""
        items = (state.item for state in logged.states.values())
        above = {parse_hash_key(key_of(item).hash).id for item in items if item is not None}
        self._add_directories(snapshot, above)

    def compare_with_store(
        self, checks: TreeChecks, store: StoreReader, notify: Callable[[int], object]
    ) -> Iterator[tuple[int, list[Finding]]]:
        """See `Surveyor.compare_with_store`. The objects are listed, and suspect ones are looked up."""
        number, entries = self.objects.differing(self._scanned.map(_records_alone), notify)
        snapshot = ScannedRecords()
        for entry in entries:
            snapshot.keep(entry)
        self._add_directories(snapshot, {entry.parent for entry in entries})
        findings = compare_with_store(TreeChecks(snapshot, self.keys), store, entries)
        yield number, [finding for _, found in findings for finding in found]

    def find_orphans(
        self, store: StoreReader, *, until: float, notify: Callable[[int], object]
    ) -> list[ObjectInfo]:
        """See `Surveyor.find_orphans`. The store is listed by the prefixes of content, in parallel."""
        call = partial(_referenced_by_path, self.open_access, None)
        referenced = self.engine.distribute(self._segments()).map(call)
        return self.objects.unreferenced(referenced, self.find, until=until, notify=notify)

    def find(self, paths: Collection[str]) -> frozenset[str]:
        """See `References.find`."""
        wanted = frozenset(paths)
        call = partial(_referenced_by_path, self.open_access, wanted)
        found = {path for path, _, _ in self.engine.distribute(self._segments()).map(call).collect()}
        return frozenset(found | self._logged_among(wanted))

    def describe(self, paths: Collection[str]) -> dict[str, frozenset[str]]:
        """See `References.describe`."""
        wanted = frozenset(paths)
        found: dict[str, set[str]] = {path: set() for path in wanted}
        call = partial(_described, self.open_access, wanted)
        for path, reference in self.engine.distribute(self._segments()).map(call).collect():
            found[path].add(reference)
        for path in self._logged_among(wanted):
            found[path].add(IN_LOG)
        return {path: frozenset(names) for path, names in found.items()}

    def _number_of_items(self) -> int | None:
        """Return the number of items of the table, if it is known."""
        with contextlib.suppress(CommitError), self.open_access() as access:
            return access.table.describe().item_count
        return None

    def _segments(self) -> list[tuple[int, int]]:
        count = _SEGMENTS * self.engine.partitions
        return [(number, count) for number in range(count)]

    def _logged_among(self, paths: frozenset[str]) -> set[str]:
        """Return the objects to which files of the log refer, committed or pending."""
        if self.log is None:
            return set()
        return retry_on_new_checkpoint(partial(self._logged_now_among, paths))

    def _logged_now_among(self, paths: frozenset[str]) -> set[str]:
        assert self.log is not None
        # Keep this order: see `fsck.readers.read_matching`.
        pending = [state for each in self.log.pending() for state in parse_change(each).states]
        checkpoint = NamespaceCheckpoints(self.log, new_id=str).newest()
        read = self._read(checkpoint, frozenset()).map(partial(_states_with_objects, paths)).keep()
        self._raise_unreadable(read.map(facts_alone).collect())
        self._check_checkpoint(checkpoint)
        items = {each[0] for each in read.map(states_alone).collect()}
        items |= {each.item_id for each in pending if each.item and object_of(each.item) in paths}
        logged = self.read_log(items)
        changed = chain.from_iterable(change.states for change in logged.changes)
        states = chain(logged.states.values(), changed)
        return {object_of(state.item) for state in states if state.item is not None} & paths

    # the log

    def _survey_log(self) -> _LogRead:
        """Read the log once."""
        assert self.log is not None
        pending: dict[str, Operation] = {}
        try:
            pending = {each.id: each for each in self.log.pending()}
        except (CorruptRecord, FormatTooNew) as error:
            return _LogRead(unreadable=str(error))
        unreadable: list[str] = []
        checkpoint = self._checkpoint(unreadable)
        with self.engine.counting("reading the log") as counter:
            read = self._read(checkpoint, frozenset(pending)).map(counter.count)
            states = read.map(_states_by_id_and_object).keep()
            learned = states.map(facts_alone).collect()
        errors = chain.from_iterable(each.unreadable for each in learned)
        self._check_checkpoint(checkpoint)
        decided = frozenset[str]().union(*(each.decided for each in learned))
        return _LogRead(
            unreadable=next(chain(errors, unreadable), None),
            states=states.map(_keyed_alone),
            metadata=_metadata_of(learned),
            has_pending=bool(pending.keys() - decided),
            number=sum(each.states for each in learned),
        )

    def _read_log(self, only: frozenset[str]) -> LogSnapshot:
        assert self.log is not None
        # Keep this order: see `LogReader.read`.
        pending = {each.id: each for each in self.log.pending()}
        checkpoint = NamespaceCheckpoints(self.log, new_id=str).newest()
        read = self._read(checkpoint, frozenset(pending)).map(partial(_wanted_states, only)).keep()
        learned = read.map(facts_alone).collect()
        self._check_checkpoint(checkpoint)
        self._raise_unreadable(learned)
        for id in chain.from_iterable(each.decided for each in learned):
            pending.pop(id, None)
        newest: dict[str, ItemState] = {}
        fold(map(state_of, sorted(read.map(states_alone).collect(), key=itemgetter(-1))), newest)
        if "m" in only:
            metadata = [each.checkpoint_metadata for each in learned]
            metadata += [each.metadata for each in learned]
            fold(filter(None, metadata), newest)
        return LogSnapshot.of(newest.values(), pending.values())

    def _raise_unreadable(self, learned: Iterable[RangeFacts]) -> None:
        for error in chain.from_iterable(each.unreadable for each in learned):
            raise CorruptRecord(error)

    def _read(
        self, checkpoint: Checkpoint | None, pending: frozenset[str]
    ) -> Dataset[SourcedState | RangeFacts]:
        assert self.log is not None
        call = ReadLog(
            open_access=self.open_access,
            epoch=self.epoch,
            checkpoint=checkpoint,
            skip=str,
            subjects=CommittedFacts(),
            pending=pending,
        )
        count = self.engine.partitions
        ranges = self.log.ranges(_SEGMENTS * count)
        return self.engine.distribute(parts_and_ranges(checkpoint, ranges, count)).map(call)

    def _checkpoint(self, unreadable: list[str]) -> Checkpoint | None:
        assert self.log is not None
        try:
            return NamespaceCheckpoints(self.log, new_id=str).newest()
        except (CorruptRecord, FormatTooNew) as error:
            unreadable.append(str(error))
            return None

    def _check_checkpoint(self, checkpoint: Checkpoint | None) -> None:
        """Raise `NotFound` if a newer checkpoint may have operations that were not read."""
        if self._checkpoint([]) != checkpoint:
            raise NotFound("the checkpoint was replaced while the log was read")

    # the records

    def _select(self, report: SurveyReport, log: Dataset[Keyed[Any]] | None) -> SurveyReport:
        """Return the report with the suspect records."""
        by_key = self._scanned.map(_by_id_and_object)
        if log is not None:
            by_key = by_key.union(log)
        facts = by_key.group(partial(_suspects, self.keys, log is not None)).keep()
        found: dict[str, dict[str, Any]] = {kind: {} for kind in _SUSPECTS}
        for kind, subject, value in facts.map(_suspects_alone).collect():
            found[kind][subject] = value
        snapshot = report.snapshot
        ids = found["id"].keys() | edges_of_cycles(facts.map(_edges_alone)).keys()
        for key in snapshot.corrupt:
            if kind_of(key) in ("d", "g"):
                ids.add(parse_hash_key(key.hash).id)
        objects, tombstones = frozenset(found["object"]), frozenset(found["tombstones"])
        above: set[str] = set()
        if ids or objects or tombstones:
            wanted = partial(_wanted_records, frozenset(ids), objects, tombstones)
            for each in self._scanned.map(wanted).collect():
                snapshot.keep(each)
                above |= _above(each)
        self._add_directories(snapshot, above - ids)
        snapshot.inside.update(found["inside"])
        logged = set(found["logged"])
        logged |= {each for each in map(item_id_of, snapshot.corrupt) if each is not None}
        return evolve(
            report,
            logged=frozenset(logged) if report.has_log else frozenset(),
            unlisted=frozenset(found["unlisted"]),
        )

    def _add_directories(self, snapshot: ScannedRecords, ids: Collection[str]) -> None:
        """Add directories and those above them, with their records and guard records, to a snapshot."""
        known = {entry.id for entry in snapshot.entries.values() if entry.is_directory}
        left = set(ids) - known
        while left:
            known |= left
            above: set[str] = set()
            for each in self._tree.map(
                partial(_wanted_records, frozenset(left), frozenset(), frozenset())
            ).collect():
                snapshot.keep(each)
                above |= _above(each)
            left = above - known


@frozen(kw_only=True)
class _LogRead:
    """What a survey has read of the log.

    Attributes:
        unreadable: the first error of a part that cannot be read.
        states: the states, by the id or object to which they belong.
        metadata: the metadata record.
        has_pending: whether operations are pending.
        number: number of states.
    """

    unreadable: str | None = None
    states: Dataset[Keyed[Any]] | None = None
    metadata: Item | None = None
    has_pending: bool = False
    number: int = 0


def _metadata_of(learned: Iterable[RangeFacts]) -> Item | None:
    """Return the metadata record that one process would read last."""
    found: ItemState | None = None
    for each in learned:
        found = each.last_metadata or found
    for each in learned:
        found = each.checkpoint_metadata or found
    return None if found is None else found.item


def _wanted_states(
    only: Collection[str], read: Iterator[SourcedState | RangeFacts]
) -> Iterator[SourcedState | RangeFacts]:
    for each in read:
        if isinstance(each, RangeFacts) or each[0] in only:
            yield each


# -- reading the table ---------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Scan:
    """Reads segments of the table, as a task.

    Args:
        open_access: opens the table.
        namespace: name of the namespace.
    """

    open_access: OpenAccess
    namespace: str

    def __call__(self, segments: Iterator[tuple[int, int]]) -> Iterator[_FoundRecord | _ScanReport]:
        others = ScannedRecords()
        entries = records = 0

        def refuse(found: UnreadableItem) -> None:
            others.refuse(found, self.namespace)

        with self.open_access() as access:
            for segment, count in segments:
                for item in access.table.scan(segment=segment, segments=count, unreadable=refuse):
                    record = others.read(item, self.namespace)
                    others.inside.clear()  # the survey counts the entries of suspect directories
                    if record is None:
                        continue
                    records += 1
                    entries += isinstance(record, Entry)
                    yield _found(record, item)
        yield _ScanReport(entries=entries, records=records, others=others)


def _found(record: Record, item: Item) -> _FoundRecord:
    match record:
        case Entry(data=None):
            return "e", item, "", False, has_path(record), _digest_of(item)
        case Entry(data=data):
            assert data is not None
            return "f", item, data.path, data.own, has_path(record), _digest_of(item)
        case Garbage():
            return "x", item, record.data.path, record.data.own, True, b""
    return parse_hash_key(record.key.hash).kind, item, "", False, True, b""


def _digest_of(item: Item) -> bytes:
    """Return a digest of an item that is the same in each process."""
    # Later versions of the format depend on what else refers to a value.
    packed = marshal.dumps(sorted(item.items()), 2)
    return hashlib.blake2b(packed, digest_size=16).digest()


def _reports_alone(scanned: Iterator[object]) -> Iterator[_ScanReport]:
    return (each for each in scanned if isinstance(each, _ScanReport))


def _found_alone(scanned: Iterator[_FoundRecord | _ScanReport]) -> Iterator[_FoundRecord]:
    return (each for each in scanned if not isinstance(each, _ScanReport))


def _records_alone(scanned: Iterator[_FoundRecord | _ScanReport]) -> Iterator[Record]:
    return (_record_of(each[1]) for each in _found_alone(scanned))


def _record_of(item: Item) -> Record:
    """Return the record that an item was found to be."""
    record = record_of(item)
    assert record is not None
    return record


def _tree_alone(scanned: Iterator[_FoundRecord | _ScanReport]) -> Iterator[_FoundRecord]:
    """Yield the directories, with their records and guard records."""
    return (each for each in _found_alone(scanned) if each[0] in ("e", "d", "g"))


def _wanted_records(
    ids: Collection[str],
    objects: Collection[str],
    tombstones: Collection[str],
    scanned: Iterator[_FoundRecord | _ScanReport],
) -> Iterator[Record]:
    """Yield the records of ids and of objects, and the tombstones of directories."""
    for kind, item, path, _, _, _ in _found_alone(scanned):
        match kind:
            case "e" | "f":
                wanted = (kind == "f" and path in objects) or item["id"] in ids
            case "x":
                wanted = path in objects
            case "t":
                wanted = parse_hash_key(str(item["place"])).id in tombstones
            case _:
                wanted = parse_hash_key(str(item["place"])).id in ids
        if wanted:
            yield _record_of(item)


def _above(record: Record) -> set[str]:
    """Return the id of the directory that has, or should have, an entry."""
    if isinstance(record, (Entry, Directory)):
        return {record.parent}
    return set()


# -- what belongs together -----------------------------------------------------------------------------

#: Kinds of facts that lead to suspect records.
_SUSPECTS = ("id", "inside", "object", "tombstones", "logged", "unlisted")

#: Orders of what belongs to an id, and first in its values:
#:
#: * an entry: digest of its item, whether it `has_path`, its item if it is a directory
#: * another record of a directory: its item; or the key of one that is corrupt
#: * a state of the log: digest of its item, None if it was removed
#: * an entry in the directory: hash key, name, id, shard
#: * a tombstone in the directory
_ENTRY, _OWN_RECORD, _CORRUPT, _STATE, _CHILD, _HIDDEN = range(6)

#: Orders of what belongs to an object, and first in its values: an id, and whether the object is own.
_FILE, _GARBAGE, _LOGGED_GARBAGE = range(3)


def _by_id_and_object(scanned: Iterator[_FoundRecord | _ScanReport]) -> Iterator[Keyed[Any]]:
    for each in scanned:
        if isinstance(each, _ScanReport):
            for key in each.others.corrupt:
                if kind_of(key) in ("d", "g"):
                    yield f"i/{parse_hash_key(key.hash).id}", (_CORRUPT, key.hash), (_CORRUPT, key)
            continue
        kind, item, path, own, is_sound, digest = each
        where, name = str(item["place"]), str(item["name"])
        place = parse_hash_key(where)
        match kind:
            case "e" | "f":
                id = str(item["id"])
                directory = item if kind == "e" else None
                yield f"i/{id}", (_ENTRY, where, name), (_ENTRY, digest, is_sound, directory)
                yield f"i/{place.id}", (_CHILD, name, where), (_CHILD, where, name, id, place.shard)
                if kind == "f":
                    yield f"o/{path}", (_FILE, id), (_FILE, id, own)
            case "x":
                item_id = f"x/{place.id}/{name}"
                yield f"o/{path}", (_GARBAGE, item_id), (_GARBAGE, item_id, own)
            case "t":
                yield f"i/{place.id}", (_HIDDEN, name), (_HIDDEN,)
            case _:
                yield f"i/{place.id}", (_OWN_RECORD, where), (_OWN_RECORD, item)


def _states_by_id_and_object(
    read: Iterator[SourcedState | RangeFacts],
) -> Iterator[Keyed[Any] | RangeFacts]:
    for each in read:
        if isinstance(each, RangeFacts):
            yield each
            continue
        item_id, _, item, _, source = each
        kind, _, id = item_id.partition("/")
        if kind == "e":
            digest = None if item is None else _digest_of(item)
            yield f"i/{id}", (_STATE, -rank_of(state_of(each)), source), (_STATE, digest)
        elif kind == "x":
            path = item_id.split("/", 3)[-1]
            if is_content(path):
                value = _LOGGED_GARBAGE, item_id, False
                yield f"o/{path}", (_LOGGED_GARBAGE, item_id), value


def _keyed_alone(states: Iterator[Keyed[Any] | RangeFacts]) -> Iterator[Keyed[Any]]:
    return (each for each in states if not isinstance(each, RangeFacts))


def _suspects(keys: Keys, has_log: bool, key: str, values: Iterator[Any]) -> Iterator[_Fact]:
    kind, _, subject = key.partition("/")
    return _of_id(keys, has_log, subject, values) if kind == "i" else _of_object(subject, values)


def _of_id(keys: Keys, has_log: bool, id: str, values: Iterator[Any]) -> Iterator[_Fact]:
    """Yield what may be wrong with a file or directory, and with the entries in it."""
    entries: list[bytes] = []
    is_sound = True
    directories: list[Entry] = []
    records: list[Item] = []
    corrupt: list[Key] = []
    states: list[bytes | None] = []
    has_tombstones = False
    first: tuple[str, str, str] | None = None
    before, before_id = None, ""
    children = 0
    for value in values:
        kind = value[0]
        if kind == _CHILD:
            _, where, name, child, shard = value
            children += 1
            if first is None or (where, name) < first[:2]:
                first = where, name, child
            if len(directories) == 1 and not is_in_place(name, shard, directories[0].shards):
                yield "id", child, None
            if before == name:
                yield "id", before_id, None
                yield "id", child, None
            before, before_id = name, child
        elif kind == _ENTRY:
            _, digest, has_good_path, item = value
            entries.append(digest)
            is_sound = is_sound and has_good_path
            if item is not None:
                directories.append(Entry.from_item(item))
        elif kind == _STATE:
            states = states or [value[1]]  # the newest comes first
        elif kind == _OWN_RECORD:
            records.append(value[1])
        elif kind == _CORRUPT:
            corrupt.append(value[1])
        else:
            has_tombstones = True
    if len(entries) > 1 or not is_sound:
        yield "id", id, None
    if has_log and _differs(entries, states):
        yield "logged", f"e/{id}", None
        yield "id", id, None
    if len(directories) == 1:
        yield "edge", id, directories[0].parent
    if not (directories or children or has_tombstones or records):
        return  # a file
    snapshot = ScannedRecords(corrupt={key: ({}, "") for key in corrupt})
    for item in records:
        snapshot.keep(_record_of(item))
    if first is not None:
        snapshot.keep(_entry_of(*first))
    for directory in directories:
        snapshot.keep(directory)
    checks = TreeChecks(snapshot, keys)
    if has_tombstones and checks.is_unknown(id):
        yield "tombstones", id, None
    if any(checks.findings_of(id)):
        yield "id", id, None
        yield "inside", id, children
        if first is not None and checks.is_unknown(id):
            yield "id", first[2], None


def _differs(entries: list[bytes], states: list[bytes | None]) -> bool:
    """Return whether an id seems to have other records in the table than in the log.

    Args:
        entries: digests of its entries.
        states: digest of its newest state, None if it was removed; empty if the log has none.
    """
    if not entries:
        return states not in ([], [None])
    return len(entries) > 1 or states != entries


def _entry_of(where: str, name: str, id: str) -> Entry:
    """Return an entry that stands for all entries of a directory."""
    key = Key(where, name)
    return Entry(key=key, id=id, version=1, change_id="", created=0, modified=0, updated=0)


def _of_object(path: str, values: Iterator[tuple[int, str, bool]]) -> Iterator[_Fact]:
    """Yield whether an object may be shared, or wrongly be garbage; and garbage of the log alone."""
    file: str | None = None
    is_shared = has_own = False
    listed: set[str] = set()
    garbage = 0
    for kind, id, own in values:
        if kind == _FILE:
            is_shared = is_shared or file not in (None, id)
            has_own = has_own or own
            file = id
        elif kind == _GARBAGE:
            listed.add(id)
            garbage += own
        elif file is None and not garbage and id not in listed:
            yield "unlisted", id, None
    if garbage > 1 or (garbage and file is not None) or (is_shared and has_own):
        yield "object", path, None


def _suspects_alone(facts: Iterator[_Fact]) -> Iterator[_Fact]:
    return (fact for fact in facts if fact[0] in _SUSPECTS)


def _edges_alone(facts: Iterator[_Fact]) -> Iterator[tuple[str, str]]:
    return ((id, parent) for kind, id, parent in facts if kind == "edge")


# -- references to objects -----------------------------------------------------------------------------


def _referenced_by_path(
    open_access: OpenAccess, only: Collection[str] | None, segments: Iterator[tuple[int, int]]
) -> Iterator[Keyed[ObjectInfo | None]]:
    """Yield the objects to which records of any namespace refer; by default all."""
    with open_access() as access:
        for segment, count in segments:
            scan = partial(access.table.scan, segment=segment, segments=count)
            for path in referenced_objects(scan):
                if only is None or path in only:
                    yield path, 0, None


def _described(
    open_access: OpenAccess, paths: Collection[str], segments: Iterator[tuple[int, int]]
) -> Iterator[tuple[str, str]]:
    """Yield the references to objects in segments of the table."""
    with open_access() as access:
        for segment, count in segments:
            scan = partial(access.table.scan, segment=segment, segments=count)
            yield from described_references(scan, paths)


def _states_with_objects(
    paths: Collection[str], read: Iterator[SourcedState | RangeFacts]
) -> Iterator[SourcedState | RangeFacts]:
    for each in read:
        if isinstance(each, RangeFacts) or (each[2] is not None and object_of(each[2]) in paths):
            yield each
