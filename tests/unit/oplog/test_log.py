"""`OperationLog`: entries are pending first, are decided exactly once, and are not removed too early."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from commitlog._util.retry import Backoff
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    BucketNotFound,
    CommitError,
    Committed,
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.torn_reads import TRIES
from commitlog.stores import InFlight, ObjectData, ObjectStore, Observation
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import PLACES, Death, HookedStore, Once, Place, open_place
from support.torn_store import TornStore

COMMITTED, ROLLED_BACK = Decision.COMMITTED, Decision.ROLLED_BACK
HOUR = 3600.0


@pytest.fixture
def clock() -> ManualClock:
    """The clock of clients and store."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """The store of the log."""
    return MemoryStore(clock=clock)


def open_log(store: ObjectStore, clock: ManualClock) -> OperationLog:
    backoff = Backoff(tries=2)
    return OperationLog(
        ConditionalStore(store, clock=clock, backoff=backoff), "log", clock=clock, retention=HOUR
    )


@pytest.fixture
def log(store: MemoryStore, clock: ManualClock) -> OperationLog:
    """A log in the store."""
    return open_log(store, clock)


class Outage:
    """A hook that refuses requests whose path contains `part`, or loses their responses."""

    def __init__(self, part: str, error: Exception, *, applied: bool = False) -> None:
        self.part = part
        self.error = error
        self.applied = applied

    def __call__(self, _name: str, path: str, mutation: Callable[[], object]) -> object:
        if self.part not in path:
            return mutation()
        if self.applied:
            mutation()
        raise self.error


def test_a_missing_bucket_is_not_an_empty_log(store: MemoryStore, clock: ManualClock) -> None:
    """A decision in a missing bucket raises an error, and is not reported as undecided."""

    class Astray(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            raise BucketNotFound("no such bucket")

    with pytest.raises(BucketNotFound):
        open_log(Astray(store), clock).decision("a")
    assert open_log(store, clock).decision("a") is None


def test_compaction_reports_a_missing_bucket(store: MemoryStore, clock: ManualClock) -> None:
    """It does not confuse unreadable decisions with removed ones, and removes nothing."""

    class Deaf(HookedStore):
        def delete(self, path: str, **options: object) -> None:
            raise Unavailable("slow down")

    class Astray(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            raise BucketNotFound("no such bucket")

    slow = open_log(Deaf(store), clock)
    slow.decide(slow.begin({}), COMMITTED)
    clock.advance(2 * HOUR)
    left = [info.path for info in store.list()]
    with pytest.raises(BucketNotFound):
        open_log(Astray(store), clock).compact()
    assert [info.path for info in store.list()] == left


def test_an_operation_is_pending_while_it_runs_and_committed_afterwards(log: OperationLog) -> None:
    """The entry is written before the block runs, and is decided after the block returns."""
    with log.run({"do": "rename", "from": "a"}) as operation:
        assert list(log.pending()) == [operation]
        assert log.decision(operation.id) is None
    assert list(log.pending()) == []
    (done,) = log.history()
    assert (done.id, done.body, done.decision) == (operation.id, operation.body, COMMITTED)


def test_a_failed_operation_is_rolled_back_and_its_error_is_raised(log: OperationLog) -> None:
    """An exception of the block decides the operation and is not replaced."""
    with pytest.raises(KeyError), log.run({}) as operation:
        raise KeyError("x")
    assert log.decision(operation.id) is ROLLED_BACK
    assert list(log.pending()) == []


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("?"), Committed("work is left"), Death(), KeyboardInterrupt()]
)
def test_an_operation_with_an_unknown_outcome_stays_pending(
    log: OperationLog, error: BaseException
) -> None:
    """After `OutcomeUnknown`, `Committed`, or no `Exception`, nothing is decided."""
    with pytest.raises(type(error)), log.run({}) as operation:
        raise error
    assert list(log.pending()) == [operation]
    assert log.drift == 0


@pytest.mark.parametrize("error", [OutcomeUnknown("?"), AlreadyExists("repeated"), Unavailable("no")])
def test_an_operation_that_cannot_be_logged_is_not_started(
    store: MemoryStore, clock: ManualClock, error: Exception
) -> None:
    """If writing the pending entry fails, the block is not entered, so nothing has happened.

    Found by the simulator: the `AlreadyExists` of a retried request was raised as if the target of the
    operation existed.
    """
    log = open_log(HookedStore(store, Outage("pending", error)), clock)
    entered = False
    with pytest.raises(Unavailable), log.run({}):
        entered = True
    assert not entered


def test_a_success_that_cannot_be_logged_is_still_a_success(
    store: MemoryStore, clock: ManualClock
) -> None:
    """If writing the decision fails, `run` succeeds and counts a drift. Recovery writes the decision."""
    log = open_log(HookedStore(store, Outage("decided", Unavailable("no"))), clock)
    with log.run({}) as operation:
        pass
    assert log.drift == 1
    healthy = open_log(store, clock)
    assert list(healthy.pending()) == [operation]
    (repaired,) = healthy.recover(lambda operation: COMMITTED, older_than=0)
    assert (repaired.id, repaired.decision) == (operation.id, COMMITTED)
    assert list(healthy.pending()) == []


def test_a_missing_bucket_is_counted_as_a_drift(store: MemoryStore, clock: ManualClock) -> None:
    """It is not confused with an operation that a recovery decided long ago."""
    log = open_log(HookedStore(store, Outage("decided", BucketNotFound("gone"))), clock)
    with log.run({}):
        pass
    assert log.drift == 1


@pytest.mark.parametrize("applied", [True, False])
def test_a_decision_that_cannot_be_read_back_has_an_unknown_outcome(
    store: MemoryStore, clock: ManualClock, applied: bool
) -> None:
    """Only an error that proves that nothing was decided may be raised instead."""

    class Mute(HookedStore):
        looks = 0

        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            raise Unavailable("down")

        def begin_head(self, path: str) -> InFlight[Observation]:
            def pending() -> Observation:
                raise Unavailable("down")

            self.looks += 1
            return super().begin_head(path) if self.looks == 1 else pending

    def stall(_name: str, _path: str, mutation: Callable[[], object]) -> object:
        clock.advance(HOUR)
        return mutation()

    operation = open_log(store, clock).begin({})
    lost = Mute(store, Outage("decided", OutcomeUnknown("?"), applied=applied))
    with pytest.raises(OutcomeUnknown):
        open_log(lost, clock).decide(operation, COMMITTED)
    if not applied:
        # The decision is written, but an earlier decision could not be ruled out.
        with pytest.raises(OutcomeUnknown, match="decided before"):
            open_log(Mute(store, stall), clock).decide(operation, COMMITTED)
    assert open_log(store, clock).decide(operation, ROLLED_BACK) is COMMITTED


def test_a_failure_that_cannot_be_logged_keeps_its_error(store: MemoryStore, clock: ManualClock) -> None:
    """If writing the rollback fails, the caller gets the operation's own error."""
    log = open_log(HookedStore(store, Outage("decided", OutcomeUnknown("?"))), clock)
    with pytest.raises(ZeroDivisionError), log.run({}):
        raise ZeroDivisionError
    assert log.drift == 1


def test_a_decision_whose_response_was_lost_is_recognised(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A lost response to the decision is no drift, because the decision can be read back."""
    hook = Outage("decided", OutcomeUnknown("?"), applied=True)
    log = open_log(HookedStore(store, hook), clock)
    with log.run({}) as operation:
        pass
    assert (log.drift, log.decision(operation.id)) == (0, COMMITTED)


def test_the_first_decision_is_returned(log: OperationLog) -> None:
    """The first decision stands, and later deciders get it."""
    operation = log.begin({})
    assert log.decide(operation, ROLLED_BACK) is ROLLED_BACK
    assert log.decide(operation, COMMITTED) is ROLLED_BACK
    assert [o.decision for o in log.history()] == [ROLLED_BACK]


def test_racing_deciders_agree(log: OperationLog) -> None:
    """Two concurrent deciders with different decisions get the same result."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            operation = log.begin({})
            reported = set(pool.map(lambda d, o=operation: log.decide(o, d), [COMMITTED, ROLLED_BACK]))
            assert reported == {log.decision(operation.id)}


def test_a_block_that_ends_after_a_rollback_by_recovery_fails(log: OperationLog) -> None:
    """A block that returns after a recovery has rolled it back is not reported as a success."""
    with pytest.raises(OutcomeUnknown, match="recovery"), log.run({}):
        log.recover(lambda operation: ROLLED_BACK, older_than=0)


def test_recovery_leaves_young_and_undecidable_operations_pending(
    log: OperationLog, clock: ManualClock
) -> None:
    """Only operations of the given age are judged, and those without a decision stay pending."""
    old = log.begin({"n": "old"})
    clock.advance(1)
    unclear = log.begin({"n": "unclear"})
    clock.advance(100)
    young = log.begin({"n": "young"})
    asked: list[Operation] = []

    def judge(operation: Operation) -> Decision | None:
        asked.append(operation)
        return COMMITTED if operation == old else None

    assert [o.id for o in log.recover(judge, older_than=50)] == [old.id]
    assert asked == [old, unclear]
    assert list(log.pending()) == [unclear, young]


def test_pending_operations_can_be_filtered_by_age_and_by_known_ids(
    log: OperationLog, clock: ManualClock
) -> None:
    """The age is by the store's clock, and known operations are not read again."""
    old, older = log.begin({"n": 1}), log.begin({"n": 2})
    clock.advance(100)
    young = log.begin({"n": 3})
    assert sorted(each.id for each in log.pending(older_than=60)) == sorted([old.id, older.id])
    assert list(log.pending(known={old.id, older.id})) == [young]
    assert not list(log.pending(older_than=60, known={old.id, older.id}))


def test_a_listing_shows_the_pending_operations(log: OperationLog, store: MemoryStore) -> None:
    """The pending entries are exactly the objects under ``pending/``."""
    for _ in range(3):
        with log.run({}):
            pass
    operation = log.begin({})
    assert [info.path for info in store.list("log/pending/")] == [f"log/pending/{operation.id}.json"]


def test_operations_are_ordered_by_their_start(log: OperationLog, clock: ManualClock) -> None:
    """History and pending entries are ordered by the time of their start."""
    for n in range(5):
        with log.run({"n": n}):
            clock.advance(1)
    assert [operation.body["n"] for operation in log.history()] == list(range(5))


def test_compaction_removes_only_old_decisions(log: OperationLog, clock: ManualClock) -> None:
    """Decisions of the given age are removed. Younger ones, and pending operations of any age, stay."""
    pending = log.begin({})
    with log.run({}):
        pass
    clock.advance(2 * HOUR)
    with log.run({}) as young:
        pass
    assert log.compact() == 1
    assert [operation.id for operation in log.history()] == [young.id]
    assert list(log.pending()) == [pending]
    with pytest.raises(ConfigurationError):
        log.compact(older_than=HOUR - 1)


def test_operations_can_be_saved_before_they_are_removed(log: OperationLog, clock: ManualClock) -> None:
    """`save` gets them. If it raises an error, none is removed."""
    with log.run({"n": 1}):
        pass
    clock.advance(HOUR)
    with log.run({"n": 2}):
        pass
    saved: list[list[Operation]] = []

    def fails(operations: Iterator[Operation]) -> None:
        saved.append(list(operations))
        raise Unavailable("no")

    with pytest.raises(Unavailable):
        log.compact(save=fails)
    assert len(list(log.history())) == 2
    assert log.compact(save=lambda operations: saved.append(list(operations))) == 1
    assert saved[0] == saved[1]
    [saved_operation] = saved[0]
    assert (saved_operation.body, saved_operation.decision) == ({"n": 1}, COMMITTED)
    assert [operation.body for operation in log.history()] == [{"n": 2}]
    assert log.compact(save=lambda operations: pytest.fail("there is nothing")) == 0


def test_saved_operations_are_older_than_all_pending_ones(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """By a quarter of the retention. Decided operations that are listed as pending do not count."""
    with log.run({"n": 1}):
        pass
    clock.advance(HOUR / 4 + 1)
    with log.run({"n": 2}) as left:
        pass
    pending = log.begin({"n": 3})
    store.put(f"log/pending/{left.id}.json", store.get(f"log/pending/{pending.id}.json").data)
    clock.advance(3 * HOUR)
    assert log.compact(save=lambda operations: list(operations)) == 1
    assert [operation.body for operation in log.history()] == [{"n": 2}]
    assert [operation.id for operation in log.pending()] == [pending.id]
    log.decide(pending, COMMITTED)
    clock.advance(3 * HOUR)
    assert log.compact(save=lambda operations: list(operations)) == 2


def test_a_compaction_names_all_operations_of_the_log(log: OperationLog, clock: ManualClock) -> None:
    """The pending ones come first: one that is decided meanwhile is in the second listing."""
    with log.run({}) as old:
        pass
    clock.advance(2 * HOUR)
    with log.run({}) as young:
        pass
    pending = log.begin({})
    listed: list[str] = []
    assert log.compact(listed=listed.append) == 1
    assert listed == [pending.id, old.id, young.id]


def test_operations_that_are_not_saved_are_not_removed(log: OperationLog, clock: ManualClock) -> None:
    """`save` may stop before the end. The next compaction continues there."""
    for number in range(5):
        with log.run({"n": number}):
            pass
        clock.advance(1)
    clock.advance(HOUR)
    taken: list[Operation] = []
    assert log.compact(save=lambda operations: taken.extend(itertools.islice(operations, 2))) == 2
    assert [operation.body["n"] for operation in taken] == [0, 1]
    assert [operation.body["n"] for operation in log.history()] == [2, 3, 4]


def test_compaction_removes_at_most_the_given_number(log: OperationLog, clock: ManualClock) -> None:
    """It removes the oldest first."""
    for number in range(5):
        with log.run({"n": number}):
            clock.advance(1)
    clock.advance(HOUR)
    assert [log.compact(limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_sibling_directory_keeps_other_records(log: OperationLog) -> None:
    """Its name must differ from the directories of the log."""
    beside = log.sibling("base", frozenset({"note"}))
    beside.add("a", Document("note", {"text": "x"}))
    assert log.sibling("base", frozenset({"note"})).get("a").body == {"text": "x"}
    assert not list(log.pending()) and not list(log.history())
    for name in ("pending", "decided"):
        with pytest.raises(ConfigurationError, match="another name"):
            log.sibling(name, frozenset({"note"}))


def test_a_compacted_operation_cannot_be_decided_again(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """A decision after compaction raises an error and leaves no entry."""
    operation = log.begin({})
    log.decide(operation, ROLLED_BACK)
    clock.advance(2 * HOUR)
    log.compact()
    with pytest.raises(NotFound, match="compacted"):
        log.decide(operation, COMMITTED)
    assert list(store.list()) == []


def test_a_block_that_outlives_compaction_changes_nothing(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """A block that runs longer than decisions are kept cannot write a second decision."""

    def outlive() -> None:
        log.recover(lambda operation: ROLLED_BACK, older_than=0)
        clock.advance(2 * HOUR)
        log.compact()

    with pytest.raises(OutcomeUnknown), log.run({}):
        outlive()
    assert list(store.list()) == []


@pytest.mark.parametrize("compactions", [1, 2])
def test_a_slow_decider_returns_only_what_it_knows(
    store: MemoryStore, clock: ManualClock, compactions: int
) -> None:
    """It returns its own decision, unless that was compacted before the decider could read it back."""
    other = open_log(store, clock)

    def stall(mutation: Callable[[], object]) -> object:
        result = mutation()
        for _ in range(compactions):
            clock.advance(2 * HOUR)
            other.compact()
        return result

    log = open_log(HookedStore(store, Once(2, stall)), clock)
    operation = log.begin({})
    if compactions == 1:
        assert log.decide(operation, COMMITTED) is COMMITTED
    else:
        with pytest.raises(OutcomeUnknown):
            log.decide(operation, COMMITTED)


def test_a_late_decider_leaves_no_entry_whatever_fails(store: MemoryStore, clock: ManualClock) -> None:
    """A compacted operation is not decided again, even if the store fails at the next request.

    Found by the simulator: the second decision was written first and removed afterwards, and stayed if
    the removal failed.
    """
    operation = open_log(store, clock).begin({})
    open_log(store, clock).decide(operation, COMMITTED)
    clock.advance(2 * HOUR)
    open_log(store, clock).compact()
    for at in (1, 2):
        hook = Once(at, raising(Unavailable("slow down")))
        with contextlib.suppress(CommitError):
            open_log(HookedStore(store, hook), clock).decide(operation, ROLLED_BACK)
        assert open_log(store, clock).decision(operation.id) is None


def raising(error: Exception) -> Callable[[Callable[[], object]], object]:
    """Return a hook that refuses a request with `error`."""

    def refuse(_mutation: Callable[[], object]) -> object:
        raise error

    return refuse


def test_a_stall_at_any_step_is_detected(store: MemoryStore, clock: ManualClock) -> None:
    """The duration of an operation is measured after its decision is written, not before it is sent.

    Found by the simulator: a process that stalled between the two wrote its decision in place of a
    compacted one.
    """
    other = open_log(store, clock)

    def overtake() -> None:
        other.recover(lambda operation: ROLLED_BACK, older_than=0)
        clock.advance(2 * HOUR)
        other.compact()

    def stall(mutation: Callable[[], object]) -> object:
        overtake()
        return mutation()

    class SlowLook(HookedStore):
        def begin_head(self, path: str) -> InFlight[Observation]:
            seen = super().begin_head(path)()
            if "pending" in path and seen.info is not None:
                overtake()
            return lambda: seen

    log = open_log(HookedStore(store, Once(2, stall)), clock)
    with pytest.raises(OutcomeUnknown), log.run({}):
        pass
    with pytest.raises(NotFound, match="compacted"):
        open_log(SlowLook(store), clock).decide(other.begin({}), COMMITTED)
    assert list(store.list()) == []


def test_compaction_during_a_recovery_loses_no_decision(store: MemoryStore, clock: ManualClock) -> None:
    """A recovery that has just listed an operation as pending does not decide it during its compaction.

    Found by the simulator: pending entry and decision were removed in quick succession, and a recovery
    that had listed the pending entry wrote its own decision.
    """

    class Deaf(HookedStore):
        def delete(self, path: str, **options: object) -> None:
            raise Unavailable("slow down")

    operation = open_log(store, clock).begin({})
    open_log(Deaf(store), clock).decide(operation, COMMITTED)
    clock.advance(2 * HOUR)
    seen = []

    class Compacted(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            found = super().get(path, start=start, end=end)
            if "pending" in path:
                seen.append(open_log(store, clock).compact())
                seen.append(open_log(store, clock).compact())
            return found

    (decided,) = open_log(Compacted(store), clock).recover(lambda _: ROLLED_BACK, older_than=0)
    assert (decided.decision, seen) == (COMMITTED, [0, 0])
    assert list(open_log(store, clock).pending()) == []
    clock.advance(2 * HOUR)
    assert open_log(store, clock).compact() == 1
    assert list(store.list()) == []


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("what", ["before", "after"])
def test_a_compaction_that_dies_loses_no_decision(
    store: MemoryStore, clock: ManualClock, at: int, what: str
) -> None:
    """The decision is dated anew before the pending entry goes, so the next compaction keeps it.

    A recovery that had listed the entry before both would write its own decision otherwise.
    """

    class Deaf(HookedStore):
        def delete(self, path: str, **options: object) -> None:
            raise Unavailable("slow down")

    operation = open_log(store, clock).begin({})
    open_log(Deaf(store), clock).decide(operation, COMMITTED)
    clock.advance(2 * HOUR)

    class Compacted(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            found = super().get(path, start=start, end=end)
            if "pending" in path:
                with pytest.raises(Death):
                    open_log(HookedStore(store, Once(at, what)), clock).compact()
                assert open_log(store, clock).compact() == 0
            return found

    (decided,) = open_log(Compacted(store), clock).recover(lambda _: ROLLED_BACK, older_than=0)
    assert decided.decision is COMMITTED


def deaths(clock: ManualClock) -> Iterator[tuple[int, str]]:
    """Yield each request, and each way, at which a whole operation can die."""
    for at in itertools.count(1):
        try:
            with open_log(HookedStore(MemoryStore(clock=clock), Once(at, "before")), clock).run({}):
                pass
        except Death:
            yield from ((at, what) for what in ("before", "after", "late"))
        else:
            return


def test_a_recovery_with_a_slow_judge_decides_nothing_twice(
    log: OperationLog, clock: ManualClock
) -> None:
    """Meanwhile the operation is decided and compacted. The recovery then decides nothing."""
    operation = log.begin({"do": "rename"})

    def judge(_: Operation) -> Decision:
        assert log.decide(operation, COMMITTED) is COMMITTED
        clock.advance(2 * HOUR)
        assert log.compact() == 1
        return ROLLED_BACK

    assert log.recover(judge, older_than=0) == ()
    assert (list(log.pending()), list(log.history())) == ([], [])


def test_a_slow_decision_leaves_the_pending_entry_to_compaction(
    store: MemoryStore, clock: ManualClock
) -> None:
    """The winner removes the pending entry at once or not at all, because others may rely on it."""

    def slow(name: str, path: str, mutation: Callable[[], object]) -> object:
        if name == "put" and "/decided/" in path:
            clock.advance(HOUR)
        return mutation()

    log = open_log(HookedStore(store, slow), clock)
    operation = log.begin({"do": "rename"})
    assert log.decide(operation, COMMITTED) is COMMITTED
    assert list(log.names()) == [operation.id, operation.id]
    clock.advance(2 * HOUR)
    assert log.compact() == 0
    assert list(log.names()) == [operation.id]


def test_an_operation_gets_one_decision_wherever_its_owner_dies(clock: ManualClock) -> None:
    """After recovery all readers agree on the decision, even if a last request arrives late."""
    seen = 0
    for at, what in deaths(clock):
        seen += 1
        store = MemoryStore(clock=clock)
        hook = Once(at, what)
        performed = False
        with pytest.raises(Death), open_log(HookedStore(store, hook), clock).run({}):
            performed = True
        log = open_log(store, clock)
        judged = COMMITTED if performed else ROLLED_BACK
        log.recover(lambda operation, judged=judged: judged, older_than=0)
        before = [(o.id, o.decision) for o in log.history()]
        hook.deliver()
        log.recover(lambda operation, judged=judged: judged, older_than=0)
        after = [(o.id, o.decision) for o in log.history()]
        assert before == after[: len(before)]
        assert {decision for _, decision in after} <= {judged}
        for _ in range(2):  # Decisions that were still listed as pending are kept for another period.
            clock.advance(2 * HOUR)
            log.compact()
        assert list(store.list()) == []
    assert seen == 9  # Pending entry, decision, and removal of the entry, each in three ways.


@pytest.mark.parametrize("place", ["pending", "decided"])
@pytest.mark.parametrize(
    ("content", "error"),
    [(b"{", CorruptRecord), (b'{"format": 99}', FormatTooNew)],
)
def test_an_unreadable_entry_is_an_error(
    log: OperationLog, store: MemoryStore, place: str, content: bytes, error: type[Exception]
) -> None:
    """Corrupt entries, and those of a newer format, are never skipped."""
    store.put(f"log/{place}/1-x.json", content)
    with pytest.raises(error):
        list(log.pending() if place == "pending" else log.history())


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of store in turn."""
    return open_place(request)


def test_a_log_works_in_every_kind_of_store(place: Place) -> None:
    """Operations are decided once, listed, recovered by another process, and compacted."""
    with place() as store, place() as elsewhere:
        log, other = (OperationLog(each, "deep/log") for each in (store, elsewhere))
        with log.run({"n": 1}) as done:
            assert [operation.body for operation in other.pending()] == [{"n": 1}]
        left = log.begin({"n": 2})
        assert other.recover(lambda operation: None, older_than=0) == ()
        (recovered,) = other.recover(lambda operation: ROLLED_BACK, older_than=0)
        assert (recovered.id, recovered.decision) == (left.id, ROLLED_BACK)
        assert log.decide(left, COMMITTED) is ROLLED_BACK
        assert {o.id: o.decision for o in log.history()} == {done.id: COMMITTED, left.id: ROLLED_BACK}
        assert (list(other.pending()), log.compact()) == ([], 0)
        hasty = OperationLog(elsewhere, "deep/log", retention=1e-9)
        assert (hasty.compact(), list(log.history())) == (2, [])
        assert list(store.list("deep/")) == []


def test_retention_must_be_positive(store: MemoryStore) -> None:
    """A log that would keep no decision is refused."""
    with pytest.raises(ConfigurationError):
        OperationLog(ConditionalStore(store), "log", retention=0)


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_ranges_divide_the_operations(
    log: OperationLog, store: MemoryStore, clock: ManualClock, count: int
) -> None:
    """Each operation is in one range, in order: ids of other programs and later ones, too."""
    assert [len([*log.decided_names(each)]) for each in log.ranges(count)] == [0]
    for number in range(20):
        with log.run({"number": number}):
            clock.advance(number % 3 / 1000)
    for name in ("0", "zebra", "1"):
        body = {"time": 1.0, "operation": {}, "decision": "committed"}
        log.sibling("elsewhere", frozenset({"decision"})).add(name, Document("decision", body))
        store.put(f"log/decided/{name}.json", store.get(f"log/elsewhere/{name}.json").data)
    ranges = log.ranges(count)
    assert len(ranges) <= count
    clock.advance(1000)
    with log.run({}):
        pass
    names = [name for each in ranges for name in log.decided_names(each)]
    assert names == [*log.decided_names()] and len(names) == 24
    assert [each.id for part in ranges for each in log.history(within=part)] == names


def test_ranges_have_equal_lengths(log: OperationLog, clock: ManualClock) -> None:
    """Operations that begin evenly are divided evenly."""
    for _ in range(40):
        with log.run({}):
            clock.advance(1)
    assert [len([*log.decided_names(each)]) for each in log.ranges(4)] == [10, 10, 10, 10]


def test_a_decision_that_a_compaction_replaces_meanwhile_is_read_again(clock: ManualClock) -> None:
    """It may be cut to its earlier length. A decision that stays damaged is corrupt."""
    store = TornStore(clock=clock)
    log = OperationLog(ConditionalStore(store, clock=clock), "log", clock=clock, retention=HOUR)
    operation = log.begin({"what": "x"})
    log.decide(operation, COMMITTED)
    store.torn = 1
    assert log.decision(operation.id) is COMMITTED
    assert not store.torn
    # The process that decided it died before it removed the pending entry.
    pending = encode(Document("operation", {"time": operation.time, "operation": {"what": "x"}}))
    store.put(f"log/pending/{operation.id}.json", pending)
    clock.advance(2 * HOUR)
    store.torn = 1
    log.compact()
    assert not store.torn and not list(log.pending())
    store.torn = 1_000
    with pytest.raises(CorruptRecord, match="left as it is"):
        log.decision(operation.id)
    assert store.torn == 1_000 - TRIES
