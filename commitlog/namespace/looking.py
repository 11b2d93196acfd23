"""Looking at a namespace: what is at a path, what is below it, and the content of files.

Needs no permission to write. Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from itertools import islice

from commitlog.absence import SuppressAbsent
from commitlog.errors import ConfigurationError, CorruptRecord, IsADirectory, NotFound, ObjectChanged
from commitlog.namespace.files import OpenFile
from commitlog.namespace.keys import ROOT, STAGING, split
from commitlog.namespace.opened import Opened
from commitlog.namespace.records import Directory, Entry
from commitlog.namespace.status import ListPage, Status, Summary
from commitlog.namespace.tree import PAGE
from commitlog.paths import join

__all__ = ["Looking"]

#: Most entries of a page: it is in memory as a whole.
_MOST = 1_000_000


class Looking(Opened):
    """What `Namespace` offers those who read."""

    def stat(self, path: str) -> Status:
        """Return what is at `path`. Raises `NotFound`, also for a path that leads through a file."""
        self.check(writing=False)
        walk = self._seen.walk(split(path))
        if walk.missing:
            raise NotFound(f"there is nothing at {path!r} in namespace {self.name!r}")
        return Status(path=path, entry=walk.last)

    def path_of(self, id: str) -> str | None:
        """Return where a directory is by now; None if it was deleted, or is no directory.

        Args:
            id: `Status.id` of it.

        It is looked up from the directory upwards, one request for each above it: if one of those is
        renamed meanwhile, what is returned may be no path of it. Look whether the directory is there.

        Raises `CorruptRecord` if no path leads to it, since it is in itself: `audit` tells of that.
        """
        self.check(writing=False)
        names: list[str] = []
        passed: set[str] = set()
        while id != ROOT:
            if id in passed:
                raise CorruptRecord(f"directory {id} is in itself: check namespace {self.name!r}")
            passed.add(id)
            item = self._table.get(self._keys.directory(id))
            if item is None:  # so it is of the trash, too
                return None
            above = Directory.from_item(item)
            names.append(above.name)
            id = above.parent
        return "/".join(reversed(names))

    def exists(self, path: str) -> bool:
        """Tell whether there is anything at `path`."""
        with SuppressAbsent():
            self.stat(path)
            return True
        self.check(writing=False)
        return False

    def list_page(self, path: str = "", *, limit: int = PAGE, token: str | None = None) -> ListPage:
        """Return one page of what a directory has, by name in the order of UTF-8 bytes.

        What is there all the time is listed once; what is added, renamed or removed between two pages
        may be listed or not. For a file, the file itself is listed. A listing of the root leaves out the
        directory of jobs that are under way, ``.staging``.

        Args:
            path: the directory.
            limit: most entries wanted, 1 to 1,000,000.
            token: `ListPage.next_token` of the page before.

        Raises `NotFound`.
        """
        if not 1 <= limit <= _MOST:
            raise ConfigurationError(f"limit {limit}: ask for 1 to {_MOST} entries a page")
        after = "" if token is None else _name_of(token)
        status = self.stat(path)
        if not status.is_directory:
            return ListPage(entries=() if after else (status,))
        # One more than asked for tells whether this is the last page.
        found = list(islice(self._entries(status.entry, after=after, page=limit + 1), limit + 1))
        entries = tuple(Status(path=join(path, entry.name), entry=entry) for entry in found[:limit])
        more = len(found) > limit
        return ListPage(entries=entries, next_token=_token_of(entries[-1].name) if more else None)

    def list(self, path: str = "") -> Iterator[Status]:
        """Yield what a directory has, as `list_page` does; for a file, the file itself.

        Raises `NotFound` when the first entry is asked for.
        """
        status = self.stat(path)
        if not status.is_directory:
            yield status
            return
        for entry in self._entries(status.entry):
            yield Status(path=join(path, entry.name), entry=entry)

    def walk(self, path: str = "") -> Iterator[Status]:
        """Yield all that is below a directory, each directory right before what it has, by name.

        For a file, the file itself is yielded. What changes meanwhile may be seen as it was or as it is;
        a directory that is renamed may be seen twice, or not at all. One that seems to be in itself,
        since it was moved meanwhile or has a wrong record, is yielded there, and not walked again.

        Raises `NotFound`.
        """
        status = self.stat(path)
        if not status.is_directory:
            yield status
            return
        pending = [(path, self._entries(status.entry))]
        ids = [status.entry.id]
        while pending:
            above, entries = pending[-1]
            entry = next(entries, None)
            if entry is None:
                pending.pop()
                ids.pop()
                continue
            found = Status(path=join(above, entry.name), entry=entry)
            yield found
            if entry.is_directory and not (entry.is_stored and entry.id in ids):
                pending.append((found.path, self._entries(entry)))
                ids.append(entry.id)

    def summary(self, path: str = "") -> Summary:
        """Return how much there is at and below `path`. Raises `NotFound`."""
        status = self.stat(path)
        files = size = 0
        directories = int(status.is_directory)
        for found in self.walk(path):
            directories += found.is_directory
            files += not found.is_directory
            size += found.size
        return Summary(files=files, directories=directories, bytes=size)

    def _entries(self, directory: Entry, *, after: str = "", page: int = PAGE) -> Iterator[Entry]:
        entries = self._seen.entries(directory, after=after, page=page)
        if directory.id != ROOT:
            return entries
        return (entry for entry in entries if entry.name != STAGING)

    # content

    def open(self, path: str) -> OpenFile:
        """Return a reader of the file as it is now; it keeps to that version, whatever happens to the
        file.

        Raises `NotFound`, `IsADirectory`.
        """
        status = self.stat(path)
        if status.is_directory:
            raise IsADirectory(f"{path!r} is a directory; it has no content")
        return OpenFile(status, self._content)

    def read(self, path: str, *, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes ``[start, end)`` of a file; all of them by default.

        Raises `NotFound`, `IsADirectory`, `ObjectChanged` if the object was changed or removed other
        than through the namespace, and `BucketNotFound` if the store is not there at all.
        """
        opened = self.open(path)
        try:
            return opened.read(start, end)
        except ObjectChanged:
            # Overwritten, and collected, since it was opened?
            again = self.open(path)
            if again.data == opened.data:
                raise
            return again.read(start, end)


def _token_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _name_of(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ConfigurationError(f"{token!r} is not the token of a page") from error
