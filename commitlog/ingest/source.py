"""Source of a streaming query: every listed version of every object in a bucket, exactly once.

A streaming engine calls it on its driver. An *epoch* is a list of slices. One transaction decides and
stores it before any caller sees it. So every caller that asks for the epoch after an offset gets the
same answer, after any crash and from any process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from attrs import evolve

from commitlog._util.bin_packing import packed
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog._util.tracing import traced
from commitlog.clock import Clock, SystemClock
from commitlog.errors import (
    CommitError,
    ConfigurationError,
    Conflict,
    OutcomeUnknown,
    StateMismatch,
    Unavailable,
)
from commitlog.ingest.cleaning_queue import CleaningQueue
from commitlog.ingest.counters import Counters
from commitlog.ingest.epoch_builder import Limits
from commitlog.ingest.files import Partition
from commitlog.ingest.notifications import Inbox, Notifications
from commitlog.ingest.offset import Offset
from commitlog.ingest.planning import MAX_WANTED, Plan, Planner
from commitlog.ingest.quarantine import Quarantine
from commitlog.ingest.rows import ROWS
from commitlog.ingest.seen_files import SeenFiles
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.source_state import SourceState
from commitlog.ingest.state import StateTable
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Table
from commitlog.urls import parse_store_url

__all__ = ["Ingest"]

#: Size up to which partitions are filled, and the least size that a slice counts as.
PARTITION_BYTES = 32 * 1024 * 1024
SLICE_COST = 1024 * 1024

#: Seconds for which a call waits for the first notification.
NOTIFICATION_WAIT = 5

#: Seconds between two counts of the problems, and the most problems that are counted.
PROBLEMS_SECONDS = 60.0
MAX_PROBLEMS = 1000


def _never(path: str) -> bool:
    return False


@traced(
    lambda ingest, _arguments: {"commitlog.ingest.source": ingest.settings.source},
    without=("finish", "counters"),
)
class Ingest:
    """The driver's side of a source.

    Not thread-safe: a driver calls one method after the other. Any number of processes may each have an
    instance for the same source.

    Args:
        store: the store with the objects.
        table: the table for the state; its keys are `INGEST_SCHEMA`.
        settings: the settings of the source.
        splits: returns whether the file at a path can be read by ranges of bytes.
        notifications: a queue of messages about new objects, which no other source may receive from.
            Then the bucket is listed at the start, and every `IngestSettings.listing_interval` seconds.
        clock: waits between attempts; gives the time if the store does not.
        backoff: retry policy for a step with an unknown outcome, or that another driver did first.
        new_id: returns a new id for each call.

    Attributes:
        planned: the last epoch that this instance has planned, whose files were listed just before.

    Methods raise the errors of the store and the table. Every call can be repeated after an error.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: Table,
        settings: IngestSettings,
        *,
        splits: Callable[[str], bool] = _never,
        notifications: Notifications | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self.settings = settings
        self.state = StateTable(table, settings.source, new_id=new_id)
        self._clock = SystemClock() if clock is None else clock
        self._cleaning = CleaningQueue(table, settings.source, new_id=new_id)
        self._problems = Quarantine(table, settings.source, clock=self._clock, new_id=new_id)
        self._planner = Planner(store, settings, splits=splits, clock=self._clock)
        self._inbox: Inbox | None = None
        if notifications is not None:
            self._inbox = Inbox(
                notifications,
                bucket=parse_store_url(store.url).name,
                below=store.key("x")[:-1],
                wants=self._wants,
                clock=self._clock,
            )
        self._next_listing = -math.inf
        self._listing_waits = False  # a step that was to continue the listing was full before
        self._backoff = Backoff() if backoff is None else backoff
        self._claim = new_id()
        self._seen_files: SeenFiles | None = None
        self._finite = False
        self._sweeps: tuple[int, int] | None = None  # how many must be completed, and then it ends
        self._counters = Counters(source=settings.source)
        self._problems_counted: float | None = None
        self.planned: int | None = None

    def initial_offset(self) -> dict[str, Any]:
        """Return the offset before the first epoch. Create the source's state if there is none."""
        if self.state.read() is None:
            starting = self.settings.starting_from
            if starting == "latest":
                self.state.begin(self._planner.now(), latest=True)
            else:
                self.state.begin(starting if isinstance(starting, (int, float)) else None)
        return Offset(source=self.settings.source, epoch=0).to_json()

    def finish(self) -> None:
        """Make the source finite: hand out the objects that exist at the next `latest_offset`, then end.

        Objects that appear later are not handed out. It may be called before `initial_offset`, and sends
        no request.
        """
        self._finite = True

    def latest_offset(
        self, start: Mapping[str, Any], *, max_files: int | None = None, max_bytes: int | None = None
    ) -> dict[str, Any]:
        """Return the offset of the epoch after `start`; plan the epoch if it is not planned yet.

        Args:
            start: an offset up to which everything is processed.
            max_files: most files of a new epoch; the limit of the settings applies too.
            max_bytes: most bytes of a new epoch; the limit of the settings applies too.

        Returns:
            The offset, or `start` if nothing new was found.

        Raises:
            StateMismatch: checkpoint and state have different histories. Nothing was changed.
            InputChanged: an object was overwritten, and `settings.changed` is ``fail``.
            ConfigurationError: a limit is not a whole number.
        """
        begin = Offset.from_json(start, source=self.settings.source)
        limits = self._limits(max_files, max_bytes)
        for _ in self._backoff.attempts(self._clock):
            state = self._read_state()
            self._check(state, begin)
            self._counters = self._counters.at(state)
            if state.epoch > begin.epoch:
                slices = self.state.slices(begin.epoch + 1)  # fail now if the epoch is gone
                self._counters = self._counters.at(state, slices)
                return self._offered(state, begin)
            if self._finite and self._sweeps is None:
                self._sweeps = state.finish(ordered=self.settings.ordered)
            if self._sweeps is not None and self._done(state, self._sweeps):
                return dict(start)
            stepped = self._steps(evolve(state, claim=begin.claim), limits)
            if stepped is not None:
                return self._offered(stepped, begin) if stepped.epoch > begin.epoch else dict(start)
        raise OutcomeUnknown(
            f"source {begin.source!r}: it is unknown which epoch comes after {begin.epoch}; try again"
        )

    def partitions(
        self,
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        *,
        partition_bytes: int = PARTITION_BYTES,
        slice_cost: int = SLICE_COST,
    ) -> list[Partition]:
        """Return the partitions between two offsets: the same for each call, in any process.

        The first query that asks for the end of the first epoch becomes the owner of the source.

        Args:
            start, end: offsets that this source has returned.
            partition_bytes: number of bytes that a task should read.
            slice_cost: cost of opening a file, as the bytes that could be read in the same time.

        Raises:
            StateMismatch: these epochs do not exist, are not kept any more, their files are cleaned, or
                another query reads the source.
        """
        source = self.settings.source
        begin = Offset.from_json(start, source=source)
        until = Offset.from_json(end, source=source)
        if until.epoch <= begin.epoch:
            return []
        state = self._take(until)
        # The files of the last epoch were there when this instance planned it. Another one may have
        # planned it, committed it and cleaned them, while the option was set.
        if self.settings.cleans or until.epoch < state.epoch or until.epoch != self.planned:
            self._check_not_cleaned(begin, until)
        found: list[Partition] = []
        for epoch in range(begin.epoch + 1, until.epoch + 1):
            slices = self.state.slices(epoch)
            groups = packed(
                slices, lambda each: each.size, group_bytes=partition_bytes, least_bytes=slice_cost
            )
            found += [Partition(epoch, tuple(group)) for group in groups]
        return found

    def counters(self) -> Counters:
        """Return the counters after the last call of `latest_offset`. Count problems once a minute.

        If the problems cannot be counted, their last number stays. Raises nothing.
        """
        now = self._clock.monotonic()
        if self._problems_counted is None or now >= self._problems_counted + PROBLEMS_SECONDS:
            self._problems_counted = now
            with suppress(CommitError):  # a missing number must not stop the query
                self._counters = evolve(self._counters, problems=self.state.problems(MAX_PROBLEMS))
        return self._counters

    def commit(self, end: Mapping[str, Any]) -> None:
        """Record that the query has committed all epochs up to `end`, so that files can be cleaned.

        It does nothing if the source does not clean: a request for the epoch after `end` implies that
        `end` is done. If the commit cannot be recorded now, the next one is recorded instead.

        Raises `StateMismatch` as `latest_offset` does.
        """
        until = Offset.from_json(end, source=self.settings.source)
        if not self.settings.cleans or not until.epoch:
            return
        with suppress(Unavailable, OutcomeUnknown, Conflict):
            state = self._read_state()
            self._check(state, until)
            for _ in self._backoff.attempts(self._clock):
                commits = self._cleaning.commits(state.born)
                after = commits.with_commit(until.epoch, self._planner.now())
                if after is commits or self._cleaning.replace(after):
                    return

    # inside

    def _read_state(self) -> SourceState:
        state = self.state.read()
        if state is None:
            raise StateMismatch(
                f"source {self.settings.source!r} has no state in this table, though its query has a"
                " checkpoint: use the earlier table, or restart with a new checkpoint directory, which"
                " reads everything again"
            )
        return state

    def _check(self, state: SourceState, start: Offset) -> None:
        same = not start.epoch or start.born == state.born
        if start.epoch > state.epoch or not same:
            raise StateMismatch(
                f"the checkpoint of source {start.source!r} is at epoch {start.epoch}, and its state"
                f" {'is at epoch ' + str(state.epoch) if same else 'was created again'}: use the earlier"
                " table, or run `commitlog ingest reset` and restart with a new checkpoint directory,"
                " which reads everything again"
            )
        if start.claim == state.claim or not state.claim:
            return
        if start.epoch == 0:
            raise StateMismatch(
                f"source {start.source!r} was read up to epoch {state.epoch} by a query with another"
                " checkpoint: restore that checkpoint, use another source id, or run"
                " `commitlog ingest reset` to read everything again"
            )
        raise StateMismatch(
            f"source {start.source!r} is read by a query with another checkpoint: use a separate source"
            " id for each query"
        )

    def _check_not_cleaned(self, begin: Offset, until: Offset) -> None:
        """Raise `StateMismatch` if files of the epoch after `begin` may be cleaned."""
        cleaned = self._cleaning.commits(until.born).cleaned
        if begin.epoch < cleaned:
            raise StateMismatch(
                f"the checkpoint of source {begin.source!r} is at epoch {begin.epoch}, but the query had"
                f" committed epoch {cleaned}, and the files up to it were cleaned: restore a later"
                " checkpoint; or restore the files, run `commitlog ingest reset`, and restart with a new"
                " checkpoint directory"
            )

    def _take(self, until: Offset) -> SourceState:
        """Make the query with this offset the owner of the source. Return the state row."""
        for _ in self._backoff.attempts(self._clock):
            state = self._read_state()
            self._check(state, until)
            if state.claim:
                return state
            taken = self.state.advance(state, evolve(state, claim=until.claim))
            if taken is not None:
                return taken
        raise OutcomeUnknown(f"source {until.source!r}: it is unknown which query reads it; try again")

    def _offered(self, state: SourceState, start: Offset) -> dict[str, Any]:
        claim = start.claim or self._claim
        return evolve(start, epoch=start.epoch + 1, born=state.born, claim=claim).to_json()

    def _limits(self, max_files: int | None, max_bytes: int | None) -> Limits:
        settings = self.settings
        for name, limit in (("max_files", max_files), ("max_bytes", max_bytes)):
            if limit is not None and type(limit) is not int:
                raise ConfigurationError(f"{name} must be a whole number, not {limit!r}")
        files = settings.max_files if max_files is None else min(max_files, settings.max_files)
        sizes = [size for size in (max_bytes, settings.max_bytes) if size is not None]
        return Limits(files=max(1, files), bytes=max(1, min(sizes)) if sizes else None)

    @staticmethod
    def _done(state: SourceState, sweeps: tuple[int, int]) -> bool:
        return state.tails >= sweeps[0] and state.bodies >= sweeps[1] and state.rest is None

    def _steps(self, state: SourceState, limits: Limits) -> SourceState | None:
        """Make a step. If the source is finite, make steps until one finds something or all is done.

        Objects that are skipped at the first start take as many steps as it needs to remember them.
        """
        while True:
            stepped = self._step(state, limits)
            if stepped is None or stepped.epoch > state.epoch or stepped.revision == state.revision:
                return stepped
            if self._sweeps is not None and self._done(stepped, self._sweeps):
                return stepped
            skips = stepped.skips and self.settings.list_limit is None
            if self._sweeps is None and not skips:
                return stepped
            state = stepped

    def _step(self, state: SourceState, limits: Limits) -> SourceState | None:
        """Make a step; return the state row after it, or None if the state must be read again."""
        seen_files = self._seen_files = self.state.update(self._seen_files, state)
        paths, lists = self._notified(state, limits)
        begun = self._clock.monotonic()
        while True:
            plan = self._planner.plan(
                state,
                seen_files,
                limits,
                wanted=self.state.wanted(MAX_WANTED),
                finite=self._finite,
                notified=paths,
                lists=lists,
            )
            if not plan.undelivered:
                break
            for problem in plan.undelivered:
                self._problems.retry(problem)
                seen_files.close(problem)
        self._counters = self._counters.with_plan(plan, self._clock.monotonic() - begun)
        self._listing_waits = lists and not plan.continued
        if self._inbox is not None:
            self._counters = evolve(self._counters, unusable=self._inbox.unusable)
        if not plan.needed:
            self._done_with(plan)
            return state
        written = self.state.advance(
            state, plan.state, rows=plan.rows, queued=plan.queued, remove=plan.remove
        )
        if written is not None:
            for row in plan.rows:
                seen_files.add(row)
            seen_files.forget([range for range in plan.remove if range.startswith(ROWS)])
            seen_files.revision = written.revision
            if written.epoch > state.epoch:
                self.planned = written.epoch
            self._done_with(plan)
        return written

    def _wants(self, path: str) -> bool:
        prefix = self.settings.prefix
        return path.startswith(prefix) and self.settings.names.wants(path[len(prefix) :])

    def _notified(self, state: SourceState, limits: Limits) -> tuple[Iterable[str], bool]:
        """Return the paths that notifications name, and whether to continue the listing.

        A source that must end has to list everything. A listing that found no room goes first.
        """
        if self._inbox is None or self._finite:
            return (), True
        lists = state.tail is not None or state.body is not None
        lists = lists or self._clock.monotonic() >= self._next_listing
        if lists and self._listing_waits:
            return (), True
        self._inbox.fill(limits.files, wait=0 if lists or state.rest is not None else NOTIFICATION_WAIT)
        return self._inbox.paths(), lists

    def _done_with(self, plan: Plan) -> None:
        """Acknowledge the notifications of a step that is stored, or that need not be."""
        if plan.continued and plan.state.tail is None and plan.state.body is None:
            self._next_listing = self._clock.monotonic() + self.settings.listing_interval
        if self._inbox is not None:
            self._inbox.handled(plan.notified)
