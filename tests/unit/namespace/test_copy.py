"""Content that is uploaded or copied before it has a file, and the creation of new directories."""

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
    """A copy has the content that was opened, and each object belongs to one file."""
    lake.write("a", b"rows")
    opened = lake.open("a")
    lake.write("a", b"others")
    with lake.open_writer("b") as writer:
        assert writer.copy(opened) == 4
        writer.commit()
    assert lake.read("b") == b"rows"
    Auditor(lake.table, "lake", lake.store).audit()


def test_a_copy_is_the_whole_content(lake: Namespace) -> None:
    """A writer refuses a copy after a write, and a write after a copy."""
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
def test_a_changed_object_is_not_copied(lake: Namespace, content: bytes | None) -> None:
    """The copy of an object that was replaced or removed fails, and leaves no object behind."""
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
def test_a_failed_copy_is_retried(
    lake: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    error: type[CommitError],
    failures: int,
    happens: bool,
) -> None:
    """Each attempt has a target of its own, whatever happened to the earlier ones."""
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
def test_content_can_be_uploaded_before_it_has_a_file(lake: Namespace, size: int) -> None:
    """`finish` makes no file, and ends the writer; `link` makes a file of its result."""
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
    """A store behind a proxy that repeats or refuses requests; equal contents have different etags.

    Attributes:
        repeats: whether write requests are sent twice, and the second answer is returned.
        refuses: whether the server supports no conditions.
        sent: functions that send the write requests again, in order.
    """

    repeats = False
    refuses = False

    def __init__(self) -> None:
        super().__init__(parse_store_url("memory://"))
        self.sent: list[Callable[[], object]] = []

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        """Send it, repeat it, or refuse it."""
        kept = bytes(body)  # type: ignore[arg-type]
        return self._meddle(lambda: super(Meddled, self).put(path, kept, **options), **options)

    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        """Send it, repeat it, or refuse it."""
        return self._meddle(lambda: super(Meddled, self).copy(source, target, **options), **options)

    def _meddle(self, send: Callable[[], PutResult], **options: Any) -> PutResult:
        self.sent.append(send)
        if self.refuses and options.get("condition") is not None:
            raise NotSupported("501 NotImplemented")
        if self.repeats:
            send()
        return send()


def meddled() -> tuple[Namespace, Meddled]:
    """Return a namespace and its store."""
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=ManualClock())
    table.create()
    store = Meddled()
    lake = Namespace(table, store, "lake", backoff=QUICK)
    lake.create()
    store.sent.clear()
    return lake, store


def put_and_copy(lake: Namespace) -> None:
    """Write a file, and copy it."""
    lake.write("a", b"rows")
    with lake.open_writer("b") as writer:
        writer.copy(lake.open("a"))
        writer.commit()


def test_a_request_that_arrives_again_changes_nothing() -> None:
    """This holds for uploads and copies that arrive again after the file was made."""
    lake, store = meddled()
    put_and_copy(lake)
    assert len(store.sent) == 2
    for again in store.sent:
        with pytest.raises(AlreadyExists):
            again()
    assert lake.read("a") == lake.read("b") == b"rows"


def test_a_request_that_a_proxy_repeats_succeeds() -> None:
    """The refusal of the repetition is not taken for a failure, and only one object is stored."""
    lake, store = meddled()
    store.repeats = True
    put_and_copy(lake)
    assert len(store.sent) == len(objects_in(store)) == 2
    assert lake.read("a") == lake.read("b") == b"rows"


def test_a_store_without_conditions_can_be_used() -> None:
    """A namespace tries each kind of condition once, and then sends requests without it."""
    lake, store = meddled()
    store.refuses = True
    put_and_copy(lake)
    assert len(store.sent) == 4
    put_and_copy(lake)
    assert len(store.sent) == 6
    assert lake.read("a") == lake.read("b") == b"rows"


@pytest.mark.parametrize(("size", "puts"), [(0, 1), (9, 1), (17 << 20, 0)])
def test_upload_of_a_binary_file(size: int, puts: int) -> None:
    """Small content takes one request; large content is uploaded in parts."""
    lake, store = meddled()
    assert lake.write("a", io.BytesIO(b"x" * size)).size == size
    assert lake.read("a") == b"x" * size
    assert len(store.sent) == puts
    asked = lake.request_stats.operations["write"]
    assert (asked.store_puts, asked.store_stages, asked.store_heads) == (puts, 1 - puts, 0)


def test_make_directory_can_require_a_new_directory(lake: Namespace) -> None:
    """`exist_ok=False` refuses an existing directory; `parents=False` makes no other directory."""
    assert lake.make_directory("a", exist_ok=False).is_directory
    with pytest.raises(AlreadyExists):
        lake.make_directory("a", exist_ok=False)
    with pytest.raises(NotFound):
        lake.make_directory("x/y", parents=False)
    assert not lake.exists("x")
    assert lake.make_directory("a/b", parents=False).path == "a/b"
