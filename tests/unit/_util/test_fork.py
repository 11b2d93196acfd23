"""Locks that a child process finds free. Connections: see the tests of stores and tables."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor

import pytest

from commitlog._util.background import Threads
from commitlog._util.fork import WorkLock, close_on_fork, fork_safe_lock
from commitlog.clock import Clock
from commitlog.commit import ConditionalStore
from commitlog.outputs import Output
from commitlog.stores.api import StagedInfo
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import TableSchema
from commitlog.tables.memory import MemoryTable
from commitlog.tables.rate_limit import TokenBucket
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.fork import in_child
from support.project import ROOT


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

        def use() -> None:
            clock.held = False
            call()

        in_child(use)
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
    in_child(lambda: None)
    assert connections.was_free
    assert not connections.lock.locked()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_process_finds_a_lock_free_that_is_held_during_work() -> None:
    """No fork waits for it: its holder may wait for a server."""
    locks = [WorkLock(), Threads("test").mutex()]
    for lock in locks:
        lock.__enter__()

    def use() -> None:
        for lock in locks:
            with lock:
                pass
            lock.__exit__(None, None, None)  # by the thread that forked while it held the lock

    in_child(use)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_process_commits_while_its_parent_finishes_a_job() -> None:
    """The child waits neither for the lock of the parent's thread nor for its jobs."""
    store = MemoryStore(url="memory://")
    begun, go_on = threading.Event(), threading.Event()
    output = Output(ConditionalStore(store), "out")
    parent, listed = os.getpid(), store.list_staged

    def slow(prefix: str = "") -> Iterator[StagedInfo]:
        if os.getpid() == parent:
            begun.set()
            go_on.wait(30)
        return listed(prefix)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(store, "list_staged", slow)
        other = pool.submit(commit, output, "a")
        assert begun.wait(30)

        output._in_flight["another"] = 1  # a job whose files another thread publishes

        def finish() -> None:
            assert not output._in_flight
            commit(output, "b")
            assert not output._unfinished and not output._in_flight

        in_child(finish)
        del output._in_flight["another"]
        go_on.set()
        other.result(30)


def commit(output: Output, job_id: str) -> None:
    """Commit a job with one file."""
    job = output.begin(job_id)
    output.commit(job, [output.stage(job, job.file_name(0), b"x", rows=1)])


#: What threads share, by module.
_SHARED: Mapping[str, Set[str]] = {
    "threading": {
        *("Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "local"),
    },
    "concurrent.futures": {"ThreadPoolExecutor"},
    "queue": {"SimpleQueue", "Queue", "LifoQueue", "PriorityQueue"},
}

#: Where they outlive a call and are not registered, with the reason.
_UNREGISTERED = {
    "_util/batching.py _Ticket.__init__": "a call of a thread, which the child forgets",
    "_util/read_ahead.py _Blocks._begin": "a reader drops its blocks in a child",
    "cli/fs/tree_upload.py _NewDirectory.__init__": "a command forks nothing",
    "cli/job.py ProcessGroup.__init__": "a command forks nothing but the command of the user",
    "spark/ingest/cleaning.py BackgroundCleaner.__init__": "a driver of Spark forks nothing",
    "spark/ingest/scans.py _Query": "the agent forks nothing",
    "spark/progress.py ProgressWatch": "a driver of Spark forks nothing",
    "stores/s3/multipart.py S3StageWriter._begin_part": "one process continues an upload",
    "transfer.py ContentWriter.__init__": "one process continues a transfer",
    "transfer.py Transfer.__init__": "one process continues a transfer",
}


def test_all_that_threads_share_is_registered() -> None:
    """A lock that is not would hang a child process whose parent held it at the fork."""
    package = ROOT / "commitlog"
    found = set[str]()
    for file in package.rglob("*.py"):
        path = file.relative_to(package)
        tree = ast.parse(file.read_text())
        if path.parts[0] != "testing" and path.as_posix() != "_util/fork.py":
            found |= {f"{path.as_posix()} {where}" for where in _unregistered(tree, (), _names(tree))}
    assert found == set(_UNREGISTERED)


def _names(tree: ast.Module) -> Set[str]:
    """Return the names under which a module knows what threads share."""
    names = {f"{module}.{name}" for module, shared in _SHARED.items() for name in shared}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _SHARED:
            names |= {each.name for each in node.names} & _SHARED[node.module]
    return names


def _unregistered(
    tree: ast.Module | ast.ClassDef | ast.FunctionDef, scope: tuple[str, ...], names: Set[str]
) -> Iterator[str]:
    """Yield the functions and classes that keep something shared without registering it."""
    calls = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    if scope and calls & {"close_on_fork(self)", "renew_in_child(self)"}:
        return
    for each in tree.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef):
            yield from _unregistered(each, (*scope, each.name), names)
        elif any(_keeps(node, tree, names) for node in ast.walk(each)):
            yield ".".join(scope)


def _keeps(node: ast.AST, within: ast.AST, names: Set[str]) -> bool:
    """Return whether a statement keeps, or returns, something shared. An opened executor is closed."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) or node.value is None:
        return False
    used = {ast.unparse(each) for each in ast.walk(node.value)} & names
    if isinstance(node, ast.Return):
        return bool(used - {"ThreadPoolExecutor"})
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    lasts = not isinstance(within, ast.FunctionDef) or any(
        isinstance(each, ast.Attribute) for each in targets
    )
    return bool(used) and lasts
