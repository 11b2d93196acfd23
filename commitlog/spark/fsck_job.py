"""`fsck`: checks and restores of namespaces as Spark jobs.

The rules are in `commitlog.namespace.partitioned`, and `SparkEngine` runs them on the executors of a
session. The module is not called ``fsck``: it would hide the function `commitlog.spark.fsck`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from attrs import evolve, field, frozen
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from commitlog._util.ids import random_id
from commitlog.commit import ProbeReport
from commitlog.errors import ConfigurationError, NotSupported
from commitlog.namespace import PROBLEMS, Finding, FsckReport, LostFile, RestoreReport
from commitlog.namespace.fsck.checker import AGE
from commitlog.namespace.partitioned.contents import PartitionedLog
from commitlog.namespace.partitioned.dataset import Dataset, Engine, call_with_groups
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.namespaces import (
    open_namespace,
    open_parts,
    parse_url,
    restore_namespace,
    table_of_names,
)
from commitlog.oplog import Decision, Operation
from commitlog.spark.dataframe import write
from commitlog.spark.errors import own_errors
from commitlog.urls import Url

if TYPE_CHECKING:
    from pyspark import RDD

__all__ = ["SparkDataset", "SparkEngine", "fsck"]

T = TypeVar("T")
U = TypeVar("U")


class SparkEngine(Engine):
    """An engine on the executors of a session.

    Args:
        spark: the session; a classic one, because Spark Connect has no RDDs.
        partitions: number of partitions of grouped records; by default twice the number of cores.

    Raises `NotSupported` for a session of Spark Connect.
    """

    def __init__(self, spark: SparkSession, *, partitions: int | None = None) -> None:
        if not isinstance(spark, SparkSession):
            raise NotSupported("fsck needs a classic session: Spark Connect has no RDDs")
        self.context = spark.sparkContext
        self.partitions = 2 * self.context.defaultParallelism if partitions is None else partitions
        self._kept: list[RDD[Any]] = []

    def distribute(self, items: Sequence[T]) -> Dataset[T]:
        """See `Engine.distribute`."""
        return SparkDataset(engine=self, rdd=self.context.parallelize(items, max(1, len(items))))

    def keep(self, rdd: RDD[T]) -> RDD[T]:
        """Keep the partitions of an RDD on the disks of executors."""
        self._kept.append(rdd.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

    def release(self) -> None:
        """See `Engine.release`."""
        while self._kept:
            self._kept.pop().unpersist()


@frozen(kw_only=True)
class SparkDataset(Dataset[T]):
    """A dataset of a `SparkEngine`.

    Args:
        engine: the engine.
        rdd: the records.
    """

    engine: SparkEngine
    rdd: RDD[Any] = field(repr=False)

    def map(self, call: Callable[[Iterator[T]], Iterable[U]]) -> Dataset[U]:
        """See `Dataset.map`."""
        return SparkDataset(engine=self.engine, rdd=self.rdd.mapPartitions(cast("Any", call)))

    def union(self, other: Dataset[T]) -> Dataset[T]:
        """See `Dataset.union`."""
        assert isinstance(other, SparkDataset)
        return SparkDataset(engine=self.engine, rdd=self.rdd.union(other.rdd))

    def group(self, call: Callable[[str, Iterator[Any]], Iterable[U]]) -> Dataset[U]:
        """See `Dataset.group`."""
        pairs = self.rdd.map(_pair)
        grouped = pairs.repartitionAndSortWithinPartitions(self.engine.partitions, _partition_of)
        return SparkDataset(engine=self.engine, rdd=grouped.mapPartitions(partial(_call, call)))

    def sort(self) -> Dataset[T]:
        """See `Dataset.sort`."""
        pairs = self.rdd.map(_pair)
        with own_errors():
            ordered: RDD[Any] = pairs.sortByKey(numPartitions=self.engine.partitions)
        return SparkDataset(engine=self.engine, rdd=ordered.map(_record))

    def keep(self) -> Dataset[T]:
        """See `Dataset.keep`."""
        return evolve(self, rdd=self.engine.keep(self.rdd))

    def collect(self) -> list[T]:
        """See `Dataset.collect`."""
        with own_errors():
            return list(self.rdd.collect())


def _pair(record: tuple[str, Any, Any]) -> tuple[tuple[str, Any], Any]:
    key, order, value = record
    return (key, order), value


def _record(pair: tuple[tuple[str, Any], Any]) -> tuple[str, Any, Any]:
    (key, order), value = pair
    return key, order, value


def _partition_of(key: tuple[str, Any]) -> int:
    # The hash of a text differs between processes, unless PYTHONHASHSEED is set.
    return zlib.crc32(key[0].encode())


def _call(
    call: Callable[[str, Iterator[Any]], Iterable[Any]], pairs: Iterable[tuple[tuple[str, Any], Any]]
) -> Iterator[Any]:
    return call_with_groups(call, map(_record, pairs))


@overload
def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["verify"] = "verify",
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    findings: str | None = None,
    job_id: str | None = None,
    objects: bool = False,
    orphans: bool = False,
    grace: float = 5.0,
    pending: float = 3600.0,
    age: float = AGE,
    progress: Callable[[FsckReport], object] | None = None,
) -> FsckReport: ...


@overload
def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["restore"],
    metadata: str | Url | None = None,
    store: str | Url | None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    findings: str | None = None,
    job_id: str | None = None,
    unreadable: Literal["error", "report"] = "error",
    undecided: Decision | None = None,
    replace: bool = False,
    read_only: bool = False,
    progress: Callable[[RestoreReport], object] | None = None,
) -> RestoreReport: ...


def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["verify", "restore"] = "verify",
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    findings: str | None = None,
    job_id: str | None = None,
    objects: bool = False,
    orphans: bool = False,
    grace: float = 5.0,
    pending: float = 3600.0,
    age: float = AGE,
    unreadable: Literal["error", "report"] = "error",
    undecided: Decision | None = None,
    replace: bool = False,
    read_only: bool = False,
    progress: Callable[[Any], object] | None = None,
) -> FsckReport | RestoreReport:
    """Check a namespace, or restore its table from its log, on the executors of a session.

    The results are those of `Maintenance.fsck` and `Restorer.restore`, which work in one process. A call
    that was interrupted can be repeated. Each executor opens table, store and log itself: their URLs
    must be valid there, and credentials come from its environment.

    A check keeps the records of the table and the states of the log on the disks of the executors. The
    driver holds pending changes, and the records of findings: some kilobytes each.

    Args:
        spark: a classic session.
        namespace: the name of the namespace, or its URL ``commitlog://NAME``.
        mode: ``verify``: look for problems, and change nothing; ``restore``: write the table from the
            log.
        metadata: URL of the table; by default the environment variable ``COMMITLOG_METADATA``.
        store: URL of the store with its content and log. A restore needs it. A check takes it from the
            table by default.
        commit, leases, probe_report: see `open_namespace`.
        partitions: number of partitions in which records are brought together; by default twice the
            number of cores.
        findings: URL of an output to which the findings are appended, as rows with the columns ``run``,
            ``kind``, ``severity``, ``path``, ``detail``, ``object`` and ``id``; see `write`.
        job_id: id of this run in that output, in which it is committed once; by default a new one.
        objects, orphans, grace, pending, age: of a check; see `Maintenance.fsck`.
        unreadable: of a restore, what to do with parts of the log that cannot be read: ``error``, or
            ``report`` to skip them and list them (`RestoreReport.unreadable`).
        undecided: of a restore, the decision for changes whose outcome the log does not show.
        replace, read_only: of a restore; see `Restorer.restore`.
        progress: called from time to time with the report so far.

    Raises:
        ConfigurationError: an argument is missing, or does not belong to the mode; nothing was changed.
        NotSupported: the session is one of Spark Connect.
        Py4JJavaError, PySparkException: Spark's job failed for another reason. Repeat the call.

    It also raises the errors of `Maintenance.fsck`, `Restorer.restore`, `open_namespace` and `write`.
    """
    name = parse_url(namespace)[0] if "://" in namespace else namespace
    engine = SparkEngine(spark, partitions=partitions)
    connection: dict[str, Any] = {
        "metadata": table_of_names(metadata),
        "commit": commit,
        "leases": leases,
        "probe_report": probe_report,
    }
    of_restore = (unreadable != "error", undecided is not None, replace, read_only)
    try:
        if mode == "verify":
            if any(of_restore):
                raise ConfigurationError(
                    "'unreadable', 'undecided', 'replace' and 'read_only' belong to the mode 'restore'"
                )
            report: FsckReport | RestoreReport = _verify(
                engine,
                name,
                store,
                connection,
                objects=objects,
                orphans=orphans,
                grace=grace,
                pending=pending,
                age=age,
                progress=progress,
            )
        elif mode == "restore":
            if store is None:
                raise ConfigurationError("a restore needs the URL of the content and log: 'store'")
            if objects or orphans:
                raise ConfigurationError("'objects' and 'orphans' belong to the mode 'verify'")
            report = _restore(
                engine,
                name,
                {**connection, "store": store},
                undecided,
                replace=replace,
                read_only=read_only,
                salvage=unreadable == "report",
                progress=progress,
            )
        else:
            raise ConfigurationError(f"mode is {mode!r}; it must be 'verify' or 'restore'")
    finally:
        engine.release()
    if findings is not None:
        run = random_id() if job_id is None else job_id
        rows = [tuple(row.values()) for row in _rows_of(report, run)]
        write(spark.createDataFrame(rows, _COLUMNS), findings, job_id=run)
    return report


#: Columns of the output of findings.
_COLUMNS = (
    "run STRING, kind STRING, severity STRING, path STRING, detail STRING, object STRING, id STRING"
)


def _verify(
    engine: SparkEngine,
    name: str,
    store: str | Url | None,
    connection: Mapping[str, Any],
    **arguments: Any,
) -> FsckReport:
    with open_namespace(name, store=store, **connection) as namespace:
        known = namespace.describe(writing=False)
        place = known.store if store is None else store
        open_access = partial(open_parts, name, store=place, log=known.log, **connection)
        return namespace.maintenance.fsck(
            open_surveyor=partial(PartitionedSurveyor.of, engine, open_access), **arguments
        )


def _restore(
    engine: SparkEngine,
    name: str,
    connection: Mapping[str, Any],
    undecided: Decision | None,
    **arguments: Any,
) -> RestoreReport:
    def decide(operation: Operation) -> Decision:
        assert undecided is not None
        return undecided

    read = partial(PartitionedLog.of, engine, partial(open_parts, name, **connection))
    with restore_namespace(name, **connection) as restorer:
        return evolve(restorer, read_contents=read).restore(
            decide=None if undecided is None else decide, **arguments
        )


def _rows_of(report: FsckReport | RestoreReport, run: str) -> Iterator[dict[str, str | None]]:
    """Yield the rows of the output of findings."""
    if isinstance(report, FsckReport):
        found = report.findings
    else:
        found = tuple(
            chain(map(_finding_of_lost, report.lost), map(_finding_of_unreadable, report.unreadable))
        )
    for finding in found:
        yield {"run": run, **finding.to_json()}


def _finding_of_lost(lost: LostFile) -> Finding:
    kind = PROBLEMS["object-changed" if lost.changed else "object-missing"]
    return Finding(problem=kind, path=lost.path, object=lost.object)


def _finding_of_unreadable(error: str) -> Finding:
    return Finding(problem=PROBLEMS["unreadable-log"], path="", detail=error)
