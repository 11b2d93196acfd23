"""Avro of any writer: blocks and codecs, types, damage told, and what is not installed."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import sys
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs_kit import Counting, pinned, records, slices, small_up_to

from commitlog.errors import InputChanged, InputUnreadable, NotSupported, UnknownColumns
from commitlog.ingest import Pinned, Slice
from commitlog.spark.inputs import INPUTS, Columns
from commitlog.spark.inputs.avro import Avro

AVRO = Avro({})

SIMPLE = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}],
}
ROWS = [{"a": n, "b": None if n % 3 else str(n)} for n in range(3000)]
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def stored(schema: Any, rows: list[dict[str, Any]], codec: str = "null", block: int = 1000) -> Pinned:
    """Return a file of rows."""
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, codec=codec, sync_interval=block)
    return pinned(file.getvalue(), "in/a.avro")


def read(source: Pinned, columns: Columns) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [row for row, _, _ in records(AVRO, source, columns)]


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_rows_come_in_order_with_their_numbers(small: int) -> None:
    """A file is read whole, whatever its size; a slice in its middle has no records."""
    source = stored(SIMPLE, ROWS)
    assert not AVRO.splits(source.file.path)
    with small_up_to(small):
        got = records(AVRO, source, Columns(schema=SCHEMA, offsets=True))
    assert [row for row, _, _ in got] == ROWS
    assert [offset for _, offset, _ in got] == list(range(3000))
    middle = Slice(source.file, 100, source.file.size)
    assert list(AVRO.decode(source, middle, Columns(schema=SCHEMA))) == []


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_codecs(codec: str) -> None:
    """Whatever a file is compressed by, it is read."""
    assert read(stored(SIMPLE, ROWS, codec), Columns(schema=SCHEMA)) == ROWS


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        (b"zstandard", lambda data: pa.compress(data, "zstd", asbytes=True)),
        (
            b"snappy",
            lambda data: pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big"),
        ),
    ],
)
def test_codecs_that_fastavro_leaves_to_others(codec: bytes, pack: Any) -> None:
    """Snappy, the default of many writers, with its checksum; and Zstandard."""
    data = b"".join(_long(n) + b"\x00" for n in range(100))
    told = b'{"type":"record","name":"r","fields":[{"name":"a","type":"long"},' + (
        b'{"name":"b","type":["null","string"]}]}'
    )
    sync = b"0123456789abcdef"
    packed = pack(data)
    file = b"Obj\x01" + _long(2) + _text(b"avro.codec") + _text(codec)
    file += _text(b"avro.schema") + _text(told) + _long(0) + sync
    file += _long(100) + _long(len(packed)) + packed + sync
    wanted = [{"a": n, "b": None} for n in range(100)]
    assert read(pinned(file), Columns(schema=SCHEMA)) == wanted
    bad = file[:-18] + bytes([file[-18] ^ 1]) + file[-17:]
    with pytest.raises(InputUnreadable, match="in/file"):
        read(pinned(bad), Columns(schema=SCHEMA))


def _long(value: int) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, {"type": "long"}, value)
    return file.getvalue()


def _text(data: bytes) -> bytes:
    return _long(len(data)) + data


def test_every_type_is_that_of_spark() -> None:
    """Simple and logical types, records, arrays, maps, enums, named types and unions with null."""
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 678_000)
    utc = moment.replace(tzinfo=dt.UTC)
    point = {"type": "record", "name": "n.point", "fields": [{"name": "x", "type": "int"}]}
    columns: list[tuple[str, Any, pa.DataType, Any, Any]] = [
        ("bool", "boolean", pa.bool_(), True, True),
        ("int", "int", pa.int32(), -5, -5),
        ("float", "float", pa.float32(), 0.5, 0.5),
        ("double", "double", pa.float64(), 0.1, 0.1),
        ("bytes", "bytes", pa.binary(), b"\xff", b"\xff"),
        ("fixed", {"type": "fixed", "name": "f", "size": 2}, pa.binary(), b"ab", b"ab"),
        ("enum", {"type": "enum", "name": "e", "symbols": ["A", "B"]}, pa.string(), "B", "B"),
        ("date", _logical("int", "date"), pa.date32(), dt.date(1, 1, 1), dt.date(1, 1, 1)),
        (
            "millis",
            _logical("long", "timestamp-millis"),
            pa.timestamp("us", tz="UTC"),
            utc,
            utc,
        ),
        ("micros", _logical("long", "timestamp-micros"), pa.timestamp("us", tz="UTC"), utc, utc),
        ("local", _logical("long", "local-timestamp-micros"), pa.timestamp("us"), moment, moment),
        ("time", _logical("long", "time-micros"), pa.string(), dt.time(1, 2), "01:02:00.000000"),
        (
            "decimal",
            {**_logical("bytes", "decimal"), "precision": 10, "scale": 2},
            pa.decimal128(10, 2),
            decimal.Decimal("-1.25"),
            decimal.Decimal("-1.25"),
        ),
        ("uuid", _logical("string", "uuid"), pa.string(), "x-y", "x-y"),
        ("array", {"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), [1, None], None),
        ("map", {"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), {"k": 1}, None),
        ("first", point, pa.struct([("x", pa.int32())]), {"x": 1}, None),
        ("again", ["null", "n.point"], pa.struct([("x", pa.int32())]), {"x": 2}, None),
        ("wide", ["int", "long"], pa.int64(), 2**40, 2**40),
        ("wider", ["null", "float", "double"], pa.float64(), 0.1, 0.1),
        ("none", "null", pa.null(), None, None),
        ("only", ["string"], pa.string(), "x", "x"),
    ]
    fields = [{"name": name, "type": kind} for name, kind, _, _, _ in columns]
    schema = {"type": "record", "name": "row", "fields": fields}
    row = {name: value for name, _, _, value, _ in columns}
    source = stored(schema, [row])
    found = AVRO.infer(source)
    assert found.names == [name for name, _, _, _, _ in columns]
    for name, _, kind, _, _ in columns:
        assert found.field(name).type.equals(kind), name
    [got] = read(source, Columns(schema=found))
    for name, _, kind, value, wanted in columns:
        if pa.types.is_map(kind):
            value = list(value.items())
        assert got[name] == (value if pa.types.is_nested(kind) else wanted), name


def _logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


@pytest.mark.parametrize(
    "kind",
    [
        ["int", "string"],
        {"type": "array", "items": ["boolean", "string"]},
        {"type": "record", "name": "empty", "fields": []},
        {**_logical("bytes", "decimal"), "precision": 39, "scale": 2},
        {
            "type": "record",
            "name": "list",
            "fields": [{"name": "next", "type": ["null", "list"]}],
        },
    ],
    ids=["union", "inside", "empty", "decimal", "recursive"],
)
def test_types_that_no_column_is_for(kind: Any) -> None:
    """They are told, if the column is wanted, or if new columns count."""
    fields = [{"name": "a", "type": "long"}, {"name": "odd", "type": kind}]
    source = stored({"type": "record", "name": "row", "fields": fields}, [])
    with pytest.raises(InputUnreadable, match="'odd'"):
        AVRO.infer(source)
    known = pa.schema([("a", pa.int64())])
    assert read(source, Columns(schema=known)) == []
    for columns in (
        Columns(schema=known, new="fail"),
        Columns(schema=known, new="rescue"),
        Columns(schema=pa.schema([("ODD", pa.int64())])),
    ):
        with pytest.raises(InputUnreadable, match="'odd'"):
            read(source, columns)


def test_columns_are_matched_widened_refused_or_rescued() -> None:
    """As in Parquet; and none may be wanted."""
    source = stored(SIMPLE, ROWS[:2])
    known = pa.schema([("A", pa.float64()), ("c", pa.string())])
    assert read(source, Columns(schema=known)) == [{"A": 0.0}, {"A": 1.0}]
    with pytest.raises(UnknownColumns, match="'b'"):
        read(source, Columns(schema=known, new="fail"))
    got = records(AVRO, source, Columns(schema=pa.schema([("a", pa.int32())]), new="rescue"))
    assert [text for _, _, text in got] == ['{"a":0,"b":"0"}', '{"a":1}']
    assert read(source, Columns(schema=pa.schema([]))) == [{}, {}]


@given(cut=st.integers(0, 1000))
def test_a_file_that_is_cut_off_is_told(cut: int) -> None:
    """Whole blocks before the cut come; nothing tells a cut between two blocks, for Avro has no end."""
    whole = stored(SIMPLE, ROWS[:300]).get("in/a.avro").data
    source = pinned(whole[:cut])
    got: list[Any] = []
    told = False
    try:
        got.extend(AVRO.decode(source, slices(source.file)[0], Columns(schema=SCHEMA)))
    except InputUnreadable:
        told = True
    assert told or whole[:cut].endswith(whole[-16:])
    rows = [row for part in got for row in part.batch.to_pylist()]
    assert rows == ROWS[: len(rows)]


def test_rows_before_damage_come() -> None:
    """With the place of the block that cannot be read, whatever is wrong about it."""
    whole = stored(SIMPLE, ROWS, "deflate").get("in/a.avro").data
    sync = whole[-16:]
    ends = [at + 16 for at in range(len(whole)) if whole.startswith(sync, at)]
    for place in (ends[2] + 20, ends[3] - 5, ends[2]):
        damaged = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        source = pinned(damaged)
        got: list[Any] = []
        with pytest.raises(InputUnreadable, match="in/file") as caught:
            got.extend(AVRO.decode(source, slices(source.file)[0], Columns(schema=SCHEMA)))
        assert caught.value.offset == ends[2]
        assert 0 < sum(map(len, got)) < 3000


def test_what_is_no_avro_is_told() -> None:
    """An empty object, another content, a schema that is none; and another version."""
    good = stored(SIMPLE, ROWS).get("in/a.avro").data
    value = stored({"type": "long"}, []).get("in/a.avro").data
    vast = b"Obj\x01" + _long(1) + _long(2**62)
    for data in (b"", b"Obj\x01", vast, b"a,b\n", good.replace(b'"long"', b'"lung"', 1), value):
        source = pinned(data)
        with pytest.raises(InputUnreadable, match="in/file"):
            read(source, Columns(schema=SCHEMA))
        with pytest.raises(InputUnreadable, match="in/file"):
            AVRO.infer(source)
    source = stored(SIMPLE, ROWS)
    source.store.put("in/a.avro", b"something else")
    for small in (0, 1 << 20):
        with small_up_to(small), pytest.raises(InputChanged):
            read(source, Columns(schema=SCHEMA))


def test_a_schema_that_is_nested_too_deeply_is_told() -> None:
    """Deeper than Python can go, however far it gets: no other error than of content."""
    good = stored(SIMPLE, ROWS).get("in/a.avro").data
    for depth in (500, 100_000):
        kind = b'{"type":"array","items":' * depth + b'"int"' + b"}" * depth
        schema = b'{"type":"record","name":"r","fields":[{"name":"a","type":' + kind + b"}]}"
        name = b"avro.schema"
        head = b"Obj\x01" + _long(1) + _long(len(name)) + name + _long(len(schema)) + schema + b"\0"
        source = pinned(head + good[-16:])
        with pytest.raises(InputUnreadable, match="in/file"):
            read(source, Columns(schema=SCHEMA))
        with pytest.raises(InputUnreadable, match="in/file"):
            AVRO.infer(source)


def test_columns_are_inferred_from_the_header() -> None:
    """Of a large file, only the first bytes are read."""
    source = stored(SIMPLE, [{"a": n, "b": "x" * 100} for n in range(2000)])
    counting = Counting(source.store, source.file)
    assert INPUTS["avro"]({}).infer(counting) == SCHEMA
    assert sum(counting.sizes) <= 65_536 < source.file.size


def test_without_fastavro_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The format is refused at once, and the message says what to install."""
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(NotSupported, match=r"commitlog-store\[avro\]"):
        Avro({})
