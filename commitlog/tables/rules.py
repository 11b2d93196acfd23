"""The rules that all tables keep: what an item may be, and when a write may happen.

The limits are DynamoDB's ("Quotas in Amazon DynamoDB"), enforced by every table before anything is sent
or stored, so that what works on a laptop works on the service.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from types import NoneType
from typing import TypeVar

from commitlog.errors import (
    CommitError,
    CorruptRecord,
    FormatTooNew,
    TableNotFound,
    TransactionCanceled,
    WrongTableSchema,
)
from commitlog.tables.api import (
    MAX_HASH_BYTES,
    MAX_TRANSACTION_WRITES,
    TABLE_FORMAT,
    Absent,
    Check,
    ConditionFailed,
    Delete,
    Equals,
    InFlight,
    Item,
    Key,
    Put,
    TableCondition,
    TableInfo,
    TableSchema,
    Write,
    parts_of,
)

__all__ = [
    "MARKER_KEY",
    "MAX_INT",
    "MAX_ITEM_BYTES",
    "MAX_RANGE_BYTES",
    "MAX_TOKEN_CHARS",
    "MAX_TRANSACTION_BYTES",
    "canceled",
    "check_condition",
    "check_description",
    "check_item",
    "check_key",
    "check_query",
    "check_scan",
    "check_writes",
    "condition_failed",
    "damaged",
    "failure",
    "format_too_new",
    "judge",
    "key_of_token",
    "settled",
    "size_of_item",
    "table_not_found",
    "token_of_key",
    "wrong_schema",
]

T = TypeVar("T")

#: Value of all key attributes of the version marker, where it is an item. No other item may use it.
MARKER_KEY = "../VERSION"
#: Largest whole number, either side of zero: N holds 38 digits.
MAX_INT = 10**38 - 1
#: Longest range key, in bytes of UTF-8.
MAX_RANGE_BYTES = 1024
#: Largest item: names and values together, strings in UTF-8.
MAX_ITEM_BYTES = 400 * 1024
#: Limits of TransactWriteItems: bytes, and characters of its token.
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024
MAX_TOKEN_CHARS = 36

#: Most that N takes; its true size depends on the digits and is not worth computing.
_NUMBER_BYTES = 21
_MAX_SEGMENTS = 1_000_000


# -- shapes -----------------------------------------------------------------------------------------


def check_item(schema: TableSchema, item: Item) -> Key:
    """Return the key of `item` if a table of `schema` can hold it.

    Raises `TypeError` for a name or value of another type than `Value`'s (subclasses included: they
    would come back as something else), `ValueError` for a key that is missing, too long or reserved,
    a number of more than 38 digits, a string that is no Unicode, or an item of more than 400 KiB.
    """
    return _check_item(schema, item)[0]


def _check_item(schema: TableSchema, item: Item) -> tuple[Key, int]:
    """Do the same, and return the size of the item in bytes as well."""
    size = size_of_item(item)
    if size > MAX_ITEM_BYTES:
        raise ValueError(f"the item is {size} bytes; the largest allowed is {MAX_ITEM_BYTES}")
    return check_key(schema, schema.key_of(item)), size


def check_key(schema: TableSchema, key: Key) -> Key:
    """Return `key` if it is one of a table of `schema`, else raise `ValueError`."""
    _check_key_part(schema.hash_key, key.hash, MAX_HASH_BYTES)
    if key.hash == MARKER_KEY:
        raise ValueError(f"hash key {MARKER_KEY!r} is reserved for the table's version marker")
    if schema.range_key is not None:
        _check_key_part(schema.range_key, key.range, MAX_RANGE_BYTES)
    elif key.range is not None:
        raise ValueError(f"this table has no range key, but {key!r} has one")
    return key


def check_condition(condition: TableCondition | None) -> None:
    """Raise `TypeError` or `ValueError` if `condition` could hold of no item that is allowed."""
    for part in parts_of(condition):
        if isinstance(part, Equals):
            _size_of_value(part.attribute, part.value)
        if isinstance(part, Equals) or part.attribute is not None:
            _size_of_name(part.attribute)


def check_writes(schema: TableSchema, writes: Sequence[Write], token: str | None) -> tuple[Key, ...]:
    """Return the keys of `writes` if they can form one transaction.

    "The aggregate size of the items in the transaction cannot exceed 4 MB" (TransactWriteItems, DynamoDB
    API reference). For a put this is the item. For a removal or check only the key is counted here,
    because the item is unknown before the request: the service, which knows it, may still refuse the
        request.
    """
    if len(writes) > MAX_TRANSACTION_WRITES:
        raise ValueError(f"{len(writes)} writes; a transaction takes {MAX_TRANSACTION_WRITES}")
    if token is not None and not 1 <= len(token) <= MAX_TOKEN_CHARS:
        raise ValueError(f"a transaction's token has 1 to {MAX_TOKEN_CHARS} characters")
    keys = []
    size = 0
    for write in writes:
        if isinstance(write, Put):
            key, size_of_item = _check_item(schema, write.item)
            keys.append(key)
            size += size_of_item
        elif isinstance(write, (Delete, Check)):
            keys.append(check_key(schema, write.key))
            size += _size_of_key(schema, write.key)
        else:
            raise TypeError(f"not a write of a transaction: {write!r}")
        check_condition(write.condition)
    if len(set(keys)) != len(keys):
        raise ValueError("two writes of one transaction are on the same key")
    if size > MAX_TRANSACTION_BYTES:
        raise ValueError(f"the transaction is {size} bytes; it takes {MAX_TRANSACTION_BYTES}")
    return tuple(keys)


def check_query(schema: TableSchema, hash_key: str, start_after: str, limit: int) -> None:
    """Raise `ValueError` unless these are arguments of `Table.query_page`."""
    check_key(schema, Key(hash_key, None if schema.range_key is None else "*"))
    if start_after and schema.range_key is None:
        raise ValueError("this table has no range key to start after")
    _check_limit(limit)


def check_scan(segment: int, segments: int, limit: int) -> None:
    """Raise `ValueError` unless these are arguments of `Table.scan_page`."""
    if not 1 <= segments <= _MAX_SEGMENTS or not 0 <= segment < segments:
        raise ValueError(f"segment {segment} of {segments}: 0 <= segment < segments <= {_MAX_SEGMENTS}")
    _check_limit(limit)


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit is {limit}; the least is 1")


def _check_key_part(name: str, value: object, limit: int) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"key attribute {name!r} must be a non-empty str, not {value!r}")
    size = _size_of_text(name, value)
    if size > limit:
        raise ValueError(f"key attribute {name!r} is {size} bytes; the longest allowed is {limit}")


def size_of_item(item: Item) -> int:
    """Return the size of an item in bytes, as DynamoDB counts it; numbers count as the longest."""
    return sum(_size_of_name(name) + _size_of_value(name, value) for name, value in item.items())


def _size_of_key(schema: TableSchema, key: Key) -> int:
    parts = zip(schema.key_names, (key.hash, key.range), strict=False)
    return sum(len(name.encode()) + _size_of_value(name, part) for name, part in parts)


def _size_of_name(name: object) -> int:
    if type(name) is not str:
        raise TypeError(f"the name of an attribute is a str, not {type(name).__name__}")
    if not name:
        raise ValueError("the name of an attribute is empty")
    return _size_of_text(name, name)


def _size_of_value(name: str, value: object) -> int:
    kind = type(value)
    if kind is str:
        return _size_of_text(name, value)  # type: ignore[arg-type]
    if kind is bytes:
        return len(value)  # type: ignore[arg-type]
    if kind is bool:
        return 1
    if kind is not int:
        raise TypeError(f"attribute {name!r} must be str, int, bytes or bool, not {kind.__name__}")
    if abs(value) > MAX_INT:  # type: ignore[arg-type]
        raise ValueError(f"attribute {name!r} is a number of more than 38 digits")
    return _NUMBER_BYTES


def _size_of_text(name: str, text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"attribute {name!r} is not valid Unicode") from None


# -- decisions --------------------------------------------------------------------------------------


def failure(key: Key, condition: TableCondition | None, item: Item | None) -> ConditionFailed | None:
    """Return why a write on `key`, under which `item` is stored, must not happen, or None."""
    if condition is None or condition.holds(item):
        return None
    return condition_failed(key, condition, item, item_known=True)


def condition_failed(
    key: Key, condition: TableCondition | None, item: Item | None, *, item_known: bool
) -> ConditionFailed:
    """Return the error of a condition that did not hold, with the found item if it is known."""
    wanted = " and ".join(_describe(part) for part in parts_of(condition))
    # Names only: values may be anything, and messages end up in logs.
    found = (
        "" if not item_known else "; there is no item" if item is None else "; the present item differs"
    )
    return ConditionFailed(
        f"item {_show(key)}: wanted {wanted}{found}", item=item, item_known=item_known
    )


def judge(found: Sequence[tuple[Key, Write, Item | None]]) -> None:
    """Raise `TransactionCanceled` if the stored items violate a condition of the transaction."""
    canceled(tuple(failure(key, write.condition, item) for key, write, item in found))


def canceled(reasons: tuple[ConditionFailed | None, ...]) -> None:
    """Raise `TransactionCanceled` with `reasons` if there are any."""
    failed = [reason for reason in reasons if reason is not None]
    if failed:
        raise TransactionCanceled(
            f"{len(failed)} of {len(reasons)} conditions did not hold; nothing was changed: {failed[0]}",
            reasons,
        )


def settled(work: Callable[[], T]) -> InFlight[T]:
    """Do `work` now and return the call that tells its outcome.

    >>> settled(lambda: 3)()
    3
    """
    try:
        result = work()
    except CommitError as error:
        failed = error

        def fail() -> T:
            raise failed

        return fail
    return lambda: result


# -- tables that are missing or other ---------------------------------------------------------------


def table_not_found(url: str, wanted: TableSchema) -> TableNotFound:
    """Return the error of a table that is not there."""
    return TableNotFound(
        f"there is no table {url}: {_creating(shlex.quote(url), wanted)}{_lost(wanted)}"
    )


def damaged(what: str, wanted: TableSchema) -> CorruptRecord:
    """Return the error of a file that cannot be read as a table; `what` says which, and why."""
    return CorruptRecord(
        f"{what}; it was left as it is. Name another file, or restore this one from a backup"
        f"{_lost(wanted)}"
    )


def _creating(url: str, wanted: TableSchema) -> str:
    use = f" --for {wanted.use}" if wanted.use else ""
    return f"create it with `commitlog table create {url}{use}`"


def _lost(wanted: TableSchema) -> str:
    return f". {wanted.when_lost}" if wanted.when_lost else ""


def wrong_schema(url: str, *, found: TableSchema | str, wanted: TableSchema) -> WrongTableSchema:
    """Return the error of a table, or something else, that has the name but not the keys."""
    has = found if isinstance(found, str) else f"has the keys {_keys(found)}"
    return WrongTableSchema(
        f"{url} {has}, but keys {_keys(wanted)} are needed. Give another name, "
        f"and {_creating('URL', wanted)}"
    )


def format_too_new(url: str, format: int) -> FormatTooNew:
    """Return the error of a table that a later release of this library made."""
    return FormatTooNew(
        f"table {url} has format {format}; this release knows {TABLE_FORMAT}: upgrade commitlog-store"
    )


def check_description(found: TableInfo, schema: TableSchema) -> None:
    """Raise `WrongTableSchema` or `FormatTooNew` if a table cannot be read as one with these keys.

    Unlike `Table.check`, this writes nothing.
    """
    if found.schema.key_names != schema.key_names:
        raise wrong_schema(found.url, found=found.schema, wanted=schema)
    if found.format is not None and found.format > TABLE_FORMAT:
        raise format_too_new(found.url, found.format)


def _keys(schema: TableSchema) -> str:
    ranged = "" if schema.range_key is None else f", {schema.range_key!r} (range, S)"
    return f"{schema.hash_key!r} (hash, S){ranged}"


def _describe(part: Absent | Equals) -> str:
    if isinstance(part, Equals):
        return f"{part.attribute!r} as given"
    return "no item" if part.attribute is None else f"no {part.attribute!r}"


def _show(key: Key) -> str:
    return repr(key.hash) if key.range is None else f"{key.hash!r}, {key.range!r}"


# -- tokens of pages --------------------------------------------------------------------------------


def token_of_key(key: Key) -> str:
    """Return the token of a page that ended with `key`.

    >>> key_of_token(token_of_key(Key("a", "b")))
    Key(hash='a', range='b')
    """
    return json.dumps([key.hash, key.range])


def key_of_token(token: str) -> Key:
    """Return the key that a page ended with, or raise `ValueError` if `token` is none of ours."""
    try:
        pair = json.loads(token)
        hash_key, range_key = pair
        if type(pair) is not list or type(hash_key) is not str or type(range_key) not in (str, NoneType):
            raise TypeError
        f"{hash_key}{range_key}".encode()  # JSON can hold a lone surrogate
    except (TypeError, ValueError, RecursionError):
        raise ValueError("not the token of a page of this table") from None
    return Key(hash_key, range_key)
