"""Calls of several threads that are made as one."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from commitlog._util import batching
from commitlog._util.batching import Batcher, Collector


class Work:
    """Work that waits in its first batch until three more items wait, and then ends it."""

    def __init__(self, end: BaseException | None = None, first: int = 1) -> None:
        self.batches: list[list[int]] = []
        self.end = end
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.batcher: Batcher[int, int] = Batcher(self, interrupted=lambda: TimeoutError("unknown"))
        self.wait_in = first

    def __call__(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        if len(self.batches) == self.wait_in:
            self.begun.set()
            assert self.go_on.wait(30)
        if self.end is not None and len(items) > 1:
            raise self.end
        return [ZeroDivisionError(str(item)) if item < 0 else item * 10 for item in items]

    def run(self, first: int, *later: int) -> list[Future[int]]:
        """Pass `first`, and the others while it is worked on."""
        with ThreadPoolExecutor(len(later) + 1) as pool:
            calls = [pool.submit(self.batcher.call, first)]
            assert self.begun.wait(30)
            for item in later:
                calls.append(pool.submit(self.batcher.call, item))
            while self.batcher.waiting < len(later):
                threading.Event().wait(0.001)
            self.go_on.set()
        return calls


def test_calls_that_come_meanwhile_are_the_next_batch() -> None:
    """Each caller gets the result or the exception of its own item."""
    work = Work()
    first, *later = work.run(1, 2, -3, 4)
    assert first.result() == 10
    assert sorted(each.result() for each in later if each.exception() is None) == [20, 40]
    assert sorted(map(len, work.batches)) == [1, 3]
    assert [str(each.exception()) for each in later if each.exception()] == ["-3"]
    assert work.batcher.call(5) == 50


@pytest.mark.parametrize(
    ("end", "others"), [(ValueError("broken"), ValueError), (KeyboardInterrupt(), TimeoutError)]
)
def test_no_caller_waits_for_ever_after_an_exception(
    end: BaseException, others: type[Exception]
) -> None:
    """An exception is everyone's; an interrupt is its own thread's, and the others learn of it."""
    work = Work(end)
    first, *later = work.run(1, 2, 3, 4)
    assert first.result() == 10
    errors = [each.exception() for each in later]
    assert sum(isinstance(error, others) for error in errors) >= 2
    assert all(isinstance(error, (others, type(end))) for error in errors)
    assert work.batcher.call(5) == 50


def test_a_batch_waits_for_the_callers_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come back at once, so all are in one batch, as often as they come back."""
    monkeypatch.setattr(batching, "_LONGEST_WAIT", 30)
    batches: list[list[int]] = []
    begun, go_on = threading.Event(), threading.Event()

    def work(items: Sequence[int]) -> list[int | Exception]:
        batches.append(sorted(items))
        if len(batches) == 1:
            begun.set()
            assert go_on.wait(30)
        return list(items)

    batcher: Batcher[int, int] = Batcher(work, interrupted=TimeoutError, gather=1e6)

    def repeat(caller: int, times: int) -> None:
        for _ in range(times):
            batcher.call(caller)

    with ThreadPoolExecutor(3) as pool:
        # The first batch ends when the others wait, so the second one has to wait for its caller.
        calls = [pool.submit(repeat, 1, 4)]
        assert begun.wait(30)
        calls += [pool.submit(repeat, caller, 3) for caller in (2, 3)]
        while batcher.waiting < 2:
            threading.Event().wait(0.001)
        go_on.set()
        for call in calls:
            call.result(30)
    assert batches == [[1], [1, 2, 3], [1, 2, 3], [1, 2, 3]]


def test_a_batch_waits_no_longer_than_it_may() -> None:
    """If the callers of the batch before do not come back, it begins without them, and forgets them."""
    work = Work()
    work.batcher = Batcher(work, interrupted=TimeoutError, gather=1e-6)
    work.run(1, 2, 3, 4)
    assert sorted(map(len, work.batches)) == [1, 3]
    for number in range(3):
        assert work.batcher.call(number) == 10 * number
    assert work.batches[2:] == [[0], [1], [2]]


def test_items_of_different_keys_are_worked_on_at_the_same_time() -> None:
    """A call does not wait for a batch of another key."""
    work = Work()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(work.batcher.call, 1, key="a")
        assert work.begun.wait(30)
        assert work.batcher.call(2, key="b") == 20
        work.go_on.set()
        assert first.result(30) == 10
    assert work.batches == [[1], [2]]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_process_does_not_wait_for_the_threads_of_its_parent() -> None:
    """They are not there: their items are forgotten, and nobody works for the child's calls."""
    work, pile = Work(), Pile()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(work.batcher.call, 1), pool.submit(pile.collector.add, "a")]
        assert work.begun.wait(30) and pile.begun.wait(30)
        child = os.fork()
        if not child:
            status = 1
            with suppress(BaseException):
                work.go_on.set()
                pile.go_on.set()
                pile.collector.add("b")
                status = int(work.batcher.call(2) != 20 or pile.calls[1:] != [["b"]])
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        work.go_on.set()
        pile.go_on.set()
        assert [each.result(30) for each in calls] == [10, None]


class Interrupt(BaseException):
    """An interrupt of the main thread."""


@pytest.mark.parametrize("leads", [False, True])
def test_an_interrupted_caller_lets_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    """It waits behind a batch, or was just chosen to work on the next one."""
    work = Work()
    wait = threading.Event.wait
    interrupted = threading.current_thread()

    def interrupt(self: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread() is not interrupted or timeout is not None:
            return wait(self, timeout)
        if leads:
            work.go_on.set()
            wait(self)
        raise Interrupt

    def call(item: int) -> threading.Thread:
        thread = threading.Thread(target=work.batcher.call, args=(item,), daemon=True)
        thread.start()
        return thread

    first = call(1)
    assert work.begun.wait(30)
    monkeypatch.setattr(threading.Event, "wait", interrupt)
    with pytest.raises(Interrupt):
        work.batcher.call(2)
    monkeypatch.undo()
    work.go_on.set()
    first.join(30)
    later = call(3)
    later.join(5)
    assert not first.is_alive() and not later.is_alive()
    assert work.batches == [[1], [3]]


class Pile:
    """Work that waits in its first call until it may go on, and then raises `end`."""

    def __init__(self, end: BaseException | None = None) -> None:
        self.calls: list[list[str]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.end = end
        self.collector: Collector[str] = Collector(self)

    def __call__(self, items: Sequence[str]) -> None:
        self.calls.append(list(items))
        if len(self.calls) == 1:
            self.begun.set()
            assert self.go_on.wait(30)
            if self.end is not None:
                raise self.end


def test_the_first_caller_works_for_those_that_come_meanwhile() -> None:
    """They do not wait. Once it has taken their items, the next caller works itself."""
    pile = Pile()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pile.collector.add, "a")
        assert pile.begun.wait(30)
        pile.collector.add("b")
        pile.collector.add("c")
        assert pile.calls == [["a"]]
        pile.go_on.set()
        first.result(30)
    assert pile.calls == [["a"], ["b", "c"]]
    pile.collector.add("d")
    assert pile.calls[2:] == [["d"]]


def test_items_are_worked_on_although_the_first_call_fails() -> None:
    """The caller of the failed one gets its exception. Nothing of it concerns later callers."""
    pile = Pile(ZeroDivisionError("broken"))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pile.collector.add, "a")
        assert pile.begun.wait(30)
        pile.collector.add("b")
        pile.go_on.set()
        with pytest.raises(ZeroDivisionError):
            first.result(30)
    pile.collector.add("c")
    assert pile.calls == [["a"], ["b"], ["c"]]
