"""Compaction of a namespace's log: decided operations are folded into a checkpoint.

So the log stays as short as the namespace. The checkpoint keeps the newest state of each existing file
and directory. It keeps the removal of one as long as an older change of it may still be decided. So no
deleted item comes back, whatever the order of the decisions.

No clock tells which change is older. An older change was logged before the removal was. So when a
compaction takes the removal, the older change is in the log too, or it is gone for ever. From time to
time a compaction takes a census: it notes all operations that the log has. When the log has none of
them any more, removals that were taken until the census are dropped, and the next census is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from attrs import define, evolve, field, frozen

from commitlog.errors import AlreadyExists, Conflict, NotFound
from commitlog.namespace.log.checkpoint import Checkpoint, NamespaceCheckpoints, merge_states
from commitlog.namespace.log.entries import ItemState, fold, parse_change
from commitlog.namespace.model.keys import Keys, hash_of
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
        checkpoints = NamespaceCheckpoints(self.log, new_id=self.new_id)
        before = checkpoints.newest()  # before the log is listed: what it took is counted, or gone
        done = CompactionReport(states=_size(before))
        present: set[int] = set()
        everything = True

        def notify(now: CompactionReport) -> None:
            nonlocal done
            done = now
            if progress is not None:
                progress(now)

        def listed(id: str) -> None:
            present.add(hash_of(id))

        def save(operations: Iterator[Operation]) -> None:
            nonlocal everything
            everything = self._save(
                _Round(checkpoints=checkpoints, before=before, present=frozenset(present)),
                _with_progress(operations, lambda read: notify(evolve(done, read=done.read + read))),
                lambda written: notify(evolve(done, written=done.written + written)),
            )

        while True:
            present.clear()
            removed = self.log.compact(older_than=older_than, save=save, listed=listed, limit=self.limit)
            checkpoint = checkpoints.newest()
            notify(evolve(done, operations=done.operations + removed, states=_size(checkpoint)))
            if removed < self.limit and (everything or not removed):
                if checkpoint is not None:
                    checkpoints.prune(checkpoint, margin=self.log.retention / 4)
                return done
            before = checkpoint

    def _save(
        self,
        this: _Round,
        operations: Iterator[Operation],
        written: Callable[[int], object] = lambda written: None,
    ) -> bool:
        """Store a checkpoint that includes the operations; return whether it includes all of them."""
        most = max(self.held, _size(this.before) // 4)
        changed: dict[str, ItemState] = {}
        everything = True
        for operation in operations:
            if operation.decision is Decision.COMMITTED:
                fold(parse_change(operation).states, changed)
            if len(changed) >= most:
                everything = False
                break
        if not changed:
            return True
        id = this.write(_with_progress(self._current(this.merged(changed)), written))
        current = this.checkpoints.newest()
        if current is None or current.id != id:
            raise _lost_race()  # this process slept meanwhile, and wrote a number that was used before
        return everything

    def _current(self, states: Iterable[ItemState]) -> Iterator[ItemState]:
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


@frozen(kw_only=True)
class _Round:
    """One round of a compaction, which writes one checkpoint.

    Attributes:
        checkpoints: its checkpoints.
        before: the newest one, read before the operations were listed.
        present: hashes of the ids of all operations, pending or decided.
    """

    checkpoints: NamespaceCheckpoints
    before: Checkpoint | None
    present: frozenset[int]

    @property
    def number(self) -> int:
        """The number of the checkpoint to write."""
        return 1 if self.before is None else self.before.number + 1

    @property
    def is_census_over(self) -> bool:
        """Whether the log has no operation any more that the last census has counted."""
        return self.before is None or self.before.counted.isdisjoint(self.present)

    def merged(self, changed: Mapping[str, ItemState]) -> Iterator[ItemState]:
        """Yield the states of the last checkpoint and changed ones, sorted.

        Removals that no change of the log can precede are left out. New ones stay: their operations are
        in the log until the checkpoint is written.
        """
        known = self.checkpoints.states(self.before)
        if self.before is not None and self.is_census_over:
            last = self.before.census
            known = (state for state in known if state.item is not None or state.taken > last)
        for state in merge_states(known, changed):
            is_new = state.item is None and not state.taken
            yield evolve(state, taken=self.number) if is_new else state

    def write(self, states: Iterable[ItemState]) -> str:
        """Store the checkpoint of these states; return its id. Raises `AlreadyExists`."""
        census, counted = self.number, self.present
        if self.before is not None and not self.is_census_over:
            census, counted = self.before.census, self.before.counted
        return self.checkpoints.write(states, after=self.before, census=census, counted=counted)


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
