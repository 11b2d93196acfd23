"""Adoption by a local store: files of other programs become staged uploads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog.errors import InvalidPath, NotFound
from commitlog.stores.local.change import Change
from commitlog.stores.local.store import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store in an empty directory."""
    return LocalStore(tmp_path)


def test_adopted_files_are_published_like_uploads(store: LocalStore, tmp_path: Path) -> None:
    """They lose their old names at once. Publishing gives them their new names and a nonce."""
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden/a").write_bytes(b"first")
    (tmp_path / "_hidden/b").write_bytes(b"second!")
    first, second = store.adopt({"_hidden/a": "day=1/a", "_hidden/b": "b"}, key="k")
    assert [(staged.path, staged.size) for staged in (first, second)] == [("day=1/a", 5), ("b", 7)]
    assert list(store.list()) == []
    assert [upload.path for upload in store.list_staged()] == ["b", "day=1/a"]

    etag = store.publish(first).etag
    found = store.get("day=1/a")
    assert (found.data, found.etag, found.nonce) == (b"first", etag, first.nonce)
    store.abort(second)
    assert list(store.list_staged()) == []
    assert [info.path for info in store.list()] == ["day=1/a"]


def test_a_store_below_a_base_adopts_into_that_base(tmp_path: Path) -> None:
    """A store that was opened in another store's directory adopts and publishes its own paths."""
    LocalStore(tmp_path).put("elsewhere", b"")
    inner = LocalStore(tmp_path / "inner")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/a").write_bytes(b"x")
    (staged,) = inner.adopt({"a": "b"}, key="k")
    inner.publish(staged)
    assert [info.path for info in inner.list()] == ["b"]


def test_more_files_than_a_batch_are_all_adopted(store: LocalStore, tmp_path: Path) -> None:
    """Each file becomes one upload, in the order of the files."""
    for number in range(501):
        (tmp_path / f"{number:03}").write_bytes(b"")
    staged = store.adopt({f"{number:03}": f"to-{number:03}" for number in range(501)}, key="k")
    assert [each.path for each in staged] == [f"to-{number:03}" for number in range(501)]
    assert len(list(store.list_staged())) == 501


def test_nothing_is_adopted_if_one_is_missing(store: LocalStore, tmp_path: Path) -> None:
    """A path without a file raises `NotFound`, and the other files keep their names."""
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(NotFound, match="'missing'"):
        store.adopt({"a": "b", "missing": "c"}, key="k")
    assert [info.path for info in store.list()] == ["a"]
    assert list(store.list_staged()) == []


def test_a_repeated_adoption_returns_the_same_uploads(store: LocalStore, tmp_path: Path) -> None:
    """Also if the first call was cut off, and left a body without a record, or a file where it was."""
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    files = {name: f"to-{name}" for name in "abc"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Change, "adopt", _until("c", Change.adopt))
        with pytest.raises(KeyboardInterrupt):
            store.adopt(files, key="k")
    assert sorted(info.path for info in store.list()) == ["c"]

    staged = store.adopt(files, key="k")
    assert store.adopt(files, key="k") == staged
    for each in staged:
        store.publish(each)
    assert [store.get(f"to-{name}").data for name in "abc"] == [b"a", b"b", b"c"]
    assert [store.get(each.path).nonce for each in staged] == [each.nonce for each in staged]
    assert list(store.list_staged()) == []
    with pytest.raises(NotFound, match="'a'"):
        store.adopt(files, key="k")


def test_adoptions_with_other_keys_are_other_uploads(store: LocalStore, tmp_path: Path) -> None:
    """The same path may have another file later."""
    (tmp_path / "a").write_bytes(b"1")
    (first,) = store.adopt({"a": "b"}, key="1")
    with pytest.raises(NotFound):
        store.adopt({"a": "b"}, key="2")
    (tmp_path / "a").write_bytes(b"2")
    (second,) = store.adopt({"a": "b"}, key="2")
    store.publish(first)
    assert store.get("b").data == b"1"
    store.publish(second)
    assert store.get("b").data == b"2"


def _until(last: str, adopt: Callable[..., Any]) -> Callable[..., Any]:
    """Return `adopt` with a crash before the file `last`."""

    def adopted(change: Change, parts: tuple[str, ...], record: Any) -> Any:
        if parts[-1] == last:
            raise KeyboardInterrupt
        return adopt(change, parts, record)

    return adopted


def test_a_link_is_not_adopted(store: LocalStore, tmp_path: Path) -> None:
    """A symbolic link could lead anywhere, so neither the link nor its target is adopted."""
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(InvalidPath):
        store.adopt({"link": "b"}, key="k")
    assert (tmp_path / "link").is_symlink()
