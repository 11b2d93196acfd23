"""Transfers of many files: bounded parallel work, the content of new files, and their creation.

The command line and the fsspec file system are built on it. `Transfer` processes files in parallel and
can be cancelled. `ContentWriter` stores the content of new files. `link_files` makes files of stored
content, several in one transaction.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from attrs import fields, frozen

from commitlog._util.concurrency import Executor, work, work_in_groups
from commitlog._util.read_ahead import NO_READ_AHEAD, READ_AHEAD, ReadAhead, SequentialReader
from commitlog.errors import CommitError, NotADirectory, NotFound, PreconditionFailed
from commitlog.paths import join
from commitlog.stores.api import ObjectInfo, same_etag
from commitlog.stores.body import COPY_LIMIT, PART_SIZE

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore
    from commitlog.namespace import Data, FileWriter, Namespace, OpenFile, Status

__all__ = [
    "BLOCK_SIZE",
    "Advance",
    "Cancelled",
    "ContentWriter",
    "NamespacePath",
    "OpenObject",
    "OpenSource",
    "SequentialReader",
    "StoredContent",
    "Transfer",
    "drop_files",
    "is_copied_by_store",
    "link_files",
    "read_blocks",
    "read_first_block",
    "read_slice",
    "sequential_reader",
]

Item = TypeVar("Item")
Part = TypeVar("Part")
R = TypeVar("R")

#: The default number of bytes that are read or copied at a time.
BLOCK_SIZE = PART_SIZE

#: The number of large files that are sent concurrently.
_LARGE_FILES = 4

#: Called with the number of completed bytes. It may raise an exception to cancel the rest of the file.
Advance: TypeAlias = Callable[[int], object]


def _ignore(step: int) -> None:
    pass


@frozen(kw_only=True)
class NamespacePath:
    """A path in a namespace, of an existing or a new file or directory.

    Attributes:
        namespace: the namespace.
        path: the path in the namespace; "" for its root.
        directory_only: whether the path can only be that of a directory, because its URL ended in "/".
    """

    namespace: Namespace
    path: str
    directory_only: bool = False

    @property
    def url(self) -> str:
        """The URL of the path."""
        return f"commitlog://{self.namespace.name}/{self.path}"

    @property
    def name(self) -> str:
        """The last name in the path; "" for the root."""
        return self.path.rpartition("/")[2]

    def below(self, name: str) -> NamespacePath:
        """Return the path of a name, or of a relative path, in this directory."""
        return NamespacePath(namespace=self.namespace, path=join(self.path, name))

    def open_writer(self, *, overwrite: bool = True, parents: bool = True) -> FileWriter:
        """Begin a file; see `Namespace.open_writer`."""
        return self.namespace.open_writer(self.path, overwrite=overwrite, parents=parents)

    def copy(self, writer: FileWriter, source: OpenFile, origin: NamespacePath) -> int | None:
        """Let the store copy a file at `origin` to `writer`; return its size, or None if it cannot."""
        is_copied = origin.namespace is self.namespace and is_copied_by_store(source)
        return writer.copy(source) if is_copied else None

    def drop(self, data: Data) -> None:
        """Remove stored content that no file refers to."""
        self.namespace.store.delete(data.path)

    def status(self) -> Status | None:
        """Return the status of the file or directory, or None if it does not exist.

        Raises `NotADirectory` for a file if `directory_only` is set.
        """
        try:
            status = self.namespace.stat(self.path)
        except NotFound:
            return None
        if self.directory_only and not status.is_directory:
            raise NotADirectory(f"{self.url} is a file")
        return status


class Cancelled(Exception):
    """The cancellation of a file that is in progress."""


class Transfer:
    """Parallel work on files. An instance can be used once. Thread-safe.

    Files are taken from an iterable when there is room for them, so a listing of any length is not held
    in memory. After a cancellation no other file is started, and those in progress end at their next
    call of `check`.

    Args:
        concurrency: the maximum number of files in progress.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Start no other file, and cancel those in progress. Idempotent."""
        self._cancelled.set()

    def check(self) -> None:
        """Raise `Cancelled` after a cancellation. Files in progress call it between two steps."""
        if self._cancelled.is_set():
            raise Cancelled

    def run(
        self,
        items: Iterable[Item],
        call: Callable[[Item], R],
        settled: Callable[[Item, R | Exception], object],
    ) -> None:
        """Call `call` with each item in threads, and `settled` with each outcome in this thread.

        `settled` is not called for cancelled files. Raises the errors of `items` and `settled`, after
        the files in progress have ended.
        """
        with ThreadPoolExecutor(self._concurrency, "commitlog-files") as executor:
            work(
                self._until_cancelled(items),
                self._checked(call),
                _unless_cancelled(settled),
                executor=executor,
                ahead=2 * self._concurrency,
                stop=self.cancel,
            )

    def run_in_groups(
        self,
        items: Iterable[Item],
        call: Callable[[Item], Part],
        join: Callable[[Sequence[tuple[Item, Part]], Executor], Sequence[R | Exception]],
        settled: Callable[[Item, R | Exception], object],
        *,
        drop: Callable[[Sequence[Part]], object],
    ) -> None:
        """Do the same, with a second step `join` for the results of several items at a time.

        Args:
            items, settled: as in `run`.
            call: returns the result of the first step for an item.
            join: takes items with their results, and an executor. It returns the
                outcome of each item, which may be an exception. It runs in one thread at a time.
            drop: takes the results that `join` did not get because of an error or interrupt.
        """
        from commitlog.namespace import LINK_BATCH_SIZE

        with (
            ThreadPoolExecutor(self._concurrency, "commitlog-files") as executor,
            ThreadPoolExecutor(1, "commitlog-link") as joiner,
            ThreadPoolExecutor(LINK_BATCH_SIZE, "commitlog-read") as readers,
        ):
            work_in_groups(
                self._until_cancelled(items),
                self._checked(call),
                lambda group: join(group, readers),
                _unless_cancelled(settled),
                executor=executor,
                joiner=joiner,
                ahead=2 * self._concurrency,
                most=LINK_BATCH_SIZE,
                stop=self.cancel,
                drop=drop,
            )

    def _until_cancelled(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            if self._cancelled.is_set():
                return
            yield item

    def _checked(self, call: Callable[[Item], R]) -> Callable[[Item], R]:
        def checked(item: Item) -> R:
            self.check()
            return call(item)

        return checked


def _unless_cancelled(
    settled: Callable[[Item, R | Exception], object],
) -> Callable[[Item, R | Exception], object]:
    def settle(item: Item, outcome: R | Exception) -> None:
        if not isinstance(outcome, Cancelled):
            settled(item, outcome)

    return settle


def is_copied_by_store(source: OpenSource) -> bool:
    """Return whether the store can copy the content of a file in one request."""
    return source.size <= COPY_LIMIT


class OpenSource(Protocol):
    """One version of a file, open for reading: an `OpenFile` of a namespace, or an `OpenObject`."""

    @property
    def size(self) -> int:
        """The size in bytes."""

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request to a server, so that several at a time take less time."""

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes ``[start, end)``; all of them by default. Raises if the version is gone."""


class OpenObject:
    """An object as it was when it was opened. Thread-safe; holds no resources.

    Args:
        store: the store.
        info: the details of the object.
    """

    def __init__(self, store: ConditionalStore, info: ObjectInfo) -> None:
        self.store = store
        self.info = info

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.info.size

    @property
    def data(self) -> str:
        """The entity tag of the version."""
        return self.info.etag

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request to a server."""
        return not self.store.object_store.capabilities.enforced

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes ``[start, end)``; all of them by default.

        Raises `PreconditionFailed` if the object was replaced, and `NotFound` if it was removed.
        """
        found = self.store.get(self.info.path, start=start, end=end)
        if not same_etag(found.etag, self.info.etag):
            raise PreconditionFailed(
                f"{self.info.path!r} was replaced while it was read: its etag was {self.info.etag},"
                f" and is now {found.etag}; read it again"
            )
        return found.data


def read_first_block(store: ConditionalStore, path: str) -> tuple[OpenObject, bytes]:
    """Open an object and return it with its first `BLOCK_SIZE` bytes.

    It is one request, which does for a whole object of one block. An empty object takes two: a server
    that is asked for a range of an empty object answers 416, without the details of the object
    (RFC 9110, section 15.5.17).

    Raises `NotFound`.
    """
    first = store.get(path, start=0, end=BLOCK_SIZE)
    info = ObjectInfo(**{field.name: getattr(first, field.name) for field in fields(ObjectInfo)})
    return OpenObject(store, info), first.data


def _read_ahead(source: OpenSource) -> ReadAhead:
    """Return the limit for a file: only files on a server are read ahead."""
    return READ_AHEAD if source.is_remote else NO_READ_AHEAD


def read_blocks(
    source: OpenSource,
    block_size: int = BLOCK_SIZE,
    *,
    start: int = 0,
    end: int | None = None,
    ramp_up: bool = False,
) -> Generator[bytes]:
    """Yield the bytes ``[start, end)`` of a file in blocks of `block_size` bytes.

    All bytes are of one version, even if the file changes meanwhile. From a server, up to 8 blocks are
    read ahead in threads, which end with the generator: close it if it may not be read to its end. The
    limit is for all files that this process reads; see `commitlog._util.read_ahead.ReadAhead`.

    Args:
        source: the file.
        block_size: bytes of a block.
        start, end: offsets in bytes; by default the whole file.
        ramp_up: for readers that may stop early: read at most as much ahead as was read before.

    Raises the errors of `OpenSource.read`, in place of the first block that could not be read.
    """
    end = source.size if end is None else end
    return _read_ahead(source).blocks(source.read, start, end, block_size=block_size, ramp_up=ramp_up)


def sequential_reader(source: OpenSource, block_size: int = BLOCK_SIZE) -> SequentialReader:
    """Return a reader of any ranges of a file, which reads ahead while they follow each other.

    Its blocks count like those of `read_blocks`, and are of the same version.
    """
    return SequentialReader(source.read, source.size, block_size=block_size, ahead=_read_ahead(source))


def read_slice(source: OpenSource, start: int | None, end: int | None) -> bytes:
    """Return a slice of an open file. Negative numbers count from the end.

    A whole file above 16 MiB is read in blocks, several at a time, and any other slice in one request.
    """
    first, last, _ = slice(start, end).indices(source.size)
    return sequential_reader(source).read(first, last) if first < last else b""


class ContentWriter:
    """A writer of the content of new files. Thread-safe.

    It sends at most four large files concurrently, because the store holds several parts of each of them
    in memory.

    Args:
        block_size: the number of bytes that are copied at a time. A file of at least this size is large.
    """

    def __init__(self, block_size: int = BLOCK_SIZE) -> None:
        self._block_size = block_size
        self._slots = threading.Semaphore(_LARGE_FILES)

    def slot(self, size: int) -> AbstractContextManager[object]:
        """Return a context in which a file of `size` bytes can be sent. A large one waits for others."""
        return self._slots if size >= self._block_size else nullcontext()

    def write(
        self,
        target: NamespacePath,
        blocks: Iterable[bytes],
        advance: Advance = _ignore,
        *,
        overwrite: bool = True,
        parents: bool = True,
        check: bool = False,
    ) -> Data:
        """Store the content of a new file.

        Args:
            target: the path of the file.
            blocks: its content.
            advance: called with the number of bytes after each step.
            overwrite, parents: as in `Namespace.write`.
            check: whether to check, before reading a block, that the file can be made. If there are
                several blocks, this is always checked before they are stored.

        Raises the errors of `Namespace.open_writer`, `blocks` and `advance`. No content is left then.
        """
        left = iter(blocks)
        head = [] if check else [next(left, b"")]
        is_large = not check and len(head[0]) >= self._block_size
        if not check and not is_large:
            head.extend(islice(left, 1))
            if len(head) == 1:
                advance(len(head[0]))  # first: if this call cancels the file, nothing has been stored
                return target.namespace.upload(head[0])
        with ExitStack() as stack:
            if is_large:
                stack.enter_context(self._slots)
            writer = stack.enter_context(target.open_writer(overwrite=overwrite, parents=parents))
            written = 0
            for block in chain(head, left):
                if not is_large and written + len(block) >= self._block_size:
                    is_large = True
                    stack.enter_context(self._slots)
                written += writer.write(block)
                advance(len(block))
            return writer.finish()

    def copy(
        self,
        target: NamespacePath,
        source: OpenFile,
        origin: Namespace,
        advance: Advance = _ignore,
        *,
        overwrite: bool = True,
        parents: bool = True,
        check: bool = False,
    ) -> Data:
        """Store a copy of the content of a file. Within a namespace the store copies it, up to 5 GiB.

        Args:
            target, advance, overwrite, parents, check: as in `write`.
            source: the file to copy.
            origin: its namespace.
        """
        if origin is target.namespace and is_copied_by_store(source):
            with target.open_writer(overwrite=overwrite, parents=parents) as writer:
                advance(writer.copy(source))
                return writer.finish()
        with contextlib.closing(read_blocks(source, self._block_size)) as blocks:
            return self.write(target, blocks, advance, overwrite=overwrite, parents=parents, check=check)


@frozen
class StoredContent:
    """The stored content of a file that does not exist yet.

    Attributes:
        target: the path of the file.
        data: the content, an object that no other file refers to.
    """

    target: NamespacePath
    data: Data


def link_files(
    files: Sequence[StoredContent | None],
    executor: Executor,
    *,
    overwrite: bool = True,
    parents: bool = True,
) -> list[Status | CommitError | None]:
    """Make files of stored content; return the status or the error of each, and None for None.

    The files of a namespace are made in few transactions; see `Namespace.link_many`. A file with the
    path of an earlier one is made after it.
    """
    made: list[Status | CommitError | None] = [None] * len(files)
    left = {number: file for number, file in enumerate(files) if file is not None}
    while left:
        first: dict[Namespace, dict[str, int]] = defaultdict(dict)
        for number, file in left.items():
            first[file.target.namespace].setdefault(file.target.path, number)
        for namespace, numbers in first.items():
            found = namespace.link_many(
                {path: left[number].data for path, number in numbers.items()},
                overwrite=overwrite,
                parents=parents,
                executor=executor,
                atomic=False,
            )
            for path, number in numbers.items():
                made[number] = found[path]
                del left[number]
    return made


def drop_files(files: Sequence[StoredContent | None]) -> None:
    """Remove stored content that no file will use. Errors are ignored: invisible objects remain."""
    unused: dict[Namespace, list[str]] = defaultdict(list)
    for file in files:
        if file is not None:
            unused[file.target.namespace].append(file.data.path)
    for namespace, paths in unused.items():
        with contextlib.suppress(CommitError, OSError):
            namespace.store.delete_many(paths)
