"""Rows of files: what the epochs of a source consist of, and what it remembers.

A row holds up to some thousand entries, compressed, under ``epoch/<epoch>/<revision>/<number>``. All
rows of one revision are written in one transaction with the list row of that revision, so a row that is
there counts. Entries with slices make up the epoch; every entry of a row that is *recent* is remembered
until the grace window has passed over it. Imports its siblings, the codec and the `Table` port.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from commitlog.errors import CorruptRecord
from commitlog.ingest.files import File, Slice
from commitlog.ingest.head import place_of
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.fields import build, count, items
from commitlog.tables.api import Item

__all__ = ["MAX_LIST_BYTES", "ROWS", "Entry", "Row", "encoded", "epoch_prefix"]

#: Most bytes of JSON in one row, and in all rows of one transaction: DynamoDB takes 400 KiB an item and
#: 4 MiB a transaction, and compression cannot be relied on.
_ROW_BYTES = 256 * 1024
MAX_LIST_BYTES = 3 * 1024 * 1024

#: What the range keys of all rows begin with.
ROWS = "epoch/"

_KIND = "ingest-files"


@frozen
class Entry:
    """A file, and what of it an epoch hands out.

    Attributes:
        file: the file.
        slices: start, end and skip of each slice; empty if it is only remembered.
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
    def from_json(cls, value: object) -> Entry:
        """Return the entry that `value` describes; for use in `commitlog.oplog.fields.build`."""
        *file, slices = items(value)
        return cls(File.from_json(file), tuple(_three(each) for each in items(slices)))

    @property
    def list_bytes(self) -> int:
        """Bytes that it takes up in a row, before compression, or a few more."""
        return len(json.dumps(self.to_json(), ensure_ascii=False).encode()) + 1


def _three(value: object) -> tuple[int, int, int]:
    start, end, skip = items(value)
    return count(start), count(end), count(skip)


def epoch_prefix(epoch: int) -> str:
    """Return what the range keys of all rows of an epoch begin with."""
    return f"{ROWS}{epoch:020d}/"


@frozen
class Row:
    """A stored row.

    Attributes:
        range: its range key.
        epoch: the epoch under which it was written.
        revision: the revision of the list row that it was written with.
        of: how many rows were written with that revision.
        recent: whether its entries are remembered.
        entries: its entries.
    """

    range: str
    epoch: int
    revision: int
    of: int
    recent: bool
    entries: tuple[Entry, ...]

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
    def from_item(cls, item: Item) -> Row:
        """Return the row that `item` holds. Raises `CorruptRecord`, `FormatTooNew`."""
        range, recent, of, body = (item.get(name) for name in ("item", "recent", "of", "body"))
        place = place_of(item)
        if not isinstance(recent, bool) or type(of) is not int or not isinstance(body, bytes):
            raise CorruptRecord(f"{place!r} is no row of files")
        try:
            data = zlib.decompress(body)
            epoch, revision, _ = map(int, str(range).removeprefix(ROWS).split("/"))
        except (zlib.error, ValueError):
            raise CorruptRecord(f"{place!r} is no row of files") from None
        document = decode(data, {_KIND}, path=place)
        entries = build(
            document, lambda: tuple(Entry.from_json(each) for each in items(document.body["entries"]))
        )
        return cls(str(range), epoch, revision, of, recent, entries)


def encoded(epoch: int, revision: int, entries: Iterable[tuple[Entry, bool]]) -> list[Row]:
    """Return rows of all entries, each with whether it is recent.

    No row has entries of both kinds, and those of a row that is remembered are in the order of their
    paths, as what lies close together in a listing can be forgotten together.
    """
    chunks: list[tuple[bool, tuple[Entry, ...]]] = []
    gathered: dict[bool, list[Entry]] = {False: [], True: []}
    sizes = {False: 0, True: 0}

    def flush(recent: bool) -> None:
        if gathered[recent]:
            chunks.append((recent, tuple(gathered[recent])))
            gathered[recent], sizes[recent] = [], 0

    for entry, recent in entries:
        size = entry.list_bytes
        last = gathered[recent][-1:]
        back = recent and last and entry.file.path < last[0].file.path
        if back or sizes[recent] + size > _ROW_BYTES:
            flush(recent)
        gathered[recent].append(entry)
        sizes[recent] += size
    flush(False)
    flush(True)
    prefix = f"{epoch_prefix(epoch)}{revision:020d}/"
    return [
        Row(f"{prefix}{number:05d}", epoch, revision, len(chunks), recent, chunk)
        for number, (recent, chunk) in enumerate(chunks)
    ]
