"""The files that a source remembers, in the driver's memory: about 200 bytes each.

It is derived from the rows in the state table, and brought up to date with those that were added since.
Imports its siblings.
"""

from __future__ import annotations

import enum
import hashlib
import struct

from attrs import define, field

from commitlog.ingest.files import File
from commitlog.ingest.rows import Row

__all__ = ["Seen", "Window"]

_VALUE = struct.Struct("<8sd")


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
class Window:
    """What is remembered of one source. Not thread-safe.

    Attributes:
        revision: the revision of the list row up to which all rows are in here.
        last: the range key of the last row that is in here.
    """

    revision: int = 0
    last: str = ""
    # Rows that are stored, by range key, in the order of their epochs: those that nothing is remembered
    # of with their epoch, the others with epoch, number of entries, and when the last was modified.
    _done: dict[str, int] = field(factory=dict)
    _recent: dict[str, tuple[int, int, float]] = field(factory=dict)
    # Digest of the path to digest of the etag and modification time: a path is up to 1 KiB.
    _known: dict[bytes, bytes] = field(factory=dict)
    _stale: int = 0  # at most so many of these need not be known any more

    def __len__(self) -> int:
        return len(self._known)

    def add(self, row: Row) -> None:
        """Take in a row; rows come in the order of their keys, which is that of their writing."""
        self.last = max(self.last, row.range)
        if row.newest is None:
            self._done[row.range] = row.epoch
            return
        self._recent[row.range] = (row.epoch, len(row.entries), row.newest)
        for entry in row.entries:
            self._known[_digest(entry.file.path)] = _value(entry.file)

    def look(self, file: File) -> Seen:
        """Tell what is known of `file`."""
        value = self._known.get(_digest(file.path))
        if value is None:
            return Seen.NO
        etag, modified = _VALUE.unpack(value)
        if etag != _short(file.etag):
            return Seen.OTHER
        return Seen.AGAIN if file.modified > modified else Seen.YES

    def removable(self, epoch: int, floor: float | None, most: int) -> list[str]:
        """Return up to `most` rows of epochs up to `epoch` that remember nothing from `floor` on."""
        found = [range for range, written in self._done.items() if written <= epoch]
        if floor is not None:
            for range, (written, _, newest) in self._recent.items():
                if written > epoch or len(found) >= most:
                    break
                if newest < floor:
                    found.append(range)
        return found[:most]

    def forget(self, ranges: list[str], floor: float | None) -> None:
        """Drop rows that were removed, and in the long run what was modified before `floor`."""
        for range in ranges:
            if self._done.pop(range, None) is None:
                self._stale += self._recent.pop(range)[1]
        # All at once and seldom: what is known for too long does no harm.
        if floor is not None and self._stale > len(self._known) // 4:
            self._stale = 0
            self._known = {
                path: value for path, value in self._known.items() if _VALUE.unpack(value)[1] >= floor
            }


def _digest(path: str) -> bytes:
    return hashlib.blake2b(path.encode(), digest_size=16).digest()


def _short(etag: str) -> bytes:
    return hashlib.blake2b(etag.strip('"').encode(), digest_size=8).digest()


def _value(file: File) -> bytes:
    return _VALUE.pack(_short(file.etag), file.modified)
