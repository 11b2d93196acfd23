"""Steps of the demo: three drivers commit to one output, one is refused, one is killed; then checks."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import evolve

from commitlog.errors import ConfigurationError
from commitlog.outputs import Output
from commitlog.spark.targets.output import ReadOptions, open_output
from demo.driver import Task, commit, run
from demo.inputs import Count, Input
from demo.quiet import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Story"]

#: Files that are named one by one.
SHOWN = 4


class Story:
    """One run of the demo.

    Args:
        source: the input rows.
        url: URL of the output, which must not exist yet.
        options: options of the data source, which connect to the store.
        scratch: a directory for temporary files and for Spark's logs ``spark.log`` and ``driver.log``.
        echo: prints a line.
    """

    def __init__(
        self,
        source: Input,
        url: str,
        options: Mapping[str, str],
        scratch: Path,
        echo: Callable[[str], None],
    ) -> None:
        self._source = source
        self._url = url
        self._options = options
        self._scratch = scratch
        self._echo = echo
        self._start = time.monotonic()
        self._steps = 0
        self._failed: list[str] = []
        self._first = Task(input=source, late=False, url=url, options=options, job_id="first-load")
        self._second = evolve(self._first, late=True, job_id="late-rows")

    def tell(self) -> bool:
        """Run all steps; return whether every check passed.

        Raises `ConfigurationError` if the output exists already, if there are too few rows for a second
        job, or if Java is missing.
        """
        with self._output() as output:
            if next(output.records(), None) is not None:
                raise ConfigurationError(f"{self._url} has a log already: use a new directory")
        expected = self._count()
        with (self._scratch / "spark.log").open("wb") as log:
            spark = quiet_session(log)
        try:
            self._commit(spark, expected)
            self._refuse()
            self._kill(spark)
            self._recover()
            self._audit(spark, expected)
        finally:
            spark.stop()
        passed = not self._failed
        self._step("All checks passed." if passed else f"FAILED: {'; '.join(self._failed)}")
        return passed

    # the steps

    def _count(self) -> Count:
        self._step(f"Input: {self._source.title}")
        count = self._source.count()
        self._say(f"{count.rows:,} rows, counted without Spark")
        return count

    def _commit(self, spark: SparkSession, expected: Count) -> None:
        self._step(
            f"A Spark driver cleans all of them but {self._source.late_title}, and commits them as job"
            f" {self._first.job_id!r}"
        )
        commit(spark, self._first)
        with self._output() as output:
            record = next(output.log())
        if record.rows == expected.rows:
            raise ConfigurationError(f"{expected.rows} rows are too few for the demo: use at least 100")
        names = [file.path for file in record.files]
        for name in names[:SHOWN]:
            self._say(name)
        if len(names) > SHOWN:
            self._say(f"and {len(names) - SHOWN} more")
        self._say(
            f"_commitlog/{record.version:020d}.json: version {record.version} is job {record.job_id!r},"
            f" files: {len(names)}, rows: {record.rows:,}, bytes: {record.bytes:,}"
        )
        self._check(
            "rows in the record, and in the files that are listed", self._listed_rows(), record.rows
        )

    def _refuse(self) -> None:
        self._step(f"A second driver commits job {self._first.job_id!r} again, as a retry would")
        before = self._listed_rows()
        ended = run(self._first, self._scratch)
        self._say(ended.stdout.strip())
        self._check("it is refused", ended.stdout.startswith("JobAlreadyCommitted"), True)
        self._check("rows, as before", self._listed_rows(), before)

    def _kill(self, spark: SparkSession) -> None:
        self._step(
            f"A third driver brings {self._source.late_title} as job {self._second.job_id!r},"
            " and is killed between commit point and publish"
        )
        before = self._listed_rows()
        ended = run(evolve(self._second, death=("publish", "", 1)), self._scratch)
        self._check("killed by signal", -ended.returncode, int(signal.SIGKILL))
        with self._output() as output:
            committed = [record.job_id for record in output.log()]
        self._check("jobs in the log", committed, [self._first.job_id, self._second.job_id])
        # A reader that may write would complete the job itself.
        seen = self._load(spark, rollForward="false").count()
        self._check("rows that a log-aware reader sees meanwhile, as before", seen, before)
        self._check("rows that a plain listing sees meanwhile, as before", self._listed_rows(), before)

    def _recover(self) -> None:
        flags = [
            word
            for name, value in self._options.items()
            for word in (f"--{name.replace('_', '-')}", value)
        ]
        command = ["output", "recover", *flags, "--older-than", "0s", self._url]
        self._step(f"$ commitlog {shlex.join(command)}")
        ended = subprocess.run(
            [sys.executable, "-m", "commitlog", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        for line in ended.stdout.splitlines():
            self._say(line)
        self._check("exit status of recover", ended.returncode, 0)

    def _audit(self, spark: SparkSession, expected: Count) -> None:
        self._step("The books: input against output")
        cleaned = self._source.read(spark)
        output = self._load(spark)
        self._check("rows of the input and of the output", output.count(), expected.rows)
        self._check("rows that a plain listing sees", self._listed_rows(), expected.rows)
        if expected.missing is not None:
            self._check(
                "empty and NA fields of the input, nulls of the output", _nulls(output), expected.missing
            )
        missing = _as_text(cleaned).exceptAll(_as_text(output)).count()
        self._check(
            "rows of the input that the output lacks, or has another number of times", missing, 0
        )
        with self._output() as opened:
            named = {opened.locate(file) for file in opened.snapshot().files}
            self._check("files that no commit names", sorted(set(self._listed(opened)) - named), [])
            self._check("uploads left behind", len(list(opened.store.list_staged())), 0)

    # reading the output

    def _load(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.read.format("commitlog").options(**self._options, **options).load(self._url)

    def _listed(self, output: Output) -> Iterator[str]:
        """Yield the data files in a plain listing, as tools see them that do not read the log."""
        for info in output.store.list():
            if not any(part.startswith(("_", ".")) for part in info.path.split("/")):
                yield info.path

    def _listed_rows(self) -> int:
        with self._output() as output:
            return sum(
                pq.read_metadata(pa.BufferReader(output.store.get(path).data)).num_rows
                for path in self._listed(output)
            )

    @contextmanager
    def _output(self) -> Iterator[Output]:
        output = open_output(ReadOptions.parse({**self._options, "path": self._url}))
        with output.store:
            yield output

    # printing

    def _step(self, text: str) -> None:
        self._steps += 1
        self._echo(f"\n{time.monotonic() - self._start:5.1f} s  {self._steps}. {text}")

    def _say(self, text: str) -> None:
        self._echo(f"           {text}")

    def _check(self, what: str, seen: object, expected: object) -> None:
        if seen == expected:
            self._say(f"ok: {what}: {_show(seen)}")
        else:
            self._failed.append(what)
            self._say(f"FAILED: {what}: {_show(seen)}, and not {_show(expected)}")


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _nulls(rows: DataFrame) -> int:
    from pyspark.sql import functions as f

    each = (f.col(f"`{name}`").isNull().cast("bigint") for name in rows.columns)
    row = rows.agg(f.sum(sum(each, f.lit(0)))).first()
    return row[0] or 0 if row else 0


def _as_text(rows: DataFrame) -> DataFrame:
    """Return each row as one text with sorted columns, so that any two rows can be compared."""
    from pyspark.sql import functions as f

    return rows.select(f.to_json(f.struct(*sorted(rows.columns))).alias("row"))
