"""Locks: how they are acquired, kept, lost, broken and released, in a store and in a table."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from attrs import evolve

from commitlog._util.background import Foreground
from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.commit.probe import PREFIX, THREADS
from commitlog.commit.record import NEVER
from commitlog.errors import (
    ConfigurationError,
    Conflict,
    CorruptRecord,
    LockLost,
    LockNotHeld,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.locks import LOCK_SCHEMA, Lock, LockSettings
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.torn_reads import TRIES
from commitlog.stores import MemoryStore
from commitlog.stores.api import IfMatch, Observation, PutResult
from commitlog.stores.body import Body
from commitlog.tables import InFlight, Item, MemoryTable, TableCondition
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.torn_store import TornStore

SETTINGS = LockSettings(timeout=10, margin=2, heartbeat=2)


class Flaky(MemoryTable):
    """A table that can lose the answers of its next puts, with or without performing them."""

    lose = 0
    performed = True

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        if not self.lose:
            return super().begin_put(item, condition=condition)
        self.lose -= 1
        if self.performed:
            super().begin_put(item, condition=condition)()

        def lost() -> None:
            raise OutcomeUnknown("no answer")

        return lost


@pytest.fixture
def clock() -> ManualClock:
    """The clock of all clients."""
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> Flaky:
    """A table of locks."""
    table = Flaky(parse_table_url("memory://"), LOCK_SCHEMA, clock=clock)
    table.create()
    return table


@pytest.fixture(params=["store", "table"])
def place(request: pytest.FixtureRequest, clock: ManualClock, table: Flaky) -> Any:
    """A place for locks."""
    return table if request.param == "table" else ConditionalStore(MemoryStore(clock=clock), clock=clock)


@pytest.fixture
def make(place: Any, clock: ManualClock) -> Callable[..., Lock]:
    """Return a function that makes a client of the lock."""

    def make(**options: Any) -> Lock:
        options = {"settings": SETTINGS, "background": Foreground(), "clock": clock, **options}
        return Lock(options.pop("place", place), "a/lock", backoff=Backoff(tries=3), **options)

    return make


def test_one_client_at_a_time_holds_it(make: Callable[..., Lock]) -> None:
    """The next one gets it after a release, with a larger token."""
    first, second = make(holder="one"), make()
    assert first.acquire()
    assert first.held and first.locked() and second.locked() and not second.held
    assert not second.acquire(blocking=False)
    holder = second.holder()
    assert holder is not None
    assert (holder.token, holder.description, holder.timeout) == (first.token, "one", 10)
    token = first.token
    first.release()
    assert not second.locked()
    with second:
        assert second.token > token


def test_a_wait_ends_in_time(make: Callable[..., Lock], clock: ManualClock) -> None:
    """It ends at the timeout, or when the holder must have lost the lock."""
    make().acquire()
    second = make()
    began = clock.monotonic()
    assert not second.acquire(timeout=5)
    assert clock.monotonic() == began + 5
    assert second.acquire(timeout=60)
    assert clock.monotonic() == began + 30  # the timeout times the rate, from the first look


def test_looks_without_waiting_add_up(make: Callable[..., Lock], clock: ManualClock) -> None:
    """A client that only tries now and then notices that the holder died."""
    make().acquire()
    second = make()
    for _ in range(30):
        assert not second.acquire(blocking=False)
        clock.advance(1)
    assert second.acquire(blocking=False)


def test_heartbeats_keep_it(make: Callable[..., Lock], clock: ManualClock) -> None:
    """The token stays; others wait from the last heartbeat."""
    first, second = make(), make()
    first.acquire()
    token = first.token
    for _ in range(20):
        clock.advance(5)
        assert first.renew()
        assert not second.acquire(blocking=False)
    assert first.token == token
    assert first.expires == clock.monotonic() + 8


class _Unproven(MemoryStore):
    """A store whose conditions are probed first. Looks of the probe, and replacements, take a second."""

    capabilities = evolve(MemoryStore.capabilities, enforced=False)

    def put(self, path: str, data: Body, **options: Any) -> PutResult:
        replaces = isinstance(options.get("condition"), IfMatch) and PREFIX not in path
        self._clock.sleep(1 if replaces else 0)
        return super().put(path, data, **options)

    def begin_head(self, path: str) -> InFlight[Observation]:
        self._clock.sleep(1 if PREFIX in path else 0)
        return super().begin_head(path)


def test_a_lease_begins_when_its_store_is_known(clock: ManualClock) -> None:
    """The probe of a store takes longer than a lease. No heartbeat waits for it."""
    place = ConditionalStore(
        _Unproven(clock=clock), clock=clock, open_executor=lambda: ThreadPoolExecutor(THREADS)
    )
    lock = Lock(place, "lock", settings=SETTINGS, background=Foreground(), clock=clock)
    assert lock.acquire(blocking=False)
    assert clock.monotonic() > SETTINGS.timeout
    assert lock.expires - clock.monotonic() == SETTINGS.timeout - SETTINGS.margin
    assert lock.renew()
    assert lock.expires - clock.monotonic() == SETTINGS.timeout - SETTINGS.margin - 1


def test_it_is_lost_if_heartbeats_stop(make: Callable[..., Lock], clock: ManualClock) -> None:
    """It is lost before anybody else may have it, and stays lost; the callback is called once."""
    lost: list[LockLost] = []
    lock = make(on_lost=lost.append)
    lock.acquire()
    clock.advance(7.9)
    assert lock.held
    clock.advance(0.1)
    assert not lock.held and not lock.renew() and not lock.held
    assert len(lost) == 1
    for read in (lambda: lock.token, lambda: lock.expires, lock.check, lock.acquire):
        with pytest.raises(LockLost, match="heartbeats did not succeed in time"):
            read()
    with pytest.raises(LockLost):
        lock.release()
    with pytest.raises(LockNotHeld):
        lock.release()
    assert lock.acquire(blocking=False)  # the record was released, though the lock was lost


def test_a_suspension_is_noticed(make: Callable[..., Lock], clock: ManualClock) -> None:
    """The next holder keeps the lock, whatever the suspended one does."""
    first, second = make(), make()
    first.acquire()
    assert second.acquire(timeout=60)
    assert not first.renew()
    with pytest.raises(LockLost):
        first.release()
    assert second.renew() and second.held


def test_a_heartbeat_does_not_take_it_back(make: Callable[..., Lock], clock: ManualClock) -> None:
    """A holder whose lock was broken learns it from its heartbeat."""
    lost: list[LockLost] = []
    first, second = make(on_lost=lost.append), make()
    first.acquire()
    assert second.break_holder(first.token, wait=False)
    assert second.acquire(blocking=False)
    assert first.held  # it cannot know yet
    assert not first.renew()
    assert "another holder has it" in str(lost[0])
    assert second.renew()


def test_wall_clocks_do_not_matter(make: Callable[..., Lock], clock: ManualClock) -> None:
    """They may jump in both directions."""
    first, second = make(), make()
    first.acquire()
    token = first.token
    for jump in (1e6, -2e6):
        clock.set_forward(jump)
        assert first.renew() and not second.acquire(blocking=False)
    first.release()
    with second:
        assert second.token > token


def test_ttl_does_not_drop_the_record(
    table: Flaky, make: Callable[..., Lock], clock: ManualClock
) -> None:
    """Neither while the lock is held nor after its release. So tokens never restart."""
    lock = make(place=table)
    with lock:
        token = lock.token
        clock.set_forward(1e9)
        assert table.remove_expired() == 0
    assert table.remove_expired() == 0
    assert [item["ttl"] for item in table.scan()] == [NEVER]
    with lock:
        assert lock.token > token


def test_a_holder_whose_record_is_removed_has_lost_it(
    table: Flaky, make: Callable[..., Lock], clock: ManualClock
) -> None:
    """Its heartbeat does not bring the record back; the next token is larger all the same."""
    lock = make(place=table)
    lock.acquire()
    token = lock.token
    (item,) = table.scan()
    table.delete(table.schema.key_of(item))
    clock.advance(1)
    assert not lock.renew()
    assert not list(table.scan())
    with make(place=table) as second:
        assert second.token > token


@pytest.mark.parametrize("performed", [True, False])
def test_a_lost_answer_is_not_another_holder(
    performed: bool, table: Flaky, make: Callable[..., Lock]
) -> None:
    """The client recognises its own record; the next hold has a token of its own even so."""
    table.performed = performed
    table.lose = 1
    lock = make(place=table)
    assert lock.acquire(blocking=False)
    token = lock.token
    table.lose = 1
    assert lock.renew()
    assert lock.token == token
    table.lose = 1
    lock.release()
    assert lock.acquire(blocking=False)
    assert lock.token > token


def test_an_unknown_outcome_can_be_tried_again(table: Flaky, make: Callable[..., Lock]) -> None:
    """The lock is not held, and the next call of the same client finds its record."""
    table.performed = False
    table.lose = 3
    lock = make(place=table)
    with pytest.raises(OutcomeUnknown, match="acquire it again"):
        lock.acquire()
    assert not lock.held
    assert lock.acquire(blocking=False)


def test_heartbeats_that_fail_do_not_lose_it_at_once(
    table: Flaky, make: Callable[..., Lock], clock: ManualClock
) -> None:
    """Only the clock does."""
    lock = make(place=table)
    lock.acquire()
    table.performed = False
    table.lose = 3
    clock.advance(2)
    assert lock.renew()
    assert lock.expires <= 8
    assert lock.renew()
    assert lock.expires > 8
    lock.release()


def test_a_release_after_a_heartbeat_without_an_answer(table: Flaky, make: Callable[..., Lock]) -> None:
    """The record is looked at, and released: the next holder need not wait."""
    lock = make(place=table)
    lock.acquire()
    table.lose, table.performed = 3, False
    assert lock.renew()  # it may have been stored
    lock.release()
    assert make(place=table).acquire(blocking=False)


def test_a_failure_to_ask_is_raised(table: Flaky, make: Callable[..., Lock], monkeypatch: Any) -> None:
    """Nothing is held, and the lock can be acquired later."""
    lock = make(place=table)

    def fail(*_: object) -> Item | None:
        raise Unavailable("down")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryTable, "get", fail)
        with pytest.raises(Unavailable):
            lock.acquire()
    assert lock.acquire(blocking=False)


def test_breaking_waits_for_the_holder(make: Callable[..., Lock], clock: ManualClock) -> None:
    """Only the holder with that token loses the lock."""
    first, other = make(), make()
    first.acquire()
    assert not other.break_holder(first.token - 1)
    token = first.token
    began = clock.monotonic()
    assert other.break_holder(token)
    assert clock.monotonic() == began + 30
    assert not other.locked() and not first.held
    assert not other.break_holder(token)


def test_a_thread_that_holds_it_may_acquire_a_reentrant_one_again(make: Callable[..., Lock]) -> None:
    """It is free after as many releases. Another thread cannot release it."""
    lock = make(reentrant=True)
    with lock, lock:
        assert lock.held
        lock.acquire()
        lock.release()
    assert not lock.locked()
    with pytest.raises(LockNotHeld):
        lock.release()


def test_threads_exclude_each_other(place: Any) -> None:
    """They share one object, whose heartbeats are sent in the background."""
    settings = LockSettings(timeout=3, test_interval=0.001)
    lock = Lock(place, "a/lock", settings=settings, reentrant=True)
    shared = [0]

    def add() -> None:
        for _ in range(3):
            with lock:
                seen = shared[0]
                shared[0] = seen + 1

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared == [9]
    with lock:
        found: list[Exception] = []

        def release() -> None:
            try:
                lock.release()
            except LockNotHeld as error:
                found.append(error)

        thread = threading.Thread(target=release)
        thread.start()
        thread.join()
    assert "another thread" in str(found[0])


def test_a_lock_that_is_not_reentrant_blocks_its_own_thread(make: Callable[..., Lock]) -> None:
    """As `threading.Lock` does."""
    lock = make()
    lock.acquire()
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(timeout=1)
    lock.release()


def test_leaving_the_block_of_a_lost_lock_raises(make: Callable[..., Lock], clock: ManualClock) -> None:
    """Unless the block raised something else."""
    with pytest.raises(LockLost), make():
        clock.advance(20)

    def fail() -> None:
        with make():
            clock.advance(20)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_the_callback_may_release(make: Callable[..., Lock], clock: ManualClock) -> None:
    """A lost lock is released by the thread that notices the loss."""

    def release(lost: LockLost) -> None:
        with pytest.raises(LockLost):
            lock.release()

    lock = make(on_lost=release)
    lock.acquire()
    make().break_holder(lock.token, wait=False)
    assert not lock.renew()
    assert lock.acquire(blocking=False)


def test_the_background_notices_a_loss(place: Any) -> None:
    """Heartbeats are sent by a thread, which finds that the lock was broken."""
    lost = threading.Event()
    settings = LockSettings(timeout=3, heartbeat=0.01)
    lock = Lock(place, "a/lock", settings=settings, on_lost=lambda error: lost.set())
    lock.acquire()
    assert Lock(place, "a/lock").break_holder(lock.token, wait=False)
    assert lost.wait(60)
    with pytest.raises(LockLost):
        lock.release()


class _Pauses(Foreground):
    """Keeps the pauses of repeated calls."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def repeat(self, seconds: float, call: Callable[[], bool]) -> Callable[[], None]:
        self.seconds.append(seconds)
        return super().repeat(seconds, call)


@pytest.mark.parametrize("begun", [0, 1])
def test_a_lock_without_its_threads_is_given_back(make: Callable[..., Lock], begun: int) -> None:
    """If a thread cannot be started, the heartbeats of another one would hold the lock forever."""

    class Few(Foreground):
        running = 0

        def repeat(self, seconds: float, call: Callable[[], bool]) -> Callable[[], None]:
            if self.running == begun:
                raise RuntimeError("can't start new thread")
            self.running += 1
            return stop

    def stop() -> None:
        few.running -= 1

    few = Few()
    lock = make(background=few)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="new thread"):
            lock.acquire()
        assert few.running == 0
        assert not lock.held and not lock.locked()
        with pytest.raises(LockNotHeld, match="acquire it first"):
            lock.check()
    assert make().acquire(blocking=False)


@pytest.mark.parametrize("settings", [{}, {"margin": 0.5}, {"margin": 1.9}, {"heartbeat": 6.0}], ids=str)
def test_the_clock_is_looked_at_twice_within_the_margin(
    settings: dict[str, float], make: Callable[..., Lock]
) -> None:
    """So half of the margin is left for `on_lost`, whatever the time between heartbeats is."""
    timing, pauses = LockSettings(**settings), _Pauses()
    make(settings=timing, background=pauses).acquire()
    heartbeat, look = pauses.seconds
    assert heartbeat == timing.heartbeat
    assert 0 < look <= timing.margin / 2


def test_without_a_margin_the_clock_is_looked_at_between_heartbeats(make: Callable[..., Lock]) -> None:
    """A thread that looked at it all the time would take the processor."""
    pauses = _Pauses()
    make(settings=LockSettings(margin=0), background=pauses).acquire()
    heartbeat, look = pauses.seconds
    assert 0 < look < heartbeat


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"blocking": False, "timeout": 1}, "non-blocking"),
        ({"timeout": -2}, "non-negative"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: dict[str, Any], message: str, make: Callable[..., Lock]
) -> None:
    """As by `threading.Lock`."""
    with pytest.raises(ValueError, match=message):
        make().acquire(**arguments)


def test_wrong_settings_are_refused(place: Any) -> None:
    """The message says what is allowed."""
    with pytest.raises(ConfigurationError, match="non-empty"):
        Lock(place, "")
    with pytest.raises(ConfigurationError, match="1000"):
        Lock(place, "a", holder="x" * 1001)
    with pytest.raises(ConfigurationError, match="is a str"):  # its record could not be read
        Lock(place, "a", holder=["host"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"commitlog\.connect"):
        Lock(MemoryStore(), "a")  # type: ignore[arg-type]
    for wrong, name in (
        ({"timeout": 2}, "timeout"),
        ({"heartbeat": 8}, "heartbeat"),
        ({"margin": 8}, "margin"),
        ({"max_clock_skew_rate": 0.5}, "max_clock_skew_rate"),
        ({"test_interval": 0}, "test_interval"),
    ):
        with pytest.raises(ConfigurationError, match=name):
            LockSettings(**wrong)  # type: ignore[arg-type]


def test_an_object_that_is_no_lock_is_refused(clock: ManualClock) -> None:
    """It is left as it is."""
    store = ConditionalStore(MemoryStore(clock=clock), clock=clock)
    store.put("a", b"data")
    with pytest.raises(CorruptRecord, match="left as it is"):
        Lock(store, "a", clock=clock).acquire()
    assert store.get("a").data == b"data"


def test_a_record_that_was_replaced_while_it_was_read_is_read_again(clock: ManualClock) -> None:
    """It may be cut to the length of the record before. A record that stays damaged is corrupt."""
    memory = TornStore(clock=clock)
    store = ConditionalStore(memory, clock=clock)
    first, second = (Lock(store, "a", settings=SETTINGS, clock=clock) for _ in range(2))
    first.acquire()
    memory.torn = 1
    assert not second.acquire(blocking=False)
    assert not memory.torn
    memory.torn = 1_000
    with pytest.raises(CorruptRecord, match="left as it is"):
        second.acquire(blocking=False)
    assert memory.torn == 1_000 - TRIES


@pytest.mark.parametrize("body", [{"path": "b"}, {"holder": "\ud800"}, {"token": -1}, {"token": 10**14}])
def test_a_damaged_record_of_a_lock_is_refused(clock: ManualClock, body: dict[str, Any]) -> None:
    """It is that of another lock, or holds a value that no lock has written."""
    store = ConditionalStore(MemoryStore(clock=clock), clock=clock)
    with Lock(store, "a", clock=clock):
        stored = json.loads(store.get("a").data)
    fields = {name: value for name, value in stored.items() if name != "checksum"} | body
    # Escapes are not in the canonical form, but have a checksum, too.
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    store.put("a", f'{{"checksum":"{digest}",{text[1:]}'.encode())
    with pytest.raises(CorruptRecord):
        Lock(store, "a", clock=clock).acquire(blocking=False)


def test_a_store_that_refuses_every_write_does_not_hang_a_lock(clock: ManualClock) -> None:
    """It spells etags otherwise in conditions than in answers."""

    class Refusing(ConditionalStore):
        def put_if_match(self, path: str, *args: Any, **options: Any) -> PutResult:
            raise PreconditionFailed(f"{path!r} has another etag")

    store = Refusing(MemoryStore(clock=clock), clock=clock)
    lock = Lock(store, "a", settings=SETTINGS, clock=clock)
    lock.acquire()
    assert lock.renew()  # the heartbeat failed, and the lock is held until it runs out
    lock.release()
    clock.advance(1_000)
    with pytest.raises(Conflict, match="nothing was written"):
        Lock(store, "a", settings=SETTINGS, clock=clock).break_holder(lock_token(store), wait=False)


def lock_token(store: ConditionalStore) -> int:
    """Return the token in the record of the lock."""
    return int(json.loads(store.get("a").data)["token"])


def test_a_policy_without_repeated_tries_acquires_a_released_lock(clock: ManualClock) -> None:
    """One request is enough to take the record over."""
    store = ConditionalStore(MemoryStore(clock=clock), clock=clock)
    for _ in range(2):
        lock = Lock(store, "a", settings=SETTINGS, clock=clock, backoff=Backoff(tries=1))
        assert lock.acquire(blocking=False)
        lock.release()


def test_a_record_with_a_field_that_is_null_is_broken(clock: ManualClock) -> None:
    """The field counts as missing, also in the condition of the write that breaks it."""
    store = ConditionalStore(MemoryStore(clock=clock), clock=clock)
    lock = Lock(store, "a", settings=SETTINGS, clock=clock)
    lock.acquire()
    document = decode(store.get("a").data, {"lock"}, path="a")
    store.put("a", encode(Document("lock", {**document.body, "owner": None})))
    assert lock.break_holder(lock.token, wait=False)
    assert not lock.locked()
