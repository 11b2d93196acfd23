r"""``csv``: lines of fields, with a header or without.

There are two readers, because they know different things. The writer of an output's file is known: the
dialect is Spark's default, null is nothing, and ``""`` is the empty string. So pyarrow splits and
converts whole blocks, with escapes and line breaks in strings. The writer of an input file is unknown:
the dialect has options, ``""`` is null, and any line may be damaged. So each record has an offset,
values are rescued, and pyarrow reads only lines that it surely splits as the dialect says. Both readers
share the dialect's defaults and the decompression.

Rules of the files of an output: no header; commas; ``"`` around strings, with ``\"`` and ``\\`` in them;
null is nothing, and the empty string ``""``. Line breaks in strings stay, so other readers need option
``multiLine``. If there is a carriage return in the first row, the file begins with an empty line, so
that readers that look for the end of lines find a line feed.

Rules of input files: those of Spark where Spark loses no data, with these exceptions. Under a header,
columns are known by name, for each file separately. A doubled quote within quotes is one quote, as in
RFC 4180. Data that Spark would fill up, cut off, round or guess does not fit: a line with more or fewer
fields than columns, quotes that end within a field, excess digits of a decimal, the time of day in a
date. Times without a zone are in UTC.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from commitlog.errors import CorruptRecord, InputUnreadable, NotSupported
from commitlog.files.base import BATCH_ROWS, Encoder, InputFormat, OutputFormat, PartFilter
from commitlog.files.columns import Columns, Records
from commitlog.files.compression import SUFFIXES, compress, content_of
from commitlog.files.csv.dialect import DIALECT_OPTIONS, CsvDialect, column_names
from commitlog.files.csv.parser import CsvParser
from commitlog.files.csv.values import infer_type
from commitlog.files.io import SinkFile, StoredObject, convert_errors
from commitlog.files.line_parser import LineParser, check_encoding
from commitlog.files.lines import LINE_OPTIONS, Lines, record_mask
from commitlog.files.statistics import Statistics
from commitlog.files.text_values import (
    TEXT_ROWS,
    TextColumn,
    check_utf8,
    check_years,
    concatenate,
    text_bytes,
    text_of,
)
from commitlog.files.types import match_names, unify_types

if TYPE_CHECKING:
    from commitlog.ingest import Pinned, Slice

__all__ = ["CsvInput", "CsvOutput"]


# -- files of outputs ----------------------------------------------------------------------------------

_DIALECT = CsvDialect()
_PARSE = csv.ParseOptions(
    delimiter=_DIALECT.separator,
    quote_char=_DIALECT.quote,
    escape_char=_DIALECT.escape,
    double_quote=False,
    newlines_in_values=True,
)


class CsvOutput(OutputFormat):
    """CSV without a header: the columns of a file are known by their order in its commit's schema."""

    name = "csv"
    compressions = MappingProxyType({name: f".csv{suffix}" for name, suffix in SUFFIXES.items()})

    def check(self, schema: pa.Schema) -> None:
        """See `OutputFormat.check`."""
        _check_types(schema)

    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """See `OutputFormat.encoder`."""
        return _Encoder(file, compression)

    def read(
        self,
        source: StoredObject,
        schema: pa.Schema,
        columns: Collection[str],
        keep: PartFilter | None = None,
        *,
        whole: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """See `OutputFormat.read`."""
        wanted = [name for name in schema.names if name in columns]
        convert = csv.ConvertOptions(
            column_types=schema,
            # An empty list would include all columns.
            include_columns=wanted or schema.names[:1],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=len(schema) == 1,
            true_values=["true"],
            false_values=["false"],
        )
        with convert_errors(source.path, "CSV of the columns that it should have", CorruptRecord):
            # pyarrow's own blocks end anywhere, and a line break in a string that they divide is lost.
            for rows in _whole_rows(content_of(source)):
                read = csv.ReadOptions(column_names=schema.names, block_size=len(rows) + 1)
                table = csv.read_csv(pa.BufferReader(rows), read, _PARSE, convert)
                for batch in table.to_batches(BATCH_ROWS):
                    yield batch.select(wanted)


class _Encoder:
    def __init__(self, file: SinkFile, compression: str) -> None:
        self._stream = compress(file, compression)
        self._is_empty = True

    def write(self, table: pa.Table) -> None:
        check_utf8(table)
        check_years(table)
        for batch in table.to_batches(max_chunksize=TEXT_ROWS):
            text = text_bytes(_lines(batch))
            if self._is_empty and b"\r" in text.to_pybytes().partition(b"\n")[0]:
                # Spark takes the first line end of a file for that of all its rows, also within quotes.
                self._stream.write(b"\n")
            self._is_empty = False
            self._stream.write(text)

    def close(self, statistics: Statistics) -> None:
        self._stream.close()


def _check_types(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            raise NotSupported(
                f"column {field.name!r} is of type {field.type}, which CSV cannot hold:"
                " choose another fileFormat, or cast it to string"
            )


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
    parts: list[str | TextColumn] = []
    for field in fields:
        parts += [",", field]
    return concatenate(*parts[1:], "\n", null=null)


def _field(column: pa.Array) -> TextColumn:
    if not pa.types.is_string(column.type):
        return text_of(column)
    text = pc.replace_substring(column, "\\", "\\\\")
    return TextColumn('"', pc.replace_substring(text, '"', '\\"'), '"')


def _whole_rows(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of a file in large pieces that end at the end of a row."""
    rest = b""
    for piece in pieces:
        rest += piece
        if end := _rows_end(rest):
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _rows_end(data: bytes) -> int:
    """Return the end of the last whole row of `data`: after a line break that is not in quotes."""
    end = len(data)
    quoted = _has_open_quote(data)
    while (newline := data.rfind(b"\n", 0, end)) >= 0:
        quoted ^= _has_open_quote(data[newline:end])
        if not quoted:
            return newline + 1
        end = newline
    return 0


def _has_open_quote(data: bytes) -> bool:
    """Return whether `data` has an odd number of quotes that are not escaped."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return data.count(b'"') % 2 == 1


# -- input files ---------------------------------------------------------------------------------------

#: Bytes from which columns are inferred.
SAMPLE_BYTES = 1024 * 1024

#: One or several lines of a file: their offset in the content, and their bytes.
_Line: TypeAlias = tuple[int, bytes]


class CsvInput(InputFormat):
    """CSV in the dialect that options describe."""

    name = "csv"
    options = (
        *LINE_OPTIONS,
        *DIALECT_OPTIONS,
        *("header", "inferSchema", "multiLine", "encoding", "charset"),
    )
    strings = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        check_encoding(options)
        self._lines = Lines.of(options)
        self._dialect = CsvDialect.of(options)
        self._comment = self._dialect.comment.encode()
        self._white = self._dialect.white
        self._has_header = self._flag("header", False)
        self._has_types = self._flag("inferSchema", False)
        self._has_breaks = self._flag("multiLine", False)

    def splits(self, path: str) -> bool:
        """See `InputFormat.splits`."""
        return not self._has_breaks and self._lines.splits(path)

    def check(self, columns: Columns) -> None:
        """See `InputFormat.check`."""
        _check_types(columns.schema)

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `InputFormat.infer`. All are strings, unless option ``inferSchema`` is true.

        Lines that cannot be split into fields are ignored.
        """
        source = StoredObject.of(sample)
        records = self._records(source, min(SAMPLE_BYTES, source.size))
        first = next(records, None)
        if first is None:
            return pa.schema([])
        if self._has_header:
            names = self._header(source.path, first)
        else:
            names = column_names([None] * len(self._split(source.path, first)))
        if not self._has_types:
            return pa.schema([(name, pa.string()) for name in names])
        seen: list[dict[pa.DataType, None]] = [{} for _ in names]
        for line in records if self._has_header else itertools.chain([first], records):
            if line[0] >= SAMPLE_BYTES:
                break
            with contextlib.suppress(InputUnreadable):
                for kinds, text in zip(seen, self._split(source.path, line), strict=False):
                    if text is not None:
                        kinds[infer_type(text)] = None
        return pa.schema([(name, unify_types(kinds)) for name, kinds in zip(names, seen, strict=True)])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `InputFormat.decode`."""
        source = StoredObject.of(pinned)
        header: _Line | None = None
        if self._has_breaks:
            records = self._records(source, slice.end) if slice.start == 0 else iter(())
            if self._has_header:
                header = next(records, None)
            if header or not self._has_header:
                yield from self._parser(source.path, columns, header).lines(records)
            return
        blocks = self._lines.read(source, slice.start, slice.end)
        if self._has_header:
            header, blocks = self._split_header(source, slice.start, blocks)
            if header is None:
                return
        parser = self._parser(source.path, columns, header)
        for at, block in blocks:
            if self._comment and self._comment in block:
                yield from parser.lines(
                    (begin, line) for begin, _, line in self._record_lines(at, block)
                )
            else:
                yield from parser.block(at, block)

    def _parser(self, path: str, columns: Columns, header: _Line | None) -> LineParser:
        wanted = columns.schema.names
        if header is None:
            names = [name for name in wanted if name not in columns.in_path]
        else:
            names = self._header(path, header)
        # A schema that an earlier version inferred may have the white space of its header.
        places = match_names(names, wanted, lambda name: name.strip().lower())
        inside = [
            place for name, place in zip(wanted, places, strict=True) if name not in columns.in_path
        ]
        if inside and columns.new == "ignore" and all(place is None for place in inside):
            raise InputUnreadable(
                f"the header of {path!r} has none of the columns of the query; its first names are"
                f" {', '.join(map(repr, names[:5]))}. Give the columns that the file has, or set option"
                " header to false if the file has no header"
            )
        unknown = {name: place for place, name in enumerate(names) if place not in places}
        others = {name: unknown[name] for name in columns.check(path, list(unknown))}
        parser = CsvParser(
            self._dialect, len(names), columns.schema, places, others, breaks=self._has_breaks
        )
        return LineParser(
            path, columns, self._lines, fast=parser.table, exact=lambda: parser, white=self._white
        )

    def _header(self, path: str, line: _Line) -> list[str]:
        fields = self._split(path, line)
        try:
            return column_names(fields)
        except ValueError as error:
            raise InputUnreadable(
                f"the header of {path!r} cannot be read: {error}", offset=line[0]
            ) from error

    def _split(self, path: str, line: _Line) -> list[str | None]:
        try:
            return self._dialect.fields(line[1].decode())
        except ValueError as error:
            raise InputUnreadable(
                f"the line at byte {line[0]} of {path!r} is not valid CSV: {error}", offset=line[0]
            ) from error

    def _split_header(
        self, source: StoredObject, start: int, blocks: Iterator[_Line]
    ) -> tuple[_Line | None, Iterator[_Line]]:
        """Return the header of a file, and the lines of `blocks` after it; `start` is of the slice."""
        if start == 0:
            for at, block in blocks:
                for begin, end, line in self._record_lines(at, block):
                    return (begin, line), itertools.chain([(end, block[end - at :])], blocks)
            return None, blocks
        place, passed = 0, -1
        # A file of nothing but a byte order mark has no lines.
        while passed < place < source.size:
            passed = place
            for at, block in self._lines.read(source, place, place + 1):
                place = at + len(block)
                for begin, end, line in self._record_lines(at, block):
                    return (begin, line), _from(end, blocks)
        return None, blocks

    def _record_lines(self, at: int, block: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the lines of a block that are records, or a header: begin, end, and line."""
        return self._lines.records(at, block, white=self._white, comment=self._comment)

    def _records(self, source: StoredObject, end: int) -> Iterator[_Line]:
        """Yield the records that begin before byte `end`, with the header: of one or several lines."""
        if not self._has_breaks:
            for at, block in self._lines.read(source, 0, end):
                for begin, _, line in self._record_lines(at, block):
                    yield begin, line
            return
        quote = self._dialect.quote.encode()
        kept = bytearray()
        begun = 0
        # Within quotes, a carriage return is not the end of a line.
        for place, block in self._lines.read(source, 0, end, exact=True):
            for at, part in self._lines.parts(place, block):
                lines, starts = self._lines.split(self._lines.with_feeds(part))
                wanted = pc.indices_nonzero(record_mask(lines, self._white, self._comment)).to_pylist()
                if not (kept or wanted):
                    continue
                begins = [*starts.to_pylist(), len(part)]
                number = 0
                while number < len(lines):
                    inside = bool(kept)
                    if not inside:
                        first = bisect.bisect_left(wanted, number)
                        if first == len(wanted):
                            break
                        number = wanted[first]
                        begun = at + begins[number]
                        stop = number + 1
                    else:
                        # A line without quotes continues the record.
                        found = part.find(quote, begins[number])
                        stop = len(lines) if found < 0 else bisect.bisect_right(begins, found) - 1
                        stop = max(stop, number + 1)
                    more = part[begins[number] : begins[stop]]
                    kept += more
                    number = stop
                    self._check_size(source.path, begun, len(kept))
                    if not self._dialect.is_open(more.decode(errors="replace"), inside=inside):
                        yield begun, self._whole(kept)
                        kept = bytearray()
        if kept:
            yield begun, self._whole(kept)

    def _check_size(self, path: str, begun: int, size: int) -> None:
        if size > self._lines.max_record:
            raise InputUnreadable(
                f"{path!r} has a record of more than {self._lines.max_record} bytes from"
                f" byte {begun} on. If the file is valid, raise option maxRecordBytes"
            )

    def _whole(self, record: bytearray) -> bytes:
        if self._lines.separator is not None:
            return bytes(record.removesuffix(self._lines.separator))
        return bytes(record.removesuffix(b"\n").removesuffix(b"\r"))


def _from(place: int, blocks: Iterator[_Line]) -> Iterator[_Line]:
    """Yield the parts of `blocks` from offset `place` on."""
    for at, block in blocks:
        skip = max(place - at, 0)
        if skip < len(block):
            yield at + skip, block[skip:]
