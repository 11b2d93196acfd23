"""Compaction keeps the log as short as the namespace, and complete enough to restore it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.errors import (
    CommitError,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    NotFound,
    OutcomeUnknown,
)
from commitlog.namespace import Namespace
from commitlog.namespace.log.checkpoint import NamespaceCheckpoints
from commitlog.namespace.log.compaction import CompactionReport, Compactor, _Round
from commitlog.namespace.model.keys import Keys
from commitlog.oplog import Decision, Operation
from commitlog.stores.memory import MemoryStore
from support.namespace import Auditor, ServiceTable, stored
from support.restore import Dies, History, World, fill, leave_pending, records, world
from support.selection import examples

T = TypeVar("T")

SETTLE = 86_400


@pytest.fixture
def at() -> World:
    """A new namespace."""
    return world()


def compactor_of(at: World, table: ServiceTable, **options: Any) -> Compactor:
    """Return a compactor of the log of a table that is never fenced."""
    keys = Keys("lake")
    return Compactor(table=table, keys=keys, log=at.log, new_id=at.word, fence=lambda: None, **options)


def restored(at: World) -> None:
    """Check that the namespace can be restored as it is."""
    table = at.lost()
    at.restorer(table).restore(read_only=True)
    assert at.entries(table) == at.entries(at.table)
    Auditor(table, "lake", at.store).audit()


def names(at: World, below: str) -> list[str]:
    """Return the paths of the log's objects below a directory of the log."""
    return [info.path for info in at.store.list(f"log/{below}/")]


def test_a_compacted_log_is_as_short_as_its_namespace(at: World) -> None:
    """However often a file is changed, made and deleted, the checkpoint has one record of it."""
    fill(at.lake, at.clock)
    for number in range(30):
        at.lake.write("f", bytes([number]))
        at.lake.write("other", b"")
        at.lake.delete("other")
    at.clock.advance(1)
    at.lake.maintenance.gc()
    before = len(names(at, "decided"))
    at.clock.advance(SETTLE)
    done = at.lake.maintenance.compact_log()
    assert done.operations == before > 100
    assert not names(at, "decided")
    restored(at)
    assert len(names(at, "checkpoints")) == len(names(at, "checkpoint-parts")) == 1
    # The next checkpoint drops the removals that the first one keeps.
    at.clock.advance(2 * SETTLE)
    at.lake.write("f", b"")
    at.clock.advance(2 * SETTLE)
    again = at.lake.maintenance.compact_log()
    assert (again.operations, again.states) == (1, len(at.entries(at.table)) + 2)
    assert again.states < done.states
    restored(at)


def test_recent_decisions_are_not_compacted(at: World) -> None:
    """The log must keep them for its retention time; a shorter age is refused."""
    at.lake.write("old", b"")
    at.clock.advance(SETTLE)
    at.lake.write("new", b"")
    assert at.lake.maintenance.compact_log().operations == 2
    assert len(names(at, "decided")) == 1
    assert at.lake.maintenance.compact_log().operations == 0
    with pytest.raises(ConfigurationError, match="settles"):
        at.lake.maintenance.compact_log(older_than=1)
    restored(at)


def test_a_pending_operation_keeps_the_operations_after_it(at: World) -> None:
    """They can decide it. Operations shortly before it stay too: it may have been planned on them."""
    at.lake.write("f", b"1")
    at.clock.advance(SETTLE)
    at.lake.write("g", b"1")
    leave_pending(at, lambda lake: lake.write("f", b"2"))
    at.lake.delete("f")
    at.clock.advance(2 * SETTLE)
    assert at.lake.maintenance.compact_log().operations == 2
    assert len(names(at, "decided")) == 2
    [decided] = at.lake.maintenance.recover()
    assert decided.decision is Decision.COMMITTED
    at.clock.advance(SETTLE)
    assert at.lake.maintenance.compact_log().operations == 3
    restored(at)


def test_a_late_decision_brings_nothing_back(at: World) -> None:
    """A removal is kept as long as an older change of the same file may still be decided."""
    at.lake.write("f", b"1")
    leave_pending(at, lambda lake: lake.write("f", b"2"))
    at.lake.delete("f")
    at.clock.advance(2 * SETTLE)
    [late] = at.lake.maintenance.recover()
    at.lake.maintenance.compact_log()
    assert at.log.decision(late.id) is Decision.COMMITTED
    at.clock.advance(SETTLE - 10)
    at.lake.maintenance.compact_log()
    restored(at)
    at.clock.advance(10)
    at.lake.maintenance.compact_log()
    assert at.log.decision(late.id) is None
    restored(at)
    at.lake.write("g", b"")
    at.clock.advance(SETTLE)
    at.lake.maintenance.compact_log()
    assert not names(at, "decided")
    restored(at)


def test_a_removed_tombstone_leaves_the_checkpoint(at: World) -> None:
    """The log has no entry for the removal of a tombstone; existing tombstones are kept."""
    for name in ("a", "b"):
        at.store.put(f"theirs/{name}", b"1")
    at.lake.bindings.bind("theirs/", "bound")
    for name in ("a", "b"):
        at.lake.delete(f"bound/{name}")
    directory = at.lake.stat("bound").id
    at.table.delete(Keys("lake").tombstone(directory, "a"))
    at.clock.advance(SETTLE)
    at.lake.maintenance.compact_log()
    table = at.lost()
    at.restorer(table).restore()
    assert records(table, at.store) == records(at.table, at.store)


def test_a_checkpoint_has_parts(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is read and written separately; few operations are held in memory."""
    monkeypatch.setattr("commitlog.namespace.log.checkpoint._PART_RECORDS", 4)
    for number in range(20):
        at.lake.write(f"d{number % 3}/{number}", b"1")
    at.clock.advance(SETTLE)
    reported: list[int] = []
    compactor = compactor_of(at, at.table, limit=5)
    done = compactor.compact(progress=lambda done: reported.append(done.operations))
    assert (done.operations, reported) == (21, [5, 10, 15, 20, 21])
    assert done.states == 26
    at.clock.advance(SETTLE)
    at.lake.write("f", b"1")
    at.clock.advance(SETTLE)
    at.lake.maintenance.compact_log()
    assert len(names(at, "checkpoint-parts")) == 7
    restored(at)


def test_the_number_of_held_states_is_bounded(at: World) -> None:
    """At the bound a checkpoint is stored and the next one begins, however many files a change made."""
    for number in range(6):
        at.lake.link_many(
            {f"d{number}/{name}": stored(at.store, f"theirs/{number}{name}") for name in "abcd"}
        )
    at.clock.advance(SETTLE)
    reported: list[CompactionReport] = []
    compactor = compactor_of(at, at.table, held=9)
    done = compactor.compact(progress=reported.append)
    assert (done.operations, done.states) == (7, 33)
    assert [each.operations for each in reported] == [2, 4, 6, 7]
    assert reported[-1].read == reported[-1].written == 0
    assert not names(at, "decided")
    restored(at)


def test_compaction_reports_progress(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reports while it reads and while it writes, not only after each checkpoint."""
    monkeypatch.setattr("commitlog.namespace.log.compaction._PROGRESS_STEP", 2)
    for number in range(5):
        at.lake.write(f"f{number}", b"1")
    at.clock.advance(SETTLE)
    reported: list[CompactionReport] = []
    done = at.lake.maintenance.compact_log(progress=reported.append)
    assert [(each.read, each.written) for each in reported if not each.operations] == [
        (2, 0),
        (4, 0),
        (6, 0),
        (6, 2),
        (6, 4),
        (6, 6),
        (6, 8),
    ]
    assert (done.operations, done.states) == (6, 8)


def test_the_log_of_a_lost_table_is_not_compacted(at: World) -> None:
    """The namespace is restored from it. A log with unreadable entries is not compacted either."""
    at.lake.write("f", b"1")
    at.clock.advance(SETTLE)
    lost = compactor_of(at, at.lost())
    with pytest.raises(NotFound, match="its log is left"):
        lost.compact()
    at.store.put(names(at, "decided")[0], b"{}")
    at.clock.advance(SETTLE)
    with pytest.raises(CorruptRecord):
        at.lake.maintenance.compact_log()
    assert len(names(at, "decided")) == 2


def test_a_table_lost_during_compaction_is_not_taken_for_empty(at: World) -> None:
    """Its missing records are not taken for removed ones."""
    at.lake.write("f", b"1")
    at.lake.write("f", b"2")
    at.clock.advance(SETTLE)
    before = names(at, "decided")
    query = at.table.query

    def lose(*these: Any, **others: Any) -> Any:
        for item in list(at.table.scan()):
            at.table.delete(at.table.schema.key_of(item))
        return query(*these, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at.table, "query", lose)
        compactor = compactor_of(at, at.table)
        with pytest.raises(NotFound, match="its log is left"):
            compactor.compact()
    assert names(at, "decided") == before
    assert not names(at, "checkpoints")


def test_a_namespace_without_a_log_cannot_be_compacted() -> None:
    """The error says that there is no log."""
    at = world()
    with pytest.raises(ConfigurationError, match="without a log"):
        Namespace(at.table, MemoryStore(), "other").maintenance.compact_log()


# -- failures ------------------------------------------------------------------------------------------


@define
class Requests:
    """The write requests of a store; one of them fails.

    Attributes:
        wrong: number of the failing request, from 0; None: none fails.
        how: the sender dies "before" or "after" it, or the "request" or "answer" is lost.
        step: called before each request with its number.
        sent: number of requests so far.
    """

    wrong: int | None = None
    how: str = ""
    step: Callable[[int], object] = lambda number: None
    sent: int = 0

    def of(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Requests:
        """Send all write requests of a store through this object."""
        put, delete = store.put, store.delete

        def delete_many(paths: Iterable[str]) -> dict[str, CommitError]:
            for path in paths:
                self.send(lambda path=path: delete(path))  # type: ignore[misc]
            return {}

        monkeypatch.setattr(
            store, "put", lambda *these, **others: self.send(lambda: put(*these, **others))
        )
        monkeypatch.setattr(store, "delete_many", delete_many)
        return self

    def send(self, perform: Callable[[], T]) -> T:
        """Send one request."""
        number, self.sent = self.sent, self.sent + 1
        self.step(number)
        if number != self.wrong:
            return perform()
        if self.how in ("after", "answer"):
            perform()
        if self.how in ("before", "after"):
            raise Dies
        raise OutcomeUnknown("no answer")


def grown() -> World:
    """Return a namespace with a log that was compacted once and has grown since."""
    at = world()
    fill(at.lake, at.clock)
    at.clock.advance(SETTLE)
    at.lake.maintenance.compact_log()
    at.clock.advance(SETTLE)
    at.lake.delete("over")
    at.lake.write("empty/new", b"2")
    leave_pending(at, lambda lake: lake.write("d2/f", b""))
    at.lake.maintenance.recover(older_than=0)
    at.clock.advance(SETTLE + 1)
    return at


@pytest.mark.parametrize("how", ["before", "after", "request", "answer"])
def test_compaction_can_be_interrupted_at_any_request(how: str) -> None:
    """After a crash or a lost answer at any request, nothing is lost, and a repeated call succeeds."""
    with pytest.MonkeyPatch.context() as patch:
        whole = Requests().of((at := grown()).store, patch)
        at.lake.maintenance.compact_log()
    assert whole.sent == 7  # a part, a checkpoint, three operations, the old checkpoint with its part
    for number in range(whole.sent):
        with pytest.MonkeyPatch.context() as patch:
            Requests(wrong=number, how=how).of((at := grown()).store, patch)
            with contextlib.suppress(Dies, CommitError):
                at.lake.maintenance.compact_log()
        restored(at)
        at.lake.maintenance.compact_log()
        assert not names(at, "decided")
        restored(at)


def test_one_of_two_compactions_completes() -> None:
    """At whatever request the other one runs, no operation is removed that no checkpoint has."""
    for number in range(7):
        at = grown()

        def other(sent: int) -> None:
            if sent == number:  # noqa: B023
                patch.undo()
                at.lake.maintenance.compact_log()  # noqa: B023
                at.clock.advance(SETTLE)  # noqa: B023
                at.lake.write("new", b"")  # noqa: B023

        with pytest.MonkeyPatch.context() as patch:
            Requests(step=other).of(at.store, patch)
            with contextlib.suppress(Conflict):
                at.lake.maintenance.compact_log()
        restored(at)
        at.clock.advance(SETTLE)
        at.lake.maintenance.compact_log()
        assert not names(at, "decided")
        restored(at)


def test_parts_being_written_are_not_taken_for_garbage() -> None:
    """Another compaction, without operations to compact, removes garbage while the first one writes."""
    at = grown()

    def tidy(sent: int) -> None:
        if sent == 1:  # a part exists, but not yet its checkpoint
            patch.undo()
            assert at.lake.maintenance.compact_log(older_than=1e9).operations == 0

    with pytest.MonkeyPatch.context() as patch:
        Requests(step=tidy).of(at.store, patch)
        at.lake.maintenance.compact_log()
    assert not names(at, "decided")
    restored(at)


def test_a_delayed_compaction_removes_nothing() -> None:
    """This holds even if its checkpoint number is free again, since later checkpoints exist."""
    at = grown()
    left = compactor_of(at, at.table, limit=2)

    def others(sent: int) -> None:
        if sent != 1:  # about to write its checkpoint
            return
        patch.undo()
        for _ in range(2):
            this = _Round(checkpoints=bases, before=bases.newest(), present=frozenset())
            at.log.compact(save=partial(left._save, this), limit=1)
        holds = bases.newest()
        assert holds is not None
        bases.prune(holds, margin=0)

    bases = NamespaceCheckpoints(at.log, new_id=at.word)
    with pytest.MonkeyPatch.context() as patch:
        Requests(step=others).of(at.store, patch)
        with pytest.raises(Conflict, match="another client"):
            at.lake.maintenance.compact_log()
    assert names(at, "decided")
    restored(at)


@settings(max_examples=examples(10, 40))
@given(seed=st.integers(0, 2**32))
def test_any_history_can_be_restored_after_compactions(seed: int) -> None:
    """The log is compacted between changes of clients that die or lose answers."""
    history = History(seed, settle=100)
    at, random = history.at, history.random
    for _ in range(5):
        history.go_on(8)
        at.clock.advance(random.choice([0, 30, 120]))
        if random.random() < 0.4:
            at.lake.maintenance.recover(older_than=random.choice([0, 50]))
        at.lake.maintenance.compact_log()
    applied = set(at.table.applied)

    def decide(operation: Operation) -> Decision:
        change_id = operation.body["change_id"]
        return Decision.COMMITTED if change_id in applied else Decision.ROLLED_BACK

    table = at.lost()
    done = at.restorer(table).restore(decide=decide)
    for each in done.decided:
        assert (each.decision is Decision.COMMITTED) == (each.body["change_id"] in applied)
    assert at.entries(table) == at.entries(at.table)
    assert records(table, at.store) == records(at.table, at.store)
    Auditor(table, "lake", at.store).audit()


@settings(max_examples=examples(3, 8))
@given(seed=st.integers(0, 2**32))
def test_the_log_knows_every_version_at_every_moment(seed: int) -> None:
    """I8: the newest entry of a file or directory has its version, or a pending change the next one."""
    history = History(seed, settle=100)
    at = history.at
    auditor = Auditor(at.table, "lake", at.store, log=at.log)
    for _ in range(20):
        history.go_on(1)
        auditor.audit()
        at.clock.advance(history.random.choice([0, 0, 60]))
        at.lake.maintenance.recover(older_than=50)
        at.lake.maintenance.compact_log()
        auditor.audit()
