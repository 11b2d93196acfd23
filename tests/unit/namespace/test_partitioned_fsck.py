"""A check in partitions has the same findings as a check in one process."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.errors import CommitError
from commitlog.namespace import FsckReport, Namespace
from commitlog.namespace.partitioned.dataset import SerialEngine
from support.damage import DAMAGES, KEYS, Damage, filled, spoil, without_log
from support.restore import Dies, History, World, act, fill, leave_pending, world
from support.selection import examples


def engine(seed: int, partitions: int | None = None) -> SerialEngine:
    """Return an engine that shuffles records."""
    random = Random(seed)
    return SerialEngine(partitions=partitions or random.randint(1, 16), shuffle=random.shuffle)


def checked(at: World, by: SerialEngine | None, lake: Namespace | None, **how: Any) -> FsckReport:
    """Check a namespace; return the report without what depends on the way."""
    at.engine = by
    return evolve(at.check(lake, grace=0, objects=True, **how), listed=0)


def compared(at: World, seed: int = 0, lake: Namespace | None = None, **how: Any) -> FsckReport:
    """Compare a check in partitions with one in this process; return its report."""
    expected = checked(at, None, lake, **how)
    assert checked(at, engine(seed), lake, **how) == expected
    return expected


def damaged(damage: Damage) -> tuple[World, Namespace | None]:
    """Return a namespace with a damage, and a client without a log if there is none."""
    at = world()
    if damage.kind != "no-metadata":
        fill(at.lake, at.clock)
    lake = None if damage.logged else without_log(at)
    damage.does(at)
    return at, lake


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_alike(name: str) -> None:
    """The findings have the same records, paths and details."""
    at, lake = damaged(DAMAGES[name])
    for seed in range(2):
        report = compared(at, seed, lake, orphans=True)
    assert DAMAGES[name].kind in report.counts


@settings(max_examples=examples(15, 60))
@given(seed=st.integers(0, 2**32))
def test_random_damages_are_found_alike(seed: int) -> None:
    """Several damages hide and change each other; with and without a log."""
    random = Random(seed)
    at = world(seed)
    fill(at.lake, at.clock)
    leave_pending(at, lambda lake: lake.write("left", b"1"))
    for _ in range(random.randrange(1, 6)):
        spoil(at, random)
    compared(at, seed)
    if at.table.get(KEYS.metadata) is not None:
        compared(at, seed, without_log(at))


def test_a_sound_namespace_is_clean() -> None:
    """The numbers are the same, too."""
    at = filled()
    Namespace(at.table, at.store, "other", clock=at.clock).create()
    report = compared(at)
    assert report.is_clean and report.entries and report.objects and report.states


@pytest.mark.parametrize("max_age", [0.0, 60.0, None])
def test_bound_directories_are_checked_alike(max_age: float | None) -> None:
    """Whether a file is looked up depends on its directory."""
    at = filled()
    for name in "abc":
        at.store.put(f"raw/{name}", b"1")
    at.lake.bindings.bind("raw/", "in", max_age=max_age)
    at.lake.bindings.sync("in")
    at.lake.rename("in/c", "c")
    at.clock.advance(100)
    at.store.put("raw/a", b"22")
    at.store.delete("raw/b")
    at.store.put("raw/c", b"22")
    assert len(compared(at).findings) == (1 if max_age is not None else 3)


@pytest.mark.all
def test_a_check_can_be_killed_before_any_task() -> None:
    """It changes nothing, so the next one has the same findings."""
    at, _ = damaged(DAMAGES["an entry is gone"])
    expected = checked(at, None, None)
    for stop in range(1000):
        calls = iter(range(stop))

        def step() -> None:
            if next(calls, None) is None:  # noqa: B023
                raise Dies

        try:
            assert checked(at, evolve(engine(0), step=step), None) == expected
            break
        except Dies:
            pass
    assert stop > 10


@settings(max_examples=examples(2, 10))
@given(seed=st.integers(0, 2**32))
def test_changes_during_a_check_are_no_findings(seed: int) -> None:
    """Other clients change the namespace before each task, and compact its log."""
    history = History(seed)
    history.go_on(15)
    history.recover()
    at, random = history.at, Random(seed)
    compactions = iter(range(2))

    def step() -> None:
        for _ in range(random.randrange(3)):
            act_safely(random, at.lake)
        if random.random() < 0.1 and next(compactions, None) is not None:
            at.clock.advance(100_000)
            at.lake.maintenance.compact_log()

    at.engine = evolve(engine(seed), step=step)
    assert at.check(grace=0, objects=True, pending=1e9).is_clean


def act_safely(random: Random, lake: Namespace) -> None:
    """Perform a random operation, which may be refused."""
    with contextlib.suppress(CommitError):
        act(random, lake)
