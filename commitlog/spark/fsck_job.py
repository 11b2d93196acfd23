"""`fsck`: checks and restores of namespaces as Spark jobs.

The rules are in `commitlog.namespace.partitioned`; `commitlog.spark.cluster` runs them on executors.
The module is not called ``fsck``: it would hide the function `commitlog.spark.fsck`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, overload

from attrs import evolve
from pyspark.sql import SparkSession

from commitlog._util.ids import random_id
from commitlog._util.parsing import check_choice
from commitlog.clock import SystemClock
from commitlog.commit import ProbeReport
from commitlog.errors import ConfigurationError
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
from commitlog.namespace.partitioned.dataset import ShowProgress
from commitlog.namespace.partitioned.objects import ObjectListing, StoreListing
from commitlog.namespace.partitioned.repair import PartitionedRepairer
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.namespace.partitioned.table import PartitionedTable
from commitlog.namespaces import (
    restore_namespace,
)
from commitlog.oplog import Decision, Operation
from commitlog.spark.cluster import NamespaceAddress, SparkEngine
from commitlog.spark.dataframe import write
from commitlog.spark.inventory import open_inventory
from commitlog.urls import Url

__all__ = ["fsck"]

#: The results of the modes.
_Report: TypeAlias = FsckReport | tuple[RepairReport, ...] | RestoreReport | LogRewriteReport


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
    inventory: str | Url | None = None,
    grace: float = 5.0,
    pending: float = 3600.0,
    age: float = AGE,
    progress: Callable[[FsckReport], object] | None = None,
    step_progress: ShowProgress | None = None,
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
    inventory: str | Url | None = None,
    grace: float = 5.0,
    pending: float = 3600.0,
    age: float = AGE,
    dry_run: bool = True,
    only: Collection[str] | None = None,
    write_units: float | None = None,
    progress: Callable[[FsckReport], object] | None = None,
    step_progress: ShowProgress | None = None,
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
    write_units: float | None = None,
    progress: Callable[[RestoreReport], object] | None = None,
    step_progress: ShowProgress | None = None,
) -> RestoreReport: ...


@overload
def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["rewrite-log"],
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    take_over: bool = False,
    older_than: float = 3600.0,
    step_progress: ShowProgress | None = None,
) -> LogRewriteReport: ...


def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["verify", "repair", "restore", "rewrite-log"] = "verify",
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    partitions: int | None = None,
    findings: str | None = None,
    job_id: str | None = None,
    write_units: float | None = None,
    step_progress: ShowProgress | None = None,
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
        mode: ``verify``: look for problems, and change nothing; ``repair``: look for problems, and
            repair them; ``restore``: write the table from the log; ``rewrite-log``: begin another log
            from the table.
        metadata: URL of the table; by default the environment variable ``COMMITLOG_METADATA``.
        store: URL of the store with its content and log. A restore needs it; otherwise the table has it.
        commit, leases, probe_report: see `open_namespace`.
        partitions: number of partitions in which records are brought together; by default twice the
            number of cores.
        findings: URL of an output to which the findings are appended, as rows with the columns ``run``,
            ``kind``, ``severity``, ``path``, ``detail``, ``object`` and ``id``; see `write`. Not with
            ``rewrite-log``.
        job_id: id of this run in that output, in which it is committed once; by default a new one. If
            an interrupted call with this id has committed its findings, those stay.
        objects, orphans, grace, pending, age: with ``verify`` and ``repair``; see `Maintenance.fsck`.
            Executors list the store. They send HEAD for objects that are not listed as they should be.
        inventory: with `objects` or `orphans`, URL of an S3 Inventory of the store's bucket, in place of
            a listing: of its ``manifest.json``, or of a directory above, for the newest one. Objects
            that were lost after it are not found, nor are younger orphans.
        dry_run, only: with ``repair``; see `Maintenance.repair`.
        unreadable: with ``restore``, what to do with parts of the log that cannot be read: ``error``, or
            ``report`` to skip them and list them (`RestoreReport.unreadable`).
        undecided: with ``restore``, the decision for changes whose outcome the log does not show.
        replace, read_only: with ``restore``; see `Restorer.restore`.
        write_units: with ``repair`` and ``restore``, the rate of all writes to the table together, in
            write units of DynamoDB per second; see `open_namespace`. The tasks that run at a time
            (``sparkContext.defaultParallelism``) get equal shares. By default there is no limit.
        take_over, older_than: with ``rewrite-log``; see `Maintenance.rewrite_log`.
        progress: not with ``rewrite-log``; called after each step with the report so far.
        step_progress: called each second within a step, in another thread, with a `StepProgress`: the
            records that complete tasks have processed, their rate, and the time that the rest takes if
            the number of all records is known.

    Raises:
        ConfigurationError: an argument is missing, or does not belong to the mode; nothing was changed.
        NotSupported: the session is one of Spark Connect.
        Py4JJavaError, PySparkException: Spark's job failed for another reason. Repeat the call.

    It also raises the errors of the methods above, and those of `open_namespace` and `write`.
    """
    check_choice("mode", mode, _MODES)
    run, known = _MODES[mode]
    if wrong := arguments.keys() - known:
        raise ConfigurationError(f"{', '.join(sorted(wrong))}: not an argument of the mode {mode!r}")
    if mode == "restore" and store is None:
        raise ConfigurationError("a restore needs the URL of the content and log: 'store'")
    looks = arguments.get("objects") or arguments.get("orphans")
    if arguments.get("inventory") is not None and not looks:
        raise ConfigurationError("an inventory is for 'objects' and 'orphans': give one of them as well")
    if mode == "rewrite-log" and findings is not None:
        raise ConfigurationError("the mode 'rewrite-log' has no findings")
    if write_units is not None and mode not in _WRITING:
        raise ConfigurationError(f"write_units: not an argument of the mode {mode!r}")
    engine = SparkEngine(spark, partitions=partitions, step_progress=step_progress)
    address = NamespaceAddress.of(
        namespace,
        metadata=metadata,
        store=store,
        options={"commit": commit, "leases": leases, "probe_report": probe_report},
        write_units=write_units,
        tasks=engine.context.defaultParallelism,
    )
    try:
        report: _Report = run(engine, address, **arguments)
    finally:
        engine.release()
    if findings is not None and not isinstance(report, LogRewriteReport):
        id = random_id() if job_id is None else job_id
        rows = [(id, *found.to_json().values()) for found in _findings_of(report)]
        frame = spark.createDataFrame(rows, _COLUMNS)
        write(frame, findings, job_id=id, on_duplicate="skip")  # an interrupted call may have done so
    return report


#: Columns of the output of findings.
_COLUMNS = (
    "run STRING, kind STRING, severity STRING, path STRING, detail STRING, object STRING, id STRING"
)


def _verify(
    engine: SparkEngine,
    address: NamespaceAddress,
    *,
    inventory: str | Url | None = None,
    **arguments: Any,
) -> FsckReport:
    with address.open() as (namespace, open_access):
        listing = _listing(namespace, inventory)
        open_surveyor = partial(PartitionedSurveyor.of, engine, open_access, listing=listing)
        report = namespace.maintenance.fsck(open_surveyor=open_surveyor, **arguments)
        return evolve(report, listed_at=listing.time)


def _repair(
    engine: SparkEngine,
    address: NamespaceAddress,
    *,
    dry_run: bool = True,
    only: Collection[str] | None = None,
    inventory: str | Url | None = None,
    **arguments: Any,
) -> tuple[RepairReport, ...]:
    with address.open() as (namespace, open_access):
        listing = _listing(namespace, inventory)
        surveyor = partial(PartitionedSurveyor.of, engine, open_access, listing=listing)
        found = namespace.maintenance.fsck(open_surveyor=surveyor, **arguments).findings
        repairer = partial(PartitionedRepairer.of, engine, open_access, address.open_repairer)
        repaired = namespace.maintenance.repair(
            found, dry_run=dry_run, only=only, open_repairer=repairer
        )
        return tuple(repaired)


def _listing(namespace: Namespace, inventory: str | Url | None) -> ObjectListing:
    return StoreListing() if inventory is None else open_inventory(inventory, namespace.store.url)


def _restore(
    engine: SparkEngine,
    address: NamespaceAddress,
    *,
    undecided: Decision | None = None,
    unreadable: str = "error",
    **arguments: Any,
) -> RestoreReport:
    def decide(operation: Operation) -> Decision:
        assert undecided is not None
        return undecided

    check_choice("unreadable", unreadable, ("error", "report"))
    assert address.store is not None
    with restore_namespace(
        address.name,
        metadata=address.metadata,
        store=address.store,
        write_units=address.write_units,
        **address.options,
    ) as restorer:
        read = partial(PartitionedLog.of, engine, address.access(address.store))
        return evolve(restorer, read_contents=read).restore(
            decide=None if undecided is None else decide,
            salvage=unreadable == "report",
            **arguments,
        )


def _rewrite_log(engine: SparkEngine, address: NamespaceAddress, **arguments: Any) -> LogRewriteReport:
    with address.open() as (namespace, open_access):
        open_states = partial(
            PartitionedTable.of, engine, open_access, address.name, SystemClock(), random_id
        )
        return namespace.maintenance.rewrite_log(open_states=open_states, **arguments)


#: The modes that write to the table.
_WRITING = frozenset({"repair", "restore"})

_OF_CHECKS = frozenset({"objects", "orphans", "inventory", "grace", "pending", "age", "progress"})

#: The function of each mode, and its arguments.
_MODES: Mapping[str, tuple[Callable[..., Any], frozenset[str]]] = MappingProxyType(
    {
        "verify": (_verify, _OF_CHECKS),
        "repair": (_repair, _OF_CHECKS | {"dry_run", "only"}),
        "restore": (
            _restore,
            frozenset({"unreadable", "undecided", "replace", "read_only", "progress"}),
        ),
        "rewrite-log": (_rewrite_log, frozenset({"take_over", "older_than"})),
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
