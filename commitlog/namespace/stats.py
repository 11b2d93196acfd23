"""The report of the requests that the operations of a namespace sent, and of their failures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add, attrgetter

from attrs import evolve, fields, frozen

from commitlog._util.metrics import Metric, openmetrics

__all__ = ["RequestCounts", "RequestStats"]


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
        "Failed requests, and how the changes ended.",
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
