"""`CommitlogDatasink` with a local Ray, whose workers are killed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from commitlog import connect
from commitlog.errors import ConfigurationError, JobAlreadyCommitted
from commitlog.outputs import Output
from commitlog.testing.proxy import Proxy
from support.dataset_race import HAZARDS, Outcome, audit, rows_of, write_jobs
from support.killed_tasks import STEPS, set_trap, values
from support.project import IMPORT_PATH

ray = pytest.importorskip("ray")
data = pytest.importorskip("ray.data")

from commitlog.ray import CommitlogDatasink, write_commitlog  # noqa: E402 - Ray is there

pytestmark = [
    pytest.mark.all,
    pytest.mark.filterwarnings("ignore"),
    # One worker starts Ray, once.
    pytest.mark.xdist_group("ray"),
]


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    """Run Ray with two workers; stop all of its processes afterwards."""
    # Ray makes sockets there, whose paths have at most 107 characters.
    directory = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _temp_dir=directory,
        object_store_memory=100_000_000,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": IMPORT_PATH}},
    )
    data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)


def numbers(count: int, blocks: int = 4) -> Any:
    """Return rows with the values from 0 on, and a key for each, made by a step of the dataset."""
    ds = data.range(count, override_num_blocks=blocks)
    return ds.map(lambda row: {"k": f"k{row['id'] % 2}", "v": row["id"]})


def fail_at(value: int) -> Any:
    """Return a function for `Dataset.map` that fails at a row."""

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["v"] == value:
            raise ZeroDivisionError
        return row

    return check


def test_all_blocks_are_one_commit(tmp_path: Path) -> None:
    """The columns are those of the last step; an id is committed once."""
    out = str(tmp_path / "out")
    sink = CommitlogDatasink(out, job_id="daily", partition_by="k")
    numbers(20).write_datasink(sink)
    assert sink.record is not None
    assert (sink.record.version, sink.record.rows) == (1, 20)
    assert values(tmp_path / "out") == list(range(20))
    with pytest.raises(JobAlreadyCommitted):
        write_commitlog(numbers(20), out, job_id="daily", partition_by="k")
    again = write_commitlog(numbers(3), out, job_id="daily", on_duplicate="skip")
    late = CommitlogDatasink(out, job_id="daily", partition_by="k", on_duplicate="skip")
    numbers(3).write_datasink(late)
    assert again == late.record == sink.record
    assert values(tmp_path / "out") == list(range(20))


def test_an_overwrite_by_nothing(tmp_path: Path) -> None:
    """A dataset without rows replaces everything, too."""
    out = str(tmp_path / "out")
    write_commitlog(numbers(2), out)
    write_commitlog(numbers(2).filter(lambda row: False), out, mode="overwrite")
    assert values(tmp_path / "out") == []


def test_blocks_of_pandas(tmp_path: Path) -> None:
    """Types are taken from the first block, or given."""
    rows = pd.DataFrame({"k": ["a", "b"], "v": [1, 2], "n": [None, None]})
    record = write_commitlog(data.from_pandas(rows), str(tmp_path / "out"), schema={"n": pa.int8()})
    assert record.schema is not None
    assert '"name":"n","nullable":true,"type":"byte"' in record.schema


def test_a_failed_task_leaves_the_old_data(tmp_path: Path) -> None:
    """The job can be run again under its id."""
    out = str(tmp_path / "out")
    write_commitlog(numbers(2), out)
    with pytest.raises(ray.exceptions.RayTaskError, match="ZeroDivisionError"):
        write_commitlog(numbers(20).map(fail_at(13)), out, mode="overwrite", job_id="daily")
    with connect(out) as store:
        Output(store).recover(older_than=0)
    assert values(tmp_path / "out") == [0, 1]
    write_commitlog(numbers(3), out, mode="overwrite", job_id="daily")
    assert values(tmp_path / "out") == [0, 1, 2]


@pytest.mark.parametrize("step", STEPS)
def test_killed_workers(tmp_path: Path, step: str) -> None:
    """Ray runs the lost task again, and its rows are there once."""
    out = str(tmp_path / "out")
    write_commitlog(numbers(2), out)
    marker = tmp_path / "killed"

    def trap(batch: Any) -> Any:
        set_trap(str(marker), step)
        return batch

    # The trap is in the processes that run this step, and these run the write, too.
    ds = numbers(20, blocks=8).map_batches(trap)
    sink = CommitlogDatasink(out, mode="overwrite", job_id="daily")
    ds.write_datasink(sink)
    assert marker.exists()
    assert sink.record is not None
    assert sink.record.rows == 20
    assert values(tmp_path / "out") == list(range(20))


def test_a_datasink_is_for_one_write(tmp_path: Path) -> None:
    """A second write with it is refused."""
    with pytest.raises(ConfigurationError, match="more than 0"):
        CommitlogDatasink(str(tmp_path), heartbeat=0)
    sink = CommitlogDatasink(str(tmp_path / "out"))
    numbers(2).write_datasink(sink)
    with pytest.raises(ConfigurationError, match="make another one"):
        numbers(2).write_datasink(sink)
    assert values(tmp_path / "out") == [0, 1]


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["leased", "native"])
def test_writers_race_through_an_unreliable_network(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Two writers at a time: each job is there once and whole, with the rows of one writer."""
    server: Any = request.getfixturevalue("juicefs" if kind == "leased" else "ministack")
    url = f"s3://{server.new_bucket()}/out"
    direct = dict(server.options)
    if kind == "leased":
        direct["table"] = f"sqlite:///{tmp_path}/leases"

    def run(writer: str) -> dict[str, Outcome]:
        def write(job_id: str) -> None:
            rows = data.from_pandas(pd.DataFrame(rows_of(job_id, writer)), override_num_blocks=2)
            write_commitlog(rows, url, job_id=job_id, storage_options=options)

        return write_jobs(write, ["shared", f"own-{writer}"])

    with Proxy(server.endpoint_url) as proxy, ThreadPoolExecutor(2) as threads:
        proxy.endanger(HAZARDS, seed=1)
        options = {**direct, "endpoint_url": proxy.endpoint_url}
        outcomes = list(threads.map(run, ["a", "b"]))
        strikes = proxy.strikes()
    assert [set(each.values()) for each in outcomes] == [{"done"}, {"done"}]
    assert strikes
    audit(url, direct, outcomes)
