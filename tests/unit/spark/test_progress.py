"""The thread that shows the progress of a step."""

from __future__ import annotations

import threading

import pytest

from commitlog.namespace import StepProgress
from commitlog.spark.progress import AccumulatedCounter, ProgressWatch, _Maxima, watching
from commitlog.testing import ManualClock


class Ticks(threading.Event):
    """An event whose waits end at once, a number of times."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count
        self.over = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        """Return False at once, as after a timeout; then wait for the end."""
        if self.left:
            self.left -= 1
            return False
        self.over.set()
        return super().wait()


def test_a_step_is_shown_at_intervals_and_at_its_end() -> None:
    """The thread ends with the step."""
    clock, ticks, shown = ManualClock(), Ticks(2), list[StepProgress]()
    numbers = iter([10, 20, 30])

    def show(now: StepProgress) -> None:
        clock.advance(5)
        shown.append(now)

    watch = ProgressWatch(show=show, clock=clock, new_event=lambda: ticks)
    with watch.step("reading", lambda: 60, lambda: next(numbers)):
        assert ticks.over.wait(60)
    assert [(now.done, now.seconds) for now in shown] == [(10, 0), (20, 5), (30, 10)]
    assert (shown[-1].rate, shown[-1].remaining) == (3.0, 10.0)
    assert ticks.is_set()
    assert not any(each.name == "commitlog-progress" for each in threading.enumerate())


def test_an_error_of_the_receiver_is_raised_at_the_end() -> None:
    """The step is not interrupted, and the receiver is not called again."""
    ticks, calls = Ticks(3), list[int]()

    def notify() -> None:
        calls.append(1)
        ticks.over.set()
        raise BrokenPipeError

    done = []

    def run() -> None:
        with watching(notify, 1.0, ticks):
            done.append(ticks.over.wait(60))

    with pytest.raises(BrokenPipeError):
        run()
    assert (done, calls) == ([True], [1])


def test_an_error_of_the_step_ends_the_thread() -> None:
    """It is the error that counts."""
    ticks = Ticks(0)
    with pytest.raises(KeyError), watching(lambda: None, 1.0, ticks):
        raise KeyError
    assert ticks.is_set()


def test_a_partition_counts_once() -> None:
    """A task that is repeated adds nothing, and one that stopped early is replaced."""
    numbers = _Maxima()
    total: dict[int, int] = numbers.zero({1: 5})
    for update in ({0: 3}, {1: 2}, {0: 7}, {0: 3}, {1: 2}):
        total = numbers.addInPlace(total, update)
    assert total == {0: 7, 1: 2}


def test_nothing_is_counted_outside_of_tasks() -> None:
    """The records are the same."""
    counter = AccumulatedCounter(None)
    assert (list(counter.count([1, 2])), counter.done) == ([1, 2], 0)


def test_the_number_of_all_records_is_estimated_from_complete_partitions() -> None:
    """The others are taken to be like them. At the beginning nothing is known."""

    class Numbers:
        """The part of an accumulator that is read."""

        def __init__(self) -> None:
            self.value: dict[int, int] = {}

    numbers = Numbers()
    counter = AccumulatedCounter(numbers)  # type: ignore[arg-type]
    assert counter.estimate(8) is None
    numbers.value = {3: 100, 0: 140}
    assert (counter.done, counter.estimate(8)) == (240, 960)
