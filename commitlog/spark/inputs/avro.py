"""Avro, whose records fastavro decodes; it is imported where it is needed. Knows how columns fit."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import pyarrow as pa
from attrs import frozen

from commitlog.errors import CommitError, InputUnreadable, NotSupported
from commitlog.ingest import Pinned, Slice
from commitlog.spark.inputs.api import BATCH_ROWS, Columns, Input, Records
from commitlog.spark.inputs.avro_file import Block, Header, blocks, container
from commitlog.spark.inputs.fitting import BATCH_BYTES, Fitting
from commitlog.spark.inputs.opened import opened
from commitlog.spark.inputs.types import plain_type

__all__ = ["Avro"]

_WHAT = "Avro"

#: Bytes that are asked for at once of a large file, and of its schema.
_BLOCK = 1024 * 1024
_HEAD = 64 * 1024

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

    A union of null and another type is that type, and one of numbers the wider of them. Columns with
    other unions, or with types that are part of themselves, make a file unreadable if they are wanted,
    or if new columns are not to be ignored.

    Raises `NotSupported` if fastavro is not installed.
    """

    name = "avro"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        _fastavro()

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `Input.infer`. Reads the header."""
        with opened(sample, _WHAT, small=_HEAD, block=_HEAD) as source:
            shape = _Shape.of(Header.read(source), sample.file.path)
            if shape.odd:
                _refuse(sample.file.path, shape.odd[0])
            return pa.schema([(each.name, plain_type(each.type)) for each in shape.schema])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `Input.decode`."""
        path, size = pinned.file.path, pinned.file.size
        if slice.start:
            return
        with opened(pinned, _WHAT, block=_BLOCK) as source:
            header = Header.read(source)
            shape = _Shape.of(header, path)
            wanted = {name.lower() for name in columns.schema.names}
            for name in shape.odd:
                if name.lower() in wanted or columns.new != "ignore":
                    _refuse(path, name)
            fitting = Fitting(path, shape.schema, columns)
            target = pa.schema([shape.schema.field(name) for name in fitting.names])
            first = 0
            for rows in _gathered(path, source.tell(), blocks(source, header, size), shape.empty):
                yield from fitting.records(_batch(rows, target), first)
                first += len(rows)


@frozen
class _Shape:
    """What a header tells.

    Attributes:
        schema: the columns, those of `odd` aside.
        odd: names of columns that have no type.
        empty: a file of the same schema without records, which fastavro reads as it is, without
            making objects of dates and times.
    """

    schema: pa.Schema
    odd: list[str]
    empty: bytes

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
        fields, odd = [], []
        for each in parsed["fields"]:
            try:
                fields.append(pa.field(each["name"], _type(each["type"], named, ())))
            except _OddError:
                odd.append(each["name"])
        return cls(pa.schema(fields), odd, empty.getvalue())


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
    """Return a schema without logical types, but for decimals: pyarrow knows what their numbers are."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: _plain(value)
            for key, value in schema.items()
            if key != "logicalType" or value == "decimal"
        }
    return schema


def _gathered(
    path: str, begin: int, found: Iterator[Block], empty: bytes
) -> Iterator[list[dict[str, Any]]]:
    """Yield the records of blocks, as many as make a batch, and what there is before an error."""
    fastavro = _fastavro()
    rows: list[dict[str, Any]] = []
    size = 0
    try:
        for block in found:
            rows += fastavro.reader(io.BytesIO(container(empty, block)))
            begin = block.end
            size += len(block.data)
            if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield rows
                rows, size = [], 0
    except CommitError:
        raise
    except Exception as error:  # those of codecs and of fastavro have only that in common
        yield rows
        raise InputUnreadable(
            f"{path!r} cannot be read any further than to its block at byte {begin}: {error}",
            offset=begin,
        ) from error
    yield rows


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
    return fastavro
