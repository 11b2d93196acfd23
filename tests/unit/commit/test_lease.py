"""Breaking a lease: it waits as long as a waiter of the protocol does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

import commitlog
from commitlog._util.retry import Backoff
from commitlog.commit import LeaseSettings, SqliteCommit
from commitlog.commit.lease import HeldLease, break_lease
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.errors import CorruptRecord, LeaseTimeout, OutcomeUnknown, Unavailable
from commitlog.tables.api import ConditionFailed, Table
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.commit import Delayed, World, after, lost_after, lost_before, raising

#: Records have a timeout of 5 s, so they may be taken over after 15 s.
SETTINGS = LeaseSettings(max_clock_skew_rate=3, test_interval=1)


@pytest.fixture
def world() -> World:
    """A table in memory with scripted failures, and a manual clock."""
    return World()


def held(world: World) -> HeldLease:
    """Return the lease on the object "a" as read now."""
    return HeldLease(record=world.record(), since=world.clock.monotonic())


def broken(world: World, lease: HeldLease, settings: LeaseSettings = SETTINGS) -> bool:
    """Break the lease."""
    return break_lease(
        world.table,
        lease,
        clock=world.clock,
        backoff=Backoff(base=0.01, tries=3),
        settings=settings,
        owner="breaker",
    )


def test_an_abandoned_lease_is_released_after_its_timeout_times_the_skew_rate(world: World) -> None:
    """The record stays, with the next generation, and the next writer does not wait."""
    planted = world.plant(generation=7)
    assert broken(world, held(world))
    assert world.clock.monotonic() == pytest.approx(15)
    record = world.record()
    assert (record.released, record.generation, record.owner) == (True, 8, "breaker")
    assert record.ttl >= planted.ttl
    assert world.client.put_if_absent("a", b"next").path == "a"
    assert world.clock.monotonic() == pytest.approx(15, abs=0.1)


def test_nothing_is_written_before_the_lease_has_expired(world: World) -> None:
    """The record is unchanged until the end of the wait."""
    planted = world.plant()
    world.clock.at(14.9, lambda: seen.append(world.record()))
    seen: list[LeaseRecord] = []
    assert broken(world, held(world))
    assert seen == [planted]
    assert len(world.script.sent("take")) == 1


def test_the_wait_counts_from_when_the_lease_was_received(world: World) -> None:
    """Leases that were received together have expired together."""
    world.plant()
    lease = held(world)
    world.clock.advance(20)
    assert broken(world, lease)
    assert world.clock.monotonic() == 20


def test_a_renewal_restarts_the_wait(world: World) -> None:
    """A live holder keeps its lease for another timeout."""
    planted = world.plant()
    world.clock.at(10, lambda: world.replant(planted, generation=1))
    assert broken(world, held(world))
    assert 25 <= world.clock.monotonic() <= 26
    assert world.record().generation == 2


def test_a_renewal_in_the_last_moment_restarts_the_wait(world: World) -> None:
    """The release is conditional on the record that was read."""
    planted = world.plant()
    world.script.next("take", after(lambda: world.replant(planted, generation=1)))
    assert broken(world, held(world))
    assert world.clock.monotonic() == pytest.approx(30)


@pytest.mark.parametrize("tells", [True, False])
def test_a_lease_that_its_holder_releases_is_unchanged(tells: bool) -> None:
    """The breaker sees the release during the wait, or its own write conflicts with it."""
    for moment in (5, 15):
        world = World(returns_old_item=tells)
        planted = world.plant()
        world.clock.at(moment, lambda: world.replant(planted, generation=1, timeout=0))  # noqa: B023
        assert not broken(world, held(world))
        assert world.record().owner == "stranger"


def test_a_lease_that_another_client_took_over_is_unchanged(world: World) -> None:
    """The lease to break has ended, and the new holder is not waited for."""
    planted = world.plant()
    world.clock.at(5, lambda: world.replant(planted, generation=1, owner="other"))
    assert not broken(world, held(world))
    assert world.clock.monotonic() <= 6
    assert world.record().owner == "other"


def test_a_record_that_the_table_drops_is_not_replaced(world: World) -> None:
    """No record is created in its place."""
    world.plant()
    world.clock.at(5, world.sweep)
    assert not broken(world, held(world))
    assert list(world.items.scan()) == []


def test_a_released_or_missing_record_needs_no_request(world: World) -> None:
    """No request is sent."""
    world.plant(timeout=0)
    assert not broken(world, held(world))
    assert not broken(world, HeldLease(record=None, since=0))
    assert world.script.log == []


def test_a_holder_without_an_owner_may_be_alive(world: World) -> None:
    """A change by a client of object_store may be a renewal, so the wait is restarted."""
    planted = world.plant(owner=None)
    world.clock.at(10, lambda: world.replant(planted, generation=1))
    assert broken(world, held(world))
    assert world.clock.monotonic() >= 25


def test_the_released_record_outlives_waiters_that_know_the_old_one(world: World) -> None:
    """The wait for a holder with a long timeout may exceed the usual TTL."""
    world.plant(timeout=7_200_000)
    lease = held(world)
    world.clock.advance(3 * 7200)
    assert broken(world, lease)
    assert world.record().ttl >= world.clock.epoch() + 2 * 3 * 7200 - 1


def test_breaking_ends_after_max_wait(world: World) -> None:
    """The error says how long the holder may still write. The record is unchanged."""
    planted = world.plant()
    with pytest.raises(LeaseTimeout, match=r"'a' may write for another 8\.0 s"):
        broken(world, held(world), evolve(SETTINGS, max_wait=7))
    assert world.record() == planted


def test_waiting_is_reported_with_the_remaining_seconds(world: World) -> None:
    """The last pause is not longer than the remaining wait."""
    world.plant(timeout=700)
    left: list[float] = []
    assert break_lease(
        world.table,
        held(world),
        clock=world.clock,
        backoff=Backoff(),
        settings=SETTINGS,
        owner="breaker",
        waiting=left.append,
    )
    assert left == pytest.approx([2.1, 1.1, 0.1])


# -- lost responses -------------------------------------------------------------------------------------


def test_a_release_whose_response_is_lost_is_recognised(world: World) -> None:
    """The record has the owner of this call."""
    world.plant()
    world.script.next("take", lost_after)
    assert broken(world, held(world))
    assert world.record().generation == 1


def test_a_release_that_is_lost_is_sent_again(world: World) -> None:
    """The record is read back and is unchanged."""
    world.plant()
    world.script.next("take", lost_before)
    assert broken(world, held(world))
    assert world.record().released


@pytest.mark.parametrize("tells", [True, False])
def test_a_late_release_conflicts_with_the_next(tells: bool) -> None:
    """The second request fails because the first one was applied."""
    world = World(returns_old_item=tells)
    world.plant()
    late = Delayed()
    world.script.next("take", late, after(late.arrive))
    assert broken(world, held(world))
    assert world.record().generation == 1


@pytest.mark.parametrize("then", [lost_before, raising(Unavailable("down"))])
def test_a_release_that_may_have_been_applied_is_unknown(world: World, then: object) -> None:
    """Every request was lost, or a later one could not be sent."""
    world.plant()
    world.script.next("take", lost_before, then, then)  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown, match="released or not"):
        broken(world, held(world))


def test_a_release_that_cannot_be_read_back_is_unknown(world: World) -> None:
    """The request may have been applied."""
    world.plant(timeout=100)
    lease = held(world)
    world.clock.advance(1)
    world.script.next("take", lost_after)
    world.script.next("read", raising(Unavailable("down")))
    with pytest.raises(OutcomeUnknown, match="released or not"):
        broken(world, lease)


def test_an_unavailable_table_leaves_the_lease_unchanged(world: World) -> None:
    """The table's own error is raised: no request was sent, or it had no effect."""
    planted = world.plant()
    world.script.next("read", raising(Unavailable("down")))
    with pytest.raises(Unavailable, match="down"):
        broken(world, held(world))
    world.script.next("take", raising(Unavailable("down")))
    with pytest.raises(Unavailable, match="down"):
        broken(world, held(world))
    world.script.next("take", raising(ConditionFailed("changed", item={"path": "a"}, item_known=True)))
    with pytest.raises(CorruptRecord):
        broken(world, held(world))
    assert world.record() == planted


# -- a real table --------------------------------------------------------------------------------------


@pytest.fixture
def leases(tmp_path: Path) -> Iterator[Table]:
    """A table of leases in an SQLite file."""
    table = open_table(f"sqlite://{tmp_path}/leases.db", LEASE_SCHEMA)
    table.create()
    yield table
    table.close()


def test_the_next_writer_of_a_local_store_does_not_wait(tmp_path: Path, leases: Table) -> None:
    """Before the break it fails at once, and afterwards it writes at once."""
    clock = ManualClock()
    settings = SqliteCommit(f"{tmp_path}/leases.db", max_wait=0)
    with commitlog.connect(str(tmp_path / "lake"), commit=settings) as store:
        record = LeaseRecord(
            path=store.key("a"),
            etag="*",
            generation=0,
            timeout=20_000,
            ttl=int(clock.epoch()) + 3600,
            owner="dead",
        )
        leases.put(record.to_item())
        with pytest.raises(LeaseTimeout):
            store.put_if_absent("a", b"")
        lease = HeldLease(record=record, since=clock.monotonic())
        assert break_lease(
            leases, lease, clock=clock, backoff=Backoff(), settings=LeaseSettings(), owner="breaker"
        )
        assert clock.monotonic() == pytest.approx(60)
        assert store.put_if_absent("a", b"").path == "a"
