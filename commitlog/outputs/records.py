"""What an output keeps in its log: commits, aborts, expiries; and ``_SUCCESS``, derived from it.

The envelope (format, checksum) is that of `commitlog.oplog.codec`; here are the fields. Paths are
relative to the output, so that it can be moved, and no record holds a secret or anything of the writer's
machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, get_args

from attrs import asdict, field, frozen

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.oplog.codec import ADVICE, Document
from commitlog.oplog.validate import (
    build,
    count,
    items,
    mapping,
    maybe_count,
    maybe_text,
    moment,
    pairs,
    path,
    scalar,
    text,
)
from commitlog.outputs.foreign import ForeignFile
from commitlog.outputs.job import (
    HIDDEN,
    NAMING,
    Batch,
    Mode,
    StagedFile,
    Stats,
    Visibility,
    attempt_of,
)
from commitlog.paths import join
from commitlog.stores.api import Staged

__all__ = [
    "KINDS",
    "NEWEST",
    "AbortRecord",
    "CommitRecord",
    "DataFile",
    "ExpiryRecord",
    "Manifest",
    "Record",
    "Success",
    "attempt",
    "batch_of",
    "document_of",
    "one_of",
    "record_id",
    "records_of",
    "total_rows",
]

#: Format of a record that has the uploads of its jobs, and the newest format that is read. A program
#: that reads only older ones would take such a job for published, because it has no pending entry.
NEWEST = 2


@frozen(kw_only=True)
class DataFile:
    """A file of a committed job.

    Attributes:
        path: path relative to the output.
        size: bytes.
        nonce: the nonce in its metadata, which identifies it; "" if another program wrote the upload,
            under a name that no other upload has.
        rows: number of rows, if its writer gave it.
        partition: values of the partition columns; None for null.
        stats: as in `StagedFile`.
    """

    path: str
    size: int
    nonce: str
    rows: int | None = None
    partition: Mapping[str, str | None] = field(factory=dict, hash=False)
    stats: Mapping[str, Stats] = field(factory=dict, hash=False, repr=False)

    @classmethod
    def of(cls, file: StagedFile) -> DataFile:
        """Return the committed form of `file`, whose path is relative to the output."""
        return cls(
            path=file.staged.path,
            size=file.staged.size,
            nonce=file.staged.nonce,
            rows=file.rows,
            partition=file.partition,
            stats=file.stats,
        )

    @property
    def partition_key(self) -> frozenset[tuple[str, str | None]]:
        """The partition as a key: the values of the columns, in whichever order they are given."""
        return frozenset(self.partition.items())

    @property
    def hidden(self) -> bool:
        """True if only the log shows the file."""
        return self.path.startswith(join(HIDDEN, ""))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as they are stored, the partition in the order of its directories."""
        return {
            "path": self.path,
            "size": self.size,
            "nonce": self.nonce,
            "rows": self.rows,
            "partition": list(self.partition.items()),
            **({"stats": {name: list(each) for name, each in self.stats.items()}} if self.stats else {}),
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
            stats={text(name): _stats(each) for name, each in mapping(fields.get("stats", {})).items()},
        )


def _stats(value: object) -> Stats:
    least, most, nulls = items(value)
    return scalar(least), scalar(most), maybe_count(nulls)


@frozen(kw_only=True)
class Manifest:
    """A list of files that is an object of its own; see `commitlog.outputs.manifest`.

    Attributes:
        name: its path below the directory of manifests.
        sha256: of the object, in hexadecimal digits.
        files: number of files in it.
        rows: number of rows in them, if all are known.
        bytes: their size.
    """

    name: str
    sha256: str
    files: int
    rows: int | None
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the fields as they are stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, item: object) -> Manifest:
        """Return the manifest that `item` names; for use in `build`."""
        fields = mapping(item)
        return cls(
            name=path(fields["name"]),
            sha256=text(fields["sha256"]),
            files=count(fields["files"]),
            rows=maybe_count(fields["rows"]),
            bytes=count(fields["bytes"]),
        )


def total_rows(parts: Iterable[DataFile | Manifest]) -> int | None:
    """Return the number of rows in all of `parts`, or None if it is not known of one of them."""
    counts = [part.rows for part in parts]
    return None if None in counts else sum(count or 0 for count in counts)


@frozen(kw_only=True)
class CommitRecord:
    """The record of a committed job; its number is the version of the output that the job made.

    Attributes:
        version: number of the record, from 1. Records between two commits are of other kinds.
        job_id: the job.
        attempt: the committed attempt.
        mode: the mode of the job. It determines which files of earlier versions are replaced: all
            (``overwrite``), those in the partitions of the job's files (``overwrite-partitions``), or
            the named ones (``overwrite-files``; ``rewrite``: the job's files hold the same rows).
        time: epoch seconds by the driver's clock, for people.
        files: the added files; empty if there are manifests.
        manifests: lists of the files, if they are too many; `Output.files` reads them.
        schema: schema of the files as a JSON text, if its writer gave it.
        visibility: the readers that see the files.
        batch: the batch of a stream that the job was, or None.
        replaced: paths of the replaced files that it names, unless there are lists of them.
        replaced_manifests: lists of those files, if they are too many; `Output.replaced` reads them.
        foreign: replaced files that no job of the output wrote, unless there are lists of them. They are
            removed once the files of the job are visible.
        foreign_manifests: lists of those files, if they are too many.
        uploads: upload id and parts of each of `files`; then the job has no pending entry, and this
            record tells how to publish it. Empty if there is nothing to publish. None: it had an entry.
    """

    version: int
    job_id: str
    attempt: str
    mode: Mode
    time: float
    files: tuple[DataFile, ...] = field(default=(), repr=lambda files: f"<{len(files)} files>")
    manifests: tuple[Manifest, ...] = field(default=(), repr=lambda m: f"<{len(m)} manifests>")
    schema: str | None = field(default=None, repr=False)
    visibility: Visibility = "listed"
    batch: Batch | None = None
    replaced: tuple[str, ...] = field(default=(), repr=lambda paths: f"<{len(paths)} files>")
    replaced_manifests: tuple[Manifest, ...] = field(default=(), repr=lambda m: f"<{len(m)} manifests>")
    foreign: tuple[ForeignFile, ...] = field(default=(), repr=lambda files: f"<{len(files)} files>")
    foreign_manifests: tuple[Manifest, ...] = field(default=(), repr=lambda m: f"<{len(m)} manifests>")
    uploads: tuple[tuple[str, tuple[str, ...]], ...] | None = field(default=None, repr=False)

    @property
    def file_count(self) -> int:
        """Number of all files."""
        return len(self.files) + sum(manifest.files for manifest in self.manifests)

    @property
    def replaced_count(self) -> int:
        """Number of all files that it names as replaced."""
        return len(self.replaced) + sum(manifest.files for manifest in self.replaced_manifests)

    @property
    def rows(self) -> int | None:
        """Number of rows in all files, or None if one of them is not known."""
        return total_rows((*self.files, *self.manifests))

    @property
    def bytes(self) -> int:
        """Size of all files."""
        sizes = (*(file.size for file in self.files), *(each.bytes for each in self.manifests))
        return sum(sizes)

    def names(self, paths: tuple[str, ...]) -> bool:
        """Return whether it replaces these files by name; with manifests, whether it is as many."""
        if self.replaced_manifests:
            return self.replaced_count == len(paths)
        return self.replaced == paths

    def staged(self) -> tuple[StagedFile, ...]:
        """Return the files as they were staged, from `uploads`, with paths relative to the output."""
        return tuple(
            StagedFile(
                staged=Staged(
                    path=file.path, upload_id=upload, size=file.size, nonce=file.nonce, parts=parts
                ),
                rows=file.rows,
                partition=file.partition,
                stats=file.stats,
            )
            for file, (upload, parts) in zip(self.files, self.uploads or (), strict=False)
        )

    @property
    def replaces(self) -> bool:
        """True if files of earlier versions are no part of this one."""
        return self.mode not in ("append", "error")

    @property
    def replaces_foreign(self) -> bool:
        """True if it names files to be removed that no job of the output wrote."""
        return bool(self.foreign or self.foreign_manifests)

    def to_document(self) -> Document:
        """Return the record to store. The version is the entry's name."""
        batch = self.batch
        named = {
            "replaced": list(self.replaced),
            "replaced_manifests": [manifest.to_json() for manifest in self.replaced_manifests],
        }
        foreign = {
            "foreign": [file.to_json() for file in self.foreign],
            "foreign_manifests": [manifest.to_json() for manifest in self.foreign_manifests],
        }
        body = {
            "job": self.job_id,
            "attempt": self.attempt,
            "mode": self.mode,
            "time": self.time,
            "schema": self.schema,
            "visibility": self.visibility,
            "batch": None if batch is None else [batch.stream, batch.number],
            "files": [file.to_json() for file in self.files],
            "manifests": [manifest.to_json() for manifest in self.manifests],
            **(named if self.mode in NAMING else {}),
            **(foreign if self.replaces_foreign else {}),
        }
        if self.uploads is None:
            return Document("commit", body)
        uploads = [[upload, list(parts)] for upload, parts in self.uploads]
        return Document("commit", {**body, "uploads": uploads}, format=NEWEST)


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
        """Return the record to store. The version is the entry's name."""
        return Document("abort", {"attempts": dict(self.attempts), "time": self.time})


@frozen(kw_only=True)
class ExpiryRecord:
    """Old versions that cannot be read any more, since what later ones replaced was removed.

    Attributes:
        version: number of the record.
        before: versions below this one have expired.
        time: epoch seconds by the writer's clock, for people.
    """

    version: int
    before: int
    time: float

    def to_document(self) -> Document:
        """Return the record to store. The version is the entry's name."""
        return Document("expiry", {"before": self.before, "time": self.time})


#: A record of the log of an output.
Record: TypeAlias = CommitRecord | AbortRecord | ExpiryRecord


def record_id(record: Record) -> str:
    """Return an id of a record; a record of the same number in another output has another one."""
    if isinstance(record, CommitRecord):
        return record.attempt
    if isinstance(record, AbortRecord):
        return min(record.attempts, default="")
    return f"{record.before} {record.time}"


#: The kinds of document that are records of a log.
KINDS = frozenset({"commit", "commits", "abort", "expiry"})


def batch_of(value: object) -> Batch | None:
    """Return the batch that `value` names, or None; for use in `build`."""
    if value is None:
        return None
    stream, number = items(value)
    return Batch(text(stream), count(number))


def one_of(kinds: Any, value: object) -> Any:
    """Return `value`, which must be one of those of the literal type `kinds`; for use in `build`."""
    if not isinstance(value, str) or value not in get_args(kinds):
        raise ValueError(f"{value!r} is unknown; it must be one of {', '.join(get_args(kinds))}")
    return value


def attempt(value: object) -> str:
    """Return `value`, which must be an attempt; for use in `build`. Entries are named after attempts."""
    if attempt_of(text(value)) != value:
        raise ValueError(f"{value!r} is not an attempt id")
    return text(value)


def document_of(records: Sequence[CommitRecord]) -> Document:
    """Return the document of a log record that commits one job or several, each with its uploads."""
    documents = [record.to_document() for record in records]
    if len(documents) == 1:
        return documents[0]
    return Document("commits", {"jobs": [dict(each.body) for each in documents]}, format=NEWEST)


def records_of(version: int, document: Document) -> tuple[Record, ...]:
    """Return the content of log record number `version`: one record, or a commit for each of its jobs.

    Raises `CorruptRecord` if a field is invalid, and `FormatTooNew` for a mode of a later release: the
    files that it replaces are unknown.
    """
    body = document.body
    if document.kind == "abort":
        return (
            build(
                document,
                lambda: AbortRecord(
                    version=version,
                    attempts={attempt(a): maybe_text(j) for a, j in mapping(body["attempts"]).items()},
                    time=moment(body["time"]),
                ),
            ),
        )
    if document.kind == "expiry":
        return (
            build(
                document,
                lambda: ExpiryRecord(
                    version=version, before=count(body["before"]), time=moment(body["time"])
                ),
            ),
        )
    if document.kind == "commits":
        if document.format < NEWEST:
            raise CorruptRecord(
                f"{document.path!r} commits several jobs in format {document.format}, which has no such"
                f" record. {ADVICE}"
            )
        jobs = build(document, lambda: [mapping(each) for each in items(body["jobs"])])
        if len(jobs) < 2:
            raise CorruptRecord(f"{document.path!r} is of {len(jobs)} jobs, and must be of several")
        return tuple(_commit_of(version, document, each) for each in jobs)
    return (_commit_of(version, document, body),)


def _commit_of(version: int, document: Document, body: Mapping[str, Any]) -> CommitRecord:
    mode = body.get("mode")
    if isinstance(mode, str) and mode not in get_args(Mode):
        raise FormatTooNew(
            f"{document.path!r} commits a job of mode {mode!r}, which this library does not know:"
            " upgrade it"
        )
    naming = mode in get_args(Mode) and mode in NAMING

    def make() -> CommitRecord:
        files = tuple(map(DataFile.from_json, items(body["files"])))
        uploads = tuple(map(_upload, items(body["uploads"]))) if "uploads" in body else None
        if document.format < NEWEST:
            uploads = None
        elif uploads is None or len(uploads) not in (0, len(files)):
            raise ValueError("it lacks uploads of its files")
        return CommitRecord(
            version=version,
            job_id=text(body["job"]),
            attempt=attempt(body["attempt"]),
            mode=one_of(Mode, body["mode"]),
            time=moment(body["time"]),
            schema=maybe_text(body["schema"]),
            visibility=one_of(Visibility, body["visibility"]),
            batch=batch_of(body["batch"]),
            files=files,
            manifests=tuple(map(Manifest.from_json, items(body["manifests"]))),
            replaced=tuple(map(path, items(body["replaced"]))) if naming else (),
            replaced_manifests=tuple(map(Manifest.from_json, items(body["replaced_manifests"])))
            if naming
            else (),
            foreign=tuple(map(ForeignFile.from_json, items(body.get("foreign", [])))),
            foreign_manifests=tuple(map(Manifest.from_json, items(body.get("foreign_manifests", [])))),
            uploads=uploads,
        )

    return build(document, make)


def _upload(value: object) -> tuple[str, tuple[str, ...]]:
    upload, parts = items(value)
    return text(upload), tuple(map(text, items(parts)))


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
            files=record.file_count,
            rows=record.rows,
            bytes=record.bytes,
        )

    def to_document(self) -> Document:
        """Return the record to store."""
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
