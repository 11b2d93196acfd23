"""Who counts requests hears of those that a table or a store sends again inside. Imports nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

__all__ = ["heard", "repeated"]

T = TypeVar("T")

Listener: TypeAlias = Callable[[Exception], object]

_listener: ContextVar[Listener | None] = ContextVar("commitlog.repeats", default=None)


def heard(listener: Listener, call: Callable[[], T]) -> T:
    """Return what `call` does; `listener` is told why it sends requests again, if it does.

    >>> heard(lambda cause: print("again:", cause), lambda: repeated(TimeoutError("busy")))
    again: busy
    """
    token = _listener.set(listener)
    try:
        return call()
    finally:
        _listener.reset(token)


def repeated(cause: Exception) -> None:
    """Tell that a request is about to be sent again, after it has come to `cause`."""
    listener = _listener.get()
    if listener is not None:
        listener(cause)
