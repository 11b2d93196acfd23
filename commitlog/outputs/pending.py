"""The pending entry of a job: an operation-log entry whose decision is a commit or an abort record.

Imports the ground floor, the log's records, and the records of the `ObjectStore` port.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve, field, frozen

from commitlog.oplog.codec import Document
from commitlog.outputs.fields import build, text
from commitlog.outputs.job import Job, StagedFile
from commitlog.outputs.records import DataFile
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
    def from_document(cls, document: Document) -> PendingJob:
        """Return the entry that is stored; raise `CorruptRecord` if fields are missing."""
        body = document.body

        def staged_file(item: Mapping[str, Any]) -> StagedFile:
            data = DataFile.from_json(item)
            staged = Staged(
                path=data.path,
                upload_id=text(item["upload"]),
                size=data.size,
                nonce=data.nonce,
                parts=tuple(text(part) for part in item["parts"]),
            )
            return StagedFile(staged=staged, rows=data.rows, partition=data.partition)

        return build(
            "pending entry",
            lambda: cls(
                job_id=text(body["job"]),
                attempt=text(body["attempt"]),
                files=tuple(staged_file(item) for item in body["files"]),
            ),
        )
