"""Garbage collection: the removal of unreferenced objects after their grace period.

Collection can be interrupted at any point, and several clients can run it at once: every step is a
deletion that can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

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
from commitlog.tables.api import Delete, Equals, Item, Table

__all__ = ["GarbageCollector", "GarbageShare", "GcReport"]

#: Maximum number of objects removed by one request to the store.
_OBJECTS = 1000

#: The partitions of the garbage.
_SLOTS = range(GARBAGE_SLOTS)

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

    def followed_by(self, other: GcReport) -> GcReport:
        """Return the report of this collection and of another one."""
        return GcReport(
            objects=self.objects + other.objects,
            bytes=self.bytes + other.bytes,
            failed=self.failed + other.failed,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"objects": self.objects, "bytes": self.bytes, "failed": list(map(list, self.failed))}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> GcReport:
        """Return the report that `to_json` returned."""
        failed = AppendOnly((what, error) for what, error in found["failed"])
        return cls(**{**found, "failed": failed})


@frozen(kw_only=True)
class GarbageShare:
    """A share of the garbage of a namespace.

    Attributes:
        slot: number of a partition of the garbage.
        after, until: epoch milliseconds; only garbage that was due after the first, and not later than
            the second.
    """

    slot: int
    after: int = -1
    until: int

    def to_json(self) -> dict[str, int]:
        """Return it as JSON."""
        return {"slot": self.slot, "after": self.after, "until": self.until}

    @classmethod
    def from_json(cls, found: Mapping[str, int]) -> GarbageShare:
        """Return the share that `to_json` returned."""
        return cls(**found)


@frozen(kw_only=True)
class GarbageCollector:
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
        now = int(self.clock.epoch() * 1000)
        for found in self._collect_shares([GarbageShare(slot=each, until=now) for each in _SLOTS], done):
            orphans += found
            if len(orphans) >= _ORPHAN_BATCH:
                self._collect_orphans(orphans, done)
                orphans = []
            if progress is not None:
                progress(done.report())
        self._collect_orphans(orphans, done)
        if orphans and progress is not None:
            progress(done.report())
        return done.report()

    def shares(self, count: int) -> list[GarbageShare]:
        """Divide the garbage that is due now into about as many shares as wanted, by time.

        Takes one request for each partition of the garbage.
        """
        now = int(self.clock.epoch() * 1000)
        shares: list[GarbageShare] = []
        for slot in _SLOTS:
            page = self.table.query_page(self.keys.garbage_slot(slot), limit=1)
            first = next((_due_at(item) for item in page.items), now)
            parts = max(1, min(-(-count // GARBAGE_SLOTS), now - first))
            ends = [first + (now - first) * part // parts for part in range(1, parts + 1)]
            after = -1
            for until in ends:
                shares.append(GarbageShare(slot=slot, after=after, until=until))
                after = until
        return shares

    def collect_share(self, share: GarbageShare) -> tuple[GcReport, list[Garbage]]:
        """Remove a share of the garbage, as far as it is due.

        Returns a report, and the objects that were unreferenced when listed. These are left for
        `collect_orphans`.
        """
        done = _Totals()
        orphans = list(chain.from_iterable(self._collect_shares([share], done)))
        return done.report(), orphans

    def collect_orphans(self, orphans: Sequence[Garbage]) -> GcReport:
        """Remove objects that were unreferenced when listed, except those that files refer to now."""
        done = _Totals()
        self._collect_orphans(orphans, done)
        return done.report()

    def _collect_shares(self, shares: Sequence[GarbageShare], done: _Totals) -> Iterator[list[Garbage]]:
        """Remove shares of the garbage; yield the orphans of each thousand objects, which are left."""
        due = chain.from_iterable(self._due(share, done) for share in shares)
        while batch := list(islice(due, _OBJECTS)):
            self._collect([garbage for garbage in batch if not garbage.is_orphan], done)
            yield [garbage for garbage in batch if garbage.is_orphan]

    def _due(self, share: GarbageShare, done: _Totals) -> Iterator[Garbage]:
        now = int(self.clock.epoch() * 1000)
        place = self.keys.garbage_slot(share.slot)
        start_after = str(self.keys.garbage(share.after + 1, "").range)
        try:
            for item in self.table.query(place, start_after=start_after):
                try:
                    garbage = Garbage.from_item(item)
                except (CorruptRecord, FormatTooNew) as error:
                    if _due_at(item) > share.until:
                        return
                    done.failed += [(item_name(item), str(error))]
                    continue
                if garbage.not_before > min(now, share.until):
                    return
                yield garbage
        except Unavailable as error:
            done.failed += [(place, str(error))]

    def _collect_orphans(self, orphans: Sequence[Garbage], done: _Totals) -> None:
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
        removed = deleter.remove(
            [Delete(each.key, Equals("change_id", each.change_id)) for each in listed]
        )
        done.failed += (
            (each.data.path, str(removed.failed[each.key]))
            for each in listed
            if each.key in removed.failed
        )
        return [each for each in listed if each.key in removed.keys]


def _due_at(item: Item) -> int:
    """Return the epoch millisecond at which garbage is due by its key; 0 if the key does not show it."""
    digits = str(item["name"]).partition("/")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


@define
class _Totals:
    """The progress of a collection. See `GcReport`."""

    objects: int = 0
    bytes: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)

    def report(self) -> GcReport:
        """Return the report for callers."""
        return GcReport(objects=self.objects, bytes=self.bytes, failed=self.failed)
