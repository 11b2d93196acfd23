"""Garbage collection: the removal of unreferenced objects after their grace period.

Collection can be interrupted at any point, and several clients can run it at once: every step is a
deletion that can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, islice

from attrs import define, field, frozen

from commitlog._util.frozen_map import AppendOnly
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import AccessDenied, CommitError, CorruptRecord, FormatTooNew, Unavailable
from commitlog.namespace.gc.deletes import RETRYABLE, RecordDeleter
from commitlog.namespace.model.codec import item_name
from commitlog.namespace.model.keys import GARBAGE_SLOTS, Keys
from commitlog.namespace.model.records import Garbage
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Delete, Equals, Table

__all__ = ["Collector", "GcReport"]

#: Maximum number of objects removed by one request to the store.
_OBJECTS = 1000

#: Number of never referenced objects for which all records are read once.
_ORPHAN_BATCH = 10_000


@frozen(kw_only=True)
class GcReport:
    """The removed garbage, and the garbage that is left.

    Attributes:
        objects: number of removed objects.
        bytes: their total size in bytes.
        failed: paths of objects that may still exist or be listed, with the errors; also keys of
            unreadable records and of unreadable parts of the list. All of these stay listed.
    """

    objects: int = 0
    bytes: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)


@frozen(kw_only=True)
class Collector:
    """A garbage collector of one namespace.

    Args:
        table, keys, store: those of the namespace.
        clock: current time; also used to wait between attempts.
        backoff: retry policy of removals that had no effect, or got no answer. A namespace's own object
            path is never used again, so a removal can be repeated.
        verify: raises an error unless the store exists and is the right one. A wrong store would report
            each object as missing.
        new_id: returns transaction tokens.
        referenced: returns those of some objects to which files of any namespace of the table now refer;
            raises `CorruptRecord` or `FormatTooNew` if that is unknown.
    """

    table: Table
    keys: Keys
    store: ObjectStore
    clock: Clock
    backoff: Backoff
    verify: Callable[[], object]
    new_id: Callable[[], str]
    referenced: Callable[[Collection[str]], Collection[str]]

    def collect(self, progress: Callable[[GcReport], object] | None = None) -> GcReport:
        """Remove the garbage that is due: see `Maintenance.gc`."""
        done = _Totals()
        orphans: list[Garbage] = []
        due = chain.from_iterable(self._due(slot, done) for slot in range(GARBAGE_SLOTS))
        while batch := list(islice(due, _OBJECTS)):
            orphans += (garbage for garbage in batch if garbage.is_orphan)
            self._collect([garbage for garbage in batch if not garbage.is_orphan], done)
            if len(orphans) >= _ORPHAN_BATCH:
                self._collect_orphans(orphans, done)
                orphans = []
            if progress is not None:
                progress(done.report())
        self._collect_orphans(orphans, done)
        if orphans and progress is not None:
            progress(done.report())
        return done.report()

    def _due(self, slot: int, done: _Totals) -> Iterator[Garbage]:
        now = int(self.clock.epoch() * 1000)
        place = self.keys.garbage_slot(slot)
        try:
            for item in self.table.query(place):
                try:
                    garbage = Garbage.from_item(item)
                except (CorruptRecord, FormatTooNew) as error:
                    done.failed += [(item_name(item), str(error))]
                    continue
                if garbage.not_before > now:
                    return
                yield garbage
        except Unavailable as error:
            done.failed += [(place, str(error))]

    def _collect_orphans(self, orphans: list[Garbage], done: _Totals) -> None:
        """Remove objects that were unreferenced when listed, except those that files refer to now."""
        if not orphans:
            return
        try:
            referenced = self.referenced([garbage.data.path for garbage in orphans])
        except (AccessDenied, CorruptRecord, FormatTooNew, Unavailable) as error:
            done.failed += ((garbage.data.path, str(error)) for garbage in orphans)
            return
        self._remove_records([garbage for garbage in orphans if garbage.data.path in referenced], done)
        rest = (garbage for garbage in orphans if garbage.data.path not in referenced)
        while batch := list(islice(rest, _OBJECTS)):
            self._collect(batch, done)

    def _collect(self, batch: list[Garbage], done: _Totals) -> None:
        errors = self._remove([garbage.data.path for garbage in batch if garbage.data.own])
        done.failed += ((path, str(error)) for path, error in errors.items())
        gone = [garbage for garbage in batch if garbage.data.path not in errors]
        for garbage in self._remove_records(gone, done):
            if garbage.data.own:
                done.objects += 1
                done.bytes += garbage.data.size

    def _remove(self, paths: list[str]) -> dict[str, CommitError]:
        """Remove objects; return the errors of those that may still be there."""
        if not paths:
            return {}
        try:
            self.verify()
            left = self._delete(paths)
            self.verify()
        except RETRYABLE as error:
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
            except RETRYABLE as error:
                left = dict.fromkeys(paths, error)
            final |= {path: error for path, error in left.items() if not isinstance(error, RETRYABLE)}
            paths = [path for path in left if path not in final]
        return {**final, **left}

    def _remove_records(self, listed: list[Garbage], done: _Totals) -> list[Garbage]:
        """Remove records; return those that this call removed."""
        deleter = RecordDeleter(
            table=self.table, clock=self.clock, backoff=self.backoff, new_id=self.new_id
        )
        removed = deleter.remove([Delete(each.key, Equals("word", each.change_id)) for each in listed])
        done.failed += (
            (each.data.path, str(removed.failed[each.key]))
            for each in listed
            if each.key in removed.failed
        )
        return [each for each in listed if each.key in removed.keys]


@define
class _Totals:
    """The progress of a collection. See `GcReport`."""

    objects: int = 0
    bytes: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)

    def report(self) -> GcReport:
        """Return the report for callers."""
        return GcReport(objects=self.objects, bytes=self.bytes, failed=self.failed)
