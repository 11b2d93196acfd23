"""Counts of the requests that the operations of a namespace send, and of their failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial, reduce, wraps
from inspect import isfunction, isgeneratorfunction
from operator import add, attrgetter
from types import MappingProxyType
from typing import Any, TypeVar, cast

from attrs import evolve, field, fields, frozen

from commitlog._util.metrics import Metric, openmetrics
from commitlog._util.request_stats import PerThreadCounter, listen_for_retries
from commitlog.errors import CommitError, Conflict, OutcomeUnknown, Unavailable
from commitlog.stores.api import (
    Condition,
    IfMatch,
    ObjectData,
    ObjectInfo,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    RequestExpiry,
    Staged,
    StagedInfo,
    StageWriter,
)
from commitlog.stores.body import Body
from commitlog.tables.api import (
    Check,
    InFlight,
    Item,
    ItemPage,
    Key,
    Table,
    TableCondition,
    TableInfo,
    Write,
)

__all__ = [
    "CountingStore",
    "CountingTable",
    "RequestCounts",
    "RequestRecorder",
    "RequestStats",
    "count_methods",
    "counted",
    "part_of",
]


@frozen(kw_only=True)
class RequestCounts:
    """The counts of one operation, or of several.

    A request is counted once for each call of the table or store. If the table or store repeats it
    internally, that is counted under `retries`. A large object, which is sent in parts, counts once.

    Attributes:
        calls: calls of the operation.
        gets: items read from the table.
        queries: pages of queries of the table.
        scans: pages of scans of the table.
        puts: single items written.
        deletes: single items removed.
        transactions: transactions sent, including refused ones.
        writes: writes in those transactions, including checks. DynamoDB takes two write units for each
            KB of each.
        checks: writes that are only conditions: that directories are still where they were read.
        store_heads, store_gets, store_lists, store_puts, store_copies, store_deletes: requests to the
            store. A page of a listing is one request.
        store_bulk_deletes: removals of many objects at once.
        store_stages, store_publishes, store_aborts: uploads that were begun, completed, aborted.
        store_staged_lists: listings of uploads.
        conflicts: requests that conflicted with other clients, and did nothing.
        unavailable: requests that were throttled, or failed in a way that proves that they did nothing.
        unknown: requests whose answers were lost, so that they may have been applied.
        retries: repeated requests, after one of these three failures.
        refused: changes that were planned again, because the records they were planned on had changed.
        recognised: changes that were found to be applied, after an answer was lost.
    """

    calls: int = 0
    gets: int = 0
    queries: int = 0
    scans: int = 0
    puts: int = 0
    deletes: int = 0
    transactions: int = 0
    writes: int = 0
    checks: int = 0
    store_heads: int = 0
    store_gets: int = 0
    store_lists: int = 0
    store_puts: int = 0
    store_copies: int = 0
    store_deletes: int = 0
    store_bulk_deletes: int = 0
    store_stages: int = 0
    store_publishes: int = 0
    store_aborts: int = 0
    store_staged_lists: int = 0
    conflicts: int = 0
    unavailable: int = 0
    unknown: int = 0
    retries: int = 0
    refused: int = 0
    recognised: int = 0

    def __add__(self, other: RequestCounts) -> RequestCounts:
        """Return the sum of both.

        >>> (RequestCounts(gets=1) + RequestCounts(gets=2)).gets
        3
        """
        return RequestCounts(**{name: getattr(self, name) + getattr(other, name) for name in NAMES})

    def __sub__(self, other: RequestCounts) -> RequestCounts:
        """Return the counts since the other ones."""
        return RequestCounts(**{name: getattr(self, name) - getattr(other, name) for name in NAMES})

    @property
    def table(self) -> int:
        """The number of requests to the table."""
        return self.gets + self.queries + self.scans + self.puts + self.deletes + self.transactions

    @property
    def store(self) -> int:
        """The number of requests to the store."""
        return sum(getattr(self, name) for name in NAMES if name.startswith("store_"))


#: The names of all counts.
NAMES = tuple(field.name for field in fields(RequestCounts))


@frozen(kw_only=True)
class RequestStats:
    """The requests of a `Namespace` to its table and its store, up to a moment.

    Attributes:
        namespace: its name.
        operations: the counts of each operation that was called, by the name of its method. Operations
            that it calls itself count for it. Requests for a listing count for the listing while it is
            read; requests of an open file or a writer count for `open` or `open_writer`.
    """

    namespace: str
    operations: Mapping[str, RequestCounts]

    @classmethod
    def of(cls, namespace: str, counts: Mapping[str, int]) -> RequestStats:
        """Return statistics from counts with names ``<operation>.<name of the count>``.

        >>> RequestStats.of("lake", {"stat.calls": 1, "stat.gets": 2}).operations["stat"].gets
        2
        """
        by_operation: dict[str, dict[str, int]] = {}
        for name, number in sorted(counts.items()):
            operation, _, count = name.partition(".")
            by_operation.setdefault(operation, {})[count] = number
        return cls(
            namespace=namespace,
            operations={
                operation: RequestCounts(**counted) for operation, counted in by_operation.items()
            },
        )

    @property
    def total(self) -> RequestCounts:
        """The sum of the counts of all operations."""
        return reduce(add, self.operations.values(), RequestCounts())

    def since(self, earlier: RequestStats) -> RequestStats:
        """Return the counts since an earlier moment; operations without any are left out."""
        none = RequestCounts()
        new = {
            operation: counts - earlier.operations.get(operation, none)
            for operation, counts in self.operations.items()
        }
        return evolve(self, operations={name: counts for name, counts in new.items() if counts != none})

    def to_openmetrics(self) -> str:
        """Return the counts as text in the format of OpenMetrics 1.0, which Prometheus reads."""
        things = [
            ({"namespace": self.namespace, "operation": operation}, counts)
            for operation, counts in self.operations.items()
        ]
        return openmetrics(_METRICS, things, prefix="commitlog_namespace_")


def _by(name: str, help: str, label: str, kinds: Mapping[str, str]) -> list[Metric[RequestCounts]]:
    return [
        Metric(name, "counter", help, attrgetter(count), {label: kind}) for count, kind in kinds.items()
    ]


_METRICS: list[Metric[RequestCounts]] = [
    Metric("calls", "counter", "Calls of operations.", attrgetter("calls")),
    *_by(
        "table_requests",
        "Requests to the table.",
        "kind",
        {
            "gets": "get",
            "queries": "query",
            "scans": "scan",
            "puts": "put",
            "deletes": "delete",
            "transactions": "transaction",
        },
    ),
    Metric("table_writes", "counter", "Writes of transactions, and checks.", attrgetter("writes")),
    Metric("table_checks", "counter", "Checks of transactions alone.", attrgetter("checks")),
    *_by(
        "store_requests",
        "Requests to the store.",
        "kind",
        {
            "store_heads": "head",
            "store_gets": "get",
            "store_lists": "list",
            "store_puts": "put",
            "store_copies": "copy",
            "store_deletes": "delete",
            "store_bulk_deletes": "bulk_delete",
            "store_stages": "stage",
            "store_publishes": "publish",
            "store_aborts": "abort",
            "store_staged_lists": "list_staged",
        },
    ),
    *_by(
        "troubles",
        "Requests that did nothing, or may have, and what became of changes after that.",
        "kind",
        {
            "conflicts": "conflict",
            "unavailable": "unavailable",
            "unknown": "unknown",
            "retries": "retry",
            "refused": "refused",
            "recognised": "recognised",
        },
    ),
]


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_OTHER = "other"

#: Errors that are counted, and the names of their counts.
_TROUBLES: Mapping[type[CommitError], str] = MappingProxyType(
    {Conflict: "conflicts", Unavailable: "unavailable", OutcomeUnknown: "unknown"}
)


@frozen(eq=False)
class RequestRecorder:
    """Counts the requests of one namespace. Thread-safe."""

    _tally: PerThreadCounter = field(factory=PerThreadCounter, init=False)

    def add(self, count: str, number: int = 1) -> None:
        """Add to a count of the current operation."""
        current = _current.get()
        operation = current[1] if current is not None and current[0] is self else _OTHER
        self._tally.add(f"{operation}.{count}", number)

    def run(self, operation: str, call: Callable[[], T], *, counts: bool = True) -> T:
        """Return the result of `call`; count it for an operation, unless another one is in progress.

        Then it counts for that one.

        Args:
            operation: the name of the operation.
            call: the function to call.
            counts: whether this is a call of the operation, rather than a further part of one.
        """
        current = _current.get()
        if current is not None and current[0] is self:
            return call()
        token = _current.set((self, operation))
        try:
            if counts:
                self.add("calls")
            return call()
        finally:
            _current.reset(token)

    def iterate(self, operation: str, items: Iterator[T]) -> Iterator[T]:
        """Yield `items`; requests to get them count for the operation, those of the consumer do not."""
        end = object()
        advance = partial(next, items, end)
        counts = True
        while True:
            item = self.run(operation, advance, counts=counts)
            if item is end:
                return
            counts = False
            yield cast(T, item)

    def carried(self, call: Callable[[Any], T]) -> Callable[[Any], T]:
        """Return `call` as a function that counts for the current operation, in any thread."""
        current = _current.get()
        operation = current[1] if current is not None and current[0] is self else _OTHER

        def within(argument: Any) -> T:
            return self.run(operation, lambda: call(argument), counts=False)

        return within

    def requests(self, namespace: str) -> RequestStats:
        """Return the counts so far."""
        return RequestStats.of(namespace, self._tally.counts())

    def watched(self, count: str, call: Callable[[], T]) -> T:
        """Return the result of a request; count it, its failure and its retries."""
        self.add(count)
        return self.troubled(call)

    def troubled(self, call: Callable[[], T]) -> T:
        """Return the result of `call`; count its failure and its retries."""
        try:
            return listen_for_retries(self._repeated, call)
        except CommitError as error:
            self._count(error)
            raise

    def _repeated(self, cause: Exception) -> None:
        self._count(cause)
        self.add("retries")

    def _count(self, error: Exception) -> None:
        for kind, count in _TROUBLES.items():
            if isinstance(error, kind):
                self.add(count)


#: The recorder and the name of the current operation, in this thread or task.
_current: ContextVar[tuple[RequestRecorder, str] | None] = ContextVar(
    "commitlog.namespace", default=None
)


def counted(method: F) -> F:
    """Return a method that counts as an operation; its object has a `RequestRecorder` as `_recorder`."""
    name = method.__name__

    @wraps(method)
    def iterate(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return cast(RequestRecorder, self._recorder).iterate(name, method(self, *args, **kwargs))

    @wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return cast(RequestRecorder, self._recorder).run(name, lambda: method(self, *args, **kwargs))

    return cast(F, iterate if isgeneratorfunction(method) else run)


def part_of(operation: str) -> Callable[[F], F]:
    """Return a decorator that counts a method for an operation that another method has begun."""

    def decorated(method: F) -> F:
        @wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = cast(RequestRecorder, self._recorder)
            return recorder.run(operation, lambda: method(self, *args, **kwargs), counts=False)

        return cast(F, run)

    return decorated


def count_methods(cls: type[T]) -> type[T]:
    """Count all public methods of a class except `close` as operations; return the class."""
    for name, value in list(vars(cls).items()):
        if isfunction(value) and not name.startswith("_") and name != "close":
            setattr(cls, name, counted(value))
    return cls


_EMPTY: Mapping[str, str] = MappingProxyType({})

#: Number of objects in a full page of a listing.
_PAGE = 1000


class CountingTable(Table):
    """A table whose requests are counted."""

    def __init__(self, table: Table, recorder: RequestRecorder) -> None:
        self.url, self.schema = table.url, table.schema
        self._table = table
        self._recorder = recorder

    def create(self) -> bool:
        """See `Table.create`; not counted."""
        return self._table.create()

    def check(self) -> None:
        """See `Table.check`; not counted."""
        self._table.check()

    def describe(self) -> TableInfo:
        """See `Table.describe`; not counted."""
        return self._table.describe()

    def tag(self, tags: Mapping[str, str]) -> None:
        """See `Table.tag`; not counted."""
        self._table.tag(tags)

    def get(self, key: Key) -> Item | None:
        """See `Table.get`."""
        return self._recorder.watched("gets", lambda: self._table.get(key))

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """See `Table.begin_put`."""
        pending = self._recorder.watched(
            "puts", lambda: self._table.begin_put(item, condition=condition)
        )
        return lambda: self._recorder.troubled(pending)

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """See `Table.delete`."""
        self._recorder.watched("deletes", lambda: self._table.delete(key, condition=condition))

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.query_page`."""
        return self._recorder.watched(
            "queries",
            lambda: self._table.query_page(hash_key, start_after=start_after, limit=limit, token=token),
        )

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.scan_page`."""
        return self._recorder.watched(
            "scans",
            lambda: self._table.scan_page(segment=segment, segments=segments, limit=limit, token=token),
        )

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """See `Table.transact`."""
        self._recorder.add("writes", len(writes))
        self._recorder.add("checks", sum(isinstance(write, Check) for write in writes))
        self._recorder.watched("transactions", lambda: self._table.transact(writes, token=token))

    def close(self) -> None:
        """See `Table.close`."""
        self._table.close()


class CountingStore(ObjectStore):
    """A store whose requests are counted."""

    def __init__(self, store: ObjectStore, recorder: RequestRecorder) -> None:
        self.url, self.capabilities = store.url, store.capabilities
        self._store = store
        self._recorder = recorder

    def key(self, path: str) -> str:
        """See `ObjectStore.key`; no request."""
        return self._store.key(path)

    def check(self) -> None:
        """See `ObjectStore.check`; no request."""
        self._store.check()

    def begin_head(self, path: str) -> InFlight[Observation]:
        """See `ObjectStore.begin_head`."""
        pending = self._recorder.watched("store_heads", lambda: self._store.begin_head(path))
        return lambda: self._recorder.troubled(pending)

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `ObjectStore.get`."""
        return self._recorder.watched("store_gets", lambda: self._store.get(path, start=start, end=end))

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """See `ObjectStore.list_page`."""
        return self._recorder.watched(
            "store_lists",
            lambda: self._store.list_page(
                prefix, start_after=start_after, delimiter=delimiter, limit=limit, token=token
            ),
        )

    def list_pages(
        self, prefix: str = "", *, start_after: str = "", delimiter: str = ""
    ) -> Iterator[Page]:
        """See `ObjectStore.list_pages`; each page counts."""
        pages = self._store.list_pages(prefix, start_after=start_after, delimiter=delimiter)
        more = True
        while more:
            page = self._recorder.watched("store_lists", lambda: next(pages))
            more = page.next_token is not None
            yield page

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`; a thousand objects count as a page."""
        self._recorder.add("store_lists")
        for number, info in enumerate(self._store.list(prefix, start_after=start_after)):
            if number and number % _PAGE == 0:
                self._recorder.add("store_lists")
            yield info

    def put(
        self,
        path: str,
        body: Body,
        *,
        condition: Condition | None = None,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.put`."""
        return self._recorder.watched(
            "store_puts",
            lambda: self._store.put(
                path,
                body,
                condition=condition,
                metadata=metadata,
                content_type=content_type,
                expiry=expiry,
            ),
        )

    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.copy`."""
        return self._recorder.watched(
            "store_copies",
            lambda: self._store.copy(source, target, condition=condition, expiry=expiry),
        )

    def delete(
        self, path: str, *, condition: IfMatch | None = None, expiry: RequestExpiry | None = None
    ) -> None:
        """See `ObjectStore.delete`."""
        self._recorder.watched(
            "store_deletes", lambda: self._store.delete(path, condition=condition, expiry=expiry)
        )

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """See `ObjectStore.delete_many`."""
        return self._recorder.watched("store_bulk_deletes", lambda: self._store.delete_many(paths))

    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """See `ObjectStore.begin_stage`."""
        return self._recorder.watched(
            "store_stages",
            lambda: self._store.begin_stage(path, metadata=metadata, content_type=content_type),
        )

    def publish(
        self, staged: Staged, *, condition: Condition | None = None, expiry: RequestExpiry | None = None
    ) -> PutResult:
        """See `ObjectStore.publish`."""
        return self._recorder.watched(
            "store_publishes",
            lambda: self._store.publish(staged, condition=condition, expiry=expiry),
        )

    def abort(self, staged: Staged | StagedInfo) -> None:
        """See `ObjectStore.abort`."""
        self._recorder.watched("store_aborts", lambda: self._store.abort(staged))

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """See `ObjectStore.list_staged`."""
        self._recorder.add("store_staged_lists")
        return self._store.list_staged(prefix)

    def close(self) -> None:
        """See `ObjectStore.close`."""
        self._store.close()
