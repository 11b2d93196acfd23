"""Helpers of the tests of outputs: a store with a hook for each mutation, and the audit."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit.conditional import ConditionalStore
from commitlog.commit.probe_report import Kind
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.connect import connect
from commitlog.errors import CommitError
from commitlog.outputs import AbortRecord, CommitRecord, Job, Mode, Output, StagedFile, Visibility
from commitlog.paths import join
from commitlog.stores import (
    InFlight,
    ObjectData,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    Staged,
    StagedInfo,
    StageWriter,
)
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.commit import proven
from support.servers import Juicefs, Ministack

#: Called with the name of a mutation, its path and a function that performs it; returns its result.
Hook = Callable[[str, str, Callable[[], Any]], Any]


def perform(_name: str, _path: str, mutation: Callable[[], Any]) -> Any:
    """Perform the mutation, as the default hook."""
    return mutation()


class HookedStore(ObjectStore):
    """A store that passes every mutation of `inner` to `hook`."""

    def __init__(self, inner: ObjectStore, hook: Hook = perform) -> None:
        self.inner = inner
        self.hook = hook
        self.url = inner.url
        self.capabilities = inner.capabilities

    def key(self, path: str) -> str:
        return self.inner.key(path)

    def portable_key(self, path: str) -> str:
        return self.inner.portable_key(path)

    def begin_head(self, path: str) -> InFlight[Observation]:
        return self.inner.begin_head(path)

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        return self.inner.get(path, start=start, end=end)

    def list_page(self, prefix: str = "", **options: Any) -> Page:
        return self.inner.list_page(prefix, **options)

    def put(self, path: str, body: Any, **options: Any) -> PutResult:
        return self.hook("put", path, lambda: self.inner.put(path, body, **options))

    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        return self.hook("copy", target, lambda: self.inner.copy(source, target, **options))

    def delete(self, path: str, **options: Any) -> None:
        self.hook("delete", path, lambda: self.inner.delete(path, **options))

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        return self.hook("delete_many", "", lambda: self.inner.delete_many(paths))

    def begin_stage(self, path: str, **options: Any) -> StageWriter:
        writer = self.hook("begin_stage", path, lambda: self.inner.begin_stage(path, **options))
        return HookedWriter(writer, path, self)

    def publish(self, staged: Staged, **options: Any) -> PutResult:
        return self.hook("publish", staged.path, lambda: self.inner.publish(staged, **options))

    def abort(self, staged: Staged | StagedInfo) -> None:
        self.hook("abort", staged.path, lambda: self.inner.abort(staged))

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        return self.inner.list_staged(prefix)

    def close(self) -> None:
        self.inner.close()


class HookedWriter(StageWriter):
    """A writer that passes the end of `inner` to the hook of its store."""

    def __init__(self, inner: StageWriter, path: str, store: HookedStore) -> None:
        self.inner = inner
        self.path = path
        self.store = store

    def _append(self, data: memoryview) -> None:
        self.inner.write(data)

    def finish(self) -> Staged:
        return self.store.hook("finish", self.path, self.inner.finish)

    def abort(self) -> None:
        self.store.hook("drop", self.path, self.inner.abort)


class Death(BaseException):
    """The death of a process."""


class Once:
    """A hook that does `what` at mutation number `at`, from 1.

    Args:
        at: number of the mutation.
        what: ``before``: die before it is sent; ``after``: die once it is applied; ``late``: die before
            it is applied, and apply it when `deliver` is called; or a function, called with the
            function that performs the mutation.
    """

    def __init__(self, at: int, what: str | Callable[[Callable[[], Any]], Any]) -> None:
        self.at = at
        self.what = what
        self.count = 0
        self.dead = False
        self.late: Callable[[], Any] | None = None

    @property
    def happened(self) -> bool:
        return self.count >= self.at

    def __call__(self, _name: str, _path: str, mutation: Callable[[], Any]) -> Any:
        if self.dead:
            raise Death
        self.count += 1
        if self.count != self.at:
            return mutation()
        if callable(self.what):
            return self.what(mutation)
        self.dead = True
        if self.what == "after":
            mutation()
        elif self.what == "late":
            self.late = mutation
        raise Death

    def deliver(self) -> None:
        """Apply the request that was under way when its sender died."""
        if self.late is not None:
            with contextlib.suppress(CommitError):  # its sender is dead
                self.late()


def open_output(store: ObjectStore, clock: Clock | None = None, path: str = "out") -> Output:
    """Return an output over `store` whose retries do not wait."""
    clock = ManualClock() if clock is None else clock
    backoff = Backoff(tries=3)
    return Output(
        ConditionalStore(store, clock=clock, backoff=backoff), path, clock=clock, backoff=backoff
    )


def _output(store: ObjectStore | ConditionalStore, path: str) -> Output:
    if isinstance(store, ConditionalStore):
        return Output(store, path)
    return open_output(store, path=path)


def stage_some(output: Output, job: Job, count: int = 2) -> list[StagedFile]:
    """Stage `count` files of `job`; the content of each names the job, its attempt and its number."""
    return [
        output.stage(
            job,
            f"p={task}/" + job.file_name(task, suffix=".txt"),
            f"{job.job_id} {job.attempt} {task}".encode(),
            rows=1,
            partition={"p": str(task)},
        )
        for task in range(count)
    ]


def add_job(
    output: Output,
    job_id: str,
    *tasks: int,
    mode: Mode = "append",
    visibility: Visibility | None = None,
) -> CommitRecord:
    """Commit a job with a file in partition p=N for each of `tasks`."""
    job = output.begin(job_id, mode=mode, visibility=visibility)
    files = [
        output.stage(
            job,
            f"p={task}/" + job.file_name(task, suffix=".txt"),
            f"{job_id} {task}".encode(),
            partition={"p": str(task)},
        )
        for task in tasks
    ]
    return output.commit(job, files)


def visible(store: ObjectStore | ConditionalStore, path: str = "out") -> dict[str, bytes]:
    """Return the files that a plain listing of the output shows, without hidden names."""
    top = join(path, "")
    return {
        info.path.removeprefix(top): store.get(info.path).data
        for info in store.list(top)
        if not info.path.removeprefix(top).startswith("_")
    }


def check_invariants(store: ObjectStore | ConditionalStore, path: str = "out") -> None:
    """Check the invariants of every moment: only committed files show, no job is committed twice."""
    records = list(_output(store, path).records())
    commits = [record for record in records if isinstance(record, CommitRecord)]
    assert [record.version for record in records] == list(range(1, len(records) + 1))
    jobs = [record.job_id for record in commits]
    assert len(jobs) == len(set(jobs)), "a job is committed twice"
    aborted = {a for record in records if isinstance(record, AbortRecord) for a in record.attempts}
    assert aborted.isdisjoint(record.attempt for record in commits), "committed and aborted"
    named = {file.path for record in commits for file in record.files}
    assert visible(store, path).keys() <= named, "a visible file is in no commit"


def audit(store: ObjectStore | ConditionalStore, path: str = "out") -> list[CommitRecord]:
    """Check that the output is complete and has no leftovers; return its commits."""
    check_invariants(store, path)
    output = _output(store, path)
    commits = list(output.log())
    expected = {file.path: file for record in commits for file in record.files}
    shown = visible(store, path)
    assert shown.keys() == expected.keys(), "a committed file is missing"
    for name, data in shown.items():
        assert len(data) == expected[name].size
    for record in commits:
        for file in record.files:
            assert f"{record.job_id} {record.attempt}".encode() in shown[file.path]
    assert list(store.list_staged()) == [], "an upload is left"
    assert list(store.list(join(path, "_commitlog/pending/"))) == [], "a pending entry is left"
    snapshot = output.snapshot(roll_forward=False)
    jobs = tuple(record.job_id for record in commits if record.job_id != record.attempt)
    assert snapshot.jobs == jobs, "_SUCCESS lags behind"
    assert {file.path for file in snapshot.files} == shown.keys()
    return commits


# -- kinds of store ------------------------------------------------------------------------------------


#: Opens the same store again, as another process would.
Place = Callable[[], ConditionalStore]


def in_memory(request: pytest.FixtureRequest) -> Place:
    url = f"memory://{uuid.uuid4().hex}"
    return lambda: connect(url)


def in_directory(request: pytest.FixtureRequest) -> Place:
    directory: Path = request.getfixturevalue("tmp_path")
    return lambda: connect(f"file://{directory}/lake")


def on_server(name: str, commit: str) -> Callable[[pytest.FixtureRequest], Place]:
    def place(request: pytest.FixtureRequest) -> Place:
        store: Ministack | Juicefs = request.getfixturevalue(name)
        tables: Ministack = request.getfixturevalue("ministack")
        table = (
            f"dynamodb://{tables.new_table_name()}?endpoint_url={tables.endpoint_url}&region=us-east-1"
        )
        table += f"&access_key_id={tables.access_key_id}&secret_access_key={tables.secret_access_key}"
        opened = open_table(table, LEASE_SCHEMA)
        opened.create()
        opened.close()
        bucket = store.new_bucket()
        # What ministack enforces, see `support.servers`. Each test would probe its bucket otherwise.
        kinds = [kind for kind in Kind if kind is not Kind.COPY_IF_ABSENT]
        report = proven(*kinds, url=f"s3://{bucket}?{urlencode(store.options)}")
        return lambda: connect(
            f"s3://{bucket}",
            probe_report=report if name == "ministack" else None,
            commit=commit,
            table=table,
            endpoint_url=store.endpoint_url,
            region="us-east-1",
            access_key_id=store.access_key_id,
            secret_access_key=store.secret_access_key,
        )

    return place


_PLACES = {
    "memory": in_memory,
    "directory": in_directory,
    "ministack-auto": on_server("ministack", "auto"),
    "juicefs-lease": on_server("juicefs", "lease"),
}

#: Parameters of a fixture for each kind of store.
PLACES = [
    "memory",
    "directory",
    pytest.param("ministack-auto", marks=pytest.mark.servers),
    pytest.param("juicefs-lease", marks=pytest.mark.servers),
]


def open_place(request: pytest.FixtureRequest) -> Place:
    """Return a function that opens the store of a fixture with `PLACES`."""
    return _PLACES[request.param](request)
