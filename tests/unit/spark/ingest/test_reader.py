"""The tasks of a batch of a source, without Spark."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxFiles
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.spark.ingest.cleaning import BackgroundCleaner
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


def test_a_reader_cleans_in_the_background(tmp_path: Path) -> None:
    """Committed files are deleted or archived by the time that the reader stops."""
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(b"x")
    given = {
        "path": f"{tmp_path}/",
        "fileFormat": "binaryFile",
        "state": f"sqlite://{tmp_path}/state.sqlite",
        "pathGlobFilter": "*.bin",
        "maxFilesPerTrigger": "1",
        "cleanSource": "delete",
    }
    options = IngestOptions.parse(given)
    with options.opened_table() as table:
        table.create()
    schema = StructType([StructField("content", BinaryType())])

    def life(options: IngestOptions, start: dict[str, Any] | None = None) -> dict[str, Any]:
        reader = IngestReader(options, RowBuilder(schema, "ignore", "_rescued"))
        try:
            start = reader.initialOffset() if start is None else start
            end = reader.latestOffset(start, ReadMaxFiles(1))
            if end != start:
                reader.partitions(start, end)
                reader.commit(end)
        finally:
            reader.stop()
        return end

    end = life(options)
    assert [file.name for file in tmp_path.glob("*.bin")] == ["b.bin"]
    archived = {**given, "cleanSource": "archive", "sourceArchiveDir": f"{tmp_path}/_old"}
    end = life(IngestOptions.parse(archived), end)
    assert [file.name for file in tmp_path.rglob("*.bin")] == ["b.bin"]
    assert life(options, end) == end


def test_a_cleaning_follows_a_commit_during_another(tmp_path: Path) -> None:
    """The one that runs may have looked before the commit. No more than one waits for its end."""
    begun, end = Event(), Event()
    cleanings: list[None] = []

    class Slow(BackgroundCleaner):
        def _clean(self) -> None:
            cleanings.append(None)
            begun.set()
            end.wait()

    given = {"path": f"{tmp_path}/", "fileFormat": "binaryFile", "cleanSource": "delete"}
    with Slow(IngestOptions.parse(given)) as cleaner:
        cleaner.begin()
        begun.wait()
        cleaner.begin(idle=True)
        for _ in range(3):
            cleaner.begin()
        end.set()
    assert len(cleanings) == 2


def test_an_error_of_the_cleaning_stops_the_query(tmp_path: Path) -> None:
    """It is raised by the next commit, unless it may be gone by then."""

    class Broken(BackgroundCleaner):
        def _clean(self) -> None:
            raise errors.pop()

    errors: list[Exception] = [NotSupported("conditional delete")]
    given = {"path": f"{tmp_path}/", "fileFormat": "binaryFile", "cleanSource": "delete"}
    with Broken(IngestOptions.parse(given)) as cleaner:
        cleaner.begin()
        wait(cleaner._cleanings)
        with pytest.raises(NotSupported):
            cleaner.begin()
