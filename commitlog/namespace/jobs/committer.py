"""Publishing a job: files from many tasks become a directory, or a part of one, in a single step.

::

    .staging/<attempt>/…       a job in progress
    events/…                   a job that found no `events`, or replaced it
    events/job-<digest>/…      a job that added to `events`

A job *begins*: it gets its own directory, which readers do not see. Its tasks store objects, and do not
touch the table. *Publishing* makes files of the objects of the successful tasks in that directory, and
then renames the directory: the rename is the commit point. *Aborting* deletes the directory. Both change
the same entry, so only one of them happens, whichever clients try, even if a request gets no answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from attrs import frozen

from commitlog._util.concurrency import SERIAL, Executor
from commitlog._util.ids import random_id
from commitlog._util.parsing import check_choice
from commitlog._util.retry import Backoff
from commitlog._util.tracing import Attributes, carried, traced
from commitlog.clock import Clock, SystemClock
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    InvalidPath,
    JobAborted,
    JobAlreadyCommitted,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
)
from commitlog.namespace.jobs.history import (
    JOB,
    REPLACED_JOBS,
    FoundJob,
    find_attempt_tag,
    find_job,
    part_name,
    replaced_jobs_of,
)
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import ATTEMPT, MAX_SHARDS, STAGING, split
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.status import Status
from commitlog.namespace.write.content import is_content
from commitlog.namespace.write.plan_files import NewFile, check_apart, check_distinct
from commitlog.oplog.validate import text
from commitlog.paths import join

__all__ = [
    "STAGING_AGE",
    "Attempt",
    "DirectoryCommitter",
    "Mode",
    "abort_stale_attempts",
    "abort_uploads",
]

#: How to treat an existing directory: add to it; refuse; or replace it with all that is in it.
Mode: TypeAlias = Literal["append", "error", "overwrite"]

#: Seconds after which a job that was neither published nor aborted is assumed dead.
STAGING_AGE = 7 * 86400.0

#: Checks that files can be added to a directory; returns the attributes that the published directory is
#: to have. Its argument is None if there is no directory, or it is replaced. If it raises an error,
#: nothing is published.
SchemaCheck: TypeAlias = Callable[[Status | None], Mapping[str, str]]

#: Number of new files in a directory from which it is spread over more shards.
_FILES_PER_SHARD = 1000


@frozen(kw_only=True)
class Attempt:
    """One attempt at a job, made by `DirectoryCommitter.begin`. Can be pickled.

    Attributes:
        job_id: identifies the job, which is published at most once into one directory.
        mode: how to treat an existing directory.
        staging: path of the attempt's own directory.
        id: of that directory; identifies the attempt, also after the directory has moved.
    """

    job_id: str
    mode: Mode
    staging: str
    id: str


def _no_attributes(_: Status | None) -> Mapping[str, str]:
    return {}


def _span_attributes(committer: DirectoryCommitter, arguments: Mapping[str, Any]) -> Attributes:
    attempt = arguments.get("attempt")
    return {
        "commitlog.namespace": committer.namespace.name,
        "commitlog.target": committer.target,
        "commitlog.job.id": getattr(attempt, "job_id", arguments.get("job_id")),
        "commitlog.attempt": getattr(attempt, "id", None),
    }


@traced(_span_attributes)
class DirectoryCommitter:
    """Publishes jobs at one path of a namespace. Thread-safe.

    Args:
        namespace: the namespace.
        target: path of the directory that the jobs make, or add to. Not the root.
        clock: gives the age of attempts; waited on between attempts.
        backoff: retry policy for conflicts.
        new_id: makes the names of attempts: 32 hexadecimal digits, unique among all clients.
        executor: links files of different directories, or shards, in parallel; see
            `Namespace.bulk_link`.

    A job id is published at most once, as long as the target knows it. The target knows the jobs that it
    contains, and the last `history.REMEMBERED` jobs that were overwritten. Deleting the directory, or
    replacing it by anything but a job, discards the ids of its jobs. Before a job is published, none of
    it is at the target; afterwards all of it is. An overwritten directory goes to the trash; readers
    that have opened its files can go on reading for the grace period of the namespace.
    """

    def __init__(
        self,
        namespace: Namespace,
        target: str,
        *,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
        executor: Executor = SERIAL,
    ) -> None:
        if not split(target):
            raise InvalidPath("a job cannot be the root of a namespace: name a directory in it")
        if split(target)[0] == STAGING:
            raise InvalidPath(f"{target!r} holds unpublished jobs: name another directory")
        self.namespace = namespace
        self.target = target
        self._clock = SystemClock() if clock is None else clock
        self._backoff = Backoff() if backoff is None else backoff
        self._new_id = new_id
        self._executor = executor

    def begin(
        self,
        job_id: str | None = None,
        *,
        mode: Mode = "append",
        check_schema: SchemaCheck = _no_attributes,
    ) -> Attempt:
        """Begin an attempt at a job: make its directory, which readers of the target do not see.

        Args:
            job_id: any text that is not blank; None: a new id.
            mode: see `Mode`. ``error`` refuses anything at the target, now and when it is published.
            check_schema: called now, so that a wrong schema is refused before files are written.

        Raises:
            JobAlreadyCommitted: the job is at the target, or was before it was overwritten.
            AlreadyExists: something is at the target, and the mode is ``error``.
            NotADirectory: a file is at the target, or above it.
        """
        check_choice("mode", mode, get_args(Mode))
        if job_id is not None and not _is_text(job_id):
            raise ConfigurationError(f"a job id is a text that is not blank, not {job_id!r}")
        name = self._new_id()
        job_id = name if job_id is None else job_id
        found = self._find_job(job_id)
        self._check(found, job_id, mode)
        if found.existing is None:
            self._check_above()
        check_schema(None if mode == "overwrite" else found.existing)
        with contextlib.suppress(CommitError):  # a failed cleanup must not fail the job
            abort_stale_attempts(self.namespace, clock=self._clock)
        made = self.namespace.make_directory(join(STAGING, name), exist_ok=False)
        return Attempt(job_id=job_id, mode=mode, staging=made.path, id=made.id)

    def publish(
        self, attempt: Attempt, files: Mapping[str, Data], *, check_schema: SchemaCheck = _no_attributes
    ) -> Status:
        """Make files of objects, and publish all of them at once; return their directory.

        Can be repeated. If the attempt was published before and then overwritten, this returns the
        directory that replaced it. If it was renamed since, this returns it from its present path.

        Args:
            attempt: as `begin` returned it.
            files: the content of each file, by path below the target.
            check_schema: called for the attributes of the directory.

        Raises:
            JobAlreadyCommitted: another attempt at the job was first. Nothing was published: abort this
                one.
            AlreadyExists: the mode is ``error``, and something is at the target now; likewise.
            InvalidPath, NotADirectory, ConfigurationError: `files` is wrong, as of
                `Namespace.link_many`. Nothing was done.
            JobAborted: the attempt was aborted, or was begun `STAGING_AGE` seconds ago or earlier, so
                that it is assumed dead.
            Conflict, Unavailable: nothing was published. Abort the attempt, or try again.
            OutcomeUnknown: the job was published, or not, or may still be. `abort` decides that.
        """
        if (done := self.find(attempt)) is not None:
            return done
        try:
            self._link(attempt, files, check_schema(None))
            return self._rename(attempt, check_schema)
        except (NotFound, OutcomeUnknown) as error:
            with contextlib.suppress(CommitError):
                if (done := self.find(attempt)) is not None:
                    return done
            if not isinstance(error, NotFound) or self._staged(attempt) is not None:
                raise
            if (moved := self._find_moved(attempt)) is not None:
                return moved
            raise self._aborted_error(attempt) from error

    def _find_moved(self, attempt: Attempt) -> Status | None:
        """Return an attempt's directory from its present path; None if it was deleted."""
        try:
            path = self.namespace.path_of(attempt.id)
            found = None if path is None else self.namespace.stat(path)
        except CommitError as error:
            raise self._unknown_error(attempt) from error
        if found is not None and found.id != attempt.id:
            raise self._unknown_error(attempt)
        return found

    def _unknown_error(self, attempt: Attempt) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the attempt at job {attempt.job_id!r} at {self.target!r} was published or aborted, and its"
            " directory was not found at its path: publish it again, which looks it up again"
        )

    def _aborted_error(self, attempt: Attempt) -> JobAborted:
        return JobAborted(
            f"the attempt at job {attempt.job_id!r} at {self.target!r} was aborted, or assumed dead;"
            " none of its files are there. Run it again"
        )

    def find(self, attempt: Attempt) -> Status | None:
        """Return the directory that an attempt has published, or the one that replaced it.

        None if neither is known to be at the target.
        """
        return self._find_job(attempt.job_id).published_by(attempt.id)

    def abort(self, attempt: Attempt, files: Mapping[str, Data] = MappingProxyType({})) -> bool:
        """Make sure that an attempt is never published. False if it was published or aborted before.

        Safe at any time, and after any error of `publish`. The directory is deleted if it is still in
        `STAGING`; after that, no request that is still on its way can publish it.

        Args:
            attempt: the attempt.
            files: the objects of its tasks, as far as they are known. They are removed if `publish` was
                not called. If it was called, its files go to the trash with the directory, and fsck
                finds objects without a file.
        """
        staged = self._staged(attempt)
        if staged is None:
            return False
        # `publish` changes the directory before it makes files.
        untouched = staged.version == 1
        try:
            try:
                expected = staged if untouched else None
                self.namespace.delete(attempt.staging, recursive=True, expected=expected)
            except PreconditionFailed:
                untouched = False
                self.namespace.delete(attempt.staging, recursive=True)
        except NotFound:
            return False
        if untouched:
            with contextlib.suppress(CommitError):
                self.namespace.store.delete_many([data.path for data in files.values() if data.own])
        return True

    # inside

    def _find_job(self, job_id: str) -> FoundJob:
        return find_job(self.namespace, self.target, job_id)

    def _check(self, found: FoundJob, job_id: str, mode: Mode) -> None:
        if found.job is not None:
            at = "is at {!r} already" if found.replaced is None else "was at {!r}, and overwritten"
            raise JobAlreadyCommitted(
                f"job {job_id!r} {at.format(found.job.path)}; nothing was added",
                job_id=job_id,
                version=found.job.version,
            )
        if found.existing is not None and mode == "error":
            raise AlreadyExists(
                f"there is something at {self.target!r}, and the mode is 'error'; nothing was added"
            )

    def _check_above(self) -> None:
        """Raise `NotADirectory` if a file is above the target."""
        above = self.target
        while above := above.rpartition("/")[0]:
            with contextlib.suppress(NotFound):
                if not self.namespace.stat(above).is_directory:
                    raise NotADirectory(f"{above!r} is a file: no job can be published below it")
                return

    def _staged(self, attempt: Attempt) -> Status | None:
        with contextlib.suppress(NotFound):
            return self.namespace.stat(attempt.staging)
        return None

    def _link(self, attempt: Attempt, files: Mapping[str, Data], attributes: Mapping[str, str]) -> None:
        new = {path: NewFile(data=data) for path, data in files.items()}
        check_distinct(new)
        check_apart(new)
        kept = {**attributes, JOB: attempt.job_id}
        staged = self.namespace.set_attributes(attempt.staging, attributes=kept)
        if staged.created <= (self._clock.epoch() - STAGING_AGE) * 1000:
            # The store may have been cleaned of its objects since.
            self.abort(attempt)
            raise self._aborted_error(attempt)
        _fill_directory(self.namespace, attempt.staging, files, executor=self._executor)

    def _rename(self, attempt: Attempt, check_schema: SchemaCheck) -> Status:
        """Rename an attempt's directory to the target, or to a part of it."""
        found = self._find_publishable(attempt)

        def move() -> Status:
            done = found.published_by(attempt.id)
            return self._move(attempt, found.existing, check_schema) if done is None else done

        def refresh(_: CommitError) -> None:
            nonlocal found
            found = self._find_publishable(attempt)

        return self._backoff.retry(
            self._clock,
            move,
            on=(AlreadyExists, NotFound, PreconditionFailed),
            when=lambda error: not isinstance(error, NotFound) or self._staged(attempt) is not None,
            before_next=refresh,
            exhausted=lambda error: Conflict(
                f"{self.target!r} kept changing; nothing was published ({error})"
            ),
        )

    def _find_publishable(self, attempt: Attempt) -> FoundJob:
        """Return the state of a job; raise an error if another attempt at it may not be published."""
        found = self._find_job(attempt.job_id)
        if found.published_by(attempt.id) is None:
            self._check(found, attempt.job_id, attempt.mode)
        return found

    def _move(self, attempt: Attempt, existing: Status | None, check_schema: SchemaCheck) -> Status:
        """Publish with one rename, which is the commit point."""
        if existing is None:
            above = self.target.rpartition("/")[0]
            if above:
                self.namespace.make_directory(above)
            return self.namespace.rename(attempt.staging, self.target)
        if attempt.mode == "overwrite":
            inherit = partial(self._inherited, attempt)
            return self.namespace.replace(
                attempt.staging, self.target, expected=existing, inherit=inherit
            )
        wanted = check_schema(existing)
        if any(existing.attributes.get(name) != value for name, value in wanted.items()):
            existing = self.namespace.set_attributes(self.target, attributes=wanted, expected=existing)
        return self.namespace.rename(
            attempt.staging, join(self.target, part_name(attempt.job_id)), into=existing
        )

    def _inherited(
        self, attempt: Attempt, existing: Status, entries: Callable[[str], Iterator[Status]]
    ) -> Mapping[str, str]:
        """Return the job ids that an attempt's directory takes over from the one that it replaces."""
        jobs = replaced_jobs_of(existing, entries)
        if find_attempt_tag(attempt.job_id, jobs) is not None:
            raise PreconditionFailed(f"job {attempt.job_id!r} was added to {existing.path!r} meanwhile")
        return {REPLACED_JOBS: jobs}


def abort_stale_attempts(
    namespace: Namespace, *, older_than: float = STAGING_AGE, clock: Clock | None = None
) -> int:
    """Abort jobs that were begun, or began to be published, `older_than` seconds ago; return how many.

    Args:
        namespace: the namespace.
        older_than: more than the longest job takes, plus the largest difference of clocks.
        clock: the system clock by default.
    """
    now = (SystemClock() if clock is None else clock).epoch()
    aborted = 0
    try:
        staged = [each for each in namespace.list(STAGING) if each.is_directory]
    except NotFound:
        return 0
    for each in staged:
        # Other entries, which an earlier release allowed here, are left alone.
        if ATTEMPT.fullmatch(each.name) and each.updated <= (now - older_than) * 1000:
            with contextlib.suppress(NotFound, PreconditionFailed):  # another client does it, too
                namespace.delete(each.path, recursive=True, expected=each)
                aborted += 1
    return aborted


def abort_uploads(
    namespace: Namespace, *, older_than: float = STAGING_AGE, clock: Clock | None = None
) -> int:
    """Abort uploads of content that were begun `older_than` seconds ago; return how many.

    This includes uploads of other namespaces in the same part of the store. Uploads of outputs, and of
    programs that do not use namespaces, are left alone. Can be interrupted and repeated.

    Args:
        namespace: the namespace.
        older_than: more than writing any file takes, plus the largest difference of clocks. A writer
            whose upload is aborted makes no file, and gets an error.
        clock: the system clock by default.

    Raises `AccessDenied`, `Unavailable` and similar errors; some uploads may be aborted then.
    """
    namespace.describe()
    latest = (SystemClock() if clock is None else clock).epoch() - older_than
    aborted = 0
    for upload in namespace.store.list_staged():
        if is_content(upload.path) and upload.initiated <= latest:
            namespace.store.abort(upload)
            aborted += 1
    return aborted


def _is_text(job_id: object) -> bool:
    try:
        return bool(text(job_id).strip())
    except (TypeError, ValueError):
        return False


def _fill_directory(
    namespace: Namespace, top: str, files: Mapping[str, Data], *, executor: Executor
) -> None:
    """Create files, and the directories that contain them. The call can be repeated.

    Args:
        namespace: the namespace.
        top: path of the directory. If it is gone, it is not created again.
        files: the content of each file, by its path below `top`.
        executor: runs the work for different directories, or shards, in parallel.

    Raises the errors of `Namespace.make_directory`, `Namespace.reshard` and `Namespace.bulk_link`.
    """
    by_directory: dict[str, dict[str, Data]] = {}
    for path, data in files.items():
        directory, _, name = path.rpartition("/")
        by_directory.setdefault(directory, {})[name] = data
        while directory:
            directory = directory.rpartition("/")[0]
            by_directory.setdefault(directory, {})
    made = [
        (_make_directory(namespace, top, directory, len(named)), named)
        for directory, named in sorted(by_directory.items())
    ]
    filled = [each for each in made if each[1]]
    if len(filled) == 1:
        namespace.bulk_link(*filled[0], executor=executor)
    else:
        list(executor.map(carried(lambda each: namespace.bulk_link(*each)), filled))


def _make_directory(namespace: Namespace, top: str, directory: str, files: int) -> str:
    """Create a directory for this number of files; return its path."""
    shards = _shards(files)
    if directory:
        # No parents: if the job is aborted meanwhile, its directory must not be created again.
        return namespace.make_directory(join(top, directory), shards=shards, parents=False).path
    if shards > 1:
        namespace.reshard(top, shards=shards)
    return top


def _shards(files: int) -> int:
    """Return the number of shards for this number of new files.

    >>> [_shards(number) for number in (1, 999, 1000, 10_000, 10**6)]
    [1, 1, 2, 16, 64]
    """
    return min(MAX_SHARDS, 1 << (files // _FILES_PER_SHARD).bit_length())
