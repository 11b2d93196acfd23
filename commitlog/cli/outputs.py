"""Commands on an output: ``log`` shows its commits, ``recover`` finishes what dead drivers left."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.show import duration, json_option, moment, print_columns, print_json
from commitlog.outputs import CommitRecord, Output, Record, RecoveryReport

__all__ = ["Seconds", "log", "recover"]

_UNITS = MappingProxyType({"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400})

#: Requests side by side while publishing and dropping uploads.
WORKERS = 16


class Seconds(click.ParamType[float]):
    """A span of time: a number of seconds, or a number with one of the units s, m, h, d."""

    name = "duration"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return `value` in seconds.

        >>> Seconds().convert("90", None, None), Seconds().convert("1.5h", None, None)
        (90.0, 5400.0)
        """
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if match is None:
            self.fail(f"{value!r} is no duration: write 90s, 15m, 2h or 1d", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@click.command()
@click.argument("url")
@click.option("--after", default=0, metavar="VERSION", help="Only records after this version.")
@click.option("--files", is_flag=True, help="Print the files of each commit, one a line.")
@json_option
@object_options
def log(connection: Connection, url: str, after: int, files: bool, json: bool) -> None:
    """Show the log of the output URL: commits, and attempts that were ruled out.

    The version is the number to pass to --after for what came since. Files of the last commits may not
    be visible to plain listings yet; "recover" completes them.
    """
    records = _output(connection, url).records(after)
    if files:
        for record in records:
            if isinstance(record, CommitRecord):
                _print_files(record, json=json)
    elif json:
        for record in records:
            print_json(_to_json(record))
    else:
        head = ("VERSION", "TIME", "JOB", "FILES", "ROWS", "BYTES")
        rows = [head, *map(_to_row, records)]
        if len(rows) > 1:
            print_columns(rows, right=[0, 3, 4, 5])


def _output(connection: Connection, url: str, executor: ThreadPoolExecutor | None = None) -> Output:
    place = connection.directory(url)
    return Output(connection.open(place.store), place.path, executor=executor)


def _to_json(record: Record) -> dict[str, Any]:
    if isinstance(record, CommitRecord):
        return {
            "version": record.version,
            "kind": "commit",
            "time": record.time,
            "job": record.job_id,
            "attempt": record.attempt,
            "mode": record.mode,
            "files": len(record.files),
            "rows": record.rows,
            "bytes": record.bytes,
        }
    return {
        "version": record.version,
        "kind": "abort",
        "time": record.time,
        "attempts": dict(record.attempts),
    }


def _to_row(record: Record) -> tuple[str, ...]:
    if isinstance(record, CommitRecord):
        rows = "?" if record.rows is None else f"{record.rows}"
        what = (record.job_id, f"{len(record.files)}", rows, f"{record.bytes}")
    else:
        ruled_out = ", ".join(job or attempt for attempt, job in record.attempts.items())
        what = (f"(ruled out: {ruled_out})", "-", "-", "-")
    return (f"{record.version}", moment(record.time), *what)


def _print_files(record: CommitRecord, *, json: bool) -> None:
    for file in record.files:
        if json:
            print_json(
                {
                    "version": record.version,
                    "job": record.job_id,
                    "path": file.path,
                    "size": file.size,
                    "rows": file.rows,
                    "partition": dict(file.partition),
                }
            )
        else:
            click.echo(file.path)


@click.command()
@click.argument("url")
@click.option(
    "--older-than",
    type=Seconds(),
    default="1d",
    show_default=True,
    help="Age from which a job that is not committed is taken for dead.",
)
@json_option
@object_options
def recover(connection: Connection, url: str, older_than: float, json: bool) -> None:
    """Finish or undo what drivers that died left in the output URL.

    Jobs that are committed are published, whatever their age. Attempts that are not, and that neither
    began a file nor prepared their commit within --older-than, are ruled out and their uploads dropped.
    A driver that was alive after all gets JobAborted when it tries to commit; nothing else comes of it.

    Run it at any time, as often as you like, beside writers and other recoveries.
    """
    with ThreadPoolExecutor(WORKERS) as executor:
        report = _output(connection, url, executor).recover(older_than=older_than)
    if json:
        print_json(
            {
                "completed": list(report.completed),
                "aborted": dict(report.aborted),
                "uploads": report.uploads,
                "live": list(report.live),
            }
        )
    else:
        for line in _to_lines(report, older_than):
            click.echo(line)


def _to_lines(report: RecoveryReport, older_than: float) -> list[str]:
    return [
        *(f"version {version}: completed, all its files are visible" for version in report.completed),
        *(
            f"attempt {attempt} of job {job or '(unknown)'}: ruled out"
            for attempt, job in report.aborted.items()
        ),
        *([f"uploads dropped: {report.uploads}"] if report.uploads else []),
        *(
            f"attempt {attempt}: left alone, it was active within {duration(older_than)}"
            for attempt in report.live
        ),
    ] or ["nothing to recover"]
