"""The command ``recover``: finish or abort the jobs that dead drivers left in an output."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exit_status import Exit
from commitlog.cli.output import dry_run_option, duration, json_option, print_json, printable
from commitlog.cli.parameters import DURATION
from commitlog.outputs import LostFiles, Output, RecoveryReport

__all__ = ["WORKERS", "WOULD_REPORT", "end", "recover", "to_json", "to_lines"]

#: The number of concurrent requests that publish or remove uploads.
WORKERS = 16

#: The first line of output with --dry-run.
WOULD_REPORT = "nothing was changed; without --dry-run, the command would report:"


@click.command()
@click.argument("url")
@click.option(
    "--older-than",
    type=DURATION,
    default="1d",
    show_default=True,
    help="Age at which an uncommitted job counts as dead.",
)
@dry_run_option
@json_option
@object_options
def recover(connection: Connection, url: str, older_than: float, dry_run: bool, json: bool) -> None:
    """Finish or abort the jobs that dead drivers left in the output URL.

    Committed jobs are published, whatever their age. Attempts that are not committed, and that neither
    started a file nor prepared their commit within --older-than, are aborted and their uploads
    removed. If the driver of such an attempt is alive, it gets JobAborted when it tries to commit;
    nothing else happens.

    A committed job has lost files if something else, such as a lifecycle rule, removed its uploads. The
    job and these files are shown, and the exit status is 1 until the job has been run again under
    another id and has replaced the files of that version.

    Run it at any time, as often as you like; writers and other recoveries may be active.

    \b
    Example:
      commitlog output recover s3://bucket/out --dry-run
    """
    location = connection.locate_directory(url)
    with ThreadPoolExecutor(WORKERS) as executor:
        output = Output(connection.open(location.store), location.path, executor=executor)
        report = output.recover(older_than=older_than, dry_run=dry_run)
    if json:
        print_json(to_json(report, dry_run=dry_run))
    else:
        if dry_run:
            click.echo(WOULD_REPORT)
        for line in to_lines(report, older_than) or [f"nothing to recover at {location.url}"]:
            click.echo(line)
    end(report)


def end(report: RecoveryReport) -> None:
    """Exit with the status of `report`: 1 if files of a job are lost."""
    if report.lost:
        click.get_current_context().exit(Exit.FAILED)


def to_json(report: RecoveryReport, *, dry_run: bool = False) -> dict[str, Any]:
    """Return `report` as it is printed with --json."""
    return {
        **({"dry_run": True} if dry_run else {}),
        "completed": list(report.completed),
        "aborted": dict(report.aborted),
        "uploads": report.uploads,
        "live": list(report.live),
        "lost": [
            {"job": lost.job_id, "version": lost.version, "files": list(lost.files)}
            for lost in report.lost
        ],
    }


def to_lines(report: RecoveryReport, older_than: float) -> list[str]:
    """Return the lines of `report` for people."""
    return [
        *(f"version {version}: completed, all files are visible" for version in report.completed),
        *(
            f"attempt {attempt} of job {printable(job or '(unknown)')}: aborted"
            for attempt, job in report.aborted.items()
        ),
        *([f"uploads removed: {report.uploads}"] if report.uploads else []),
        *(
            f"attempt {attempt}: not changed, because it was active within {duration(older_than)}"
            for attempt in report.live
        ),
        *(line for lost in report.lost for line in _lost_lines(lost)),
    ]


def _lost_lines(lost: LostFiles) -> Iterator[str]:
    yield (
        f"version {lost.version}: {len(lost.files)} files are lost; run job {printable(lost.job_id)}"
        " again under another id, and replace the files of this version"
    )
    for path in lost.files:
        yield f"version {lost.version}: lost {printable(path)}"
