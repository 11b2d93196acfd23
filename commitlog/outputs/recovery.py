"""Recovery from dead drivers, expiry of versions that are no longer read, and dry runs of both.

Committed jobs are completed. Other attempts are first fenced off, and only then undone. A dry run
follows the same rules, with a log and a publisher that change nothing (`PreviewLog`,
`PreviewPublisher`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from commitlog._util.concurrency import SERIAL
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, CorruptRecord, FormatTooNew, NotFound, PublishIncomplete
from commitlog.oplog.record_directory import RecordDirectory
from commitlog.outputs.job import attempt_of
from commitlog.outputs.log import AttemptOutcomes, CommitLog
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.publishing import Cleanup, Publisher
from commitlog.outputs.ready_jobs import ReadyQueue
from commitlog.outputs.records import CommitRecord
from commitlog.outputs.reports import LostFiles, OutputGcReport, RecoveryReport
from commitlog.paths import join
from commitlog.stores.api import ObjectInfo, Staged, StagedInfo

__all__ = ["PreviewLog", "PreviewPublisher", "collect", "recover"]

_log = logging.getLogger(__name__)

# Permanent errors of one job, which must not prevent the work on the others.
_LASTING = (CorruptRecord, FormatTooNew, PublishIncomplete)


def recover(
    log: CommitLog,
    pending: RecordDirectory,
    ready: ReadyQueue,
    publisher: Publisher,
    *,
    older_than: float,
    tag: str,
    clock: Clock,
) -> RecoveryReport:
    """Recover one output; see `Output.recover`.

    Args:
        log: the log of the output.
        pending: its pending entries.
        ready: its ready entries.
        publisher: its publisher.
        older_than: age in seconds from which an undecided attempt is considered dead.
        tag: the prefix of the attempts of this output, and of no other.
        clock: the clock, if the store does not give its time.
    """
    # Computed before the heartbeats are read, so that a slow listing does not make live jobs look dead.
    deadline = pending.now(clock) - older_than
    failures: list[CommitError] = []
    entries: dict[str, float] = {}
    for entry in pending.list():
        if attempt_of(entry.name) == entry.name:
            entries[entry.name] = entry.written
        else:
            what = f"{pending.path(entry.name)!r} is not a pending entry: its name is not an attempt id"
            failures.append(CorruptRecord(f"{what}; it was left unchanged; move it elsewhere"))
    alive = publisher.heartbeats()
    newest = {a: max(entries.get(a, 0.0), alive.get(a, 0.0)) for a in (*entries, *alive)}
    shared: dict[str, dict[str, str]] = {}
    for entry in ready.list():
        try:
            jobs = {each.job.attempt: each.job.job_id for each in ready.read(entry.name)}
        except NotFound:
            continue  # its jobs were committed meanwhile
        except (CorruptRecord, FormatTooNew) as error:
            failures.append(error)
            continue
        shared[entry.name] = jobs
        newest |= {attempt: max(entry.written, newest.get(attempt, 0.0)) for attempt in jobs}
    left_ready = {attempt: job_id for jobs in shared.values() for attempt, job_id in jobs.items()}
    uploads: dict[str, list[StagedInfo]] = {}
    records: list[StagedInfo] = []
    for upload in publisher.uploads():
        attempt = attempt_of(upload.path)
        if attempt is None:
            # A record that is too large for one request is an upload too before it is claimed.
            if upload.path.startswith(join(log.directory, "")):
                records.append(upload)
        elif attempt.startswith(tag):
            uploads.setdefault(attempt, []).append(upload)
            newest[attempt] = max(upload.initiated, newest.get(attempt, 0.0))

    # The listings came first, so the outcomes hold for everything in them. Up to the watermark
    # everything is published.
    complete = publisher.checked_watermark()
    found = log.outcomes(newest, after=complete)
    earlier: Mapping[str, bool] = {}
    if found.open:
        earlier = log.decided(found.open, until=complete)
    settled = {attempt for attempt, committed in earlier.items() if committed}
    found.aborted |= earlier.keys() - settled
    found.open -= settled | found.aborted
    dead = {attempt for attempt in found.open if newest[attempt] <= deadline}
    # Of an attempt that only sent heartbeats, only the last heartbeat is left, committed or not.
    silent = dead - entries.keys() - uploads.keys() - left_ready.keys()
    suspects: dict[str, str | None] = {}
    for attempt in sorted(dead - silent):
        try:
            suspects[attempt] = left_ready.get(attempt) or _job_id(pending, attempt)
        except FormatTooNew as error:
            failures.append(error)
        except CorruptRecord as error:
            advice = f"Once it is removed, a recovery rules attempt {attempt} out by its uploads"
            failures.append(CorruptRecord(f"{error}. {advice}"))
    fenced = log.abort_undecided(suspects, after=found.end)
    aborted = sorted(found.aborted | fenced.aborted)
    committed = {**found.committed, **fenced.committed}

    dropped = publisher.drop(upload for a in aborted for upload in uploads.get(a, ()))
    dropped += publisher.drop(upload for upload in records if upload.initiated <= deadline)
    for attempt in aborted:
        publisher.clear(attempt)
    # The log decides their jobs, so no driver can commit one of them later.
    decided = settled | committed.keys() | set(aborted)
    publisher.remove(ready.path(name) for name, jobs in shared.items() if jobs.keys() <= decided)

    completed: tuple[int, ...] = ()
    try:
        completed = publisher.roll_forward(failures=failures)
    except _LASTING as error:
        failures.append(error)
    # A driver may have prepared and committed its job between the two listings: then its attempt is
    # committed, and its entry was not listed. So each one is completed before an upload of it goes.
    done = settled | committed.keys()
    for attempt, record in committed.items():
        try:
            publisher.complete(record)
        except _LASTING as error:
            failures.append(error)
            done.remove(attempt)
    if done & uploads.keys():
        spare = [upload for upload in publisher.uploads() if attempt_of(upload.path) in done]
        unseen = log.outcomes(publisher.unpublished(spare)).committed
        for attempt, record in unseen.items():
            try:
                publisher.verify(record)
            except _LASTING as error:
                failures.append(error)
                done.remove(attempt)
        if unseen:
            spare = [upload for upload in publisher.uploads() if attempt_of(upload.path) in done]
        # All files of these attempts are published. The remaining uploads are of other task attempts.
        dropped += publisher.drop(spare)
    # A commit that has its uploads in its record leaves an entry of an earlier call as it is.
    for attempt in sorted(done & entries.keys()):
        publisher.forget(attempt)
    for attempt in sorted((done & alive.keys()) | silent):
        publisher.clear_heartbeat(attempt)
    losses = [loss for failure in failures if (loss := _loss(failure)) is not None]
    failures = [failure for failure in failures if _loss(failure) is None]
    lost = {
        loss.version: LostFiles(job_id=loss.job_id, version=loss.version, files=loss.lost)
        for loss in losses
    }
    if failures:
        for message in {str(failure) for failure in failures} - {str(failures[0])}:
            _log.warning("%s", message)
        raise failures[0]
    return RecoveryReport(
        completed=completed,
        aborted={attempt: suspects[attempt] for attempt in sorted(fenced.aborted)},
        uploads=dropped,
        live=tuple(sorted(found.open - dead)),
        lost=tuple(lost[version] for version in sorted(lost)),
    )


def collect(
    log: CommitLog,
    pending: RecordDirectory,
    ready: ReadyQueue,
    publisher: Publisher,
    *,
    older_than: float,
    tag: str,
    clock: Clock,
) -> OutputGcReport:
    """Collect the garbage of one output; see `Output.gc`. Arguments as for `recover`."""
    # Computed first: an attempt that is alive and that the recovery does not see begins later.
    dead_before = pending.now(clock) - older_than
    recovery = recover(log, pending, ready, publisher, older_than=older_than, tag=tag, clock=clock)
    deadline = pending.now(clock) - older_than
    state = log.state()
    versions = sorted(set(state.replaced.values()), reverse=True)
    before = next((version for version in versions if log.get(version)[0].time <= deadline), 0)
    removed = 0
    if before:
        log.expire(before, after=state.version)
        expired = (path for path, version in state.replaced.items() if version <= before)
        removed = publisher.remove(map(publisher.path_in_store, expired))

    hidden: dict[str, list[ObjectInfo]] = {}
    for info in publisher.hidden():
        attempt = attempt_of(info.path)
        if attempt is not None and attempt.startswith(tag):
            hidden.setdefault(attempt, []).append(info)
    # The listing came first, so the log now has all commits of the listed files.
    state = log.state()
    known = {publisher.path_in_store(path) for path in (*state.files, *state.replaced)}
    stray = {a: [i.path for i in infos if i.path not in known] for a, infos in hidden.items()}
    alive = publisher.heartbeats()
    dead = {
        attempt
        for attempt, infos in hidden.items()
        if stray[attempt]
        # The files of an attempt may be older than its last upload.
        and attempt not in recovery.live
        and max(alive.get(attempt, 0.0), *(info.last_modified for info in infos)) <= dead_before
    }
    lists = publisher.lists()
    listed = {attempt for info in lists if (attempt := attempt_of(info.path)) is not None}
    decided = log.decided(dead | listed, until=state.version)
    unknown = sorted(dead - decided.keys())
    fenced = log.abort_undecided(dict.fromkeys(unknown), after=state.version)
    removed += publisher.remove(
        path for attempt in sorted(dead - fenced.committed.keys()) for path in stray[attempt]
    )
    # A driver may have listed its files after a recovery had ruled its attempt out.
    ruled_out = {attempt for attempt in listed if decided.get(attempt) is False}
    removed += publisher.remove_lists(fenced.aborted | ruled_out, lists)
    return OutputGcReport(recovery=recovery, expired=state.expired, removed=removed)


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
        super().__init__(
            store,
            root,
            log,
            pending,
            clock=clock,
            backoff=Backoff(),
            executor=SERIAL,
            replace_below=lambda *_: None,
        )
        self._to_publish: set[str] = set()

    def complete(self, record: CommitRecord, cleanup: Cleanup | None = None) -> bool:
        """Return whether there is something to publish for `record`; errors as of `Publisher`."""
        if record.uploads is not None:
            hidden = record.uploads and self._hidden(record.files)
            if hidden:
                self._to_publish.add(record.attempt)
            return bool(hidden)
        try:
            pending = PendingJob.read(self._pending, record.attempt)
        except NotFound:
            return False
        if pending.lists(record):
            self._to_publish.add(record.attempt)
        return pending.lists(record)

    def roll_forward(
        self,
        until: int | None = None,
        *,
        strict: bool = True,
        failures: list[CommitError] | None = None,
    ) -> tuple[int, ...]:
        """Return the versions that would be completed."""
        records = self._log.read(self.watermark(), until)
        completed = (
            record.version
            for record in records
            if isinstance(record, CommitRecord) and self.complete(record)
        )
        return tuple(dict.fromkeys(completed))

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


def _loss(failure: BaseException | None) -> PublishIncomplete | None:
    """Return the error about lost files that `failure` is, or that it follows from; None: neither."""
    while isinstance(failure, PublishIncomplete) and not failure.lost:
        failure = failure.__cause__  # a version that replaces files waits for all versions before it
    return failure if isinstance(failure, PublishIncomplete) else None


def _job_id(pending: RecordDirectory, attempt: str) -> str | None:
    try:
        return PendingJob.read(pending, attempt).job_id
    except NotFound:
        return None
