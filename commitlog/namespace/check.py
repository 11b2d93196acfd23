"""Looking for what is wrong with a namespace, while others work with it. Changes nothing: it cannot.

A scan is no picture of one moment, so what it seems to show is read again before it is told: a finding
has the records that it is based on, and counts if all of them are still as they were. Versions never
come back, so they were all so at one moment. What keeps changing while it is looked at is not told.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from attrs import evolve, fields, frozen

from commitlog.clock import Clock
from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.against import against_store, findings_of, hiding, unlisted_among
from commitlog.namespace.confirming import Confirmer
from commitlog.namespace.items import key_of, place_of
from commitlog.namespace.keys import Keys
from commitlog.namespace.leftovers import Garbage
from commitlog.namespace.marker import Marker
from commitlog.namespace.named import unnamed_objects
from commitlog.namespace.problems import PROBLEMS, Finding
from commitlog.namespace.readers import LogReader, LogSnapshot, StoreReader, TableReader
from commitlog.namespace.records import Entry
from commitlog.namespace.shape import Shape
from commitlog.namespace.snapshot import Snapshot
from commitlog.namespace.survey import Survey, survey_of_log
from commitlog.tables.api import Item

__all__ = ["AGE", "Checked", "Checker"]

#: Seconds for which an object may be in the store before anything names it: a job that is published has
#: `commitlog.namespace.attempts.STAGING_AGE` for that.
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
        for item in self.table.scan(unreadable=lambda bad: snapshot.refuse(bad, self.keys.namespace)):
            record = snapshot.read(item, self.keys.namespace)
            if record is not None:
                survey.add(record, item)
                if survey.records % 1000 == 0:
                    tell(evolve(so_far, entries=survey.entries, records=survey.records))
        records = survey.records + len(snapshot.corrupt)
        tell(evolve(so_far, entries=survey.entries, records=records))
        suspects = survey.suspects(Shape(snapshot, self.keys))
        if suspects:
            survey.read_again(self.table, self.keys.namespace, suspects)
        # After the table: what it has is in the log, or pending there.
        unlisted: frozenset[str] = frozenset()
        if self.store is not None and self.objects:
            for asked, these in unlisted_among(self.store, suspects.unlisted):
                unlisted |= these
                tell(evolve(so_far, objects=so_far.objects + asked))
        logged = LogSnapshot()
        if self.log is not None and told is not None and (suspects.logged or unlisted or told.pending):
            rows = [each for each in snapshot.entries.values() if f"e/{each.id}" in suspects.logged]
            logged = self.log.read(suspects.logged.union(unlisted, map(hiding, rows)))
        tell(evolve(so_far, operations=len(logged.pending)))
        shape = Shape(snapshot, self.keys)
        found += findings_of(shape, logged, suspects.logged)
        found += self._unlisted(unlisted, logged)
        found += self._pending(logged)
        if told is not None:
            found += self._marker(snapshot.marker, told.marker)
        if self.store is not None and self.objects:
            for files, each in against_store(shape, self.store, self._entries()):
                found += each
                tell(evolve(so_far, objects=so_far.objects + files))
            found += self._mark(self.store, snapshot.marker)
        if self.store is not None and self.unnamed:
            found += self._unnamed(
                self.store, lambda listed: tell(evolve(so_far, listed=so_far.listed + listed))
            )
        if found:
            self.clock.sleep(self.grace)
            again = Confirmer(table=self.table, log=self.log, store=self.store)
            found = [*again.confirmed(found)]
        found.sort(key=lambda each: (each.problem.severity, each.problem.name, each.path))
        tell(evolve(so_far, findings=tuple(found)))
        return so_far

    def _entries(self) -> Iterator[Entry]:
        """Yield the files and directories that the table has, but those that cannot be read."""
        snapshot = Snapshot()
        for item in self.table.scan(unreadable=lambda bad: None):
            record = snapshot.read(item, self.keys.namespace)
            if isinstance(record, Entry):
                yield record

    def _marker(self, row: Item | None, logged: Item | None) -> Iterator[Finding]:
        """I8: the marker is that of the log."""
        if logged is not None and key_of(logged) != self.keys.marker:
            logged = None
        if row is None:
            if logged is not None:
                kind, missing = PROBLEMS["no-marker"], (self.keys.marker,)
                yield Finding(problem=kind, path="", missing=missing, logged=logged)
            return
        try:
            marker = evolve(Marker.from_item(row), word="")
        except CorruptRecord as error:
            kind = PROBLEMS["corrupt-record"]
            yield Finding(
                problem=kind, path=place_of(row), detail=str(error), records=(row,), logged=logged
            )
            return
        if logged is None:
            detail = "the log has none"
        elif (theirs := evolve(Marker.from_item(logged), word="")) != marker:
            names = [each.name for each in fields(Marker)]
            odd = (name for name in names if getattr(marker, name) != getattr(theirs, name))
            detail = f"another {' and '.join(odd)} than in the log"
        else:
            return
        kind = PROBLEMS["wrong-marker"]
        yield Finding(problem=kind, path="", detail=detail, records=(row,), logged=logged)

    def _mark(self, store: StoreReader, row: Item | None) -> Iterator[Finding]:
        """Tell whether the store is known by the mark that it should have."""
        with contextlib.suppress(CorruptRecord, FormatTooNew):
            mark = None if row is None else Marker.from_item(row).mark
            if mark is not None and store.begin_head(mark)().info is None:
                assert row is not None
                yield Finding(problem=PROBLEMS["no-mark"], path="", object=mark, records=(row,))

    def _unlisted(self, unlisted: Collection[str], logged: LogSnapshot) -> Iterator[Finding]:
        """I5: what the log lists as garbage, and is there, is listed in the table."""
        for of in sorted(unlisted):
            item = logged.item(of)
            if item is None:
                continue
            garbage = Garbage.from_item(item)
            if garbage.data.own and not garbage.is_nameless:
                yield Finding(
                    problem=PROBLEMS["unlisted-garbage"],
                    path=garbage.data.path,
                    missing=(garbage.key,),
                    object=garbage.data.path,
                    logged=item,
                )

    def _pending(self, logged: LogSnapshot) -> Iterator[Finding]:
        """I8: what was begun is decided."""
        for operation in logged.pending:
            if operation.time <= self.clock.epoch() - self.pending:
                what = str(operation.body["what"])
                yield Finding(problem=PROBLEMS["pending-change"], path=operation.id, detail=what)

    def _unnamed(self, store: StoreReader, tell: Callable[[int], object]) -> Iterator[Finding]:
        """I5: what a namespace has stored is named by something."""
        until = self.clock.epoch() - self.age
        try:
            left = unnamed_objects(self.table, store, self.log, until=until, tell=tell)
        except (CorruptRecord, FormatTooNew) as error:
            yield Finding(problem=PROBLEMS["names-unknown"], path="", detail=str(error))
            return
        for info in left:
            yield Finding(
                problem=PROBLEMS["unnamed-object"],
                path=info.path,
                detail=f"{info.size} bytes",
                object=info.path,
                size=info.size,
            )
