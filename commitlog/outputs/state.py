"""What the records of an output's log add up to: the state of the output at one version."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from commitlog.errors import CorruptRecord, NotFound, Unavailable
from commitlog.outputs.job import NAMING, Batch, Visibility
from commitlog.outputs.job_index import JobIndex, Segment, add_key, attempt_key, job_key, stream_key
from commitlog.outputs.records import (
    AbortRecord,
    CommitRecord,
    DataFile,
    ExpiryRecord,
    Record,
    record_id,
)

__all__ = ["State"]


@define(kw_only=True)
class State:
    """The state of an output at one version; `apply` advances it to the next one.

    Attributes:
        version: number of the last record.
        commit: number of the last commit; 0 if there is none.
        files: the files that are part of it, by path, in order of commit.
        replaced: files that were replaced but have not expired, and that only the log shows: by path,
            with the version that replaced them.
        batches: for each stream, the number and version of its last batch.
        schema: schema of the last commit that had one.
        visibility: the visibility of the commits, or None if there is no commit.
        expired: versions below this one cannot be read any more.
        record_id: identifies the last record; see `commitlog.outputs.records.record_id`.
        keys: the keys of the records after the checkpoint that it began with, for the index of jobs.
        indexed: version of that checkpoint; 0 if there is none.
        segments: the index of that checkpoint.
        index: reads that index.
    """

    version: int = 0
    commit: int = 0
    files: dict[str, DataFile] = field(factory=dict, repr=lambda files: f"<{len(files)} files>")
    replaced: dict[str, int] = field(factory=dict, repr=False)
    batches: dict[str, tuple[int, int]] = field(factory=dict, repr=False)
    schema: str | None = field(default=None, repr=False)
    visibility: Visibility | None = None
    expired: int = 0
    record_id: str = ""
    keys: dict[str, tuple[int, int]] = field(factory=dict, repr=False)
    indexed: int = field(default=0, repr=False)
    segments: tuple[Segment, ...] = field(default=(), repr=False)
    index: JobIndex | None = field(default=None, repr=False, eq=False)
    _place: int = field(default=0, init=False, repr=False, eq=False)

    def committed(self, attempt: str) -> bool | None:
        """Return whether an attempt was committed; None if it is undecided.

        Reads a part of the index of jobs, unless it was read before. Raises `Unavailable` if later
        checkpoints have replaced that index, and `CorruptRecord`.
        """
        key = attempt_key(attempt)
        try:
            found = {} if self.index is None else self.index.find([key])
        except NotFound as error:
            raise Unavailable(
                f"others have gone on while the log was read; try again ({error})"
            ) from None
        outcome = found.get(key, self.keys.get(key))
        return None if outcome is None else bool(outcome[1])

    def apply(
        self, record: Record, files: Iterable[DataFile], named: Iterable[str] = ()
    ) -> list[DataFile]:
        """Apply the next record; return the files that it replaced.

        Args:
            record: the record.
            files: the files that it adds.
            named: paths of the files that it names as replaced.

        Raises `CorruptRecord` if it is a copy of an earlier one, or replaces files that are not there.
        """
        if record.version > self.version:
            self.version, self.record_id, self._place = record.version, record_id(record), -1
        self._place += 1
        if isinstance(record, AbortRecord):
            for attempt in record.attempts:
                add_key(self.keys, attempt_key(attempt), (record.version, 0))
            return []
        if isinstance(record, ExpiryRecord):
            self.expired = max(self.expired, record.before)
            self.replaced = {p: by for p, by in self.replaced.items() if by > record.before}
            return []
        added = {file.path: file for file in files}
        again = {job_key(record.job_id), attempt_key(record.attempt)} & self.keys.keys()
        if again or not self.files.keys().isdisjoint(added):
            raise CorruptRecord(
                f"record {record.version} commits job {record.job_id!r}, which an earlier one does, too:"
                " it is a copy. It was left as it is; remove it if it is the last one"
            )
        gone = self._replaced_by(record, added, named)
        for file in gone:
            del self.files[file.path]
            if file.hidden:
                self.replaced[file.path] = record.version
        self.files.update(added)
        self.commit = record.version
        self.visibility = record.visibility
        if record.schema is not None:
            self.schema = record.schema
        self._add_keys(record)
        return gone

    def _add_keys(self, record: CommitRecord) -> None:
        add_key(self.keys, attempt_key(record.attempt), (record.version, 1))
        if record.batch is not None:
            self.batches[record.batch.stream] = record.batch.number, record.version
        elif record.job_id != record.attempt:
            add_key(self.keys, job_key(record.job_id), (record.version, self._place))
            batch = Batch.named(record.job_id)
            if batch is not None:
                add_key(self.keys, stream_key(batch.stream), (batch.number, record.version))

    def _replaced_by(
        self, record: CommitRecord, added: dict[str, DataFile], named: Iterable[str]
    ) -> list[DataFile]:
        if record.mode in NAMING:
            try:
                return [self.files[path] for path in named]
            except KeyError as error:
                raise CorruptRecord(
                    f"record {record.version} replaces {error}, which is not part of the output: a"
                    " record before it is not the one that was committed. It was left unchanged"
                ) from None
        if record.mode == "overwrite":
            return list(self.files.values())
        if record.mode == "overwrite-partitions":
            partitions = {file.partition_key for file in added.values()}
            return [file for file in self.files.values() if file.partition_key in partitions]
        return []
