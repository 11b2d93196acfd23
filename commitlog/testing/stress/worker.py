"""A worker process of a stress run: it calls a store at random and records the results.

`Fleet` starts it, sends its task and times as lines of JSON, and may kill it.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from random import Random
from typing import Any

from attrs import asdict, field, frozen

from commitlog.commit.conditional import ConditionalStore, Mode
from commitlog.commit.probe_report import ProbeReport
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.commit.settings import DynamoCommit, LeaseSettings, SqliteCommit
from commitlog.connect import connect
from commitlog.errors import CommitError, NotFound
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.testing.recorded_store import VERSION, RecordedStore
from commitlog.testing.recorder import Recorder
from commitlog.testing.stress.foreign import ForeignStore
from commitlog.testing.stress.plan import KEPT, OWN, REMOVABLE
from commitlog.urls import Url

__all__ = ["Schedule", "Task", "main", "open_client"]

#: Number of paths of each sort that are in use at a time.
_WIDTH = 3
#: Seconds for which creations compete for the same kept paths, before they move to new ones.
_ERA = 2.0
#: Seconds between attempts of the final writes.
_PAUSE = 0.05


def _url(value: Url | Mapping[str, Any] | None) -> Url | None:
    return Url(**value) if isinstance(value, Mapping) else value


@frozen(kw_only=True)
class Task:
    """The task of one worker.

    Attributes:
        client: the name of the worker in the history, unique to one process.
        foreign: whether to call the store through obstore.
        store: the store. All objects are below its prefix.
        table: the table of the leases, or None.
        mode: the mode of `ConditionalStore`.
        timeout, skew: `LeaseSettings.timeout` and `LeaseSettings.max_clock_skew_rate`.
        patient: whether to wait for other holders of a lease without a limit.
        probe_report: the probe report of the store, as JSON.
        whole_reads: the argument of `RecordedStore`.
        seed: seed of the worker's choices.
        history: path of the history file.
    """

    client: str
    foreign: bool
    store: Url = field(converter=_url)
    table: Url | None = field(converter=_url)
    mode: Mode
    timeout: float
    skew: float
    patient: bool
    probe_report: str
    whole_reads: bool
    seed: str
    history: str

    def to_dict(self) -> dict[str, Any]:
        """Return the task as a JSON object. It contains credentials if the URLs do."""
        fields = asdict(self, recurse=False)
        for name in ("store", "table"):
            url: Url | None = fields[name]
            if url is not None:
                fields[name] = {**asdict(url, recurse=False), "options": dict(url.options)}
        return fields


@frozen(kw_only=True)
class Schedule:
    """The times of the workers' phases, on `time.monotonic`.

    Attributes:
        begin, end: workers make random calls from `begin` to `end`.
        deadline: the time by which the final writes must be finished.
    """

    begin: float
    end: float
    deadline: float


def open_client(task: Task, *, patient: bool) -> ConditionalStore | ForeignStore:
    """Open the client that the worker calls."""
    if task.foreign:
        assert task.table is not None
        return ForeignStore(task.store, table=task.table.name, timeout=task.timeout)
    options: dict[str, Any] = {} if task.table is None else {**task.table.options}
    leases: dict[str, Any] = {
        "timeout": task.timeout,
        "max_clock_skew_rate": task.skew,
        "test_interval": 0.05,
        "max_wait": None if patient else task.timeout / 10,
    }
    probe_report = ProbeReport.from_json(task.probe_report)
    if task.table is None:
        return connect(task.store, commit="native", probe_report=probe_report)
    if task.mode == "lease":
        commit: DynamoCommit | SqliteCommit
        if task.table.scheme == "sqlite":
            commit = SqliteCommit(task.table.name, **leases)
        else:
            commit = DynamoCommit(task.table.name, **leases, **options)
        return connect(task.store, commit=commit, probe_report=probe_report)
    return ConditionalStore(
        open_store(task.store),
        table=open_table(task.table, LEASE_SCHEMA),
        mode=task.mode,
        settings=LeaseSettings(**leases),
        probe_report=probe_report,
    )


class Worker:
    """The code that performs a task. A failed call does not stop it."""

    def __init__(self, task: Task, schedule: Schedule) -> None:
        self._task = task
        self._schedule = schedule
        self._random = Random(task.seed)
        self._recorder = Recorder(path=task.history)
        self._store: RecordedStore
        #: The store that performs the calls of `_store`. Its calls are not recorded.
        self._client: Any
        self._choices: tuple[list[Callable[[], None]], list[int]]
        self._versions = 0
        #: The last etag seen at each path.
        self._seen: dict[str, str] = {}

    def run(self, client: ConditionalStore | ForeignStore) -> None:
        """Make random calls until the end, then write every path once more.

        Args:
            client: the client of the random calls. It is closed.

        Raises:
            TimeoutError: a path could not be written before the deadline.
        """
        end = self._schedule.end
        with closing(client):
            self._use(client)
            while time.monotonic() < end:
                with suppress(CommitError):  # the history has the error
                    self._random.choices(*self._choices)[0]()
        with closing(open_client(self._task, patient=True)) as client:
            self._use(client)
            paths = [*self._paths(KEPT, end), *self._paths(REMOVABLE, end)]
            self._random.shuffle(paths)
            for path in paths:
                self._write_at_last(path)

    def _use(self, client: ConditionalStore | ForeignStore) -> None:
        # Any: the foreign client has only the methods that are called.
        self._client = client
        self._store = RecordedStore(
            self._client, self._recorder, client=self._task.client, whole_reads=self._task.whole_reads
        )
        weights = {self._get: 2, self._create: 2, self._replace: 4, self._copy: 1}
        if not self._task.foreign:
            weights |= {self._head: 1, self._rename: 1, self._publish: 1, self._remove: 2}
        self._choices = list(weights), list(weights.values())

    # -- the calls ---------------------------------------------------------------------------------

    def _head(self) -> None:
        self._look(self._path(), self._store.head)

    def _get(self) -> None:
        self._look(self._path(), self._store.get)

    def _create(self) -> None:
        path = self._path()
        self._seen[path] = self._store.put_if_absent(path, self._new_version()).etag

    def _replace(self) -> None:
        path = self._path()
        if (etag := self._etag(path)) is not None:
            self._seen[path] = self._store.put_if_match(path, self._new_version(), etag=etag).etag

    def _remove(self) -> None:
        path = self._choose(REMOVABLE)
        if (etag := self._etag(path)) is not None:
            self._store.delete_if_match(path, etag=etag)

    def _copy(self) -> None:
        version, target = self._new_version(), self._path()
        source = OWN + version
        self._client.put(source, version.encode(), metadata={VERSION: version})
        self._seen[target] = self._store.copy_if_absent(source, target, version=version).etag

    def _rename(self) -> None:
        version, target = self._new_version(), self._path()
        source = OWN + version
        self._store.put_if_absent(source, version)
        self._seen[target] = self._store.rename_if_absent(source, target, version=version).etag

    def _publish(self) -> None:
        version, target = self._new_version(), self._path()
        staged = self._store.stage(target, version)
        self._seen[target] = self._store.publish_if_absent(staged, version=version).etag

    def _write_at_last(self, path: str) -> None:
        """Retry until `path` is written once, whether or not an object is there."""
        while True:
            try:
                etag = self._look(path, self._store.get)
                if etag is None:
                    self._store.put_if_absent(path, self._new_version())
                else:
                    self._store.put_if_match(path, self._new_version(), etag=etag)
            except CommitError as error:
                if time.monotonic() > self._schedule.deadline:
                    raise TimeoutError(f"{path!r} could not be written in time") from error
                time.sleep(_PAUSE)
            else:
                return

    # -- shared helpers ----------------------------------------------------------------------------

    def _etag(self, path: str) -> str | None:
        """Return and forget the etag last seen at `path`; without one, read the current etag."""
        # It is empty if the answer to a write had no etag.
        return self._seen.pop(path, "") or self._look(path, self._store.get)

    def _look(self, path: str, read: Callable[[str], Any]) -> str | None:
        self._seen.pop(path, None)
        try:
            etag: str = read(path).etag
        except NotFound:
            return None
        self._seen[path] = etag
        return etag

    def _new_version(self) -> str:
        self._versions += 1
        return f"{self._task.client}-{self._versions}"

    def _path(self) -> str:
        return self._choose(self._random.choice((KEPT, REMOVABLE)))

    def _choose(self, sort: str) -> str:
        # Sometimes choose an earlier path, because a late request may still arrive there.
        back = self._random.choice((0, 0, 0, 1, 2, 3)) * _ERA
        return self._random.choice(self._paths(sort, min(time.monotonic(), self._schedule.end) - back))

    def _paths(self, sort: str, moment: float) -> list[str]:
        # A kept object is created only once, so creations need new paths to compete for.
        era = max(0, int((moment - self._schedule.begin) / _ERA)) if sort == KEPT else 0
        return [f"{sort}{era}-{number}" for number in range(_WIDTH)]


def main() -> None:
    """Read a task and then its times from standard input, and perform it."""
    # Let the kernel end the worker with its parent: a stopped worker cannot notice the end itself.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    task = Task(**json.loads(sys.stdin.readline()))
    client = open_client(task, patient=task.patient)
    print("ready", flush=True)
    if line := sys.stdin.readline():
        Worker(task, Schedule(**json.loads(line))).run(client)
