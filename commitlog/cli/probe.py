"""The command ``probe``: what a store does with preconditions, measured."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from json import loads

import click

from commitlog.cli.connection import Connection, store_options
from commitlog.cli.output import json_option, print_columns, print_json
from commitlog.commit.probe import RACERS
from commitlog.commit.probe import probe as measure
from commitlog.commit.probe_report import Kind, ProbeReport

__all__ = ["probe"]


@click.command()
@click.argument("url")
@click.option(
    "--only",
    "kinds",
    type=click.Choice([kind.value for kind in Kind]),
    multiple=True,
    help="Measure this alone; may be given several times.",
)
@json_option
@store_options
def probe(connection: Connection, url: str, kinds: tuple[str, ...], json: bool) -> None:
    """Measure which preconditions the store at URL enforces, and print what came of each try.

    A race is many writers at once, of whom one may win. "fence" is the expiry of a request, which guards
    leases: a store that checks no signatures does not enforce it. Under --commit auto, what is "proven"
    is left to the store, and the rest refused; with a --table, calls that can compete for an object all
    go natively if all of them are proven, and else all by lease.

    With --table, the report is kept there, in place of an earlier one, for all clients of that table;
    do it while none is at work. (The first to need it would have measured and kept it, too.)

    With --json, the report is printed as one object. Keep it in a file, and give it to commands
    without a table as --probe-report FILE, or they measure anew what they depend on.

    Scratch objects, named .commitlog-probe-…, are written below URL and removed again. A race that went
    well proves nothing beyond doubt; it is long enough for the stores that are known to fail.

    \b
    Example:
      commitlog probe s3://bucket/scratch --json
    """
    opened = connection.open(connection.directory(url).store)
    with ThreadPoolExecutor(RACERS) as executor:
        wanted = [Kind(kind) for kind in kinds] or list(Kind)
        report = measure(opened.store, kinds=wanted, executor=executor)
    if connection.table is not None:
        opened.save_probe_report(report)
    if json:
        proven = [kind.value for kind in Kind if report.proves(kind)]
        print_json({**loads(report.to_json()), "proven": proven})
    else:
        _print_table(report)


def _print_table(report: ProbeReport) -> None:
    kinds = list(dict.fromkeys(row.kind for row in report.rows))
    tries = [
        (row.kind.value, row.check, "yes" if row.ok else "NO", row.expected, row.got)
        for row in report.rows
    ]
    print_columns([("KIND", "CHECK", "OK", "EXPECTED", "GOT"), *tries])
    click.echo()
    print_columns([(kind.value, "proven" if report.proves(kind) else "not proven") for kind in kinds])
