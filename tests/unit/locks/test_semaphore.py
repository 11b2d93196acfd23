"""Semaphores: a number of holders at a time."""

from __future__ import annotations

from typing import Any

import pytest

from commitlog._util.background import Foreground
from commitlog.commit import ConditionalStore
from commitlog.errors import ConfigurationError, LockLost, LockNotHeld
from commitlog.locks import LockSettings, Semaphore
from commitlog.stores import MemoryStore
from commitlog.testing import ManualClock


def _make(store: ConditionalStore, clock: ManualClock, **options: Any) -> Semaphore:
    settings = LockSettings(timeout=10, margin=2)
    options = {"permits": 2, "settings": settings, "background": Foreground(), **options}
    return Semaphore(store, "loads", clock=clock, **options)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of all clients."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ConditionalStore:
    """The store of the semaphore."""
    return ConditionalStore(MemoryStore(clock=clock), clock=clock)


def test_as_many_clients_as_permits_hold_one(store: ConditionalStore, clock: ManualClock) -> None:
    """The next one waits for a release, and gets that permit with a larger token."""
    first, second, third = (_make(store, clock, holder=name) for name in ("one", "two", "three"))
    assert first.acquire() and second.acquire(blocking=False)
    assert not third.acquire(blocking=False) and not third.acquire(timeout=3)
    assert [(each.slot, each.description) for each in third.holders()] == [(0, "one"), (1, "two")]
    token, slot = second.token, second.slot
    second.release()
    with third:
        assert (third.slot, third.held) == (slot, True)
        assert third.token > token


def test_the_permit_of_a_dead_holder_comes_back(store: ConditionalStore, clock: ManualClock) -> None:
    """The one that is renewed does not."""
    first, second, third = (_make(store, clock) for _ in range(3))
    first.acquire()
    second.acquire()
    for _ in range(5):
        assert not third.acquire(timeout=5)
        assert second.renew()
    assert third.acquire(timeout=5)
    assert third.slot == 0
    assert not first.held and second.held
    with pytest.raises(LockLost):
        first.check()
    with pytest.raises(LockLost):
        first.acquire()
    with pytest.raises(LockLost):
        first.release()
    assert third.held and third.expires > clock.monotonic()


def test_breaking_frees_the_permit_of_one_holder(store: ConditionalStore, clock: ManualClock) -> None:
    """Its token names it."""
    first, second, third = (_make(store, clock) for _ in range(3))
    first.acquire()
    clock.advance(1)
    second.acquire()
    assert third.break_holder(second.token, wait=False)
    assert third.acquire(blocking=False)
    assert not second.renew() and first.renew()


def test_breaking_one_of_two_holders_with_the_same_token_takes_its_slot(
    store: ConditionalStore, clock: ManualClock
) -> None:
    """Tokens are counted for each permit, so those of two permits may be equal."""
    first, second, third = (_make(store, clock) for _ in range(3))
    first.acquire()
    second.acquire()
    assert first.token == second.token
    with pytest.raises(ConfigurationError, match=r"permits 0, 1 of 'loads' .* give its slot"):
        third.break_holder(second.token, wait=False)
    assert first.renew() and second.renew()
    assert not third.break_holder(second.token + 1, slot=1, wait=False)
    assert third.break_holder(second.token, slot=1, wait=False)
    assert first.renew() and not second.renew()
    assert third.break_holder(first.token, wait=False)  # no other holder has it now
    with pytest.raises(ConfigurationError, match="slot is 2; it must be from 0 to 1"):
        third.break_holder(1, slot=2)


def test_wrong_use_is_refused(store: ConditionalStore, clock: ManualClock) -> None:
    """One object has one permit."""
    for permits in (0, 1001):
        with pytest.raises(ConfigurationError, match="1 to 1000"):
            _make(store, clock, permits=permits)
    semaphore = _make(store, clock)
    with pytest.raises(LockNotHeld):
        semaphore.release()
    with pytest.raises(ValueError, match="non-blocking"):
        semaphore.acquire(blocking=False, timeout=1)
    with semaphore, pytest.raises(RuntimeError, match="another one for each permit"):
        semaphore.acquire()
    with pytest.raises(LockLost), semaphore:
        clock.advance(20)
