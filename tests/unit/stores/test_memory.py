"""The memory store: the contract, names shared within the process, and the store's own clock."""

from __future__ import annotations

import gc
from itertools import count
from typing import Any

import pytest

from commitlog.errors import ConfigurationError, NotFound, RequestExpired, Unavailable
from commitlog.stores.api import RequestExpiry
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock, check_object_store


@pytest.mark.parametrize("url", ["memory://", "memory://checked", "memory://checked/pre fix/é"])
def test_keeps_the_contract(url: str) -> None:
    """The memory store keeps the whole contract, with or without a prefix."""
    check_object_store(MemoryStore(url), keys=20)


@pytest.mark.parametrize("metadata", [{"a": 1}, {"a": None}, {1: "a"}, {"a": b"b"}])
def test_metadata_is_text(metadata: Any) -> None:
    """Other values are refused by the check that all stores share."""
    store = MemoryStore()
    with pytest.raises(ConfigurationError, match="keys and values are text"):
        store.put("a", b"", metadata=metadata)
    assert not list(store.list())


def test_stores_of_one_name_share_their_objects() -> None:
    """Two stores with the same name have the same objects, and all prefixes agree on keys."""
    whole, part = MemoryStore("memory://shared"), MemoryStore("memory://shared/a/b")
    part.put("c", b"x")
    staged = part.stage("d", b"y")
    assert whole.get("a/b/c").data == b"x"
    assert whole.key("a/b/c") == part.key("c") == "a/b/c"
    assert [info.path for info in whole.list_staged()] == ["a/b/d"]
    with pytest.raises(NotFound):
        whole.publish(staged)
    part.publish(staged)
    assert [info.path for info in whole.list()] == ["a/b/c", "a/b/d"]
    assert [info.path for info in part.list()] == ["c", "d"]


def test_a_failed_abort_does_not_hide_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets the error that ended the upload, in every store."""

    def abort() -> None:
        raise Unavailable("no answer")

    def use(error: Exception | None) -> None:
        with MemoryStore().begin_stage("a") as writer:
            monkeypatch.setattr(writer, "abort", abort)
            if error is not None:
                raise error

    with pytest.raises(ZeroDivisionError):
        use(ZeroDivisionError())
    with pytest.raises(Unavailable):
        use(None)


def test_an_upload_with_a_failed_write_is_not_finished() -> None:
    """Bytes are missing. It can be aborted."""

    class Full(list[bytes]):
        def append(self, piece: bytes) -> None:
            raise MemoryError

    store = MemoryStore()
    writer: Any = store.begin_stage("a")
    writer.write(b"one")
    kept, writer._pieces = writer._pieces, Full(writer._pieces)
    with pytest.raises(MemoryError):
        writer.write(b"two")
    writer._pieces = kept
    for proceed in (lambda: writer.write(b"three"), writer.finish):
        with pytest.raises(ConfigurationError, match=r"a write has failed \(MemoryError"):
            proceed()
    writer.abort()
    assert not list(store.list_staged())


@pytest.mark.parametrize("data", ["text", 1, memoryview(b"abcd")[::2]])
def test_a_write_of_something_else_than_bytes_changes_nothing(data: Any) -> None:
    """It is refused before anything is appended, so the upload can be finished."""
    store = MemoryStore()
    with store.begin_stage("a") as writer:
        writer.write(b"one")
        with pytest.raises(TypeError):
            writer.write(data)
        store.publish(writer.finish())
    assert store.get("a").data == b"one"


def test_a_prefix_does_not_show_its_neighbours() -> None:
    """A store opened on a prefix does not see a sibling whose name begins with the prefix."""
    MemoryStore("memory://neighbours").put("ab/c", b"")
    store = MemoryStore("memory://neighbours/a")
    store.put("x", b"")
    assert [info.path for info in store.list()] == ["x"]
    assert not list(MemoryStore("memory://another-name").list())


def test_a_store_without_a_name_is_not_shared() -> None:
    """Each store opened as memory:// is empty."""
    store = MemoryStore()
    store.put("a", b"")
    assert not list(MemoryStore().list())


def test_objects_are_dropped_with_the_last_store_of_their_name() -> None:
    """Objects live as long as a store with their name, and no longer."""
    store = MemoryStore("memory://forgotten")
    store.put("a", b"")
    second = MemoryStore("memory://forgotten")
    del store
    gc.collect()
    assert second.head("a").size == 0
    del second
    gc.collect()
    assert not list(MemoryStore("memory://forgotten").list())


def test_times_come_from_the_given_clock() -> None:
    """The store's own clock dates objects and uploads, and decides whether a request has expired."""
    clock = ManualClock(epoch=1000.25)
    store = MemoryStore(clock=clock)
    assert store.begin_head("a")().store_time == 1000
    store.put("a", b"", expiry=RequestExpiry(1000, 2))
    assert store.head("a").last_modified == 1000.25
    store.begin_stage("b")
    assert [info.initiated for info in store.list_staged()] == [1000.25]
    clock.advance(1.75)
    store.put("a", b"1", expiry=RequestExpiry(1000, 2))
    clock.advance(0.01)
    with pytest.raises(RequestExpired):
        store.put("a", b"2", expiry=RequestExpiry(1000, 2))
    assert store.get("a").data == b"1"


def test_random_ids_come_from_new_id() -> None:
    """With `new_id` a run is reproducible: etags, upload ids and nonces are made with it."""
    numbers = count()
    store = MemoryStore(new_id=lambda: f"w{next(numbers)}")
    assert store.put("a", b"").etag == '"w0"'
    staged = store.stage("b", b"")
    assert (staged.nonce, staged.upload_id) == ("w1", "w2")
    assert store.publish(staged).etag == '"w3"'


def test_another_scheme_is_refused() -> None:
    """The URL of another kind of store is a configuration error."""
    with pytest.raises(ConfigurationError):
        MemoryStore("file:///tmp")
