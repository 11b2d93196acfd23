"""Ranges of a listing cover each object once, and have about the same size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import md5
from random import Random
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import InvalidPath, NotSupported
from commitlog.namespace.partitioned.listing import ListedRange, objects_in, ranges_of
from commitlog.paths import check_path
from commitlog.stores.api import ObjectInfo, Page
from commitlog.stores.memory import MemoryStore
from support.directory_order import DirectoryOrder
from support.selection import one_in


class PagedStore(MemoryStore):
    """A store with small pages, which counts them.

    Attributes:
        size: maximum number of entries of a page.
        pages: number of pages.
    """

    size = 1000
    pages = 0

    def list_page(self, *args: Any, limit: int = 1000, **how: Any) -> Page:
        """See `ObjectStore.list_page`."""
        self.pages += 1
        return super().list_page(*args, limit=min(limit, self.size), **how)


def filled(paths: Iterable[str], size: int = 1000) -> PagedStore:
    """Return a store with objects."""
    store = PagedStore()
    store.size = size
    for path in paths:
        store.put(path, b"")
    return store


def listed(store: PagedStore, ranges: Iterable[ListedRange]) -> list[list[str]]:
    """Return the paths in each range."""
    return [[info.path for info in objects_in(store, each)] for each in ranges]


def is_path(text: str) -> bool:
    """Return whether a text is the path of an object."""
    try:
        check_path(text)
    except InvalidPath:
        return False
    return True


#: Characters around the slash and around the surrogates, and such as sort differently in UTF-16.
PATHS = st.text(st.sampled_from("/-.0a1bé\ud7ff\ue000\uffff😀"), min_size=1, max_size=7).filter(is_path)


@given(
    paths=st.sets(PATHS, max_size=60),
    more=st.sets(PATHS, max_size=20),
    prefix=st.sampled_from(["", "a/", "a/b", "/".join("ab") + "/", "é/"]),
    count=st.integers(1, 9),
    size=st.integers(1, 7),
)
def test_ranges_cover_each_object_once(
    paths: set[str], more: set[str], prefix: str, count: int, size: int
) -> None:
    """That includes objects that are written later, and does not depend on the size of pages."""
    store = filled(paths, size)
    ranges = ranges_of(store, prefix, count=count)
    assert store.pages <= 8 * count + 32
    assert len(ranges) <= count
    assert [ListedRange.from_json(each.to_json()) for each in ranges] == ranges
    for path in more:
        store.put(path, b"")
    found = [path for part in listed(store, ranges) for path in part]
    assert found == sorted(path for path in paths | more if path.startswith(prefix))


def dates(random: Random) -> Iterable[str]:
    """Yield paths of partitions by date, of different sizes."""
    for month in range(1, 13):
        for day in range(1, 29):
            for number in range(random.choice([1, 10, 100])):
                yield f"t/dt=2024-{month:02}-{day:02}/part-{number:04}-{random.randbytes(8).hex()}"


def words(random: Random) -> Iterable[str]:
    """Yield names without a pattern."""
    for number in range(20_000):
        yield "t/" + "".join(random.choices("etaoinshrdlu-", k=random.randrange(2, 7))) + str(number)


SHAPES: dict[str, Callable[[Random], Iterable[str]]] = {
    "numbers": lambda random: (f"t/part-{number:05}.parquet" for number in range(20_000)),
    "hashes": lambda random: (f"t/{md5(b'%d' % number).hexdigest()}" for number in range(20_000)),
    "directories": lambda random: (f"t/{random.randbytes(6).hex()}/x" for number in range(20_000)),
    "dates": dates,
    "words": words,
    "one is hot": lambda random: (
        f"t/{number:03}/{file:06}"
        for number in range(500)
        for file in range(15_000 if number == 317 else 5)
    ),
    "levels": lambda random: (
        f"t/a/b/c/{number % 7}/{number % 11}/{number:06}" for number in range(20_000)
    ),
}


@pytest.mark.parametrize("shape", one_in(3, SHAPES))
def test_ranges_have_about_the_same_size(shape: str) -> None:
    """A prefix without a delimiter below it is divided, too; and few pages are listed for that."""
    store = filled(SHAPES[shape](Random(1)))
    ranges = ranges_of(store, "t/", count=8)
    requests = store.pages
    sizes = [len(part) for part in listed(store, ranges)]
    assert requests <= 96
    assert len(sizes) == 8
    assert max(sizes) <= 2 * sum(sizes) / len(sizes)


def test_few_objects_are_divided() -> None:
    """A page is cut, too."""
    ranges = ranges_of(filled(map(str, range(400))), "", count=4)
    assert [len(part) for part in listed(filled(map(str, range(400))), ranges)] == [100] * 4


def test_there_may_be_no_objects() -> None:
    """The only range has no limits."""
    assert ranges_of(filled([]), "a/", count=4) == [ListedRange(prefix="a/")]


def test_one_range_needs_no_listing() -> None:
    """It is everything."""
    store = filled(["a"])
    assert ranges_of(store, "", count=1) == [ListedRange(prefix="")]
    assert store.pages == 0


def test_directories_without_a_valid_name_are_divided() -> None:
    """They cannot be listed on their own."""
    store = Odd()
    store.extra = [f"a//{number:04}" for number in range(3000)]
    ranges = ranges_of(store, "", count=4)
    assert sum(len(list(objects_in(store, each))) for each in ranges) == 3000
    assert len(ranges) == 4


def test_an_unordered_listing_is_refused() -> None:
    """Such a store cannot be divided: objects would be missing."""
    store = Odd()
    store.extra, store.is_sorted = ["b", "a"], False
    with pytest.raises(NotSupported, match="does not sort"):
        list(objects_in(store, ListedRange(prefix="")))


def test_ranges_of_a_store_that_sorts_otherwise_are_refused() -> None:
    """The paths of each range rise, and yet app/1 is in none of them."""
    store = DirectoryOrder()
    for path in ("app/1", "app-eu/1", "b"):
        store.put(path, b"")
    with pytest.raises(NotSupported, match="does not sort"):
        list(objects_in(store, ListedRange(prefix="", until="app-eu/1")))
    assert len(list(objects_in(store, ListedRange(prefix="", start_after="app-eu/1")))) == 1
    assert len(list(objects_in(store, ListedRange(prefix="app/", until="app/1")))) == 1


@define(slots=False)
class Odd(MemoryStore):
    """A store as other programs fill it.

    Attributes:
        extra: paths of its objects.
        is_sorted: whether it lists them in order.
    """

    extra: list[str] = field(factory=list)
    is_sorted: bool = True

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """See `ObjectStore.list_page`."""
        after = token or start_after
        found = [path for path in self.extra if path.startswith(prefix) and path > after]
        if delimiter:
            below = {path[: path.index("/", len(prefix)) + 1] for path in found}
            return Page(objects=(), prefixes=tuple(sorted(below)))
        infos = [
            ObjectInfo(path=path, size=0, etag="1", last_modified=0)
            for path in (sorted(found) if self.is_sorted else found)
        ]
        more = len(infos) > limit
        return Page(objects=tuple(infos[:limit]), next_token=infos[limit - 1].path if more else None)
