"""Real Spark drivers, killed with SIGKILL before a job prepares and before it finishes.

They are recovered, rerun and audited: every input row has to be in the output exactly once in the end,
with no stray file and no stray upload.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

from commitlog.commit.record import LEASE_SCHEMA
from commitlog.demo.driver import Task, commit, run
from commitlog.demo.inputs import directory
from commitlog.outputs import Output
from commitlog.spark.options import ReadOptions
from commitlog.tables.open import open_table
from commitlog.urls import parse_table_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from commitlog.testing.servers import Ministack

pytestmark = pytest.mark.spark

ROWS = 1000

#: Where the driver dies, instead of sending which request; how many of the job's two files are visible
#: then, and how many once the output is recovered.
DEATHS = {
    "before it prepares": (("put", "_commitlog/pending/", 1), 0, 0),
    "before it finishes": (("put", "_SUCCESS", 1), 2, 2),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of rows, so that there are two tasks."""
    path = tmp_path_factory.mktemp("input")
    for file in range(2):
        numbers = range(file * ROWS // 2, (file + 1) * ROWS // 2)
        pq.write_table(pa.table({"id": list(numbers)}), path / f"{file}.parquet")
    return path


@pytest.fixture(params=["local", "s3"])
def task(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> Task:
    """A job for a new output, in a directory or on S3 with leases in DynamoDB."""
    source = evolve(directory(data), late="false")
    task = Task(input=source, late=False, url=str(tmp_path / "out"), options={}, job_id="daily")
    if request.param == "local":
        return task
    server: Ministack = request.getfixturevalue("ministack")
    table = server.new_table_name()
    leases = parse_table_url(f"dynamodb://{table}").with_options(server.options)
    open_table(leases, LEASE_SCHEMA).create()
    # The shortest lease, for a dead driver's is waited for.
    options = {**server.options, "commit": f"dynamo:{table}:3000"}
    return evolve(task, url=f"s3://{server.new_bucket()}/out", options=options)


@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_driver_neither_loses_nor_doubles_a_row(
    spark: SparkSession, task: Task, tmp_path: Path, death: str
) -> None:
    """Whenever it dies, recovery decides all or nothing, a rerun completes, and the books agree."""
    when, before, after = DEATHS[death]
    ended = run(evolve(task, death=when), tmp_path)
    assert ended.returncode == -signal.SIGKILL, (tmp_path / "driver.log").read_text()

    output = Output(ReadOptions.parse({**task.options, "path": task.url}).open())
    with output.store:
        # Readers that go by the log see nothing of a job that is not known to be complete.
        assert output.snapshot(roll_forward=False).rows == 0
        assert len(visible_rows(output)) == before * ROWS // 2

        report = output.recover(older_than=0)
        assert report.live == ()
        assert visible_rows(output) == (list(range(ROWS)) if after else [])

        rerun = commit_again(spark, task)
        assert "JobAlreadyCommitted" in rerun if after else rerun == ""
        audit(output)


def commit_again(spark: SparkSession, task: Task) -> str:
    """Run the job again under its id; return the error, if there is one."""
    try:
        commit(spark, task)
    except Exception as error:
        return str(error)
    return ""


def visible_rows(output: Output) -> list[int]:
    """Return the rows in the files that a plain listing shows, sorted."""
    rows: list[int] = []
    for info in output.store.list():
        if not any(part.startswith(("_", ".")) for part in info.path.split("/")):
            table = pq.read_table(pa.BufferReader(output.store.get(info.path).data))
            rows += table.column("id").to_pylist()
    return sorted(rows)


def audit(output: Output) -> None:
    """Check that every input row is there exactly once, and nothing else is."""
    assert visible_rows(output) == list(range(ROWS))
    snapshot = output.snapshot()
    assert snapshot.jobs == ("daily",)
    assert snapshot.rows == ROWS
    keys = {info.path for info in output.store.list() if not info.path.startswith(("_", "."))}
    assert keys == {file.path for file in snapshot.files}
    assert list(output.store.store.list_staged()) == []
    assert [info.path for info in output.store.list("_commitlog/pending/")] == []
