"""The `Table` port: where small records live, with conditions and transactions.

Every implementation passes `commitlog.testing.check_table`. Business rules import this file and never an
implementation.

The rules that all implementations keep:

* Reads are consistent: they see every write that returned before they began.
* A write returns, or raises an error that proves that nothing happened, or raises `OutcomeUnknown`.
  Throttling and conflicts between transactions are retried inside with jittered backoff, for they
  prove that nothing happened; a lost response is not retried. A transaction is not sent later than
  `TRANSACT_WITHIN` seconds after it was asked for.
* Conditions look at attributes alone, so they can be set on an item of which others cannot be read.
  Such an item can be replaced or removed by its key; reading it raises `CorruptRecord`.
* All methods are thread-safe. Instances are not picklable; pickle the URL.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from attrs import field, frozen, validators

from commitlog.errors import CorruptRecord, NotSupported, PreconditionFailed

__all__ = [
    "MAX_HASH_BYTES",
    "MAX_TRANSACTION_WRITES",
    "TABLE_FORMAT",
    "TRANSACT_WITHIN",
    "Absent",
    "All",
    "Check",
    "ConditionFailed",
    "Delete",
    "Equals",
    "InFlight",
    "Item",
    "ItemPage",
    "Key",
    "Put",
    "Table",
    "TableCondition",
    "TableInfo",
    "TableSchema",
    "UnreadableItem",
    "Value",
    "Write",
    "parts_of",
]

T = TypeVar("T")
#: A request in flight: call it, once and in the same thread, to wait for its answer.
InFlight: TypeAlias = Callable[[], T]

#: The value of an attribute: DynamoDB's S, N (whole numbers only), B and BOOL.
Value: TypeAlias = str | int | bytes | bool
#: An item: its attributes by name.
Item: TypeAlias = Mapping[str, Value]

#: Format of the tables that this library creates; a table of a higher one is refused.
TABLE_FORMAT = 1

#: Seconds after a call of `Table.transact` after which it sends nothing any more, nor does anything.
TRANSACT_WITHIN = 30.0

#: Longest hash key, in bytes of UTF-8.
MAX_HASH_BYTES = 2048

#: The maximum number of writes in one transaction, a limit of TransactWriteItems.
MAX_TRANSACTION_WRITES = 100

#: Puts under way at a time.
_UNDER_WAY = 32


@frozen(kw_only=True)
class TableSchema:
    """The keys of the items of a table, and their expiry.

    Attributes:
        hash_key: name of the attribute (a string) that partitions the table.
        range_key: name of the attribute (a string) that orders items of one hash key, or None.
        ttl_attribute: attribute that holds the epoch *second* after which an item may be removed at any
            time, or None. Until it is removed, reads and conditions still see it.
        use: the argument of ``commitlog table create --for`` for such tables; shown to users.
        when_lost: advice for users if a table is lost or damaged.
    """

    hash_key: str = field(validator=validators.min_len(1))
    range_key: str | None = None
    ttl_attribute: str | None = None
    use: str | None = field(default=None, eq=False, kw_only=True)
    when_lost: str = field(default="", eq=False, kw_only=True)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key attributes."""
        return (self.hash_key,) if self.range_key is None else (self.hash_key, self.range_key)

    def key_of(self, item: Item) -> Key:
        """Return the key of `item`, which must have the key attributes, as non-empty strings."""
        return Key(_key_part(item, self.hash_key), self.range_key and _key_part(item, self.range_key))


def _key_part(item: Item, name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"key attribute {name!r} must be a non-empty str, not {value!r}")
    return value


@frozen(order=True)
class Key:
    """The key of one item.

    >>> Key("a/b", "*")
    Key(hash='a/b', range='*')
    """

    hash: str
    range: str | None = None


# -- conditions -------------------------------------------------------------------------------------


class _Condition:
    __slots__ = ()

    def __and__(self, other: TableCondition) -> All:
        return All((*parts_of(self), *parts_of(other)))


@frozen
class Absent(_Condition):
    """Holds if the attribute is missing; without a name, if there is no item under the key.

    >>> Absent() .holds(None), Absent().holds({"path": "a"}), Absent("owner").holds({"path": "a"})
    (True, False, True)
    """

    attribute: str | None = None

    def holds(self, item: Item | None) -> bool:
        """Return whether the condition holds for the stored item (None: no item)."""
        return item is None or (self.attribute is not None and self.attribute not in item)


@frozen
class Equals(_Condition):
    """Holds if there is an item and the attribute has this very value, of this very type.

    >>> Equals("generation", 3).holds({"generation": 3}), Equals("generation", 3).holds(None)
    (True, False)
    """

    attribute: str
    value: Value

    def holds(self, item: Item | None) -> bool:
        """Return whether the condition holds for the stored item (None: no item)."""
        if item is None or self.attribute not in item:
            return False
        stored = item[self.attribute]
        return type(stored) is type(self.value) and stored == self.value


@frozen
class All(_Condition):
    """Holds if every part does; made with ``&``.

    >>> (Equals("generation", 3) & Absent("owner")).holds({"generation": 3})
    True
    """

    parts: tuple[Absent | Equals, ...]

    def holds(self, item: Item | None) -> bool:
        """Return whether the condition holds for the stored item (None: no item)."""
        return all(part.holds(item) for part in self.parts)


#: The condition of a write to an item.
TableCondition: TypeAlias = Absent | Equals | All


def parts_of(condition: object) -> tuple[Absent | Equals, ...]:
    """Return the simple conditions that `condition` consists of; none for None.

    >>> parts_of(Equals("generation", 3) & Absent("owner"))
    (Equals(attribute='generation', value=3), Absent(attribute='owner'))
    """
    if condition is None:
        return ()
    if isinstance(condition, All):
        return condition.parts
    if isinstance(condition, (Absent, Equals)):
        return (condition,)
    raise TypeError(f"not a table condition: {condition!r}")


class ConditionFailed(PreconditionFailed):
    """The condition of a write did not hold. Nothing happened.

    Attributes:
        item: the item that was stored at that moment, if the table returns it.
        item_known: False if the table did not return it: then `item` is None without a meaning. It is
            also False if the item was gone when it was read. Read the key to find out.
    """

    def __init__(self, message: str, *, item: Item | None = None, item_known: bool = False) -> None:
        super().__init__(message)
        self.item = item
        self.item_known = item_known


# -- writes of a transaction ----------------------------------------------------------------------------


@frozen
class Put:
    """Stores `item` in place of the item at its key, if `condition` holds for that one."""

    item: Item
    condition: TableCondition | None = None


@frozen
class Delete:
    """Remove the item under `key`, if `condition` holds of it. A missing item is no error."""

    key: Key
    condition: TableCondition | None = None


@frozen
class Check:
    """Change nothing; the transaction goes ahead only if `condition` holds of the item under `key`."""

    key: Key
    condition: TableCondition


#: One of the writes of a transaction.
Write: TypeAlias = Put | Delete | Check


@frozen
class UnreadableItem:
    """An item that a scan has found, and that no `Item` can hold: damaged, or written by another tool.

    Attributes:
        item: the attributes that can be read, the key among them.
        reason: the part that cannot be read, and why.
    """

    item: Item
    reason: str


@frozen(kw_only=True)
class ItemPage:
    """One page of a query or a scan.

    Attributes:
        items: those that can be read.
        next_token: gets the next page; None at the end.
        unreadable: those that cannot; always empty in a page of a query, which raises `CorruptRecord`.
    """

    items: tuple[Item, ...]
    next_token: str | None = None
    unreadable: tuple[UnreadableItem, ...] = ()


@frozen(kw_only=True)
class TableInfo:
    """The description of a table.

    Attributes:
        url: its URL, without credentials.
        schema: its actual keys; the TTL attribute, if the service reports it.
        format: the format in its version marker, or None if it has none (made by another tool).
        created: epoch seconds of its creation, if known.
        item_count: number of items; on DynamoDB up to six hours old (DescribeTable).
        billing: "on-demand" or "provisioned"; None if the table costs nothing.
        tags: tags of the table, without the tag of its format; None if there are none, as in a file, or
            they could not be read.
    """

    url: str
    schema: TableSchema
    format: int | None
    created: float | None
    item_count: int | None
    billing: str | None = None
    tags: Mapping[str, str] | None = None


# -- the port -----------------------------------------------------------------------------------------


class Table(abc.ABC):
    """Items under keys. See the module for the rules that every method keeps.

    Errors that any method may raise: `TableNotFound`, `AccessDenied`, `WrongTableSchema`,
    `Unavailable` (nothing happened) and, for writes, `Conflict` (transactions kept getting in each
    other's way; nothing happened) and `OutcomeUnknown`. Attributes other than `Value`
    raise `TypeError`, a key that is missing or no string `ValueError`, before anything is sent.
    """

    #: The URL that opens this table again, without credentials; for messages and for pickling.
    url: str
    #: The keys of the items.
    schema: TableSchema

    # the table itself

    @abc.abstractmethod
    def create(self) -> bool:
        """Create the table with its version marker; return False if it was there and fits.

        Raises `WrongTableSchema` if one of other keys has the name, `FormatTooNew` if it is newer.
        Safe to call from many processes at once.
        """

    @abc.abstractmethod
    def check(self) -> None:
        """Make sure that the table is there, fits `schema`, and is of no newer format.

        A table without a version marker but with the right keys, as other tools make it, gets
        the marker. Raises `TableNotFound`, `WrongTableSchema`, `FormatTooNew`.
        """

    @abc.abstractmethod
    def describe(self) -> TableInfo:
        """Return the description of the table. Raises `TableNotFound`."""

    def tag(self, tags: Mapping[str, str]) -> None:
        """Give the table tags, for the account's bills and policies; others that it has stay.

        Args:
            tags: by key; the service limits their number and length.

        Raises `NotSupported` if such a table has no tags, `AccessDenied`, `TableNotFound`, and
        `ConfigurationError` for a tag that is this library's own.
        """
        raise NotSupported(f"{self.url} has no tags: only tables of DynamoDB have")

    # one item

    @abc.abstractmethod
    def begin_get(self, key: Key) -> InFlight[Item | None]:
        """Send a get and return at once; the pending call waits for the item, as `get` does.

        The item is as it was at some moment between both calls. If the request has to be retried, that
        happens within the pending call.
        """

    def get(self, key: Key) -> Item | None:
        """Return the item under `key`, or None."""
        return self.begin_get(key)()

    @abc.abstractmethod
    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """Send a put and return at once; the pending call waits for its outcome, as `put` does.

        If the request has to be retried, that happens within the pending call.
        """

    def put(self, item: Item, *, condition: TableCondition | None = None) -> None:
        """Store `item` in place of the item at its key, if `condition` holds for that one.

        Raises `ConditionFailed` with the item that was found instead.
        """
        self.begin_put(item, condition=condition)()

    @abc.abstractmethod
    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """Remove the item at `key`, if `condition` holds for it; a missing item is not an error.

        Raises `ConditionFailed` with the item that was found instead.
        """

    # many items

    def put_all(
        self, items: Iterable[Item], *, condition: TableCondition | None = None
    ) -> tuple[Item, ...]:
        """Put items, each by itself, many at a time; return those for which the condition did not hold.

        Raises what `put` raises otherwise; then any of them may have been stored.
        """
        refused: list[Item] = []
        under_way: deque[tuple[Item, InFlight[None]]] = deque()

        def settle(item: Item, pending: InFlight[None]) -> None:
            try:
                pending()
            except ConditionFailed:
                refused.append(item)

        for item in items:
            if len(under_way) == _UNDER_WAY:
                settle(*under_way.popleft())
            under_way.append((item, self.begin_put(item, condition=condition)))
        for item, pending in under_way:
            settle(item, pending)
        return tuple(refused)

    @abc.abstractmethod
    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """Return one page of the items of one hash key, by range key in the order of UTF-8 bytes.

        Args:
            hash_key: value of the hash key.
            start_after: only items whose range key comes after this one.
            limit: most items wanted; a page may have fewer and still not be the last.
            token: `ItemPage.next_token` of the page before, with the other arguments unchanged.
        """

    def query(self, hash_key: str, *, start_after: str = "") -> Iterator[Item]:
        """Yield the items of one hash key in order, page by page."""
        token: str | None = None
        while True:
            page = self.query_page(hash_key, start_after=start_after, token=token)
            yield from page.items
            token = page.next_token
            if token is None:
                return

    @abc.abstractmethod
    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """Return one page of one of `segments` disjoint parts of the table, in no particular order.

        The version marker is left out. Items written meanwhile may or may not be seen. Look at
        `ItemPage.unreadable`, too, or call `scan`.
        """

    def scan(
        self,
        *,
        segment: int = 0,
        segments: int = 1,
        unreadable: Callable[[UnreadableItem], object] | None = None,
    ) -> Iterator[Item]:
        """Yield the items of one segment, page by page.

        Args:
            segment, segments: as of `scan_page`.
            unreadable: is given each item that cannot be read, which is then passed over; by default
                it raises `CorruptRecord`.
        """
        token: str | None = None
        while True:
            page = self.scan_page(segment=segment, segments=segments, token=token)
            for found in page.unreadable:
                if unreadable is None:
                    raise CorruptRecord(found.reason)
                unreadable(found)
            yield from page.items
            token = page.next_token
            if token is None:
                return

    @abc.abstractmethod
    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """Do all of `writes`, at one moment, or none.

        However often it is sent again inside, that is not later than `TRANSACT_WITHIN` seconds after
        the call, by the monotonic clock or by the other one, which goes on while a machine sleeps. So
        callers can tell until when something may happen; but a request may be on its way longer.

        Args:
            writes: at most 100, each on another key (the limits of TransactWriteItems).
            token: a random word of at most 36 characters; the same call repeated with it within ten
                minutes is done once, where the service keeps such tokens. After that it is a new one.

        Raises:
            TransactionCanceled: some condition did not hold; its `reasons` say which.
        """

    def close(self) -> None:  # noqa: B027 - optional to implement
        """Release connections and files. The table must not be used after it. Idempotent."""
