"""Worlds of locks.

A `LockWorld` has one lock, in a table or in a store, a fenced object in the store, and any number of
nodes that run programs of `sim.locks.actions`. `sim.locks.judge` follows what is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from commitlog._util.background import Foreground
from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.locks import LOCK_SCHEMA, FencedStore, Lock, LockSettings, Semaphore
from commitlog.testing.sim import (
    Choices,
    Node,
    SimulatedStore,
    SimulatedTable,
    Simulation,
    World,
    has_expired_items,
    store_state,
    table_state,
)
from commitlog.urls import parse_table_url
from sim.locks.actions import COUNTER, Client, Program
from sim.locks.judge import LockTruth, WatchedStore, WatchedTable
from sim.nodes import ACCURATE, ClockSkew, check_ended, fixed_backoff, start_lives, world_builder

__all__ = ["SMALL", "LockWorld", "world_of"]

#: Short times, no margin, and few looks while waiting, for few states.
SMALL: Mapping[str, float] = {
    "timeout": 3.0,
    "heartbeat": 1.0,
    "margin": 0.0,
    "max_clock_skew_rate": 1.5,
    "test_interval": 3.0,
}

_TABLE = parse_table_url("memory://")

_T = TypeVar("_T")


def _itself(original: type[_T]) -> type[_T]:
    return original


class LockWorld:
    """One lock, and nodes that use it.

    Args:
        simulation: the simulation, with its faults and latencies.
        nodes: the clock of each node, by the node's name.
        place: whether the lock is in a table or in the store.
        permits: the number of permits, for a semaphore; None for a lock.
        table: the clock of the table.
        settings: the settings of the lock, as arguments of its class.
        backoff: returns the retry policy of a node, given its name.
        code: returns the class to use in place of a class of the library, such as a mutated one.

    Attributes:
        truth: the true state.
        outcomes: the number of calls with each outcome.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        place: Literal["table", "store"] = "table",
        permits: int | None = None,
        table: ClockSkew = ACCURATE,
        settings: Mapping[str, float] = SMALL,
        backoff: Callable[[str], Backoff] = fixed_backoff,
        code: Callable[[type[Any]], type[Any]] = _itself,
    ) -> None:
        self.simulation = simulation
        self.outcomes: Counter[str] = Counter()
        self.truth = LockTruth(permits=permits or 1)
        self._place = place
        self._permits = permits
        self._settings = settings
        self._backoff = backoff
        self._code = code
        clock = simulation.server_clock(rate=table.rate, offset=table.offset)
        self._items = WatchedTable(_TABLE, LOCK_SCHEMA, clock=clock)
        self._items.truth = self.truth
        self._items.create()
        self._objects = WatchedStore(
            clock=simulation.server_clock(), new_id=simulation.new_id, truth=self.truth
        )
        self._objects.put(COUNTER, b"commitlog-fence 1 0 setup\n0")
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=skew.rate, offset=skew.offset)
            for name, skew in nodes.items()
        }
        simulation.add_state(store_state(self._objects))
        simulation.add_state(table_state(self._items))
        simulation.add_state(self.truth.state)
        simulation.add_sweeper(has_expired_items(self._items, clock), self._items.remove_expired)

    def start(self, name: str, program: Program, **options: Any) -> None:
        """Start a program on the node of that name; for options see `sim.nodes.start_lives`."""
        start_lives(self.nodes[name], partial(self._client, name), program, **options)

    def remove_records(self) -> None:
        """Remove the records of the lock, at once and without a fault."""
        for item in list(self._items.scan()):
            self._items.delete(self._items.schema.key_of(item))
        for info in list(self._objects.list("lock")):
            self._objects.delete(info.path)

    def _client(self, name: str) -> Client:
        node = self.nodes[name]
        life = f"{name}{node.crashes or ''}"
        options: dict[str, Any] = {
            "clock": node.clock,
            "backoff": self._backoff(name),
            "new_id": node.new_id,
        }
        store = self._code(ConditionalStore)(SimulatedStore(node, self._objects), **options)
        place = SimulatedTable(node, self._items) if self._place == "table" else store
        options.update(
            settings=self._code(LockSettings)(**self._settings), holder=life, background=Foreground()
        )
        if self._permits is None:
            lock = _Single(self._code(Lock)(place, "lock", **options))
        else:
            lock = self._code(Semaphore)(place, "lock", permits=self._permits, **options)
        fenced = self._code(FencedStore)(
            store, clock=node.clock, backoff=self._backoff(name), new_id=node.new_id
        )
        return Client(world=self, node=node, name=life, lock=lock, fenced=fenced)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if a run that has ended is wrong; return `outcomes`."""
        check_ended(self.nodes)
        self.truth.check()
        return self.outcomes


class _Single:
    """A lock with the slot and the methods that a semaphore has, too."""

    slot = 0

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def holders(self) -> tuple[Any, ...]:
        holder = self._lock.holder()
        return () if holder is None else (holder,)


def world_of(
    programs: Mapping[str, Program],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    after: Mapping[str, float] | None = None,
    clocks: Mapping[str, ClockSkew] | None = None,
    outcomes: Counter[str] | None = None,
    **options: Any,
) -> World:
    """Return a world for `explore`.

    Args:
        programs: the program of each node, by the node's name.
        simulation: makes the simulation, with its faults.
        after: the start time of each node that does not start at the beginning.
        clocks: the clocks of nodes that are not correct.
        outcomes: a counter to which the outcomes of all completed runs are added.
        options: those of `LockWorld`, except `nodes`.
    """
    return world_builder(
        partial(LockWorld, **options),
        lambda world, name: world.start(name, programs[name], after=(after or {}).get(name, 0.0)),
        nodes=programs,
        simulation=simulation,
        clocks=clocks,
        outcomes=outcomes,
    )
