"""Every table keeps the contract of the port, on every server there is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commitlog.errors import NotFound, TableNotFound, WrongTableSchema
from commitlog.tables import Absent, Item, Key, Put, Table, TableSchema
from commitlog.tables.open import open_table
from commitlog.testing import check_table

LEASES = TableSchema(hash_key="path", range_key="etag", ttl_attribute="ttl")
SCHEMAS = (LEASES, TableSchema(hash_key="name"))

#: What a server is known not to do.
LACKS = {"dynalite": {"transactions": False, "returns_old_item": False, "empty_values": False}}

Opener = Callable[[TableSchema], Table]


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("ministack", marks=pytest.mark.servers),
        pytest.param("dynalite", marks=pytest.mark.servers),
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    """Which table, or which server, the test runs over."""
    return str(request.param)


@pytest.fixture
def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens one and the same new table, under the keys given, each time anew."""
    options: dict[str, str] = {}
    if kind == "memory":
        url = f"memory://{tmp_path}"
    elif kind == "sqlite":
        url = f"sqlite://{tmp_path}/table.db"
    else:
        server = request.getfixturevalue(kind)
        url, options = f"dynamodb://{server.new_table_name()}", server.options
    tables: list[Table] = []

    def opener(schema: TableSchema) -> Table:
        tables.append(open_table(url, schema, **options))
        return tables[-1]

    yield opener
    for table in tables:
        table.close()


@pytest.mark.parametrize("schema", SCHEMAS, ids=["ranged", "plain"])
def test_contract(opened: Opener, kind: str, schema: TableSchema) -> None:
    """The table keeps every rule of the port, with and without a range key."""
    table = opened(schema)
    table.create()
    check_table(table, **LACKS.get(kind, {}))


def test_contract_needs_nothing_else(opened: Opener, kind: str) -> None:
    """The contract can be checked on a table in use, and again: it keeps to keys of its own."""
    table = opened(LEASES)
    table.create()
    table.put({"path": "a", "etag": "*", "generation": 1})
    for _ in range(2):
        check_table(table, threads=2, keys=2, **LACKS.get(kind, {}))
    assert table.get(Key("a", "*")) == {"path": "a", "etag": "*", "generation": 1}


def test_racing_creators(opened: Opener) -> None:
    """Of several that create the table at once one is told that it did, and all can use it."""
    tables = [opened(LEASES) for _ in range(4)]
    start = threading.Barrier(len(tables), timeout=30)

    def create(number: int) -> bool:
        start.wait()
        created = tables[number].create()
        tables[number].put({"path": str(number), "etag": "*"}, condition=Absent())
        return created

    with ThreadPoolExecutor(len(tables)) as pool:
        assert sorted(pool.map(create, range(len(tables)))) == [False, False, False, True]
    assert {item["path"] for item in tables[0].scan()} == {"0", "1", "2", "3"}


def test_missing_table(opened: Opener) -> None:
    """Every method of a table that does not exist says so, and how to create it."""
    table = opened(LEASES)
    key = Key("a", "*")
    for call in (
        table.check,
        table.describe,
        lambda: table.get(key),
        table.begin_put({"path": "a", "etag": "*"}),
        lambda: table.delete(key),
        lambda: table.query_page("a"),
        table.scan_page,
    ):
        with pytest.raises(TableNotFound, match="commitlog table create") as caught:
            call()
        assert not isinstance(caught.value, NotFound)


def test_other_keys(opened: Opener) -> None:
    """A table of other keys is refused with the keys it has and those needed, and left as it is."""
    opened(LEASES).create()
    for wanted in (TableSchema(hash_key="path"), TableSchema(hash_key="p", range_key="etag")):
        table = opened(wanted)
        for call in (table.check, table.create):
            with pytest.raises(WrongTableSchema) as caught:
                call()
            for word in ("'path' (hash, S), 'etag' (range, S)", repr(wanted.hash_key), "table create"):
                assert word in str(caught.value)
        with pytest.raises(WrongTableSchema):
            table.put({wanted.hash_key: "a", "etag" if wanted.range_key else "x": "*"})
        # What is there can be looked at all the same.
        assert table.describe().schema.range_key == "etag"
    assert list(opened(LEASES).scan()) == []


def test_describe(opened: Opener, kind: str) -> None:
    """A description has the keys, the TTL attribute, the format and a time of creation."""
    table = opened(LEASES)
    table.create()
    info = table.describe()
    assert info.schema == (
        LEASES if kind != "dynalite" else TableSchema(hash_key="path", range_key="etag")
    )
    assert info.format == 1
    assert info.created is not None
    assert "secret" not in f"{info}{table!r}"


def test_large_pages(opened: Opener) -> None:
    """More items than fit one page of the service all come, in order and once."""
    table = opened(LEASES)
    table.create()
    parts = [f"{i:04}" for i in range(40)]
    for part in parts:
        table.put({"path": "a", "etag": part, "data": b"x" * 60_000})
    assert [item["etag"] for item in table.query("a")] == parts
    assert sorted(str(item["etag"]) for item in table.scan()) == parts


def test_many_puts(opened: Opener) -> None:
    """Each is done by itself: those of which the condition does not hold are told, and left out."""
    table = opened(LEASES)
    table.create()
    items: list[Item] = [{"path": "a", "etag": f"{number:03}", "data": b"x"} for number in range(250)]
    there: list[Item] = [{**item, "data": b"y"} for item in items[::100]]
    assert table.put_all(there) == ()
    assert list(table.put_all(iter(items), condition=Absent())) == items[::100]
    assert [item["data"] for item in table.query("a")].count(b"y") == 3
    assert len(list(table.query("a"))) == 250
    with pytest.raises(TypeError):
        table.put_all([{"path": "b", "etag": "1", "data": None}])  # type: ignore[dict-item]


def test_large_transaction(opened: Opener, kind: str) -> None:
    """A transaction takes a hundred writes."""
    if kind in LACKS:
        pytest.skip("has no transactions")
    table = opened(LEASES)
    table.create()
    table.transact([Put({"path": "a", "etag": f"{i:03}"}, Absent()) for i in range(100)])
    assert len(list(table.query("a"))) == 100
