"""The tasks of a batch of a source, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxFiles
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from commitlog.errors import ConfigurationError
from commitlog.spark.ingest.columns import RowBuilder
from commitlog.spark.ingest.options import IngestOptions
from commitlog.spark.ingest.reader import IngestReader


def test_small_files_of_a_directory_share_tasks(tmp_path: Path) -> None:
    """300 small local files are read by two tasks."""
    for number in range(300):
        (tmp_path / f"{number:03}.bin").write_bytes(b"x")
    state = f"sqlite://{tmp_path}/state.sqlite"
    options = IngestOptions.parse(
        {"path": f"{tmp_path}/", "fileFormat": "binaryFile", "state": state, "pathGlobFilter": "*.bin"}
    )
    with options.opened_table() as table:
        table.create()
    schema = StructType([StructField("content", BinaryType())])
    reader = IngestReader(options, RowBuilder(schema, "ignore", "_rescued"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxFiles(1000))
    try:
        assert [len(each.value.slices) for each in reader.partitions(start, end)] == [256, 44]
    finally:
        reader.stop()


@pytest.mark.parametrize(
    ("format", "option", "column"),
    [("text", "wholetext", "value"), ("csv", "multiLine", "a"), ("json", "multiLine", "a")],
)
def test_slices_are_refused_by_options_that_read_whole_files(
    tmp_path: Path, format: str, option: str, column: str
) -> None:
    """A query cannot change to such options before all slices of a file are read."""
    (tmp_path / "file").write_bytes(b'{"a":"x"}\n' * 10)
    schema = StructType([StructField(column, StringType())])

    def reader(**more: str) -> IngestReader:
        options = IngestOptions.parse(
            {"path": f"{tmp_path}/", "fileFormat": format, "sliceBytes": "30", **more}
            | {"state": f"sqlite://{tmp_path}/state.sqlite", "pathGlobFilter": "file"}
        )
        with options.opened_table() as table:
            table.create()
        return IngestReader(options, RowBuilder(schema, "ignore", "_rescued"))

    before, after = reader(), reader(**{option: "true"})
    try:
        start = before.initialOffset()
        end = before.latestOffset(start, ReadMaxFiles(10))
        parts = after.partitions(start, end)
        with pytest.raises(ConfigurationError, match="'file' was cut into slices"):
            list(after.read(parts[0]))
        assert sum(batch.num_rows for part in parts for batch in before.read(part)) == 10
    finally:
        before.stop()
        after.stop()
