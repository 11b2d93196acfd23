"""The command ``gc``: remove what nobody can read any more from an output that only its log shows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.recover import WORKERS, WOULD_REPORT, Seconds, end, to_json, to_lines
from commitlog.cli.show import dry_run_option, json_option, print_json
from commitlog.outputs import Output

__all__ = ["gc"]


@click.command(short_help="Remove what nobody reads any more.")
@click.argument("url")
@click.option(
    "--older-than",
    type=Seconds(),
    default="7d",
    show_default=True,
    help="Age from which a replaced version is given up, and an uncommitted job taken for dead.",
)
@dry_run_option
@json_option
@object_options
def gc(connection: Connection, url: str, older_than: float, dry_run: bool, json: bool) -> None:
    """Recover the output URL, and remove what nobody needs any more.

    Of an output that only its log shows (visibility "logged"), that is what was replaced longer than
    --older-than ago; versions from before then can not be read any more. And files of jobs that were
    never committed, and whose drivers gave no sign of life within --older-than.

    Lost files of committed jobs are shown as by "recover", and the status is 1.

    Run it at any time, as often as you like, while jobs write and readers read younger versions.
    """
    place = connection.directory(url)
    with ThreadPoolExecutor(WORKERS) as executor:
        output = Output(connection.open(place.store), place.path, executor=executor)
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
    for line in lines or [f"nothing to remove at {place.url}"]:
        click.echo(line)
    end(report.recovery)
