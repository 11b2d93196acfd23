"""Workers of Dask and Ray that kill themselves with SIGKILL at a step of a task, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from commitlog import connect
from commitlog.outputs import Output
from commitlog.tabular import OutputWriter
from support.outputs import check_invariants

__all__ = ["STEPS", "set_trap", "values"]

#: The steps of a task, in order.
STEPS = ("the task begins", "a file is begun", "its files are staged")


def set_trap(marker: str, step: str) -> None:
    """Make this process kill itself at `step` of its next task, unless the file `marker` exists then."""

    def kill_once() -> None:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def trapped(function: Callable[..., Any], when: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if when == "before":
                kill_once()
            result = function(*arguments, **options)
            if when == "after":
                kill_once()
            return result

        return call

    owner, name, when = {
        "the task begins": (OutputWriter, "stage", "before"),
        "a file is begun": (Output, "begin_stage", "after"),
        "its files are staged": (OutputWriter, "stage", "after"),
    }[step]
    setattr(owner, name, trapped(getattr(owner, name), when))


def values(directory: Path, column: str = "v") -> list[Any]:
    """Return a column of the output in `directory`, as a listing shows it; check the output.

    No upload may be left, and no job may be committed twice.
    """
    with connect(str(directory)) as store:
        check_invariants(store, "")
        assert not list(store.list_staged())
    files = [path for path in directory.rglob("*.parquet") if "_commitlog" not in path.parts]
    return sorted(value for path in files for value in pq.ParquetFile(path).read()[column].to_pylist())
