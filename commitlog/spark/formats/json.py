"""JSON lines as Spark writes and reads them: one object a row, without the fields that are null.

Decimals are numbers, binary is base64, NaN and the infinities are strings; dates and timestamps are text
of ISO 8601, with all digits and, for instants, a ``Z``.

pyarrow has no writer of JSON; a text is made column by column with its string kernels.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from collections.abc import Collection, Iterator, Sequence
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from commitlog.errors import NotSupported
from commitlog.spark.formats.api import BATCH_ROWS, Encoder, Format, Keep
from commitlog.spark.formats.files import Reads, SinkFile
from commitlog.spark.formats.nested import as_list, leaf_types
from commitlog.spark.formats.statistics import Statistics
from commitlog.spark.formats.text import (
    SUFFIXES,
    TEXT_ROWS,
    Text,
    check_years,
    compressed,
    content,
    decompressed,
    join,
    plain,
    whole_rows,
)

__all__ = ["Json"]


class Json(Format):
    """JSON lines, which know their columns by name."""

    name = "json"
    compressions = MappingProxyType({name: f".json{suffix}" for name, suffix in SUFFIXES.items()})

    def check(self, schema: pa.Schema) -> None:
        """See `Format.check`."""
        for field in schema:
            _check(field.name, field.type)

    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """See `Format.encoder`."""
        return _Encoder(file, schema, compression)

    def read(
        self,
        store: Reads,
        path: str,
        size: int,
        schema: pa.Schema,
        columns: Collection[str],
        keep: Keep | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See `Format.read`."""
        wanted = [name for name in schema.names if name in columns]
        parser = _Parser(pa.schema([schema.field(name) for name in wanted or schema.names[:1]]))
        with decompressed(store, path, size, "JSON lines of the columns that it should have") as source:
            for lines in whole_rows(source, _lines_end):
                for batch in parser.parse(lines).to_batches(BATCH_ROWS):
                    yield batch.select(wanted)


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        self._stream = compressed(file, compression)

    def write(self, table: pa.Table) -> None:
        check_years(table)
        for batch in table.to_batches(max_chunksize=TEXT_ROWS):
            self._stream.write(content(_objects(batch.schema.names, batch.columns, end="}\n")))

    def close(self, statistics: Statistics) -> None:
        self._stream.close()


def _check(name: str, kind: pa.DataType) -> None:
    if pa.types.is_map(kind) and kind.key_type != pa.string():
        raise NotSupported(
            f"column {name!r} has a map with keys of type {kind.key_type}, and the names in JSON are"
            " strings: choose another fileFormat, or cast the keys"
        )
    if pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            _check(name, kind.field(i).type)


# -- to text -------------------------------------------------------------------------------------------


def _objects(names: Sequence[str], columns: Sequence[pa.Array], end: str = "}") -> pa.Array:
    """Return an object for each row, in which nulls are left out."""
    texts = [_text(column) for column in columns]
    # The first member that no row lacks has no comma. Those before it bring one, and so do those after.
    sure = next((number for number, text in enumerate(texts) if not text.values.null_count), None)
    members = []
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        before, after = f"{json.dumps(name, ensure_ascii=False)}:{text.before}", text.after
        if sure is None or number > sure:
            before = "," + before
        elif number < sure:
            after += ","
        members.append(Text(before, text.values, after))
    if sure is not None:
        return join("{", *members, end, null="")
    return join(Text("{", pc.binary_replace_slice(join(*members, null=""), 0, 1, ""), end))


def _text(array: pa.Array) -> Text:
    """Return the JSON of each value."""
    kind = array.type
    if pa.types.is_struct(kind):
        objects = _objects([field.name for field in kind], array.flatten())
        return Text("", _with_nulls_of(array, objects), "")
    if pa.types.is_nested(kind):
        return Text("", _with_nulls_of(array, _lists(array)), "")
    if pa.types.is_string(kind):
        return _strings(array)
    if pa.types.is_binary(kind):
        encoded = [value and base64.b64encode(value).decode() for value in array.to_pylist()]
        return _quoted(Text("", pa.array(encoded, pa.string()), ""))
    text = plain(array)
    if pa.types.is_temporal(kind):
        return _quoted(text)
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(array)).as_py() is False:
        return Text("", pc.if_else(pc.is_finite(array), text.values, join(_quoted(text))), "")
    return text


def _lists(array: pa.Array) -> pa.Array:
    lists = as_list(array)
    values = pc.list_flatten(lists)
    left, right = "[]"
    keys: list[str | Text] = []
    if pa.types.is_map(array.type):
        left, right = "{}"
        names, values = values.flatten()
        keys = [_strings(names), ":"]
    texts = join(*keys, _text(values), null="null")
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    inside = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return join(Text(left, inside, right))


def _with_nulls_of(array: pa.Array, text: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), text, None) if array.null_count else text


def _strings(array: pa.Array) -> Text:
    if pc.any(pc.match_substring_regex(array, r'[\x00-\x1f"\\]')).as_py():
        escaped = [None if value is None else encode_basestring(value) for value in array.to_pylist()]
        return Text("", pa.array(escaped, pa.string()), "")
    return _quoted(Text("", array, ""))


def _quoted(text: Text) -> Text:
    return Text('"' + text.before, text.values, text.after + '"')


# -- from text -----------------------------------------------------------------------------------------


def _lines_end(data: bytes) -> int:
    return data.rfind(b"\n") + 1


class _Parser:
    """Lines to tables of `schema`: by pyarrow if it can, else by way of Python's objects.

    pyarrow knows no objects as maps, no base64, and no "NaN" among numbers.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        wire = pa.schema([field.with_type(_wire(field.type)) for field in schema])
        self._options = pa.json.ParseOptions(
            explicit_schema=wire, unexpected_field_behavior="ignore", newlines_in_values=False
        )
        self._by_pyarrow = not any(_is_foreign(field.type) for field in schema)
        self._exact = any(map(pa.types.is_decimal, leaf_types(pa.struct(list(schema)))))

    def parse(self, lines: bytes) -> pa.Table:
        if self._by_pyarrow:
            read = pa.json.ReadOptions(block_size=len(lines) + 1)
            try:
                table = pa.json.read_json(pa.BufferReader(lines), read, self._options)
                return table.select(self._schema.names).cast(self._schema)
            except pa.ArrowInvalid:
                pass
        parse_float: Any = decimal.Decimal if self._exact else float
        rows = json.loads(b"[%b]" % lines.rstrip().replace(b"\n", b","), parse_float=parse_float)
        columns = [
            pa.array([_value(_members(row).get(field.name), field.type) for row in rows], field.type)
            for field in self._schema
        ]
        return pa.table(columns, schema=self._schema)


def _is_foreign(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return True
    return pa.types.is_nested(kind) and any(
        _is_foreign(kind.field(i).type) for i in range(kind.num_fields)
    )


def _wire(kind: pa.DataType) -> pa.DataType:
    """Return what pyarrow reads a column of type `kind` as: dates as text, which it then casts."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_wire(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_wire(kind.value_type)))
    return pa.string() if pa.types.is_date(kind) else kind


def _members(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is no object")
    return value


def _value(value: Any, kind: pa.DataType) -> Any:
    """Return what pyarrow makes a value of type `kind` of."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        members = _members(value)
        return {field.name: _value(members.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _value(item, kind.item_type)) for key, item in _members(value).items()]
    if pa.types.is_list(kind):
        return [_value(item, kind.value_type) for item in value]
    if pa.types.is_binary(kind):
        return base64.b64decode(value, validate=True)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(value)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(value)
    return value
