"""Which operation of a namespace is under way, and how much it does.

What is counted belongs to the operation in whose context it is done. Imports the ground floor, and its
siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial, wraps
from inspect import isfunction, isgeneratorfunction
from types import MappingProxyType
from typing import Any, TypeVar, cast

from attrs import field, frozen

from commitlog.errors import CommitError, Conflict, OutcomeUnknown, Unavailable
from commitlog.namespace.requests import Requests
from commitlog.repeats import heard
from commitlog.tally import Tally

__all__ = ["Recorder", "count_methods", "counted", "part_of"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_OTHER = "other"

#: Errors that are counted, and as what.
_TROUBLES: Mapping[type[CommitError], str] = MappingProxyType(
    {Conflict: "conflicts", Unavailable: "unavailable", OutcomeUnknown: "unknown"}
)


@frozen(eq=False)
class Recorder:
    """Counts what one namespace does. Thread-safe."""

    _tally: Tally = field(factory=Tally, init=False)

    def add(self, count: str, number: int = 1) -> None:
        """Count something of the operation that is under way."""
        current = _current.get()
        operation = current[1] if current is not None and current[0] is self else _OTHER
        self._tally.add(f"{operation}.{count}", number)

    def run(self, operation: str, call: Callable[[], T], *, counts: bool = True) -> T:
        """Return what `call` does, which is part of an operation, unless it is part of one already.

        Args:
            operation: its name.
            call: what.
            counts: whether it is a call of that operation by itself.
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
        """Yield `items`; what is done to get them is part of the operation, what others do is not."""
        end = object()
        advance = partial(next, items, end)
        counts = True
        while True:
            item = self.run(operation, advance, counts=counts)
            if item is end:
                return
            counts = False
            yield cast(T, item)

    def carried(self, call: Callable[[Any], T]) -> Callable[[Any], T]:
        """Return `call`, to be called in any thread as part of the operation that is under way."""
        current = _current.get()
        operation = current[1] if current is not None and current[0] is self else _OTHER

        def within(argument: Any) -> T:
            return self.run(operation, lambda: call(argument), counts=False)

        return within

    def requests(self, namespace: str) -> Requests:
        """Return what was counted so far."""
        return Requests.of(namespace, self._tally.counts())

    def watched(self, count: str, call: Callable[[], T]) -> T:
        """Return what a request does, and count it, with what goes wrong."""
        self.add(count)
        return self.troubled(call)

    def troubled(self, call: Callable[[], T]) -> T:
        """Return what `call` does, and count what goes wrong, and what is sent again for that."""
        try:
            return heard(self._repeated, call)
        except CommitError as error:
            self._count(error)
            raise

    def _repeated(self, cause: Exception) -> None:
        self._count(cause)
        self.add("retries")

    def _count(self, error: Exception) -> None:
        for kind, count in _TROUBLES.items():
            if isinstance(error, kind):
                self.add(count)


#: Who counts, and for which operation, in this thread or task.
_current: ContextVar[tuple[Recorder, str] | None] = ContextVar("commitlog.namespace", default=None)


def counted(method: F) -> F:
    """Return a method that counts as an operation; its object has a `Recorder` as `_recorder`."""
    name = method.__name__

    @wraps(method)
    def iterate(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return cast(Recorder, self._recorder).iterate(name, method(self, *args, **kwargs))

    @wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return cast(Recorder, self._recorder).run(name, lambda: method(self, *args, **kwargs))

    return cast(F, iterate if isgeneratorfunction(method) else run)


def part_of(operation: str) -> Callable[[F], F]:
    """Return what makes a method part of an operation that another method has begun."""

    def decorated(method: F) -> F:
        @wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = cast(Recorder, self._recorder)
            return recorder.run(operation, lambda: method(self, *args, **kwargs), counts=False)

        return cast(F, run)

    return decorated


def count_methods(cls: type) -> None:
    """Make all public methods of a class count as operations."""
    for name, value in list(vars(cls).items()):
        if isfunction(value) and not name.startswith("_"):
            setattr(cls, name, counted(value))
