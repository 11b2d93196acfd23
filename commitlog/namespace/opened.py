"""What all parts of a `Namespace` share: its table and store, its format, and how a change is made.

Imports the ground floor, the operation log, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Self, TypeVar

from commitlog.backoff import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    Fenced,
)
from commitlog.namespace.base import Bases
from commitlog.namespace.batches import Batches, Mapper
from commitlog.namespace.change import Change, Changes, Stale
from commitlog.namespace.content import Content
from commitlog.namespace.counting import CountingStore, CountingTable
from commitlog.namespace.epoch import Epochs, FencedLog
from commitlog.namespace.joining import Joining
from commitlog.namespace.joint import Joint
from commitlog.namespace.keys import ROOT, TOP, TRASH, TRASH_SHARDS, Keys
from commitlog.namespace.logged import parsed
from commitlog.namespace.mark import Marks, mark_of
from commitlog.namespace.marker import FIRST, Epoch, Marker, not_there
from commitlog.namespace.outside import Outside
from commitlog.namespace.planning import Planner
from commitlog.namespace.recording import Recorder, count_methods, counted
from commitlog.namespace.records import Entry, Gate, Shards
from commitlog.namespace.requests import Requests
from commitlog.namespace.tree import Tree
from commitlog.namespace.views import Brought, Seen
from commitlog.oplog import Decision, OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Absent, Table
from commitlog.words import random_word

__all__ = ["Opened"]

T = TypeVar("T")


class Opened:
    """A namespace that can be made, and checked. Arguments as of `Namespace`."""

    def __init_subclass__(cls) -> None:
        """Count the public methods of all parts as operations."""
        super().__init_subclass__()
        count_methods(cls)

    def __init__(
        self,
        table: Table,
        store: ObjectStore,
        name: str,
        *,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        log: OperationLog | None = None,
        grace: float = 3600.0,
        stable_paths: bool = False,
        words: Callable[[], str] = random_word,
    ) -> None:
        if not 0 <= grace < math.inf:
            raise ConfigurationError(f"grace is {grace!r} seconds; it must be 0 or more, and finite")
        clock = SystemClock() if clock is None else clock
        backoff = Backoff() if backoff is None else backoff
        keys = Keys(name)
        self.name = name
        self.table = table
        self.store = store
        self._recorder = recorder = Recorder()
        self._table = table = CountingTable(table, recorder)
        self._store = store = CountingStore(store, recorder)
        self._keys = keys
        self._clock = clock
        self._backoff = backoff
        self._words = words
        self._tree = Tree(table, keys)
        self._changes = Changes(
            table=table,
            clock=clock,
            backoff=backoff,
            log=None if log is None else FencedLog(epochs=Epochs(log), epoch=self._epoch),
            recorder=recorder,
        )
        self._content = Content(
            store=store, clock=clock, backoff=backoff, words=words, recorder=recorder
        )
        self._marks = Marks(store=store, clock=clock, backoff=backoff)
        outside = Outside(store, lambda: self.check(writing=False).mark)
        joint = Joint(rows=self._tree, outside=outside, clock=clock)
        joining = Joining(
            tree=self._tree,
            keys=keys,
            clock=clock,
            words=words,
            grace=grace,
            stable_paths=False,
            changes=self._changes,
            outside=outside,
        )
        self._joint = joint
        self._joining = joining
        self._seen = Seen(
            table=table, keys=keys, joint=joint, joining=joining, may_write=lambda: self.check()
        )
        self._planner = Planner(
            tree=Brought(table=table, keys=keys, joint=joint, joining=joining),
            keys=keys,
            clock=clock,
            words=words,
            grace=grace,
            stable_paths=stable_paths,
        )
        self._marker: Marker | None = None

    def __repr__(self) -> str:
        return f"Namespace({self.table.url!r}, {self.store.url!r}, {self.name!r})"

    def close(self) -> None:
        """Close the log, the store and the table. Idempotent."""
        if self._changes.log is not None:
            self._changes.log.root.close()
        self.store.close()
        self.table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def requests(self) -> Requests:
        """What this `Namespace` has asked of its table and store so far, by operation.

        Requests for the operation log are not in it.
        """
        return self._recorder.requests(self.name)

    # the namespace itself

    @counted
    def create(self) -> bool:
        """Make the namespace, in a table that exists; return False if it is there already.

        Safe to call from many processes at once. Raises `NotSupported` if the table has no transactions;
        `AlreadyExists` if the log tells of a namespace, whose table was lost, or is another one;
        `CorruptRecord` if there are records of a namespace, but not what says which format they have;
        and `BucketNotFound`. A local store's directory is made.

        An object is stored, by which the store is known from then on, if that is not denied.
        """
        mark: str | None = None
        tried = False

        def plan() -> tuple[Change | None, bool]:
            nonlocal mark, tried
            if self._is_made():
                return None, False
            word = self._words()
            if not tried:  # before the table says that it is there
                path = mark_of(self.name, word)
                mark = path if self._marks.put(path) else None
                tried = True
            return self._plan_creation(word, mark), True

        try:
            made = self._run(plan, prepared=False)
        except Conflict as error:
            if isinstance(error.__cause__, Stale) and not self._is_there():
                raise CorruptRecord(
                    f"{self.table.url} has records of a namespace {self.name!r}, but not their format."
                    " Restore the table from a backup, or give another name"
                ) from error
            raise
        if mark is not None and self.check(writing=False).mark != mark:  # somebody else has made it
            with contextlib.suppress(CommitError):
                self._store.delete(mark)
        return made

    def _is_made(self) -> bool:
        """Tell whether the namespace is there. Raises `AlreadyExists` if only its log is."""
        there = self._is_there()
        if not there and self._is_logged():
            there = self._is_there()  # somebody else may have made it just now
            if not there:
                raise AlreadyExists(
                    f"the log at {self._logged!r} in {self.store.url} tells of a namespace, and"
                    f" {self.table.url} has none {self.name!r}: restore it (`commitlog namespace"
                    " restore`), or give another name. Nothing was made"
                )
        if there:
            self.check()
        return there

    def _plan_creation(self, word: str, mark: str | None) -> Change:
        now = int(self._clock.epoch() * 1000)
        change = Change("create a namespace", word, self._keys.marker)
        marker = Marker(
            key=self._keys.marker,
            store=self.store.url,
            log=self._logged,
            mark=mark,
            created=now,
            word=change.word,
        )
        change.put(marker, Absent())
        for id, shards in ((ROOT, Shards()), (TRASH, Shards(now=TRASH_SHARDS, first=TRASH_SHARDS))):
            entry = Entry(
                key=self._keys.entry(TOP, 0, id),
                id=id,
                version=1,
                word=change.word,
                created=now,
                modified=now,
                updated=now,
                shards=shards,
            )
            change.put(entry, Absent())
        gate = Gate(key=self._keys.gate(ROOT, 0), shards=1, word=change.word)
        change.put(gate, Absent())
        return change

    def _is_there(self) -> bool:
        return self._table.get(self._keys.marker) is not None

    def _is_logged(self) -> bool:
        """Tell whether the log has more than creations that did not happen."""
        if self._changes.log is None:
            return False
        log = self._changes.log.root
        if self._changes.log.epochs.newest() != FIRST:
            return True
        # In this order: what is decided meanwhile is seen twice, and what is compacted, too.
        if any(parsed(operation).witness != self._keys.marker for operation in log.pending()):
            return True
        if any(operation.decision is Decision.COMMITTED for operation in log.history()):
            return True
        return Bases(log, words=self._words).newest() is not None

    @counted
    def check(self, *, writing: bool = True) -> Marker:
        """Make sure that the namespace is there, and that this library knows its format; return that.

        Args:
            writing: whether it is going to be changed.

        Raises `NotFound` or `FormatTooNew`, and `ConfigurationError` if it is to be changed and is a
        copy to look at, or without the log that it keeps, or with one that it does not keep. Every
        other method does this once.
        """
        if self._marker is None:
            item = self._table.get(self._keys.marker)
            if item is None:
                raise not_there(self.name, self.table.url)
            self._marker = Marker.from_item(item)
        self._marker.check(writing=writing)
        if writing and self._marker.log != self._logged:
            raise ConfigurationError(
                f"namespace {self.name!r} {_keeps(self._marker.log)}, and was opened as one that"
                f" {_keeps(self._logged)}: open it with `commitlog.mount`, or give it that log"
            )
        return self._marker

    @property
    def _logged(self) -> str | None:
        log = self._changes.log
        return None if log is None else log.root.prefix

    # inside

    def _epoch(self) -> Epoch:
        """Return the epoch of the table; without a sound marker, that to restore it from."""
        if self._marker is None:
            assert self._changes.log is not None
            try:
                item = self._table.get(self._keys.marker)
                if item is None:
                    return self._changes.log.epochs.complete(self._words)
                self._marker = Marker.from_item(item)
            except CorruptRecord:  # it is about to be mended
                return self._changes.log.epochs.complete(self._words)
        return self._marker.epoch

    def _is_renewed(self) -> bool:
        """Tell whether the table has another marker than was known: it was restored, or relogged."""
        known, self._marker = self._marker, None
        return known is not None and self.check().epoch != known.epoch

    def _run(self, plan: Callable[[], tuple[Change | None, T]], *, prepared: bool = True) -> T:
        """Plan a change and apply it; plan it again if something has changed in between."""
        if prepared:
            self.check()
        last: Stale | None = None
        for _ in self._backoff.attempts(self._clock):
            try:
                change, result = plan()
                if change is not None:
                    self._changes.apply(change)
                return result
            except Stale as error:
                last = error
                self._tree.forget()
            except Fenced:
                if not self._is_renewed():
                    raise
        raise Conflict(f"somebody else kept changing the same; nothing happened ({last})") from last

    def _batches(self, mapper: Mapper = map) -> Batches:
        return Batches(
            planner=self._planner,
            changes=self._changes,
            clock=self._clock,
            backoff=self._backoff,
            mapper=lambda call, arguments: mapper(self._recorder.carried(call), arguments),
        )


def _keeps(log: str | None) -> str:
    return "keeps no log" if log is None else f"keeps its log at {log!r}"
