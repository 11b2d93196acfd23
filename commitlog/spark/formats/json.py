"""JSON lines as Spark writes and reads them: one object a row, without the fields that are null.

Decimals are numbers, binary is base64, NaN and the infinities are strings; dates and timestamps are text
of ISO 8601, with all digits and, for instants, a ``Z``.

pyarrow has no writer of JSON; a text is made column by column with its string kernels.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Sequence
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import NotSupported
from commitlog.spark.formats.api import BATCH_ROWS, Encoder, Format, Keep
from commitlog.spark.formats.exact import Exact, table_of
from commitlog.spark.formats.files import Reads, SinkFile
from commitlog.spark.formats.nested import as_list
from commitlog.spark.formats.objects import Quick
from commitlog.spark.formats.statistics import Statistics
from commitlog.spark.formats.text import (
    SUFFIXES,
    TEXT_ROWS,
    Text,
    check_text,
    check_years,
    compressed,
    content,
    decompressed,
    join,
    plain,
    whole_rows,
)

__all__ = ["Json", "objects"]


class Json(Format):
    """JSON lines, which know their columns by name."""

    name = "json"
    compressions = MappingProxyType({name: f".json{suffix}" for name, suffix in SUFFIXES.items()})

    def check(self, schema: pa.Schema) -> None:
        """See `Format.check`."""
        for field in schema:
            check_keys(field.name, field.type, "choose another fileFormat, or cast the keys")

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
        check_text(table)
        check_years(table)
        for batch in table.to_batches(max_chunksize=TEXT_ROWS):
            self._stream.write(content(objects(batch.schema.names, batch.columns, end="}\n")))

    def close(self, statistics: Statistics) -> None:
        self._stream.close()


def check_keys(name: str, kind: pa.DataType, advice: str) -> None:
    """Raise `NotSupported` if column `name` has a map that no object of JSON can be."""
    if pa.types.is_map(kind) and kind.key_type != pa.string():
        raise NotSupported(
            f"column {name!r} has a map with keys of type {kind.key_type}, and the names in JSON are"
            f" strings: {advice}"
        )
    if pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            check_keys(name, kind.field(i).type, advice)


# -- to text -------------------------------------------------------------------------------------------


def objects(names: Sequence[str], columns: Sequence[pa.Array], end: str = "}") -> pa.Array:
    """Return the text of a JSON object for each row, in which nulls are left out."""
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
        texts = objects([field.name for field in kind], array.flatten())
        return Text("", _with_nulls_of(array, texts), "")
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
    """Lines to tables of `schema`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._quick = Quick(schema)
        self._exact = Exact(schema, all_known=False)

    def parse(self, lines: bytes) -> pa.Table:
        table = self._quick.table(lines)
        if table is None:
            rows = [self._row(line) for line in lines.decode().split("\n") if line]
            table = table_of(rows, self._schema)
        return table

    def _row(self, line: str) -> list[Any]:
        row = self._exact.row(line)
        if self._exact.misfits:
            raise ValueError(f"a value of {self._exact.misfits[0]!r} is not of its type")
        return row
