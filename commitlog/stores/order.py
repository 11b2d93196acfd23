"""Listings that are cut at a path: they need a store that sorts paths by their bytes.

Some stores sort directory by directory: they list ``app/1`` before ``app-eu/1``. Where such a listing is
cut, objects would be in neither part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from commitlog.errors import NotSupported
from commitlog.stores.api import ObjectInfo, ObjectStore

__all__ = ["in_order", "up_to"]

#: Most comparisons of the two parts at a cut: objects may be written or removed meanwhile.
_TRIES = 3


def in_order(
    store: ObjectStore, listed: Iterable[ObjectInfo], *, after: str, advice: str
) -> Iterator[ObjectInfo]:
    """Yield listed objects while their paths rise, from `after` on.

    Args:
        store: the store that has listed them.
        listed: the objects.
        after: the path after which the listing begins; "" for the beginning.
        advice: what to do on a store that sorts otherwise, for the error message.

    Raises `NotSupported` at a path that does not rise.
    """
    for info in listed:
        if info.path <= after:
            raise _unsorted(store, info.path, after, advice)
        after = info.path
        yield info


def up_to(
    store: ObjectStore, prefix: str, listed: Iterable[ObjectInfo], *, after: str, last: str, advice: str
) -> Iterator[ObjectInfo]:
    """Yield listed objects up to the path `last`, where the listing is cut.

    At the end one request checks that a listing that begins after `last` continues with the next object.

    Args:
        store, listed, after, advice: as for `in_order`.
        prefix: the prefix of the listing.
        last: the last path to yield.

    Raises `NotSupported` if neither part of the listing has that object.
    """
    found: str | None = None
    for info in in_order(store, listed, after=after, advice=advice):
        if info.path > last:
            found = info.path
            break
        after = info.path
        yield info
    for _ in range(_TRIES):
        first = store.first(prefix, start_after=last)
        resumed = None if first is None else first.path
        if resumed == found:
            return
        rest = in_order(store, store.resume(prefix, after=after), after=after, advice=advice)
        found = next((info.path for info in rest if info.path > last), None)
    raise _unsorted(store, last, found or resumed or "", advice)


def _unsorted(store: ObjectStore, path: str, before: str, advice: str) -> NotSupported:
    return NotSupported(
        f"{store.url} lists {path!r} after {before!r}, so it does not sort paths by their bytes, and its"
        f" listing cannot be cut: {advice}"
    )
