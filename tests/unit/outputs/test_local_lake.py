"""Outputs in a local directory that is seen in another place."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog import connect
from commitlog.outputs import Output


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
