"""The records of namespaces and tables."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    CorruptRecord,
    DirectoryNotEmpty,
    NotFound,
    PreconditionFailed,
)
from commitlog.lance.catalog import LanceCatalog
from commitlog.oplog.torn_reads import TRIES
from commitlog.stores import MemoryStore
from commitlog.stores.api import Page
from commitlog.testing import ManualClock
from support.torn_store import TornStore


@pytest.fixture
def store() -> ConditionalStore:
    """A store in memory."""
    return ConditionalStore(MemoryStore())


@pytest.fixture
def catalog(store: ConditionalStore) -> LanceCatalog:
    """A catalog in it, with predictable ids."""
    numbers = count(1)
    return LanceCatalog(store, new_id=lambda: f"{next(numbers):012}")


def test_a_table_is_declared_once(catalog: LanceCatalog) -> None:
    """The second caller is refused, and the record is that of the first."""
    first = catalog.declare(["t"], properties={"owner": "A"})
    with pytest.raises(AlreadyExists):
        catalog.declare(["t"], properties={"owner": "B"})
    assert catalog.table(["t"]) == first
    assert first.location == "t-000000000001.lance"


def test_a_table_that_is_created_again_has_another_directory(
    store: ConditionalStore, catalog: LanceCatalog
) -> None:
    """So a late write of the dropped table does not reach it."""
    before = catalog.declare(["t"])
    store.put(f"{before.location}/data/a", b"rows")
    catalog.delete_files(catalog.remove(["t"]))
    after = catalog.declare(["t"])
    assert after.location != before.location
    assert [info.path for info in store.list()] == ["_catalog/t.json"]


def test_namespaces_hold_namespaces_and_tables(catalog: LanceCatalog) -> None:
    """Listings are sorted, and a namespace that holds something is not dropped."""
    catalog.create_namespace(["a"], {"x": "1"})
    catalog.create_namespace(["a", "b"], {})
    for table in ("t2", "t1"):
        catalog.declare(["a", table])
    assert catalog.children([]) == (["a"], [])
    assert catalog.children(["a"]) == (["b"], ["t1", "t2"])
    assert catalog.namespace(["a"]) == {"x": "1"}
    with pytest.raises(DirectoryNotEmpty):
        catalog.drop_namespace(["a"])
    catalog.drop_namespace(["a", "b"])
    for table in ("t1", "t2"):
        catalog.remove(["a", table])
    catalog.drop_namespace(["a"])
    assert catalog.children([]) == ([], [])


def test_what_is_missing_is_reported(catalog: LanceCatalog) -> None:
    """Nothing is created in a namespace that does not exist."""
    for call in (
        lambda: catalog.table(["t"]),
        lambda: catalog.remove(["t"]),
        lambda: catalog.declare(["a", "t"]),
        lambda: catalog.create_namespace(["a", "b"], {}),
        lambda: catalog.drop_namespace(["a"]),
        lambda: catalog.children(["a"]),
        lambda: catalog.namespace(["a"]),
    ):
        with pytest.raises(NotFound):
            call()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "_catalog", "a.json", "ü", "a" * 101, "-a"])
def test_a_name_that_a_store_or_url_could_change_is_refused(catalog: LanceCatalog, name: str) -> None:
    """Such as one with a slash, or one of the catalog's own."""
    with pytest.raises(ConfigurationError, match="cannot name a table"):
        catalog.declare([name])
    with pytest.raises(ConfigurationError, match="cannot name a table"):
        catalog.create_namespace([name], {})


def test_the_root_is_neither_created_nor_dropped(catalog: LanceCatalog) -> None:
    """It always exists, and is no table."""
    with pytest.raises(AlreadyExists):
        catalog.create_namespace([], {})
    with pytest.raises(ConfigurationError):
        catalog.drop_namespace([])
    with pytest.raises(ConfigurationError):
        catalog.table([])
    with pytest.raises(ConfigurationError):
        catalog.declare(["t"], location="_catalog/x")


@pytest.mark.parametrize(
    ("make", "drop", "path"),
    [
        (LanceCatalog.declare, LanceCatalog.remove, "_catalog/t.json"),
        (
            lambda catalog, names: catalog.create_namespace(names, {}),
            LanceCatalog.drop_namespace,
            "_catalog/t/",
        ),
    ],
)
def test_only_the_record_that_was_read_is_removed(
    make: Callable[[LanceCatalog, list[str]], object],
    drop: Callable[[LanceCatalog, list[str]], object],
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another client drops the name, and uses it again, before the record is removed."""
    memory = MemoryStore()
    numbers = count(1)
    catalog, other = (
        LanceCatalog(ConditionalStore(memory), new_id=lambda: f"{next(numbers):012}") for _ in range(2)
    )
    make(catalog, ["t"])
    real = MemoryStore.delete

    def delete(self: MemoryStore, path: str, **options: Any) -> None:
        monkeypatch.setattr(MemoryStore, "delete", real)
        drop(other, ["t"])
        make(other, ["t"])
        real(self, path, **options)

    monkeypatch.setattr(MemoryStore, "delete", delete)
    with pytest.raises(PreconditionFailed):
        drop(catalog, ["t"])
    assert [info.path.startswith(path) for info in memory.list()] == [True]


def test_a_namespace_that_was_seen_empty_before_it_was_made_again_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that another client has made since then has a table."""
    memory = MemoryStore()
    catalog, other = (LanceCatalog(ConditionalStore(memory), new_id=lambda: "1") for _ in range(2))
    catalog.create_namespace(["n"], {})
    real = MemoryStore.list_page

    def then_made_again(self: MemoryStore, *arguments: Any, **options: Any) -> Page:
        monkeypatch.setattr(MemoryStore, "list_page", real)
        found = real(self, *arguments, **options)
        other.drop_namespace(["n"])
        other.create_namespace(["n"], {})
        other.declare(["n", "t"])
        return found

    monkeypatch.setattr(MemoryStore, "list_page", then_made_again)
    with pytest.raises(PreconditionFailed):
        catalog.drop_namespace(["n"])
    assert catalog.children(["n"]) == ([], ["t"])


def test_a_damaged_record_is_reported(store: ConditionalStore, catalog: LanceCatalog) -> None:
    """It is not taken for a missing table."""
    store.put("_catalog/t.json", b'{"format": 1}')
    with pytest.raises(CorruptRecord):
        catalog.table(["t"])


def test_records_that_are_replaced_while_they_are_read_are_read_again() -> None:
    """A dropped name may be used again meanwhile. A record that stays damaged is corrupt."""
    clock = ManualClock()
    memory = TornStore(clock=clock)
    catalog = LanceCatalog(ConditionalStore(memory, clock=clock), new_id=lambda: "1", clock=clock)
    catalog.create_namespace(["a"], {"x": "1"})
    catalog.declare(["a", "t"])
    for read in (lambda: catalog.namespace(["a"]), lambda: catalog.table(["a", "t"])):
        memory.torn = 1
        assert read()
        assert not memory.torn
        memory.torn = 1_000
        with pytest.raises(CorruptRecord, match="left as it is"):
            read()
        assert memory.torn == 1_000 - TRIES
