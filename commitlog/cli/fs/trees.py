"""The sources of a copy: files and directories, local or in a namespace."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from attrs import frozen

from commitlog.cli.exit_status import Trials
from commitlog.cli.fs.paths import Found, Spot
from commitlog.cli.streams import PIECE
from commitlog.cli.transfer import effort
from commitlog.namespace import Namespace

__all__ = ["Piece", "Tree", "chunks_of", "directory_of", "local_tree", "remote_tree", "standard_input"]

#: The number of bytes that are read at a time from a local file.
_CHUNK = 1024 * 1024


@frozen(kw_only=True)
class Piece:
    """A file or directory of a tree.

    Attributes:
        path: the path relative to the top of the tree; "" for the top itself.
        shown: the name in messages.
        chunks: opens the file and yields its content; None for a directory.
        spot: the path in a namespace; None for a local file.
    """

    path: str
    shown: str
    chunks: Callable[[], Iterator[bytes]] | None = None
    spot: Spot | None = None


@frozen(kw_only=True)
class Tree:
    """A file, or a directory with its contents.

    Attributes:
        name: the name of the file or directory; "" if it has none, or if only its contents are copied.
        shown: the name in messages.
        is_directory: whether it is a directory.
        pieces: yields the files and directories of the tree, each directory before its contents.
        effort: returns the amount of work; reads the whole tree for that.
        files: yields one item for each file of the tree.
    """

    name: str
    shown: str
    is_directory: bool
    pieces: Callable[[], Iterator[Piece]]
    effort: Callable[[], int]
    files: Callable[[], Iterator[object]]


def standard_input() -> Tree:
    """Return standard input as a tree of one file."""

    def chunks() -> Iterator[bytes]:
        if sys.stdin is None:
            raise OSError(errno.EBADF, "standard input is closed")
        while chunk := sys.stdin.buffer.read(_CHUNK):
            yield chunk

    return Tree(
        name="",
        shown="-",
        is_directory=False,
        pieces=lambda: iter([Piece(path="", shown="-", chunks=chunks)]),
        effort=lambda: 0,
        files=lambda: iter(["-"]),
    )


def local_tree(path: str, trials: Trials) -> Tree:
    """Return a local file or directory; "." and a path that ends in "/." stand for the contents.

    Entries that are neither files nor directories are reported to `trials`, and so are links to
    directories, because they may lead anywhere. Raises `FileNotFoundError`.
    """
    os.stat(path)
    return Tree(
        name="" if os.path.basename(path) == "." else os.path.basename(os.path.abspath(path)),
        shown=path,
        is_directory=os.path.isdir(path),
        pieces=lambda: _local_pieces(path, trials),
        effort=lambda: sum(
            effort(files=1, bytes=os.path.getsize(place)) for place in _local_files(path)
        ),
        files=lambda: _local_files(path),
    )


def _local_pieces(top: str, trials: Trials) -> Iterator[Piece]:
    pending = [("", top)]
    while pending:
        path, place = pending.pop()
        if os.path.isdir(place) and (not path or not os.path.islink(place)):
            yield Piece(path=path, shown=place)
            with trials.of(place):
                names = sorted(os.listdir(place), reverse=True)
                pending += [(f"{path}/{name}".lstrip("/"), os.path.join(place, name)) for name in names]
        elif os.path.isfile(place) or not path:  # a pipe that the user names is read
            yield Piece(path=path, shown=place, chunks=partial(_local_chunks, place))
        else:
            reason = "left out: a link to a directory, a broken link, or no file"
            trials.failed(place, OSError(errno.EINVAL, reason, place))


def _local_chunks(place: str) -> Iterator[bytes]:
    with open(place, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _local_files(top: str) -> Iterator[str]:
    if not os.path.isdir(top):
        yield top
        return
    for directory, _, names in os.walk(top):
        yield from filter(os.path.isfile, (os.path.join(directory, name) for name in names))


def remote_tree(at: Found) -> Tree:
    """Return a file or directory of a namespace as a tree."""

    def all_effort() -> int:
        there = at.namespace.summary(at.path)
        return effort(files=there.files, bytes=there.bytes)

    return Tree(
        name=at.name or at.namespace.name,
        shown=at.url,
        is_directory=at.is_directory,
        pieces=lambda: _remote_pieces(at),
        effort=all_effort,
        files=lambda: (piece for piece in _remote_pieces(at) if piece.chunks is not None),
    )


def _remote_pieces(at: Found) -> Iterator[Piece]:
    if at.is_directory:
        yield Piece(path="", shown=at.url)
    for status in at.namespace.walk(at.path):
        spot = Spot(namespace=at.namespace, path=status.path)
        yield Piece(
            path=status.path[len(at.path) :].lstrip("/"),
            shown=spot.url,
            chunks=None if status.is_directory else partial(chunks_of, at.namespace, status.path),
            spot=spot,
        )


def chunks_of(
    namespace: Namespace, path: str, part: Callable[[int], tuple[int, int]] | None = None
) -> Iterator[bytes]:
    """Yield the content of a file. All bytes are of one version, even if the file changes meanwhile.

    Args:
        namespace, path: the file.
        part: takes the size and returns the start and end of the bytes to read; by default all.
    """
    opened = namespace.open(path)
    begin, end = (0, opened.data.size) if part is None else part(opened.data.size)
    for start in range(begin, end, PIECE):
        yield opened.read(start, min(start + PIECE, end))


def directory_of(piece: Piece, trials: Trials) -> AbstractContextManager[None]:
    """Try to make a directory. If the top directory fails, its contents are not tried."""
    return trials.of(piece.shown, part=True) if piece.path else nullcontext()
