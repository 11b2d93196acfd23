"""fsck and restore of namespaces as Spark jobs: `fsck`.

The rules are in `commitlog.namespace.partitioned`. This module runs them on the executors of a session:
`SparkEngine` is the port for that.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from attrs import evolve, field, frozen
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.namespace import RestoreReport
from commitlog.namespace.partitioned.contents import PartitionedLog
from commitlog.namespace.partitioned.dataset import Dataset, Engine, call_with_groups
from commitlog.namespaces import METADATA, parse_url, restore_namespace
from commitlog.oplog import Decision, Operation
from commitlog.spark.errors import own_errors

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
        if not isinstance(spark, SparkSession) or "connect" in type(spark).__module__:
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


def fsck(
    spark: SparkSession,
    namespace: str,
    *,
    mode: Literal["restore"] = "restore",
    metadata: str | None = None,
    store: str,
    commit: str = "auto",
    leases: str | None = None,
    partitions: int | None = None,
    unreadable: Literal["refuse", "report"] = "refuse",
    undecided: Decision | None = None,
    replace: bool = False,
    read_only: bool = False,
    progress: Callable[[RestoreReport], object] | None = None,
) -> RestoreReport:
    """Restore the table of a namespace from its log."""
    name = parse_url(namespace)[0] if "://" in namespace else namespace
    metadata = metadata or os.environ.get(METADATA)
    if not metadata:
        raise ConfigurationError("no table of names")
    engine = SparkEngine(spark, partitions=partitions)
    open_access = partial(
        restore_namespace, name, store=store, metadata=metadata, commit=commit, leases=leases
    )

    def decide(operation: Operation) -> Decision:
        assert undecided is not None
        return undecided

    with open_access() as restorer:
        read = partial(PartitionedLog.of, engine, open_access)
        try:
            return evolve(restorer, read_contents=read).restore(
                decide=None if undecided is None else decide,
                replace=replace,
                read_only=read_only,
                salvage=unreadable == "report",
                progress=progress,
            )
        finally:
            engine.release()
