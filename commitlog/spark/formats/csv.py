r"""CSV as Spark writes and reads it by default.

No header; commas; ``"`` around strings, with ``\"`` and ``\\`` in them; null is nothing, and the empty
string ``""``. Line breaks in strings stay, so their readers need ``multiLine``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from commitlog.errors import NotSupported
from commitlog.spark.formats.api import BATCH_ROWS, Encoder, Format, Keep
from commitlog.spark.formats.files import Reads, SinkFile
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

__all__ = ["Csv"]

_PARSE = csv.ParseOptions(quote_char='"', double_quote=False, escape_char="\\", newlines_in_values=True)


class Csv(Format):
    """CSV without a header: a file's columns are known by the order of its commit's schema."""

    name = "csv"
    compressions = MappingProxyType({name: f".csv{suffix}" for name, suffix in SUFFIXES.items()})

    def check(self, schema: pa.Schema) -> None:
        """See `Format.check`."""
        for field in schema:
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise NotSupported(
                    f"column {field.name!r} is of type {field.type}, which CSV cannot hold:"
                    " choose another fileFormat, or cast it to string"
                )

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
        convert = csv.ConvertOptions(
            column_types=schema,
            # To include no column would mean all.
            include_columns=wanted or schema.names[:1],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=len(schema) == 1,
            true_values=["true"],
            false_values=["false"],
        )
        with decompressed(store, path, size, "CSV of the columns that it should have") as source:
            # pyarrow's own blocks end anywhere, and spoil a line break in a string that they divide.
            for rows in whole_rows(source, _rows_end):
                read = csv.ReadOptions(column_names=schema.names, block_size=len(rows) + 1)
                table = csv.read_csv(pa.BufferReader(rows), read, _PARSE, convert)
                for batch in table.to_batches(BATCH_ROWS):
                    yield batch.select(wanted)


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        self._stream = compressed(file, compression)

    def write(self, table: pa.Table) -> None:
        check_text(table)
        check_years(table)
        for batch in table.to_batches(max_chunksize=TEXT_ROWS):
            self._stream.write(content(_lines(batch)))

    def close(self, statistics: Statistics) -> None:
        self._stream.close()


def _lines(batch: pa.RecordBatch) -> pa.Array:
    fields = [_field(column) for column in batch.columns]
    null = ""
    if len(fields) == 1:
        # Readers skip empty lines.
        null = '""'
        if pc.any(pc.equal(fields[0].values, "")).as_py():
            raise NotSupported(
                f"column {batch.schema.names[0]!r} has an empty string, which CSV of one column cannot"
                " tell from null: choose another fileFormat"
            )
    parts: list[str | Text] = []
    for field in fields:
        parts += [",", field]
    return join(*parts[1:], "\n", null=null)


def _field(column: pa.Array) -> Text:
    if not pa.types.is_string(column.type):
        return plain(column)
    text = pc.replace_substring(column, "\\", "\\\\")
    return Text('"', pc.replace_substring(text, '"', '\\"'), '"')


def _rows_end(data: bytes) -> int:
    """Return where the last row of `data` ends that is whole: at a line break that is not in quotes."""
    end = len(data)
    quoted = _is_odd(data)
    while (newline := data.rfind(b"\n", 0, end)) >= 0:
        quoted ^= _is_odd(data[newline:end])
        if not quoted:
            return newline + 1
        end = newline
    return 0


def _is_odd(data: bytes) -> bool:
    """Return whether `data` has an odd number of quotes that are not escaped."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return data.count(b'"') % 2 == 1
