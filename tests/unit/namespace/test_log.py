"""The operation log of a namespace: its entries, their order, and recovery from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from attrs import define, frozen

from commitlog._util.request_stats import RequestRecorder
from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.namespace import Namespace
from commitlog.namespace.write.transaction import RESEND_WITHIN, SEND_WITHIN
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.counting_store import CountingStore
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import TRANSACT_WITHIN, Item, Table
from commitlog.tables.counting_table import CountingTable
from commitlog.testing import ManualClock
from support.namespace import QUICK, Auditor, InterceptedTable, ServiceTable, outcome

LAKE = "lake"


@define
class Logged:
    """A namespace with a log."""

    clock: ManualClock
    wire: InterceptedTable
    logs: MemoryStore
    log: OperationLog
    lake: Namespace

    @property
    def table(self) -> Table:
        """The table behind the wire."""
        return self.wire._table

    def client(self, watch: Callable[[str], object] = lambda request: None) -> Namespace:
        """Return another client; `watch` is called before each of its requests."""
        recorder = Watcher(watch=watch)
        logs = ConditionalStore(CountingStore(self.logs, recorder), clock=self.clock, backoff=QUICK)
        log = OperationLog(logs, "log", clock=self.clock)
        table = CountingTable(self.table, recorder)
        return Namespace(table, self.lake.store, LAKE, clock=self.clock, backoff=QUICK, log=log)

    def audit(self) -> None:
        """Audit the namespace with its log."""
        Auditor(self.table, LAKE, log=self.log).audit()


def open_logged() -> Logged:
    """Return a new namespace with a log."""
    clock = ManualClock()
    wire = InterceptedTable(ServiceTable(clock=clock))
    logs = MemoryStore(clock=clock)
    log = OperationLog(ConditionalStore(logs, clock=clock, backoff=QUICK), "log", clock=clock)
    lake = Namespace(wire, MemoryStore(clock=clock), LAKE, clock=clock, backoff=QUICK, log=log)
    lake.create()
    return Logged(clock, wire, logs, log, lake)


@pytest.fixture
def logged() -> Iterator[Logged]:
    """A new namespace with a log; it is audited after the test."""
    logged = open_logged()
    yield logged
    logged.audit()


def decisions_of(log: OperationLog) -> list[tuple[str, str]]:
    """Return the operations that the log has decided, in order, with their decisions."""
    return [(str(each.body["what"]), each.decision.value) for each in log.history() if each.decision]


def test_every_change_is_one_entry(logged: Logged) -> None:
    """Directories are logged too; the rename of a directory is one entry, whatever its size."""
    lake, clock = logged.lake, logged.clock
    steps: list[Callable[[], object]] = [
        lambda: lake.write("a/b/1", b"1"),
        lambda: lake.write("a/b/2", b"2"),
        lambda: lake.make_directory("c"),
        lambda: lake.rename("a/b", "c/b"),
        lambda: lake.write("c/b/1", b"3"),
        lambda: lake.delete("c/b/2"),
        lambda: lake.delete("c", recursive=True),
    ]
    for step in steps:
        clock.advance(1)
        step()
    assert decisions_of(logged.log) == [
        ("create a namespace", "committed"),
        ("create a file", "committed"),
        ("create a file", "committed"),
        ("make directories", "committed"),
        ("rename a directory", "committed"),
        ("overwrite a file", "committed"),
        ("delete files", "committed"),
        ("delete a directory", "committed"),
    ]
    assert not list(logged.log.pending())
    assert logged.log.drift == 0


def test_the_log_has_all_items_of_the_table(logged: Logged) -> None:
    """Applying the committed entries in order gives the items of the table."""
    lake, clock = logged.lake, logged.clock
    steps: list[Callable[[], object]] = [
        lambda: lake.write("a/b/1", b"1", attributes={"x": "ü"}),
        lambda: lake.make_directory("empty", shards=2),
        lambda: lake.rename("a/b/1", "a/2"),
        lambda: lake.rename("a", "empty/a"),
        lambda: outcome(lambda: lake.write("empty/a/2", b"", overwrite=False)),
        lambda: lake.write("empty/a/2", b"2"),
        lambda: lake.reshard("empty", shards=4),
        lambda: lake.delete("empty/a/b"),
        lambda: lake.maintenance.empty_trash(),
    ]
    for step in steps:
        clock.advance(1)
        step()
    items: dict[tuple[str, str], Item] = {}
    for operation in logged.log.history():
        if operation.decision is Decision.COMMITTED:
            for place, name, expected in operation.body["removed"]:
                assert items.pop((place, name)).items() >= expected.items()
            for item in operation.body["put"]:
                body = {"body": item["body"].encode()} if "body" in item else {}
                items[item["place"], item["name"]] = {**item, **body}
    assert list(items.values()) != []
    key = logged.wire.schema.key_of
    assert {(key(item).hash, key(item).range): item for item in logged.wire.scan()} == items


def test_a_change_that_cannot_be_logged_is_not_made(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation fails before it changes anything."""

    def unavailable(*_: object, **__: object) -> None:
        raise Unavailable("no")

    monkeypatch.setattr(logged.logs, "put", unavailable)
    with pytest.raises(Unavailable, match="no"):
        logged.lake.make_directory("d")
    monkeypatch.undo()
    assert not logged.lake.exists("d")


def test_a_failed_change_is_rolled_back_in_the_log(logged: Logged) -> None:
    """This holds for a refused transaction, and for one that the service did not carry out."""

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            raise Conflict("busy")
        perform()

    logged.wire.step = step
    logged.clock.advance(1)
    with pytest.raises(Conflict):
        logged.lake.make_directory("d")
    assert decisions_of(logged.log)[1:] == [("make directories", "rolled-back")]
    logged.wire.step = lambda what, perform: perform()
    logged.lake.make_directory("d")
    with pytest.raises(AlreadyExists):  # found before anything is logged
        logged.lake.write("d", b"", overwrite=False)
    assert len(decisions_of(logged.log)) == 3 and not list(logged.log.pending())


def test_an_unknown_outcome_stays_pending(logged: Logged) -> None:
    """The entry names the record that shows the outcome."""

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            raise OutcomeUnknown("no answer")
        perform()

    logged.wire.step = step
    with pytest.raises(OutcomeUnknown):
        logged.lake.make_directory("d")
    [pending] = logged.log.pending()
    assert pending.body["primary"] == ["lake/e/root/0", "d"]
    assert len(decisions_of(logged.log)) == 1


def test_a_decision_that_cannot_be_logged_is_drift(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation has succeeded; the log counts the missing decisions."""
    right = logged.logs.put

    def put(path: str, *arguments: object, **options: object) -> object:
        if "/decided/" in path:
            raise Unavailable("no")
        return right(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(logged.logs, "put", put)
    logged.lake.make_directory("d")
    monkeypatch.undo()
    assert logged.lake.exists("d")
    assert logged.log.drift == 1
    assert len(list(logged.log.pending())) == 1


@pytest.mark.parametrize("decided", [True, False])
def test_a_namespace_is_not_created_over_the_log_of_another(logged: Logged, decided: bool) -> None:
    """The other's table may be lost, or a different one. A creation without effect does not count."""
    table = ServiceTable(clock=logged.clock)
    other = Namespace(table, logged.lake.store, LAKE, clock=logged.clock, log=logged.log)
    with pytest.raises(AlreadyExists, match=r"belongs to a namespace.*restore it"):
        other.create()
    assert not list(table.scan())

    log = OperationLog(ConditionalStore(MemoryStore(clock=logged.clock)), "log", clock=logged.clock)
    wire = InterceptedTable(table)
    other = Namespace(wire, logged.lake.store, LAKE, clock=logged.clock, log=log)
    wire.step = dying(applied=False)
    with pytest.raises(Dies):
        other.create()
    wire.step = lambda what, perform: perform()
    if decided:
        [pending] = log.pending()
        log.decide(pending, Decision.ROLLED_BACK)
    assert other.create()


def test_the_second_of_two_creations_finds_the_namespace(logged: Logged) -> None:
    """The first creation runs after the second one has read the table, and before it reads the log."""
    table = ServiceTable(clock=logged.clock)
    log = OperationLog(ConditionalStore(MemoryStore(clock=logged.clock)), "log", clock=logged.clock)
    first = Namespace(table, logged.lake.store, LAKE, clock=logged.clock, log=log)
    wire = InterceptedTable(table)
    second = Namespace(wire, logged.lake.store, LAKE, clock=logged.clock, log=log)

    def step(what: str, perform: Callable[[], object]) -> None:
        perform()
        wire.step = lambda what, perform: perform()
        assert first.create()

    wire.step = step
    assert not second.create()


# -- crashes and lost answers --------------------------------------------------------------------------


class Dies(BaseException):
    """The end of a client's process."""


def dying(*, applied: bool) -> Callable[[str, Callable[[], object]], None]:
    """Return a step that kills a client at its transaction, which is applied or not."""

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            if applied:
                perform()
            raise Dies
        perform()

    return step


OPERATIONS: dict[str, Callable[[Namespace], object]] = {
    "create": lambda lake: lake.write("d/new", b"2"),
    "overwrite": lambda lake: lake.write("d/f", b"2"),
    "mkdir": lambda lake: lake.make_directory("x/y"),
    "rename file": lambda lake: lake.rename("d/f", "g"),
    "rename file over": lambda lake: lake.rename("d/f", "f", overwrite=True),
    "rename directory": lambda lake: lake.rename("d", "e/d"),
    "delete file": lambda lake: lake.delete("f"),
    "delete directory": lambda lake: lake.delete("d", recursive=True),
    "attributes": lambda lake: lake.set_attributes("f", attributes={"x": "1"}),
}

#: Later operations of other clients, which undo or hide the effect of the first one.
AFTERWARDS: dict[str, Callable[[Namespace], object]] = {
    "nothing": lambda lake: None,
    "move": lambda lake: [
        outcome(lambda path=path: lake.rename(path, "moved-" + path.replace("/", "-")))  # type: ignore[misc]
        for path in ("d/new", "d/f", "x/y", "x", "g", "f", "e/d", "d")
    ],
    "overwrite": lambda lake: [
        outcome(lambda path=path: lake.write(path, b"3"))  # type: ignore[misc]
        for path in ("d/new", "d/f", "g", "f")
    ],
    "delete": lambda lake: [
        outcome(lambda path=path: lake.delete(path, recursive=True))  # type: ignore[misc]
        for path in ("d/new", "d/f", "x", "g", "f", "e/d", "d")
    ],
}


@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_recovery_decides_pending_changes_correctly(
    logged: Logged, operation: str, applied: bool, afterwards: str
) -> None:
    """The records decide, or the log's entries of the changes that have replaced them."""
    lake, clock = logged.lake, logged.clock
    for path in ("d/f", "f"):
        lake.write(path, b"1")
    lake.make_directory("e")
    logged.wire.step = dying(applied=applied)
    clock.advance(1)
    with pytest.raises(Dies):
        OPERATIONS[operation](lake)
    logged.wire.step = lambda what, perform: perform()
    clock.advance(1)
    AFTERWARDS[afterwards](lake)
    lake.maintenance.empty_trash()
    clock.advance(3599)
    [left] = logged.log.pending()
    assert lake.maintenance.recover(older_than=7200) == ()
    [decided] = lake.maintenance.recover()
    wanted = Decision.COMMITTED if applied else Decision.ROLLED_BACK
    assert (decided.id, decided.decision) == (left.id, wanted)
    assert lake.maintenance.recover() == ()


def test_recovery_does_not_guess_between_two_conflicting_changes(logged: Logged) -> None:
    """While the winner's record exists, both are decided; when it is gone, neither is."""
    for gone in (False, True):
        lake = logged.lake
        lake.write("f", b"1")
        for perform_it in (False, True):
            logged.wire.step = dying(applied=perform_it)
            with pytest.raises(Dies):
                lake.write("f", b"2")
        logged.wire.step = lambda what, perform: perform()
        if gone:
            # A client with another log replaces it, so this log does not show which change came before.
            elsewhere = OperationLog(ConditionalStore(MemoryStore(clock=logged.clock)), "log")
            Namespace(
                logged.wire, MemoryStore(clock=logged.clock), LAKE, clock=logged.clock, log=elsewhere
            ).write("f", b"3")
        logged.clock.advance(4000)
        decided = {each.decision for each in lake.maintenance.recover()}
        assert decided == (set() if gone else {Decision.COMMITTED, Decision.ROLLED_BACK})


def test_a_younger_pending_change_may_have_replaced_the_same_version(logged: Logged) -> None:
    """The older one stays undecided until the younger one is decided: else both would be committed."""
    lake, clock = logged.lake, logged.clock
    lake.write("f", b"1")
    for body, applied in ((b"2", False), (b"3", True)):
        logged.wire.step = dying(applied=applied)
        with pytest.raises(Dies):
            lake.write("f", body)
        clock.advance(2000)
    logged.wire.step = lambda what, perform: perform()
    assert lake.maintenance.recover() == ()
    clock.advance(2000)
    decided = [each.decision for each in lake.maintenance.recover()]
    assert decided == [Decision.ROLLED_BACK, Decision.COMMITTED]


@frozen(eq=False, kw_only=True)
class Watcher(RequestRecorder):
    """A recorder that reports each request of a client before it is sent."""

    watch: Callable[[str], object]

    def add(self, count: str, number: int = 1) -> None:
        """Count something, and report a request of the table or the log that is about to be sent."""
        if count in REQUESTS:
            self.watch(count)
        super().add(count, number)


#: Kinds of requests to a table, and to the store of a log.
REQUESTS = {"gets", "transactions", "queries", "scans"} | {
    f"store_{kind}" for kind in ("heads", "gets", "lists", "puts", "deletes")
}

#: The change of a dead client, whether it was applied, and a change by another client during recovery.
RACES: dict[str, tuple[Callable[[Namespace], object], bool, Callable[[Namespace], object]]] = {
    "created in new directories, overwritten": (
        lambda lake: lake.write("a/b/f", b"2"),
        True,
        lambda lake: lake.write("a/b/f", b"3"),
    ),
    "created, renamed": (
        lambda lake: lake.write("g", b"2"),
        True,
        lambda lake: lake.rename("g", "h"),
    ),
    "not created, created by others": (
        lambda lake: lake.write("g", b"2"),
        False,
        lambda lake: lake.write("g", b"3"),
    ),
    "overwritten, deleted": (
        lambda lake: lake.write("f", b"2"),
        True,
        lambda lake: lake.delete("f"),
    ),
    "not renamed, overwritten": (
        lambda lake: lake.rename("f", "g"),
        False,
        lambda lake: lake.write("f", b"3"),
    ),
    "not deleted, overwritten": (
        lambda lake: lake.delete("f"),
        False,
        lambda lake: lake.write("f", b"3"),
    ),
}


@pytest.mark.parametrize("by", ["recover", "repair"])
@pytest.mark.parametrize("race", RACES)
def test_changes_during_a_recovery_do_not_mislead_it(race: str, by: str) -> None:
    """A change by another client runs before any one request of recovery, to the table or the log."""
    left, applied, change = RACES[race]
    at, more = 0, True
    while more:
        logged = open_logged()
        lake = logged.lake
        lake.write("f", b"1")
        logged.wire.step = dying(applied=applied)
        with pytest.raises(Dies):
            left(lake)
        [pending] = logged.log.pending()
        logged.wire.step = lambda what, perform: perform()
        logged.clock.advance(4000)
        requests = count()

        def watch(_: str) -> None:
            if next(requests) == at:  # noqa: B023
                change(lake)  # noqa: B023

        upkeep = logged.client(watch)
        if by == "recover":
            upkeep.maintenance.recover()
        else:
            list(upkeep.maintenance.repair(upkeep.maintenance.fsck().findings, dry_run=False))
        more = next(requests) > at
        wanted = Decision.COMMITTED if applied else Decision.ROLLED_BACK
        assert logged.log.decision(pending.id) in (wanted, None), f"before request {at}"
        lake.maintenance.recover()
        assert logged.log.decision(pending.id) is wanted
        logged.audit()
        at += 1
    assert at > 10


def test_a_change_that_reaches_the_age_during_recovery_is_not_decided(logged: Logged) -> None:
    """It may have been applied after its records were read."""
    logged.wire.step = dying(applied=False)
    with pytest.raises(Dies):
        logged.lake.write("old", b"1")
    logged.clock.advance(4000)
    recovered: list[Operation] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if what != "transact":
            perform()
            return
        upkeep = logged.client()
        assert upkeep._context.changes.log is not None
        log = upkeep._context.changes.log.root
        history = log.history

        def slow(**options: Any) -> Iterator[Operation]:
            perform()
            logged.clock.advance(4000)
            return history(**options)

        log.history = slow  # type: ignore[method-assign]
        recovered.extend(upkeep.maintenance.recover())
        raise Dies

    logged.wire.step = step
    with pytest.raises(Dies):
        logged.lake.write("new", b"2")
    logged.wire.step = lambda what, perform: perform()
    assert [each.decision for each in recovered] == [Decision.ROLLED_BACK]
    [decided] = logged.lake.maintenance.recover()
    assert decided.decision is Decision.COMMITTED


def test_recovery_reads_the_log_once(logged: Logged) -> None:
    """One pass serves all pending changes; without pending changes the log is not read."""
    for number in range(20):
        logged.lake.write(f"f{number}", b"1")
    requests = Counter[str]()
    watch = lambda request: requests.update([request])  # noqa: E731
    assert logged.client(watch).maintenance.recover() == ()
    assert requests["store_gets"] == 0
    logged.wire.step = dying(applied=True)
    for number in range(10):
        with pytest.raises(Dies):
            logged.lake.write(f"f{number}", b"2")
    logged.wire.step = lambda what, perform: perform()
    logged.clock.advance(4000)
    assert len(logged.client(watch).maintenance.recover()) == 10
    # Each pending entry is read twice, and its decision once.
    assert requests["store_gets"] == 21 + 3 * 10


def test_a_change_rolled_back_by_recovery_is_not_made_later(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that slept between logging and sending a change plans and logs it again."""
    right = logged.logs.put
    asleep = [SEND_WITHIN + 1, 3601.0]

    def put(path: str, *arguments: object, **options: object) -> object:
        done = right(path, *arguments, **options)  # type: ignore[arg-type]
        if "/pending/" in path and asleep:
            logged.clock.advance(asleep.pop())
            logged.lake.maintenance.recover()
        return done

    monkeypatch.setattr(logged.logs, "put", put)
    logged.lake.make_directory("d")
    assert logged.lake.exists("d")
    assert logged.wire.requests["transact"] == 2  # including the creation of the namespace
    decisions = [decision for what, decision in decisions_of(logged.log) if what == "make directories"]
    assert decisions == ["rolled-back", "rolled-back", "committed"]


def test_a_late_change_with_a_lost_answer_is_not_sent_again(logged: Logged) -> None:
    """Recovery may have rolled it back; its outcome stays unknown."""

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            logged.clock.advance(SEND_WITHIN + 1)
            raise OutcomeUnknown("no answer")
        perform()

    logged.wire.step = step
    with pytest.raises(OutcomeUnknown):
        logged.lake.make_directory("d")
    assert logged.wire.requests["transact"] == 2
    logged.wire.step = lambda what, perform: perform()
    assert len(list(logged.log.pending())) == 1


@pytest.mark.parametrize("passes", ["advance", "suspend"])
@pytest.mark.parametrize(("minutes", "logs"), [(5, False), (5, True), (11, False), (14, True)])
@pytest.mark.parametrize("deleted", [True, False])
def test_a_file_that_others_deleted_does_not_come_back(
    deleted: bool, minutes: int, logs: bool, passes: str
) -> None:
    """A client that lost an answer and slept does not send the change again after tokens expire."""
    logged = open_logged()
    clock, store = logged.clock, logged.lake.store

    def client(table: Table) -> Namespace:
        name, log = (LAKE, logged.log) if logs else ("plain", None)
        return Namespace(table, store, name, clock=clock, backoff=QUICK, log=log, grace=0)

    wire = InterceptedTable(logged.table)
    lake, other = client(wire), client(logged.table)
    other.create()
    other.make_directory("d")
    asleep: list[float] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and not asleep:
            perform()
            asleep.append(60.0 * minutes)
            raise OutcomeUnknown("no answer")
        if asleep and asleep[0]:
            getattr(clock, passes)(asleep.pop())
            asleep.append(0)
            if deleted:
                other.delete("d/f")
                other.maintenance.gc()
            raise Unavailable("no network")
        perform()

    wire.step = step
    found = outcome(lambda: lake.write("d/f", b"1"))
    assert found is (OutcomeUnknown if deleted and minutes > 10 else None)
    assert other.exists("d/f") is not deleted
    assert not other.maintenance.fsck(objects=True, pending=7200).findings
    if logs:
        clock.advance(4000)
        other.maintenance.recover()
        assert ("create a file", "committed") in decisions_of(logged.log)
        assert not list(logged.log.pending())


@pytest.mark.parametrize("lost", [True, False])
def test_nothing_is_sent_after_the_deadline(logged: Logged, lost: bool) -> None:
    """This holds if the table takes its longest time for each call."""
    backoff = Backoff(base=1, cap=1, tries=100)
    lake = Namespace(
        logged.wire, logged.lake.store, LAKE, clock=logged.clock, backoff=backoff, log=logged.log
    )
    sent: list[float] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if what != "transact":
            perform()
            return
        [pending] = logged.log.pending()
        logged.clock.advance(TRANSACT_WITHIN)
        after = logged.clock.epoch() - pending.time
        if sent and after < sent[-1]:
            raise AccessDenied("planned again")
        sent.append(after)
        raise OutcomeUnknown("no answer") if lost else Unavailable("throttled")

    logged.wire.step = step
    with pytest.raises(OutcomeUnknown if lost else AccessDenied):
        lake.make_directory("d")
    logged.wire.step = lambda what, perform: perform()
    limit = RESEND_WITHIN if lost else SEND_WITHIN
    assert limit - 2 * TRANSACT_WITHIN < sent[-1] <= limit


def test_an_unreadable_entry_does_not_stop_recovery(logged: Logged) -> None:
    """It is reported after all changes are decided for which readable entries and records suffice."""
    lake, logs = logged.lake, logged.logs
    lake.write("f", b"1")
    changes: list[tuple[bool, Callable[[Namespace], object]]] = [
        (True, lambda lake: lake.write("a", b"1")),
        (False, lambda lake: lake.delete("f")),
        (False, lambda lake: lake.write("g", b"2")),
    ]
    for applied, change in changes:
        logged.wire.step = dying(applied=applied)
        logged.clock.advance(1)
        with pytest.raises(Dies):
            change(lake)
    logged.wire.step = lambda what, perform: perform()
    damaged = [f"log/{state}/0-damaged.json" for state in ("decided", "pending")]
    for path in damaged:
        logs.put(path, b"{")
    logged.clock.advance(4000)
    with pytest.raises(CorruptRecord, match="damaged"):
        lake.maintenance.recover()
    # An unreadable entry could show that another client has removed "g" since.
    assert [each.body["what"] for each in logged.log.pending(unreadable=lambda error: None)] == [
        "create a file"
    ]
    assert ("delete files", "rolled-back") in [
        (str(each.body["what"]), each.decision.value)
        for each in logged.log.history(unreadable=lambda error: None)
        if each.decision
    ]
    for path in damaged:
        logs.delete(path)
    assert [each.decision for each in lake.maintenance.recover()] == [Decision.ROLLED_BACK]


def test_a_change_needs_the_log_of_the_namespace(logged: Logged) -> None:
    """Without a log, or with another one, the namespace can be read, and a change is refused."""
    logged.lake.write("f", b"1")
    store = MemoryStore(clock=logged.clock)
    elsewhere = OperationLog(ConditionalStore(store), "another")
    for log in (None, elsewhere):
        other = Namespace(logged.wire, store, LAKE, clock=logged.clock, log=log)
        assert other.stat("f").size == 1
        with pytest.raises(ConfigurationError, match="keeps its log at 'log'"):
            other.delete("f")
    assert logged.lake.exists("f")


def test_recovery_needs_the_log(logged: Logged) -> None:
    """The error says that the namespace was opened without a log."""
    other = Namespace(logged.wire, MemoryStore(clock=logged.clock), LAKE, clock=logged.clock)
    with pytest.raises(ConfigurationError, match="without a log"):
        other.maintenance.recover()
