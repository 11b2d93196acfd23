"""Ready jobs: jobs that a driver leaves for others, so that one record commits those of many processes.

A driver whose claim was lost leaves a *ready entry*, an object with its jobs and their uploads, and
waits for a moment. The driver that claims the next number commits the jobs of all entries, and the
others find theirs in its record. This is flat combining (Hendler, Incze, Shavit, Tzafrir, "Flat
Combining and the Synchronization-Parallelism Tradeoff", 2010), with a number in place of a lock.

An entry decides nothing. The driver that claims a number has checked each job against all records before
it. As soon as an entry is sent, any driver may commit its jobs, until a record decides them. Then the
entry is removed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from attrs import field, frozen

from commitlog._util.concurrency import Executor
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import CommitError
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.record_directory import ListedRecord, RecordDirectory
from commitlog.oplog.validate import build, items, mapping, maybe_text
from commitlog.outputs.job import Job, StagedFile, Visibility
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.records import CommitRecord, DataFile, batch_of, one_of
from commitlog.paths import join

__all__ = ["ReadyJob", "ReadyQueue"]

#: Most entries that a record takes along, and most records that an entry may be behind it. Recoveries
#: remove older entries.
MOST_ENTRIES, MOST_BEHIND = 64, 100

#: Seconds for which the output counts as busy after a lost claim, or after jobs of others were found.
BUSY_FOR = 10.0

#: Number of versions that a client remembers as helped or combined.
VERSIONS_KEPT = 1_000

#: Bounds of a wait, as multiples of a unit: the time to store an entry, but at least the first pause of
#: the retry policy, and at most so many times that pause.
WAIT, MOST_UNIT = (5, 5.5), 10

#: The driver that writes the next record lists the entries at most so many times, with this pause (again
#: a multiple of the unit), until there are as many as for one of its last records.
GATHER_LISTINGS, GATHER_PAUSE, RECORDS_REMEMBERED = 5, 1, 8


@frozen(kw_only=True)
class ReadyJob:
    """A job that appends staged files.

    Attributes:
        job: the job, of mode ``append``.
        files: its files, with paths relative to the output.
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

    def to_json(self) -> Mapping[str, Any]:
        """Return the fields as a ready entry has them."""
        batch = self.job.batch
        return {
            **self.pending.to_document().body,
            "schema": self.job.schema,
            "visibility": self.job.visibility,
            "batch": None if batch is None else [batch.stream, batch.number],
        }

    @classmethod
    def from_json(cls, item: object, *, base: int) -> ReadyJob:
        """Return the job that `item` describes, undecided up to record `base`; for use in `build`."""
        fields = mapping(item)
        pending = PendingJob.from_document(Document("pending", fields))
        job = Job(
            job_id=pending.job_id,
            attempt=pending.attempt,
            base=base,
            schema=maybe_text(fields["schema"]),
            visibility=one_of(Visibility, fields["visibility"]),
            batch=batch_of(fields["batch"]),
        )
        return cls(job=job, files=pending.files)


@frozen(kw_only=True)
class Collected:
    """The ready entries of other drivers.

    Attributes:
        entries: their jobs, by the name of the entry.
        listed: whether the caller's own entry was listed, too; True without one.
        first: whether it was the first one; True without one.
    """

    entries: Mapping[str, tuple[ReadyJob, ...]] = field(factory=dict)
    listed: bool = True
    first: bool = True


class ReadyQueue:
    """The ready entries of an output, and whether it is busy. Thread-safe.

    Args:
        store: the store of the output.
        directory: the ``_commitlog`` directory of the output.
        clock: measures the waits.
        backoff: determines the shortest waits, and their jitter.
        executor: reads entries in parallel.

    Attributes:
        helped: last versions in which other drivers have committed jobs of this client.
        combined: last versions in which this client has committed jobs of other drivers.
        last_won: number of the last record that this client has written; -1 if there is none.
    """

    def __init__(
        self,
        store: ConditionalStore,
        directory: str,
        *,
        clock: Clock,
        backoff: Backoff,
        executor: Executor,
    ) -> None:
        self._store = store
        self._entries = RecordDirectory(store, join(directory, "ready"), frozenset({"ready"}))
        self._clock = clock
        self._backoff = backoff
        self._executor = executor
        self._busy_since: float | None = None
        self._known: dict[str, tuple[ReadyJob, ...]] = {}
        self._unit = backoff.base
        self._gathered: deque[int] = deque(maxlen=RECORDS_REMEMBERED)
        self.helped: set[int] = set()
        self.combined: set[int] = set()
        self.last_won = -1

    @property
    def busy(self) -> bool:
        """True if other drivers have committed at the same time a moment ago."""
        return self._busy_since is not None and self._clock.monotonic() < self._busy_since + BUSY_FOR

    def note_busy(self) -> None:
        """Note that other drivers commit at the same time."""
        self._busy_since = self._clock.monotonic()

    def note_helped(self, versions: Iterable[int]) -> None:
        """Note the versions in which other drivers have committed jobs of this client."""
        self.note_busy()
        self.helped = set(sorted({*self.helped, *versions})[-VERSIONS_KEPT:])

    def note_combined(self, version: int) -> None:
        """Note a version in which this client has committed jobs of other drivers."""
        self.combined = set(sorted({*self.combined, version})[-VERSIONS_KEPT:])

    def wait(self) -> None:
        """Wait while another driver writes the next record."""
        low, high = (each * self._unit for each in WAIT)
        self._clock.sleep(self._backoff.random.uniform(low, high))

    def leave(self, jobs: Sequence[ReadyJob], *, after: int) -> str:
        """Store an entry of jobs that are undecided up to record `after`; return its name.

        An error does not matter: it may have been stored then, and other drivers may commit the jobs.
        """
        name = f"{after:020d}-{jobs[0].job.attempt}"
        document = Document("ready", {"jobs": [each.to_json() for each in jobs]})
        began = self._clock.monotonic()
        with contextlib.suppress(CommitError):
            self._store.put(self._entries.path(name), encode(document))
        # In a slow store, the others need longer, too.
        base = self._backoff.base
        self._unit = min(max(base, self._clock.monotonic() - began), MOST_UNIT * base)
        return name

    def collect(self, *, after: int, own: str, patient: bool, gather: bool = False) -> Collected:
        """Return the entries of other drivers, to be committed by the record after number `after`.

        They are read only if the caller is to commit them. Entries that cannot be read are left out.

        Args:
            after: number of the last record that was read.
            own: name of the caller's own entry; "" if it has none.
            patient: whether to leave the work to the driver whose entry is the first one.
            gather: whether to wait, for a moment, until there are as many entries as lately.
        """
        expected = max(self._gathered, default=0) if gather else 0
        for number in range(GATHER_LISTINGS):
            names = self._listed(after)
            others = [name for name in names if name != own]
            if others:
                self.note_busy()
            listed, first = own in ("", *names), own in ("", *names[:1])
            if not listed or (patient and not first):
                return Collected(listed=listed, first=first)
            self._known = dict(zip(others, self._executor.map(self._read_known, others), strict=True))
            if len(others) >= expected or number + 1 == GATHER_LISTINGS:
                break
            self._clock.sleep(GATHER_PAUSE * self._unit)
        self._gathered.append(len(others))
        return Collected(entries=self._known)

    def _listed(self, after: int) -> list[str]:
        """Return the names of the first entries, of jobs that are not far behind record `after`."""
        start = f"{after - MOST_BEHIND:020d}" if after > MOST_BEHIND else ""
        names: list[str] = []
        with contextlib.suppress(CommitError):
            names = [each.name for each in islice(self._entries.list(start_after=start), MOST_ENTRIES)]
        return names

    def remove(self, names: Collection[str]) -> None:
        """Remove entries whose jobs are decided. Other drivers remove those that stay."""
        if names:
            with contextlib.suppress(CommitError):
                self._entries.remove_all(names)

    def list(self) -> Iterator[ListedRecord]:
        """Yield all entries, without reading them. Raises the store's errors."""
        return self._entries.list()

    def path(self, name: str) -> str:
        """Return the path of an entry."""
        return self._entries.path(name)

    def read(self, name: str) -> tuple[ReadyJob, ...]:
        """Return the jobs of an entry. Raises `NotFound`, `CorruptRecord` or `FormatTooNew`."""
        document = self._entries.get(name)

        def make() -> tuple[ReadyJob, ...]:
            base = int(name.partition("-")[0])
            return tuple(ReadyJob.from_json(each, base=base) for each in items(document.body["jobs"]))

        return build(document, make)

    def _read_known(self, name: str) -> tuple[ReadyJob, ...]:
        try:
            return self._known.get(name) or self.read(name)
        except CommitError:
            return ()
