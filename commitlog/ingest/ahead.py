"""Small files of a partition, fetched while those before them are read.

A file that is smaller than what a store sends in the time of a round trip costs the round trip. Knows
the ports `ObjectStore` and `Executor`, and nothing of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

from commitlog.ingest.files import Slice
from commitlog.stores.api import ObjectData, ObjectStore

__all__ = ["Executor", "Fetched", "ahead"]

T = TypeVar("T")

#: Larger files are not fetched ahead, and no more files, and bytes, than these are at a time.
SMALL_BYTES = 2 * 1024 * 1024
MAX_FILES = 16
MAX_BYTES = 16 * 1024 * 1024


class Fetched(Protocol):
    """What will come of a request: a `concurrent.futures.Future`, as far as it is needed here."""

    def result(self) -> ObjectData:
        """Wait for the answer, and return or raise what it is."""
        ...

    def cancel(self) -> object:
        """Do not send the request, if it was not sent."""
        ...


class Executor(Protocol):
    """What runs requests side by side: a `concurrent.futures.Executor`, as far as it is needed here."""

    def submit(self, fn: Callable[[], T], /) -> Any:
        """Begin a call."""
        ...


def ahead(
    store: ObjectStore, slices: Iterable[Slice], executor: Executor
) -> Generator[tuple[Slice, Fetched | None], None, None]:
    """Yield slices, and for whole small files what was fetched of them, in the order given.

    Nothing is raised here: an error is that of the slice that it belongs to, and comes out where its
    result is asked for. Of a file that has grown no more is fetched than was listed. Close the iterator
    to drop requests that were not sent yet; those that were end by themselves.
    """
    rest = deque(slices)
    begun: deque[tuple[Slice, Fetched | None]] = deque()
    held = 0
    try:
        while rest or begun:
            while rest and len(begun) < MAX_FILES and (held + rest[0].size <= MAX_BYTES or not begun):
                each = rest.popleft()
                fetched = None
                if each.whole and each.size <= SMALL_BYTES:
                    fetched = executor.submit(partial(store.get, each.file.path, start=0, end=each.size))
                    held += each.size
                begun.append((each, fetched))
            each, fetched = begun.popleft()
            yield each, fetched
            held -= 0 if fetched is None else each.size
    finally:
        for _, fetched in begun:
            if fetched is not None:
                fetched.cancel()
