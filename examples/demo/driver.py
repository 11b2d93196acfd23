"""A Spark driver as a separate process: ``python -m demo.driver``, with its task on stdin.

It exits with 0 if the job is committed. Otherwise it exits with 1 and prints the error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict, frozen

from commitlog.spark import CommitlogDataSource
from demo.crash import Death, MortalSource
from demo.inputs import Input
from demo.quiet import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Task", "commit", "run"]

_ERROR = re.compile(r"commitlog\.errors\.(\w+: [^\n]+)")


@frozen(kw_only=True)
class Task:
    """A job for a driver to commit.

    Attributes:
        input: the rows to read.
        late: commit the late rows (True) or all others (False).
        url: URL of the output.
        options: options of the data source; credentials come from the environment.
        job_id: id of the job.
        death: arguments of `demo.crash.Death`, or None for no crash.
    """

    input: Input
    late: bool
    url: str
    options: Mapping[str, str]
    job_id: str
    death: tuple[str, str, int] | None = None

    def to_json(self) -> str:
        """Return the task as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return the task that `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        rows = fields.pop("input")
        return cls(
            input=Input(
                **{**rows, "files": tuple(rows["files"]), "partition_by": tuple(rows["partition_by"])}
            ),
            **fields,
        )


def run(task: Task, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run `task` in a separate driver; return its exit status and output.

    Its temporary files and its log ``driver.log`` go to the directory `scratch`.
    """
    with (scratch / "driver.log").open("ab") as log:
        return subprocess.run(
            [sys.executable, "-m", "demo.driver"],
            input=task.to_json(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(scratch)},
            # A separate process group: the crash kills the whole group.
            start_new_session=True,
        )


def commit(spark: SparkSession, task: Task, source: str = "commitlog") -> None:
    """Clean the rows of `task` and commit them."""
    rows = task.input.read(spark)
    rows = rows.where(task.input.late if task.late else f"({task.input.late}) is not true")
    by = task.input.partition_by
    if by:
        # One file per job in each directory.
        rows = rows.repartition(*by).sortWithinPartitions(*by)
    writer = rows.write.format(source).mode("append").options(**task.options)
    writer.option("jobId", task.job_id).option("partitionBy", ",".join(by)).save(task.url)


def main() -> int:
    """Run the task on stdin; return the exit status."""
    task = Task.from_json(sys.stdin.read())
    if task.death is not None:
        Death(*task.death).arm()
    spark = quiet_session()
    source = CommitlogDataSource
    if task.death is not None:
        source = MortalSource
        spark.dataSource.register(source)
    try:
        commit(spark, task, source.name())
    except Exception as error:
        known = _ERROR.search(str(error))
        print(known[1] if known else f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
