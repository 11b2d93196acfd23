"""A source: every object of a bucket, each version that is listed exactly once.

What a streaming engine calls on its driver. An *epoch* is a list of slices that is decided once, by the
transaction that stores it, before anybody is told of it. So whoever asks what comes after an offset gets
the same answer, whatever crashed, and however many ask. Imports its siblings, and the three ports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from attrs import evolve

from commitlog.backoff import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.errors import CommitError, OutcomeUnknown, StateMismatch
from commitlog.ingest.cargo import Limits
from commitlog.ingest.counters import Counters
from commitlog.ingest.files import Partition
from commitlog.ingest.head import Head
from commitlog.ingest.offset import Offset
from commitlog.ingest.planning import MAX_WANTED, Planner
from commitlog.ingest.rows import ROWS
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.state import State
from commitlog.ingest.window import Window
from commitlog.packing import packed
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Table
from commitlog.words import random_word

__all__ = ["Ingest"]

#: Partitions are filled up to the first size, each slice counting as the second at least.
PARTITION_BYTES = 32 * 1024 * 1024
SLICE_COST = 1024 * 1024

#: Problems are counted again after so many seconds, and up to so many.
PROBLEMS_SECONDS = 60.0
MAX_PROBLEMS = 1000


def _never(path: str) -> bool:
    return False


class Ingest:
    """A source, as its driver sees it. Not thread-safe, as a driver calls one method after the other;
    any number of processes may have one of their own.

    Args:
        store: where the objects are.
        table: where the state is kept; its keys are `INGEST_SCHEMA`.
        settings: of the source.
        splits: tells of a path whether its file can be read by ranges of bytes.
        clock: waited on between attempts; tells the time where the store does not.
        backoff: how a step is tried again whose outcome is unknown, or that another driver forestalled.
        words: makes a new word with each call.

    Methods raise what the ports raise; nothing follows from that, and every call can be repeated.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: Table,
        settings: IngestSettings,
        *,
        splits: Callable[[str], bool] = _never,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        words: Callable[[], str] = random_word,
    ) -> None:
        self.settings = settings
        self.state = State(table, settings.source, words=words)
        self._clock = SystemClock() if clock is None else clock
        self._planner = Planner(store, settings, splits=splits, clock=self._clock)
        self._backoff = Backoff() if backoff is None else backoff
        self._claim = words()
        self._window: Window | None = None
        self._finite = False
        self._sweeps: tuple[int, int] | None = None  # how many must be completed, and then it ends
        self._counters = Counters(source=settings.source)
        self._problems_counted: float | None = None

    def initial_offset(self) -> dict[str, Any]:
        """Return the offset before the first epoch. The state is made, if there is none."""
        if self.state.head() is None:
            starting = self.settings.starting_from
            since = starting if isinstance(starting, (int, float)) else None
            self.state.begin(self._planner.now() if starting == "latest" else since)
        return Offset(source=self.settings.source, epoch=0).to_json()

    def finish(self) -> None:
        """Let `latest_offset` come to an end: hand out what is there when it is called first, and not
        what comes later. It may be called before `initial_offset`, and sends nothing.
        """
        self._finite = True

    def latest_offset(
        self, start: Mapping[str, Any], *, max_files: int | None = None, max_bytes: int | None = None
    ) -> dict[str, Any]:
        """Return the offset of the epoch after `start`: one that was planned, or else a new one.

        Args:
            start: an offset up to which everything is done with.
            max_files: most files of a new epoch; the settings hold as well.
            max_bytes: most bytes of a new epoch; likewise.

        Returns:
            The offset, or `start` if nothing new was found.

        Raises:
            StateMismatch: checkpoint and state tell of different pasts. Nothing was changed.
            InputChanged: an object was overwritten, and `settings.changed` is ``fail``.
        """
        begin = Offset.from_json(start, source=self.settings.source)
        limits = self._limits(max_files, max_bytes)
        for _ in self._backoff.attempts(self._clock):
            head = self._head()
            self._check(head, begin)
            self._counters = self._counters.at(head)
            if head.epoch > begin.epoch:
                slices = self.state.slices(begin.epoch + 1)  # before anybody relies on its being there
                self._counters = self._counters.at(head, slices)
                return self._offered(head, begin)
            if self._finite and self._sweeps is None:
                self._sweeps = head.finish(ordered=self.settings.ordered)
            if self._sweeps is not None and self._done(head, self._sweeps):
                return dict(start)
            stepped = self._steps(evolve(head, claim=begin.claim), limits)
            if stepped is not None:
                return self._offered(stepped, begin) if stepped.epoch > begin.epoch else dict(start)
        raise OutcomeUnknown(
            f"source {begin.source!r}: it stays open which epoch comes after {begin.epoch}; ask again"
        )

    def partitions(
        self,
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        *,
        partition_bytes: int = PARTITION_BYTES,
        slice_cost: int = SLICE_COST,
    ) -> list[Partition]:
        """Return what is to be read between two offsets: the same each time, in any process.

        The query that comes first with the end of the first epoch is the one whose source it is.

        Args:
            start, end: offsets that this source has returned.
            partition_bytes: how much a task should read.
            slice_cost: bytes that could be read in the time that it takes to open a file.

        Raises:
            StateMismatch: these epochs are not there, not any more, or another query reads the source.
        """
        source = self.settings.source
        begin = Offset.from_json(start, source=source)
        until = Offset.from_json(end, source=source)
        if until.epoch <= begin.epoch:
            return []
        self._take(until)
        found: list[Partition] = []
        for epoch in range(begin.epoch + 1, until.epoch + 1):
            slices = self.state.slices(epoch)
            groups = packed(
                slices, lambda each: each.size, group_bytes=partition_bytes, least_bytes=slice_cost
            )
            found += [Partition(epoch, tuple(group)) for group in groups]
        return found

    def counters(self) -> Counters:
        """Return what the last call of `latest_offset` did. Asks for problems once a minute.

        Where these cannot be counted, the number is the one from before. Raises nothing.
        """
        now = self._clock.monotonic()
        if self._problems_counted is None or now >= self._problems_counted + PROBLEMS_SECONDS:
            self._problems_counted = now
            with suppress(CommitError):  # no query should stop for want of a number
                self._counters = evolve(self._counters, problems=self.state.problems(MAX_PROBLEMS))
        return self._counters

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: that an epoch is over is known when somebody asks for what comes after it."""

    # inside

    def _head(self) -> Head:
        head = self.state.head()
        if head is None:
            raise StateMismatch(
                f"source {self.settings.source!r} has no state in this table, though its query has a"
                " checkpoint: give the table that it had before; or begin anew with a new checkpoint"
                " directory, which reads everything again"
            )
        return head

    def _check(self, head: Head, start: Offset) -> None:
        same = not start.epoch or start.born == head.born
        if start.epoch > head.epoch or not same:
            raise StateMismatch(
                f"the checkpoint of source {start.source!r} is at epoch {start.epoch}, and its state"
                f" {'at ' + str(head.epoch) if same else 'was made anew'}: give the table that it had"
                " before, or begin anew with `commitlog ingest reset` and a new checkpoint directory,"
                " which reads everything again"
            )
        if start.claim == head.claim or not head.claim:
            return
        if start.epoch == 0:
            raise StateMismatch(
                f"source {start.source!r} was read up to epoch {head.epoch} by a query with another"
                " checkpoint: restore that one; or give another source id; or begin anew with"
                " `commitlog ingest reset`, which reads everything again"
            )
        raise StateMismatch(
            f"source {start.source!r} is read by a query with another checkpoint: give each query a"
            " source id of its own"
        )

    def _take(self, until: Offset) -> None:
        """See to it that the query whose offset this is has the source."""
        for _ in self._backoff.attempts(self._clock):
            head = self._head()
            self._check(head, until)
            if head.claim:
                return
            taken = self.state.advance(head, evolve(head, claim=until.claim))
            if taken is not None:
                return
        raise OutcomeUnknown(f"source {until.source!r}: it stays open which query reads it; ask again")

    def _offered(self, head: Head, start: Offset) -> dict[str, Any]:
        claim = start.claim or self._claim
        return evolve(start, epoch=start.epoch + 1, born=head.born, claim=claim).to_json()

    def _limits(self, max_files: int | None, max_bytes: int | None) -> Limits:
        settings = self.settings
        files = settings.max_files if max_files is None else min(max_files, settings.max_files)
        sizes = [size for size in (max_bytes, settings.max_bytes) if size is not None]
        return Limits(files=max(1, files), bytes=max(1, min(sizes)) if sizes else None)

    @staticmethod
    def _done(head: Head, sweeps: tuple[int, int]) -> bool:
        return head.tails >= sweeps[0] and head.bodies >= sweeps[1] and head.rest is None

    def _steps(self, head: Head, limits: Limits) -> Head | None:
        """Make a step; to come to an end, as many as it takes to find something or be done."""
        while True:
            stepped = self._step(head, limits)
            if (
                stepped is None
                or self._sweeps is None
                or stepped.epoch > head.epoch
                or stepped.revision == head.revision
                or self._done(stepped, self._sweeps)
            ):
                return stepped
            head = stepped

    def _step(self, head: Head, limits: Limits) -> Head | None:
        """Make a step; return the list row after it, or None if another look is needed."""
        window = self._window = self.state.update(self._window, head)
        wanted = self.state.wanted(MAX_WANTED)
        begun = self._clock.monotonic()
        plan = self._planner.plan(head, window, limits, wanted=wanted, finite=self._finite)
        self._counters = self._counters.with_plan(plan, self._clock.monotonic() - begun)
        if not plan.needed:
            return head
        written = self.state.advance(head, plan.head, rows=plan.rows, remove=plan.remove)
        if written is not None:
            for row in plan.rows:
                window.add(row)
            window.forget([range for range in plan.remove if range.startswith(ROWS)])
            window.revision = written.revision
        return written
