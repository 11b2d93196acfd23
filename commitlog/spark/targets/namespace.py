"""Directories of namespaces as targets and sources, by URLs such as ``commitlog://lake/events``.

The files of a job become a directory, or are added to one, in a single step; see
`commitlog.namespace.DirectoryCommitter`. Tasks store objects under random names and do not open the
namespace. The driver then makes files of the objects. No file refers to the objects of attempts that
Spark drops; fsck of the namespace finds them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from attrs import evolve, field, frozen
from pyspark.sql.types import StructType

from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import SystemClock
from commitlog.errors import ConfigurationError, JobAlreadyCommitted, NotSupported
from commitlog.namespace import Attempt, Data, DirectoryCommitter, FileWriter, Namespace, Status
from commitlog.namespace.write.content import Content
from commitlog.namespaces import METADATA, open_namespace, parse_url
from commitlog.outputs import Batch, DataFile, Job, StagedFile
from commitlog.spark.errors import own_errors
from commitlog.spark.options import (
    JOB,
    JobOptions,
    OptionReader,
    camel,
    connection_names,
    connection_of,
    locate_store,
    locate_table,
)
from commitlog.spark.schema import dump_schema, load_schema
from commitlog.spark.targets.base import (
    FoundFiles,
    JobOfBatch,
    Locate,
    MicroBatch,
    Source,
    SupervisedJob,
    Target,
)
from commitlog.spark.targets.directory import (
    SCHEMA,
    NamespaceFile,
    columns_in,
    columns_of,
    directory_at,
    files_at,
)
from commitlog.stores.api import ObjectData, ObjectStore, Staged, StageWriter
from commitlog.stores.open import open_store
from commitlog.tabular import PUBLISHERS, check_schema
from commitlog.urls import SECRET_OPTIONS, Url, parse_store_url, parse_table_url

__all__ = [
    "NamespaceJob",
    "NamespaceLocation",
    "NamespaceSource",
    "NamespaceTarget",
    "NamespaceUploads",
    "NamespaceWriteOptions",
    "OpenNamespace",
    "physical_files",
    "with_environment",
]

_EMPTY: Mapping[str, str] = MappingProxyType({})


# -- options -----------------------------------------------------------------------------------------

_LOCATION = (*{*connection_names("table"), *connection_names("metadata")}, "commit", "store")

#: Options of outputs that directories of a namespace do not have.
_OF_OUTPUTS = ("version", "rollForward", "visibility", "attempt")


@frozen(kw_only=True)
class NamespaceLocation:
    """Location of a directory in a namespace.

    Attributes:
        url: URL of the directory.
        name: name of the namespace.
        path: path of the directory in it.
        metadata: URL of the table of the namespace; None: the table in the environment. It may contain
            credentials, so it is never shown.
        store: URL of the store, if it is not the one that the namespace has recorded; never shown.
        connection: further options of the URL of the store; never shown.
        leases: the table of leases for the log of the namespace, if it takes any.
        commit: how conditional writes of that log are enforced.
        filters: as in `ReadOptions`.
    """

    url: str
    name: str
    path: str
    metadata: Url | None = field(repr=False)
    store: Url | None = field(repr=False)
    connection: Mapping[str, str] = field(repr=False)
    leases: Url | None = field(repr=False)
    commit: str
    filters: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> NamespaceLocation:
        """Return the location in options for reading; raise `ConfigurationError` for a wrong one."""
        found = _read(options, (*_LOCATION, "filters"))
        return cls(**cls.parse_location(found), filters=found.get("filters"))

    @staticmethod
    def parse_location(options: OptionReader) -> dict[str, Any]:
        """Return the attributes from options, except for `filters`."""
        url = options.get("path") or ""
        name, path = parse_url(url)
        connection = connection_of(options)
        store = options.get("store")
        return {
            "url": url,
            "name": name,
            "path": path,
            "metadata": _table(options, "metadata"),
            "store": store and parse_store_url(locate_store(options, store)[0]).with_options(connection),
            "connection": connection,
            "leases": _table(options, "table"),
            "commit": options.get("commit") or "auto",
        }

    def open(self) -> Namespace:
        """Open the namespace. Raises the errors of `open_namespace`."""
        if self.metadata is None and not os.environ.get(METADATA):
            raise ConfigurationError(
                "no metadata table is given: name it in option metadata, or in the environment variable"
                f" {METADATA} before the session starts"
            )
        namespace = self._open(self.store)
        if self.store is not None or not self.connection:
            return namespace
        with namespace:
            store = parse_store_url(namespace.store.url).with_options(self.connection)
        return self._open(store)

    def _open(self, store: Url | None) -> Namespace:
        return open_namespace(
            self.name, metadata=self.metadata, store=store, commit=self.commit, leases=self.leases
        )

    def store_of(self, namespace: Namespace) -> Url:
        """Return the URL of the store of `namespace` for workers; it may contain credentials."""
        store = self.store or parse_store_url(namespace.store.url).with_options(self.connection)
        if store.scheme == "memory":
            raise ConfigurationError("a memory:// store is gone with its process, and Spark has many")
        return store


@frozen(kw_only=True)
class NamespaceWriteOptions(NamespaceLocation):
    """Location of a directory in a namespace, and the options for writing to it.

    Attributes:
        job: options of the job.
    """

    job: JobOptions

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> NamespaceWriteOptions:
        """Return the options from Spark; raise `ConfigurationError` for a wrong one."""
        found = _read(options, (*_LOCATION, *JOB))
        job = JobOptions.parse(found)
        if job.dynamic:
            raise NotSupported(
                "option partitionOverwriteMode=dynamic does not go with a namespace: overwrite the"
                " directory of each partition, or the whole"
            )
        return cls(**cls.parse_location(found), job=job)


#: Opens the namespace at a location, on the driver.
OpenNamespace: TypeAlias = Callable[[NamespaceLocation], Namespace]


def with_environment(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with the metadata table that the environment of this process names.

    Data sources run in processes of their own, with the environment in which the JVM was started.
    Credentials in the URL become options of their own, which Spark does not print.
    """
    metadata = os.environ.get(METADATA)
    if not metadata or any(name.lower() == "metadata" for name in options):
        return dict(options)
    url = parse_table_url(metadata)
    secrets = {f"metadata.{camel(name)}": url.options[name] for name in SECRET_OPTIONS & {*url.options}}
    return {"metadata": str(url), **secrets, **options}


def _read(options: Mapping[str, str], known: tuple[str, ...]) -> OptionReader:
    found = OptionReader(options, known, unlisted=(*_OF_OUTPUTS, "partitionOverwriteMode"))
    for name in _OF_OUTPUTS:
        if found.get(name) is not None:
            raise NotSupported(
                f"option {name} does not go with a namespace: it is of outputs that are directories of a"
                " store"
            )
    return found


def _table(options: OptionReader, name: str) -> Url | None:
    url, connection = locate_table(options, name)
    return None if url is None else parse_table_url(url).with_options(connection)


# -- writing -----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class NamespaceJob(Job):
    """A job in a namespace.

    Attributes:
        store: URL of the store, for tasks; it may contain credentials.
        directory: the attempt's directory; None for a micro-batch, whose attempt begins when it is
            committed.
    """

    store: Url = field(repr=False)
    directory: Attempt | None


@frozen(kw_only=True)
class _StoredObject(Staged):
    """A finished upload, with a reference to the object."""

    data: Data


@frozen
class NamespaceUploads:
    """The connection of one task attempt to the store of a namespace."""

    content: Content
    job: Job

    def open_file(self, name: str) -> StageWriter:
        """Begin an object for the file `name`."""
        return _Upload(name, FileWriter(self.content, _never))

    def drop(self, files: Iterable[StagedFile]) -> None:
        """Remove the objects of files."""
        for data in _data_of(files).values():
            self.content.remove(data)


class _Upload(StageWriter):
    def __init__(self, name: str, writer: FileWriter) -> None:
        self._name = name
        self._writer = writer

    def _append(self, data: memoryview) -> None:
        self._writer.write(data)

    def finish(self) -> Staged:
        data = self._writer.finish()
        return _StoredObject(path=self._name, upload_id=data.path, size=data.size, nonce="", data=data)

    def abort(self) -> None:
        self._writer.abort()


def _never(data: Data) -> NoReturn:
    raise AssertionError("tasks make no files in a namespace")


def _data_of(files: Iterable[StagedFile]) -> dict[str, Data]:
    """Return the contents of files by their paths below the directory."""
    contents = {}
    for file in files:
        assert isinstance(file.staged, _StoredObject)
        contents[file.staged.path] = file.staged.data
    return contents


@frozen
class NamespaceTarget(Target):
    """A directory of a namespace that jobs write to; see `Target`."""

    location: NamespaceWriteOptions
    open_namespace: OpenNamespace = NamespaceLocation.open

    @property
    def options(self) -> JobOptions:
        return self.location.job

    def begin(self, columns: StructType, *, overwrite: bool) -> NamespaceJob:
        mode = self.options.mode(overwrite)
        assert mode != "overwrite-partitions"
        with self._open_committer() as (namespace, committer):
            store = self.location.store_of(namespace)
            check = self._schema_check(namespace, columns)
            attempt = committer.begin(self.options.job_id, mode=mode, check_schema=check)
            try:
                return NamespaceJob(
                    job_id=attempt.job_id,
                    attempt=attempt.staging.rpartition("/")[2],
                    schema=dump_schema(columns),
                    store=store,
                    directory=attempt,
                )
            except ConfigurationError:  # a job id that is too long
                committer.abort(attempt)
                raise

    def begin_stream(self, columns: StructType) -> JobOfBatch:
        with self.open_namespace(self.location) as namespace:
            store = self.location.store_of(namespace)
        return partial(_job_of, schema=dump_schema(columns), store=store)

    @contextmanager
    def open(self, job: Job) -> Iterator[NamespaceUploads]:
        assert isinstance(job, NamespaceJob)
        with closing(open_store(job.store)) as store:
            yield NamespaceUploads(_content_in(store), job)

    def commit(self, job: Job, files: Sequence[StagedFile]) -> None:
        assert isinstance(job, NamespaceJob) and job.schema is not None
        contents = _data_of(files)
        with self._open_committer() as (namespace, committer):
            check = self._schema_check(namespace, load_schema(job.schema))
            if job.directory is not None:
                committer.publish(job.directory, contents, check_schema=check)
                return
            attempt = committer.begin(job.job_id, check_schema=check)
            try:
                committer.publish(attempt, contents, check_schema=check)
            except JobAlreadyCommitted:
                committer.abort(attempt)
                raise

    def abort(self, job: Job, files: Iterable[StagedFile]) -> None:
        assert isinstance(job, NamespaceJob)
        if job.directory is None:
            return  # An earlier commit of the batch may have made files of these objects.
        with self._open_committer() as (_, committer):
            committer.abort(job.directory, _data_of(files))

    @contextmanager
    def supervise(self, mode: str, heartbeat: float) -> Iterator[SupervisedJob]:
        with own_errors(self.options.job_id):
            yield SupervisedJob()

    @contextmanager
    def _open_committer(self) -> Iterator[tuple[Namespace, DirectoryCommitter]]:
        location = self.location
        with (
            self.open_namespace(location) as namespace,
            ThreadPoolExecutor(PUBLISHERS) as executor,
        ):
            yield namespace, DirectoryCommitter(namespace, location.path, executor=executor)

    def _schema_check(
        self, namespace: Namespace, columns: StructType
    ) -> Callable[[Status | None], Mapping[str, str]]:
        """Return a function that checks the columns, and returns the attributes of the directory."""
        options = self.options

        def check(status: Status | None) -> Mapping[str, str]:
            if status is None:
                return {SCHEMA: dump_schema(columns)}

            def files() -> Iterator[NamespaceFile]:
                return files_at(namespace, status.path)

            before = status.attributes.get(SCHEMA)
            if before is None and (found := list(files())):
                before = dump_schema(columns_in(found, _locate_in(namespace.store)))
            return {
                SCHEMA: check_schema(
                    before, files, dump_schema(columns), options, merge=options.merge_schema
                )
            }

        return check


def _job_of(run: MicroBatch, *, schema: str, store: Url) -> NamespaceJob:
    batch = Batch(run.query, run.number)
    return NamespaceJob(
        job_id=batch.job_id,
        attempt=hashlib.sha256(str(run).encode()).hexdigest()[:32],
        schema=schema,
        batch=batch,
        store=store,
        directory=None,
    )


# -- reading -----------------------------------------------------------------------------------------


class NamespaceSource(Source):
    """The files of a directory of a namespace; see `Source`.

    Args:
        options: the options from Spark.
        open_namespace: opens the namespace.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        open_namespace: OpenNamespace = NamespaceLocation.open,
    ) -> None:
        self._options = options
        self._open_namespace = open_namespace
        self._found: FoundFiles | None = None

    def schema(self) -> StructType:
        columns = self._look_up(infer=True).columns
        assert columns is not None
        return columns

    def find(self) -> FoundFiles:
        return self._look_up(infer=False)

    def pin(self) -> None:
        return None

    def forget_files(self) -> None:
        if self._found is not None:
            self._found = evolve(self._found, files=())

    def _look_up(self, *, infer: bool) -> FoundFiles:
        location = NamespaceLocation.parse(self._options)
        if self._found is None:
            with self._open_namespace(location) as namespace:
                found = directory_at(namespace, location.path)
                columns = None
                if infer or SCHEMA in found.status.attributes:
                    columns = columns_of(found, _locate_in(namespace.store))
                self._found = FoundFiles(
                    files=found.files,
                    columns=columns,
                    open=partial(_open_files, location.store_of(namespace)),
                    filters=location.filters,
                    url=location.url,
                )
        return self._found


@frozen
class _PinnedObject:
    """Reads the object of a file, and refuses any other object at its path."""

    content: Content
    file: NamespaceFile

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        data = self.file.data
        return ObjectData(
            path=data.path,
            size=data.size,
            etag=data.etag,
            last_modified=0.0,
            data=self.content.read(data, start, end),
        )


@contextmanager
def _open_files(store: Url) -> Iterator[Locate]:
    with closing(open_store(store)) as opened:
        yield _locate_in(opened)


def _locate_in(store: ObjectStore) -> Locate:
    content = _content_in(store)

    def locate(file: DataFile) -> tuple[_PinnedObject, str]:
        assert isinstance(file, NamespaceFile)
        # The path in the namespace, because its suffix determines the format and the compression.
        return _PinnedObject(content, file), file.path

    return locate


def _content_in(store: ObjectStore) -> Content:
    """Return the content of a namespace, for a process that opens only the store."""
    return Content(store=store, clock=SystemClock(), backoff=Backoff(), new_id=random_id)


def physical_files(url: str, *, options: Mapping[str, str] = _EMPTY) -> list[str]:
    """Return the URLs of the objects of a directory's current files, in the order of the files' paths.

    Use them with Spark's own readers, which read faster than ``format("commitlog")``:
    ``spark.read.schema(columns).parquet(*physical_files("commitlog://lake/events"))``. Such a reader
    finds the columns in the files, but not those in the names of directories. The name of an object
    shows neither its format nor its compression. Files that are overwritten or deleted later can be read
    for the grace period of the namespace; after that, reading them fails.

    Args:
        url: URL of the directory.
        options: options of the data source; see docs/spark.md.

    Raises `NotFound`, and `ConfigurationError` for a wrong option.
    """
    location = NamespaceLocation.parse({**options, "path": url})
    with location.open() as namespace:
        store = location.store_of(namespace)
        files = directory_at(namespace, location.path).files
        keys = [namespace.store.key(file.data.path) for file in files]
    return [f"file://{key}" if store.scheme == "file" else f"s3a://{store.name}/{key}" for key in keys]
