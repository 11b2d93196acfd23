"""The directories of a tree, processed level by level, and files in them whose objects are looked up.

The directories of one level are spread over units by their ids. A task processes a unit, and yields the
directories of the next level. With a journal, a unit that is complete is not processed again: its record
has the directories below it.

Files that a listing of their directory's prefix does not cover are looked up afterwards. If they are
few, each costs a HEAD. Otherwise they are brought together with a listing of the store, by the paths of
their objects, and only those are looked up that seem to differ. That step has no units: if a job is
repeated, so is the step.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

from attrs import evolve, field, frozen

from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.keys import hash_of
from commitlog.namespace.model.records import Entry
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.partitioned.dataset import Dataset, Keyed, RecordCounter
from commitlog.namespace.partitioned.journal import OpenJournal, OpenNamespace, PartitionedJob
from commitlog.namespace.partitioned.objects import cover, list_directories
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import Key

__all__ = [
    "FEW_FILES",
    "DirectoryRef",
    "FoundFile",
    "LevelJob",
    "LevelStep",
    "StepReport",
]

R = TypeVar("R")

#: Number of units of a level for each partition.
_UNITS = 4

#: Number of files up to which each is looked up.
FEW_FILES = 100_000


@frozen(kw_only=True)
class DirectoryRef:
    """A reference to a directory, for a task that reads it.

    Attributes:
        path: its path, when it was found.
        key: the key of its entry.
        id: its id.
        prefix: the prefix that it is compared with, if it is not that of its binding.
    """

    path: str
    key: Key
    id: str
    prefix: str | None = None

    @classmethod
    def of(cls, path: str, entry: Entry, *, as_if: bool = False) -> DirectoryRef:
        """Return a reference to a directory; with `as_if`, the prefix of `entry` counts."""
        prefix = entry.binding.prefix if as_if and entry.binding is not None else None
        return cls(path=path, key=entry.key, id=entry.id, prefix=prefix)

    def read(self, namespace: Namespace) -> Entry | None:
        """Return the present entry; None if the directory was renamed or deleted."""
        item = namespace.table.get(self.key)
        entry = None if item is None else Entry.from_item(item)
        if entry is None or entry.id != self.id:
            return None
        return entry if self.prefix is None else evolve(entry, binding=Binding(prefix=self.prefix))

    def entry(self) -> Entry:
        """Return an entry that stands for it, for `Tree.reread`."""
        return Entry(key=self.key, id=self.id, version=1, change_id="", created=0, modified=0, updated=0)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "path": self.path,
            "place": self.key.hash,
            "name": str(self.key.range),
            "id": self.id,
            "prefix": self.prefix,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> DirectoryRef:
        """Return the reference that `to_json` returned."""
        key = Key(found["place"], found["name"])
        return cls(path=found["path"], key=key, id=found["id"], prefix=found["prefix"])


@frozen(kw_only=True)
class FoundFile:
    """A file whose object is to be looked up: its path, and its entry."""

    path: str
    entry: Entry


@frozen(kw_only=True)
class StepReport(Generic[R]):
    """The result of processing some directories.

    Attributes:
        report: the result; with a journal it must be JSON.
        below: the directories in them.
        external: those of them with files whose objects are to be looked up, and the numbers of files.
    """

    report: R
    below: Sequence[DirectoryRef] = ()
    external: Sequence[tuple[DirectoryRef, int]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "report": self.report,
            "below": [each.to_json() for each in self.below],
            "external": [[each.to_json(), number] for each, number in self.external],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> StepReport[R]:
        """Return the result that `to_json` returned."""
        return cls(
            report=found["report"],
            below=tuple(map(DirectoryRef.from_json, found["below"])),
            external=tuple((DirectoryRef.from_json(each), number) for each, number in found["external"]),
        )


class LevelStep(abc.ABC, Generic[R]):
    """The work for each directory, and for each file that is looked up. Can be pickled."""

    @abc.abstractmethod
    def process(self, namespace: Namespace, directories: Iterator[DirectoryRef]) -> StepReport[R]:
        """Process some directories, without those in them."""

    @abc.abstractmethod
    def files_in(self, namespace: Namespace, directory: DirectoryRef) -> Iterator[FoundFile]:
        """Yield the files in a directory whose objects are to be looked up."""

    @abc.abstractmethod
    def look_up(self, namespace: Namespace, files: Iterator[FoundFile]) -> R:
        """Look up the objects of files, and process the files."""

    @abc.abstractmethod
    def seems_equal(self, file: Entry, info: ObjectInfo) -> bool:
        """Return whether a file need not be looked up, given its object as it was listed."""


@frozen(kw_only=True)
class LevelJob(PartitionedJob):
    """Processes the directories of a tree in the partitions of an engine.

    Args:
        inventory: objects of the store, such as those of an S3 inventory; by default the store is
            listed. Files whose objects it lacks are looked up.
        few: number of files up to which each is looked up without a listing.
    """

    inventory: Dataset[ObjectInfo] | None = None
    few: int = field(default=FEW_FILES)

    def walk(self, top: DirectoryRef, step: LevelStep[R], arguments: Mapping[str, Any]) -> Iterator[R]:
        """Process a directory and all below it; yield the results.

        Args:
            top: the directory.
            step: the work for each.
            arguments: those of the job, as JSON.
        """
        units = self.plan(arguments, lambda: _UNITS * self.engine.partitions)
        level: Dataset[Keyed[DirectoryRef]] = self.engine.distribute([_keyed(units, top)])
        external: list[Dataset[tuple[DirectoryRef, int]]] = []
        number = directories = files = 0
        left = 1
        while left:
            done, reports = self._process_level(level, step, number, left)
            left = 0
            for report, _, below, with_files, found in reports:
                left += below
                directories += with_files
                files += found
                yield report
            external.append(done.map(_external_alone))
            level = done.map(partial(_below_alone, units))
            number += 1
        if not files:
            return
        found_in = external[0]
        for more in external[1:]:
            found_in = found_in.union(more)
        if self.inventory is None and files <= self.few:
            with self.engine.counting("looking up files, by directory", lambda: directories) as counter:
                looked_up = self._look_up_each(found_in, step, units, counter)
        else:
            with self.engine.counting("reading files to look up", lambda: files) as counter:
                looked_up = self._look_up_listed(found_in, step, counter)
        yield from looked_up

    def _process_level(
        self, level: Dataset[Keyed[DirectoryRef]], step: LevelStep[R], number: int, total: int
    ) -> tuple[Dataset[tuple[int, Any]], list[tuple[R, int, int, int, int]]]:
        """Process the directories of a level; return what the tasks yield, and the reports."""
        call = partial(_process, self.open_namespace, self.open_journal, step, number)
        name = f"reading directories, level {number}"
        with self.engine.counting(name, lambda: total) as counter:
            counted = partial(counter.count, weight=_directories_done)
            done = level.group(call).map(counted).keep()
            return done, done.map(_reports_alone).collect()

    def _look_up_each(
        self,
        found_in: Dataset[tuple[DirectoryRef, int]],
        step: LevelStep[R],
        units: int,
        counter: RecordCounter,
    ) -> list[R]:
        call = partial(_look_up_unit, self.open_namespace, self.open_journal, step)
        looked_up = found_in.map(partial(_by_unit, units)).group(call)
        counted = looked_up.map(partial(counter.count, weight=_number_of))
        return [report for report, _ in counted.collect()]

    def _look_up_listed(
        self,
        found_in: Dataset[tuple[DirectoryRef, int]],
        step: LevelStep[R],
        counter: RecordCounter,
    ) -> list[R]:
        read = found_in.map(partial(_files_by_object, self.open_namespace, step))
        files = read.map(counter.count).keep()
        listed = self._listing(files) if self.inventory is None else self.inventory
        joined = files.union(listed.map(_by_path)).group(partial(_differing, step))
        return joined.map(partial(_look_up, self.open_namespace, step)).collect()

    def _listing(self, files: Dataset[Keyed[FoundFile | ObjectInfo]]) -> Dataset[ObjectInfo]:
        """Return a listing of the directories below which the objects of files are."""
        directories = cover(files.map(_directories).collect())
        return list_directories(self.engine, self.open_namespace, directories)


#: What a task yields for a unit: a report with the numbers of its directories, of directories in them,
#: of those with files to look up, and of these files; a directory of the next level; or a directory with
#: files to look up, and their number.
_REPORT, _BELOW, _EXTERNAL = range(3)


def _keyed(units: int, directory: DirectoryRef) -> Keyed[DirectoryRef]:
    return f"{hash_of(directory.id) % units:06}", directory.id, directory


def _process(
    open_namespace: OpenNamespace,
    open_journal: OpenJournal,
    step: LevelStep[Any],
    level: int,
    unit: str,
    directories: Iterator[DirectoryRef],
) -> Iterator[tuple[int, Any]]:
    """Process the directories of a unit, as a task."""
    name = f"{level:04}-{unit}"
    number = 0

    def counted() -> Iterator[DirectoryRef]:
        nonlocal number
        for each in directories:
            number += 1
            yield each

    with open_journal() as journal:
        found = journal.find(name)
        if found is None:
            with open_namespace() as namespace:
                found = step.process(namespace, counted()).to_json()
            found = journal.record(name, found)
    for _ in counted():  # those of a complete unit
        pass
    done: StepReport[Any] = StepReport.from_json(found)
    files = sum(each for _, each in done.external)
    yield _REPORT, (done.report, number, len(done.below), len(done.external), files)
    yield from ((_BELOW, each) for each in done.below)
    yield from ((_EXTERNAL, each) for each in done.external)


def _reports_alone(done: Iterator[tuple[int, Any]]) -> Iterator[tuple[Any, int, int, int, int]]:
    return (value for kind, value in done if kind == _REPORT)


def _directories_done(done: tuple[int, Any]) -> int:
    kind, value = done
    number: int = value[1] if kind == _REPORT else 0
    return number


def _below_alone(units: int, done: Iterator[tuple[int, Any]]) -> Iterator[Keyed[DirectoryRef]]:
    return (_keyed(units, value) for kind, value in done if kind == _BELOW)


def _external_alone(done: Iterator[tuple[int, Any]]) -> Iterator[tuple[DirectoryRef, int]]:
    return (value for kind, value in done if kind == _EXTERNAL)


# -- files that are looked up --------------------------------------------------------------------------


def _by_unit(units: int, found_in: Iterator[tuple[DirectoryRef, int]]) -> Iterator[Keyed[DirectoryRef]]:
    return (_keyed(units, directory) for directory, _ in found_in)


def _look_up_unit(
    open_namespace: OpenNamespace,
    open_journal: OpenJournal,
    step: LevelStep[Any],
    unit: str,
    directories: Iterator[DirectoryRef],
) -> Iterator[tuple[Any, int]]:
    """Look up the files in the directories of a unit, as a task; yield the report and their number."""
    name = f"files-{unit}"
    listed = list(directories)  # few in each unit: there are at most `few` files in all
    with open_journal() as journal:
        report = journal.find(name)
        if report is None:
            with open_namespace() as namespace:
                files = chain.from_iterable(step.files_in(namespace, each) for each in listed)
                report = journal.record(name, step.look_up(namespace, files))
        yield report, len(listed)


def _number_of(looked_up: tuple[Any, int]) -> int:
    return looked_up[1]


def _files_by_object(
    open_namespace: OpenNamespace,
    step: LevelStep[Any],
    found_in: Iterator[tuple[DirectoryRef, int]],
) -> Iterator[Keyed[FoundFile | ObjectInfo]]:
    """Yield the files in directories by the paths of their objects."""
    with open_namespace() as namespace:
        for directory, _ in found_in:
            for file in step.files_in(namespace, directory):
                assert file.entry.data is not None
                yield file.entry.data.path, (1, file.entry.id, file.path), file


def _by_path(listed: Iterator[ObjectInfo]) -> Iterator[Keyed[FoundFile | ObjectInfo]]:
    return ((info.path, (0, "", ""), info) for info in listed)


def _directories(files: Iterator[Keyed[Any]]) -> Iterator[str]:
    """Yield directories of the store that have the objects of files."""
    parts = (path.rpartition("/") for path, _, _ in files)
    yield from cover(above + slash for above, slash, _ in parts)


def _differing(
    step: LevelStep[Any], path: str, values: Iterator[FoundFile | ObjectInfo]
) -> Iterator[FoundFile]:
    """Yield the files whose object was not listed, or seems to differ."""
    info: ObjectInfo | None = None
    for value in values:
        if isinstance(value, ObjectInfo):
            info = value
        elif info is None or not step.seems_equal(value.entry, info):
            yield value


def _look_up(
    open_namespace: OpenNamespace, step: LevelStep[R], files: Iterator[FoundFile]
) -> Iterator[R]:
    first = next(files, None)
    if first is not None:
        with open_namespace() as namespace:
            yield step.look_up(namespace, chain([first], files))
