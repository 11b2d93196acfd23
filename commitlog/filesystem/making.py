"""Creation of files from bytes, local files or other files, without an open file."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, BinaryIO, TypeAlias, TypeVar

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from commitlog.absence import is_absent
from commitlog.clock import SystemClock
from commitlog.errors import AlreadyExists, CommitError, NotFound
from commitlog.filesystem.bulk import Batch, planned
from commitlog.filesystem.files import blocks_of, is_copied_by_store
from commitlog.filesystem.places import Place
from commitlog.filesystem.reading import Reading
from commitlog.namespace import Data, Mapper, Namespace, link_each

__all__ = ["Making"]

S = TypeVar("S")

#: The number of nested directories after which one is made separately, because a file can be made
#: together with at most about thirty missing parent directories.
_LEVELS = 15

#: The path of a new file, and its stored content.
_Stored: TypeAlias = tuple[Place, Data]


class Making(Reading):
    """The methods of `CommitlogFileSystem` that make files without opening them.

    Calls for many files make several concurrently: `batch_size` of the call or of the file system. Each
    file appears when it is complete; use a transaction to make all of them appear at once. When a file
    fails, no other is started, files in progress are cancelled where possible, and the error is raised
    with a note of the state.
    """

    # one file

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Make a file from bytes. With mode "create" it must be new (else `AlreadyExists`)."""
        _check_bytes(path, value)
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
            return
        place = self._place(path)
        place.namespace.write(place.path, value, overwrite=mode != "create")

    def put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Upload a local file, or make a directory if `lpath` is one."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as source, self.open(rpath, "xb" if mode == "create" else "wb") as file:
            callback.set_size(os.fstat(source.fileno()).st_size)
            while block := source.read(self.blocksize):
                callback.relative_update(file.write(block))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file, inside the store if possible; or make a directory if `path1` is one."""
        opened = self._opened_unless_directory(path1)
        if opened is None:
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path2, "wb") as file:
            file.copy(opened, self._place(path1).namespace)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty file. Without `truncate`, set only the modification time of an existing file."""
        if truncate:
            self.pipe_file(path, b"")
            return
        place = self._place(path)
        try:
            place.namespace.set_attributes(place.path, modified=int(SystemClock().epoch() * 1000))
        except NotFound as error:
            if not is_absent(error):
                raise
            with contextlib.suppress(AlreadyExists):  # another client has just made it
                self.pipe_file(path, b"", mode="create")

    # many files

    def pipe(
        self,
        path: Any,
        value: bytes | None = None,
        *,
        batch_size: int | None = None,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Make a file from bytes, or several files if `path` is a dictionary of paths and bytes."""
        values: dict[Any, Any] = path if isinstance(path, dict) else {path: value}
        for name, each in values.items():
            _check_bytes(name, each)

        exclusive = mode == "create"

        def store(value: bytes, place: Place, batch: Batch[bytes], told: Callback) -> Data:
            return self._sent([value], place, batch, exclusive=exclusive)

        self._make(
            {self._strip_protocol(name): each for name, each in values.items()},
            "written",
            one=lambda value, path, told: self.pipe_file(path, value, mode),
            store=store,
            overwrite=not exclusive,
            batch_size=batch_size,
        )

    def put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        *,
        batch_size: int | None = None,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Upload local files, with fsspec's rules for target paths.

        Args:
            lpath, rpath, recursive, maxdepth: see fsspec.
            callback: updated for each new file, and branched to count its bytes. Only one thread calls
                it at a time.
            batch_size: the number of concurrent files; -1: all, up to 128.
            mode: "create": all files must be new.

        A file smaller than `blocksize` is read whole. At most four larger files are sent concurrently.
        """
        plan = planned(self, "put", lpath, rpath, recursive=recursive, maxdepth=maxdepth, **kwargs)
        wanted = {self._strip_protocol(remote): local for local, remote in plan.pairs}
        exclusive = mode == "create"

        def store(local: str, place: Place, batch: Batch[str], told: Callback) -> Data:
            with open(local, "rb") as source:
                told.set_size(os.fstat(source.fileno()).st_size)
                return self._sent(self._blocks(source, told), place, batch, exclusive=exclusive)

        self._make(
            wanted,
            "put",
            directories={path for path, local in wanted.items() if os.path.isdir(local)},
            one=lambda local, path, told: self.put_file(local, path, callback=told, mode=mode),
            store=store,
            overwrite=not exclusive,
            batch_size=batch_size,
            callback=callback,
        )

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        *,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files, with fsspec's rules for target paths.

        Args:
            path1, path2, recursive, maxdepth: see fsspec.
            on_error: "ignore" skips files that no longer exist, and is the default with `recursive`;
                "raise" raises their errors.
            batch_size: the number of concurrent files; -1: all, up to 128.
        """
        plan = planned(self, "copy", path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
        wanted = {self._strip_protocol(target): source for source, target in plan.pairs}
        ignoring = on_error == "ignore" or (on_error is None and recursive)

        def store(source: str, place: Place, batch: Batch[str], told: Callback) -> Data | None:
            opened = self._opened_unless_directory(source)
            if opened is None:
                place.namespace.make_directory(place.path)
                return None
            if self._place(source).namespace is place.namespace and is_copied_by_store(opened):
                with place.namespace.begin_write(place.path) as writer:
                    writer.copy(opened)
                    return writer.finish()
            return self._sent(blocks_of(opened, self.blocksize), place, batch)

        self._make(
            wanted,
            "copied",
            directories={path for path, source in wanted.items() if source in plan.directories},
            one=lambda source, path, told: self.cp_file(source, path),
            store=store,
            batch_size=batch_size,
            passed_over=is_absent if ignoring else lambda error: False,
        )

    def _blocks(self, source: BinaryIO, told: Callback) -> Iterator[bytes]:
        while block := source.read(self.blocksize):
            told.relative_update(len(block))
            yield block

    def _sent(
        self, blocks: Iterable[bytes], place: Place, batch: Batch[Any], *, exclusive: bool = False
    ) -> Data:
        """Store the content of a new file. If there are several blocks, the first is a full block."""
        left = iter(blocks)
        first = next(left, b"")
        small = len(first) < self.blocksize
        if small and not exclusive:
            return place.namespace.store_content(first)
        with (
            nullcontext() if small else batch.large,
            place.namespace.begin_write(place.path, overwrite=not exclusive) as writer,
        ):
            writer.write(first)
            for block in left:
                writer.write(block)
            return writer.finish()

    def _make(
        self,
        wanted: Mapping[str, S],
        what: str,
        *,
        directories: Collection[str] = (),
        one: Callable[[S, str, Callback], object],
        store: Callable[[S, Place, Batch[S], Callback], Data | None],
        overwrite: bool = True,
        batch_size: int | None,
        callback: Callback = DEFAULT_CALLBACK,
        passed_over: Callable[[BaseException], bool] = lambda error: False,
    ) -> None:
        """Make all wanted files and directories.

        Args:
            wanted: the path of each new file or directory, and its source.
            what: see `Batch`.
            directories: the paths that become directories. A directory with contents is made together
                with them; empty directories are made several at a time.
            one: makes one file or directory, or adds it to the active transaction.
            store: stores the content of one file; returns None if it made a directory instead.
            overwrite: as in `Namespace.write`.
            batch_size, callback, passed_over: see `Batch`.
        """
        batch = Batch(
            wanted,
            what,
            at_once=self._at_a_time(batch_size),
            callback=callback,
            passed_over=passed_over,
        )
        full = {path.rpartition("/")[0] for path in wanted}

        def is_made(path: str) -> bool:
            if path in directories and path not in full:
                self.makedirs(path, exist_ok=True)
            return path in directories

        def made(path: str, source: S, told: Callback) -> None:
            if not is_made(path):
                one(source, path, told)

        def stored(path: str, source: S, told: Callback) -> _Stored | None:
            if is_made(path):
                return None
            place = self._mounts.place(path)
            data = store(source, place, batch, told)
            return None if data is None else (place, data)

        for path in sorted(full.intersection(directories)):
            if path.count("/") % _LEVELS == 0:
                self.makedirs(path, exist_ok=True)
        if self._intrans or len(wanted) < 2:
            batch.run(made)
        else:
            batch.run(stored, partial(_linked, overwrite=overwrite), _drop)


def _linked(
    group: Sequence[tuple[object, _Stored | None]], mapper: Mapper, *, overwrite: bool
) -> list[object]:
    """Make files of stored content; return the outcome of each."""
    made = {
        namespace: link_each(namespace, files, overwrite=overwrite, mapper=mapper)
        for namespace, files in _by_namespace(stored for _, stored in group).items()
    }
    return [stored and made[stored[0].namespace][stored[0].path] for _, stored in group]


def _drop(left: Sequence[_Stored | None]) -> None:
    """Remove stored content that no file will use."""
    for namespace, files in _by_namespace(left).items():
        with contextlib.suppress(CommitError):
            namespace.store.delete_many([data.path for data in files.values()])


def _by_namespace(stored: Iterable[_Stored | None]) -> dict[Namespace, dict[str, Data]]:
    found: dict[Namespace, dict[str, Data]] = defaultdict(dict)
    for place, data in filter(None, stored):
        found[place.namespace][place.path] = data
    return found


def _check_bytes(path: str, value: object) -> None:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{path!r} cannot be made of {type(value).__name__}: encode it as bytes")
