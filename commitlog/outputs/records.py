"""What an output keeps in its log, commits and aborts, and the ``_SUCCESS`` that is derived from it.

The envelope (format, checksum) is that of `commitlog.oplog.codec`; here are the fields. Paths are
relative to the output, so that it can be moved, and no record holds a secret or anything of the writer's
machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from attrs import field, frozen

from commitlog.oplog.codec import Document
from commitlog.oplog.fields import (
    build,
    count,
    items,
    mapping,
    maybe_count,
    maybe_text,
    moment,
    pairs,
    path,
    text,
)
from commitlog.outputs.job import attempt_of

__all__ = [
    "AbortRecord",
    "CommitRecord",
    "DataFile",
    "Record",
    "Success",
    "attempt",
    "record_of",
    "total_rows",
]


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

    def to_json(self) -> dict[str, Any]:
        """Return the fields as they are stored, the partition in the order of its directories."""
        return {
            "path": self.path,
            "size": self.size,
            "nonce": self.nonce,
            "rows": self.rows,
            "partition": list(self.partition.items()),
        }

    @classmethod
    def from_json(cls, item: object) -> DataFile:
        """Return the file that `item` describes; for use in `build`."""
        fields = mapping(item)
        return cls(
            path=path(fields["path"]),
            size=count(fields["size"]),
            nonce=text(fields["nonce"]),
            rows=maybe_count(fields["rows"]),
            partition=pairs(fields["partition"]),
        )


def total_rows(files: Iterable[DataFile]) -> int | None:
    """Return the number of rows in all of `files`, or None if it is not known of one of them."""
    counts = [file.rows for file in files]
    return None if None in counts else sum(count or 0 for count in counts)


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
        return total_rows(self.files)

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
            "files": [file.to_json() for file in self.files],
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


def attempt(value: object) -> str:
    """Return `value`, which must be an attempt; for use in `build`. Entries are named after attempts."""
    if attempt_of(text(value)) != value:
        raise ValueError(f"{value!r} is no attempt")
    return text(value)


def record_of(version: int, document: Document) -> Record:
    """Return the log record number `version`; raise `CorruptRecord` if a field is not right."""
    body = document.body
    if document.kind == "abort":
        return build(
            document,
            lambda: AbortRecord(
                version=version,
                attempts={attempt(a): maybe_text(j) for a, j in mapping(body["attempts"]).items()},
                time=moment(body["time"]),
            ),
        )
    return build(
        document,
        lambda: CommitRecord(
            version=version,
            job_id=text(body["job"]),
            attempt=attempt(body["attempt"]),
            mode=text(body["mode"]),
            time=moment(body["time"]),
            schema=maybe_text(body["schema"]),
            files=tuple(map(DataFile.from_json, items(body["files"]))),
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

    @classmethod
    def from_document(cls, document: Document) -> Success:
        """Return the watermark that is stored; raise `CorruptRecord` if a field is not right."""
        body = document.body
        return build(
            document,
            lambda: cls(
                version=count(body["version"]),
                job_id=text(body["job"]),
                files=count(body["files"]),
                rows=maybe_count(body["rows"]),
                bytes=count(body["bytes"]),
            ),
        )
