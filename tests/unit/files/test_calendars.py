"""Dates and timestamps of Parquet and Avro: calendars of old writers, and the type INT96."""

from __future__ import annotations

import datetime as dt
import io
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError, InputUnreadable, NotSupported
from commitlog.files import OUTPUT_FORMATS, Columns, StoredObject
from commitlog.files.avro.format import AvroInput
from commitlog.files.parquet import ParquetInput
from commitlog.ingest import Pinned
from support.input_files import pinned, records, slices
from support.output_files import read

OUTPUT = OUTPUT_FORMATS["parquet"]
PATH = "in/a.parquet"

INSTANT = pa.timestamp("us", tz="UTC")
DAY = 86_400_000_000
EPOCH = dt.date(1970, 1, 1)

SPARK = {"org.apache.spark.version": "4.1.0"}
LEGACY = {
    **SPARK,
    "org.apache.spark.legacyDateTime": "",
    "org.apache.spark.legacyINT96": "",
    "org.apache.spark.timeZone": "UTC",
}

#: The day since 1970 of a date in the Julian calendar, and the same date in the Gregorian one.
JULIAN = [
    (-141_428, dt.date(1582, 10, 4)),
    (-141_427, dt.date(1582, 10, 15)),
    (-171_595, dt.date(1500, 3, 1)),
    (-171_596, dt.date(1500, 3, 1)),  # February 29 of a year that is no leap year any more
    (-171_597, dt.date(1500, 2, 28)),
    (-354_280, dt.date(1000, 1, 1)),
    (-719_162, dt.date(1, 1, 3)),
    (0, dt.date(1970, 1, 1)),
]


def stored(
    table: pa.Table, marks: Mapping[str, str], writer: str | None = None, **options: Any
) -> Pinned:
    """Return a file of a table with marks in its footer, and the name of its writer."""
    target = io.BytesIO()
    groups = options.pop("row_group_size", None)
    with pq.ParquetWriter(target, table.schema, store_schema=False, **options) as file:
        file.write_table(table, groups)
        file.add_key_value_metadata(dict(marks))
    data = target.getvalue()
    if writer is not None:
        own = pq.read_metadata(io.BytesIO(data)).created_by
        data = data.replace(own.encode(), writer.encode().ljust(len(own))[: len(own)])
    return pinned(data, PATH)


def rows(source: Pinned, schema: pa.Schema, **options: str) -> list[dict[str, Any]]:
    """Return the records of a file, as ingest reads them."""
    return [row for row, _, _ in records(ParquetInput(options), source, Columns(schema=schema))]


def output(source: Pinned, schema: pa.Schema) -> pa.Table:
    """Return the rows of a file, as an output reads them."""
    return read(OUTPUT, source.get(PATH).data, schema).cast(schema)


def old_table() -> tuple[pa.Table, pa.Table]:
    """Return dates and times as a writer with the Julian calendar stores them, and as they are."""

    def table(days: list[int]) -> pa.Table:
        dates = pa.array(days, pa.int32()).cast(pa.date32())
        times = pa.array([day * DAY + 43_200_000_001 for day in days], pa.int64()).cast(INSTANT)
        members = pa.StructArray.from_arrays([dates, times], ["d", "t"])
        ends = pa.array([0, 0, *range(1, len(days)), len(days)][: len(days) + 1], pa.int32())
        return pa.table(
            {
                "d": dates,
                "t": times,
                "ms": times.cast(pa.timestamp("ms", tz="UTC"), safe=False),
                "local": times.cast(pa.timestamp("us")),
                "s": members,
                "l": pa.ListArray.from_arrays(ends, dates),
                "m": pa.MapArray.from_arrays(ends, pa.array(map(str, days)), times),
            }
        )

    before = table([day for day, _ in JULIAN])
    after = table([(date - EPOCH).days for _, date in JULIAN])
    # Times without a zone have always been those of the Gregorian calendar.
    after = after.set_column(3, "local", before.column("local"))
    keys = before.column("m").combine_chunks().keys
    items = after.column("m").combine_chunks().items
    maps = pa.MapArray.from_arrays(before.column("m").combine_chunks().offsets, keys, items)
    return before, after.set_column(6, "m", maps)


def test_dates_and_times_of_the_julian_calendar_keep_their_day() -> None:
    """Spark marks such files. Ingest and readers of outputs return the same rows, in any column."""
    before, after = old_table()
    source = stored(before, LEGACY, row_group_size=3)
    schema = ParquetInput({}).infer(source)
    assert rows(source, schema) == after.to_pylist()
    assert output(source, schema).to_pylist() == after.to_pylist()
    assert rows(stored(before, SPARK), schema) == before.to_pylist()


def test_row_groups_of_the_julian_calendar_are_not_filtered() -> None:
    """The bounds in their footers are bounds of other days."""
    before, _ = old_table()
    for marks, columns in ((LEGACY, set()), (SPARK, {"d", "t"})):
        seen: list[Any] = []
        data = stored(before.append_column("n", pa.array(range(len(JULIAN)))), marks).get(PATH).data
        read(OUTPUT, data, before.schema, {"d"}, lambda each, seen=seen: not seen.append(each))
        assert seen[0].keys() & {"n", "d", "t"} == {"n", *columns}


@pytest.mark.parametrize(
    ("marks", "writer", "dates", "int96"),
    [
        ({}, None, "right", "right"),
        ({}, "parquet-mr version 1.10.1", "refused", "refused"),
        ({}, "parquet-mr-trino version", "right", "right"),
        ({"iceberg.schema": "{}"}, "parquet-mr version 1.13.1", "right", "right"),
        ({"org.apache.spark.version": "2.4.8"}, "parquet-mr version 1.10.1", "other", "refused"),
        ({"org.apache.spark.version": "?"}, None, "other", "refused"),
        ({"org.apache.spark.version": "3.0.3"}, "parquet-mr version 1.10.1", "right", "refused"),
        ({"org.apache.spark.version": "3.1.0"}, "parquet-mr version 1.10.1", "right", "right"),
        ({"org.apache.spark.version": "10.0.0"}, None, "right", "right"),
        ({**SPARK, "org.apache.spark.legacyDateTime": ""}, None, "other", "right"),
        ({**SPARK, "org.apache.spark.legacyINT96": ""}, None, "right", "refused"),
        ({"writer.date.proleptic": "true"}, "parquet-mr version 1.16.0", "right", "right"),
        ({"writer.date.proleptic": "false"}, "parquet-mr version 1.10.0", "other", "refused"),
    ],
)
def test_marks_tell_the_calendar(
    marks: Mapping[str, str], writer: str | None, dates: str, int96: str
) -> None:
    """Values whose calendar or zone is unknown are refused by name: by ingest and by outputs."""
    day, moment = dt.date(1500, 1, 1), dt.datetime(1800, 1, 1)
    date = stored(pa.table({"d": [day]}), marks, writer)
    times = pa.table({"t": pa.array([moment], pa.timestamp("us"))})
    time = stored(times, marks, writer, use_deprecated_int96_timestamps=True)
    cases = (
        (date, pa.schema([("d", pa.date32())]), day, dates),
        (time, pa.schema([("t", INSTANT)]), moment.replace(tzinfo=dt.UTC), int96),
    )
    for source, schema, value, expected in cases:
        if expected == "refused":
            with pytest.raises(InputUnreadable, match=rf"row 0: column '{schema.names[0]}' has a"):
                rows(source, schema)
            with pytest.raises(NotSupported, match=rf"cannot be read: column '{schema.names[0]}' has a"):
                output(source, schema)
            continue
        [row] = rows(source, schema)
        assert list(output(source, schema).to_pylist()[0].values()) == list(row.values())
        assert (row[schema.names[0]] == value) == (expected == "right")


@pytest.mark.parametrize("zone", ["America/Los_Angeles", None])
def test_early_times_of_other_zones_are_refused(
    monkeypatch: pytest.MonkeyPatch, zone: str | None
) -> None:
    """Rows before them are read. Later times are the same in both calendars."""
    marks = {name: text for name, text in LEGACY.items() if not name.endswith("timeZone")}
    marks |= {} if zone is None else {"org.apache.spark.timeZone": zone}
    late = dt.datetime(1900, 1, 1, tzinfo=dt.UTC)
    times = [[late] * (n % 3) for n in range(100)]
    schema = pa.schema([("l", pa.list_(pa.field("element", INSTANT)))])
    good = pa.table({"l": times}, schema=schema)
    assert rows(stored(good, marks), schema) == good.to_pylist()
    times[70] = [late, late - dt.timedelta(microseconds=1)]
    monkeypatch.setattr("commitlog.files.parquet.BATCH_ROWS", 17)
    source = stored(pa.table({"l": times}, schema=schema), marks)
    got: list[Any] = []
    where = zone or "a zone that the file does not name"
    with pytest.raises(InputUnreadable, match=rf"row 70: column 'l' has a time before 1900.* {where}"):
        got.extend(ParquetInput({}).decode(source, slices(source.file)[0], Columns(schema=schema)))
    assert [row["l"] for part in got for row in part.batch.to_pylist()] == times[:70]


def test_options_give_the_calendar_of_files_without_a_mark() -> None:
    """They are Spark's own. A mark counts more."""
    days, schema = [dt.date(1500, 2, 28)], pa.schema([("d", pa.date32())])
    source = stored(pa.table({"d": days}), {}, "parquet-mr version 1.8.3")
    with pytest.raises(InputUnreadable, match="option datetimeRebaseMode"):
        rows(source, schema)
    assert rows(source, schema, datetimeRebaseMode="corrected") == [{"d": days[0]}]
    julian = [{"d": dt.date(1500, 2, 19)}]
    assert rows(source, schema, datetimeRebaseMode="LEGACY") == julian
    assert rows(stored(pa.table({"d": days}), LEGACY), schema, datetimeRebaseMode="CORRECTED") == julian
    late = stored(pa.table({"d": [dt.date(1582, 10, 15)]}), {}, "parquet-mr version 1.8.3")
    assert rows(late, schema) == [{"d": dt.date(1582, 10, 15)}]
    with pytest.raises(ConfigurationError, match="int96RebaseMode"):
        ParquetInput({"int96RebaseMode": "never"})


def test_marks_of_avro_tell_the_calendar() -> None:
    """Without a mark, the calendar is that of the specification. Rows before a refused one are read."""
    kinds = {"d": ("int", "date"), "t": ("long", "timestamp-micros")}
    fields = [
        {"name": name, "type": {"type": kind, "logicalType": logical}}
        for name, (kind, logical) in kinds.items()
    ]
    avro = {"type": "record", "name": "r", "fields": fields}
    moments = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(1500, 2, 28, tzinfo=dt.UTC)]
    given = [{"d": each.date(), "t": each} for each in moments]
    schema = pa.schema([("d", pa.date32()), ("t", INSTANT)])

    def decoded(marks: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        target = io.BytesIO()
        fastavro.writer(target, avro, given, metadata=dict(marks))
        source = pinned(target.getvalue())
        for part in AvroInput({}).decode(source, slices(source.file)[0], Columns(schema=schema)):
            yield from part.batch.to_pylist()

    assert list(decoded({})) == list(decoded(SPARK)) == given
    early = dt.datetime(1500, 2, 19, tzinfo=dt.UTC)
    assert list(decoded(LEGACY)) == [given[0], {"d": early.date(), "t": early}]
    found = decoded({**LEGACY, "org.apache.spark.timeZone": "Asia/Tokyo"})
    assert next(found) == given[0]
    with pytest.raises(InputUnreadable, match=r"column 't' has a time before 1900.* Asia/Tokyo"):
        next(found)


@given(st.integers(-5_000_000, -141_428))
def test_any_julian_day_keeps_its_date(day: int) -> None:
    """The same as by the day numbers of astronomers."""

    def date_of(number: int, century_days: int) -> tuple[int, int, int]:
        # Richards, Explanatory Supplement to the Astronomical Almanac, 3rd ed., 15.11.3
        f = number + 1401 + century_days
        e = 4 * f + 3
        h = 5 * (e % 1461 // 4) + 2
        month = (h // 153 + 2) % 12 + 1
        return e // 1461 - 4716 + (12 + 2 - month) // 12, month, h % 153 // 5 + 1

    def gregorian(days: int) -> tuple[int, int, int]:
        number = days + 2_440_588
        return date_of(number, (4 * number + 274_277) // 146_097 * 3 // 4 - 38)

    source = stored(pa.table({"d": pa.array([day], pa.int32()).cast(pa.date32())}), LEGACY)
    found = OUTPUT.read(StoredObject.of(source), pa.schema([("d", pa.date32())]), ["d"])
    [moved] = next(found).column("d").cast(pa.int32()).to_pylist()
    year, month, date = date_of(day + 2_440_588, 0)
    leap_day = (month, date) == (2, 29) and year % 100 == 0 and year % 400 != 0
    assert gregorian(moved) == ((year, 3, 1) if leap_day else (year, month, date))


@pytest.mark.parametrize(
    "micros",
    [0, -1, -(2**63), 2**63 - 1, -(10**18), -210_866_803_200_000_001, -62_135_596_800_000_000],
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_int96_holds_any_microseconds(micros: int, dictionary: bool) -> None:
    """Spark writes negative days and nanoseconds. Nulls, slices and lists keep their places."""
    moment = pa.scalar(123_456_789, pa.timestamp("us"))
    table = pa.table(
        {
            "n": range(7),
            "t": pa.array([None, None, moment, None, moment, None, None], moment.type),
            "l": pa.array([[], None, [moment, None], [], [None], [moment], []], pa.list_(moment.type)),
        }
    )
    source = stored(
        table, SPARK, use_deprecated_int96_timestamps=True, compression="none", use_dictionary=dictionary
    )
    # As Spark: the sum wraps around, and both parts are cut towards zero.
    julian = (micros + 2_440_588 * DAY + 2**63) % 2**64 - 2**63
    day = abs(julian) // DAY * (1 if julian >= 0 else -1)
    own = struct.pack("<qi", 123_456_789_000, 2_440_588)
    data = source.get(PATH).data
    assert data.count(own) == (2 if dictionary else 4)
    data = data.replace(own, struct.pack("<qi", (julian - day * DAY) * 1000, day))
    schema = pa.schema([("n", pa.int64()), ("t", INSTANT), ("l", pa.list_(INSTANT))])
    made = pinned(data, PATH)
    parts = ParquetInput({}).decode(made, slices(made.file)[0], Columns(schema=schema))
    ingested = pa.Table.from_batches(part.batch for part in parts)
    for found in (read(OUTPUT, data, schema), ingested):
        assert found.column("t").cast(pa.int64()).to_pylist() == [
            micros if value else None for value in (0, 0, 1, 0, 1, 0, 0)
        ]
        values = found.column("l").combine_chunks()
        assert values.values.cast(pa.int64()).to_pylist() == [micros, None, None, micros]
        assert [None if each is None else len(each) for each in table.column("l").to_pylist()] == [
            *(0, None, 2, 0, 1, 1, 0)
        ]


def test_int96_is_read_among_many_columns_and_row_groups() -> None:
    """The footer is changed for these columns only, however long its lists are."""
    kind = pa.timestamp("us")
    makes = [
        lambda n: pa.array([n, None, 5], kind),
        lambda n: pa.array([n, None, 5]),
        lambda n: ["x"] * 3,
    ]
    table = pa.table({f"c{n}": makes[n % 3](n) for n in range(40)})
    source = stored(table, {}, use_deprecated_int96_timestamps=True, row_group_size=1)
    schema = ParquetInput({}).infer(source)
    assert [each for each in schema.types if pa.types.is_timestamp(each)] == [INSTANT] * 14
    assert rows(source, schema) == table.cast(schema).to_pylist()
