"""The catalog does what pyiceberg expects of any catalog, on each kind of store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import StaticTable
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType

from commitlog.commit import ConditionalStore
from commitlog.commit.probe_report import Kind
from commitlog.connect import connect
from commitlog.iceberg import Catalog
from support.commit import proven
from support.iceberg import ROWS, SCHEMA, lease_table, records_url, s3_properties, threads_end  # noqa: F401
from support.selection import with_all

_numbers = itertools.count()


@pytest.fixture(scope="module")
def native(seaweedfs: Any) -> dict[str, str]:
    """Properties of a store that enforces conditions."""
    return s3_properties(seaweedfs, seaweedfs.new_bucket())


@pytest.fixture(scope="module")
def leased(juicefs: Any, dynalite: Any) -> dict[str, str]:
    """Properties of a store that ignores conditions, with leases in DynamoDB."""
    properties = s3_properties(juicefs, juicefs.new_bucket())
    return {**properties, "commitlog.table": lease_table(dynalite), "commitlog.commit": "lease"}


@pytest.fixture(
    params=[
        "directory",
        with_all("sqlite"),
        pytest.param("native", marks=pytest.mark.servers),
        pytest.param("leased", marks=pytest.mark.servers),
    ]
)
def catalog(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    """An empty catalog on each kind of store."""
    kind = request.param
    store: ConditionalStore | None = None
    if kind in ("directory", "sqlite"):
        properties = {"uri": f"{tmp_path}/catalog", "warehouse": f"file://{tmp_path}/warehouse"}
    else:
        properties = dict(request.getfixturevalue(kind))
        properties["uri"] += f"/{next(_numbers)}"
    if kind == "sqlite":
        properties["commitlog.table"] = f"sqlite://{tmp_path}/leases.db"
        properties["commitlog.commit"] = "lease"
    elif kind == "native":
        # A probe would take seconds.
        options = request.getfixturevalue("seaweedfs").options
        store = connect(
            properties["uri"], probe_report=proven(*Kind, url=records_url(properties)), **options
        )
    elif kind == "leased":
        # The gateway refuses Arrow's uploads with checksums in chunks.
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with Catalog("test", store=store, **properties) as opened:
        yield opened


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Catalog]:
    """An empty catalog in a directory, for rules that are the same on all stores."""
    with Catalog("test", uri=f"{tmp_path}/catalog", warehouse=f"file://{tmp_path}/warehouse") as opened:
        yield opened


# -- tables ------------------------------------------------------------------------------------------


def test_a_table_is_created_filled_and_read(catalog: Catalog) -> None:
    """Another client of the catalog finds the table and its rows."""
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", SCHEMA, properties={"owner": "me"})
    assert table.name() == ("sales", "orders")
    assert table.location() == f"{catalog.properties['warehouse']}/sales/orders"
    assert table.properties["owner"] == "me"
    table.append(ROWS)
    table.append(ROWS)
    found = catalog.load_table(("sales", "orders"))
    assert found.metadata == table.metadata
    assert found.scan().to_arrow().num_rows == 6
    assert len(found.snapshots()) == 2
    assert catalog.table_exists("sales.orders")
    assert catalog.list_tables("sales") == [("sales", "orders")]


def test_a_table_is_renamed_dropped_and_registered(catalog: Catalog) -> None:
    """A rename to another namespace keeps the rows; a dropped table can be registered again."""
    for namespace in ("a", "b"):
        catalog.create_namespace(namespace)
    table = catalog.create_table("a.one", SCHEMA)
    table.append(ROWS)
    renamed = catalog.rename_table(table.name(), ("b", "two"))
    assert renamed.name() == ("b", "two") and renamed.metadata == table.metadata
    assert not catalog.table_exists("a.one")
    renamed.append(ROWS)
    with pytest.raises(NoSuchTableError):
        table.append(ROWS)
    catalog.drop_table("b.two")
    for gone in ("a.one", "b.two"):
        with pytest.raises(NoSuchTableError, match=f"Table does not exist: {gone}"):
            catalog.load_table(gone)
    registered = catalog.register_table("a.one", renamed.metadata_location)
    assert registered.scan().to_arrow().num_rows == 6
    registered.append(ROWS)
    assert catalog.load_table("a.one").scan().to_arrow().num_rows == 9


def test_of_two_commits_with_one_base_the_second_fails(catalog: Catalog) -> None:
    """A commit whose requirements do not hold any more fails, and changes nothing."""
    catalog.create_namespace("a")
    one = catalog.create_table("a.t", SCHEMA)
    other = catalog.load_table("a.t")
    with one.update_schema() as update:
        update.add_column("x", IntegerType())
    update = other.update_schema().add_column("y", IntegerType())
    with pytest.raises(CommitFailedException, match="current schema id has changed"):
        update.commit()
    assert catalog.load_table("a.t").schema().column_names == ["id", "city", "x"]


def test_namespaces_have_properties(catalog: Catalog) -> None:
    """Properties are set, changed and removed in one step, which reports what it did."""
    catalog.create_namespace("a", {"comment": "first", "old": "1"})
    assert catalog.load_namespace_properties("a") == {"comment": "first", "old": "1"}
    done = catalog.update_namespace_properties("a", {"old", "missing"}, {"comment": "second"})
    assert (done.removed, done.updated, done.missing) == (["old"], ["comment"], ["missing"])
    assert catalog.load_namespace_properties("a") == {"comment": "second"}
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace("a")
    catalog.create_namespace_if_not_exists("a")
    catalog.drop_namespace("a")
    assert catalog.list_namespaces() == []
    with pytest.raises(NoSuchNamespaceError, match="Namespace a does not exist"):
        catalog.load_namespace_properties("a")


def test_a_purge_deletes_the_files(catalog: Catalog) -> None:
    """The files of all snapshots go, also of those that another client committed since."""
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", SCHEMA)
    table.append(ROWS)
    stale = catalog.load_table("a.t")
    catalog.load_table("a.t").append(ROWS)
    last = catalog.load_table("a.t")
    files = [
        *(each.file.file_path for each in last.scan().plan_files()),
        *(each.manifest_list for each in last.snapshots()),
        *(each.metadata_file for each in last.metadata.metadata_log),
        last.metadata_location,
    ]
    assert len(files) == 2 + 2 + 2 + 1
    catalog.purge_table("a.t")
    assert not catalog.table_exists("a.t")
    assert not [file for file in files if stale.io.new_input(file).exists()]
    assert catalog.remove_leftovers() == 0


def test_a_transaction_creates_a_table_with_rows(catalog: Catalog) -> None:
    """The table appears with the commit of the transaction, and of two transactions one wins."""
    catalog.create_namespace(("deep", "er"))
    with catalog.create_table_transaction("deep.er.t", SCHEMA) as transaction:
        transaction.append(ROWS)
        assert not catalog.table_exists("deep.er.t")
    assert catalog.load_table("deep.er.t").scan().to_arrow().num_rows == 3
    one, other = (catalog.create_table_transaction("deep.er.u", SCHEMA) for _ in range(2))
    one.commit_transaction()
    with pytest.raises(CommitFailedException, match="Table already exists"):
        other.commit_transaction()


@pytest.mark.parametrize("version", [1, 2])
def test_tables_of_each_format_version(local: Catalog, version: int) -> None:
    """Partitions, sort orders and properties are kept in tables of each format version."""
    local.create_namespace("a")
    table = local.create_table(
        "a.t",
        SCHEMA,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "city")),
        sort_order=SortOrder(
            SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_FIRST)
        ),
        properties={"format-version": str(version)},
    )
    table.append(ROWS)
    found = local.load_table("a.t")
    assert found.metadata.format_version == version
    assert [field.name for field in found.spec().fields] == ["city"]
    assert found.sort_order().fields[0].direction is SortDirection.DESC
    assert found.scan("city = 'Oslo'").to_arrow()["id"].to_pylist() == [1]


def test_locations(local: Catalog, tmp_path: Path) -> None:
    """A table is at its own location, below that of its namespace, or in the warehouse."""
    local.create_namespace("a", {"location": f"file://{tmp_path}/other/"})
    local.create_namespace("b.c")
    assert local.create_table("a.t", SCHEMA).location() == f"file://{tmp_path}/other/t"
    given = local.create_table("a.u", SCHEMA, location=f"file://{tmp_path}/u/")
    assert given.location() == f"file://{tmp_path}/u"
    assert local.create_table("b.c.t", SCHEMA).location() == f"file://{tmp_path}/warehouse/b.c/t"
    with pytest.raises(ValueError, match="specify a location"):
        local.create_table(("b", "c", ".."), SCHEMA)
    del local.properties["warehouse"]
    with pytest.raises(ValueError, match="specify a location"):
        local.create_table("b.c.u", SCHEMA)


def test_any_character_can_be_in_a_name(local: Catalog) -> None:
    """Dots and slashes in a level do not make another level."""
    namespace, table = ("new.db/x",), ("new.db/x", "ta.b/le ü")
    local.create_namespace(namespace)
    local.create_table(table, SCHEMA).append(ROWS)
    assert local.list_namespaces() == [namespace]
    assert local.list_tables(namespace) == [table]
    assert not local.namespace_exists(("new", "db/x"))
    assert local.load_table(table).scan().to_arrow().num_rows == 3
    local.purge_table(table)
    local.drop_namespace(namespace)


def test_arrow_schemas(local: Catalog) -> None:
    """A table can be created from an Arrow schema, and its schema can be changed."""
    local.create_namespace("a")
    table = local.create_table("a.t", ROWS.schema)
    table.append(ROWS)
    with table.update_schema() as update:
        update.add_column("more", IntegerType())
    assert local.load_table("a.t").scan().to_arrow()["more"].null_count == 3


def test_old_metadata_is_deleted_if_a_table_asks(local: Catalog) -> None:
    """With delete-after-commit only the wanted number of previous metadata files remains."""
    local.create_namespace("a")
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    table = local.create_table("a.t", SCHEMA, properties=properties)
    first = table.metadata_location
    for _ in range(3):
        table.append(ROWS)
    log = [each.metadata_file for each in local.load_table("a.t").metadata.metadata_log]
    assert len(log) == 1
    assert not table.io.new_input(first).exists()


# -- what is not there, and what is there already ------------------------------------------------------

MISSING: dict[str, tuple[type[Exception], Callable[[Catalog], object]]] = {
    "load": (NoSuchTableError, lambda c: c.load_table("a.missing")),
    "load without namespace": (NoSuchTableError, lambda c: c.load_table("missing")),
    "drop": (NoSuchTableError, lambda c: c.drop_table("a.missing")),
    "purge": (NoSuchTableError, lambda c: c.purge_table("missing.t")),
    "rename": (NoSuchTableError, lambda c: c.rename_table("a.missing", "a.u")),
    "rename to": (NoSuchNamespaceError, lambda c: c.rename_table("a.t", "missing.t")),
    "rename onto": (TableAlreadyExistsError, lambda c: c.rename_table("a.t", "a.there")),
    "rename onto itself": (TableAlreadyExistsError, lambda c: c.rename_table("a.t", "a.t")),
    "create": (TableAlreadyExistsError, lambda c: c.create_table("a.t", SCHEMA)),
    "create in": (NoSuchNamespaceError, lambda c: c.create_table("missing.t", SCHEMA)),
    "create at": (
        NoSuchNamespaceError,
        lambda c: c.create_table("missing.t", SCHEMA, location="file:///nowhere"),
    ),
    "create without namespace": (NoSuchNamespaceError, lambda c: c.create_table("t", SCHEMA)),
    "list": (NoSuchNamespaceError, lambda c: c.list_tables("missing")),
    "list namespaces": (NoSuchNamespaceError, lambda c: c.list_namespaces("missing")),
    "drop namespace": (NoSuchNamespaceError, lambda c: c.drop_namespace("missing")),
    "drop full namespace": (NamespaceNotEmptyError, lambda c: c.drop_namespace("a")),
    "drop parent": (NamespaceNotEmptyError, lambda c: c.drop_namespace("parent")),
    "update": (NoSuchNamespaceError, lambda c: c.update_namespace_properties("missing")),
    "update twice": (ValueError, lambda c: c.update_namespace_properties("a", {"x"}, {"x": "1"})),
    "no text": (ValueError, lambda c: c.create_namespace("b", {"x": None})),  # type: ignore[dict-item]
    "no name": (NoSuchNamespaceError, lambda c: c.create_namespace("")),
    "no level": (NoSuchNamespaceError, lambda c: c.create_namespace(("a", " "))),
    "register": (
        TableAlreadyExistsError,
        lambda c: c.register_table("a.t", c.load_table("a.there").metadata_location),
    ),
    "register in": (
        NoSuchNamespaceError,
        lambda c: c.register_table("missing.t", c.load_table("a.there").metadata_location),
    ),
    "register nothing": (
        FileNotFoundError,
        lambda c: c.register_table("a.new", f"{c.properties['warehouse']}/no.metadata.json"),
    ),
    "overwrite": (NotImplementedError, lambda c: c.register_table("a.t", "file:///m", overwrite=True)),
    "list views": (NotImplementedError, lambda c: c.list_views("a")),
    "load view": (NotImplementedError, lambda c: c.load_view("a.v")),
    "view exists": (NotImplementedError, lambda c: c.view_exists("a.v")),
    "drop view": (NotImplementedError, lambda c: c.drop_view("a.v")),
    "create view": (NotImplementedError, lambda c: c.create_view("a.v", SCHEMA, None)),
    "register view": (NotImplementedError, lambda c: c.register_view("a.v", "file:///m")),
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A catalog with tables, which the calls under test leave as it is."""
    place = tmp_path_factory.mktemp("full")
    with Catalog("test", uri=f"{place}/catalog", warehouse=f"file://{place}/warehouse") as opened:
        opened.create_namespace("a")
        opened.create_namespace("parent.child")
        for name in ("t", "there"):
            opened.create_table(("a", name), SCHEMA)
        yield opened


@pytest.mark.parametrize("case", MISSING)
def test_a_refused_call_changes_nothing(full: Catalog, case: str) -> None:
    """Each call raises the error that pyiceberg's catalogs raise, and leaves no file behind."""
    error, call = MISSING[case]
    place = Path(full.properties["warehouse"].removeprefix("file://")).parent

    def content() -> dict[str, bytes]:
        files = (each for each in place.rglob("*") if each.is_file() and ".commitlog" not in each.parts)
        return {str(each): each.read_bytes() for each in files}

    before = content()
    with pytest.raises(error):
        call(full)
    assert content() == before


def test_absent_names_do_not_exist(full: Catalog) -> None:
    """Questions about names that cannot be are answered with no."""
    assert not full.table_exists("t") and not full.table_exists("a.missing")
    assert not full.namespace_exists("") and not full.namespace_exists("missing")
    assert full.namespace_exists("parent") and not full.namespace_exists("paren_")
    assert full.load_namespace_properties("parent") == {}
    assert full.list_namespaces() == [("a",), ("parent",)]
    assert full.list_namespaces("parent") == [("parent", "child")]
    assert full.list_namespaces("parent.child") == []
    assert full.list_tables("parent") == []


# -- opening -------------------------------------------------------------------------------------------


def test_pyiceberg_loads_it_by_name(tmp_path: Path) -> None:
    """The class is found by the property that pyiceberg has for it."""
    properties = {"py-catalog-impl": "commitlog.iceberg.Catalog", "uri": f"{tmp_path}/catalog"}
    with load_catalog("mine", **properties) as opened:
        assert isinstance(opened, Catalog)
        assert opened.name == "mine"
    with pytest.raises(NoSuchPropertyException, match="uri is required"):
        Catalog("mine")


def test_a_table_is_read_without_the_catalog(local: Catalog) -> None:
    """The location of the metadata is all that another reader of Iceberg tables needs."""
    local.create_namespace("a")
    table = local.create_table("a.t", SCHEMA)
    table.append(ROWS)
    static = StaticTable.from_metadata(local.load_table("a.t").metadata_location)
    assert static.scan().to_arrow().num_rows == 3
