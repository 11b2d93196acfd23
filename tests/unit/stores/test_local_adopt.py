"""Adoption by a local store: files of other programs become staged uploads."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog.errors import InvalidPath, NotFound
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
    first, second = store.adopt({"_hidden/a": "day=1/a", "_hidden/b": "b"})
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
    (staged,) = inner.adopt({"a": "b"})
    inner.publish(staged)
    assert [info.path for info in inner.list()] == ["b"]


def test_more_files_than_a_batch_are_all_adopted(store: LocalStore, tmp_path: Path) -> None:
    """Each file becomes one upload, in the order of the files."""
    for number in range(501):
        (tmp_path / f"{number:03}").write_bytes(b"")
    staged = store.adopt({f"{number:03}": f"to-{number:03}" for number in range(501)})
    assert [each.path for each in staged] == [f"to-{number:03}" for number in range(501)]
    assert len(list(store.list_staged())) == 501


def test_nothing_is_adopted_if_one_is_missing(store: LocalStore, tmp_path: Path) -> None:
    """A path without a file raises `NotFound`, and the other files keep their names."""
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(NotFound, match="'missing'"):
        store.adopt({"a": "b", "missing": "c"})
    assert [info.path for info in store.list()] == ["a"]
    assert list(store.list_staged()) == []


def test_a_link_is_not_adopted(store: LocalStore, tmp_path: Path) -> None:
    """A symbolic link could lead anywhere, so neither the link nor its target is adopted."""
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(InvalidPath):
        store.adopt({"link": "b"})
    assert (tmp_path / "link").is_symlink()
