"""``avro``: object container files, for ingest. fastavro decodes the records."""

from __future__ import annotations

import decimal
import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import fastavro
import pyarrow as pa
from attrs import frozen

from commitlog.errors import CommitError, ConfigurationError, InputUnreadable
from commitlog.files.avro.bounds import BlockBounds
from commitlog.files.avro.container import Block, Header, blocks, one_block_file
from commitlog.files.base import BATCH_ROWS, InputFormat
from commitlog.files.calendars import Times
from commitlog.files.columns import (
    BATCH_BYTES,
    ColumnMapping,
    Columns,
    Records,
    first_failure,
)
from commitlog.files.io import READER_ERRORS, StoredObject, open_input_file
from commitlog.files.types import spark_type

if TYPE_CHECKING:
    from commitlog.ingest import Pinned, Slice

__all__ = ["AvroInput"]

_WHAT = "Avro"

#: Bytes of a request for a part of a large file, and for its header.
_BLOCK = 1024 * 1024
_HEAD = 64 * 1024

#: The most values to decode at a time, unless one record has more.
_VALUES = 4 * 1024 * 1024

#: The logical type of decimals in schemas for fastavro, whose own reader takes hours for a hostile one.
_DECIMAL = "commitlog-decimal"
_DECIMAL_BYTES = 64
_EXACT = decimal.Context(prec=200)

_SIMPLE: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}

_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


#: The calendar of files without a mark of it, by the specification of Avro.
_ISO = ("CORRECTED", "CORRECTED")


class AvroInput(InputFormat):
    """Avro files, which are read whole, a block at a time.

    A block has at most ``maxBlockBytes`` bytes, decompressed or not: that bounds the memory.

    A union of null and another type is that type, and a union of numbers the wider of them. A column
    with another union, or with a type that is part of itself, makes a file unreadable if the query reads
    the column, or if new columns are not ignored.
    """

    name = "avro"
    options = ("maxBlockBytes",)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        most = options.get("maxBlockBytes", "134217728")
        if not (most.isdecimal() and 1 <= int(most) <= 2**30):
            raise ConfigurationError(
                f"option maxBlockBytes is {most!r}: give a whole number from 1 to {2**30}"
            )
        self._most = int(most)

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `InputFormat.infer`. Reads the header."""
        source = StoredObject.of(sample)
        with open_input_file(source, _WHAT, small=_HEAD, block=_HEAD) as stored:
            found = _FileSchema.of(Header.read(stored, source.size), source.path)
            if found.unsupported:
                _refuse(source.path, found.unsupported[0])
            return pa.schema([(each.name, spark_type(each.type)) for each in found.columns])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `InputFormat.decode`."""
        source = StoredObject.of(pinned)
        if slice.start:
            return
        with open_input_file(source, _WHAT, block=_BLOCK) as stored:
            header = Header.read(stored, source.size)
            found = _FileSchema.of(header, source.path)
            wanted = {name.lower() for name in columns.schema.names}
            for name in found.unsupported:
                if name.lower() in wanted or columns.new != "ignore":
                    _refuse(source.path, name)
            mapping = ColumnMapping(source.path, found.columns, columns)
            target = pa.schema([found.columns.field(name) for name in mapping.names])
            reader = _RowReader(source.path, found, self._most, stored.tell())
            batch = partial(_batch, Times.of(target, header.marks, _ISO))
            found_blocks = blocks(stored, header, source.size, self._most)
            yield from _records(reader, found_blocks, mapping, target, batch)


@frozen
class _FileSchema:
    """The schema in a header.

    Attributes:
        columns: the columns that Arrow has types for.
        unsupported: names of the other columns.
        empty: a file of the same schema without records, and without logical types, so that fastavro
            makes no objects of dates and times.
        bounds: bounds on the records and values of a block.
    """

    columns: pa.Schema
    unsupported: list[str]
    empty: bytes
    bounds: BlockBounds

    @classmethod
    def of(cls, header: Header, path: str) -> _FileSchema:
        named: dict[str, Any] = {}
        declared = json.loads(header.schema)
        try:
            parsed = fastavro.parse_schema(declared, named)
            empty = io.BytesIO()
            fastavro.writer(empty, fastavro.parse_schema(_physical(declared)), [])
        except Exception as error:  # fastavro's errors have no other base class
            raise InputUnreadable(f"{path!r} cannot be read as {_WHAT}: {error}") from error
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise InputUnreadable(f"{path!r} cannot be read as columns: its schema is not a record")
        bounds = BlockBounds.of(parsed, named)
        fields, unsupported = [], []
        for each in parsed["fields"]:
            try:
                fields.append(pa.field(each["name"], _type(each["type"], named, ())))
            except _UnsupportedError:
                unsupported.append(each["name"])
        return cls(pa.schema(fields), unsupported, empty.getvalue(), bounds)


class _UnsupportedError(Exception):
    """Arrow has no type for a schema."""


def _type(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    """Return the type for a parsed schema; `inside` has the names of the records that contain it."""
    if isinstance(schema, list):
        return _union([_type(each, named, inside) for each in schema])
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        return _type(named[schema], named, inside)
    kind = schema["type"]
    if kind in ("record", "error"):
        if schema["name"] in inside or not schema["fields"]:
            raise _UnsupportedError
        within = (*inside, schema["name"])
        return pa.struct(
            [pa.field(each["name"], _type(each["type"], named, within)) for each in schema["fields"]]
        )
    if kind == "array":
        return pa.list_(_type(schema["items"], named, inside))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], named, inside))
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema["precision"], schema.get("scale", 0))
    if isinstance(kind, str) and (kind, schema.get("logicalType")) in _LOGICAL:
        return _LOGICAL[kind, schema["logicalType"]]
    return _type(kind, named, inside)


def _decimal(precision: int, scale: int) -> pa.DataType:
    if precision > 38:
        raise _UnsupportedError
    return pa.decimal128(precision, scale)


def _union(kinds: list[pa.DataType]) -> pa.DataType:
    found = set(kinds) - {pa.null()}
    if not found:
        return pa.null()
    if len(found) == 1:
        return found.pop()
    for numbers in ({pa.int32(), pa.int64()}, {pa.float32(), pa.float64()}):
        if found == numbers:
            return max(found, key=lambda kind: int(kind.bit_width))
    raise _UnsupportedError


def _physical(schema: Any) -> Any:
    """Return a schema without logical types other than decimals: pyarrow converts the numbers itself."""
    if isinstance(schema, list):
        return [_physical(each) for each in schema]
    if isinstance(schema, dict):
        plain = {key: _physical(value) for key, value in schema.items() if key != "logicalType"}
        is_decimal = schema.get("logicalType") == "decimal" and schema.get("type") in ("bytes", "fixed")
        return {**plain, "logicalType": _DECIMAL} if is_decimal else plain
    return schema


def _read_decimal(data: bytes, schema: Any, _: Any = None) -> decimal.Decimal:
    if len(data) > _DECIMAL_BYTES:
        raise ValueError(f"a decimal has {len(data)} bytes")
    whole = decimal.Decimal(int.from_bytes(data, "big", signed=True))
    return _EXACT.scaleb(whole, -schema.get("scale", 0))


for _kind in ("bytes", "fixed"):
    fastavro.read.LOGICAL_READERS.setdefault(f"{_kind}-{_DECIMAL}", _read_decimal)


class _RowReader:
    """Reads the records of a file, with their positions. Not thread-safe.

    Args:
        path: of the file.
        schema: of the file.
        most: the most bytes of a block.
        begin: offset of the first block.
    """

    def __init__(self, path: str, schema: _FileSchema, most: int, begin: int) -> None:
        self._path = path
        self._schema = schema
        self._most = most
        #: For each block of the last batch: the number of its first row, and its offset.
        self._blocks = [(0, begin)]
        self._rows = max(1, min(BATCH_ROWS, _VALUES // schema.bounds.size.values))

    def error(self, row: int, why: object) -> InputUnreadable:
        """Return the error for a row that cannot be read, in the last batch or after it."""
        begin = next(at for first, at in reversed(self._blocks) if first <= row)
        return InputUnreadable(
            f"{self._path!r} cannot be read any further than to row {row}, in its block at byte {begin}:"
            f" {why}",
            offset=begin,
        )

    def batches(self, found: Iterator[Block]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield rows in batches, each with the number of its first row.

        Raises the error that `error` returns if a row or a block cannot be read; all rows before were
        yielded.
        """
        rows: list[dict[str, Any]] = []
        size = first = 0
        try:
            for block in found:
                for part in self._parts(block, rows):
                    size += part
                    if len(rows) >= self._rows or size >= BATCH_BYTES:
                        yield first, rows
                        first += len(rows)
                        rows.clear()
                        size = 0
                        del self._blocks[:-1]
                self._blocks.append((first + len(rows), block.end))
        except CommitError:
            raise
        except Exception as error:  # errors of codecs and of fastavro have no other base class
            yield first, rows
            raise self.error(first + len(rows), error) from error
        yield first, rows

    def _parts(self, block: Block, rows: list[dict[str, Any]]) -> Iterator[int]:
        """Add the records of a block to `rows`, some at a time; yield their approximate bytes."""
        data, count = block.data, block.count
        self._schema.bounds.check(count, data, self._most)
        file = io.BytesIO(one_block_file(self._schema.empty, block))
        read: Any = next(fastavro.block_reader(file))
        records = iter(read)
        step = max(1, min(self._rows, BATCH_BYTES * count // max(len(data), 1)))
        for _ in range(0, count, step):
            # Records before an error are added as well.
            rows.extend(itertools.islice(records, step))
            yield len(data) * step // count
        if read.bytes_.tell() < len(data):
            left = len(data) - read.bytes_.tell()
            raise ValueError(f"{left} bytes are left behind its {count} records")


#: Makes a batch of rows and their columns.
_Make: TypeAlias = Callable[[list[dict[str, Any]], pa.Schema], pa.RecordBatch]


def _records(
    reader: _RowReader,
    found: Iterator[Block],
    mapping: ColumnMapping,
    target: pa.Schema,
    make: _Make,
) -> Iterator[Records]:
    for first, rows in reader.batches(found):
        try:
            batch, good = make(rows, target), len(rows)
        except READER_ERRORS:
            good = first_failure(len(rows), partial(_part, make, rows, target))
            batch = make(rows[:good], target)
        yield from mapping.records(batch, first)
        if good < len(rows):
            raise reader.error(first + good, _misfit(make, rows[good], target))


def _part(
    make: _Make, rows: list[dict[str, Any]], target: pa.Schema, start: int, end: int
) -> pa.RecordBatch:
    return make(rows[start:end], target)


def _misfit(make: _Make, row: dict[str, Any], target: pa.Schema) -> str:
    """Return the reason why a row cannot be converted."""
    for field in target:
        try:
            make([row], pa.schema([field]))
        except READER_ERRORS as error:
            return f"the value of {field.name!r} is not of type {field.type}: {error}"
    return "its values are inconsistent with each other"


def _batch(times: Times, rows: list[dict[str, Any]], target: pa.Schema) -> pa.RecordBatch:
    return times.read(pa.RecordBatch.from_struct_array(pa.array(rows, pa.struct(list(target)))))


def _refuse(path: str, name: str) -> NoReturn:
    raise InputUnreadable(
        f"column {name!r} of {path!r} is a union of several types, a part of itself, or a decimal of"
        " more than 38 digits: there is no column for it"
    )
