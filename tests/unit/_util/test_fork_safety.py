"""Locks that a child process finds free. Connections: see the tests of stores and tables."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from commitlog._util.fork_safety import close_on_fork, fork_safe_lock
from commitlog.clock import Clock
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import TableSchema
from commitlog.tables.memory import MemoryTable
from commitlog.tables.rate_limit import TokenBucket
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url


class Slow(ManualClock):
    """A clock that lets a call wait, which holds a lock.

    Attributes:
        held: whether the next reading waits.
        begun: set when it waits.
        go_on: set it to end the wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def _wait(self) -> None:
        if self.held:
            self.begun.set()
            self.go_on.wait(30)

    def epoch(self) -> float:
        """Return the time of day."""
        self._wait()
        return super().epoch()

    def monotonic(self) -> float:
        """Return the time."""
        self._wait()
        return super().monotonic()


def _use_store(clock: Clock) -> Callable[[], object]:
    store = MemoryStore(clock=clock)
    return lambda: store.put("a", b"")


def _use_table(clock: Clock) -> Callable[[], object]:
    table = MemoryTable(parse_table_url("memory://"), TableSchema(hash_key="key"), clock=clock)
    return table.create


def _use_bucket(clock: Clock) -> Callable[[], object]:
    bucket = TokenBucket(10, clock=clock)
    return lambda: bucket.rate


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("prepare", [_use_store, _use_table, _use_bucket])
def test_a_child_process_uses_what_another_thread_had_locked(
    prepare: Callable[[Clock], Callable[[], object]],
) -> None:
    """The fork waits for the call of that thread, which the child does not have."""
    clock = Slow()
    call = prepare(clock)
    clock.held = True
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(call)
        assert clock.begun.wait(30)
        threading.Timer(0.2, clock.go_on.set).start()
        child = os.fork()
        if not child:
            status = 1
            with suppress(BaseException):
                signal.alarm(10)
                clock.held = False
                call()
                status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        other.result(30)


class Connections:
    """Connections whose users may need a lock.

    Attributes:
        lock: the lock.
        was_free: whether it was free when the connections were put away.
    """

    def __init__(self) -> None:
        self.lock = fork_safe_lock()
        self.was_free = False
        close_on_fork(self)

    def put_away(self) -> None:
        """See `Closable`."""
        self.was_free = not self.lock.locked()

    def bring_back(self, *, child: bool) -> None:
        """See `Closable`."""


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_waits_for_connections_before_it_takes_locks() -> None:
    """Otherwise it would wait forever for the user of a connection that needs one of the locks."""
    connections = Connections()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert connections.was_free
    assert not connections.lock.locked()
