"""Reading slices: what an executor does, pinned to the versions that were listed.

Imports its siblings and the `ObjectStore` port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TypeVar

from attrs import evolve, frozen

from commitlog.errors import (
    BucketNotFound,
    CorruptRecord,
    InputChanged,
    InputMissing,
    InputUnreadable,
    InvalidPath,
    NotFound,
)
from commitlog.ingest.ahead import Executor, Fetched, ahead
from commitlog.ingest.files import File, Partition, Slice
from commitlog.ingest.problems import Problems
from commitlog.ingest.settings import IngestSettings
from commitlog.stores.api import ObjectData, ObjectStore, same_etag

__all__ = ["Fetch", "Pinned"]

T = TypeVar("T")


@frozen
class Pinned:
    """One version of one object, to read from. Thread-safe, as the store is.

    Attributes:
        store: where it is.
        file: which version.
        fetched: all of it, if that was asked for already.
    """

    store: ObjectStore
    file: File
    fetched: Fetched | None = None

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """Return bytes ``[start, end)`` of the version; `path` is that of the file.

        Raises:
            InputChanged: there is another version by now. The etag comes with the bytes, so they are
                never those of two versions.
            InputMissing: there is no object any more.
        """
        try:
            if self.fetched is None:
                data = self.store.get(path, start=start, end=end)
            else:
                whole = self.fetched.result()
                data = evolve(whole, data=whole.data[start:end])
        except BucketNotFound:
            raise
        except NotFound:
            raise InputMissing(f"{path!r} was listed, and is gone") from None
        if not same_etag(data.etag, self.file.etag) or data.size != self.file.size:
            raise InputChanged(
                f"{path!r} had etag {self.file.etag} and {self.file.size} bytes when it was listed,"
                f" and has {data.etag} and {data.size} now"
            )
        return data


class Fetch:
    """Reads the partitions of one source, and does about what cannot be read what the settings say.

    Args:
        store: where the objects are.
        problems: where problems are kept.
        settings: of the source.
        executor: fetches small files ahead, such as a `ThreadPoolExecutor`; not shut down. None: each
            file is fetched when its turn has come.

    Thread-safe, as far as the executor is.
    """

    def __init__(
        self,
        store: ObjectStore,
        problems: Problems,
        settings: IngestSettings,
        *,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._executor = executor
        self._problems = problems
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

        Args:
            partition: what to read.
            decode: yields the records of a slice in batches, the same ones whenever it is called, and
                reads the object through what it is given. Raises `InputUnreadable` or `CorruptRecord`
                for content that is not what it should be, once it has yielded what comes before.
            count: number of records in a batch.
            drop: a batch without so many of its first records.

        Raises:
            InputChanged, InputMissing, CorruptRecord: as the policies are; and the first two if some of
                the slice was yielded: the next attempt finds out at its start, and yields nothing.
            InvalidPath: as `CorruptRecord`, for a key that no path of the store can have, such as
                ``a//b``: it can be listed, and not read.
            Unavailable, OutcomeUnknown: it is not certain that a problem was kept.
        """
        if self._executor is None:
            for each in partition.slices:
                pinned = Pinned(self._store, each.file)
                yield from self._read(partition.epoch, each, pinned, decode, count, drop)
            return
        with closing(ahead(self._store, partition.slices, self._executor)) as slices:
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
        settings, report = self._settings, self._problems.report
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
            # Records that were to be skipped may lie behind the place.
            delivered = max(records, slice.skip)
            report(epoch, slice, "unreadable", str(error), records=delivered, offset=offset)
