"""The actions of clients of an output: drivers, recoveries, readers, compactions and other writers.

Each action checks the answers that it gets against the true state of the output (`sim.outputs.judge`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from attrs import evolve, frozen

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
    OutcomeUnknown,
    PublishIncomplete,
)
from commitlog.outputs import Batch, CommitRecord, Job, Mode, Output, StagedFile
from commitlog.outputs.compaction import plan
from commitlog.outputs.state import State
from commitlog.testing.sim import (
    Node,
)
from sim.nodes import repeated
from sim.outputs.judge import OF_S3A, TOP, Truth, content, record_of_upload

if TYPE_CHECKING:
    from sim.outputs.world import OutputWorld


@frozen(kw_only=True)
class Client:
    """One life of a node, which its program uses.

    Attributes:
        world: the world.
        node: the node.
        output: its client of the output.
    """

    world: OutputWorld
    node: Node
    output: Output

    @property
    def truth(self) -> Truth:
        """The true state of the output."""
        return self.world.truth

    def note_state(self, fact: object) -> None:
        """Note the state at the beginning of a call, against which its answer is checked."""
        self.node.note(f"could know {fact}")

    def report(self, what: str, outcome: object = "done") -> None:
        """Record the outcome of a call."""
        result = type(outcome).__name__ if isinstance(outcome, CommitError) else str(outcome)
        self.world.outcomes[f"{what}: {result}"] += 1
        self.node.note(f"{what}: {result}")

    @contextlib.contextmanager
    def tolerate(self, what: str, *others: type[CommitError]) -> Iterator[None]:
        """Record the error of a call that fails with `OutputWorld.trouble`, or with `others`."""
        try:
            yield
        except PublishIncomplete as error:
            self.truth.check_committed(error)
            self.report(what, error)
        except (*self.world.trouble, OutcomeUnknown, *others) as error:
            self.report(what, error)


#: The code of a node. An error that a call may raise ends that call, but not the program.
Program: TypeAlias = Callable[[Client], object]


def drive(
    job_id: str,
    *,
    files: int = 1,
    mode: Mode = "append",
    partition: str | None = None,
    lost: bool = False,
    heartbeats: bool = False,
    batch: Batch | None = None,
    schema: str | None = None,
    slow: float = 0.0,
    abort: bool = True,
) -> Program:
    """Begin a job, stage its files and commit; after an error, abort as Spark does.

    Args:
        job_id: the job.
        files: number of files.
        mode: see `Output.begin`.
        partition: the partition of all files, or None.
        lost: whether another task attempt stages the first file too, and loses the race.
        heartbeats: whether to send a heartbeat before the commit, and a late one after it.
        batch: the batch of a stream, whose id is `job_id`, or None.
        schema: the columns; the job does not begin if the output has others.
        slow: seconds before each upload of S3A, during each, and before the commit.
        abort: whether to abort after an error.
    """

    def program(client: Client) -> None:
        job = _begin(client, job_id, mode=mode, batch=batch, schema=schema)
        if job is None:
            return
        if heartbeats:
            _send_heartbeat(client, job)
        staged = _stage(client, job, files, partition, lost=lost, slow=slow)
        if staged is not None:
            client.world.known_jobs[job.attempt] = job, staged
            _wait(client, slow)
            commit = _commit_and_settle if client.world.s3a else _commit
            if commit(client, job, staged) is None:
                if heartbeats:
                    _send_heartbeat(client, job)
                return
        if abort:
            _abort(client, job, staged or ())

    return program


def drive_many(*job_ids: str, mode: Mode = "append", abort: bool = True) -> Program:
    """Begin jobs, stage a file for each, and commit them in one call; abort those that fail.

    Args:
        job_ids: the jobs. The last of them has `mode`.
        mode: see `Output.begin`.
        abort: whether to abort after an error.
    """

    def program(client: Client) -> None:
        ready: list[tuple[Job, tuple[StagedFile, ...]]] = []
        for job_id in job_ids:
            job = _begin(client, job_id, mode=mode if job_id == job_ids[-1] else "append")
            if job is not None:
                staged = _stage(client, job, 1)
                if staged is None:
                    _abort(client, job, ())
                else:
                    client.world.known_jobs[job.attempt] = job, staged
                    ready.append((job, staged))
        outcomes = client.output.commit_many(ready)
        for (job, staged), outcome in zip(ready, outcomes, strict=True):
            if _check_commit(client, job, lambda outcome=outcome: _returned(outcome)) and abort:  # type: ignore[misc]
                _abort(client, job, staged)

    return program


def _returned(outcome: CommitRecord | CommitError) -> CommitRecord:
    if isinstance(outcome, CommitError):
        raise outcome
    return outcome


def _begin(
    client: Client,
    job_id: str,
    *,
    mode: Mode,
    batch: Batch | None = None,
    schema: str | None = None,
) -> Job | None:
    """Begin a job; return None after an error."""
    truth, output = client.truth, client.output

    def fit(state: State) -> str:
        if mode != "overwrite" and state.schema not in (None, schema):
            raise Conflict("the output has other columns")
        return schema or ""

    committed = truth.commit_of(job_id) is not None
    client.note_state(committed)
    job: Job | None = None
    with client.tolerate("begin"):
        try:
            job = output.begin(
                job_id,
                mode=mode,
                schema=fit if schema else None,
                visibility=client.world.visibility,
                batch=batch,
            )
        except JobAlreadyCommitted as error:
            commit = truth.check_superseded(error, job_id, batch)
            assert truth.is_whole(commit), "begin reports a job whose files are not all visible"
            client.report("begin", error)
        except AlreadyExists as error:
            assert mode == "error" and (truth.commits or truth.foreign_paths)
            client.report("begin", error)
    if job is not None:
        assert not committed, "a job began although it was committed before"
        client.world.known_jobs[job.attempt] = job, None
    return job


def _wait(client: Client, seconds: float) -> None:
    if seconds:
        client.node.clock.sleep(seconds)


def _send_heartbeat(client: Client, job: Job) -> None:
    with client.tolerate("beat"):
        client.output.heartbeat(job.attempt)


def _stage(
    client: Client,
    job: Job,
    count: int,
    partition: str | None = None,
    *,
    lost: bool = False,
    late: bool = False,
    slow: float = 0.0,
) -> tuple[StagedFile, ...] | None:
    where = "" if partition is None else f"p={partition}/"
    # With S3A, each task attempt has names of its own.
    number = 2 if late and client.world.s3a else 0
    paths = [where + job.file_name(task, number) for task in range(count)]
    values = {} if partition is None else {"p": partition}

    def stage(path: str, data: bytes) -> StagedFile:
        if not client.world.s3a:
            return client.output.stage(job, path, data, rows=1, partition=values)
        _wait(client, slow)
        store = client.output.store
        with store.begin_stage(TOP + path, metadata=OF_S3A) as writer:
            _wait(client, slow)
            writer.write(data)
            staged = writer.finish()
        store.put(TOP + record_of_upload(job.attempt, path), b"{}")
        return StagedFile(staged=evolve(staged, nonce=""), rows=1, partition=values)

    with client.tolerate("stage", NotFound):  # a recovery may have dropped an upload before its end
        if lost and paths:
            other = where + job.file_name(0, 1) if client.world.s3a else paths[0]
            stage(other, b"of a task that lost its race")
        return tuple(stage(path, content(job.job_id, path)) for path in paths)
    return None


def _commit_and_settle(
    client: Client, job: Job, files: tuple[StagedFile, ...], *, again: bool = False
) -> CommitError | None:
    """Commit as the agent of Spark does, which settles an unknown outcome; return the error, or None.

    `again`: an earlier call of another process may have reached its commit point.
    """
    error = _commit(client, job, files)
    if error is None:
        _clean(client, job)
    elif isinstance(error, PublishIncomplete):
        pass  # it is committed
    elif again or isinstance(error, OutcomeUnknown):
        truth = client.truth
        with client.tolerate("resolve"):
            record = client.output.resolve(job, files)
            if record is None:
                assert job.attempt in truth.aborted
            else:
                commit = truth.commits[job.attempt]
                assert commit.version == record.version
                assert truth.is_whole(commit), "a resolved commit is not completely visible"
                error = None
            client.report("resolve", "is aborted" if record is None else "is committed")
            _clean(client, job)
    return error


def _clean(client: Client, job: Job) -> None:
    """Remove the records of the uploads of a decided job."""
    if client.world.s3a:
        with client.tolerate("clean"):
            store = client.output.store
            directory = TOP + record_of_upload(job.attempt, "").removesuffix(".pending")
            errors = store.delete_many([info.path for info in store.list(directory)])
            client.report("clean", next(iter(errors.values()), "done"))


def _commit(client: Client, job: Job, files: tuple[StagedFile, ...]) -> CommitError | None:
    """Commit; return the error, or None."""
    return _check_commit(client, job, lambda: client.output.commit(job, files))


def _check_commit(client: Client, job: Job, commit: Callable[[], CommitRecord]) -> CommitError | None:
    """Check the outcome of a commit; return the error, or None."""
    truth = client.truth
    try:
        record = commit()
    except PublishIncomplete as error:
        client.report("commit", error)
        truth.check_committed(error, job.attempt)
        return error
    except OutcomeUnknown as error:
        client.report("commit", error)
        return error
    except ConfigurationError as error:
        assert job.attempt in truth.shared
        client.report("commit", error)
        return error
    except (*client.world.trouble, JobAborted, AlreadyExists, NotFound) as error:
        client.report("commit", error)
        truth.deny(job.attempt, error)
        if isinstance(error, JobAborted):
            assert job.attempt in truth.aborted
        elif isinstance(error, NotFound):  # the list of files is missing, because two callers wrote it
            assert client.world.staged or job.attempt in truth.aborted
        elif isinstance(error, JobAlreadyCommitted):
            truth.check_superseded(error, job.job_id, job.batch)
        elif isinstance(error, AlreadyExists):
            assert job.mode == "error" and (truth.commits or truth.foreign_paths)
        return error
    client.report("commit")
    committed = truth.commits[job.attempt]
    if [each.version for each in truth.commits.values()].count(committed.version) > 1:
        client.report("commit", "with others")
    assert committed.version == record.version and truth.is_whole(committed)
    return None


def _abort(client: Client, job: Job, files: tuple[StagedFile, ...]) -> None:
    truth = client.truth
    with client.tolerate("abort"):
        record = client.output.abort(job, files)
        if record is None:
            assert job.attempt in truth.aborted
            _clean(client, job)
        else:
            assert truth.commits[job.attempt].version == record.version
        client.report("abort", "done" if record is None else "is committed")


def write_again(name: str) -> Program:
    """Replace a file of another program, as that program does."""

    def program(client: Client) -> None:
        with client.tolerate("write"):
            client.output.store.put(TOP + name, b"rows that came later")
            client.report("write")

    return program


def write_below(directory: str) -> Program:
    """Commit a job to the output in a directory below, as a job does that writes there by path."""

    def program(client: Client) -> None:
        with client.tolerate("below"):
            other = client.output._below(directory)
            job = other.begin()
            path = job.file_name(0)
            other.commit(job, [other.stage(job, path, b"rows by path that came later", rows=1)])
            client.report("below")

    return program


def recover(*, older_than: float = 0.0, times: int = 1, every: float = 1.0) -> Program:
    """Recover `times` times, `every` seconds."""

    def call(client: Client) -> None:
        waited_for = client.truth.lost - client.truth.replaced.keys()
        if client.truth.lost:
            client.note_state(f"{len(waited_for)} lost files")
        young = _young(client, older_than)
        with client.tolerate("recover"):
            report = client.output.recover(older_than=older_than)
            assert report.aborted.keys() <= set(client.truth.decided)
            versions = {commit.version for commit in client.truth.commits.values()}
            assert versions >= set(report.completed)
            lost = {path for each in report.lost for path in each.files}
            assert lost <= waited_for, "a recovery reports replaced files as lost"
            aborts = "aborts" if report.aborted else "done"
            _check_alive(client, young, report.aborted)
            client.report("recover", "reports a loss" if report.lost else aborts)

    return repeated(call, times=times, every=every)


def _young(client: Client, older_than: float) -> set[str]:
    """Return the attempts whose last sign of life is younger than `older_than` seconds.

    A recovery uses the server's clock, or its own clock if the server returns no time. Servers return
    whole seconds, so an attempt may seem up to a second older (`Output.recover`). The request for the
    time of a recovery is the second one of `Output.gc`.
    """
    asked = client.truth.server.clock.epoch() + 3 * max(client.world.simulation.latencies)
    signs = client.truth.last_signs.items()
    return {attempt for attempt, at in signs if at > asked - max(0.0, older_than - 1)}


def _check_alive(client: Client, young: set[str], aborted: Iterable[str]) -> None:
    """Check that a client has not aborted an attempt that was alive when the call asked for the time."""
    if client.world.visibility == "listed" and client.node.clock.rate == 1:
        assert young.intersection(aborted) <= client.truth.withdrawn, "a live attempt was aborted"


def gc(*, older_than: float = 0.0, times: int = 1, every: float = 1.0) -> Program:
    """Collect garbage `times` times, `every` seconds."""

    def call(client: Client) -> None:
        truth = client.truth
        young = _young(client, older_than)
        garbage = set() if older_than else truth.records_of_uploads(truth.decided)
        signs = dict(truth.last_signs)
        first = client.node.next_request()
        with client.tolerate("gc"):
            report = client.output.gc(older_than=older_than)
            silent = [attempt for attempt in signs if signs[attempt] == truth.last_signs[attempt]]
            left = garbage & truth.records_of_uploads(silent)
            assert not left, f"gc leaves records of uploads: {left}"
            _check_alive(client, young, truth.aborted_by(first))
            assert report.recovery.aborted.keys() <= set(truth.decided)
            assert report.expired <= client.truth.expired
            client.report("gc", "removes" if report.removed else "done")

    return repeated(call, times=times, every=every)


def compact(*, times: int = 1, every: float = 1.0) -> Program:
    """Merge one group of files into a larger file `times` times, `every` seconds."""

    def call(client: Client) -> None:
        rewrite = _begin_rewrite(client)
        if rewrite is not None:
            client.world.known_jobs[rewrite[0].attempt] = rewrite
            if _commit(client, *rewrite) is not None:
                _abort(client, *rewrite)

    return repeated(call, times=times, every=every)


def _begin_rewrite(client: Client) -> tuple[Job, tuple[StagedFile, ...]] | None:
    output = client.output
    with client.tolerate("compact", NotFound):  # others may remove the files before it reads them
        groups = plan(output.snapshot().files, kind=lambda _: "", min_files=2)
        if not groups:
            client.report("compact", "nothing")
            return None
        files = groups[0].files
        job = output.begin(mode="rewrite", replaces=[file.path for file in files])
        data = b"\n".join(output.store.get(output.locate(file)).data for file in files)
        partition = files[0].partition
        path = "".join(f"{name}={value}/" for name, value in partition.items()) + job.file_name(0)
        staged = output.stage(job, path, data, rows=groups[0].rows, partition=partition)
        client.report("compact")
        return job, (staged,)
    return None


def read(*, times: int = 1, every: float = 1.0, roll_forward: bool = True) -> Program:
    """Read a snapshot and the log after it `times` times, `every` seconds."""

    def program(client: Client) -> None:
        truth = client.truth
        last = 0
        for number in range(times):
            if number:
                client.node.clock.sleep(every)
            with client.tolerate("read"):
                known = truth.last if roll_forward else truth.success
                client.note_state(known)
                snapshot = client.output.snapshot(roll_forward=roll_forward)
                truth.check_snapshot(snapshot)
                assert snapshot.version >= max(last, known), "a reader went back to an older version"
                last = snapshot.version
                client.report("read", "something" if last else "nothing")
            with client.tolerate("log"):
                seen = [record.version for record in client.output.log(after=last)]
                later = [c.version for c in truth.commits.values() if c.version > last]
                assert seen == later[: len(seen)]

    return program


def abort_one() -> Program:
    """Abort the newest job from another process."""
    return _with_job_of_another(lambda client, job, _: _abort(client, job, ()))


def commit_again(*, others: bool = False) -> Program:
    """Commit the newest job from another process; if `others`, with other files."""

    def call(client: Client, job: Job, files: tuple[StagedFile, ...] | None) -> None:
        if files is not None:
            client.truth.share(job.attempt)
            _commit(client, job, () if others else files)

    return _with_job_of_another(call)


def commit_by_next_agent(*, others: bool = False) -> Program:
    """Commit the newest job again, as a driver of Spark does whose agent has died.

    A job whose files are not known is aborted. If `others`, the files are no longer the uploads that the
    first agent named: in a local directory, each agent makes uploads of the files that it finds.
    """

    def call(client: Client, job: Job, files: tuple[StagedFile, ...] | None) -> None:
        client.truth.share(job.attempt)
        found = () if others else files
        if found is None or _commit_and_settle(client, job, found, again=True) is not None:
            _abort(client, job, found or ())

    return _with_job_of_another(call)


def lose_uploads() -> Program:
    """Remove the uploads of committed jobs, as a lifecycle rule for abandoned uploads does."""
    return lambda client: client.truth.lose()


def damage_lost_files() -> Program:
    """Put empty objects in the places of lost files, as a wrong repair does."""
    return lambda client: client.truth.damage()


def stage_late() -> Program:
    """Stage a file for the newest job, as a forgotten task does."""
    return _with_job_of_another(lambda client, job, _: _stage(client, job, 1, late=True))


def _with_job_of_another(
    call: Callable[[Client, Job, tuple[StagedFile, ...] | None], object],
) -> Program:
    def program(client: Client) -> object:
        for _ in range(10):
            if client.world.known_jobs:
                job, files = list(client.world.known_jobs.values())[-1]
                client.node.note(f"is handed {job.attempt}" + ("" if files is None else " with files"))
                return call(client, job, files)
            client.node.clock.sleep(1)
        return None

    return program
