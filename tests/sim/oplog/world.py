"""Worlds of operation logs.

A `LogWorld` has one log, and any number of nodes that run programs of `sim.oplog.actions`.
`sim.oplog.judge` follows the mutations of its store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.testing import ManualClock
from commitlog.testing.sim import Choices, Node, SimulatedStore, Simulation, World, store_state
from sim.nodes import ClockSkew, check_ended, fixed_backoff, start_lives, world_builder
from sim.oplog.actions import DONE, Client, Program, recovery_judge
from sim.oplog.judge import LogTruth, WatchedStore


class LogWorld:
    """One log, and nodes that use it.

    Args:
        simulation: the simulation, with its faults and latencies.
        nodes: the clock of each node, by the node's name.
        retention: the retention of the log in seconds.
        effects: whether operations have an effect, which decides the outcome of a recovery.
        backoff: returns the retry policy of a node, given its name.
        connect: makes a log, such as a mutated one, with the arguments of `OperationLog`.

    Attributes:
        truth: the true state of the operations.
        operations: the operations that were begun, as other processes know them.
        outcomes: the number of calls with each outcome.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        retention: float = 20.0,
        effects: bool = False,
        backoff: Callable[[str], Backoff] = fixed_backoff,
        connect: Callable[..., OperationLog] = OperationLog,
    ) -> None:
        self.simulation = simulation
        self.retention = retention
        self.effects = effects
        self.outcomes: Counter[str] = Counter()
        self.operations: dict[str, Operation] = {}
        self._server = WatchedStore(clock=simulation.server_clock(), new_id=simulation.new_id)
        self.truth: LogTruth = self._server.truth
        self._backoff = backoff
        self._connect = connect
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=skew.rate, offset=skew.offset)
            for name, skew in nodes.items()
        }
        simulation.add_state(store_state(self._server))
        simulation.add_state(self.truth.state)
        simulation.add_state(lambda: tuple(self.operations))

    def start(self, name: str, program: Program, *, restart: bool = False, **options: Any) -> None:
        """Start a program on the node of that name; with `restart`, start it again after a crash.

        Other options are those of `sim.nodes.start_lives`.
        """
        again = program if restart else None
        start_lives(self.nodes[name], partial(self._client, name), program, restart=again, **options)

    def _client(self, name: str) -> Client:
        node = self.nodes[name]
        store = ConditionalStore(
            SimulatedStore(node, self._server),
            clock=node.clock,
            backoff=self._backoff(name),
            new_id=node.new_id,
        )
        log = self._connect(store, "log", clock=node.clock, retention=self.retention, new_id=node.new_id)
        return Client(world=self, node=node, store=store, log=log)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if a run that has ended is wrong; return `outcomes`.

        Each stored decision is the first one. After a recovery without faults, every operation is
        decided in agreement with its effect. Then compactions forget all of them.
        """
        check_ended(self.nodes)
        truth, clock = self.truth, ManualClock()
        store = ConditionalStore(self._server, clock=clock)
        log = OperationLog(store, "log", clock=clock, retention=self.retention)
        undecided = truth.pending - truth.first.keys()
        decided = log.recover(recovery_judge(self, store, Decision.ROLLED_BACK), older_than=0)
        assert undecided <= {operation.id for operation in decided}
        for operation in (*decided, *log.history()):
            assert operation.decision
            truth.check(operation.id, operation.decision)
        assert truth.pending <= truth.first.keys()
        if self.effects:
            for id, decision in truth.first.items():
                done = truth.effects.get(id) == DONE
                assert done == (decision is Decision.COMMITTED), f"{id} is {decision}, done: {done}"
        for _ in range(2):
            self.simulation.time.now += 2 * self.retention
            log.compact()
        assert not truth.pending and not truth.stored
        return self.outcomes


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
        options: those of `LogWorld`, except `nodes`.
    """

    return world_builder(
        partial(LogWorld, **options),
        lambda world, name: world.start(name, programs[name], after=(after or {}).get(name, 0.0)),
        nodes=programs,
        simulation=simulation,
        outcomes=outcomes,
    )
