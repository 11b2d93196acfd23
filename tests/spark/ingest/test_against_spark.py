"""JSON and CSV compared with Spark's own readers: the same rows, except for documented differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from commitlog.files import INPUT_FORMATS, Columns
from commitlog.files.json.writer import json_objects
from commitlog.spark.schema import arrow_schema
from support.input_files import pinned, slices
from support.selection import with_all_but

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JSON_COLUMNS = """
    n bigint, i tinyint, l bigint, f float, d double, m decimal(5,2), b boolean, s string, x binary,
    y date, t timestamp, w timestamp_ntz, a array<int>, o struct<i:int,s:string>, k map<string,int>
"""

JSON_VALUES = {
    "i": ["1", "-128", "300", "1.0", "1e2", '"1"', "true", "-0", "null", "[]"],
    "l": ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "1.5", "NaN", '""'],
    "f": ["1", "0.1", "1e39", "-0.0", "1e-50", '"NaN"', "16777217", '"1"'],
    "d": [
        "1",
        "0.1",
        "1e400",
        "-0.0",
        "1E5",
        "NaN",
        "-Infinity",
        '"-INF"',
        '"+Infinity"',
        '"INF"',
        "true",
    ],
    "m": ["1", "1.50", "1e1", "-999.99", "1000", '"1.5"', "0.010", '""', "NaN", "[1]"],
    "b": ["true", "false", "1", '"true"', "null"],
    "s": [
        '"é\\u00e9\\n"',
        "1.50",
        '{"b": 1.0,  "c":"\\u00e9"}',
        "[1, 2]",
        "true",
        "NaN",
        "1E+400",
        '""',
    ],
    "x": ['"AP8="', '""', '"?"', "1"],
    "y": ['"2013-03-10"', '"0001-01-01"', '"9999-12-31"', '"2013-02-29"', '""', "1"],
    "t": [
        *('"2013-03-10T02:30:00Z"', '"2013-03-10 02:30:00"', '"2013-03-10"', '"2013-03-10T02:30"'),
        *(
            '"2013-03-10T02:30:00.1234567+05:30"',
            '"2013-03-10T02:30:00-0330"',
            '"2013-03-10T02"',
            "5",
            "-5",
        ),
        *('"2013-03-10T02:30:60Z"', '"x"', '""', "1.5", '"2013-03-10T24:00:00"'),
    ],
    "w": ['"2013-03-10T02:30:00"', '"2013-03-10"', '"2013-03-10T02:30:00Z"', "5"],
    "a": ["[1,null, 2]", "[]", '["x"]', "{}", "1"],
    "o": [
        '{"s":"x","i":1}',
        "{}",
        '{"i":"y","s":"x"}',
        "[]",
        '"x"',
        '{"other":null,"s":[ 1]}',
        '{"i":1,"i":2}',
    ],
    "k": ['{"x":1,"y":null}', "{}", "[]", '{"x":"y"}'],
}
JSON_LINES = [
    *(f'{{"n":0, "{name}":{value}}}' for name, values in JSON_VALUES.items() for value in values),
    *('{"l":1,"n":2,"l":3}', ' {"n":1} ', '{"N":1}', '{"n":1,"more":[{"x":{}}]}', "{}", '{"\\u006e":5}'),
    *("", "  ", "null", "x", "5", '{"n":1', '{"n":01}', '{"n":1,}', '{"s":"\t"}', '{"n"}'),
]

CSV_COLUMNS = (
    "n bigint, s string, f double, m decimal(5,2), b boolean, y date, t timestamp, w timestamp_ntz"
)
CSV_VALUES = {
    "n": [
        "1",
        "+1",
        "01",
        "-9223372036854775808",
        "9223372036854775808",
        "0x1",
        "1.0",
        " 1",
        '"1"',
        "1_0",
        '""',
    ],
    "s": [
        *(
            '"a,b"',
            '"a\\"x"',
            '"a\\\\"',
            '"a\\x"',
            "a\\\\",
            'a"x',
            " a ",
            '""',
            '"a" ',
            ' "a"',
            "'a'",
            "null",
        ),
        *("#a", '"a\\\\x"', "é", '"\\"\\""', "\\N"),
    ],
    "f": [
        "1",
        "+1",
        ".5",
        "5.",
        "1e2",
        "NaN",
        "nan",
        "Inf",
        "-Inf",
        "Infinity",
        "1e400",
        "inf",
        "1_0",
        "x",
    ],
    "m": ["1", "1.5", "-.01", "1000", "1e2", "x", '"1.50"', "NaN"],
    "b": ["true", "TRUE", "False", "1", "yes", " true"],
    "y": ["2013-03-10", "0001-01-01", "2013-02-29", "20130310", "x"],
    "t": [
        *(
            "2013-03-10T02:30:00Z",
            "2013-03-10 02:30:00",
            "2013-03-10",
            "2013-03-10T02:30:00.1234567+05:30",
        ),
        *("5", "x"),
    ],
    "w": ["2013-03-10 02:30:00", "2013-03-10", "2013-03-10T02:30:00Z", "x"],
}
CSV_LINES = [
    *(
        ",".join(value if name == column else "" for column in CSV_VALUES)
        for name, values in CSV_VALUES.items()
        for value in values
    ),
    *("", "   ", "1,2", ",,,,,,,,", '"'),
]


def ours(name: str, data: bytes, schema: pa.Schema) -> list[tuple[str, bool]]:
    """Return each record as JSON, and whether all its values fit."""
    file = pinned(data)
    found: list[tuple[str, bool]] = []
    (whole,) = slices(file.file)
    for part in INPUT_FORMATS[name]({}).decode(file, whole, Columns(schema=schema, new="rescue")):
        fits = [None] * len(part) if part.rescued is None else part.rescued.to_pylist()
        texts = json_objects(part.batch.schema.names, part.batch.columns).to_pylist()
        found += zip(
            texts, [odd is None or set(json.loads(odd)) <= {"more", "N"} for odd in fits], strict=True
        )
    return found


def sparks(spark: SparkSession, name: str, path: Path, columns: str) -> list[tuple[str, bool]]:
    """Return each record of Spark's reader as JSON, and whether all its values fit."""
    rows = (
        spark.read.format(name)
        .schema(f"{columns}, _corrupt_record string")
        .options(timeZone="UTC", columnNameOfCorruptRecord="_corrupt_record")
        .load(str(path))
        .coalesce(1)
    )
    table: Any = rows.toArrow()
    corrupt = table.column("_corrupt_record").to_pylist()
    schema = arrow_schema(rows.schema)
    kept = table.cast(schema).drop_columns(["_corrupt_record"]).combine_chunks()
    (batch,) = kept.to_batches()
    texts = json_objects(batch.schema.names, batch.columns).to_pylist()
    return list(zip(texts, [text is None for text in corrupt], strict=True))


@pytest.mark.parametrize(
    ("name", "columns", "lines"),
    [("json", JSON_COLUMNS, JSON_LINES), ("csv", CSV_COLUMNS, CSV_LINES)],
    ids=["json", "csv"],
)
def test_records_that_fit_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, name: str, columns: str, lines: list[str]
) -> None:
    """A record that fits for us fits for Spark and has the same values. Spark may accept more."""
    data = "\n".join(lines).encode()
    (tmp_path / "x").write_bytes(data)
    schema = arrow_schema(spark.createDataFrame([], columns).schema)
    known = [line for line in lines if line.strip()]
    found = ours(name, data, schema)
    expected = sparks(spark, name, tmp_path / "x", columns)
    assert len(known) == len(found) == len(expected)
    for line, mine, theirs in zip(known, found, expected, strict=True):
        # For records that do not fit, Spark leaves out more values.
        assert (mine if mine[1] else mine[1]) == (theirs if mine[1] else theirs[1]), line


@pytest.mark.parametrize(
    ("name", "column", "line", "theirs"),
    with_all_but(
        lambda name, column, line, theirs: "1.555" in line,
        [
            ("json", "m decimal(5,2)", '{"m":1.555}', '{"m":1.56}'),
            ("json", "i tinyint", '{"i":128}', '{"i":-128}'),
            ("json", "y date", '{"y":"2013-03-10T02:30"}', '{"y":"2013-03-10"}'),
            ("json", "n int", '{"n":1}{"n":2}', '{"n":1}'),
            ("json", "n int", "{'n':1}", '{"n":1}'),
            ("csv", "m decimal(5,2), s string", "1.555,", '{"m":1.56}'),
            ("csv", "s string, m int", '"a"x,', '{"s":"\\"a\\"x"}'),
            ("csv", "s string, m int", '"x,1', '{"s":"x,1"}'),
        ],
    ),
)
def test_values_that_spark_coerces_do_not_fit(
    spark: SparkSession, tmp_path: Path, name: str, column: str, line: str, theirs: str
) -> None:
    """Spark rounds, truncates or guesses these values; we report that they do not fit."""
    (tmp_path / "x").write_text(line)
    schema = arrow_schema(spark.createDataFrame([], column).schema)
    ((_, fits),) = ours(name, line.encode(), schema)
    assert not fits
    assert sparks(spark, name, tmp_path / "x", column)[0][0] == theirs


def test_doubled_quotes_are_one_quote(spark: SparkSession, tmp_path: Path) -> None:
    """This is our default. In Spark it needs option escape."""
    (tmp_path / "x").write_text('"a""x",1\n')
    ((mine, _),) = ours("csv", b'"a""x",1\n', pa.schema([("s", pa.string()), ("n", pa.int32())]))
    theirs = (
        spark.read.schema("s string, n int").option("escape", '"').csv(str(tmp_path / "x")).collect()
    )
    assert json.loads(mine) == theirs[0].asDict() == {"s": 'a"x', "n": 1}
