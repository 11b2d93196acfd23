"""What a check remembers of a namespace: directories whole, and of each file a few numbers.

They tell which records may be wrong; only those are held in memory whole, when they were read a second
time. So a check takes less than a hundred bytes for each file, and with a log a hundred and fifty more.
Equal texts have equal numbers, so nothing that is named or listed twice is missed; what has an equal
number by chance is read again for nothing. Imports its siblings and the `Table` port.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from attrs import define, field, frozen

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.keys import MAX_SHARDS, number_of, places_of_number, read_place
from commitlog.namespace.leftovers import Garbage, Tombstone
from commitlog.namespace.logged import outcome_of
from commitlog.namespace.readers import LogReader, TableReader, steadily
from commitlog.namespace.records import Entry
from commitlog.namespace.shape import Shape
from commitlog.namespace.snapshot import Record, Snapshot, record_of
from commitlog.oplog import Operation
from commitlog.tables.api import Item

__all__ = ["LogSurvey", "Survey", "Suspects", "survey_of_log"]

#: In how many parts numbers are sorted, so that few are unpacked at a time.
_PARTS = 8
#: Set in the shard of a file whose object is the namespace's own.
_OWN = 0x80
_BITS = 2**64 - 1
#: Odd, so that no two directories make one number of the same name.
_SPREAD = 0x9E3779B97F4A7C15


@frozen(kw_only=True)
class LogSurvey:
    """What a log says, in few words.

    Attributes:
        outcomes: of each file and directory, and the marker, by what the state is of.
        pending: what is not decided.
    """

    outcomes: dict[str, int]
    pending: tuple[Operation, ...]


def survey_of_log(log: LogReader, tell: Callable[[int], object]) -> LogSurvey:
    """Return what a log says. Whatever was done before that is in it, or pending.

    Args:
        log: reads it.
        tell: told now and then how many states were read.
    """
    return steadily(lambda: _survey_of_log(log, tell))


def _survey_of_log(log: LogReader, tell: Callable[[int], object]) -> LogSurvey:
    pending = {each.id: each for each in log.pending()}  # in this order: see `LogReader.read`
    outcomes: dict[str, int] = {}
    states = log.states(lambda id: pending.pop(id, None))
    for number, state in enumerate(states, 1):
        if state.of.startswith("e/") or state.of == "m":
            outcomes[state.of] = max(outcome_of(state), outcomes.get(state.of, 0))
        if number % 1000 == 0:
            tell(number)
    return LogSurvey(outcomes=outcomes, pending=tuple(pending.values()))


@frozen(kw_only=True)
class Suspects:
    """What has to be read again.

    Attributes:
        files: numbers of ids.
        objects: numbers of paths of objects that are garbage.
        hidden: ids of directories that have tombstones.
        logged: what the log and the table seem to say different things of, as `State.of` has it.
    """

    files: frozenset[int]
    objects: frozenset[int]
    hidden: frozenset[str]
    logged: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.files or self.objects or self.hidden or self.logged)

    def have(self, item: Item) -> bool:
        """Tell whether a record of the namespace is one of those; directories are known."""
        place = read_place(str(item["place"]))
        match place.kind:
            case "e":
                return number_of(str(item.get("id"))) in self.files
            case "x":
                return bool(self.objects)
            case "t":
                return place.of in self.hidden
        return False


@define
class Survey:
    """Takes in the records of one namespace, one by one, and says which have to be looked at again.

    Args:
        logged: what its log says, if it is to be compared; what agrees is taken out of it.

    Attributes:
        snapshot: what is kept whole: directories, gates, and what cannot be read.
        entries, records: how many there were.
    """

    logged: dict[str, int] | None = None
    snapshot: Snapshot = field(factory=Snapshot, init=False)
    entries: int = field(default=0, init=False)
    records: int = field(default=0, init=False)
    #: Of each file: numbers of its id, name and object, of its directory in `_homes`, and its shard.
    _ids: array[int] = field(factory=lambda: array("Q"), init=False)
    _names: array[int] = field(factory=lambda: array("Q"), init=False)
    _objects: array[int] = field(factory=lambda: array("Q"), init=False)
    _within: array[int] = field(factory=lambda: array("L"), init=False)
    _shards: array[int] = field(factory=lambda: array("B"), init=False)
    _homes: dict[str, int] = field(factory=dict, init=False)
    #: Numbers of the paths of own objects that are garbage.
    _garbage: array[int] = field(factory=lambda: array("Q"), init=False)
    _hidden: set[str] = field(factory=set, init=False)
    #: Ids of which the table has another version than the log.
    _different: set[str] = field(factory=set, init=False)

    def add(self, record: Record) -> None:
        """Take in a record of the namespace."""
        self.records += 1
        if isinstance(record, Entry):
            self.entries += 1
            self._compare(record)
        if isinstance(record, Entry) and record.data is not None:
            place = read_place(record.key.hash)
            self._ids.append(number_of(record.id))
            self._names.append(number_of(record.name))
            self._objects.append(number_of(record.data.path))
            self._within.append(self._homes.setdefault(place.of, len(self._homes)))
            shard = place.shard if 0 <= place.shard < MAX_SHARDS else MAX_SHARDS
            self._shards.append(shard | _OWN * record.data.own)
        elif isinstance(record, Garbage):
            if record.data.own:
                self._garbage.append(number_of(record.data.path))
        elif isinstance(record, Tombstone):
            self._hidden.add(read_place(record.key.hash).of)
        else:
            self.snapshot.keep(record)

    def _compare(self, entry: Entry) -> None:
        if self.logged is not None and self.logged.pop(f"e/{entry.id}", None) != 2 * entry.version:
            self._different.add(entry.id)

    def suspects(self, shape: Shape) -> Suspects:
        """Return what may be wrong with files, tombstones and garbage.

        Args:
            shape: of `snapshot`, as it is now.
        """
        files = {number_of(id) for id in self._different}
        files |= _twice(lambda: iter(self._ids))
        files |= self._misplaced(shape)
        twice = self._named_twice(shape)
        objects = _twice(lambda: iter(self._garbage))
        objects |= _common(self._garbage, self._objects)
        several = _twice(lambda: iter(self._objects))
        shared = objects | {
            each
            for each, shard in zip(self._objects, self._shards, strict=True)
            if shard & _OWN and each in several
        }
        unknown = {number for id, number in self._homes.items() if shape.is_unknown(id)}
        if twice or shared or unknown:
            rows = zip(self._ids, self._named(), self._objects, self._within, strict=True)
            for id, named, path, within in rows:
                if named in twice or path in shared or within in unknown:
                    files.add(id)
                    unknown.discard(within)  # one is enough to tell of the directory
        logged = {f"e/{id}" for id in self._different}
        logged |= {of for of, outcome in (self.logged or {}).items() if outcome % 2 == 0 and of != "m"}
        if self.logged is not None and self.snapshot.marker is None:
            logged.add("m")
        return Suspects(
            files=frozenset(files),
            objects=frozenset(objects),
            hidden=frozenset(filter(shape.is_unknown, self._hidden)),
            logged=frozenset(logged),
        )

    def read_again(self, table: TableReader, namespace: str, suspects: Suspects) -> None:
        """Add to the snapshot what is suspected, as it is now."""
        mine = f"{namespace}/"
        for item in table.scan(unreadable=lambda bad: None):  # it was seen before
            if not str(item["place"]).startswith(mine):
                continue
            try:
                record = record_of(item) if suspects.have(item) else None
            except (ValueError, CorruptRecord, FormatTooNew):
                continue  # it was seen before, or is being written
            if record is not None and not (isinstance(record, Entry) and record.is_directory):
                self.snapshot.keep(record)

    def _misplaced(self, shape: Shape) -> set[int]:
        """Return numbers of the ids of files that are in a shard in which nobody looks."""
        spread = [shape.shards_of(id) for id in self._homes]
        found = set()
        for id, name, within, shard in zip(
            self._ids, self._names, self._within, self._shards, strict=True
        ):
            over = spread[within]
            if over is not None and shard % _OWN not in places_of_number(name, over.now, over.first):
                found.add(id)
        return found

    def _named_twice(self, shape: Shape) -> set[int]:
        """Return numbers of names, as `_named` has them, that a directory may have twice."""
        # Within one shard the table has a name once.
        spread = {
            within for within, shard in zip(self._within, self._shards, strict=True) if shard % _OWN
        }
        directories = [
            (home, place.shard, entry.name)
            for entry in self.snapshot.entries.values()
            for place in [read_place(entry.key.hash)]
            if (home := self._homes.get(place.of)) is not None
        ]
        spread |= {home for home, shard, _ in directories if shard}
        if not spread:
            return set()

        def named() -> Iterator[int]:
            for within, number in zip(self._within, self._named(), strict=True):
                if within in spread:
                    yield number
            for home, _, name in directories:
                if home in spread:
                    yield _named_in(home, number_of(name))

        return _twice(named)

    def _named(self) -> Iterator[int]:
        """Yield a number for the directory and name of each file."""
        return map(_named_in, self._within, self._names)


def _named_in(directory: int, name: int) -> int:
    return (name + directory * _SPREAD) & _BITS


def _twice(numbers: Callable[[], Iterable[int]]) -> set[int]:
    """Return which numbers there are twice."""
    twice: set[int] = set()
    for part in range(_PARTS):
        ordered = sorted(number for number in numbers() if number % _PARTS == part)
        twice.update(one for one, other in pairwise(ordered) if one == other)
    return twice


def _common(few: Iterable[int], many: Iterable[int]) -> set[int]:
    wanted = set(few)
    return {number for number in many if number in wanted} if wanted else set()
