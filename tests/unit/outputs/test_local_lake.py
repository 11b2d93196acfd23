"""Outputs in a local directory that is seen in another place, or copied, or whose disk is full."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from commitlog import connect
from commitlog.commit import ConditionalStore
from commitlog.errors import JobAborted, Unavailable
from commitlog.outputs import Output
from commitlog.outputs.publishing import Publisher
from commitlog.stores.local.store import LocalStore
from commitlog.testing import ManualClock


@pytest.mark.parametrize("inner", [False, True])
def test_a_recovery_finishes_jobs_of_the_same_directory_in_another_place(
    tmp_path: Path, inner: bool
) -> None:
    """A container sees it under another path. It may also be opened below its index."""
    host, container = tmp_path / "host", tmp_path / "container/lake"
    host.mkdir()
    driver, hidden = (Output(connect(str(host)), name) for name in ("out", "logged"))
    for output, visibility in ((driver, "listed"), (hidden, "logged")):
        job = output.begin("dead", visibility=visibility)  # type: ignore[arg-type]
        output.stage(job, job.file_name(0), b"x\n")
    for output in (driver, hidden):
        output.store.close()
    container.parent.mkdir()
    host.rename(container)  # inode numbers stay, as in a mount
    for name in ("out", "logged"):
        place, path = (container / name, "") if inner else (container, name)
        if inner and not place.exists():
            place.mkdir()
        with connect(str(place)) as store:
            output = Output(store, path)
            report = output.gc(older_than=-5)
            assert report.recovery.aborted.keys() or report.removed
            assert not list(store.list_staged())
            assert not list(store.list(f"{path}/_commitlog/data/".lstrip("/")))


@pytest.mark.parametrize("step", ["publish", "forget"])
@pytest.mark.parametrize("change", ["none", "size", "name"])
def test_a_copy_of_the_directory_has_the_jobs_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, change: str
) -> None:
    """The driver died after the commit point: before it published the file, or after."""

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    with connect(str(tmp_path / "lake")) as store:
        output = Output(store, "out")
        job = output.begin("daily")
        file = output.stage(job, job.file_name(0), b"x\n")
        with monkeypatch.context() as patched:
            patched.setattr(Publisher, step, die)
            with pytest.raises(Died):
                output.commit(job, [file])
    copy = Path(shutil.copytree(tmp_path / "lake", tmp_path / "copy"))
    staged = copy / ".commitlog/staged" / file.staged.upload_id
    data = staged if step == "publish" else copy / file.staged.path
    if change == "size":
        data.write_bytes(b"")
    elif change == "name":
        data.rename(data.with_name("other.csv"))
    with connect(str(copy)) as store:
        report = Output(store, "out").recover(older_than=1e9)
        if change == "none":
            assert not report.lost and Output(store, "out").snapshot().version == 1
            assert (copy / file.staged.path).read_bytes() == b"x\n"
        else:
            assert [each.job_id for each in report.lost] == ["daily"]


@pytest.mark.parametrize("how", ["abort", "recover", "gc"])
def test_a_full_disk_can_be_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The record that excludes the job comes before the removal, and has its space."""
    reserve = tmp_path / ".commitlog/reserve"
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if reserve.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    clock = ManualClock()
    with closing(LocalStore(tmp_path, clock=clock)) as directory:
        store = ConditionalStore(directory, clock=clock)
        output = Output(store, "out", clock=clock)
        job = output.begin("daily")
        files = [output.stage(job, job.file_name(0), b"x")]
        calls: dict[str, Callable[[], object]] = {
            "abort": lambda: output.abort(job, iter(files)),
            "recover": lambda: output.recover(older_than=-5),
            "gc": lambda: output.gc(older_than=-5),
        }
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            output.recover(older_than=-5, dry_run=True)
            with pytest.raises(Unavailable, match="No space left"):
                output.commit(job, files)
            assert reserve.exists() and list(store.list_staged())
            calls[how]()
        assert reserve.exists() and not list(store.list_staged())
        with pytest.raises(JobAborted):
            output.commit(job, files)
