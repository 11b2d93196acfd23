"""A table in one SQLite file, for the threads and processes of one machine.

It needs no service. Items are kept as DynamoDB's JSON under binary keys. The file must be on a local
file system: SQLite's write-ahead log does not work over the network ("Write-Ahead Logging", SQLite).
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import sys
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TypeAlias

from commitlog._util.retry import Backoff
from commitlog._util.sqlite_locking import is_busy
from commitlog.clock import Clock, Stopwatch
from commitlog.errors import ConfigurationError, CorruptRecord, Unavailable
from commitlog.tables.api import (
    TABLE_FORMAT,
    TRANSACT_WITHIN,
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
    UnreadableItem,
    Value,
    Write,
)
from commitlog.tables.marshal import marshal, readable_part, to_json, unmarshal
from commitlog.tables.rules import (
    check_condition,
    check_item,
    check_key,
    check_query,
    check_scan,
    check_writes,
    damaged,
    failure,
    format_too_new,
    judge,
    key_of_token,
    settled,
    table_not_found,
    token_of_key,
    wrong_schema,
)
from commitlog.tables.sqlite_connection import SqliteConnection, created, open_file, translated
from commitlog.urls import Url

__all__ = ["SqliteTable"]

#: Expired items are looked for on a write at most this often, in seconds, and this many at a time: a
#: removal must not make others wait. While there are more, the next one comes sooner.
_EXPIRY_INTERVAL = 60.0
_EXPIRY_AGAIN = 1.0
_EXPIRY_BATCH = 100
#: An item is removed this many seconds after it was first found expired: the wall clock may have been
#: set forward, and then the lease of a writer who is at work seems to have expired long ago.
_EXPIRY_DELAY = 6 * 3600
#: Puts in one transaction; other writers wait for it.
_PUT_BATCH = 100

# Keys as bytes of UTF-8: SQLite compares blobs byte by byte, whatever collation it was built with.
# `expires` is when an item expires; after a search has found it expired, the negative of when it will be
# removed. (Versions that do not know of that remove it at once, as they do all that is expired.)
_LAYOUT = """
CREATE TABLE items (
    hash BLOB NOT NULL, range BLOB NOT NULL, expires INTEGER, item TEXT NOT NULL,
    PRIMARY KEY (hash, range)
) WITHOUT ROWID;
CREATE INDEX items_expires ON items (expires) WHERE expires IS NOT NULL;
CREATE TABLE commitlog_table (format INTEGER, created REAL, hash_key TEXT, range_key TEXT, ttl TEXT);
"""

#: A row: its key, and the item. As bytes, for SQLite keeps texts that are none of Unicode's.
_SELECT = "SELECT hash, range, CAST(item AS BLOB) FROM items"
#: Some of the items whose `expires` is in a range.
_SOME = (
    "(hash, range) IN"
    " (SELECT hash, range FROM items WHERE expires BETWEEN ? AND ? ORDER BY expires LIMIT ?)"
)
_Row: TypeAlias = tuple[bytes, bytes, bytes]
#: The hash keys of a segment after a given one, in order: the index finds each by the one before it.
_HASHES = """
WITH RECURSIVE hashes (hash) AS (
    SELECT min(hash) FROM items WHERE hash > ?
    UNION ALL
    SELECT (SELECT min(items.hash) FROM items WHERE items.hash > hashes.hash) FROM hashes
    WHERE hashes.hash IS NOT NULL
)
SELECT hash FROM hashes WHERE hash IS NOT NULL AND segment(hash, ?) = ?
"""


class SqliteTable(Table):
    """A table in one SQLite file. See `Table` for the guarantees of the methods.

    A write that returned is on the disk. Safe for many threads and processes at once, and across
    forks. Do not move or remove the file while a process has it open.

    Args:
        url: ``sqlite:///absolute/path``.
        schema: the keys of its items.
        clock: the clock for expiry and the creation time.
        busy_timeout: maximum wait for other writers in seconds, after which `Unavailable` is raised;
            by a transaction not later than `TRANSACT_WITHIN` seconds after its call.

    Transaction tokens are not kept: no response from a file can be lost.
    """

    def __init__(
        self, url: Url, schema: TableSchema, *, clock: Clock, busy_timeout: float = 10.0
    ) -> None:
        self.url = str(url)
        self.schema = schema
        self._path = url.name
        self._clock = clock
        self._busy_timeout = busy_timeout
        # Two connections, since a reader need not wait for another thread's fsync.
        self._reader = SqliteConnection(
            self._path, schema, busy_timeout=busy_timeout, prepare=self._prepare
        )
        self._writer = SqliteConnection(
            self._path, schema, busy_timeout=busy_timeout, prepare=self._prepare
        )
        self._next_removal = clock.monotonic()

    def __repr__(self) -> str:
        return f"SqliteTable({self.url!r})"

    # the table itself

    def create(self) -> bool:
        directory = os.path.dirname(self._path)
        if not os.path.isdir(directory):
            raise ConfigurationError(
                f"there is no directory {directory}: create it, or correct {self.url}"
            )
        with created(self._path, self.schema, busy_timeout=self._busy_timeout) as connection:
            self._use_wal(connection)
            connection.execute("BEGIN IMMEDIATE")
            if _tables(connection):
                self._verify(connection)
                return False
            keys = self.schema
            for statement in _LAYOUT.split(";"):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO commitlog_table VALUES (?, ?, ?, ?, ?)",
                (TABLE_FORMAT, self._clock.epoch(), keys.hash_key, keys.range_key, keys.ttl_attribute),
            )
            connection.execute("COMMIT")
            return True

    def check(self) -> None:
        with self._reader.use() as connection:
            self._verify(connection)

    def describe(self) -> TableInfo:
        # A connection of its own, since the others are refused when the keys are not those wanted.
        with (
            translated(self._path, self.schema),
            closing(open_file(self._path, "rw", busy_timeout=self._busy_timeout)) as connection,
        ):
            format, created, found = self._marker(connection)
            ((count,),) = connection.execute("SELECT count(*) FROM items")
        return TableInfo(url=self.url, schema=found, format=format, created=created, item_count=count)

    # one item

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        """Read at once; the pending call returns the item."""
        return settled(lambda: self.get(key))

    def get(self, key: Key) -> Item | None:
        check_key(self.schema, key)
        with self._reader.use() as connection:
            return self._find(connection, key)

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
        with self._writer.transaction() as connection:
            if write.condition is not None:
                failed = failure(key, write.condition, self._judged(connection, key, write.condition))
                if failed is not None:
                    raise failed
            self._apply(connection, key, write)
            self._remove_expired_sometimes(connection)

    # many items

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        check_query(self.schema, hash_key, start_after, limit)
        after = start_after if token is None else key_of_token(token).range or ""
        # No bytes lie between x and x + b"\0"; and a table without range key has b"" for all of them.
        first = after.encode() + b"\0" if after else b""
        with self._reader.use() as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE hash = ? AND range >= ? ORDER BY range LIMIT ?",
                (hash_key.encode(), first, limit + 1),
            ).fetchall()
        page = self._page(rows, limit)
        if page.unreadable:
            raise CorruptRecord(page.unreadable[0].reason)
        return page

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        check_scan(segment, segments, limit)
        after = Key("", None) if token is None else key_of_token(token)
        with self._reader.use() as connection:
            if segments == 1:
                rows = connection.execute(
                    f"{_SELECT} WHERE (hash, range) > (?, ?) ORDER BY hash, range LIMIT ?",
                    (*_binary(after), limit + 1),
                ).fetchall()
            else:
                rows = _rows_of_segment(connection, segment, segments, after, limit + 1)
        return self._page(rows, limit)

    def put_all(
        self, items: Iterable[Item], *, condition: TableCondition | None = None
    ) -> tuple[Item, ...]:
        """See `Table.put_all`; a hundred of them wait for the disk together."""
        check_condition(condition)
        rest = ((check_item(self.schema, item), item) for item in items)
        refused: list[Item] = []
        while batch := list(itertools.islice(rest, _PUT_BATCH)):
            with self._writer.transaction() as connection:
                for key, item in batch:
                    if failure(key, condition, self._judged(connection, key, condition)) is None:
                        self._apply(connection, key, Put(item))
                    else:
                        refused.append(item)
        return tuple(refused)

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        keys = check_writes(self.schema, writes, token)
        pairs = list(zip(keys, writes, strict=True))
        began = Stopwatch(self._clock)
        with self._writer.transaction() as connection:
            if began.elapsed() > TRANSACT_WITHIN:  # it has waited for others, or stood still
                raise Unavailable(
                    f"{self.url}: timed out waiting for other writers; nothing was changed, try again"
                )
            judge([(key, each, self._judged(connection, key, each.condition)) for key, each in pairs])
            for key, write in pairs:
                self._apply(connection, key, write)
            self._remove_expired_sometimes(connection)

    # expiry

    def remove_expired(self) -> int:
        """Remove the items that an earlier call found expired hours ago; return how many those were.

        The items that it finds expired itself are left for a later one.
        """
        removed = 0
        more = True
        while more:
            with self._writer.transaction() as connection:
                batch, more = self._remove_expired(connection)
            removed += batch
        return removed

    def _remove_expired_sometimes(self, connection: sqlite3.Connection) -> None:
        now = self._clock.monotonic()
        if now >= self._next_removal:
            _, more = self._remove_expired(connection)
            self._next_removal = now + (_EXPIRY_AGAIN if more else _EXPIRY_INTERVAL)

    def _remove_expired(self, connection: sqlite3.Connection) -> tuple[int, bool]:
        """Remove and find some; return how many were removed, and whether there may be more to do."""
        now = int(self._clock.epoch())
        due = now + _EXPIRY_DELAY
        remove = f"DELETE FROM items WHERE {_SOME}"
        mark = f"UPDATE items SET expires = {-due} WHERE {_SOME}"
        done = [
            connection.execute(statement, (low, high, _EXPIRY_BATCH)).rowcount
            for statement, low, high in (
                (remove, -now + 1, -1),
                (mark, 0, now - 1),
                # A value found while the clock was ahead would otherwise stay for that time.
                (mark, -(2**63), -due - 1),
            )
        ]
        return done[0], max(done) == _EXPIRY_BATCH

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    # inside

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._verify(connection)
        connection.create_function("segment", 2, _segment, deterministic=True)

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Changing the mode does not wait for other connections as other statements do.
        Backoff(base=0.01, cap=0.2, tries=sys.maxsize).retry(
            self._clock,
            lambda: connection.execute("PRAGMA journal_mode = WAL"),
            on=sqlite3.OperationalError,
            when=is_busy,
            deadline=self._clock.monotonic() + self._busy_timeout,
        )

    def _verify(self, connection: sqlite3.Connection) -> None:
        _, _, found = self._marker(connection)
        if (found.hash_key, found.range_key) != (self.schema.hash_key, self.schema.range_key):
            raise wrong_schema(self.url, found=found, wanted=self.schema)

    def _marker(self, connection: sqlite3.Connection) -> tuple[int, float, TableSchema]:
        tables = _tables(connection)
        if not tables:
            raise table_not_found(self.url, self.schema)
        if "commitlog_table" not in tables:
            raise wrong_schema(self.url, found="is another application's database", wanted=self.schema)
        # The format alone first: a later one may have other columns.
        row = connection.execute("SELECT format FROM commitlog_table").fetchone()
        if row is not None and type(row[0]) is int and row[0] > TABLE_FORMAT:
            raise format_too_new(self.url, row[0])
        row = connection.execute(
            "SELECT format, created, hash_key, range_key, ttl FROM commitlog_table"
        ).fetchone()
        match row:
            case (int(format), float(created), str(key), str() | None as ranged, str() | None as ttl):
                if key and format > 0:
                    schema = TableSchema(hash_key=key, range_key=ranged, ttl_attribute=ttl)
                    return format, created, schema
        raise damaged(f"{self.url} has no sound version marker", self.schema)

    def _find(self, connection: sqlite3.Connection, key: Key) -> dict[str, Value] | None:
        row = connection.execute(f"{_SELECT} WHERE hash = ? AND range = ?", _binary(key)).fetchone()
        return None if row is None else self._decode(row)

    def _judged(
        self, connection: sqlite3.Connection, key: Key, condition: TableCondition | None
    ) -> Item | None:
        """Return what a condition looks at: of an item that cannot be read, the rest.

        Raises `CorruptRecord` if the condition does not hold of that rest.
        """
        row = connection.execute(f"{_SELECT} WHERE hash = ? AND range = ?", _binary(key)).fetchone()
        try:
            return None if row is None else self._decode(row)
        except CorruptRecord:
            rest = self._rest(row)
            if condition is not None and not condition.holds(rest):
                raise
            return rest

    def _rest(self, row: _Row) -> Item:
        """Return the key of a row that cannot be read, and the attributes that can be."""
        key = self._key_of(row)
        names = dict(zip(self.schema.key_names, (key.hash, key.range or ""), strict=False))
        try:
            return {**readable_part(json.loads(str(row[2], "utf-8"))), **names}
        except (TypeError, ValueError, RecursionError):
            return names

    def _key_of(self, row: _Row) -> Key:
        try:
            return Key(row[0].decode(), None if self.schema.range_key is None else row[1].decode())
        except (AttributeError, UnicodeDecodeError) as error:
            raise CorruptRecord(
                f"{self.url}: the key {row[0]!r}, {row[1]!r} is not text: {error}"
            ) from error

    def _decode(self, row: _Row) -> dict[str, Value]:
        """Return the item of a row; raise `CorruptRecord` if it is none, or one of another key."""
        try:
            item = unmarshal(json.loads(str(row[2], "utf-8")), self.schema.key_names)
            if _binary(self.schema.key_of(item)) != row[:2]:
                raise ValueError("its key is another")
        except (TypeError, ValueError, RecursionError) as error:
            raise CorruptRecord(
                f"{self.url}: the row with the key {row[0]!r}, {row[1]!r} is not an item: {error}"
            ) from error
        return item

    def _apply(self, connection: sqlite3.Connection, key: Key, write: Write) -> None:
        if isinstance(write, Put):
            connection.execute(
                "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?)",
                (*_binary(key), self._expires(write.item), _encode(write.item)),
            )
        elif isinstance(write, Delete):
            connection.execute("DELETE FROM items WHERE hash = ? AND range = ?", _binary(key))

    def _expires(self, item: Item) -> int | None:
        name = self.schema.ttl_attribute
        value = None if name is None else item.get(name)
        # N goes further than SQLite's integers; so late an expiry is none, and so early one is past.
        return max(0, value) if type(value) is int and value < 2**63 else None

    def _page(self, rows: Sequence[_Row], limit: int) -> ItemPage:
        # One more than asked for tells whether this is the last page.
        items: list[Item] = []
        unreadable: list[UnreadableItem] = []
        for row in rows[:limit]:
            try:
                items.append(self._decode(row))
            except CorruptRecord as error:
                unreadable.append(UnreadableItem(self._rest(row), str(error)))
        more = len(rows) > limit
        return ItemPage(
            items=tuple(items),
            next_token=token_of_key(self._key_of(rows[limit - 1])) if more else None,
            unreadable=tuple(unreadable),
        )


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _binary(key: Key) -> tuple[bytes, bytes]:
    return key.hash.encode(), (key.range or "").encode()


def _rows_of_segment(
    connection: sqlite3.Connection, segment: int, segments: int, after: Key, limit: int
) -> list[_Row]:
    """Return up to `limit` rows of a segment after a key, without those of other segments."""
    first, start = _binary(after)
    rows = connection.execute(
        f"{_SELECT} WHERE hash = ? AND range > ? ORDER BY range LIMIT ?", (first, start, limit)
    ).fetchall()
    hashes = connection.execute(_HASHES, (first, segments, segment))
    for (found,) in hashes:
        if len(rows) == limit:
            break
        rows += connection.execute(
            f"{_SELECT} WHERE hash = ? ORDER BY range LIMIT ?", (found, limit - len(rows))
        )
    hashes.close()
    return rows


def _segment(hash_key: bytes, segments: int) -> int:
    return zlib.crc32(hash_key) % segments


def _encode(item: Item) -> str:
    return to_json(marshal(item))
