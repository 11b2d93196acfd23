"""What an output keeps in its log: pending jobs, commits, aborts, and the ``_SUCCESS`` watermark.

The envelope (format, checksum) is that of `commitlog.oplog.codec`; here are the fields. A pending job
is an operation-log entry, and the commit or abort record is its decision. Paths are relative to the
output, so that it can be moved, and no record holds a secret or anything of the writer's machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from attrs import evolve, field, frozen

from commitlog.errors import CorruptRecord
from commitlog.oplog.codec import Document
from commitlog.outputs.job import Job, StagedFile
from commitlog.paths import join
from commitlog.stores.api import Staged

__all__ = [
    "AbortRecord",
    "CommitRecord",
    "DataFile",
    "PendingJob",
    "Record",
    "RecoveryReport",
    "Snapshot",
    "Success",
]

T = TypeVar("T")


@frozen(kw_only=True)
class DataFile:
    """A file of a committed job.

    Attributes:
        path: where, relative to the output.
        size: bytes.
        nonce: the nonce in its metadata, by which it is recognised.
        rows: number of rows, if its writer told.
        partition: values of the partition columns; None for null.
    """

    path: str
    size: int
    nonce: str
    rows: int | None = None
    partition: Mapping[str, str | None] = field(factory=dict, hash=False)


@frozen(kw_only=True)
class CommitRecord:
    """A committed job; its number is the version of the output that it made.

    Attributes:
        version: number of the record, from 1. Numbers between those of two commits are aborts.
        job_id: the job.
        attempt: the attempt at it that was committed.
        mode: the mode it was begun with.
        time: epoch seconds by the driver's clock, for people.
        files: everything it added.
        schema: schema of the files as a JSON text, if its writer told.
    """

    version: int
    job_id: str
    attempt: str
    mode: str
    time: float
    files: tuple[DataFile, ...] = field(repr=lambda files: f"<{len(files)} files>")
    schema: str | None = field(default=None, repr=False)

    @property
    def rows(self) -> int | None:
        """Number of rows in all files, or None if one of them is not known."""
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    def to_document(self) -> Document:
        """Return what is stored. The version is the entry's name."""
        body = {
            "job": self.job_id,
            "attempt": self.attempt,
            "mode": self.mode,
            "time": self.time,
            "schema": self.schema,
            "files": [_file_to_json(file) for file in self.files],
        }
        return Document("commit", body)


@frozen(kw_only=True)
class AbortRecord:
    """Attempts that can never be committed any more: the fence that recovery and abort put up.

    Attributes:
        version: number of the record.
        attempts: each attempt with its job id, or None where that is not known.
        time: epoch seconds by the writer's clock, for people.
    """

    version: int
    attempts: Mapping[str, str | None] = field(hash=False)
    time: float

    def to_document(self) -> Document:
        """Return what is stored. The version is the entry's name."""
        return Document("abort", {"attempts": dict(self.attempts), "time": self.time})


Record: TypeAlias = CommitRecord | AbortRecord


def record_of(version: int, document: Document) -> Record:
    """Return the log record number `version`; raise `CorruptRecord` if fields are missing."""
    body = document.body
    if document.kind == "abort":
        return _build(
            f"log record {version}",
            lambda: AbortRecord(
                version=version,
                attempts={_text(a): _maybe_text(j) for a, j in _mapping(body["attempts"]).items()},
                time=float(body["time"]),
            ),
        )
    return _build(
        f"log record {version}",
        lambda: CommitRecord(
            version=version,
            job_id=_text(body["job"]),
            attempt=_text(body["attempt"]),
            mode=_text(body["mode"]),
            time=float(body["time"]),
            schema=_maybe_text(body["schema"]),
            files=tuple(_file_of(item) for item in body["files"]),
        ),
    )


@frozen(kw_only=True)
class PendingJob:
    """Everything that a job staged, written before it is committed.

    Attributes:
        job_id: the job.
        attempt: the attempt at it.
        files: the uploads, with paths relative to the output.
    """

    job_id: str
    attempt: str
    files: tuple[StagedFile, ...] = field(repr=lambda files: f"<{len(files)} files>")

    @classmethod
    def of(cls, job: Job, files: Iterable[StagedFile], root: str) -> PendingJob:
        """Return the entry for `files`, whose paths begin with `root`."""
        top = join(root, "")
        relative = (
            evolve(file, staged=evolve(file.staged, path=file.staged.path.removeprefix(top)))
            for file in files
        )
        return cls(job_id=job.job_id, attempt=job.attempt, files=tuple(relative))

    def uploads(self, root: str) -> list[Staged]:
        """Return the uploads as the store knows them, below `root`."""
        return [evolve(f.staged, path=join(root, f.staged.path)) for f in self.files]

    def data_files(self) -> tuple[DataFile, ...]:
        """Return what becomes of the uploads once they are published."""
        return tuple(
            DataFile(
                path=file.staged.path,
                size=file.staged.size,
                nonce=file.staged.nonce,
                rows=file.rows,
                partition=file.partition,
            )
            for file in self.files
        )

    def to_document(self) -> Document:
        """Return what is stored."""
        files = [
            {**_file_to_json(data), "upload": file.staged.upload_id, "parts": list(file.staged.parts)}
            for data, file in zip(self.data_files(), self.files, strict=True)
        ]
        return Document("pending", {"job": self.job_id, "attempt": self.attempt, "files": files})

    @classmethod
    def from_document(cls, document: Document) -> PendingJob:
        """Return the entry that is stored; raise `CorruptRecord` if fields are missing."""
        body = document.body

        def staged_file(item: Mapping[str, Any]) -> StagedFile:
            data = _file_of(item)
            staged = Staged(
                path=data.path,
                upload_id=_text(item["upload"]),
                size=data.size,
                nonce=data.nonce,
                parts=tuple(_text(part) for part in item["parts"]),
            )
            return StagedFile(staged=staged, rows=data.rows, partition=data.partition)

        return _build(
            "pending entry",
            lambda: cls(
                job_id=_text(body["job"]),
                attempt=_text(body["attempt"]),
                files=tuple(staged_file(item) for item in body["files"]),
            ),
        )


@frozen(kw_only=True)
class Success:
    """The content of ``_SUCCESS``: every file of every version up to this one is visible.

    It is derived from the log and only saves reading it. `job_id`, `files`, `rows` and `bytes` are
    those of the last commit, for people and for tools that wait for the file.
    """

    version: int
    job_id: str
    files: int
    rows: int | None
    bytes: int

    @classmethod
    def of(cls, record: CommitRecord) -> Success:
        """Return the watermark at `record`."""
        return cls(
            version=record.version,
            job_id=record.job_id,
            files=len(record.files),
            rows=record.rows,
            bytes=record.bytes,
        )

    def to_document(self) -> Document:
        """Return what is stored."""
        body = {
            "version": self.version,
            "job": self.job_id,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.bytes,
        }
        return Document("success", body)


@frozen(kw_only=True)
class Snapshot:
    """An output at one version: whole jobs only.

    Attributes:
        version: version of its last commit; 0 if there is none.
        files: the files of all commits up to it, in order of commit.
        jobs: the job ids of all commits up to it, in order.
        schema: schema of the last commit that told one, as a JSON text.
    """

    version: int
    files: tuple[DataFile, ...] = field(repr=lambda files: f"<{len(files)} files>")
    jobs: tuple[str, ...] = field(repr=lambda jobs: f"<{len(jobs)} jobs>")
    schema: str | None = field(default=None, repr=False)

    @property
    def rows(self) -> int | None:
        """Number of rows in all files, or None if one of them is not known."""
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)


@frozen(kw_only=True)
class RecoveryReport:
    """What `Output.recover` found and did.

    Attributes:
        completed: versions whose files were published, because their drivers had not done it.
        aborted: attempts that were taken for dead and fenced off, with their job ids where known.
        uploads: number of uploads that were dropped.
        live: attempts that were left alone, because they are younger than asked for.
    """

    completed: tuple[int, ...] = ()
    aborted: Mapping[str, str | None] = field(factory=dict, hash=False)
    uploads: int = 0
    live: tuple[str, ...] = ()


# -- JSON --------------------------------------------------------------------------------------------


def _file_to_json(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "size": file.size,
        "nonce": file.nonce,
        "rows": file.rows,
        "partition": list(file.partition.items()),  # in order: that of the directories
    }


def _file_of(item: Mapping[str, Any]) -> DataFile:
    rows = item["rows"]
    return DataFile(
        path=_text(item["path"]),
        size=_count(item["size"]),
        nonce=_text(item["nonce"]),
        rows=None if rows is None else _count(rows),
        partition={_text(name): _maybe_text(value) for name, value in item["partition"]},
    )


def success_of(document: Document) -> Success:
    """Return the watermark that is stored; raise `CorruptRecord` if fields are missing."""
    body = document.body
    rows = body.get("rows")
    return _build(
        "_SUCCESS",
        lambda: Success(
            version=_count(body["version"]),
            job_id=_text(body["job"]),
            files=_count(body["files"]),
            rows=None if rows is None else _count(rows),
            bytes=_count(body["bytes"]),
        ),
    )


def _build(what: str, build: Callable[[], T]) -> T:
    try:
        return build()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRecord(f"{what} lacks a field, or has one of another type: {error!r}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _maybe_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return value
