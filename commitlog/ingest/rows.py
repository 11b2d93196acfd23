"""Rows of files in the state table: the contents of epochs, and the files that a source remembers.

A row holds up to some thousand entries, compressed, under ``epoch/<epoch>/<revision>/<number>``. One
transaction writes all rows of a revision and the state row of that revision, so every row that exists is
valid. Entries with slices make up the epoch. Every entry of a *recent* row is remembered until the grace
window has passed over it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from commitlog.errors import CorruptRecord
from commitlog.ingest.files import File, Slice
from commitlog.ingest.source_state import item_name
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.validate import build, count, items
from commitlog.tables.api import Item

__all__ = ["MAX_LIST_BYTES", "ROWS", "ROW_BYTES", "FileEntry", "FilesRow", "encoded", "epoch_prefix"]

#: Most bytes of JSON in one row, so also in one entry, and in all rows of one transaction, before
#: compression. DynamoDB allows 400 KiB for an item and 4 MiB for a transaction.
ROW_BYTES = 256 * 1024
MAX_LIST_BYTES = 3 * 1024 * 1024

#: Prefix of the range keys of all rows.
ROWS = "epoch/"

_KIND = "ingest-files"


@frozen
class FileEntry:
    """A file and its slices in an epoch.

    Attributes:
        file: the file.
        slices: start, end and skip of each slice; empty if the file is only remembered.
    """

    file: File
    slices: tuple[tuple[int, int, int], ...] = ()

    def to_slices(self) -> Iterator[Slice]:
        """Yield the slices."""
        for start, end, skip in self.slices:
            yield Slice(self.file, start, end, skip)

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [*self.file.to_json(), [list(each) for each in self.slices]]

    @classmethod
    def from_json(cls, value: object) -> FileEntry:
        """Return the entry that `value` describes; for use in `commitlog.oplog.validate.build`."""
        *file, slices = items(value)
        return cls(File.from_json(file), tuple(_three(each) for each in items(slices)))

    @property
    def list_bytes(self) -> int:
        """Upper bound of its bytes in a row, before compression."""
        return len(json.dumps(self.to_json(), ensure_ascii=False).encode()) + 1


def _three(value: object) -> tuple[int, int, int]:
    start, end, skip = items(value)
    return count(start), count(end), count(skip)


def epoch_prefix(epoch: int) -> str:
    """Return the prefix of the range keys of all rows of an epoch."""
    return f"{ROWS}{epoch:020d}/"


@frozen
class FilesRow:
    """A stored row.

    Attributes:
        range: its range key.
        epoch: the epoch in its range key.
        revision: the revision of the state row that was written with it.
        of: number of rows that were written with that revision.
        recent: whether its entries are remembered.
        entries: its entries.
    """

    range: str
    epoch: int
    revision: int
    of: int
    recent: bool
    entries: tuple[FileEntry, ...]

    def to_item(self, source: str) -> Item:
        """Return the row as a table item."""
        body = {"entries": [entry.to_json() for entry in self.entries]}
        return {
            "source": source,
            "item": self.range,
            "recent": self.recent,
            "of": self.of,
            "files": len(self.entries),
            "body": zlib.compress(encode(Document(_KIND, body))),
        }

    @classmethod
    def from_item(cls, item: Item) -> FilesRow:
        """Return the row that `item` holds. Raises `CorruptRecord`, `FormatTooNew`."""
        range, recent, of, body = (item.get(name) for name in ("item", "recent", "of", "body"))
        name = item_name(item)
        if not isinstance(recent, bool) or type(of) is not int or not isinstance(body, bytes):
            raise CorruptRecord(f"{name!r} is not a row of files")
        try:
            data = zlib.decompress(body)
            epoch, revision, _ = map(int, str(range).removeprefix(ROWS).split("/"))
        except (zlib.error, ValueError):
            raise CorruptRecord(f"{name!r} is not a row of files") from None
        document = decode(data, {_KIND}, path=name)
        entries = build(
            document,
            lambda: tuple(FileEntry.from_json(each) for each in items(document.body["entries"])),
        )
        return cls(str(range), epoch, revision, of, recent, entries)


def encoded(epoch: int, revision: int, entries: Iterable[tuple[FileEntry, bool]]) -> list[FilesRow]:
    """Return rows for `entries`, which are pairs of an entry and whether it is recent.

    A row is either recent or not. The entries of a recent row are sorted by path: neighbours in the
    listing can be forgotten together.
    """
    chunks: list[tuple[bool, tuple[FileEntry, ...]]] = []
    gathered: dict[bool, list[FileEntry]] = {False: [], True: []}
    sizes = {False: 0, True: 0}

    def flush(recent: bool) -> None:
        if gathered[recent]:
            chunks.append((recent, tuple(gathered[recent])))
            gathered[recent], sizes[recent] = [], 0

    for entry, recent in entries:
        size = entry.list_bytes
        last = gathered[recent][-1:]
        back = recent and last and entry.file.path < last[0].file.path
        if back or sizes[recent] + size > ROW_BYTES:
            flush(recent)
        gathered[recent].append(entry)
        sizes[recent] += size
    flush(False)
    flush(True)
    prefix = f"{epoch_prefix(epoch)}{revision:020d}/"
    return [
        FilesRow(f"{prefix}{number:05d}", epoch, revision, len(chunks), recent, chunk)
        for number, (recent, chunk) in enumerate(chunks)
    ]
