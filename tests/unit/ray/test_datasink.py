"""`CommitlogDatasink` and `write_commitlog` without a cluster: how a write ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from attrs import frozen

from commitlog import connect
from commitlog.outputs import Output

pytest.importorskip("ray")

from commitlog.ray import CommitlogDatasink, write_commitlog


@frozen
class _Dataset:
    """A dataset whose write ends with an error after the first task, as that of Ray does."""

    error: BaseException

    def write_datasink(self, sink: CommitlogDatasink) -> None:
        sink.on_write_start(pa.schema([("v", pa.int64())]))
        sink.write([pa.table({"v": [1]})], _Task())
        try:
            raise self.error
        except Exception as error:
            sink.on_write_failed(error)
            raise


@frozen
class _Task:
    task_idx: int = 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()], ids=repr)
def test_a_write_that_ends_early_is_aborted(tmp_path: Path, error: BaseException) -> None:
    """Its files are dropped, and no thread says that the job is alive, also after an interrupt."""
    dataset: Any = _Dataset(error)
    with pytest.raises(type(error)):
        write_commitlog(dataset, str(tmp_path), job_id="daily")
    assert "commitlog-heartbeat" not in [thread.name for thread in threading.enumerate()]
    with connect(str(tmp_path)) as store:
        assert not list(store.list_staged())
        assert [type(record).__name__ for record in Output(store).records()] == ["AbortRecord"]
