"""Access to the objects under a bound prefix, whichever program stored them.

Content of the namespace itself is skipped: it has rows of its own. An object counts as missing only if
the store is verified before and after the request. A store that is not mounted, or is the wrong one, has
no objects at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice, takewhile

from attrs import frozen

from commitlog.errors import InvalidPath, StoreEmpty
from commitlog.namespace.model.binding import RESERVED
from commitlog.namespace.write.content import is_own
from commitlog.stores.api import ObjectInfo, ObjectStore

__all__ = ["WINDOW", "BackingStore", "with_etag"]

#: Sorts right after all paths that begin with `RESERVED`.
_AFTER_RESERVED = RESERVED.removesuffix("/") + chr(ord("/") + 1)


#: Number of objects that are requested at a time.
WINDOW = 32


@frozen
class BackingStore:
    """Asks one store. Thread-safe.

    Args:
        store: the store.
        identity: returns the path of the object that identifies the store, or None. See
            `NamespaceMetadata.identity`.
    """

    store: ObjectStore
    identity: Callable[[], str | None] = lambda: None

    def verify(self, *, may_be_empty: bool = False, asked: str | None = None) -> None:
        """Make sure that the store is present, and is the store of the namespace. One HEAD.

        Without an identity object, the store must have at least one object; this takes one or two
        listings of one object. An operation log proves nothing: it is created wherever it is missing.

        Args:
            may_be_empty: accept a store without objects, if it is present.
            asked: path of a missing object, for the error message.

        Raises `BucketNotFound`, and `StoreEmpty` unless `may_be_empty`.
        """
        identity = self.identity()
        if identity is not None and not may_be_empty and not self.is_missing(identity):
            return
        self.store.check()
        found = self.store.first("")
        if found is not None and found.path.startswith(RESERVED):
            found = self.store.first("", start_after=_AFTER_RESERVED)
        if may_be_empty or (identity is None and found is not None):
            return
        where = "" if asked is None else f"there is no object {asked!r}, but "
        lacks = "no object at all" if identity is None else f"no {identity!r}, which identifies it"
        raise StoreEmpty(
            f"{where}{self.store.url} has {lacks}: it is not mounted, or not the store of the namespace,"
            " so no object is taken for gone. Mount it, or correct the URL. If it is the right store,"
            " and all its objects were removed, prune with empty_store=True (`commitlog namespace prune"
            " --empty-store`)"
        )

    def verify_if_identified(self) -> None:
        """Do as `verify`; a store without an identity object only has to be present."""
        self.verify(may_be_empty=self.identity() is None)

    def confirmed_missing(self, paths: Collection[str], *, may_be_empty: bool = False) -> set[str]:
        """Return the paths that have no object, in a store that is present before and after.

        Takes one HEAD for each path, and `verify` twice. Raises the errors of `verify`.
        """
        asked = next(iter(paths), None)
        self.verify(may_be_empty=may_be_empty, asked=asked)
        missing = set(self.missing(paths))
        if missing:
            self.verify(may_be_empty=may_be_empty, asked=asked)
        return missing

    def missing(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the paths that have no object now. One HEAD for each path, many at a time.

        This does not verify that the store is present: see `confirmed_missing`.
        """
        rest = iter(paths)
        while batch := list(islice(rest, WINDOW)):
            heads = [self.store.begin_head(path) for path in batch]
            for path, head in zip(batch, heads, strict=True):
                if head().info is None:
                    yield path

    def head(self, path: str) -> ObjectInfo | None:
        """Return the object at a path; None if none is there, or the path is not allowed. One HEAD."""
        if is_own(path):
            return None
        try:
            return self.store.begin_head(path)().info
        except InvalidPath:  # for example too long: every name is short enough, the whole path is not
            return None

    def is_missing(self, path: str) -> bool:
        """Return whether there is no object at a path, whichever program stored it. One HEAD."""
        return self.store.begin_head(path)().info is None

    def has_any(self, prefix: str) -> bool:
        """Return whether there is any object under a prefix. One short listing.

        An empty object whose path is the prefix itself, as consoles make them for directories, does not
        count.
        """
        found = self.store.first(prefix) is not None
        if not found:
            self.store.check()
        return found

    def list_directory(self, prefix: str, *, after: str = "") -> Iterator[tuple[str, ObjectInfo | None]]:
        """Yield the names directly under a prefix that follow `after`, in no particular order.

        Each comes with its object, or with None if it is a prefix itself. One request for each thousand.
        """
        found = False
        start_after = prefix + after if after else ""
        for page in self.store.list_pages(prefix, start_after=start_after, delimiter="/"):
            found = found or bool(page.objects or page.prefixes)
            for listed in page.objects:
                info = None if is_own(listed.path) else with_etag(self.store, listed)
                if info is not None:
                    yield info.path[len(prefix) :], info
            for below in page.prefixes:
                name = below[len(prefix) : -1]  # empty after a double slash
                # The store compares it with its slash, so it may follow `after` there but not here.
                if not after or name > after:
                    yield name, None
        if not found:
            self.store.check()

    def list_below(self, prefix: str, *, within: str) -> Iterator[ObjectInfo]:
        """Yield all objects under a prefix, at any depth.

        Args:
            prefix: any text, also one that is not a valid path.
            within: a valid prefix of `prefix`, which is listed.
        """
        listed = self.store.list(within, start_after=prefix)
        found = takewhile(lambda info: info.path.startswith(prefix), listed)
        whole = (with_etag(self.store, info) for info in found if not is_own(info.path))
        return (info for info in whole if info is not None)


def with_etag(store: ObjectStore, listed: ObjectInfo) -> ObjectInfo | None:
    """Return a listed object with its etag; None if it is gone. One HEAD, if the listing had no etag.

    The gateway of JuiceFS may leave the etag out for a moment. Without an etag, a file could not be
    read, and no tombstone would hide its object. Raises `Unavailable` if HEAD has none either.
    """
    return listed if listed.etag else store.begin_head(listed.path)().info
