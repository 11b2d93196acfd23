"""Files of other programs become staged uploads of a local store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog.errors import InvalidPath, NotFound
from commitlog.stores.local.change import LocalChange
from commitlog.stores.local.store import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store in an empty directory."""
    return LocalStore(tmp_path)


def test_staged_files_are_published_like_uploads(store: LocalStore, tmp_path: Path) -> None:
    """They lose their old names at once. Publishing gives them their new names and a nonce."""
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden/a").write_bytes(b"first")
    (tmp_path / "_hidden/b").write_bytes(b"second!")
    first, second = store.stage_files({"_hidden/a": "day=1/a", "_hidden/b": "b"}, key="k")
    assert [(staged.path, staged.size) for staged in (first, second)] == [("day=1/a", 5), ("b", 7)]
    assert list(store.list()) == []
    assert [upload.path for upload in store.list_staged()] == ["b", "day=1/a"]

    etag = store.publish(first).etag
    found = store.get("day=1/a")
    assert (found.data, found.etag, found.nonce) == (b"first", etag, first.nonce)
    store.abort(second)
    assert list(store.list_staged()) == []
    assert [info.path for info in store.list()] == ["day=1/a"]


def test_a_store_below_a_base_stages_files_in_that_base(tmp_path: Path) -> None:
    """A store that was opened in another store's directory stages and publishes its own paths."""
    LocalStore(tmp_path).put("elsewhere", b"")
    inner = LocalStore(tmp_path / "inner")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/a").write_bytes(b"x")
    (staged,) = inner.stage_files({"a": "b"}, key="k")
    inner.publish(staged)
    assert [info.path for info in inner.list()] == ["b"]


def test_more_files_than_a_batch_are_all_staged(store: LocalStore, tmp_path: Path) -> None:
    """Each file becomes one upload, in the order of the files."""
    for number in range(501):
        (tmp_path / f"{number:03}").write_bytes(b"")
    staged = store.stage_files({f"{number:03}": f"to-{number:03}" for number in range(501)}, key="k")
    assert [each.path for each in staged] == [f"to-{number:03}" for number in range(501)]
    assert len(list(store.list_staged())) == 501


def test_nothing_is_staged_if_one_is_missing(store: LocalStore, tmp_path: Path) -> None:
    """A path without a file raises `NotFound`, and the other files keep their names."""
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(NotFound, match="'missing'"):
        store.stage_files({"a": "b", "missing": "c"}, key="k")
    assert [info.path for info in store.list()] == ["a"]
    assert list(store.list_staged()) == []


def test_a_repeated_call_returns_the_same_uploads(store: LocalStore, tmp_path: Path) -> None:
    """Also if the first call was cut off, and left a body without a record, or a file where it was."""
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    files = {name: f"to-{name}" for name in "abc"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalChange, "stage_file", _until("c", LocalChange.stage_file))
        with pytest.raises(KeyboardInterrupt):
            store.stage_files(files, key="k")
    assert sorted(info.path for info in store.list()) == ["c"]

    staged = store.stage_files(files, key="k")
    assert store.stage_files(files, key="k") == staged
    for each in staged:
        store.publish(each)
    assert [store.get(f"to-{name}").data for name in "abc"] == [b"a", b"b", b"c"]
    assert [store.get(each.path).nonce for each in staged] == [each.nonce for each in staged]
    assert list(store.list_staged()) == []
    with pytest.raises(NotFound, match="'a'"):
        store.stage_files(files, key="k")


def test_calls_with_other_keys_are_other_uploads(store: LocalStore, tmp_path: Path) -> None:
    """The same path may have another file later."""
    (tmp_path / "a").write_bytes(b"1")
    (first,) = store.stage_files({"a": "b"}, key="1")
    with pytest.raises(NotFound):
        store.stage_files({"a": "b"}, key="2")
    (tmp_path / "a").write_bytes(b"2")
    (second,) = store.stage_files({"a": "b"}, key="2")
    store.publish(first)
    assert store.get("b").data == b"1"
    store.publish(second)
    assert store.get("b").data == b"2"


def _until(last: str, stage_file: Callable[..., Any]) -> Callable[..., Any]:
    """Return `stage_file` with a crash before the file `last`."""

    def staged(change: LocalChange, parts: tuple[str, ...], record: Any) -> Any:
        if parts[-1] == last:
            raise KeyboardInterrupt
        return stage_file(change, parts, record)

    return staged


def test_a_link_is_not_staged(store: LocalStore, tmp_path: Path) -> None:
    """A symbolic link could lead anywhere, so neither the link nor its target is staged."""
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(InvalidPath):
        store.stage_files({"link": "b"}, key="k")
    assert (tmp_path / "link").is_symlink()
