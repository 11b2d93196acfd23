"""Batches of streams that run again, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from commitlog.errors import JobAlreadyCommitted, NotSupported, StateMismatch
from commitlog.outputs import StagedFile
from commitlog.outputs.job import Stats
from commitlog.spark.targets.base import MicroBatch
from commitlog.spark.targets.output import OutputTarget, WriteOptions

#: Commits a run of a batch with files: for each the rows, the day, and the statistics of column ``n``.
Run = Callable[..., None]

COLUMNS = StructType().add("n", "long").add("day", "string")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    runs = iter(range(100))

    def run(number: int, *files: tuple[int | None, str, Stats], **options: str) -> None:
        path = {"path": str(tmp_path), "partitionBy": "day"}
        target = OutputTarget(WriteOptions.parse({**path, **options}))
        job = target.begin_stream(COLUMNS)(MicroBatch("query", f"run {next(runs)}", number))
        with target._open_driver() as output:
            staged = []
            for task, (rows, day, stats) in enumerate(files):
                name = f"day={day}/" + job.file_name(task)
                uploaded = output.stage(job, name, b"").staged
                staged.append(
                    StagedFile(staged=uploaded, rows=rows, partition={"day": day}, stats={"n": stats})
                )
        target.commit(job, staged)

    return run


def test_a_batch_that_runs_again_with_the_same_rows_is_recognised(run: Run) -> None:
    """Spark may divide the rows into other files. What is not known is not compared."""
    run(0, (5, "a", (1, 9, 0)), (1, "b", (7, 7, 0)))
    for again in (
        [(2, "a", (4, 9, 0)), (3, "a", (1, 2, 0)), (1, "b", (7.0, 7, 0))],
        [(5, "a", (1, None, None)), (1, "b", (7, 7, 0))],
        [(None, "a", (None, None, None)), (1, "b", ("7", "7", 0))],
    ):
        with pytest.raises(JobAlreadyCommitted):
            run(0, *again)


@pytest.mark.parametrize(
    "other",
    [
        [(6, "a", (1, 9, 0))],
        [(5, "b", (1, 9, 0))],
        [(5, "a", (1, 9, 0)), (1, "b", (5, 5, 0))],
        [(5, "a", (2, 9, 0))],
        [(5, "a", (1, 8, 0))],
        [(5, "a", (1, 9, 1))],
        [],
    ],
)
def test_other_rows_under_the_number_of_a_batch_are_refused(
    run: Run, other: list[tuple[int, str, Stats]]
) -> None:
    """The checkpoint was put back to an older state, while the input went on."""
    run(0, (5, "a", (1, 9, 0)))
    with pytest.raises(StateMismatch, match=r"other rows under its number .* since version 1"):
        run(0, *other)
    with pytest.raises(JobAlreadyCommitted):
        run(0, *other, onDuplicate="skip")


def test_a_batch_before_the_last_one_is_refused(run: Run) -> None:
    """Spark runs only the last batch again, so its checkpoint is older than the output."""
    files = [(5, "a", (1, 9, 0))]
    run(0, *files)
    run(1, *files)
    with pytest.raises(StateMismatch, match=r"job 'query/1' of a later batch is"):
        run(0, *files)
    with pytest.raises(JobAlreadyCommitted):
        run(0, *files, onDuplicate="skip")


def test_a_foreign_partition_with_another_spelling_is_refused(tmp_path: Path) -> None:
    """Its rows could not be recognised as those to replace, and a listing would show them for ever."""
    foreign = tmp_path / "at=2013-07-10 02%3A30%3A00" / "part-0.parquet"
    foreign.parent.mkdir()
    foreign.write_bytes(b"")
    columns = StructType().add("n", "long").add("at", "timestamp")
    options = {"path": str(tmp_path), "partitionBy": "at"}
    dynamic = WriteOptions.parse({**options, "partitionOverwriteMode": "dynamic"})
    with pytest.raises(NotSupported, match="is not spelled as the output spells"):
        OutputTarget(dynamic).begin(columns, overwrite=True)
    OutputTarget(WriteOptions.parse(options)).begin(columns, overwrite=True)
