"""A bucket whose objects have given times, and an engine that crashes at given steps.

`Engine` treats a source as Structured Streaming does: the offset is written to a durable log before the
batch is read, a batch that is not committed is read again from that log, and the sink keeps the first
result of each batch number. A *record* is one byte of one version of an object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, evolve, field

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.ingest import (
    INGEST_SCHEMA,
    Fetch,
    Ingest,
    IngestSettings,
    Notifications,
    Partition,
    Pinned,
    Quarantine,
    Slice,
)
from commitlog.stores.api import ObjectData, ObjectInfo, ObjectStore, Page
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Table
from commitlog.tables.memory import MemoryTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.library import GetClass, original

#: Path, etag, and position of the byte.
Record = tuple[str, str, int]


class Bucket(MemoryStore):
    """A store in memory whose objects have given times."""

    def put_at(self, path: str, body: bytes, modified: float, *, etag: str | None = None) -> str:
        """Put an object with the time at which its multipart upload began; return its etag."""
        result = self.put(path, body)
        key = self.key(path)
        found = self._space.objects[key]
        self._space.objects[key] = evolve(found, modified=modified, etag=etag or found.etag)
        return etag or result.etag


def state_table(clock: Clock | None = None) -> MemoryTable:
    """Return an empty table for state."""
    table = MemoryTable(parse_table_url("memory://"), INGEST_SCHEMA, clock=clock or ManualClock())
    table.create()
    return table


def records_of(pinned: Pinned, slice: Slice) -> Iterator[list[Record]]:
    """Yield the records of a slice, two at a time, each pair read by a separate request."""
    file = slice.file
    for at in range(slice.start, slice.end, 2):
        data = pinned.get(file.path, start=at, end=min(at + 2, slice.end))
        yield [(file.path, data.etag, at + number) for number in range(len(data.data))]
    if not slice.size:
        pinned.get(file.path)


Decode = Callable[[Pinned, Slice], Iterator[list[Record]]]


def read(fetch: Fetch, partition: Partition, decode: Decode = records_of) -> list[Record]:
    """Return the records of a partition."""
    batches = fetch.read(partition, decode, count=len, drop=lambda batch, first: batch[first:])
    return [record for batch in batches for record in batch]


class Stop(Exception):
    """The death of the engine's process."""


@define
class Checkpoint:
    """The state of an engine that survives crashes.

    Attributes:
        log: the end offset of each batch, in order.
        committed: number of committed batches.
        sink: the records of each batch.
        slices: the slices of each batch, including those of empty files.
    """

    log: list[dict[str, Any]] = field(factory=list)
    committed: int = 0
    sink: dict[int, list[Record]] = field(factory=dict)
    slices: dict[int, list[Slice]] = field(factory=dict)

    @property
    def records(self) -> Counter[Record]:
        """Number of deliveries of each record."""
        return Counter(record for batch in self.sink.values() for record in batch)


@define(kw_only=True)
class Engine:
    """One process that runs a query on a source.

    Attributes:
        store, table, settings, clock: of the source.
        checkpoint: of the query.
        splits: whether files can be read in ranges.
        step: called before each call, with its name; may raise `Stop`.
        new_id: as of `Ingest`.
        decode: reads slices.
        code: returns the class to use for a class of the library.
        notifications: as of `Ingest`.
    """

    store: ObjectStore
    table: Table
    settings: IngestSettings
    clock: Clock
    checkpoint: Checkpoint = field(factory=Checkpoint)
    splits: bool = False
    step: Callable[[str], object] = lambda what: None
    backoff: Backoff | None = None
    source: Ingest = field(init=False)
    fetch: Fetch = field(init=False)
    new_id: Callable[[], str] | None = None
    decode: Decode = records_of
    code: GetClass = original
    notifications: Notifications | None = None

    def __attrs_post_init__(self) -> None:
        options: dict[str, Any] = {} if self.new_id is None else {"new_id": self.new_id}
        if self.backoff is not None:
            options["backoff"] = self.backoff
        splits = self.splits
        self.source = self.code(Ingest)(
            self.store,
            self.table,
            self.settings,
            splits=lambda path: splits,
            notifications=self.notifications,
            clock=self.clock,
            **options,
        )
        problems = self.code(Quarantine)(self.table, self.settings.source, clock=self.clock, **options)
        self.fetch = self.code(Fetch)(self.store, problems, self.settings)

    def batch(self) -> bool:
        """Run the unfinished batch, or else the next one; return False if there is none."""
        kept = self.checkpoint
        number = kept.committed
        if len(kept.log) == number:
            self.step("initial_offset")
            start = kept.log[-1] if kept.log else self.source.initial_offset()
            self.step("latest_offset")
            end = self.source.latest_offset(start)
            if end == start:
                return False
            self.step("log")
            if len(kept.log) != number:
                raise Stop("another driver wrote the batch into the log, as Spark finds out")
            kept.log.append(end)
        self.step("initial_offset again")
        start = kept.log[number - 1] if number else self.source.initial_offset()
        self.step("partitions")
        end = kept.log[number]
        partitions = self.source.partitions(start, end)
        assert partitions, "an epoch without anything to read"
        self.step("read")
        records = [record for each in partitions for record in read(self.fetch, each, self.decode)]
        self.step("sink")
        if number not in kept.sink:
            kept.sink[number] = records
            kept.slices[number] = [each for part in partitions for each in part.slices]
        self.step("commit")
        kept.committed = max(kept.committed, number + 1)
        self.source.commit(end)
        return True

    def drain(self, most: int = 10_000) -> int:
        """Run batches until there are none; return their number."""
        for number in range(most):
            if not self.batch():
                return number
        raise AssertionError(f"still busy after {most} batches")


class Vast(MemoryStore):
    """A bucket with very many objects below ``in/``, which are generated when they are listed.

    Attributes:
        size: number of objects; object number n was put n seconds after `begun`.
        begun: an epoch second.
        pages: number of listed pages.
        lowest: time of the put of an object number -1, which is listed first; None without one.
    """

    def __init__(self, size: int, *, clock: Clock, begun: float = 0.0) -> None:
        super().__init__(clock=clock)
        self.size = size
        self.begun = begun
        self.pages = 0
        self.lowest: float | None = None

    def info(self, number: int) -> ObjectInfo:
        """Return the description of an object."""
        modified = self.begun + number
        if number < 0 and self.lowest is not None:
            modified = self.lowest
        return ObjectInfo(
            path="in/-" if number < 0 else f"in/{number:09}.json",
            size=1,
            etag=f'"{number:032x}"',
            last_modified=modified,
        )

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """See `ObjectStore.list_page`. Any token is that of a listing of ``in/``."""
        self.pages += 1
        if not "in/".startswith(prefix):
            return Page(objects=())
        after = max(start_after, token or "")
        first = int(after[3:12]) + 1 if after > "in/-" else 0
        if self.lowest is not None and after < "in/-":
            first = -1
        last = min(first + limit, self.size)
        objects = tuple(map(self.info, range(first, last)))
        return Page(objects=objects, next_token=objects[-1].path if last < self.size else None)

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `ObjectStore.get`."""
        info = self.info(int(path[3:12]))
        return ObjectData(
            path=path,
            size=1,
            etag=info.etag,
            last_modified=info.last_modified,
            data=b"1"[start:end],
        )
