"""The port for parallel work, `Executor`, and bounded parallel work on a stream of items.

Rules that can make several calls in parallel take an executor as an argument. A `ThreadPoolExecutor` is
one; `SERIAL` makes the calls one after the other, in the caller's thread, as the simulator does.

`work`, `work_in_groups` and `in_order` take an item when there is room for it. `work` calls a function
with each item. `work_in_groups` does so too, and then calls another function with groups of the
results: files are stored one by one, and created in one transaction. `in_order` yields the outcomes in
the order of the items, such as entries of a log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from commitlog._util.tracing import carried

__all__ = [
    "SERIAL",
    "Executor",
    "Future",
    "OpenExecutor",
    "SerialExecutor",
    "in_order",
    "work",
    "work_in_groups",
]

P = ParamSpec("P")
Item = TypeVar("Item")
Part = TypeVar("Part")
R = TypeVar("R")

_END: Any = object()


class Executor(Protocol):
    """Makes calls in parallel: the part of `concurrent.futures.Executor` that is used here.

    The caller that opened an executor closes it.
    """

    def map(self, call: Callable[[Item], R], items: Iterable[Item], /) -> Iterator[R]:
        """Call `call` with each of `items`; yield the results in the order of the items.

        Raises the error of a call in place of its result.
        """
        ...

    def submit(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Begin a call; return its future result."""
        ...


class SerialExecutor:
    """An executor that makes each call in the caller's thread. Thread-safe, and needs no closing.

    `map` makes a call when its result is asked for, and `submit` makes it at once.

    >>> list(SERIAL.map(len, ["a", "bc"])), SERIAL.submit(len, "abc").result()
    ([1, 2], 3)
    """

    def map(self, call: Callable[[Item], R], items: Iterable[Item], /) -> Iterator[R]:
        """See `Executor.map`."""
        return map(call, items)

    def submit(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """See `Executor.submit`."""
        future: Future[R] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


#: The executor where calls are not made in parallel.
SERIAL: Executor = SerialExecutor()

#: Opens an executor as a context manager, which closes it at the end.
OpenExecutor: TypeAlias = Callable[[], AbstractContextManager[Executor]]


def _nothing(*_: object) -> None:
    pass


def work(
    items: Iterable[Item],
    call: Callable[[Item], R],
    settled: Callable[[Item, R | Exception], object],
    *,
    executor: Executor,
    ahead: int,
    stop: Callable[[], object] = _nothing,
) -> None:
    """Call `call` with each item, and `settled` with each outcome, in the order of completion.

    Args:
        items: are taken when there is room, in the caller's thread.
        call: is called in threads of the executor.
        settled: is called in the caller's thread with the result or the exception of a call.
        executor: has as many threads as calls are to run at a time. It is not shut down.
        ahead: maximum number of calls that run or wait for a thread. More than there are threads, so
            that no thread waits for the caller's.
        stop: is called if the work ends early, and should make the running calls end, too.

    The work ends early if `items` or `settled` raises, or by an interrupt. Then no new call begins, and
    the running calls are awaited; `settled` is not called for them.
    """
    under_way: dict[Future[R], Item] = {}
    left = iter(items)
    try:
        while True:
            _begin(left, call, under_way, executor=executor, upto=ahead)
            if not under_way:
                return
            for future in _ended(under_way):
                outcome = _outcome(future)
                settled(under_way.pop(future), outcome)
    except BaseException:
        stop()
        _end(under_way)
        raise


def work_in_groups(
    items: Iterable[Item],
    call: Callable[[Item], Part],
    together: Callable[[Sequence[tuple[Item, Part]]], Sequence[R | Exception]],
    settled: Callable[[Item, R | Exception], object],
    *,
    executor: Executor,
    joiner: Executor,
    ahead: int,
    most: int,
    stop: Callable[[], object] = _nothing,
    drop: Callable[[Sequence[Part]], object] = _nothing,
) -> None:
    """Call `call` with each item, then `together` with groups of items and their results.

    The next group takes all results that are ready, and begins when the group before it has ended. So
    no result waits for a group to fill up, and groups grow with the time that they take. Arguments and
    end are those of `work`, and:

    Args:
        together: returns the outcomes of a group, in its order; an exception that it raises is the
            outcome of all of them. It is called by one thread at a time.
        joiner: an executor with a thread for `together`, so that a group does not wait behind calls.
        most: maximum number of items of a group. No item is taken while four times as many wait for a
            group.
        drop: is called, if the work ends early, with the results of `call` for groups that never began.
    """
    under_way: dict[Future[Part], Item] = {}
    joined: dict[Future[Sequence[R | Exception]], list[tuple[Item, Part]]] = {}
    waiting: list[tuple[Item, Part]] = []
    left = iter(items)
    try:
        while True:
            if len(waiting) < 4 * most:
                _begin(left, call, under_way, executor=executor, upto=ahead)
            if waiting and not joined:
                group, waiting = waiting[:most], waiting[most:]
                joined[joiner.submit(carried(together), group)] = group
            if not under_way and not joined:
                return
            for future in _ended({**under_way, **joined}):
                outcome = _outcome(future)
                if future in joined:
                    group = joined.pop(future)
                    each = [outcome] * len(group) if isinstance(outcome, Exception) else outcome
                    for (item, _), its in zip(group, each, strict=True):
                        settled(item, its)
                    continue
                item = under_way.pop(future)
                if isinstance(outcome, Exception):
                    settled(item, outcome)
                else:
                    waiting.append((item, outcome))
    except BaseException:
        stop()
        drop([part for _, part in waiting] + _end(under_way))
        _end(joined)
        raise


def in_order(
    items: Iterable[Item],
    call: Callable[[Item], R],
    *,
    open_executor: OpenExecutor | None,
    ahead: int,
) -> Generator[tuple[Item, R | Exception]]:
    """Yield each item with the result or the exception of `call`, in the order of the items.

    Args:
        items: are taken when there is room, in the caller's thread.
        call: is called in threads of the executor.
        open_executor: None: each call is made in the caller's thread, in its turn.
        ahead: maximum number of calls whose outcomes have not been taken yet.

    When the generator is closed, or `items` raises, no new call begins, and running calls are awaited.
    """
    if open_executor is None:
        for item in items:
            yield item, _attempt(call, item)
        return
    begun: deque[tuple[Item, Future[R]]] = deque()
    left = iter(items)
    with open_executor() as executor:
        try:
            while True:
                while len(begun) < ahead and (item := next(left, _END)) is not _END:
                    begun.append((item, executor.submit(carried(call), item)))
                if not begun:
                    return
                item, future = begun[0]
                outcome = _outcome(future)
                begun.popleft()
                yield item, outcome
        finally:
            _end(future for _, future in begun)


def _attempt(call: Callable[[Item], R], item: Item) -> R | Exception:
    try:
        return call(item)
    except Exception as error:
        return error


def _begin(
    left: Iterator[Item],
    call: Callable[[Item], R],
    under_way: dict[Future[R], Item],
    *,
    executor: Executor,
    upto: int,
) -> None:
    while len(under_way) < upto:
        item = next(left, _END)
        if item is _END:
            return
        under_way[executor.submit(carried(call), item)] = item


def _ended(under_way: Iterable[Future[Any]]) -> set[Future[Any]]:
    return wait(under_way, return_when=FIRST_COMPLETED).done


def _outcome(future: Future[R]) -> R | Exception:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, Exception):
        return error
    raise error


def _end(under_way: Iterable[Future[R]]) -> list[R]:
    """Cancel the futures that have not begun, wait for the others, and return their results."""
    begun = [future for future in under_way if not future.cancel()]
    wait(begun)
    return [future.result() for future in begun if future.exception() is None]
