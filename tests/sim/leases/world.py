"""Worlds of clients that write conditionally to the objects of one store.

A `CommitWorld` has one store and one table, each with the clock of a server, and any number of nodes.
Each node runs a program of `sim.leases.actions` on a recorded `ConditionalStore`. `sim.leases.judge`
checks the recorded calls at the end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore, LeaseSettings
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.tables.memory import MemoryTable
from commitlog.testing import Action, History, Outcome, RecordedStore
from commitlog.testing.recorded_store import VERSION
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
from sim.leases.actions import Client, Program
from sim.leases.judge import OrderedRecorder, Server, check_history, read_all
from sim.nodes import ACCURATE, ClockSkew, check_ended, fixed_backoff, start_lives, world_builder
from support.commit import proven

__all__ = ["SMALL", "CommitWorld", "world_of"]

#: The shortest possible lease and its shortest TTL, with few reads during a wait, for few states. No
#: time is reserved for bodies, because they take none unless a world has `bandwidths`.
SMALL = LeaseSettings(timeout=3, max_clock_skew_rate=1.5, ttl=9, test_interval=3, min_bandwidth=math.inf)

_TABLE = parse_table_url("memory://")


class CommitWorld:
    """One store, one table, and nodes with a recorded `ConditionalStore` each.

    Args:
        simulation: the simulation, with its faults and latencies.
        nodes: the clock of each node, by the node's name.
        mode: ``auto``, ``lease`` or ``native``.
        conditions: whether the store enforces conditions; by default, if the mode relies on them.
        enforces_expiry: whether the store enforces expiries. If not, a probe report says so.
        store, table: the clocks of the servers.
        objects: the initial objects: a version for each path.
        settings: the settings of leases.
        backoff: returns the retry policy of a node, given its name.
        returns_old_item: whether errors of failed conditions of the table contain the item.
        connect: makes a client, such as a mutated one, with the arguments of `ConditionalStore`.
        probe_report: the probe report of clients; by default a correct one, if they need one.
        bandwidths: bytes per second that a node can send, if limited.

    Attributes:
        etags, versions: the etag and the version of each initial object.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        mode: Literal["auto", "lease", "native"] = "lease",
        conditions: bool | None = None,
        enforces_expiry: bool = True,
        store: ClockSkew = ACCURATE,
        table: ClockSkew = ACCURATE,
        objects: Mapping[str, str] | None = None,
        settings: LeaseSettings = SMALL,
        backoff: Callable[[str], Backoff] = fixed_backoff,
        returns_old_item: bool = True,
        connect: Callable[..., ConditionalStore] = ConditionalStore,
        probe_report: ProbeReport | None = None,
        bandwidths: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.simulation = simulation
        self._bandwidths = bandwidths
        self.recorder = OrderedRecorder(simulation)
        #: The store and the table, without faults.
        self.objects = Server(
            simulation, store, conditions=mode == "native" if conditions is None else conditions
        )
        clock = simulation.server_clock(rate=table.rate, offset=table.offset)
        self.items = MemoryTable(_TABLE, LEASE_SCHEMA, clock=clock)
        self.items.create()
        self.etags: dict[str, str] = {}
        self.versions: dict[str, str] = dict(objects or {})
        for path, version in self.versions.items():
            self._create(path, version)
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=skew.rate, offset=skew.offset)
            for name, skew in nodes.items()
        }
        if probe_report is None and not enforces_expiry:
            probe_report = proven(
                *(kind for kind in Kind if mode == "native" and kind is not Kind.REQUEST_EXPIRY)
            )
        self._mode = mode
        self._enforces_expiry = enforces_expiry
        self._settings = settings
        self._backoff = backoff
        self._returns_old_item = returns_old_item
        self._connect = connect
        self._probe_report = probe_report
        self._counts: Counter[str] = Counter()
        simulation.add_state(store_state(self.objects))
        simulation.add_state(table_state(self.items))
        simulation.add_state(self.recorder.order)
        simulation.add_state(lambda: frozenset(self.objects.removed))
        simulation.add_sweeper(has_expired_items(self.items, clock), self.items.remove_expired)

    def start(self, name: str, program: Program, **options: Any) -> None:
        """Start a program on the node of that name; for options see `sim.nodes.start_lives`."""
        start_lives(self.nodes[name], partial(self.client, name), program, **options)

    def client(self, name: str) -> Client:
        """Return a new client of the node of that name."""
        node = self.nodes[name]
        options: dict[str, Any] = {
            "mode": self._mode,
            "probe_report": self._probe_report,
            "clock": node.clock,
            "backoff": self._backoff(name),
            "new_id": node.new_id,
        }
        if self._mode != "native":
            options["table"] = SimulatedTable(node, self.items, returns_old_item=self._returns_old_item)
            options["settings"] = self._settings
        store = self._connect(self.port(node), **options)
        return Client(world=self, name=name, store=RecordedStore(store, self.recorder, client=name))

    def port(self, node: Node) -> SimulatedStore:
        """Return the simulated store of a node."""
        bandwidth = self._bandwidths.get(node.name, math.inf)
        return SimulatedStore(
            node, self.objects, enforces_expiry=self._enforces_expiry, bandwidth=bandwidth
        )

    def history(self) -> History:
        """Return the history to check."""
        return self.recorder.history()

    def new_version(self, name: str) -> str:
        """Return a version that no other write has."""
        self._counts[name] += 1
        return f"{name}:{self._counts[name]}"

    def judge(self) -> None:
        """Raise `AssertionError` if a run that has ended is wrong.

        Every program has ended, unless its node crashed and was not restarted. The history is
        linearizable, including a last read of every object. No client has removed an object whose write
        may have happened.
        """
        check_ended(self.nodes)
        read_all(self.objects, self.recorder)
        check_history(self.history(), self.objects)

    def _create(self, path: str, version: str) -> None:
        number = self.recorder.begin("setup", Action.CREATE, path, version=version, name="setup")
        result = self.objects.put(path, version.encode(), metadata={VERSION: version})
        self.recorder.end(number, Outcome.DONE)
        self.recorder.learn(result.etag, version)
        self.etags[path] = result.etag


def world_of(
    programs: Mapping[str, Program],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    clocks: Mapping[str, ClockSkew] | None = None,
    restarts: bool = False,
    **options: Any,
) -> World:
    """Return a world for `explore`.

    Args:
        programs: the program of each node, by the node's name.
        simulation: makes the simulation, with its faults.
        clocks: the clocks of nodes that are not correct.
        restarts: whether a node that crashes starts its program again.
        options: those of `CommitWorld`, except `nodes`.
    """

    def start(world: CommitWorld, name: str) -> None:
        program = programs[name]
        world.start(name, program, restart=program if restarts else None)

    return world_builder(
        partial(CommitWorld, **options), start, nodes=programs, simulation=simulation, clocks=clocks
    )
