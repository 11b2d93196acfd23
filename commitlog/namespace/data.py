"""What a file of a namespace knows of the object that has its content.

Imports the fields of records and the `ObjectStore` port.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from commitlog.oplog.fields import (
    count,
    flag,
    maybe_count,
    maybe_text,
    path,
    text,
)
from commitlog.stores.api import ObjectInfo, same_etag

__all__ = ["Data", "OddData", "data_of", "is_same", "modified_of"]


@frozen(kw_only=True)
class Data:
    """Where the content of a file is, and which content that is.

    Attributes:
        path: the object, in the store of the namespace.
        size: bytes.
        etag: as the store gave it; whoever reads compares it.
        version: the store's version id, or None.
        own: whether the namespace has written it, and removes it when nothing names it any more.
        stored: epoch second at which the store got it, by its own clock, rounded down, and not before
            1970 (see `modified_of`); None if it was not asked. It tells an object from one with the same
            content that came later.
    """

    path: str = field(converter=path)
    size: int = field(converter=count)
    etag: str = field(converter=text)
    version: str | None = field(default=None, converter=maybe_text)
    own: bool = field(default=True, converter=flag)
    stored: int | None = field(default=None, converter=maybe_count)

    @classmethod
    def of(cls, info: ObjectInfo) -> Data:
        """Return what an object is for a file, if it is somebody else's."""
        return cls(
            path=info.path,
            size=info.size,
            etag=info.etag,
            version=info.version,
            own=False,
            stored=_stored_of(info),
        )

    def is_still(self, info: ObjectInfo) -> bool:
        """Tell whether what the store has under the path is this content, and was not stored anew."""
        return is_same(self.etag, self.stored, info)

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [self.path, self.size, self.etag, self.version, self.own, self.stored]


@frozen(kw_only=True)
class OddData(Data):
    """An object under a path that is none here: there it is, but nothing can have it for content."""

    path: str = field(converter=text)


def data_of(
    where: object, size: object, etag: object, version: object, own: object, stored: object
) -> Data:
    """Return what `Data.to_json` returned, checked."""
    return Data(path=where, size=size, etag=etag, version=version, own=own, stored=stored)


def is_same(etag: str, stored: int | None, info: ObjectInfo) -> bool:
    """Tell whether what the store has is the object of that etag, and was not stored anew."""
    if not same_etag(etag, info.etag):
        return False
    return stored is None or _stored_of(info) <= stored


def modified_of(info: ObjectInfo) -> int:
    """Return the epoch millisecond at which an object was modified, and 0 if that was before 1970.

    Such dates are those of files from archives or devices without a clock, in local stores. They tell
    nothing, and no time that is stored here is negative.
    """
    return max(0, int(info.last_modified * 1000))


def _stored_of(info: ObjectInfo) -> int:
    return max(0, int(info.last_modified))
