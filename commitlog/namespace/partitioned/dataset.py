"""The port for distributed work: `Dataset`, records in partitions, and `Engine`, which creates datasets.

`commitlog.spark` has the implementation on Spark. `SerialEngine` works in this process, one partition
after the other, as tests and the simulator need it.

A call that is passed to a dataset may run in another process, several times, and at the same time. So it
must be picklable, return the same for the same input, and change the outside only by requests that can
be repeated.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from attrs import define, field, frozen

from commitlog.clock import Clock
from commitlog.namespace.model.keys import hash_of
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Table

__all__ = [
    "Access",
    "Dataset",
    "Engine",
    "Keyed",
    "OpenAccess",
    "RecordCounter",
    "SerialDataset",
    "SerialEngine",
    "ShowProgress",
    "StepProgress",
    "call_with_groups",
]

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

#: Number of records after which the progress is shown.
_COUNTED = 1000

#: A record with its key, and its order among the records of that key. All orders of a key can be
#: compared with each other.
Keyed: TypeAlias = tuple[str, Any, V]


class Access(Protocol):
    """The parts of a namespace, as a task opens them."""

    @property
    def table(self) -> Table:
        """The table."""

    @property
    def store(self) -> ObjectStore:
        """The store of the content."""

    @property
    def log(self) -> OperationLog:
        """The log of the first epoch."""


#: Opens the parts of a namespace, in any process: it can be pickled, unless all work is in one process.
OpenAccess: TypeAlias = Callable[[], AbstractContextManager[Access]]


@frozen(kw_only=True)
class StepProgress:
    """The progress of one step of distributed work.

    Attributes:
        step: the name of the step, for people.
        done: number of records that tasks have processed.
        total: number of all records, if it is known; it may be an estimate.
        seconds: seconds since the step began.
    """

    step: str
    done: int
    total: int | None
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining(self) -> float | None:
        """The seconds that the rest takes at this rate; None if that is unknown."""
        if self.total is None or not self.rate:
            return None
        return max(0, self.total - self.done) / self.rate


#: Receives the progress of steps.
ShowProgress: TypeAlias = Callable[[StepProgress], object]


class RecordCounter(abc.ABC):
    """Counts the records that tasks have processed, for people. It can be pickled, as calls can."""

    @abc.abstractmethod
    def count(self, records: Iterable[T], weight: Callable[[T], int] | None = None) -> Iterator[T]:
        """Yield the records of a partition, and count them. The same partition counts once.

        Args:
            records: the records.
            weight: returns the number as which a record counts; by default 1.
        """


class Dataset(abc.ABC, Generic[T]):
    """Records in partitions. They are computed whenever they are used, unless they are kept.

    Methods that return a dataset only describe it. `collect` and `sort` compute.
    """

    @abc.abstractmethod
    def map(self, call: Callable[[Iterator[T]], Iterable[U]]) -> Dataset[U]:
        """Return the results of `call` for the records of each partition."""

    @abc.abstractmethod
    def union(self, other: Dataset[T]) -> Dataset[T]:
        """Return the records of both."""

    @abc.abstractmethod
    def group(self, call: Callable[[str, Iterator[Any]], Iterable[U]]) -> Dataset[U]:
        """Return the results of `call` for each key of `Keyed` records, and its values in order.

        The values of a key are not held in memory together, so `call` should not do that either. It may
        leave values unread.
        """

    @abc.abstractmethod
    def sort(self) -> Dataset[T]:
        """Return `Keyed` records, sorted by key within and across partitions.

        Records with the same key are in one partition.
        """

    @abc.abstractmethod
    def keep(self) -> Dataset[T]:
        """Return the same records, which are computed once if the engine has room for them."""

    @abc.abstractmethod
    def collect(self) -> list[T]:
        """Return all records, those of the first partition first."""


class Engine(abc.ABC):
    """Creates datasets.

    Attributes:
        partitions: number of partitions of grouped records.
    """

    partitions: int

    @abc.abstractmethod
    def distribute(self, items: Sequence[T]) -> Dataset[T]:
        """Return a dataset in which each item is a partition."""

    @abc.abstractmethod
    def release(self) -> None:
        """Forget the datasets that were kept."""

    @abc.abstractmethod
    def counting(
        self,
        step: str,
        total: Callable[[], int | None] = lambda: None,
        *,
        partitions: int | None = None,
    ) -> AbstractContextManager[RecordCounter]:
        """Return a context manager that yields a counter, and shows the progress of a step.

        Args:
            step: the name of the step, for people.
            total: returns the number of all records, if it is known; called only to show it.
            partitions: number of partitions of about the same size, from which the number of all records
                can be estimated.
        """


def call_with_groups(
    call: Callable[[str, Iterator[Any]], Iterable[U]], records: Iterable[Keyed[Any]]
) -> Iterator[U]:
    """Yield the results of `call` for each key of sorted records; see `Dataset.group`."""
    for key, group in groupby(records, key=itemgetter(0)):
        yield from call(key, map(itemgetter(2), group))


@define
class _SerialCounter(RecordCounter):
    """Counts records, and notifies after each thousand."""

    notify: Callable[[int], object]
    done: int = 0

    def count(self, records: Iterable[T], weight: Callable[[T], int] | None = None) -> Iterator[T]:
        """See `RecordCounter.count`."""
        for record in records:
            yield record
            before = self.done
            self.done += 1 if weight is None else weight(record)
            if self.done // _COUNTED > before // _COUNTED:
                self.notify(self.done)


@frozen(kw_only=True)
class SerialEngine(Engine):
    """An engine that works in this process, when a result is collected.

    Args:
        partitions: number of partitions of grouped records.
        shuffle: shuffles records in place wherever their order is not defined, if given.
        keeps: whether datasets that are to be kept are computed once.
        step: called before each computation of a partition; for tests, it may raise an error.
        progress: receives the progress of steps, after each thousand records.
        clock: measures the steps, if their progress is to be shown.
    """

    partitions: int = 1
    shuffle: Callable[[list[Any]], object] | None = None
    keeps: bool = True
    step: Callable[[], object] = lambda: None
    progress: ShowProgress | None = None
    clock: Clock | None = None

    def distribute(self, items: Sequence[T]) -> Dataset[T]:
        """See `Engine.distribute`."""
        return SerialDataset(engine=self, compute=lambda: [[item] for item in items])

    def release(self) -> None:
        """See `Engine.release`; kept datasets are in their variables."""

    @contextmanager
    def counting(
        self,
        step: str,
        total: Callable[[], int | None] = lambda: None,
        *,
        partitions: int | None = None,
    ) -> Iterator[RecordCounter]:
        """See `Engine.counting`; nothing is estimated."""
        if self.progress is None or self.clock is None:
            yield _SerialCounter(lambda done: None)
            return
        show, clock, number = self.progress, self.clock, total()
        began = clock.monotonic()

        def notify(done: int) -> None:
            seconds = clock.monotonic() - began
            show(StepProgress(step=step, done=done, total=number, seconds=seconds))

        counter = _SerialCounter(notify)
        yield counter
        notify(counter.done)

    def shuffled(self, records: Iterable[T]) -> list[T]:
        """Return the records in any order."""
        found = list(records)
        if self.shuffle is not None:
            self.shuffle(found)
        return found


@frozen(kw_only=True)
class SerialDataset(Dataset[T]):
    """A dataset of a `SerialEngine`.

    Args:
        engine: the engine.
        compute: returns the partitions.
    """

    engine: SerialEngine
    compute: Callable[[], list[list[T]]] = field(repr=False)

    def map(self, call: Callable[[Iterator[T]], Iterable[U]]) -> Dataset[U]:
        """See `Dataset.map`."""

        def each(records: list[T]) -> list[U]:
            self.engine.step()
            return list(call(iter(records)))

        return SerialDataset(engine=self.engine, compute=lambda: list(map(each, self.compute())))

    def union(self, other: Dataset[T]) -> Dataset[T]:
        """See `Dataset.union`."""
        assert isinstance(other, SerialDataset)
        return SerialDataset(engine=self.engine, compute=lambda: self.compute() + other.compute())

    def group(self, call: Callable[[str, Iterator[Any]], Iterable[U]]) -> Dataset[U]:
        """See `Dataset.group`."""

        def compute() -> list[list[U]]:
            count = self.engine.partitions
            partitions: list[list[Any]] = [[] for _ in range(count)]
            for record in self._records():
                partitions[hash_of(record[0]) % count].append(record)
            for records in partitions:
                records.sort(key=itemgetter(0, 1))
            self.engine.step()
            return [list(call_with_groups(call, records)) for records in partitions]

        return SerialDataset(engine=self.engine, compute=compute)

    def sort(self) -> Dataset[T]:
        """See `Dataset.sort`."""

        def compute() -> list[list[T]]:
            records = sorted(self._records(), key=itemgetter(0))
            size = max(1, -(-len(records) // self.engine.partitions))
            partitions: list[list[Any]] = [[]]
            for _, same in groupby(records, key=itemgetter(0)):
                if len(partitions[-1]) >= size:
                    partitions.append([])
                partitions[-1] += same
            return partitions

        return SerialDataset(engine=self.engine, compute=compute)

    def keep(self) -> Dataset[T]:
        """See `Dataset.keep`."""
        if not self.engine.keeps:
            return self
        kept: list[list[list[T]]] = []

        def compute() -> list[list[T]]:
            if not kept:
                kept.append(self.compute())
            return kept[0]

        return SerialDataset(engine=self.engine, compute=compute)

    def collect(self) -> list[T]:
        """See `Dataset.collect`."""
        return [record for records in self.compute() for record in records]

    def _records(self) -> list[Any]:
        return self.engine.shuffled(self.collect())
