"""Every kind of damage is found by fsck and repaired, without a loss of logged data."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.errors import CommitError
from commitlog.namespace import LOST_AND_FOUND, PROBLEMS, Namespace, RepairOutcome
from commitlog.namespace.fsck.readers import LogReader
from commitlog.namespace.model.keys import ROOT
from commitlog.namespace.model.records import Entry
from commitlog.namespace.partitioned.dataset import SerialEngine
from support.damage import DAMAGES, KEYS, filled, spoil, without_log
from support.namespace import Auditor
from support.restore import World
from support.selection import examples


def objects(at: World) -> dict[str, bytes]:
    """Return the contents of all objects in the store, by path."""
    return {info.path: at.store.get(info.path).data for info in at.store.list()}


def contents(at: World, objects: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the content of each file below the root, according to the log, by id."""
    states = LogReader.of(at.log).read().states
    entries = {id: Entry.from_item(state.item) for id, state in states.items() if state.item is not None}

    def is_below(entry: Entry) -> bool:
        for _ in entries:
            if entry.parent == ROOT:
                return True
            if entry.parent not in entries:
                break
            entry = entries[entry.parent]
        return False

    return {
        id: objects[entry.data.path]
        for id, entry in entries.items()
        if entry.data is not None and entry.data.own and is_below(entry)
    }


def read_all(at: World, lake: Namespace) -> dict[str, bytes]:
    """Return the content of each reachable file by id; a copy in ``lost+found`` takes precedence."""
    found: dict[str, bytes] = {}
    saved: dict[str, bytes] = {}
    for status in lake.walk():
        if not status.is_directory:
            try:
                found[status.entry.id] = lake.read(status.path)
            except CommitError:
                continue
            if status.path.startswith(LOST_AND_FOUND) and "-" in status.entry.name:
                saved[status.entry.name.partition("-")[0]] = found[status.entry.id]
    return {**found, **saved}


@pytest.mark.parametrize("engine", [None, SerialEngine(partitions=2)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_repaired_without_loss(name: str, engine: SerialEngine | None) -> None:
    """fsck names the damage, repair ends, and everything in the log exists afterwards.

    After the repairs only the irreparable damage is left. The namespace can be restored as it is, and
    collecting garbage removes nothing that is needed.
    """
    damage, at = DAMAGES[name], filled()
    at.engine = engine
    there = objects(at)
    before = contents(at, there)
    damage.does(at)
    with contextlib.suppress(CommitError):
        before = contents(at, {**objects(at), **there}) or before
    at.clock.advance(1)
    lake = at.client()[1] if damage.logged else without_log(at)
    found = at.check(lake, objects=True, orphans=True)
    assert damage.kind in found.counts
    assert found.counts.keys() <= {damage.kind, *damage.others, *damage.left}
    records = list(at.table.scan())
    planned = at.repair(lake, found.findings, only=damage.only)
    assert list(at.table.scan()) == records, "a plan has changed something"
    assert all(each.outcome in (RepairOutcome.PLANNED, RepairOutcome.LEFT) for each in planned)
    for _ in range(damage.rounds):
        at.repair(lake, found.findings, dry_run=False, only=damage.only)
        found = at.check(lake, objects=True, orphans=True)
    assert found.counts.keys() == damage.left
    assert sum(1 for _ in lake.list(LOST_AND_FOUND)) == damage.moved if damage.moved else True
    if not damage.left:
        Auditor(at.table, "lake", at.store).audit()
        lake.maintenance.empty_trash()
        at.clock.advance(1)
        lake.maintenance.gc()
    after = read_all(at, lake)
    assert sum(after.get(id) != body for id, body in before.items()) == damage.lost
    if not damage.left and damage.logged:
        table = at.lost()
        at.restorer(table).restore()
        assert at.entries(table) == at.entries(at.table)
        assert table.get(KEYS.metadata) is not None


@settings(max_examples=examples(8, 25))
@given(seed=st.integers(0, 2**32))
def test_random_damage_loses_nothing_that_the_log_has(seed: int) -> None:
    """Several records are damaged; repairs end, and the namespace can be restored as it is then."""
    random, at = Random(seed), filled(seed)
    before = contents(at, objects(at))
    for _ in range(random.randrange(1, 6)):
        spoil(at, random)
    at.clock.advance(1)
    lake = at.client()[1]
    for _ in range(8):
        found = lake.maintenance.fsck(objects=True, grace=0).findings
        if not found:
            break
        list(lake.maintenance.repair(found, dry_run=False))
    assert not found
    lake.maintenance.empty_trash()
    at.clock.advance(1)
    lake.maintenance.gc()
    after = read_all(at, lake)
    assert {id: after.get(id) for id in before} == before
    table = at.lost()
    at.restorer(table).restore()
    assert at.entries(table) == at.entries(at.table)


def test_every_kind_of_problem_has_a_damage() -> None:
    """So a test finds and repairs each kind."""
    assert {damage.kind for damage in DAMAGES.values()} == PROBLEMS.keys()
