"""Prefetch of small files while earlier files of the partition are read.

The cost of a small file is the latency of its request, not the transfer of its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

from commitlog.ingest.files import Slice
from commitlog.stores.api import ObjectData, ObjectStore

__all__ = ["Executor", "Fetched", "prefetch"]

T = TypeVar("T")

#: Largest file that is prefetched, and most files and bytes that are prefetched at a time.
SMALL_BYTES = 2 * 1024 * 1024
MAX_FILES = 16
MAX_BYTES = 16 * 1024 * 1024


class Fetched(Protocol):
    """The future result of a request: the needed part of `concurrent.futures.Future`."""

    def result(self) -> ObjectData:
        """Wait for the request; return its answer or raise its error."""
        ...

    def cancel(self) -> object:
        """Cancel the request if it was not sent yet."""
        ...


class Executor(Protocol):
    """Runs requests concurrently: the needed part of `concurrent.futures.Executor`."""

    def submit(self, fn: Callable[[], T], /) -> Any:
        """Start a call; return its future."""
        ...


def prefetch(
    store: ObjectStore, slices: Iterable[Slice], executor: Executor
) -> Generator[tuple[Slice, Fetched | None], None, None]:
    """Yield the slices in order, each with its prefetched content if it is a whole small file.

    This function raises no error of a request: `Fetched.result` raises it for the slice. If a file has
    grown, only the listed size is fetched. Close the iterator to cancel requests that were not sent yet;
    requests that were sent finish on their own.
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
