"""Programs of Spark that are drivers of their own, with the committer's jar and its plugin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark

from commitlog.spark import committer_jar
from commitlog.spark.committer.configure import PLUGIN
from commitlog.spark_jar import _build
from support.agent import SETTING

__all__ = ["BIN", "Program", "compile_class", "interpreter_with_pids"]

#: The programs of pip's PySpark.
BIN = Path(pyspark.__file__).parent / "bin"

#: Settings that make a short run faster.
_FAST = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Program:
    """A program of Spark that runs in its own process group, as at a terminal.

    Args:
        directory: its working directory, which gets its files.
        name: name of the program in the directory ``bin`` of Spark.
        arguments: its arguments, after those of Spark.
        conf: settings of Spark.
    """

    def __init__(
        self, directory: Path, name: str, *arguments: str, conf: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._pids = directory / "agents"
        given = {
            **_FAST,
            "spark.plugins": PLUGIN,
            SETTING: interpreter_with_pids(directory / "python", self._pids),
            **(conf or {}),
        }
        options = [word for item in given.items() for word in ("--conf", "=".join(item))]
        self._log = (directory / "stderr").open("w+")
        self.process = subprocess.Popen(
            [str(BIN / name), "--master=local[2]", f"--jars={committer_jar()}", *options, *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )

    def agents(self) -> list[psutil.Process]:
        """Return the agents that are running."""
        found = []
        for pid in self._pids.read_text().split() if self._pids.exists() else []:
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return found

    def started(self) -> int:
        """Return the number of agents that were started."""
        return len(self._pids.read_text().split())

    def stderr(self) -> str:
        """Return its error output so far."""
        return Path(self._log.name).read_text()

    def end(self, timeout: float = 250) -> str:
        """Wait until it ends, and its agents with it; return its standard output."""
        out, _ = self.process.communicate(timeout=timeout)
        _, alive = psutil.wait_procs(self.agents(), timeout=20)
        assert alive == [], "an agent outlives its driver"
        return out

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        # The script of a JVM that is dead, too. Spark's Python workers, which are in groups of their
        # own, end with their JVM.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()


def interpreter_with_pids(path: Path, pids: Path) -> str:
    """Create an interpreter at `path` that adds its process id to the file `pids`; return its path."""
    path.write_text(f'#!/bin/sh\necho $$ >> "{pids}"\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def compile_class(directory: Path, name: str, source: str) -> Path:
    """Return a jar in `directory` with one Java class of the default package, compiled like ours."""
    directory.mkdir(exist_ok=True)
    built = _build({f"{name}.java": source.encode()}, directory, BIN.parent)
    return built.rename(directory / f"{name}.jar")
