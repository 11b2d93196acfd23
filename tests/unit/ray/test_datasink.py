"""`CommitlogDatasink` and `write_commitlog` without a cluster: how a write ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from attrs import frozen

from commitlog import connect
from commitlog.errors import ConfigurationError
from commitlog.outputs import Output

pytest.importorskip("ray")

from ray.data.datasource import WriteResult

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


def _write(sink: CommitlogDatasink, *values: int) -> None:
    """Write rows as Ray does, in one task."""
    sink.on_write_start(pa.schema([("v", pa.int64())]))
    files = sink.write([pa.table({"v": list(values)})], _Task())
    sink.on_write_complete(WriteResult(num_rows=len(values), size_bytes=0, write_returns=[files]))


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


@pytest.mark.parametrize("job_id", [None, "daily"])
def test_a_datasink_is_for_one_write(tmp_path: Path, job_id: str | None) -> None:
    """A second write is refused: its rows would take the earlier commit for their own, and be lost."""
    sink = CommitlogDatasink(str(tmp_path), job_id=job_id, on_duplicate="skip")
    _write(sink, 1, 2)
    with pytest.raises(ConfigurationError, match="make another one"):
        _write(sink, 3)
    assert sink.record is not None and sink.record.rows == 2


def test_a_write_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    """The next attempt is another one, with the same datasink."""
    sink = CommitlogDatasink(str(tmp_path), job_id="daily")
    sink.on_write_start(pa.schema([("v", pa.int64())]))
    sink.on_write_failed(ZeroDivisionError())
    _write(sink, 1)
    assert sink.record is not None and sink.record.rows == 1
