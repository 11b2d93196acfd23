"""Repairs in partitions have the outcomes of repairs in one process, whatever happens to their tasks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.errors import CommitError, CorruptRecord, FormatTooNew
from commitlog.namespace import (
    LOST_AND_FOUND,
    PROBLEMS,
    Data,
    Finding,
    Namespace,
    RepairOutcome,
    RepairReport,
)
from commitlog.namespace.fsck.readers import LogReader
from commitlog.namespace.fsck.repair_order import in_order
from commitlog.namespace.model.keys import MAX_SHARDS
from commitlog.namespace.model.records import Directory, Entry, Garbage, Guard, record_of
from commitlog.namespace.partitioned import repair
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.tables.api import Item
from support.damage import (
    DAMAGES,
    KEYS,
    behind_the_log,
    change_data,
    cycle,
    entry,
    forget_directory,
    lose,
    object_twice,
    put,
    spoil,
    store_unnamed,
    take_place,
    without_log,
    wrong_record,
)
from support.restore import Dies, World, fill, world
from support.selection import examples

#: A damage of each kind that a namespace of one process needs several transactions to repair.
MANY: tuple[Callable[[World], object], ...] = (
    lambda at: lose(at, "empty/b/1"),
    lambda at: take_place(at, "empty/new"),
    behind_the_log,
    wrong_record,
    forget_directory,
    store_unnamed,
    cycle,
)


def engine(seed: int = 0) -> SerialEngine:
    """Return an engine of several partitions."""
    return SerialEngine(partitions=Random(seed).choice([1, 2, 5]))


def contents(at: World, known: set[str]) -> list[tuple[Any, ...]]:
    """Return all records, without the ids of changes and of new items, and without times."""
    return sorted((_comparable(item, known) for item in at.table.scan()), key=repr)


def _comparable(item: Item, known: set[str]) -> tuple[Any, ...]:
    try:
        record = record_of(item)
    except (ValueError, CorruptRecord, FormatTooNew):
        record = None
    if record is None:
        return "other", item["place"], item["name"]
    name = _known(str(record.key.range), known)
    # The shard of a new name depends on the name.
    place = _known(record.key.hash, known)
    place = place.rpartition("/")[0] if "new" in name else place
    match record:
        case Entry():
            id = record.id if record.id in known else "new"
            version = record.version if record.version < 1e6 else "now"
            parts = id, version, _content(record.data), record.shards, record.binding, record.attributes
            return "entry", place, name, *parts
        case Directory():
            return "directory", place, record.parent if record.parent in known else "new", record.name
        case Garbage():
            return "garbage", place, record.file, record.version, _content(record.data)
        case Guard():
            return "guard", place, record.shards
    return "tombstone", place, record.name, record.path


def _known(text: str, known: set[str]) -> str:
    """Return a text without new ids."""
    return re.sub("[0-9a-f]{32}", lambda found: found[0] if found[0] in known else "new", text)


def _content(data: Data | None) -> object:
    """Return the part that is the same in each store."""
    return None if data is None else (data.path, data.size, data.own)


def known_ids(at: World) -> set[str]:
    """Return the ids in the table and in the log."""
    found = {str(item["id"]) for item in at.table.scan() if "id" in item}
    with contextlib.suppress(CommitError):
        found |= LogReader.of(at.log).read().states.keys()
    return found


def outcomes(
    reports: Iterable[RepairReport], known: set[str]
) -> list[tuple[str, str, RepairOutcome, int]]:
    """Return the part that is the same in each process."""
    return [
        (each.finding.problem.name, _known(each.finding.path, known), each.outcome, each.writes)
        for each in reports
    ]


def damaged(*damages: Callable[[World], object], seed: int = 0, logged: bool = True) -> World:
    """Return a namespace with damages, and with the client that repairs it."""
    at = world(seed)
    fill(at.lake, at.clock)
    for damage in damages:
        damage(at)
    at.clock.advance(1)
    with_log = logged or at.table.get(KEYS.metadata) is None
    at.lake = at.client()[1] if with_log else without_log(at)
    return at


def compare(ats: tuple[World, World], seed: int, *, rounds: int, **how: Any) -> None:
    """Repair two equal namespaces, one of them in partitions; compare outcomes and records."""
    whole, divided = ats
    known = known_ids(whole)
    divided.engine = engine(seed)
    for number in range(rounds):
        found = [at.check(at.lake, objects=True, orphans=True, grace=0).findings for at in ats]
        for dry_run in (True, False):
            expected, actual = (
                outcomes(at.repair(at.lake, each, dry_run=dry_run, **how), known)
                for at, each in zip(ats, found, strict=True)
            )
            if number:  # new ids determine the order of findings, and the first of several paths
                expected, actual = (
                    sorted((kind, outcome.value, writes) for kind, _, outcome, writes in each)
                    for each in (expected, actual)
                )
            assert actual == expected
        assert contents(divided, known) == contents(whole, known)


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_repaired_alike(name: str) -> None:
    """The findings have the same outcomes in the same order, and the table has the same records."""
    damage = DAMAGES[name]

    def made() -> World:
        if damage.kind != "no-metadata":
            return damaged(damage.does, logged=damage.logged)
        return damaged(damage.does)

    compare((made(), made()), len(name), rounds=damage.rounds, only=damage.only)


@settings(max_examples=examples(8, 40))
@given(seed=st.integers(0, 2**32), logged=st.booleans())
def test_random_damages_are_repaired_alike(seed: int, logged: bool) -> None:
    """Several damages hide and change each other."""

    def made() -> World:
        random = Random(seed)
        damages = [lambda at: spoil(at, random) for _ in range(random.randrange(1, 8))]
        return damaged(*damages, seed=seed, logged=logged)

    compare((made(), made()), seed, rounds=5)


def until_clean(at: World) -> None:
    """Repair until nothing is left to do, once no change can be pending any more."""
    at.clock.advance(4000)
    for _ in range(6):
        found = at.check(at.lake, orphans=True, grace=0).findings
        if not found:
            break
        list(at.lake.maintenance.repair(found, dry_run=False, only=list(PROBLEMS)))
    assert not found


def bodies(at: World) -> dict[str, bytes]:
    """Return the content of each file by id."""
    return {
        found.entry.id: at.lake.read(found.path) for found in at.lake.walk() if not found.is_directory
    }


def repaired(at: World, findings: Iterable[Finding]) -> list[RepairReport]:
    """Repair findings of all kinds in partitions."""
    return at.repair(at.lake, findings, dry_run=False, only=list(PROBLEMS))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_repair_that_is_killed_is_repeated(after: bool) -> None:
    """The process dies before or after any change to the table; nothing is lost."""
    expected = bodies(damaged())
    for stop in range(100):
        at = damaged(*MANY)
        at.engine = engine(stop)
        wire, at.lake = at.client()
        found = at.check(at.lake, orphans=True, grace=0).findings
        changes = iter(range(stop))

        def step(what: str, perform: Callable[[], object]) -> None:
            dies = what == "transact" and next(changes, None) is None  # noqa: B023
            if after or not dies:
                perform()
            if dies:
                raise Dies

        wire.step = step
        try:
            repaired(at, found)
            break
        except Dies:
            wire.step = lambda what, perform: perform()
        repaired(at, found)
        until_clean(at)
        assert bodies(at).items() >= expected.items()
    assert stop > 5


def test_a_task_that_runs_twice_changes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second run has the outcome `CHANGED`, or finds nothing to repair."""
    whole, divided = damaged(*MANY), damaged(*MANY)
    known = known_ids(whole)
    for at in (whole, divided):
        found = at.check(at.lake, orphans=True, grace=0).findings
        at.engine = engine(1)
        once = repair._repair_shares

        def twice(*arguments: Any) -> Iterator[Any]:
            *options, shares = arguments
            work = list(shares)
            first = list(once(*options, iter(work)))  # noqa: B023
            again = list(once(*options, iter(work)))  # noqa: B023
            assert [each[0] for each in again] == [each[0] for each in first]
            changed = {
                outcome
                for (_, was, _), (_, outcome, _) in zip(first, again, strict=True)
                if was is RepairOutcome.DONE
            }
            assert changed <= {RepairOutcome.CHANGED}
            yield from first

        with monkeypatch.context() as patch:
            if at is divided:
                patch.setattr(repair, "_repair_shares", twice)
            repaired(at, found)
    assert contents(divided, known) == contents(whole, known)


def test_two_repairs_at_once_do_each_repair_once() -> None:
    """Whatever one has done, the other leaves."""
    expected = bodies(damaged())
    at = damaged(*MANY)
    known = known_ids(at)
    found = at.check(at.lake, orphans=True, grace=0).findings
    reports: list[RepairReport] = []

    def meanwhile() -> None:
        other = evolve(at, engine=engine(1))
        reports.extend(repaired(other, found))
        at.engine = engine(2)

    at.engine = evolve(engine(2), step=lambda: meanwhile() if not reports else None)
    reports.extend(repaired(at, found))
    done = [each.finding for each in reports if each.outcome is RepairOutcome.DONE]
    assert len(done) == len(set(map(repr, done)))
    until_clean(at)
    assert bodies(at).items() >= expected.items()
    alone = damaged(*MANY)
    repaired(alone, alone.check(alone.lake, orphans=True, grace=0).findings)
    until_clean(alone)
    assert contents(at, known) == contents(alone, known)


# -- groups --------------------------------------------------------------------------------------------


def groups(at: World) -> list[list[str]]:
    """Return the kinds of the findings in each group."""
    found = in_order(at.check(at.lake, grace=0, orphans=True).findings)
    return [[found[each].problem.name for each in group] for group in repair.groups_of(found)]


def test_repairs_of_different_files_are_independent() -> None:
    """Many files of one directory are repaired by many tasks."""
    at = damaged()
    for number in range(20):
        at.lake.write(f"many/{number}", b"1")
        lose(at, f"many/{number}")
    at.clock.advance(1)
    assert groups(at) == [["log-newer"]] * 20


def test_entries_that_take_each_others_place_are_one_group() -> None:
    """The repair of one of them moves the others."""
    at = damaged()
    for name in "abc":
        at.lake.make_directory(name)
    backup = list(at.table.scan())
    for source, target in [("a", "t"), ("b", "a"), ("c", "b"), ("t", "c")]:
        at.lake.rename(source, target)
    for item in list(at.table.scan()):
        at.table.delete(at.table.schema.key_of(item))
    at.table.put_all(backup)
    at.clock.advance(1)
    assert [len(group) for group in groups(at) if "log-newer" in group] == [3]


@pytest.mark.parametrize(
    ("damages", "kinds"),
    [
        ((lambda at: lose(at, "empty/b"),), ["log-newer", "orphan-directory"]),
        ((object_twice, lambda at: change_data(at, own=False)), ["record-differs", "object-shared"]),
    ],
)
def test_findings_of_one_item_are_one_group(
    damages: tuple[Callable[[World], object], ...], kinds: list[str]
) -> None:
    """This holds for ids, and for objects."""
    assert kinds in groups(damaged(*damages))


def test_the_contents_of_a_lost_directory_are_in_its_group() -> None:
    """Whether the directory is kept depends on them."""
    at = damaged(
        lambda at: put(
            at, evolve(entry(at, "empty/b/1"), key=evolve(entry(at, "empty/b/1").key, range=".."))
        ),
        lambda at: lose(at, "empty/b"),
        logged=False,
    )
    assert any({"orphan-directory", "bad-name"} <= set(group) for group in groups(at))


# -- lost+found ----------------------------------------------------------------------------------------


def test_lost_and_found_has_many_shards() -> None:
    """Many tasks add to it at once."""
    at = damaged(forget_directory, logged=False)
    repaired(at, at.check(at.lake, grace=0).findings)
    assert entry(at, LOST_AND_FOUND).shards.now == MAX_SHARDS


def test_an_existing_lost_and_found_keeps_its_shards() -> None:
    """It may have been made by an earlier version."""
    at = damaged(forget_directory, logged=False)
    at.lake.make_directory(LOST_AND_FOUND)
    found = at.check(at.lake, grace=0).findings
    assert RepairOutcome.DONE in {each.outcome for each in repaired(at, found)}
    assert entry(at, LOST_AND_FOUND).shards.now == 1
    assert len(list(at.lake.list(LOST_AND_FOUND))) == 1


def test_lost_and_found_is_made_once() -> None:
    """If another repair makes it first, that directory is used."""
    at = damaged(forget_directory, logged=False)
    found = at.check(at.lake, grace=0).findings
    wire, lake = at.client()
    lake = Namespace(wire, at.store, "lake", clock=at.clock, backoff=at.backoff, grace=0)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and not at.lake.exists(LOST_AND_FOUND):
            at.lake.make_directory(LOST_AND_FOUND)
        perform()

    wire.step = step
    done = {
        each.finding.problem.name: each.outcome for each in lake.maintenance.repair(found, dry_run=False)
    }
    assert done["unreachable-entry"] is RepairOutcome.DONE
    assert len(list(at.lake.list(LOST_AND_FOUND))) == 1
