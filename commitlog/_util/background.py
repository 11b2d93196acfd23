"""The port for work in the background, `Background`: mutual exclusion, and calls that are repeated.

Rules that must keep something alive, such as a lock, take a `Background` as an argument. `Threads` uses
threads; `Foreground` does nothing by itself, as the simulator and most tests need it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Protocol

from commitlog._util.fork import WorkLock

__all__ = ["Background", "Foreground", "Threads"]


class Background(Protocol):
    """Runs calls beside the caller. Implementations are thread-safe."""

    def mutex(self) -> AbstractContextManager[object]:
        """Return a new lock that one thread at a time can hold, and that is not reentrant."""
        ...

    def caller(self) -> Hashable:
        """Return the identity of the thread that calls."""
        ...

    def repeat(self, seconds: float, call: Callable[[], bool]) -> Callable[[], None]:
        """Call `call` every `seconds`, until it returns False; return a function that ends it.

        That function returns when no call runs any more. Within `call` itself it returns at once.
        """
        ...


class Foreground:
    """Repeats nothing: whoever needs a call makes it. For code that runs in one thread."""

    def mutex(self) -> AbstractContextManager[object]:
        """Return a context manager that excludes nobody."""
        return contextlib.nullcontext()

    def caller(self) -> Hashable:
        """Return the same value for every caller."""
        return None

    def repeat(self, seconds: float, call: Callable[[], bool]) -> Callable[[], None]:
        """Return a function that does nothing."""
        return lambda: None


class Threads:
    """Runs each repeated call in a daemon thread of its own.

    The pauses are those of `threading.Event.wait`, which does not count while a machine is suspended. So
    the first call after a suspension may be late by a whole pause.

    Args:
        name: the name of the threads.

    >>> done = threading.Event()
    >>> stop = Threads("example").repeat(0.001, lambda: done.set() or True)
    >>> done.wait()
    True
    >>> stop()
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def mutex(self) -> AbstractContextManager[object]:
        """Return a `WorkLock`."""
        return WorkLock()

    def caller(self) -> Hashable:
        """Return the identifier of the current thread."""
        return threading.get_ident()

    def repeat(self, seconds: float, call: Callable[[], bool]) -> Callable[[], None]:
        """See `Background.repeat`. An exception of `call` ends the repetition."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(seconds) and call():
                pass

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        thread.start()

        def stop() -> None:
            over.set()
            if threading.current_thread() is not thread:
                thread.join()

        return stop
