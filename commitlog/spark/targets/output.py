"""Outputs as targets and sources: options, the job's steps, and the files of a version.

An output is a directory of committed files with a log; see `commitlog.outputs`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Protocol, cast, get_args

from attrs import evolve, field, frozen
from pyspark.sql.types import StructType

from commitlog._util.concurrency import Executor
from commitlog._util.ids import random_id
from commitlog.commit import ConditionalStore
from commitlog.connect import connect
from commitlog.errors import (
    ConfigurationError,
    JobAlreadyCommitted,
    NotFound,
    NotSupported,
    StateMismatch,
)
from commitlog.outputs import Batch, DataFile, Job, OnRewrite, Output, StagedFile, State, Visibility
from commitlog.spark.errors import own_errors
from commitlog.spark.options import (
    JOB,
    JobOptions,
    OptionReader,
    connection_names,
    locate_store,
    locate_table,
)
from commitlog.spark.schema import arrow_schema, dump_schema, load_schema
from commitlog.spark.targets.base import (
    FoundFiles,
    JobOfBatch,
    Locate,
    MicroBatch,
    Source,
    SupervisedJob,
    Target,
)
from commitlog.tabular import (
    PUBLISHERS,
    OutputUploads,
    check_schema,
    check_spellings,
    commit_of,
    send_heartbeats,
    warn_of_foreign,
)
from commitlog.urls import parse_table_url

__all__ = [
    "OpenOutput",
    "OutputLocation",
    "OutputSource",
    "OutputTarget",
    "ReadOptions",
    "TailOptions",
    "WriteOptions",
    "locate_in",
    "open_output",
    "warn_of_foreign",
]

_log = logging.getLogger(__name__)


# -- options -----------------------------------------------------------------------------------------

#: Default for the largest number of files of a batch of a stream.
MAX_FILES = 1000

_LOCATION = (*connection_names("table"), "commit")
_READ = (*_LOCATION, "rollForward", "version", "filters")
_TAIL = ("startingVersion", "onRewrite", "maxFilesPerTrigger", "maxBytesPerTrigger")
_WRITE = (*_LOCATION, *JOB, "visibility", "attempt")


@frozen(kw_only=True)
class OutputLocation:
    """Location of an output.

    Attributes:
        url: URL of the directory that is the output, or its absolute path.
        connection: further arguments of `commitlog.connect`. They may contain credentials, so they are
            never shown.
        table: URL of the table of leases, or None.
        table_options: further options of that table; never shown either.
    """

    url: str
    connection: Mapping[str, str] = field(repr=False)
    table: str | None
    table_options: Mapping[str, str] = field(repr=False)

    @staticmethod
    def parse_location(options: OptionReader) -> dict[str, Any]:
        """Return the attributes from options; raise `ConfigurationError` for a wrong one."""
        url, connection = locate_store(options)
        table, table_options = locate_table(options, "table")
        return {
            "url": url,
            "connection": {**connection, **options.some(["commit"])},
            "table": table,
            "table_options": table_options,
        }

    def open(self) -> ConditionalStore:
        """Open the store of the output. The first request is sent on its first use."""
        table = self.table and parse_table_url(self.table).with_options(self.table_options)
        return connect(self.url, table=table, **cast(dict[str, Any], self.connection))


@frozen(kw_only=True)
class ReadOptions(OutputLocation):
    """Location of an output, and the options for reading a version of it.

    Attributes:
        roll_forward: whether a reader completes the committed jobs of dead drivers; see
            `Output.snapshot`.
        version: the version to read; None for the last one.
        filters: files without a matching row are skipped; see `parse_filters`. None: no filters.
    """

    roll_forward: bool = True
    version: int | None = None
    filters: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Return the options from Spark; raise `ConfigurationError` for a wrong one."""
        found = _read(options, _READ)
        return cls(
            **cls.parse_location(found),
            roll_forward=found.flag("rollForward", default=True),
            version=found.count("version"),
            filters=found.get("filters"),
        )

    @classmethod
    def parse_any(cls, options: Mapping[str, str]) -> ReadOptions:
        """Return the same, but ignore options of streams: Spark asks for the schema of both.

        >>> ReadOptions.parse_any({"path": "/out", "startingversion": "latest"}).url
        '/out'
        """
        of_streams = {name.lower() for name in _TAIL}
        return cls.parse(
            {
                name: value
                for name, value in options.items()
                if name.lower().replace("_", "") not in of_streams
            }
        )


@frozen(kw_only=True)
class TailOptions(OutputLocation):
    """Location of an output, and the options for reading it as a stream.

    Attributes:
        roll_forward: as in `ReadOptions`.
        starting: where a query without a checkpoint begins; see `Tail.start`.
        on_rewrite: the reaction to commits that remove rows; see `Output.tail`.
        max_files: largest number of files of a batch.
        max_bytes: largest size in bytes of a batch that has several files; None for any size.
    """

    roll_forward: bool
    starting: int | Literal["all", "latest"]
    on_rewrite: OnRewrite
    max_files: int
    max_bytes: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> TailOptions:
        """Return the options from Spark; raise `ConfigurationError` for a wrong one."""
        found = _read(options, (*_READ, *_TAIL))
        if found.get("version") is not None:
            raise ConfigurationError("option version is of batch queries: give startingVersion")
        if found.get("filters") is not None:
            raise ConfigurationError("option filters is of batch queries: filter the rows of the stream")
        return cls(
            **cls.parse_location(found),
            roll_forward=found.flag("rollForward", default=True),
            starting=_starting((found.get("startingVersion") or "all").lower()),
            on_rewrite=found.choice("onRewrite", get_args(OnRewrite)),
            max_files=found.count("maxFilesPerTrigger") or MAX_FILES,
            max_bytes=found.size("maxBytesPerTrigger"),
        )


@frozen(kw_only=True)
class WriteOptions(OutputLocation):
    """Location of an output, and the options for writing to it.

    Attributes:
        job: options of the job.
        visibility: the readers that see the files; None: as before.
        attempt: a unique text, from which the name of the attempt is made, if the caller must know it.
    """

    job: JobOptions
    visibility: Visibility | None
    attempt: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Return the options from Spark; raise `ConfigurationError` for a wrong one."""
        found = _read(options, _WRITE)
        return cls(
            **cls.parse_location(found),
            job=JobOptions.parse(found),
            visibility=found.choice("visibility", get_args(Visibility))
            if found.get("visibility")
            else None,
            attempt=found.get("attempt"),
        )


def _read(options: Mapping[str, str], known: Sequence[str]) -> OptionReader:
    url = options.get("path", "")
    if url.startswith("commitlog://"):
        raise NotSupported(
            f"{url!r} is in a namespace. Such a directory cannot be read as a stream, and cannot be"
            " compacted: read it, and write its rows with mode 'overwrite'"
        )
    return OptionReader(options, known)


def _starting(value: str) -> int | Literal["all", "latest"]:
    match value:
        case "all" | "latest":
            return value
    if not value.isdecimal():
        raise ConfigurationError(
            f"option startingVersion is {value!r}: give all, latest, or the number of a version"
        )
    return int(value)


class OpenOutput(Protocol):
    """Opens the output at a location. It is pickled with readers and writers."""

    def __call__(self, location: OutputLocation, executor: Executor | None = None, /) -> Output:
        """Return the output. The first request is sent on its first use."""


def open_output(location: OutputLocation, executor: Executor | None = None) -> Output:
    """Open the output at `location`. The first request is sent on its first use."""
    return Output(location.open(), executor=executor)


# -- writing -----------------------------------------------------------------------------------------


@frozen
class OutputTarget(Target):
    """An output that jobs write to; see `Target`."""

    location: WriteOptions
    open_output: OpenOutput = open_output

    @property
    def options(self) -> JobOptions:
        return self.location.job

    def begin(self, columns: StructType, *, overwrite: bool) -> Job:
        location, options = self.location, self.options
        mode = options.mode(overwrite)
        output = self.open_output(location)
        with output.store:
            attempt = None if location.attempt is None else output.new_attempt(location.attempt)
            job = output.begin(
                options.job_id,
                mode=mode,
                # An overwrite may change the columns; appended rows must fit the others.
                schema=lambda state: self._schema(State() if mode == "overwrite" else state, columns),
                visibility=location.visibility,
                attempt=attempt,
            )
            # `supervise` has already warned, where the user sees it.
            if mode == "append" and location.attempt is None and not job.last_commit:
                warn_of_foreign(output)
            if mode == "overwrite-partitions":
                check_spellings(output, arrow_schema(columns), options.partition_by)
        return job

    def begin_stream(self, columns: StructType) -> JobOfBatch:
        output = self.open_output(self.location)
        with output.store:
            state = output.state()
            if not state.commit:
                warn_of_foreign(output)
        return partial(
            self._job_of,
            schema=self._schema(state, columns),
            base=state.version,
            visibility=self.location.visibility or state.visibility or "listed",
        )

    def _job_of(self, run: MicroBatch, *, schema: str, base: int, visibility: Visibility) -> Job:
        batch = Batch(run.query, run.number)
        return Job(
            job_id=batch.job_id,
            attempt=self.open_output(self.location).new_attempt(str(run)),
            mode="append",
            base=base,
            schema=schema,
            visibility=visibility,
            batch=batch,
        )

    def _schema(self, state: State, columns: StructType) -> str:
        options = self.options
        return check_schema(
            state.schema, state.files.values, dump_schema(columns), options, merge=options.merge_schema
        )

    @contextmanager
    def open(self, job: Job) -> Iterator[OutputUploads]:
        output = self.open_output(self.location)
        with output.store:
            yield OutputUploads(output, job)

    @contextmanager
    def _open_driver(self) -> Iterator[Output]:
        with ThreadPoolExecutor(PUBLISHERS) as executor:
            output = self.open_output(self.location, executor)
            with output.store:
                yield output

    def commit(self, job: Job, files: Sequence[StagedFile]) -> None:
        with self._open_driver() as output:
            if job.batch is None:
                output.commit(job, files)
                return
            try:
                # Check again: the batch may have been committed since the writer was created.
                output.begin(batch=job.batch, visibility=job.visibility)
                output.commit(job, files)
            except JobAlreadyCommitted as error:
                if self.options.on_duplicate == "error":
                    _check_repeated(output, job, files, error)
                raise

    def abort(self, job: Job, files: Iterable[StagedFile]) -> None:
        with self._open_driver() as output:
            output.abort(job, files)

    @contextmanager
    def supervise(self, mode: str, heartbeat: float) -> Iterator[SupervisedJob]:
        unique = random_id()
        output = self.open_output(self.location)
        attempt = output.new_attempt(unique)
        job = SupervisedJob({"attempt": unique})
        with output.store:
            before = output.watermark()
            if mode == "append" and not before:
                warn_of_foreign(output)
            job_id = self.options.job_id or attempt
            with own_errors(job_id, output), send_heartbeats(output, attempt, heartbeat):
                yield job
            records = (record for record in output.log(before) if record.attempt == attempt)
            job.record = next(records, None)


def _check_repeated(
    output: Output, job: Job, files: Sequence[StagedFile], error: JobAlreadyCommitted
) -> None:
    """Raise `StateMismatch` if a batch cannot be the one that was committed under its number.

    Spark runs a batch again only if it is the last one of its query, and then with the same rows. An
    older checkpoint makes batches with the same numbers of other rows, which would be lost.
    """
    assert job.batch is not None
    record = commit_of(output, job.job_id, error.version)
    if record.attempt == job.attempt:
        return
    if record.job_id != job.job_id:
        why = f"job {record.job_id!r} of a later batch is"
    elif _may_be_same(_summary(output.files(record)), _summary(files)):
        return
    else:
        why = "other rows under its number are"
    raise StateMismatch(
        f"batch {job.batch.number} of query {job.batch.stream!r} was not added, because {why} part of"
        f" the output since version {record.version}: the checkpoint of the query was put back to an"
        " older state, or the query does not give the same rows when it runs again. Restore the"
        " checkpoint that belongs to the output; or start the query with a new checkpoint, after the"
        " input that the output has; or, if these rows are not needed, with option onDuplicate=skip"
    )


def _summary(files: Iterable[StagedFile | DataFile]) -> dict[tuple[object, ...], float | None]:
    """Return what is known of rows however they are divided into files; None: it is not.

    These are the number of rows of each partition, and for columns of numbers the smallest and largest
    value and the number of nulls.
    """
    files = list(files)
    found: dict[tuple[object, ...], float | None] = {}
    for file in files:
        key = "rows", tuple(file.partition.items())
        before = found.get(key, 0)
        found[key] = None if before is None or file.rows is None else before + file.rows
    for name in {name for file in files for name in file.stats}:
        bounds = zip(*(file.stats.get(name, (None, None, None)) for file in files), strict=True)
        combined: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
            ("least", min),
            ("most", max),
            ("nulls", sum),
        )
        for (what, combine), values in zip(combined, bounds, strict=True):
            numbers = [cast(float, value) for value in values if type(value) in (int, float)]
            found[what, name] = combine(numbers) if len(numbers) == len(files) else None
    return found


def _may_be_same(
    first: Mapping[tuple[object, ...], float | None], second: Mapping[tuple[object, ...], float | None]
) -> bool:
    """Return whether two summaries may be of the same rows."""
    for key in first.keys() | second.keys():
        absent = 0 if key[0] == "rows" else None
        values = first.get(key, absent), second.get(key, absent)
        if None not in values and values[0] != values[1]:
            return False
    return True


# -- reading -----------------------------------------------------------------------------------------


class OutputSource(Source):
    """One version of an output; see `Source`.

    Args:
        options: the options from Spark.
        open_output: opens the output.
    """

    def __init__(self, options: Mapping[str, str], open_output: OpenOutput = open_output) -> None:
        self._options = options
        self._open_output = open_output
        self._found: FoundFiles | None = None

    def schema(self) -> StructType:
        # Spark does not tell whether the query is a stream.
        columns = self._look_up(ReadOptions.parse_any(self._options)).columns
        assert columns is not None
        return columns

    def find(self) -> FoundFiles:
        return self._look_up(ReadOptions.parse(self._options))

    def pin(self) -> FoundFiles:
        return self.find()

    def forget_files(self) -> None:
        if self._found is not None:
            self._found = evolve(self._found, files=())

    def _look_up(self, options: ReadOptions) -> FoundFiles:
        if self._found is None:
            output = self._open_output(options)
            with output.store:
                snapshot = output.snapshot(options.version, roll_forward=options.roll_forward)
            if snapshot.schema is None:
                why = (
                    "its commits have no schema"
                    if snapshot.version
                    else "nothing has been committed to it"
                )
                raise NotFound(f"no output to read at {options.url}: {why}")
            self._found = FoundFiles(
                files=snapshot.files,
                columns=load_schema(snapshot.schema),
                open=partial(_open_files, self._open_output, options),
                filters=options.filters,
                url=options.url,
                version=snapshot.version,
            )
        return self._found


@contextmanager
def _open_files(open_output: OpenOutput, location: OutputLocation) -> Iterator[Locate]:
    output = open_output(location)
    with output.store:
        yield locate_in(output)


def locate_in(output: Output) -> Locate:
    """Return a function that locates the committed files of an open output."""
    return lambda file: (output.store, output.locate(file))
