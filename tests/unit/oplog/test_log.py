"""`OperationLog`: pending before anything is done, decided exactly once, never forgotten too early."""

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
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.oplog.codec import Document
from commitlog.stores import InFlight, ObjectData, ObjectStore, Observation
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import PLACES, Death, HookedStore, Once, Place, open_place

COMMITTED, ROLLED_BACK = Decision.COMMITTED, Decision.ROLLED_BACK
HOUR = 3600.0


@pytest.fixture
def clock() -> ManualClock:
    """The time, for clients and store."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """Where the log is."""
    return MemoryStore(clock=clock)


def open_log(store: ObjectStore, clock: ManualClock) -> OperationLog:
    backoff = Backoff(tries=2)
    return OperationLog(
        ConditionalStore(store, clock=clock, backoff=backoff), "log", clock=clock, retention=HOUR
    )


@pytest.fixture
def log(store: MemoryStore, clock: ManualClock) -> OperationLog:
    """A log of its own."""
    return open_log(store, clock)


class Outage:
    """A hook: requests whose path has `part` in it are refused, or lose their answers."""

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


def test_a_log_in_no_bucket_is_not_one_of_no_decisions(store: MemoryStore, clock: ManualClock) -> None:
    """Who asks at the wrong place is told so, and not that the operation is undecided."""

    class Astray(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            raise BucketNotFound("no such bucket")

    with pytest.raises(BucketNotFound):
        open_log(Astray(store), clock).decision("a")
    assert open_log(store, clock).decision("a") is None


def test_compaction_reports_a_missing_bucket(store: MemoryStore, clock: ManualClock) -> None:
    """It does not take the decisions that it cannot read for removed ones, and removes nothing."""

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


def test_an_operation_is_pending_while_it_runs_and_committed_after(log: OperationLog) -> None:
    """The entry is there before the block runs, and is decided once it returned."""
    with log.run({"do": "rename", "from": "a"}) as operation:
        assert list(log.pending()) == [operation]
        assert log.decision(operation.id) is None
    assert list(log.pending()) == []
    (done,) = log.history()
    assert (done.id, done.body, done.decision) == (operation.id, operation.body, COMMITTED)


def test_a_failed_operation_is_rolled_back_and_its_error_goes_on(log: OperationLog) -> None:
    """An exception out of the block decides the operation, and is not replaced."""
    with pytest.raises(KeyError), log.run({}) as operation:
        raise KeyError("x")
    assert log.decision(operation.id) is ROLLED_BACK
    assert list(log.pending()) == []


@pytest.mark.parametrize("error", [OutcomeUnknown("?"), Death(), KeyboardInterrupt()])
def test_what_nobody_knows_the_outcome_of_stays_pending(log: OperationLog, error: BaseException) -> None:
    """After `OutcomeUnknown`, or an end that is no `Exception`, nothing is decided."""
    with pytest.raises(type(error)), log.run({}) as operation:
        raise error
    assert list(log.pending()) == [operation]
    assert log.drift == 0


@pytest.mark.parametrize("error", [OutcomeUnknown("?"), AlreadyExists("repeated"), Unavailable("no")])
def test_an_operation_that_cannot_be_logged_is_not_begun(
    store: MemoryStore, clock: ManualClock, error: Exception
) -> None:
    """If writing the pending entry fails, the block is not entered: surely nothing happened.

    Found by the simulator: `AlreadyExists`, which a request had met that was repeated on its way, came
    out as if what the operation was to create were there.
    """
    log = open_log(HookedStore(store, Outage("pending", error)), clock)
    entered = False
    with pytest.raises(Unavailable), log.run({}):
        entered = True
    assert not entered


def test_success_that_cannot_be_logged_is_success_all_the_same(
    store: MemoryStore, clock: ManualClock
) -> None:
    """If writing the decision fails, `run` succeeds and counts a drift; recovery makes up for it."""
    log = open_log(HookedStore(store, Outage("decided", Unavailable("no"))), clock)
    with log.run({}) as operation:
        pass
    assert log.drift == 1
    healthy = open_log(store, clock)
    assert list(healthy.pending()) == [operation]
    (repaired,) = healthy.recover(lambda operation: COMMITTED, older_than=0)
    assert (repaired.id, repaired.decision) == (operation.id, COMMITTED)
    assert list(healthy.pending()) == []


def test_a_log_that_is_gone_is_a_drift_too(store: MemoryStore, clock: ManualClock) -> None:
    """It is not mistaken for an operation that a recovery decided long ago."""
    log = open_log(HookedStore(store, Outage("decided", BucketNotFound("gone"))), clock)
    with log.run({}):
        pass
    assert log.drift == 1


@pytest.mark.parametrize("applied", [True, False])
def test_a_decision_that_cannot_be_read_back_has_an_unknown_outcome(
    store: MemoryStore, clock: ManualClock, applied: bool
) -> None:
    """Only what proves that nothing was decided may be raised in its place."""

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
        # Written, but whether there had been another one could not be looked up.
        with pytest.raises(OutcomeUnknown, match="decided before"):
            open_log(Mute(store, stall), clock).decide(operation, COMMITTED)
    assert open_log(store, clock).decide(operation, ROLLED_BACK) is COMMITTED


def test_a_failure_that_cannot_be_logged_is_still_that_failure(
    store: MemoryStore, clock: ManualClock
) -> None:
    """If writing the rollback fails, the caller hears of the operation's own error."""
    log = open_log(HookedStore(store, Outage("decided", OutcomeUnknown("?"))), clock)
    with pytest.raises(ZeroDivisionError), log.run({}):
        raise ZeroDivisionError
    assert log.drift == 1


def test_a_decision_whose_answer_was_lost_is_recognised(store: MemoryStore, clock: ManualClock) -> None:
    """A lost answer to the decision is no drift, as it can be read back."""
    hook = Outage("decided", OutcomeUnknown("?"), applied=True)
    log = open_log(HookedStore(store, hook), clock)
    with log.run({}) as operation:
        pass
    assert (log.drift, log.decision(operation.id)) == (0, COMMITTED)


def test_the_loser_learns_what_was_decided(log: OperationLog) -> None:
    """The first decision stands, whoever asks for another one and how often."""
    operation = log.begin({})
    assert log.decide(operation, ROLLED_BACK) is ROLLED_BACK
    assert log.decide(operation, COMMITTED) is ROLLED_BACK
    assert [o.decision for o in log.history()] == [ROLLED_BACK]


def test_racing_deciders_agree(log: OperationLog) -> None:
    """Of two who decide differently at the same time, both are told the same."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            operation = log.begin({})
            told = set(pool.map(lambda d, o=operation: log.decide(o, d), [COMMITTED, ROLLED_BACK]))
            assert told == {log.decision(operation.id)}


def test_a_zombie_hears_that_it_was_rolled_back(log: OperationLog) -> None:
    """A block that returns after a recovery had rolled it back does not pass for a success."""
    with pytest.raises(OutcomeUnknown, match="recovery"), log.run({}):
        log.recover(lambda operation: ROLLED_BACK, older_than=0)


def test_recovery_leaves_alone_what_is_young_or_undecidable(
    log: OperationLog, clock: ManualClock
) -> None:
    """Only operations of the given age are judged, and those without a verdict stay pending."""
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


def test_of_what_is_pending_the_old_and_the_new_can_be_asked_for(
    log: OperationLog, clock: ManualClock
) -> None:
    """By the store's clock; what is known is not read again."""
    old, older = log.begin({"n": 1}), log.begin({"n": 2})
    clock.advance(100)
    young = log.begin({"n": 3})
    assert sorted(each.id for each in log.pending(older_than=60)) == sorted([old.id, older.id])
    assert list(log.pending(known={old.id, older.id})) == [young]
    assert not list(log.pending(older_than=60, known={old.id, older.id}))


def test_a_listing_alone_tells_what_is_pending(log: OperationLog, store: MemoryStore) -> None:
    """The pending entries are the objects under ``pending/``, and nothing else is."""
    for _ in range(3):
        with log.run({}):
            pass
    operation = log.begin({})
    assert [info.path for info in store.list("log/pending/")] == [f"log/pending/{operation.id}.json"]


def test_operations_come_in_the_order_they_were_begun(log: OperationLog, clock: ManualClock) -> None:
    """History and pending entries are ordered by the time of their beginning."""
    for n in range(5):
        with log.run({"n": n}):
            clock.advance(1)
    assert [operation.body["n"] for operation in log.history()] == list(range(5))


def test_compaction_forgets_what_is_old_and_only_that(log: OperationLog, clock: ManualClock) -> None:
    """Decisions of the given age go; younger ones, and pending operations of any age, stay."""
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


def test_what_is_forgotten_can_be_saved_first(log: OperationLog, clock: ManualClock) -> None:
    """It is handed over before it goes, with the time of the oldest of all; an error keeps all of it."""
    with log.run({"n": 1}) as first:
        pass
    clock.advance(HOUR)
    with log.run({"n": 2}):
        pass
    saved: list[tuple[list[Operation], float]] = []

    def fails(operations: Iterator[Operation], oldest: float) -> None:
        saved.append((list(operations), oldest))
        raise Unavailable("no")

    with pytest.raises(Unavailable):
        log.compact(save=fails)
    assert len(list(log.history())) == 2
    assert log.compact(save=lambda operations, oldest: saved.append((list(operations), oldest))) == 1
    assert saved[0] == saved[1]
    [[saved_operation], oldest] = saved[0]
    assert (saved_operation.body, saved_operation.decision) == ({"n": 1}, COMMITTED)
    assert oldest == first.time
    assert [operation.body for operation in log.history()] == [{"n": 2}]
    assert log.compact(save=lambda operations, oldest: pytest.fail("there is nothing")) == 0


def test_what_is_saved_is_older_than_all_that_is_pending(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """By a quarter of the settle time; decided operations that still seem pending are no hindrance."""
    with log.run({"n": 1}):
        pass
    clock.advance(HOUR / 4 + 1)
    with log.run({"n": 2}) as left:
        pass
    pending = log.begin({"n": 3})
    store.put(f"log/pending/{left.id}.json", store.get(f"log/pending/{pending.id}.json").data)
    clock.advance(3 * HOUR)
    assert log.compact(save=lambda operations, oldest: list(operations)) == 1
    assert [operation.body for operation in log.history()] == [{"n": 2}]
    assert [operation.id for operation in log.pending()] == [pending.id]
    log.decide(pending, COMMITTED)
    clock.advance(3 * HOUR)
    assert log.compact(save=lambda operations, oldest: list(operations)) == 2


def test_what_is_not_taken_is_not_forgotten(log: OperationLog, clock: ManualClock) -> None:
    """Who saves operations may have enough before the end; the rest comes the next time."""
    for number in range(5):
        with log.run({"n": number}):
            pass
        clock.advance(1)
    clock.advance(HOUR)
    taken: list[Operation] = []
    assert (
        log.compact(save=lambda operations, oldest: taken.extend(itertools.islice(operations, 2))) == 2
    )
    assert [operation.body["n"] for operation in taken] == [0, 1]
    assert [operation.body["n"] for operation in log.history()] == [2, 3, 4]


def test_compaction_forgets_so_many_at_a_time(log: OperationLog, clock: ManualClock) -> None:
    """The oldest first."""
    for number in range(5):
        with log.run({"n": number}):
            clock.advance(1)
    clock.advance(HOUR)
    assert [log.compact(most=2) for _ in range(4)] == [2, 2, 1, 0]


def test_other_records_are_kept_beside_a_log(log: OperationLog) -> None:
    """In directories of other names than its own."""
    beside = log.sibling("base", frozenset({"note"}))
    beside.add("a", Document("note", {"text": "x"}))
    assert log.sibling("base", frozenset({"note"})).get("a").body == {"text": "x"}
    assert not list(log.pending()) and not list(log.history())
    for name in ("pending", "decided"):
        with pytest.raises(ConfigurationError, match="another name"):
            log.sibling(name, frozenset({"note"}))


def test_a_decided_operation_is_never_decidable_again(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """Whoever still holds an operation after compaction is told so, and leaves no decision behind."""
    operation = log.begin({})
    log.decide(operation, ROLLED_BACK)
    clock.advance(2 * HOUR)
    log.compact()
    with pytest.raises(NotFound, match="compacted"):
        log.decide(operation, COMMITTED)
    assert list(store.list()) == []


def test_a_zombie_of_a_compacted_operation_changes_nothing(
    log: OperationLog, store: MemoryStore, clock: ManualClock
) -> None:
    """A block that runs on for longer than decisions are kept cannot write a second one."""

    def outlive() -> None:
        log.recover(lambda operation: ROLLED_BACK, older_than=0)
        clock.advance(2 * HOUR)
        log.compact()

    with pytest.raises(OutcomeUnknown), log.run({}):
        outlive()
    assert list(store.list()) == []


@pytest.mark.parametrize("compactions", [1, 2])
def test_a_slow_decider_does_not_guess(store: MemoryStore, clock: ManualClock, compactions: int) -> None:
    """It knows its own decision as the first one, until that is compacted away before it can look."""
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


def test_a_decider_that_comes_too_late_leaves_no_trace_whatever_fails(
    store: MemoryStore, clock: ManualClock
) -> None:
    """What is compacted away is not decided again, not even if the store fails at the next request.

    Found by the simulator: the second decision was written first and taken back then, and stayed if that
    could not be done.
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
    """Return what happens to a request that is refused with `error`."""

    def refuse(_mutation: Callable[[], object]) -> object:
        raise error

    return refuse


def test_a_stall_at_any_step_is_noticed(store: MemoryStore, clock: ManualClock) -> None:
    """How long an operation took is measured when its decision is there, not before it is sent.

    Found by the simulator: a process that stood still between the two put its decision in the place of
    one that was compacted away.
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


def test_compaction_beside_a_recovery_loses_no_decision(store: MemoryStore, clock: ManualClock) -> None:
    """A recovery that has just found an operation pending does not decide what is being compacted.

    Found by the simulator: pending entry and decision went one right after the other, and a recovery
    that had found the one wrote a decision of its own.
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


def test_a_recovery_whose_judge_is_slow_does_not_guess(log: OperationLog, clock: ManualClock) -> None:
    """Meanwhile another decides the operation, and that is forgotten. The recovery decides nothing."""
    operation = log.begin({"do": "rename"})

    def judge(_: Operation) -> Decision:
        assert log.decide(operation, COMMITTED) is COMMITTED
        clock.advance(2 * HOUR)
        assert log.compact() == 1
        return ROLLED_BACK

    assert log.recover(judge, older_than=0) == ()
    assert (list(log.pending()), list(log.history())) == ([], [])


def test_a_decision_that_was_slow_leaves_the_pending_entry_to_compaction(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A pending entry is removed by the winner at once or not at all: others may still go by it."""

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


def test_whatever_request_its_owner_dies_at_an_operation_gets_one_decision(clock: ManualClock) -> None:
    """After recovery everyone agrees on the decision, even if a last request arrives late."""
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
        for _ in range(2):  # what was still listed as pending is kept for a while longer
            clock.advance(2 * HOUR)
            log.compact()
        assert list(store.list()) == []
    assert seen == 9  # pending entry, decision, and the removal of the entry, each in three ways


@pytest.mark.parametrize("place", ["pending", "decided"])
@pytest.mark.parametrize(
    ("content", "error"),
    [(b"{", CorruptRecord), (b'{"format": 99}', FormatTooNew)],
)
def test_an_illegible_entry_is_an_error_not_an_absence(
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


def test_a_log_in_every_kind_of_store(place: Place) -> None:
    """Operations are decided once, listed, recovered by another process, and compacted, anywhere."""
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
    """A log that would keep no decision at all is refused."""
    with pytest.raises(ConfigurationError):
        OperationLog(ConditionalStore(store), "log", retention=0)
