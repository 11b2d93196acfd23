"""The command ``gc``: remove obsolete files of outputs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.output import dry_run_option, json_option, print_json
from commitlog.cli.outputs.recover import WORKERS, WOULD_REPORT, end, to_json, to_lines
from commitlog.cli.parameters import DURATION
from commitlog.outputs import Output

__all__ = ["gc"]


@click.command()
@click.argument("url")
@click.option(
    "--older-than",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Age at which replaced versions expire, and uncommitted jobs count as dead.",
)
@dry_run_option
@json_option
@object_options
def gc(connection: Connection, url: str, older_than: float, dry_run: bool, json: bool) -> None:
    """Recover the output URL, and remove files that belong to no readable version.

    In an output with visibility "logged", these are files that were replaced more
    than --older-than ago; older versions can then no longer be read. The command also removes files of
    jobs that were never committed and whose drivers were not active within --older-than.

    Lost files of committed jobs are shown as in "recover", and the exit status is 1.

    Run it at any time, as often as you like; jobs may write, and readers may read newer versions.

    \b
    Example:
      commitlog output gc s3://bucket/out --older-than 7d
    """
    location = connection.locate_directory(url)
    with ThreadPoolExecutor(WORKERS) as executor:
        output = Output(connection.open(location.store), location.path, executor=executor)
        report = output.gc(older_than=older_than, dry_run=dry_run)
    if json:
        counts = {"expired": report.expired, "removed": report.removed}
        print_json({**to_json(report.recovery, dry_run=dry_run), **counts})
        end(report.recovery)
        return
    lines = to_lines(report.recovery, older_than)
    if report.expired:
        lines.append(f"versions before {report.expired} have expired")
    if report.removed:
        lines.append(f"objects removed: {report.removed}")
    if dry_run:
        click.echo(WOULD_REPORT)
    for line in lines or [f"nothing to remove at {location.url}"]:
        click.echo(line)
    end(report.recovery)
