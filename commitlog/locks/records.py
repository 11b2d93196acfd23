"""Where the records of locks are: items of a table, or objects of a store.

`open_records` gives both the same face, `commitlog.commit.lease.RecordTable`, so that the rules of
leases know no difference. In a table, the records have the keys of a table of leases, and may share one
with leases. In a store, each record is an object.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit import ConditionalStore
from commitlog.commit.lease import RecordTable
from commitlog.commit.record import LEASE_SCHEMA, LOCK, LOCKS
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    NotFound,
    PreconditionFailed,
)
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.torn_reads import read_record, read_whole
from commitlog.oplog.validate import build, text
from commitlog.tables.api import (
    ConditionFailed,
    InFlight,
    Item,
    Key,
    Table,
    TableCondition,
)

__all__ = ["LOCK_SCHEMA", "LockStore", "key_of", "open_records"]

#: The schema of a table of locks, for `commitlog.tables.open_table`. It is that of leases, so one table
#: can have both.
LOCK_SCHEMA = LEASE_SCHEMA

#: Where locks are kept.
LockStore: TypeAlias = ConditionalStore | Table

_KIND = "lock"


def key_of(store: LockStore, name: str) -> Key:
    """Return the key of the record of the lock `name`. Raises `ConfigurationError` for an empty name."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"the name of a lock is a non-empty str, not {name!r}")
    return Key(name if isinstance(store, ConditionalStore) else LOCKS + name, LOCK)


def open_records(store: LockStore, *, clock: Clock, backoff: Backoff) -> RecordTable:
    """Return the records of locks at `store`. Sends no request.

    Raises `ConfigurationError` if it is neither a table nor a conditional store.
    """
    if isinstance(store, ConditionalStore):
        return ObjectRecords(store, clock=clock, backoff=backoff)
    if isinstance(store, Table):
        return store
    raise ConfigurationError(
        f"locks are kept in a ConditionalStore or a Table, not in {store!r}: open one with"
        " commitlog.connect, or with commitlog.tables.open_table and commitlog.locks.LOCK_SCHEMA"
    )


@frozen
class _Version:
    """A record with the etag of its object, or None if there is no object."""

    item: Item | None
    etag: str


_ABSENT = _Version(None, "")


class ObjectRecords:
    """Records as objects of a store. Thread-safe.

    The object of a key has the path `Key.hash`, and the record as JSON. A put under a condition reads
    the record, unless this client has read or written it before, and replaces the very version that it
    judged. Since a lock never writes the same record twice, its etags never repeat, even if the store
    derives them from the content.
    """

    def __init__(self, store: ConditionalStore, *, clock: Clock, backoff: Backoff) -> None:
        self._store = store
        self._clock = clock
        self._backoff = backoff
        self._known: dict[Key, _Version] = {}

    def get(self, key: Key, /) -> Item | None:
        """Return the record under `key`, or None."""
        return self._look(key).item

    def begin_put(self, item: Item, /, *, condition: TableCondition | None = None) -> InFlight[None]:
        """Return a call that stores the record; see `commitlog.tables.Table.put`."""
        return lambda: self._put(item, condition)

    def _look(self, key: Key) -> _Version:
        def read() -> _Version:
            found = read_whole(self._store, key.hash, clock=self._clock, backoff=self._backoff)
            document = decode(found.data, {_KIND}, path=found.path)
            return _Version(build(document, lambda: _item(document, key)), found.etag)

        try:
            version = self._known[key] = read_record(read, clock=self._clock, backoff=self._backoff)
        except NotFound:
            return _ABSENT
        return version

    def _put(self, item: Item, condition: TableCondition | None) -> None:
        assert condition is not None  # a lock writes nothing without one
        key = Key(str(item["path"]), str(item["etag"]))
        body = encode(Document(_KIND, item))
        seen = self._known.pop(key, None)
        if seen is None or not condition.holds(seen.item):
            seen = self._look(key)
        refused = 0
        while condition.holds(seen.item):
            try:
                if seen.item is None:
                    result = self._store.put_if_absent(key.hash, body)
                else:
                    result = self._store.put_if_match(key.hash, body, etag=seen.etag)
            except (AlreadyExists, PreconditionFailed) as error:
                refused += 1
                seen = self._look(key)
                if refused >= self._backoff.tries and condition.holds(seen.item):
                    raise Conflict(
                        f"the record of the lock {key.hash!r} is unchanged, but the store refused to"
                        f" replace it {refused} times ({error}); nothing was written"
                    ) from error
            else:
                if result.etag:
                    self._known[key] = _Version(item, result.etag)
                return
        raise ConditionFailed(
            f"the record of the lock {key.hash!r} is another one; nothing was written",
            item=seen.item,
            item_known=seen.item is not None,
        )


def _item(document: Document, key: Key) -> Item:
    """Return the record of `key`. The types of numbers are left to `LeaseRecord`.

    A field that is null is left out, because conditions take it for a value.
    """
    item = {
        name: text(value) if isinstance(value, str) else value
        for name, value in document.body.items()
        if value is not None
    }
    if (item.get("path"), item.get("etag")) != (key.hash, key.range):
        raise ValueError(f"it is the record of {item.get('path')!r}")
    return item
