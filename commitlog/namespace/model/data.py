"""References from files of a namespace to the objects that hold their content."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from commitlog.oplog.validate import (
    count,
    flag,
    maybe_count,
    maybe_text,
    path,
    text,
)
from commitlog.stores.api import ObjectInfo, same_etag

__all__ = ["Data", "UnlinkableData", "data_of", "is_same", "modified_of"]


@frozen(kw_only=True)
class Data:
    """A reference to the content of a file: an object, and which version of it.

    Attributes:
        path: of the object, in the store of the namespace.
        size: bytes.
        etag: as the store gave it; readers compare it.
        version: the store's version id, or None.
        own: whether the namespace wrote the object, and so removes it once no file refers to it.
        stored: epoch second at which the store received it, by the store's clock, rounded down, and at
            least 0 (see `modified_of`); None if the store was not asked. It distinguishes the object
            from a later one with the same content.
    """

    path: str = field(converter=path)
    size: int = field(converter=count)
    etag: str = field(converter=text)
    version: str | None = field(default=None, converter=maybe_text)
    own: bool = field(default=True, converter=flag)
    stored: int | None = field(default=None, converter=maybe_count)

    @classmethod
    def of(cls, info: ObjectInfo) -> Data:
        """Return a reference to an object that the namespace does not own."""
        return cls(
            path=info.path,
            size=info.size,
            etag=info.etag,
            version=info.version,
            own=False,
            stored=_stored_of(info),
        )

    def matches(self, info: ObjectInfo) -> bool:
        """Return whether `info` is this object, and not one that was stored later."""
        return is_same(self.etag, self.stored, info)

    def to_json(self) -> list[Any]:
        """Return the fields in the stored form."""
        return [self.path, self.size, self.etag, self.version, self.own, self.stored]


@frozen(kw_only=True)
class UnlinkableData(Data):
    """An object whose path is not valid here. It can be listed, but no file can refer to it."""

    path: str = field(converter=text)


def data_of(
    where: object, size: object, etag: object, version: object, own: object, stored: object
) -> Data:
    """Return a `Data` from the list that `Data.to_json` returned, checked."""
    return Data(path=where, size=size, etag=etag, version=version, own=own, stored=stored)


def is_same(etag: str, stored: int | None, info: ObjectInfo) -> bool:
    """Return whether `info` has this etag, and was not stored later than `stored`."""
    if not same_etag(etag, info.etag):
        return False
    return stored is None or _stored_of(info) <= stored


def modified_of(info: ObjectInfo) -> int:
    """Return the epoch millisecond at which an object was modified; 0 if that was before 1970.

    Local stores have such dates: files from archives, or from devices without a clock. They carry no
    information, and stored times are never negative.
    """
    return max(0, int(info.last_modified * 1000))


def _stored_of(info: ObjectInfo) -> int:
    return max(0, int(info.last_modified))
