"""Results for callers: the status of files and directories, listings, summaries and differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import frozen

from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.records import Entry

__all__ = ["Difference", "Kind", "ListPage", "Status", "Summary"]

#: How the store differs from the table. missing: the object of a file is gone. changed: the object is
#: not the file's version. unknown: an object is no file. hidden: a tombstone hides an object or prefix.
Kind: TypeAlias = Literal["missing", "changed", "unknown", "hidden"]


@frozen(kw_only=True)
class Status:
    """The status of a file or directory at the time of the call.

    Attributes:
        path: relative to the root; "" for the root itself.
        entry: its record.
    """

    path: str
    entry: Entry

    @property
    def name(self) -> str:
        """The last name of the path; "" for the root."""
        return self.path.rpartition("/")[2]

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.entry.is_directory

    @property
    def id(self) -> str:
        """The permanent id, which stays the same after a rename; "" if the version is 0."""
        return self.entry.id

    @property
    def version(self) -> int:
        """The number of times it was written, including renames and changes of attributes.

        0 for an object that is only in the store, in a bound directory: see `Bindings.bind`.
        """
        return self.entry.version

    @property
    def size(self) -> int:
        """The size in bytes; 0 for a directory."""
        return 0 if self.entry.data is None else self.entry.data.size

    @property
    def data(self) -> Data | None:
        """The reference to the content; None for a directory."""
        return self.entry.data

    @property
    def etag(self) -> str | None:
        """The store's entity tag of the content; None for a directory."""
        return None if self.entry.data is None else self.entry.data.etag

    @property
    def binding(self) -> Binding | None:
        """The prefix of the store to which a directory is bound; None for most, and for files."""
        return self.entry.binding

    @property
    def created(self) -> int:
        """Epoch millisecond of creation, by the clock of the client that created it."""
        return self.entry.created

    @property
    def modified(self) -> int:
        """Epoch millisecond of its last content, or the time that `Namespace.set_attributes` has set."""
        return self.entry.modified

    @property
    def updated(self) -> int:
        """Epoch millisecond at which this version was written."""
        return self.entry.updated

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes that users keep with it."""
        return self.entry.attributes


@frozen(kw_only=True)
class ListPage:
    """One page of a listing, by name in the order of UTF-8 bytes; `next_token` is None at the end."""

    entries: tuple[Status, ...]
    next_token: str | None = None


@frozen(kw_only=True)
class Summary:
    """The number and size of the files at and below a path.

    Attributes:
        files: number of files.
        directories: number of directories, including the given one.
        bytes: total size of the files.
    """

    files: int = 0
    directories: int = 0
    bytes: int = 0


@frozen(kw_only=True)
class Difference:
    """A difference between the store and the table.

    Attributes:
        status: the status of the file. An object that is no file has the version 0, and the status that
            the file would have.
        kind: see `Kind`.
    """

    status: Status
    kind: Kind
