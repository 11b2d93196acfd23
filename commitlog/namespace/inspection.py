"""Inspection of a namespace: its log, its jobs, and the work that is left for maintenance.

An inspection reads a bounded number of records, and changes nothing. It does not read the tree:
`commitlog.namespace.fsck` checks that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeVar

from attrs import define, field, frozen

from commitlog._util.bounded import Bound
from commitlog.errors import BucketNotFound, CorruptRecord, Fenced, FormatTooNew, StoreEmpty
from commitlog.namespace.context import NamespaceContext
from commitlog.namespace.model.keys import (
    ATTEMPT,
    GARBAGE_SLOTS,
    ROOT,
    STAGING,
    TRASH,
    TRASH_SHARDS,
    shards_of,
)
from commitlog.namespace.model.records import Entry, Garbage
from commitlog.namespace.write.content import is_content
from commitlog.oplog import LogSize
from commitlog.tables.api import Item

__all__ = ["NamespaceInspection", "inspect"]

T = TypeVar("T")


@frozen(kw_only=True)
class NamespaceInspection:
    """A namespace as an operator sees it. Times are epoch seconds by the clients' clocks.

    Attributes:
        now: the time of the inspection.
        format: format of its records.
        min_reader, min_writer: the formats that a program must know to read and to change it.
        created: time of its creation.
        read_only: whether the table is a read-only copy.
        jobs: for each unpublished job, the time of its last sign of life, the oldest first.
        log: the number and ages of the logged changes; None if it has no log, or the log belongs to
            another table, or the store is missing.
        fenced: the message if the log belongs to another table; None if not.
        missing_store: the message if the store is missing, or is another one; None if not.
        trash: number of files and directories directly in the trash.
        oldest_trash: time at which the oldest of them was removed; None if the trash is empty.
        garbage_objects: number of objects that may be removed now.
        garbage_bytes: their size.
        oldest_garbage: time since which the oldest of them may be removed; None if there is none.
        uploads: number of uploads of content.
        stale_uploads: number of those that began at least `stale_after` seconds ago, by the store's
            clock.
        damage: messages about records that cannot be read.
        complete: whether everything was read; False if `limit` was reached, so numbers may be too low.
    """

    now: float
    format: int
    min_reader: int
    min_writer: int
    created: float
    read_only: bool
    jobs: tuple[float, ...]
    log: LogSize | None
    fenced: str | None
    missing_store: str | None
    trash: int
    oldest_trash: float | None
    garbage_objects: int
    garbage_bytes: int
    oldest_garbage: float | None
    uploads: int
    stale_uploads: int
    damage: tuple[str, ...]
    complete: bool


def inspect(
    context: NamespaceContext, *, pending_after: float, stale_after: float, limit: int | None
) -> NamespaceInspection:
    """Inspect one namespace; see `Maintenance.inspect`."""
    context.metadata.forget()  # the namespace may have been restored since the last read
    metadata = context.describe(writing=False)
    now = context.clock.epoch()
    reading = _Reading(bound=Bound(limit))
    missing = fenced = None
    log: LogSize | None = None
    uploads: list[float] = []
    try:
        context.overlay.backing_store.verify_if_identified()
    except (BucketNotFound, StoreEmpty) as error:
        missing = str(error)
    else:
        log, fenced = _log(context, pending_after, limit, read_only=metadata.read_only)
        if log is not None and not log.complete:
            reading.bound.complete = False
        listed = reading.bound.take(context.store.list_staged())
        uploads = [each.initiated for each in listed if is_content(each.path)]
    trash = [each.updated / 1000 for each in _trash(context, reading)]
    garbage = list(_garbage(context, reading, int(now * 1000)))
    return NamespaceInspection(
        now=now,
        format=metadata.format,
        min_reader=metadata.min_reader,
        min_writer=metadata.min_writer,
        created=metadata.created / 1000,
        read_only=metadata.read_only,
        jobs=tuple(sorted(each.updated / 1000 for each in _jobs(context, reading))),
        log=log,
        fenced=fenced,
        missing_store=missing,
        trash=len(trash),
        oldest_trash=min(trash, default=None),
        garbage_objects=len(garbage),
        garbage_bytes=sum(each.data.size for each in garbage if each.data.own),
        oldest_garbage=min((each.not_before / 1000 for each in garbage), default=None),
        uploads=len(uploads),
        stale_uploads=sum(initiated <= now - stale_after for initiated in uploads),
        damage=tuple(reading.damage),
        complete=reading.bound.complete,
    )


@define(kw_only=True)
class _Reading:
    """The bound of an inspection, and the damage that it has found.

    Attributes:
        bound: the bound of each listing.
        damage: messages about damage.
    """

    bound: Bound
    damage: list[str] = field(factory=list)

    def parsed(self, items: Iterable[Item], parse: Callable[[Item], T]) -> Iterator[T]:
        """Yield the records in items; note those that cannot be read."""
        for item in items:
            try:
                record = parse(item)
            except (CorruptRecord, FormatTooNew) as error:
                self.damage.append(str(error))
            else:
                yield record


def _log(
    context: NamespaceContext, pending_after: float, limit: int | None, *, read_only: bool
) -> tuple[LogSize | None, str | None]:
    """Return the size of the log, or the reason why it is not the log of this table."""
    log = context.changes.log
    if log is None or read_only:
        return None, None
    try:
        log.check()
    except Fenced as error:
        return None, str(error)
    return log.current.measure(older_than=pending_after, limit=limit), None


def _jobs(context: NamespaceContext, reading: _Reading) -> Iterator[Entry]:
    """Yield the directories of unpublished jobs."""
    root = context.tree.root()
    for shard in shards_of(STAGING, root.shards.now, root.shards.first):
        item = context.table.get(context.keys.entry(ROOT, shard, STAGING))
        if item is not None:
            staging = Entry.from_item(item)
            entries = _entries(context, reading, staging.id, staging.shards.now)
            yield from (each for each in entries if each.is_directory and ATTEMPT.fullmatch(each.name))
            return


def _trash(context: NamespaceContext, reading: _Reading) -> Iterator[Entry]:
    return _entries(context, reading, TRASH, TRASH_SHARDS)


def _entries(
    context: NamespaceContext, reading: _Reading, directory: str, shards: int
) -> Iterator[Entry]:
    """Yield the entries of a directory, whatever is bound to it."""
    places = (context.keys.shard(directory, shard) for shard in range(shards))
    items = chain.from_iterable(map(context.table.query, places))
    return reading.parsed(reading.bound.take(items), Entry.from_item)


def _garbage(context: NamespaceContext, reading: _Reading, now: int) -> Iterator[Garbage]:
    """Yield the garbage that is due; each partition is sorted by time."""
    for slot in range(GARBAGE_SLOTS):
        items = context.table.query(context.keys.garbage_slot(slot))
        for garbage in reading.parsed(reading.bound.take(items), Garbage.from_item):
            if garbage.not_before > now:
                break
            yield garbage
