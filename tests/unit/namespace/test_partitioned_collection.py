"""A garbage collection in partitions removes the same objects as one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, Unavailable
from commitlog.namespace import GcReport, Restorer, StepProgress, TrashReport
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.partitioned.collection import PartitionedCollection, PartitionedTrash
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.namespace.partitioned.journal import Journal, OpenJournal, no_journal
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.namespace.write.content import is_own
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Key
from support.namespace import stored
from support.restore import LAKE, Dies, History, World, act, leave_pending, world
from support.selection import examples


def engine(seed: int = 0, step: Callable[[], object] = lambda: None) -> SerialEngine:
    """Return an engine that shuffles records."""
    random = Random(seed)
    return SerialEngine(partitions=random.choice([1, 2, 5]), shuffle=random.shuffle, step=step)


def collected(at: World, by: SerialEngine, journal: OpenJournal = no_journal, **how: Any) -> GcReport:
    """Remove garbage in partitions."""
    access = Restorer(table=at.table, store=at.store, log=at.log, name=LAKE)
    work = PartitionedCollection(
        engine=by,
        open_namespace=lambda: nullcontext(at.lake),
        open_journal=journal,
        open_references=partial(PartitionedSurveyor.of, by, lambda: nullcontext(access)),
    )
    return work.collect(at.lake, **how)


def in_order(report: GcReport) -> GcReport:
    """Return a report with its failures sorted."""
    return evolve(report, failed=tuple(sorted(report.failed)))


def left(at: World) -> tuple[list[str], list[Key]]:
    """Return the objects and the records of garbage that are left."""
    content = [info.path for info in at.store.list() if is_own(info.path) and info.path[0] != "_"]
    keys = [at.table.schema.key_of(item) for item in at.table.scan()]
    return content, sorted(key for key in keys if key.hash.startswith(f"{LAKE}/x/"))


def journal() -> OpenJournal:
    """Return what opens an empty journal."""
    store = ConditionalStore(MemoryStore())
    return lambda: nullcontext(Journal(store=store, id="job"))


def orphans(at: World, number: int) -> None:
    """Let a repair list objects without files, some of which become files."""
    for each in range(number):
        at.store.put(f"{each:03x}/{each:03x}{29 * '0'}", b"1")
    found = at.lake.maintenance.fsck(orphans=True, age=-1e9, grace=0)
    list(at.lake.maintenance.repair(found.findings, dry_run=False, only=["orphan-object"]))
    at.clock.advance(10_000_000)


@settings(max_examples=examples(8, 30))
@given(seed=st.integers(0, 2**32))
def test_the_same_objects_are_removed(seed: int) -> None:
    """Garbage of all times, due or not, and objects that a repair has listed."""
    worlds: list[World] = []
    for _ in range(2):
        history = History(seed)
        history.go_on(20)
        history.recover()
        orphans(history.at, 5)
        random = Random(seed)
        for _ in range(10):
            history.at.clock.advance(random.choice([0, 1, 100]))
            for _ in range(2):
                with suppress(CommitError):
                    act(random, history.at.lake)
        history.at.lake.maintenance.empty_trash()
        worlds.append(history.at)
    one, other = worlds
    expected = one.lake.maintenance.gc()
    assert in_order(collected(other, engine(seed))) == in_order(expected)
    assert left(one) == left(other)


def filled() -> World:
    """Return a namespace with garbage of several hours."""
    at = world()
    for number in range(24):
        at.lake.write(f"a/{number}", b"1")
    for number in range(24):
        at.clock.advance(600)
        at.lake.delete(f"a/{number}")
    at.lake.maintenance.empty_trash()
    at.clock.advance(1)
    return at


def test_garbage_of_different_times_is_divided() -> None:
    """No share has most of it."""
    at = filled()
    collector = at.lake.maintenance.collector()
    shares = collector.shares(32)
    sizes = [collector.collect_share(each)[0].objects for each in shares]
    assert sum(sizes) == 24
    assert len(shares) <= 32 and max(sizes) <= 8


def test_files_made_of_listed_objects_stay() -> None:
    """The table and the log are read once for all of them."""
    at = world()
    orphans(at, 6)
    at.lake.link("again", stored(at.store, f"001/001{29 * '0'}"))
    seen: list[GcReport] = []
    report = collected(at, engine(), progress=seen.append)
    assert report.objects == 5 and not report.failed
    assert [each.objects for each in seen] == [0, 5]
    assert at.lake.read("again") == b"1"
    assert left(at)[1] == []


@pytest.mark.parametrize("by", [None, engine()])
def test_an_object_that_a_pending_change_names_stays(by: SerialEngine | None) -> None:
    """Only the log names it, and the change may still be made."""
    at = world()
    orphans(at, 3)
    data = stored(at.store, f"001/001{29 * '0'}")
    leave_pending(at, lambda lake: lake.link("again", data), applied=False)
    report = at.lake.maintenance.gc() if by is None else collected(at, by)
    assert report.objects == 2 and not report.failed
    assert at.store.head(data.path).etag == data.etag


@pytest.mark.parametrize("by", [None, SerialEngine(partitions=1)], ids=["whole", "partitioned"])
def test_an_object_that_a_change_under_way_names_stays(by: SerialEngine | None) -> None:
    """The change is made, and decided, between any two listings of the collection."""
    for number in range(0, 100, 1 if by is None else 3):
        at = world()
        orphans(at, 1)
        data = stored(at.store, f"000/000{29 * '0'}")
        at.clock.advance(1)
        wire, lake = at.client()
        begun, go_on = Event(), Event()

        def step(
            what: str, perform: Callable[[], object], begun: Event = begun, go_on: Event = go_on
        ) -> None:
            if what == "transact":
                begun.set()
                assert go_on.wait(60)
            perform()

        wire.step = step
        client = Thread(target=partial(lake.link, "again", data))
        client.start()
        assert begun.wait(60)
        left = iter(range(number))

        def list_(
            prefix: str = "",
            at: World = at,
            left: Iterator[int] = left,
            go_on: Event = go_on,
            client: Thread = client,
            **options: Any,
        ) -> Any:
            if next(left, None) is None:
                go_on.set()
                client.join(60)
            return MemoryStore.list(at.store, prefix, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(at.store, "list", list_)
            report = at.lake.maintenance.gc() if by is None else collected(at, by)
        over = go_on.is_set()
        go_on.set()
        client.join(60)
        if not over:
            break
        assert not report.failed and at.lake.read("again") == b"1", f"before listing {number}"
    assert number > 3


def test_an_unknown_reference_keeps_listed_objects() -> None:
    """They are reported, and stay listed."""
    at = world()
    orphans(at, 3)
    key = Keys(LAKE).entry("x", 0, "y")
    at.table.put({"place": key.hash, "name": str(key.range), "id": "1", "body": b"{"})
    expected = at.lake.maintenance.gc()
    found = collected(at, engine())
    assert len(found.failed) == 3 and in_order(found) == in_order(expected)
    assert len(left(at)[1]) == 3


@pytest.mark.all
def test_a_collection_can_be_killed_before_any_task() -> None:
    """With a journal, the next run reports what the first one has removed."""
    for stop in range(1000):
        at, kept = filled(), journal()
        orphans(at, 3)
        calls = iter(range(stop))

        def step() -> None:
            if next(calls, None) is None:  # noqa: B023
                raise Dies

        try:
            collected(at, evolve(engine(), step=step, partitions=2), kept)
            break
        except Dies:
            pass
        again = collected(at, engine(3), kept)
        assert 24 <= again.objects <= 27 and not again.failed
        assert left(at) == ([], [])
    assert stop > 8


def test_two_collections_at_once_remove_everything() -> None:
    """One record of a share counts."""
    at, kept = filled(), journal()
    calls = iter(range(5))
    inner: list[GcReport] = []

    def step() -> None:
        if next(calls, None) == 4:
            inner.append(collected(at, evolve(engine(), partitions=2), kept))

    outer = collected(at, evolve(engine(), step=step, partitions=2), kept)
    assert [outer] == inner == [GcReport(objects=24, bytes=24)]
    assert left(at) == ([], [])


@pytest.mark.parametrize("partitions", [1, 3])
def test_nothing_is_due(partitions: int) -> None:
    """The report is empty."""
    assert collected(world(), evolve(engine(), partitions=partitions)) == GcReport()


@settings(max_examples=examples(8, 30))
@given(seed=st.integers(0, 2**32))
def test_the_trash_is_emptied(seed: int) -> None:
    """Directories in trashed directories, too; the report is that of one process."""
    worlds: list[World] = []
    for _ in range(2):
        at, random = world(seed), Random(seed)
        for _ in range(30):
            path = "/".join(random.choices("abc", k=random.randint(1, 4)))
            with suppress(CommitError):
                at.lake.write(path, b"1")
        for name in "abc":
            with suppress(CommitError):
                at.lake.delete(name, recursive=True)
        worlds.append(at)
    one, other = worlds
    expected = one.lake.maintenance.empty_trash()
    seen: list[TrashReport] = []
    work = PartitionedTrash(engine=engine(seed), open_namespace=lambda: nullcontext(other.lake))
    assert work.empty(other.lake, progress=seen.append) == expected == seen[-1]
    assert left(one) == left(other)
    assert other.lake.maintenance.empty_trash() == TrashReport()


def test_failures_of_the_trash_are_those_of_the_last_round() -> None:
    """What a later round removes is no failure."""
    at = world()
    at.lake.write("a/b", b"1")
    at.lake.delete("a", recursive=True)
    wire, lake = at.client()
    failures = iter([Unavailable("down")] * 20)

    def step(what: str, perform: Callable[[], object]) -> None:
        error = next(failures, None) if what == "transact" else None
        if error is not None:
            raise error
        perform()

    wire.step = step
    work = PartitionedTrash(engine=engine(), open_namespace=lambda: nullcontext(lake))
    first = work.empty(lake)
    assert first.files == 0 and {error for _, error in first.failed} == {"down"}
    for _ in failures:
        pass
    assert work.empty(lake) == TrashReport(files=1, directories=1)


def test_removed_names_and_objects_are_counted() -> None:
    """The trash and the garbage are steps of their own."""
    at = world()
    for number in range(5):
        at.lake.write(f"a/{number}", b"1")
    at.lake.delete("a", recursive=True)
    shown: dict[str, int] = {}

    def show(now: StepProgress) -> None:
        shown[now.step] = max(now.done, shown.get(now.step, 0))

    by = SerialEngine(partitions=2, progress=show, clock=at.clock)
    PartitionedTrash(engine=by, open_namespace=lambda: nullcontext(at.lake)).empty(at.lake)
    at.clock.advance(1e6)
    assert collected(at, by).objects == 5
    assert shown == {"emptying the trash": 6, "removing objects": 5}
