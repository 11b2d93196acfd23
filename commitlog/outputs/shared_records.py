"""Shared records: jobs that end at the same time are committed by one record of the log.

Every job keeps an outcome of its own. It is checked against the records before the claim, as a job alone
is, and a job that may not be committed is left out: the others go on without it. Readers see a shared
record as a commit for each job, all with the same version. The record has the uploads of its jobs, so
there is no pending entry, and any process can publish their files. In a busy output, the jobs of other
processes join, from their ready entries (`commitlog.outputs.ready_jobs`).
"""

from __future__ import annotations

import contextlib
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

__all__ = ["MOST_FILES", "commit_together"]

#: Most files of a job whose uploads are in the record. As long as ``_SUCCESS`` is behind the record,
#: each reader looks for each of these files.
MOST_FILES = 16

#: The outcome of a job: its record, or the error that its caller gets.
Outcome: TypeAlias = CommitRecord | Exception


#: Errors of a check against the log that are final: no later record commits the job.
FINAL = (JobAborted, JobAlreadyCommitted, Conflict)

#: How often a driver that has left a ready entry waits for others before it claims a number itself.
MOST_WAITS = 4


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
    """
    outcomes: list[Outcome | None] = [None] * len(jobs)
    # The client that began a job had read the log up to its base.
    after = max([log.cache.known, *(each.job.base for each in jobs)])
    seen = [each.job.base for each in jobs]
    entry, waits, won_one = "", 0, False
    in_entry: frozenset[int] = frozenset()
    while True:
        for number, each in enumerate(jobs):
            if outcomes[number] is None:
                outcome = _decided(log, each.job, seen[number], after)
                outcomes[number] = _reported(outcome, number in in_entry)
                seen[number] = after
        open_jobs = [number for number, outcome in enumerate(outcomes) if outcome is None]
        if not open_jobs:
            break
        others = Collected()
        if queue.busy:
            # Who wrote the last record writes the next one, too. The others wait for it.
            if after != queue.last_won and waits < MOST_WAITS:
                if not entry:
                    entry = queue.leave([jobs[number] for number in open_jobs], after=after)
                    in_entry = frozenset(open_jobs)
                waits += 1
                queue.wait()
                before, after = after, _read_on(log, after, jobs)
                if after > before:
                    continue
            others = queue.collect(after=after, own=entry, patient=0 < waits < MOST_WAITS)
            if not others.listed:
                # A record has decided the jobs, or a recovery removed the entry of an aborted one.
                entry = ""
                after = _read_on(log, after, jobs)
                continue
            if not others.first and waits < MOST_WAITS:
                continue
        verdicts = {
            each: _decided(log, each.job, each.job.base, after)
            for group in others.entries.values()
            for each in group
        }
        helped = [each for each, verdict in verdicts.items() if verdict is None]
        chosen = _chosen([*(jobs[number] for number in open_jobs), *helped])
        now = clock.epoch()
        try:
            won = log.claim(after + 1, document_of([each.record(now) for each in chosen]))
        except Exception as error:  # it must not be taken for the outcome of jobs that are committed
            for number in open_jobs:
                if jobs[number] in chosen:
                    # Each caller raises an exception of its own.
                    outcomes[number] = _unknown(error) if number in in_entry else _copy(error)
            continue
        if won:
            after += 1
            written = tuple(evolve(each.record(now), version=after) for each in chosen)
            log.cache.keep(after, written)
            records = dict(zip(chosen, written, strict=True))
            for number in open_jobs:
                outcomes[number] = records.get(jobs[number])
            queue.last_won, won_one = after, True
            if not records.keys().isdisjoint(helped):
                queue.note_combined(after)
            decided = {each for each, verdict in verdicts.items() if _is_final(verdict)} | records.keys()
            done = [n for n, group in others.entries.items() if group and decided.issuperset(group)]
            queue.remove(done)
        else:
            queue.note_busy()
            after = _read_on(log, after, jobs)
    if won_one and entry and all(map(_is_final, outcomes)):
        queue.remove([entry])
    elif in_entry and not won_one:
        queue.note_helped(each.version for each in outcomes if isinstance(each, CommitRecord))
    return [outcome for outcome in outcomes if outcome is not None]


def _read_on(log: CommitLog, after: int, jobs: Sequence[ReadyJob]) -> int:
    """Read the records after number `after`, up to one of `jobs` or the end; return the last number.

    Others have gone on meanwhile: a claim of any number but the next one is lost. An error of this is
    found again, and reported, where the jobs are checked.
    """
    attempts = {each.job.attempt for each in jobs}
    with contextlib.suppress(CommitError):
        for later in log.read(after, cached=True):
            after = later.version
            if isinstance(later, CommitRecord) and later.attempt in attempts:
                break
    return after


def _reported(outcome: Outcome | None, in_entry: bool) -> Outcome | None:
    """Return what the caller gets for the outcome of a check of a job, which may be in a ready entry."""
    if in_entry and isinstance(outcome, Exception) and not isinstance(outcome, FINAL):
        return _unknown(outcome)
    return outcome


def _unknown(error: Exception) -> OutcomeUnknown:
    unknown = OutcomeUnknown(f"the job may be committed, by this driver or another one: {error}")
    unknown.__cause__ = error
    return unknown


def _is_final(outcome: Outcome | None) -> bool:
    return isinstance(outcome, (CommitRecord, *FINAL))


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


def _copy(error: Exception) -> Exception:
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(str(error))
    return error
