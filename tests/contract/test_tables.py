"""Every table keeps the contract of the port, on every available server."""

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
from support.selection import with_all

LEASES = TableSchema(hash_key="path", range_key="etag", ttl_attribute="ttl")
SCHEMAS = (LEASES, TableSchema(hash_key="name"))

#: Features that a server is known to lack.
LACKS = {"dynalite": {"transactions": False, "returns_old_item": False, "empty_values": False}}

Opener = Callable[[TableSchema], Table]


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("ministack", marks=pytest.mark.servers),
        with_all("dynalite", marks=[pytest.mark.servers]),
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    """The table, or the server, of the test."""
    return str(request.param)


@pytest.fixture
def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """A function that opens the same new table with the given keys."""
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
def test_a_table_keeps_the_contract(opened: Opener, kind: str, schema: TableSchema) -> None:
    """It keeps every rule of the port, with and without a range key."""
    table = opened(schema)
    table.create()
    check_table(table, **LACKS.get(kind, {}))


def test_the_contract_can_be_checked_on_a_table_in_use(opened: Opener, kind: str) -> None:
    """The check can be repeated, and uses only its own keys."""
    table = opened(LEASES)
    table.create()
    table.put({"path": "a", "etag": "*", "generation": 1})
    for _ in range(2):
        check_table(table, threads=2, keys=2, **LACKS.get(kind, {}))
    assert table.get(Key("a", "*")) == {"path": "a", "etag": "*", "generation": 1}


def test_one_of_several_concurrent_creators_succeeds(opened: Opener) -> None:
    """Exactly one `create` returns true, and all creators can use the table."""
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


def test_a_missing_table_is_reported(opened: Opener) -> None:
    """Every method raises an error that says how to create the table."""
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


def test_a_table_with_other_keys_is_refused(opened: Opener) -> None:
    """The error has the actual and the required keys, and the table is unchanged."""
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
        # The table can still be described.
        assert table.describe().schema.range_key == "etag"
    assert list(opened(LEASES).scan()) == []


def test_a_description_has_the_properties_of_the_table(opened: Opener, kind: str) -> None:
    """It has the keys, the TTL attribute, the format and the creation time."""
    table = opened(LEASES)
    table.create()
    info = table.describe()
    assert info.schema == (
        LEASES if kind != "dynalite" else TableSchema(hash_key="path", range_key="etag")
    )
    assert info.format == 1
    assert info.created is not None
    assert "secret" not in f"{info}{table!r}"


def test_many_pages_are_read_completely(opened: Opener) -> None:
    """More items than fit into one page are all returned, in order and once."""
    table = opened(LEASES)
    table.create()
    parts = [f"{i:04}" for i in range(40)]
    for part in parts:
        table.put({"path": "a", "etag": part, "data": b"x" * 60_000})
    assert [item["etag"] for item in table.query("a")] == parts
    assert sorted(str(item["etag"]) for item in table.scan()) == parts


def test_many_puts_are_independent(opened: Opener) -> None:
    """Items whose condition does not hold are returned, and not written."""
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


def test_a_transaction_takes_a_hundred_writes(opened: Opener, kind: str) -> None:
    """All of them are applied."""
    if kind in LACKS:
        pytest.skip("has no transactions")
    table = opened(LEASES)
    table.create()
    table.transact([Put({"path": "a", "etag": f"{i:03}"}, Absent()) for i in range(100)])
    assert len(list(table.query("a"))) == 100
