"""Publishing a job: many files, made by many, become a directory or a part of one in a single step.

::

    .staging/<attempt>/…       a job that is under way
    events/…                   a job that found nothing at `events`, or replaced what was there
    events/job-<digest>/…      a job that added to what was there

A job is *begun*: it gets a directory of its own, at which no reader looks. Its tasks store objects, and
touch no table. *Publishing* makes files of the objects of those tasks that count, in that directory, and
then renames it: that is the commit point. *Aborting* deletes the directory. Both change the same entry,
so one of them happens, whoever tries, and whatever becomes of a request that got no answer.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, get_args

from commitlog.absence import SuppressAbsent, is_absent
from commitlog.backoff import Backoff
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
from commitlog.namespace.attempts import STAGING_AGE, Attempt, Mode, sweep_staging
from commitlog.namespace.batches import Mapper
from commitlog.namespace.data import Data
from commitlog.namespace.filling import fill
from commitlog.namespace.jobs import (
    JOB,
    REPLACED_JOBS,
    FoundJob,
    attempt_at,
    find_job,
    jobs_of,
    part_of,
)
from commitlog.namespace.keys import STAGING, split
from commitlog.namespace.linking import NewFile, check_apart, check_distinct
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.status import Status
from commitlog.oplog.fields import text
from commitlog.paths import join
from commitlog.words import random_word

__all__ = ["Publication"]

#: Given the directory that the files are to be added to, or None if they are to be all there is: the
#: attributes that the directory is to have with them. May raise, and then nothing is published.
Fit: TypeAlias = Callable[[Status | None], Mapping[str, str]]


def _nothing(_: Status | None) -> Mapping[str, str]:
    return {}


class Publication:
    """Publishes jobs at one path of a namespace. Thread-safe.

    Args:
        lake: the namespace.
        target: path of the directory that the jobs make, or add to. Not the root.
        clock: tells how old what others have begun is; waited on between attempts.
        backoff: how often is tried again what somebody else's change has come in between of.
        words: makes the names of attempts: 32 hexadecimal digits that nobody else ever makes.
        mapper: has files of different directories, or shards, linked at once; see `Namespace.link_into`.

    A job id is published at most once, as long as the target knows it: by what it has published, or,
    once that was overwritten, by the memory of the directory that took its place, which goes back
    `jobs.REMEMBERED` jobs. A directory that is deleted, or that anything but a job replaces, takes the
    ids of its jobs with it. Nothing of a job is at the target before it is published, and all of it is
    after that. An overwritten directory goes into the trash; readers that have opened its files go on
    for the grace of the namespace.
    """

    def __init__(
        self,
        lake: Namespace,
        target: str,
        *,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        words: Callable[[], str] = random_word,
        mapper: Mapper = map,
    ) -> None:
        if not split(target):
            raise InvalidPath("a job cannot be the root of a namespace: name a directory in it")
        if split(target)[0] == STAGING:
            raise InvalidPath(f"{target!r} is where jobs are that are under way: name another directory")
        self.lake = lake
        self.target = target
        self._clock = SystemClock() if clock is None else clock
        self._backoff = Backoff() if backoff is None else backoff
        self._words = words
        self._mapper = mapper

    def begin(self, job_id: str | None = None, *, mode: Mode = "append", fit: Fit = _nothing) -> Attempt:
        """Begin an attempt at a job: make its directory, which is invisible to readers of the target.

        Args:
            job_id: any text that is not blank; None: a new one.
            mode: see `Mode`. ``error`` refuses anything at the target, now and when it is published.
            fit: asked now, so that what does not fit is refused before there are files.

        Raises:
            JobAlreadyCommitted: the job is at the target, or was before that was overwritten.
            AlreadyExists: something is there, and the mode is ``error``.
            NotADirectory: a file is there, or above it.
        """
        if mode not in get_args(Mode):
            raise ConfigurationError(f"mode {mode!r} is none of {', '.join(get_args(Mode))}")
        if job_id is not None and not _is_text(job_id):
            raise ConfigurationError(f"a job id is a text that is not blank, not {job_id!r}")
        word = self._words()
        job_id = word if job_id is None else job_id
        found = self._look(job_id)
        self._check(found, job_id, mode)
        if found.there is None:
            self._check_above()
        fit(None if mode == "overwrite" else found.there)
        with contextlib.suppress(CommitError):  # what is left is nobody's business but the sweeper's
            sweep_staging(self.lake, clock=self._clock)
        made = self.lake.make_directory(join(STAGING, word), exist_ok=False)
        return Attempt(job_id=job_id, mode=mode, staging=made.path, id=made.id)

    def publish(self, attempt: Attempt, files: Mapping[str, Data], *, fit: Fit = _nothing) -> Status:
        """Make files of objects, and publish them all at once; return the directory that has them.

        If the attempt was published before, and has been overwritten since, that is the one which has
        taken its place; if it has been renamed since, it is returned from where it is.

        Args:
            attempt: as `begin` made it.
            files: for each path below the target what the file's content is.
            fit: asked what the attributes of the directory are to be.

        Raises:
            JobAlreadyCommitted: another attempt at the job was first. Nothing was published: abort it.
            AlreadyExists: the mode is ``error``, and something has come to be there; likewise.
            InvalidPath, NotADirectory, ConfigurationError: what is wrong with `files`, as of
                `Namespace.link_all`. Nothing was done.
            JobAborted: the attempt was aborted, or begun `STAGING_AGE` seconds ago or longer, so that it
                is taken for dead.
            Conflict, Unavailable: nothing was published. Abort it, or try again.
            OutcomeUnknown: it was published, or it was not, or it still may be. `abort` settles that.
        """
        if (done := self.find(attempt)) is not None:
            return done
        try:
            self._link(attempt, files, fit(None))
            return self._rename(attempt, fit)
        except (NotFound, OutcomeUnknown) as error:
            with contextlib.suppress(CommitError):
                if (done := self.find(attempt)) is not None:
                    return done
            if not is_absent(error) or self._staged(attempt) is not None:
                raise
            if (moved := self._elsewhere(attempt)) is not None:
                return moved
            raise self._dead(attempt) from error

    def _elsewhere(self, attempt: Attempt) -> Status | None:
        """Return the directory of an attempt that is not where it was begun; None if it was deleted."""
        try:
            path = self.lake.path_of(attempt.id)
            found = None if path is None else self.lake.stat(path)
        except CommitError as error:
            raise self._lost(attempt) from error
        if found is not None and found.id != attempt.id:
            raise self._lost(attempt)
        return found

    def _lost(self, attempt: Attempt) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the attempt at job {attempt.job_id!r} at {self.target!r} was published or aborted, and its"
            " directory was not found where it was looked for: publish it again, which looks again"
        )

    def _dead(self, attempt: Attempt) -> JobAborted:
        return JobAborted(
            f"the attempt at job {attempt.job_id!r} at {self.target!r} was aborted, or taken for dead;"
            " nothing of it is there. Run it again"
        )

    def find(self, attempt: Attempt) -> Status | None:
        """Return the directory that an attempt has published, or else the one that has replaced it.

        None if neither is at the target, as far as that is known.
        """
        return self._look(attempt.job_id).of(attempt.id)

    def abort(self, attempt: Attempt, files: Mapping[str, Data] = MappingProxyType({})) -> bool:
        """Make sure that an attempt is never published; return False if it is, or was aborted before.

        Safe at any time, and after any error of `publish`: the directory is deleted if it is still where
        it was begun, and then no request that is still under way can publish it.

        Args:
            attempt: which.
            files: what its tasks have stored, as far as it is known. It is removed if `publish` was not
                called; if it was, what came to be a file goes with the trash, and what did not is found
                by a check of the namespace.
        """
        staged = self._staged(attempt)
        if staged is None:
            return False
        # Publishing changes the directory before it makes files.
        untouched = staged.version == 1
        try:
            try:
                expected = staged if untouched else None
                self.lake.delete(attempt.staging, recursive=True, expected=expected)
            except PreconditionFailed:
                untouched = False
                self.lake.delete(attempt.staging, recursive=True)
        except NotFound as error:
            if not is_absent(error):
                raise
            return False
        if untouched:
            with contextlib.suppress(CommitError):
                self.lake.store.delete_many([data.path for data in files.values() if data.own])
        return True

    # inside

    def _look(self, job_id: str) -> FoundJob:
        return find_job(self.lake, self.target, job_id)

    def _check(self, found: FoundJob, job_id: str, mode: Mode) -> None:
        if found.job is not None:
            at = "is at {!r} already" if found.replaced is None else "was at {!r}, and overwritten"
            raise JobAlreadyCommitted(
                f"job {job_id!r} {at.format(found.job.path)}; nothing was added",
                job_id=job_id,
                version=found.job.version,
            )
        if found.there is not None and mode == "error":
            raise AlreadyExists(
                f"there is something at {self.target!r}, and the mode is 'error'; nothing was added"
            )

    def _check_above(self) -> None:
        """Look for a file above the target, below which nothing can be."""
        above = self.target
        while above := above.rpartition("/")[0]:
            with SuppressAbsent():
                if not self.lake.stat(above).is_directory:
                    raise NotADirectory(f"{above!r} is a file: no job can be published below it")
                return

    def _staged(self, attempt: Attempt) -> Status | None:
        with SuppressAbsent():
            return self.lake.stat(attempt.staging)
        return None

    def _link(self, attempt: Attempt, files: Mapping[str, Data], attributes: Mapping[str, str]) -> None:
        new = {path: NewFile(data=data) for path, data in files.items()}
        check_distinct(new)
        check_apart(new)
        kept = {**attributes, JOB: attempt.job_id}
        staged = self.lake.set_attributes(attempt.staging, attributes=kept)
        if staged.created <= (self._clock.epoch() - STAGING_AGE) * 1000:
            # What it has stored may have been taken for nobody's by now.
            self.abort(attempt)
            raise self._dead(attempt)
        fill(self.lake, attempt.staging, files, mapper=self._mapper)

    def _rename(self, attempt: Attempt, fit: Fit) -> Status:
        """Rename the directory of an attempt to where there is room for it."""
        last: CommitError | None = None
        for _ in self._backoff.attempts(self._clock):
            found = self._look(attempt.job_id)
            if (done := found.of(attempt.id)) is not None:
                return done
            self._check(found, attempt.job_id, attempt.mode)
            try:
                return self._move(attempt, found.there, fit)
            except NotFound as error:
                if not is_absent(error) or self._staged(attempt) is None:
                    raise
                last = error
            except (AlreadyExists, PreconditionFailed) as error:
                last = error
        raise Conflict(f"{self.target!r} kept changing; nothing was published ({last})") from last

    def _move(self, attempt: Attempt, there: Status | None, fit: Fit) -> Status:
        """Do what is the commit point."""
        if there is None:
            above = self.target.rpartition("/")[0]
            if above:
                self.lake.make_directory(above)
            return self.lake.rename(attempt.staging, self.target)
        if attempt.mode == "overwrite":
            inherit = partial(self._inherited, attempt)
            return self.lake.replace(attempt.staging, self.target, expected=there, inherit=inherit)
        wanted = fit(there)
        if any(there.attributes.get(name) != value for name, value in wanted.items()):
            there = self.lake.set_attributes(self.target, attributes=wanted, expected=there)
        return self.lake.rename(attempt.staging, join(self.target, part_of(attempt.job_id)), into=there)

    def _inherited(
        self, attempt: Attempt, there: Status, entries: Callable[[str], Iterator[Status]]
    ) -> Mapping[str, str]:
        """Return what the directory of an attempt is to remember of the one that it replaces."""
        jobs = jobs_of(there, entries)
        if attempt_at(attempt.job_id, jobs) is not None:
            raise PreconditionFailed(f"job {attempt.job_id!r} was added to {there.path!r} meanwhile")
        return {REPLACED_JOBS: jobs}


def _is_text(job_id: object) -> bool:
    try:
        return bool(text(job_id).strip())
    except (TypeError, ValueError):
        return False
