"""Maintenance of namespaces as Spark jobs: `import_objects`, `gc`, `prune` and `diff`.

The rules are in `commitlog.namespace`, and `commitlog.namespace.partitioned` divides their work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from attrs import frozen
from pyspark.sql import SparkSession

from commitlog._util.ids import random_id
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
from commitlog.namespace.partitioned.dataset import Dataset, OpenAccess
from commitlog.namespace.partitioned.imports import PartitionedImport
from commitlog.namespace.partitioned.journal import (
    Journal,
    OpenJournal,
    no_journal,
)
from commitlog.namespace.partitioned.levels import FEW_FILES
from commitlog.namespace.partitioned.pruning import PartitionedDiff, PartitionedPrune
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.spark.cluster import NamespacePlace, SparkEngine
from commitlog.spark.inventory import open_inventory
from commitlog.stores.api import ObjectInfo
from commitlog.urls import Url

__all__ = ["diff", "empty_trash", "gc", "import_objects", "prune"]

#: Number of listings that the driver sends at a time.
_LISTINGS = 32


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
    journal: str | Url | None = None,
    job_id: str | None = None,
    progress: Callable[[ImportReport], object] | None = None,
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
        journal: URL of a prefix of a store, in which the plan and the reports of the ranges are kept;
            the store must enforce conditions, see `commitlog.connect`.
        job_id: id of this job in the journal. Repeat a call with the same id to continue it.
        progress: called with the report at the end.

    Raises:
        ConfigurationError: an argument is wrong, or the job has other arguments; nothing was imported.
        NotSupported: the session is one of Spark Connect, or the store does not list objects in the
            order of the bytes of their paths.
        Py4JJavaError, PySparkException: Spark's job failed for another reason. Repeat the call.

    It also raises the errors of `Maintenance.import_objects`, `open_namespace` and `commitlog.connect`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(spark, namespace, metadata, store, options, partitions, journal, job_id)
    with job.run() as (opened, _), ThreadPoolExecutor(_LISTINGS, "commitlog-listing") as executor:
        work = PartitionedImport(
            engine=job.engine,
            open_namespace=job.place.open_namespace,
            open_journal=job.open_journal,
            executor=executor,
        )
        return work.import_objects(opened, prefix, into, progress=progress)


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
    journal: str | Url | None = None,
    job_id: str | None = None,
    progress: Callable[[GcReport], object] | None = None,
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
        journal, job_id: see `import_objects`. What a repeated call leaves out, its report has. Garbage
            that is due only after the first call began is left for another job.
        progress: called with the report so far after each of two steps.

    Raises the errors of `import_objects`, except for listings, and those of `Maintenance.gc`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(spark, namespace, metadata, store, options, partitions, journal, job_id)
    with job.run() as (opened, open_access):
        work = PartitionedCollection(
            engine=job.engine,
            open_namespace=job.place.open_namespace,
            open_journal=job.open_journal,
            open_references=partial(PartitionedSurveyor.of, job.engine, open_access),
        )
        return work.collect(opened, progress=progress)


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
    progress: Callable[[TrashReport], object] | None = None,
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
        progress: called from time to time with the report so far.

    Raises the errors of `gc`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(spark, namespace, metadata, store, options, None, None, None)
    with job.run() as (opened, _):
        opener = partial(job.place.open_namespace, grace=grace)
        work = PartitionedTrash(engine=job.engine, open_namespace=opener)
        return work.empty(opened, progress=progress)


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
    journal: str | Url | None = None,
    job_id: str | None = None,
    progress: Callable[[PruneReport], object] | None = None,
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
        journal, job_id: see `import_objects`. What a repeated call leaves out, its report has. A listing
            for imported files is repeated.
        progress: called from time to time with the report so far.

    Raises the errors of `import_objects` and of `Bindings.prune`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(spark, namespace, metadata, store, options, partitions, journal, job_id)
    with job.run() as (opened, open_access):
        work = PartitionedPrune(
            engine=job.engine,
            open_namespace=job.place.open_namespace,
            open_journal=job.open_journal,
            inventory=job.inventory(inventory, opened, open_access),
            few=few_files,
        )
        return work.prune(
            opened, path, older_than=older_than, empty_store=empty_store, progress=progress
        )


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
    progress: Callable[[int], object] | None = None,
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
        progress: called from time to time with the number of files and directories compared so far.

    Raises the errors of `import_objects` and of `Bindings.diff`.
    """
    options = {"commit": commit, "leases": leases, "probe_report": probe_report}
    job = _Job.of(spark, namespace, metadata, store, options, partitions, None, None)
    with job.run() as (opened, open_access):
        work = PartitionedDiff(
            engine=job.engine,
            open_namespace=job.place.open_namespace,
            inventory=job.inventory(inventory, opened, open_access),
            few=few_files,
        )
        found = work.diff(opened, path, prefix=prefix, progress=progress)
        return sorted(found, key=lambda each: (each.status.path, each.kind))


@frozen(kw_only=True)
class _Job:
    """A job on a namespace.

    Attributes:
        engine: the executors.
        place: the place of the namespace.
        open_journal: opens the journal, in any process.
    """

    engine: SparkEngine
    place: NamespacePlace
    open_journal: OpenJournal

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        namespace: str,
        metadata: str | Url | None,
        store: str | Url | None,
        options: dict[str, Any],
        partitions: int | None,
        journal: str | Url | None,
        job_id: str | None,
    ) -> _Job:
        """Return a job; the arguments are those of `import_objects`."""
        if job_id is not None and journal is None:
            raise ConfigurationError("a job with an id needs the URL of a journal: 'journal'")
        open_journal: OpenJournal = no_journal
        if journal is not None:
            open_journal = partial(_open_journal, journal, job_id or random_id())
        return cls(
            engine=SparkEngine(spark, partitions=partitions),
            place=NamespacePlace.of(namespace, metadata=metadata, store=store, options=options),
            open_journal=open_journal,
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
            with self.place.open() as (namespace, open_access):
                yield namespace, open_access
        finally:
            self.engine.release()


@contextmanager
def _open_journal(url: str | Url, id: str) -> Iterator[Journal]:
    with closing(connect(url)) as store:
        yield Journal(store=store, id=id)
