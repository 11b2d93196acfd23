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
from commitlog.namespace.content import is_content
from commitlog.namespace.keys import MAX_SHARDS, number_of, places_of_number, read_place
from commitlog.namespace.leftovers import Garbage, Tombstone
from commitlog.namespace.logged import State, digest_of, outcome_of
from commitlog.namespace.readers import LogReader, TableReader, steadily
from commitlog.namespace.records import Entry
from commitlog.namespace.shape import Shape, has_path
from commitlog.namespace.snapshot import Record, Snapshot, record_of
from commitlog.oplog import Operation
from commitlog.tables.api import Item, Key

__all__ = ["LogSurvey", "Survey", "Suspects", "garbage_of", "survey_of_log", "told_of"]

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
        outcomes: of each file and directory, and of garbage, by what the state is of: what `told_of`
            returns.
        marker: of the namespace, as the log has it.
        pending: what is not decided.
    """

    outcomes: dict[str, int]
    marker: Item | None
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
    marker: Item | None = None
    states = log.states(lambda id: pending.pop(id, None))
    for number, state in enumerate(states, 1):
        if state.of == "m":
            marker = state.item
        elif not state.of.startswith("t/"):
            outcomes[state.of] = max(told_of(state), outcomes.get(state.of, 0))
        if number % 1000 == 0:
            tell(number)
    return LogSurvey(outcomes=outcomes, marker=marker, pending=tuple(pending.values()))


def told_of(state: State) -> int:
    """Return what is kept of what a log says of a file, directory or piece of garbage: its outcome, and
    a number for the whole record. The higher is so.
    """
    return outcome_of(state) << 64 | digest_of(state.item)


def _is_there(told: int) -> bool:
    """Tell whether something is there, by what is kept of it."""
    return (told >> 64) % 2 == 0


@frozen(kw_only=True)
class Suspects:
    """What has to be read again.

    Attributes:
        files: numbers of ids.
        objects: numbers of paths of objects that are garbage.
        hidden: ids of directories that have tombstones.
        logged: what the log and the table seem to say different things of, as `State.of` has it.
        unlisted: garbage of the log that the table does not list, and that is not a file.
    """

    files: frozenset[int]
    objects: frozenset[int]
    hidden: frozenset[str]
    logged: frozenset[str]
    unlisted: frozenset[str]

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
    #: Ids of which the table has another record than the log.
    _different: set[str] = field(factory=set, init=False)
    #: Ids of entries with a name to which no path leads.
    _nameless: set[str] = field(factory=set, init=False)

    def add(self, record: Record, item: Item) -> None:
        """Take in a record of the namespace, and the item that it was read from."""
        self.records += 1
        if isinstance(record, Entry):
            self.entries += 1
            self._compare(record, item)
            if not has_path(record):
                self._nameless.add(record.id)
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
            if self.logged is not None:
                self.logged.pop(garbage_of(record), None)
        elif isinstance(record, Tombstone):
            self._hidden.add(read_place(record.key.hash).of)
        else:
            self.snapshot.keep(record)

    def _compare(self, entry: Entry, item: Item) -> None:
        told = entry.version << 65 | digest_of(item)
        if self.logged is not None and self.logged.pop(f"e/{entry.id}", None) != told:
            self._different.add(entry.id)

    def suspects(self, shape: Shape) -> Suspects:
        """Return what may be wrong with files, tombstones and garbage.

        Args:
            shape: of `snapshot`, as it is now.
        """
        files = {number_of(id) for id in self._different | self._nameless}
        files |= _twice(lambda: iter(self._ids))
        directories = (each.id for each in self.snapshot.entries.values())
        files |= _common(map(number_of, directories), self._ids)
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
        left = {of for of, told in (self.logged or {}).items() if _is_there(told)}
        unlisted = {of for of in left if of.startswith("x/")}
        logged |= left - unlisted
        logged |= {of for of in map(_of_corrupt, self.snapshot.corrupt) if of is not None}
        return Suspects(
            files=frozenset(files),
            objects=frozenset(objects),
            hidden=frozenset(filter(shape.is_unknown, self._hidden)),
            logged=frozenset(logged),
            unlisted=self._not_named(unlisted),
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

    def _not_named(self, unlisted: Iterable[str]) -> frozenset[str]:
        """Return the garbage of the log whose object is neither a file nor listed under another key.

        Of a key that does not have the path of its object nothing is returned.
        """
        paths = {of: of.split("/", 3)[-1] for of in unlisted}
        objects = {number_of(path): of for of, path in paths.items() if is_content(path)}
        if not objects:
            return frozenset()
        for number in (*_common(objects, self._objects), *_common(objects, self._garbage)):
            del objects[number]
        return frozenset(objects.values())

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


def garbage_of(garbage: Garbage) -> str:
    """Return what a log calls a piece of garbage."""
    return f"x/{read_place(garbage.key.hash).of}/{garbage.key.range}"


def _of_corrupt(key: Key) -> str | None:
    """Return what a log calls what should be under a key; None if the key does not tell."""
    place = read_place(key.hash)
    return f"{place.kind}/{place.of}/{key.range}" if place.kind in ("t", "x") else None


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
