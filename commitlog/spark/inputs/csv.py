"""``csv``: lines of fields, with a header or without.

As Spark reads them where it loses nothing, but for this: under a header, columns are known by name, in
each file for itself; a doubled quote within quotes is one, as RFC 4180 has it; and what Spark would fill
up, cut off, round or guess does not fit: a line with more or fewer fields than there are columns, quotes
that end within a field, digits of a decimal, the time of day in a date. Times without a zone are in UTC.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import InputUnreadable
from commitlog.ingest import Pinned, Slice
from commitlog.spark.formats.csv import Csv as Written
from commitlog.spark.inputs.api import Columns, Input, Records
from commitlog.spark.inputs.cells import guess
from commitlog.spark.inputs.dialect import DIALECT_OPTIONS, Dialect, column_names
from commitlog.spark.inputs.fields import Fields
from commitlog.spark.inputs.guess import common
from commitlog.spark.inputs.lines import LINE_OPTIONS, Lines, counting
from commitlog.spark.inputs.parse import Parser, check_encoding
from commitlog.spark.inputs.types import matched

__all__ = ["Csv"]

#: Bytes from which columns are inferred.
SAMPLE_BYTES = 1024 * 1024

#: Where a line, or some of them, begins in the content of a file, and its bytes.
_Line: TypeAlias = tuple[int, bytes]


class Csv(Input):
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
        self._dialect = Dialect.of(options)
        self._comment = self._dialect.comment.encode()
        self._white = self._dialect.white
        self._has_header = self._flag("header", False)
        self._has_types = self._flag("inferSchema", False)
        self._has_breaks = self._flag("multiLine", False)

    def splits(self, path: str) -> bool:
        """See `Input.splits`."""
        return not self._has_breaks and self._lines.splits(path)

    def check(self, columns: Columns) -> None:
        """See `Input.check`."""
        Written().check(columns.schema)

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `Input.infer`. All are strings, unless option ``inferSchema`` is true.

        Lines that do not fall into fields are left to those who read the file.
        """
        records = self._records(sample, Slice(sample.file, 0, min(SAMPLE_BYTES, sample.file.size)))
        first = next(records, None)
        if first is None:
            return pa.schema([])
        if self._has_header:
            names = self._header(sample, first)
        else:
            names = column_names([None] * len(self._split(sample, first)))
        if not self._has_types:
            return pa.schema([(name, pa.string()) for name in names])
        seen: list[dict[pa.DataType, None]] = [{} for _ in names]
        for line in records if self._has_header else itertools.chain([first], records):
            if line[0] >= SAMPLE_BYTES:
                break
            with contextlib.suppress(InputUnreadable):
                for kinds, text in zip(seen, self._split(sample, line), strict=False):
                    if text is not None:
                        kinds[guess(text)] = None
        return pa.schema([(name, common(kinds)) for name, kinds in zip(names, seen, strict=True)])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `Input.decode`."""
        header: _Line | None = None
        if self._has_breaks:
            records = self._records(pinned, slice) if slice.start == 0 else iter(())
            if self._has_header:
                header = next(records, None)
            if header or not self._has_header:
                yield from self._parser(pinned, columns, header).lines(records)
            return
        blocks = self._lines.read(pinned, slice)
        if self._has_header:
            header, blocks = self._under_header(pinned, slice, blocks)
            if header is None:
                return
        parser = self._parser(pinned, columns, header)
        for at, block in blocks:
            if self._comment and self._comment in block:
                yield from parser.lines((begin, line) for begin, _, line in self._counting(at, block))
            else:
                yield from parser.block(at, block)

    def _parser(self, pinned: Pinned, columns: Columns, header: _Line | None) -> Parser:
        wanted = columns.schema.names
        if header is None:
            names = [name for name in wanted if name not in columns.told]
        else:
            names = self._header(pinned, header)
        # A schema that an earlier version inferred may have the white space of its header.
        places = matched(names, wanted, lambda name: name.strip().lower())
        unknown = {name: place for place, name in enumerate(names) if place not in places}
        news = {name: unknown[name] for name in columns.check(pinned.file.path, list(unknown))}
        fields = Fields(self._dialect, len(names), columns.schema, places, news, breaks=self._has_breaks)
        return Parser(
            pinned.file.path,
            columns,
            self._lines,
            quick=fields.quick,
            exact=lambda: fields,
            white=self._white,
        )

    def _header(self, pinned: Pinned, line: _Line) -> list[str]:
        fields = self._split(pinned, line)
        try:
            return column_names(fields)
        except ValueError as error:
            raise InputUnreadable(
                f"the header of {pinned.file.path!r} cannot be read: {error}", offset=line[0]
            ) from error

    def _split(self, pinned: Pinned, line: _Line) -> list[str | None]:
        try:
            return self._dialect.fields(line[1].decode())
        except ValueError as error:
            raise InputUnreadable(
                f"the line at byte {line[0]} of {pinned.file.path!r} is no CSV: {error}", offset=line[0]
            ) from error

    def _under_header(
        self, pinned: Pinned, slice: Slice, blocks: Iterator[_Line]
    ) -> tuple[_Line | None, Iterator[_Line]]:
        """Return the header of a file, and what of `blocks` is behind it."""
        if slice.start == 0:
            for at, block in blocks:
                for begin, end, line in self._counting(at, block):
                    return (begin, line), itertools.chain([(end, block[end - at :])], blocks)
            return None, blocks
        place, passed = 0, -1
        # Of nothing but the mark at its begin, there are no lines to pass.
        while passed < place < pinned.file.size:
            passed = place
            for at, block in self._lines.read(pinned, Slice(pinned.file, place, place + 1)):
                place = at + len(block)
                for begin, end, line in self._counting(at, block):
                    return (begin, line), _behind(end, blocks)
        return None, blocks

    def _counting(self, at: int, block: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the lines of a block that are records, or a header: where they begin and end."""
        return self._lines.records(at, block, white=self._white, comment=self._comment)

    def _records(self, pinned: Pinned, slice: Slice) -> Iterator[_Line]:
        """Yield the records that begin in a slice, with the header: a line each, or several."""
        blocks = self._lines.read(pinned, slice)
        if not self._has_breaks:
            for at, block in blocks:
                for begin, _, line in self._counting(at, block):
                    yield begin, line
            return
        quote = self._dialect.quote.encode()
        kept = bytearray()
        begun = 0
        for place, block in blocks:
            for at, part in self._lines.parts(place, block):
                lines, starts = self._lines.split(part)
                wanted = pc.indices_nonzero(counting(lines, self._white, self._comment)).to_pylist()
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
                        end = number + 1
                    else:
                        # A line without quotes is within those that are open.
                        found = part.find(quote, begins[number])
                        end = len(lines) if found < 0 else bisect.bisect_right(begins, found) - 1
                        end = max(end, number + 1)
                    more = part[begins[number] : begins[end]]
                    kept += more
                    number = end
                    self._check_size(pinned, begun, len(kept))
                    if not self._dialect.is_open(more.decode(errors="replace"), inside=inside):
                        yield begun, self._whole(kept)
                        kept = bytearray()
        if kept:
            yield begun, self._whole(kept)

    def _check_size(self, pinned: Pinned, begun: int, size: int) -> None:
        if size > self._lines.max_record:
            raise InputUnreadable(
                f"{pinned.file.path!r} has a record of more than {self._lines.max_record} bytes from"
                f" byte {begun} on. If that is what it should be, raise option maxRecordBytes"
            )

    def _whole(self, record: bytearray) -> bytes:
        if self._lines.separator is not None:
            return bytes(record.removesuffix(self._lines.separator))
        return bytes(record.removesuffix(b"\n").removesuffix(b"\r"))


def _behind(place: int, blocks: Iterator[_Line]) -> Iterator[_Line]:
    """Yield what of `blocks` begins at `place`, or later."""
    for at, block in blocks:
        skip = max(place - at, 0)
        if skip < len(block):
            yield at + skip, block[skip:]
