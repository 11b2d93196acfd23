"""What follows the commit point: uploads become visible, and ``_SUCCESS`` says how far.

Everything here is idempotent and may be done by anyone, the job's own driver, the next one, a reader
or a recovery, at the same time. That is safe because an upload's name belongs to one attempt alone, a
published file is recognised by its nonce, and these two statements hold at any moment:

* the pending entry of a committed attempt is removed only after all of its files were seen published;
  so where there is none, there is nothing left to publish;
* ``_SUCCESS`` names a version only after that and every earlier one were published; so only later
  records need to be looked at. It is replaced on condition of what it was, and never goes back.

Imports the ground floor, the operation log's entries, the log and the records.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    BucketNotFound,
    CommitError,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    PublishIncomplete,
    Unavailable,
)
from commitlog.oplog.codec import decode, encode
from commitlog.oplog.entries import Entries
from commitlog.outputs.job import attempt_of
from commitlog.outputs.log import CommitLog
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.records import CommitRecord, DataFile, Success
from commitlog.paths import join
from commitlog.stores.api import Staged, StagedInfo

__all__ = ["Executor", "Publisher"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """What runs requests side by side: a `concurrent.futures.Executor`, as far as it is needed here."""

    def map(self, work: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
        """Call `work` with each of `items`, and yield the results in order."""


class Publisher:
    """Completes what an output's log has decided. Thread-safe.

    Args:
        store: where.
        root: path of the output.
        log: its log.
        pending: its pending entries, named by attempt.
        clock: what to wait on between tries.
        backoff: how often a request is repeated that may be repeated.
        executor: runs requests side by side; None: one after the other, in the caller's thread.
    """

    def __init__(
        self,
        store: ConditionalStore,
        root: str,
        log: CommitLog,
        pending: Entries,
        *,
        clock: Clock,
        backoff: Backoff,
        executor: Executor | None,
    ) -> None:
        self._store = store
        self._root = root
        self._log = log
        self._pending = pending
        self._clock = clock
        self._backoff = backoff
        self._executor = executor
        self.success_path = join(root, "_SUCCESS")

    def watermark(self) -> int:
        """Return the version up to which every file is visible; 0 if that is not known."""
        success, _ = self._success()
        return 0 if success is None else success.version

    def checked_watermark(self) -> int:
        """Return the same, after a look at the record.

        Whoever goes on from there without having read the log so far needs it: a job that is committed
        behind a gap in the numbers is never read. Raises `CorruptRecord` if ``_SUCCESS`` is not of this
        log.
        """
        success, _ = self._success()
        if success is None:
            return 0
        try:
            record = self._log.get(success.version)
        except BucketNotFound:
            raise
        except NotFound:
            record = None
        if not isinstance(record, CommitRecord) or Success.of(record) != success:
            raise CorruptRecord(
                f"{self.success_path!r} tells of version {success.version} what {self._log.directory!r}"
                " does not: records were lost, or it is another output's. Restore them, or remove it"
            )
        return success.version

    def complete(self, record: CommitRecord, *, strict: bool = True) -> bool:
        """Make every file of `record` visible; return False if that had been done before.

        `strict` is that of `roll_forward`. Raises `PublishIncomplete`, and `CorruptRecord` if the
        pending entry is corrupt and not all files are visible: only it tells how to publish them.
        """
        pending: PendingJob | None
        try:
            pending = PendingJob.read(self._pending, record.attempt)
        except BucketNotFound:
            raise
        except NotFound:
            return False
        except CorruptRecord as error:
            self._check_all_visible(record, error)
            pending = None
        # An entry that names other files was left by a call that came after all this was done.
        todo = pending is not None and pending.data_files() == record.files
        if pending is not None and todo:
            self.publish(record, pending)
        with _noting(strict):
            self.forget(record)
        return todo

    def publish(self, record: CommitRecord, pending: PendingJob) -> None:
        """Make every file of `record` visible, of which `pending` is the entry.

        Raises `PublishIncomplete`.
        """
        errors = self._each(self._publish, pending.uploads(self._root))
        if errors:
            raise _incomplete(record, errors) from errors[0]

    def forget(self, record: CommitRecord) -> None:
        """Remove the pending entry of `record`, all of whose files were seen published."""
        self._persist(partial(self._pending.remove, record.attempt))

    def roll_forward(self, until: int | None = None, *, strict: bool = True) -> tuple[int, ...]:
        """Complete every commit up to version `until`, or to the log's end, and advance ``_SUCCESS``.

        Returns the versions that had not been complete. Raises `PublishIncomplete`, `CorruptRecord` or
        `FormatTooNew` after all others were completed if one of them cannot be.

        Args:
            until: number of a record; None: the last one.
            strict: whether it is an error if all files are visible and that cannot be noted. To readers
                it makes no difference, and they may lack the permission.
        """
        completed = []
        last: CommitRecord | None = None
        failure: CommitError | None = None
        start = end = self.watermark()
        for record in self._log.read(start, until):
            end = record.version
            if isinstance(record, CommitRecord):
                try:
                    if self.complete(record, strict=strict):
                        completed.append(record.version)
                except (CorruptRecord, FormatTooNew, PublishIncomplete) as error:
                    failure = failure or error
                if failure is None:
                    last = record
        if last is not None:
            with _noting(strict):
                self._advance(last)
        if failure is not None:
            raise failure
        if end == start:
            self.checked_watermark()
        return tuple(completed)

    def uploads(self, attempt: str | None = None) -> Iterator[StagedInfo]:
        """Yield the unpublished uploads below the output, or those of one attempt alone."""
        for upload in self._store.store.list_staged(join(self._root, "")):
            if attempt is None or attempt_of(upload.path) == attempt:
                yield upload

    def drop(self, uploads: Iterable[Staged | StagedInfo]) -> int:
        """Drop uploads that will never be published; return how many. Raises the first error."""
        # What was staged and what is listed may name the same upload.
        distinct = {(upload.path, upload.upload_id): upload for upload in uploads}
        errors = self._each(self._drop, list(distinct.values()))
        if errors:
            raise errors[0]
        return len(distinct)

    # inside

    def _check_all_visible(self, record: CommitRecord, error: CorruptRecord) -> None:
        def check(file: DataFile) -> None:
            if self._store.head(join(self._root, file.path)).nonce != file.nonce:
                raise NotFound(f"{file.path!r} is not what was committed")

        hidden = self._each(check, record.files)
        if hidden:
            raise CorruptRecord(
                f"{error}. Job {record.job_id!r} is committed as version {record.version}, and only that"
                f" entry tells how to publish {len(hidden)} of its files, which are not visible"
            ) from error

    def _publish(self, staged: Staged) -> None:
        def once() -> None:
            try:
                self._store.store.publish(staged)
            except NotFound as error:
                if isinstance(error, BucketNotFound):
                    raise  # which HEAD cannot tell from a file that is gone
                if self._store.head(staged.path).nonce != staged.nonce:
                    raise

        self._persist(once)

    def _drop(self, upload: Staged | StagedInfo) -> None:
        self._persist(partial(self._store.store.abort, upload))

    def _persist(self, action: Callable[[], None]) -> None:
        """Do what may be done twice until its outcome is known."""
        error: CommitError | None = None
        for _ in self._backoff.attempts(self._clock):
            try:
                return action()
            except (Conflict, OutcomeUnknown, Unavailable) as failure:
                error = failure
        assert error is not None
        raise error

    def _each(self, work: Callable[[T], None], items: Iterable[T]) -> list[CommitError]:
        def guarded(item: T) -> CommitError | None:
            try:
                work(item)
            except CommitError as error:
                return error
            return None

        run = map if self._executor is None else self._executor.map
        return [error for error in run(guarded, items) if error is not None]

    def _success(self) -> tuple[Success | None, str | None]:
        """Return the watermark, and the etag of whatever is in its place."""
        try:
            found = self._store.get(self.success_path)
        except NotFound:
            return None, None
        try:
            document = decode(found.data, {"success"}, path=self.success_path)
            return Success.from_document(document), found.etag
        except CorruptRecord:
            # Other writers leave a _SUCCESS of their own. The log has all that ours says, so it is
            # read from the start, and what is there replaced.
            return None, found.etag

    def _advance(self, record: CommitRecord) -> None:
        data = encode(Success.of(record).to_document())
        for _ in self._backoff.attempts(self._clock):
            current, etag = self._success()
            if current is not None and current.version >= record.version:
                return
            try:
                if etag is None:
                    self._store.put_if_absent(self.success_path, data)
                else:
                    self._store.put_if_match(self.success_path, data, etag=etag)
                return
            except (AlreadyExists, PreconditionFailed):
                continue  # another finisher was faster; it may have been a later version's or not
        raise Conflict(f"{self.success_path!r} was replaced by others each time; nothing was written")


@contextlib.contextmanager
def _noting(strict: bool) -> Iterator[None]:
    try:
        yield
    except CommitError as error:
        if strict:
            raise
        _log.warning("all files are visible, but that could not be noted: %s", error)


def _incomplete(record: CommitRecord, errors: Sequence[CommitError]) -> PublishIncomplete:
    # What is neither visible nor staged was removed by somebody else.
    lost = [e for e in errors if isinstance(e, NotFound) and not isinstance(e, BucketNotFound)]
    if lost:
        errors, state = lost, "lost"
        advice = (
            "Their uploads were removed, by a lifecycle rule or another program, and nothing brings them"
            " back: write the data to a new output. Reading with roll_forward=False gives the versions"
            " before"
        )
    else:
        state = "not visible yet"
        advice = "Do not run it again; commitlog recover completes it"
    return PublishIncomplete(
        f"job {record.job_id!r} is committed as version {record.version}, but {len(errors)} of its"
        f" {len(record.files)} files are {state} ({errors[0]}). {advice}",
        job_id=record.job_id,
        version=record.version,
    )
