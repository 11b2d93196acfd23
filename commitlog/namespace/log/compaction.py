"""Compaction of a namespace's log: decided operations are folded into a checkpoint.

So the log stays as short as the namespace. The checkpoint keeps the newest state of each existing file
and directory. It keeps the removal of one as long as an older change of it may still be decided. So no
deleted item comes back, whatever the order of the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from attrs import define, evolve, field, frozen

from commitlog.errors import AlreadyExists, Conflict, NotFound
from commitlog.namespace.log.checkpoint import Checkpoint, Checkpoints, merge_states
from commitlog.namespace.log.entries import State, fold, parse_change
from commitlog.namespace.model.keys import Keys
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.tables.api import Table

__all__ = ["CompactionReport", "Compactor"]

T = TypeVar("T")

#: Number of operations, or states, between two progress reports.
_PROGRESS_STEP = 1000


@frozen(kw_only=True)
class CompactionReport:
    """The result of a compaction.

    Attributes:
        operations: number of decided operations removed from the log.
        states: number of files, directories and pieces of garbage in the checkpoint; 0 without one.
        read: number of operations read, in thousands; the last may not be in the checkpoint yet.
        written: number of states written, in thousands; a state counts once for each checkpoint written.
    """

    operations: int = 0
    states: int = 0
    read: int = 0
    written: int = 0


@define
class Compactor:
    """A compactor of the log of one namespace.

    Args:
        table: the table of the namespace.
        keys: its keys.
        log: its log.
        new_id: returns unique ids.
        fence: raises `Fenced` if the log belongs to another table.
        limit: maximum number of operations folded into one checkpoint at a time.
        held: number of changed states held in memory. If a quarter of the checkpoint's states is more,
            that many are held, so a long log needs only a few checkpoints each time its size doubles.
    """

    table: Table
    keys: Keys
    log: OperationLog
    new_id: Callable[[], str] = field(repr=False)
    fence: Callable[[], object] = field(repr=False)
    limit: int = 100_000
    held: int = 250_000

    def compact(
        self,
        *,
        older_than: float | None = None,
        progress: Callable[[CompactionReport], object] | None = None,
    ) -> CompactionReport:
        """Compact the log: see `Maintenance.compact_log`."""
        self._check_metadata()
        try:
            return self._compact(older_than, progress)
        except (AlreadyExists, NotFound) as error:
            self._check_metadata()
            raise _lost_race() from error

    def _check_metadata(self) -> None:
        self.fence()
        if self.table.get(self.keys.metadata) is None:
            raise NotFound(
                f"there is no namespace {self.keys.namespace!r} in {self.table.url}: its log is left"
                " unchanged, so that you can restore from it"
            )

    def _compact(
        self, older_than: float | None, progress: Callable[[CompactionReport], object] | None
    ) -> CompactionReport:
        checkpoints = Checkpoints(self.log, new_id=self.new_id)
        done = CompactionReport(states=_size(checkpoints.newest()))
        everything = True

        def notify(now: CompactionReport) -> None:
            nonlocal done
            done = now
            if progress is not None:
                progress(now)

        def save(operations: Iterator[Operation], oldest: float) -> None:
            nonlocal everything
            everything = self._save(
                checkpoints,
                _with_progress(operations, lambda read: notify(evolve(done, read=done.read + read))),
                oldest,
                lambda written: notify(evolve(done, written=done.written + written)),
            )

        while True:
            removed = self.log.compact(older_than=older_than, save=save, limit=self.limit)
            checkpoint = checkpoints.newest()
            notify(evolve(done, operations=done.operations + removed, states=_size(checkpoint)))
            if removed < self.limit and (everything or not removed):
                if checkpoint is not None:
                    checkpoints.prune(checkpoint, margin=self.log.retention / 4)
                return done

    def _save(
        self,
        checkpoints: Checkpoints,
        operations: Iterator[Operation],
        oldest: float,
        written: Callable[[int], object] = lambda written: None,
    ) -> bool:
        """Store a checkpoint that includes the operations; return whether it includes all of them."""
        before = checkpoints.newest()
        most = max(self.held, _size(before) // 4)
        changed: dict[str, State] = {}
        everything = True
        for operation in operations:
            if operation.decision is Decision.COMMITTED:
                fold(parse_change(operation).states, changed)
            if len(changed) >= most:
                everything = False
                break
        if not changed:
            return True
        # Clocks differ by at most this much; see `OperationLog.compact`.
        over = oldest - self.log.retention / 4
        known = merge_states(self._known(checkpoints.states(before), over), changed)
        id = checkpoints.write(_with_progress(self._current(known), written), after=before)
        current = checkpoints.newest()
        if current is None or current.id != id:
            raise _lost_race()  # this process slept meanwhile, and wrote a number that was used before
        return everything

    def _known(self, states: Iterable[State], over: float) -> Iterator[State]:
        """Yield the states of a checkpoint without removals that no undecided change can precede."""
        # New states keep their removals: the operations stay in the log until the checkpoint is written.
        return (state for state in states if state.item is not None or state.began >= over)

    def _current(self, states: Iterable[State]) -> Iterator[State]:
        """Yield states, except garbage and tombstones that were removed without being logged."""
        slot, left = "", frozenset[str]()
        for state in states:
            kind, _, item_id = state.item_id.partition("/")
            if kind == "x":
                number, _, name = item_id.partition("/")
                if number != slot:
                    found = self.table.query(self.keys.garbage_slot(int(number)))
                    slot, left = number, frozenset(str(item["name"]) for item in found)
                if name not in left:
                    continue
            if kind == "t" and not self._has(*item_id.split("/", 1)):
                continue
            yield state
        self._check_metadata()  # or the missing records of a lost table would count as removed

    def _has(self, directory: str, name: str) -> bool:
        return self.table.get(self.keys.tombstone(directory, name)) is not None


def _with_progress(things: Iterable[T], notify: Callable[[int], object]) -> Iterator[T]:
    """Yield things, and report progress after every thousand."""
    for number, thing in enumerate(things, 1):
        yield thing
        if number % _PROGRESS_STEP == 0:
            notify(_PROGRESS_STEP)


def _size(checkpoint: Checkpoint | None) -> int:
    return 0 if checkpoint is None else checkpoint.states


def _lost_race() -> Conflict:
    return Conflict(
        "another client compacts this log too; this call has removed nothing that it did not save"
    )
