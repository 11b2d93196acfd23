"""The commit log of an output: numbered records, the only place where jobs are decided.

Records are numbered from 1 without a gap, because number N is claimed, put-if-absent, only after N - 1
was read. So the log is read by asking for the next number, without a listing. A record is never changed
and never removed. So a process that has read up to N - 1 and claims N knows that the log before N is
exactly as it was read, and a delayed claim of a taken number fails permanently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import define, evolve, field, frozen

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
    OutcomeUnknown,
    StateMismatch,
)
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.record_directory import RecordDirectory
from commitlog.outputs.checkpoints import OutputCheckpoints
from commitlog.outputs.foreign import ForeignFile
from commitlog.outputs.job import NAMING, Batch, Job, Visibility
from commitlog.outputs.job_index import job_ids, merged
from commitlog.outputs.log_cache import LogCache
from commitlog.outputs.manifest import Manifests
from commitlog.outputs.pending import INLINE_FILES, PendingJob
from commitlog.outputs.records import (
    KINDS,
    NEWEST,
    AbortRecord,
    CommitRecord,
    DataFile,
    ExpiryRecord,
    Manifest,
    Record,
    record_id,
    records_of,
    total_rows,
)
from commitlog.outputs.state import State
from commitlog.paths import join

__all__ = [
    "AttemptOutcomes",
    "CommitLog",
    "aborted",
    "already_committed",
    "other_job",
    "other_visibility",
]


@define(kw_only=True)
class AttemptOutcomes:
    """The outcomes of some attempts, according to a part of the log.

    Attributes:
        open: attempts that it does not decide.
        aborted: attempts that can never be committed.
        committed: committed attempts, with their records.
        end: number of the last record of that part.
    """

    open: set[str]
    aborted: set[str] = field(factory=set)
    committed: dict[str, CommitRecord] = field(factory=dict)
    end: int


@frozen(kw_only=True)
class ToReplace:
    """The files that a job replaces by name.

    Attributes:
        state: the state of the output that has these files; an argument of `CommitLog.commit`.
        paths: their paths; empty if there are manifests.
        manifests: lists of the files, if they are too many.
    """

    state: State
    paths: tuple[str, ...] = ()
    manifests: tuple[Manifest, ...] = ()


@frozen(kw_only=True)
class NamedForeign:
    """The foreign files that a job replaces.

    Attributes:
        files: the files; empty if there are manifests.
        manifests: lists of the files, if they are too many.
    """

    files: tuple[ForeignFile, ...] = ()
    manifests: tuple[Manifest, ...] = ()


class CommitLog:
    """The log in one directory. Thread-safe.

    Args:
        store: the store of the output.
        directory: the ``_commitlog`` directory of the output.
        clock: dates the records, and measures pauses between attempts.
        backoff: the pauses after another job has taken the number of a record.
    """

    def __init__(
        self, store: ConditionalStore, directory: str, *, clock: Clock, backoff: Backoff
    ) -> None:
        self.directory = directory
        self._entries = RecordDirectory(store, directory, KINDS, newest=NEWEST)
        self.manifests = Manifests(store, join(directory, "manifests"))
        self.checkpoints = OutputCheckpoints(store, join(directory, "checkpoints"))
        self.cache = LogCache(self.get, self.checkpoints.load_head, self._missing, clock)
        self._clock = clock
        self._backoff = backoff

    def get(self, version: int) -> tuple[Record, ...]:
        """Return the content of one record: a commit for each of its jobs, or one of another kind.

        Raises `NotFound`, `CorruptRecord`, `FormatTooNew`.
        """
        return records_of(version, self.document(version))

    def document(self, version: int) -> Document:
        """Return one record as it is stored. Raises `NotFound`, `CorruptRecord`, `FormatTooNew`."""
        return self._entries.get(_name(version))

    def read(
        self, after: int = 0, until: int | None = None, *, cached: bool = False
    ) -> Iterator[Record]:
        """Yield the records after number `after`, and up to `until` or the end, one at a time.

        The commits of jobs that share a record follow each other, with the same version.

        Args:
            after: number of a record.
            until: number of the last record; None: the end of the log.
            cached: whether records that this process remembers are not read again.
        """
        get = self.cache.read if cached else self.get
        version = after
        while until is None or version < until:
            version += 1
            try:
                records = get(version)
            except NotFound:
                return
            yield from records

    def files(self, record: Record) -> Iterator[DataFile]:
        """Yield all files that `record` adds, those in manifests included."""
        if isinstance(record, CommitRecord):
            yield from record.files
            for manifest in record.manifests:
                yield from self.manifests.files(manifest)

    def replaced(self, record: Record) -> Iterator[str]:
        """Yield the paths of all files that `record` names to be replaced, as `files` does."""
        if isinstance(record, CommitRecord):
            yield from record.replaced
            for manifest in record.replaced_manifests:
                yield from (file.path for file in self.manifests.files(manifest))

    def foreign(self, record: CommitRecord) -> Iterator[ForeignFile]:
        """Yield the files that `record` replaces and that no job wrote, as `files` does."""
        yield from record.foreign
        for manifest in record.foreign_manifests:
            yield from self.manifests.foreign(manifest)

    def apply(self, record: Record, state: State) -> list[DataFile]:
        """Take `state` to `record`, the next one; see `State.apply`."""
        return state.apply(record, self.files(record), self.replaced(record))

    def state(self, until: int | None = None, *, cached: bool = False, indexed: bool = False) -> State:
        """Return what the records up to `until`, or all, add up to.

        That takes as many requests as there are records since the last checkpoint, and a few more;
        `cached` as for `read`, and `indexed` as for `OutputCheckpoints.load`.
        """
        state = self.checkpoints.load(until, indexed=indexed)
        begun = state.version
        for record in self.read(begun, until, cached=cached):
            self.apply(record, state)
        if begun and state.version == begun:
            # A commit after a gap in the numbers is never read.
            try:
                last = record_id(self.get(begun)[0])
            except NotFound:
                last = None
            if last != state.record_id:
                raise self._missing(begun)
        return state

    def replay(self, until: int) -> State:
        """Return what the records up to `until` add up to, without a checkpoint."""
        state = State()
        for record in self.read(0, until):
            self.apply(record, state)
        return state

    def job_ids(self, until: int) -> tuple[str, ...]:
        """Return the callers' job ids of the commits up to record `until`, in order.

        Reads the whole index of jobs, and the records after the last checkpoint.
        """
        state, keys = self.checkpoints.load_keys()
        for record in self.read(state.version, until):
            state.apply(record, ())
        return job_ids(merged(keys, state.keys), until=until)

    def decided(self, attempts: Iterable[str], *, until: int | None = None) -> dict[str, bool]:
        """Return which of `attempts` records up to `until`, or all, decide, and which were committed.

        Takes a few requests, however long the log is.
        """
        found = self.cache.head("", None, attempts).decided
        return {
            attempt: committed
            for attempt, (version, committed) in found.items()
            if until is None or version <= until
        }

    def _missing(self, version: int) -> CorruptRecord:
        """Return the error for a checkpoint of `version` without a record of that number."""
        return CorruptRecord(
            f"{self.directory!r} has a checkpoint of version {version}, but no such record, or another"
            " one: records were lost, or it is another output's. Restore them, or remove it"
        )

    def look(self, job: Job, *, known: bool = False) -> tuple[CommitRecord | None, int]:
        """Return the record that commits `job`, or None, and the number of the last record.

        Args:
            job: the job.
            known: whether to stop at the last record that this process knows. A claim of the next number
                finds out whether there are more.

        Raises `JobAlreadyCommitted` if another attempt was committed, `JobAborted` if this one was
        aborted, `AlreadyExists` if the job's mode is "error" and the output has data now, `Conflict`
        or `ConfigurationError` if a commit since the job began is incompatible with it, and
        `StateMismatch` if the job began in another log.
        """
        self.check_base(job)
        return self.look_on(job, job.base, until=self.cache.known if known else None)

    def check_base(self, job: Job) -> None:
        """Raise `StateMismatch` if the log has not the record up to which `job` is undecided."""
        if not self.cache.still_has(job.base, job.base_id):
            raise StateMismatch(
                f"job {job.job_id!r} began after record {job.base} of {self.directory!r}, and there is"
                " no such record, or another one: the output was removed, and perhaps created again."
                " Nothing was added. Run the job again"
            )

    def to_replace(self, job: Job, pending: PendingJob, *, at: int) -> ToReplace | None:
        """Return what the commit record of `job` must name as replaced; a long list is stored first.

        Args:
            job: the job; the result is None if its mode names no files.
            pending: the files that it adds.
            at: number of the last record that was read.

        Raises `Conflict` if a named file is not part of the output, `ConfigurationError` if a rewrite
        adds more or fewer rows than it replaces, and the errors of `Manifests.write`.
        """
        if job.mode not in NAMING:
            return None
        state = self.state(until=at)
        _check_there(job, state)
        files = [state.files[path] for path in job.replaces]
        before, rows = total_rows(files), total_rows((*pending.data_files(), *pending.manifests))
        if job.mode == "rewrite" and None not in (before, rows) and before != rows:
            raise ConfigurationError(
                f"job {job.job_id!r} was to rewrite {before} rows, and its files have {rows};"
                " nothing was added"
            )
        if len(files) <= INLINE_FILES:
            return ToReplace(state=state, paths=job.replaces)
        return ToReplace(state=state, manifests=self.manifests.write_replaced(job.attempt, files))

    def name_foreign(self, job: Job, files: Sequence[ForeignFile]) -> NamedForeign:
        """Return what the commit record of `job` is to name of `files`, having stored a long list.

        Raises what `Manifests.write_foreign` raises.
        """
        if len(files) <= INLINE_FILES:
            return NamedForeign(files=tuple(files))
        return NamedForeign(manifests=self.manifests.write_foreign(job.attempt, files))

    def commit(
        self,
        job: Job,
        pending: PendingJob,
        *,
        after: int,
        to_replace: ToReplace | None = None,
        foreign: NamedForeign | None = None,
    ) -> CommitRecord:
        """Append the commit record of `job`, or return the record that this attempt already has.

        Args:
            job: the job, which is not decided up to record `after`.
            pending: the files that it adds.
            after: number of the last record that was read.
            to_replace: the files to name as replaced, determined at that record.
            foreign: the foreign files to name as replaced.

        Raises the errors of `look`, `Conflict` if a named file is no longer part of the output, and
        `OutcomeUnknown`.
        """
        state = None if to_replace is None else to_replace.state
        foreign = foreign or NamedForeign()
        record = CommitRecord(
            version=after,
            job_id=job.job_id,
            attempt=job.attempt,
            mode=job.mode,
            time=self._clock.epoch(),
            files=pending.data_files(),
            manifests=pending.manifests,
            schema=job.schema,
            visibility=job.visibility,
            batch=job.batch,
            replaced=() if to_replace is None else to_replace.paths,
            replaced_manifests=() if to_replace is None else to_replace.manifests,
            foreign=foreign.files,
            foreign_manifests=foreign.manifests,
        )
        document = record.to_document()
        losses = 0
        while not self.claim(after + 1, document):
            self.pause(losses)
            losses += 1
            # There is a record of that number. Usually it is the last one, and the next claim tells.
            until = after + 1 if losses == 1 else None
            mine, after = self.look_on(job, after, state, until=until)
            if mine is not None:
                return mine
            if state is not None:
                _check_there(job, state)
        record = evolve(record, version=after + 1)
        self.cache.keep(record.version, (record,))
        return record

    def pause(self, losses: int) -> None:
        """Wait after a claim was lost: of those who lost to the same record, each for its own time."""
        self._clock.sleep(self._backoff.pause(losses))

    def outcomes(self, attempts: Iterable[str], *, after: int = 0) -> AttemptOutcomes:
        """Return what the records after number `after` say of `attempts`."""
        found = AttemptOutcomes(open=set(attempts), end=after)
        for record in self.read(after):
            found.end = record.version
            if isinstance(record, AbortRecord):
                gone = found.open & record.attempts.keys()
                found.aborted |= gone
                found.open -= gone
            elif isinstance(record, CommitRecord) and record.attempt in found.open:
                found.committed[record.attempt] = record
                found.open.remove(record.attempt)
        return found

    def abort_undecided(self, suspects: Mapping[str, str | None], *, after: int) -> AttemptOutcomes:
        """Make sure that each attempt in `suspects` is decided, and return the outcomes.

        An attempt that is not committed is aborted, and can no longer be committed, not even by a
        request in flight: that would need a number that is already taken.

        Args:
            suspects: attempts with their job ids, or None if the id is not known.
            after: number of a record up to which none of them is decided.
        """
        found = self.outcomes(suspects, after=after)
        while found.open:
            fence = AbortRecord(
                version=found.end + 1,
                attempts={attempt: suspects[attempt] for attempt in found.open},
                time=self._clock.epoch(),
            )
            self.claim(fence.version, fence.to_document())
            # Read it back rather than trust in it: the number may have been taken, even by our own
            # claim, whose answer was lost.
            later = self.outcomes(found.open, after=found.end)
            found = AttemptOutcomes(
                open=later.open,
                end=later.end,
                aborted=found.aborted | later.aborted,
                committed={**found.committed, **later.committed},
            )
        return found

    def expire(self, before: int, *, after: int) -> None:
        """Let versions below `before` expire, which no record up to number `after` does."""
        while True:
            for record in self.read(after):
                after = record.version
                if isinstance(record, ExpiryRecord) and record.before >= before:
                    return
            expiry = ExpiryRecord(version=after + 1, before=before, time=self._clock.epoch())
            self.claim(expiry.version, expiry.to_document())

    def look_on(
        self, job: Job, after: int, state: State | None = None, *, until: int | None = None
    ) -> tuple[CommitRecord | None, int]:
        """Do what `look` does from record `after` on, up to `until`, and take `state` along."""
        for record in self.read(after, until, cached=True):
            after = record.version
            if state is not None:
                self.apply(record, state)
            if isinstance(record, AbortRecord):
                if job.attempt in record.attempts:
                    raise aborted(job, after)
            elif isinstance(record, ExpiryRecord):
                continue
            elif record.attempt == job.attempt:
                if record.job_id != job.job_id:
                    raise other_job(job, after)
                return record, after
            elif record.job_id == job.job_id or _is_batch_of(job, record):
                raise already_committed(job.job_id, record.version)
            elif record.visibility != job.visibility:
                raise other_visibility(job, record.visibility)
            elif job.mode != "overwrite" and _columns_differ(job, record):
                raise Conflict(
                    f"version {after} (job {record.job_id!r}) gave the output other columns than job"
                    f" {job.job_id!r} was begun with; nothing was added. Run it again"
                )
            elif job.mode == "error":
                raise AlreadyExists(
                    f"the output has data since version {after} (job {record.job_id!r}), and job"
                    f" {job.job_id!r} was to write to an empty one; nothing was added"
                )
        return None, after

    def claim(self, version: int, document: Document) -> bool:
        """Store record `version`; return False if the number is taken by another one."""
        try:
            self._entries.add(_name(version), document)
        except AlreadyExists:
            return False
        except OutcomeUnknown as unknown:
            # The record that can be read at this number is final. It may be this one, and must not need
            # another read: an error of that read would be taken for "nothing added".
            try:
                found = self._entries.get(_name(version))
            except CommitError:
                raise unknown from None
            return encode(found) == encode(document)
        return True


def _check_there(job: Job, state: State) -> None:
    """Raise `Conflict` if a file that `job` is to replace is no part of the output at `state`.

    Another job removed its rows, and what replaces it would bring them back.
    """
    gone = [path for path in job.replaces if path not in state.files]
    if gone:
        others = f" and {len(gone) - 1} more" if gone[1:] else ""
        raise Conflict(
            f"{gone[0]!r}{others}, which job {job.job_id!r} was to replace, were replaced by another job"
            f" up to version {state.version}; nothing was added. Run it again"
        )


def already_committed(job_id: str, version: int) -> JobAlreadyCommitted:
    """Return the error for a job that was committed, or that is of a batch that was."""
    return JobAlreadyCommitted(
        f"job {job_id!r} is part of the output since version {version}; nothing was added",
        job_id=job_id,
        version=version,
    )


def aborted(job: Job, version: int) -> JobAborted:
    """Return the error for an attempt that a record excludes."""
    return JobAborted(
        f"job {job.job_id!r} was aborted (record {version}) before it could be committed; nothing of it"
        " is visible. Run it again under a new attempt"
    )


def other_job(job: Job, version: int) -> ConfigurationError:
    """Return the error for an attempt that is committed as another job."""
    return ConfigurationError(
        f"attempt {job.attempt} of job {job.job_id!r} was committed for another job, as version"
        f" {version}; nothing was added. Begin another attempt"
    )


def other_visibility(job: Job, visibility: Visibility) -> ConfigurationError:
    """Return the error for a job whose files others would see than those who see the output's."""
    return ConfigurationError(
        f"the output is {visibility!r}, and job {job.job_id!r} was to be {job.visibility!r}; nothing was"
        " added. Write it as the others were"
    )


def _is_batch_of(job: Job, record: CommitRecord) -> bool:
    """Return whether `record` is of the batch of `job`, or of a later batch of its stream.

    One of the two is a batch, and the other may have the id of one. Jobs under such ids alone have no
    order.
    """
    batch = job.batch or Batch.named(job.job_id)
    other = record.batch or (None if job.batch is None else Batch.named(record.job_id))
    if batch is None or other is None:
        return False
    return other.stream == batch.stream and other.number >= batch.number


def _name(version: int) -> str:
    return f"{version:020d}"


def _columns_differ(job: Job, record: CommitRecord) -> bool:
    return job.schema is not None and record.schema not in (None, job.schema)
