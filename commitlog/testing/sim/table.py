"""The simulated client through which a node uses a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from commitlog.tables.api import (
    ConditionFailed,
    InFlight,
    Item,
    ItemPage,
    Key,
    Table,
    TableCondition,
    TableInfo,
    Write,
)
from commitlog.tables.memory import MemoryTable
from commitlog.testing.clock import SimulatedClock
from commitlog.testing.sim.faults import Fault
from commitlog.testing.sim.request import begin, call
from commitlog.testing.sim.simulation import Node

__all__ = ["SimulatedTable", "has_expired_items", "table_state"]

T = TypeVar("T")


class SimulatedTable(Table):
    """A `Table` that sends every request through a `Simulation`.

    Args:
        node: the node that uses this client.
        server: the table itself, such as a `commitlog.tables.memory.MemoryTable` on a clock of
            `Simulation.server_clock`; it is called when a request arrives, one at a time.
        returns_old_item: whether the error of a failed condition contains the item that was found.

    Real tables retry throttled and conflicting requests internally. Here, the errors surface at once, as
    if those retries had failed.
    """

    def __init__(self, node: Node, server: Table, *, returns_old_item: bool = True) -> None:
        self._node = node
        self._server = server
        self._returns_old_item = returns_old_item
        self.url = server.url
        self.schema = server.schema

    def create(self) -> bool:
        """See `Table.create`."""
        return self._read("table.create", self._server.create)

    def check(self) -> None:
        """See `Table.check`."""
        self._read("table.check", self._server.check)

    def describe(self) -> TableInfo:
        """See `Table.describe`."""
        return self._read("table.describe", self._server.describe)

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        """See `Table.begin_get`."""
        return begin(self._node, f"table.get {_name(key)}", lambda: self._server.get(key), mutates=False)

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """See `Table.begin_put`."""
        kept = dict(item)
        return begin(
            self._node,
            f"table.put {_name(self.schema.key_of(item))}",
            self._without_item(lambda: self._server.put(kept, condition=condition)),
            mutates=True,
            more=(Fault.CONFLICT,),
        )

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """See `Table.delete`."""
        self._write(
            f"table.delete {_name(key)}",
            self._without_item(lambda: self._server.delete(key, condition=condition)),
        )

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.query_page`."""
        return self._read(
            f"table.query {hash_key}",
            lambda: self._server.query_page(hash_key, start_after=start_after, limit=limit, token=token),
        )

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.scan_page`."""
        return self._read(
            "table.scan",
            lambda: self._server.scan_page(segment=segment, segments=segments, limit=limit, token=token),
        )

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """See `Table.transact`."""
        self._write("table.transact", lambda: self._server.transact(writes, token=token))

    # inside

    def _read(self, what: str, perform: Callable[[], T]) -> T:
        return call(self._node, what, perform, mutates=False)

    def _write(self, what: str, perform: Callable[[], None]) -> None:
        call(self._node, what, perform, mutates=True, more=(Fault.CONFLICT,))

    def _without_item(self, perform: Callable[[], None]) -> Callable[[], None]:
        def perform_without_item() -> None:
            try:
                perform()
            except ConditionFailed as error:
                raise ConditionFailed(str(error)) from None

        return perform if self._returns_old_item else perform_without_item


def _name(key: Key) -> str:
    return key.hash if key.range is None else f"{key.hash} {key.range}"


def table_state(server: Table) -> Callable[[], Hashable]:
    """Return a function for `Simulation.add_state` that returns all items of a small `server`."""
    return lambda: tuple(sorted(tuple(sorted(item.items())) for item in server.scan()))


def has_expired_items(server: MemoryTable, clock: SimulatedClock) -> Callable[[], bool]:
    """Return a function for `Simulation.add_sweeper`: whether TTL could drop an item of `server`.

    It notices an item that is already expired when it is written as soon as the time changes.
    """
    quiet = -math.inf  # the last time at which no item was expired

    def due() -> bool:
        nonlocal quiet
        now = clock.epoch()
        if now == quiet:
            return False
        expiry = server.next_expiry()
        if expiry is not None and expiry < now:
            return True
        quiet = now
        return False

    return due
