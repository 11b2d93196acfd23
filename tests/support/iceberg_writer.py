"""A process that appends rows to an Iceberg table, and the outcomes that it reported.

As a program, this module is the process. It appends one row in each call, and prints the outcome. If
a step is named, it stops there until it is killed.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Literal, NoReturn, TypeAlias

import pyarrow
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from commitlog.errors import CommitError
from commitlog.iceberg import Catalog
from support.project import environment

__all__ = ["STEPS", "Outcome", "Step", "Writer"]

#: The outcome of an append: it happened, did not happen, or is unknown.
Outcome: TypeAlias = Literal["done", "failed", "unknown"]

#: A step of a commit: the data are written, and the metadata file is not; the pointer is about to be
#: written; the pointer was written, and the caller does not know it.
Step: TypeAlias = Literal["data", "metadata", "pointer"]
STEPS: tuple[Step, ...] = ("data", "metadata", "pointer")

_SCHEMA = pyarrow.schema([pyarrow.field("id", pyarrow.int64(), nullable=False)])


class Writer:
    """A process that appends to the table ``race.t``.

    Args:
        properties: those of the catalog.
        first: the row of its first append. Each later append has the next row.
        appends: the number of appends before it stops.
        stop: the step at which an append after these waits to be killed; None: it ends after them.
    """

    def __init__(
        self, properties: Mapping[str, str], *, first: int, appends: int, stop: Step | None = None
    ) -> None:
        #: The rows of appends, with their outcomes; "unknown" for an append without a reported outcome.
        self.outcomes: dict[int, Outcome] = {}
        #: The row of the append during which it was killed.
        self.killed_at: int | None = None
        arguments = json.dumps([dict(properties), first, appends, stop])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "support.iceberg_writer", arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(AWS_REQUEST_CHECKSUM_CALCULATION="when_required"),
        )

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def wait(self) -> None:
        """Wait for the end; kill the process where it stops. Raises `AssertionError` if it failed."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            row, outcome = json.loads(line)
            if outcome == "stopped":
                self._process.kill()
                self.killed_at = max(self.outcomes)
                break
            self.outcomes[row] = outcome
        assert self._process.wait() == (0 if self.killed_at is None else -signal.SIGKILL)


def main(properties: Mapping[str, str], first: int, appends: int, stop: Step | None) -> None:
    """Append rows, and stop where told to."""
    with Catalog("race", **properties) as catalog:
        for row in itertools.count(first):
            if row == first + appends:
                if stop is None:
                    return
                _stop_at(catalog, stop)
            # An append that a fault ends before the step is followed by another one.
            _report(row, "unknown")
            _report(row, _append(catalog, row))


def _append(catalog: Catalog, row: int) -> Outcome:
    try:
        catalog.load_table("race.t").append(pyarrow.table({"id": [row]}, schema=_SCHEMA))
    except CommitStateUnknownException:
        return "unknown"
    except (CommitFailedException, CommitError):
        return "failed"
    return "done"


def _stop_at(catalog: Any, step: Step) -> None:
    def wait() -> NoReturn:
        _report(0, "stopped")
        signal.pause()
        raise AssertionError("not killed")

    records = catalog._records
    move = records.move

    def stop_after(*arguments: Any) -> None:
        move(*arguments)
        wait()

    if step == "data":
        catalog._write_metadata = lambda *arguments, **options: wait()
    elif step == "metadata":
        records.move = lambda *arguments: wait()
    else:
        records.move = stop_after


def _report(row: int, outcome: str) -> None:
    print(json.dumps([row, outcome]), flush=True)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
