"""One run of the checks of the `Table` contract, and its assertions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from attrs import field, frozen

from commitlog.tables.api import (
    Absent,
    ConditionFailed,
    Equals,
    Item,
    Key,
    Table,
    TableCondition,
    Value,
)

__all__ = ["TableRun", "assert_reason", "assert_stored", "cases"]


@frozen(kw_only=True)
class TableRun:
    """One run of the checks: the table, its known limits, and the run's own keys."""

    table: Table
    returns_old_item: bool
    empty_values: bool
    threads: int
    keys: int
    prefix: str = field(factory=lambda: f"check-{uuid.uuid4().hex[:12]}")

    @property
    def ranged(self) -> bool:
        """Whether the table has a range key."""
        return self.table.schema.range_key is not None

    def key(self, name: str, part: str = "*") -> Key:
        """Return a key of this run: `name` below its prefix, and `part` if the table is ranged."""
        return Key(f"{self.prefix}/{name}", part if self.ranged else None)

    def item(self, key: Key, attributes: Item | None = None) -> dict[str, Value]:
        """Return the item with these attributes under `key`."""
        schema = self.table.schema
        item: dict[str, Value] = {**(attributes or {}), schema.hash_key: key.hash}
        if schema.range_key is not None and key.range is not None:
            item[schema.range_key] = key.range
        return item


def assert_stored(run: TableRun, key: Key, item: Item | None, after: str) -> None:
    """Assert that `item` is stored under `key` now, with values of the same types."""
    found = run.table.get(key)
    assert _same(found, item), f"after {after}: stored is {found!r}, not {item!r}"


def _same(one: Item | None, other: Item | None) -> bool:
    if one is None or other is None:
        return one is other
    # 1 == True, but they are not the same value of an item.
    types = [{name: type(value) for name, value in item.items()} for item in (one, other)]
    return dict(one) == dict(other) and types[0] == types[1]


def assert_reason(run: TableRun, error: BaseException | None, stored: Item | None) -> None:
    """Assert that `error` reports that the stored item did not satisfy the condition."""
    assert isinstance(error, ConditionFailed), f"not a ConditionFailed: {error!r}"
    if error.item_known:
        assert _same(error.item, stored), f"ConditionFailed has {error.item!r}, not {stored!r}"
    else:
        assert error.item is None, "ConditionFailed has an item that it calls unknown"
        unknown = not run.returns_old_item or stored is None
        assert unknown, f"ConditionFailed does not have the stored item: {stored!r}"


_CONDITIONS: Sequence[TableCondition] = (
    Absent(),
    Absent("owner"),
    Equals("generation", 3),
    Equals("generation", 1),
    Equals("generation", "3"),
    Equals("generation", True),
    Equals("owner", "me") & Equals("generation", 3),
    Equals("generation", 3) & Absent("owner"),
    Absent() & Equals("generation", 3),
)
_STATES: Sequence[Item | None] = (
    None,
    {"other": 1},
    {"generation": 3},
    {"generation": "3"},
    {"generation": True},
    {"generation": 3, "owner": "me"},
)


def cases(run: TableRun, name: str) -> Iterator[tuple[Key, Item | None, TableCondition]]:
    """Yield every condition with every kind of item, stored under a new key."""
    for c, condition in enumerate(_CONDITIONS):
        for s, state in enumerate(_STATES):
            key = run.key(f"{name}-{c}-{s}")
            stored = None if state is None else run.item(key, state)
            if stored is not None:
                run.table.put(stored)
            yield key, stored, condition
