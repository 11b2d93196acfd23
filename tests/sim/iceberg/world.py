"""Worlds of Iceberg catalogs, and the actions of their clients.

A `CatalogWorld` has one catalog with two tables, and any number of nodes that run programs.
`sim.iceberg.judge` follows the mutations of its store.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from attrs import define, field

from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.iceberg.model import Levels, Names, TableEntry
from commitlog.iceberg.records import CatalogRecords
from commitlog.testing import ManualClock
from commitlog.testing.sim import Choices, Node, SimulatedStore, Simulation, World, store_state
from sim.iceberg.judge import CatalogTruth, WatchedStore
from sim.nodes import ClockSkew, check_ended, fixed_backoff, start_lives, world_builder

#: The tables at the beginning.
ONE, TWO = ("a", "one"), ("a", "two")


@define(kw_only=True)
class Client:
    """One life of a node, which its program uses.

    Attributes:
        world: the world.
        node: the node.
        records: its client of the catalog.
        ids: the ids that the client has made in the present call.
    """

    world: CatalogWorld
    node: Node
    records: CatalogRecords
    ids: list[str] = field(factory=list)

    @contextlib.contextmanager
    def call(self, what: str) -> Iterator[None]:
        """Check and record the outcome of a call that makes changes with the ids in `ids`."""
        truth = self.world.truth
        self.ids.clear()
        outcome = "done"
        try:
            yield
        except OutcomeUnknown:
            outcome = "unknown"
        except CommitError as error:
            outcome = "failed"
            self.node.note(f"{what}: {error}")
            for mark in self.ids:
                truth.did_not_happen(mark)
        else:
            # The last try has done it, and those before it have not.
            for mark in self.ids[-1:]:
                truth.done(mark)
            for mark in self.ids[:-1]:
                truth.did_not_happen(mark)
        self.world.outcomes[f"{what}: {outcome}"] += 1
        self.node.note(f"{what}: {outcome}")


#: The code of a node. An error that a call may raise ends that call, but not the program.
Program: TypeAlias = Callable[[Client], object]


def commit(table: Levels, *, times: int = 1) -> Program:
    """Commit to a table `times` times, each time from what is found then."""

    def program(client: Client) -> None:
        for _ in range(times):
            with client.call("commit"):
                before = client.world.truth.at(table)
                pointer = client.records.find(table)
                client.world.truth.found(table, before, pointer.table, pointer.metadata_location)
                location = f"m{client.node.new_id()}"
                client.ids.append(location)
                client.records.move(pointer, location)

    return program


def find(table: Levels) -> Program:
    """Find a table."""

    def program(client: Client) -> None:
        with client.call("find"):
            before = client.world.truth.at(table)
            pointer = client.records.find(table)
            client.world.truth.found(table, before, pointer.table, pointer.metadata_location)

    return program


def rename(source: Levels, target: Levels) -> Program:
    """Rename a table."""

    def program(client: Client) -> None:
        with client.call("rename"):
            client.records.change(lambda names: names.rename_table(source, target))

    return program


def drop(table: Levels) -> Program:
    """Drop a table, and remove its pointer."""

    def program(client: Client) -> None:
        client.world.truth.drop(table)
        with client.call("drop"):
            dropped = client.records.drop(table)
            client.ids[:] = client.ids[-1:]
            with contextlib.suppress(CommitError):
                client.records.remove(dropped.id)

    return program


def create(table: Levels) -> Program:
    """Create a table."""

    def program(client: Client) -> None:
        entry = TableEntry(id=f"t{client.node.new_id()}", metadata_location=f"m{client.node.new_id()}")
        with client.call("create"):
            client.records.change(lambda names: names.create_table(table, entry))

    return program


def clean(client: Client) -> None:
    """Remove the pointers without a name."""
    with client.call("clean"):
        for table in client.records.leftovers():
            client.records.remove(table)


class CatalogWorld:
    """One catalog, and nodes that use it.

    Args:
        simulation: the simulation, with its faults and latencies.
        nodes: the clock of each node, by the node's name.
        connect: makes a client, such as a mutated one, with the arguments of `CatalogRecords`.
        commits: the number of commits to `ONE` at the beginning.

    Attributes:
        truth: the true state of the catalog.
        outcomes: the number of calls with each outcome.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        connect: Callable[..., CatalogRecords] = CatalogRecords,
        commits: int = 0,
    ) -> None:
        self.simulation = simulation
        self.outcomes: Counter[str] = Counter()
        self._server = WatchedStore(clock=simulation.server_clock(), new_id=simulation.new_id)
        self._connect = connect
        self.truth: CatalogTruth = self._server.truth
        ids = iter(("start", "one", "two"))
        first = CatalogRecords(
            ConditionalStore(self._server, clock=ManualClock()), new_id=lambda: next(ids)
        )
        first.change(_start)
        for number in range(commits):
            first.move(first.find(ONE), f"one-{number + 1}")
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=skew.rate, offset=skew.offset)
            for name, skew in nodes.items()
        }
        simulation.add_state(store_state(self._server))
        simulation.add_state(self.truth.state)

    def start(self, name: str, program: Program, **options: float) -> None:
        """Start a program on the node of that name; options are those of `sim.nodes.start_lives`."""
        start_lives(self.nodes[name], partial(self._client, name), program, **options)

    def _client(self, name: str) -> Client:
        node = self.nodes[name]
        backoff = fixed_backoff(name)
        store = ConditionalStore(
            SimulatedStore(node, self._server), clock=node.clock, backoff=backoff, new_id=node.new_id
        )
        ids: list[str] = []

        def new_id() -> str:
            ids.append(node.new_id())
            return ids[-1]

        records = self._connect(store, clock=node.clock, backoff=backoff, new_id=new_id)
        return Client(world=self, node=node, records=records, ids=ids)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if a run that has ended is wrong; return `outcomes`.

        Each table with a name is found at its last location, and a clean-up leaves no other pointer.
        """
        check_ended(self.nodes)
        truth = self.truth
        records = CatalogRecords(ConditionalStore(self._server, clock=ManualClock()))
        for table, id in truth.tables.items():
            pointer = records.find(table)
            assert (pointer.table, pointer.metadata_location) == (id, truth.chains[id][-1])
        for left in records.leftovers():
            records.remove(left)
        assert records.leftovers() == []
        return self.outcomes


def _start(names: Names) -> Names:
    for namespace in ("a", "b"):
        names = names.create_namespace((namespace,), {})
    for table in (ONE, TWO):
        names = names.create_table(table, TableEntry(id=table[-1], metadata_location=f"{table[-1]}-0"))
    return names


def world_of(
    programs: Mapping[str, Program],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    after: Mapping[str, float] | None = None,
    outcomes: Counter[str] | None = None,
    **options: Any,
) -> World:
    """Return a world for `explore`.

    Args:
        programs: the program of each node, by the node's name.
        simulation: makes the simulation, with its faults.
        after: the start time of each node that does not start at the beginning.
        outcomes: a counter to which the outcomes of all completed runs are added.
        options: those of `CatalogWorld`, except `nodes`.
    """
    return world_builder(
        partial(CatalogWorld, **options),
        lambda world, name: world.start(name, programs[name], after=(after or {}).get(name, 0.0)),
        nodes=programs,
        simulation=simulation,
        outcomes=outcomes,
    )
