"""Content that is stored or copied before anything names it, and directories that only one can make."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    NotFound,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace
from commitlog.stores.api import PutResult
from commitlog.stores.body import Body
from commitlog.stores.memory import MemoryStore
from commitlog.tables.memory import MemoryTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_store_url, parse_table_url
from support.namespace import QUICK, Auditor, objects_in


@pytest.fixture
def lake() -> Namespace:
    """A namespace in memory."""
    clock = ManualClock()
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=clock)
    table.create()
    store = MemoryStore(parse_store_url("memory://"), clock=clock)
    namespace = Namespace(table, store, "lake", clock=clock, backoff=QUICK)
    namespace.create()
    return namespace


def test_a_copy_is_an_object_of_its_own(lake: Namespace) -> None:
    """A copy has the content that was opened, and each object is named once."""
    lake.write("a", b"rows")
    opened = lake.open("a")
    lake.write("a", b"others")
    with lake.open_writer("b") as writer:
        assert writer.copy(opened) == 4
        writer.commit()
    assert lake.read("b") == b"rows"
    Auditor(lake.table, "lake", lake.store).audit()


def test_a_copy_is_the_whole_content(lake: Namespace) -> None:
    """Nothing is copied after something was written, nor written after something was copied."""
    lake.write("a", b"rows")
    with lake.open_writer("b") as writer:
        writer.copy(lake.open("a"))
        with pytest.raises(ConfigurationError):
            writer.write(b"more")
        with pytest.raises(ConfigurationError):
            writer.copy(lake.open("a"))
    with lake.open_writer("b") as writer:
        writer.write(b"first")
        with pytest.raises(ConfigurationError):
            writer.copy(lake.open("a"))
    assert [info.path for info in objects_in(lake.store)] == [lake.open("a").data.path]


@pytest.mark.parametrize("content", [None, b"other"])
def test_what_was_changed_is_not_copied(lake: Namespace, content: bytes | None) -> None:
    """An object that others removed or replaced makes no copy, and leaves none behind."""
    lake.store.put("object", b"rows")
    lake.maintenance.import_objects()
    opened = lake.open("object")
    if content is None:
        lake.store.delete("object")
    else:
        lake.store.put("object", content)
    with lake.open_writer("b") as writer, pytest.raises(ObjectChanged):
        writer.copy(opened)
    assert [info.path for info in objects_in(lake.store)] == ["object"][: content is not None]


@pytest.mark.parametrize(("failures", "happens"), [(2, True), (99, False)])
@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
def test_a_copy_is_tried_again(
    lake: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    error: type[CommitError],
    failures: int,
    happens: bool,
) -> None:
    """Whatever became of a copy, another one goes under another name."""
    lake.write("a", b"rows")
    real, targets = lake.store.copy, set()

    def copy(source: str, target: str, **_: object) -> object:
        targets.add(target)
        if len(targets) <= failures:
            raise error("lost")
        return real(source, target)

    monkeypatch.setattr(lake.store, "copy", copy)
    writer = lake.open_writer("b")
    if happens:
        writer.copy(lake.open("a"))
        assert writer.commit().size == 4
        assert len(targets) == failures + 1
    else:
        with pytest.raises(Unavailable):
            writer.copy(lake.open("a"))


@pytest.mark.parametrize("size", [4, 9 << 20])
def test_content_can_be_stored_before_it_is_named(lake: Namespace, size: int) -> None:
    """`finish` makes no file; `link` makes one of what it returns; the writer is done."""
    writer = lake.open_writer("a")
    writer.write(b"x" * size)
    data = writer.finish()
    assert (data.size, lake.exists("a")) == (size, False)
    with pytest.raises(ValueError, match="committed"):
        writer.commit()
    writer.abort()
    assert lake.link("elsewhere", data).size == size
    assert lake.read("elsewhere", end=2) == b"xx"


class Meddled(MemoryStore):
    """A store that is reached by something that meddles with requests; it tells equal content apart.

    Attributes:
        repeats: whether what stores is sent twice on the way, and the second answer passed on.
        refuses: whether the server offers no conditions.
        sent: what stores, in order, each to be called again.
    """

    repeats = False
    refuses = False

    def __init__(self) -> None:
        super().__init__(parse_store_url("memory://"))
        self.sent: list[Callable[[], object]] = []

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        """Do it, or not."""
        kept = bytes(body)  # type: ignore[arg-type]
        return self._meddle(lambda: super(Meddled, self).put(path, kept, **options), **options)

    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        """Do it, or not."""
        return self._meddle(lambda: super(Meddled, self).copy(source, target, **options), **options)

    def _meddle(self, send: Callable[[], PutResult], **options: Any) -> PutResult:
        self.sent.append(send)
        if self.refuses and options.get("condition") is not None:
            raise NotSupported("501 NotImplemented")
        if self.repeats:
            send()
        return send()


def meddled() -> tuple[Namespace, Meddled]:
    """Return a namespace, and its store."""
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=ManualClock())
    table.create()
    store = Meddled()
    lake = Namespace(table, store, "lake", backoff=QUICK)
    lake.create()
    store.sent.clear()
    return lake, store


def put_and_copy(lake: Namespace) -> None:
    """Make a file, and a copy of it."""
    lake.write("a", b"rows")
    with lake.open_writer("b") as writer:
        writer.copy(lake.open("a"))
        writer.commit()


def test_a_request_that_the_network_delivers_again() -> None:
    """An upload or a copy that comes once more, when the file is there, changes nothing."""
    lake, store = meddled()
    put_and_copy(lake)
    assert len(store.sent) == 2
    for again in store.sent:
        with pytest.raises(AlreadyExists):
            again()
    assert lake.read("a") == lake.read("b") == b"rows"


def test_a_request_that_something_on_the_way_repeats() -> None:
    """The refusal of the second is no failure of the first, and nothing is stored twice."""
    lake, store = meddled()
    store.repeats = True
    put_and_copy(lake)
    assert len(store.sent) == len(objects_in(store)) == 2
    assert lake.read("a") == lake.read("b") == b"rows"


def test_a_store_that_offers_no_conditions() -> None:
    """It is asked once in the life of a namespace, for each kind of request; all else is as ever."""
    lake, store = meddled()
    store.refuses = True
    put_and_copy(lake)
    assert len(store.sent) == 4
    put_and_copy(lake)
    assert len(store.sent) == 6
    assert lake.read("a") == lake.read("b") == b"rows"


@pytest.mark.parametrize(("size", "puts"), [(0, 1), (9, 1), (17 << 20, 0)])
def test_content_of_a_binary_file(size: int, puts: int) -> None:
    """It goes in one request if it is not large, and no other; else in parts."""
    lake, store = meddled()
    assert lake.write("a", io.BytesIO(b"x" * size)).size == size
    assert lake.read("a") == b"x" * size
    assert len(store.sent) == puts
    asked = lake.request_stats.operations["write"]
    assert (asked.store_puts, asked.store_stages, asked.store_heads) == (puts, 1 - puts, 0)


def test_a_directory_that_must_be_new(lake: Namespace) -> None:
    """With `exist_ok=False` a second one is refused; without `parents` no other is made."""
    assert lake.make_directory("a", exist_ok=False).is_directory
    with pytest.raises(AlreadyExists):
        lake.make_directory("a", exist_ok=False)
    with pytest.raises(NotFound):
        lake.make_directory("x/y", parents=False)
    assert not lake.exists("x")
    assert lake.make_directory("a/b", parents=False).path == "a/b"
