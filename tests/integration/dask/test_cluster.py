"""`to_commitlog` with a cluster of Dask, whose workers are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from commitlog.dask import to_commitlog
from support.killed_tasks import STEPS, set_trap, values

pytestmark = [pytest.mark.all, pytest.mark.filterwarnings("ignore")]


def frame(*numbers: int, partitions: int = 1) -> dd.DataFrame:
    """Return rows with the values `numbers`."""
    return dd.from_pandas(pd.DataFrame({"v": list(numbers)}), npartitions=partitions)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A cluster of two processes, which are started again when they die."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("compute", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_killed_workers_of_a_cluster(client: Client, tmp_path: Path, step: str, compute: bool) -> None:
    """The cluster runs the lost tasks again, and the rows of each partition are there once."""
    out = str(tmp_path / "out")
    to_commitlog(frame(1), out, compute_kwargs={"scheduler": "synchronous"})
    client.run(set_trap, str(tmp_path / "killed"), step)
    numbers = range(10, 20)
    result = to_commitlog(
        frame(*numbers, partitions=5), out, mode="overwrite", job_id="daily", compute=compute
    )
    record = result if compute else client.compute(result).result()
    assert (tmp_path / "killed").exists()
    assert (record.rows, len(record.files)) == (10, 5)
    assert values(tmp_path / "out") == list(numbers)
