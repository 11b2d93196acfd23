"""What to do about drivers that died: finish what is committed, fence off and undo what is not.

Imports the ground floor, the operation log's entries, the log and the publisher.
"""

from __future__ import annotations

import logging

from commitlog.clock import Clock
from commitlog.errors import CommitError, CorruptRecord, FormatTooNew, NotFound, PublishIncomplete
from commitlog.oplog.entries import Entries
from commitlog.outputs.job import attempt_of
from commitlog.outputs.log import CommitLog
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.publishing import Publisher
from commitlog.outputs.reports import RecoveryReport
from commitlog.paths import join
from commitlog.stores.api import StagedInfo

__all__ = ["recover"]

_log = logging.getLogger(__name__)

# What is so with one job, and stays so when the others are done: it must not keep them from it.
_LASTING = (CorruptRecord, FormatTooNew, PublishIncomplete)


def recover(
    log: CommitLog,
    pending: Entries,
    publisher: Publisher,
    *,
    older_than: float,
    tag: str,
    clock: Clock,
) -> RecoveryReport:
    """Recover one output; see `Output.recover` for what that means.

    Args:
        log: its log.
        pending: its pending entries.
        publisher: its publisher.
        older_than: age in seconds from which an undecided attempt is taken for dead.
        tag: what the attempts of this output, and of no other, begin with.
        clock: what time it is, if the store does not tell.
    """
    failures: list[CommitError] = []
    entries: dict[str, float] = {}
    for entry in pending.list():
        if attempt_of(entry.name) == entry.name:
            entries[entry.name] = entry.written
        else:
            what = f"{pending.path(entry.name)!r} is no pending entry, for its name is no attempt"
            failures.append(CorruptRecord(f"{what}; it was left as it is, move it elsewhere"))
    newest = dict(entries)
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

    publisher.checked_watermark()
    # The listings came first, so whatever a verdict says holds of all that they show.
    found = log.verdicts(newest)
    deadline = pending.now(clock) - older_than
    dead = {attempt for attempt in found.open if newest[attempt] <= deadline}
    suspects: dict[str, str | None] = {}
    for attempt in sorted(dead):
        try:
            suspects[attempt] = _job_id(pending, attempt)
        except FormatTooNew as error:
            failures.append(error)
        except CorruptRecord as error:
            advice = f"Once it is removed, a recovery rules attempt {attempt} out by its uploads"
            failures.append(CorruptRecord(f"{error}. {advice}"))
    fenced = log.fence(suspects, after=found.end)
    aborted = sorted(found.aborted | fenced.aborted)
    committed = {**found.committed, **fenced.committed}

    dropped = publisher.drop(upload for a in aborted for upload in uploads.get(a, ()))
    dropped += publisher.drop(upload for upload in records if upload.initiated <= deadline)
    for attempt in aborted:
        if attempt in entries:
            pending.remove(attempt)

    completed: tuple[int, ...] = ()
    try:
        completed = publisher.roll_forward()
    except _LASTING as error:
        failures.append(error)
    published = set(committed)
    for attempt, record in committed.items():
        if attempt in entries:
            try:
                publisher.complete(record)
            except _LASTING as error:
                failures.append(error)
                published.remove(attempt)
    # All that these attempts committed is published by now: what is left lost to another task attempt.
    if published & uploads.keys():
        dropped += publisher.drop(u for u in publisher.uploads() if attempt_of(u.path) in published)
    if failures:
        for message in {str(failure) for failure in failures} - {str(failures[0])}:
            _log.warning("%s", message)
        raise failures[0]
    return RecoveryReport(
        completed=completed,
        aborted={attempt: suspects[attempt] for attempt in sorted(fenced.aborted)},
        uploads=dropped,
        live=tuple(sorted(found.open - dead)),
    )


def _job_id(pending: Entries, attempt: str) -> str | None:
    try:
        return PendingJob.read(pending, attempt).job_id
    except NotFound:
        return None
