"""The ends of transactions: how the files that were written in one are made.

`publish_at_once` makes the files of a namespace in one transaction of its metadata table. A plain store
has no such transaction: `publish_in_order` makes its files one after the other, and `OutputTransaction`
makes them a job of an `Output`, all or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from attrs import frozen

from commitlog.errors import (
    CommitError,
    Committed,
    ConfigurationError,
    InvalidPath,
    JobAborted,
    NotSupported,
    OutcomeUnknown,
    TransactionTooLarge,
)
from commitlog.filesystem.file import FileTransaction, WriteFile
from commitlog.filesystem.object_writer import StorePath
from commitlog.namespace import LINK_BATCH_SIZE
from commitlog.outputs import CommitRecord, Job, Output, StagedFile
from commitlog.outputs.foreign import partition_in
from commitlog.paths import join
from commitlog.stores.api import Staged, StageWriter

__all__ = ["OutputTransaction", "publish_at_once", "publish_in_order"]

#: The number of uploads of a job that are published at a time.
_PUBLISHERS = 16

#: The advice for files that do not fit into one transaction.
_WITHOUT_TRANSACTION = (
    "Or write them without a transaction to a new directory that has no readers yet, then rename it"
)


def publish_at_once(files: Sequence[WriteFile]) -> None:
    """Make all written files of a namespace in one transaction of its table.

    After an error, their content is removed, unless the outcome is unknown.

    Raises:
        ConfigurationError: a file is not closed.
        NotSupported: the files are in several namespaces, or only some of them have to be new.
        TransactionTooLarge: there are more files than one transaction can make.
        AlreadyExists, IsADirectory, NotADirectory: as in `Namespace.write`.
        OutcomeUnknown: the files may exist, or may still appear. No content is removed.
    """
    try:
        written = _written(files)
        last_files = {file.target.path: file for file in written}
        _check_namespace(written, last_files.values())
        if last_files:
            first = next(iter(last_files.values()))
            link = partial(
                first.target.namespace.link_many,
                {path: file.data for path, file in last_files.items()},
                overwrite=not first.exclusive,
            )
            if len(last_files) == 1:
                link()  # works during interpreter shutdown too, when no thread can start
            else:
                with ThreadPoolExecutor(LINK_BATCH_SIZE, "commitlog-read") as readers:
                    link(executor=readers)
    except OutcomeUnknown:
        raise
    except CommitError as error:
        _discard(files)
        if isinstance(error, TransactionTooLarge):
            raise TransactionTooLarge(f"{error}. {_WITHOUT_TRANSACTION}") from error
        raise
    for file in last_files.values():
        file.data = None  # the file owns it now
    _discard(files)


def _check_namespace(written: Iterable[WriteFile], last_files: Iterable[WriteFile]) -> None:
    if len({file.target.namespace.name for file in written}) > 1:
        raise NotSupported("a transaction makes files in one namespace: use one transaction for each")
    if len({file.exclusive for file in last_files}) > 1:
        raise NotSupported(
            "a transaction cannot make both files that must be new (mode 'x') and files that may replace"
            " others (mode 'w'): use two transactions"
        )


def publish_in_order(files: Sequence[WriteFile]) -> None:
    """Make the written files of a plain store one after the other, in the order of their opening.

    All content is stored before the first file is made, and all files that have to be new are looked up.
    After that, each file takes one small request. The files are not made at once: readers may see
    the first ones only, and if this process dies, the others never appear. So open the file that tells
    readers about the others, such as a manifest, last.

    Raises:
        ConfigurationError: a file is not closed. No file was made.
        AlreadyExists: a file that has to be new exists.
        OutcomeUnknown: it is not known whether one of the files was made.

    After an error, the files before the one that failed are there, and stay; a note says how many. Those
    after it were not made, and their content is removed.
    """
    made = 0
    last_files: dict[str, WriteFile] = {}
    try:
        last_files = _last(_written(files))
        for file in last_files.values():
            if file.exclusive:
                file.target.check_absent()
        for file in last_files.values():
            data, file.data = file.data, None  # while the outcome is unknown, nothing is dropped
            file.target.publish(data, overwrite=not file.exclusive)
            made += 1
    except CommitError as error:
        if made:
            error.add_note(
                f"{made} of {len(last_files)} files of the transaction were made before the error, and"
                " stay; the rest were not made"
            )
        raise
    finally:
        _discard(files)


def _written(files: Sequence[WriteFile]) -> list[WriteFile]:
    """Return the files that were not discarded. Raises `ConfigurationError` if one is open."""
    for file in files:
        if not file.closed:
            raise ConfigurationError(
                f"{file.path!r} is still open: close it before the transaction ends"
            )
    return [file for file in files if file.data is not None]


def _last(files: Iterable[WriteFile]) -> dict[str, WriteFile]:
    """Return the last file that was written to each path, in the order of their opening."""
    last_files: dict[str, WriteFile] = {}
    for file in files:
        last_files.pop(file.path, None)
        last_files[file.path] = file
    return last_files


def _discard(files: Sequence[WriteFile]) -> None:
    for file in files:
        with contextlib.suppress(CommitError):
            file.discard()


@frozen
class _OutputPath:
    """The place of a file of a job. Its name is made by the job."""

    output: Output
    job: Job
    name: str
    path: str

    def open_writer(self, *, overwrite: bool) -> StageWriter:
        if not overwrite:
            raise NotSupported(
                f"{self.path!r} cannot be opened with mode 'x': a job gives its files names of its own,"
                " which are always new"
            )
        return self.output.begin_stage(self.job, self.name)

    def copy(self, writer: Any, source: Any, origin: Any) -> None:
        return None

    def drop(self, data: Staged) -> None:
        self.output.store.abort(data)


class OutputTransaction(FileTransaction):
    """A transaction whose files become part of an `Output` at its end, all or none.

    The files get names of the job, in the directories that the caller names and with the same suffixes:
    ``day=1/part.parquet`` becomes ``day=1/part-00000-<attempt>-c000.parquet``. Readers of the output's
    log see all of them or none. Those who list the directory see none before the commit point, and may
    see some of them for a moment after it. If this process dies before the commit point, no file ever
    appears; if it dies after it, the next job or ``commitlog output recover`` makes the rest visible.

    Attributes:
        job_id: the id of the job. Set it at the beginning of the transaction, so that the same job is
            not committed twice: opening its first file then raises `JobAlreadyCommitted`. None: a new
            one.
        record: the commit record, after the end of the transaction.
    """

    job_id: str | None = None
    record: CommitRecord | None = None
    _job: Job | None = None
    _number = 0

    def target(self, place: StorePath, directory: StorePath) -> _OutputPath:
        """Return the place of a new file.

        Args:
            place: the path that the caller asked for.
            directory: the output.

        Raises `InvalidPath` if the path is not in the output, or if readers skip such a name, and the
        errors of `Output.begin`.
        """
        top = join(directory.path, "") if directory.path else ""
        if place.store is not directory.store or not place.path.startswith(top):
            raise InvalidPath(
                f"{join(place.root, place.path)!r} is not in the output"
                f" {join(directory.root, directory.path)!r}: a transaction writes there only"
            )
        self._output = Output(directory.store, directory.path)
        if self._job is None:
            self._job = self._output.begin(self.job_id)
        parents, _, last = place.path.removeprefix(top).rpartition("/")
        if last.startswith(("_", ".")):
            raise InvalidPath(f"{last!r} begins with {last[0]!r}: readers of an output skip such names")
        _, dot, suffix = last.partition(".")
        name = self._job.file_name(self._number, suffix=dot + suffix)
        self._number += 1
        return _OutputPath(self._output, self._job, join(parents, name), place.path)

    def publish(self, files: Sequence[WriteFile]) -> None:
        """Commit the job.

        Raises:
            ConfigurationError: a file is not closed. Nothing was added.
            JobAborted: a lost answer was settled by excluding the job. None of its files will appear.
            PublishIncomplete: the job is committed, but some files are not visible yet.
            OutcomeUnknown: the commit record may or may not have been written; ``commitlog output
                recover`` settles it.
        """
        try:
            written = _last(_written(files)).values()
            staged = [
                StagedFile(staged=file.data, partition=partition_in(file.target.name))
                for file in written
            ]
            if self._job is not None and staged:
                for file in written:
                    file.data = None  # from now on, the job owns it
                with ThreadPoolExecutor(_PUBLISHERS, "commitlog-publish") as executor:
                    output = Output(self._output.store, self._output.path, executor=executor)
                    self.record = _committed(output, self._job, staged)
        finally:
            _discard(files)


def _committed(output: Output, job: Job, files: Sequence[StagedFile]) -> CommitRecord:
    try:
        return output.commit(job, files)
    except Committed:
        raise
    except OutcomeUnknown as unknown:
        try:
            record = output.resolve(job, files)
        except Committed:
            raise
        except CommitError:
            raise unknown from None
        if record is None:
            raise JobAborted(
                f"an answer was lost ({unknown}), and the job was excluded; nothing was added"
            ) from unknown
        return record
    except CommitError:
        with contextlib.suppress(CommitError):  # recovery does it later
            output.abort(job, files)
        raise
