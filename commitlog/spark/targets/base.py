"""The two protocols of a directory that Spark writes and reads: `Target` and `Source`.

A job passes a `Target` in this order::

    driver    begin      check the columns and options, and begin the job
    task      open       open the store, once for each task attempt
    task      open_file  begin a file; the task writes its bytes and finishes it
    driver    commit     publish the files of all tasks in one step; or
              abort      drop them

The micro-batches of a streaming query begin with `Target.begin_stream` instead: Spark creates their
writer before it knows the number of the batch.

A query passes a `Source` in this order::

    driver    schema     return the columns, unless the user gives them
    driver    find       find the files to read
    task      open       open the store to read files
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from attrs import define, field, frozen
from pyspark.sql.types import StructType

from commitlog.files import ReadableStore
from commitlog.outputs import CommitRecord, DataFile, Job, StagedFile
from commitlog.spark.options import JobOptions
from commitlog.tabular import Uploads

__all__ = [
    "FoundFiles",
    "JobOfBatch",
    "Locate",
    "MicroBatch",
    "OpenFiles",
    "Source",
    "SupervisedJob",
    "Target",
]

# -- writing -----------------------------------------------------------------------------------------


@frozen
class MicroBatch:
    """A run of one batch of a streaming query, by Spark's ids.

    Attributes:
        query: id of the query, which outlives restarts.
        run: id of the run, new after each restart.
        number: number of the batch, from 0.
    """

    query: str
    run: str
    number: int

    def __str__(self) -> str:
        return f"{self.query}/{self.run}/{self.number}"


#: Returns the job of a batch. Pickled to the tasks of the batch.
JobOfBatch: TypeAlias = Callable[[MicroBatch], Job]


@define
class SupervisedJob:
    """A job that Spark runs for this process; see `Target.supervise`.

    Attributes:
        options: options that the job's write must have in addition.
        record: the commit record, after the job; None if there is none.
    """

    options: Mapping[str, str] = field(factory=dict)
    record: CommitRecord | None = None


class Target(ABC):
    """A directory that jobs write to.

    Driver and tasks have pickled copies of it. A method opens the connections that it needs, and closes
    them before it returns.
    """

    @property
    @abstractmethod
    def options(self) -> JobOptions:
        """The options of the job and its files."""

    @abstractmethod
    def begin(self, columns: StructType, *, overwrite: bool) -> Job:
        """Begin a job on the driver. Check everything that can be checked before the job runs.

        Args:
            columns: columns of the rows, from `commitlog.spark.tasks.writable`.
            overwrite: whether Spark's save mode is ``overwrite``; else it is ``append``.

        Returns the job, which is pickled to the tasks.

        Raises:
            ConfigurationError: an option is wrong, or the directory has other columns.
            AlreadyExists: there is data, and option ``ifExists`` is ``error`` or ``ignore``.
            JobAlreadyCommitted: the job was committed before.
        """

    @abstractmethod
    def begin_stream(self, columns: StructType) -> JobOfBatch:
        """Prepare one micro-batch of a streaming query on the driver; raise as `begin` does.

        Returns a function for the tasks of the batch, which know its number.
        """

    @abstractmethod
    def open(self, job: Job) -> AbstractContextManager[Uploads]:
        """Open the store in a task, to write files of `job`."""

    @abstractmethod
    def commit(self, job: Job, files: Sequence[StagedFile]) -> None:
        """Publish the files of a job in one step, on the driver.

        Raises:
            JobAlreadyCommitted: the job was committed before, by this attempt or by another one. The
                caller then aborts this attempt, which does nothing if this one was committed.
            AlreadyExists: there is data, and option ``ifExists`` is ``error`` or ``ignore``; likewise.
        """

    @abstractmethod
    def abort(self, job: Job, files: Iterable[StagedFile]) -> None:
        """Drop the known files of a job, and exclude it permanently, unless it was committed."""

    @abstractmethod
    def supervise(self, mode: str, heartbeat: float) -> AbstractContextManager[SupervisedJob]:
        """Supervise a job that Spark runs during the context, in the process of the user.

        An exception of Spark is replaced with the error of this library that caused it.

        Args:
            mode: ``append``, or any other mode.
            heartbeat: seconds between two heartbeats, if the target has heartbeats.
        """


# -- reading -----------------------------------------------------------------------------------------

#: Returns the store that has a file, and the path there.
Locate: TypeAlias = Callable[[DataFile], tuple[ReadableStore, str]]

#: Opens the store of some files in a task. It is pickled with the reader.
OpenFiles: TypeAlias = Callable[[], AbstractContextManager[Locate]]


@frozen(kw_only=True)
class FoundFiles:
    """Files to read, with the columns of their rows.

    Attributes:
        files: the files.
        columns: all columns, including those in the names of directories; None if neither a job nor a
            record has stored them.
        open: opens the store of the files.
        filters: option ``filters``; see `parse_filters`.
        url: URL of the directory, or its absolute path.
        version: the version of an output; 0 for a directory without versions.
    """

    files: Sequence[DataFile] = field(repr=lambda files: f"<{len(files)} files>")
    columns: StructType | None
    open: OpenFiles = field(repr=False)
    filters: str | None
    url: str
    version: int = 0


class Source(ABC):
    """A directory that a query reads.

    The files are looked up once, by the first call that needs them. Spark keeps the object from
    ``load()`` on, so that all actions on a DataFrame read the same files.
    """

    @abstractmethod
    def schema(self) -> StructType:
        """Return the columns. Raises `NotFound` if nothing has stored any."""

    @abstractmethod
    def find(self) -> FoundFiles:
        """Return the files to read. Raises `ConfigurationError` for a wrong option."""

    @abstractmethod
    def pin(self) -> FoundFiles | None:
        """Return the files to read, for the process of the user; None if only Spark looks them up.

        A later read of the same ``version`` finds the same files.
        """

    @abstractmethod
    def forget_files(self) -> None:
        """Forget the files that were found, but not their columns."""
