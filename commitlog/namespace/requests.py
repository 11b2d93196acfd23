"""How many requests the operations of a namespace have made, and how often something got in their way.

Imports the ground floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add, attrgetter

from attrs import evolve, fields, frozen

from commitlog.metrics import Metric, openmetrics

__all__ = ["Counts", "Requests"]


@frozen(kw_only=True)
class Counts:
    """Of one operation, or of several.

    Requests are counted as they are made of the ports: one that a table or store sends again inside is
    counted once, and under `retries`; a large object, which is sent in parts, once.

    Attributes:
        calls: how often the operation was called.
        gets: items that were read from the table.
        queries: pages of listings that were read from it.
        scans: pages of all that it has.
        puts: single items that were written.
        deletes: single items that were removed.
        transactions: transactions that were sent, those that were refused included.
        writes: what these had, checks included. DynamoDB takes two write units for each KB of each.
        checks: writes that only require something: that directories are where they were seen.
        store_heads, store_gets, store_lists, store_puts, store_copies, store_deletes: requests to the
            store. A page of a listing is one.
        store_bulk_deletes: removals of many objects at once.
        store_stages, store_publishes, store_aborts: uploads that were begun, ended, given up.
        store_staged_lists: listings of uploads.
        conflicts: requests that got in the way of others, and did nothing.
        unavailable: requests that were throttled, or not answered in a way that proves that they did
            nothing.
        unknown: requests whose answers were lost, so that they may have been done.
        retries: how often something was sent once more, after one of the three.
        refused: changes that were planned on what was no longer so, and planned again.
        recognised: changes of which it was found that they were done, after an answer was lost.
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

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both.

        >>> (Counts(gets=1) + Counts(gets=2)).gets
        3
        """
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in NAMES})

    def __sub__(self, other: Counts) -> Counts:
        """Return what has come since the other counts."""
        return Counts(**{name: getattr(self, name) - getattr(other, name) for name in NAMES})

    @property
    def table(self) -> int:
        """All requests to the table."""
        return self.gets + self.queries + self.scans + self.puts + self.deletes + self.transactions

    @property
    def store(self) -> int:
        """All requests to the store."""
        return sum(getattr(self, name) for name in NAMES if name.startswith("store_"))


#: The names of all counts.
NAMES = tuple(field.name for field in fields(Counts))


@frozen(kw_only=True)
class Requests:
    """What a `Namespace` has asked of its table and its store, up to a moment.

    Attributes:
        namespace: its name.
        operations: counts for each operation that was called, by the name of its method. What it calls
            itself counts for it; what a listing asks for while it is read, for the listing; what an open
            file or a writer does, for `open` or `begin_write`.
    """

    namespace: str
    operations: Mapping[str, Counts]

    @classmethod
    def of(cls, namespace: str, counts: Mapping[str, int]) -> Requests:
        """Return those whose counts are named ``<operation>.<name of the count>``.

        >>> Requests.of("lake", {"stat.calls": 1, "stat.gets": 2}).operations["stat"].gets
        2
        """
        by_operation: dict[str, dict[str, int]] = {}
        for name, number in sorted(counts.items()):
            operation, _, count = name.partition(".")
            by_operation.setdefault(operation, {})[count] = number
        return cls(
            namespace=namespace,
            operations={operation: Counts(**counted) for operation, counted in by_operation.items()},
        )

    @property
    def total(self) -> Counts:
        """The counts of all operations."""
        return reduce(add, self.operations.values(), Counts())

    def since(self, earlier: Requests) -> Requests:
        """Return what has come since an earlier moment; operations without any are left out."""
        none = Counts()
        new = {
            operation: counts - earlier.operations.get(operation, none)
            for operation, counts in self.operations.items()
        }
        return evolve(self, operations={name: counts for name, counts in new.items() if counts != none})

    def to_openmetrics(self) -> str:
        """Return them as text in the format of OpenMetrics 1.0, which Prometheus reads."""
        things = [
            ({"namespace": self.namespace, "operation": operation}, counts)
            for operation, counts in self.operations.items()
        ]
        return openmetrics(_METRICS, things, prefix="commitlog_namespace_")


def _by(name: str, help: str, label: str, kinds: Mapping[str, str]) -> list[Metric[Counts]]:
    return [
        Metric(name, "counter", help, attrgetter(count), {label: kind}) for count, kind in kinds.items()
    ]


_METRICS: list[Metric[Counts]] = [
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
