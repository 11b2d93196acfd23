"""Calls of several threads that are made as one: the thread that comes first works for the others.

A `Batcher` is the group commit of databases (DeWitt et al., "Implementation Techniques for Main Memory
Database Systems", 1984), without a timer: a batch has the calls that came during the batch before it.
So a lone caller never waits, and batches grow with the time that they take. A `Collector` does the same
for work whose result no caller needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Batcher", "Collector", "new_lock"]

#: Returns a lock: for protocols, which know no threads, but whose clients are used by several.
new_lock = threading.Lock

T = TypeVar("T")
R = TypeVar("R")


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


class Batcher(Generic[T, R]):
    """Passes the items of concurrent callers to one function, several at a time. Thread-safe.

    Args:
        work: returns the outcomes of a batch, in the order of its items: a result, or the exception for
            that caller. An exception that it raises is the outcome of every item. It is called by one
            thread at a time, one of the callers.
        interrupted: makes the exception for the other callers of a batch whose thread was interrupted,
            such as by `KeyboardInterrupt`: what `work` has done is not known.
        most: maximum number of items of a batch.

    A batch has only items that were passed before it began.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Sequence[R | Exception]],
        *,
        interrupted: Callable[[], Exception],
        most: int = 1_000,
    ) -> None:
        self._work = work
        self._interrupted = interrupted
        self._most = most
        self._lock = threading.Lock()
        self._waiting: list[_Ticket[T, R]] = []
        self._busy = False

    def call(self, item: T) -> R:
        """Return the result of `item`, or raise its exception."""
        ticket: _Ticket[T, R] = _Ticket(item)
        with self._lock:
            self._waiting.append(ticket)
            first, self._busy = not self._busy, True
        if not first:
            ticket.woken.wait()
        if not ticket.done:
            self._lead()
        if isinstance(ticket.outcome, Exception):
            raise ticket.outcome
        return ticket.outcome  # type: ignore[return-value]

    def _lead(self) -> None:
        """Work on the items that wait, the caller's first, and let the next waiting caller go on."""
        with self._lock:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
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
                self._busy = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].woken.set()


class Collector(Generic[T]):
    """Passes items to one function, several at a time, whose result no caller needs. Thread-safe.

    Args:
        work: takes the items. It may be called by several threads at once, with other items.

    The caller that comes first also works for those that come while it works, once; those do not wait.
    So a lone caller waits for its own item, and nothing is left when the last caller returns.
    """

    def __init__(self, work: Callable[[Sequence[T]], object]) -> None:
        self._work = work
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
