"""The command group ``lease``: who holds a lease, since when, and when it can be taken over.

A lease record holds neither a start nor an end. Both are derived, and are only as exact as wall clocks:
a record's ``ttl`` is the time at which it was written plus the TTL setting of its writer.
"""

from __future__ import annotations

from typing import Any

import click
from attrs import frozen

from commitlog.cli.connection import Connection, table_options
from commitlog.cli.exit_status import Exit, complain
from commitlog.cli.output import duration, json_option, print_columns, print_json
from commitlog.clock import SystemClock
from commitlog.commit.probe_cache import FINDINGS
from commitlog.commit.record import CREATE, LEASE_SCHEMA, LeaseRecord
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import CorruptRecord
from commitlog.tables.api import TABLE_FORMAT, Table
from commitlog.tables.rules import format_too_new, wrong_schema

__all__ = ["Holding", "lease"]

_DEFAULTS = LeaseSettings()


@frozen(kw_only=True)
class Holding:
    """A lease as seen from here and now.

    Attributes:
        record: the stored record.
        age: seconds since it was written, if the wall clocks agree and the TTL setting is known.
        wait: the maximum number of seconds until a client that starts to wait now may take it over.
    """

    record: LeaseRecord
    age: float
    wait: float

    @classmethod
    def of(cls, record: LeaseRecord, *, now: float, ttl: float, skew_rate: float) -> Holding:
        """Derive age and wait from `record`, at epoch second `now`, under the writers' settings.

        >>> record = LeaseRecord(path="a", etag="*", generation=0, timeout=20_000, ttl=1_003_600)
        >>> holding = Holding.of(record, now=1_000_025, ttl=3600, skew_rate=3)
        >>> holding.age, holding.wait, holding.state
        (25, 60.0, 'overdue')
        """
        return cls(record=record, age=now - (record.ttl - ttl), wait=record.timeout / 1000 * skew_rate)

    @property
    def state(self) -> str:
        """``held``, ``overdue`` (older than its timeout, and not released) or ``released``."""
        if self.record.released:
            return "released"
        return "overdue" if self.age > self.record.timeout / 1000 else "held"

    def to_json(self) -> dict[str, Any]:
        """Return it as it is printed for scripts."""
        record = self.record
        return {
            "path": record.path,
            "etag": record.etag,
            "generation": record.generation,
            "owner": record.owner,
            "state": self.state,
            "timeout": record.timeout / 1000,
            "age": round(self.age, 3),
            "reclaimable_within": self.wait,
            "ttl": record.ttl,
        }

    def to_row(self) -> tuple[str, ...]:
        """Return it as it is printed for people."""
        record = self.record
        reclaimable = "at once" if record.released else f"within {duration(self.wait)}"
        replaces = "nothing" if record.etag == CREATE else record.etag
        owner = record.owner or "unknown"
        return (
            record.path,
            replaces,
            f"{record.generation}",
            self.state,
            owner,
            duration(self.age),
            reclaimable,
        )


@click.group()
def lease() -> None:
    """Show the leases that guard writes to a store.

    TABLE is the table of leases: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.
    """


@lease.command("list", short_help="List the leases that are held.")
@click.argument("url", metavar="TABLE", envvar="COMMITLOG_TABLE")
@click.option("--prefix", default="", help="Only keys that begin so (whole keys, without the bucket).")
@click.option("--all", "everything", is_flag=True, help="Show released leases as well.")
@click.option(
    "--ttl",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.ttl,
    show_default=True,
    help="The writers' TTL setting in seconds, which ages are derived from.",
)
@click.option(
    "--skew-rate",
    type=click.FloatRange(min=1),
    default=_DEFAULTS.max_clock_skew_rate,
    show_default=True,
    help="The waiters' max_clock_skew_rate.",
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

    A record stores no start. AGE is the time since it was written, derived from its "ttl" attribute
    and the TTL setting of the writers (--ttl). It is only as exact as the wall clocks of both machines.
    STATE is "held", or "overdue" once AGE exceeds the lease's timeout: the holder died, or could not
    learn the outcome of its write, or the clocks disagree. The protocol depends on neither column.

    RECLAIMABLE is guaranteed by the protocol: a client that starts to wait now may take the lease over
    after the holder's timeout x max_clock_skew_rate (--skew-rate) on its own clock. A client that
    started earlier may take it over earlier. Leases never have to be broken by hand.

    The whole table is scanned.

    \b
    Example:
      commitlog lease list dynamodb://commits --prefix bucket/reports/
    """
    now = SystemClock().epoch()
    rows: list[tuple[str, ...]] = [
        ("PATH", "REPLACES", "GENERATION", "STATE", "OWNER", "AGE", "RECLAIMABLE")
    ]
    status = Exit.DONE
    table = connection.leases(url)
    _check(table)
    for item in table.scan():
        if str(item.get("path")).startswith(FINDINGS):
            continue
        try:
            record = LeaseRecord.from_item(item)
        except CorruptRecord as error:
            complain(error)
            status = Exit.FAILED
            continue
        if not record.path.startswith(prefix) or (record.released and not everything):
            continue
        holding = Holding.of(record, now=now, ttl=ttl, skew_rate=skew_rate)
        if json:
            print_json(holding.to_json())
        else:
            rows.append(holding.to_row())
    if len(rows) > 1:
        print_columns(rows, right=[2, 5])
    elif not json:
        click.echo("no lease is held" if not everything else "no lease is kept", err=True)
    click.get_current_context().exit(status)


def _check(table: Table) -> None:
    """Raise if `table` cannot be one of leases. `Table.check` might write: it marks the table."""
    known = table.describe()
    keys = known.schema.hash_key, known.schema.range_key
    if keys != (LEASE_SCHEMA.hash_key, LEASE_SCHEMA.range_key):
        raise wrong_schema(known.url, found=known.schema, wanted=LEASE_SCHEMA)
    if known.format is not None and known.format > TABLE_FORMAT:
        raise format_too_new(known.url, known.format)
