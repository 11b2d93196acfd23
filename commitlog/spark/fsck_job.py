"""`fsck`: checks and restores of namespaces as Spark jobs.

The rules are in `commitlog.namespace.partitioned`, and `SparkEngine` runs them on the executors of a
session. The module is not called ``fsck``: it would hide the function `commitlog.spark.fsck`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, overload

from attrs import evolve, field, frozen
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from commitlog._util.ids import random_id
from commitlog.clock import SystemClock
from commitlog.commit import ProbeReport
from commitlog.errors import ConfigurationError, NotSupported
from commitlog.namespace import (
    PROBLEMS,
    Finding,
    FsckReport,
    LogRewriteReport,
    Namespace,
    RepairReport,
    RestoreReport,
)
from commitlog.namespace.fsck.checker import AGE
from commitlog.namespace.partitioned.contents import PartitionedLog
from commitlog.namespace.partitioned.dataset import Dataset, Engine, OpenAccess, call_with_groups
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.namespace.partitioned.table import PartitionedTable
from commitlog.namespaces import (
    metadata_table_url,
    open_namespace,
    open_parts,
    parse_url,
    restore_namespace,
    store_of,
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

#: The results of the modes.
_Report: TypeAlias = FsckReport | tuple[RepairReport, ...] | RestoreReport | LogRewriteReport


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
    mode: Literal["repair"],
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
    dry_run: bool = True,
    only: Collection[str] | None = None,
    progress: Callable[[FsckReport], object] | None = None,
) -> tuple[RepairReport, ...]: ...


@overload
def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["restore"],
    metadata: str | Url | None = None,
    store: str | Url,
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


@overload
def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["relog"],
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    take_over: bool = False,
    older_than: float = 3600.0,
) -> LogRewriteReport: ...


def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["verify", "repair", "restore", "relog"] = "verify",
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    findings: str | None = None,
    job_id: str | None = None,
    **arguments: Any,
) -> _Report:
    """Check and repair a namespace, restore its table from its log, or its log from its table.

    The results are those of `Maintenance.fsck`, `Maintenance.repair`, `Restorer.restore` and
    `Maintenance.rewrite_log`, which work in one process. A call that was interrupted can be repeated.
    Each executor opens table, store and log itself: their URLs must be valid there, and credentials
    come from its environment.

    A check keeps the records of the table and the states of the log on the disks of the executors. The
    driver holds pending changes, and the records of findings: some kilobytes each.

    Args:
        spark: a classic session.
        namespace: the name of the namespace, or its URL ``commitlog://NAME``.
        mode: ``verify``: look for problems, and change nothing; ``repair``: look for problems, and let
            the driver repair them one by one; ``restore``: write the table from the log; ``relog``:
            begin another log from the table.
        metadata: URL of the table; by default the environment variable ``COMMITLOG_METADATA``.
        store: URL of the store with its content and log. A restore needs it; otherwise the table has it.
        commit, leases, probe_report: see `open_namespace`.
        partitions: number of partitions in which records are brought together; by default twice the
            number of cores.
        findings: URL of an output to which the findings are appended, as rows with the columns ``run``,
            ``kind``, ``severity``, ``path``, ``detail``, ``object`` and ``id``; see `write`. Not with
            ``relog``.
        job_id: id of this run in that output, in which it is committed once; by default a new one.
        objects, orphans, grace, pending, age: with ``verify`` and ``repair``; see `Maintenance.fsck`.
        dry_run, only: with ``repair``; see `Maintenance.repair`.
        unreadable: with ``restore``, what to do with parts of the log that cannot be read: ``error``, or
            ``report`` to skip them and list them (`RestoreReport.unreadable`).
        undecided: with ``restore``, the decision for changes whose outcome the log does not show.
        replace, read_only: with ``restore``; see `Restorer.restore`.
        take_over, older_than: with ``relog``; see `Maintenance.rewrite_log`.
        progress: not with ``relog``; called from time to time with the report so far.

    Raises:
        ConfigurationError: an argument is missing, or does not belong to the mode; nothing was changed.
        NotSupported: the session is one of Spark Connect.
        Py4JJavaError, PySparkException: Spark's job failed for another reason. Repeat the call.

    It also raises the errors of the methods above, and those of `open_namespace` and `write`.
    """
    if mode not in _MODES:
        raise ConfigurationError(f"mode is {mode!r}; it must be one of {', '.join(_MODES)}")
    run, known = _MODES[mode]
    if wrong := arguments.keys() - known:
        raise ConfigurationError(f"{', '.join(sorted(wrong))}: not an argument of the mode {mode!r}")
    if mode == "restore" and store is None:
        raise ConfigurationError("a restore needs the URL of the content and log: 'store'")
    if mode == "relog" and findings is not None:
        raise ConfigurationError("the mode 'relog' has no findings")
    place = _Place(
        name=parse_url(namespace)[0] if "://" in namespace else namespace,
        store=store,
        metadata=metadata_table_url(metadata),
        options={"commit": commit, "leases": leases, "probe_report": probe_report},
    )
    engine = SparkEngine(spark, partitions=partitions)
    try:
        report: _Report = run(engine, place, **arguments)
    finally:
        engine.release()
    if findings is not None and not isinstance(report, LogRewriteReport):
        id = random_id() if job_id is None else job_id
        rows = [(id, *found.to_json().values()) for found in _findings_of(report)]
        write(spark.createDataFrame(rows, _COLUMNS), findings, job_id=id)
    return report


#: Columns of the output of findings.
_COLUMNS = (
    "run STRING, kind STRING, severity STRING, path STRING, detail STRING, object STRING, id STRING"
)


@frozen(kw_only=True)
class _Place:
    """The place of a namespace.

    Attributes:
        name: its name.
        metadata: URL of its table.
        store: URL of its store; None if only the table has it.
        options: further options of `open_namespace`.
    """

    name: str
    metadata: str | Url
    store: str | Url | None
    options: Mapping[str, Any]

    @contextmanager
    def open(self) -> Iterator[tuple[Namespace, OpenAccess]]:
        """Open the namespace, and return what opens its parts in a task."""
        with open_namespace(
            self.name, metadata=self.metadata, store=self.store, **self.options
        ) as namespace:
            known = namespace.describe(writing=False)
            yield namespace, self.access(self.store or store_of(known), known.log)

    def access(self, store: str | Url, log: str | None = None) -> OpenAccess:
        """Return what opens the parts of the namespace in a task."""
        return partial(
            open_parts, self.name, metadata=self.metadata, store=store, log=log, **self.options
        )


def _verify(engine: SparkEngine, place: _Place, **arguments: Any) -> FsckReport:
    with place.open() as (namespace, open_access):
        open_surveyor = partial(PartitionedSurveyor.of, engine, open_access)
        return namespace.maintenance.fsck(open_surveyor=open_surveyor, **arguments)


def _repair(
    engine: SparkEngine,
    place: _Place,
    *,
    dry_run: bool = True,
    only: Collection[str] | None = None,
    **arguments: Any,
) -> tuple[RepairReport, ...]:
    with place.open() as (namespace, open_access):
        surveyor = partial(PartitionedSurveyor.of, engine, open_access)
        found = namespace.maintenance.fsck(open_surveyor=surveyor, **arguments).findings
        repaired = namespace.maintenance.repair(
            found, dry_run=dry_run, only=only, open_references=surveyor
        )
        return tuple(repaired)


def _restore(
    engine: SparkEngine,
    place: _Place,
    *,
    undecided: Decision | None = None,
    unreadable: str = "error",
    **arguments: Any,
) -> RestoreReport:
    def decide(operation: Operation) -> Decision:
        assert undecided is not None
        return undecided

    if unreadable not in ("error", "report"):
        raise ConfigurationError(f"unreadable is {unreadable!r}; it must be 'error' or 'report'")
    assert place.store is not None
    with restore_namespace(
        place.name, metadata=place.metadata, store=place.store, **place.options
    ) as restorer:
        read = partial(PartitionedLog.of, engine, place.access(place.store))
        return evolve(restorer, read_contents=read).restore(
            decide=None if undecided is None else decide,
            salvage=unreadable == "report",
            **arguments,
        )


def _relog(engine: SparkEngine, place: _Place, **arguments: Any) -> LogRewriteReport:
    with place.open() as (namespace, open_access):
        open_states = partial(
            PartitionedTable.of, engine, open_access, place.name, SystemClock(), random_id
        )
        return namespace.maintenance.rewrite_log(open_states=open_states, **arguments)


_OF_CHECKS = frozenset({"objects", "orphans", "grace", "pending", "age", "progress"})

#: The function of each mode, and its arguments.
_MODES: Mapping[str, tuple[Callable[..., Any], frozenset[str]]] = MappingProxyType(
    {
        "verify": (_verify, _OF_CHECKS),
        "repair": (_repair, _OF_CHECKS | {"dry_run", "only"}),
        "restore": (
            _restore,
            frozenset({"unreadable", "undecided", "replace", "read_only", "progress"}),
        ),
        "relog": (_relog, frozenset({"take_over", "older_than"})),
    }
)


def _findings_of(report: FsckReport | tuple[RepairReport, ...] | RestoreReport) -> Iterator[Finding]:
    """Yield the findings of a report; those of a restore are lost files and parts of the log."""
    if isinstance(report, FsckReport):
        yield from report.findings
        return
    if isinstance(report, tuple):
        yield from (each.finding for each in report)
        return
    for lost in report.lost:
        kind = PROBLEMS["object-changed" if lost.changed else "object-missing"]
        yield Finding(problem=kind, path=lost.path, object=lost.object)
    for error in report.unreadable:
        yield Finding(problem=PROBLEMS["unreadable-log"], path="", detail=error)
