"""The pending entry of a job: an operation-log entry whose decision is a commit or an abort record.

Imports the ground floor, the operation log's entries, the log's records, and those of the `ObjectStore`
port.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, field, frozen

from commitlog.errors import CorruptRecord
from commitlog.oplog.codec import Document
from commitlog.oplog.entries import Entries
from commitlog.oplog.fields import build, items, mapping, text
from commitlog.outputs.job import Job, StagedFile
from commitlog.outputs.records import DataFile, attempt
from commitlog.paths import join
from commitlog.stores.api import Staged

__all__ = ["PendingJob"]


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
            {**data.to_json(), "upload": file.staged.upload_id, "parts": list(file.staged.parts)}
            for data, file in zip(self.data_files(), self.files, strict=True)
        ]
        return Document("pending", {"job": self.job_id, "attempt": self.attempt, "files": files})

    @classmethod
    def read(cls, entries: Entries, attempt: str) -> PendingJob:
        """Return the entry of `attempt`. Raises `NotFound`, `CorruptRecord`, `FormatTooNew`."""
        entry = cls.from_document(entries.get(attempt))
        if entry.attempt != attempt:
            raise CorruptRecord(
                f"{entries.path(attempt)!r} is the pending entry of another attempt, {entry.attempt};"
                " it was left as it is"
            )
        return entry

    @classmethod
    def from_document(cls, document: Document) -> PendingJob:
        """Return the entry that is stored; raise `CorruptRecord` if a field is not right."""
        body = document.body

        def staged_file(item: object) -> StagedFile:
            data, fields = DataFile.from_json(item), mapping(item)
            staged = Staged(
                path=data.path,
                upload_id=text(fields["upload"]),
                size=data.size,
                nonce=data.nonce,
                parts=tuple(map(text, items(fields["parts"]))),
            )
            return StagedFile(staged=staged, rows=data.rows, partition=data.partition)

        return build(
            document,
            lambda: cls(
                job_id=text(body["job"]),
                attempt=attempt(body["attempt"]),
                files=tuple(map(staged_file, items(body["files"]))),
            ),
        )
