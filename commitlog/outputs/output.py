"""Outputs: directories to which jobs are added, all or nothing, each at most once.

::

    out/part-00003-<attempt>-c000.parquet         appears only once its job is committed
    out/_SUCCESS                                  how far everything is visible
    out/_commitlog/00000000000000000007.json      record 7: THE commit point
    out/_commitlog/pending/<attempt>.json         everything that the attempt staged

A job is *begun*. Its workers *stage* invisible files. *Commit* writes a pending entry that names all of
them, claims the next record of the log, and publishes the files. *Abort* or *recover* claim a record
that excludes the attempt permanently, and drop its uploads. The pending entry is an entry of an
operation log (`commitlog.oplog`), but its decision is a numbered record instead of a record of its own,
because the numbers order the jobs.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, cached_property, partial
from itertools import groupby
from typing import Any, TypeVar

from attrs import evolve

from commitlog._util.batching import Batcher
from commitlog._util.concurrency import SERIAL, Executor, Future
from commitlog._util.fork import WorkLock, renew_in_child
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog._util.tracing import Attributes, traced
from commitlog.clock import Clock, SystemClock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    CorruptRecord,
    InvalidPath,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
    OutcomeUnknown,
    PublishIncomplete,
    Unavailable,
)
from commitlog.oplog.record_directory import RecordDirectory
from commitlog.outputs.checkpoints import INTERVAL
from commitlog.outputs.foreign import ForeignFile, check_below, lies_in
from commitlog.outputs.history import OutputHistory, read_history
from commitlog.outputs.inspection import OutputInspection, inspect
from commitlog.outputs.job import (
    HIDDEN,
    Batch,
    Job,
    Mode,
    StagedFile,
    Visibility,
    attempt_of,
    check_job_id,
)
from commitlog.outputs.log import (
    CommitLog,
    aborted,
    already_committed,
    other_job,
    other_visibility,
)
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.publishing import ALIVE, Cleanup, Publisher
from commitlog.outputs.ready_jobs import ReadyJob, ReadyQueue
from commitlog.outputs.records import CommitRecord, DataFile, Record
from commitlog.outputs.recovery import PreviewLog, PreviewPublisher, collect, recover
from commitlog.outputs.reports import OutputGcReport, RecoveryReport, Snapshot
from commitlog.outputs.shared_records import MOST_FILES, commit_together, unknown_outcome
from commitlog.outputs.state import State
from commitlog.outputs.tail import OnRewrite, Tail
from commitlog.paths import check_path, check_prefix, join
from commitlog.stores.api import Staged, StageWriter
from commitlog.stores.body import Body, chunks

__all__ = ["Output"]

_log = logging.getLogger(__name__)

#: Number of attempts that a process remembers as its own.
ATTEMPTS_REMEMBERED = 1_000

T = TypeVar("T")


def _span_attributes(output: Output, arguments: Mapping[str, Any]) -> Attributes:
    job = arguments.get("job")
    record = arguments.get("record")
    version = arguments.get("version", arguments.get("until"))
    return {
        "commitlog.store": output.store.url,
        "commitlog.output": output.path,
        "commitlog.job.id": getattr(job, "job_id", arguments.get("job_id")),
        "commitlog.attempt": getattr(job, "attempt", arguments.get("attempt")),
        "commitlog.version": getattr(record, "version", version),
    }


@traced(_span_attributes, without=("locate", "new_attempt", "tail"))
class Output:
    """A directory of committed files. Thread-safe, as far as the executor is.

    Args:
        store: the store of the output. Its conditional writes carry all guarantees.
        path: the directory, relative to the store's root; "" for the root itself.
        clock: dates the records, and measures the waits between retries. The system clock by default.
        executor: publishes and drops uploads, and reads ready entries, in parallel, such as a
            `ThreadPoolExecutor`. The caller shuts it down. None: one by one.
        backoff: the retry policy of publishing, and the pauses of a commit after another job has taken
            the number of its record; a commit tries until it has one.
        new_id: makes unique ids: texts of at least 24 hexadecimal digits.
        share_records: whether jobs of this object that end at the same time share a record of the log.
            It concerns jobs of mode ``append`` with at most 16 files and no foreign ones. Their records
            have their uploads, which saves a pending entry. In a busy output, other clients with this
            option commit such jobs, too, from ready entries. Clients of releases without this option
            refuse such a record, with `FormatTooNew`, and do not read on.
        finisher: does the work that is left once a job is visible, after `commit` has returned: it
            moves ``_SUCCESS`` on, drops uploads of lost tasks, and saves checkpoints. Until it has, the
            next readers of the log see to it. The caller shuts it down, which waits for the work. None,
            or after it was shut down: `commit` does it.

    Guarantees: a job id is committed at most once, ever, with any drivers, retries and recoveries.
    Log-aware readers see all files of a job or none. No file of an uncommitted job is ever visible.
    The log serialises concurrent commits.

    It remembers the last records of the log, so the beginning of a job takes one request, and one for
    each new record; and requests for the part of the index of jobs that can have its id, unless it was
    read before. An output that was removed while it was open, or after a job had begun, is noticed ten
    seconds later.

    Non-guarantees: between the commit point and the end of publishing, a plain listing shows some files
    of the job and not others. Files and records of an output must not be changed by other means.
    """

    def __init__(
        self,
        store: ConditionalStore,
        path: str = "",
        *,
        clock: Clock | None = None,
        executor: Executor | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
        share_records: bool = False,
        finisher: Executor | None = None,
    ) -> None:
        self.store = store
        self.path = check_prefix(path).rstrip("/")
        self._clock: Clock = SystemClock() if clock is None else clock
        self._new_id = new_id
        directory = join(self.path, "_commitlog")
        backoff = Backoff() if backoff is None else backoff
        executor = SERIAL if executor is None else executor
        #: Opens an output in another directory in the same way.
        self._open = partial(
            Output, store, clock=self._clock, executor=executor, backoff=backoff, new_id=new_id
        )
        self._log = CommitLog(store, directory, clock=self._clock, backoff=backoff)
        self._pending = RecordDirectory(store, join(directory, "pending"), frozenset({"pending"}))
        self._publisher = Publisher(
            store,
            self.path,
            self._log,
            self._pending,
            clock=self._clock,
            backoff=backoff,
            executor=executor,
            replace_below=self._replace_below,
        )
        self._ready = ReadyQueue(store, directory, clock=self._clock, backoff=backoff, executor=executor)
        self._share_records = share_records
        self._finisher = finisher
        self._commits: Batcher[ReadyJob, CommitRecord] = Batcher(
            self._commit_together, interrupted=_interrupted
        )
        self._finishing: Batcher[Sequence[CommitRecord], None] = Batcher(
            self._finish_together, interrupted=_interrupted
        )
        self._lock, self._finish_lock = WorkLock(), WorkLock()
        self.renew()
        renew_in_child(self)
        self._begun: deque[str] = deque(maxlen=ATTEMPTS_REMEMBERED)

    def renew(self) -> None:
        """Forget the jobs that other threads finish: a forked child process has none of them."""
        # Attempts whose files are being published, with their versions.
        self._in_flight: dict[str, int] = {}
        self._unfinished: list[CommitRecord] = []
        self._finish_call: Future[None] = Future()

    def __repr__(self) -> str:
        return f"Output({self.store.url!r}, {self.path!r})"

    @cached_property
    def _tag(self) -> str:
        """The first digits of attempts, in which different outputs differ.

        So nested outputs, whose uploads appear in one listing, do not touch each other's uploads.
        """
        key = self.store.portable_key(join(self.path, "_commitlog"))
        return hashlib.sha256(key.encode()).hexdigest()[:8]

    def locate(self, file: DataFile) -> str:
        """Return the path of a committed file relative to the store's root."""
        return join(self.path, file.path)

    # writing

    def begin(
        self,
        job_id: str | None = None,
        *,
        mode: Mode = "append",
        schema: str | Callable[[State], str] | None = None,
        visibility: Visibility | None = None,
        batch: Batch | None = None,
        attempt: str | Callable[[State], str] | None = None,
        base: int | None = None,
        replaces: Iterable[str] = (),
    ) -> Job:
        """Begin an attempt at a job, and return it for workers to stage with. Stores nothing.

        Args:
            job_id: any text of at most 512 bytes of UTF-8, such as ``"daily-2026-11-21"``; None: a new
                one, or that of `batch`, ``stream/number``. A job with the id of a batch is that batch:
                it is refused once the batch, or a later one of the stream, was committed.
            mode: ``append`` adds to the present data. ``error`` refuses an output with data, now and
                again at the commit point. ``overwrite`` replaces all data present at the commit point,
                ``overwrite-partitions`` the data then present in the partitions of the job's files,
                ``overwrite-files`` the files that `replaces` names. ``rewrite`` does so too, but the
                job's own files hold the same rows in the same partitions. Foreign files, see `foreign`,
                are data that ``error`` refuses and the first two overwriting modes replace; ``append``
                leaves them.
            schema: schema of the files as a JSON text, kept unchanged in the commit record; or a
                function that makes it from the state of the output at the beginning of the job, and
                raises if they do not fit.
            visibility: ``listed``: readers that list the directory see the files once the job is
                committed. ``logged``: only readers of the log see them; the commit takes the same time
                for any number of files, and replaced files stay readable until `gc`. All jobs of an
                output have the same visibility; None: that of earlier jobs, or ``listed``.
            batch: the batch of a stream, in place of `job_id`: no batch is committed twice, nor after a
                later one.
            attempt: name of the attempt, from `new_attempt`; or a function that chooses it from the same
                state as `schema`. None: a new one. No attempt is committed twice, for whichever job.
            base: for an older attempt, the number of a record up to which it was not decided.
            replaces: paths of the files to replace, as in `DataFile.path`. The commit point checks that
                they are all part of the output.

        Raises:
            JobAlreadyCommitted: the job is part of the output, and all of its files are visible now:
                unfinished work of a dead driver was completed first (else `PublishIncomplete`).
            AlreadyExists: the mode is ``error``, and there is data, of other jobs or foreign.
            ConfigurationError: an argument is wrong, such as a job id that is not that of the batch; or
                `attempt` was committed for another job.
            JobAborted: `attempt` was aborted.
            CorruptRecord: a record cannot be read.
        """
        # They may depend on the files, of which the head of the log tells nothing.
        whole = callable(schema) or callable(attempt)
        state = self._log.state() if whole else State()
        if callable(attempt):
            attempt = attempt(state)
        known = () if attempt is None else (attempt,)  # a new one cannot be decided
        asked = job_id or ("" if batch is None else batch.job_id) or (attempt or "")
        attempt = self.new_attempt() if attempt is None else attempt
        if job_id is None:
            job_id = attempt if batch is None else batch.job_id
        check_job_id(job_id)
        if batch is not None:
            batch.check_job_id(job_id)
        if whole:
            head = self._log.cache.head_of(state, asked, batch, known)
        else:
            head = self._log.cache.head(asked, batch, known)
        version, was_committed = head.decided.get(attempt, (None, False))
        of_attempt = version if was_committed and job_id == attempt else None
        committed = head.committed if of_attempt is None else of_attempt
        if committed is not None:
            self._publisher.roll_forward(until=head.version, strict=False)
            raise already_committed(job_id, committed)
        job = Job(
            job_id=job_id,
            attempt=attempt,
            mode=mode,
            base=head.version if base is None else base,
            schema=schema(state) if callable(schema) else schema,
            visibility=visibility or head.visibility or "listed",
            batch=batch,
            replaces=tuple(replaces),
            last_commit=head.commit,
            base_id=head.record_id if base is None else "",
        )
        if version is not None and version <= job.base:
            raise other_job(job, version) if was_committed else aborted(job, version)
        if head.visibility not in (None, job.visibility):
            raise other_visibility(job, head.visibility)
        if mode == "error":
            if head.commit:
                raise AlreadyExists(
                    f"{self!r} has committed data, and the mode is 'error'; nothing was done"
                )
            self._refuse_foreign()
        self._begun.append(job.attempt)
        return job

    def new_attempt(self, seed: str | None = None) -> str:
        """Return the name of an attempt at a job of this output.

        Args:
            seed: any unique text; the same text gives the same name. None: a new name.
        """
        digits = self._new_id() if seed is None else hashlib.sha256(seed.encode()).hexdigest()
        return self._tag + digits[:24]

    def begin_stage(self, job: Job, name: str) -> StageWriter:
        """Begin a file of `job`, invisible until the job is committed; its ``finish`` gives a `Staged`.

        Args:
            job: as `begin` returned it, in this process or another.
            name: path below the output, such as ``"day=1/" + job.file_name(task, suffix=".parquet")``.
                Its last segment must be made by `Job.file_name`.

        Raises `InvalidPath` for any other name.
        """
        writer = self.store.begin_stage(self._place(job, name))
        return writer if job.visibility == "listed" else _AtOnce(writer, self.store)

    def stage(
        self,
        job: Job,
        name: str,
        body: Body,
        *,
        rows: int | None = None,
        partition: Mapping[str, str | None] | None = None,
    ) -> StagedFile:
        """Stage all of `body` as a file of `job`. Arguments as for `begin_stage` and `StagedFile`."""
        with self.begin_stage(job, name) as writer:
            for chunk in chunks(body):
                writer.write(chunk)
            return StagedFile(staged=writer.finish(), rows=rows, partition=partition or {})

    def heartbeat(self, attempt: str) -> None:
        """Report that an attempt (`Job.attempt`) is alive, to `recover` and `gc`.

        Needed by jobs that may not begin a file for longer than the age at which a recovery considers
        them dead. Call it a few times within that age. It is cheap: one small object.
        """
        self.store.put(join(self.path, join(ALIVE, attempt)), b"")

    def clear_heartbeat(self, attempt: str) -> None:
        """Remove the last `heartbeat` of an attempt that will send no more. Idempotent.

        If it is left, `recover` removes it. Raises the store's errors; it changes nothing else.
        """
        self._publisher.clear_heartbeat(attempt)

    def foreign(
        self, directories: Iterable[str] = ("",), *, whole: bool = False
    ) -> Iterator[ForeignFile]:
        """Yield the files that readers of the directory read and that no job of this output wrote.

        They may be older than the output, another program wrote them, or they are of an output in a
        directory below. Readers of the log do not see them. Names that readers skip do not count.

        Args:
            directories: the directories to list, relative to the output, with a slash at their ends.
            whole: whether to yield all that an overwrite replaces: also the files that tell readers what
                to read, such as ``_metadata``, and those that only the log of an output below shows.

        It lists those directories and, if there are such files, reads the state of the log; with
        `whole`, the states of the outputs below, too, which may have files beside those directories.

        Raises `NotSupported` with `whole` if an output below is not in directories such as ``day=1``,
        or if there is a table of another format.
        """
        there = self._publisher.survey(directories)
        found = [
            file
            for file in there.files
            if not (attempt_of(file.path) or "").startswith(self._tag)
            and (whole or not file.is_metadata)
        ]
        # The files of a copied output have other digits.
        known = set(self._log.state().files) if found else set()
        if whole:
            check_below(there)
            for directory in sorted(there.outputs):
                for path, file in self._below(directory).state().files.items():
                    path = join(directory, path)
                    known.add(path)
                    yield ForeignFile(path=path, size=file.size, etag="", output=directory)
        yield from (file for file in found if file.path not in known)

    def commit(
        self,
        job: Job,
        files: Iterable[StagedFile],
        *,
        foreign: Iterable[ForeignFile] | None = None,
    ) -> CommitRecord:
        """Make all of `files` part of the output, or none.

        May be called from another process than `begin` and `stage`, and again with the same arguments:
        after the attempt is committed, every call returns its record.

        Args:
            job: as `begin` returned it.
            files: the uploads to publish; other uploads of the attempt are dropped. May be empty.
            foreign: foreign files that the job replaces; None: those that its mode replaces. They are
                looked up before the commit point and removed after it, unless they were written again in
                between.

        Raises:
            ConfigurationError: two files have one path; or an earlier call for the same attempt named
                other files; or the mode is ``rewrite`` and the files do not have as many rows as those
                that they replace. Nothing was added by this call.
            InvalidPath: a file is not of this job, and nothing was sent; or a foreign file that the job
                replaces has a control character in its name, and nothing was added.
            NotSupported: the job was to overwrite an output below this one that is no partition, or a
                table of another format; see `foreign`. Nothing was added.
            JobAlreadyCommitted: another attempt at the job was committed. Nothing was added.
            JobAborted: `abort` or `recover` excluded this attempt. Nothing was added.
            AlreadyExists: the mode is ``error``, and other data came first. Nothing was added.
            Conflict: another job has changed the schema of the output, or replaced a file that this job
                is to replace. Nothing was added.
            StateMismatch: the output was removed, and perhaps created again, after the job had begun.
                Nothing was added.
            OutcomeUnknown: the commit record may or may not have been written, or another client may
                commit the job from its ready entry. Call `resolve`, or leave it to `recover`.
            PublishIncomplete: the job **is** committed, but some files could not be published for now.

        After any other error nothing was added either. Uploads stay staged after errors: `abort` drops
        them.
        """
        files = self._checked(job, files)
        foreign = None if foreign is None else list(foreign)
        if self._may_share(job, files, foreign):
            ready = ReadyJob(job=job, files=tuple(files))
            record, pending = self._commits.call(ready), ready.pending
        else:
            record, pending = self._commit_alone(job, files, foreign)
        self._complete(job, record, pending)
        self._finish([record])
        return record

    def commit_many(
        self, jobs: Iterable[tuple[Job, Iterable[StagedFile]]]
    ) -> list[CommitRecord | CommitError]:
        """Commit several jobs; return the outcome of each, in their order.

        Neighbours share records as far as `share_records` allows, without threads. A job that is
        committed alone comes after the jobs before it, and before those after it.

        An outcome is the record that `commit` returns for such a job, or the error that it raises; a job
        with an error does not concern the others. An exception that is no `CommitError`, such as that of
        an executor, becomes the `OutcomeUnknown` of its job, as its cause. Raises nothing else than
        `commit` does for wrong arguments, before anything is sent.

        Args:
            jobs: each job, as `begin` returned it, with its files.
        """
        checked = [(job, self._checked(job, files)) for job, files in jobs]
        outcomes: list[CommitRecord | CommitError] = []
        done: list[CommitRecord] = []
        # A job that replaces files must not replace those of later jobs.
        runs = groupby(checked, key=lambda each: self._may_share(each[0], each[1], None))
        for may_share, group in runs:
            run = list(group)
            ready = [ReadyJob(job=job, files=tuple(files)) for job, files in run if may_share]
            shared = iter(self._commit_together(ready) if ready else ())
            for number, (job, files) in enumerate(run):
                try:
                    if may_share:
                        outcome, pending = next(shared), ready[number].pending
                        if isinstance(outcome, Exception):
                            raise outcome
                        record = outcome
                    else:
                        record, pending = self._commit_alone(job, files, None)
                    self._complete(job, record, pending)
                    done.append(record)
                    outcomes.append(record)
                except CommitError as error:
                    outcomes.append(error)
                except Exception as error:  # the outcomes of the others must not be lost
                    outcomes.append(unknown_outcome(error))
        if done:
            self._finish(done)
        return outcomes

    def _complete(self, job: Job, record: CommitRecord, pending: PendingJob) -> None:
        """Publish the files of a job that is committed; raise if it was committed with other files."""
        if not (pending.lists(record) and record.names(job.replaces)):
            raise _other_files(job)
        with self._lock:
            self._in_flight[record.attempt] = record.version
        try:
            self._publisher.publish(record, pending)
            self._publisher.replace(record)
        except CommitError:
            raise
        except Exception as error:  # such as that of an executor; it would not show that it is committed
            raise PublishIncomplete(
                f"job {job.job_id!r} is committed as version {record.version}, but its files may not be"
                f" visible yet ({error!r}). Do not run it again; commitlog output recover completes it",
                job_id=job.job_id,
                version=record.version,
            ) from error
        finally:
            with self._lock:
                self._in_flight.pop(record.attempt, None)

    def _may_share(
        self, job: Job, files: Sequence[StagedFile], foreign: Collection[ForeignFile] | None
    ) -> bool:
        few = len(files) <= MOST_FILES
        return self._share_records and job.mode == "append" and few and not foreign

    def _commit_together(self, jobs: Sequence[ReadyJob]) -> list[CommitRecord | Exception]:
        return commit_together(self._log, self._clock, jobs, self._ready)

    def _commit_alone(
        self, job: Job, files: Sequence[StagedFile], foreign: Collection[ForeignFile] | None
    ) -> tuple[CommitRecord, PendingJob]:
        """Commit a job in a record of its own; return the record, and the entry with its uploads."""
        # For a job that only appends, the claim of a number shows whether there are later records.
        known = job.mode == "append" and self._log.cache.known >= job.base
        record, end = self._log.look(job, known=known)
        pending = self._stored(job, lambda: PendingJob.of(job, files, self._log.manifests))
        if record is None:
            to_replace = self._stored(job, lambda: self._log.to_replace(job, pending, at=end))
            if job.mode == "error":
                self._refuse_foreign()
            gone = list(self._to_remove(job, files) if foreign is None else foreign)
            _check_names(gone)
            # Files that are already visible need no entry for publishing them. But without an entry, no
            # work may be left after the commit point.
            if job.visibility == "listed" or gone:
                self._prepare(pending)
            named = self._stored(job, lambda: self._log.name_foreign(job, gone))
            try:
                record = self._log.commit(job, pending, after=end, to_replace=to_replace, foreign=named)
            except JobAborted:
                # No process can commit the attempt any more, so its entry is of no use.
                with contextlib.suppress(CommitError):
                    self._publisher.clear(job.attempt)
                raise
        return record, pending

    def abort(self, job: Job, files: Iterable[StagedFile] = ()) -> CommitRecord | None:
        """Exclude `job` permanently and drop its uploads; do nothing if it is committed.

        Safe to call at any time, after any error of `commit`, and while a `commit` of the same attempt
        is still running or its request is in flight: the one that writes its record first wins, and the
        other one gets that outcome. Returns the commit record if the job is committed, else None.

        It always writes an *aborted* record before it drops an upload, even if there is no pending
        entry. From here, a driver that is about to commit looks the same as a dead one. If its uploads
        were dropped without the record, it could still commit a job whose files are gone.

        Args:
            job: as `begin` returned it.
            files: the staged files that are known; a listing finds the others.

        If it raises, the attempt may or may not be excluded; call it again, or leave it to `recover`.
        """
        return self._despite_full_disk(partial(self._abort, job, list(files)))

    def _abort(self, job: Job, files: Iterable[StagedFile]) -> CommitRecord | None:
        # In a log that is not the one in which the job began, nothing is known of it.
        after = job.base if self._log.cache.still_has(job.base, job.base_id) else 0
        found = self._log.abort_undecided({job.attempt: job.job_id}, after=after)
        if job.attempt in found.committed:
            return found.committed[job.attempt]
        self.drop(job, files, others=True)
        self._publisher.clear(job.attempt)
        return None

    def resolve(self, job: Job, files: Iterable[StagedFile] = ()) -> CommitRecord | None:
        """Settle a `commit` with an unknown outcome: complete the job, or exclude it permanently.

        Call it after `OutcomeUnknown`, or if another process died while it called `commit`. It needs no
        list of files, and any number of processes may call it.

        Args:
            job: as `begin` returned it.
            files: the staged files that are known; a listing finds the others.

        Returns the commit record, or None if the attempt is excluded; see `abort`. If it is committed,
        all of its files are visible now, and those that it replaced are gone.

        Raises `PublishIncomplete` as `commit` does. After any other error the outcome is as unknown as
        before: call it again, or leave the job to `recover`.
        """
        record = self.abort(job, files)
        if record is not None:
            self._publisher.complete(record, Cleanup(strict=False))
            self._publisher.replace(record)
            self._finish([record])
        return record

    def drop(self, job: Job, files: Iterable[StagedFile], *, others: bool = False) -> None:
        """Drop staged files of `job` that will not be committed, such as those of a failed task.

        Args:
            job: as `begin` returned it.
            files: the staged files.
            others: whether to list and drop all other uploads of the attempt, too. No process may commit
                it then; `abort` makes sure of that.
        """
        known = [file.staged for file in files]
        self._publisher.drop(known)
        if others:
            self._publisher.drop(self._publisher.uploads(job.attempt))
        if job.visibility == "logged":
            self._publisher.remove(staged.path for staged in known)

    def recover(self, *, older_than: float, dry_run: bool = False) -> RecoveryReport:
        """Finish or undo the work of dead drivers. Idempotent; any number may run at once.

        Files of committed jobs are published. An attempt is considered dead if it is not committed and
        neither began an upload nor wrote a pending entry nor sent a `heartbeat` in the last `older_than`
        seconds by the store's clock. An aborted record excludes it, and only then are its uploads
        dropped. So a driver that was alive after all loses its work, with `JobAborted`, but the output
        stays intact.

        Args:
            older_than: age in seconds; longer than a job may take without beginning a file, from its
                first file until it has prepared its commit. 0 if no job is running. Stores give their
                time in whole seconds, so an attempt may count as up to one second older than it is.
            dry_run: only report the work, and change nothing. Nothing is published, so no lost files are
                found, and superfluous uploads of jobs that are to be published are not counted.

        A committed job whose uploads were removed by others cannot be completed, now or later. That is
        not an error of this call: `RecoveryReport.lost` names the lost files and the job to run again.
        Readers and the job itself get `PublishIncomplete` until then.

        Raises `PublishIncomplete`, `CorruptRecord` or `FormatTooNew` for files or records that cannot be
        published or read for now, after all other work was done; or immediately for the log itself. Also
        raises the store's errors. The next run continues the work.
        """
        log, publisher = self._preview() if dry_run else (self._log, self._publisher)
        work = partial(
            recover,
            log,
            self._pending,
            self._ready,
            publisher,
            older_than=older_than,
            tag=self._tag,
            clock=self._clock,
        )
        return work() if dry_run else self._despite_full_disk(work)

    def gc(self, *, older_than: float, dry_run: bool = False) -> OutputGcReport:
        """Recover, and remove files that only old versions need. Idempotent.

        It removes files that were replaced more than `older_than` seconds ago, by the drivers' clocks: a
        record in the log lets the earlier versions expire before anything is removed. It also removes
        files of attempts that were never committed, and that `recover` considers dead.

        Args:
            older_than: age in seconds; longer than any reader uses an old version, and than a job runs
                without a `heartbeat`.
            dry_run: as in `recover`.

        Raises the errors of `recover`.
        """
        preview = self._preview() if dry_run else None
        log, publisher = (self._log, self._publisher) if preview is None else preview
        work = partial(
            collect,
            log,
            self._pending,
            self._ready,
            publisher,
            older_than=older_than,
            tag=self._tag,
            clock=self._clock,
        )
        if preview is None:
            return self._despite_full_disk(work)
        report = work()
        return evolve(report, expired=max(report.expired, preview[0].expired))

    def _despite_full_disk(self, work: Callable[[], T]) -> T:
        """Do what may be done twice, and again with the space that the store holds back."""
        try:
            return work()
        except CommitError as error:
            hold_back = self.store.object_store.make_room()
            if hold_back is None:
                raise
            _log.warning("the disk is full (%s): using the space that was held back", error)
        result = work()
        hold_back()
        return result

    def _preview(self) -> tuple[PreviewLog, PreviewPublisher]:
        directory = join(self.path, "_commitlog")
        log = PreviewLog(self.store, directory, clock=self._clock, backoff=Backoff())
        return log, PreviewPublisher(self.store, self.path, log, self._pending, clock=self._clock)

    # reading

    def snapshot(self, version: int | None = None, *, roll_forward: bool = True) -> Snapshot:
        """Return the output as of `version`, or of its last commit: whole jobs, all files visible.

        Args:
            version: number of a record; None: the last one.
            roll_forward: publish the files of dead drivers, which needs permission to write; False:
                change nothing, and see only versions that are known to be complete.

        Raises `NotFound` if there is no such version (not yet, or no longer), `PublishIncomplete` if
        files of a committed job cannot be made visible, `CorruptRecord` or `FormatTooNew` if a record
        cannot be read: no later version can be read then. A past version of a ``listed`` output is gone
        as soon as a later one replaces a file of it; of a ``logged`` output, when `gc` lets it expire.
        """
        asked = version
        if not roll_forward:
            complete = self._publisher.checked_watermark()
            if version is not None and version > complete:
                raise NotFound(f"version {version} of {self!r} is not known to be complete yet")
            version = complete if version is None else version
        state = self._log.state(until=version)
        if version is not None:
            if state.version < version:
                raise NotFound(f"{self!r} has no version {version}: its log ends with {state.version}")
            now = self._log.state()
            if version < now.expired:
                if asked is None and self._publisher.watermark() > version:
                    # While the log was read, a later version was completed, and a gc let this one
                    # expire.
                    return self.snapshot(roll_forward=False)
                raise NotFound(f"version {version} of {self!r} has expired: the first is {now.expired}")
            if asked and (gone := state.files.keys() - now.files.keys() - now.replaced.keys()):
                raise NotFound(
                    f"version {version} of {self!r} cannot be read any more: {len(gone)} of its files"
                    " were replaced, and only an output that is 'logged' keeps such files"
                )
        if roll_forward:
            # Up to the records that were read, since later ones are not in the snapshot; and not
            # earlier, since a record may have been added while the log was read.
            self._publisher.roll_forward(until=state.version, strict=False)
        return Snapshot(
            version=state.commit,
            files=tuple(state.files.values()),
            list_jobs=cache(partial(self._log.job_ids, state.version)),
            schema=state.schema,
        )

    def inspect(
        self, *, expire_after: float, limit: int | None = 10_000, list_files: bool = False
    ) -> OutputInspection:
        """Return the version, the attempts in progress and the work that is left; change nothing.

        Takes about ten requests; one for each record since the last checkpoint (at most 10, or 100 if
        there are more than 20,000 files); one for each thousand pending entries, ready entries,
        heartbeats and uploads; one for each of the first hundred pending entries, and of the first
        hundred ready entries; and a few to find the version that has expired. No data file is listed or
        read, except with `list_files`.

        Args:
            expire_after: age in seconds at which replaced files, and files of attempts without a sign of
                life, count as garbage; the `older_than` of `gc`.
            limit: most pending entries, ready entries, uploads and records since the last checkpoint
                that are listed; None for no bound, and to read all ready entries.
            list_files: whether to list the files that only the log shows, for the size of the garbage
                and the files of dead attempts: one request for each thousand files.

        Damaged records are reported, not raised. Raises `FormatTooNew`, and the store's errors.
        """
        return inspect(
            self._log,
            self._pending,
            self._ready,
            self._publisher,
            tag=self._tag,
            clock=self._clock,
            expire_after=expire_after,
            limit=limit,
            list_files=list_files,
        )

    def history(self, *, last: int = 100, limit: int | None = 10_000) -> OutputHistory:
        """Return what the last commits added, and how much the output held after each; change nothing.

        Takes one request for each of the `last` records; one for each record since the last checkpoint
        (see `inspect`), if those are more; a few for checkpoints; and one for each manifest of the
        records from the first known state on. No data file is listed or read.

        Args:
            last: number of records at the end of the log whose commits are returned; at least 1.
            limit: most records since the last checkpoint that are read; None for no bound.

        The totals of an older commit are None if a later one replaced files of which these records and
        the checkpoints do not tell the size. All totals are known if the whole log is read, or if the
        jobs only append. A larger `last` finds more.

        Damaged records end the history, and are not raised: `inspect` reports them. Raises
        `ConfigurationError` for `last` below 1, `FormatTooNew`, and the store's errors.
        """
        return read_history(self._log, last=last, limit=limit)

    def files(self, record: Record) -> Iterator[DataFile]:
        """Yield all files that `record` adds, one at a time."""
        return self._log.files(record)

    def replaced(self, record: Record) -> Iterator[str]:
        """Yield the paths of all files that `record` names to be replaced, one at a time."""
        return self._log.replaced(record)

    def version_of(self, job_id: str) -> int | None:
        """Return the version of the output that a job made; None if it is not committed.

        Of a batch, also a later batch of its stream counts. Takes a few requests, however long the log
        is. Raises `CorruptRecord`, `FormatTooNew`, and the store's errors.
        """
        return self._log.cache.head(job_id, None).committed

    def state(self, until: int | None = None) -> State:
        """Return the state of the log at record `until` or at its end, published or not."""
        return self._log.state(until)

    def watermark(self) -> int:
        """Return a version up to which every file is known to be visible, or 0. Sends one request.

        A job that begins later gets a record after it. So `log` may be read from there to find that
        record.
        """
        return self._publisher.watermark()

    def log(self, after: int = 0) -> Iterator[CommitRecord]:
        """Yield the commits after version `after`, one at a time, without a listing.

        The yielded commits are final; their files may not be published yet. To follow the log, call
        again with the last version seen. Records of mode ``rewrite`` add no rows.

        Raises `ConfigurationError` for a negative number.
        """
        return (record for record in self.records(after) if isinstance(record, CommitRecord))

    def records(self, after: int = 0) -> Iterator[Record]:
        """Yield all records after number `after`, including aborts and expiries.

        Raises `ConfigurationError` for a negative number.
        """
        if after < 0:
            raise ConfigurationError(f"the log is read after record {after}: give 0 for its beginning")
        return self._log.read(after)

    def tail(self, *, on_rewrite: OnRewrite = "fail", roll_forward: bool = True) -> Tail:
        """Return a tail, which follows the log batch by batch, from positions that can be stored.

        Jobs of mode ``rewrite`` add no rows, and are skipped.

        Args:
            on_rewrite: the reaction to a commit that removes rows: ``fail`` before it, with
                `RowsReplaced`; ``skip`` it, with the files it adds; or take the ``added`` files.
            roll_forward: as in `snapshot`.

        Raises `ConfigurationError` for an unknown `on_rewrite`.
        """
        return Tail(self._log, self._publisher, on_rewrite=on_rewrite, roll_forward=roll_forward)

    # inside

    def _place(self, job: Job, name: str) -> str:
        """Return the path of a file of `job`, relative to the store's root."""
        job.check_name(name)
        if job.visibility == "logged":
            # It is visible as soon as it is written, so not even two attempts at one task may share a
            # path. The unique part comes last: readers of given files find the partition in the part
            # before it.
            directory, _, last = name.rpartition("/")
            name = join(HIDDEN, join(directory, join(self._new_id()[:16], last)))
        return join(self.path, name)

    def _checked(self, job: Job, files: Iterable[StagedFile]) -> list[StagedFile]:
        """Return `files` with paths relative to the output; raise if one cannot be of this job."""
        top = join(self.path, "")
        hidden = join(HIDDEN, "") if job.visibility == "logged" else ""
        relative = [
            evolve(file, staged=evolve(file.staged, path=file.staged.path.removeprefix(top)))
            for file in files
        ]
        seen = set()
        for path in (file.staged.path for file in relative):
            job.check_name(path.removeprefix(hidden))
            if path in seen:
                raise ConfigurationError(f"two files have the path {path!r}: number them apart")
            seen.add(path)
        return relative

    def _finish(self, records: Sequence[CommitRecord]) -> None:
        """Do the work that is left once `records` are visible; its failure is no error of a job."""
        if self._finisher is None:
            # An interrupt of the thread that works for several jobs is no error of the others.
            with contextlib.suppress(OutcomeUnknown):
                self._finishing.call(records)
            return
        # Who has committed a job of another client finishes it, too.
        records = [record for record in records if record.version not in self._ready.helped]
        with self._lock:
            begin = bool(records) and (not self._unfinished or self._finish_call.cancelled())
            self._unfinished += records
        if begin:
            try:
                self._finish_call = self._finisher.submit(self._finish_later)
            except Exception:  # it was shut down, and an error would hide that the job is committed
                self._finish_later()

    def _finish_later(self) -> None:
        with self._lock:
            combined = any(record.version in self._ready.combined for record in self._unfinished)
        if combined:
            # The other clients publish the files of their jobs now.
            self._ready.wait()
        with self._lock:
            records, self._unfinished = self._unfinished, []
        self._finish_together([records])

    def _finish_together(self, calls: Sequence[Sequence[CommitRecord]]) -> list[Exception | None]:
        with self._finish_lock:
            self._tidy([record for records in calls for record in records])
        return [None] * len(calls)

    def _tidy(self, records: Sequence[CommitRecord]) -> None:
        attempts = {record.attempt for record in records}
        try:
            for record in records:
                if record.uploads is None and (record.visibility == "listed" or record.replaces_foreign):
                    self._publisher.forget(record.attempt)
            with self._lock:
                before = min(self._in_flight.values(), default=None)
            self._publisher.advance(records, before=before)
            if before is None:
                # Jobs of other clients in these records are complete now, too.
                for version in {record.version for record in records} & self._ready.combined:
                    shared = self._log.read(version - 1, version, cached=True)
                    attempts |= {each.attempt for each in shared if isinstance(each, CommitRecord)}
            uploads = list(self._publisher.uploads())
            self._publisher.drop(each for each in uploads if attempt_of(each.path) in attempts)
            if self._share_records:
                self._note_others({attempt_of(each.path) for each in uploads} - attempts)
            for version in sorted({record.version for record in records}):
                self._checkpoint(version)
        except Exception as error:
            names = ", ".join(repr(record.job_id) for record in records)
            why = error if isinstance(error, CommitError) else repr(error)
            _log.warning("job %s is committed, but tidying up after it failed: %s", names, why)

    def _note_others(self, staging: Set[str | None]) -> None:
        """Note that the output is busy if attempts of other processes have staged files."""
        others = staging - set(self._begun)
        if any(each and each.startswith(self._tag) for each in others):
            self._ready.note_busy()

    def _to_remove(self, job: Job, files: Iterable[StagedFile]) -> Iterator[ForeignFile]:
        """Yield the foreign files that the mode of `job` replaces."""
        if job.mode == "overwrite":
            yield from self.foreign(whole=True)
        elif job.mode == "overwrite-partitions":
            partitions = {frozenset(file.partition.items()): file.partition for file in files}
            directories = {_directory_of(job, file) for file in files}
            for file in self.foreign(directories, whole=True):
                if lies_in(file.path, partitions.values()):
                    yield file

    def _below(self, directory: str) -> Output:
        return self._open(join(self.path, directory))

    def _replace_below(self, directory: str, paths: Set[str], attempt: str) -> None:
        """Replace files of the output in `directory`, by a job of its own; see `Publisher`.

        Files that others added there meanwhile stay. Idempotent.
        """
        output = self._below(directory)
        job_id = f"replaced by {attempt}"
        old = {path.removeprefix(join(directory, "")) for path in paths}
        state = output.state()
        if output.version_of(job_id) is None and not old <= state.files.keys():
            # Others have replaced some of them. If they have merged them, the rows are still there.
            for record in output.log():
                merged = set(output.replaced(record)) if record.mode == "rewrite" else set()
                if merged and merged <= old:
                    old |= {file.path for file in output.files(record)}
                elif merged & old:
                    _log.warning(
                        "%r has merged rows that job %s replaced with newer ones; both stay",
                        output,
                        attempt,
                    )
        left = [path for path in state.files if path in old]
        try:
            job = output.begin(job_id, mode="overwrite-files", replaces=left)
            if left:
                output.commit(job, ())
        except JobAlreadyCommitted:
            output._publisher.roll_forward()

    def _refuse_foreign(self) -> None:
        """Raise `AlreadyExists` if there are foreign files."""
        file = next(self.foreign(), None)
        if file is not None:
            raise AlreadyExists(
                f"{self!r} has data that was written without it, such as {file.path!r}, and the mode is"
                " 'error'; nothing was done"
            )

    def _checkpoint(self, version: int) -> None:
        if version % INTERVAL == 0:
            state = self._log.state(until=version, cached=True, indexed=True)
            if self._log.checkpoints.due(state):
                try:
                    self._log.checkpoints.save(state)
                except CorruptRecord:  # a segment of its index; the log has all of its keys
                    self._log.checkpoints.save(self._log.replay(version))

    @staticmethod
    def _stored(job: Job, store: Callable[[], T]) -> T:
        """Return the result of `store`, which stores long lists of the files of `job`."""
        try:
            return store()
        except AlreadyExists:
            raise _other_files(job) from None
        except OutcomeUnknown as error:
            raise _not_prepared(job.job_id, error) from error

    def _prepare(self, pending: PendingJob) -> None:
        try:
            self._pending.add(pending.attempt, pending.to_document())
        except OutcomeUnknown as error:
            raise _not_prepared(pending.job_id, error) from error
        except AlreadyExists:
            # An earlier call of commit died or is still running. Any process that completes the job uses
            # that entry, so the record must name the same files.
            # If the entry is gone again, the attempt is decided, and the log has the decision.
            with contextlib.suppress(NotFound):
                if PendingJob.read(self._pending, pending.attempt) != pending:
                    raise _other_files(pending) from None


def _interrupted() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the thread that wrote the record of several jobs was interrupted: the job may be committed"
    )


def _check_names(files: Iterable[ForeignFile]) -> None:
    """Raise `InvalidPath` for a name that S3 lists but that no record or request can contain."""
    for file in files:
        try:
            check_path(file.path)
        except InvalidPath as error:
            raise InvalidPath(
                f"a file that was written without this library cannot be replaced: {error}. Nothing was"
                " added. Rename or remove it, and run the job again"
            ) from error


def _directory_of(job: Job, file: StagedFile) -> str:
    """Return the directory of a file of `job` as readers list it, with a slash at its end."""
    path = file.staged.path
    if job.visibility == "logged":
        path = path.removeprefix(join(HIDDEN, ""))
        directory = path.rpartition("/")[0].rpartition("/")[0]  # without the file's own directory
    else:
        directory = path.rpartition("/")[0]
    return join(directory, "") if directory else ""


def _not_prepared(job_id: str, error: OutcomeUnknown) -> Unavailable:
    return Unavailable(f"job {job_id!r} was not committed: its files could not be listed ({error})")


def _other_files(job: Job | PendingJob) -> ConfigurationError:
    return ConfigurationError(
        f"attempt {job.attempt} of job {job.job_id!r} was committed with other files, or is"
        " about to be; nothing was added by this call. Begin another attempt"
    )


class _AtOnce(StageWriter):
    """A file that is published as soon as it is finished, at a path that no listing shows."""

    def __init__(self, inner: StageWriter, store: ConditionalStore) -> None:
        self._inner = inner
        self._store = store

    def _append(self, data: memoryview) -> None:
        self._inner.write(data)

    def finish(self) -> Staged:
        staged = self._inner.finish()
        try:
            self._store.publish(staged)
        except (NotFound, OutcomeUnknown):
            # A response was lost, or the request repeated in transit. There is no other writer of this
            # path.
            found = self._store.begin_head(staged.path)().info
            if found is None or found.nonce != staged.nonce:
                raise
        return staged

    def abort(self) -> None:
        self._inner.abort()
