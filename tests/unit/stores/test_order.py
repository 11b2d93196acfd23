"""Listings of stores that sort paths by their bytes, or directory by directory: continued, and cut."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from commitlog.errors import NotSupported
from commitlog.stores.api import ObjectInfo, ObjectStore
from commitlog.stores.memory import MemoryStore
from commitlog.stores.order import in_order, up_to
from commitlog.testing import check_object_store
from support.directory_order import DirectoryOrder

_PATHS = ("a", "app", "app-eu/1", "app.x", "app/1", "app/2", "app/3/x", "b")


def filled(store: ObjectStore, paths: Iterable[str] = _PATHS) -> ObjectStore:
    """Return the store with these objects."""
    for path in paths:
        store.put(path, b"")
    return store


def paths_of(listed: Iterable[ObjectInfo]) -> list[str]:
    """Return the paths of a listing."""
    return [info.path for info in listed]


def cut(store: ObjectStore, last: str) -> list[str]:
    """Return the paths of a listing up to a path."""
    return paths_of(up_to(store, "", store.list(), after="", last=last, advice="stop"))


def test_the_contract_holds_in_the_order_of_directories() -> None:
    """A store may list in another order than that of the bytes, if it says so."""
    check_object_store(DirectoryOrder(), byte_order=False, keys=1, threads=2)
    with pytest.raises(AssertionError, match="not in the byte order"):
        check_object_store(DirectoryOrder(), keys=1, threads=2)


@pytest.mark.parametrize("store", [MemoryStore(), DirectoryOrder()], ids=["bytes", "directories"])
def test_a_listing_continues_after_any_object(store: ObjectStore) -> None:
    """Objects below a prefix that is an object, too, come after it, or were listed before."""
    listed = paths_of(filled(store).list())
    for number, path in enumerate(listed):
        assert paths_of(store.resume(after=path)) == listed[number + 1 :]
    assert paths_of(store.resume(after="")) == listed
    assert paths_of(store.resume("app/", after="app/1")) == ["app/2", "app/3/x"]
    assert paths_of(store.resume("app/", after="app")) == ["app/1", "app/2", "app/3/x"]


def test_a_listing_continues_after_an_object_that_is_gone() -> None:
    """SeaweedFS leaves out a directory by the name of the object, also if the object is gone."""
    store = filled(DirectoryOrder())
    store.delete("app")
    assert paths_of(store.list(start_after="app")) == ["app-eu/1", "app.x", "b"]
    assert paths_of(store.resume(after="app")) == ["app/1", "app/2", "app/3/x", "app-eu/1", "app.x", "b"]


def test_a_key_of_others_that_is_no_path_can_be_continued_from() -> None:
    """No listing has such a prefix."""
    assert paths_of(filled(MemoryStore()).resume(after="a//b")) == list(_PATHS[1:])


@pytest.mark.parametrize("last", ["", "a", "app", "app-eu/2", "app/2", "app0", "b", "c"])
def test_a_sorted_listing_is_cut_anywhere(last: str) -> None:
    """The last path need not exist."""
    assert cut(filled(MemoryStore()), last) == [path for path in _PATHS if path <= last]


@pytest.mark.parametrize(
    ("paths", "last"),
    [
        (("app-eu/1", "app-eu/2", "app/1", "b"), "app-eu/2"),  # app/1 would be in neither part
        (("app-eu/2", "app-us/1", "app/1"), "app-eu/2"),
        (("app", "app/1", "b"), "app"),
        (("app/1", "b-c/1"), "b-c/1"),
    ],
)
def test_a_listing_is_not_cut_where_objects_would_be_in_neither_part(
    paths: tuple[str, ...], last: str
) -> None:
    """The error names the store. Where both orders agree, the listing is cut."""
    store = filled(DirectoryOrder("memory://odd"), paths)
    if paths[-1] == last:
        assert cut(store, last) == list(paths)
        return
    with pytest.raises(NotSupported, match=r"memory://odd lists .* does not sort paths .*: stop"):
        cut(store, last)


def test_paths_that_fall_are_noticed() -> None:
    """The first path counts as well, if the listing begins after another one."""
    store = filled(DirectoryOrder(), ("app/1", "app-eu/1"))
    with pytest.raises(NotSupported, match="'app-eu/1' after 'app/1'"):
        list(in_order(store, store.list(), after="", advice=""))
    with pytest.raises(NotSupported, match="'app-eu/1' after 'app/1'"):
        list(in_order(store, store.list(start_after="app/1"), after="app/1", advice=""))


def test_an_object_that_appears_at_the_cut_is_no_reason_to_stop() -> None:
    """The other part of the listing has it."""

    class Busy(MemoryStore):
        def first(self, prefix: str = "", *, start_after: str = "") -> ObjectInfo | None:
            if start_after == "app":
                self.put("app-0", b"")
            return super().first(prefix, start_after=start_after)

    assert cut(filled(Busy()), "app") == ["a", "app"]
