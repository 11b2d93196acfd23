"""The same work on many things, on several of them at a time; each is taken when there is room for it.

`work` does one thing with each. `work_in_groups` does one thing with each, and then another with several
at once: files are stored one by one, and made in one transaction. `in_order` yields what becomes of each
in the order in which they came: entries of a log. Threads are those of an executor that is passed in.
Imports nothing of the project.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

__all__ = ["Threads", "in_order", "work", "work_in_groups"]

#: Opens an executor, and closes it in the end.
Threads: TypeAlias = Callable[[], AbstractContextManager[Executor]]

Item = TypeVar("Item")
Part = TypeVar("Part")
R = TypeVar("R")

_END: Any = object()


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
    """Call `call` with each item, and `settled` with what became of that, in the order of the ends.

    Args:
        items: are taken as there is room, in the caller's thread.
        call: is called in threads of the executor.
        settled: is given, in the caller's thread, what a call has returned or raised.
        executor: has as many threads as calls are to go at a time. It is not shut down.
        ahead: most calls that are under way, or wait for a thread: more than there are threads, so that
            none of them waits for this one.
        stop: is called if all this ends early, and should have calls that are under way end, too.

    It ends early by what `items` or `settled` raise, or by an interrupt. Nothing is begun any more then,
    and what is under way is waited for; `settled` does not hear of it.
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
    """Call `call` with each item, then `together` with some of them, and what `call` has made of each.

    Whatever is ready goes into the next group, which begins when the one before has ended: so nothing
    waits for a group to be full, and groups are the larger the longer they take. Arguments and end as of
    `work`, and:

    Args:
        together: returns in order what became of each of a group; what it raises became of all. It is
            called by one thread at a time.
        joiner: has a thread for that; a group does not wait behind calls then.
        most: items of a group. While four times as many wait for theirs, no item is taken.
        drop: is called, if all this ends early, with what `call` has made for groups that never began.
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
                joined[joiner.submit(together, group)] = group
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
    threads: Threads | None,
    ahead: int,
) -> Generator[tuple[Item, R | Exception]]:
    """Yield each item with what `call` has returned or raised for it, in the order of the items.

    Args:
        items: are taken as there is room, in the caller's thread.
        call: is called in threads.
        threads: opens what has them; None: each call is made in the thread of the caller, in its turn.
        ahead: most calls that were begun, and whose outcomes were not asked for yet.

    When it is closed, or `items` raises, nothing is begun any more, and what is under way is waited for.
    """
    if threads is None:
        for item in items:
            yield item, _attempt(call, item)
        return
    begun: deque[tuple[Item, Future[R]]] = deque()
    left = iter(items)
    with threads() as executor:
        try:
            while True:
                while len(begun) < ahead and (item := next(left, _END)) is not _END:
                    begun.append((item, executor.submit(call, item)))
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
        under_way[executor.submit(call, item)] = item


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
    """Have no more begin of what is under way, wait for the others, and return what they returned."""
    begun = [future for future in under_way if not future.cancel()]
    wait(begun)
    return [future.result() for future in begun if future.exception() is None]
