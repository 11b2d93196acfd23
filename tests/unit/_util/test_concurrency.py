"""Concurrent calls on many items: the limit of parallelism, failures, and an early end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from commitlog._util.concurrency import OpenExecutor, in_order, work, work_in_groups

THREADS = 4
AHEAD = 6


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """An executor with several threads."""
    with ThreadPoolExecutor(THREADS) as threads:
        yield threads


@pytest.fixture
def joiner() -> Iterator[ThreadPoolExecutor]:
    """The single thread that joins groups."""
    with ThreadPoolExecutor(1) as thread:
        yield thread


def half(number: int) -> int:
    """Return half of an even number; raise for an odd one."""
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@pytest.mark.parametrize("grouped", [False, True])
def test_each_outcome_is_reported(
    executor: ThreadPoolExecutor, joiner: ThreadPoolExecutor, grouped: bool
) -> None:
    """The caller's thread receives each result or error, with its item."""
    reported: dict[int, int | Exception] = {}

    def settled(number: int, outcome: int | Exception) -> None:
        assert threading.current_thread() is threading.main_thread()
        reported[number] = outcome

    if grouped:
        work_in_groups(
            range(50),
            half,
            lambda group: [part * 10 for _, part in group],
            settled,
            executor=executor,
            joiner=joiner,
            ahead=AHEAD,
            most=3,
        )
    else:
        work(range(50), half, settled, executor=executor, ahead=AHEAD)
    assert {number: reported[number] for number in range(0, 50, 2)} == {
        number: number // 2 * (10 if grouped else 1) for number in range(0, 50, 2)
    }
    assert {str(reported[number]) for number in range(1, 50, 2)} == {
        f"{n} is odd" for n in range(1, 50, 2)
    }


@pytest.mark.parametrize("grouped", [False, True])
def test_the_number_of_calls_in_progress_is_bounded(
    executor: ThreadPoolExecutor, joiner: ThreadPoolExecutor, grouped: bool
) -> None:
    """All threads work at once, and only a limited number of items is taken ahead."""
    together = threading.Barrier(THREADS, timeout=30)
    lock = threading.Lock()
    taken = ended = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(10 * THREADS):
            taken += 1
            with lock:
                assert taken - ended <= AHEAD
            yield number

    def call(number: int) -> int:
        nonlocal ended
        together.wait()
        with lock:
            ended += 1
        return number

    settled: list[int | Exception] = []

    def add(_: int, outcome: int | Exception) -> None:
        settled.append(outcome)

    if grouped:
        work_in_groups(
            items(),
            call,
            lambda group: [number for number, _ in group],
            add,
            executor=executor,
            joiner=joiner,
            ahead=AHEAD,
            most=100,
        )
    else:
        work(items(), call, add, executor=executor, ahead=AHEAD)
    assert sorted(settled, key=str) == sorted(range(10 * THREADS), key=str)


def test_results_gather_while_a_group_is_joined(
    executor: ThreadPoolExecutor, joiner: ThreadPoolExecutor
) -> None:
    """The first result is a group alone. Results that arrive meanwhile form groups of limited size."""
    first, later = threading.Event(), threading.Semaphore(0)
    groups: list[list[int]] = []

    def call(number: int) -> int:
        if number:
            first.wait(30)
            later.release()
        return number

    def together(group: Sequence[tuple[int, int]]) -> list[int]:
        groups.append([number for number, _ in group])
        if not first.is_set():
            first.set()
            for _ in range(7):  # until more results wait than fit in a group
                assert later.acquire(timeout=30)
        return [number for number, _ in group]

    reported: list[int] = []
    work_in_groups(
        range(30),
        call,
        together,
        lambda number, _: reported.append(number),
        executor=executor,
        joiner=joiner,
        ahead=AHEAD,
        most=2,
    )
    assert groups[0] == [0]
    assert max(map(len, groups)) == 2
    assert sorted(reported) == list(range(30))


def test_an_error_of_a_group_is_the_outcome_of_all_its_items(
    executor: ThreadPoolExecutor, joiner: ThreadPoolExecutor
) -> None:
    """Each item of the group gets the error, and later groups are joined."""
    reported: dict[int, object] = {}

    def together(group: Sequence[tuple[int, int]]) -> list[int]:
        if any(number == 3 for number, _ in group):
            raise ValueError("no")
        return [0] * len(group)

    work_in_groups(
        range(20),
        lambda n: n,
        together,
        reported.__setitem__,
        executor=executor,
        joiner=joiner,
        ahead=1,
        most=5,
    )
    assert len(reported) == 20
    assert str(reported[3]) == "no" and reported[19] == 0


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_early_end_waits_for_calls_in_progress(
    executor: ThreadPoolExecutor, joiner: ThreadPoolExecutor, grouped: bool, error: type[BaseException]
) -> None:
    """Running calls are stopped and awaited, no call starts, and results without a group are dropped."""
    stop = threading.Event()
    begun: list[int] = []
    ended: list[int] = []
    dropped: list[int] = []
    grouped_ones: list[int] = []

    def call(number: int) -> int:
        begun.append(number)
        if number:
            assert stop.wait(30)
        ended.append(number)
        return number

    def settled(number: int, outcome: object) -> None:
        raise error

    def together(group: Sequence[tuple[int, int]]) -> list[int]:
        grouped_ones.extend(number for number, _ in group)
        return [0] * len(group)

    how = {"executor": executor, "ahead": AHEAD, "stop": stop.set}
    run: Any = work
    if grouped:
        run = partial(work_in_groups, together=together, joiner=joiner, most=1, drop=dropped.extend)
    with pytest.raises(error):
        run(range(100), call, settled=settled, **how)
    assert sorted(begun) == sorted(ended)
    assert len(begun) <= THREADS + 1
    if grouped:
        assert grouped_ones == [0]
        assert sorted(dropped) == sorted(set(ended) - {0})


def test_an_error_of_the_iteration_is_raised(executor: ThreadPoolExecutor) -> None:
    """An error of the iterable goes to the caller, not to an item."""

    def items() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work(items(), lambda n: n, lambda *_: None, executor=executor, ahead=AHEAD)


def test_outcomes_come_in_the_order_of_the_items(executor: ThreadPoolExecutor) -> None:
    """This holds whichever call ends first. An error comes in its turn, and later outcomes follow."""
    last = threading.Event()

    def call(number: int) -> int:
        if number == THREADS - 1:
            last.set()
        assert last.wait(30)
        return half(number)

    reported = list(in_order(range(10), call, open_executor=lambda: nullcontext(executor), ahead=AHEAD))
    assert [number for number, _ in reported] == list(range(10))
    assert [outcome for number, outcome in reported if not number % 2] == [0, 1, 2, 3, 4]
    assert all(isinstance(outcome, ValueError) for number, outcome in reported if number % 2)


def test_the_number_of_unconsumed_outcomes_is_bounded(executor: ThreadPoolExecutor) -> None:
    """All threads work at once, and no item is taken far ahead of the last yielded one."""
    together = threading.Barrier(THREADS, timeout=30)
    taken = yielded = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(10 * THREADS):
            taken += 1
            assert taken - yielded <= AHEAD + 1
            yield number

    def call(number: int) -> int:
        together.wait()
        return number

    for number, outcome in in_order(
        items(), call, open_executor=lambda: nullcontext(executor), ahead=AHEAD
    ):
        assert number == outcome == yielded
        yielded += 1
    assert yielded == 10 * THREADS


@pytest.mark.parametrize("fails", [False, True])
def test_closing_an_ordered_run_waits_only_for_calls_in_progress(fails: bool) -> None:
    """After a close, or an error of the iterable, no call starts and none is left running."""
    go = threading.Event()
    begun: list[int] = []
    ended: list[int] = []

    class Executor(ThreadPoolExecutor):
        """Lets the calls go on when the first of them is cancelled."""

        def submit(self, *call: Any, **arguments: Any) -> Future[Any]:
            future = super().submit(*call, **arguments)
            cancel = future.cancel

            def cancelled() -> bool:
                done = cancel()
                go.set()
                return done

            future.cancel = cancelled  # type: ignore[method-assign]
            return future

    def items() -> Iterator[int]:
        yield from range(AHEAD)
        if fails:
            raise ZeroDivisionError
        yield from range(AHEAD, 100)

    def call(number: int) -> int:
        begun.append(number)
        assert number == 0 or go.wait(30)
        ended.append(number)
        return number

    with Executor(THREADS) as executor:
        outcomes = in_order(items(), call, open_executor=lambda: nullcontext(executor), ahead=AHEAD)
        assert next(outcomes) == (0, 0)
        if fails:
            with pytest.raises(ZeroDivisionError):
                next(outcomes)
        else:
            outcomes.close()
        assert sorted(begun) == sorted(ended)
        assert len(begun) <= AHEAD


def test_without_threads_each_call_waits_until_it_is_needed() -> None:
    """Calls run in the caller's thread and not ahead, so that the simulator controls the schedule."""
    begun: list[int] = []

    def call(number: int) -> int:
        assert threading.current_thread() is threading.main_thread()
        begun.append(number)
        return half(number)

    outcomes = in_order(iter(range(10)), call, open_executor=None, ahead=AHEAD)
    assert next(outcomes) == (0, 0)
    assert begun == [0]
    assert isinstance(next(outcomes)[1], ValueError)
    assert begun == [0, 1]


@pytest.mark.parametrize("threaded", [False, True])
def test_an_interrupt_of_a_call_is_raised(executor: ThreadPoolExecutor, threaded: bool) -> None:
    """It is not an outcome of an item."""

    def call(number: int) -> int:
        raise KeyboardInterrupt

    open_executor: OpenExecutor | None = (lambda: nullcontext(executor)) if threaded else None
    with pytest.raises(KeyboardInterrupt):
        list(in_order([1], call, open_executor=open_executor, ahead=AHEAD))
