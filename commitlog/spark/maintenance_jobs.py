"""Maintenance of namespaces as Spark jobs: `import_objects`, `gc`, `prune` and `diff`.

The rules are in `commitlog.namespace`, and `commitlog.namespace.partitioned` divides their work.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from attrs import frozen
from pyspark.sql import SparkSession

from commitlog._util.ids import random_id
from commitlog.clock import SystemClock
from commitlog.commit import ProbeReport
from commitlog.connect import connect
from commitlog.errors import ConfigurationError
from commitlog.namespace import (
    Difference,
    GcReport,
    ImportReport,
    Namespace,
    PruneReport,
    TrashReport,
)
from commitlog.namespace.partitioned.collection import PartitionedCollection, PartitionedTrash
from commitlog.namespace.partitioned.dataset import Dataset, OpenAccess, ShowProgress
from commitlog.namespace.partitioned.imports import PartitionedImport
from commitlog.namespace.partitioned.journal import (
    Journal,
    OpenJournal,
    no_journal,
)
from commitlog.namespace.partitioned.levels import FEW_FILES
from commitlog.namespace.partitioned.pruning import PartitionedDiff, PartitionedPrune
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.spark.cluster import NamespaceAddress, SparkEngine
from commitlog.spark.dataframe import write
from commitlog.spark.inventory import open_inventory
from commitlog.stores.api import ObjectInfo
from commitlog.urls import Url

__all__ = ["diff", "empty_trash", "gc", "import_objects", "prune"]

#: Number of listings that the driver sends at a time.
_LISTINGS = 32

#: Columns of the output of reports, and of the differences.
_REPORT_COLUMNS = "run STRING, job STRING, namespace STRING, ended TIMESTAMP, report STRING"
_DIFFERENCE_COLUMNS = "run STRING, kind STRING, path STRING, object STRING"


def import_objects(
    spark: SparkSession,
    namespace: str,
    prefix: str = "",
    into: str = "",
    *,
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    write_units: float | None = None,
    journal: str | Url | None = None,
    job_id: str | None = None,
    report: str | None = None,
    progress: Callable[[ImportReport], object] | None = None,
    step_progress: ShowProgress | None = None,
) -> ImportReport:
    """Create files for existing objects of the store, in place, at the paths of the objects.

    The results are those of `Maintenance.import_objects`. The driver divides the objects into ranges of
    about the same size, with at most 32 listings for each partition. The executors list and import them.
    A call that was interrupted can be repeated, and several can run at once. With a journal, a repeated
    call leaves out the ranges that are complete, and its report has them.

    Args:
        spark: a classic session.
        namespace: the name of the namespace, or its URL ``commitlog://NAME``.
        prefix, into: see `Maintenance.import_objects`.
        metadata, store, commit, leases, probe_report: see `fsck`.
        partitions: a quarter of the number of ranges; by default twice the number of cores.
        write_units: the rate of all writes to the table together; see `fsck`.
        journal: URL of a prefix of a store, in which the plan and the reports of the ranges are kept. It
            is opened with `commit` and `leases`; see `commitlog.connect`.
        job_id: id of this job, for the journal and for `report`. Repeat a call with the same id to
            continue it.
        report: URL of an output to which the report is appended, once for each id: a row with the
            columns ``run`` (the id), ``job``, ``namespace``, ``ended`` and ``report`` (JSON); see
            `write`.
        progress: called with the report at the end.
        step_progress: called each second within a step; see `fsck`.

    Raises:
        ConfigurationError: an argument is wrong, or the job has other arguments; nothing was imported.
        NotSupported: the session is one of Spark Connect, or the store does not list objects in the
            order of the bytes of their paths.
        Py4JJavaError, PySparkException: Spark's job failed for another reason. Repeat the call.

    It also raises the errors of `Maintenance.import_objects`, `open_namespace` and `commitlog.connect`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(
        spark,
        namespace,
        metadata=metadata,
        store=store,
        options=options,
        partitions=partitions,
        write_units=write_units,
        journal=journal,
        job_id=job_id,
        report=report,
        step_progress=step_progress,
    )
    with job.run() as (opened, _), ThreadPoolExecutor(_LISTINGS, "commitlog-listing") as executor:
        work = PartitionedImport(
            engine=job.engine,
            open_namespace=job.address.open_for_task,
            open_journal=job.open_journal,
            executor=executor,
        )
        done = work.import_objects(opened, prefix, into, progress=progress)
    job.append_report("import", done.to_json())
    return done


def gc(
    spark: SparkSession,
    namespace: str,
    *,
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    write_units: float | None = None,
    journal: str | Url | None = None,
    job_id: str | None = None,
    report: str | None = None,
    progress: Callable[[GcReport], object] | None = None,
    step_progress: ShowProgress | None = None,
) -> GcReport:
    """Remove unreferenced content after its grace period; return a report.

    The results are those of `Maintenance.gc`. The executors remove the garbage of different times. If
    `fsck` has listed objects for which no file was known, the table and the log are read once for all
    of them. A call that was interrupted can be repeated, and several can run at once.

    Args:
        spark: a classic session.
        namespace: the name of the namespace, or its URL ``commitlog://NAME``.
        metadata, store, commit, leases, probe_report: see `fsck`.
        partitions: a quarter of the number of shares of the garbage; by default twice the number of
            cores.
        write_units, journal, job_id, report: see `import_objects`. What a repeated call leaves out, its
            report has. Garbage that is due only after the first call began is left for another job.
        progress: called with the report so far after each of two steps.
        step_progress: called each second within a step; see `fsck`.

    Raises the errors of `import_objects`, except for listings, and those of `Maintenance.gc`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(
        spark,
        namespace,
        metadata=metadata,
        store=store,
        options=options,
        partitions=partitions,
        write_units=write_units,
        journal=journal,
        job_id=job_id,
        report=report,
        step_progress=step_progress,
    )
    with job.run() as (opened, open_access):
        work = PartitionedCollection(
            engine=job.engine,
            open_namespace=job.address.open_for_task,
            open_journal=job.open_journal,
            open_references=partial(PartitionedSurveyor.of, job.engine, open_access),
        )
        done = work.collect(opened, progress=progress)
    job.append_report("gc", done.to_json())
    return done


def empty_trash(
    spark: SparkSession,
    namespace: str,
    *,
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    grace: float = 3600.0,
    write_units: float | None = None,
    job_id: str | None = None,
    report: str | None = None,
    progress: Callable[[TrashReport], object] | None = None,
    step_progress: ShowProgress | None = None,
) -> TrashReport:
    """Remove the contents of the trash; return a report.

    The results are those of `Maintenance.empty_trash`. Each of up to eight tasks empties a shard of the
    trash. Directories in a trashed directory move into the trash first, so that this is repeated until
    no task has found anything. A call that was interrupted can be repeated, and several can run at once.

    Args:
        spark: a classic session.
        namespace: the name of the namespace, or its URL ``commitlog://NAME``.
        metadata, store, commit, leases, probe_report: see `fsck`.
        grace: seconds for which the content of removed files is kept; see `Namespace`.
        write_units, job_id, report: see `import_objects`; there is no journal, because a repeated call
            finds less to do.
        progress: called from time to time with the report so far.
        step_progress: called each second within a step; see `fsck`.

    Raises the errors of `gc`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(
        spark,
        namespace,
        metadata=metadata,
        store=store,
        options=options,
        write_units=write_units,
        job_id=job_id,
        report=report,
        step_progress=step_progress,
    )
    with job.run() as (opened, _):
        opener = partial(job.address.open_for_task, grace=grace)
        work = PartitionedTrash(engine=job.engine, open_namespace=opener)
        done = work.empty(opened, progress=progress)
    job.append_report("empty_trash", done.to_json())
    return done


def prune(
    spark: SparkSession,
    namespace: str,
    path: str = "",
    *,
    older_than: float | None = None,
    empty_store: bool = False,
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    inventory: str | Url | None = None,
    few_files: int = FEW_FILES,
    write_units: float | None = None,
    journal: str | Url | None = None,
    job_id: str | None = None,
    report: str | None = None,
    progress: Callable[[PruneReport], object] | None = None,
    step_progress: ShowProgress | None = None,
) -> PruneReport:
    """Remove files and tombstones without objects at and below a path; return a report.

    The results are those of `Bindings.prune`. The executors read the directories level by level.
    Imported files are looked up afterwards: each by a HEAD if they are few, or else by a listing of the
    prefixes of their objects. Then only files whose objects the listing lacks cost a HEAD. A call that
    was interrupted can be repeated, and several can run at once.

    Args:
        spark: a classic session.
        namespace: the name of the namespace, or its URL ``commitlog://NAME``.
        path, older_than, empty_store: see `Bindings.prune`.
        metadata, store, commit, leases, probe_report: see `fsck`.
        partitions: a quarter of the number of units of a level; by default twice the number of cores.
        inventory: URL of an S3 Inventory of the store's bucket, which is read in place of a listing; see
            `fsck`. Files stay whose objects were removed since.
        few_files: number of imported files up to which each costs a HEAD, and nothing is listed.
        write_units, journal, job_id, report: see `import_objects`. What a repeated call leaves out, its
            report has. A listing for imported files is repeated.
        progress: called from time to time with the report so far.
        step_progress: called each second within a step; see `fsck`.

    Raises the errors of `import_objects` and of `Bindings.prune`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(
        spark,
        namespace,
        metadata=metadata,
        store=store,
        options=options,
        partitions=partitions,
        write_units=write_units,
        journal=journal,
        job_id=job_id,
        report=report,
        step_progress=step_progress,
    )
    with job.run() as (opened, open_access):
        work = PartitionedPrune(
            engine=job.engine,
            open_namespace=job.address.open_for_task,
            open_journal=job.open_journal,
            inventory=job.inventory(inventory, opened, open_access),
            few=few_files,
        )
        done = work.prune(
            opened, path, older_than=older_than, empty_store=empty_store, progress=progress
        )
    job.append_report("prune", done.to_json())
    return done


def diff(
    spark: SparkSession,
    namespace: str,
    path: str = "",
    *,
    prefix: str | None = None,
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    inventory: str | Url | None = None,
    few_files: int = FEW_FILES,
    job_id: str | None = None,
    findings: str | None = None,
    progress: Callable[[int], object] | None = None,
    step_progress: ShowProgress | None = None,
) -> list[Difference]:
    """Return the differences between the store and the table, at and below a path, sorted by path.

    They are those of `Bindings.diff`. The executors work as in `prune`, and the driver holds the
    differences.

    Args:
        spark: a classic session.
        namespace: the name of the namespace, or its URL ``commitlog://NAME``.
        path, prefix: see `Bindings.diff`.
        metadata, store, commit, leases, probe_report: see `fsck`.
        partitions, inventory, few_files: see `prune`; each file whose object lies elsewhere than the
            prefix of its directory counts. Changes since an inventory are not found.
        findings: URL of an output to which the differences are appended, as rows with the columns
            ``run``, ``kind``, ``path`` and ``object``; see `write`.
        job_id: id of this run in that output, in which it is committed once; by default a new one.
        progress: called from time to time with the number of files and directories compared so far.
        step_progress: called each second within a step; see `fsck`.

    Raises the errors of `import_objects` and of `Bindings.diff`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(
        spark,
        namespace,
        metadata=metadata,
        store=store,
        options=options,
        partitions=partitions,
        job_id=job_id,
        report=findings,
        step_progress=step_progress,
    )
    with job.run() as (opened, open_access):
        work = PartitionedDiff(
            engine=job.engine,
            open_namespace=job.address.open_for_task,
            inventory=job.inventory(inventory, opened, open_access),
            few=few_files,
        )
        found = sorted(
            work.diff(opened, path, prefix=prefix, progress=progress),
            key=lambda each: (each.status.path, each.kind),
        )
    job.append_differences(found)
    return found


@frozen(kw_only=True)
class _Job:
    """A job on a namespace.

    Attributes:
        spark: the session.
        id: its id.
        engine: the executors.
        address: the address of the namespace.
        open_journal: opens the journal, in any process.
        report: URL of the output to which the result is appended, if there is one.
    """

    spark: SparkSession
    id: str
    engine: SparkEngine
    address: NamespaceAddress
    open_journal: OpenJournal
    report: str | None

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        namespace: str,
        *,
        metadata: str | Url | None,
        store: str | Url | None,
        options: dict[str, Any],
        partitions: int | None = None,
        write_units: float | None = None,
        journal: str | Url | None = None,
        job_id: str | None = None,
        report: str | None = None,
        step_progress: ShowProgress | None = None,
    ) -> _Job:
        """Return a job; the arguments are those of `import_objects`."""
        if job_id is not None and journal is None and report is None:
            raise ConfigurationError(
                "a job id is for a journal or an output: give the URL of one as well"
            )
        id = job_id or random_id()
        open_journal: OpenJournal = no_journal
        if journal is not None:
            how = {name: options[name] for name in ("commit", "leases")}
            open_journal = partial(_open_journal, journal, id, **how)
        engine = SparkEngine(spark, partitions=partitions, step_progress=step_progress)
        address = NamespaceAddress.of(
            namespace,
            metadata=metadata,
            store=store,
            options=options,
            write_units=write_units,
            tasks=engine.context.defaultParallelism,
        )
        return cls(
            spark=spark,
            id=id,
            engine=engine,
            address=address,
            open_journal=open_journal,
            report=report,
        )

    def inventory(
        self, url: str | Url | None, opened: Namespace, open_access: OpenAccess
    ) -> Dataset[ObjectInfo] | None:
        """Return the objects of an inventory, if there is one."""
        if url is None:
            return None
        return open_inventory(url, opened.store.url).objects(self.engine, open_access, None)

    @contextmanager
    def run(self) -> Iterator[tuple[Namespace, OpenAccess]]:
        """Open the namespace in this process; forget what executors keep at the end."""
        try:
            with self.address.open() as (namespace, open_access):
                yield namespace, open_access
        finally:
            self.engine.release()

    def append_report(self, job: str, report: Mapping[str, Any]) -> None:
        """Append a report to the output, if there is one."""
        if self.report is not None:
            ended = datetime.datetime.fromtimestamp(SystemClock().epoch(), datetime.UTC)
            row = (self.id, job, self.address.name, ended, json.dumps(report))
            self._append([row], _REPORT_COLUMNS)

    def append_differences(self, found: Sequence[Difference]) -> None:
        """Append the result of a comparison to the output, if there is one."""
        if self.report is not None:
            rows = [
                (self.id, each.kind, each.status.path, each.status.data and each.status.data.path)
                for each in found
            ]
            self._append(rows, _DIFFERENCE_COLUMNS)

    def _append(self, rows: Sequence[tuple[object, ...]], columns: str) -> None:
        """Append rows, unless an interrupted call with this id has done so."""
        assert self.report is not None
        frame = self.spark.createDataFrame(rows, columns)
        write(frame, self.report, job_id=self.id, on_duplicate="skip")


@contextmanager
def _open_journal(
    url: str | Url, id: str, *, commit: str, leases: str | Url | None
) -> Iterator[Journal]:
    with closing(connect(url, commit=commit, table=leases)) as store:
        yield Journal(store=store, id=id)
