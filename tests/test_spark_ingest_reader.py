"""How a source's reader cuts a batch into tasks. No Spark is started for that."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxFiles
from pyspark.sql.types import BinaryType, StructField, StructType

from commitlog.spark.ingest.columns import Shape
from commitlog.spark.ingest.options import IngestOptions
from commitlog.spark.ingest.reader import IngestReader


def test_small_files_of_a_directory_are_few_tasks(tmp_path: Path) -> None:
    """Opening a file on a disk costs next to nothing beside starting a task: 300 are two tasks."""
    for number in range(300):
        (tmp_path / f"{number:03}.bin").write_bytes(b"x")
    state = f"sqlite://{tmp_path}/state.sqlite"
    options = IngestOptions.parse(
        {"path": f"{tmp_path}/", "fileFormat": "binaryFile", "state": state, "pathGlobFilter": "*.bin"}
    )
    with options.opened_table() as table:
        table.create()
    schema = StructType([StructField("content", BinaryType())])
    reader = IngestReader(options, Shape(schema, "ignore", "_rescued"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxFiles(1000))
    try:
        assert [len(each.value.slices) for each in reader.partitions(start, end)] == [256, 44]
    finally:
        reader.stop()
