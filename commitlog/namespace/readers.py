"""Readers of table, store and log that cannot write.

What looks for mistakes must not make any: it is given nothing but functions that read. Imports the
operation log, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Protocol, TypeVar

from attrs import field, frozen

from commitlog.errors import NotFound
from commitlog.namespace.base import Bases, merged
from commitlog.namespace.logged import LoggedChange, State, fold, parsed
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import ObjectInfo, ObjectStore, Observation
from commitlog.tables.api import Item, Key, Pending, Table, UnreadableItem

__all__ = ["LogReader", "LogSnapshot", "StoreReader", "TableReader", "logged_as", "steadily"]

T = TypeVar("T")


class Scan(Protocol):
    """What yields all items of a table, and passes on each that cannot be read: `Table.scan`."""

    def __call__(self, *, unreadable: Callable[[UnreadableItem], object]) -> Iterator[Item]:
        """Scan the table once."""


@frozen(kw_only=True)
class TableReader:
    """What reads a table, and nothing else of it.

    Each scan has to handle items that cannot be read, so that no such item stops a check.
    """

    url: str
    get: Callable[[Key], Item | None]
    scan: Scan

    @classmethod
    def of(cls, table: Table) -> TableReader:
        """Return what reads `table`."""
        return cls(url=table.url, get=table.get, scan=table.scan)


@frozen(kw_only=True)
class StoreReader:
    """What looks at objects of a store, and nothing else of it.

    That it has no such object counts only if `prove`, after that, raises no error: it is there then.
    """

    url: str
    prove: Callable[[], object]
    begin_head: Callable[[str], Pending[Observation]]
    list: Callable[[], Iterator[ObjectInfo]]

    @classmethod
    def of(cls, store: ObjectStore, prove: Callable[[], object] | None = None) -> StoreReader:
        """Return what looks at the objects of `store`; by default, `prove` is its `check`."""
        return cls(
            url=store.url,
            prove=store.check if prove is None else prove,
            begin_head=store.begin_head,
            list=store.list,
        )


@frozen(kw_only=True, slots=False)
class LogSnapshot:
    """What a log says.

    Attributes:
        states: the newest of each file and directory that was asked for, by id.
        tombstones, garbage: the same of tombstones and garbage, by what the state is of.
        marker: what it has of the marker, if that was.
        pending: what is not decided.
        changes: the same, as changes.
    """

    states: dict[str, State] = field(factory=dict)
    tombstones: dict[str, State] = field(factory=dict)
    garbage: dict[str, State] = field(factory=dict)
    marker: Item | None = None
    pending: tuple[Operation, ...] = ()
    changes: tuple[LoggedChange, ...] = ()

    @cached_property
    def touched(self) -> frozenset[str]:
        """Ids of the files and directories of which something is pending."""
        return frozenset(id for change in self.changes for id, _ in change.made | change.seen)

    def item(self, of: str) -> Item | None:
        """Return the newest record of something, as `State.of` has it; None if it has none."""
        kind, _, id = of.partition("/")
        if kind == "m":
            return self.marker
        states = {"e": self.states, "t": self.tombstones, "x": self.garbage}[kind]
        state = states.get(id if kind == "e" else of)
        return None if state is None else state.item


@frozen(kw_only=True)
class LogReader:
    """What reads an operation log with its base, and nothing else of it."""

    pending: Callable[[], Iterator[Operation]]
    history: Callable[[], Iterator[Operation]]
    base: Callable[[], Iterator[State]]

    @classmethod
    def of(cls, log: OperationLog) -> LogReader:
        """Return what reads `log`."""
        bases = Bases(log, words=str)
        return cls(pending=log.pending, history=log.history, base=lambda: bases.states(bases.newest()))

    def read(self, only: Collection[str] | None = None) -> LogSnapshot:
        """Return what the log says. Whatever was done before that is in it, or pending.

        Args:
            only: of what, as `State.of` has it; by default all, which takes kilobytes for each file.
        """
        return steadily(lambda: self._read(only))

    def states(self, decided: Callable[[str], object]) -> Iterator[State]:
        """Yield all that the log says of files, directories and more, the older beside the newer.

        Args:
            decided: told the id of each operation that is not pending any more.
        """
        for operation in self.history():
            decided(operation.id)
            if operation.decision is Decision.COMMITTED:
                yield from parsed(operation).states
        yield from self.base()

    def _read(self, only: Collection[str] | None) -> LogSnapshot:
        # In this order: what is decided meanwhile is seen as pending, or as decided; what is compacted
        # meanwhile is seen as decided, or in the base.
        pending = {each.id: each for each in self.pending()}
        changed: dict[str, State] = {}
        for operation in self.history():
            pending.pop(operation.id, None)
            if operation.decision is Decision.COMMITTED:
                fold(
                    (each for each in parsed(operation).states if only is None or each.of in only),
                    changed,
                )
        states: dict[str, State] = {}
        tombstones: dict[str, State] = {}
        garbage: dict[str, State] = {}
        marker: Item | None = None
        before = (state for state in self.base() if only is None or state.of in only)
        for state in merged(before, changed):
            kind, _, id = state.of.partition("/")
            if kind == "e":
                states[id] = state
            elif kind == "t":
                tombstones[state.of] = state
            elif kind == "x":
                garbage[state.of] = state
            elif kind == "m":
                marker = state.item
        return LogSnapshot(
            states=states,
            tombstones=tombstones,
            garbage=garbage,
            marker=marker,
            pending=tuple(pending.values()),
            changes=tuple(map(parsed, pending.values())),
        )


def steadily(read: Callable[[], T]) -> T:
    """Return what `read` returns, which reads the base of a log, and may find that a newer one holds."""
    for _ in range(3):
        try:
            return read()
        except NotFound:
            continue
    return read()


def logged_as(log: LogReader, wanted: Callable[[Item], bool]) -> LogSnapshot:
    """Return what a log says of those files and directories that it has ever had as is wanted."""
    return log.read(
        steadily(
            lambda: {
                state.of
                for state in log.states(lambda id: None)
                if state.item is not None and wanted(state.item)
            }
        )
    )
