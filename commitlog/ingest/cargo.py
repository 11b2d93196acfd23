"""An epoch in the making: what still fits, and how files are cut to fit.

Imports its siblings.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen, validators

from commitlog.ingest.files import File, Slice
from commitlog.ingest.rows import MAX_LIST_BYTES, Entry

__all__ = ["Cargo", "Limits"]

#: A slice in a row, as JSON, has at most so many bytes.
_SLICE_LIST_BYTES = 64


@frozen(kw_only=True)
class Limits:
    """How much one epoch may hold.

    Attributes:
        files: most files.
        bytes: most bytes, or None. The first slice fits however large it is.
    """

    files: int = field(validator=validators.ge(1))
    bytes: int | None = field(default=None, validator=validators.optional(validators.ge(1)))


class Cargo:
    """Entries of one epoch, and of files that are only to be remembered. Not thread-safe.

    Args:
        limits: how much it may hold.
        slice_bytes: size of slices, of files that can be split.
        splits: tells of a path whether the file can be split.

    Attributes:
        entries: each with whether it is recent, in the order in which they came.
        files: number of those that something is read of.
        bytes: bytes that are read.
    """

    def __init__(self, limits: Limits, *, slice_bytes: int, splits: Callable[[str], bool]) -> None:
        self.entries: list[tuple[Entry, bool]] = []
        self.files = 0
        self.bytes = 0
        self._limits = limits
        # A slice is the least that an epoch can hold of a file.
        self._slice_bytes = slice_bytes if limits.bytes is None else min(slice_bytes, limits.bytes)
        self._splits = splits
        self._list_bytes = 0

    @property
    def full(self) -> bool:
        """True if no file fits any more."""
        return self.files >= self._limits.files or self._left() <= 0

    def add(self, what: Slice, *, recent: bool = False, cut: bool = True) -> Slice | None:
        """Take as much of a slice as fits.

        Args:
            what: the slice; a file is a slice of all of it.
            recent: whether the file is to be remembered.
            cut: whether it may be cut into slices.

        Returns:
            What is left of it: None if nothing is, and all of it if nothing fits.
        """
        entry = Entry(what.file)
        room = MAX_LIST_BYTES - self._list_bytes - entry.list_bytes
        cuts: list[tuple[int, int, int]] = []
        at, skip, left = what.start, what.skip, self._left()
        splits = cut and what.size > self._slice_bytes and self._splits(what.file.path)
        while self.files < self._limits.files and room >= _SLICE_LIST_BYTES * (len(cuts) + 1):
            end = min(at + self._slice_bytes, what.end) if splits else what.end
            if end - at > left and (cuts or self.files):
                break
            cuts.append((at, end, skip))
            left -= end - at
            at = end
            if at == what.end:
                break
        if not cuts:
            return what
        self._append(Entry(what.file, tuple(cuts)), recent)
        self.files += 1
        self.bytes += at - what.start
        return None if at == what.end else Slice(what.file, at, what.end)

    def remember(self, file: File) -> bool:
        """Take a file that is only to be remembered; return False if there is no room."""
        entry = Entry(file)
        if self._list_bytes + entry.list_bytes > MAX_LIST_BYTES:
            return False
        self._append(entry, True)
        return True

    def _append(self, entry: Entry, recent: bool) -> None:
        self.entries.append((entry, recent))
        self._list_bytes += entry.list_bytes

    def _left(self) -> int:
        # Where there is no limit, nothing is too large.
        most = 2**63 if self._limits.bytes is None else self._limits.bytes
        return most - self.bytes
