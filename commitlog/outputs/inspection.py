"""Inspection of an output: its version, its attempts, and the work that is left.

An inspection reads the log as `commitlog.outputs.recovery` does, but it decides nothing, publishes
nothing and removes nothing. It takes a bounded number of requests, however long the log is, so it can be
run every minute.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Literal, TypeAlias

from attrs import define, field, frozen

from commitlog._util.bounded import Bound
from commitlog.clock import Clock
from commitlog.errors import CorruptRecord, NotFound
from commitlog.oplog.record_directory import RecordDirectory
from commitlog.outputs.job import Visibility, attempt_of
from commitlog.outputs.log import CommitLog
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.publishing import Publisher
from commitlog.outputs.ready_jobs import ReadyJob, ReadyQueue
from commitlog.outputs.records import CommitRecord, Record, records_of, total_rows
from commitlog.outputs.state import State

__all__ = ["AttemptStatus", "Outcome", "OutputInspection", "UnpublishedJob", "inspect"]

#: The outcome of an attempt according to the log; open: it can still be committed.
Outcome: TypeAlias = Literal["open", "committed", "aborted"]

#: Most pending entries that are read for their jobs, and, with a limit, most ready entries.
_NAMED = 100


@frozen(kw_only=True)
class AttemptStatus:
    """An attempt that has left something besides its committed files. Times are epoch seconds.

    Attributes:
        attempt: its name.
        job_id: its job, if it has prepared its commit and its entry was read.
        outcome: its outcome.
        began: time of the oldest sign of it, by the store's clock: an upload, its entry, or its last
            heartbeat. Its begin itself stores nothing.
        active: time of the newest sign.
        heartbeat: time of its last heartbeat; None if it has none.
        prepared: whether it has a pending entry or a ready entry.
        uploads: number of its unpublished uploads that were listed.
    """

    attempt: str
    job_id: str | None
    outcome: Outcome
    began: float
    active: float
    heartbeat: float | None
    prepared: bool
    uploads: int


@frozen(kw_only=True)
class UnpublishedJob:
    """A committed job for which work may be left: its driver is at it, or has died.

    Attributes:
        job_id: the job.
        attempt: the attempt that committed it.
        version: its version.
        time: epoch seconds of its commit, by the clock of its driver.
    """

    job_id: str
    attempt: str
    version: int
    time: float


@frozen(kw_only=True)
class OutputInspection:
    """An output as an operator sees it. Times are epoch seconds by the store's clock, unless noted.

    Attributes:
        now: the time of the inspection.
        version: version of its last commit; 0 if there is none.
        records: number of the last record of the log that was read.
        committed: time of the last commit, by the clock of its driver; None if there is none.
        visible: version up to which every file is known to be visible.
        checkpoint: version of the last checkpoint that can be read; 0 if there is none.
        format: format of the record of the last commit; None if there is none.
        visibility: its visibility; None if there is no commit.
        files: number of its files.
        bytes: their size.
        rows: their rows; None if the rows of a file are not known.
        replaced: number of replaced files that are kept for readers of old versions.
        attempts: the attempts that have left something, the oldest first.
        unpublished: the committed jobs for which work may be left, by version.
        garbage_objects: number of objects that `Output.gc` would remove: replaced files that have
            expired, and, if files were listed, files of dead attempts.
        garbage_bytes: their size; None unless files were listed.
        damage: messages about records that cannot be read, or that contradict each other. Later records
            are then not known.
        complete: whether everything was read. False if `limit` was reached, or if there were more than
            100 ready entries and a limit: numbers may be too low, and attempts may be missing.
    """

    now: float
    version: int
    records: int
    committed: float | None
    visible: int
    checkpoint: int
    format: int | None
    visibility: Visibility | None
    files: int
    bytes: int
    rows: int | None
    replaced: int
    attempts: tuple[AttemptStatus, ...] = ()
    unpublished: tuple[UnpublishedJob, ...] = ()
    garbage_objects: int = 0
    garbage_bytes: int | None = None
    damage: tuple[str, ...] = ()
    complete: bool = True

    @property
    def exists(self) -> bool:
        """Whether there is any trace of the output: a record, damage, or an attempt."""
        return bool(self.records or self.damage or self.attempts)


def inspect(
    log: CommitLog,
    pending: RecordDirectory,
    ready: ReadyQueue,
    publisher: Publisher,
    *,
    tag: str,
    clock: Clock,
    expire_after: float,
    limit: int | None,
    list_files: bool,
) -> OutputInspection:
    """Inspect one output; see `Output.inspect`.

    Args:
        log: the log of the output.
        pending: its pending entries.
        ready: its ready entries.
        publisher: its publisher; only its reading methods are called.
        tag: the prefix of the attempts of this output, and of no other.
        clock: the clock, if the store does not give its time.
        expire_after, limit, list_files: see `Output.inspect`.
    """
    reading = _Reading(bound=Bound(limit))
    now = pending.now(clock)
    # The listings come first, so the log has the outcomes of everything in them.
    most = None if limit is None else _NAMED
    traces = _traces(pending, ready, publisher, tag, reading, most)
    visible = 0
    with reading.damage():
        visible = publisher.checked_watermark()
    with reading.damage():
        visible = visible or publisher.watermark()
    state = log.checkpoints.load()
    checkpoint = state.version
    tail = list(_read(log, state, reading))
    commits = {each.attempt: each for each in tail if isinstance(each, CommitRecord)}
    outcomes: dict[str, bool | None] = {}
    with reading.damage():
        outcomes = {attempt: state.committed(attempt) for attempt in traces}
    waiting = {a for a, trace in traces.items() if trace.prepared is not None and outcomes.get(a)}
    if visible < checkpoint:
        with reading.damage():
            older = reading.bound.take(log.read(visible, checkpoint))
            commits |= {each.attempt: each for each in older if isinstance(each, CommitRecord)}
    # Without an entry, only the watermark tells that a job was published.
    waiting |= {attempt for attempt, each in commits.items() if each.uploads}
    unpublished = [commits[a] for a in waiting if a in commits and commits[a].version > visible]
    last = _last(log, state, tail, reading)
    garbage, size = _garbage(log, publisher, state, reading, now - expire_after, tag, list_files)
    return OutputInspection(
        now=now,
        version=state.commit,
        records=state.version,
        committed=None if last is None else last[0],
        visible=visible,
        checkpoint=checkpoint,
        format=None if last is None else last[1],
        visibility=state.visibility,
        files=len(state.files),
        bytes=sum(file.size for file in state.files.values()),
        rows=total_rows(state.files.values()),
        replaced=len(state.replaced),
        attempts=_attempts(traces, outcomes, pending, reading),
        unpublished=tuple(
            UnpublishedJob(
                job_id=record.job_id, attempt=record.attempt, version=record.version, time=record.time
            )
            for record in sorted(unpublished, key=lambda record: record.version)
        ),
        garbage_objects=garbage,
        garbage_bytes=size,
        damage=tuple(dict.fromkeys(reading.found)),
        complete=reading.bound.complete,
    )


@define
class _Trace:
    """What an attempt has left: times of its entries, of its heartbeat and of its uploads."""

    prepared: float | None = None
    ready: float | None = None
    job_id: str | None = None
    heartbeat: float | None = None
    uploads: list[float] = field(factory=list)

    @property
    def times(self) -> list[float]:
        others = (self.prepared, self.ready, self.heartbeat)
        return [*(time for time in others if time is not None), *self.uploads]


@define(kw_only=True)
class _Reading:
    """The bound of an inspection, and the damage that it has found.

    Attributes:
        bound: the bound of each listing, and of the records.
        found: messages about damage.
    """

    bound: Bound
    found: list[str] = field(factory=list)

    @contextmanager
    def damage(self) -> Iterator[None]:
        """Note a `CorruptRecord` of the block, and go on after it."""
        try:
            yield
        except CorruptRecord as error:
            self.found.append(str(error))


def _traces(
    pending: RecordDirectory,
    ready: ReadyQueue,
    publisher: Publisher,
    tag: str,
    reading: _Reading,
    most: int | None,
) -> dict[str, _Trace]:
    """Return what attempts have left, by attempt. At most `most` ready entries are read."""
    found: dict[str, _Trace] = {}
    for entry in reading.bound.take(pending.list()):
        if attempt_of(entry.name) == entry.name:
            found.setdefault(entry.name, _Trace()).prepared = entry.written
        else:
            reading.found.append(
                f"{pending.path(entry.name)!r} is not a pending entry: its name is not an attempt id;"
                " move it elsewhere"
            )
    for number, entry in enumerate(reading.bound.take(ready.list())):
        if number == most:  # only an entry itself tells its attempts
            reading.bound.complete = False
            break
        for each in _ready_jobs(ready, entry.name, reading):
            trace = found.setdefault(each.job.attempt, _Trace())
            trace.ready, trace.job_id = entry.written, each.job.job_id
    for attempt, last in publisher.heartbeats().items():
        found.setdefault(attempt, _Trace()).heartbeat = last
    for upload in reading.bound.take(publisher.uploads()):
        of = attempt_of(upload.path)
        if of is not None and of.startswith(tag):
            found.setdefault(of, _Trace()).uploads.append(upload.initiated)
    return found


def _read(log: CommitLog, state: State, reading: _Reading) -> Iterator[Record]:
    """Take `state` to the end of the log, and yield the records after its checkpoint."""
    with reading.damage():
        for record in reading.bound.take(log.read(state.version)):
            log.apply(record, state)
            yield record


def _last(
    log: CommitLog, state: State, tail: list[Record], reading: _Reading
) -> tuple[float, int] | None:
    """Return time and format of the last commit; None if there is none, or it is damaged."""
    with reading.damage():
        if state.version and not tail:
            try:
                log.get(state.version)
            except NotFound:
                reading.found.append(
                    f"{log.directory!r} has a checkpoint of version {state.version}, but no such"
                    " record: records were lost, or the checkpoint is of another output. Restore the"
                    " records, or remove the checkpoint"
                )
        if state.commit:
            stored = log.document(state.commit)
            return records_of(state.commit, stored)[0].time, stored.format
    return None


def _attempts(
    traces: dict[str, _Trace],
    outcomes: Mapping[str, bool | None],
    pending: RecordDirectory,
    reading: _Reading,
) -> tuple[AttemptStatus, ...]:
    names: dict[bool | None, Outcome] = {None: "open", True: "committed", False: "aborted"}
    prepared = sorted(attempt for attempt, trace in traces.items() if trace.prepared is not None)
    jobs = {attempt: _job_id(pending, attempt, reading) for attempt in islice(prepared, _NAMED)}
    found = [
        AttemptStatus(
            attempt=attempt,
            job_id=jobs.get(attempt, trace.job_id),
            outcome=names[outcomes.get(attempt)],
            began=min(trace.times),
            active=max(trace.times),
            heartbeat=trace.heartbeat,
            prepared=not (trace.prepared is None and trace.ready is None),
            uploads=len(trace.uploads),
        )
        for attempt, trace in traces.items()
    ]
    return tuple(sorted(found, key=lambda each: (each.began, each.attempt)))


def _ready_jobs(ready: ReadyQueue, name: str, reading: _Reading) -> tuple[ReadyJob, ...]:
    with reading.damage(), suppress(NotFound):  # its jobs were just decided
        return ready.read(name)
    return ()


def _job_id(pending: RecordDirectory, attempt: str, reading: _Reading) -> str | None:
    with reading.damage():
        try:
            return PendingJob.read(pending, attempt).job_id
        except NotFound:  # its driver has just finished
            pass
    return None


def _garbage(
    log: CommitLog,
    publisher: Publisher,
    state: State,
    reading: _Reading,
    deadline: float,
    tag: str,
    list_files: bool,
) -> tuple[int, int | None]:
    """Return number and size of the objects that a collection would remove.

    The versions that replaced files are in order; so their times are, except for differences of clocks.
    """
    versions = sorted(set(state.replaced.values()))
    before = 0
    with reading.damage():
        due = bisect_right(versions, deadline, key=lambda version: log.get(version)[0].time)
        before = versions[due - 1] if due else 0
    expired = {publisher.path_in_store(path) for path, by in state.replaced.items() if by <= before}
    if not list_files:
        return len(expired), None
    known = {publisher.path_in_store(path) for path in (*state.files, *state.replaced)}
    newest = publisher.heartbeats()
    count = size = 0
    strays: dict[str, list[int]] = {}
    for info in publisher.hidden():
        attempt = attempt_of(info.path)
        if info.path in expired:
            count, size = count + 1, size + info.size
        elif attempt is not None and attempt.startswith(tag):
            newest[attempt] = max(newest.get(attempt, 0.0), info.last_modified)
            if info.path not in known:
                strays.setdefault(attempt, []).append(info.size)
    dead = [sizes for attempt, sizes in strays.items() if newest[attempt] <= deadline]
    return count + sum(map(len, dead)), size + sum(map(sum, dead))
