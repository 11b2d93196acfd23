"""Removing data that nothing names, once nobody reads it any more.

It can be broken off at any point, and done by several at once: every step is a deletion that can be
repeated. Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, islice

from attrs import define, field, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import AccessDenied, CommitError, CorruptRecord, FormatTooNew, Unavailable
from commitlog.maps import AppendOnly
from commitlog.namespace.items import place_of
from commitlog.namespace.keys import GARBAGE_SLOTS, Keys
from commitlog.namespace.leftovers import Garbage
from commitlog.namespace.removals import AGAIN, Removals
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Delete, Equals, Table

__all__ = ["Collected", "Collector"]

#: Objects that one request of the store removes.
_OBJECTS = 1000

#: Objects that no file ever had for which all records are read once.
_NAMELESS = 10_000


@frozen(kw_only=True)
class Collected:
    """What garbage was removed, and what is left.

    Attributes:
        objects: number of objects removed.
        bytes: their size.
        failed: paths of objects that may still be there, or listed, with the errors; keys of records
            that cannot be read, and of parts of the list. All of that stays listed.
    """

    objects: int = 0
    bytes: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)


@frozen(kw_only=True)
class Collector:
    """Removes the garbage of one namespace from its store.

    Args:
        table, keys, store: those of the namespace.
        clock: tells which time has come; waited on between attempts.
        backoff: how often a removal is tried that did nothing, or got no answer. Nobody ever stores
            anything else under the name of an object of a namespace's own, so it can be repeated.
        prove: raises an error unless the store is there, and the right one. Another one has none of the
            objects, and says so of each.
        words: makes tokens.
        named: tells which of some objects files have by now, of any namespace of the table; raises
            `CorruptRecord` or `FormatTooNew` if that cannot be told.
    """

    table: Table
    keys: Keys
    store: ObjectStore
    clock: Clock
    backoff: Backoff
    prove: Callable[[], object]
    words: Callable[[], str]
    named: Callable[[Collection[str]], Collection[str]]

    def collect(self, progress: Callable[[Collected], object] | None = None) -> Collected:
        """See `Namespace.collect`."""
        done = _Done()
        nameless: list[Garbage] = []
        due = chain.from_iterable(self._due(slot, done) for slot in range(GARBAGE_SLOTS))
        while batch := list(islice(due, _OBJECTS)):
            nameless += (garbage for garbage in batch if garbage.is_nameless)
            self._collect([garbage for garbage in batch if not garbage.is_nameless], done)
            if len(nameless) >= _NAMELESS:
                self._look_again(nameless, done)
                nameless = []
            if progress is not None:
                progress(done.collected())
        self._look_again(nameless, done)
        if nameless and progress is not None:
            progress(done.collected())
        return done.collected()

    def _due(self, slot: int, done: _Done) -> Iterator[Garbage]:
        now = int(self.clock.epoch() * 1000)
        place = self.keys.garbage_slot(slot)
        try:
            for item in self.table.query(place):
                try:
                    garbage = Garbage.from_item(item)
                except (CorruptRecord, FormatTooNew) as error:
                    done.failed += [(place_of(item), str(error))]
                    continue
                if garbage.not_before > now:
                    return
                yield garbage
        except Unavailable as error:
            done.failed += [(place, str(error))]

    def _look_again(self, nameless: list[Garbage], done: _Done) -> None:
        """Collect what no file had when it was listed, but what is a file by now."""
        if not nameless:
            return
        try:
            named = self.named([garbage.data.path for garbage in nameless])
        except (AccessDenied, CorruptRecord, FormatTooNew, Unavailable) as error:
            done.failed += ((garbage.data.path, str(error)) for garbage in nameless)
            return
        self._forget([garbage for garbage in nameless if garbage.data.path in named], done)
        rest = (garbage for garbage in nameless if garbage.data.path not in named)
        while batch := list(islice(rest, _OBJECTS)):
            self._collect(batch, done)

    def _collect(self, batch: list[Garbage], done: _Done) -> None:
        errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])
        done.failed += ((path, str(error)) for path, error in errors.items())
        gone = [garbage for garbage in batch if garbage.data.path not in errors]
        for garbage in self._forget(gone, done):
            if garbage.data.own:
                done.objects += 1
                done.bytes += garbage.data.size

    def _remove(self, paths: list[str]) -> dict[str, CommitError]:
        """Remove objects; return the errors of those that may still be there."""
        if not paths:
            return {}
        try:
            self.prove()
            left = self._delete(paths)
            self.prove()
        except AGAIN as error:
            left = dict.fromkeys(paths, error)
        return left

    def _delete(self, paths: list[str]) -> dict[str, CommitError]:
        left: Mapping[str, CommitError] = {}
        final: dict[str, CommitError] = {}
        for _ in self.backoff.attempts(self.clock):
            if not paths:
                break
            try:
                left = self.store.delete_many(paths)
            except AGAIN as error:
                left = dict.fromkeys(paths, error)
            final |= {path: error for path, error in left.items() if not isinstance(error, AGAIN)}
            paths = [path for path in left if path not in final]
        return {**final, **left}

    def _forget(self, listed: list[Garbage], done: _Done) -> list[Garbage]:
        """Remove records; return those that nobody else removed first."""
        removals = Removals(table=self.table, clock=self.clock, backoff=self.backoff, words=self.words)
        removed = removals.remove([Delete(each.key, Equals("word", each.word)) for each in listed])
        done.failed += (
            (each.data.path, str(removed.failed[each.key]))
            for each in listed
            if each.key in removed.failed
        )
        return [each for each in listed if each.key in removed.keys]


@define
class _Done:
    """What a collection has done so far. See `Collected`."""

    objects: int = 0
    bytes: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)

    def collected(self) -> Collected:
        """Return it for callers."""
        return Collected(objects=self.objects, bytes=self.bytes, failed=self.failed)
