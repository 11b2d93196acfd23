"""What the records of an output's log add up to: the state of the output at one version."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from commitlog.errors import CorruptRecord
from commitlog.outputs.job import NAMING, Visibility, attempt_of
from commitlog.outputs.records import AbortRecord, CommitRecord, DataFile, ExpiryRecord, Record

__all__ = ["State"]

#: Number of decided attempts whose outcomes a state has. If more attempts were decided after a driver
#: had died and before the next recovery, that recovery may abort its attempt although it was committed.
#: The first outcome counts, and only the log has it: see `CommitLog.outcomes`.
REMEMBERED = 1_000


@define(kw_only=True)
class State:
    """The state of an output at one version; `apply` advances it to the next one.

    Attributes:
        version: number of the last record.
        commit: number of the last commit; 0 if there is none.
        files: the files that are part of it, by path, in order of commit.
        replaced: files that were replaced but have not expired, and that only the log shows: by path,
            with the version that replaced them.
        jobs: the committed jobs with an id of the caller, with their versions.
        batches: for each stream, the number and version of its last batch.
        schema: schema of the last commit that had one.
        visibility: the visibility of the commits, or None if there is no commit.
        expired: versions below this one cannot be read any more.
        decided: the last `REMEMBERED` decided attempts, with their first known outcome.
    """

    version: int = 0
    commit: int = 0
    files: dict[str, DataFile] = field(factory=dict, repr=lambda files: f"<{len(files)} files>")
    replaced: dict[str, int] = field(factory=dict, repr=False)
    jobs: dict[str, int] = field(factory=dict, repr=False)
    batches: dict[str, tuple[int, int]] = field(factory=dict, repr=False)
    schema: str | None = field(default=None, repr=False)
    visibility: Visibility | None = None
    expired: int = 0
    decided: dict[str, bool] = field(factory=dict, repr=False)
    _known: set[str] | None = field(default=None, init=False, repr=False, eq=False)

    def committed(self, attempt: str) -> bool | None:
        """Return whether an attempt was committed; None if it is undecided, or was decided too long ago.

        False is no proof: an attempt that was committed, and then forgotten, may have been aborted.
        """
        return self.decided.get(attempt, True if attempt in self._authors() else None)

    def _authors(self) -> set[str]:
        """Return the attempts that committed the files."""
        if self._known is None:
            found = (attempt_of(path) for path in (*self.files, *self.replaced))
            self._known = {attempt for attempt in found if attempt is not None}
        return self._known

    def apply(
        self, record: Record, files: Iterable[DataFile], named: Iterable[str] = ()
    ) -> list[DataFile]:
        """Apply the next record; return the files that it replaced.

        Args:
            record: the record.
            files: the files that it adds.
            named: paths of the files that it names as replaced.

        Raises `CorruptRecord` if it commits a job again, or replaces files that are not there.
        """
        self.version = record.version
        self._known = None
        if isinstance(record, AbortRecord):
            self._decide(record.attempts, committed=False)
            return []
        if isinstance(record, ExpiryRecord):
            self.expired = max(self.expired, record.before)
            self.replaced = {p: by for p, by in self.replaced.items() if by > record.before}
            return []
        added = {file.path: file for file in files}
        if record.job_id in self.jobs or not self.files.keys().isdisjoint(added):
            raise CorruptRecord(
                f"record {record.version} commits job {record.job_id!r}, which an earlier one does, too:"
                " it is a copy. It was left as it is; remove it if it is the last one"
            )
        gone = self._replaced_by(record, added, named)
        for file in gone:
            del self.files[file.path]
            if file.hidden:
                self.replaced[file.path] = record.version
        self._decide([record.attempt], committed=True)
        self.files.update(added)
        self.commit = record.version
        self.visibility = record.visibility
        if record.schema is not None:
            self.schema = record.schema
        if record.batch is not None:
            self.batches[record.batch.stream] = record.batch.number, record.version
        elif record.job_id != record.attempt:
            self.jobs[record.job_id] = record.version
        return gone

    def _decide(self, attempts: Iterable[str], *, committed: bool) -> None:
        for attempt in attempts:
            self.decided.setdefault(attempt, committed)  # the first outcome counts
        for attempt in list(self.decided)[:-REMEMBERED]:
            del self.decided[attempt]

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
