"""The pending entry of a job: an operation-log entry whose decision is a commit or an abort record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from attrs import evolve, field, frozen

from commitlog.errors import CorruptRecord
from commitlog.oplog.codec import Document
from commitlog.oplog.record_directory import RecordDirectory
from commitlog.oplog.validate import build, items, text
from commitlog.outputs.job import Job, StagedFile
from commitlog.outputs.manifest import Manifests, staged_from_json, staged_to_json
from commitlog.outputs.records import CommitRecord, DataFile, Manifest, attempt
from commitlog.paths import join
from commitlog.stores.api import Staged

__all__ = ["PendingJob"]

#: Most files that a pending entry and a commit record list themselves.
INLINE_FILES = 1_000


@frozen(kw_only=True)
class PendingJob:
    """Everything that a job staged, written before it is committed.

    Attributes:
        job_id: the job.
        attempt: the attempt at it.
        files: the uploads, with paths relative to the output; empty if there are manifests.
        manifests: lists of the uploads, if they are too many.
    """

    job_id: str
    attempt: str
    files: tuple[StagedFile, ...] = field(default=(), repr=lambda files: f"<{len(files)} files>")
    manifests: tuple[Manifest, ...] = ()

    @classmethod
    def of(cls, job: Job, files: Iterable[StagedFile], manifests: Manifests) -> PendingJob:
        """Return the entry for `files`, whose paths are relative to the output.

        A list that is too long is stored as manifests.
        """
        files = tuple(files)
        if len(files) <= INLINE_FILES:
            return cls(job_id=job.job_id, attempt=job.attempt, files=files)
        stored = manifests.write(job.attempt, files)
        return cls(job_id=job.job_id, attempt=job.attempt, manifests=stored)

    @classmethod
    def within(cls, record: CommitRecord) -> PendingJob:
        """Return what `record` has in place of an entry."""
        return cls(job_id=record.job_id, attempt=record.attempt, files=record.staged())

    def staged(self, manifests: Manifests) -> Iterator[StagedFile]:
        """Yield all files, those in manifests included."""
        return chain(self.files, *(manifests.read(each) for each in self.manifests))

    def uploads(self, manifests: Manifests, root: str) -> Iterator[Staged]:
        """Yield the uploads as the store knows them, below `root`."""
        for file in self.staged(manifests):
            yield evolve(file.staged, path=join(root, file.staged.path))

    def lists(self, record: CommitRecord) -> bool:
        """Return whether `record` has the same files."""
        return (self.data_files(), self.manifests) == (record.files, record.manifests)

    def data_files(self) -> tuple[DataFile, ...]:
        """Return `files` as committed files."""
        return tuple(map(DataFile.of, self.files))

    def to_document(self) -> Document:
        """Return the record to store."""
        body = {
            "job": self.job_id,
            "attempt": self.attempt,
            "files": [staged_to_json(file) for file in self.files],
            "manifests": [manifest.to_json() for manifest in self.manifests],
        }
        return Document("pending", body)

    @classmethod
    def read(cls, entries: RecordDirectory, attempt: str) -> PendingJob:
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
        return build(
            document,
            lambda: cls(
                job_id=text(body["job"]),
                attempt=attempt(body["attempt"]),
                files=tuple(map(staged_from_json, items(body["files"]))),
                manifests=tuple(map(Manifest.from_json, items(body["manifests"]))),
            ),
        )
