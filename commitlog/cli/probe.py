"""The command ``probe``, which measures the preconditions of a store, or shows a stored report."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from json import loads

import click
from attrs import evolve

from commitlog.cli.connection import Connection, store_options
from commitlog.cli.output import json_option, print_columns, print_json
from commitlog.commit.probe import THREADS
from commitlog.commit.probe import probe as measure
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.errors import NotFound
from commitlog.stores.api import Dialect

__all__ = ["probe"]


@click.command()
@click.argument("url")
@click.option(
    "--only",
    "kinds",
    type=click.Choice([kind.label for kind in Kind]),
    multiple=True,
    help="Measure only this kind. Repeatable.",
)
@click.option(
    "--stored", is_flag=True, help="Show the report that the table keeps, and measure nothing."
)
@json_option
@store_options
def probe(connection: Connection, url: str, kinds: tuple[str, ...], stored: bool, json: bool) -> None:
    """Measure which preconditions the store at URL enforces, and print the result of each check.

    In a race, many writers compete, and only one may win. "request-expiry" is the expiry of signed
    requests, which protects leases; stores that do not check signatures do not enforce it.

    If the store does not enforce a standard precondition, the headers of Alibaba OSS, Tencent COS,
    Cloudflare R2 and Google Cloud Storage are tried. A check of a vendor's header ends in its name. Add
    ?dialect=NAME to URL to try only one.

    With --commit auto, the store performs the conditional writes that are "proven", and others are
    refused. With --table, conditional writes that can compete for an object use the store if all of them
    are proven; otherwise all of them use leases.

    With --table, the report is saved in the table for all its clients, and replaces an earlier report.
    Run the command while no client is active. Without a saved report, the first client measures and
    saves one. With --stored, the saved report is shown.

    With --json, the report is printed as one object, in which "request-expiry" is named "fence". Save it
    to a file for commands without a table, and pass it to them as --probe-report FILE. Otherwise these
    commands measure the store again.

    The command writes and removes objects below URL, whose names begin with .commitlog-probe-. A race
    without a failure does not prove it, but the race is long enough for all stores that are known to
    fail.

    \b
    Example:
      commitlog probe s3://bucket/scratch --json
    """
    opened = connection.open(connection.locate_directory(url).store)
    wanted = [kind for kind in Kind if kind.label in kinds] or list(Kind)
    if stored:
        report = opened.stored_probe_report()
        report = evolve(report, rows=[row for row in report.rows if row.kind in wanted])
        if not report.rows:
            raise NotFound(
                f"the table keeps no probe report of {report.url}: measure it, without --stored"
            )
    else:
        with ThreadPoolExecutor(THREADS) as executor:
            report = measure(opened.object_store, kinds=wanted, executor=executor)
        if report.versioning is None:
            report = evolve(report, versioning=opened.object_store.versioning())
        if connection.table is not None:
            opened.save_probe_report(report)
    if json:
        proven = [kind.value for kind in Kind if report.proves(kind)]
        dialects = {kind.value: _dialect(report, kind) for kind in Kind if report.proves(kind)}
        print_json({**loads(report.to_json()), "proven": proven, "dialects": dialects})
    else:
        _print_table(report)


def _print_table(report: ProbeReport) -> None:
    kinds = list(dict.fromkeys(row.kind for row in report.rows))
    tries = [
        (row.kind.label, row.check, "yes" if row.ok else "NO", row.expected, row.got)
        for row in report.rows
    ]
    print_columns([("KIND", "CHECK", "OK", "EXPECTED", "GOT"), *tries])
    click.echo()
    print_columns([(kind.label, _summary(report, kind)) for kind in kinds])
    if report.versioning is not None:
        click.echo(f"\nversioning of the bucket: {report.versioning.value}")


def _dialect(report: ProbeReport, kind: Kind) -> str:
    return report.dialects(kind)[0].value


def _summary(report: ProbeReport, kind: Kind) -> str:
    """Return whether a kind is proven, and in which dialect if not in the standard one."""
    found = report.dialects(kind)
    if not found:
        return "not proven"
    return "proven" if found[0] is Dialect.STANDARD else f"proven, dialect {found[0].value}"
