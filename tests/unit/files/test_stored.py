"""Files of outputs whose footers have other columns than their commit records state."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from commitlog.files import OUTPUT_FORMATS, StoredObject
from commitlog.files.stored import OtherColumns, spark_kinds
from commitlog.stores.memory import MemoryStore

KEY = "org.apache.spark.sql.parquet.row.metadata"
INTERVAL = "interval day to second"


def stored(table: pa.Table, name: str, **kinds: Any) -> StoredObject:
    """Return a file of a table; its footer has Spark's notation for columns with `kinds`."""
    file = io.BytesIO()
    if name == "parquet":
        fields = [
            {"name": each, "type": kinds.get(each, "string"), "metadata": {}}
            for each in table.schema.names
        ]
        text = json.dumps({"type": "struct", "fields": fields})
        pq.write_table(table.replace_schema_metadata({KEY: text} if kinds else None), file)
    elif name == "orc":
        marks = {"spark.sql.catalyst.type": str(kinds.get("a"))}
        field = table.schema.field("a").with_metadata(marks if kinds else {})
        orc.write_table(table.cast(pa.schema([field, *list(table.schema)[1:]])), file)
    else:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    store = MemoryStore()
    store.put("x", file.getvalue())
    return StoredObject(store, "x", len(file.getvalue()))


def read(source: StoredObject, name: str, schema: pa.Schema, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a file of an output with the columns `schema`."""
    batches = OUTPUT_FORMATS[name].read(source, schema, schema.names, **options)
    return [row for batch in batches for row in batch.to_pylist()]


EVERY = pytest.mark.parametrize("name", ["parquet", "orc", "arrow"])
ONE = pa.table({"a": pa.array([1], pa.int64()), "b": ["x"]})


@EVERY
@pytest.mark.parametrize(
    "columns",
    [
        [("a", pa.int32())],
        [("a", pa.float64())],
        [("a", pa.string())],
        [("a", pa.timestamp("us"))],
        [("a", pa.duration("us"))],
        [("a", pa.list_(pa.int64()))],
        [("b", pa.binary())],
        [("A", pa.int64())],
    ],
    ids=str,
)
def test_another_type_or_spelling_is_not_cast(name: str, columns: list[Any]) -> None:
    """The reader raises before the first row, and names the file and the column."""
    with pytest.raises(OtherColumns, match=r"'x' has a column '[ab]' of type .* its commit record"):
        read(stored(ONE, name), name, pa.schema(columns))


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_an_instant_is_no_local_time(name: str) -> None:
    """Only the unit of a time may differ, and how a text is encoded."""
    instant = pa.array([1], pa.timestamp("ms", tz="UTC"))
    source = stored(pa.table({"a": instant, "b": pa.array(["x"]).dictionary_encode()}), name)
    schema = pa.schema([("a", pa.timestamp("us", tz="UTC")), ("b", pa.string())])
    assert len(read(source, name, schema)) == 1
    with pytest.raises(OtherColumns):
        read(source, name, pa.schema([("a", pa.timestamp("us"))]))


@EVERY
def test_columns_that_a_file_lacks_or_that_nobody_reads_do_not_matter(name: str) -> None:
    """Columns are added by later jobs, and readers may name some of them."""
    schema = pa.schema([("a", pa.int64()), ("later", pa.string())])
    assert read(stored(ONE, name), name, schema) == [{"a": 1}]


@EVERY
def test_a_copy_has_all_columns(name: str) -> None:
    """Before rows replace those of a file, all of its columns must be known."""
    schema = ONE.schema
    assert read(stored(ONE, name), name, schema, whole=True) == ONE.to_pylist()
    with pytest.raises(OtherColumns, match="column 'b' of type string, which a new file could not keep"):
        read(stored(ONE, name), name, pa.schema([schema.field("a")]), whole=True)


@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_an_interval_is_no_number(name: str) -> None:
    """Spark stores intervals as whole numbers, and only its notation tells them apart."""
    source = stored(ONE, name, a=INTERVAL)
    with pytest.raises(OtherColumns, match="of type interval day to second, and its commit record says"):
        read(source, name, pa.schema([("a", pa.int64())]))
    with pytest.raises(OtherColumns, match="could not keep"):
        read(source, name, ONE.schema, whole=True)
    months = stored(
        ONE.cast(pa.schema([("a", pa.int32()), ("b", pa.string())])), name, a="interval month"
    )
    with pytest.raises(OtherColumns):
        read(months, name, pa.schema([("a", pa.int32())]))
    assert len(read(source, name, pa.schema([("a", pa.duration("us"))]))) == 1


def test_types_of_spark_alone_are_found_at_any_depth() -> None:
    """Only those are returned; a text of another program is none."""
    nested = {
        "type": "map",
        "keyType": "string",
        "valueType": {"type": "array", "elementType": "variant"},
    }
    inner = {"type": "struct", "fields": [{"name": "x", "type": {"type": "udt", "sqlType": "long"}}]}
    keyed = {"type": "map", "keyType": INTERVAL, "valueType": "long"}
    kinds = {"a": "decimal(3,1)", "b": nested, "c": inner, "d": "void", "e": "timestamp_ntz", "g": keyed}
    fields: list[Any] = [{"name": name, "type": kind} for name, kind in kinds.items()]
    fields.append({"name": "f", "type": "string", "metadata": {"__COLLATIONS": {"f": "icu.UNICODE"}}})
    text = json.dumps({"type": "struct", "fields": fields}).encode()
    found = {"b": "variant", "c": "udt", "d": "void", "f": "string with a collation"}
    assert spark_kinds(text) == {**found, "g": INTERVAL}
    for other in (None, b"", b"[]", b"StructType(StructField(a,LongType))", b'{"fields":[{}]}'):
        assert spark_kinds(other) == {}
