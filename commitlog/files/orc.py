"""ORC, as far as pyarrow's writer and Spark's reader agree on it.

One reader serves outputs and ingest: it reads a stripe with some of its columns. For an output, the
types are those of the output's schema. For ingest, it reads the stripes of a slice, and refuses dates
that pyarrow gets wrong.
"""

from __future__ import annotations

import bisect
import zoneinfo
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from pyarrow import orc

from commitlog._util.parsing import varint
from commitlog.errors import ConfigurationError, InputUnreadable, NotSupported
from commitlog.files.base import (
    BATCH_ROWS,
    GROUP_ROWS,
    Encoder,
    InputFormat,
    OutputFormat,
    PartFilter,
)
from commitlog.files.columns import ColumnMapping, Columns, Records, first_failure
from commitlog.files.io import SinkFile, StoredObject, open_input_file, open_output_file
from commitlog.files.statistics import Statistics
from commitlog.files.stored import check_file_columns
from commitlog.files.timestamps import (
    FIRST_EXACT_SECOND,
    FIRST_GREGORIAN_DAY,
    is_instant,
    temporal_values,
)
from commitlog.files.types import TypeMismatch, leaf_types, replace_leaves, spark_type

if TYPE_CHECKING:
    from commitlog.ingest import Pinned, Slice

__all__ = ["FileTail", "OrcInput", "OrcOutput"]

_WHAT = "ORC"

#: The writer allocates memory for a whole stripe of fixed-size values before it sees them.
STRIPE_BYTES = 64 * 1024 * 1024

#: pyarrow's reader reads pieces of 128 kB of the columns in turn.
READ_BLOCK = 4 * 1024 * 1024

#: Most tails of files have fewer bytes.
_TAIL = 64 * 1024

_SECOND = 1_000_000
#: The end of the range of pyarrow's reader, in whole days.
_LAST_INSTANT = 106_751 * 86_400 * _SECOND

#: Spark's mark of timestamps without a zone, which it stores as integers.
_MARK = b"spark.sql.catalyst.type"
_LOCAL = {_MARK: b"timestamp_ntz"}


class OrcOutput(OutputFormat):
    """ORC whose rows Spark's own reader returns unchanged."""

    name = "orc"
    compressions = MappingProxyType(
        {
            "zstd": ".zstd.orc",
            "zlib": ".zlib.orc",
            "snappy": ".snappy.orc",
            "lz4": ".lz4.orc",
            "none": ".orc",
        }
    )

    def check(self, schema: pa.Schema) -> None:
        """See `OutputFormat.check`."""
        for field in schema:
            if _structs(field.type) > 1:
                raise NotSupported(
                    f"column {field.name!r} has a struct in a struct, and pyarrow's ORC writer spoils"
                    " the inner one where it is null: choose fileFormat parquet"
                )

    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """See `OutputFormat.encoder`."""
        return _Encoder(file, schema, compression)

    def read(
        self,
        source: StoredObject,
        schema: pa.Schema,
        columns: Collection[str],
        keep: PartFilter | None = None,
        *,
        whole: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """See `OutputFormat.read`. The types are those of `schema`; ORC stores some as others."""
        with open_output_file(source, _WHAT, block=READ_BLOCK) as stored:
            file = orc.ORCFile(stored)
            tail, found = FileTail.of_file(file), _input_schema(file)
            _check_zones(source.path, file.schema, schema, columns)
            wanted = check_file_columns(source.path, found, schema, columns, _marks(file), whole=whole)
            types = pa.schema([schema.field(name) for name in wanted] or [found.field(0)])
            try:
                tail.check_decimals(file.schema.names, types.names)
            except TypeMismatch as error:
                raise NotSupported(f"{source.path!r} cannot be read: {error}") from error
            for number in range(file.nstripes):
                for batch in _read_stripe(file, tail, number, types).to_batches(BATCH_ROWS):
                    yield batch.select(wanted)

    def stored_schema(self, source: StoredObject) -> pa.Schema:
        """See `OutputFormat.stored_schema`."""
        with open_output_file(source, _WHAT) as stored:
            return orc.ORCFile(stored).schema


class OrcInput(InputFormat):
    """ORC files by stripes. A stripe belongs to the slice in which it begins.

    Memory holds a stripe. A column of type ``timestamp``, as Spark writes its instants, is the local
    time of a zone that pyarrow does not return: it can be read as TIMESTAMP_NTZ, or as TIMESTAMP if
    option ``timeZone`` names the zone. ``timestamp with local time zone`` is an instant.

    A timestamp before 1677 or after 2262 makes a file unreadable, and so does a date before 1582-10-15
    in the Julian calendar: pyarrow's reader cannot return them.
    """

    name = "orc"
    options = ("timeZone",)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._zone = options.get("timeZone")
        if self._zone is not None and self._zone not in zoneinfo.available_timezones():
            raise ConfigurationError(
                f"option timeZone is {self._zone!r}: give one such as Europe/Berlin"
            )

    def splits(self, path: str) -> bool:
        """See `InputFormat.splits`."""
        return True

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `InputFormat.infer`. Reads the end of the file."""
        source = StoredObject.of(sample)
        with open_input_file(source, _WHAT, small=_TAIL, block=_TAIL) as stored:
            file = orc.ORCFile(stored)
            FileTail.of_file(file).check_decimals(file.schema.names, file.schema.names)
            found = _input_schema(file)
            if self._zone is not None:
                found = [replace_leaves(field, _instant) for field in found]
            return pa.schema([(field.name, spark_type(field.type)) for field in found])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `InputFormat.decode`."""
        source = StoredObject.of(pinned)
        with open_input_file(source, _WHAT, block=READ_BLOCK) as stored:
            file = orc.ORCFile(stored)
            tail = FileTail.of_file(file)
            found = _input_schema(file)
            mapping = ColumnMapping(source.path, found, columns, zone=self._zone)
            tail.check_decimals(found.names, mapping.names)
            types = pa.schema([found.field(name) for name in mapping.names or found.names[:1]])
            first = 0
            for number, (begin, count) in enumerate(tail.stripes):
                if slice.start <= min(begin, source.size - 1) < slice.end:
                    table = _read_stripe(file, tail, number, types)
                    good, why = (len(table), None) if tail.proleptic else _before_wrong_date(table)
                    at = first
                    for batch in table.slice(0, good).to_batches(BATCH_ROWS):
                        yield from mapping.records(batch, at)
                        at += batch.num_rows
                    if why is not None:
                        raise InputUnreadable(
                            f"{source.path!r} cannot be read further than to row {at}: {why}"
                        )
                first += count


# -- the reader ----------------------------------------------------------------------------------------


def _read_stripe(file: orc.ORCFile, tail: FileTail, number: int, types: pa.Schema) -> pa.Table:
    """Return the columns of a stripe that `types` names, of its types. It names at least one."""
    # pyarrow returns no rows without a column, and takes a dot in a name for a path.
    has_dots = any("." in name for name in file.schema.names)
    stripe = file.read_stripe(number, columns=None if has_dots else types.names)
    if stripe.num_rows != tail.stripes[number][1]:
        raise ValueError(
            f"stripe {number} has {stripe.num_rows} rows of {tail.stripes[number][1]} in the tail"
        )
    return pa.Table.from_batches([stripe.select(types.names)]).cast(types)


def _input_schema(file: orc.ORCFile) -> pa.Schema:
    """Return the columns of a file, with Spark's marks applied to their types."""
    return pa.schema([replace_leaves(field, _local) for field in file.schema])


def _marks(file: orc.ORCFile) -> dict[str, str]:
    """Return Spark's marks of columns that have another type for Spark than for ORC."""
    marks = ((each.name, (each.metadata or {}).get(_MARK, b"").decode()) for each in file.schema)
    return {name: kind for name, kind in marks if kind not in ("", _LOCAL[_MARK].decode())}


def _local(field: pa.Field) -> pa.DataType:
    marked = field.metadata is not None and _LOCAL.items() <= field.metadata.items()
    return pa.timestamp("us") if marked and field.type == pa.int64() else field.type


def _instant(field: pa.Field) -> pa.DataType:
    # Timestamps that Spark marks as local are in microseconds here.
    return pa.timestamp("us", tz="UTC") if field.type == pa.timestamp("ns") else field.type


def _before_wrong_date(table: pa.Table) -> tuple[int, TypeMismatch | None]:
    """Return the number of rows before the first date that pyarrow gets wrong, and the error."""
    try:
        _check_dates(table, 0, len(table))
    except TypeMismatch as error:
        return first_failure(len(table), partial(_check_dates, table)), error
    return len(table), None


def _check_dates(table: pa.Table, start: int, end: int) -> None:
    for name, kind, days in temporal_values(table.slice(start, end - start)):
        if pa.types.is_date(kind):
            low = pc.min(days).as_py()
            if low is not None and low < FIRST_GREGORIAN_DAY:
                raise TypeMismatch(
                    f"column {name!r} has a date before 1582-10-15 by the Julian calendar"
                )


def _check_zones(path: str, stored: pa.Schema, types: pa.Schema, names: Collection[str]) -> None:
    for field in stored:
        if field.name not in names or field.name not in types.names:
            continue
        pairs = zip(leaf_types(field.type), leaf_types(types.field(field.name).type), strict=False)
        if any(
            pa.types.is_timestamp(one) and one.tz is None and is_instant(other) for one, other in pairs
        ):
            raise NotSupported(
                f"column {field.name!r} of {path!r} is in local time, as Spark's own ORC writer stores"
                " it, and pyarrow does not report the time zone: read the file with Spark's own reader"
            )


@frozen
class FileTail:
    """Facts in the tail of a file that pyarrow does not return.

    Source: the messages FileTail, Footer and StripeInformation of ``orc_proto.proto``, in the format of
    protocol buffers, as ORC version 1 has them.

    Attributes:
        stripes: for each stripe its first byte, and its number of rows.
        proleptic: whether dates before 1582 are of the proleptic Gregorian calendar, as in Arrow.
        unscaled: the numbers of columns with decimals whose scale the file does not have.
    """

    stripes: tuple[tuple[int, int], ...]
    proleptic: bool
    unscaled: frozenset[int] = frozenset()

    @classmethod
    def of(cls, data: bytes) -> FileTail:
        """Return the facts in a serialized FileTail. Raises `ValueError` if it is invalid."""
        footer = _bytes(dict(_fields(data)).get(_TAIL_FOOTER))
        fields = list(_fields(footer))
        stripes, types = (
            [_bytes(value) for number, value in fields if number == wanted]
            for wanted in (_FOOTER_STRIPES, _FOOTER_TYPES)
        )
        return cls(
            tuple(
                (_number(each.get(_STRIPE_OFFSET, 0)), _number(each.get(_STRIPE_ROWS, 0)))
                for each in map(dict, map(_fields, stripes))
            ),
            dict(fields).get(_FOOTER_CALENDAR) == _PROLEPTIC,
            _unscaled(types),
        )

    @classmethod
    def of_file(cls, file: orc.ORCFile) -> FileTail:
        """Return the facts of an open file. Raises `ValueError` if they contradict each other."""
        tail = cls.of(file.reader.serialized_file_tail())
        rows = sum(count for _, count in tail.stripes)
        if len(tail.stripes) != file.nstripes or rows != file.nrows:
            raise ValueError(
                f"its tail has {len(tail.stripes)} stripes of {file.nstripes}, and {rows} rows of"
                f" {file.nrows}"
            )
        return tail

    def check_decimals(self, names: Sequence[str], wanted: Collection[str]) -> None:
        """Raise `TypeMismatch` if one of the `wanted` columns has decimals that pyarrow would cut.

        Args:
            names: names of all columns.
            wanted: names of the columns to read.
        """
        for number in self.unscaled:
            if names[number] in wanted:
                raise TypeMismatch(
                    f"column {names[number]!r} has decimals without a scale, as Hive 0.11 wrote"
                    " them, and pyarrow cuts their digits: write the file again with a newer Hive"
                )


# Numbers of the fields of these messages, and a value.
_TAIL_FOOTER = 2
_FOOTER_STRIPES, _FOOTER_TYPES, _FOOTER_CALENDAR = 3, 4, 12
_STRIPE_OFFSET, _STRIPE_ROWS = 1, 5
_TYPE_KIND, _TYPE_CHILDREN, _TYPE_PRECISION = 1, 2, 5
_PROLEPTIC = 2
_DECIMAL = 14


def _unscaled(types: Sequence[bytes]) -> frozenset[int]:
    """Return the numbers of columns with decimals without a precision, hence without a scale.

    Args:
        types: the messages Type. The first one is the row, and those of each column follow each other.
    """
    children: list[int] = []
    for number, value in _fields(types[0]) if types else ():
        if number == _TYPE_CHILDREN:
            if isinstance(value, int):
                children.append(value)
                continue
            at = 0
            while at < len(value):  # all of them, packed
                child, at = varint(value, at)
                children.append(child)
    found = set()
    for place, each in enumerate(types):
        fields = dict(_fields(each))
        if fields.get(_TYPE_KIND) == _DECIMAL and not fields.get(_TYPE_PRECISION):
            found.add(bisect.bisect_right(children, place) - 1)
    return frozenset(found)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the numbers and values of the fields of a message.

    >>> list(_fields(b"\\x08\\x96\\x01\\x12\\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field is of the unknown kind {kind}")
        if at + size > len(data):
            raise ValueError("a field ends after its message")
        yield tag >> 3, data[at : at + size]
        at += size


def _bytes(value: int | bytes | None) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a message is missing")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a number is missing")
    return value


# -- the encoder ---------------------------------------------------------------------------------------


_ADVICE = "which ORC readers would not get back as it is: choose fileFormat parquet"


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        self._stored = pa.schema([_stored(field) for field in schema])
        leaves = sum(len(list(leaf_types(field.type))) for field in schema)
        # Every batch becomes a stripe: otherwise the writers of many open files use unbounded memory.
        self._writer = orc.ORCWriter(
            file,
            compression="uncompressed" if compression == "none" else compression,
            batch_size=max(1024, min(GROUP_ROWS, STRIPE_BYTES // (9 * leaves))),
            stripe_size=1,
            dictionary_key_size_threshold=0.8,
        )

    def write(self, table: pa.Table) -> None:
        _check_times(table)
        for number, field in enumerate(table.schema):
            if _structs(field.type):
                # The writer reads the values of a struct that is a slice from the wrong place.
                copy = pa.concat_arrays(table.column(number).chunks)
                table = table.set_column(number, field, copy)
        self._writer.write(table.cast(self._stored))

    def close(self, statistics: Statistics) -> None:
        self._writer.close()


def _structs(kind: pa.DataType) -> int:
    """Return the number of structs within each other in a column of type `kind`."""
    if not pa.types.is_nested(kind):
        return 0
    inside = max(_structs(kind.field(i).type) for i in range(kind.num_fields))
    return inside + 1 if pa.types.is_struct(kind) else inside


def _check_times(table: pa.Table) -> None:
    for name, kind, values in temporal_values(table):
        low, high = (pc.min_max(values)[end].as_py() for end in ("min", "max"))
        if low is None:
            continue
        if pa.types.is_date(kind) and low < FIRST_GREGORIAN_DAY:
            raise NotSupported(f"column {name!r} has a date before 1582-10-15, {_ADVICE}")
        if is_instant(kind):
            if low < FIRST_EXACT_SECOND * _SECOND or high >= _LAST_INSTANT:
                raise NotSupported(
                    f"column {name!r} has a time before 1900 or after 2262-04-10, {_ADVICE}"
                )
            if low < 0 and _has_fraction(values.filter(pc.less(values, 0))):
                raise NotSupported(
                    f"column {name!r} has a time before 1970 that is not a whole second, {_ADVICE}"
                )


def _has_fraction(values: pa.Array) -> bool:
    whole = pc.multiply(pc.divide(values, _SECOND), _SECOND)
    return bool(pc.any(pc.not_equal(whole, values)).as_py())


def _stored(field: pa.Field) -> pa.Field:
    """Return `field` with timestamps without a zone stored as Spark stores them."""
    kind = field.type
    if pa.types.is_timestamp(kind) and not is_instant(kind):
        return field.with_type(pa.int64()).with_metadata(_LOCAL)
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_stored(child) for child in kind]))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_stored(kind.key_field), _stored(kind.item_field)))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_stored(kind.value_field)))
    return field
