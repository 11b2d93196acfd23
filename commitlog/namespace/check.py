"""Looking for what is wrong with a namespace, while others work with it. Changes nothing: it cannot.

A scan is no picture of one moment, so what it seems to show is read again before it is told: a finding
has the records that it is based on, and counts if all of them are still as they were. Versions never
come back, so they were all so at one moment. What keeps changing while it is looked at is not told.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.binding import RESERVED
from commitlog.namespace.content import is_own
from commitlog.namespace.data import Data
from commitlog.namespace.items import key_of
from commitlog.namespace.joint import home_of
from commitlog.namespace.keys import Keys, number_of, read_place
from commitlog.namespace.logged import State
from commitlog.namespace.problems import PROBLEMS, Finding
from commitlog.namespace.records import Entry
from commitlog.namespace.shape import Shape
from commitlog.namespace.snapshot import (
    LogReader,
    LogSnapshot,
    Snapshot,
    StoreReader,
    TableReader,
    is_still,
    named_among,
    named_objects,
)
from commitlog.namespace.survey import Survey, survey_of_log
from commitlog.stores.api import ObjectInfo, same_etag

__all__ = ["AGE", "Checked", "Checker", "against_log", "against_store"]

#: Requests under way at a time.
_WINDOW = 32

#: Seconds for which an object may be in the store before anything names it: a job that is published has
#: `commitlog.namespace.publishing.STAGING_AGE` for that.
AGE = 8 * 86_400.0


@frozen(kw_only=True)
class Checked:
    """What a check has looked at, and what is wrong.

    Attributes:
        findings: the worst first.
        entries: files and directories.
        records: records of the table.
        objects: objects of which the store was asked.
        operations: pending operations of the log.
        states: what the log has told, one thing as often as it was changed.
        listed: objects that the store has listed.
    """

    findings: tuple[Finding, ...] = ()
    entries: int = 0
    records: int = 0
    objects: int = 0
    operations: int = 0
    states: int = 0
    listed: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each kind."""
        return dict(Counter(finding.problem.name for finding in self.findings))


@frozen(kw_only=True)
class Checker:
    """Checks one namespace.

    Args:
        table: reads it.
        keys: its keys.
        clock: dates what is pending; waited on before what was found is read again.
        log: reads its log, if it keeps one.
        store: looks at its objects, if they are to be looked at.
        objects: whether to look at the object of each file, but for files of bound directories that are
            as their objects are.
        unnamed: whether to look in the store for objects that nothing names.
        grace: seconds after which what was found is read again.
        pending: seconds for which a change may be pending in the log.
        age: seconds for which an object may be in the store before anything names it.

    It holds directories in memory, and of each file a few numbers (`commitlog.namespace.survey`). What
    may be wrong is read a second time, and held.
    """

    table: TableReader
    keys: Keys
    clock: Clock
    log: LogReader | None = None
    store: StoreReader | None = None
    objects: bool = False
    unnamed: bool = False
    grace: float = 5.0
    pending: float = 3600.0
    age: float = AGE

    def check(self, progress: Callable[[Checked], object] | None = None) -> Checked:
        """See `Namespace.audit`."""
        so_far = Checked()

        def tell(now: Checked) -> None:
            nonlocal so_far
            so_far = now
            if progress is not None:
                progress(now)

        found: list[Finding] = []
        told = None
        if self.log is not None:
            try:
                told = survey_of_log(self.log, lambda states: tell(evolve(so_far, states=states)))
            except (CorruptRecord, FormatTooNew) as error:
                # What it says of others may be out of date: nothing is compared with it.
                kind = PROBLEMS["unreadable-log"]
                found.append(Finding(problem=kind, path="", detail=str(error)))
        survey = Survey(None if told is None else told.outcomes)
        snapshot = survey.snapshot
        for item in self.table.scan():
            record = snapshot.read(item, self.keys.namespace)
            if record is not None:
                survey.add(record)
                if survey.records % 1000 == 0:
                    tell(evolve(so_far, entries=survey.entries, records=survey.records))
        records = survey.records + len(snapshot.corrupt)
        tell(evolve(so_far, entries=survey.entries, records=records))
        suspects = survey.suspects(Shape(snapshot, self.keys))
        if suspects:
            survey.read_again(self.table, self.keys.namespace, suspects)
        # After the table: what it has is in the log, or pending there.
        logged = LogSnapshot()
        if self.log is not None and told is not None and (suspects.logged or told.pending):
            rows = [each for each in snapshot.entries.values() if f"e/{each.id}" in suspects.logged]
            logged = self.log.read(suspects.logged.union(map(_hiding, rows)))
        tell(evolve(so_far, operations=len(logged.pending)))
        shape = Shape(snapshot, self.keys)
        found += shape.findings()
        found += against_log(shape, logged, suspects.logged)
        found += self._pending(logged)
        if snapshot.marker is None and logged.marker is not None:
            kind, missing = PROBLEMS["no-marker"], (self.keys.marker,)
            found.append(Finding(problem=kind, path="", missing=missing, logged=logged.marker))
        if self.store is not None and self.objects:
            for files, each in against_store(shape, self.store, self._entries()):
                found += each
                tell(evolve(so_far, objects=so_far.objects + files))
        if self.store is not None and self.unnamed:
            found += self._unnamed(
                self.store, lambda listed: tell(evolve(so_far, listed=so_far.listed + listed))
            )
        if found:
            self.clock.sleep(self.grace)
            found = [*self._confirmed(found)]
        found.sort(key=lambda each: (each.problem.severity, each.problem.name, each.path))
        tell(evolve(so_far, findings=tuple(found)))
        return so_far

    def _entries(self) -> Iterator[Entry]:
        """Yield the files and directories that the table has, but those that cannot be read."""
        snapshot = Snapshot()
        for item in self.table.scan():
            record = snapshot.read(item, self.keys.namespace)
            if isinstance(record, Entry):
                yield record

    def _pending(self, logged: LogSnapshot) -> Iterator[Finding]:
        """I8: what was begun is decided."""
        for operation in logged.pending:
            if operation.time <= self.clock.epoch() - self.pending:
                what = str(operation.body["what"])
                yield Finding(problem=PROBLEMS["pending-change"], path=operation.id, detail=what)

    def _unnamed(self, store: StoreReader, tell: Callable[[int], object]) -> Iterator[Finding]:
        """I5: what a namespace has stored is named by something."""
        left: dict[str, ObjectInfo] = {}
        try:
            self._find_unnamed(store, tell, left)
        except (CorruptRecord, FormatTooNew) as error:
            yield Finding(problem=PROBLEMS["names-unknown"], path="", detail=str(error))
            return
        for path, info in left.items():
            yield Finding(
                problem=PROBLEMS["unnamed-object"],
                path=path,
                detail=f"{info.size} bytes",
                object=path,
                size=info.size,
            )

    def _find_unnamed(
        self, store: StoreReader, tell: Callable[[int], object], left: dict[str, ObjectInfo]
    ) -> None:
        """Find objects that nothing names."""
        named = array("Q", sorted(array("Q", map(number_of, named_objects(self.table)))))
        for number, info in enumerate(store.list(), 1):
            if number % 1000 == 0:
                tell(1000)
            if (
                is_own(info.path)
                and not info.path.startswith(RESERVED)
                and info.last_modified <= self.clock.epoch() - self.age
                and not _is_in(named, number_of(info.path))
            ):
                left[info.path] = info
        if left:  # what was moved while it was scanned may have been missed
            for path in named_among(left, self.table, self.log):
                del left[path]

    # again

    def _confirmed(self, findings: Collection[Finding]) -> Iterator[Finding]:
        logged = None
        for finding in [self._in_place(each) for each in findings]:
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

    def _in_place(self, finding: Finding) -> Finding:
        """Base a finding on what has come to be in the place of what the log has, if there is such."""
        if finding.problem.name != "log-newer" or not finding.missing:
            return finding
        found = self.table.get(finding.missing[0])
        try:
            if found is None or Entry.from_item(found).id == finding.id:
                return finding
        except (CorruptRecord, FormatTooNew):  # which is told by itself
            return finding
        # As long as that is there, what the log has at this place is nowhere.
        detail = f"{finding.detail}, and something else at its path"
        return evolve(finding, detail=detail, records=(found,), missing=())

    def _is_still(self, finding: Finding) -> bool:
        if not is_still(self.table, finding):
            return False
        if finding.problem.name in ("object-missing", "object-changed"):
            assert self.store is not None
            assert finding.object is not None
            entry = Entry.from_item(finding.records[0])
            info = self.store.begin_head(finding.object)().info
            return info is None or entry.data is None or not _is_of(entry.data, info)
        return True

    def _is_logged_still(self, finding: Finding, logged: LogSnapshot) -> bool:
        if finding.problem.name == "pending-change":
            return finding.path in {each.id for each in logged.pending}
        assert finding.id is not None
        state = logged.states.get(finding.id)
        same = (None if state is None else state.item) == finding.logged
        # In this order: the record, after the log, which told the same before it.
        return same and not logged.is_touched(finding.id) and self._is_still(finding)


def against_log(
    shape: Shape, logged: LogSnapshot, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """Yield where a row has not the newest version that is committed, nor one that is pending (I8).

    Args:
        shape: of the rows.
        logged: what the log says.
        only: of what, as `State.of` has it; by default all.
    """
    rows = {entry.id: entry for entry in shape.snapshot.entries.values()}
    touched = {id for change in logged.changes for id, _ in change.made | change.seen}
    ids = {*rows, *logged.states} if only is None else {of.removeprefix("e/") for of in only}
    for id in sorted(ids - touched):
        row, state = rows.get(id), logged.states.get(id)
        finding = _compared(shape, row, state)
        if finding is not None and row is not None and _has_left(row, state):
            hiding = logged.tombstones.get(_hiding(row))
            if hiding is not None and hiding.version >= row.updated:
                finding = evolve(finding, tombstone=hiding.item)
        if finding is not None:
            yield finding


def _compared(shape: Shape, row: Entry | None, state: State | None) -> Finding | None:
    if row is None:
        if state is None or state.item is None:
            return None
        key = key_of(state.item)
        return Finding(
            problem=PROBLEMS["log-newer"],
            path=shape.path_of_key(key),
            detail="the table has nothing of it",
            missing=(key,),
            id=state.of.removeprefix("e/"),
            logged=state.item,
        )
    if state is None:
        newer = False
    elif state.item is None:
        newer = state.version >= row.version  # it should be gone
    elif state.version == row.version:
        return None
    else:
        newer = state.version > row.version
    return Finding(
        problem=PROBLEMS["log-newer" if newer else "row-newer"],
        path=shape.path(row),
        detail=f"version {row.version}, and in the log {_told(state)}",
        records=(row.to_item(),),
        id=row.id,
        logged=None if state is None else state.item,
    )


def _hiding(row: Entry) -> str:
    """Return what the log calls the tombstone that is left where a row has been, if one is."""
    return f"t/{read_place(row.key.hash).of}/{row.name}{'/' if row.is_directory else ''}"


def _has_left(row: Entry, state: State | None) -> bool:
    """Tell whether the log says that a row is gone, or elsewhere."""
    if state is None or state.version < row.version:
        return False
    return state.item is None or (state.item["place"], state.item["name"]) != (row.key.hash, row.name)


def against_store(
    shape: Shape, store: StoreReader, entries: Iterable[Entry] | None = None
) -> Iterator[tuple[int, list[Finding]]]:
    """Yield of how many files the store was asked, and whose objects are not what they were (I4).

    It is not asked of files that are as their objects are, whatever their rows say.

    Args:
        shape: knows directories.
        store: has the objects.
        entries: which files to look at; by default those of `shape`.
    """
    files = (
        entry
        for entry in (shape.snapshot.entries.values() if entries is None else entries)
        if entry.data is not None and not _follows(shape.directory_of(entry), entry)
    )
    while batch := list(islice(files, _WINDOW)):
        heads = [store.begin_head(entry.data.path) for entry in batch if entry.data is not None]
        found = []
        for entry, head in zip(batch, heads, strict=True):
            assert entry.data is not None
            info = head().info
            if info is not None and _is_of(entry.data, info):
                continue
            kind = "object-missing" if info is None else "object-changed"
            finding = Finding(
                problem=PROBLEMS[kind],
                path=shape.path(entry),
                detail=f"object {entry.data.path!r}",
                records=(entry.to_item(),),
                object=entry.data.path,
                id=entry.id,
            )
            found.append(finding)
        yield len(batch), found


def _follows(directory: Entry | None, entry: Entry) -> bool:
    """Tell whether a file is, or will be, as its object is, without being told: see `joint`."""
    if directory is None or directory.binding is None or home_of(directory, entry) is None:
        return False
    return directory.binding.max_age is not None or directory.binding.synced is None


def _is_in(numbers: array[int], number: int) -> bool:
    """Tell whether a number is among sorted ones."""
    at = bisect_left(numbers, number)
    return at < len(numbers) and numbers[at] == number


def _is_of(data: Data, info: ObjectInfo) -> bool:
    return same_etag(info.etag, data.etag) and info.size == data.size


def _told(state: State | None) -> str:
    if state is None:
        return "there is nothing of it"
    return "it is gone" if state.item is None else f"it is {state.version}"
