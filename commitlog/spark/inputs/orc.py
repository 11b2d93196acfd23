"""ORC input, from any writer."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from commitlog.errors import ConfigurationError, InputUnreadable
from commitlog.ingest import Pinned, Slice
from commitlog.spark.formats.nested import moments
from commitlog.spark.inputs.api import BATCH_ROWS, Columns, Input, Records
from commitlog.spark.inputs.fitting import Fitting, sound
from commitlog.spark.inputs.opened import opened
from commitlog.spark.inputs.orc_tail import Tail
from commitlog.spark.inputs.types import Misfit, plain_type, rebuilt

__all__ = ["Orc"]

#: The reader asks for pieces of the columns in turn, 128 kB each.
_BLOCK = 4 * 1024 * 1024

#: Most ends of files are no longer.
_TAIL = 64 * 1024

_WHAT = "ORC"

#: 1582-10-15, in days: the first of the Gregorian calendar.
_FIRST_DAY = -141_427

#: How Spark marks timestamps without a zone, which it keeps as whole numbers.
_LOCAL = (b"spark.sql.catalyst.type", b"timestamp_ntz")


class Orc(Input):
    """ORC files, by stripes: each belongs to the slice in which it begins.

    Memory holds a stripe. A column of type ``timestamp``, as Spark writes its instants, is local time
    of a zone of which the reader does not tell: it can be read as TIMESTAMP_NTZ, or as TIMESTAMP if
    option ``timeZone`` says what zone that is. ``timestamp with local time zone`` is an instant.

    A timestamp before 1677 or after 2262 makes a file unreadable, and so does a date before 1582-10-15
    by the Julian calendar: the reader has no such ones.
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
        """See `Input.splits`."""
        return True

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `Input.infer`. Reads the end of the file."""
        with opened(sample, _WHAT, small=_TAIL, block=_TAIL) as source:
            found = _schema(orc.ORCFile(source))
            if self._zone is not None:
                found = [rebuilt(field, _instant) for field in found]
            return pa.schema([(field.name, plain_type(field.type)) for field in found])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `Input.decode`."""
        path = pinned.file.path
        with opened(pinned, _WHAT, block=_BLOCK) as source:
            file = orc.ORCFile(source)
            tail = Tail.of(file.reader.serialized_file_tail())
            if len(tail.stripes) != file.nstripes:
                raise ValueError(f"{file.nstripes} stripes, of which {len(tail.stripes)} are told")
            found = _schema(file)
            fitting = Fitting(path, found, columns, zone=self._zone)
            # Of no column there would be no rows; and a dot in a name would be taken for a path.
            kept = fitting.names or found.names[:1]
            asked = None if any("." in name for name in found.names) else kept
            target = pa.schema([found.field(name) for name in kept])
            first = 0
            for number, (begin, count) in enumerate(tail.stripes):
                if slice.start <= min(begin, slice.file.size - 1) < slice.end:
                    stripe = file.read_stripe(number, columns=asked).select(kept)
                    table = pa.Table.from_batches([stripe]).cast(target)
                    good, why = (len(table), None) if tail.proleptic else _dated(table)
                    at = first
                    for batch in table.slice(0, good).to_batches(BATCH_ROWS):
                        yield from fitting.records(batch, at)
                        at += batch.num_rows
                    if why is not None:
                        raise InputUnreadable(f"{path!r} cannot be read further than to row {at}: {why}")
                first += count


def _schema(file: orc.ORCFile) -> pa.Schema:
    """Return the columns of a file, with what Spark keeps of their types besides."""
    return pa.schema([rebuilt(field, _local) for field in file.schema])


def _local(field: pa.Field) -> pa.DataType:
    key, value = _LOCAL
    marked = field.metadata is not None and field.metadata.get(key) == value
    return pa.timestamp("us") if marked and field.type == pa.int64() else field.type


def _instant(field: pa.Field) -> pa.DataType:
    # Those that Spark marks as local are in microseconds here.
    return pa.timestamp("us", tz="UTC") if field.type == pa.timestamp("ns") else field.type


def _dated(table: pa.Table) -> tuple[int, Misfit | None]:
    """Return the number of rows before the first date that the reader gets wrong, and its error."""
    try:
        _check_dates(table, 0, len(table))
    except Misfit as error:
        return sound(len(table), partial(_check_dates, table)), error
    return len(table), None


def _check_dates(table: pa.Table, start: int, end: int) -> None:
    for name, kind, days in moments(table.slice(start, end - start)):
        if pa.types.is_date(kind):
            low = pc.min(days).as_py()
            if low is not None and low < _FIRST_DAY:
                raise Misfit(f"column {name!r} has a date before 1582-10-15 by the Julian calendar")
