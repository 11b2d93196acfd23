"""Avro input. fastavro decodes the records, and is imported on first use."""

from __future__ import annotations

import decimal
import io
import itertools
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
from attrs import frozen

from commitlog.errors import CommitError, ConfigurationError, InputUnreadable, NotSupported
from commitlog.ingest import Pinned, Slice
from commitlog.spark.formats.files import COMPLAINTS
from commitlog.spark.inputs.api import BATCH_ROWS, Columns, Input, Records
from commitlog.spark.inputs.avro_bounds import Bounds
from commitlog.spark.inputs.avro_file import Block, Header, blocks, container
from commitlog.spark.inputs.fitting import BATCH_BYTES, Fitting, sound
from commitlog.spark.inputs.opened import opened
from commitlog.spark.inputs.types import plain_type

__all__ = ["Avro"]

_WHAT = "Avro"

#: Bytes that are asked for at once of a large file, and of its schema.
_BLOCK = 1024 * 1024
_HEAD = 64 * 1024

#: Values that are decoded at a time, at most, but for those of one record.
_VALUES = 4 * 1024 * 1024

#: What decimals are called to fastavro, whose own reader takes hours for a hostile one.
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


class Avro(Input):
    """Avro files, which are read whole, a block at a time.

    A block has at most ``maxBlockBytes`` bytes, decompressed or not: that bounds the memory.

    A union of null and another type is that type, and one of numbers the wider of them. Columns with
    other unions, or with types that are part of themselves, make a file unreadable if they are wanted,
    or if new columns are not to be ignored.

    Raises `NotSupported` if fastavro is not installed.
    """

    name = "avro"
    options = ("maxBlockBytes",)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        _fastavro()
        most = options.get("maxBlockBytes", "134217728")
        if not (most.isdecimal() and 1 <= int(most) <= 2**30):
            raise ConfigurationError(
                f"option maxBlockBytes is {most!r}: give a whole number from 1 to {2**30}"
            )
        self._most = int(most)

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `Input.infer`. Reads the header."""
        with opened(sample, _WHAT, small=_HEAD, block=_HEAD) as source:
            shape = _Shape.of(Header.read(source, sample.file.size), sample.file.path)
            if shape.odd:
                _refuse(sample.file.path, shape.odd[0])
            return pa.schema([(each.name, plain_type(each.type)) for each in shape.schema])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `Input.decode`."""
        path, size = pinned.file.path, pinned.file.size
        if slice.start:
            return
        with opened(pinned, _WHAT, block=_BLOCK) as source:
            header = Header.read(source, size)
            shape = _Shape.of(header, path)
            wanted = {name.lower() for name in columns.schema.names}
            for name in shape.odd:
                if name.lower() in wanted or columns.new != "ignore":
                    _refuse(path, name)
            fitting = Fitting(path, shape.schema, columns)
            target = pa.schema([shape.schema.field(name) for name in fitting.names])
            reading = _Reading(path, shape, self._most, source.tell())
            found = blocks(source, header, size, self._most)
            yield from _records(reading, found, fitting, target)


@frozen
class _Shape:
    """What a header tells.

    Attributes:
        schema: the columns, those of `odd` aside.
        odd: names of columns that have no type.
        empty: a file of the same schema without records, which fastavro reads as it is, without
            making objects of dates and times.
        bounds: how many records and values a block may have.
    """

    schema: pa.Schema
    odd: list[str]
    empty: bytes
    bounds: Bounds

    @classmethod
    def of(cls, header: Header, path: str) -> _Shape:
        fastavro = _fastavro()
        named: dict[str, Any] = {}
        told = json.loads(header.schema)
        try:
            parsed = fastavro.parse_schema(told, named)
            empty = io.BytesIO()
            fastavro.writer(empty, fastavro.parse_schema(_plain(told)), [])
        except Exception as error:  # its own errors have only that in common
            raise InputUnreadable(f"{path!r} cannot be read as {_WHAT}: {error}") from error
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise InputUnreadable(f"{path!r} cannot be read as columns: its schema is no record")
        bounds = Bounds.of(parsed, named)
        fields, odd = [], []
        for each in parsed["fields"]:
            try:
                fields.append(pa.field(each["name"], _type(each["type"], named, ())))
            except _OddError:
                odd.append(each["name"])
        return cls(pa.schema(fields), odd, empty.getvalue(), bounds)


class _OddError(Exception):
    """A schema that no type of Arrow is for."""


def _type(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    """Return the type for a parsed schema; `inside` are the names of the records that it is part of."""
    if isinstance(schema, list):
        return _union([_type(each, named, inside) for each in schema if each != "null"])
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        return _type(named[schema], named, inside)
    kind = schema["type"]
    if kind in ("record", "error"):
        if schema["name"] in inside or not schema["fields"]:
            raise _OddError
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
        raise _OddError
    return pa.decimal128(precision, scale)


def _union(kinds: list[pa.DataType]) -> pa.DataType:
    found = set(kinds)
    if not found:
        return pa.null()
    if len(found) == 1:
        return kinds[0]
    for numbers in ({pa.int32(), pa.int64()}, {pa.float32(), pa.float64()}):
        if found == numbers:
            return max(found, key=lambda kind: int(kind.bit_width))
    raise _OddError


def _plain(schema: Any) -> Any:
    """Return a schema without logical types: pyarrow knows what their numbers are, but for decimals."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        plain = {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
        is_decimal = schema.get("logicalType") == "decimal" and schema.get("type") in ("bytes", "fixed")
        return {**plain, "logicalType": _DECIMAL} if is_decimal else plain
    return schema


def _read_decimal(data: bytes, schema: Any, _: Any = None) -> decimal.Decimal:
    if len(data) > _DECIMAL_BYTES:
        raise ValueError(f"a decimal has {len(data)} bytes")
    whole = decimal.Decimal(int.from_bytes(data, "big", signed=True))
    return _EXACT.scaleb(whole, -schema.get("scale", 0))


class _Reading:
    """The records of a file, and where they are. Not thread-safe.

    Args:
        path: of the file.
        shape: what its header tells.
        most: bytes that a block may have.
        begin: where its first block is.
    """

    def __init__(self, path: str, shape: _Shape, most: int, begin: int) -> None:
        self._path = path
        self._shape = shape
        self._most = most
        #: For blocks of the last batch: the number of the first row, and the byte at which it begins.
        self._blocks = [(0, begin)]
        self._rows = max(1, min(BATCH_ROWS, _VALUES // shape.bounds.size.values))

    def error(self, row: int, why: object) -> InputUnreadable:
        """Return the error for a row that cannot be read, of the last batch or behind it."""
        begin = next(at for first, at in reversed(self._blocks) if first <= row)
        return InputUnreadable(
            f"{self._path!r} cannot be read any further than to row {row}, in its block at byte {begin}:"
            f" {why}",
            offset=begin,
        )

    def batches(self, found: Iterator[Block]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield the number of a first row, and it and others, as many as make a batch.

        Raises what `error` returns where a row or a block cannot be read; all before it was yielded.
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
        except Exception as error:  # those of codecs and of fastavro have only that in common
            yield first, rows
            raise self.error(first + len(rows), error) from error
        yield first, rows

    def _parts(self, block: Block, rows: list[dict[str, Any]]) -> Iterator[int]:
        """Add the records of a block to `rows`, some at a time; yield how many bytes they had, about."""
        data, count = block.data, block.count
        self._shape.bounds.check(count, data, self._most)
        file = io.BytesIO(container(self._shape.empty, block))
        read = next(_fastavro().block_reader(file))
        records = iter(read)
        step = max(1, min(self._rows, BATCH_BYTES * count // max(len(data), 1)))
        for _ in range(0, count, step):
            # Records before an error are added, too.
            rows.extend(itertools.islice(records, step))
            yield len(data) * step // count
        if read.bytes_.tell() < len(data):
            left = len(data) - read.bytes_.tell()
            raise ValueError(f"{left} bytes are left behind its {count} records")


def _records(
    reading: _Reading, found: Iterator[Block], fitting: Fitting, target: pa.Schema
) -> Iterator[Records]:
    for first, rows in reading.batches(found):
        try:
            batch, good = _batch(rows, target), len(rows)
        except COMPLAINTS:
            good = sound(len(rows), partial(_part, rows, target))
            batch = _batch(rows[:good], target)
        yield from fitting.records(batch, first)
        if good < len(rows):
            raise reading.error(first + good, _misfit(rows[good], target))


def _part(rows: list[dict[str, Any]], target: pa.Schema, start: int, end: int) -> pa.RecordBatch:
    return _batch(rows[start:end], target)


def _misfit(row: dict[str, Any], target: pa.Schema) -> str:
    """Return why a row does not fit a batch."""
    for field in target:
        try:
            _batch([row], pa.schema([field]))
        except COMPLAINTS as error:
            return f"the value of {field.name!r} is no {field.type}: {error}"
    return "its values do not go together"


def _batch(rows: list[dict[str, Any]], target: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array(rows, pa.struct(list(target))))


def _refuse(path: str, name: str) -> NoReturn:
    raise InputUnreadable(
        f"column {name!r} of {path!r} is a union of several types, a part of itself, or a decimal of"
        " more than 38 digits: there is no column for it"
    )


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise NotSupported(
            "fileFormat avro needs fastavro: install commitlog-store[avro], where executors run, too"
        ) from None
    for kind in ("bytes", "fixed"):
        fastavro.read.LOGICAL_READERS.setdefault(f"{kind}-{_DECIMAL}", _read_decimal)
    return fastavro
