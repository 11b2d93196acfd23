"""Cleaning of a source: deletes or archives files that were delivered, never a newer version of them.

A file is cleaned when all of this holds:

* All of its slices are delivered: the query has committed the epoch that completes it, no slice of it is
  a problem, and none waits to be read again.
* `IngestSettings.clean_delay` has passed since that commit.
* It is known by its time alone, or everything is remembered. So neither a late listing can deliver it
  again, nor can the memory of it hide a new object with the same name and content.
* The store still has this version: the same etag and time. It is removed on condition of its etag.

Each step can be repeated. A row of the queue is removed after its files, so a cleaner that dies leaves
them to the next one, and two cleaners do the same work twice.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from attrs import evolve, frozen

from commitlog._util.concurrency import SERIAL, Executor
from commitlog._util.ids import random_id
from commitlog._util.tracing import carried, traced
from commitlog.clock import Clock, SystemClock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    InvalidPath,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    StateMismatch,
)
from commitlog.ingest.cleaning_queue import CleaningQueue, Commits
from commitlog.ingest.files import File
from commitlog.ingest.planning import store_time
from commitlog.ingest.quarantine import Quarantine
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.source_state import SourceState
from commitlog.ingest.state import StateTable
from commitlog.stores.api import ObjectInfo, same_etag
from commitlog.tables.api import Table
from commitlog.urls import Url

__all__ = ["CLEAN_FILES", "Cleaned", "Cleaner", "store_to_clean"]

#: Most files that one step cleans, by default.
CLEAN_FILES = 1000

#: Most attempts to find the undelivered files, and to record that a cleaning begins. Each may lose to
#: the query, or to another cleaner.
_TRIES = 5

#: Number of recent files, and of files that wait, by which a store is recognized.
_SAMPLE = 16

#: Largest object that S3 copies in one request, in bytes.
_MAX_COPY = 5 * 1024**3


class _Outcome(enum.Enum):
    CLEANED = "cleaned"
    GONE = "gone"
    KEPT = "kept"


@frozen(kw_only=True)
class Cleaned:
    """The result of a step.

    Attributes:
        files: number of files that were deleted, or archived.
        gone: number of files that did not exist any more.
        kept: number of files that stay: the store has another version, a slice is not delivered, the key
            is not a path, or has none in the archive, or the object is too large to be copied in one
            request.
        more: whether the step ended at its limit, and there may be more to clean now.
    """

    files: int = 0
    gone: int = 0
    kept: int = 0
    more: bool = False


def store_to_clean(url: Url, settings: IngestSettings) -> tuple[Url, str]:
    """Return the URL of the store that a `Cleaner` needs, and its argument `below`.

    It is `url`, with which the source opens its store, or the whole bucket: to reach the archive, and to
    keep the scratch objects of a probe away from a query that reads hidden names.
    """
    if url.prefix and (settings.archive or settings.names.hidden):
        return evolve(url, prefix=""), f"{url.prefix}/"
    return url, ""


@traced(lambda cleaner, _arguments: {"commitlog.ingest.source": cleaner._settings.source})
class Cleaner:
    """Cleans the delivered files of one source. Not thread-safe; any number of cleaners may run.

    Args:
        store: the store with the objects, whose conditions the store itself must enforce: mode
            ``native``. A cleaner with an archive opens the whole bucket, or the directory.
        table: the table for the state.
        settings: the settings of the source.
        below: the path in `store` that the paths of the source begin with: "" if it was opened by the
            same URL, else the prefix of that URL.
        clock: gives the time if the store does not.
        executor: cleans several files of a step in parallel. The caller shuts it down.
        new_id: returns a new id for each call.

    Raises `ConfigurationError` if the query would read its archive.
    """

    def __init__(
        self,
        store: ConditionalStore,
        table: Table,
        settings: IngestSettings,
        *,
        below: str = "",
        clock: Clock | None = None,
        executor: Executor = SERIAL,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self._store = store
        self._settings = settings
        self._below = below
        self._clock = SystemClock() if clock is None else clock
        self._executor = executor
        self._state = StateTable(table, settings.source, new_id=new_id)
        self._queue = CleaningQueue(table, settings.source, new_id=new_id)
        self._problems = Quarantine(table, settings.source, clock=self._clock, new_id=new_id)
        # The id under which the state was created, a row, and the number of its files that are cleaned.
        self._place = ("", "", 0)
        if settings.archive and settings.names.glob is None and settings.names.name is None:
            self._check_archive(settings.archive + "name")

    def clean(self, *, most: int = CLEAN_FILES) -> Cleaned:
        """Clean up to `most` files whose time has come.

        A file takes two requests, an archived one four. If nothing is due, a step takes four. If files
        are gone, it takes one more.

        Raises:
            BucketNotFound: the bucket or the directory of the files does not exist.
            NotSupported: the store does not enforce the condition of a delete, or of a copy to an
                archive. Nothing was removed.
            ConfigurationError: the query would read an archived file.
            StateMismatch: the state is being removed.
            Conflict: the query planned epochs, or committed them, again and again during the call.

        It also raises the errors of the store and the table. Every call can be repeated after an error.
        """
        state = self._state.read()
        if state is None or not self._settings.cleans:
            return Cleaned()
        commits = self._queue.commits(state.born)
        now = store_time(self._store.object_store, self._below + self._settings.prefix, self._clock)
        due = commits.due(now - self._settings.clean_delay)
        counted: Counter[_Outcome] = Counter()
        left, undelivered = most, None
        for row in self._queue.rows(due) if due else ():
            if not all(self._known(state, file) for file in row.files):
                break
            if undelivered is None:
                undelivered = self._undelivered(state, commits)
                self._begin(commits, due)
            first = self._place[2] if self._place[:2] == (state.born, row.range) else 0
            files = row.files[first : first + left]
            work = [file for file in files if (file.path, file.etag) not in undelivered]
            counted[_Outcome.KEPT] += len(files) - len(work)
            outcomes = list(self._executor.map(carried(self._clean), work))
            if _Outcome.GONE in outcomes and not counted[_Outcome.GONE]:
                self._check_input()
            counted.update(outcomes)
            left -= len(files)
            self._place = (state.born, row.range, first + len(files))
            if self._place[2] < len(row.files):
                break
            self._queue.remove(row)
            if not left:
                break
        return Cleaned(
            files=counted[_Outcome.CLEANED],
            gone=counted[_Outcome.GONE],
            kept=counted[_Outcome.KEPT],
            more=not left,
        )

    def check_store(self) -> None:
        """Raise `ConfigurationError` if files are queued, and none of the last files is in the store.

        Then it may be the store of another endpoint that has a bucket of the same name, and `clean`
        would take all files for gone. Sends a HEAD for each of some files, until one exists. Raises
        `BucketNotFound` as `clean` does.
        """
        state = self._state.read()
        if state is None:
            return
        waiting = (file for row in self._queue.rows(state.epoch) for file in row.files)
        queued = list(islice(waiting, _SAMPLE))
        recent: list[File] = []
        with suppress(StateMismatch):  # there is no epoch, or it is not kept
            recent = [slice.file for slice in self._state.slices(state.epoch)[:_SAMPLE]]
        if queued and not any(self._exists(file) for file in (*queued, *recent)):
            self._check_input()
            raise ConfigurationError(
                f"{self._store.object_store.url} has none of the last files of source"
                f" {self._settings.source!r}, so it may be another store with a bucket of that name:"
                " nothing was changed. Give the endpoint of the query. If all files were removed, there"
                " is nothing to clean"
            )

    # inside

    def _known(self, state: SourceState, file: File) -> bool:
        """Return whether the source knows the file by its time alone, or remembers everything."""
        return self._settings.remember == "everything" or file.modified < state.watermarks.of(file.path)

    def _undelivered(self, state: SourceState, commits: Commits) -> set[tuple[str, str]]:
        """Return path and etag of each file with a slice that may not be delivered.

        A slice moves from the problems to the slices to retry, from there or from the rest into an
        epoch, and from an epoch that is not committed to the problems. If no epoch is planned from
        `state` to the end of the call, these places are read in an order in which no slice is missed on
        its way. Else they are read again. Each of these files is queued again when it is complete.
        """
        for _ in range(_TRIES):
            found = [problem.slice.file for problem in self._problems if not problem.retried]
            found += [slice.file for slice in self._state.all_wanted()]
            found += [] if state.rest is None else [state.rest.file]
            gone: StateMismatch | None = None
            try:
                # The request for the last epoch implies that those up to the one before it are done.
                for epoch in range(max(commits.committed + 1, state.epoch - 1, 1), state.epoch + 1):
                    found += [slice.file for slice in self._state.slices(epoch)]
            except StateMismatch as error:
                gone = error
            after = self._state.read()
            if after is None or after.born != state.born:
                raise StateMismatch(
                    f"the state of source {self._settings.source!r} was removed during the call: no file"
                    " was removed"
                )
            if after.epoch == state.epoch:
                if gone is not None:
                    raise gone
                return {(file.path, file.etag) for file in found}
            state = after
        raise Conflict(
            f"the query of source {self._settings.source!r} plans epochs all the time: try again;"
            " nothing was removed"
        )

    def _begin(self, commits: Commits, due: int) -> None:
        """Record that epochs up to `due` cannot be read again."""
        for _ in range(_TRIES):
            begun = commits.with_cleaned(due)
            if begun is commits or self._queue.replace(begun):
                return
            commits = self._queue.commits(commits.born)
        raise Conflict(
            f"the commits of source {self._settings.source!r} change all the time: try again; nothing"
            " was removed"
        )

    def _clean(self, file: File) -> _Outcome:
        path = self._below + file.path
        try:
            found = self._store.object_store.begin_head(path)().info
        except InvalidPath:
            return _Outcome.KEPT
        if found is None:
            return _Outcome.GONE
        if not _same_version(file, found):
            return _Outcome.KEPT
        if self._settings.archive:
            if file.size > _MAX_COPY and not self._store.object_store.capabilities.enforced:
                return _Outcome.KEPT
            try:
                self._archive(path, found)
            except NotFound:
                return _Outcome.GONE
            except InvalidPath:
                return _Outcome.KEPT
        try:
            self._store.delete_if_match(path, etag=found.etag)
        except PreconditionFailed:
            return _Outcome.KEPT
        return _Outcome.CLEANED

    def _exists(self, file: File) -> bool:
        try:
            return self._store.object_store.begin_head(self._below + file.path)().info is not None
        except InvalidPath:
            return False

    def _check_input(self) -> None:
        """Raise `BucketNotFound` if not only files are gone: a HEAD does not report a missing bucket."""
        self._store.object_store.check()
        self._store.object_store.first(self._below + self._settings.prefix)

    def _archive(self, path: str, found: ObjectInfo) -> None:
        """Copy the object into the archive, unless the copy exists.

        Raises `NotFound` if it is gone, and `InvalidPath` if the archive cannot hold its path.
        """
        plain = self._settings.archive + path
        version = f"{found.etag}\0{int(found.last_modified)}"
        stem, dot, suffix = plain.rpartition(".")
        if not dot or "/" in suffix:
            stem, suffix = plain, ""
        digest = hashlib.sha256(version.encode()).hexdigest()[:16]
        for target in (plain, f"{stem}.{digest}{dot and '.'}{suffix}"):
            self._check_archive(target)
            try:
                self._store.copy_if_absent(path, target)
                return
            except (AlreadyExists, OutcomeUnknown) as error:
                there = self._store.object_store.begin_head(target)().info
                if there is not None and there.size == found.size and same_etag(there.etag, found.etag):
                    return
                # No other version has the second name, so its object is a copy that was made before.
                if target != plain and there is not None and there.size == found.size:
                    return
                if target != plain or isinstance(error, OutcomeUnknown):
                    raise

    def _check_archive(self, target: str) -> None:
        """Raise `ConfigurationError` if the query would read an object at `target`."""
        prefix = self._below + self._settings.prefix
        if target.startswith(prefix) and self._settings.names.wants(target[len(prefix) :]):
            raise ConfigurationError(
                f"the query would read the archived object {target!r}: choose an archive that is not"
                f" below {prefix!r}, or a name there that the query leaves out, such as '_archive'"
            )


def _same_version(file: File, found: ObjectInfo) -> bool:
    # Listings and HEAD may give times of different precision.
    same_time = int(found.last_modified) == int(file.modified)
    return same_time and bool(file.etag) and same_etag(found.etag, file.etag)
