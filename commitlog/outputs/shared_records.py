"""Shared records: jobs that end at the same time are committed by one record of the log.

Every job keeps an outcome of its own. It is checked against the records before the claim, as a job alone
is, and a job that may not be committed is left out: the others go on without it. Readers see a shared
record as a commit for each job, all with the same version. The record has the uploads of its jobs, so
there is no pending entry, and any process can publish their files. In a busy output, the jobs of other
processes join, from their ready entries (`commitlog.outputs.ready_jobs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import evolve

from commitlog.clock import Clock
from commitlog.errors import (
    CommitError,
    Conflict,
    CorruptRecord,
    JobAborted,
    JobAlreadyCommitted,
    OutcomeUnknown,
)
from commitlog.outputs.job import Batch, Job
from commitlog.outputs.log import CommitLog
from commitlog.outputs.pending import INLINE_FILES
from commitlog.outputs.ready_jobs import Collected, ReadyJob, ReadyQueue
from commitlog.outputs.records import CommitRecord, document_of

__all__ = ["MOST_FILES", "commit_together", "unknown_outcome"]

#: Most files of a job whose uploads are in the record. As long as ``_SUCCESS`` is behind the record,
#: each reader looks for each of these files.
MOST_FILES = 16

#: The outcome of a job: its record, or the error that its caller gets.
Outcome: TypeAlias = CommitRecord | Exception


#: Errors of a check against the log that are final: no later record commits the job.
FINAL = (JobAborted, JobAlreadyCommitted, Conflict)

#: Number of waits after which the driver of the first ready entry claims a number itself, and number
#: after which every other driver does.
LEAST_WAITS, MOST_WAITS = 2, 4


def commit_together(
    log: CommitLog, clock: Clock, jobs: Sequence[ReadyJob], queue: ReadyQueue
) -> list[Outcome]:
    """Commit `jobs`, with as few records as possible; return their outcomes in the same order.

    Args:
        log: the log.
        clock: dates the records.
        jobs: the jobs, in order of commit.
        queue: the ready entries of the output, with which other drivers help.

    An outcome is the record of the job, which may be of an earlier call for the same attempt; or the
    error that `CommitLog.commit` raises for such a job. An unknown outcome of a record is one of each of
    its jobs, and of no other. The outcome of a job in a ready entry is unknown until the log decides it.
    After an exception that is no `CommitError`, the outcomes of all open jobs are unknown.
    """
    return _SharedCommit(log, clock, jobs, queue).run()


class _SharedCommit:
    """A call of `commit_together`, whose arguments it takes."""

    def __init__(
        self, log: CommitLog, clock: Clock, jobs: Sequence[ReadyJob], queue: ReadyQueue
    ) -> None:
        self._log = log
        self._clock = clock
        self._jobs = jobs
        self._queue = queue
        self._outcomes: list[Outcome | None] = [_misplaced(log, each.job) for each in jobs]
        # The client that began a job had read the log up to its base.
        began = (each.job.base for each, no in zip(jobs, self._outcomes, strict=True) if no is None)
        self._after = max([log.cache.known, *began])
        self._seen = [each.job.base for each in jobs]
        self._entry = ""
        self._in_entry: frozenset[int] = frozenset()
        self._waits = 0
        self._won = False

    def run(self) -> list[Outcome]:
        """Do the work; see `commit_together`."""
        try:
            while open_jobs := self._check():
                others = self._others(open_jobs) if self._queue.busy else Collected()
                if others is not None:
                    self._claim(open_jobs, others)
        except Exception as error:  # it must not be taken for the outcome of jobs that are decided
            self._outcomes = [
                self._failure(number, error) if each is None else each
                for number, each in enumerate(self._outcomes)
            ]
        if self._won and self._entry and all(map(_is_final, self._outcomes)):
            self._queue.remove([self._entry])
        elif self._in_entry and not self._won:
            self._queue.note_helped(
                each.version for each in self._outcomes if isinstance(each, CommitRecord)
            )
        return [outcome for outcome in self._outcomes if outcome is not None]

    def _failure(self, number: int, error: Exception) -> CommitError:
        """Return what the caller of an open job raises after an error, an exception of its own."""
        if isinstance(error, CommitError) and number not in self._in_entry:
            return _copy(error)
        return unknown_outcome(error)

    def _check(self) -> list[int]:
        """Check the open jobs against the records that were read; return the numbers of open jobs."""
        log, outcomes, seen = self._log, self._outcomes, self._seen
        for number, each in enumerate(self._jobs):
            if outcomes[number] is None:
                outcome = _decided(log, each.job, seen[number], self._after)
                outcomes[number] = _reported(outcome, number in self._in_entry)
                seen[number] = self._after
        return [number for number, outcome in enumerate(outcomes) if outcome is None]

    def _others(self, open_jobs: Sequence[int]) -> Collected | None:
        """Return the jobs of other drivers for the next record; None: check the open jobs first."""
        # Who wrote the last record writes the next one, too. The others wait for it.
        leads = self._after == self._queue.last_won
        if not leads and self._waits < MOST_WAITS:
            if not self._entry:
                self._entry = self._queue.leave([self._jobs[n] for n in open_jobs], after=self._after)
                self._in_entry = frozenset(open_jobs)
            self._waits += 1
            self._queue.wait()
            before = self._after
            self._read_on()
            if self._after > before or self._waits < LEAST_WAITS:
                return None
        patient = 0 < self._waits < MOST_WAITS
        others = self._queue.collect(
            after=self._after, own=self._entry, patient=patient, gather=leads and not self._entry
        )
        if not others.listed:
            # A record has decided the jobs, or a recovery removed the entry of an aborted one.
            self._entry = ""
            self._read_on()
            return None
        return others if others.first or not patient else None

    def _claim(self, open_jobs: Sequence[int], others: Collected) -> None:
        """Claim the next number for the open jobs and those of others."""
        log, queue, outcomes, after = self._log, self._queue, self._outcomes, self._after
        jobs = {number: self._jobs[number] for number in open_jobs}
        verdicts = {
            each: _decided(log, each.job, each.job.base, after)
            for group in others.entries.values()
            for each in group
        }
        helped = [each for each, verdict in verdicts.items() if verdict is None]
        chosen = _chosen([*jobs.values(), *helped])
        now = self._clock.epoch()
        try:
            won = log.claim(after + 1, document_of([each.record(now) for each in chosen]))
        except Exception as error:  # it must not be taken for the outcome of jobs that are committed
            for number, each in jobs.items():
                if each in chosen:
                    outcomes[number] = self._failure(number, error)
            return
        if not won:
            queue.note_busy()
            unreadable = self._read_on()
            if unreadable is not None and self._after == after:
                # Another claim would be lost to the same record, which cannot be read.
                for number in jobs:
                    outcomes[number] = _reported(unreadable, number in self._in_entry)
            return
        written = tuple(evolve(each.record(now), version=after + 1) for each in chosen)
        log.cache.keep(after + 1, written)
        records = dict(zip(chosen, written, strict=True))
        for number, each in jobs.items():
            outcomes[number] = records.get(each)
        self._after = queue.last_won = after + 1
        self._won = True
        if not records.keys().isdisjoint(helped):
            queue.note_combined(after + 1)
        decided = {each for each, verdict in verdicts.items() if _is_final(verdict)} | records.keys()
        done = [name for name, group in others.entries.items() if group and decided.issuperset(group)]
        queue.remove(done)

    def _read_on(self) -> CommitError | None:
        """Read the next records, up to one of the jobs or the end; return the error that ended it.

        Others have gone on meanwhile: a claim of any number but the next one is lost. A claim of the
        number that could not be read finds the error again.
        """
        attempts = {each.job.attempt for each in self._jobs}
        try:
            for later in self._log.read(self._after, cached=True):
                self._after = later.version
                if isinstance(later, CommitRecord) and later.attempt in attempts:
                    break
        except CommitError as error:
            return error
        return None


def unknown_outcome(error: Exception) -> OutcomeUnknown:
    """Return the outcome of a job that may be committed although `error` came, which is its cause."""
    why = error if isinstance(error, CommitError) else repr(error)
    unknown = OutcomeUnknown(f"the job may be committed, by this driver or another one: {why}")
    unknown.__cause__ = error
    return unknown


def _reported(outcome: Outcome | None, in_entry: bool) -> Outcome | None:
    """Return what the caller gets for the outcome of a check of a job, which may be in a ready entry."""
    if in_entry and isinstance(outcome, Exception) and not isinstance(outcome, FINAL):
        return unknown_outcome(outcome)
    return outcome


def _is_final(outcome: Outcome | None) -> bool:
    return isinstance(outcome, (CommitRecord, *FINAL))


def _misplaced(log: CommitLog, job: Job) -> Outcome | None:
    """Return the error for a job that began in another log, or that cannot be read; else None."""
    try:
        log.check_base(job)
    except CommitError as error:
        return error
    return None


def _decided(log: CommitLog, job: Job, after: int, until: int) -> Outcome | None:
    """Return the outcome of a job according to the records after number `after`; None if it is open."""
    try:
        record, end = log.look_on(job, after, until=until)
    except CommitError as error:
        return error
    if record is None and end < until:
        return CorruptRecord(
            f"{log.directory!r} has no record {end + 1}, though there is a record {until}: records were"
            f" lost; nothing of job {job.job_id!r} was added. Restore them"
        )
    return record


def _chosen(jobs: Sequence[ReadyJob]) -> list[ReadyJob]:
    """Return the jobs that may share the next record; the others wait for a later one.

    Jobs with other columns or visibility, and a second job of the same id, attempt or stream, are
    checked against this record before they are committed or refused.
    """
    chosen: list[ReadyJob] = []
    taken: set[tuple[str, str]] = set()
    files = 0
    for each in jobs:
        job, first = each.job, chosen[0].job if chosen else each.job
        batch = job.batch or Batch.named(job.job_id)
        names = {("job", job.job_id), ("attempt", job.attempt)}
        names |= {("stream", batch.stream)} if batch else set()
        alike = (job.schema, job.visibility) == (first.schema, first.visibility)
        if alike and taken.isdisjoint(names) and (not chosen or files + len(each.files) <= INLINE_FILES):
            chosen.append(each)
            taken |= names
            files += len(each.files)
    return chosen


def _copy(error: CommitError) -> CommitError:
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(str(error))
    return error
