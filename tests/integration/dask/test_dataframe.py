"""`to_commitlog` with Dask's schedulers of threads and processes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest

from commitlog import connect
from commitlog.dask import to_commitlog
from commitlog.errors import ConfigurationError, JobAlreadyCommitted, NotSupported
from commitlog.outputs import Output
from commitlog.spark.schema import load_schema
from support.killed_tasks import set_trap, values
from support.servers import Juicefs, Ministack

THREADS = {"scheduler": "threads"}


@pytest.fixture(autouse=True)
def _threads_end_with_the_test() -> Iterator[None]:
    """Give Dask a pool of threads; its own one lives as long as the process."""
    with ThreadPoolExecutor(2) as pool, dask.config.set(pool=pool):
        yield


def frame(*numbers: int, partitions: int = 3, **columns: Any) -> dd.DataFrame:
    """Return rows with the values `numbers`, and a key for each."""
    given = pd.DataFrame({"k": [f"k{n % 2}" for n in numbers], "v": list(numbers), **columns})
    return dd.from_pandas(given, npartitions=partitions)


def test_all_partitions_are_one_commit(tmp_path: Path) -> None:
    """The record has a file for each partition; an id is committed once."""
    write = partial(to_commitlog, url=str(tmp_path / "out"), job_id="daily", compute_kwargs=THREADS)
    record = write(frame(1, 2, 3))
    assert (record.version, record.rows, len(record.files)) == (1, 3, 3)
    assert values(tmp_path / "out") == [1, 2, 3]
    with pytest.raises(JobAlreadyCommitted):
        write(frame(4))
    assert write(frame(4), on_duplicate="skip") == record
    assert values(tmp_path / "out") == [1, 2, 3]


def test_modes_and_partition_columns(tmp_path: Path) -> None:
    """Rows go to the directories of their values, and replace the rows there."""
    write = partial(to_commitlog, url=str(tmp_path / "out"), partition_by=["k"], compute_kwargs=THREADS)
    write(frame(1, 2, 3))
    write(frame(5, 7, partitions=2), mode="overwrite-partitions")
    assert values(tmp_path / "out") == [2, 5, 7]
    assert len(list((tmp_path / "out/k=k0").iterdir())) == 1
    write(frame(9, partitions=1), mode="overwrite")
    assert values(tmp_path / "out") == [9]


@pytest.mark.parametrize("failing", [0, 2])
def test_a_failed_partition_leaves_the_old_data(tmp_path: Path, failing: int) -> None:
    """The error of the task is raised, and its job can be run again under its id."""

    def fail(rows: pd.DataFrame, partition_info: Any = None) -> pd.DataFrame:
        if partition_info is not None and partition_info["number"] == failing:
            raise ZeroDivisionError
        return rows

    write = partial(
        to_commitlog,
        url=str(tmp_path / "out"),
        mode="overwrite",
        job_id="daily",
        compute_kwargs=THREADS,
    )
    write(frame(1), job_id="before")
    broken = frame(2, 3, 4).map_partitions(fail, meta=frame(2, 3, 4)._meta)
    with pytest.raises(ZeroDivisionError):
        write(broken)
    with connect(str(tmp_path / "out")) as store:
        Output(store).recover(older_than=0)  # of partitions that ran on after the abort
    assert values(tmp_path / "out") == [1]
    write(frame(2))
    assert values(tmp_path / "out") == [2]


def test_a_delayed_job(tmp_path: Path) -> None:
    """It commits when it is computed, in other processes; again, it returns the same record."""
    lazy = to_commitlog(frame(1, 2, 3), str(tmp_path / "out"), compute=False)
    assert not (tmp_path / "out").exists()
    with dask.config.set(pool=None):
        record = lazy.compute(scheduler="processes", num_workers=2)
    assert values(tmp_path / "out") == [1, 2, 3]
    assert lazy.compute(**THREADS) == record
    assert values(tmp_path / "out") == [1, 2, 3]


def test_the_schema_is_sparks(tmp_path: Path) -> None:
    """A named index is a column; dtypes that Spark lacks become its types."""
    rows = frame(
        1,
        2,
        partitions=1,
        day=pd.to_datetime(["2026-11-21", "2026-11-22"], utc=True),
        kind=pd.Categorical(["a", None]),
        size=pd.array([None, 3], dtype="UInt8"),
        raw=[b"x", None],
    )
    record = to_commitlog(
        rows.set_index("v", sorted=True),
        str(tmp_path / "out"),
        schema={"raw": pa.binary()},
        compute_kwargs=THREADS,
    )
    assert record.schema is not None
    assert load_schema(record.schema).simpleString() == (
        "struct<v:bigint,k:string,day:timestamp,kind:string,size:smallint,raw:binary>"
    )


@pytest.mark.parametrize(
    ("rows", "arguments", "error", "message"),
    [
        (frame(1), {"schema": {"x": pa.int8()}}, ConfigurationError, "schema names 'x'"),
        (frame(1).rename(columns={"v": 3}), {}, ConfigurationError, "column 3"),
        (frame(1)["v"], {}, ConfigurationError, "a Dask DataFrame is needed"),
        (frame(1), {"heartbeat": 0}, ConfigurationError, "more than 0"),
    ],
    ids=["schema", "name", "series", "heartbeat"],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, rows: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Before a task runs."""
    with pytest.raises(error, match=message):
        to_commitlog(rows, str(tmp_path / "out"), **arguments)
    assert not (tmp_path / "out").exists()


def test_columns_of_objects_need_a_type(tmp_path: Path) -> None:
    """Dask knows their type only if it converts them to strings, which is its default."""
    with dask.config.set({"dataframe.convert-string": False}):
        rows = frame(1, raw=[b"x"])
        with pytest.raises(NotSupported, match=r"column 'raw' has type null.*give the schema"):
            to_commitlog(rows, str(tmp_path / "out"), schema={"k": pa.string()})


def test_a_killed_process_leaves_the_old_data(tmp_path: Path) -> None:
    """Dask's scheduler of processes gives up; nothing is left, and the job can be run again."""
    write = partial(to_commitlog, url=str(tmp_path / "out"), mode="overwrite", job_id="daily")
    write(frame(1), job_id="before", compute_kwargs=THREADS)

    def trap(rows: pd.DataFrame) -> pd.DataFrame:
        set_trap(str(tmp_path / "killed"), "a file is begun")
        return rows

    trapped = frame(2, 3, 4).map_partitions(trap, meta=frame(2)._meta)
    with pytest.raises(BrokenProcessPool), dask.config.set(pool=None):
        write(trapped, compute_kwargs={"scheduler": "processes", "num_workers": 2})
    with connect(str(tmp_path / "out")) as store:
        Output(store).recover(older_than=0)
    assert values(tmp_path / "out") == [1]
    write(frame(2, 3), compute_kwargs=THREADS)
    assert values(tmp_path / "out") == [2, 3]


@pytest.mark.servers
def test_a_store_that_ignores_preconditions(juicefs: Juicefs, tmp_path: Path) -> None:
    """With leases in a table, two writers of one job commit it once."""
    _write_twice(
        f"s3://{juicefs.new_bucket()}/out", {**juicefs.options, "table": f"sqlite:///{tmp_path}/leases"}
    )


@pytest.mark.servers
def test_a_store_that_honours_preconditions(ministack: Ministack) -> None:
    """With no table. The probe of this store takes the least time."""
    _write_twice(f"s3://{ministack.new_bucket()}/out", dict(ministack.options))


def _write_twice(url: str, options: dict[str, str]) -> None:
    write = partial(
        to_commitlog,
        url=url,
        job_id="daily",
        on_duplicate="skip",
        storage_options=options,
        compute_kwargs=THREADS,
    )
    record = write(frame(1, 2, 3))
    assert write(frame(4, 5, 6)) == record
    with connect(url, **options) as store:
        assert [file.rows for file in Output(store).snapshot().files] == [1, 1, 1]
