"""Calls of the file system for many files: their plans, concurrency, progress and errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from glob import has_magic
from itertools import groupby
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import frozen
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from commitlog._util.concurrency import Executor
from commitlog._util.fork import WorkLock
from commitlog._util.tracing import carried
from commitlog.errors import ConfigurationError, NotFound
from commitlog.filesystem.ports import Locations
from commitlog.namespace import Data
from commitlog.transfer import (
    ContentWriter,
    NamespacePath,
    StoredContent,
    Transfer,
    drop_files,
    link_files,
    read_slice,
)

__all__ = ["Bulk", "BulkPlan", "check_bytes", "concurrency_of", "plan_call", "plan_renames"]

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")

#: The path of a new file, and its source.
Pair: TypeAlias = tuple[Any, S]

#: The default number of concurrent files.
_DEFAULT_CONCURRENCY = 16

#: The number of concurrent files that "all" stands for, as in fsspec.
_MAX_CONCURRENCY = 128

#: Every directory at a depth that is a multiple of this number is made separately, because a file can be
#: made together with at most about thirty missing parent directories.
_LEVELS = 15


def concurrency_of(batch_size: int | None) -> int:
    """Return the number of concurrent files for fsspec's option `batch_size`.

    >>> [concurrency_of(number) for number in (None, 4, -1)]
    [16, 4, 128]
    """
    if batch_size is None:
        return _DEFAULT_CONCURRENCY
    if batch_size == -1:
        return _MAX_CONCURRENCY
    if batch_size < 1:
        raise ConfigurationError(f"batch_size is {batch_size}: use a number of files, or -1 for all")
    return batch_size


def check_bytes(path: str, value: object) -> None:
    """Raise `TypeError` if a value cannot be the content of a file."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{path!r} cannot be written from {type(value).__name__}: encode it as bytes")


class Bulk:
    """The calls of a file system for many files.

    A call makes several files concurrently. Each file appears when it is complete; in a transaction of
    the file system, all of them appear when the transaction ends. When a file fails, no other is
    started, files in progress are cancelled where possible, and the error is raised with a note of the
    state.

    Args:
        fs: the file system.
        locations: its paths.
        concurrency: the number of concurrent files.
        in_groups: whether the content of several files is stored first, and the files are then made in
            one transaction of their namespace. Otherwise each file is made by the file system.
    """

    def __init__(
        self, fs: AbstractFileSystem, locations: Locations, concurrency: int, *, in_groups: bool
    ) -> None:
        self._fs = fs
        self._in_groups = in_groups
        self._locations = locations
        self._concurrency = concurrency
        self._writer = ContentWriter(fs.blocksize)

    def get(self, plan: BulkPlan, callback: Callback) -> None:
        """Download files and make local directories. Downloaded files stay after an error."""
        batch = _Batch(
            {local: remote for remote, local in plan.pairs}, self._concurrency, callback=callback
        )

        def get(local: Any, remote: str, progress: Callback) -> None:
            if remote in plan.directories:
                os.makedirs(local, exist_ok=True)
            else:
                self._fs.get_file(remote, local, callback=progress)

        batch.run(get)

    def cat(self, paths: Sequence[str], **options: Any) -> dict[str, bytes | Exception]:
        """Return the bytes of each file, or the exception; `options` are those of `cat_file`."""
        found = self._map(partial(self._fs.cat_file, **options), paths, "commitlog-cat")
        return dict(zip(paths, found, strict=True))

    def cat_ranges(
        self, slices: Sequence[tuple[str, int | None, int | None]]
    ) -> list[bytes | Exception]:
        """Return slices of files, or exceptions. All slices of a file are of the same version."""
        paths = list(dict.fromkeys(path for path, _, _ in slices))
        opened = dict(zip(paths, self._map(self._locations.open, paths, "commitlog-cat"), strict=True))

        def read(part: tuple[str, int | None, int | None]) -> bytes:
            path, start, end = part
            file = opened[path]
            if isinstance(file, Exception):
                raise file
            return read_slice(file, start, end)

        return self._map(read, slices, "commitlog-cat")

    def _map(self, call: Callable[[A], R], arguments: Sequence[A], name: str) -> list[R | Exception]:
        """Call `call` with each argument concurrently; return each result or exception."""

        def attempt(argument: A) -> R | Exception:
            try:
                return call(argument)
            except Exception as error:
                return error

        if len(arguments) < 2:
            return [attempt(argument) for argument in arguments]
        with ThreadPoolExecutor(min(len(arguments), self._concurrency), name) as executor:
            return list(executor.map(carried(attempt), arguments))

    def remove(self, paths: Iterable[str], *, recursive: bool) -> None:
        """Remove files and directories, each in one transaction. Parents come after their contents."""
        levels = [paths] if recursive else _levels(paths)
        for level in levels:
            batch = _Batch(dict.fromkeys(level), self._concurrency)
            batch.run(lambda path, _, progress: self._locations.delete(path, recursive=recursive))

    def pipe(self, values: Mapping[str, bytes], mode: str) -> None:
        """Make files from bytes."""
        exclusive = mode == "create"

        def store(value: bytes, target: NamespacePath, _: Callback) -> Data:
            return self._writer.write(target, [value], overwrite=not exclusive, check=exclusive)

        self._make(
            values,
            one=lambda value, path, _: self._one(
                memoryview(value).nbytes, self._fs.pipe_file, path, value, mode
            ),
            store=store,
            overwrite=not exclusive,
        )

    def put(self, plan: BulkPlan, mode: str, callback: Callback) -> None:
        """Upload local files and make directories."""
        sources = {self._fs._strip_protocol(remote): local for local, remote in plan.pairs}
        exclusive = mode == "create"

        def store(local: str, target: NamespacePath, progress: Callback) -> Data:
            with open(local, "rb") as source:
                progress.set_size(os.fstat(source.fileno()).st_size)
                blocks = iter(partial(source.read, self._fs.blocksize), b"")
                advance = progress.relative_update
                return self._writer.write(
                    target, blocks, advance, overwrite=not exclusive, check=exclusive
                )

        self._make(
            sources,
            directories={path for path, local in sources.items() if os.path.isdir(local)},
            one=lambda local, path, progress: self._one(
                os.path.getsize(local),
                partial(self._fs.put_file, callback=progress, mode=mode),
                local,
                path,
            ),
            store=store,
            overwrite=not exclusive,
            callback=callback,
        )

    def _one(self, size: int, call: Callable[..., object], *arguments: Any) -> None:
        """Call `call` for a file of `size` bytes; few large files are sent at a time."""
        with self._writer.slot(size):
            call(*arguments)

    def copy(self, plan: BulkPlan, *, ignore_missing: bool) -> None:
        """Copy files and make directories. A source that no longer exists can be ignored."""
        sources = {self._fs._strip_protocol(target): source for source, target in plan.pairs}

        def store(path: str, target: NamespacePath, _: Callback) -> Data | None:
            path = self._fs._strip_protocol(path)
            source = self._locations.open_unless_directory(path)
            if source is None:
                target.namespace.make_directory(target.path)
                return None
            return self._writer.copy(target, source, self._locations.find(path).namespace)

        self._make(
            sources,
            directories={path for path, source in sources.items() if source in plan.directories},
            one=lambda source, path, _: self._fs.cp_file(source, path),
            store=store,
            is_ignored=lambda error: ignore_missing and isinstance(error, NotFound),
        )

    def _make(
        self,
        sources: Mapping[str, S],
        *,
        directories: Collection[str] = (),
        one: Callable[[S, str, Callback], object],
        store: Callable[[S, NamespacePath, Callback], Data | None],
        overwrite: bool = True,
        callback: Callback = DEFAULT_CALLBACK,
        is_ignored: Callable[[BaseException], bool] = lambda error: False,
    ) -> None:
        """Make files and directories.

        Args:
            sources: the path of each new file or directory, and its source.
            directories: the paths that become directories. A directory with contents is made together
                with them; empty directories are made several at a time.
            one: makes one file or directory, or adds it to the active transaction.
            store: stores the content of one file; returns None if it made a directory instead.
            overwrite: as in `Namespace.write`.
            callback, is_ignored: see `_Batch`.
        """
        batch = _Batch(sources, self._concurrency, callback=callback, is_ignored=is_ignored)
        parents = {path.rpartition("/")[0] for path in sources}

        def make_directory(path: str) -> bool:
            if path in directories and path not in parents:
                self._locations.make_directories(path, exist_ok=True)
            return path in directories

        def make(path: str, source: S, progress: Callback) -> None:
            if not make_directory(path):
                one(source, path, progress)

        def store_file(path: str, source: S, progress: Callback) -> StoredContent | None:
            if make_directory(path):
                return None
            target = self._locations.find(path)
            data = store(source, target, progress)
            return None if data is None else StoredContent(target, data)

        for path in sorted(parents.intersection(directories)):
            if path.count("/") % _LEVELS == 0:
                self._locations.make_directories(path, exist_ok=True)
        if not self._in_groups or self._fs._intrans or len(sources) < 2:
            batch.run(make)
        else:
            batch.run_and_link(store_file, overwrite=overwrite)


def _levels(paths: Iterable[str]) -> Iterator[Iterable[str]]:
    """Yield the paths of each depth, the deepest first."""

    def depth(path: str) -> int:
        return path.count("/")

    for _, level in groupby(sorted(paths, key=depth, reverse=True), key=depth):
        yield level


class _FileProgress(Callback):
    """The progress of one file, passed on to its callback. It also cancels the file on request.

    The callback need not be thread-safe: a lock ensures that one thread calls it at a time.
    """

    def __init__(self, callback: Callback, lock: WorkLock, transfer: Transfer) -> None:
        super().__init__()
        self._callback = callback
        self._lock = lock
        self._transfer = transfer

    def set_size(self, size: int) -> None:
        with self._lock:
            self._callback.set_size(size)

    def relative_update(self, inc: int = 1) -> None:
        self._transfer.check()
        with self._lock:
            self._callback.relative_update(inc)


class _Batch(Generic[S]):
    """The same operation on several files. An instance can be used once.

    Args:
        sources: the path of each new file, and its source.
        concurrency: the maximum number of concurrent files.
        callback: an fsspec callback. It is updated for each completed file, and branched for each file.
        is_ignored: returns whether an error of a file is ignored.
    """

    def __init__(
        self,
        sources: Mapping[Any, S],
        concurrency: int,
        *,
        callback: Callback = DEFAULT_CALLBACK,
        is_ignored: Callable[[BaseException], bool] = lambda error: False,
    ) -> None:
        self._sources = sources
        self._transfer = Transfer(max(1, min(concurrency, len(sources))))
        self._callback = callback
        self._is_ignored = is_ignored
        self._lock = WorkLock()
        self._done = 0
        self._failures: list[Exception] = []
        with self._lock:
            callback.set_size(len(sources))

    def run(self, call: Callable[[Any, S, Callback], object]) -> None:
        """Call `call` with each path, its source, and the callback for its progress.

        Raises the first error, with a note of the number of other errors and of completed files.
        Completed files stay as they are.
        """
        if len(self._sources) == 1:
            [pair] = self._sources.items()
            try:
                self._call(call, pair)  # works during interpreter shutdown too: no thread can start
            except Exception as error:
                if not self._is_ignored(error):
                    raise
            self._settle(pair, None)
            return
        self._transfer.run(self._sources.items(), partial(self._call, call), self._settle)
        self._raise_first()

    def run_and_link(
        self, store: Callable[[Any, S, Callback], StoredContent | None], *, overwrite: bool
    ) -> None:
        """Do the same with a function that stores files. Then make the stored files, in groups."""

        def link(
            group: Sequence[tuple[Pair[S], StoredContent | None]], executor: Executor
        ) -> Sequence[Any]:
            return link_files([stored for _, stored in group], executor, overwrite=overwrite)

        self._transfer.run_in_groups(
            self._sources.items(), partial(self._call, store), link, self._settle, drop=drop_files
        )
        self._raise_first()

    def _call(self, call: Callable[[Any, S, Callback], R], pair: Pair[S]) -> R:
        with self._lock:
            child = self._callback.branched(pair[1], pair[0])
        try:
            return call(*pair, _FileProgress(child, self._lock, self._transfer))
        finally:
            with self._lock:
                child.close()

    def _settle(self, pair: Pair[S], outcome: object) -> None:
        if not isinstance(outcome, Exception):
            self._done += 1
        elif not self._is_ignored(outcome):
            self._transfer.cancel()
            self._failures.append(outcome)
            return
        with self._lock:
            self._callback.relative_update(1)

    def _raise_first(self) -> None:
        if not self._failures:
            return
        error, *others = self._failures
        if len(self._sources) > 1:
            error.add_note(
                f"{self._done} of {len(self._sources)} paths were completed before the error, and stay;"
                f" {len(others) or 'no'} others failed; the rest were not started, or were cancelled"
            )
        raise error


@frozen
class BulkPlan:
    """The operations on files that a call of fsspec consists of.

    Attributes:
        pairs: the paths of each operation: one path, or source and target.
        directories: the source paths that are known to be directories.
        returned: the result of fsspec's method.
    """

    pairs: list[tuple[Any, ...]]
    directories: set[str]
    returned: Any


def plan_call(fs: AbstractFileSystem, method: str, *paths: Any, **options: Any) -> BulkPlan:
    """Return the operations that fsspec's own `method` would perform.

    The many rules for target paths thus remain those of fsspec. A path may be a `pathlib.Path`.
    """
    planner = _Planner(fs)
    returned = getattr(AbstractFileSystem, method)(planner, *map(stringify_path, paths), **options)
    known = {path for path, info in planner.found.items() if info["type"] == "directory"}
    return BulkPlan(planner.calls, known, returned)


def plan_renames(fs: AbstractFileSystem, source: Any, target: Any) -> Iterator[tuple[str, str]]:
    """Yield the renames that a call of `mv` consists of: source and target."""
    if isinstance(source, list) and isinstance(target, list):
        yield from zip(fs._strip_protocol(source), fs._strip_protocol(target), strict=True)
        return
    old, new = stringify_path(source), fs._strip_protocol(target)
    if isinstance(old, list) or has_magic(old):
        for each in fs.expand_path(old):
            yield each, f"{new}/{each.rpartition('/')[2]}"
        return
    stripped = fs._strip_protocol(old)
    if stripped == new:
        return
    into = stringify_path(target).endswith("/") or fs.isdir(new)
    if into and not old.endswith("/"):
        new = f"{new}/{stripped.rpartition('/')[2]}"
    yield stripped, new


class _Planner:
    """A stand-in for a file system that records the operation on each file.

    Paths that were found by a pattern, or below a directory, are not looked up again one by one.
    """

    def __init__(self, fs: AbstractFileSystem) -> None:
        self._fs = fs
        self.found: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def _record(self, *paths: Any, **_: Any) -> None:
        self.calls.append(paths)

    cat_file = cp_file = get_file = put_file = _record

    expand_path = AbstractFileSystem.expand_path

    def glob(self, path: str, **kwargs: Any) -> list[str]:
        return self._remember(self._fs.glob(path, **kwargs, detail=True))

    def find(self, path: str, *, detail: bool, **kwargs: Any) -> list[str]:
        return self._remember(self._fs.find(path, **kwargs, detail=True))

    def _remember(self, found: dict[str, dict[str, Any]]) -> list[str]:
        self.found.update(found)
        return list(found)

    def isdir(self, path: str) -> bool:
        found = self.found.get(path)
        return bool(self._fs.isdir(path) if found is None else found["type"] == "directory")
