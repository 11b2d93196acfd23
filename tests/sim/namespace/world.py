"""Worlds of namespaces.

A `NamespaceWorld` has one table, one store, perhaps a log, and nodes that run programs: sequences of
actions (`sim.namespace.actions`) and pauses. `sim.namespace.judge` has the invariants. At the end of a
run, pending operations are decided, and the trash and garbage are removed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.namespace import Namespace
from commitlog.oplog import OperationLog
from commitlog.testing import ManualClock
from commitlog.testing.sim import (
    EPOCH,
    Choices,
    Fault,
    Node,
    SimulatedStore,
    SimulatedTable,
    Simulation,
    World,
    store_state,
    table_state,
)
from sim.namespace.actions import Action, Program
from sim.namespace.judge import NAME, Call, Known, NamespaceJudge
from sim.namespace.servers import WatchedStore, WatchedTable
from sim.nodes import ClockSkew, LongestPause, check_ended, start_lives, world_builder
from support.library import GetClass, original

#: Faults of requests.
ON_THE_WAY = tuple(
    fault for fault in Fault if fault not in (Fault.PAUSED, Fault.CRASHED, Fault.SWEPT, Fault.PARTIAL)
)

ANY = tuple(fault for fault in Fault if fault is not Fault.SWEPT)

#: The retry policy of nodes: few attempts, for few states.
STEADY = Backoff(base=1, cap=1, tries=3, random=LongestPause())

#: Directories with objects of other programs.
_FOREIGN = ("others", "old", "raw", "_commitlog")

_NONE: Mapping[str, Any] = {}


class NamespaceWorld(NamespaceJudge):
    """One namespace, and nodes that use it.

    Args:
        simulation: the simulation, with its faults and latencies.
        nodes: the clock of each node, by the node's name.
        made: initial directories.
        files: initial files.
        objects: initial objects that are no files.
        stable: the argument `stable_paths` of `Namespace`.
        exact: whether every result must be one that the plain tree has at some moment of the call. The
            lookup of a path takes several requests, so with several other clients this need not hold.
        tokens: whether the table remembers the tokens of transactions.
        logged: whether there is a log.
        stored: whether requests to the store are simulated too.
        grace: the grace period of the namespace in seconds.
        shards: number of shards of the initial directories.
        backoff: returns the retry policy of a node, given its name.
        prepare: prepares the namespace further before the programs start.
        code: returns the class that replaces a class of the library.
        known: the knowledge from other runs of this world.

    Attributes:
        outcomes: the number of actions with each outcome.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        made: Iterable[str] = (),
        files: Mapping[str, bytes] = _NONE,
        objects: Mapping[str, bytes] = _NONE,
        stable: bool = True,
        exact: bool = True,
        tokens: bool = True,
        logged: bool = False,
        stored: bool = False,
        grace: float = 100.0,
        shards: int = 1,
        backoff: Callable[[str], Backoff] = lambda name: STEADY,
        prepare: Callable[[Namespace], object] = lambda owner: None,
        code: GetClass = original,
        known: Known | None = None,
    ) -> None:
        clock = simulation.server_clock()
        new_id = simulation.new_id
        super().__init__(
            table=WatchedTable(clock=clock, watch=self._changed, tokens=tokens),
            store=WatchedStore(clock=clock, new_id=new_id, watch=self._changed),
            logs=WatchedStore(clock=clock, new_id=new_id, watch=self._changed) if logged else None,
            stable=stable,
            exact=exact,
            known=Known(shared=False) if known is None else known,
        )
        self.simulation = simulation
        self.outcomes: Counter[str] = Counter()
        self._stored = stored
        self._grace = grace
        self._backoff = backoff
        self._prepare = prepare
        self._code = code
        self._begin(made, files, objects, shards)
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=skew.rate, offset=skew.offset)
            for name, skew in nodes.items()
        }
        simulation.add_state(table_state(self.table))
        simulation.add_state(store_state(self.store))
        if self.logs is not None:
            simulation.add_state(store_state(self.logs))
        simulation.add_state(lambda: tuple(self.table.applied))
        simulation.add_state(lambda: tuple(call.state() for call in self.calls))
        simulation.add_state(lambda: frozenset(self.auditor._gone))

    def _begin(
        self, made: Iterable[str], files: Mapping[str, bytes], objects: Mapping[str, bytes], shards: int
    ) -> None:
        stores = (self.store,) if self.logs is None else (self.store, self.logs)
        if self._known.items:
            self._begin_again(stores)
        else:
            self._make(made, files, objects, shards)
            self._known.items = tuple(self.table.scan())
            self._known.objects = tuple(dict(store._space.objects) for store in stores)
            self._known.applied = tuple(self.table.applied)
        self.model = self._audit()
        self._watching = True

    def _begin_again(self, stores: Sequence[WatchedStore]) -> None:
        for item in self._known.items:
            self.table.put(item)
        for store, objects in zip(stores, self._known.objects, strict=True):
            for path, stored in objects.items():
                store._space.set(path, stored)
        self.table.applied += self._known.applied

    def _make(
        self, made: Iterable[str], files: Mapping[str, bytes], objects: Mapping[str, bytes], shards: int
    ) -> None:
        numbers = (f"w{number}" for number in itertools.count())
        clock = self.simulation.server_clock()
        log = None
        if self.logs is not None:
            logs = ConditionalStore(self.logs, clock=clock, new_id=lambda: next(numbers))
            log = OperationLog(logs, "log", clock=clock, new_id=lambda: next(numbers))
        owner = Namespace(
            self.table,
            self.store,
            NAME,
            clock=clock,
            log=log,
            new_id=lambda: next(numbers),
            backoff=STEADY,
        )
        owner.create()
        for path in made:
            owner.make_directory(path, shards=shards)
        for path, body in files.items():
            owner.write(path, body)
        for path, body in objects.items():
            self.store.put(path, body)
        self._prepare(owner)

    # programs

    def start(self, name: str, program: Program, *, restart: bool = False, **options: Any) -> None:
        """Start a program on the node of that name; with `restart`, start it again after a crash.

        Other options are those of `sim.nodes.start_lives`.
        """
        node = self.nodes[name]

        def live(namespace: Namespace) -> None:
            for step in program:
                if isinstance(step, Action):
                    self._do(node, namespace, step)
                else:
                    node.clock.sleep(step)

        again = live if restart else None
        start_lives(node, partial(self._client, node), live, restart=again, **options)

    def _client(self, node: Node) -> Namespace:
        backoff = self._backoff(node.name)

        def new_id() -> str:
            made = node.new_id()
            if node.name in self._running:
                self._owners[made] = self._running[node.name]
            return made

        log = None
        if self.logs is not None:
            logs = ConditionalStore(
                SimulatedStore(node, self.logs), clock=node.clock, backoff=backoff, new_id=node.new_id
            )
            log = self._code(OperationLog)(logs, "log", clock=node.clock, new_id=node.new_id)
        return self._code(Namespace)(
            SimulatedTable(node, self.table),
            SimulatedStore(node, self.store) if self._stored else self.store,
            NAME,
            clock=node.clock,
            backoff=backoff,
            log=log,
            grace=self._grace,
            stable_paths=self._stable,
            new_id=new_id,
        )

    def _do(self, node: Node, namespace: Namespace, do: Action) -> None:
        call = Call(do, node.name)
        self._notice(call)
        self.calls.append(call)
        self._running[node.name] = call
        if do.name == "tamper":
            self._tampered = True
            self.auditor.store = None
        value: object = None
        try:
            value = do.call(namespace)
            call.outcome = "done"
        except OutcomeUnknown:
            call.outcome = "unknown"
        except CommitError as error:
            call.outcome = type(error).__name__
        except BaseException:
            call.outcome = "unknown"
            raise
        finally:
            del self._running[node.name]
        node.note(f"{do.name}: {call.outcome}")
        self.outcomes[f"{do.name}: {call.outcome}"] += 1
        self._judge_answer(call, value)

    # the end

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if a run that has ended is wrong; return `outcomes`.

        Pending operations are decided as they happened, and the trash can be emptied. Of the objects
        that the namespace has written, only those of files remain, and those of crashed clients.
        """
        check_ended(self.nodes)
        clock = ManualClock(epoch=EPOCH + self.simulation.now + 1e6)
        owner = self._client_without_faults(clock)
        if self.logs is not None:
            owner.maintenance.recover(older_than=0)
            self._check_log()
        tree = self.model.copy()
        owner.maintenance.empty_trash()
        clock.advance(self._grace + 1)
        collected = owner.maintenance.gc()
        assert not collected.failed
        assert self.model == tree, "emptying the trash has changed the tree"
        places = [str(item["place"]).split("/")[1:3] for item in self.table.scan()]
        left = [place for place in places if place == ["e", "trash"] or place[:1] == ["x"]]
        assert not left, "the trash is not empty"
        self._check_leftovers()
        return self.outcomes

    def _client_without_faults(self, clock: Clock) -> Namespace:
        """Return a client without faults or latencies."""
        log = None
        if self.logs is not None:
            log = self._code(OperationLog)(ConditionalStore(self.logs, clock=clock), "log", clock=clock)
        return self._code(Namespace)(
            self.table, self.store, NAME, clock=clock, log=log, grace=self._grace
        )

    def _check_leftovers(self) -> None:
        excused = any(call.outcome == "unknown" for call in self.calls) or (
            self._stored and self.simulation.injected
        )
        if excused or self._tampered:
            return
        named = {entry.data.path for entry in self.auditor._seen.values() if entry.data is not None}
        left = {info.path for info in self.store.list() if info.path.split("/")[0] not in _FOREIGN}
        assert left <= named, f"I10: no client crashed, but {sorted(left - named)} remains"


def world_of(
    programs: Mapping[str, Program],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    clocks: Mapping[str, ClockSkew] = _NONE,
    after: Mapping[str, float] = _NONE,
    restarts: Collection[str] = (),
    outcomes: Counter[str] | None = None,
    kind: type[NamespaceWorld] = NamespaceWorld,
    **options: Any,
) -> World:
    """Return a world for `explore`.

    Args:
        programs: the program of each node, by the node's name.
        simulation: makes the simulation, with its faults.
        clocks: the clocks of nodes that are not correct.
        after: the start time of each node that does not start at the beginning, in seconds.
        restarts: nodes that start their programs again after a crash.
        outcomes: a counter to which the outcomes of all completed runs are added.
        kind: the class of the world.
        options: those of `NamespaceWorld`, except `nodes`.
    """

    def start(world: NamespaceWorld, name: str) -> None:
        world.start(name, programs[name], restart=name in restarts, after=after.get(name, 0.0))

    return world_builder(
        partial(kind, known=Known(), **options),
        start,
        nodes=programs,
        simulation=simulation,
        clocks=clocks,
        outcomes=outcomes,
    )
