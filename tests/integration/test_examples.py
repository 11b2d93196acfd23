"""The examples: a job of an orchestrator that runs again, and checkpoints of several processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from datetime import date
from pathlib import Path

import pytest

import training_checkpoint
from commitlog import connect
from commitlog.outputs import Job, Output, StagedFile
from daily_job import publish_day
from support.outputs import check_invariants

DAY = date(2026, 11, 21)


def test_a_daily_job_is_published_once(tmp_path: Path) -> None:
    """A second run of the same logical date returns the version of the first, with its rows."""
    url = str(tmp_path / "out")
    tables = {"orders": [(1, "tea")], "returns": [(2, "cup")]}
    assert publish_day(DAY, tables, url) == 1
    assert publish_day(DAY, {"orders": [(9, "late")]}, url) == 1
    assert publish_day(date(2026, 11, 22), tables, url) == 2
    with connect(str(tmp_path)) as store:
        check_invariants(store)
        assert [record.job_id for record in Output(store, "out").log()] == [
            "sales-2026-11-21",
            "sales-2026-11-22",
        ]
        found = {info.path: store.get(info.path).data for info in store.list("out/table=orders/")}
    assert sorted(found.values()) == [b"1,tea\r\n"] * 2


def test_a_daily_job_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The next run of the same date publishes it."""
    url = str(tmp_path / "out")

    def broken() -> Iterator[tuple[int, str]]:
        yield (1, "tea")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        publish_day(DAY, {"orders": [(1, "tea")], "returns": broken()}, url)
    with connect(url) as store:
        assert not list(Output(store).log())
        assert not list(store.list_staged())
    publish_day(DAY, {"orders": [(1, "tea")]}, url)


def _killed_rank(url: str, job: Job, rank: int, shard: bytes) -> StagedFile:
    """Kill this process after its shard is written, if it is rank 1."""
    staged = training_checkpoint.stage_shard(url, job, rank, shard)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return staged


def test_a_checkpoint_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed leaves the checkpoint before; old ones can be loaded by version."""
    url = str(tmp_path / "run")
    with pytest.raises(LookupError):
        training_checkpoint.load(url)
    first = training_checkpoint.save(url, 100, [b"a0", b"a1"])
    assert training_checkpoint.load(url) == (100, {0: b"a0", 1: b"a1"})
    with monkeypatch.context() as patch:
        patch.setattr(training_checkpoint, "stage_shard", _killed_rank)
        with pytest.raises(BrokenProcessPool):
            training_checkpoint.save(url, 200, [b"b0", b"b1"])
    assert training_checkpoint.load(url) == (100, {0: b"a0", 1: b"a1"})
    second = training_checkpoint.save(url, 200, [b"c0", b"c1"])
    assert training_checkpoint.save(url, 200, [b"d0", b"d1"]) == second
    assert training_checkpoint.load(url) == (200, {0: b"c0", 1: b"c1"})
    assert training_checkpoint.load(url, first) == (100, {0: b"a0", 1: b"a1"})
