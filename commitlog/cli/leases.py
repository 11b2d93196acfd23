"""The command group ``lease``: lists leases, with their holders and ages, and breaks them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from attrs import evolve

from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.cli.connection import Connection, table_options
from commitlog.cli.exit_status import Exit, FailureCollector, print_error
from commitlog.cli.output import (
    dry_run_option,
    duration,
    json_option,
    note,
    print_columns,
    print_json,
    printable,
    progress_file,
)
from commitlog.cli.parameters import DURATION
from commitlog.clock import SystemClock
from commitlog.commit.holding import Holding
from commitlog.commit.lease import HeldLease, break_lease
from commitlog.commit.probe_cache import FINDINGS
from commitlog.commit.record import CREATE, LEASE_SCHEMA, LOCKS, LeaseRecord
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import CorruptRecord
from commitlog.tables.api import Table
from commitlog.tables.rules import check_description

__all__ = ["lease"]

_DEFAULTS = LeaseSettings()

#: Seconds between two looks at a lease that is waited for.
_LOOK_SECONDS = 1.0


def _to_json(holding: Holding) -> dict[str, Any]:
    """Return a lease as --json prints it."""
    record = holding.record
    return {
        "path": record.path,
        "etag": record.etag,
        "generation": record.generation,
        "owner": record.owner,
        "state": holding.state,
        "timeout": record.timeout / 1000,
        "age": round(holding.age, 3),
        "reclaimable_within": holding.wait,
        "ttl": record.ttl,
    }


def _to_row(holding: Holding) -> tuple[str, ...]:
    """Return a lease as a row of a table."""
    record = holding.record
    reclaimable = "at once" if record.released else f"within {duration(holding.wait)}"
    replaces = "nothing" if record.etag == CREATE else record.etag
    owner = record.owner or "unknown"
    return (
        record.path,
        replaces,
        f"{record.generation}",
        holding.state,
        owner,
        duration(holding.age),
        reclaimable,
    )


@click.group()
def lease() -> None:
    """List and break the leases that guard writes to a store.

    TABLE is the table of leases: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.
    """


@lease.command("list", short_help="List the leases that are held.")
@click.argument("url", metavar="TABLE", envvar="COMMITLOG_TABLE")
@click.option(
    "--prefix", default="", help="Only keys with this prefix (whole keys, without the bucket)."
)
@click.option("--all", "everything", is_flag=True, help="Show released leases as well.")
@click.option(
    "--ttl",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.ttl,
    show_default=True,
    help="TTL setting of the writers in seconds, from which ages are derived.",
)
@click.option(
    "--skew-rate",
    type=click.FloatRange(min=1),
    default=_DEFAULTS.max_clock_skew_rate,
    show_default=True,
    help="Setting max_clock_skew_rate of waiting clients.",
)
@json_option
@table_options
def list_(
    connection: Connection,
    url: str,
    prefix: str,
    everything: bool,
    ttl: float,
    skew_rate: float,
    json: bool,
) -> None:
    """Show the leases in TABLE (default: $COMMITLOG_TABLE) that are not released.

    A record does not contain its start time. AGE is the time since it was written, from its "ttl"
    attribute and the TTL setting of the writers (--ttl). It is only as exact as the wall clocks of both
    machines. STATE is "held", or "overdue" once AGE exceeds the lease's timeout: the holder died, or
    could not learn the outcome of its write, or the clocks disagree. The protocol depends on neither
    column.

    RECLAIMABLE is guaranteed by the protocol: a client that starts to wait now may take the lease over
    after the holder's timeout x max_clock_skew_rate (--skew-rate) on its own clock. A client that
    started earlier may take it over earlier. "lease break" waits that long in advance.

    Locks that share the table are left out: see "commitlog lock --show". The whole table is scanned.

    \b
    Example:
      commitlog lease list dynamodb://commits --prefix bucket/reports/
    """
    if not (math.isfinite(ttl) and math.isfinite(skew_rate)):
        raise click.UsageError("--ttl and --skew-rate must be finite")
    now = SystemClock().epoch()
    rows: list[tuple[str, ...]] = [
        ("PATH", "REPLACES", "GENERATION", "STATE", "OWNER", "AGE", "RECLAIMABLE")
    ]
    status = Exit.DONE
    table = connection.leases(url)
    check_description(table.describe(), LEASE_SCHEMA)
    for item in table.scan():
        if str(item.get("path")).startswith((FINDINGS, LOCKS)):
            continue
        try:
            record = LeaseRecord.from_item(item)
        except CorruptRecord as error:
            print_error(error)
            status = Exit.FAILED
            continue
        if not record.path.startswith(prefix) or (record.released and not everything):
            continue
        holding = Holding.of(record, now=now, ttl=ttl, skew_rate=skew_rate)
        if json:
            print_json(_to_json(holding))
        else:
            rows.append(_to_row(holding))
    if len(rows) > 1:
        print_columns(rows, right=[2, 5])
    elif not json:
        click.echo("no lease is held" if not everything else "the table has no lease", err=True)
    click.get_current_context().exit(status)


@lease.command("break", short_help="Release the leases of holders that died.")
@click.argument("url", metavar="TABLE")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--max-wait", type=DURATION, help="Give up on holders that may still write after this time."
)
@click.option(
    "--skew-rate",
    type=click.FloatRange(min=_DEFAULTS.max_clock_skew_rate),
    default=_DEFAULTS.max_clock_skew_rate,
    show_default=True,
    help="Setting max_clock_skew_rate of the writers, if it is larger.",
)
@dry_run_option
@json_option
@table_options
def break_(
    connection: Connection,
    url: str,
    paths: tuple[str, ...],
    max_wait: float | None,
    skew_rate: float,
    dry_run: bool,
    json: bool,
) -> None:
    """Release the leases on PATH once their holders can no longer write.

    PATH is a whole key without the bucket, as "lease list" prints it. After the command, the next
    writer of PATH does not have to wait. The command first waits for the timeout x max_clock_skew_rate
    of each holder, as any client does, for all leases at the same time. No option shortens the wait: a
    holder that is alive could then overwrite the work of the next one.

    If a lease ends while the command waits, because its holder or another client is active, it is not
    changed; this is not an error. A holder that renews its lease restarts the count. With --max-wait,
    the command fails with status 1 if a holder may still write after that time; its lease is unchanged.
    Status 4: the table did not answer, and the lease may be released or not.

    \b
    Example:
      commitlog lease break dynamodb://commits reports/today.csv
    """
    clock = SystemClock()
    table = connection.leases(url)
    check_description(table.describe(), LEASE_SCHEMA)
    settings = LeaseSettings(
        max_clock_skew_rate=skew_rate,
        ttl=max(_DEFAULTS.ttl, 2 * _DEFAULTS.timeout * skew_rate),
        test_interval=_LOOK_SECONDS,
    )
    failures = FailureCollector()
    give_up = math.inf if max_wait is None else clock.monotonic() + max_wait
    held: list[HeldLease] = []
    for path in dict.fromkeys(paths):
        with failures.collect(path):
            found = list(_held(table, path, clock))
            held += found
            if not found:
                note(f"{printable(path)}: no lease is held")
    for each in sorted(held, key=lambda one: one.reclaimable_at(skew_rate)):
        assert each.record is not None
        with failures.collect(each.record.path):
            left = max(0.0, give_up - clock.monotonic())
            broken = not dry_run and _break(
                table, each, clock, evolve(settings, max_wait=None if left == math.inf else left)
            )
            _print_broken(each.record, skew_rate, broken=broken, dry_run=dry_run, json=json)
    failures.exit()


def _held(table: Table, path: str, clock: SystemClock) -> Iterator[HeldLease]:
    """Yield the leases on `path` that are not released."""
    if path.startswith(FINDINGS):
        return
    for item in table.query(path):
        received = clock.monotonic()
        record = LeaseRecord.from_item(item)
        if not record.released:
            yield HeldLease(record=record, since=received)


def _break(table: Table, held: HeldLease, clock: SystemClock, settings: LeaseSettings) -> bool:
    """Wait for the holder, show that, and release its lease; return whether that was needed."""
    assert held.record is not None
    wait = held.reclaimable_at(settings.max_clock_skew_rate) - clock.monotonic()
    with _countdown(held.record.path, wait) as waiting:
        return break_lease(
            table,
            held,
            clock=clock,
            backoff=Backoff(),
            settings=settings,
            owner=random_id(),
            waiting=waiting,
        )


@contextmanager
def _countdown(path: str, wait: float) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on a terminal, else a line; yield a function that takes the seconds left."""
    label = f"{printable(path)}: waiting for the holder"
    if not sys.stderr.isatty():
        note(f"{label}, at most {duration(max(wait, 0.0))} if it does not renew its lease")
    length = max(1, math.ceil(wait))
    with click.progressbar(
        length=length, label=label, file=progress_file(hidden=not sys.stderr.isatty())
    ) as bar:
        yield lambda left: bar.update(max(0, length - math.ceil(left) - bar.pos))


def _print_broken(
    record: LeaseRecord, skew_rate: float, *, broken: bool, dry_run: bool, json: bool
) -> None:
    wait = record.timeout / 1000 * skew_rate
    if json:
        print_json(
            {
                "path": record.path,
                "etag": record.etag,
                "generation": record.generation,
                "owner": record.owner,
                "wait": wait,
                "broken": broken,
                "dry_run": dry_run,
            }
        )
    elif dry_run:
        click.echo(f"would break the lease on {printable(record.path)} after {duration(wait)}")
    else:
        ended = "released" if broken else "ended by itself"
        click.echo(f"{printable(record.path)}: {ended}")
