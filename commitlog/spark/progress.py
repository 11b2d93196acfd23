"""The progress of steps on the executors: counts of records, and a thread that shows them.

PySpark sends the updates of an accumulator when a task ends, so the progress is that of complete tasks.
An accumulator may get the updates of several attempts at a task. So each update has the number of its
partition, and each partition counts once, with the highest number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from attrs import frozen
from pyspark import AccumulatorParam, TaskContext

from commitlog.clock import Clock
from commitlog.namespace.partitioned.dataset import RecordCounter, ShowProgress, StepProgress

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

__all__ = ["AccumulatedCounter", "ProgressWatch", "watching"]

T = TypeVar("T")


class _Maxima(AccumulatorParam[dict[int, int]]):
    """Adds numbers of records by partition: the highest of each partition counts."""

    def zero(self, value: dict[int, int]) -> dict[int, int]:
        """Return no numbers."""
        return {}

    def addInPlace(self, one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
        """Add numbers to `one`, and return it."""
        for partition, number in other.items():
            one[partition] = max(number, one.get(partition, 0))
        return one


@frozen
class AccumulatedCounter(RecordCounter):
    """A counter whose numbers an accumulator brings to the driver.

    Args:
        numbers: the accumulator; None: nothing is counted.
    """

    numbers: Accumulator[dict[int, int]] | None

    @classmethod
    def of(cls, context: SparkContext) -> AccumulatedCounter:
        """Return a new counter."""
        return cls(context.accumulator({}, _Maxima()))

    def count(self, records: Iterable[T], weight: Callable[[T], int] | None = None) -> Iterator[T]:
        """See `RecordCounter.count`."""
        context = TaskContext.get()
        if self.numbers is None or context is None:
            yield from records
            return
        number = 0
        try:
            for record in records:
                yield record
                number += 1 if weight is None else weight(record)
        finally:
            self.numbers.add({context.partitionId(): number})

    @property
    def done(self) -> int:
        """The number of records so far."""
        return 0 if self.numbers is None else sum(list(self.numbers.value.values()))

    def estimate(self, partitions: int) -> int | None:
        """Return the number of all records, given the number of partitions; None at the beginning.

        The partitions that are not complete are taken to be like the complete ones.
        """
        found = [] if self.numbers is None else list(self.numbers.value.values())
        return round(sum(found) / len(found) * partitions) if found else None


@frozen(kw_only=True)
class ProgressWatch:
    """Shows the progress of steps from time to time.

    Args:
        show: receives the progress; in another thread, except at the end of a step.
        clock: measures the steps.
        interval: seconds between two reports.
        new_event: returns an event; for tests.
    """

    show: ShowProgress
    clock: Clock
    interval: float = 1.0
    new_event: Callable[[], threading.Event] = threading.Event

    @contextmanager
    def step(
        self, name: str, total: Callable[[], int | None], done: Callable[[], int]
    ) -> Iterator[None]:
        """Show the progress of a step until it ends.

        Args:
            name: the name of the step.
            total: returns the number of all records, if it is known.
            done: returns the number of records so far.

        Raises the errors of `show`, at the end.
        """
        began = self.clock.monotonic()

        def notify() -> None:
            seconds = self.clock.monotonic() - began
            self.show(StepProgress(step=name, done=done(), total=total(), seconds=seconds))

        with watching(notify, self.interval, self.new_event()):
            yield
        notify()


@contextmanager
def watching(notify: Callable[[], object], interval: float, ended: threading.Event) -> Iterator[None]:
    """Call `notify` in another thread, at intervals, until the block ends.

    Args:
        notify: the function to call; after an error of it, it is called no more.
        interval: seconds between two calls.
        ended: set at the end.

    Raises the error of `notify`, at the end, unless the block raised one.
    """
    errors: list[BaseException] = []

    def watch() -> None:
        try:
            while not ended.wait(interval):
                notify()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=watch, name="commitlog-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    for error in errors:
        raise error
