"""The files that a source remembers, in the driver's memory: about 200 bytes each.

It is what the rows in the state table say, and is brought up to date with those that were added since.
Imports its siblings.
"""

from __future__ import annotations

import enum
import hashlib
import json
import struct
import zlib

from attrs import define, field

from commitlog.ingest.files import File
from commitlog.ingest.floors import Floors
from commitlog.ingest.rows import Row

__all__ = ["Seen", "Window"]

_VALUE = struct.Struct("<8sdI")


class Seen(enum.Enum):
    """What is known of a file that was listed."""

    #: Nothing: it is new.
    NO = "no"
    #: This version was handed out.
    YES = "yes"
    #: The same content was handed out, and was put there again since.
    AGAIN = "again"
    #: Another version was handed out.
    OTHER = "other"


@define
class _Recent:
    """A row that is remembered. Its paths and times are packed, as they are looked at but seldom."""

    number: int
    epoch: int
    size: int
    first: str
    last: str
    newest: float
    packed: bytes
    _failed: tuple[float, float] | None = None

    @classmethod
    def of(cls, row: Row, number: int) -> _Recent:
        """Return what there is to know of a row."""
        files = [entry.file for entry in row.entries]
        paths = [file.path for file in files]
        newest = max(file.modified for file in files)
        packed = zlib.compress(json.dumps([(file.path, file.modified) for file in files]).encode())
        return cls(number, row.epoch, len(files), min(paths), max(paths), newest, packed)

    def below(self, floors: Floors) -> bool:
        """Tell whether all of it is known by its time."""
        # Floors rise with the paths.
        lowest, highest = floors.of(self.first), floors.of(self.last)
        if self.newest < lowest or self.newest >= highest or (lowest, highest) == self._failed:
            return self.newest < lowest
        files = json.loads(zlib.decompress(self.packed))
        if all(modified < floors.of(path) for path, modified in files):
            return True
        self._failed = (lowest, highest)
        return False


@define
class Window:
    """What is remembered of one source. Not thread-safe.

    Attributes:
        revision: the revision of the list row up to which all rows are in here.
        last: the range key of the last row that is in here.
    """

    revision: int = 0
    last: str = ""
    # Rows that are stored, by range key, in the order of their epochs: those that nothing is remembered
    # of with their epoch, and the others.
    _done: dict[str, int] = field(factory=dict)
    _recent: dict[str, _Recent] = field(factory=dict)
    # Digest of the path to digest of the etag, modification time and row: a path is up to 1 KiB.
    _known: dict[bytes, bytes] = field(factory=dict)
    _rows: int = 0  # rows that were added, ever
    _stale: int = 0  # at most so many entries are those of rows that were removed

    def __len__(self) -> int:
        return len(self._known)

    def add(self, row: Row) -> None:
        """Take in a row; rows come in the order of their keys, which is that of their writing."""
        self.last = max(self.last, row.range)
        if not row.recent:
            self._done[row.range] = row.epoch
            return
        self._rows += 1
        self._recent[row.range] = _Recent.of(row, self._rows)
        for file in (entry.file for entry in row.entries):
            value = _VALUE.pack(_short(file.etag), file.modified, self._rows)
            self._known[_digest(file.path)] = value

    def look(self, file: File) -> Seen:
        """Tell what is known of `file`."""
        value = self._known.get(_digest(file.path))
        if value is None:
            return Seen.NO
        etag, modified, _ = _VALUE.unpack(value)
        if etag != _short(file.etag):
            return Seen.OTHER
        return Seen.AGAIN if file.modified > modified else Seen.YES

    def removable(self, epoch: int, floors: Floors, most: int) -> list[str]:
        """Return up to `most` rows of epochs up to `epoch` of which all is below the floors."""
        found = [range for range, written in self._done.items() if written <= epoch]
        for range, row in self._recent.items():
            if row.epoch > epoch or len(found) >= most:
                break
            if row.below(floors):
                found.append(range)
        return found[:most]

    def forget(self, ranges: list[str]) -> None:
        """Drop rows that were removed, and in the long run what they remembered."""
        for range in ranges:
            if self._done.pop(range, None) is None:
                self._stale += self._recent.pop(range).size
        # All at once and seldom: what is known for too long does no harm.
        if self._stale > len(self._known) // 4:
            self._stale = 0
            rows = {row.number for row in self._recent.values()}
            self._known = {
                path: value for path, value in self._known.items() if _VALUE.unpack(value)[2] in rows
            }


def _digest(path: str) -> bytes:
    return hashlib.blake2b(path.encode(), digest_size=16).digest()


def _short(etag: str) -> bytes:
    return hashlib.blake2b(etag.strip('"').encode(), digest_size=8).digest()
