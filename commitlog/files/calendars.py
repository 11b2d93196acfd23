"""Dates and timestamps of Parquet and Avro: the calendar of the writer, and Parquet's type INT96.

Hive and Spark 2 wrote days before 1582-10-15 in the Julian calendar, and Spark still does so in its mode
``LEGACY``. There, times before 1900 also follow old rules of the time zone. A footer may have marks that
tell the calendar:

* ``org.apache.spark.version``, ``org.apache.spark.legacyDateTime`` and ``org.apache.spark.legacyINT96``,
  with ``org.apache.spark.timeZone``: see ``DataSourceUtils`` and ``RebaseDateTime`` of Spark
* ``writer.date.proleptic``: see ``DataWritableWriteSupport`` of Hive

Days, and times in UTC, are returned in the proleptic Gregorian calendar, as in Arrow. What cannot be
returned so is refused: early times of other zones, and early values of a file without a mark whose
writer may be Hive or Spark 2.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import frozen

from commitlog._util.parsing import varint
from commitlog.files.columns import first_failure
from commitlog.files.timestamps import FIRST_EXACT_SECOND, FIRST_GREGORIAN_DAY
from commitlog.files.types import TypeMismatch, leaf_types, map_leaves, replace_leaves

__all__ = ["REBASE_MODES", "Times", "unmarked_modes", "with_binary_int96"]

#: Spark's options for files without a mark, and their values; the first is the default.
REBASE_MODES: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("datetimeRebaseMode", "int96RebaseMode"), ("EXCEPTION", "CORRECTED", "LEGACY")
)

_INSTANT = pa.timestamp("us", tz="UTC")

_DAY_SECONDS = 86_400
_UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
#: Zones in which a day of either calendar begins at the same moment.
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "UCT", "Etc/UCT", "Zulu", "Universal", "+00:00")

#: Names of writers that Hive or Spark 2 may have used.
_MAY_BE_OLD = re.compile(r"\Z|parquet-mr version ")

#: Converts the values of a simple column. Raises `TypeMismatch` for one that is refused.
_Convert = Callable[[pa.Array], pa.Array]


@frozen
class Times:
    """How the columns of a file are read.

    Attributes:
        schema: the columns as `read` returns them.
        foreign: names of the columns whose stored values may have to be converted. Their bounds in the
            footer are bounds of other values.
    """

    schema: pa.Schema
    foreign: frozenset[str]
    _convert: Mapping[str, tuple[_Convert | None, ...]]

    @classmethod
    def of(
        cls,
        stored: pa.Schema,
        marks: Mapping[bytes, bytes],
        modes: Sequence[str],
        int96: frozenset[int] = frozenset(),
    ) -> Times:
        """Return how to read the columns of a file.

        Args:
            stored: the columns, with INT96 as `with_binary_int96` returns it.
            marks: the entries of the footer, or of Avro's header.
            modes: values of the options `REBASE_MODES`, for a file without a mark.
            int96: the numbers of the simple columns of type INT96.
        """
        days, moments = (_Calendar.of(marks, number, mode) for number, mode in enumerate(modes))
        number = -1

        def kind(field: pa.Field) -> pa.DataType:
            nonlocal number
            number += 1
            return _INSTANT if number in int96 else field.type

        schema = pa.schema([replace_leaves(field, kind) for field in stored])
        found: dict[str, tuple[_Convert | None, ...]] = {}
        number = -1
        for field in stored:
            converts: list[_Convert | None] = []
            for each in leaf_types(field.type):
                number += 1
                converts.append(moments.int96 if number in int96 else days.convert(each))
            if any(converts):
                found[field.name] = tuple(converts)
        return cls(schema, frozenset(found), found)

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with columns of the file's types as one with those of `schema`.

        Raises `TypeMismatch`, with the name of a column, for a value that is refused.
        """
        for place, name in enumerate(batch.schema.names):
            if name in self._convert:
                try:
                    column = map_leaves(batch.column(place), iter(self._convert[name]))
                except TypeMismatch as error:
                    raise TypeMismatch(f"column {name!r} has {error}") from None
                batch = batch.set_column(place, self.schema.field(name), column)
        return batch

    def before_refused(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, TypeMismatch | None]:
        """Return the rows of a batch before the first value that is refused, and the error."""

        def copied(start: int, end: int) -> pa.RecordBatch:
            return self.read(batch.take(pa.array(range(start, end), pa.int64())))

        try:
            return self.read(batch), None
        except TypeMismatch:
            pass  # a slice of lists keeps the values of other rows
        try:
            return copied(0, batch.num_rows), None
        except TypeMismatch as error:
            return copied(0, first_failure(batch.num_rows, copied)), error


def unmarked_modes(footer: pq.FileMetaData, options: Mapping[str, str]) -> Sequence[str]:
    """Return the modes for a Parquet file without a mark of its calendar, by its writer and options."""
    is_new = b"iceberg.schema" in (footer.metadata or {})
    if is_new or not _MAY_BE_OLD.match(footer.created_by or ""):
        return ["CORRECTED"] * len(REBASE_MODES)
    return [options.get(name, values[0]) for name, values in REBASE_MODES.items()]


# -- calendars -----------------------------------------------------------------------------------------


@frozen
class _Calendar:
    """The calendar of dates and timestamps: proleptic, Julian before 1582 (`rebases`), or unknown."""

    rebases: bool
    known: bool
    option: str
    zone: str

    @classmethod
    def of(cls, marks: Mapping[bytes, bytes], number: int, mode: str) -> _Calendar:
        """Return the calendar: `number` 0 for dates and timestamps, 1 for those in INT96."""
        version = marks.get(b"org.apache.spark.version")
        legacy = marks.get((b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")[number])
        proleptic = marks.get(b"writer.date.proleptic")
        if version is not None:
            is_old = _release(version) < ((3, 0), (3, 1))[number]
            mode = "CORRECTED" if legacy is None and not is_old else "LEGACY"
        elif proleptic is not None:
            mode = "CORRECTED" if proleptic == b"true" else "LEGACY"
        zone = marks.get(b"org.apache.spark.timeZone", b"").decode(errors="replace")
        return cls(mode == "LEGACY", mode != "EXCEPTION", list(REBASE_MODES)[number], zone)

    def convert(self, kind: pa.DataType) -> _Convert | None:
        """Return the conversion of stored values of type `kind`, or None if there is none."""
        if self.known and not self.rebases:
            return None
        if pa.types.is_date32(kind):
            return self._days
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return self._moments
        return None

    def int96(self, values: pa.Array) -> pa.Array:
        """Return values of INT96 as instants."""
        found = _instants(values)
        return found if self.known and not self.rebases else self._moments(found)

    def _days(self, values: pa.Array) -> pa.Array:
        days = values.cast(pa.int32()).cast(pa.int64())
        if not _is_before(days, FIRST_GREGORIAN_DAY):
            return values
        if not self.known:
            raise TypeMismatch(f"a date before 1582-10-15, and {self._unknown()}")
        return _rebased(days).cast(pa.int32()).cast(values.type)

    def _moments(self, values: pa.Array) -> pa.Array:
        second = _UNITS[values.type.unit]
        times = values.cast(pa.int64())
        if not _is_before(times, FIRST_EXACT_SECOND * second):
            return values
        if not self.known:
            raise TypeMismatch(f"a time before 1900, and {self._unknown()}")
        if self.zone not in _UTC:
            zone = f"in {self.zone or 'a zone that the file does not name'}"
            raise TypeMismatch(
                f"a time before 1900 that was written by the Julian calendar {zone}: only those in UTC"
                " can be read here; Spark's own reader reads the others"
            )
        day = _DAY_SECONDS * second
        days = _floor(times, day)
        return pc.add(times, pc.multiply(pc.subtract(_rebased(days), days), day)).cast(values.type)

    def _unknown(self) -> str:
        return (
            "its writer may have used the Julian calendar, without a mark in the footer: set option"
            f" {self.option} to LEGACY for files of Hive and Spark 2, or to CORRECTED"
        )


def _release(version: bytes) -> tuple[int, ...]:
    """Return the numbers of a version; those of an unknown one are the least.

    >>> _release(b"3.0.1"), _release(b"x")
    ((3, 0), (0,))
    """
    try:
        return tuple(int(part) for part in version.split(b".")[:2])
    except ValueError:
        return (0,)


def _is_before(values: pa.Array, first: int) -> bool:
    low = pc.min(values).as_py()
    return low is not None and low < first


def _floor(values: pa.Array, divisor: int) -> pa.Array:
    """Return the quotients of values, rounded down."""
    cut = pc.divide(values, divisor)
    return pc.if_else(pc.greater(pc.multiply(cut, divisor), values), pc.subtract(cut, 1), cut)


def _rebased(days: pa.Array) -> pa.Array:
    """Return days since 1970 for the same year, month and day in the Gregorian calendar.

    >>> _rebased(pa.array([-141_427, -141_428, -719_164])).to_pylist()  # 1582-10-15, -04, 0001-01-01
    [-141427, -141438, -719162]
    """
    # Years begin in March, so that a leap day is the last of a year. -719 470 is March 1 of the year 0.
    years = _floor(pc.add(pc.multiply(pc.add(days, 719_470), 4), 3), 1461)
    leap_days = pc.subtract(_floor(years, 100), _floor(years, 400))  # only the Julian calendar has them
    moved = pc.subtract(days, pc.subtract(leap_days, 2))
    return pc.if_else(pc.less(days, FIRST_GREGORIAN_DAY), moved, days)


# -- INT96 ---------------------------------------------------------------------------------------------

#: The day 1970-01-01 of INT96.
_EPOCH_DAY = 2_440_588


def _instants(values: pa.Array) -> pa.Array:
    """Return values of 12 bytes as instants: nanoseconds of the day, and the Julian day.

    As in Spark, both are signed, and sums wrap around: it writes any 64 bits of microseconds.
    """
    if not len(values):
        return pa.nulls(0, _INSTANT)
    end = values.offset + len(values)
    words = pa.Array.from_buffers(pa.int32(), 3 * end, [None, values.buffers()[1]])
    places = pc.add(
        pc.cumulative_sum(pa.repeat(pa.scalar(3, pa.int64()), len(values))), 3 * values.offset - 3
    )
    low, high, days = (words.take(pc.add(places, number)) for number in range(3))
    # This is the unsigned value of the lower half.
    low = pc.bit_wise_and(low.cast(pa.int64()), 2**32 - 1)
    nanoseconds = pc.add(pc.multiply(high.cast(pa.int64()), 2**32), low)
    days = pc.subtract(days.cast(pa.int64()), _EPOCH_DAY)
    found = pc.add(pc.multiply(days, _DAY_SECONDS * 1_000_000), pc.divide(nanoseconds, 1000))
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.int64())).cast(_INSTANT)


def with_binary_int96(footer: pq.FileMetaData) -> pq.FileMetaData:
    """Return a footer in which columns of type INT96 are columns of 12 bytes, stored in the same way.

    pyarrow converts INT96 itself, but takes its two numbers for unsigned ones: early days, and the
    times that Spark writes for them, become other times.
    """
    sink = io.BytesIO()
    footer.write_metadata_file(sink)
    data = sink.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    edits: list[tuple[int, int, bytes]] = []
    for number, at in _members(data, len(data) - 8 - size):
        if number == 2:  # the elements of the schema
            edits += [edit for element in _elements(data, at) for edit in _binary_element(data, element)]
        elif number == 4:  # the row groups
            for group in _elements(data, at):
                for chunk in _elements(data, _at(data, group, 1)):
                    kind = _at(data, _at(data, chunk, 3), 1)
                    if data[kind] == _INT96:
                        edits.append((kind, kind + 1, bytes([_FIXED])))
    done = bytearray()
    place = len(data) - 8 - size
    for start, end, new in edits:
        done += data[place:start] + new
        place = end
    done += data[place:-8]
    mark = data[-4:]
    return pq.read_metadata(io.BytesIO(mark + done + len(done).to_bytes(4, "little") + mark))


# Values of the enumeration Type, as the compact protocol of Thrift writes them, and kinds of values.
_INT96, _FIXED = 2 * 3, 2 * 7
_I32, _BINARY, _LIST, _STRUCT = 5, 8, 9, 12


def _binary_element(data: bytes, at: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the change of an element of the schema: its type, and the new member ``type_length``."""
    # The first member is the type, unless the element is a group. Headers have the distance of numbers.
    if data[at] == 0x10 | _I32 and data[at + 1] == _INT96:
        yield at + 1, at + 3, bytes([_FIXED, 0x10 | _I32, 2 * 12, data[at + 2] - 0x10])


def _at(data: bytes, struct: int, wanted: int) -> int:
    return next(at for number, at in _members(data, struct) if number == wanted)


def _members(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the members of a struct, and where their values begin."""
    number = 0
    while header := data[at]:
        at += 1
        if header >> 4:
            number += header >> 4
        else:
            encoded, at = varint(data, at)
            number = encoded >> 1
        yield number, at
        at = _end(data, at, header & 15)
    yield 0, at + 1


def _elements(data: bytes, at: int) -> Iterator[int]:
    """Yield where the structs of a list begin."""
    count, at = data[at] >> 4, at + 1
    if count == 15:
        count, at = varint(data, at)
    for _ in range(count):
        yield at
        at = _end(data, at, _STRUCT)


def _end(data: bytes, at: int, kind: int) -> int:
    """Return the end of a value."""
    if kind == _STRUCT:
        *_, (_, at) = _members(data, at)
        return at
    if kind == _LIST:
        kind = data[at] & 15
        count, at = data[at] >> 4, at + 1
        if count == 15:
            count, at = varint(data, at)
        for _ in range(count):
            at = at + 1 if kind <= 2 else _end(data, at, kind)
        return at
    if kind == _BINARY:
        size, at = varint(data, at)
        return at + size
    fixed = {1: 0, 2: 0, 3: 1, 7: 8}.get(kind)
    return varint(data, at)[1] if fixed is None else at + fixed
