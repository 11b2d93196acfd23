"""The lock for ``commit_lock=``, on a clock that the tests set."""

from __future__ import annotations

import pytest

from commitlog._util.background import Foreground
from commitlog.errors import LeaseTimeout, OutcomeUnknown
from commitlog.lance import CommitLock, commit_lock
from commitlog.locks import LOCK_SCHEMA, LockSettings
from commitlog.tables import MemoryTable, Table
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url

SETTINGS = LockSettings(timeout=10, test_interval=1)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of all holders."""
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> Table:
    """A table of leases."""
    table = MemoryTable(parse_table_url("memory://"), LOCK_SCHEMA, clock=clock)
    table.create()
    return table


def lock(table: Table, clock: ManualClock, *, max_wait: float | None = None) -> CommitLock:
    """Return a holder's lock on the table ``t``, which sends no heartbeats."""
    return CommitLock(
        table, "t", settings=SETTINGS, max_wait=max_wait, clock=clock, background=Foreground()
    )


def test_one_holder_after_the_other(table: Table, clock: ManualClock) -> None:
    """A released lock is taken at once."""
    for version in (1, 2):
        with lock(table, clock)(version):
            pass
    assert clock.monotonic() == ManualClock().monotonic()


def test_another_holder_waits(table: Table, clock: ManualClock) -> None:
    """It gives up at its limit, and has nothing then."""
    with (
        lock(table, clock)(1),
        pytest.raises(LeaseTimeout, match="nothing was written"),
        lock(table, clock, max_wait=3)(1),
    ):
        raise AssertionError
    with lock(table, clock)(2):
        pass


def test_a_dead_holder_is_outwaited(table: Table, clock: ManualClock) -> None:
    """After its timeout on any clock, three times the timeout here."""
    began = clock.monotonic()
    dead = lock(table, clock)(1)
    dead.__enter__()
    with lock(table, clock)(1):
        assert clock.monotonic() - began >= 30
    del dead


def test_a_holder_whose_lease_is_over_is_told(table: Table, clock: ManualClock) -> None:
    """Its version may be overwritten, so the commit is not a success."""
    with pytest.raises(OutcomeUnknown, match="version 7"), lock(table, clock)(7):
        clock.sleep(11)


def test_the_error_of_the_block_comes_through(table: Table, clock: ManualClock) -> None:
    """The lock is released then, too."""
    with pytest.raises(KeyError), lock(table, clock)(7):
        raise KeyError
    with lock(table, clock, max_wait=0)(8):
        pass


def test_it_opens_by_the_url_of_a_table() -> None:
    """The name is shown; the table is made on first use."""
    opened = commit_lock("s3://bucket/t.lance", table="memory://locks")
    assert repr(opened) == "CommitLock('s3://bucket/t.lance')"
    with opened(1):
        pass
    opened.close()
