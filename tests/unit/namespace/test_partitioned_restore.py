"""A restore in partitions writes the same records as a restore in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.errors import AlreadyExists, CommitError, Conflict, Fenced, NotFound
from commitlog.namespace import Namespace, RestoreReport
from commitlog.namespace.model.keys import NAMESPACES, shards_of
from commitlog.namespace.partitioned.cycles import edges_of_cycles
from commitlog.namespace.partitioned.dataset import SerialDataset, SerialEngine
from commitlog.oplog import Decision
from commitlog.tables.api import Item
from support.namespace import ServiceTable
from support.restore import LAKE, Dies, History, World, fill, leave_pending, world
from support.selection import examples


def engine(seed: int, partitions: int | None = None) -> SerialEngine:
    """Return an engine that shuffles records."""
    random = Random(seed)
    return SerialEngine(partitions=partitions or random.choice([1, 2, 3, 7]), shuffle=random.shuffle)


def rows(table: ServiceTable) -> list[Item]:
    """Return all records of the namespace, sorted, without the metadata record."""
    found = [item for item in table.scan() if item["place"] != NAMESPACES]
    return sorted(found, key=lambda item: (str(item["place"]), str(item["name"])))


def restored(at: World, by: SerialEngine | None, **how: Any) -> tuple[list[Item], RestoreReport]:
    """Restore a read-only copy; return its records, and the report without what depends on the way."""
    at.engine = by
    table = at.lost()
    done = at.restorer(table).restore(read_only=True, **how)
    lost = sorted(done.lost, key=lambda each: (each.path, each.object))
    return rows(table), evolve(done, operations=0, lost=tuple(lost))


def compared(at: World, seed: int = 0, **how: Any) -> RestoreReport:
    """Compare a restore in partitions with a whole one; return the report."""
    expected = restored(at, None, **how)
    assert restored(at, engine(seed), **how) == expected
    return expected[1]


@settings(max_examples=examples(12, 40))
@given(seed=st.integers(0, 2**32))
def test_random_histories_are_restored_alike(seed: int) -> None:
    """Some of their changes are pending, and part of the log is compacted."""
    history = History(seed)
    history.go_on(25)
    if seed % 2:
        history.at.clock.advance(100_000)
        history.at.lake.maintenance.recover()
        history.at.lake.maintenance.compact_log()
        history.go_on(15)
    decision = history.random.choice(list(Decision))
    compared(history.at, seed, decide=lambda operation: decision)


@settings(max_examples=examples(12, 40))
@given(seed=st.integers(0, 2**32))
def test_two_histories_in_one_log_are_restored_alike(seed: int) -> None:
    """The same entries come into lost+found, and the same garbage is left out."""
    history = History(seed)
    history.go_on(15)
    history.recover()
    table = history.at.lost()
    for item in history.at.table.scan():
        table.put(item)
    first = history.at.table
    for _ in range(3):
        for one in (first, table):
            history.at.table = one
            history.clients = [history.at.client() for _ in range(2)]
            history.go_on(6)
    history.at.table = first
    compared(history.at, seed, decide=lambda operation: Decision.ROLLED_BACK)


@settings(max_examples=examples(12, 40))
@given(seed=st.integers(0, 2**32))
def test_the_rest_of_a_damaged_log_is_restored_alike(seed: int) -> None:
    """Entries and parts of the checkpoint are cut or removed."""
    history = History(seed)
    history.go_on(15)
    history.recover()
    if seed % 2:
        history.at.clock.advance(100_000)
        history.at.lake.maintenance.compact_log()
        history.go_on(10)
    paths = [info.path for info in history.at.store.list("log/")]
    for path in history.random.sample(paths, min(3, len(paths))):
        if "/checkpoint-parts/" in path and history.random.random() < 0.5:
            history.at.store.delete(path)
        else:
            history.at.store.put(path, b"{")
    try:
        expected = restored(history.at, None, salvage=True)
    except NotFound:
        with pytest.raises(NotFound):
            restored(history.at, engine(seed), salvage=True)
        return
    assert restored(history.at, engine(seed), salvage=True) == expected


@pytest.mark.parametrize("partitions", [1, 2, 5, 16])
def test_the_number_of_partitions_makes_no_difference(partitions: int) -> None:
    """Tombstones, garbage, lost files and files of others are among the records."""
    at = world()
    fill(at.lake, at.clock)
    for name in ("a", "b", "c/d"):
        at.store.put(f"theirs/{name}", b"1")
    at.lake.bindings.bind("theirs/", "bound")
    at.lake.delete("bound/a")
    at.lake.delete("bound/c", recursive=True)
    at.clock.advance(100_000)
    at.lake.maintenance.compact_log()
    at.lake.write("late", b"1")
    data = at.lake.stat("late").data
    assert data is not None
    at.store.delete(data.path)
    expected = restored(at, None)
    assert restored(at, engine(1, partitions)) == expected
    assert [each.path for each in expected[1].lost] == ["late"]


def test_pending_moves_are_decided_alike() -> None:
    """The outcome of a move follows from directories above, which the tasks look up."""
    at = world()
    at.lake.make_directory("a/b/c/d")
    at.lake.make_directory("x")
    leave_pending(at, lambda lake: lake.rename("a/b", "x/b"))
    at.lake.rename("a", "x/b/c/a")
    done = compared(at)
    assert [each.decision for each in done.decided] == [Decision.COMMITTED]


def test_pending_growth_is_decided_alike() -> None:
    """One task sees an entry in a new shard, which proves the growth; the next, one in the old shard."""
    at = world()
    at.lake.make_directory("d")
    leave_pending(at, lambda lake: lake.reshard("d", shards=64))
    by_shard = {shards_of(str(number), 64, 1)[0]: str(number) for number in range(1000)}
    for shard in (63, 0):
        at.clock.advance(60)
        at.lake.write(f"d/{by_shard[shard]}", b"1")
    for seed in range(3):
        done = compared(at, seed)
        assert [each.decision for each in done.decided] == [Decision.COMMITTED]


def stops(stop: int) -> Callable[[], object]:
    """Return a step of an engine that dies at the call number `stop`."""
    calls = iter(range(stop))

    def step() -> None:
        if next(calls, None) is None:
            raise Dies

    return step


def test_a_restore_can_be_killed_before_any_task() -> None:
    """No client finds the namespace until the end, and a repeated restore writes the same records."""
    at = world()
    fill(at.lake, at.clock)
    expected, _ = restored(at, None)
    for stop in range(1000):
        table = at.lost()
        at.engine = evolve(engine(0, 2), step=stops(stop))
        try:
            at.restorer(table).restore()
            break
        except Dies:
            pass
        with pytest.raises(NotFound):
            Namespace(table, at.store, LAKE, clock=at.clock).stat("")
        with pytest.raises(AlreadyExists, match="restore it"):
            Namespace(table, at.store, LAKE, clock=at.clock, log=at.log).create()
        at.engine = engine(stop)
        at.restorer(table).restore()
        assert rows(table) == expected
    assert stop > 10
    assert rows(table) == expected


def test_tasks_can_run_again() -> None:
    """A task whose results are lost writes the same once more."""
    at = world()
    fill(at.lake, at.clock)
    expected, _ = restored(at, None)
    at.engine = SerialEngine(partitions=2, shuffle=Random(0).shuffle, keeps=False)
    table = at.lost()
    done = at.restorer(table).restore()
    assert rows(table) == expected
    assert done.files == 5


def late_attempts(random: Random) -> Callable[..., Any]:
    """Return `SerialDataset.map` in which earlier tasks run once more before a task.

    A scheduler that has taken a process for dead runs its task elsewhere, and that process may go on.
    """
    real = SerialDataset.map
    tasks: list[Callable[[], object]] = []

    def with_late_attempts(self: Any, call: Callable[..., Any]) -> Any:
        def again(records: Iterator[Any]) -> Any:
            given = list(records)
            for task in random.sample(tasks, min(3, len(tasks))):
                with suppress(CommitError):
                    task()
            tasks.append(lambda: list(call(iter(given))))
            return call(iter(given))

        return real(self, again)

    return with_late_attempts


@pytest.mark.parametrize("seed", range(5))
def test_late_attempts_at_tasks_change_nothing(seed: int) -> None:
    """Those that remove old records have no effect once new ones are written."""
    at = world()
    fill(at.lake, at.clock)
    expected, _ = restored(at, None)
    table = at.lost()
    for item in at.table.scan():
        table.put(item)
    at.engine = engine(seed, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SerialDataset, "map", late_attempts(Random(seed)))
        at.restorer(table).restore(replace=True)
    assert rows(table) == expected


@given(
    parents=st.dictionaries(
        st.sampled_from("abcdefghijkl"), st.sampled_from("abcdefghijklr"), max_size=12
    ),
    seed=st.integers(0, 100),
)
def test_cycles_are_found(parents: dict[str, str], seed: int) -> None:
    """They are the directories from which some path leads back to them."""

    def is_in_cycle(id: str) -> bool:
        above = parents.get(id)
        for _ in parents:
            if above == id:
                return True
            above = None if above is None else parents.get(above)
        return False

    by = engine(seed)
    edges = by.distribute([tuple(parents.items())]).map(lambda groups: (e for g in groups for e in g))
    assert edges_of_cycles(edges) == {id: parents[id] for id in parents if is_in_cycle(id)}


@settings(max_examples=examples(8, 25))
@given(seed=st.integers(0, 2**32))
def test_no_acknowledged_change_is_lost(seed: int) -> None:
    """Clients write until the restore has fenced their table; before that, they compact the log, too."""
    at, random = world(seed), Random(seed)
    written: list[str] = []
    fenced: list[str] = []

    def step() -> None:
        path = f"d{random.randrange(3)}/f{len(written) + len(fenced)}"
        try:
            at.lake.write(path, path.encode())
            written.append(path)
            if random.random() < 0.1:
                at.clock.advance(100_000)
                at.lake.maintenance.compact_log()
        except Fenced:
            fenced.append(path)

    for _ in range(5):
        step()
    writes_until = random.randrange(60)
    calls = iter(range(writes_until))
    at.engine = evolve(engine(seed), step=lambda: next(calls, None) is not None and step())
    table = at.lost()
    for _ in range(5):
        try:
            at.restorer(table).restore()
            break
        except (Conflict, NotFound):  # the log was changed all the time, or compacted meanwhile
            continue
    lake = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
    assert [lake.read(path) for path in written] == [path.encode() for path in written]
    assert not any(map(lake.exists, fenced))
    at.table, at.engine = table, None
    assert lake.maintenance.fsck(grace=0, objects=True).is_clean
