"""A table in the memory of this process, for tests and for trying things out.

It keeps every rule of the port, but nothing outlives the process. A forked process has a copy.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Sequence
from operator import itemgetter
from weakref import WeakValueDictionary

from commitlog._util.fork import fork_safe_lock
from commitlog.clock import Clock
from commitlog.tables.api import (
    TABLE_FORMAT,
    Delete,
    InFlight,
    Item,
    ItemPage,
    Key,
    Put,
    Table,
    TableCondition,
    TableInfo,
    TableSchema,
    Value,
    Write,
)
from commitlog.tables.rules import (
    check_condition,
    check_item,
    check_key,
    check_query,
    check_scan,
    check_writes,
    failure,
    judge,
    key_of_token,
    settled,
    table_not_found,
    token_of_key,
    wrong_schema,
)
from commitlog.urls import Url

__all__ = ["MemoryTable"]


class _Contents:
    """The state that all tables of one name share. `lock` guards all of it."""

    def __init__(self) -> None:
        self.lock = fork_safe_lock()
        self.schema: TableSchema | None = None
        self.created = 0.0
        self.items: dict[str, dict[str | None, dict[str, Value]]] = {}
        #: The number of changes of items, and the earliest expiry after one of these changes.
        self.changes = 0
        self.expiry_at = -1
        self.expiry: int | None = None


# Module-level state, as in `stores/memory.py`: "memory://name" has to mean the same table wherever in
# this process it is opened. Weak, so that a table goes with its last user.
_named: WeakValueDictionary[str, _Contents] = WeakValueDictionary()
_named_lock = fork_safe_lock()


def _contents_of(name: str) -> _Contents:
    new = _Contents()
    if not name:
        return new
    with _named_lock:
        return _named.setdefault(name, new)


class MemoryTable(Table):
    """A table in memory; thread-safe. See `Table` for the guarantees of the methods.

    Args:
        url: ``memory://name``, shared by that name within the process as long as a table of it is open,
            or ``memory://`` for a table of its own.
        schema: the keys of its items.
        clock: the clock for `remove_expired` and the creation time.

    Transaction tokens are not kept: no response from memory can be lost.
    """

    def __init__(self, url: Url, schema: TableSchema, *, clock: Clock) -> None:
        self.url = str(url)
        self.schema = schema
        self._clock = clock
        self._contents = _contents_of(url.name)

    def __repr__(self) -> str:
        return f"MemoryTable({self.url!r})"

    # the table itself

    def create(self) -> bool:
        contents = self._contents
        with contents.lock:
            if contents.schema is None:
                contents.schema = self.schema
                contents.created = self._clock.epoch()
                return True
            self._open()
            return False

    def check(self) -> None:
        with self._contents.lock:
            self._open()

    def describe(self) -> TableInfo:
        with self._contents.lock:
            if self._contents.schema is None:
                raise table_not_found(self.url, self.schema)
            return TableInfo(
                url=self.url,
                schema=self._contents.schema,
                format=TABLE_FORMAT,
                created=self._contents.created,
                item_count=sum(map(len, self._contents.items.values())),
            )

    # one item

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        """Read at once; the pending call returns the item."""
        return settled(lambda: self.get(key))

    def get(self, key: Key) -> Item | None:
        check_key(self.schema, key)
        with self._contents.lock:
            self._open()
            found = self._find(key)
            return None if found is None else dict(found)

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """Do the put at once; the pending call tells its outcome."""
        key = check_item(self.schema, item)
        check_condition(condition)
        return settled(lambda: self._write(key, Put(item, condition)))

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        check_key(self.schema, key)
        check_condition(condition)
        self._write(key, Delete(key, condition))

    def _write(self, key: Key, write: Put | Delete) -> None:
        with self._contents.lock:
            self._open()
            failed = failure(key, write.condition, self._find(key))
            if failed is not None:
                raise failed
            self._apply(write)

    # many items

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        check_query(self.schema, hash_key, start_after, limit)
        after = start_after if token is None else key_of_token(token).range or ""
        with self._contents.lock:
            self._open()
            ranges = self._contents.items.get(hash_key, {})
            # Python orders strings by code point, which is the order of their UTF-8 bytes.
            found = [
                (hash_key, part or "", item) for part, item in ranges.items() if not part or part > after
            ]
        return _page(found, limit)

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        check_scan(segment, segments, limit)
        after = None if token is None else key_of_token(token)
        with self._contents.lock:
            self._open()
            found = [
                (hash_key, part or "", item)
                for hash_key, ranges in self._contents.items.items()
                if segments == 1 or zlib.crc32(hash_key.encode()) % segments == segment
                for part, item in ranges.items()
                if after is None or (hash_key, part or "") > (after.hash, after.range or "")
            ]
        return _page(found, limit)

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        keys = check_writes(self.schema, writes, token)
        with self._contents.lock:
            self._open()
            judge([(key, write, self._find(key)) for key, write in zip(keys, writes, strict=True)])
            for write in writes:
                self._apply(write)

    # expiry

    def remove_expired(self) -> int:
        """Remove the items whose time is past, and return how many those were."""
        attribute = self.schema.ttl_attribute
        now = self._clock.epoch()
        removed = 0
        with self._contents.lock:
            self._open()
            for ranges in self._contents.items.values():
                for part, item in list(ranges.items()):
                    expiry = None if attribute is None else item.get(attribute)
                    if type(expiry) is int and expiry < now:
                        del ranges[part]
                        removed += 1
            self._contents.changes += removed
        return removed

    def next_expiry(self) -> int | None:
        """Return the earliest time at which an item expires, in epoch seconds; None if none does."""
        attribute = self.schema.ttl_attribute
        contents = self._contents
        with contents.lock:
            if attribute is not None and contents.expiry_at != contents.changes:
                expiries = (
                    item.get(attribute) for ranges in contents.items.values() for item in ranges.values()
                )
                contents.expiry = min((each for each in expiries if type(each) is int), default=None)
                contents.expiry_at = contents.changes
            return contents.expiry

    # below, the caller holds the lock

    def _open(self) -> None:
        found = self._contents.schema
        if found is None:
            raise table_not_found(self.url, self.schema)
        if (found.hash_key, found.range_key) != (self.schema.hash_key, self.schema.range_key):
            raise wrong_schema(self.url, found=found, wanted=self.schema)

    def _find(self, key: Key) -> dict[str, Value] | None:
        return self._contents.items.get(key.hash, {}).get(key.range)

    def _apply(self, write: Write) -> None:
        items = self._contents.items
        self._contents.changes += 1
        if isinstance(write, Put):
            key = self.schema.key_of(write.item)
            items.setdefault(key.hash, {})[key.range] = dict(write.item)
        elif isinstance(write, Delete):
            items.get(write.key.hash, {}).pop(write.key.range, None)


def _page(found: Sequence[tuple[str, str, Item]], limit: int) -> ItemPage:
    """Return the first page of items, which come with their hash and range keys."""
    # One more than asked for tells whether this is the last page.
    first = heapq.nsmallest(limit + 1, found, key=itemgetter(0, 1))
    token = None
    if len(first) > limit:
        hash_key, range_key, _ = first[limit - 1]
        token = token_of_key(Key(hash_key, range_key or None))
    return ItemPage(items=tuple(dict(item) for *_, item in first[:limit]), next_token=token)
