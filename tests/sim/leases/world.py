"""Worlds for tests on the simulator: writers that compete for the objects of one store, and their judge.

A `CommitWorld` has one store and one table, each on a server's clock, and any number of nodes that run
programs (`create`, `update`, …) on a `ConditionalStore` whose calls are recorded.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from attrs import frozen

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore, LeaseSettings
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import CommitError
from commitlog.stores.api import Staged, StagedInfo
from commitlog.stores.memory import MemoryStore
from commitlog.tables.memory import MemoryTable
from commitlog.testing import Action, History, Outcome, RecordedStore, Recorder
from commitlog.testing.linearizability import check_linearizable
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
from support.commit import proven

#: The shortest lease there may be, and the shortest TTL for it; few looks while waiting, for few states.
#: No time is kept for bodies, since they take none unless a world has `bandwidths`.
SMALL = LeaseSettings(timeout=3, max_clock_skew_rate=1.5, ttl=9, test_interval=3, min_bandwidth=math.inf)


@frozen(kw_only=True)
class Ticks:
    """How a clock goes: seconds in a true one, and seconds ahead at the beginning."""

    rate: float = 1.0
    offset: float = 0.0


class Steady(random.Random):
    """Jitter without chance, for exhaustive worlds: the longest pause, always."""

    def uniform(self, a: float, b: float) -> float:
        return b


_STEADY = Backoff(base=1, cap=1, tries=4, random=Steady())
_TABLE = parse_table_url("memory://")


def steady(node: str) -> Backoff:
    """Return how a node of an exhaustive world backs off."""
    return _STEADY


def seeded(seed: int, **options: Any) -> Callable[[str], Backoff]:
    """Return how nodes back off with jitter, each with its own; `options` are those of `Backoff`."""
    return lambda node: Backoff(random=random.Random(f"{seed} {node}"), **options)


class Server(MemoryStore):
    """The store itself, which may ignore conditions, and remembers which words were taken away.

    Attributes:
        removed: words of objects that were deleted, and of uploads that were aborted.
    """

    def __init__(self, simulation: Simulation, ticks: Ticks, *, conditions: bool) -> None:
        clock = simulation.server_clock(rate=ticks.rate, offset=ticks.offset)
        super().__init__(clock=clock, new_id=simulation.new_id)
        self._conditions = conditions
        self.removed: set[str] = set()

    def _allow(self, key: str, condition: Any, fence: Any) -> None:
        super()._allow(key, condition if self._conditions else None, fence)

    def delete(self, path: str, **options: Any) -> None:
        info = self.begin_head(path)().info
        super().delete(path, **options)
        if info is not None:
            self.removed.add(info.metadata.get(VERSION, ""))

    def abort(self, staged: Staged | StagedInfo) -> None:
        upload = self._space.uploads.get(staged.upload_id)
        if upload is not None:
            self.removed.add(upload.metadata.get(VERSION, ""))
        super().abort(staged)


class _Ordered(Recorder):
    """A recorder that tells which calls had returned when a call began: all that judges ask of time.

    It is part of the state of an exploration. A campaign, which has no trace, does not ask for it.
    """

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(now=lambda: simulation.now)
        self._simulation = simulation
        self._ended: Counter[str] = Counter()
        self._clients: list[str] = []
        self._before: dict[str, list[Hashable]] = {}

    def begin(self, client: str, action: Action, key: str, **options: Any) -> int:
        self._clients.append(client)
        if self._simulation.tracing:
            self._before.setdefault(client, []).append(tuple(sorted(self._ended.items())))
        return super().begin(client, action, key, **options)

    def end(self, number: int, outcome: Outcome, *, version: str | None = None) -> None:
        self._ended[self._clients[number]] += 1
        super().end(number, outcome, version=version)

    def order(self) -> Hashable:
        """Return, for each call of each client, how many calls of each had returned before it."""
        return tuple(sorted((client, tuple(calls)) for client, calls in self._before.items()))


class CommitWorld:
    """One store, one table, and nodes whose `ConditionalStore` is recorded.

    Args:
        simulation: where it all happens. Made with faults, latencies and so on by the test.
        nodes: the clock of each node, by name.
        mode: ``auto``, ``lease`` or ``native``.
        conditions: whether the store enforces conditions; by default, if they are relied on.
        fences: whether the store enforces expiries. If not, clients are told so by a probe_report.
        store, table: the servers' clocks.
        objects: what exists at the beginning: a word for each path.
        settings: how leases are kept.
        backoff: how the node of that name backs off.
        returns_old_item: whether the table's failed conditions bring the item along.
        connect: makes a client, such as a mutated one, with the arguments of `ConditionalStore`.
        probe_report: what clients are told of the store; by default what is true, if it has to be told.
        bandwidths: bytes a second that the link of a node carries, where it is not without limit.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, Ticks],
        mode: Literal["auto", "lease", "native"] = "lease",
        conditions: bool | None = None,
        fences: bool = True,
        store: Ticks = Ticks(),
        table: Ticks = Ticks(),
        objects: Mapping[str, str] | None = None,
        settings: LeaseSettings = SMALL,
        backoff: Callable[[str], Backoff] = steady,
        returns_old_item: bool = True,
        connect: Callable[..., ConditionalStore] = ConditionalStore,
        probe_report: ProbeReport | None = None,
        bandwidths: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.simulation = simulation
        self._bandwidths = bandwidths
        self.recorder = _Ordered(simulation)
        #: The store and the table themselves, past all misfortune.
        self.objects = Server(
            simulation, store, conditions=mode == "native" if conditions is None else conditions
        )
        clock = simulation.server_clock(rate=table.rate, offset=table.offset)
        self.items = MemoryTable(_TABLE, LEASE_SCHEMA, clock=clock)
        self.items.create()
        #: The etag that each object had at the beginning, and its word.
        self.etags: dict[str, str] = {}
        self.words: dict[str, str] = dict(objects or {})
        for path, word in self.words.items():
            self._plant(path, word)
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=ticks.rate, offset=ticks.offset)
            for name, ticks in nodes.items()
        }
        if probe_report is None and not fences:
            probe_report = proven(
                *(kind for kind in Kind if mode == "native" and kind is not Kind.FENCE)
            )
        self._mode = mode
        self._fences = fences
        self._settings = settings
        self._backoff = backoff
        self._returns_old_item = returns_old_item
        self._connect = connect
        self._probe_report = probe_report
        self._versions: Counter[str] = Counter()
        simulation.add_state(store_state(self.objects))
        simulation.add_state(table_state(self.items))
        simulation.add_state(self.recorder.order)
        simulation.add_state(lambda: frozenset(self.objects.removed))
        simulation.add_sweeper(has_expired_items(self.items, clock), self.items.sweep)

    def start(
        self,
        name: str,
        program: Program,
        *,
        after: float = 0.0,
        restart: Program | None = None,
        restart_after: float = 1.0,
    ) -> None:
        """Let a program run on the node of that name; if it dies, `restart` does, if there is one.

        Each life has a client of its own. Times are as of `Node.start`.
        """

        def live(what: Program) -> Callable[[], object]:
            return lambda: what(self.client(name))

        self.nodes[name].start(
            live(program),
            after=after,
            restart=None if restart is None else live(restart),
            restart_after=restart_after,
        )

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
        """Return what a node reaches the store by."""
        bandwidth = self._bandwidths.get(node.name, math.inf)
        return SimulatedStore(node, self.objects, fences=self._fences, bandwidth=bandwidth)

    def history(self) -> History:
        """Return what is to be judged."""
        return self.recorder.history()

    def version(self, name: str) -> str:
        """Return a word that no other version has."""
        self._versions[name] += 1
        return f"{name}:{self._versions[name]}"

    def judge(self) -> None:
        """Raise `AssertionError` if something went wrong in a run that has ended.

        Every program is over, unless its node died for good; an extra reader looks at every object; the
        history with it is linearizable; nothing was cleaned up whose outcome its writer did not know.
        """
        stuck = [name for name, node in self.nodes.items() if node.running]
        assert not stuck, f"the programs of {stuck} wait for nothing"
        reader = RecordedStore(ConditionalStore(self.objects), self.recorder, client="reader")
        for path in sorted({call.key for call in self.recorder.history()}):
            for read in (reader.head, reader.get):
                with contextlib.suppress(CommitError):
                    read(path)
        history = self.history()
        check_linearizable(history)
        wanted = {call.expected for call in history if call.action is Action.REMOVE}
        unknown = {call.version for call in history if call.outcome is Outcome.UNKNOWN}
        cleaned_up = (self.objects.removed & unknown) - wanted
        assert not cleaned_up, f"{cleaned_up} may have been written, and was cleaned up"

    def _plant(self, path: str, word: str) -> None:
        number = self.recorder.begin("setup", Action.CREATE, path, version=word, name="setup")
        result = self.objects.put(path, word.encode(), metadata={VERSION: word})
        self.recorder.end(number, Outcome.DONE)
        self.recorder.learn(result.etag, word)
        self.etags[path] = result.etag


@frozen(kw_only=True)
class Client:
    """One life of a node: what its program works with.

    Attributes:
        world: where it lives.
        name: that of the node.
        store: its recorded store.
    """

    world: CommitWorld
    name: str
    store: RecordedStore

    def word(self) -> str:
        """Return a word for the next version."""
        return self.world.version(self.name)


#: What a node does. An error of the library ends one call, and is no error of the program.
Program: TypeAlias = Callable[[Client], object]


def _attempt(call: Callable[[Client], object]) -> Program:
    def program(client: Client) -> None:
        with contextlib.suppress(CommitError):
            call(client)

    return program


def create(path: str) -> Program:
    """Put an object, if there is none."""
    return _attempt(lambda client: client.store.put_if_absent(path, client.word()))


def update(path: str) -> Program:
    """Replace the object that was there at the beginning."""
    return _attempt(
        lambda client: client.store.put_if_match(
            path, client.word(), etag=client.world.etags[path], expected=client.world.words[path]
        )
    )


def delete(path: str) -> Program:
    """Delete the object that was there at the beginning."""
    return _attempt(
        lambda client: client.store.delete_if_match(
            path, etag=client.world.etags[path], expected=client.world.words[path]
        )
    )


def copy(source: str, target: str) -> Program:
    """Copy an object that was there at the beginning. Let nobody else copy it to that target."""
    return _attempt(
        lambda client: client.store.copy_if_absent(source, target, version=client.world.words[source])
    )


def rename(source: str, target: str) -> Program:
    """Rename an object that was there at the beginning. Let nobody else copy it to that target."""
    return _attempt(
        lambda client: client.store.rename_if_absent(source, target, version=client.world.words[source])
    )


def publish(path: str) -> Program:
    """Upload an object, and publish it if there is none."""

    def call(client: Client) -> None:
        word = client.word()
        client.store.publish_if_absent(client.store.stage(path, word), version=word)

    return _attempt(call)


def read(path: str) -> Program:
    """Read the object."""
    return _attempt(lambda client: client.store.get(path))


def edit(path: str) -> Program:
    """Replace whatever object is there."""

    def call(client: Client) -> None:
        etag = client.store.get(path).etag
        client.store.put_if_match(path, client.word(), etag=etag)

    return _attempt(call)


def remove(path: str) -> Program:
    """Delete whatever object is there."""
    return _attempt(lambda client: client.store.delete_if_match(path, etag=client.store.get(path).etag))


def in_turn(*programs: Program) -> Program:
    """Run programs one after the other."""

    def program(client: Client) -> None:
        for each in programs:
            each(client)

    return program


def world_of(
    programs: Mapping[str, Program],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    clocks: Mapping[str, Ticks] | None = None,
    restarts: bool = False,
    **options: Any,
) -> World:
    """Return what `explore` builds worlds with.

    Args:
        programs: what the node of each name does.
        simulation: makes the simulation, with what faults there are to be.
        clocks: clocks of the nodes that do not go right.
        restarts: whether a node that dies begins its program anew.
        options: those of `CommitWorld`, other than its nodes.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        nodes = {name: (clocks or {}).get(name, Ticks()) for name in programs}
        world = CommitWorld(simulation(choices), nodes=nodes, **options)
        for name, program in programs.items():
            world.start(name, program, restart=program if restarts else None)
        return world.simulation, world.judge

    return build
