"""`Maintenance`: import, garbage collection, log maintenance, checks and repairs of a namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from attrs import evolve

from commitlog._util.request_stats import count_methods
from commitlog._util.tracing import traced
from commitlog.errors import ConfigurationError, CorruptRecord, Fenced, FormatTooNew
from commitlog.namespace.context import NamespaceContext, span_attributes
from commitlog.namespace.creation import store_identity_object
from commitlog.namespace.external.importer import Importer, ImportReport
from commitlog.namespace.fsck.checker import AGE, Checker, FsckReport
from commitlog.namespace.fsck.problems import PROBLEMS, Finding, Problem
from commitlog.namespace.fsck.readers import LogReader, StoreReader, TableReader
from commitlog.namespace.fsck.references import (
    OpenReferences,
    References,
    WholeReferences,
    find_referenced,
)
from commitlog.namespace.fsck.repair import (
    FindingsRepairer,
    OpenRepairer,
    Repairer,
    RepairOutcome,
    RepairReport,
)
from commitlog.namespace.fsck.repair_plans import RepairContext
from commitlog.namespace.fsck.survey import OpenSurveyor, Surveyor, TableSurveyor
from commitlog.namespace.gc.objects import GarbageCollector, GcReport
from commitlog.namespace.gc.trash import TrashEmptier, TrashReport
from commitlog.namespace.inspection import NamespaceInspection, inspect
from commitlog.namespace.log.compaction import CompactionReport, Compactor
from commitlog.namespace.log.epoch import FencedLog
from commitlog.namespace.log.recovery import Recovery
from commitlog.namespace.log.rewrite import (
    LogRewriter,
    LogRewriteReport,
    OpenTableStates,
    TableStates,
    WholeTable,
)
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.model.keys import NAMESPACES
from commitlog.namespace.model.records import Entry
from commitlog.namespace.write.plan_files import plan_object_update
from commitlog.namespace.write.plan_tree import plan_directories
from commitlog.oplog import Operation
from commitlog.stores.api import ObjectInfo

__all__ = ["Maintenance"]


@traced(
    lambda maintenance, arguments: span_attributes(maintenance._context.name, arguments),
    without=("collector", "repairer", "references"),
)
@count_methods
class Maintenance:
    """Maintenance of a namespace: `Namespace.maintenance`. Thread-safe.

    Every method may also raise the errors that every method of `Namespace` may raise. Each call counts
    as an operation under the name of its method.
    """

    def __init__(self, context: NamespaceContext) -> None:
        self._context = context
        self._recorder = context.recorder

    def import_objects(
        self,
        prefix: str = "",
        into: str = "",
        *,
        start_after: str = "",
        objects: Iterable[ObjectInfo] | None = None,
        within: str | None = None,
        progress: Callable[[ImportReport], object] | None = None,
    ) -> ImportReport:
        """Create files for existing objects of the store, in place, at the paths of the objects.

        Nothing is copied. The namespace does not own the objects: they stay when the files are deleted
        or overwritten. The call can be interrupted and repeated: objects that were imported before are
        skipped, and objects that have changed since are imported again. If an object was removed from
        the store, its file stays, and readers get `ObjectChanged`. Objects that `write` has stored are
        skipped.

        Args:
            prefix: the prefix of the objects, with its slash; "" for all objects.
            into: the directory below which the files are created.
            start_after: only objects whose path comes after this one in the store's order.
            objects: some of these objects, sorted by path; by default the store is listed.
                `commitlog.spark.import_objects` divides the listing.
            within: id of the directory to which the path `into` must lead; by default any.
            progress: called after every hundred objects, or each directory, with the report so far.

        Returns a report, with the objects that cannot be files there: an object with the same name as
        the directory of another object, an invalid file name, or a path where a different file exists.
        Several clients can import at once: each reports the files that it has created.

        Files are created in the directory to which the path led at the beginning. If that directory is
        renamed, deleted or replaced meanwhile, a `Conflict` says how much was imported; the rest was
        not.
        """
        self._context.describe()
        self._context.store.check()

        def make(path: str, known: Sequence[Entry]) -> tuple[Entry, ...]:
            return self._context.run(plan_directories, path, known)

        def update(path: str, info: ObjectInfo) -> Entry | None:
            return self._context.run(plan_object_update, path, info)

        importer = Importer(
            tree=self._context.tree,
            linker=self._context.bulk_linker(),
            store=self._context.store,
            make_directories=make,
            update=update,
            clock=self._context.clock,
            backoff=self._context.backoff,
        )
        return importer.import_objects(
            prefix, into, start_after=start_after, objects=objects, within=within, progress=progress
        )

    def empty_trash(
        self,
        progress: Callable[[TrashReport], object] | None = None,
        *,
        shards: Sequence[int] | None = None,
    ) -> TrashReport:
        """Remove the contents of the trash; return a report of removed items and of failures.

        The call can be interrupted and repeated, and several clients can do it at once.

        Args:
            progress: called from time to time with the report so far.
            shards: numbers of the shards of the trash to empty, below
                `commitlog.namespace.model.keys.TRASH_SHARDS`; by default all. Directories in a trashed
                directory move into the trash first, into any shard.
        """
        self._context.describe()
        emptier = TrashEmptier(
            tree=self._context.tree,
            keys=self._context.keys,
            planning=self._context.planning,
            changes=self._context.changes,
        )
        return emptier.empty(progress, shards=shards)

    def gc(self, progress: Callable[[GcReport], object] | None = None) -> GcReport:
        """Remove unreferenced content after its grace period; return a report.

        The call can be interrupted and repeated, and several clients can do it at once. The report has
        the objects that could not be removed; they stay listed for the next call. `repair` also lists
        objects for which no file was known. Before those are removed, all records of the table are read
        once more for each ten thousand of them: an object that has become a file since stays.

        Args:
            progress: called after each thousand objects with the report so far.

        Raises `BucketNotFound`, or `StoreEmpty` if the store does not belong to the namespace. The
        garbage stays listed then.
        """
        return self.collector().collect(progress)

    def collector(
        self, referenced: Callable[[Collection[str]], Collection[str]] | None = None
    ) -> GarbageCollector:
        """Return what removes garbage: for `gc`, or for a share of it in a task of a cluster.

        Args:
            referenced: returns those of some objects to which files refer now; by default this process
                reads all records for that.
        """
        self._context.describe()
        return GarbageCollector(
            table=self._context.table,
            keys=self._context.keys,
            store=self._context.store,
            clock=self._context.clock,
            backoff=self._context.backoff,
            verify=self._verify_ownership,
            new_id=self._context.new_id,
            referenced=self._files_among if referenced is None else referenced,
        )

    def _verify_ownership(self) -> None:
        """Check the ownership of the log and the identity of the store, before objects are removed."""
        if self._context.changes.log is not None:
            self._with_log()
        self._context.overlay.backing_store.verify_if_identified()

    def _files_among(self, paths: Collection[str]) -> Collection[str]:
        log = (
            None
            if self._context.changes.log is None
            else LogReader.of(self._context.changes.log.current)
        )
        return find_referenced(set(paths), TableReader.of(self._context.table), log, by=(Entry,))

    def compact_log(
        self,
        *,
        older_than: float | None = None,
        progress: Callable[[CompactionReport], object] | None = None,
    ) -> CompactionReport:
        """Shorten the log to the size of the namespace; the namespace can still be restored from it.

        Operations that were decided some time ago are folded into a checkpoint, which has each existing
        file and directory, and are then removed. An operation stays if it was decided after the
        oldest pending operation began, or less than a quarter of the log's `retention` before that:
        `recover` needs it. The call can be interrupted and repeated. If several
        clients call it at once, one of them continues.

        Args:
            older_than: the minimum age of a decision in seconds, by the store's clock. The default,
                which is also the minimum, is the log's `retention`, a day.
            progress: called from time to time with the report so far.

        Raises `ConfigurationError` if the namespace was opened without a log, or `older_than` is too
        small; `Fenced`; `Conflict` if another client compacts the log; `CorruptRecord` for an entry that
        cannot be read. After an error the log has lost no information.

        The call takes one request to read each operation, and one for about ten thousand files to read
        and to write the checkpoint. The part that is folded in one round is held in memory: the entries
        of some hundred thousand files, or a quarter of the checkpoint.
        """
        log = self._with_log()
        compactor = Compactor(
            table=self._context.table,
            keys=self._context.keys,
            log=log.current,
            new_id=self._context.new_id,
            fence=log.check,
        )
        return compactor.compact(older_than=older_than, progress=progress)

    def rewrite_log(
        self,
        *,
        take_over: bool = False,
        older_than: float = 3600.0,
        open_states: OpenTableStates | None = None,
    ) -> LogRewriteReport:
        """Write the log again from the table, if the log is damaged or another table owns it.

        A new epoch of the log begins, with everything in the table. Nothing of the old log is needed,
        and nothing of it is removed. Stop all writers first. The call can be interrupted and repeated;
        until it is complete the namespace cannot be changed.

        Args:
            take_over: whether to continue if the log now belongs to another table, into which the
                namespace was restored. That table is fenced then, and changes made there are not in this
                table.
            older_than: the minimum age of all pending changes, in seconds; see `recover`.
            open_states: opens what reads the table and stores the log; by default this process does
                that. `commitlog.spark.fsck` does it on a cluster.

        Raises:
            ConfigurationError: the namespace was opened without a log.
            Fenced: the log belongs to another table, and `take_over` is False.
            CorruptRecord, FormatTooNew: a record of the table cannot be read; nothing was written.
            Conflict: a change may be in progress, and nothing was written; or another client restores
                the namespace, or writes the log again, and continues.
        """
        if self._context.changes.log is None:
            raise ConfigurationError("the namespace was opened without a log: give it one")
        epochs = self._context.changes.log.epochs
        if open_states is None:
            states: TableStates = WholeTable(
                table=self._context.table,
                keys=self._context.keys,
                epochs=epochs,
                clock=self._context.clock,
                new_id=self._context.new_id,
            )
        else:
            states = open_states(epochs)
        rewriter = LogRewriter(
            table=self._context.table,
            keys=self._context.keys,
            epochs=epochs,
            states=states,
            clock=self._context.clock,
            new_id=self._context.new_id,
        )
        try:
            return rewriter.rewrite(take_over=take_over, older_than=older_than)
        finally:
            self._context.metadata.forget()

    def inspect(
        self, *, pending_after: float = 3600.0, stale_after: float, limit: int | None = 10_000
    ) -> NamespaceInspection:
        """Return the formats, the unpublished jobs and the work that is left; change nothing.

        Takes about thirty requests, and one more for each thousand log entries, entries of the trash,
        pieces of garbage in a partition (of eight), and uploads below the store's URL. The tree is not
        read, nor is any object; `fsck` does that.

        Args:
            pending_after: age in seconds at which a pending change is overdue; see `recover`.
            stale_after: age in seconds at which an upload is stale.
            limit: most items of each listing that are read; None for no bound.

        A missing store, a fenced log and damaged records are reported, not raised. Raises `NotFound`,
        `FormatTooNew`, and the errors of table and store.
        """
        return inspect(self._context, pending_after=pending_after, stale_after=stale_after, limit=limit)

    def fsck(
        self,
        *,
        objects: bool = False,
        orphans: bool = False,
        grace: float = 5.0,
        pending: float = 3600.0,
        age: float = AGE,
        open_surveyor: OpenSurveyor | None = None,
        progress: Callable[[FsckReport], object] | None = None,
    ) -> FsckReport:
        """Check the namespace for problems; change nothing.

        All records are read, and the log if there is one. Other clients may continue to work: their
        changes are not findings. `commitlog.namespace.fsck.problems.PROBLEMS` lists the problems, their
        meaning and their repairs. A suspected problem is read twice. Directories are held in memory, and
        some hundred bytes for each file, with a log two hundred and fifty.

        Args:
            objects: whether to check the object of each file in the store, too. In a bound directory
                that is not authoritative, an object that others change is no loss: `Bindings.sync`
                updates the file.
            orphans: whether to list the store for unreferenced objects, too.
            grace: seconds after which a suspected problem is read again before it is reported.
            pending: seconds for which a change may be pending in the log.
            age: seconds for which an object may be in the store before a file refers to it: longer than
                any job takes.
            open_surveyor: opens what reads all records and the log; by default it reads them in this
                process. `commitlog.spark.fsck` reads them on a cluster.
            progress: called from time to time with the report so far.

        Raises `BucketNotFound`; with `objects` or `orphans`, also `StoreEmpty` if the store does not
        belong to the namespace.
        """
        self._context.metadata.forget()  # the namespace may have been restored since the last read
        self._check_metadata(repairing=True, writing=False)
        log, fenced = self._log_to_compare()
        table, keys = TableReader.of(self._context.table), self._context.keys
        if open_surveyor is None:
            reader = None if log is None else LogReader.of(log.current)
            surveyor: Surveyor = TableSurveyor(table=table, keys=keys, log=reader)
        else:
            surveyor = open_surveyor(keys, log)
        checker = Checker(
            table=table,
            keys=keys,
            clock=self._context.clock,
            surveyor=surveyor,
            store=self._store_reader() if objects or orphans else None,
            objects=objects,
            orphans=orphans,
            grace=grace,
            pending=pending,
            age=age,
        )
        checked = checker.check(progress)
        return evolve(checked, findings=(*fenced, *checked.findings))

    def repair(
        self,
        findings: Iterable[Finding],
        *,
        dry_run: bool = True,
        only: Collection[str] | None = None,
        open_repairer: OpenRepairer | None = None,
    ) -> Iterator[RepairReport]:
        """Repair findings of `fsck`; yield the outcome for each finding.

        Each repair is one transaction, which applies only if the records are still as they were found.
        It is logged like any other change. Entries that no path leads to are moved into the directory
        ``lost+found`` of the root, under their ids. A repair can reveal a problem that another one hid:
        repeat the check and the repair until there are no findings.

        Args:
            findings: the findings of `fsck`.
            dry_run: whether to report the repairs without making them.
            only: names of the problems to repair; by default all, except those that must be requested.
            open_repairer: opens what repairs findings; by default this process makes one change after
                the other. `commitlog.spark.fsck` divides the findings on a cluster.
        """
        wanted = [each for each in findings if _is_wanted(each.problem, only)]
        self._check_metadata(repairing=any(map(self._repairs_metadata, wanted)))
        log = None if self._context.changes.log is None else self._context.changes.log.current
        alone = self._repairer(None)
        repairer: FindingsRepairer = alone
        if open_repairer is not None:
            repairer = open_repairer(self._context.keys, self._context.changes.log, alone)
        pending = [each for each in wanted if each.problem.name == "pending-change"]
        marks = [each for each in wanted if each.problem.name == "no-store-identity"]
        others = (
            each for each in wanted if each.problem.name not in ("pending-change", "no-store-identity")
        )
        for done in repairer.repair(others, dry_run=dry_run):
            if self._repairs_metadata(done.finding):
                self._context.metadata.forget()
            yield done
        if pending and not dry_run:
            with contextlib.suppress(CorruptRecord, FormatTooNew):  # `fsck` has a finding for it
                self.recover()
        for each in pending:
            left = log is None or log.decision(each.path) is None
            outcome = RepairOutcome.LEFT if left else RepairOutcome.DONE
            yield RepairReport(finding=each, outcome=RepairOutcome.PLANNED if dry_run else outcome)
        for each in marks:
            assert each.object is not None
            outcome = (
                RepairOutcome.DONE
                if dry_run or store_identity_object(self._context, each.object)
                else RepairOutcome.LEFT
            )
            yield RepairReport(finding=each, outcome=RepairOutcome.PLANNED if dry_run else outcome)

    def repairer(self, references: References) -> Repairer:
        """Return what repairs findings in this process, as a task of a cluster does.

        Args:
            references: finds the references to objects.

        Raises `FormatTooNew`.
        """
        self._check_metadata(repairing=True)
        return self._repairer(references)

    def _repairer(self, references: References | None) -> Repairer:
        context = RepairContext(
            planning=self._context.planning,
            row_planning=self._context.row_planning,
            changes=self._context.changes,
            store=self._store_reader(),
            began=self._context.row_planning.now(),
        )
        return Repairer(
            table=TableReader.of(self._context.table),
            context=context,
            references=self.references() if references is None else references,
        )

    def references(self, open_references: OpenReferences | None = None) -> References:
        """Return what finds the references to objects, in the table and in the log.

        Args:
            open_references: opens it; by default this process reads the table and the log.
        """
        log = self._context.changes.log
        if open_references is not None:
            return open_references(self._context.keys, log)
        return WholeReferences(
            table=TableReader.of(self._context.table),
            log=None if log is None else LogReader.of(log.current),
        )

    def recover(self, *, older_than: float = 3600.0) -> tuple[Operation, ...]:
        """Decide the changes that are pending in the log; return them with their decisions.

        The records show whether a change happened, and so do later changes in the log. If neither shows
        it, the change stays pending. All clients that change the namespace must use this log, and only
        `compact_log` may compact it.

        Args:
            older_than: only changes that began at least so many seconds ago. This must be longer than a
                request may be on its way, and than its sender repeats it, 900 s
                (`commitlog.namespace.write.transaction.SEND_WITHIN`). Less is safe if no client changes
                the namespace meanwhile.

        Raises `ConfigurationError` if the namespace was opened without a log. Raises `CorruptRecord` or
        `FormatTooNew` for an entry that cannot be read, after it has decided all other changes for which
        the remaining entries are sufficient.
        """
        log = self._with_log()
        return Recovery(table=self._context.table, log=log.current).recover(older_than=older_than)

    def _check_metadata(self, *, repairing: bool, writing: bool = True) -> None:
        """Check that this library knows the namespace's format, if the metadata record exists.

        Args:
            repairing: whether the record is about to be repaired, or only read: it may be damaged then.
            writing: whether the namespace is going to be changed.
        """
        item = self._context.table.get(self._context.keys.metadata)
        if item is not None and not repairing:
            self._context.describe(writing=writing)
        elif item is not None:
            with contextlib.suppress(CorruptRecord):
                NamespaceMetadata.from_item(item).check(writing=writing)
                self._context.describe(writing=False)

    def _repairs_metadata(self, finding: Finding) -> bool:
        """Return whether a finding is a damaged metadata record that this log can repair."""
        rows = [item for item in finding.records if item["place"] == NAMESPACES]
        if not rows or finding.problem.name == "no-store-identity":
            return False
        if finding.logged is not None:
            return True
        with contextlib.suppress(CorruptRecord):
            return NamespaceMetadata.from_item(rows[0]).log in (None, self._context.metadata.log_prefix)
        return False

    def _store_reader(self) -> StoreReader:
        # Without the metadata record the identity object is unknown; other problems can still be found.
        return StoreReader.of(
            self._context.store,
            None if self._context.metadata.known is None else self._context.overlay.backing_store.verify,
        )

    def _with_log(self) -> FencedLog:
        log = self._context.changes.log
        if log is None:
            raise ConfigurationError("the namespace was opened without a log: give it one")
        epoch = self._context.describe().epoch
        try:
            log.check()
        except Fenced:
            if not log.is_renewed(epoch):
                raise
            log.check()
        return log

    def _log_to_compare(self) -> tuple[FencedLog | None, tuple[Finding, ...]]:
        """Return the log; or, if another table owns the log, a finding that says so."""
        log = self._context.changes.log
        if log is None or (
            self._context.metadata.known is not None and self._context.metadata.known.read_only
        ):
            return None, ()
        try:
            log.check()
        except Fenced as error:
            return None, (Finding(problem=PROBLEMS["fenced"], path="", detail=str(error)),)
        return log, ()


def _is_wanted(problem: Problem, only: Collection[str] | None) -> bool:
    return not problem.asked if only is None else problem.name in only
