"""What callers are told of files and directories. Imports its siblings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import frozen

from commitlog.namespace.binding import Binding
from commitlog.namespace.data import Data
from commitlog.namespace.records import Entry

__all__ = ["Difference", "Kind", "ListPage", "Status", "Summary"]

#: How the store differs from the table: the object of a file is gone; it is not the one that the file
#: was given; an object is no file; an object, or all under a prefix, is hidden by a tombstone.
Kind: TypeAlias = Literal["missing", "changed", "unknown", "hidden"]


@frozen(kw_only=True)
class Status:
    """A file or directory, as it was when it was looked at.

    Attributes:
        path: relative to the root; "" for the root itself.
        entry: all that is stored of it.
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
        """What names it for good, whatever its path becomes; "" if its version is 0."""
        return self.entry.id

    @property
    def version(self) -> int:
        """How often it was written, renames and changes of attributes included.

        0 for what is in the store alone, in a directory that others write to: see `Namespace.bind`.
        """
        return self.entry.version

    @property
    def size(self) -> int:
        """Bytes; 0 for a directory."""
        return 0 if self.entry.data is None else self.entry.data.size

    @property
    def data(self) -> Data | None:
        """Where the content is, and which content; None for a directory."""
        return self.entry.data

    @property
    def etag(self) -> str | None:
        """The store's entity tag of the content; None for a directory."""
        return None if self.entry.data is None else self.entry.data.etag

    @property
    def binding(self) -> Binding | None:
        """To which prefix of the store a directory is bound; None for most, and for files."""
        return self.entry.binding

    @property
    def created(self) -> int:
        """Epoch millisecond by the clock of who created it."""
        return self.entry.created

    @property
    def modified(self) -> int:
        """Epoch millisecond of its last content, or what `Namespace.set_attributes` was told."""
        return self.entry.modified

    @property
    def updated(self) -> int:
        """Epoch millisecond at which this version was written."""
        return self.entry.updated

    @property
    def attributes(self) -> Mapping[str, str]:
        """What users keep with it."""
        return self.entry.attributes


@frozen(kw_only=True)
class ListPage:
    """One page of a listing, by name in the order of UTF-8 bytes; `next_token` is None at the end."""

    entries: tuple[Status, ...]
    next_token: str | None = None


@frozen(kw_only=True)
class Summary:
    """What is at and below a path.

    Attributes:
        files: number of files.
        directories: number of directories, the one asked for included.
        bytes: size of all files.
    """

    files: int = 0
    directories: int = 0
    bytes: int = 0


@frozen(kw_only=True)
class Difference:
    """Something in which the store is not what the table says.

    Attributes:
        status: the file; for what is no file, with the version 0, what it would be.
        kind: see `Kind`.
    """

    status: Status
    kind: Kind
