"""What the store has in the place of a bound directory, whoever has stored it.

Content of the namespace itself is passed over: it has names that tell nothing, and rows of its own.
That the store does not have something counts only if it is there, before it is asked and after: one
that is not mounted, or not the right one, has nothing. Imports the ground floor, its siblings and the
`ObjectStore` port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice, takewhile

from attrs import frozen

from commitlog.errors import InvalidPath, StoreEmpty
from commitlog.namespace.binding import RESERVED
from commitlog.namespace.content import is_own
from commitlog.stores.api import ObjectInfo, ObjectStore

__all__ = ["WINDOW", "Outside", "with_etag"]

#: What comes right after all that begins with `RESERVED`.
_BEHIND_RESERVED = RESERVED.removesuffix("/") + chr(ord("/") + 1)


#: How many objects the store is asked for at a time.
WINDOW = 32


@frozen
class Outside:
    """Asks one store. Thread-safe.

    Args:
        store: which.
        mark: returns the path of the object by which it is known, if there is one. See `mark`.
    """

    store: ObjectStore
    mark: Callable[[], str | None] = lambda: None

    def prove(self, *, may_be_empty: bool = False, asked: str | None = None) -> None:
        """Make sure that the store is there, and is that of the namespace. A HEAD.

        Where there is no mark, it has to have an object, whichever: a listing of one, or two. An
        operation log proves nothing: it is made anew wherever it is missing.

        Args:
            may_be_empty: be content with a store that is there.
            asked: a path that it does not have, for the message.

        Raises `BucketNotFound`, and, unless it `may_be_empty`, `StoreEmpty`.
        """
        mark = self.mark()
        if mark is not None and not may_be_empty and not self.is_gone(mark):
            return
        self.store.check()
        found = self._first("")
        if found is not None and found.path.startswith(RESERVED):
            found = self._first("", start_after=_BEHIND_RESERVED)
        if may_be_empty or (mark is None and found is not None):
            return
        at = "" if asked is None else f"there is no object {asked!r}, but "
        lacks = "no object at all" if mark is None else f"no {mark!r}, by which it is known"
        raise StoreEmpty(
            f"{at}{self.store.url} has {lacks}: it is not mounted, or not the store of the namespace,"
            " and nothing is taken for gone. Mount it, or correct the URL. If it is the right store, and"
            " all that was removed from it, prune with empty_store=True (`commitlog namespace prune"
            " --empty-store`)"
        )

    def prove_if_marked(self) -> None:
        """Do as `prove`, but be content with a store that is there if it has no mark."""
        self.prove(may_be_empty=self.mark() is None)

    def gone(self, paths: Collection[str], *, may_be_empty: bool = False) -> set[str]:
        """Return which paths have no object, by a store that is there before and after it is asked.

        One HEAD for each, and what `prove` takes, twice. Raises what that raises.
        """
        asked = next(iter(paths), None)
        self.prove(may_be_empty=may_be_empty, asked=asked)
        gone = set(self.missing(paths))
        if gone:
            self.prove(may_be_empty=may_be_empty, asked=asked)
        return gone

    def missing(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the paths that have no object now. One HEAD for each path, many at a time.

        It proves nothing about the store itself: see `gone`.
        """
        rest = iter(paths)
        while batch := list(islice(rest, WINDOW)):
            heads = [self.store.begin_head(path) for path in batch]
            for path, head in zip(batch, heads, strict=True):
                if head().info is None:
                    yield path

    def at(self, path: str) -> ObjectInfo | None:
        """Return the object under a path, or None if there is none, or there can be none. One HEAD."""
        if is_own(path):
            return None
        try:
            return self.store.begin_head(path)().info
        except InvalidPath:  # too long, for instance: names of a path are shorter than the whole
            return None

    def is_gone(self, path: str) -> bool:
        """Tell whether there is no object under a path, whoever has stored one. One HEAD."""
        return self.store.begin_head(path)().info is None

    def has_any(self, prefix: str) -> bool:
        """Tell whether there is any object under a prefix. One listing of one object.

        An empty one with the name of the prefix, as consoles make them for directories, is none.
        """
        found = self._first(prefix) is not None
        if not found:
            self.store.check()
        return found

    def _first(self, prefix: str, *, start_after: str = "") -> ObjectInfo | None:
        token: str | None = None
        while True:
            page = self.store.list_page(prefix, start_after=start_after, limit=1, token=token)
            if page.objects or page.next_token is None:
                return next(iter(page.objects), None)
            token = page.next_token

    def level(self, prefix: str, *, after: str = "") -> Iterator[tuple[str, ObjectInfo | None]]:
        """Yield the names behind `after` that there are directly under a prefix, in no particular order.

        With each comes the object, or None if it is a prefix itself. One request for each thousand.
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
                name = below[len(prefix) : -1]  # none, if there are two slashes
                # With its slash, it may come behind `after` in the store and not here.
                if not after or name > after:
                    yield name, None
        if not found:
            self.store.check()

    def below(self, prefix: str, *, within: str) -> Iterator[ObjectInfo]:
        """Yield all objects under a prefix, however deep.

        Args:
            prefix: any, also one that no path has.
            within: one above it that can be listed.
        """
        listed = self.store.list(within, start_after=prefix)
        found = takewhile(lambda info: info.path.startswith(prefix), listed)
        whole = (with_etag(self.store, info) for info in found if not is_own(info.path))
        return (info for info in whole if info is not None)


def with_etag(store: ObjectStore, listed: ObjectInfo) -> ObjectInfo | None:
    """Return an object of a listing with its etag, or None if it is gone. A HEAD, if it has none.

    The gateway of JuiceFS may leave it out for a moment. Taken as it is, it would make a file that can
    not be read, and no tombstone hides it. Raises `Unavailable` if HEAD has none either.
    """
    return listed if listed.etag else store.begin_head(listed.path)().info
