"""What an operator asks of a source, and does to it. Imports its siblings and the three ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

from attrs import evolve, frozen

from commitlog.clock import Clock, SystemClock
from commitlog.errors import ConfigurationError, NotFound
from commitlog.ingest.files import File, Slice
from commitlog.ingest.floors import floor_json
from commitlog.ingest.head import HEAD, Head
from commitlog.ingest.planning import Planner
from commitlog.ingest.problems import Kind, Problem, Problems
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.state import State
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Table

__all__ = ["Backlog", "Operator", "Status", "sources"]


def _nothing() -> None:
    pass


def sources(table: Table) -> list[str]:
    """Return the ids of the sources that have state in `table`, which is read as a whole."""
    return sorted(str(item["source"]) for item in table.scan() if item["item"] == HEAD)


@frozen(kw_only=True)
class Status:
    """How a source is doing, as far as its state tells.

    Attributes:
        source: its id.
        epoch: number of the last epoch that was planned; it may be under way.
        files: files that were handed out, ever; one that was cut counts in each epoch that has some.
        bytes: bytes that were handed out, ever.
        sweeps: passes over the listing that were completed.
        cursor: the last path that the pass under way has dealt with; None between passes.
        known_before: objects modified before this epoch second count as read; None as long as none do.
        rest: bytes that are left of the last file.
        passed_over: objects that were too old when they were listed, ever.
        problems_by_kind: for each kind of problem, how many slices could not be read for it, and were
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
    """What is waiting.

    Attributes:
        files: number of files.
        bytes: their size, as far as it was not handed out.
        oldest: the one that was modified first, or None.
    """

    files: int
    bytes: int
    oldest: Slice | None


class Operator:
    """An operator's view of one source. Safe while the query runs.

    Args:
        store: where the objects are; None if nobody is going to ask what waits.
        table: where the state is kept.
        settings: of the source, as its query has them.
        clock: this machine's.
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
        self._state = State(table, settings.source)
        self._problems = Problems(table, settings.source, clock=clock)

    def status(self) -> Status:
        """Return how the source is doing. Raises `NotFound` if it has no state."""
        head = self._head()
        sweep = head.body if head.floors.mark else head.tail
        counted = Counter(problem.kind for problem in self.problems())
        return Status(
            source=head.source,
            epoch=head.epoch,
            files=head.files,
            bytes=head.bytes,
            sweeps=head.bodies if head.floors.mark else head.tails,
            cursor=None if sweep is None else sweep.cursor,
            known_before=floor_json(head.floors.lowest),
            rest=0 if head.rest is None else head.rest.size,
            passed_over=head.passed_over,
            problems_by_kind={kind: counted[kind] for kind in get_args(Kind)},
        )

    def waiting(self, *, listed: Callable[[], object] = _nothing) -> Iterator[Slice]:
        """Yield what would be handed out if there were no limits, in the order of the listing.

        It is listed from the start. What is handed out meanwhile may be among it.

        Args:
            listed: called for each object that is listed, to show how far it is.

        Raises `NotFound` if the source has no state, `InputChanged` as the query would,
        `ConfigurationError` without a store.
        """
        if self._store is None:
            raise ConfigurationError(
                f"where the objects of source {self._settings.source!r} are is not known: give a store"
            )
        planner = Planner(self._store, self._settings, splits=lambda path: False, clock=self._clock)
        head = self._head()
        window = self._state.update(None, head)
        if head.rest is not None:
            yield head.rest
        yield from (each for _, each in self._state.wanted(1000))
        for info in planner.waiting(head, window, listed=listed):
            yield Slice(File.of(info), 0, info.size)

    def backlog(self, *, listed: Callable[[], object] = _nothing) -> Backlog:
        """Add up what is waiting. Arguments and errors as of `waiting`."""
        files, size, oldest = 0, 0, None
        for each in self.waiting(listed=listed):
            files += 1
            size += each.size
            if oldest is None or each.file.modified < oldest.file.modified:
                oldest = each
        return Backlog(files=files, bytes=size, oldest=oldest)

    def problems(self) -> Iterator[Problem]:
        """Yield the slices that could not be read, and were not handed out again."""
        return (problem for problem in self._problems if not problem.retried)

    def retry(self, path: str | None = None) -> list[Problem]:
        """Have what could not be read handed out again, with the next epoch; return what that is.

        Of each slice only what was not delivered is. It has to be the same version still, or the same
        problem comes back as one of a changed object.

        Args:
            path: of the object; None for all.

        A problem says that *an attempt* at the slice failed. Where another attempt at the same slice
        succeeded after it, records come twice. `missing` and `changed` may let that happen, and so may
        a query that is started anew with other options while the epoch was not done.
        """
        head = self._head()
        done: list[Problem] = []
        for problem in list(self._problems):
            if problem.retried:
                # Until its epoch cannot be handed out again, it keeps that from reporting it anew.
                if problem.epoch <= head.epoch - self._settings.keep_epochs:
                    self._problems.remove(problem)
            elif path in (None, problem.slice.file.path) and self._problems.retry(problem):
                done.append(evolve(problem, retried=True))
        return done

    def reset(self) -> int:
        """Forget everything of the source; return how many items that were. Other sources stay.

        Stop the query first, and give it a new checkpoint directory: it then reads everything again. A
        call that was cut off has to be repeated before anybody can read the source.
        """
        return self._state.drop()

    def _head(self) -> Head:
        head = self._state.head()
        if head is None:
            raise NotFound(f"source {self._settings.source!r} has no state in this table")
        return head
