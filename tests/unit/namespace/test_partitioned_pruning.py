"""Prune and diff in partitions have the same results as in one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from random import Random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, ConfigurationError, NotFound, StoreEmpty, Unavailable
from commitlog.namespace import Difference, PruneReport, StepProgress
from commitlog.namespace.model.keys import NAMESPACES
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.namespace.partitioned.journal import Journal, OpenJournal, no_journal
from commitlog.namespace.partitioned.pruning import PartitionedDiff, PartitionedPrune
from commitlog.stores.api import ObjectInfo
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item
from support.restore import Dies, World, world
from support.selection import examples


def engine(seed: int = 0, step: Callable[[], object] = lambda: None) -> SerialEngine:
    """Return an engine that shuffles records."""
    random = Random(seed)
    return SerialEngine(
        partitions=random.choice([1, 2, 5]),
        shuffle=random.shuffle,
        keeps=random.random() < 0.8,
        step=step,
    )


def pruned(
    at: World, by: SerialEngine, *path: str, journal: OpenJournal = no_journal, **how: Any
) -> Any:
    """Prune in partitions; `few` and `inventory` are those of the job."""
    of_job = {name: how.pop(name) for name in ("few", "inventory") if name in how}
    work = PartitionedPrune(
        engine=by, open_namespace=lambda: nullcontext(at.lake), open_journal=journal, **of_job
    )
    return work.prune(at.lake, *path, **how)


def diffed(at: World, by: SerialEngine, *path: str, **how: Any) -> list[Difference]:
    """Compare in partitions."""
    of_job = {name: how.pop(name) for name in ("few", "inventory") if name in how}
    work = PartitionedDiff(engine=by, open_namespace=lambda: nullcontext(at.lake), **of_job)
    return in_order(work.diff(at.lake, *path, **how))


def in_order(differences: Any) -> list[Difference]:
    """Return differences in order."""
    return sorted(differences, key=lambda each: (each.status.path, each.kind))


def rows(at: World) -> list[Item]:
    """Return all records, without what differs between two runs."""
    found = [
        {name: value for name, value in item.items() if name not in ("change_id", "body")}
        for item in at.table.scan()
        if item["place"] != NAMESPACES
    ]
    return sorted(found, key=lambda item: (str(item["place"]), str(item["name"])))


def changed(seed: int) -> World:
    """Return a namespace with imported and bound directories, whose objects others have changed."""
    at, random = world(seed), Random(seed)

    def path(top: str) -> str:
        return "/".join([top, *random.choices("abc", k=random.randint(1, 3))])

    def tried(call: Callable[[], object]) -> None:
        with suppress(CommitError):
            call()

    for _ in range(15):
        at.store.put(path("raw"), b"1")
        at.store.put(path("old"), b"1")
    at.lake.maintenance.import_objects("old/", "in")
    at.lake.write("own/file", b"1")
    at.lake.bindings.bind("raw/", "bound", max_age=random.choice([0.0, None]))
    at.lake.bindings.sync("bound")
    names = [status.path for status in at.lake.walk("") if status.path]
    for _ in range(6):
        kind, name = random.choice(["rename", "delete", "unbind"]), random.choice(names)
        if kind == "rename":
            tried(lambda name=name: at.lake.rename(name, path(random.choice(["in", "bound", "new"]))))  # type: ignore[misc]
        elif kind == "delete":
            tried(lambda name=name: at.lake.delete(name, recursive=True))  # type: ignore[misc]
        elif random.random() < 0.3:
            tried(lambda name=name: at.lake.bindings.unbind(name))  # type: ignore[misc]
    at.clock.advance(100)
    objects = [info.path for info in at.store.list() if info.path[:4] in ("raw/", "old/")]
    for name in random.sample(objects, len(objects) // 2):
        if random.random() < 0.5:
            at.store.delete(name)
        else:
            at.store.put(name, b"changed")
    for _ in range(3):
        at.store.put(path("raw"), b"new")
    return at


def inventory(at: World, by: SerialEngine, seed: int) -> Any:
    """Return a list of most objects, of which some have changed since."""
    random = Random(seed)
    infos = [info for info in at.store.list() if random.random() < 0.8]
    infos += [
        ObjectInfo(path=info.path, size=9, etag='"other"', last_modified=0)
        for info in random.sample(infos, len(infos) // 4)
    ]
    return by.distribute(infos)


@settings(max_examples=examples(10, 40))
@given(seed=st.integers(0, 2**32), few=st.sampled_from([0, 3, 100_000]), older=st.booleans())
def test_the_same_records_are_removed(seed: int, few: int, older: bool) -> None:
    """Whether each object is looked up, or the store is listed for that."""
    how = {"older_than": 50.0 if older else None}
    one, other = changed(seed), changed(seed)
    assert rows(one) == rows(other)
    expected = one.lake.bindings.prune(**how)  # type: ignore[arg-type]
    assert pruned(other, engine(seed), few=few, **how) == expected
    assert rows(one) == rows(other)
    assert pruned(other, engine(seed + 1), few=few).files == 0


@settings(max_examples=examples(10, 40))
@given(
    seed=st.integers(0, 2**32),
    few=st.sampled_from([0, 3, 100_000]),
    where=st.sampled_from(["", "in", "bound", "own/file"]),
)
def test_the_same_differences_are_found(seed: int, few: int, where: str) -> None:
    """At and below a path; also with an inventory, which may be outdated."""
    at = changed(seed)
    if not at.lake.exists(where):
        return
    by = engine(seed)
    expected = in_order(at.lake.bindings.diff(where))
    assert diffed(at, by, where, few=few) == expected
    assert diffed(at, by, where, inventory=inventory(at, by, seed)) == expected


@settings(max_examples=examples(8, 25))
@given(seed=st.integers(0, 2**32))
def test_a_directory_is_compared_with_its_origin(seed: int) -> None:
    """Directories in it are compared with the prefixes below that one."""
    at = changed(seed)
    if not at.lake.exists("in"):
        return
    expected = in_order(at.lake.bindings.diff("in", prefix="old/"))
    seen: list[int] = []
    assert diffed(at, engine(seed), "in", prefix="old/", progress=seen.append) == expected
    assert seen == sorted(seen)


@settings(max_examples=examples(8, 25))
@given(seed=st.integers(0, 2**32))
def test_an_outdated_inventory_removes_no_file(seed: int) -> None:
    """Each file that it lacks is looked up, and confirmed as in one process."""
    one, other = changed(seed), changed(seed)
    one.lake.bindings.prune()
    by = engine(seed)
    found = [info for info in other.store.list() if seed % 2]
    pruned(other, by, inventory=by.distribute(found))
    assert rows(one) == rows(other)


def imported(number: int = 12) -> World:
    """Return a namespace with imported files in several directories, of which half are lost."""
    at = world()
    for each in range(number):
        at.store.put(f"old/{each % 4}/{each:03}", b"1")
    at.lake.maintenance.import_objects("old/", "in")
    for each in range(0, number, 2):
        at.store.delete(f"old/{each % 4}/{each:03}")
    return at


def journal() -> OpenJournal:
    """Return what opens an empty journal."""
    store = ConditionalStore(MemoryStore())
    return lambda: nullcontext(Journal(store=store, id="job"))


@pytest.mark.parametrize("few", [0, 100])
def test_a_prune_can_be_killed_before_any_task(few: int) -> None:
    """With a journal, the next run leaves out complete units, and reports them."""
    for stop in range(1000):
        at, kept = imported(), journal()
        calls = iter(range(stop))

        def step() -> None:
            if next(calls, None) is None:  # noqa: B023
                raise Dies

        by = SerialEngine(partitions=2, step=step)
        with suppress(Dies):
            assert pruned(at, by, journal=kept, few=few).files == 6
            break
        again = pruned(at, SerialEngine(partitions=3), journal=kept, few=few)
        assert again.directories == 6 and not again.failed
        if few:
            assert again.files == 6
        assert at.lake.summary("in").files == 6
    assert stop >= 6


def test_a_complete_prune_is_only_read() -> None:
    """A run with the same id has the same report, and sends no request to the store of the content."""
    at, kept = imported(), journal()
    first = pruned(at, engine(), journal=kept)
    at.store.delete("old/1/001")
    before = at.lake.request_stats
    assert pruned(at, engine(3), journal=kept) == first
    assert not at.lake.request_stats.since(before).total.store_heads
    with pytest.raises(ConfigurationError, match="choose another id"):
        pruned(at, engine(3), "in", journal=kept)


def test_two_prunes_at_once_count_once() -> None:
    """One record of a unit counts."""
    at, kept = imported(), journal()
    calls = iter(range(4))
    inner: list[PruneReport] = []

    def step() -> None:
        if next(calls, None) == 3:
            inner.append(pruned(at, SerialEngine(partitions=2), journal=kept))

    outer = pruned(at, SerialEngine(partitions=2, step=step), journal=kept)
    assert inner == [outer]
    assert (outer.files, outer.directories) == (6, 6)


def test_another_store_stops_a_prune() -> None:
    """No file is removed for a missing object."""
    at = imported()
    for info in list(at.store.list()):
        if not info.path.startswith("log/"):
            at.store.delete(info.path)
    for few in (0, 100):
        with pytest.raises(StoreEmpty):
            pruned(at, engine(), few=few)
    assert at.lake.summary("in").files == 12
    assert pruned(at, engine(), few=0, empty_store=True).files == 12


def test_failures_are_reported() -> None:
    """The files stay."""
    at = imported()

    def fail(path: str) -> Any:
        raise Unavailable("down")

    real, at.store.begin_head = at.store.begin_head, fail  # type: ignore[method-assign]
    done = pruned(at, engine())
    assert {error for _, error in done.failed} == {"down"} and len(done.failed) == 12
    at.store.begin_head = real  # type: ignore[method-assign]
    seen: list[PruneReport] = []
    done = pruned(at, engine(), progress=seen.append)
    assert done.files == 6 and seen[-1] == done


def test_arguments_are_checked() -> None:
    """As in one process."""
    at = imported()
    with pytest.raises(ConfigurationError, match="older_than"):
        pruned(at, engine(), older_than=-1)
    with pytest.raises(NotFound):
        pruned(at, engine(), "nothing")
    with pytest.raises(ConfigurationError):
        diffed(at, engine(), "in", prefix="no slash")


@pytest.mark.parametrize("directories", [3, 100])
def test_prefixes_of_objects_are_listed(directories: int) -> None:
    """Only those of the files, unless they are too many; and no object is looked up that is there."""
    at = world()
    for each in range(directories):
        at.store.put(f"top{each:03}/a/b/file", b"1")
        at.store.put(f"top{each:03}/other", b"1")
        at.store.put(f"unrelated/{each}", b"1")
        at.lake.maintenance.import_objects(f"top{each:03}/a/", f"in/{each}")
    prefixes: set[str] = set()
    real = at.store.list

    def listed(prefix: str = "", *, start_after: str = "") -> Any:
        prefixes.add(prefix)
        return real(prefix, start_after=start_after)

    at.store.list = listed  # type: ignore[method-assign]
    before = at.lake.request_stats
    assert pruned(at, engine(), few=0).files == 0
    assert not at.lake.request_stats.since(before).total.store_heads
    assert prefixes == ({f"top{each:03}/a/b/" for each in range(3)} if directories == 3 else {""})


def test_a_tree_may_change_between_levels() -> None:
    """Directories that are renamed or deleted meanwhile are left out."""
    at = imported()
    calls = iter(range(100))

    def step() -> None:
        if next(calls) == 2:
            at.lake.rename("in/0", "moved")
            at.lake.delete("in/1", recursive=True)

    done = pruned(at, evolve(engine(), step=step, partitions=2, keeps=True))
    assert not done.failed and done.files == 3


@pytest.mark.parametrize("few", [0, 100])
def test_directories_are_counted_level_by_level(few: int) -> None:
    """Those of complete units count, too. Then files are looked up, in their directories or by path."""
    at, kept = imported(), journal()
    for _ in range(2):
        shown: dict[str, tuple[int, int | None]] = {}

        def show(now: StepProgress, shown: dict[str, tuple[int, int | None]] = shown) -> None:
            shown[now.step] = now.done, now.total

        by = SerialEngine(partitions=2, progress=show, clock=at.clock)
        pruned(at, by, journal=kept, few=few)
        levels = {name: found for name, found in shown.items() if name.startswith("reading dir")}
        assert list(levels.values()) == [(1, 1), (1, 1), (4, 4)]
        if few:
            assert shown["looking up files, by directory"] == (4, 4)
        else:
            assert shown["reading files to look up"][1] == 12
