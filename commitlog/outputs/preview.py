"""What a recovery or a garbage collection would do: the same rules, with all changes left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from commitlog._util.concurrency import SERIAL
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit import ConditionalStore
from commitlog.errors import NotFound
from commitlog.oplog.record_directory import RecordDirectory
from commitlog.outputs.job import attempt_of
from commitlog.outputs.log import AttemptOutcomes, CommitLog
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.publishing import Noting, Publisher
from commitlog.outputs.records import CommitRecord
from commitlog.stores.api import Staged, StagedInfo

__all__ = ["PreviewLog", "PreviewPublisher"]


class PreviewLog(CommitLog):
    """A log to which nothing is written. Thread-safe but for `expired`.

    Attributes:
        expired: versions below this one would expire; 0 if none would.
    """

    expired = 0

    def abort_undecided(self, suspects: Mapping[str, str | None], *, after: int) -> AttemptOutcomes:
        """Return what would be decided if all that is open were ruled out now."""
        found = self.outcomes(suspects, after=after)
        found.aborted |= found.open
        found.open = set()
        return found

    def expire(self, before: int, *, after: int) -> None:
        """Note what would expire."""
        self.expired = before


class PreviewPublisher(Publisher):
    """Counts the work of a dry run, and changes nothing. For one use, by one thread.

    It does not try to publish: only a real run shows whether the store would refuse that.
    """

    def __init__(
        self,
        store: ConditionalStore,
        root: str,
        log: CommitLog,
        pending: RecordDirectory,
        *,
        clock: Clock,
    ) -> None:
        super().__init__(store, root, log, pending, clock=clock, backoff=Backoff(), executor=SERIAL)
        self._to_publish: set[str] = set()

    def complete(self, record: CommitRecord, noting: Noting | None = None) -> bool:
        """Return whether there is something to publish for `record`; errors as of `Publisher`."""
        try:
            pending = PendingJob.read(self._pending, record.attempt)
        except NotFound:
            return False
        if pending.lists(record):
            self._to_publish.add(record.attempt)
        return pending.lists(record)

    def roll_forward(
        self, until: int | None = None, *, strict: bool = True, done: CommitRecord | None = None
    ) -> tuple[int, ...]:
        """Return the versions that would be completed."""
        records = self._log.read(self.watermark(), until)
        return tuple(
            record.version
            for record in records
            if isinstance(record, CommitRecord) and self.complete(record)
        )

    def verify(self, record: CommitRecord) -> None:
        """Do nothing: `complete` counts the unpublished files."""

    def drop(self, uploads: Iterable[Staged | StagedInfo]) -> int:
        """Return how many would be dropped; those of jobs that would be published are not counted."""
        return len(
            {
                (upload.path, upload.upload_id)
                for upload in uploads
                if attempt_of(upload.path) not in self._to_publish
            }
        )

    def remove(self, paths: Iterable[str]) -> int:
        """Return how many objects would be removed."""
        return len(set(paths))

    def clear_heartbeat(self, attempt: str) -> None:
        """Do nothing: a heartbeat stays."""

    def forget(self, attempt: str) -> None:
        """Do nothing: a pending entry stays."""
