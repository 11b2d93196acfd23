"""The check of a namespace. It only reads, and runs while other clients work.

A scan does not show one point in time, so a suspected problem is read again before it is reported. A
finding has the records that show it, and counts only if all of them are still unchanged. Versions never
come back, so all of these records existed at one point in time. A record that changes during the check
is not reported.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from attrs import evolve, fields, frozen

from commitlog.clock import Clock
from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.fsck.confirm import Confirmer
from commitlog.namespace.fsck.cross_checks import check_records, find_unlisted, tombstone_id
from commitlog.namespace.fsck.problems import PROBLEMS, Finding
from commitlog.namespace.fsck.readers import LogSnapshot, StoreReader, TableReader
from commitlog.namespace.fsck.survey import Surveyor
from commitlog.namespace.fsck.tree_checks import TreeChecks
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.model.codec import item_name, key_of
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.model.records import Garbage
from commitlog.tables.api import Item

__all__ = ["AGE", "Checker", "FsckReport"]

#: Minimum age in seconds of an unreferenced object before it is reported. The default allows for the
#: publication of a job, which has `commitlog.namespace.jobs.committer.STAGING_AGE` seconds.
AGE = 8 * 86_400.0


@frozen(kw_only=True)
class FsckReport:
    """The problems that a check found, and how much it read.

    Attributes:
        findings: the problems, the worst first.
        entries: number of files and directories.
        records: number of records in the table.
        objects: number of files whose objects were compared with the store.
        operations: number of pending operations in the log.
        states: number of states read from the log; one item counts once for each of its changes.
        listed: number of objects that the store, or its inventory, listed.
        listed_at: epoch seconds of the inventory; what happened to objects since may not be found. None
            if the store was asked.
    """

    findings: tuple[Finding, ...] = ()
    entries: int = 0
    records: int = 0
    objects: int = 0
    operations: int = 0
    states: int = 0
    listed: int = 0
    listed_at: float | None = None

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings of each kind."""
        return dict(Counter(finding.problem.name for finding in self.findings))


@frozen(kw_only=True)
class Checker:
    """A checker of one namespace.

    Args:
        table: reader of the table.
        keys: keys of the namespace.
        clock: used for the age of pending changes, and to wait before findings are read again.
        surveyor: reads all records and the log, and selects the records to check.
        store: reader of the objects, if they are to be checked.
        objects: whether to look up the object of each file. Files of bound directories that are up to
            date by definition are left out.
        orphans: whether to search the store for unreferenced objects.
        grace: seconds to wait before findings are read again.
        pending: seconds for which a change may be pending in the log.
        age: seconds for which an object may be in the store before a record refers to it.

    Suspect records are read a second time, and held.
    """

    table: TableReader
    keys: Keys
    clock: Clock
    surveyor: Surveyor
    store: StoreReader | None = None
    objects: bool = False
    orphans: bool = False
    grace: float = 5.0
    pending: float = 3600.0
    age: float = AGE

    def check(self, progress: Callable[[FsckReport], object] | None = None) -> FsckReport:
        """Check the namespace: see `Maintenance.fsck`."""
        so_far = FsckReport()

        def notify(now: FsckReport) -> None:
            nonlocal so_far
            so_far = now
            if progress is not None:
                progress(now)

        def count_listed(number: int) -> None:
            notify(evolve(so_far, listed=so_far.listed + number))

        survey = self.surveyor.survey(
            lambda now: notify(
                evolve(so_far, entries=now.entries, records=now.records, states=now.states)
            )
        )
        snapshot = survey.snapshot
        found: list[Finding] = []
        if survey.unreadable is not None:
            kind = PROBLEMS["unreadable-log"]
            found.append(Finding(problem=kind, path="", detail=survey.unreadable))
        # Read the log after the table: it then has all records of the table, committed or pending.
        unlisted: frozenset[str] = frozenset()
        if self.store is not None and self.objects:
            for asked, these in find_unlisted(self.store, survey.unlisted):
                unlisted |= these
                notify(evolve(so_far, objects=so_far.objects + asked))
        logged = LogSnapshot()
        if survey.has_log and (survey.logged or unlisted or survey.has_pending):
            rows = [each for each in snapshot.entries.values() if f"e/{each.id}" in survey.logged]
            logged = self.surveyor.read_log(survey.logged.union(unlisted, map(tombstone_id, rows)))
            self.surveyor.add_ancestors(snapshot, logged)
        notify(evolve(so_far, operations=len(logged.pending)))
        checks = TreeChecks(snapshot, self.keys)
        found += check_records(checks, logged, survey.logged)
        found += self._unlisted(unlisted, logged)
        found += self._pending(logged)
        if survey.has_log:
            found += self._metadata(snapshot.metadata, survey.log_metadata)
        if self.store is not None and self.objects:
            for files, each in self.surveyor.compare_with_store(checks, self.store, count_listed):
                found += each
                notify(evolve(so_far, objects=so_far.objects + files))
            found += self._store_identity(self.store, snapshot.metadata)
        if self.store is not None and self.orphans:
            found += self._orphans(self.store, count_listed)
        if found:
            self.clock.sleep(self.grace)
            confirmer = Confirmer(table=self.table, read_log=self.surveyor.read_log, store=self.store)
            found = [*confirmer.confirmed(found)]
        found.sort(key=_order_of)
        notify(evolve(so_far, findings=tuple(found)))
        return so_far

    def _metadata(self, row: Item | None, logged: Item | None) -> Iterator[Finding]:
        """Check that the metadata record is the one that the log has (I8)."""
        if logged is not None and key_of(logged) != self.keys.metadata:
            logged = None
        if row is None:
            if logged is not None:
                kind, missing = PROBLEMS["no-metadata"], (self.keys.metadata,)
                yield Finding(problem=kind, path="", missing=missing, logged=logged)
            return
        try:
            metadata = evolve(NamespaceMetadata.from_item(row), change_id="")
        except CorruptRecord as error:
            kind = PROBLEMS["corrupt-record"]
            yield Finding(
                problem=kind, path=item_name(row), detail=str(error), records=(row,), logged=logged
            )
            return
        if logged is None:
            detail = "the log has none"
        elif (theirs := evolve(NamespaceMetadata.from_item(logged), change_id="")) != metadata:
            names = [each.name for each in fields(NamespaceMetadata)]
            odd = (name for name in names if getattr(metadata, name) != getattr(theirs, name))
            detail = f"{' and '.join(odd)} differ from the log"
        else:
            return
        kind = PROBLEMS["wrong-metadata"]
        yield Finding(problem=kind, path="", detail=detail, records=(row,), logged=logged)

    def _store_identity(self, store: StoreReader, row: Item | None) -> Iterator[Finding]:
        """Check that the store has the object that identifies it."""
        with contextlib.suppress(CorruptRecord, FormatTooNew):
            identity = None if row is None else NamespaceMetadata.from_item(row).identity
            if identity is not None and store.begin_head(identity)().info is None:
                assert row is not None
                yield Finding(
                    problem=PROBLEMS["no-store-identity"], path="", object=identity, records=(row,)
                )

    def _unlisted(self, unlisted: Collection[str], logged: LogSnapshot) -> Iterator[Finding]:
        """Check that the table lists the garbage that the log lists and that exists (I5)."""
        for item_id in sorted(unlisted):
            item = logged.item(item_id)
            if item is None:
                continue
            garbage = Garbage.from_item(item)
            if garbage.data.own and not garbage.is_orphan:
                yield Finding(
                    problem=PROBLEMS["unlisted-garbage"],
                    path=garbage.data.path,
                    missing=(garbage.key,),
                    object=garbage.data.path,
                    logged=item,
                )

    def _pending(self, logged: LogSnapshot) -> Iterator[Finding]:
        """Check that old changes of the log are decided (I8)."""
        for operation in logged.pending:
            if operation.time <= self.clock.epoch() - self.pending:
                what = str(operation.body["what"])
                yield Finding(problem=PROBLEMS["pending-change"], path=operation.id, detail=what)

    def _orphans(self, store: StoreReader, notify: Callable[[int], object]) -> Iterator[Finding]:
        """Check that a record refers to each object that a namespace stored (I5)."""
        until = self.clock.epoch() - self.age
        try:
            left = self.surveyor.find_orphans(store, until=until, notify=notify)
        except (CorruptRecord, FormatTooNew) as error:
            yield Finding(problem=PROBLEMS["references-unknown"], path="", detail=str(error))
            return
        for info in left:
            yield Finding(
                problem=PROBLEMS["orphan-object"],
                path=info.path,
                detail=f"{info.size} bytes",
                object=info.path,
                size=info.size,
            )


def _order_of(finding: Finding) -> tuple[int, str, str, str, list[str]]:
    keys = [item_name(item) for item in finding.records]
    return finding.problem.severity, finding.problem.name, finding.path, finding.detail, keys
