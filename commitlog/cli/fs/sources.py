"""The sources of a copy: files and directories, local or in a namespace."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from attrs import frozen

from commitlog.cli.exit_status import FailureCollector
from commitlog.cli.fs.paths import Match
from commitlog.cli.progress import effort_of
from commitlog.transfer import NamespacePath, read_blocks

if TYPE_CHECKING:
    from commitlog.namespace import Namespace

__all__ = ["SourceItem", "TreeSource", "local_source", "namespace_source", "read_file", "standard_input"]

#: The number of bytes that are read at a time from a local file.
_LOCAL_BLOCK_SIZE = 1024 * 1024


@frozen(kw_only=True)
class SourceItem:
    """A file or directory of a source.

    Attributes:
        path: the path relative to the top of the source; "" for the top itself.
        name: the name in messages.
        blocks: opens the file and yields its content; None for a directory. The caller closes the
            generator.
        origin: the path in a namespace; None for a local file.
    """

    path: str
    name: str
    blocks: Callable[[], Generator[bytes]] | None = None
    origin: NamespacePath | None = None


@frozen(kw_only=True)
class TreeSource:
    """A file, or a directory with its contents.

    Attributes:
        name: the name in messages.
        target_name: the name in a target directory; "" if it has none, or if only the contents are
            copied.
        is_directory: whether it is a directory.
        items: yields the files and directories of the source, each directory before its contents.
        effort: returns the amount of work; reads the whole source for that.
        files: yields one item for each file of the source.
    """

    name: str
    target_name: str
    is_directory: bool
    items: Callable[[], Iterator[SourceItem]]
    effort: Callable[[], int]
    files: Callable[[], Iterator[object]]


def standard_input() -> TreeSource:
    """Return standard input as a source of one file."""

    def blocks() -> Generator[bytes]:
        if sys.stdin is None:
            raise OSError(errno.EBADF, "standard input is closed")
        while block := sys.stdin.buffer.read(_LOCAL_BLOCK_SIZE):
            yield block

    return TreeSource(
        name="-",
        target_name="",
        is_directory=False,
        items=lambda: iter([SourceItem(path="", name="-", blocks=blocks)]),
        effort=lambda: 0,
        files=lambda: iter(["-"]),
    )


def local_source(path: str, failures: FailureCollector) -> TreeSource:
    """Return a local file or directory; "." and a path that ends in "/." stand for the contents.

    Entries that are neither files nor directories are added to `failures`, and so are links to
    directories, because they may lead anywhere. Raises `FileNotFoundError`.
    """
    os.stat(path)
    return TreeSource(
        name=path,
        target_name="" if os.path.basename(path) == "." else os.path.basename(os.path.abspath(path)),
        is_directory=os.path.isdir(path),
        items=lambda: _local_items(path, failures),
        effort=lambda: sum(
            effort_of(files=1, bytes=os.path.getsize(file)) for file in _local_files(path)
        ),
        files=lambda: _local_files(path),
    )


def _local_items(top: str, failures: FailureCollector) -> Iterator[SourceItem]:
    pending = [("", top)]
    while pending:
        path, file = pending.pop()
        if os.path.isdir(file) and (not path or not os.path.islink(file)):
            yield SourceItem(path=path, name=file)
            with failures.collect(file):
                names = sorted(os.listdir(file), reverse=True)
                pending += [(f"{path}/{name}".lstrip("/"), os.path.join(file, name)) for name in names]
        elif os.path.isfile(file) or not path:  # a pipe that the user names is read
            yield SourceItem(path=path, name=file, blocks=partial(_local_blocks, file))
        else:
            reason = "skipped: a link to a directory, a broken link, or not a file"
            failures.add(file, OSError(errno.EINVAL, reason, file))


def _local_blocks(path: str) -> Generator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_LOCAL_BLOCK_SIZE):
            yield block


def _local_files(top: str) -> Iterator[str]:
    if not os.path.isdir(top):
        yield top
        return
    for directory, _, names in os.walk(top):
        yield from filter(os.path.isfile, (os.path.join(directory, name) for name in names))


def namespace_source(top: Match) -> TreeSource:
    """Return a file or directory of a namespace as a source."""

    def effort() -> int:
        total = top.namespace.summary(top.path)
        return effort_of(files=total.files, bytes=total.bytes)

    return TreeSource(
        name=top.url,
        target_name=top.name or top.namespace.name,
        is_directory=top.is_directory,
        items=lambda: _namespace_items(top),
        effort=effort,
        files=lambda: (item for item in _namespace_items(top) if item.blocks is not None),
    )


def _namespace_items(top: Match) -> Iterator[SourceItem]:
    if top.is_directory:
        yield SourceItem(path="", name=top.url)
    for status in top.namespace.walk(top.path):
        origin = NamespacePath(namespace=top.namespace, path=status.path)
        yield SourceItem(
            path=status.path[len(top.path) :].lstrip("/"),
            name=origin.url,
            blocks=None if status.is_directory else partial(read_file, top.namespace, status.path),
            origin=origin,
        )


def read_file(
    namespace: Namespace,
    path: str,
    part: Callable[[int], tuple[int, int]] | None = None,
    *,
    ramp_up: bool = False,
) -> Generator[bytes]:
    """Yield the content of a file. All bytes are of one version, even if the file changes meanwhile.

    Args:
        namespace, path: the file.
        part: takes the size and returns the start and end of the bytes to read; by default all.
        ramp_up: as in `read_blocks`.
    """
    opened = namespace.open(path)
    start, end = (0, opened.data.size) if part is None else part(opened.data.size)
    yield from read_blocks(opened, start=start, end=end, ramp_up=ramp_up)
