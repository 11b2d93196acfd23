"""Checks of the `Table` contract that one caller can make: items, conditions, limits, queries, scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ParamSpec

from commitlog.tables.api import (
    MAX_HASH_BYTES,
    MAX_TRANSACTION_WRITES,
    TABLE_FORMAT,
    Absent,
    ConditionFailed,
    Delete,
    Equals,
    Item,
    ItemPage,
    Key,
    Put,
    TableCondition,
    Value,
)
from commitlog.tables.rules import (
    MARKER_KEY,
    MAX_INT,
    MAX_ITEM_BYTES,
    MAX_RANGE_BYTES,
    MAX_TOKEN_CHARS,
)
from commitlog.testing.contract.assertions import assert_raises
from commitlog.testing.contract.table_run import TableRun, assert_reason, assert_stored, cases

__all__ = ["ITEM_CHECKS"]

P = ParamSpec("P")

# -- one item ---------------------------------------------------------------------------------------


def _check_description(run: TableRun) -> None:
    table = run.table
    table.check()
    assert table.create() is False, "create() of a table that is there must return False"
    info = table.describe()
    assert info.format == TABLE_FORMAT, f"the version marker says format {info.format}"
    assert info.url == table.url
    keys = (info.schema.hash_key, info.schema.range_key)
    assert keys == (table.schema.hash_key, table.schema.range_key), f"describe() says keys are {keys}"
    assert info.created is not None, "the version marker has no creation time"


def _check_missing_items(run: TableRun) -> None:
    key = run.key("missing")
    assert run.table.get(key) is None, "get of a missing item must return None"
    run.table.delete(key)
    page = run.table.query_page(key.hash)
    assert page == ItemPage(items=()), f"a query of nothing found {page}"


def _check_values(run: TableRun) -> None:
    values: list[Value] = ["x", "ü\0\n\U0001d518", b"\0\xff", bytes(range(256)), True, False]
    values += [0, 1, -1, 2**53 + 1, 2**63, -(2**64), MAX_INT, -MAX_INT]
    if run.empty_values:
        values += ["", b""]
    # Reserved words of DynamoDB, and what its expressions would take for operators.
    names = ["ttl", "timeout", "name", "size", "a.b", "a b", "#n0", ":v0", "a[0]", "ü"]
    attributes = {f"value-{i}": value for i, value in enumerate(values)}
    attributes |= {name: i for i, name in enumerate(names)}
    if run.table.schema.ttl_attribute is not None:
        attributes[run.table.schema.ttl_attribute] = 4_000_000_000
    key = run.key("values")
    item = run.item(key, attributes)
    run.table.put(item)
    assert_stored(run, key, item, "put")
    for name, value in item.items():
        run.table.put(item, condition=Equals(name, value))


def _check_replacement(run: TableRun) -> None:
    key = run.key("replaced")
    given = run.item(key, {"old": 1})
    run.table.put(given)
    given["old"] = 2
    assert_stored(run, key, run.item(key, {"old": 1}), "the caller changed the dict that it had put")
    run.table.put(run.item(key, {"new": 1}))
    assert_stored(run, key, run.item(key, {"new": 1}), "a put over another item")
    run.table.delete(key)
    assert_stored(run, key, None, "a delete")


def _check_conditions(run: TableRun) -> None:
    for key, stored, condition in cases(run, "put-if"):
        new = run.item(key, {"generation": 4})
        happened = _attempt(run, partial(run.table.put, new, condition=condition), condition, stored)
        assert_stored(run, key, new if happened else stored, f"a put if {condition} over {stored}")
    for key, stored, condition in cases(run, "delete-if"):
        happened = _attempt(run, partial(run.table.delete, key, condition=condition), condition, stored)
        assert_stored(run, key, None if happened else stored, f"a delete if {condition} of {stored}")


def _attempt(
    run: TableRun, write: Callable[[], None], condition: TableCondition, stored: Item | None
) -> bool:
    try:
        write()
    except ConditionFailed as error:
        assert_reason(run, error, stored)
        happened = False
    else:
        happened = True
    assert happened == condition.holds(stored), f"{condition} of {stored}: happened is {happened}"
    return happened


def _check_begin_put(run: TableRun) -> None:
    keys = [run.key("begun", str(i)) if run.ranged else run.key(f"begun-{i}") for i in range(5)]
    pending = [run.table.begin_put(run.item(key, {"n": 1})) for key in keys]
    for finish in reversed(pending):
        finish()
    for key in keys:
        assert_stored(run, key, run.item(key, {"n": 1}), "begin_put and its pending call")
    # The pending call raises the error, not the method that began it.
    refused = run.table.begin_put(run.item(keys[0], {"n": 2}), condition=Absent())
    assert not _attempt(run, refused, Absent(), run.item(keys[0], {"n": 1}))


def _check_begin_get(run: TableRun) -> None:
    keys = [run.key("sought", str(i)) if run.ranged else run.key(f"sought-{i}") for i in range(5)]
    items = [run.item(key, {"n": number}) for number, key in enumerate(keys[:4])]
    for item in items:
        run.table.put(item)
    pending = [run.table.begin_get(key) for key in keys]
    found = [finish() for finish in reversed(pending)]
    assert found == [None, *reversed(items)], f"begin_get and its pending calls found {found}"


# -- limits -----------------------------------------------------------------------------------------


def _check_limits(run: TableRun) -> None:
    table, key = run.table, run.key("limits")
    largest = run.item(key, {"data": b"x" * (MAX_ITEM_BYTES - 1000)})
    table.put(largest)
    assert_stored(run, key, largest, "a put of nearly the largest item")
    table.delete(key)
    wrong_types: list[Any] = [None, 1.5, ["x"], {"a": 1}, bytearray(b"x")]
    for wrong in wrong_types:
        _assert_refused(TypeError, table.put, {**run.item(key), "a": wrong})
        _assert_refused(TypeError, table.put, run.item(key), condition=Equals("a", wrong))
    wrong_values: list[dict[str, Value]] = [
        {"n": MAX_INT + 1},
        {"n": -MAX_INT - 1},
        {"s": "\ud800"},
        {"data": b"x" * MAX_ITEM_BYTES},
        {"": 1},
    ]
    for attributes in wrong_values:
        _assert_refused(ValueError, table.put, run.item(key, attributes))
    schema = table.schema
    _assert_refused(ValueError, table.put, {"a": 1})
    _assert_refused(ValueError, table.put, {**run.item(key), schema.hash_key: 1})
    wrong_keys = ["", MARKER_KEY, "x" * (MAX_HASH_BYTES + 1)]
    for wrong_key in [Key(hash_key, key.range) for hash_key in wrong_keys] + _wrong_ranges(run):
        _assert_refused(ValueError, table.get, wrong_key)
        _assert_refused(ValueError, table.delete, wrong_key)
        _assert_refused(ValueError, table.put, run.item(wrong_key))
    _assert_refused(ValueError, table.query_page, key.hash, limit=0)
    _assert_refused(ValueError, table.query_page, key.hash, token="no token")
    for segment, segments in ((0, 0), (-1, 2), (2, 2)):
        _assert_refused(ValueError, table.scan_page, segment=segment, segments=segments)
    put = Put(run.item(key))
    _assert_refused(ValueError, table.transact, [put, Delete(key)])
    _assert_refused(ValueError, table.transact, [put], token="x" * (MAX_TOKEN_CHARS + 1))
    many = [Put(run.item(run.key(f"limits-{i}"))) for i in range(MAX_TRANSACTION_WRITES + 1)]
    _assert_refused(ValueError, table.transact, many)
    assert_stored(run, key, None, "calls with wrong arguments")


def _assert_refused(
    kind: type[Exception], call: Callable[P, object], *args: P.args, **keywords: P.kwargs
) -> None:
    assert_raises(kind, "a wrong argument", call, *args, **keywords)


def _wrong_ranges(run: TableRun) -> list[Key]:
    name = run.key("limits").hash
    if run.ranged:
        return [Key(name), Key(name, ""), Key(name, "x" * (MAX_RANGE_BYTES + 1))]
    return []


# -- many items -------------------------------------------------------------------------------------

#: In the order of their UTF-8 bytes, which is neither that of UTF-16 nor that of a dictionary.
_RANGES = ('"e"', "*", "A", "B", "a", "a-b", "a/b", "aa", "z", "é", "\uffee", "\U0001f600")


def _check_queries(run: TableRun) -> None:
    if not run.ranged:
        key = run.key("query")
        run.table.put(run.item(key))
        assert list(run.table.query(key.hash)) == [run.item(key)]
        return
    for part in sorted(_RANGES, key=hash):
        run.table.put(run.item(run.key("query", part)))
    # Hash keys that a comparison of prefixes, or of a joined key, would take for the same.
    run.table.put(run.item(run.key("quer", "y")))
    run.table.put(run.item(run.key("query2", "a")))
    hash_key = run.key("query").hash
    for start_after in ("", *_RANGES, "a-", "a0"):
        wanted = [part for part in _RANGES if part.encode() > start_after.encode()]
        for limit in (1, 3, len(_RANGES), 1000):
            found = list(_query(run, hash_key, start_after, limit))
            assert found == wanted, f"query after {start_after!r} by {limit} gave {found}, not {wanted}"


def _query(run: TableRun, hash_key: str, start_after: str, limit: int) -> Iterator[Value]:
    token = None
    while True:
        page = run.table.query_page(hash_key, start_after=start_after, limit=limit, token=token)
        assert len(page.items) <= limit, f"a page of {limit} has {len(page.items)} items"
        yield from (item[run.table.schema.range_key or ""] for item in page.items)
        assert page.next_token is None or page.next_token != token, "the next page is the same page"
        token = page.next_token
        if token is None:
            return


def _check_scans(run: TableRun) -> None:
    keys = {run.key(f"scan-{i}", str(j)) for i in range(20) for j in range(2)}
    for key in keys:
        run.table.put(run.item(key))
    for segments, limit in ((1, 7), (3, 1000), (3, 5)):
        found = [key for s in range(segments) for key in _scan(run, s, segments, limit)]
        ours = [key for key in found if key in keys]
        assert len(ours) == len(set(ours)), f"{segments} segments overlap"
        assert set(ours) == keys, f"{segments} segments left out {keys - set(ours)}"
        assert all(key.hash != MARKER_KEY for key in found), "a scan gave the version marker"


def _scan(run: TableRun, segment: int, segments: int, limit: int) -> Iterator[Key]:
    token = None
    while True:
        page = run.table.scan_page(segment=segment, segments=segments, limit=limit, token=token)
        assert len(page.items) <= limit, f"a page of {limit} has {len(page.items)} items"
        yield from map(run.table.schema.key_of, page.items)
        assert page.next_token is None or page.next_token != token, "the next page is the same page"
        token = page.next_token
        if token is None:
            return


#: In this order: the simpler rule before those that rest on it.
ITEM_CHECKS = (
    _check_description,
    _check_missing_items,
    _check_values,
    _check_replacement,
    _check_conditions,
    _check_begin_put,
    _check_begin_get,
    _check_limits,
    _check_queries,
    _check_scans,
)
