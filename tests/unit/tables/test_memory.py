"""Tables in memory: sharing by name, and their lifetime."""

from __future__ import annotations

import pytest

from commitlog.errors import TableNotFound
from commitlog.tables import Key, TableSchema
from commitlog.tables.memory import MemoryTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url

SCHEMA = TableSchema(hash_key="path", ttl_attribute="ttl")


def _open(url: str, clock: ManualClock | None = None) -> MemoryTable:
    return MemoryTable(parse_table_url(url), SCHEMA, clock=clock or ManualClock())


def test_named_tables_are_shared() -> None:
    """All users of a name within the process have the same items."""
    one, other = _open("memory://shared"), _open("memory://shared")
    assert one.create() is True
    assert other.create() is False
    one.put({"path": "a"})
    assert other.get(Key("a")) == {"path": "a"}


def test_unnamed_tables_are_not_shared() -> None:
    """Each table without a name is separate."""
    one, other = _open("memory://"), _open("memory://")
    one.create()
    with pytest.raises(TableNotFound):
        other.check()


def test_a_named_table_is_dropped_with_its_last_user() -> None:
    """After the last table object of a name is gone, the name opens a new table."""
    table = _open("memory://passing")
    table.create()
    del table
    assert _open("memory://passing").create() is True


def test_returned_items_are_copies() -> None:
    """Changing an item that was read changes nothing in the table."""
    table = _open("memory://")
    table.create()
    table.put({"path": "a", "n": 1})
    for item in (table.get(Key("a")), *table.scan()):
        assert isinstance(item, dict)
        item["n"] = 2
    assert table.get(Key("a")) == {"path": "a", "n": 1}


def test_expired_items_are_removed() -> None:
    """It removes the items that have expired by the table's clock. Until then all readers see them."""
    clock = ManualClock(epoch=1000.0)
    table = _open("memory://", clock)
    table.create()
    for path, ttl in (("past", 1009), ("now", 1010), ("future", 1011)):
        table.put({"path": path, "ttl": ttl})
    table.put({"path": "never"})
    table.put({"path": "word", "ttl": "1"})
    clock.advance(10)
    assert table.get(Key("past")) is not None
    assert table.remove_expired() == 1
    assert {item["path"] for item in table.scan()} == {"now", "future", "never", "word"}
    assert table.remove_expired() == 0
