"""A log that several threads read: the same entries, in the same order, with bounded read-ahead."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import CommitError, CorruptRecord, NotFound, Unavailable
from commitlog.namespaces import create_namespace, open_namespace, restore_namespace
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores import ObjectData, ObjectStore
from commitlog.stores.local.store import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import HookedStore

THREADS = 4
HOUR = 3600.0


class Gate:
    """Holds reads of entries until several have arrived.

    Attributes:
        several: number of reads to wait for.
        kinds: directories of the entries whose reads are held.
        most: largest number of concurrent reads.
        read: paths, in order of arrival.
    """

    def __init__(self, several: int) -> None:
        self.several = several
        self.kinds = {"pending", "decided"}
        self.most = 0
        self.read: list[str] = []
        self._here = 0
        self._changed = threading.Condition()

    def pass_through(self, path: str) -> None:
        """Wait until several reads have been concurrent."""
        if self.kinds.isdisjoint(path.split("/")):
            return
        with self._changed:
            self.read.append(path)
            self._here += 1
            self.most = max(self.most, self._here)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self.several, timeout=30)
            self._here -= 1


class Gated(HookedStore):
    """A store whose reads pass through a `Gate`."""

    def __init__(self, store: ObjectStore, gate: Gate) -> None:
        super().__init__(store)
        self.gate = gate

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """Wait at the gate, then read."""
        self.gate.pass_through(path)
        return super().get(path, start=start, end=end)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of clients and store."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """The store of the log."""
    return MemoryStore(clock=clock)


@pytest.fixture
def log(store: MemoryStore, clock: ManualClock) -> OperationLog:
    """A log that reads one entry at a time."""
    return OperationLog(ConditionalStore(store, clock=clock), "log", clock=clock, retention=HOUR)


def threaded(store: ObjectStore, clock: ManualClock) -> OperationLog:
    """Return the same log, which reads several entries at a time."""
    return OperationLog(
        ConditionalStore(store, clock=clock),
        "log",
        clock=clock,
        retention=HOUR,
        open_executor=partial(ThreadPoolExecutor, THREADS),
    )


def fill(log: OperationLog, clock: ManualClock, number: int) -> None:
    """Run `number` operations, and leave as many pending."""
    for each in range(number):
        with log.run({"n": each}):
            clock.advance(1)
        log.begin({"n": each})
        clock.advance(1)


def numbers(operations: Iterator[Operation]) -> list[int]:
    """Return the numbers of the operations."""
    return [operation.body["n"] for operation in operations]


@pytest.mark.parametrize("which", [OperationLog.pending, OperationLog.history])
def test_several_entries_are_read_at_a_time(
    log: OperationLog,
    store: MemoryStore,
    clock: ManualClock,
    which: Callable[[OperationLog], Iterator[Operation]],
) -> None:
    """They have the order of their start, and equal the entries that one thread reads."""
    fill(log, clock, 100)
    gate = Gate(THREADS)
    found = list(which(threaded(Gated(store, gate), clock)))
    assert found == list(which(log))
    assert numbers(iter(found)) == list(range(100))
    assert gate.most == THREADS


def test_few_entries_are_read_ahead(log: OperationLog, store: MemoryStore, clock: ManualClock) -> None:
    """A reader that stops early has read only a few more entries than it consumed."""
    fill(log, clock, 200)
    gate = Gate(THREADS)
    history = threaded(Gated(store, gate), clock).history()
    assert numbers(itertools.islice(history, 10)) == list(range(10))
    assert len(gate.read) <= 10 + 32
    history.close()  # type: ignore[attr-defined]
    assert len(gate.read) <= 10 + 32


def test_an_unreadable_entry_is_reported_in_its_turn(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """The error is reported at its position, or raised after the entries before it."""
    fill(log, clock, 30)
    fifth = list(store.list("log/decided/"))[5].path
    store.put(fifth, b"damaged")
    several = threaded(store, clock)
    reported: list[int | CommitError] = []
    for operation in several.history(unreadable=reported.append):
        reported.append(operation.body["n"])
    assert isinstance(reported.pop(5), CorruptRecord)
    assert reported == [number for number in range(30) if number != 5]
    history = several.history()
    assert numbers(itertools.islice(history, 5)) == list(range(5))
    with pytest.raises(CorruptRecord):
        next(history)


def test_an_entry_removed_after_the_listing_is_skipped(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """Other processes decide and compact meanwhile."""
    fill(log, clock, 30)
    gone = {info.path for info in list(store.list("log/decided/"))[::7]}

    class Vanishing(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            if path in gone:
                raise NotFound(path)
            return super().get(path, start=start, end=end)

    found = numbers(threaded(Vanishing(store), clock).history())
    assert found == [number for number in range(30) if number % 7]


def test_an_outage_is_not_the_end_of_the_log(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """An entry that the store cannot return is an error, not the end of the log."""
    fill(log, clock, 30)

    class Failing(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            raise Unavailable("down")

    with pytest.raises(Unavailable):
        list(threaded(Failing(store), clock).history(unreadable=lambda error: None))


def test_compaction_reads_several_entries_at_a_time_and_removes_the_saved_ones(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """Entries that were read ahead and not saved stay."""
    for number in range(60):
        with log.run({"n": number}):
            clock.advance(1)
    clock.advance(2 * HOUR)
    gate = Gate(THREADS)
    taken: list[int] = []

    def save(operations: Iterator[Operation]) -> None:
        taken.extend(numbers(itertools.islice(operations, 20)))

    assert threaded(Gated(store, gate), clock).compact(save=save) == 20
    assert taken == list(range(20))
    assert gate.most == THREADS
    assert numbers(log.history()) == list(range(20, 60))


# -- namespaces ------------------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The gate for reads of local directories; open while `several` is 0.

    Local directories are read here like servers: `unit.test_namespaces` shows which stores that is for.
    """
    monkeypatch.setattr("commitlog.namespaces._answers_at_once", lambda store: False)
    gate = Gate(0)
    get = LocalStore.get

    def gated(self: LocalStore, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        found = get(self, path, start=start, end=end)
        gate.pass_through(path)  # The read of a missing object raises before it reaches the gate.
        return found

    monkeypatch.setattr(LocalStore, "get", gated)
    return gate


@pytest.mark.parametrize("what", ["restore", "check", "recover", "compact"])
def test_the_log_of_a_namespace_is_read_by_several_threads(
    tmp_path: Path, gate: Gate, what: str
) -> None:
    """This holds for every operation that reads the whole log of a namespace opened by its name."""
    names, store = f"sqlite://{tmp_path}/names.db", f"file://{tmp_path}/content"
    clock = ManualClock()
    with create_namespace("lake", store=store, metadata=names, clock=clock) as lake:
        for number in range(30):
            lake.write(f"file-{number}", b"1")
        assert lake._context.changes.log is not None
        log = lake._context.changes.log.root
        if what != "compact":  # Compaction keeps decisions that are later than a pending operation.
            log.begin({**next(log.history()).body, "what": "nothing"})
    clock.advance(2 * 86_400)
    gate.most, gate.several, gate.kinds = 0, 8, {"decided"}
    if what == "restore":
        elsewhere = f"sqlite://{tmp_path}/elsewhere.db"
        with restore_namespace("lake", store=store, metadata=elsewhere, clock=clock) as restorer:
            done = restorer.restore(decide=lambda operation: Decision.ROLLED_BACK)
            assert done.files == 30
    else:
        with open_namespace("lake", metadata=names, clock=clock) as lake:
            if what == "check":
                assert {each.problem.name for each in lake.maintenance.fsck().findings} == {
                    "pending-change"
                }
            elif what == "recover":
                lake.maintenance.recover()
            else:
                assert lake.maintenance.compact_log().operations == 31
    assert gate.most >= 8


# -- removal of pending entries ----------------------------------------------------------------------


def test_entries_of_threads_that_decide_at_once_are_removed_by_one_request() -> None:
    """Only the first thread waits for the requests. No entry is left."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    requests: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def hook(name: str, path: str, perform: Callable[[], object]) -> object:
        if name.startswith("delete"):
            requests.append(name)
            if len(requests) == 1:
                begun.set()
                assert go_on.wait(30)
        return perform()

    log = OperationLog(ConditionalStore(HookedStore(store, hook), clock=clock), "log", clock=clock)
    operations = [log.begin({"number": number}) for number in range(4)]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(log.decide, operations[0], Decision.COMMITTED)
        assert begun.wait(30)
        for operation in operations[1:]:
            log.decide(operation, Decision.COMMITTED)
        assert len(list(log.pending_names())) == 4
        go_on.set()
        first.result(30)
    assert requests == ["delete", "delete_many"]
    assert not list(log.pending_names())


def test_an_entry_whose_removal_would_come_late_is_left_to_a_compaction() -> None:
    """The decision may be forgotten before a late request arrives."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    log = OperationLog(ConditionalStore(store, clock=clock), "log", clock=clock, retention=HOUR)
    operations = [log.begin({"number": number}) for number in range(2)]
    begun, go_on = threading.Event(), threading.Event()
    remove = log._pending.remove

    def slow(name: str) -> None:
        begun.set()
        assert go_on.wait(30)
        remove(name)

    log._pending.remove = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(log.decide, operations[0], Decision.COMMITTED)
        assert begun.wait(30)
        log.decide(operations[1], Decision.COMMITTED)
        clock.advance(HOUR / 2)
        go_on.set()
        first.result(30)
    assert list(log.pending_names()) == [operations[1].id]
