"""The executors of a session: an engine for distributed work, and namespaces that its tasks open."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import evolve, field, frozen
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from commitlog.clock import SystemClock
from commitlog.errors import NotSupported
from commitlog.namespace import Namespace
from commitlog.namespace.fsck.references import References
from commitlog.namespace.fsck.repair import Repairer
from commitlog.namespace.partitioned.dataset import (
    Dataset,
    Engine,
    OpenAccess,
    RecordCounter,
    ShowProgress,
    call_with_groups,
)
from commitlog.namespaces import (
    metadata_table_url,
    open_namespace,
    open_parts,
    parse_url,
    store_of,
)
from commitlog.spark.errors import own_errors
from commitlog.spark.progress import AccumulatedCounter, ProgressWatch
from commitlog.urls import Url

if TYPE_CHECKING:
    from pyspark import RDD

__all__ = ["NamespaceAddress", "SparkDataset", "SparkEngine"]

T = TypeVar("T")
U = TypeVar("U")


@frozen(kw_only=True)
class NamespaceAddress:
    """The address of a namespace.

    Attributes:
        name: its name.
        metadata: URL of its table. It may contain credentials, so it is never shown.
        store: URL of its store; None if only the table has it; never shown.
        options: further options of `open_namespace`; never shown.
        write_units: the rate of all writes to the table; see `open_namespace`. None: no limit.
        tasks: number of tasks that run at a time. Each of them gets its share of the rate; while they
            run, the driver does not write.
    """

    name: str
    metadata: str | Url = field(repr=False)
    store: str | Url | None = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    write_units: float | None = None
    tasks: int = 1

    @classmethod
    def of(
        cls,
        namespace: str,
        *,
        metadata: str | Url | None,
        store: str | Url | None,
        options: Mapping[str, Any],
        write_units: float | None = None,
        tasks: int = 1,
    ) -> NamespaceAddress:
        """Return the address of a namespace, given its name or URL; `metadata` may be None: the default.

        Raises `ConfigurationError` if there is no default.
        """
        return cls(
            name=parse_url(namespace)[0] if "://" in namespace else namespace,
            metadata=metadata_table_url(metadata),
            store=store,
            options=options,
            write_units=write_units,
            tasks=tasks,
        )

    @property
    def task_write_units(self) -> float | None:
        """The rate of the writes of one task."""
        return None if self.write_units is None else self.write_units / self.tasks

    @contextmanager
    def open(self) -> Iterator[tuple[Namespace, OpenAccess]]:
        """Open the namespace, and return what opens its parts in a task."""
        with self.open_namespace(write_units=self.write_units) as namespace:
            known = namespace.describe(writing=False)
            yield namespace, self.access(self.store or store_of(known), known.log)

    def open_for_task(self, *, grace: float = 3600.0) -> Namespace:
        """Open the namespace in a task, which writes at its share of the rate."""
        return self.open_namespace(grace=grace, write_units=self.task_write_units)

    @contextmanager
    def open_repairer(self, references: References) -> Iterator[Repairer]:
        """Open the namespace in a task, and return what repairs findings there."""
        with self.open_for_task() as namespace:
            yield namespace.maintenance.repairer(references)

    def open_namespace(self, *, grace: float = 3600.0, write_units: float | None = None) -> Namespace:
        """Open the namespace, in any process; arguments as of `open_namespace`."""
        return open_namespace(
            self.name,
            metadata=self.metadata,
            store=self.store,
            grace=grace,
            write_units=write_units,
            **self.options,
        )

    def access(self, store: str | Url, log: str | None = None) -> OpenAccess:
        """Return what opens the parts of the namespace in a task."""
        return partial(
            open_parts,
            self.name,
            metadata=self.metadata,
            store=store,
            log=log,
            write_units=self.task_write_units,
            **self.options,
        )


class SparkEngine(Engine):
    """An engine on the executors of a session.

    Args:
        spark: the session; a classic one, because Spark Connect has no RDDs.
        partitions: number of partitions of grouped records; by default twice the number of cores.
        step_progress: receives the progress of steps, if given; see `ProgressWatch`.

    Raises `NotSupported` for a session of Spark Connect.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        partitions: int | None = None,
        step_progress: ShowProgress | None = None,
    ) -> None:
        if not isinstance(spark, SparkSession):
            raise NotSupported("this needs a classic session: Spark Connect has no RDDs")
        self.context = spark.sparkContext
        self.partitions = 2 * self.context.defaultParallelism if partitions is None else partitions
        self._watch = None
        if step_progress is not None:
            self._watch = ProgressWatch(show=step_progress, clock=SystemClock())
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

    @contextmanager
    def counting(
        self,
        step: str,
        total: Callable[[], int | None] = lambda: None,
        *,
        partitions: int | None = None,
    ) -> Iterator[RecordCounter]:
        """See `Engine.counting`."""
        if self._watch is None:
            yield AccumulatedCounter(None)
            return
        counter = AccumulatedCounter.of(self.context)
        known = total()

        def expected() -> int | None:
            return counter.estimate(partitions) if known is None and partitions else known

        with self._watch.step(step, expected, lambda: counter.done):
            yield counter


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
