"""An import in partitions creates the same files as one process, and continues after an interruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from random import Random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from commitlog.commit import ConditionalStore
from commitlog.errors import ConfigurationError, Conflict, CorruptRecord
from commitlog.namespace import ImportReport, Namespace, StepProgress
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.namespace.partitioned.imports import PartitionedImport
from commitlog.namespace.partitioned.journal import Journal, OpenJournal, no_journal
from commitlog.stores.memory import MemoryStore
from support.restore import Dies, World, world


def engine(seed: int = 0, step: Callable[[], object] = lambda: None) -> SerialEngine:
    """Return an engine that shuffles records."""
    random = Random(seed)
    return SerialEngine(partitions=random.choice([1, 2, 4]), shuffle=random.shuffle, step=step)


def put(at: World, random: Random, number: int = 40) -> None:
    """Put objects at random paths, some of which cannot be files next to each other."""
    for _ in range(number):
        depth = random.randint(1, 3)
        at.store.put("/".join(["raw", *random.choices(["a", "b", "a-", "ü", "ab"], k=depth)]), b"1")


def files(at: World) -> dict[str, tuple[str, int]]:
    """Return the object and version of each file, by path."""
    found: dict[str, tuple[str, int]] = {}
    for status in at.lake.walk(""):
        if status.data is not None:
            found[status.path] = status.data.path, status.version
    return found


def imported(
    at: World, by: SerialEngine, into: str = "in", journal: OpenJournal = no_journal, **how: Any
) -> ImportReport:
    """Import objects in partitions."""
    work = PartitionedImport(
        engine=by, open_namespace=lambda: nullcontext(at.lake), open_journal=journal
    )
    return work.import_objects(at.lake, "raw/", into, **how)


def journal(id: str = "first", store: MemoryStore | None = None) -> OpenJournal:
    """Return what opens a journal."""
    conditional = ConditionalStore(MemoryStore() if store is None else store)
    return lambda: nullcontext(Journal(store=conditional, id=id))


@given(seed=st.integers(0, 2**32))
def test_the_files_are_the_same(seed: int) -> None:
    """So is the report, with the refused objects in order."""
    one, other = world(seed), world(seed)
    for at in (one, other):
        random = Random(seed)
        put(at, random)
        at.lake.write("in/a/b", b"here before")
    expected = one.lake.maintenance.import_objects("raw/", "in")
    assert imported(other, engine(seed)) == expected
    assert files(one) == files(other)
    again = imported(other, engine(seed + 1))
    assert again == evolve(expected, files=0, bytes=0, known=expected.files)


def test_the_kinds_of_objects_are_told_apart() -> None:
    """Changed objects are updated, and a file where the directory would be refuses all objects."""
    at = world()
    put(at, Random(1))
    first = imported(at, engine())
    at.store.put("raw/a/a", b"changed") if "in/a/a" in files(at) else at.store.put("raw/a-", b"22")
    second = imported(at, engine())
    assert second.updated == 1 and second.known == first.files - 1
    at.lake.write("taken", b"")
    refused = imported(at, engine(), "taken")
    assert refused == at.lake.maintenance.import_objects("raw/", "taken")
    assert len(refused.refused) == len(list(at.store.list("raw/")))


@pytest.mark.parametrize("into", ["", "a/b/c"])
def test_files_come_into_any_directory(into: str) -> None:
    """The root, or one whose upper directories are missing."""
    one, other = world(), world()
    for at in (one, other):
        put(at, Random(2))
    expected = one.lake.maintenance.import_objects("raw/", into)
    assert imported(other, engine(), into) == expected and expected.files
    assert files(one) == files(other)


def test_nothing_is_made_without_objects() -> None:
    """Not even the directory."""
    at = world()
    seen: list[ImportReport] = []
    assert imported(at, engine(), progress=seen.append) == ImportReport()
    assert seen == [ImportReport()]
    assert not at.lake.exists("in")


def test_arguments_are_checked() -> None:
    """Nothing is imported then."""
    at = world()
    work = PartitionedImport(engine=engine(), open_namespace=lambda: nullcontext(at.lake))
    with pytest.raises(ConfigurationError, match="slash"):
        work.import_objects(at.lake, "raw", "in")
    with pytest.raises(ConfigurationError, match="job id"):
        imported(at, engine(), journal=journal_named("a/b"))


def journal_named(id: str) -> OpenJournal:
    """Return what opens a journal, which fails for a wrong id."""

    @contextmanager
    def open_journal() -> Iterator[Journal]:
        yield Journal(store=ConditionalStore(MemoryStore()), id=id)

    return open_journal


def test_another_directory_is_a_conflict() -> None:
    """The directory is the one to which the path led at the beginning."""
    at = world()
    put(at, Random(1))
    calls = iter(range(2))

    def step() -> None:
        if next(calls, None) == 1:
            at.lake.rename("in", "elsewhere")

    with pytest.raises(Conflict, match="renamed, or deleted"):
        imported(at, evolve(engine(), step=step, partitions=2))
    assert not at.lake.exists("in")


def killed(at: World, stop: int, **how: Any) -> bool:
    """Import until the driver dies before a certain task; return whether it did."""
    calls = iter(range(stop))

    def step() -> None:
        if next(calls, None) is None:
            raise Dies

    try:
        imported(at, evolve(engine(), step=step, partitions=2), **how)
    except Dies:
        return True
    return False


def test_an_import_can_be_killed_before_any_task() -> None:
    """With a journal, the next run leaves out complete ranges, and its report has everything."""
    expected: ImportReport | None = None
    for stop in range(1000):
        at = world()
        put(at, Random(1))
        kept = journal()
        died = killed(at, stop, journal=kept)
        listed: list[str] = []
        watch(at, listed)
        report = imported(at, engine(5), journal=kept)
        expected = expected or report
        assert report == expected
        assert len(files(at)) == report.files
        # One more listing tells whether there are objects.
        assert len(listed) == 1 + max(0, 8 - stop)
        if not died:
            break
    assert stop == 16  # eight tasks, each with an import and a count


def watch(at: World, listed: list[str]) -> None:
    """Note each listing."""
    real = at.store.list

    def watched(prefix: str = "", *, start_after: str = "") -> Any:
        listed.append(start_after)
        return real(prefix, start_after=start_after)

    at.store.list = watched  # type: ignore[method-assign]


def test_two_runs_at_once_count_once() -> None:
    """Both may import a range; the first record counts for both."""
    at = world()
    put(at, Random(1))
    kept = journal()
    calls = iter(range(3))
    inner: list[ImportReport] = []

    def step() -> None:
        if next(calls, None) == 2:
            inner.append(imported(at, evolve(engine(), partitions=2), journal=kept))

    outer = imported(at, evolve(engine(), step=step, partitions=2), journal=kept)
    assert inner == [outer]
    assert outer.files == len(files(at)) and not outer.known


def test_a_second_record_of_a_unit_is_left_out() -> None:
    """A run that was overtaken gets the report of the other one."""
    store = MemoryStore()
    with journal(store=store)() as kept:
        assert kept.find("0") is None
        assert kept.record("0", {"files": 1}) == {"files": 1}
        assert kept.record("0", {"files": 0}) == {"files": 1}
        assert kept.find("0") == {"files": 1}
        store.put("first/units/0.json", b"{")
        with pytest.raises(CorruptRecord):
            kept.find("0")


def test_the_first_plan_counts() -> None:
    """Another run with the same id has the same arguments."""
    with journal()() as kept:
        assert kept.plan({"x": [1, "ü"]}, lambda: [1]) == [1]
        assert kept.plan({"x": [1, "ü"]}, lambda: [2]) == [1]
        with pytest.raises(ConfigurationError, match="choose another id"):
            kept.plan({"x": [2]}, lambda: [1])


@pytest.mark.parametrize("stop", range(1, 6))
def test_directories_made_by_two_tasks_are_no_conflict(stop: int) -> None:
    """Another client creates the same directories in between, and the transaction is tried again."""
    at = world()
    for number in range(6):
        at.store.put(f"raw/x/{number}/file", b"1")
    wire, lake = at.client()
    calls = iter(range(stop))

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and next(calls, None) == stop - 1:
            at.lake.maintenance.import_objects("raw/", "in")
        perform()

    wire.step = step
    work = PartitionedImport(
        engine=SerialEngine(partitions=2), open_namespace=partial(nullcontext[Namespace], lake)
    )
    report = work.import_objects(lake, "raw/", "in")
    assert report.files + report.known == 6 and not report.refused
    assert len(files(at)) == 6


def test_objects_are_counted_while_ranges_are_imported() -> None:
    """Known and refused ones count, too."""
    at = world()
    put(at, Random(1))
    shown: list[StepProgress] = []
    by = SerialEngine(partitions=2, progress=shown.append, clock=at.clock)
    for _ in range(2):
        done = imported(at, by)
        number = done.files + done.updated + done.known + len(done.refused)
        assert number == len(list(at.store.list("raw/")))
        assert (shown[-1].step, shown[-1].done) == ("importing objects", number)
