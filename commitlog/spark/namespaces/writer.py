"""Writers of a job, or of a micro-batch of a stream, into a namespace.

Tasks store objects under random names, and send the driver the path for each. The driver links them. No
path refers to the objects of attempts that Spark drops; fsck of the namespace finds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import NoReturn, TypeAlias, cast

import pyarrow as pa
from attrs import frozen
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from commitlog.errors import AlreadyExists, JobAlreadyCommitted
from commitlog.namespace import Attempt, Data, DirectoryCommitter, FileWriter, Namespace, Status
from commitlog.namespace.write.content import Content
from commitlog.outputs import Job, StagedFile
from commitlog.spark.namespaces.files import (
    SCHEMA,
    NamespaceFile,
    columns_in,
    content_in,
    files_at,
    finding,
)
from commitlog.spark.namespaces.options import NamespaceOptions, NamespaceWriteOptions
from commitlog.spark.schema import dump_schema
from commitlog.spark.schema_check import check_schema
from commitlog.spark.streaming import batch_of
from commitlog.spark.workers import freeze_gc
from commitlog.spark.writer import PUBLISHERS, staged_rows
from commitlog.stores.api import Staged, StageWriter
from commitlog.stores.open import open_store
from commitlog.urls import Url

__all__ = ["Mount", "NamespaceStreamWriter", "NamespaceTarget", "NamespaceWriter", "fits", "publishing"]

#: Opens the namespace that options name, in a driver.
Mount: TypeAlias = Callable[[NamespaceOptions], Namespace]


@frozen
class FilesStored(WriterCommitMessage):
    """What a task tells the driver: for which job it has stored which files."""

    job_id: str
    files: Mapping[str, Data]


class NamespaceTarget:
    """Where tasks put objects that are to become files: a store, and which names they are to have.

    Attributes:
        stored: the objects, by the names that the files are to have.
    """

    def __init__(self, content: Content) -> None:
        self.content = content
        self.stored: dict[str, Data] = {}

    def begin_stage(self, job: Job, name: str) -> StageWriter:
        """Begin an object."""
        return _Upload(self, name)

    def drop(self, job: Job, files: Iterable[StagedFile]) -> None:
        """Remove objects."""
        for file in files:
            self.content.drop(self.stored.pop(file.staged.path))


class _Upload(StageWriter):
    def __init__(self, shelf: NamespaceTarget, name: str) -> None:
        self._shelf = shelf
        self._name = name
        self._writer = FileWriter(shelf.content, _never)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        return self._writer.write(data)

    def finish(self) -> Staged:
        data = self._shelf.stored[self._name] = self._writer.finish()
        return Staged(path=self._name, upload_id=data.path, size=data.size, nonce="")

    def abort(self) -> None:
        self._writer.abort()


def _never(data: Data) -> NoReturn:
    raise AssertionError("tasks give no names")


def _store(
    place: Url,
    options: NamespaceWriteOptions,
    job: Job,
    columns: StructType,
    batches: Iterator[pa.RecordBatch],
) -> FilesStored:
    """Store the rows of one task attempt; if it fails, nothing of it stays behind."""
    freeze_gc()
    with closing(open_store(place)) as store:
        shelf = NamespaceTarget(content_in(store))
        staged_rows(shelf, options, job, columns, batches)
        return FilesStored(job.job_id, shelf.stored)


def _files_of(messages: Iterable[WriterCommitMessage | None]) -> dict[str, Data]:
    stored = [cast(FilesStored, message) for message in messages]
    return {name: data for each in stored for name, data in each.files.items()}


@contextmanager
def publishing(mount: Mount, options: NamespaceOptions) -> Iterator[DirectoryCommitter]:
    """Open the namespace, to publish in it."""
    with mount(options) as lake, ThreadPoolExecutor(PUBLISHERS) as executor:
        yield DirectoryCommitter(lake, options.path, mapper=executor.map)


def fits(
    publication: DirectoryCommitter, columns: StructType, options: NamespaceWriteOptions
) -> Callable[[Status | None], Mapping[str, str]]:
    """Return what decides whether rows of `columns` fit, and which attributes the directory gets."""
    lake = publication.lake

    def fit(there: Status | None) -> Mapping[str, str]:
        if there is None:
            return {SCHEMA: dump_schema(columns)}

        def files() -> Iterator[NamespaceFile]:
            return files_at(lake, there.path)

        before = there.attributes.get(SCHEMA)
        if before is None and (found := list(files())):
            before = dump_schema(columns_in(found, finding(lake.store)))
        return {SCHEMA: check_schema(before, files, columns, options, merge=options.merge_schema)}

    return fit


class NamespaceWriter(DataSourceArrowWriter):
    """Writes one job; each process opens the store or the namespace itself.

    Args:
        mount: opens the namespace.
        options: of the job.
        place: URL of the store, for tasks; it may bear credentials.
        attempt: as `DirectoryCommitter.begin` made it.
        columns: of the rows.
    """

    def __init__(
        self,
        mount: Mount,
        options: NamespaceWriteOptions,
        place: Url,
        attempt: Attempt,
        columns: StructType,
    ) -> None:
        self._mount = mount
        self._options = options
        self._place = place
        self._attempt = attempt
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesStored:
        """Store the rows of one task attempt."""
        word = self._attempt.staging.rpartition("/")[2]
        job = Job(job_id=self._attempt.job_id, attempt=word)
        return _store(self._place, self._options, job, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the files of the winning attempts; see `DirectoryCommitter.publish`."""
        # Every task has a message here. Were one skipped, its rows would be missing.
        files = _files_of(messages)
        with publishing(self._mount, self._options) as publication:
            fit = fits(publication, self._columns, self._options)
            try:
                publication.publish(self._attempt, files, fit=fit)
            except JobAlreadyCommitted:
                if self._options.on_duplicate != "skip":
                    raise
                publication.abort(self._attempt, files)
            except AlreadyExists:
                if self._options.if_exists != "ignore":
                    raise
                publication.abort(self._attempt, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the job, unless it was published: Spark also calls this when `commit` has raised."""
        with publishing(self._mount, self._options) as publication:
            publication.abort(self._attempt, _files_of(m for m in messages if m is not None))


class NamespaceStreamWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch: a job by itself, which appends, and is named by query and batch.

    Args:
        mount, options, place, columns: as of `NamespaceWriter`.
    """

    def __init__(
        self, mount: Mount, options: NamespaceWriteOptions, place: Url, columns: StructType
    ) -> None:
        self._mount = mount
        self._options = options
        self._place = place
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesStored:
        """Store the rows of one task attempt."""
        query, run, number = batch_of()
        word = hashlib.sha256(f"{query}/{run}/{number}".encode()).hexdigest()[:32]
        job = Job(job_id=f"{query}/{number}", attempt=word)
        return _store(self._place, self._options, job, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the batch, unless an earlier run has, or an earlier call of this that was cut off."""
        if not messages:
            return  # a batch without tasks has no rows
        job_id = cast(FilesStored, messages[0]).job_id
        with publishing(self._mount, self._options) as publication:
            fit = fits(publication, self._columns, self._options)
            try:
                attempt = publication.begin(job_id, fit=fit)
            except JobAlreadyCommitted:
                return
            try:
                publication.publish(attempt, _files_of(messages), fit=fit)
            except JobAlreadyCommitted:
                publication.abort(attempt)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave what tasks have stored: it may be published; else a check of the namespace finds it."""
