"""The description of an output's columns that commit records keep."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from commitlog.errors import CorruptRecord, NotSupported
from commitlog.outputs import DataFile
from commitlog.tabular.columns import OutputColumns
from commitlog.tabular.schema import check_schema
from commitlog.tabular.task_files import FileOptions

COLLATED = {"__COLLATIONS": {"c": "icu.UTF8_LCASE"}}


def column(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    """Return a column in Spark's notation."""
    return {"metadata": {}, "name": name, "nullable": True, "type": kind, **more}


def described(*columns: dict[str, Any]) -> OutputColumns:
    """Return the columns of files that Spark writes."""
    return OutputColumns.of_spark(json.dumps({"type": "struct", "fields": columns}))


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("void", pa.null()),
        ("interval day to second", pa.duration("us")),
        ("interval minute", pa.duration("us")),
        ("interval year to month", None),
        ("variant", None),
        ({"type": "array", "elementType": "interval day", "containsNull": True}, None),
        ("string collate UTF8_LCASE", None),
    ],
)
def test_a_type_of_spark_alone_is_kept_in_the_record(kind: Any, arrow: pa.DataType | None) -> None:
    """The record has its name and type; readers of the log return the column, if Arrow has the type."""
    columns = described(column("id", "long"), column("c", kind))
    again = OutputColumns.parse(columns.dump())
    assert again == columns and again.names == ["id", "c"]
    assert again.readable().names == (["id"] if arrow is None else ["id", "c"])
    if arrow is not None:
        assert again.readable().field("c").type == arrow
    # No file of another program has such a column.
    assert again.writable().names == ["id"]
    with pytest.raises(NotSupported, match="column 'c' is of type"):
        again.arrow()


def test_a_column_has_one_type_and_one_spelling() -> None:
    """Columns merge if none has two; a collation is part of the type."""
    known = described(column("a", "long"), column("c", "string"))
    assert known.merged(described(column("c", "string"))) is known
    more = known.merged(described(column("b", "variant")))
    assert more is not None and more.names == ["a", "c", "b"]
    others = [column("a", "interval second"), column("A", "long"), column("a", "void")]
    for other in (*others, column("c", "string", metadata=COLLATED)):
        assert known.merged(described(other)) is None


def test_everything_that_spark_writes_may_be_null_and_runs_no_code() -> None:
    """A user-defined type is the type of its stored values; only they are in the files."""
    inner = {"type": "struct", "fields": [column("x", "double", nullable=False)]}
    udt = {"type": "udt", "class": "V", "pyClass": "this.V", "sqlType": inner}
    items = {"type": "array", "elementType": udt, "containsNull": False}
    text = described(column("v", items, nullable=False)).dump()
    assert "udt" not in text and "this" not in text
    assert "false" not in text


def test_unknown_columns_have_names() -> None:
    """What is added to files of unknown columns has unknown columns, too."""
    unknown = OutputColumns.unknown_of("csv", ["a", "b"])
    assert OutputColumns.parse(unknown.dump()) == unknown
    for merged in (
        unknown.merged(described(column("B", "long"), column("c", "long"))),
        described(column("a", "long"), column("b", "long"), column("c", "date")).merged(unknown),
    ):
        assert merged == OutputColumns.unknown_of("csv", ["a", "b", "c"])
    assert unknown.merged(OutputColumns.unknown_of("text", ["a"])) == unknown
    assert unknown.readable().names == []
    with pytest.raises(NotSupported, match="writer of csv"):
        unknown.arrow()


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"unknown"}',
        '{"type":"unknown","format":"csv","names":[1]}',
        '{"type":"unknown","format":null,"names":[]}',
        '{"type":"struct","fields":[{"name":"a","type":"long","nullable":3}]}',
        '{"type":"struct","fields":[{"name":"a","type":{"type":"array"},"nullable":true}]}',
    ],
)
def test_other_text_is_a_corrupt_record(text: str) -> None:
    """Damaged descriptions are refused."""
    with pytest.raises(CorruptRecord, match="not in Spark's notation"):
        OutputColumns.parse(text)


def test_rows_are_not_added_to_files_of_unknown_columns() -> None:
    """Nobody could read both; without files, the columns are those of the rows."""
    unknown = OutputColumns.unknown_of("csv", ["a"]).dump()
    columns = described(column("a", "long")).dump()
    file = DataFile(path="a.csv", size=1, nonce="")
    with pytest.raises(NotSupported, match="no record can describe them"):
        check_schema(unknown, lambda: [file], columns, FileOptions(), merge=True)
    assert check_schema(unknown, list, columns, FileOptions(), merge=False) == columns
