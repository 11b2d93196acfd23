"""Other interpreters, other Sparks and jars, which ``./run test`` installs below ``.venv``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import SkipTest

from support.project import ROOT, TESTS

__all__ = ["require", "run_process", "run_with", "set_up", "set_up_python"]


def require(reason: str, fulfilled: bool) -> None:
    """Skip the test for a reason unless a requirement is fulfilled; with ``CI`` set, fail."""
    if not fulfilled:
        assert not os.environ.get("CI"), reason
        raise SkipTest(reason)


def set_up(name: str, command: str = "./run test --all") -> Path:
    """Return a directory in ``.venv``.

    Raises `SkipTest` if it is missing, which benchmarks may catch, or `AssertionError` with ``CI`` set.
    """
    path = ROOT / ".venv" / name
    require(f"there is no {path}, which {command} sets up", path.exists())
    return path


def set_up_python(name: str) -> Path:
    """Return the Python of an environment that ``./run test --all`` sets up, or skip the test."""
    return set_up(f"{name}/bin/python")


def run_with(
    python: Path, program: Path, directory: Path, text: str = "", **variables: str
) -> dict[str, Any]:
    """Run a Spark program with another Python; return its standard output, parsed as JSON.

    Args:
        python: the interpreter.
        program: the file of the program, which gets `directory` as its argument.
        directory: the working directory, and that of all its files.
        text: the standard input.
        variables: variables of its environment besides those of this process.
    """
    found: dict[str, Any]
    found = json.loads(run_process([python, program, directory], python, directory, text, **variables))
    return found


def run_process(
    command: Sequence[str | Path], python: Path, directory: Path, text: str = "", **variables: str
) -> str:
    """Run a command with another Spark; return its standard output.

    Args:
        command: the command.
        python: the interpreter for Spark's Python processes.
        directory, text, variables: as for `run_with`.
    """
    log = directory / "driver.log"
    with log.open("w") as errors:
        done = subprocess.run(
            command,
            input=text,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
            cwd=directory,
            env={
                **os.environ,
                # The workers find the format through a module on the path, as in an installed package.
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]),
                "PYSPARK_PYTHON": str(python),
                "PYSPARK_DRIVER_PYTHON": str(python),
                "XDG_CACHE_HOME": str(directory / "cache"),
                "TMPDIR": str(directory),
                **variables,
            },
            timeout=850,
        )
    assert done.returncode == 0, log.read_text()
    return done.stdout
