"""`BaseFileSystem`: what the file systems of namespaces and of plain stores have in common."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike

from commitlog.errors import (
    ConfigurationError,
    InvalidPath,
    IsADirectory,
    NotFound,
    NotSupported,
)
from commitlog.filesystem.bulk import Bulk, check_bytes, concurrency_of, plan_call
from commitlog.filesystem.file import (
    FileTransaction,
    ReadFile,
    WriteFile,
    new_local_file,
    parse_mode,
    wrap,
)
from commitlog.filesystem.ports import FileTarget, Info, Locations
from commitlog.stores.body import write_block

__all__ = ["BaseFileSystem"]

#: Options that fsspec passes to every file system, and that have no effect here. pandas opens a file
#: again with ``anon`` after a `PermissionError`; its second error must be that of the store, too.
_OF_FSSPEC = frozenset(
    {"anon", "asynchronous", "listings_expiry_time", "loop", "max_paths", "use_listings_cache"}
)


class BaseFileSystem(AbstractFileSystem):
    """The calls of fsspec that need only `Locations`.

    Args:
        locations: the files.
        block_size: the minimum number of bytes that an open file reads, unless `open` overrides it, and
            the number of bytes that are copied at a time.
        batch_size: the number of concurrent files in calls for many files, unless the call overrides it;
            -1: all, up to 128.
        in_groups: whether new files are made in groups, see `Bulk`.
        storage_options: options that fsspec passes to every file system are ignored; others raise
            `ConfigurationError`.

    A subclass adds `publish`, what changes names (`mkdir`, `rm`, `mv`, …), and `ukey`.
    """

    transaction_type = FileTransaction

    def __init__(
        self,
        locations: Locations,
        *,
        block_size: int | None,
        batch_size: int | None,
        in_groups: bool,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        unknown = sorted(set(storage_options) - _OF_FSSPEC)
        if unknown:
            raise ConfigurationError(f"unknown option {unknown[0]!r} of the file system")
        self._locations = locations
        self._in_groups = in_groups
        if block_size is not None:
            self.blocksize = block_size
        self.batch_size = concurrency_of(batch_size)

    def publish(self, files: Sequence[WriteFile]) -> None:
        """Make the files of a transaction, which are closed."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections. Later calls open them again when needed. Idempotent."""
        self._locations.close()

    def _target(self, path: str, *, autocommit: bool) -> FileTarget:
        """Return the place of a new file, which appears when it is closed if `autocommit` is set."""
        target: FileTarget = self._locations.find(self._strip_protocol(path))
        return target

    def _bulk(self, batch_size: int | None) -> Bulk:
        return Bulk(
            self,
            self._locations,
            concurrency_of(batch_size or self.batch_size),
            in_groups=self._in_groups,
        )

    # status and listings

    def info(self, path: str, **kwargs: Any) -> Info:
        """Return the details of `path`: name, size, type, and what else is known of it.

        Raises `NotFound`, which is a `FileNotFoundError`; `TableNotFound` and `BucketNotFound` are not.
        """
        return self._locations.info(self._strip_protocol(path))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether a file or directory exists at `path`."""
        return self._locations.info_or_none(self._strip_protocol(path)) is not None

    def isdir(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        info = self._locations.info_or_none(self._strip_protocol(path))
        return info is not None and info["type"] == "directory"

    def isfile(self, path: str) -> bool:
        """Return whether `path` is a file."""
        info = self._locations.info_or_none(self._strip_protocol(path))
        return info is not None and info["type"] == "file"

    def modified(self, path: str) -> datetime:
        """Return the time of the last write. Changes in a directory do not modify the directory."""
        return self._time(path, "modified")

    def _time(self, path: str, which: str) -> datetime:
        info = self.info(path)
        if which not in info:
            raise InvalidPath("the list of namespaces has no time: name a namespace")
        time: datetime = info[which]
        return time

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Return the entries of a directory, sorted by the UTF-8 bytes of the name; of a file, itself.

        The root of the file system lists the namespaces. Names that are added, renamed or removed during
        the call may be included or not. Raises `NotFound`.
        """
        infos = self._locations.entries(self._strip_protocol(path))
        return infos if detail else [info["name"] for info in infos]

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], object] = "omit",
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield directories with their contents, as in fsspec.

        ``on_error="omit"`` skips directories that no longer exist; all other errors are raised.
        """
        handler = _omit_missing if on_error == "omit" else on_error
        yield from super().walk(path, maxdepth, topdown, handler, **kwargs)

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return all files below a path, as in fsspec; for a file, the file itself."""
        stripped = self._strip_protocol(path)
        if maxdepth is not None or not stripped:
            return super().find(stripped, maxdepth, withdirs, detail, **kwargs)
        found: dict[str, Info] = {}
        for info in self._locations.walk(stripped):
            # An object of a plain store may have the path of a directory.
            if info["type"] == "file" or (withdirs and info["name"] not in found):
                found[info["name"]] = info
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the total size of the files at and below a path, in bytes, or the size of each file."""
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    # open files

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file, as fsspec does.

        Args:
            path: the path of the file.
            mode: ``r``, ``w`` (replaces a file) or ``x`` (the file must be new), with ``b`` for bytes.
                Missing parent directories are made together with the file. Files are written once, so
                there is no mode for appending.
            block_size: the minimum number of bytes to read.
            cache_options: options of the read cache, which belongs to this file alone.
            compression: a name that fsspec knows, or "infer".
            kwargs: `cache_type`, and ``encoding``, ``errors``, ``newline`` for text.

        Raises `NotFound`, `IsADirectory`, `NotADirectory`, `AlreadyExists`, `NotSupported` for other
        modes of Python, and `ConfigurationError`, which is a `ValueError`, for an invalid mode.
        """
        mode, is_text = parse_mode(mode)
        text: dict[str, Any] | None = None
        if is_text:
            text = {
                name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs
            }
        file = super().open(path, mode, block_size=block_size, cache_options=cache_options, **kwargs)
        try:
            return wrap(file, self._strip_protocol(path), mode, compression, text)
        except BaseException:
            file.discard()  # the caller does not get it, and cannot close it
            raise

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        cache_type: str = "readahead",
        **kwargs: Any,
    ) -> ReadFile | WriteFile:
        if mode == "rb":
            opened = self._locations.open(path)
            return ReadFile(
                self,
                path,
                opened,
                self._locations.details(path, opened),
                block_size=block_size or self.blocksize,
                cache_type=cache_type,
                cache_options=cache_options,
            )
        if mode not in ("wb", "xb"):
            raise NotSupported(
                f"{path!r} cannot be opened with mode {mode!r}: a file is written once. Write a new"
                " file, or replace the whole file"
            )
        target = self._target(path, autocommit=autocommit)
        return WriteFile(self, path, mode, target, autocommit=autocommit)

    # one file

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """Return the bytes of a file, or a slice of them. Negative numbers count from the end.

        Raises `NotFound`, and `PreconditionFailed` if the file was replaced meanwhile and the version
        that was opened is gone.
        """
        return self._locations.read(self._strip_protocol(path), start, end)

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **kwargs: Any,
    ) -> None:
        """Download a file, or make a local directory if `rpath` is one.

        Args:
            rpath: the file or directory.
            lpath: the local path, or an open file.
            callback: gets the size and the progress in bytes.
            outfile: an open file to write to, instead of `lpath`.

        Missing parent directories are made. If the download fails, no partial file remains.
        """
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        found = self._locations.open_blocks(self._strip_protocol(rpath), self.blocksize)
        if found is None:
            if outfile is not None:
                raise IsADirectory(f"{rpath!r} is a directory and cannot be read into a file")
            os.makedirs(lpath, exist_ok=True)
            return
        opened, blocks = found
        with contextlib.closing(blocks):
            callback.set_size(opened.size)
            with new_local_file(lpath) if outfile is None else nullcontext(outfile) as target:
                for block in blocks:
                    callback.relative_update(write_block(target, block))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Make a file from bytes. With mode "create" it must be new (else `AlreadyExists`)."""
        check_bytes(path, value)
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
            return
        self._locations.write(self._strip_protocol(path), value, overwrite=mode != "create")

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
        opened = self._locations.open_unless_directory(self._strip_protocol(path1))
        if opened is None:
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path2, "wb") as file:
            file.copy(opened, self._locations.find(self._strip_protocol(path1)))

    # many files

    def cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        *,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the bytes of a file; for a list, pattern or directory, a dictionary by path.

        Args:
            path, recursive: see fsspec.
            on_error: "raise" raises the first error; "return" returns errors in place of bytes; "omit"
                leaves these files out.
            batch_size: the number of files that are read concurrently.
            kwargs: ``start`` and ``end``, as in `cat_file`.
        """
        plan = plan_call(self, "cat", path, recursive=recursive, **kwargs)
        if plan.returned is None:
            return self.cat_file(path, **kwargs)
        paths = [each for (each,) in plan.pairs if not (recursive and each in plan.directories)]
        found = self._bulk(batch_size).cat(paths, **kwargs)
        if on_error == "return":
            return found
        errors = [each for each in found.values() if isinstance(each, Exception)]
        if errors and on_error == "raise":
            raise errors[0]
        return {each: outcome for each, outcome in found.items() if not isinstance(outcome, Exception)}

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        *,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Return slices of files, read concurrently. All slices of a file are of the same version.

        Args:
            paths: the path of the file of each slice.
            starts, ends: as in `cat_file`; one number for all slices, or a list with one for each.
            max_gap: ignored, because each slice is read with its own request.
            on_error: "return" returns errors in place of slices; otherwise the first error is raised.
            batch_size: the number of slices that are read concurrently.
        """
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts, ends = (
            each if isinstance(each, list) else [each] * len(paths) for each in (starts, ends)
        )
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends differ in number")
        stripped = [self._strip_protocol(path) for path in paths]
        found = self._bulk(batch_size).cat_ranges(list(zip(stripped, starts, ends, strict=True)))
        errors = [each for each in found if isinstance(each, Exception)]
        if errors and on_error != "return":
            raise errors[0]
        return found

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        *,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Download files, with fsspec's rules for target paths. Downloaded files stay after an error.

        Args:
            rpath, lpath, recursive, maxdepth: see fsspec.
            callback: updated for each downloaded file, and branched to count its bytes. Only one thread
                calls it at a time.
            batch_size: the number of concurrent files.
        """
        plan = plan_call(self, "get", rpath, lpath, recursive=recursive, maxdepth=maxdepth, **kwargs)
        self._bulk(batch_size).get(plan, callback)

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
            check_bytes(name, each)
        stripped = {self._strip_protocol(name): each for name, each in values.items()}
        self._bulk(batch_size).pipe(stripped, mode)

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
            batch_size: the number of concurrent files.
            mode: "create": all files must be new.
        """
        plan = plan_call(self, "put", lpath, rpath, recursive=recursive, maxdepth=maxdepth, **kwargs)
        self._bulk(batch_size).put(plan, mode, callback)

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
            batch_size: the number of concurrent files.
        """
        plan = plan_call(self, "copy", path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
        ignore_missing = on_error == "ignore" or (on_error is None and recursive)
        self._bulk(batch_size).copy(plan, ignore_missing=ignore_missing)


def _omit_missing(error: OSError) -> None:
    if not isinstance(error, NotFound):
        raise error
