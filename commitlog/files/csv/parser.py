"""Parser of the CSV lines of input files: with pyarrow if its result is certain, else line by line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from commitlog.files.csv.dialect import CsvDialect
from commitlog.files.csv.values import convert_column, value_converter
from commitlog.files.rescue import as_json, quoted

__all__ = ["CsvParser"]

#: Fewer lines are parsed one by one, in less time than a call of pyarrow takes.
FEW = 8

_BOM = b"\xef\xbb\xbf"


class CsvParser:
    """Parses the lines of one file; a `commitlog.files.line_parser.LineReader`. Not thread-safe.

    Args:
        dialect: the rules by which a line is split into fields.
        width: the number of fields of a line.
        schema: the columns to read.
        places: for each column the number of its field; None for a column that is null.
        others: names and numbers of other fields, which are rescued.
        breaks: whether quoted fields may contain line ends.
    """

    def __init__(
        self,
        dialect: CsvDialect,
        width: int,
        schema: pa.Schema,
        places: Sequence[int | None],
        others: Mapping[str, int],
        *,
        breaks: bool,
    ) -> None:
        self.unknown: list[str] = []
        self.misfits: list[str] = []
        self.rescued: dict[str, str] = {}
        self._dialect = dialect
        self._width = width
        self._breaks = breaks
        self._schema = schema
        self._others = dict(others)
        self._columns = [
            (each.name, place, value_converter(each.type))
            for each, place in zip(schema, places, strict=True)
        ]
        self._quote, self._separator = dialect.quote.encode(), dialect.separator.encode()
        self._escape = dialect.escape.encode() if dialect.escapes else b""
        # pyarrow takes single bytes only.
        self._is_simple = len(self._quote) <= 1 == len(self._separator)
        quote, separator = re.escape(self._quote), re.escape(self._separator)
        #: A quote that is neither at the begin nor at the end of a field.
        self._inner_quote = re.compile(
            b"[^%b\n%b]%b|%b[^%b\r\n%b]" % (separator, quote, quote, quote, separator, quote)
        )
        white = re.escape(dialect.white.replace(b"\n", b""))
        self._blank = re.compile(b"(?:\\A|\n)[%b]*(?:\n|[%b]\\Z)" % (white, white))

    def table(self, lines: bytes) -> tuple[pa.Table, pa.Array | None] | None:
        """Return the columns of some lines and their rescued values; None if the result is uncertain.

        Args:
            lines: lines that end with line feeds, except perhaps the last one.
        """
        count = self._line_count(lines)
        if count < FEW:
            return None
        if not lines.endswith(b"\n"):
            lines += b"\n"  # else pyarrow takes an empty last field for one in quotes
        wanted = {name: place for name, place, _ in self._columns if place is not None}
        included = [str(place) for place in (*wanted.values(), *self._others.values())]
        has_quotes = self._quote in lines if self._quote else False
        try:
            table = csv.read_csv(
                pa.BufferReader(lines),
                csv.ReadOptions(
                    use_threads=False,
                    block_size=len(lines) + 1,
                    column_names=[str(place) for place in range(self._width)],
                ),
                csv.ParseOptions(
                    delimiter=self._dialect.separator,
                    quote_char=self._dialect.quote if has_quotes else False,
                    escape_char=False,
                    newlines_in_values=self._breaks,
                ),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(included or ["0"], pa.string()),
                    # An empty list would include all columns.
                    include_columns=included or ["0"],
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=not self._dialect.null,
                ),
            )
            if len(table) != count:
                return None
            texts = [self._trimmed(each) for each in table.columns]
            columns = [
                convert_column(text, self._schema.field(name).type)
                for name, text in zip(wanted, texts, strict=False)
            ]
        except pa.ArrowException:
            return None
        rescued = as_json(list(self._others), texts[len(wanted) :]) if self._others else None
        found = pa.table(columns, schema=pa.schema([self._schema.field(name) for name in wanted]))
        return (found if wanted else table.select([])), rescued

    def row(self, line: str) -> list[Any]:
        """Return the values of a line, one for each column. Raises `ValueError` for an invalid line."""
        self.misfits, self.rescued = [], {}
        texts = self._dialect.fields(line)
        if len(texts) != self._width:
            raise ValueError(f"it has {len(texts)} fields, and there are {self._width} columns")
        row = []
        for name, place, convert in self._columns:
            text = None if place is None else texts[place]
            value = None if text is None else convert(text)
            if value is None and text is not None:
                self.misfits.append(name)
                self.rescued[name] = quoted(text)
            row.append(value)
        for name, place in self._others.items():
            text = texts[place]
            if text is not None:
                self.rescued[name] = quoted(text)
        return row

    def _trimmed(self, texts: pa.ChunkedArray) -> pa.Array:
        """Return the texts of a field without the white space to trim, and with the dialect's nulls."""
        array = texts.combine_chunks() if texts.num_chunks != 1 else texts.chunk(0)
        dialect = self._dialect
        if dialect.trim_left or dialect.trim_right:
            trims = {
                (True, True): pc.utf8_trim,
                (True, False): pc.utf8_ltrim,
                (False, True): pc.utf8_rtrim,
            }
            array = trims[dialect.trim_left, dialect.trim_right](array, " \t")
            array = pc.if_else(pc.equal(array, ""), None, array)
        if dialect.null:
            array = pc.if_else(pc.equal(array, dialect.null), None, array)
        return array

    def _line_count(self, lines: bytes) -> int:
        """Return the number of lines if pyarrow surely splits them into the same fields; else 0."""
        if not self._is_simple or lines.startswith(_BOM):
            return 0
        if self._width == 1 and self._blank.search(lines):
            return 0
        outside = lines
        if self._quote and self._quote in lines:
            if (
                self._dialect.trim_left
                or self._dialect.trim_right
                or (self._escape and self._escape in lines)
            ):
                return 0
            pieces = lines.split(self._quote)
            outside = self._quote.join(pieces[::2])
            if len(pieces) % 2 == 0 or self._inner_quote.search(outside):
                return 0
            if not self._breaks and outside.count(b"\n") != lines.count(b"\n"):
                return 0
        return outside.count(b"\n") + (not lines.endswith(b"\n"))
