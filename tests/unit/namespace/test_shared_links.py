"""Threads that create files in one directory at the same time share a transaction, not an outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from attrs import define, evolve, field

from commitlog import ConditionalStore, OperationLog
from commitlog._util.retry import Backoff
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace, Status
from commitlog.stores import open_store
from commitlog.tables import open_table
from support.namespace import Auditor, InterceptedTable, objects_in, stored


@define
class Crowd:
    """A namespace, and threads that use it while the transaction of the first one is held back."""

    lake: Namespace
    table: InterceptedTable
    transactions: int = 0
    held: threading.Event = field(factory=threading.Event)
    go_on: threading.Event = field(factory=threading.Event)
    #: Takes the place of each transaction after the first.
    later: Callable[[Callable[[], object]], object] = lambda perform: perform()

    def step(self, what: str, perform: Callable[[], object]) -> None:
        """Hold back the first transaction until the other threads wait for it."""
        if what != "transact":
            perform()
            return
        self.transactions += 1
        if self.transactions > 1:
            self.later(perform)
            return
        self.held.set()
        assert self.go_on.wait(30)
        perform()

    def run(
        self, first: Callable[[], Status], *others: Callable[[], Status]
    ) -> tuple[list[Future[Status]], int]:
        """Call `first`, and `others` during its transaction; return them, and how many waited."""
        self.transactions = 0
        self.table.step = self.step
        with ThreadPoolExecutor(1 + len(others)) as pool:
            calls = [pool.submit(first)]
            assert self.held.wait(30)
            calls += [pool.submit(other) for other in others]
            while self.lake._links.waiting + sum(call.done() for call in calls) < len(others):
                threading.Event().wait(0.001)
            waited = self.lake._links.waiting
            self.go_on.set()
        return calls, waited

    def write(self, path: str, body: str = "", **options: bool) -> Callable[[], Status]:
        """Return a call that writes a file."""
        return lambda: self.lake.write(path, body.encode(), **options)


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """A namespace with the directory ``d``, and its log; audited after the test."""
    table = InterceptedTable(open_table("memory://", NAMESPACE_SCHEMA))
    table.create()
    store = open_store("memory://")
    log = OperationLog(ConditionalStore(open_store("memory://")), "log")
    lake = Namespace(table, store, "lake", log=log, backoff=Backoff(base=0.001, cap=0.001))
    lake.create()
    lake.make_directory("d/taken")
    yield Crowd(lake, table)
    table.step = lambda what, perform: perform()
    Auditor(table, "lake", store).audit()
    assert lake.maintenance.fsck(objects=True).findings == ()


def errors_of(calls: list[Future[Status]]) -> list[type[BaseException] | None]:
    """Return the type of each error."""
    return [type(error) if (error := call.exception()) else None for call in calls]


def operations(crowd: Crowd) -> int:
    """Return the number of changes in the log."""
    assert crowd.lake._context.changes.log is not None
    return sum(1 for _ in crowd.lake._context.changes.log.current.names())


def test_files_of_one_directory_share_a_transaction_and_an_entry_of_the_log(crowd: Crowd) -> None:
    """Each thread gets the status of its own file, and each file has its own content."""
    before = operations(crowd)
    paths = [f"d/{number}" for number in range(8)]
    calls, waited = crowd.run(*(crowd.write(path, path) for path in paths))
    assert waited == 7
    assert [call.result().path for call in calls] == paths
    assert [crowd.lake.read(path) for path in paths] == [path.encode() for path in paths]
    assert crowd.transactions == 2
    assert operations(crowd) == before + 2


def test_an_error_concerns_its_own_thread(crowd: Crowd) -> None:
    """The others succeed. The content of a file that was not created is removed."""
    crowd.lake.write("d/there", b"old")
    wrong = [
        (crowd.write("d/there", overwrite=False), AlreadyExists),
        (crowd.write("d/taken"), IsADirectory),
        (crowd.write("d/missing/x", parents=False), NotFound),
        (crowd.write("d/there/x"), NotADirectory),
        (crowd.write("d/../x"), InvalidPath),
    ]
    right = [crowd.write(f"d/{number}") for number in range(5)]
    calls, _ = crowd.run(*right, *(call for call, _ in wrong))
    assert errors_of(calls) == [None] * 5 + [error for _, error in wrong]
    named = {status.data.path for status in crowd.lake.walk() if status.data is not None}
    assert {info.path for info in objects_in(crowd.lake.store)} == named


def test_threads_that_write_one_file_do_so_one_after_the_other(crowd: Crowd) -> None:
    """Each has its version; one that must not overwrite succeeds only if it is the first."""
    calls, _ = crowd.run(
        crowd.write("d/other"),
        crowd.write("d/x", "1"),
        crowd.write("d/x", "2"),
        crowd.write("d/x", "3", overwrite=False),
        crowd.write("d/y", "4", overwrite=False),
    )
    done = [call.result() for call in calls[1:3]]
    assert sorted(each.entry.version for each in done) == [1, 2]
    assert errors_of(calls[3:]) == [AlreadyExists, None]
    assert crowd.lake.read("d/x") in (b"1", b"2")


def test_a_link_of_an_object_that_another_thread_links_is_a_transaction_of_its_own(crowd: Crowd) -> None:
    """So it has the same outcome as one link after the other."""
    shared = evolve(stored(crowd.lake.store, "elsewhere"), own=False)
    calls, _ = crowd.run(
        crowd.write("d/other"),
        lambda: crowd.lake.link("d/a", shared),
        lambda: crowd.lake.link("d/b", shared),
    )
    assert errors_of(calls) == [None] * 3
    assert crowd.transactions == 3


@pytest.mark.parametrize("error", [OutcomeUnknown, Unavailable])
def test_an_error_of_the_table_is_the_error_of_all_threads(
    crowd: Crowd, error: type[CommitError]
) -> None:
    """They are not tried one by one. The content stays if a file may refer to it."""
    tried = 0

    def fail(perform: Callable[[], object]) -> None:
        nonlocal tried
        tried += 1
        raise error("no answer")

    crowd.later = fail
    before = len(objects_in(crowd.lake.store))
    calls, _ = crowd.run(*(crowd.write(f"d/{number}", "x") for number in range(4)))
    assert errors_of(calls) == [None, error, error, error]
    crowd.table.step = lambda what, perform: perform()
    left = len(objects_in(crowd.lake.store)) - before
    assert left == (4 if error is OutcomeUnknown else 1)
    assert 1 <= tried < 3 * 4  # the attempts of one transaction
    for path in ("d/1", "d/2", "d/3"):
        crowd.lake.write(path, b"again")


def test_an_interrupted_thread_leaves_an_unknown_outcome_to_the_others(crowd: Crowd) -> None:
    """They do not wait for ever, and their content stays."""

    def interrupt(perform: Callable[[], object]) -> None:
        perform()
        raise KeyboardInterrupt

    crowd.later = interrupt
    calls, _ = crowd.run(*(crowd.write(f"d/{number}", "x") for number in range(4)))
    found = errors_of(calls)
    assert found[0] is None and sorted(map(str, found[1:])) == sorted(
        map(str, [KeyboardInterrupt, OutcomeUnknown, OutcomeUnknown])
    )
    assert [crowd.lake.read(f"d/{number}") for number in range(4)] == [b"x"] * 4


def test_other_directories_do_not_wait(crowd: Crowd) -> None:
    """Their files have transactions of their own, at the same time."""
    calls, waited = crowd.run(crowd.write("d/a"), crowd.write("e/a"), crowd.write("f"))
    assert waited == 0
    assert errors_of(calls) == [None] * 3
    assert crowd.transactions == 3
