"""Calls of several threads that are made as one: the thread that comes first works for the others.

A `Batcher` is the group commit of databases (DeWitt et al., "Implementation Techniques for Main Memory
Database Systems", 1984): a batch has the calls that came during the batch before it. So a lone caller
does not wait, and batches grow with the time that they take. A `Collector` does the same for work whose
result no caller needs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from commitlog._util.fork import renew_in_child
from commitlog.clock import Clock, SystemClock

__all__ = ["Batcher", "Collector"]

T = TypeVar("T")
R = TypeVar("R")

#: Most seconds that a batch waits for the callers of the previous one.
_LONGEST_WAIT = 0.1

#: Most keys whose last batch is remembered although no caller is there.
_REMEMBERED = 1_000


class _Ticket(Generic[T, R]):
    """An item that waits, and its outcome."""

    def __init__(self, item: T) -> None:
        self.item = item
        self.woken = threading.Event()
        self.outcome: R | Exception | None = None
        self.done = False

    def settle(self, outcome: R | Exception) -> None:
        self.outcome, self.done = outcome, True
        self.woken.set()


class _Queue(Generic[T, R]):
    """The items of one key that wait, and what is known from the batch before.

    Attributes:
        waiting: the items.
        busy: whether a thread works on a batch, or is about to.
        callers: number of items of the last batch, and of those that waited when it ended.
        seconds: how long the last batch took.
        ended: when it ended.
    """

    def __init__(self) -> None:
        self.waiting: list[_Ticket[T, R]] = []
        self.busy = False
        self.callers = 1
        self.seconds = 0.0
        self.ended = -math.inf


class Batcher(Generic[T, R]):
    """Passes the items of concurrent callers to one function, several at a time. Thread-safe.

    Usable in a child process after a fork.

    Args:
        work: returns the outcomes of a batch, in the order of its items: a result, or the exception for
            that caller. An exception that it raises is the outcome of every item. For each key it is
            called by one thread at a time, one of the callers.
        interrupted: makes the exception for the other callers of a batch whose thread was interrupted,
            such as by `KeyboardInterrupt`: what `work` has done is not known. An interrupt of a thread
            that waits concerns its own item only, which may be in the batch of another thread.
        most: maximum number of items of a batch.
        gather: how long a batch may wait for the callers of the previous one, as a part of the time of
            that batch, counted from its end; 0.1 seconds at most. So callers that come back at once are
            all in one batch. Without the wait, one batch would have some of them, and the next one the
            others. 0: a batch begins at once.
        clock: measures the batches.

    A batch has only items that were passed before it began.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Sequence[R | Exception]],
        *,
        interrupted: Callable[[], Exception],
        most: int = 1_000,
        gather: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self._work = work
        self._interrupted = interrupted
        self._most = most
        self._gather = gather
        self._clock = SystemClock() if clock is None else clock
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all calls: a child process has none of its parent's threads."""
        #: Notified when an item is added.
        self._lock = threading.Condition()
        self._queues: dict[Hashable, _Queue[T, R]] = {}

    @property
    def waiting(self) -> int:
        """Number of items that wait until the batch of their key that is being worked on ends."""
        with self._lock:
            return sum(len(queue.waiting) for queue in self._queues.values())

    def call(self, item: T, *, key: Hashable = None) -> R:
        """Return the result of `item`, or raise its exception.

        Args:
            item: is passed to the function.
            key: a batch has only items with the same key.
        """
        ticket: _Ticket[T, R] = _Ticket(item)
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            queue.waiting.append(ticket)
            if not queue.busy:
                ticket.woken.set()
            queue.busy = True
            self._lock.notify_all()
        try:
            ticket.woken.wait()
            if not ticket.done:
                self._wait_for_callers(queue)
        except BaseException:
            self._leave(ticket, key, queue)
            raise
        if not ticket.done:
            self._lead(key, queue)
        if isinstance(ticket.outcome, Exception):
            raise ticket.outcome
        return ticket.outcome  # type: ignore[return-value]

    def _wait_for_callers(self, queue: _Queue[T, R]) -> None:
        """Wait for a moment until as many items are there as the previous batch had callers."""
        callers = min(queue.callers, self._most)
        part = min(self._gather * queue.seconds, _LONGEST_WAIT)
        seconds = queue.ended + part - self._clock.monotonic()
        if seconds > 0:
            with self._lock:
                self._lock.wait_for(lambda: len(queue.waiting) >= callers, seconds)

    def _lead(self, key: Hashable, queue: _Queue[T, R]) -> None:
        """Work on the items that wait, the caller's first, and let the next waiting caller go on."""
        with self._lock:
            batch, queue.waiting = queue.waiting[: self._most], queue.waiting[self._most :]
        began = self._clock.monotonic()
        try:
            try:
                outcomes: Sequence[R | Exception] = self._work([ticket.item for ticket in batch])
            except Exception as error:
                outcomes = [error] * len(batch)
            for ticket, outcome in zip(batch, outcomes, strict=True):
                ticket.settle(outcome)
        finally:
            for ticket in batch:
                if not ticket.done:
                    ticket.settle(self._interrupted())
            with self._lock:
                queue.callers = len(batch) + len(queue.waiting)
                queue.ended = self._clock.monotonic()
                queue.seconds = queue.ended - began
                self._let_next(key, queue)

    def _leave(self, ticket: _Ticket[T, R], key: Hashable, queue: _Queue[T, R]) -> None:
        """Wait no longer with a ticket; if its caller was to go on with the others, let the next one."""
        with self._lock:
            if ticket not in queue.waiting:
                return  # it is in a batch
            queue.waiting.remove(ticket)
            if ticket.woken.is_set():
                self._let_next(key, queue)

    def _let_next(self, key: Hashable, queue: _Queue[T, R]) -> None:
        """Let the first waiting caller go on. The lock is held."""
        queue.busy = bool(queue.waiting)
        if queue.waiting:
            queue.waiting[0].woken.set()
        elif queue.callers == 1 or not self._gather:
            self._queues.pop(key, None)
        elif len(self._queues) > _REMEMBERED:
            self._queues = {key: each for key, each in self._queues.items() if each.busy}


class Collector(Generic[T]):
    """Passes items to one function, several at a time, whose result no caller needs. Thread-safe.

    Usable in a child process after a fork.

    Args:
        work: takes the items. It may be called by several threads at once, with other items.

    The caller that comes first also works for those that come while it works, once; those do not wait.
    So a lone caller waits for its own item, and nothing is left when the last caller returns.
    """

    def __init__(self, work: Callable[[Sequence[T]], object]) -> None:
        self._work = work
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """See `Batcher.renew`."""
        self._lock = threading.Lock()
        self._items: list[T] = []
        self._busy = False

    def add(self, item: T) -> None:
        """Let the function work on `item`: at once, or by another thread soon. Raises its exception."""
        with self._lock:
            self._items.append(item)
            if self._busy:
                return
            self._busy = True
        try:
            self._work(self._take(last=False))
        finally:
            left = self._take(last=True)
            if left:
                self._work(left)

    def _take(self, *, last: bool) -> list[T]:
        with self._lock:
            items, self._items = self._items, []
            # The next caller does not rely on this thread any more.
            self._busy = not last
        return items
