"""Building of an epoch: adds slices up to the limits, and cuts files to fit."""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen, validators

from commitlog.ingest.files import File, Slice
from commitlog.ingest.quarantine import InputProblem
from commitlog.ingest.rows import MAX_LIST_BYTES, ROW_BYTES, FileEntry

__all__ = ["EpochBuilder", "Limits"]

#: Most bytes of a slice in a row, as JSON.
_SLICE_LIST_BYTES = 64


@frozen(kw_only=True)
class Limits:
    """Limits of one epoch.

    Attributes:
        files: most files.
        bytes: most bytes, or None. The first slice always fits, whatever its size.
    """

    files: int = field(validator=validators.ge(1))
    bytes: int | None = field(default=None, validator=validators.optional(validators.ge(1)))


class EpochBuilder:
    """Collects the entries of one epoch, and of files to remember without reading. Not thread-safe.

    Args:
        limits: limits of the epoch.
        slice_bytes: size of the slices of files that can be split.
        splits: returns whether the file at a path can be split.
        list_bytes: most bytes of all entries in the rows, before compression.

    Attributes:
        entries: pairs of an entry and whether it is recent, in the order of the calls.
        finished: files whose last slice was added, or a slice that is retried.
        undelivered: problems of listed files, whose slices must be handed out before.
        files: number of files with something to read.
        bytes: number of bytes to read.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        slice_bytes: int,
        splits: Callable[[str], bool],
        list_bytes: int = MAX_LIST_BYTES,
    ) -> None:
        self.entries: list[tuple[FileEntry, bool]] = []
        self.finished: list[File] = []
        self.undelivered: list[InputProblem] = []
        self.files = 0
        self.bytes = 0
        self._limits = limits
        # An epoch takes at least one slice of a file.
        self._slice_bytes = slice_bytes if limits.bytes is None else min(slice_bytes, limits.bytes)
        self._splits = splits
        self._list_bytes = 0
        self._most_list_bytes = list_bytes

    @property
    def full(self) -> bool:
        """True if no further file fits."""
        return self.files >= self._limits.files or self._left() <= 0

    def add(self, what: Slice, *, recent: bool = False, cut: bool = True) -> Slice | None:
        """Add as much of a slice as fits.

        Args:
            what: the slice; a whole file is one slice.
            recent: whether to remember the file.
            cut: whether the slice may be cut into smaller ones.

        Returns:
            The part that did not fit: None if all of it fits, `what` if nothing fits.
        """
        entry = FileEntry(what.file)
        # A file with more slices than a row holds continues in the next epoch.
        room = min(self._most_list_bytes - self._list_bytes, ROW_BYTES) - entry.list_bytes
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
        self._append(FileEntry(what.file, tuple(cuts)), recent)
        self.files += 1
        self.bytes += at - what.start
        if at != what.end:
            return Slice(what.file, at, what.end)
        self.finished.append(what.file)
        return None

    def remember(self, file: File) -> bool:
        """Add a file to remember without reading it; return False if there is no room."""
        entry = FileEntry(file)
        if self._list_bytes + entry.list_bytes > self._most_list_bytes:
            return False
        self._append(entry, True)
        return True

    def _append(self, entry: FileEntry, recent: bool) -> None:
        self.entries.append((entry, recent))
        self._list_bytes += entry.list_bytes

    def _left(self) -> int:
        # Without a limit, every size fits.
        most = 2**63 if self._limits.bytes is None else self._limits.bytes
        return most - self.bytes
