"""Reading of one or many files: methods of the file system that need no write permission."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, BinaryIO, TypeVar

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.utils import isfilelike

from commitlog.errors import IsADirectory
from commitlog.filesystem.bulk import Batch, files_at_a_time, planned
from commitlog.filesystem.files import blocks_of
from commitlog.filesystem.looking import Looking
from commitlog.namespace import OpenFile

__all__ = ["Reading"]

A = TypeVar("A")
R = TypeVar("R")


class Reading(Looking):
    """The methods of `CommitlogFileSystem` that read files without opening them."""

    batch_size: int

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """Return the bytes of a file, or a slice of them. Negative numbers count from the end.

        Raises `NotFound`, `IsADirectory`, `ObjectChanged`.
        """
        return _slice_of(self._opened(self._strip_protocol(path)), start, end)

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
        opened = self._opened_unless_directory(rpath)
        if opened is None:
            if outfile is not None:
                raise IsADirectory(f"{rpath!r} is a directory, and goes into no file")
            os.makedirs(lpath, exist_ok=True)
            return
        callback.set_size(opened.status.size)
        with _local(lpath) if outfile is None else nullcontext(outfile) as target:
            for block in blocks_of(opened, self.blocksize):
                target.write(block)
                callback.relative_update(len(block))

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
        """Download files, with fsspec's rules for target paths.

        Args:
            rpath, lpath, recursive, maxdepth: see fsspec.
            callback: updated for each downloaded file, and branched to count its bytes. Only one thread
                calls it at a time.
            batch_size: the number of concurrent files; -1: all, up to 128.

        When a file fails, no other is started, files in progress are cancelled, and the error is raised
        with a note of the state. Downloaded files stay.
        """
        plan = planned(self, "get", rpath, lpath, recursive=recursive, maxdepth=maxdepth, **kwargs)
        batch = Batch(
            {local: remote for remote, local in plan.pairs},
            "read",
            at_once=self._at_a_time(batch_size),
            callback=callback,
        )

        def read(local: Any, remote: str, told: Callback) -> None:
            if remote in plan.directories:
                os.makedirs(local, exist_ok=True)
            else:
                self.get_file(remote, local, callback=told)

        batch.run(read)

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
            batch_size: the number of files that are read concurrently; -1: all, up to 128.
            kwargs: ``start`` and ``end``, as in `cat_file`.
        """
        plan = planned(self, "cat", path, recursive=recursive, **kwargs)
        if plan.returned is None:
            return self.cat_file(path, **kwargs)
        paths = [each for (each,) in plan.pairs if not (recursive and each in plan.directories)]
        outcomes = _at_once(partial(self.cat_file, **kwargs), paths, self._at_a_time(batch_size))
        found = dict(zip(paths, outcomes, strict=True))
        if on_error == "return":
            return found
        if on_error == "raise":
            _raise_first(found.values())
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
            batch_size: the number of slices that are read concurrently; -1: all, up to 128.
        """
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts, ends = (
            each if isinstance(each, list) else [each] * len(paths) for each in (starts, ends)
        )
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends differ in number")
        stripped = [self._strip_protocol(path) for path in paths]
        distinct = list(dict.fromkeys(stripped))
        threads = self._at_a_time(batch_size)
        opened = dict(zip(distinct, _at_once(self._opened, distinct, threads), strict=True))
        slices = [
            (opened[path], start, end) for path, start, end in zip(stripped, starts, ends, strict=True)
        ]
        found = _at_once(_slice_of_all, slices, threads)
        if on_error != "return":
            _raise_first(found)
        return found

    def _opened(self, path: str) -> OpenFile:
        place = self._mounts.place(path)
        return place.namespace.open(place.path)

    def _opened_unless_directory(self, path: str) -> OpenFile | None:
        stripped = self._strip_protocol(path)
        if not stripped:
            return None
        try:
            return self._opened(stripped)
        except IsADirectory:
            return None

    def _at_a_time(self, batch_size: int | None) -> int:
        return files_at_a_time(batch_size or self.batch_size)


def _slice_of(opened: OpenFile, start: int | None, end: int | None) -> bytes:
    first, last, _ = slice(start, end).indices(opened.status.size)
    return opened.read(first, last) if first < last else b""


def _slice_of_all(wanted: tuple[OpenFile | Exception, int | None, int | None]) -> bytes:
    opened, start, end = wanted
    if isinstance(opened, Exception):
        raise opened
    return _slice_of(opened, start, end)


def _raise_first(outcomes: Iterable[object]) -> None:
    for each in outcomes:
        if isinstance(each, Exception):
            raise each


@contextmanager
def _local(path: str) -> Iterator[BinaryIO]:
    """Open a local file for writing. Remove the incomplete file after an error."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "wb") as target:
        try:
            yield target
        except BaseException:
            if os.path.isfile(path):
                os.unlink(path)
            raise


def _at_once(call: Callable[[A], R], arguments: Sequence[A], threads: int) -> list[R | Exception]:
    """Call `call` for each argument; return each result or exception."""

    def attempt(argument: A) -> R | Exception:
        try:
            return call(argument)
        except Exception as error:
            return error

    if len(arguments) < 2:
        return [attempt(argument) for argument in arguments]
    with ThreadPoolExecutor(min(len(arguments), threads), "commitlog-cat") as executor:
        return list(executor.map(attempt, arguments))
