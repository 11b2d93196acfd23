"""Cache of the files that a source remembers, in the driver's memory: about 200 bytes each.

It mirrors the rows in the state table. An update reads only the rows that were added since.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import struct
import zlib

from attrs import define, field

from commitlog.ingest.files import File
from commitlog.ingest.quarantine import InputProblem
from commitlog.ingest.rows import FilesRow
from commitlog.ingest.watermarks import Watermarks

__all__ = ["Seen", "SeenFiles"]

_VALUE = struct.Struct("<8sdI?")


class Seen(enum.Enum):
    """Answers of `SeenFiles.look` about a listed file."""

    #: The file is new, or its other version was skipped.
    NO = "no"
    #: This version was handed out.
    YES = "yes"
    #: The same content was handed out, and was written again since.
    AGAIN = "again"
    #: Another version was handed out.
    OTHER = "other"


@define
class _Recent:
    """A remembered row. Its paths and times are compressed because they are rarely read."""

    number: int
    epoch: int
    size: int
    first: str
    last: str
    newest: float
    packed: bytes
    _failed: tuple[float, float] | None = None

    @classmethod
    def of(cls, row: FilesRow, number: int) -> _Recent:
        """Return the summary of a row."""
        files = [entry.file for entry in row.entries]
        paths = [file.path for file in files]
        newest = max(file.modified for file in files)
        packed = zlib.compress(json.dumps([(file.path, file.modified) for file in files]).encode())
        return cls(number, row.epoch, len(files), min(paths), max(paths), newest, packed)

    def below(self, watermarks: Watermarks) -> bool:
        """Return whether all files of the row are below the watermarks."""
        # Watermarks rise with the paths.
        lowest, highest = watermarks.of(self.first), watermarks.of(self.last)
        if self.newest < lowest or self.newest >= highest or (lowest, highest) == self._failed:
            return self.newest < lowest
        files = json.loads(zlib.decompress(self.packed))
        if all(modified < watermarks.of(path) for path, modified in files):
            return True
        self._failed = (lowest, highest)
        return False


@define
class SeenFiles:
    """The remembered files of one source. Not thread-safe.

    Attributes:
        revision: the revision of the state row up to which all rows are included.
        last: the range key of the last included row.
        born: the id under which the state was created that has the rows.
        checked: the epoch up to which all problems are included; those of this epoch may be missing.
    """

    revision: int = 0
    last: str = ""
    born: str = field(default="", kw_only=True)
    checked: int = field(default=0, kw_only=True)
    # Stored rows by range key, in the order of their epochs. `_done`: rows that are not recent, with
    # their epoch. `_recent`: the others.
    _done: dict[str, int] = field(factory=dict)
    _recent: dict[str, _Recent] = field(factory=dict)
    # Digest of the path -> digest of the etag, modification time, number of the row, and whether the
    # file was handed out. A path has up to 1 KiB.
    _known: dict[bytes, bytes] = field(factory=dict)
    # Path and etag of each version with a slice that was left out -> the problems of its slices.
    _problems: dict[tuple[str, str], set[InputProblem]] = field(factory=dict)
    _rows: int = 0  # total number of added rows
    _stale: int = 0  # upper bound of the number of entries from removed rows

    def __len__(self) -> int:
        return len(self._known)

    def add(self, row: FilesRow) -> None:
        """Add a row. Call it in the order of the rows' keys, which is the order of their writing."""
        self.last = max(self.last, row.range)
        if not row.recent:
            self._done[row.range] = row.epoch
            return
        self._rows += 1
        self._recent[row.range] = _Recent.of(row, self._rows)
        for entry in row.entries:
            file = entry.file
            value = _VALUE.pack(_short(file.etag), file.modified, self._rows, bool(entry.slices))
            self._known[_digest(file.path)] = value

    def look(self, file: File, *, watermark: float = -math.inf) -> Seen:
        """Return whether this or another version of `file` was handed out.

        A version that was modified before `watermark`, that of the path, is forgotten, though it may
        still be in memory.
        """
        value = self._known.get(_digest(file.path))
        if value is None:
            return Seen.NO
        etag, modified, _, handed_out = _VALUE.unpack(value)
        if modified < watermark:
            return Seen.NO
        if etag != _short(file.etag):
            return Seen.OTHER if handed_out else Seen.NO
        return Seen.AGAIN if file.modified > modified else Seen.YES

    @property
    def oldest(self) -> int | None:
        """The first epoch with remembered files; None if there are none."""
        return next((row.epoch for row in self._recent.values()), None)

    def add_problem(self, problem: InputProblem) -> None:
        """Add a problem, which may be known already."""
        if problem.may_come_back and not problem.retried:
            self._problems.setdefault(_version(problem.slice.file), set()).add(problem)

    def undelivered(self, file: File, *, watermark: float = -math.inf) -> list[InputProblem]:
        """Return the problems of slices of a listed file, whose remembered version is this one.

        Only those since it was handed out: later, the same content may have come as a new version.
        """
        problems = self._problems.get(_version(file))
        if not problems or self.look(file, watermark=watermark) not in (Seen.YES, Seen.AGAIN):
            return []
        _, _, number, _ = _VALUE.unpack(self._known[_digest(file.path)])
        since = next((row.epoch for row in self._recent.values() if row.number == number), math.inf)
        return [problem for problem in problems if problem.epoch >= since]

    def close(self, problem: InputProblem) -> None:
        """Remove a problem whose slice is handed out again."""
        self._problems[_version(problem.slice.file)].discard(problem)

    def removable(self, epoch: int, watermarks: Watermarks, most: int) -> list[str]:
        """Return up to `most` rows of epochs up to `epoch` whose files are all below the watermarks."""
        found = [range for range, written in self._done.items() if written <= epoch]
        for range, row in self._recent.items():
            if row.epoch > epoch or len(found) >= most:
                break
            if row.below(watermarks):
                found.append(range)
        return found[:most]

    def forget(self, ranges: list[str]) -> None:
        """Forget removed rows. Their files are forgotten later, many at a time."""
        for range in ranges:
            if self._done.pop(range, None) is None:
                self._stale += self._recent.pop(range).size
        # Rarely, and all at once: a file that is remembered for too long does no harm.
        if self._stale > len(self._known) // 4:
            self._stale = 0
            rows = {row.number for row in self._recent.values()}
            self._known = {
                path: value for path, value in self._known.items() if _VALUE.unpack(value)[2] in rows
            }
            oldest = self.oldest or math.inf
            self._problems = {
                version: problems
                for version, problems in self._problems.items()
                if any(problem.epoch >= oldest for problem in problems)
            }


def _version(file: File) -> tuple[str, str]:
    return file.path, file.etag.strip('"')


def _digest(path: str) -> bytes:
    return hashlib.blake2b(path.encode(), digest_size=16).digest()


def _short(etag: str) -> bytes:
    return hashlib.blake2b(etag.strip('"').encode(), digest_size=8).digest()
