"""Keeping the log of a namespace as short as the namespace is: what is decided for good becomes a base.

The newest state of each file and directory is kept, of those that are there. That one is gone is kept
as long as an older change of it may still be decided: then nothing that was deleted comes back, in
whatever order decisions are made. Imports the ground floor, the operation log, its siblings, and the
`Table` port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from attrs import define, evolve, field, frozen

from commitlog.errors import AlreadyExists, BucketNotFound, Conflict, NotFound, TableNotFound
from commitlog.namespace.base import Base, Bases, merged
from commitlog.namespace.keys import Keys
from commitlog.namespace.logged import State, fold, parsed
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.tables.api import Table

__all__ = ["Compacted", "Compactor"]

T = TypeVar("T")

#: Operations, or states, after which it is told how far it is.
_TOLD = 1000


@frozen(kw_only=True)
class Compacted:
    """What became of a log.

    Attributes:
        operations: decided operations that were removed.
        states: files, directories and pieces of garbage of which the base tells now; 0 if nothing was
            ever compacted.
        read: operations that were read, in thousands; the last may not be in the base yet.
        written: states that were written, in thousands, to each base that they are in.
    """

    operations: int = 0
    states: int = 0
    read: int = 0
    written: int = 0


@define
class Compactor:
    """Compacts the log of one namespace.

    Args:
        table: has the namespace.
        keys: its keys.
        log: its log.
        words: makes words that nobody else ever makes.
        fence: raises `Fenced` if the log belongs to another table.
        most: operations that are folded into one base at a time.
        held: states beside the base that are held in memory; more, a quarter of what the base has, once
            that is more than four times as much: so a long log takes no more than a few bases for each
            doubling.
    """

    table: Table
    keys: Keys
    log: OperationLog
    words: Callable[[], str] = field(repr=False)
    fence: Callable[[], object] = field(repr=False)
    most: int = 100_000
    held: int = 250_000

    def compact(
        self,
        *,
        older_than: float | None = None,
        progress: Callable[[Compacted], object] | None = None,
    ) -> Compacted:
        """See `Namespace.compact_log`."""
        self._check_marker()
        try:
            return self._compact(older_than, progress)
        except (BucketNotFound, TableNotFound):
            raise
        except (AlreadyExists, NotFound) as error:
            self._check_marker()
            raise _beaten() from error

    def _check_marker(self) -> None:
        self.fence()
        if self.table.get(self.keys.marker) is None:
            raise NotFound(
                f"there is no namespace {self.keys.namespace!r} in {self.table.url}: its log is left as"
                " it is, to restore it from"
            )

    def _compact(
        self, older_than: float | None, progress: Callable[[Compacted], object] | None
    ) -> Compacted:
        bases = Bases(self.log, words=self.words)
        done = Compacted(states=_size(bases.newest()))
        everything = True

        def tell(now: Compacted) -> None:
            nonlocal done
            done = now
            if progress is not None:
                progress(now)

        def save(operations: Iterator[Operation], oldest: float) -> None:
            nonlocal everything
            everything = self._save(
                bases,
                _told(operations, lambda read: tell(evolve(done, read=done.read + read))),
                oldest,
                lambda written: tell(evolve(done, written=done.written + written)),
            )

        while True:
            removed = self.log.compact(older_than=older_than, save=save, most=self.most)
            base = bases.newest()
            tell(evolve(done, operations=done.operations + removed, states=_size(base)))
            if removed < self.most and (everything or not removed):
                if base is not None:
                    bases.prune(base, margin=self.log.settle / 4)
                return done

    def _save(
        self,
        bases: Bases,
        operations: Iterator[Operation],
        oldest: float,
        written: Callable[[int], object] = lambda written: None,
    ) -> bool:
        """Store a base that has what the operations say, too; tell whether it has taken all of them."""
        before = bases.newest()
        most = max(self.held, _size(before) // 4)
        changed: dict[str, State] = {}
        everything = True
        for operation in operations:
            if operation.decision is Decision.COMMITTED:
                fold(parsed(operation).states, changed)
            if len(changed) >= most:
                everything = False
                break
        if not changed:
            return True
        # Clocks differ by no more than that; see `OperationLog.compact`.
        over = oldest - self.log.settle / 4
        known = merged(self._known(bases.states(before), over), changed)
        word = bases.write(_told(self._current(known), written), after=before)
        holds = bases.newest()
        if holds is None or holds.word != word:
            raise _beaten()  # it has slept meanwhile, and written a number that was used before
        return everything

    def _known(self, states: Iterable[State], over: float) -> Iterator[State]:
        """Yield what a base has, but that something is gone of which no change can be decided now."""
        # Not of what is added to the base: its operations are there until the base is.
        return (state for state in states if state.item is not None or state.began >= over)

    def _current(self, states: Iterable[State]) -> Iterator[State]:
        """Yield states, but of what is removed without being logged, and was."""
        slot, left = "", frozenset[str]()
        for state in states:
            kind, _, of = state.of.partition("/")
            if kind == "x":
                number, _, name = of.partition("/")
                if number != slot:
                    found = self.table.query(self.keys.garbage_slot(int(number)))
                    slot, left = number, frozenset(str(item["name"]) for item in found)
                if name not in left:
                    continue
            if kind == "t" and not self._has(*of.split("/", 1)):
                continue
            yield state
        self._check_marker()  # else what a lost table has not is taken for removed

    def _has(self, directory: str, name: str) -> bool:
        return self.table.get(self.keys.tombstone(directory, name)) is not None


def _told(things: Iterable[T], tell: Callable[[int], object]) -> Iterator[T]:
    """Yield things, and tell of every thousand."""
    for number, thing in enumerate(things, 1):
        yield thing
        if number % _TOLD == 0:
            tell(_TOLD)


def _size(base: Base | None) -> int:
    return 0 if base is None else base.states


def _beaten() -> Conflict:
    return Conflict(
        "somebody else compacts this log, too; this call has removed nothing that it has not kept"
    )
