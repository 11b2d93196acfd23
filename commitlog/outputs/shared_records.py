"""Shared records: jobs that end at the same time are committed by one record of the log.

Every job keeps an outcome of its own. It is checked against the records before the claim, as a job alone
is, and a job that may not be committed is left out: the others go on without it. Readers see a shared
record as a commit for each job, all with the same version. The record has the uploads of its jobs, so
there is no pending entry, and any process can publish their files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeAlias

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.errors import CommitError, CorruptRecord, OutcomeUnknown
from commitlog.outputs.job import Batch, Job, StagedFile
from commitlog.outputs.log import CommitLog
from commitlog.outputs.pending import INLINE_FILES, PendingJob
from commitlog.outputs.records import CommitRecord, DataFile, document_of

__all__ = ["MOST_FILES", "ReadyJob", "commit_together"]

#: Most files of a job whose uploads are in the record. As long as ``_SUCCESS`` is behind the record,
#: each reader looks for each of these files.
MOST_FILES = 16

#: The outcome of a job: its record, or the error that its caller gets.
Outcome: TypeAlias = CommitRecord | Exception


@frozen(kw_only=True)
class ReadyJob:
    """A job that appends staged files.

    Attributes:
        job: the job, of mode ``append``.
        files: its files, at most `MOST_FILES`, with paths relative to the output.
    """

    job: Job
    files: tuple[StagedFile, ...]

    @property
    def pending(self) -> PendingJob:
        """What a pending entry of the job would have."""
        return PendingJob(job_id=self.job.job_id, attempt=self.job.attempt, files=self.files)

    def record(self, time: float) -> CommitRecord:
        """Return the commit record of the job, without its version."""
        listed = self.job.visibility == "listed"
        return CommitRecord(
            version=0,
            job_id=self.job.job_id,
            attempt=self.job.attempt,
            mode=self.job.mode,
            time=time,
            files=tuple(map(DataFile.of, self.files)),
            schema=self.job.schema,
            visibility=self.job.visibility,
            batch=self.job.batch,
            uploads=tuple((f.staged.upload_id, f.staged.parts) for f in self.files) if listed else (),
        )


def commit_together(log: CommitLog, clock: Clock, jobs: Sequence[ReadyJob]) -> list[Outcome]:
    """Commit `jobs`, with as few records as possible; return their outcomes in the same order.

    Args:
        log: the log.
        clock: dates the records.
        jobs: the jobs, in order of commit.

    An outcome is the record of the job, which may be of an earlier call for the same attempt; or the
    error that `CommitLog.commit` raises for such a job. An unknown outcome of a record is one of each of
    its jobs, and of no other.
    """
    outcomes: list[Outcome | None] = [None] * len(jobs)
    # The client that began a job had read the log up to its base.
    after = max([log.cache.known, *(each.job.base for each in jobs)])
    seen = [each.job.base for each in jobs]
    losses = 0
    while True:
        for number, each in enumerate(jobs):
            if outcomes[number] is None:
                outcomes[number] = _decided(log, each.job, seen[number], after)
                seen[number] = after
        chosen = _chosen(jobs, [number for number, outcome in enumerate(outcomes) if outcome is None])
        if not chosen:
            return [outcome for outcome in outcomes if outcome is not None]
        now = clock.epoch()
        records = [jobs[number].record(now) for number in chosen]
        try:
            won = log.claim(after + 1, document_of(records))
        except Exception as error:  # it must not be taken for the outcome of jobs that are committed
            for number in chosen:
                # Each caller raises an exception of its own.
                outcomes[number] = _copy(error)
            continue
        if won:
            written = tuple(evolve(record, version=after + 1) for record in records)
            log.cache.keep(after + 1, written)
            for number, record in zip(chosen, written, strict=True):
                outcomes[number] = record
            losses = 0
            after += 1
        else:
            log.pause(losses)
            losses += 1
            after += 1
            # Others have gone on meanwhile: a claim of any number but the next one is lost, too. An
            # error of this is found again, and reported, where the jobs that are left are checked.
            with contextlib.suppress(CommitError):
                for later in log.read(after, cached=True):
                    after = later.version


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


def _chosen(jobs: Sequence[ReadyJob], open_jobs: Sequence[int]) -> list[int]:
    """Return the numbers of the jobs that may share the next record; the others wait for a later one.

    Jobs with other columns or visibility, and a second job of the same id, attempt or stream, are
    checked against this record before they are committed or refused.
    """
    chosen: list[int] = []
    taken: set[tuple[str, str]] = set()
    files = 0
    for number in open_jobs:
        each = jobs[number]
        job, first = each.job, jobs[chosen[0]].job if chosen else each.job
        batch = job.batch or Batch.named(job.job_id)
        names = {("job", job.job_id), ("attempt", job.attempt)}
        names |= {("stream", batch.stream)} if batch else set()
        alike = (job.schema, job.visibility) == (first.schema, first.visibility)
        if alike and taken.isdisjoint(names) and (not chosen or files + len(each.files) <= INLINE_FILES):
            chosen.append(number)
            taken |= names
            files += len(each.files)
    return chosen


def _copy(error: Exception) -> Exception:
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(str(error))
    return error
