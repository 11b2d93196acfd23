"""Work after the commit point: publishing uploads, and recording the progress in ``_SUCCESS``.

Everything here is idempotent, and any number of processes may do it at once: the job's own driver, the
next one, a reader or a recovery. This is safe because an upload's name belongs to one attempt, a
published file is recognized by its nonce (without one, by its size), and these two statements always
hold:

* The pending entry of a committed attempt is removed only after all of its files were seen published,
  and the files that it replaced removed. So without a pending entry no work is left.
* ``_SUCCESS`` names a version only after that was done for it and every earlier version. So only later
  records need to be read. It is replaced conditionally, and never goes back.

Replaced files are removed only after every earlier version was published. So no upload of an earlier
version is left that a late process could publish.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import groupby
from typing import TypeVar

from commitlog._util.concurrency import Executor
from commitlog._util.retry import Backoff
from commitlog._util.tracing import carried
from commitlog.clock import Clock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    InvalidPath,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    PublishIncomplete,
    Unavailable,
)
from commitlog.oplog.codec import decode, encode
from commitlog.oplog.record_directory import RecordDirectory
from commitlog.outputs.foreign import ForeignFile, OutputListing, parents_of, roots_of, survey
from commitlog.outputs.job import HIDDEN, MAGIC, attempt_of
from commitlog.outputs.log import CommitLog
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.records import CommitRecord, DataFile, Record, Success
from commitlog.paths import join
from commitlog.stores.api import ObjectInfo, Staged, StagedInfo

__all__ = ["ALIVE", "Publisher"]

_log = logging.getLogger(__name__)

#: The directory of the heartbeats of live attempts.
ALIVE = "_commitlog/alive"

T = TypeVar("T")


class Publisher:
    """Does the work after the commit point of an output. Thread-safe.

    Args:
        store: the store of the output.
        root: path of the output.
        log: the log of the output.
        pending: the pending entries, named by attempt.
        clock: the clock for pauses between attempts.
        backoff: the retry policy of requests that can be repeated.
        executor: sends requests in parallel.
        replace_below: replaces files of an output below this one, by the log there; called with its
            directory, the files' paths relative to this output, and the attempt that replaces them.
    """

    def __init__(
        self,
        store: ConditionalStore,
        root: str,
        log: CommitLog,
        pending: RecordDirectory,
        *,
        clock: Clock,
        backoff: Backoff,
        executor: Executor,
        replace_below: Callable[[str, Set[str], str], None],
    ) -> None:
        self._store = store
        self._replace_below = replace_below
        self._root = root
        self._log = log
        self._pending = pending
        self._clock = clock
        self._backoff = backoff
        self._executor = executor
        self._done: dict[str, int] = {}
        self._last_success: tuple[Success, str] | None = None
        self.success_path = join(root, "_SUCCESS")

    def watermark(self) -> int:
        """Return the version up to which every file is visible; 0 if that is not known."""
        success, _ = self._success()
        return 0 if success is None else success.version

    def checked_watermark(self) -> int:
        """Return the watermark after checking its record.

        Needed by a caller that continues from there without having read the log so far: a job committed
        after a gap in the numbers is never read. Raises `CorruptRecord` if ``_SUCCESS`` is not of this
        log.
        """
        success, _ = self._success()
        if success is None:
            return 0
        try:
            record = self._log.get(success.version)[-1]
        except NotFound:
            record = None
        if not isinstance(record, CommitRecord) or Success.of(record) != success:
            raise CorruptRecord(
                f"{self.success_path!r} and {self._log.directory!r} contradict each other about version"
                f" {success.version}: records were lost, or the file is of another output. Restore the"
                " records, or remove the file"
            )
        return success.version

    def complete(self, record: CommitRecord, cleanup: Cleanup | None = None) -> bool:
        """Do the remaining work of `record`; return False if its files were already all published.

        The work after the publishing runs within `cleanup`; without it, its errors are raised. Raises
        `PublishIncomplete`, and `CorruptRecord` if the pending entry is corrupt and some files are not
        visible: only that entry has the uploads.
        """
        if record.uploads is not None:
            return self.publish(record, PendingJob.within(record), look=True)
        pending: PendingJob | None
        try:
            pending = PendingJob.read(self._pending, record.attempt)
        except NotFound:
            return False
        except CorruptRecord as error:
            self._check_all_visible(record, error)
            pending = None
        # An entry that names other files was left by a call that came after all this was done.
        todo = pending is not None and pending.lists(record)
        if pending is not None and todo:
            self.publish(record, pending)
        with cleanup or Cleanup(strict=True):
            self.settle(record)
        return todo

    def unpublished(self, uploads: Iterable[StagedInfo]) -> set[str]:
        """Return the attempts of those `uploads` whose file is part of the output and is not visible.

        Usually there is none: a file is published from one upload, and the others of its path are spare.
        """
        paths = {upload.path for upload in uploads}
        files = [
            file for file in self._log.state().files.values() if self.path_in_store(file.path) in paths
        ]
        hidden = self._hidden(files)
        attempts = (attempt_of(file.path) for file in self._current(hidden))
        return {attempt for attempt in attempts if attempt is not None}

    def verify(self, record: CommitRecord) -> None:
        """Complete `record`, and look at each of its files afterwards.

        Raises what `complete` does, and `PublishIncomplete` if the pending entry is gone and a file is
        not visible.
        """
        self.complete(record)
        hidden = self._current(self._hidden(self._log.files(record)))
        if hidden:
            example = self.path_in_store(hidden[0].path)
            raise PublishIncomplete(
                f"job {record.job_id!r} is committed as version {record.version}, but {len(hidden)} of"
                f" its {record.file_count} files are not visible, such as {example!r}, and the pending"
                " entry that tells how to publish them is gone. Their uploads were left as they are:"
                " complete these multipart uploads by hand",
                job_id=record.job_id,
                version=record.version,
            )

    def settle(self, record: CommitRecord) -> None:
        """Remove what `record` replaced, and its pending entry; its files were seen published."""
        self.replace(record)
        self.forget(record.attempt)

    def forget(self, attempt: str) -> None:
        """Remove the pending entry of an attempt for which nothing is left to do."""
        self._persist(partial(self._pending.remove, attempt))

    def publish(self, record: CommitRecord, pending: PendingJob, *, look: bool = False) -> bool:
        """Make every file of `record` visible; return False if all of them were visible already.

        Args:
            record: the record.
            pending: its entry.
            look: whether to look first which of the files are visible. Otherwise every one is published,
                and the result is True.

        Raises `PublishIncomplete`.
        """
        if record.visibility == "logged":
            return False
        missing: dict[str, NotFound] = {}
        blocked: dict[str, tuple[Staged, InvalidPath]] = {}
        published: list[Staged] = []

        def publish(staged: Staged) -> None:
            try:
                if not (look and self._is_published(staged)):
                    self._publish(staged)
                    published.append(staged)
            except NotFound as error:
                missing[staged.path.removeprefix(self.path_in_store(""))] = error
            except InvalidPath as error:
                blocked[staged.path.removeprefix(self.path_in_store(""))] = staged, error

        try:
            errors = self._each(publish, pending.uploads(self._log.manifests, self._root))
        except CommitError as error:  # of the list of files, not of one of them
            errors = [error]
        if not errors and not missing and not blocked:
            return bool(published) or not look
        # A later version may have replaced files of this one. Before it removed any, it saw to it that
        # all of them were published, and that _SUCCESS says so. A file that was lost before that is no
        # part of any version that can still be read: it is not waited for.
        try:
            if self.watermark() >= record.version:
                return bool(published)
            current = self._log.state().files if missing or blocked else {}
            # A file in whose place there is something else waits only as long as it is read.
            self.drop(upload for path, (upload, _) in blocked.items() if path not in current)
            errors += [error for path, (_, error) in blocked.items() if path in current]
        except CommitError as error:
            errors, current = [error], {}  # so it is unknown whether they are lost
        lost = {path: error for path, error in missing.items() if path in current}
        if errors or lost:
            raise _incomplete(record, errors, lost) from (*lost.values(), *errors)[0]
        return bool(published)

    def replace(self, record: CommitRecord) -> None:
        """Remove what `record` replaced from listings; all of its files were seen published.

        These are files of earlier versions, each of which is completed first, and foreign files; those
        of outputs below this one are replaced by the logs there. Raises `PublishIncomplete`.
        """
        of_versions = record.replaces and record.visibility == "listed"
        if not of_versions and not record.replaces_foreign:
            return
        try:
            gone: list[str] = []
            if of_versions:
                self.roll_forward(until=record.version - 1)
                state = self._log.state(until=record.version - 1)
                gone = [file.path for file in self._log.apply(record, state)]
            foreign = list(self._log.foreign(record))
            for directory in sorted({file.output for file in foreign if file.output is not None}):
                named = {file.path for file in foreign if file.output == directory}
                self._replace_below(directory, named, record.attempt)
            gone += self._unchanged([file for file in foreign if file.output is None])
            self.remove(map(self.path_in_store, gone))
        except CommitError as error:
            raise PublishIncomplete(
                f"job {record.job_id!r} is committed as version {record.version}, but files that it"
                f" replaced are still listed besides its own ({error}). Do not run it again;"
                " commitlog output recover removes them",
                job_id=record.job_id,
                version=record.version,
            ) from error

    def remove(self, paths: Iterable[str]) -> int:
        """Remove objects that are no longer read; return how many. Raises the first error."""
        left = list(paths)
        count = len(left)

        def once() -> None:
            nonlocal left
            errors = self._store.delete_many(left)
            left = list(errors)
            for error in errors.values():
                raise error

        if left:
            self._persist(once)
        return count

    def roll_forward(
        self,
        until: int | None = None,
        *,
        strict: bool = True,
        failures: list[CommitError] | None = None,
    ) -> tuple[int, ...]:
        """Complete every commit up to version `until`, or to the log's end, and advance ``_SUCCESS``.

        Returns the versions that had not been complete. Raises `PublishIncomplete`, `CorruptRecord` or
        `FormatTooNew` after all others were completed if one of them cannot be.

        Args:
            until: number of a record; None: the last one.
            strict: whether errors of the work after the publishing are raised; otherwise they are
                logged. Readers do not depend on that work, and may lack the permission for it.
            failures: takes the error of a version that cannot be completed; None: it is raised.
        """
        seen = self._success()
        start = 0 if seen[0] is None else seen[0].version
        records = self._log.read(start, until)
        completed, end = self._roll(records, seen, Cleanup(strict=strict), failures=failures)
        if end is None:
            self.checked_watermark()
        return completed

    def advance(self, done: Iterable[CommitRecord], *, before: int | None = None) -> None:
        """Move ``_SUCCESS`` to the last of the commits that this process has completed.

        Commits of others up to there are completed, too. Reads neither ``_SUCCESS``, if this process was
        the last to move it, nor a record that it knows. To be called by one thread at a time. Raises
        what `roll_forward` does.

        Args:
            done: commits that are complete; those of earlier calls count, too.
            before: a version of which another thread publishes files, and which is left to it.
        """
        self._done.update((record.attempt, record.version) for record in done)
        last = max((v for v in self._done.values() if before is None or v < before), default=0)
        seen = self._last_success or self._success()
        start = 0 if seen[0] is None else seen[0].version
        records = list(self._log.read(start, last, cached=True))
        if any(isinstance(each, CommitRecord) and each.attempt not in self._done for each in records):
            seen = self._success()  # others have committed, and may have moved it
            start = 0 if seen[0] is None else seen[0].version
        if last > start:
            left = [each for each in records if each.version > start]
            self._roll(left, seen, Cleanup(strict=True), self._done)
        self._done = {a: version for a, version in self._done.items() if version > max(start, last)}

    def _roll(
        self,
        records: Iterable[Record],
        seen: tuple[Success | None, str | None],
        cleanup: Cleanup,
        done: Collection[str] = (),
        *,
        failures: list[CommitError] | None = None,
    ) -> tuple[tuple[int, ...], int | None]:
        """Complete the commits among `records`, and move ``_SUCCESS`` from `seen` to the last of them.

        Args:
            records: the records after `seen`.
            seen: the watermark, as `_success` returned it.
            cleanup: see `complete`.
            done: attempts that are complete.
            failures: see `roll_forward`.

        Returns the versions that had not been complete, and the last number, or None without a record.
        """
        completed: list[int] = []
        end: int | None = None
        last: CommitRecord | None = None
        failure: CommitError | None = None
        for version, of_version in groupby(records, key=lambda record: record.version):
            end = version
            commits = [record for record in of_version if isinstance(record, CommitRecord)]
            for record in commits:
                try:
                    if record.attempt not in done and self.complete(record, cleanup):
                        completed.append(record.version)
                except (CorruptRecord, FormatTooNew, PublishIncomplete) as error:
                    failure = failure or error
            if commits and failure is None and cleanup.done:
                last = commits[-1]
        if last is not None:
            with cleanup:
                self._advance(last, seen)
        if failure is not None:
            if failures is None:
                raise failure
            failures.append(failure)
        return tuple(dict.fromkeys(completed)), end

    def uploads(self, attempt: str | None = None) -> Iterator[StagedInfo]:
        """Yield the unpublished uploads below the output, or those of one attempt alone."""
        for upload in self._store.list_staged(join(self._root, "")):
            if attempt is None or attempt_of(upload.path) == attempt:
                yield upload

    def clear(self, attempt: str) -> None:
        """Remove what the log's directory holds of an attempt that was ruled out."""
        self.remove_lists({attempt}, self.lists(attempt))
        self.clear_heartbeat(attempt)
        self.forget(attempt)

    def remove_lists(self, attempts: Set[str], lists: Iterable[ObjectInfo]) -> int:
        """Remove those of `lists` that are of `attempts`, which were ruled out; return how many.

        No attempt is ruled out after it was committed, so no record names them.
        """
        return self.remove(info.path for info in lists if attempt_of(info.path) in attempts)

    def clear_heartbeat(self, attempt: str) -> None:
        """Remove the heartbeat of an attempt that is decided."""
        self._persist(partial(self._store.delete, self.path_in_store(join(ALIVE, attempt))))

    def heartbeats(self) -> dict[str, float]:
        """Return when attempts gave their last heartbeat, by the store's clock."""
        top = join(self._root, join(ALIVE, ""))
        found = {i.path.removeprefix(top): i.last_modified for i in self._store.list(top)}
        return {name: last for name, last in found.items() if attempt_of(name) == name}

    def hidden(self) -> Iterator[ObjectInfo]:
        """Yield the files that only the log shows, and those that it does not show either.

        The latter include the records of S3A, which name uploads of tasks.
        """
        yield from self._store.list(self.path_in_store(join(HIDDEN, "")))
        yield from self._store.list(self.path_in_store(MAGIC))

    def lists(self, attempt: str = "") -> list[ObjectInfo]:
        """Return the lists of files that are objects of their own, or those of one attempt alone."""
        return list(self._store.list(join(self._log.manifests.directory, "") + attempt))

    def path_in_store(self, path: str) -> str:
        """Return `path`, which is relative to the output, relative to the store's root."""
        return join(self._root, path)

    def drop(self, uploads: Iterable[Staged | StagedInfo]) -> int:
        """Drop uploads that will never be published; return how many. Raises the first error."""
        # The staged files and the listing may name the same upload.
        distinct = {(upload.path, upload.upload_id): upload for upload in uploads}
        errors = self._each(self._drop, list(distinct.values()))
        if errors:
            raise errors[0]
        return len(distinct)

    def survey(self, directories: Iterable[str]) -> OutputListing:
        """Return what listings of directories of the output show.

        Args:
            directories: relative to the output, with a slash at their ends; "" for all of it.
        """
        top = self.path_in_store("")
        roots = list(roots_of(directories))

        def look(directory: str) -> OutputListing:
            return survey(self._store.list(top + directory), top)

        def is_other(directory: str) -> bool:
            return self._store.object_store.first(join(top + directory, "_commitlog/")) is not None

        run = self._executor.map
        # The listing of a directory does not show whether one above it is an output of its own.
        parents = parents_of(roots)
        found = OutputListing()
        for parent, other in zip(parents, run(is_other, parents), strict=True):
            if other:
                found.outputs.add(parent.rstrip("/"))
        for each in run(look, roots):
            found.add(each)
        return found

    # inside

    def _unchanged(self, files: Collection[ForeignFile]) -> list[str]:
        """Return the paths of those of `files` that nothing was written over since they were named."""
        directories = {file.path[: file.path.rfind("/") + 1] for file in files}
        there = {file.path: file for file in self.survey(directories).files}
        return [file.path for file in files if file.is_same(there.get(file.path))]

    def _check_all_visible(self, record: CommitRecord, error: CorruptRecord) -> None:
        hidden = self._hidden(self._log.files(record))
        if hidden:
            raise CorruptRecord(
                f"{error}. Job {record.job_id!r} is committed as version {record.version}, and only that"
                f" entry tells how to publish {len(hidden)} of its files, which are not visible"
            ) from error

    def _hidden(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Return those of `files` that are not visible. Raises the first error of another kind."""
        hidden: list[DataFile] = []

        def look(file: DataFile) -> None:
            try:
                seen = _is_same(self._store.head(self.path_in_store(file.path)), file)
            except NotFound:
                seen = False
            if not seen:
                hidden.append(file)

        for error in self._each(look, files):
            raise error
        return hidden

    def _current(self, files: list[DataFile]) -> list[DataFile]:
        """Return those of `files` that are part of the output now; the others may have been removed."""
        current = self._log.state().files if files else {}
        return [file for file in files if file.path in current]

    def _is_published(self, staged: Staged) -> bool:
        found = self._store.begin_head(staged.path)().info
        return found is not None and _is_same(found, staged)

    def _publish(self, staged: Staged) -> None:
        def once() -> None:
            try:
                self._store.publish(staged)
            except NotFound:
                if not _is_same(self._store.head(staged.path), staged):
                    raise

        self._persist(once)

    def _drop(self, upload: Staged | StagedInfo) -> None:
        self._persist(partial(self._store.abort, upload))

    def _persist(self, action: Callable[[], None]) -> None:
        """Do what may be done twice until its outcome is known."""
        self._backoff.retry(self._clock, action, on=(Conflict, OutcomeUnknown, Unavailable))

    def _each(self, work: Callable[[T], None], items: Iterable[T]) -> list[CommitError]:
        def guarded(item: T) -> CommitError | None:
            try:
                work(item)
            except CommitError as error:
                return error
            return None

        return [error for error in self._executor.map(carried(guarded), items) if error is not None]

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
            # Other writers leave their own _SUCCESS. The log has all that ours says, so read it from the
            # start, and replace the file.
            return None, found.etag

    def _advance(self, record: CommitRecord, seen: tuple[Success | None, str | None]) -> None:
        success = Success.of(record)
        data = encode(success.to_document())

        def advance() -> None:
            current, etag = seen
            if current is not None and current.version >= record.version:
                return
            if etag is None:
                result = self._store.put_if_absent(self.success_path, data)
            else:
                result = self._store.put_if_match(self.success_path, data, etag=etag)
            self._last_success = success, result.etag

        def look_again(_: CommitError) -> None:
            # Another finisher was faster, of a later version or not.
            nonlocal seen
            seen = self._success()

        self._backoff.retry(
            self._clock,
            advance,
            on=(AlreadyExists, PreconditionFailed),
            before_next=look_again,
            exhausted=lambda _: Conflict(
                f"{self.success_path!r} was replaced by others each time; nothing was written"
            ),
        )


class Cleanup:
    """A context manager for the work after the publishing, on which readers of the log do not depend.

    It removes replaced files and the pending entry, and advances ``_SUCCESS``.

    Args:
        strict: whether its errors are raised; otherwise they are logged.

    Attributes:
        done: False once an error was logged.
    """

    def __init__(self, *, strict: bool) -> None:
        self.done = True
        self._strict = strict

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if self._strict or not isinstance(error, CommitError):
            return False
        self.done = False
        _log.warning("all files are visible, but the work after that failed: %s", error)
        return True


def _is_same(info: ObjectInfo, file: DataFile | Staged) -> bool:
    """Return whether `info` is the published object of `file`.

    A file whose upload had no nonce is known by its name: only one upload has ever had it. So is one
    that has lost its nonce, such as by a copy of a local directory, if the attempt is in its name.
    """
    if file.nonce and (info.nonce is not None or attempt_of(info.path) is None):
        return info.nonce == file.nonce
    return info.size == file.size


def _incomplete(
    record: CommitRecord, errors: Sequence[CommitError], lost: Mapping[str, CommitError]
) -> PublishIncomplete:
    if lost:
        errors, state = [*lost.values()], "lost"
        advice = (
            "Their uploads were removed, by a lifecycle rule or another program, and nothing brings them"
            " back. Run the job again under another job id, and let it replace the files of this"
            " version (mode overwrite-files, or one that overwrites more). Reading with"
            " roll_forward=False gives the versions before"
        )
    else:
        state = "not visible yet"
        advice = "Do not run it again; commitlog output recover completes it"
        if isinstance(errors[0], InvalidPath):
            advice += (
                ", once you have moved the file or directory that is in the way. A job that replaces"
                " these rows helps, too"
            )
    return PublishIncomplete(
        f"job {record.job_id!r} is committed as version {record.version}, but {len(errors)} of its"
        f" {record.file_count} files are {state} ({errors[0]}). {advice}",
        job_id=record.job_id,
        version=record.version,
        lost=tuple(sorted(lost)),
    )
