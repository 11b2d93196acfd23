"""A job whose rows several processes write to an output, and that one process commits.

The steps, whatever engine runs them::

    driver    OutputWriter.begin     check the columns and the mode, and name the attempt
    workers   OutputWriter.stage     write rows to invisible files, once for each task
    driver    OutputWriter.commit    make the files of all tasks visible in one step; or
              OutputWriter.abort     exclude the attempt permanently, and drop its files

A task may run several times, at the same time, and on a worker that is considered dead. Each run stages
files of its own, and only the files that are handed to `commit` count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any, Literal, get_args

import pyarrow as pa
from attrs import field, frozen

from commitlog._util.ids import random_id
from commitlog._util.parsing import check_choice
from commitlog.connect import connect
from commitlog.errors import (
    CommitError,
    Committed,
    ConfigurationError,
    JobAborted,
    JobAlreadyCommitted,
    OutcomeUnknown,
)
from commitlog.files import OUTPUT_FORMATS
from commitlog.outputs import Batch, CommitRecord, Job, Mode, Output, StagedFile, State, Visibility
from commitlog.outputs.foreign import partition_in
from commitlog.outputs.log import already_committed
from commitlog.tabular.heartbeat import send_heartbeats
from commitlog.tabular.partitions import check_spelling
from commitlog.tabular.schema import check_schema, dump_schema, fit_batch, storable_schema
from commitlog.tabular.task_files import FileOptions, OutputUploads, TaskFiles, check_files
from commitlog.urls import parse_store_url

__all__ = [
    "PUBLISHERS",
    "OnDuplicate",
    "OutputWriter",
    "TabularJob",
    "check_spellings",
    "commit_of",
    "warn_of_foreign",
]

_log = logging.getLogger(__name__)

#: Requests that a driver sends at the same time when it publishes or drops files.
PUBLISHERS = 16

#: What a driver does if its job was committed before: raise the error, or return that commit.
OnDuplicate = Literal["error", "skip"]

_MODES: tuple[Mode, ...] = ("append", "error", "overwrite", "overwrite-partitions")


@frozen(kw_only=True)
class TabularJob:
    """An attempt at a job, with the columns of its rows. May be pickled.

    Attributes:
        job: the attempt; its schema is that of the output once the job is committed.
        columns: the columns of the rows, with the types of the files.
    """

    job: Job
    columns: pa.Schema


def _without_credentials(url: str) -> str:
    return repr(str(parse_store_url(url)))


@frozen(kw_only=True)
class OutputWriter:
    """Writes rows to the output at a URL, as one job. May be pickled, and is thread-safe.

    Each method opens the store that it needs, and closes it before it returns.

    Attributes:
        url: URL of the output; a local directory by its absolute path.
        connection: further arguments of `commitlog.connect`, such as ``table`` or ``endpoint_url``.
        job_id: the id that is committed at most once, ever; None: only the attempts of this writer and
            its copies are one job.
        mode: ``append``, ``error``, ``overwrite`` or ``overwrite-partitions``; see `Output.begin`.
        on_duplicate: ``error`` or ``skip``, for a job that was committed before.
        visibility: the readers that see the files; None: as before, or ``listed``.
        merge_schema: whether rows may have additional columns, and lack existing ones.
        files: options of the files.
        seed: distinguishes the attempts of this writer, and of its copies, from all others.
    """

    url: str = field(repr=_without_credentials)  # engines log the arguments of failed tasks
    connection: Mapping[str, Any] = field(factory=dict, repr=False, hash=False)
    job_id: str | None = None
    mode: Mode = "append"
    on_duplicate: OnDuplicate = "error"
    visibility: Visibility | None = None
    merge_schema: bool = False
    files: FileOptions = field(factory=FileOptions)
    seed: str = field(factory=random_id)

    @classmethod
    def create(
        cls,
        url: str,
        *,
        connection: Mapping[str, Any] | None = None,
        compression: str | None = None,
        partition_by: Sequence[str] | str = (),
        **arguments: Any,
    ) -> OutputWriter:
        """Return the writer for a user's arguments. Sends no request.

        Args:
            url: URL of the output, or a local directory.
            connection: as the attribute; None for none.
            compression: the compression of Parquet; None for the default.
            partition_by: the partition columns.
            arguments: the other attributes.

        Raises `ConfigurationError` if an argument is wrong.
        """
        parsed = parse_store_url(url)
        if parsed.scheme == "memory":
            raise ConfigurationError("a memory:// store is gone with its process, and a job has many")
        compressions = OUTPUT_FORMATS["parquet"].compressions
        compression = next(iter(compressions)) if compression is None else compression
        if isinstance(partition_by, str):
            partition_by = [partition_by]
        made = cls(
            # Workers may run in another directory.
            url=parsed.name if parsed.scheme == "file" else url,
            connection=dict(connection or {}),
            files=FileOptions(compression=compression, partition_by=tuple(partition_by)),
            **arguments,
        )
        check_choice("mode", made.mode, _MODES)
        check_choice("on_duplicate", made.on_duplicate, get_args(OnDuplicate))
        if made.visibility is not None:
            check_choice("visibility", made.visibility, get_args(Visibility))
        check_choice("compression", compression, compressions)
        return made

    def begin(self, rows: pa.Schema | None) -> TabularJob:
        """Begin the next attempt at the job. Stores nothing.

        A repeated call returns the same attempt, until that one is decided. So the job stays the same
        if an engine loses the result and calls again.

        Args:
            rows: columns of the rows; None if there are no rows.

        Raises:
            ConfigurationError: the columns do not fit the output.
            NotSupported: the output cannot hold a column.
            JobAlreadyCommitted: the job is part of the output, by this writer or another one, and all of
                its files are visible now (else `PublishIncomplete`).
            AlreadyExists: the mode is ``error``, and there is data.
        """
        columns = pa.schema([])

        def schema(state: State) -> str:
            nonlocal columns
            columns = self._columns(rows, state)
            before = State() if self.mode == "overwrite" else state
            return check_schema(
                before.schema,
                before.files.values,
                dump_schema(columns),
                self.files,
                merge=self.merge_schema,
            )

        with self._open() as output:
            job = output.begin(
                self.job_id,
                mode=self.mode,
                schema=None if rows is None else schema,
                visibility=self.visibility,
                attempt=lambda state: self._next_attempt(output, state),
            )
            if job.mode == "append" and not job.last_commit:
                warn_of_foreign(output)
            if job.mode == "overwrite-partitions" and rows is not None:
                check_spellings(output, columns, self.files.partition_by)
        return TabularJob(job=job, columns=columns)

    def begin_or_find(self, rows: pa.Schema | None) -> TabularJob | CommitRecord:
        """Begin the next attempt, or return the commit of this job.

        A commit of this writer or of a copy is returned; one of another writer only with ``skip``.

        Args:
            rows: as for `begin`.

        Raises as `begin` does.
        """
        try:
            return self.begin(rows)
        except JobAlreadyCommitted as error:
            record = self._found(error)
            if record is None:
                raise
            return record

    def _found(self, error: JobAlreadyCommitted) -> CommitRecord | None:
        """Return the commit that `error` names, if the caller wants it."""
        with self._open() as output:
            record = commit_of(output, error.job_id, error.version)
            own = record.attempt in self._attempts(output, output.state())
        return record if own or self.on_duplicate == "skip" else None

    def _next_attempt(self, output: Output, state: State) -> str:
        """Return the attempt to begin. Raises `JobAlreadyCommitted` after a commit of this writer."""
        attempts = list(self._attempts(output, state))
        for attempt in attempts[:-1]:
            if state.committed(attempt):
                record = next(record for record in output.log() if record.attempt == attempt)
                output.snapshot()  # publishes its files, if its driver died before that
                raise already_committed(record.job_id, record.version)
        return attempts[-1]

    def _attempts(self, output: Output, state: State) -> Iterator[str]:
        """Yield the attempts of this writer and its copies, up to the first that is not decided."""
        for number in count():
            attempt = output.new_attempt(f"{self.seed}/{number}")
            yield attempt
            if state.committed(attempt) is None:
                return

    def _columns(self, rows: pa.Schema, state: State) -> pa.Schema:
        columns = storable_schema(rows, None if self.mode == "overwrite" else state.schema)
        check_files(columns, self.files)
        if self.mode == "overwrite-partitions" and not self.files.partition_by:
            raise ConfigurationError("mode 'overwrite-partitions' needs partition_by")
        return columns

    def committed(self) -> CommitRecord | None:
        """Return the commit of this job, by any writer; None if there is none yet, or no job id."""
        if self.job_id is None:
            return None
        with self._open() as output:
            version = output.version_of(self.job_id)
            return None if version is None else commit_of(output, self.job_id, version)

    def stage(
        self, begun: TabularJob, task: int, batches: Iterable[pa.RecordBatch]
    ) -> tuple[StagedFile, ...]:
        """Write the rows of a task to invisible files, and return these. Called in a worker.

        Args:
            begun: as `begin` returned it.
            task: number of the task in its job, from 0. Several runs of a task have the same number.
            batches: the rows.

        If it raises, it drops the files that it began. A worker that dies leaves uploads, which are
        invisible, and which the commit or `Output.recover` drops.
        """
        with (
            self._open() as output,
            TaskFiles(OutputUploads(output, begun.job), task, begun.columns, self.files) as files,
        ):
            for batch in batches:
                files.write(fit_batch(batch, begun.columns))
            return files.finish()

    def commit(self, begun: TabularJob, files: Iterable[StagedFile]) -> CommitRecord:
        """Make all of `files` part of the output, or none.

        A repeated call, in any process and with any files of the attempt, returns the same record: the
        files of the first call that reached the commit point count.

        Args:
            begun: as `begin` returned it.
            files: one run's files of each task.

        Raises:
            OutcomeUnknown: the job may or may not be committed, and that could not be settled. Run it
                again under its job id.
            JobAborted: this attempt is excluded.
            PublishIncomplete: the job **is** committed; `Output.recover` completes it.

        After any other error of `Output.commit` nothing was added, and this attempt is excluded.
        """
        files = list(files)
        job = begun.job
        with self._open_driver() as output:
            try:
                return output.commit(job, files)
            except Committed:
                raise
            except CommitError as error:
                record = _settle(output, job, files, error)
                if record is None and isinstance(error, JobAlreadyCommitted):
                    record = self._found(error)
                if record is None:
                    raise
                return record

    def abort(self, begun: TabularJob, files: Iterable[StagedFile] = ()) -> CommitRecord | None:
        """Exclude the attempt permanently, and drop its files; see `Output.abort`."""
        with self._open_driver() as output:
            return output.abort(begun.job, files)

    @contextmanager
    def supervise(self, begun: TabularJob, heartbeat: float | None) -> Iterator[None]:
        """Abort the attempt if the context raises; send heartbeats until it ends.

        Args:
            begun: as `begin` returned it.
            heartbeat: seconds between two heartbeats; None for none.

        The error of the context does not change. A note on it says if the attempt could not be aborted.
        """
        with self._open() as output:
            beats = (
                nullcontext()
                if heartbeat is None
                else send_heartbeats(output, begun.job.attempt, heartbeat)
            )
            try:
                with beats:
                    yield
            except BaseException as error:
                try:
                    self.abort(begun)
                except CommitError as failure:
                    error.add_note(f"Besides, the job could not be aborted: {failure}")
                raise

    @contextmanager
    def _open(self) -> Iterator[Output]:
        with connect(self.url, **self.connection) as store:
            yield Output(store)

    @contextmanager
    def _open_driver(self) -> Iterator[Output]:
        with (
            ThreadPoolExecutor(PUBLISHERS) as executor,
            connect(self.url, **self.connection) as store,
        ):
            yield Output(store, executor=executor)


def commit_of(output: Output, job_id: str, version: int) -> CommitRecord:
    """Return the commit of a job, or of a later batch of its stream, in the record of `version`.

    Other jobs may share that record.
    """
    batch = Batch.named(job_id)
    records: list[CommitRecord] = []
    for record in output.log(version - 1):
        if record.version > version:
            break
        of_stream = batch and record.batch and record.batch.stream == batch.stream
        if record.job_id == job_id or of_stream:
            return record
        records.append(record)
    return records[0]


def _settle(
    output: Output, job: Job, files: Iterable[StagedFile], error: CommitError
) -> CommitRecord | None:
    """Return the commit record after a commit that raised `error`; None if the error stands.

    Unless the attempt is committed, it is excluded. If even that fails, a note on the error says so.

    Raises `JobAborted` if the outcome of the commit was unknown, and the attempt is excluded now.
    """
    try:
        record = output.resolve(job, files)
    except Committed:
        raise
    except CommitError as failure:
        error.add_note(f"Besides, the attempt could not be settled: {failure}")
        return None
    if record is None and isinstance(error, OutcomeUnknown):
        raise JobAborted(
            f"job {job.job_id!r} was not committed: the outcome of its commit was unknown, and this"
            " attempt is excluded now. Run it again"
        ) from error
    return record


def warn_of_foreign(output: Output) -> None:
    """Log a warning if there are foreign files. Call it for an output without commits."""
    file = next(output.foreign(), None)
    if file is not None:
        _log.warning(
            "%r has files that were written without it, such as %r. They stay where they are: readers"
            " that list the directory see them together with the new files, readers of the log do not."
            " To include their rows, write them with mode 'overwrite', or write all rows to another"
            " directory",
            output,
            file.path,
        )


def check_spellings(output: Output, columns: pa.Schema, names: Sequence[str]) -> None:
    """Raise `NotSupported` if foreign files are in partitions that the output spells differently.

    The job would not recognise them as files to replace. Only instants have several spellings.

    Args:
        output: the output.
        columns: the columns of the rows.
        names: the partition columns.
    """
    instants = [name for name in names if getattr(columns.field(name).type, "tz", None)]
    if instants:
        only = pa.schema([columns.field(name) for name in instants])
        for file in output.foreign():
            check_spelling(partition_in(file.path), only)
