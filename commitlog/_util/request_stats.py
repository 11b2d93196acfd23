"""Statistics of requests: counters by operation, and reports of internal retries to them.

`commitlog.stores.counting_store` and `commitlog.tables.counting_table` count the requests to a store and
to a table.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial, wraps
from inspect import isfunction, isgeneratorfunction
from types import MappingProxyType
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from attrs import field, frozen

from commitlog._util.concurrency import SERIAL, Executor, Future
from commitlog._util.tracing import carried, record_retry
from commitlog.errors import CommitError, Conflict, OutcomeUnknown, Unavailable

__all__ = [
    "PerThreadCounter",
    "RequestRecorder",
    "also_listen_for_retries",
    "count_methods",
    "counted",
    "listen_for_retries",
    "part_of",
    "report_retry",
]

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Listener: TypeAlias = Callable[[Exception], object]

_listener: ContextVar[Listener | None] = ContextVar("commitlog._util.request_stats", default=None)


def listen_for_retries(listener: Listener, call: Callable[[], T]) -> T:
    """Return the result of `call`; call `listener` with the cause of each internal retry.

    >>> def call() -> None:
    ...     report_retry(TimeoutError("busy"))
    >>> listen_for_retries(lambda cause: print("again:", cause), call)
    again: busy
    """
    token = _listener.set(listener)
    try:
        return call()
    finally:
        _listener.reset(token)


def also_listen_for_retries(listener: Listener, call: Callable[[], T]) -> T:
    """Do the same, and let the present listener listen, too.

    >>> def call() -> None:
    ...     report_retry(TimeoutError("busy"))
    >>> def counts() -> None:
    ...     also_listen_for_retries(lambda cause: print("slower"), call)
    >>> listen_for_retries(lambda cause: print("again:", cause), counts)
    slower
    again: busy
    """
    outer = _listener.get()

    def both(cause: Exception) -> None:
        listener(cause)
        if outer is not None:
            outer(cause)

    return listen_for_retries(both, call)


def report_retry(cause: Exception) -> None:
    """Report that a request is about to be retried after `cause`."""
    record_retry(cause)
    listener = _listener.get()
    if listener is not None:
        listener(cause)


class PerThreadCounter:
    """Counts events by name. Thread-safe; a forked child continues with its own copy.

    Each thread adds to its own counters, so no thread waits for another, and there is no lock that a
    fork could leave locked.

    >>> counter = PerThreadCounter()
    >>> counter.add("reads")
    >>> counter.add("reads", 2)
    >>> counter.counts()
    Counter({'reads': 3})
    """

    def __init__(self) -> None:
        # A later thread may reuse the id, and so the counters, of a thread that has ended.
        self._of_thread: dict[int, dict[str, int]] = {}

    def add(self, name: str, number: int = 1) -> None:
        """Add `number` to the counter `name`."""
        counts = self._of_thread.setdefault(threading.get_ident(), {})
        counts[name] = counts.get(name, 0) + number

    def counts(self) -> Counter[str]:
        """Return the current counts by name."""
        total: Counter[str] = Counter()
        for counts in list(self._of_thread.values()):
            total.update(dict(counts))
        return total


_OTHER = "other"

#: Errors that are counted, and the names of their counts.
_FAILURES: Mapping[type[CommitError], str] = MappingProxyType(
    {Conflict: "conflicts", Unavailable: "unavailable", OutcomeUnknown: "unknown"}
)


@frozen(eq=False)
class RequestRecorder:
    """Counts requests by the operation that sends them. Thread-safe.

    An operation is a call of a public method, see `count_methods`. The name of a count is
    ``<operation>.<count>``. Requests outside of all operations count for ``other``.

    >>> recorder = RequestRecorder()
    >>> recorder.run("stat", lambda: recorder.add("gets"))
    >>> recorder.add("gets", 2)
    >>> sorted(recorder.counts().items())
    [('other.gets', 2), ('stat.calls', 1), ('stat.gets', 1)]
    """

    _counter: PerThreadCounter = field(factory=PerThreadCounter, init=False)

    def counts(self) -> Counter[str]:
        """Return the counts so far, by name."""
        return self._counter.counts()

    def add(self, count: str, number: int = 1) -> None:
        """Add to a count of the current operation."""
        self._counter.add(f"{self._operation()}.{count}", number)

    def run(self, operation: str, call: Callable[[], T], *, counts: bool = True) -> T:
        """Return the result of `call`; count its requests for an operation.

        If another operation is in progress, they count for that one, and the call does not count.

        Args:
            operation: the name of the operation.
            call: the function to call.
            counts: whether this is a call of the operation, rather than a further part of one.
        """
        current = _current.get()
        if current is not None and current[0] is self:
            return call()
        token = _current.set((self, operation))
        try:
            if counts:
                self.add("calls")
            return call()
        finally:
            _current.reset(token)

    def iterate(self, operation: str, items: Iterator[T]) -> Iterator[T]:
        """Yield `items`; requests to get them count for the operation, those of the consumer do not."""
        end = object()
        advance = partial(next, items, end)
        counts = True
        while True:
            item = self.run(operation, advance, counts=counts)
            if item is end:
                return
            counts = False
            yield cast(T, item)

    def bind(self, executor: Executor) -> Executor:
        """Return an executor whose calls count for the operation that is in progress now."""
        if executor is SERIAL:
            return executor  # its calls are made during that operation, by the same thread
        return _BoundExecutor(executor, self, self._operation())

    def request(self, count: str, call: Callable[[], T]) -> T:
        """Return the result of a request; count it, its failure and its retries."""
        self.add(count)
        return self.finish(call)

    def finish(self, call: Callable[[], T]) -> T:
        """Return the result of a request that was counted before; count its failure and its retries."""
        try:
            return listen_for_retries(self._add_retry, call)
        except CommitError as error:
            self._add_failure(error)
            raise

    def _operation(self) -> str:
        current = _current.get()
        return current[1] if current is not None and current[0] is self else _OTHER

    def _add_retry(self, cause: Exception) -> None:
        self._add_failure(cause)
        self.add("retries")

    def _add_failure(self, error: Exception) -> None:
        for kind, count in _FAILURES.items():
            if isinstance(error, kind):
                self.add(count)


@frozen
class _BoundExecutor:
    _executor: Executor
    _recorder: RequestRecorder
    _operation: str

    def map(self, call: Callable[[A], T], items: Iterable[A], /) -> Iterator[T]:
        return self._executor.map(carried(lambda item: self._run(partial(call, item))), items)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._executor.submit(carried(self._run), partial(call, *args, **kwargs))

    def _run(self, call: Callable[[], T]) -> T:
        return self._recorder.run(self._operation, call, counts=False)


#: The recorder and the name of the current operation, in this thread or task.
_current: ContextVar[tuple[RequestRecorder, str] | None] = ContextVar(
    "commitlog._util.request_stats.current", default=None
)


def counted(method: F) -> F:
    """Return a method that counts as an operation of the recorder `_recorder` of its object."""
    name = method.__name__

    @wraps(method)
    def iterate(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return cast(RequestRecorder, self._recorder).iterate(name, method(self, *args, **kwargs))

    @wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return cast(RequestRecorder, self._recorder).run(name, lambda: method(self, *args, **kwargs))

    return cast(F, iterate if isgeneratorfunction(method) else run)


def part_of(operation: str) -> Callable[[F], F]:
    """Return a decorator that counts a method as a part of an operation that another method began."""

    def decorated(method: F) -> F:
        @wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = cast(RequestRecorder, self._recorder)
            return recorder.run(operation, lambda: method(self, *args, **kwargs), counts=False)

        return cast(F, run)

    return decorated


def count_methods(cls: type[T]) -> type[T]:
    """Count all public methods of a class except `close` as operations; return the class."""
    for name, value in list(vars(cls).items()):
        if isfunction(value) and not name.startswith("_") and name != "close":
            setattr(cls, name, counted(value))
    return cls
