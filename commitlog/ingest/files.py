"""Files, slices and partitions: plain data that goes from the driver to executors."""

from __future__ import annotations

import json
from typing import Any

from attrs import field, frozen, validators

from commitlog.oplog.validate import count, items, moment, text
from commitlog.stores.api import ObjectInfo

__all__ = ["File", "Partition", "Slice"]


@frozen
class File:
    """One version of one object, from a listing.

    Attributes:
        path: path in the store.
        etag: entity tag as the store returns it.
        size: size in bytes.
        modified: modification time in epoch seconds, by the store's clock.
    """

    path: str
    etag: str
    size: int
    modified: float

    @classmethod
    def of(cls, info: ObjectInfo) -> File:
        """Return the file for an object in a listing."""
        return cls(info.path, info.etag, info.size, float(info.last_modified))

    @property
    def list_bytes(self) -> int:
        """Upper bound of its bytes in a row, before compression."""
        return len(json.dumps(self.to_json(), ensure_ascii=False).encode()) + 1

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [self.path, self.etag, self.size, self.modified]

    @classmethod
    def from_json(cls, value: object) -> File:
        """Return the file that `value` describes; for use in `commitlog.oplog.validate.build`."""
        name, etag, size, modified = items(value)
        # Do not apply `check_path`: other tools write keys such as "a//b".
        return cls(text(name), text(etag), count(size), moment(modified))


@frozen
class Slice:
    """A range of bytes of a file.

    A reader of text reads the records that *begin* in the range. A record begins at the first byte after
    a line end. A reader of a format with parts, such as row groups, reads the parts that begin there.

    Attributes:
        file: the file.
        start, end: the first byte, and the byte after the last one.
        skip: number of records of the slice that were delivered before.
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
        """True if the slice covers its whole file."""
        return self.start == 0 and self.end == self.file.size

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [self.file.to_json(), self.start, self.end, self.skip]

    @classmethod
    def from_json(cls, value: object) -> Slice:
        """Return the slice that `value` describes; for use in `commitlog.oplog.validate.build`."""
        file, start, end, skip = items(value)
        return cls(File.from_json(file), count(start), count(end), count(skip))


@frozen
class Partition:
    """The slices that one task reads.

    Attributes:
        epoch: the epoch that the partition belongs to.
        slices: the slices in reading order.
    """

    epoch: int
    slices: tuple[Slice, ...]
