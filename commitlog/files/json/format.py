"""``json``: JSON lines; for ingest also files that are JSON documents.

One reader serves outputs and ingest. It reads blocks of lines with pyarrow where that is safe
(`FastReader`), and other lines one by one (`ExactReader`). A file of an output must have the columns of
its schema, and its lines end with line feeds. For ingest, options say how lines end, and values that do
not fit can be rescued.

The rules are those of Spark where Spark loses no data. Names identify columns, in any order. A missing
member is null. A string column holds the text of any value unchanged. Of several members with one name,
the last one counts. Times are those of ISO 8601, in UTC if they have no zone. A value that Spark would
silently round, truncate or skip does not fit here: excess digits of a decimal, the time of day in a
date, text after the object on its line.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from commitlog.errors import CorruptRecord, InputUnreadable, NotSupported
from commitlog.files.base import Encoder, InputFormat, OutputFormat, PartFilter, combine_batches
from commitlog.files.columns import Columns, Records
from commitlog.files.compression import SUFFIXES
from commitlog.files.io import SinkFile, StoredObject, convert_errors
from commitlog.files.json.exact import ExactReader
from commitlog.files.json.fast import FastReader
from commitlog.files.json.scalars import is_unicode
from commitlog.files.json.writer import JsonEncoder
from commitlog.files.line_parser import WHITE, LineParser, check_encoding
from commitlog.files.lines import LINE_OPTIONS, Lines
from commitlog.files.types import number_type, unify_types

if TYPE_CHECKING:
    from commitlog.ingest import Pinned, Slice

__all__ = ["JsonInput", "JsonOutput", "SchemaInference"]

#: Bytes from which columns are inferred.
SAMPLE_BYTES = 2 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"

#: Lines of a file of an output. Their length has no limit of its own.
_OUTPUT_LINES = Lines(separator=b"\n", max_record=2**31 - 1)


class JsonOutput(OutputFormat):
    """JSON lines, which know their columns by name."""

    name = "json"
    compressions = MappingProxyType({name: f".json{suffix}" for name, suffix in SUFFIXES.items()})

    def check(self, schema: pa.Schema) -> None:
        """See `OutputFormat.check`."""
        for field in schema:
            _check_map_keys(field.name, field.type, "choose another fileFormat, or cast the keys")

    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """See `OutputFormat.encoder`."""
        return JsonEncoder(file, compression)

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
        # Without a column, pyarrow would not count the rows.
        known = Columns(schema=pa.schema([schema.field(name) for name in wanted or schema.names[:1]]))
        parser = _parser(source.path, known, _OUTPUT_LINES, white=b"\n")
        what = "JSON lines of the columns that it should have"
        with convert_errors(source.path, what, CorruptRecord):
            yield from combine_batches(
                records.batch.select(wanted)
                for at, block in _OUTPUT_LINES.read(source)
                for records in parser.block(at, block)
            )


class JsonInput(InputFormat):
    """JSON lines; with option ``multiLine``, files that are an object each, or arrays of objects.

    Such a document may be followed by others; each object is a record.
    """

    name = "json"
    options = (*LINE_OPTIONS, "multiLine", "encoding", "charset")
    strings = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        check_encoding(options)
        self._lines = Lines.of(options)
        self._documents = self._flag("multiLine", False)

    def splits(self, path: str) -> bool:
        """See `InputFormat.splits`."""
        return not self._documents and self._lines.splits(path)

    def check(self, columns: Columns) -> None:
        """See `InputFormat.check`."""
        for field in columns.schema:
            _check_map_keys(field.name, field.type, "make it a map with string keys")

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `InputFormat.infer`. Lines that are not objects are ignored.

        Numbers are bigint, decimal where that is too narrow, or double; times and dates are strings, as
        Spark infers by default.
        """
        inference, lines, size = SchemaInference(), 0, 0
        for _, line in self._sample(StoredObject.of(sample)):
            if line and not line.isspace():
                lines += 1
                inference.add(line)
                size += len(line)
                if size >= SAMPLE_BYTES:
                    break
        if lines and not inference.objects:
            raise InputUnreadable(f"{sample.file.path!r} has no line that is an object of JSON")
        return inference.schema()

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `InputFormat.decode`."""
        source = StoredObject.of(pinned)
        parser = _parser(source.path, columns, self._lines)
        if not self._documents:
            for at, block in self._lines.read(source, slice.start, slice.end):
                yield from parser.block(at, block)
        elif slice.start == 0:
            yield from parser.lines(_documents(self._lines.whole(source)))

    def _sample(self, source: StoredObject) -> Iterator[tuple[int, bytes]]:
        """Yield the first lines of a file, or all objects of its documents."""
        if self._documents:
            yield from _documents(self._lines.whole(source))
            return
        for at, block in self._lines.read(source, 0, min(SAMPLE_BYTES, source.size)):
            for begin, _, line in self._lines.records(at, block, white=WHITE):
                yield begin, line


def _parser(path: str, columns: Columns, lines: Lines, *, white: bytes = WHITE) -> LineParser:
    return LineParser(
        path,
        columns,
        lines,
        fast=_fast(columns),
        exact=lambda: ExactReader(columns.schema, report_unknown=columns.new != "ignore"),
        white=white,
    )


# Thousands of small files with the same columns share a reader.
@functools.lru_cache(maxsize=16)
def _fast(columns: Columns) -> Callable[[bytes], tuple[pa.Table, None] | None]:
    reader = FastReader(columns.schema, report_unknown=columns.new != "ignore")

    def read(lines: bytes) -> tuple[pa.Table, None] | None:
        table = reader.table(lines)
        return None if table is None else (table, None)

    return read


def _check_map_keys(name: str, kind: pa.DataType, advice: str) -> None:
    """Raise `NotSupported` if column `name` has a map whose keys are not strings."""
    if pa.types.is_map(kind) and kind.key_type != pa.string():
        raise NotSupported(
            f"column {name!r} has a map with keys of type {kind.key_type}, and the names in JSON are"
            f" strings: {advice}"
        )
    if pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            _check_map_keys(name, kind.field(i).type, advice)


# -- documents -----------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder(parse_int=float).raw_decode


def _documents(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each object of some documents as a line, with its offset.

    Text that is not an object is yielded unchanged, together with all text after it.
    """
    at = len(_BOM) if content.startswith(_BOM) else 0
    try:
        text = content[at:].decode()
    except UnicodeDecodeError:
        yield at, content[at:]
        return
    done, place = 0, at
    for begin, end in _parts(text):
        # Only the bracket of an array without an end begins before text that was yielded already.
        place = (
            place + len(text[done:begin].encode()) if begin >= done else at + len(text[:begin].encode())
        )
        # Within strings there are no line ends.
        line = text[begin:end].encode()
        yield place, line.replace(b"\r", b" ").replace(b"\n", b" ")
        done, place = end, place + len(line)


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each object, and of text that is not an object.

    Text that cannot be decoded is one part, up to the end. For an array without an end, the part is its
    opening bracket.
    """
    bracket: int | None = None
    at = _space(text, 0)
    while at < len(text):
        if bracket is None and text[at] == "[":
            bracket, at = at, _space(text, at + 1)
            if text.startswith("]", at):
                bracket, at = None, _space(text, at + 1)
            continue
        begin = at
        try:
            end = _decode(text, begin)[1]
        except (RecursionError, ValueError):
            yield begin, len(text)
            return
        yield begin, end
        at = _space(text, end)
        if bracket is not None and at < len(text):
            if text[at] not in ",]":
                yield at, len(text)
                return
            bracket = bracket if text[at] == "," else None
            at = _space(text, at + 1)
    if bracket is not None:
        yield bracket, bracket + 1


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


# -- inference -----------------------------------------------------------------------------------------


class SchemaInference:
    """Infers columns from JSON objects. Not thread-safe.

    >>> inference = SchemaInference()
    >>> inference.add(b'{"a": 1, "b": [{"c": null}]}')
    >>> inference.add(b'{"a": 1.5, "d": "2013-01-01"}')
    >>> inference.add(b'neither')
    >>> inference.objects, str(inference.schema()).splitlines()[0]
    (2, 'a: double')
    """

    def __init__(self) -> None:
        #: Number of objects so far.
        self.objects = 0
        self._root = _MemberTypes()

    def add(self, line: bytes) -> None:
        """Add a line; a line that is not an object is ignored."""
        try:
            value = json.loads(line.decode(), parse_int=_integer)
        except (RecursionError, ValueError):
            return
        if type(value) is dict:
            self.objects += 1
            self._root.add(value)

    def schema(self) -> pa.Schema:
        """Return the columns in the order in which they appeared."""
        return pa.schema(list(self._root.type())) if self.objects else pa.schema([])


def _integer(text: str) -> int | float:
    # Python refuses to parse integers of thousands of digits.
    return int(text) if len(text) < 40 else float(text)


class _MemberTypes:
    """The types of the values of one member."""

    def __init__(self) -> None:
        # In the order of appearance, which sets do not keep.
        self._simple: dict[pa.DataType, None] = {}
        self._members: dict[str, _MemberTypes] | None = None
        self._elements: _MemberTypes | None = None

    def add(self, value: object) -> None:
        if value is None:
            return
        if isinstance(value, dict):
            members = self._members = {} if self._members is None else self._members
            for name, member in value.items():
                if is_unicode(name):  # else it cannot be the name of a column
                    members.setdefault(name, _MemberTypes()).add(member)
        elif isinstance(value, list):
            elements = self._elements = self._elements or _MemberTypes()
            for element in value:
                elements.add(element)
        else:
            self._simple[_simple_type(value)] = None

    def type(self) -> pa.DataType:
        kinds = list(self._simple)
        if self._members is not None:
            kinds.append(pa.struct([(name, types.type()) for name, types in self._members.items()]))
        if self._elements is not None:
            kinds.append(pa.list_(pa.field("element", self._elements.type())))
        return unify_types(kinds)


def _simple_type(value: object) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    return number_type(value) if isinstance(value, int | float) else pa.string()
