"""Helpers of the tests of output formats: columns of every type with hostile values, in files."""

from __future__ import annotations

import datetime as dt
import decimal
import io
from collections.abc import Collection, Iterator

import pyarrow as pa

from commitlog.files import OUTPUT_FORMATS, FormatWriter, OutputFormat, PartFilter, StoredObject
from commitlog.stores.memory import MemoryStore

UTC = dt.UTC
EVERY = [(name, codec) for name, known in OUTPUT_FORMATS.items() for codec in known.compressions]

HOSTILE = [
    *("", " lead", "trail ", "null", "NaN", "None", "\\N", "#", "'", ",", '"', '""', "\\", '\\"', "a\\"),
    *(
        "\x00",
        "\x01\x1f\x7f",
        "\t",
        "\r",
        "\n",
        "\r\n",
        "\ufeff",
        "\u2028",
        "Grüße, 世界 \U0001f680",
        "{}",
        "[1]",
    ),
]

SIMPLE = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.1, -0.0, 3.4e38, 1e-45]),
    "double": (pa.float64(), [0.1, -0.0, 1.0, 1e20, 5e-324, 1.7976931348623157e308]),
    "wide": (
        pa.decimal128(38, 18),
        [decimal.Decimal("12345678901234567890.123456789012345678"), decimal.Decimal("0E-18")],
    ),
    "narrow": (pa.decimal128(5, 2), [decimal.Decimal("-0.01"), decimal.Decimal("999.99")]),
    "date": (pa.date32(), [dt.date(1582, 10, 15), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "instant": (
        pa.timestamp("us", tz="UTC"),
        [dt.datetime(1900, 1, 1, tzinfo=UTC), dt.datetime(2013, 3, 10, 2, 30, 0, 123456, tzinfo=UTC)],
    ),
    "local": (
        pa.timestamp("us"),
        [dt.datetime(1, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59, 59)],
    ),
    "a.text": (pa.string(), HOSTILE),
}

NESTED = {
    "binary": (pa.binary(), [b"", b"\x00\xff"]),
    "list": (pa.list_(pa.field("element", pa.string())), [[], [None], HOSTILE]),
    "days": (pa.list_(pa.field("element", pa.date32())), [[dt.date(2000, 2, 29), None]]),
    "map": (
        pa.map_(pa.string(), pa.list_(pa.field("element", pa.float64()))),
        [[], [("", None), ('"', [])], [("k", [1.5, None])]],
    ),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.field("element", pa.timestamp("us"))))]),
        [{"a": None, "b": None}, {"a": 7, "b": [None, dt.datetime(2013, 3, 10, 2, 30)]}],
    ),
    "blobs": (pa.list_(pa.field("element", pa.binary())), [[b"\xfe", None]]),
    "pairs": (
        pa.list_(pa.field("element", pa.struct([("n", pa.decimal128(9, 3)), ("t", pa.bool_())]))),
        [[{"n": decimal.Decimal("0.001"), "t": False}, None, {"n": None, "t": None}]],
    ),
}


def rows_for(name: str) -> pa.RecordBatch:
    """Return rows with all values that the format `name` supports: each type, nulls, hostile text."""
    columns = SIMPLE if name == "csv" else {**SIMPLE, **NESTED}
    height = 2 * max(len(values) for _, values in columns.values())
    arrays, fields = [], []
    for number, (column, (kind, values)) in enumerate(columns.items()):
        # Each column has nulls in its own pattern, and one row has only nulls.
        cells = [
            None if row == 5 or (row + number) % 4 == 3 else values[row % len(values)]
            for row in range(height)
        ]
        arrays.append(pa.array(cells, kind))
        fields.append(pa.field(column, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def text_of(known: OutputFormat, *batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    """Return the content of a file with `batches`."""
    return write(known, *batches, compression=compression)[0]


def write(
    known: OutputFormat, *batches: pa.RecordBatch, compression: str | None = None
) -> tuple[bytes, FormatWriter]:
    """Return the content of a file with `batches`, and its writer."""
    target = io.BytesIO()
    writer = known.open_writer(target, batches[0].schema, compression)
    for batch in batches:
        writer.write(batch)
    writer.close()
    assert writer.written_bytes == len(target.getvalue())
    assert writer.rows == sum(batch.num_rows for batch in batches)
    return target.getvalue(), writer


def read(
    known: OutputFormat,
    data: bytes,
    schema: pa.Schema,
    columns: Collection[str] | None = None,
    keep: PartFilter | None = None,
    *,
    compression: str | None = None,
) -> pa.Table:
    """Return the rows of a file with the content `data`."""
    store = MemoryStore()
    path = "file" + known.compressions[compression or next(iter(known.compressions))]
    store.put(path, data)
    wanted = schema.names if columns is None else columns
    source = StoredObject(store, path, len(data))
    found: Iterator[pa.RecordBatch] = known.read(source, schema, set(wanted), keep)
    return pa.Table.from_batches(list(found))
