"""Reading of slices on executors, pinned to the versions that were listed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TypeVar

from attrs import evolve, frozen

from commitlog._util.concurrency import Executor, Future
from commitlog._util.tracing import carried
from commitlog.errors import (
    CorruptRecord,
    InputChanged,
    InputMissing,
    InputUnreadable,
    InvalidPath,
    NotFound,
)
from commitlog.ingest.files import File, Partition, Slice
from commitlog.ingest.quarantine import Quarantine
from commitlog.ingest.settings import IngestSettings
from commitlog.stores.api import ObjectData, ObjectStore, same_etag

__all__ = ["Fetch", "Pinned", "prefetch"]

T = TypeVar("T")

#: Size in bytes up to which a file is prefetched, and the number of files and of bytes that are
#: prefetched at a time.
SMALL_BYTES = 2 * 1024 * 1024
MAX_FILES = 16
MAX_BYTES = 16 * 1024 * 1024


@frozen
class Pinned:
    """Readable handle of one version of one object. Thread-safe, like the store.

    Attributes:
        store: the store with the object.
        file: the version to read.
        fetched: the prefetched content, if it was requested already.
    """

    store: ObjectStore
    file: File
    fetched: Future[ObjectData] | None = None

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """Return bytes ``[start, end)`` of the version; `path` must be the path of the file.

        Raises:
            InputChanged: the object now has another version. The etag comes with the bytes, so they
                never mix two versions.
            InputMissing: the object does not exist any more.
        """
        try:
            if self.fetched is None:
                data = self.store.get(path, start=start, end=end)
            else:
                whole = self.fetched.result()
                data = evolve(whole, data=whole.data[start:end])
        except NotFound:
            raise self._missing() from None
        self._compare(data.etag, data.size)
        return data

    def check(self) -> None:
        """Raise as `get` if the object is not the version that was listed. It reads no bytes."""
        try:
            found = self.store.head(self.file.path)
        except NotFound:
            raise self._missing() from None
        self._compare(found.etag, found.size)

    def _missing(self) -> InputMissing:
        return InputMissing(f"{self.file.path!r} was listed, but does not exist any more")

    def _compare(self, etag: str, size: int) -> None:
        if not same_etag(etag, self.file.etag) or size != self.file.size:
            raise InputChanged(
                f"{self.file.path!r} had etag {self.file.etag} and {self.file.size} bytes when it was"
                f" listed, and has {etag} and {size} now"
            )


class Fetch:
    """Reads the partitions of one source. The settings decide what happens to unreadable slices.

    Args:
        store: the store with the objects.
        quarantine: stores the problems.
        settings: the settings of the source.
        executor: prefetches small files, such as a `ThreadPoolExecutor`. The caller shuts it down. None:
            no prefetch.

    Thread-safe if the executor is.
    """

    def __init__(
        self,
        store: ObjectStore,
        quarantine: Quarantine,
        settings: IngestSettings,
        *,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._executor = executor
        self._quarantine = quarantine
        self._settings = settings

    def read(
        self,
        partition: Partition,
        decode: Callable[[Pinned, Slice], Iterable[T]],
        *,
        count: Callable[[T], int],
        drop: Callable[[T, int], T],
    ) -> Iterator[T]:
        """Yield the records of a partition, in batches.

        Slices that an earlier attempt left out, because their objects had changed, stay left out.

        Args:
            partition: the partition to read.
            decode: yields the records of a slice in batches, the same ones in each call. It must read
                the object through the `Pinned` that it gets. For bad content it raises
                `InputUnreadable` or `CorruptRecord`, after it has yielded all records before that place.
            count: returns the number of records in a batch.
            drop: returns a batch without its first n records.

        Raises:
            InputChanged, InputMissing, CorruptRecord: if the policy is ``fail``. The first two also if
                some of the slice was yielded already: the next attempt sees the change at the start of
                the slice and yields nothing of it.
            InvalidPath: like `CorruptRecord`, for a key that is not a path of the store, such as
                ``a//b``. Such a key can be listed but not read.
            Unavailable, OutcomeUnknown: the problem may not have been stored.
        """
        left_out = self._quarantine.undelivered(partition.epoch)
        wanted = [each for each in partition.slices if each not in left_out]
        if self._executor is None:
            for each in wanted:
                pinned = Pinned(self._store, each.file)
                yield from self._read(partition.epoch, each, pinned, decode, count, drop)
            return
        with closing(prefetch(self._store, wanted, self._executor)) as slices:
            for each, fetched in slices:
                pinned = Pinned(self._store, each.file, fetched)
                yield from self._read(partition.epoch, each, pinned, decode, count, drop)

    def _read(
        self,
        epoch: int,
        slice: Slice,
        pinned: Pinned,
        decode: Callable[[Pinned, Slice], Iterable[T]],
        count: Callable[[T], int],
        drop: Callable[[T, int], T],
    ) -> Iterator[T]:
        settings, report = self._settings, self._quarantine.report
        records = 0
        try:
            for batch in decode(pinned, slice):
                size = count(batch)
                missing = slice.skip - records
                records += size
                if missing < size:
                    yield batch if missing <= 0 else drop(batch, missing)
        except InputChanged as error:
            if settings.changed == "fail" or records > slice.skip:
                raise
            report(epoch, slice, "changed", str(error), records=slice.skip)
        except InputMissing as error:
            if settings.missing == "fail" or records > slice.skip:
                raise
            report(epoch, slice, "missing", str(error), records=slice.skip)
        except (CorruptRecord, InvalidPath) as error:
            if settings.unreadable == "fail":
                raise
            offset = error.offset if isinstance(error, InputUnreadable) else None
            # Records to skip may come after the place of the error.
            delivered = max(records, slice.skip)
            report(epoch, slice, "unreadable", str(error), records=delivered, offset=offset)


def prefetch(
    store: ObjectStore, slices: Iterable[Slice], executor: Executor
) -> Generator[tuple[Slice, Future[ObjectData] | None]]:
    """Yield the slices in order, each with its prefetched content if it is a whole small file.

    The cost of a small file is the latency of its request, not the transfer of its bytes. So the files
    that follow are requested while a file is read.

    Raises no error of a request: the result of the future raises it. If a file has grown, only the
    listed size is fetched. Close the iterator to cancel requests that were not sent yet; requests that
    were sent finish on their own.
    """
    rest = deque(slices)
    begun: deque[tuple[Slice, Future[ObjectData] | None]] = deque()
    held = 0
    try:
        while rest or begun:
            while rest and len(begun) < MAX_FILES and (held + rest[0].size <= MAX_BYTES or not begun):
                each = rest.popleft()
                fetched = None
                if each.whole and each.size <= SMALL_BYTES:
                    fetch = partial(store.get, each.file.path, start=0, end=each.size)
                    fetched = executor.submit(carried(fetch))
                    held += each.size
                begun.append((each, fetched))
            each, fetched = begun.popleft()
            yield each, fetched
            held -= 0 if fetched is None else each.size
    finally:
        for _, fetched in begun:
            if fetched is not None:
                fetched.cancel()
