"""Removing data that nothing names, once nobody reads it any more.

It can be broken off at any point, and done by several at once: every step is a deletion that can be
repeated. Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice

from attrs import frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    CommitError,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    OutcomeUnknown,
    TransactionCanceled,
    Unavailable,
)
from commitlog.namespace.change import MAX_WRITES
from commitlog.namespace.items import place_of
from commitlog.namespace.keys import GARBAGE_SLOTS, Keys
from commitlog.namespace.leftovers import Garbage
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import ConditionFailed, Delete, Equals, Table

__all__ = ["Collected", "Collector"]

#: Objects that one request of the store removes.
_OBJECTS = 1000

#: What says that a removal can be tried again.
_AGAIN = (Conflict, OutcomeUnknown, Unavailable)


@frozen(kw_only=True)
class Collected:
    """What garbage was removed, and what is left.

    Attributes:
        objects: number of objects removed.
        bytes: their size.
        failed: paths of objects that may still be there, with the errors, and keys of records that
            cannot be read; they stay listed.
    """

    objects: int = 0
    bytes: int = 0
    failed: tuple[tuple[str, str], ...] = ()


@frozen(kw_only=True)
class Collector:
    """Removes the garbage of one namespace from its store.

    Args:
        table, keys, store: those of the namespace.
        clock: tells which time has come; waited on between attempts.
        backoff: how often a removal is tried that did nothing, or got no answer. Nobody ever stores
            anything else under the name of an object of a namespace's own, so it can be repeated.
        words: makes tokens.
    """

    table: Table
    keys: Keys
    store: ObjectStore
    clock: Clock
    backoff: Backoff
    words: Callable[[], str]

    def collect(self, progress: Callable[[Collected], object] | None = None) -> Collected:
        """See `Namespace.collect`."""
        objects = size = 0
        failed: list[tuple[str, str]] = []
        due = chain.from_iterable(self._due(slot, failed) for slot in range(GARBAGE_SLOTS))
        while batch := list(islice(due, _OBJECTS)):
            errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])
            failed += ((path, str(error)) for path, error in errors.items())
            gone = [garbage for garbage in batch if garbage.data.path not in errors]
            for start in range(0, len(gone), MAX_WRITES):
                for garbage in self._forget(gone[start : start + MAX_WRITES]):
                    objects += garbage.data.own
                    size += garbage.data.size if garbage.data.own else 0
            if progress is not None:
                progress(Collected(objects=objects, bytes=size, failed=tuple(failed)))
        return Collected(objects=objects, bytes=size, failed=tuple(failed))

    def _due(self, slot: int, failed: list[tuple[str, str]]) -> Iterator[Garbage]:
        now = int(self.clock.epoch() * 1000)
        for item in self.table.query(self.keys.garbage_slot(slot)):
            try:
                garbage = Garbage.from_item(item)
            except (CorruptRecord, FormatTooNew) as error:
                failed.append((place_of(item), str(error)))
                continue
            if garbage.not_before > now:
                return
            yield garbage

    def _remove(self, paths: list[str]) -> dict[str, CommitError]:
        """Remove objects; return the errors of those that may still be there."""
        left: Mapping[str, CommitError] = {}
        final: dict[str, CommitError] = {}
        for _ in self.backoff.attempts(self.clock):
            left = self.store.delete_many(paths)
            final |= {path: error for path, error in left.items() if not isinstance(error, _AGAIN)}
            paths = [path for path in left if path not in final]
            if not paths:
                break
        return {**final, **left}

    def _forget(self, garbage: list[Garbage]) -> list[Garbage]:
        """Remove the records of objects that are gone; return those that nobody else removed first."""
        writes = [Delete(each.key, Equals("word", each.word)) for each in garbage]
        token = self.words()
        unknown: OutcomeUnknown | None = None
        for _ in self.backoff.attempts(self.clock):
            try:
                self.table.transact(writes, token=token)
            except OutcomeUnknown as error:
                unknown = error
            except (TransactionCanceled, Conflict):
                # Another collector is here; or this one, with a request whose answer was lost.
                return [each for each in garbage if self._forget_one(each) or unknown is not None]
            else:
                return garbage
        assert unknown is not None
        raise unknown

    def _forget_one(self, garbage: Garbage) -> bool:
        try:
            self.table.delete(garbage.key, condition=Equals("word", garbage.word))
        except ConditionFailed:
            return False  # another collector was first
        return True
