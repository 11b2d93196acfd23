"""The stored content of a file can be read, whatever the store answers to the write."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from commitlog.errors import CommitError, ConfigurationError, Unavailable
from commitlog.namespace import Namespace
from commitlog.stores.api import InFlight, Observation, PutResult, StageWriter
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.namespace import QUICK, ServiceTable

BIG = 17 << 20


class Forgetful(MemoryStore):
    """A store whose answers to writes have no etag.

    Attributes:
        blind: number of following HEADs that fail.
        closed: whether no upload can begin.
        paths: paths of all writes, in order.
    """

    blind = 0
    closed = False

    def __init__(self, *, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.paths: list[str] = []

    def put(self, *args: Any, **kwargs: Any) -> PutResult:
        """Put an object."""
        return self._forgotten(super().put(*args, **kwargs))

    def copy(self, *args: Any, **kwargs: Any) -> PutResult:
        """Copy an object."""
        return self._forgotten(super().copy(*args, **kwargs))

    def publish(self, *args: Any, **kwargs: Any) -> PutResult:
        """Publish an object."""
        return self._forgotten(super().publish(*args, **kwargs))

    def begin_stage(self, *args: Any, **kwargs: Any) -> StageWriter:
        """Begin an upload."""
        if self.closed:
            raise Unavailable("no upload can begin")
        return super().begin_stage(*args, **kwargs)

    def begin_head(self, path: str) -> InFlight[Observation]:
        """Begin a HEAD."""
        if self.blind:
            self.blind -= 1
            raise Unavailable("the answer has no etag")
        return super().begin_head(path)

    def _forgotten(self, result: PutResult) -> PutResult:
        self.paths.append(result.path)
        return evolve(result, etag="")


@pytest.fixture
def store() -> Forgetful:
    """An empty store."""
    return Forgetful(clock=ManualClock())


@pytest.fixture
def lake(store: Forgetful) -> Namespace:
    """A new namespace in the store."""
    clock = ManualClock()
    lake = Namespace(ServiceTable(clock=clock), store, "lake", clock=clock, backoff=QUICK)
    lake.create()
    store.paths.clear()
    return lake


def _in_pieces(lake: Namespace) -> None:
    lake.write("f", io.BytesIO(bytes(BIG)))


def _copied(lake: Namespace) -> None:
    lake.write("g", b"1")
    with lake.open_writer("f") as writer:
        writer.copy(lake.open("g"))
        writer.commit()


@pytest.mark.parametrize(
    ("write", "size"),
    [(lambda lake: lake.write("f", b"1"), 1), (_in_pieces, BIG), (_copied, 1)],
    ids=["put", "published", "copied"],
)
def test_a_write_whose_answer_has_no_etag(
    store: Forgetful, lake: Namespace, write: Callable[[Namespace], object], size: int
) -> None:
    """The etag is read with a HEAD; without it the file could never be read."""
    write(lake)
    data = lake.open("f").data
    assert data.etag == store.head(data.path).etag
    assert len(lake.read("f")) == data.size == size


def test_a_write_without_a_known_etag_is_repeated(store: Forgetful, lake: Namespace) -> None:
    """The repeated write has another path; if no etag can be read at all, no file is made."""
    store.blind = 2
    lake.write("f", b"1")
    assert lake.open("f").data.path == store.paths[-1]
    assert len(set(store.paths)) == 3
    store.blind = 10**9
    with pytest.raises(CommitError, match="no file refers to it"):
        lake.write("g", b"1")
    store.blind = 0
    assert [found.path for found in lake.list()] == ["f"]


def test_content_with_a_failed_write_is_not_stored(store: Forgetful, lake: Namespace) -> None:
    """The upload for a large content could not begin, and the caller goes on: bytes are missing."""
    writer = lake.open_writer("f")
    writer.write(b"one")
    store.closed = True
    with pytest.raises(Unavailable):
        writer.write(bytes(BIG))
    store.closed = False
    for proceed in (lambda: writer.write(b"three"), writer.finish, writer.commit):
        with pytest.raises(ConfigurationError, match=r"a write has failed \(Unavailable"):
            proceed()
    writer.abort()
    assert not list(lake.list()) and not store.paths and not list(store.list_staged())
