"""A client of a namespace that is killed with SIGKILL at a given step.

As a program, this module is the client: it stops at the step, reports that, and waits to be killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import commitlog
from commitlog.namespace import DirectoryCommitter
from support.project import environment

__all__ = ["kill_client"]

#: More than a writer sends in one request.
_LARGE = 20 << 20


def kill_client(metadata: str, step: str, env: Mapping[str, str]) -> None:
    """Start a client of the namespace ``lake``, wait until it stops at the step, and kill it.

    Args:
        metadata: URL of the metadata table.
        step: ``changed``: it has sent the change that makes the file ``a/9``, and has not logged the
            outcome; ``staged``: it has begun a job, and uploads its first file.
        env: further environment variables.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "support.killed_client", metadata, step],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(**env),
    ) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "here\n"
        finally:
            client.kill()
    assert client.returncode == -signal.SIGKILL


def main(metadata: str, step: str) -> None:
    """Run a client that stops at a step."""
    with commitlog.open_namespace("lake", metadata=metadata) as lake:
        if step == "changed":
            table: Any = type(lake.table)
            transact = table.transact

            def stop(*arguments: Any, **options: Any) -> None:
                transact(*arguments, **options)
                _wait()

            table.transact = stop
            lake.write("a/9", b"nine")
        else:
            DirectoryCommitter(lake, "daily").begin("load")
            with lake.open_writer("part-0") as writer:
                writer.write(bytes(_LARGE))
                _wait()


def _wait() -> None:
    print("here", flush=True)
    sys.stdin.read()
    raise AssertionError("the client should have been killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
