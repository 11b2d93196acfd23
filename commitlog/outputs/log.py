"""The numbered records of an output: its commit log, and the one place where jobs are decided.

Records are numbered from 1 without a gap, because number N is claimed, put-if-absent, only after N - 1
was read; so the log is read by asking for the next number, without a listing. A record is never
changed and never removed: whoever has read up to N - 1 knows that a claim of N which succeeds was
preceded by exactly what was read, and that a delayed claim of a number that is taken fails for good.

Imports the operation log's entries and the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import define, evolve, field

from commitlog.clock import Clock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    BucketNotFound,
    CommitError,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
    OutcomeUnknown,
)
from commitlog.oplog.codec import Document
from commitlog.oplog.entries import Entries
from commitlog.outputs.job import Job
from commitlog.outputs.records import AbortRecord, CommitRecord, DataFile, Record, record_of

__all__ = ["CommitLog", "Verdicts", "already_committed"]


@define(kw_only=True)
class Verdicts:
    """What a stretch of the log says of some attempts.

    Attributes:
        open: those that it does not decide.
        aborted: those that can never be committed.
        committed: those that are, with their records.
        end: number of the last record of the stretch.
    """

    open: set[str]
    aborted: set[str] = field(factory=set)
    committed: dict[str, CommitRecord] = field(factory=dict)
    end: int


class CommitLog:
    """The log in one directory. Thread-safe.

    Args:
        store: where.
        directory: the ``_commitlog`` directory of the output.
        clock: dates the records.
    """

    def __init__(self, store: ConditionalStore, directory: str, *, clock: Clock) -> None:
        self.directory = directory
        self._entries = Entries(store, directory, frozenset({"commit", "abort"}))
        self._clock = clock

    def get(self, version: int) -> Record:
        """Return one record. Raises `NotFound`, `CorruptRecord`, `FormatTooNew`."""
        return record_of(version, self._entries.get(_name(version)))

    def read(self, after: int = 0, until: int | None = None) -> Iterator[Record]:
        """Yield the records after number `after`, and up to `until` or the end, one at a time."""
        version = after
        while until is None or version < until:
            version += 1
            try:
                record = self.get(version)
            except BucketNotFound:
                raise
            except NotFound:
                return
            yield record

    def look(self, job: Job) -> tuple[CommitRecord | None, int]:
        """Return the record that commits `job`, if there is one, and the number of the last record.

        Raises `JobAlreadyCommitted` if another attempt was committed, `JobAborted` if this one was
        aborted, `AlreadyExists` if the job's mode is "error" and the output has data by now.
        """
        return self._look(job, job.base)

    def commit(self, job: Job, files: tuple[DataFile, ...], *, after: int) -> CommitRecord:
        """Append the commit record of `job`, or return the one that this very attempt has already.

        Args:
            job: the job, which is not decided up to record `after`.
            files: what it adds.
            after: number of the last record that was looked at.

        Raises what `look` raises, and `OutcomeUnknown`.
        """
        record = CommitRecord(
            version=after,
            job_id=job.job_id,
            attempt=job.attempt,
            mode=job.mode,
            time=self._clock.epoch(),
            files=files,
            schema=job.schema,
        )
        document = record.to_document()
        while True:
            mine, after = self._look(job, after)
            if mine is not None:
                return mine
            if self._claim(after + 1, document):
                return evolve(record, version=after + 1)

    def verdicts(self, attempts: Iterable[str], *, after: int = 0) -> Verdicts:
        """Return what the records after number `after` say of `attempts`."""
        found = Verdicts(open=set(attempts), end=after)
        for record in self.read(after):
            found.end = record.version
            if isinstance(record, AbortRecord):
                gone = found.open & record.attempts.keys()
                found.aborted |= gone
                found.open -= gone
            elif record.attempt in found.open:
                found.committed[record.attempt] = record
                found.open.remove(record.attempt)
        return found

    def fence(self, suspects: Mapping[str, str | None], *, after: int) -> Verdicts:
        """Make sure that each of the attempts `suspects` is decided, and return how: none stays open.

        Whatever is not committed by now is aborted, and cannot be committed any more, not even by a
        request that is still on its way: that would need a number that is taken by now.

        Args:
            suspects: attempts with their job ids, or None where that is not known.
            after: number of a record up to which none of them is decided.
        """
        found = self.verdicts(suspects, after=after)
        while found.open:
            fence = AbortRecord(
                version=found.end + 1,
                attempts={attempt: suspects[attempt] for attempt in found.open},
                time=self._clock.epoch(),
            )
            self._claim(fence.version, fence.to_document())
            # Read it back rather than trust in it: the number may have been taken, even by our own
            # claim, whose answer was lost.
            later = self.verdicts(found.open, after=found.end)
            found = Verdicts(
                open=later.open,
                end=later.end,
                aborted=found.aborted | later.aborted,
                committed={**found.committed, **later.committed},
            )
        return found

    def _look(self, job: Job, after: int) -> tuple[CommitRecord | None, int]:
        for record in self.read(after):
            after = record.version
            if isinstance(record, AbortRecord):
                if job.attempt in record.attempts:
                    raise JobAborted(
                        f"job {job.job_id!r} was aborted (record {after}) before it could be committed;"
                        " nothing of it is visible. Run it again under a new attempt"
                    )
            elif record.attempt == job.attempt:
                return record, after
            elif record.job_id == job.job_id:
                raise already_committed(record)
            elif job.mode == "error":
                raise AlreadyExists(
                    f"the output has data since version {after} (job {record.job_id!r}), and job"
                    f" {job.job_id!r} was to write to an empty one; nothing was added"
                )
        return None, after

    def _claim(self, version: int, document: Document) -> bool:
        """Store record `version`; return False if the number is taken, be it by this very document."""
        try:
            self._entries.add(_name(version), document)
        except AlreadyExists:
            return False
        except OutcomeUnknown as unknown:
            # What can be read under the number now is there for good, and settles the matter.
            try:
                self.get(version)
            except CommitError:
                raise unknown from None
            return False
        return True


def already_committed(record: CommitRecord) -> JobAlreadyCommitted:
    """Return the error for a job that `record` committed."""
    return JobAlreadyCommitted(
        f"job {record.job_id!r} is part of the output since version {record.version}; nothing was added",
        job_id=record.job_id,
        version=record.version,
    )


def _name(version: int) -> str:
    return f"{version:020d}"
