"""What a source hands out: versions of objects, slices of them, and partitions of these.

Plain data that travels between driver and executors. Imports the ground floor and the port's records.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen, validators

from commitlog.oplog.fields import count, items, moment, text
from commitlog.stores.api import ObjectInfo

__all__ = ["File", "Partition", "Slice"]


@frozen
class File:
    """One version of one object, as it was listed.

    Attributes:
        path: its path in the store.
        etag: its entity tag as the store gives it.
        size: bytes.
        modified: epoch seconds by the store's clock.
    """

    path: str
    etag: str
    size: int
    modified: float

    @classmethod
    def of(cls, info: ObjectInfo) -> File:
        """Return the file that a listing tells of."""
        return cls(info.path, info.etag, info.size, float(info.last_modified))

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [self.path, self.etag, self.size, self.modified]

    @classmethod
    def from_json(cls, value: object) -> File:
        """Return the file that `value` describes; for use in `commitlog.oplog.fields.build`."""
        name, etag, size, modified = items(value)
        # Not only what `check_path` allows: other tools make keys such as "a//b".
        return cls(text(name), text(etag), count(size), moment(modified))


@frozen
class Slice:
    """A range of bytes of a file.

    Who reads text takes the records that *begin* in the range, the first byte of a record being the one
    behind a line's end; who reads a format with parts, such as row groups, those parts that begin there.

    Attributes:
        file: of which file.
        start, end: from which byte, and up to which one.
        skip: how many of its records were delivered before.
    """

    file: File
    start: int = field(validator=validators.ge(0))
    end: int
    skip: int = field(default=0, validator=validators.ge(0))

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start

    @property
    def whole(self) -> bool:
        """True if it is all of its file."""
        return self.start == 0 and self.end == self.file.size

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [self.file.to_json(), self.start, self.end, self.skip]

    @classmethod
    def from_json(cls, value: object) -> Slice:
        """Return the slice that `value` describes; for use in `commitlog.oplog.fields.build`."""
        file, start, end, skip = items(value)
        return cls(File.from_json(file), count(start), count(end), count(skip))


@frozen
class Partition:
    """What one task reads.

    Attributes:
        epoch: the epoch that it is a part of.
        slices: in the order in which they are read.
    """

    epoch: int
    slices: tuple[Slice, ...]
