"""Administration of a source: status, backlog, retry of problems, reset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

from attrs import evolve, frozen

from commitlog._util.tracing import traced
from commitlog.clock import Clock, SystemClock
from commitlog.errors import ConfigurationError, NotFound, StateMismatch
from commitlog.ingest.files import File, Slice
from commitlog.ingest.planning import Planner
from commitlog.ingest.quarantine import InputProblem, Kind, Quarantine
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.source_state import STATE_KEY, SourceState
from commitlog.ingest.state import StateTable
from commitlog.ingest.watermarks import watermark_json
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Table

__all__ = ["Backlog", "IngestAdmin", "SourceStatus", "sources"]


def _nothing() -> None:
    pass


def sources(table: Table) -> list[str]:
    """Return the ids of the sources that have state in `table`, which is read as a whole."""
    return sorted(str(item["source"]) for item in table.scan() if item["item"] == STATE_KEY)


@frozen(kw_only=True)
class SourceStatus:
    """Status of a source, from its stored state.

    Attributes:
        source: its id.
        epoch: number of the last planned epoch. It may still be running.
        files: total number of files handed out. A cut file counts once in each epoch that reads it.
        bytes: total number of bytes handed out.
        sweeps: number of completed passes over the listing.
        cursor: the last path that the current pass has processed; None between passes.
        known_before: objects modified before this time (epoch seconds) count as read; None if there is
            no such time yet.
        rest: bytes of the last file that are not handed out yet.
        passed_over: total number of objects that were skipped because they were too old when listed.
        problems_by_kind: for each kind of problem, the number of slices that could not be read and were
            not handed out again.
    """

    source: str
    epoch: int
    files: int
    bytes: int
    sweeps: int
    cursor: str | None
    known_before: float | None
    rest: int
    passed_over: int
    problems_by_kind: Mapping[Kind, int]

    @property
    def problems(self) -> int:
        """Number of slices that could not be read, and were not handed out again."""
        return sum(self.problems_by_kind.values())


@frozen(kw_only=True)
class Backlog:
    """The files that wait to be read.

    Attributes:
        files: number of files.
        bytes: number of their bytes that are not handed out yet.
        oldest: the slice with the earliest modification time, or None.
        complete: whether the whole input was listed; if not, more files may wait.
    """

    files: int
    bytes: int
    oldest: Slice | None
    complete: bool = True


class _LimitReached(Exception):
    """The listing is longer than it may be."""


@traced(lambda admin, _arguments: {"commitlog.ingest.source": admin._settings.source})
class IngestAdmin:
    """An operator's view of one source. Safe while the query runs.

    Args:
        store: the store with the objects. Only `waiting` and `backlog` need it; else it may be None.
        table: the table with the source's state.
        settings: the settings that the query of the source uses.
        clock: the local clock.
    """

    def __init__(
        self,
        store: ObjectStore | None,
        table: Table,
        settings: IngestSettings,
        *,
        clock: Clock | None = None,
    ) -> None:
        clock = self._clock = SystemClock() if clock is None else clock
        self._settings = settings
        self._store = store
        self._state = StateTable(table, settings.source)
        self._quarantine = Quarantine(table, settings.source, clock=clock)

    def status(self) -> SourceStatus:
        """Return the status of the source. Raises `NotFound` if it has no state."""
        state = self._read_state()
        sweep = state.body if state.watermarks.boundary else state.tail
        counted = Counter(problem.kind for problem in self.problems())
        return SourceStatus(
            source=state.source,
            epoch=state.epoch,
            files=state.files,
            bytes=state.bytes,
            sweeps=state.bodies if state.watermarks.boundary else state.tails,
            cursor=None if sweep is None else sweep.cursor,
            known_before=watermark_json(state.watermarks.lowest),
            rest=0 if state.rest is None else state.rest.size,
            passed_over=state.passed_over,
            problems_by_kind={kind: counted[kind] for kind in get_args(Kind)},
        )

    def waiting(self, *, listed: Callable[[], object] = _nothing) -> Iterator[Slice]:
        """Yield all slices that wait to be handed out, ignoring limits, in the order of the listing.

        The listing starts at the beginning. Slices that the query takes during the call may be included.

        Args:
            listed: called for each listed object, for example to show progress.

        Raises `NotFound` if the source has no state, `InputChanged` as the query would,
        `ConfigurationError` without a store, and `BucketNotFound` if the store is not there.
        """
        if self._store is None:
            raise ConfigurationError(
                f"cannot list the objects of source {self._settings.source!r} without a store"
            )
        planner = Planner(self._store, self._settings, splits=lambda path: False, clock=self._clock)
        state = self._read_state()
        self._store.check()  # the listing of a directory that is not mounted is empty
        seen_files = self._state.update(None, state)
        if state.rest is not None:
            yield state.rest
        yield from self._state.all_wanted()
        for info in planner.waiting(state, seen_files, listed=listed):
            yield Slice(File.of(info), 0, info.size)

    def backlog(self, *, listed: Callable[[], object] = _nothing, limit: int | None = None) -> Backlog:
        """Return the number and size of the waiting files. Arguments and errors as in `waiting`.

        Args:
            limit: most objects that are listed, from the beginning of the listing; None for no bound.
        """
        files, size, oldest, count, complete = 0, 0, None, 0, True

        def counted() -> None:
            nonlocal count
            if count == limit:
                raise _LimitReached
            count += 1
            listed()

        try:
            for each in self.waiting(listed=counted):
                files += 1
                size += each.size
                if oldest is None or each.file.modified < oldest.file.modified:
                    oldest = each
        except _LimitReached:
            complete = False
        return Backlog(files=files, bytes=size, oldest=oldest, complete=complete)

    def problems(self) -> Iterator[InputProblem]:
        """Yield the slices that could not be read and were not handed out again."""
        return (problem for problem in self._quarantine if not problem.retried)

    def retry(self, path: str | None = None) -> list[InputProblem]:
        """Hand slices with problems out again in the next epoch; return their problems.

        Only records that were not delivered are read again. If the object has changed since, the slice
        is reported again, as a changed object.

        Args:
            path: path of the object; None for all objects with problems.

        A problem says that *an attempt* at the slice failed. If another attempt at the same slice
        succeeded later, its records are delivered twice. This can happen with the policies `missing` and
        `changed`, and if a query restarts with other options before the epoch was finished.
        """
        state = self._read_state()
        done: list[InputProblem] = []
        kept: dict[int, bool] = {}
        for problem in list(self._quarantine):
            if problem.retried:
                # The row prevents a second report as long as its epoch can be handed out again.
                if problem.epoch not in kept:
                    recent = problem.epoch > state.epoch - self._settings.keep_epochs
                    kept[problem.epoch] = recent or self._is_kept(problem.epoch)
                if not kept[problem.epoch]:
                    self._quarantine.remove(problem)
            elif path in (None, problem.slice.file.path) and self._quarantine.retry(problem):
                done.append(evolve(problem, retried=True))
        return done

    def reset(self) -> int:
        """Delete all state of the source; return the number of deleted items. Other sources stay.

        Stop the query first. Restart it with a new checkpoint directory: it then reads everything again.
        If the call is interrupted, repeat it: until it completes, the source cannot be read.
        """
        return self._state.drop()

    def _is_kept(self, epoch: int) -> bool:
        try:
            self._state.slices(epoch)
        except StateMismatch:
            return False
        return True

    def _read_state(self) -> SourceState:
        state = self._state.read()
        if state is None:
            raise NotFound(f"source {self._settings.source!r} has no state in this table")
        return state
