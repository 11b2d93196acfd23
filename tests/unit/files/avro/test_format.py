"""Avro input of any writer: blocks, codecs, types, damage, and a missing fastavro."""

from __future__ import annotations

import bz2
import datetime as dt
import decimal
import io
import json
import lzma
import subprocess
import sys
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import (
    ConfigurationError,
    InputChanged,
    InputUnreadable,
    UnknownColumns,
)
from commitlog.files import INPUT_FORMATS, Columns
from commitlog.files.avro.format import AvroInput
from commitlog.ingest import Pinned, Slice
from support.input_files import Counting, pinned, records, slices, small_up_to
from support.project import TESTS
from support.selection import one_in

AVRO = AvroInput({})

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


def _long(value: int) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, {"type": "long"}, value)
    return file.getvalue()


def _text(data: bytes) -> bytes:
    return _long(len(data)) + data


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_rows_come_in_order_with_their_numbers(small: int) -> None:
    """A file of any size is read whole; a slice in its middle has no records."""
    source = stored(SIMPLE, ROWS)
    assert not AVRO.splits(source.file.path)
    with small_up_to(small):
        got = records(AVRO, source, Columns(schema=SCHEMA, offsets=True))
    assert [row for row, _, _ in got] == ROWS
    assert [offset for _, offset, _ in got] == list(range(3000))
    middle = Slice(source.file, 100, source.file.size)
    assert list(AVRO.decode(source, middle, Columns(schema=SCHEMA))) == []


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_each_codec_is_read(codec: str) -> None:
    """The rows are the same for each compression of fastavro."""
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
def test_codecs_that_fastavro_lacks_are_read(codec: bytes, pack: Any) -> None:
    """These are Snappy, the default of many writers, with its checksum; and Zstandard."""
    data = b"".join(_long(n) + b"\x00" for n in range(100))
    header = b'{"type":"record","name":"r","fields":[{"name":"a","type":"long"},' + (
        b'{"name":"b","type":["null","string"]}]}'
    )
    sync = b"0123456789abcdef"
    packed = pack(data)
    file = b"Obj\x01" + _long(2) + _text(b"avro.codec") + _text(codec)
    file += _text(b"avro.schema") + _text(header) + _long(0) + sync
    file += _long(100) + _long(len(packed)) + packed + sync
    wanted = [{"a": n, "b": None} for n in range(100)]
    assert read(pinned(file), Columns(schema=SCHEMA)) == wanted
    bad = file[:-18] + bytes([file[-18] ^ 1]) + file[-17:]
    with pytest.raises(InputUnreadable, match="in/file"):
        read(pinned(bad), Columns(schema=SCHEMA))


def test_types_are_those_of_spark() -> None:
    """These are simple and logical types, records, arrays, maps, enums, named types, and null unions."""
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
        ("spelled", [{"type": "null"}, "int"], pa.int32(), 2, 2),
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
def test_columns_of_unsupported_types_are_refused(kind: Any) -> None:
    """They are refused if the query reads the column, or if new columns are not ignored."""
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
    """The rules are those of Parquet. A query may read no column."""
    source = stored(SIMPLE, ROWS[:2])
    known = pa.schema([("A", pa.float64()), ("c", pa.string())])
    assert read(source, Columns(schema=known)) == [{"A": 0.0}, {"A": 1.0}]
    with pytest.raises(UnknownColumns, match="'b'"):
        read(source, Columns(schema=known, new="fail"))
    got = records(AVRO, source, Columns(schema=pa.schema([("a", pa.int32())]), new="rescue"))
    assert [text for _, _, text in got] == ['{"a":0,"b":"0"}', '{"a":1}']
    assert read(source, Columns(schema=pa.schema([]))) == [{}, {}]


@given(cut=st.integers(0, 1000))
def test_a_truncated_file_is_unreadable(cut: int) -> None:
    """Whole blocks before the cut are read. Avro has no footer: a cut between blocks is not detected."""
    whole = stored(SIMPLE, ROWS[:300]).get("in/a.avro").data
    source = pinned(whole[:cut])
    got: list[Any] = []
    refused = False
    try:
        got.extend(AVRO.decode(source, slices(source.file)[0], Columns(schema=SCHEMA)))
    except InputUnreadable:
        refused = True
    assert refused or whole[:cut].endswith(whole[-16:])
    rows = [row for part in got for row in part.batch.to_pylist()]
    assert rows == ROWS[: len(rows)]


def test_rows_before_damage_are_read() -> None:
    """The error has the offset of the damaged block."""
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


def made(schema: Any, *blocks: tuple[int, bytes], codec: bytes = b"null") -> Pinned:
    """Return a file with these blocks."""
    header = json.dumps(schema).encode()
    sync = b"0123456789abcdef"
    file = b"Obj\x01" + _long(2) + _text(b"avro.codec") + _text(codec)
    file += _text(b"avro.schema") + _text(header) + _long(0) + sync
    return pinned(file + b"".join(_long(n) + _long(len(data)) + data + sync for n, data in blocks))


def test_a_header_may_have_the_size_of_its_entries() -> None:
    """A negative number of entries says so."""
    source = made(SIMPLE, (1, _long(7) + _long(0)))
    data = source.get(source.file.path).data
    assert data.startswith(b"Obj\x01" + _long(2))
    end = data.index(b"0123456789abcdef") - 1
    sized = b"Obj\x01" + _long(-2) + _long(end - 5) + data[5:]
    columns = Columns(schema=SCHEMA)
    assert read(pinned(sized), columns) == read(source, columns) == [{"a": 7, "b": None}]


def refused(source: Pinned, said: str, columns: Columns | None = None, **options: str) -> int:
    """Check the message of a refused file, in bounded memory; return the number of rows before.

    The check runs in a process of its own, because a failure would end the process.
    """
    code = f"""
import resource, sys
import pyarrow as pa
sys.path.insert(0, {str(TESTS)!r})
from support.input_files import pinned, slices
from commitlog.errors import InputUnreadable
from commitlog.files import Columns
from commitlog.files.avro.format import AvroInput
source = pinned(sys.stdin.buffer.read())
columns = Columns(schema={_spelled(columns)})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = 0
try:
    for part in AvroInput({options!r}).decode(source, slices(source.file)[0], columns):
        rows += len(part)
except InputUnreadable as error:
    print(error)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert used < 300 * 1024, f"{{used}} KiB"
print(rows)
"""
    data = source.get("in/file").data
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    *error, rows = done.stdout.decode().splitlines()
    assert said in "".join(error), error
    return int(rows)


def _spelled(columns: Columns | None) -> str:
    names = ["a"] if columns is None else columns.schema.names
    return "pa.schema([" + ",".join(f"({name!r}, pa.int64())" for name in names) + "])"


def _record(name: str, *kinds: Any) -> dict[str, Any]:
    fields = [{"name": letter, "type": kind} for letter, kind in zip("abcdef", kinds, strict=False)]
    return {"type": "record", "name": name, "fields": fields}


def _doubled(levels: int) -> dict[str, Any]:
    """Return a record of nulls that contains a record twice, which contains another twice, and so on."""
    kind: Any = _record("r0", "null")
    for level in range(1, levels):
        kind = _record(f"r{level}", kind, f"r{level - 1}")
    return _record("top", "long", kind)


NULLS = _record("r", "null")
ARRAYS = _record("r", "long", {"type": "array", "items": "null"})
LIST = _record("r", "long", ["null", "r"])


@pytest.mark.parametrize(
    ("source", "said"),
    one_in(
        3,
        [
            (made(NULLS, (2**40, b"")), "1099511627776 records"),
            (made(NULLS, (2**62, b"x")), f"{2**62} records"),
            (made(_record("r", "long"), (2**40, b"\x00\x02")), "are said to be in 2 bytes"),
            (made(_record("r", "long", *["null"] * 5), (2**40, b"\x00")), "are said to be in 1 bytes"),
            (made(ARRAYS, (1, b"\x00" + _long(2**40) + b"\x00")), "more values than it has bytes"),
            (
                made(ARRAYS, (1, b"\x00" + _long(-(2**40)) + b"\x00\x00")),
                "more values than it has bytes",
            ),
            (made(_doubled(40), (1, b"\x00")), "more than 100000 types"),
            (made(LIST, (1, b"\x00\x02" * 300_000 + b"\x00\x00")), "nested too deeply"),
            (made(_record("r", "long", "r"), (1, b"\x00" * 300_000)), "nested too deeply"),
            (made(_record("r", "long", "string"), (1, b"\x00" + _long(2**40) + b"x")), "row 0"),
            (made(_record("r", "long", "bytes"), (1, b"\x00" + _long(-5) + b"xxxxx")), "row 0"),
        ],
    ),
    ids=[
        *("nulls", "most", "longs", "wide", "array", "sized-array", "doubled", "list", "self", "string"),
        "negative",
    ],
)
def test_a_few_bytes_that_encode_many_values_are_refused(source: Pinned, said: str) -> None:
    """They are refused before memory is allocated for the values."""
    assert refused(source, said) == 0


BOMB = bytes(1 << 26)


@pytest.mark.parametrize(
    ("codec", "pack"),
    one_in(
        3,
        [
            (b"deflate", lambda data: zlib.compress(data)[2:-4]),
            (b"bzip2", bz2.compress),
            (b"xz", lambda data: lzma.compress(data, preset=1)),
            (b"zstandard", lambda data: pa.compress(data, "zstd", asbytes=True)),
            (b"snappy", lambda data: pa.compress(data, "snappy", asbytes=True) + bytes(4)),
            (b"snappy", lambda data: _varint(len(data)) + bytes(8)),
            (b"null", lambda data: data),
        ],
    ),
    ids=["deflate", "bzip2", "xz", "zstandard", "snappy", "snappy-said", "null"],
)
def test_a_block_that_decompresses_to_too_many_bytes_is_refused(codec: bytes, pack: Any) -> None:
    """The option sets the limit; rows of earlier blocks are read."""
    good = pack(b"\x00" * 100) if len(pack(BOMB)) > 100 and codec != b"snappy" else None
    packed = pack(BOMB)
    first = [(100, good)] if good is not None else []
    source = made(_record("r", "long"), *first, (5, packed), codec=codec)
    said = "are said to be" if len(packed) < 20 else "raise option maxBlockBytes"
    assert refused(source, said, maxBlockBytes="1048576") == (100 if first else 0)


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def test_a_large_dictionary_of_xz_is_refused() -> None:
    """The memory that xz would allocate for it is bounded."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 29}]
    data = b"\x00" * 100
    # Writing one takes ten times its size, so the test patches the size in the header, and its checksum.
    good = lzma.compress(data, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    at = good.index(b"\x21\x01")
    head = bytearray(good[12 : 12 + (good[12] + 1) * 4])
    head[at - 12 + 2] = 34  # 512 MiB
    head[-4:] = zlib.crc32(head[:-4]).to_bytes(4, "little")
    packed = good[:12] + bytes(head) + good[12 + len(head) :]
    assert filters[0]["dict_size"] == 2 ** (34 // 2 + 12)
    assert lzma.decompress(packed) == data
    assert refused(made(_record("r", "long"), (100, packed), codec=b"xz"), "row 0") == 0


@pytest.mark.all
def test_a_large_header_is_refused() -> None:
    """The number of its entries is bounded, and their lengths by the size of the file."""
    many = b"Obj\x01" + _long(2**40) + b"\x00\x00" * 5000
    assert refused(pinned(many), "more than 1000 entries") == 0
    for length in (2**25, 2**62, -1):
        assert refused(pinned(b"Obj\x01" + _long(1) + _long(length) + b"x"), "a length is") == 0
    assert refused(pinned(b"Obj\x01" + _long(0) + bytes(16)), "no schema") == 0


@pytest.mark.parametrize("most", ["", "0", "1.5", "64MiB", str(2**31)])
def test_max_block_bytes_is_a_number(most: str) -> None:
    """It may be from 1 to 1 GiB."""
    with pytest.raises(ConfigurationError, match="option maxBlockBytes"):
        AvroInput({"maxBlockBytes": most})


def test_values_without_bytes_are_read_within_the_limits() -> None:
    """Such values are records of nulls, arrays of nulls, and lists nested some levels deep."""
    null = Columns(schema=pa.schema([("a", pa.int64())]))
    assert len(read(made(NULLS, (200_000, b"")), null)) == 200_000
    data = b"\x02" + _long(70_000) + b"\x00" + b"\x04" + _long(-3) + b"\x00\x00"
    arrays = Columns(schema=pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))]))
    rows = read(made(ARRAYS, (2, data)), arrays)
    assert [(row["a"], len(row["b"])) for row in rows] == [(1, 70_000), (2, 3)]
    deep = b"\x02\x02" * 30 + b"\x02\x00"
    assert read(made(LIST, (1, deep)), null) == [{"a": 1}]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_bytes_after_the_records_of_a_block_are_refused(codec: str) -> None:
    """They are uncounted records or damage. The rows before them are read."""
    data = b"".join(map(_long, range(10)))
    packed = zlib.compress(data)[2:-1] if codec == "deflate" else data
    schema = _record("r", "long")
    assert len(read(made(schema, (10, packed), codec=codec.encode()), Columns(schema=SCHEMA))) == 10
    source = made(schema, (10, packed), (7, packed), codec=codec.encode())
    got: list[Any] = []
    with pytest.raises(InputUnreadable, match=r"row 17, .* 3 bytes are left behind its 7 records"):
        got.extend(AVRO.decode(source, slices(source.file)[0], Columns(schema=SCHEMA)))
    assert sum(map(len, got)) == 17
    if codec == "deflate":
        source = made(schema, (10, packed), (10, packed + b"more"), codec=b"deflate")
        with pytest.raises(InputUnreadable, match="bytes are left behind the compressed data"):
            read(source, Columns(schema=SCHEMA))


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "good", "bad", "said"),
    [
        (DECIMAL, _text(b"\x01"), _text(b"\x7f\xff\xff"), "row 150, .* 'b' is not of type decimal"),
        (DECIMAL, _text(b"\x01"), _text(b"\x7f" * (1 << 20)), "row 150, .* has 1048576 bytes"),
        ("string", _text(b"x"), _text(b"\xff"), "row 150, .*utf-8"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, _long(0), _long(3), "row 150"),
        (["null", "string"], _long(0), _long(3), "row 150"),
    ],
    ids=["decimal", "long-decimal", "string", "enum", "union"],
)
def test_rows_before_an_invalid_value_are_read(kind: Any, good: bytes, bad: bytes, said: str) -> None:
    """The error names the row, for a value that cannot be decoded or that has another type."""
    record = _record("r", "long", kind)
    first = b"".join(_long(n) + good for n in range(100))
    second = b"".join(_long(n) + (bad if n == 150 else good) for n in range(100, 200))
    source = made(record, (100, first), (100, second), (100, first))
    schema = AVRO.infer(source)
    got: list[Any] = []
    with pytest.raises(InputUnreadable, match=said):
        got.extend(AVRO.decode(source, slices(source.file)[0], Columns(schema=schema, offsets=True)))
    rows = [row["a"] for part in got for row in part.batch.to_pylist()]
    assert rows == list(range(150))
    assert [at for part in got for at in part.offsets.to_pylist()] == rows


def test_other_content_is_unreadable() -> None:
    """Such content is an empty object, text, an invalid schema, or another version of the object."""
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


def test_a_deeply_nested_schema_is_unreadable() -> None:
    """The error is one of content, at any depth of Python's stack."""
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
    """Only the first bytes of a large file are read."""
    source = stored(SIMPLE, [{"a": n, "b": "x" * 100} for n in range(2000)])
    counting = Counting(source.store, source.file)
    assert INPUT_FORMATS["avro"]({}).infer(counting) == SCHEMA
    assert sum(counting.sizes) <= 65_536 < source.file.size


def test_without_fastavro_an_import_error_names_the_extra() -> None:
    """The error comes when the options of a query are read. Other formats work."""
    code = """
import sys
sys.modules["fastavro"] = None
from commitlog.files import INPUT_FORMATS
from commitlog.spark.ingest.options import IngestOptions
INPUT_FORMATS["json"]({})
for load in (
    lambda: INPUT_FORMATS["avro"],
    lambda: IngestOptions.parse({"path": "s3://b/in/", "state": "dynamodb://t", "fileFormat": "avro"}),
):
    try:
        load()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.splitlines()
        == ["fileFormat avro needs fastavro: pip install 'commitlog-store[avro]'"] * 2
    )
