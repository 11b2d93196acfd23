"""Worlds for tests of operation logs on the simulator: who begins, decides, recovers, compacts and asks.

A `LogWorld` has one log, whose server is watched, and any number of nodes that run programs (`run`,
`decide_any`, `recover`, …). What somebody is told of an operation is checked at once against what was
decided first, and against what it was to change: operations put an object, and who recovers them puts
another one in its place first, so that they cannot be performed any more.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from attrs import define, field, frozen

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import PutResult
from commitlog.stores.body import Body, chunks
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from commitlog.testing.sim import Choices, Node, SimulatedStore, Simulation, World, store_state
from sim.nodes import ClockSkew, fixed_backoff

#: What any call may raise in a world where requests are lost: nothing follows from it.
TROUBLE: tuple[type[CommitError], ...] = (Unavailable, Conflict)

_PENDING, _DECIDED, _EFFECTS = "log/pending/", "log/decided/", "effects/"
_DONE, _FENCED = b"done", b"fenced"


@define
class LogTruth:
    """What became of each operation.

    Attributes:
        pending: what has a pending entry.
        begun: what ever had one.
        first: the decision that was stored first.
        stored: the decision that is stored now.
        effects: what each operation was to change: whether it did, or is kept from it.
    """

    pending: set[str] = field(factory=set)
    begun: set[str] = field(factory=set)
    first: dict[str, Decision] = field(factory=dict)
    stored: dict[str, Decision] = field(factory=dict)
    effects: dict[str, bytes] = field(factory=dict)

    def learn(self, id: str, decision: Decision) -> None:
        """Somebody is told that the operation was decided so."""
        assert id in self.first, f"{id} is not decided, and somebody is told {decision}"
        assert self.first[id] is decision, f"{id} was {self.first[id]}, and somebody is told {decision}"

    def state(self) -> Hashable:
        """Return what does not follow from the content of the store."""
        return frozenset(self.begun), frozenset((id, word.value) for id, word in self.first.items())

    # told by the store, after each mutation

    def put(self, path: str, data: bytes) -> None:
        """An object was put."""
        id = path.rpartition("/")[2].removesuffix(".json")
        if path.startswith(_PENDING):
            assert id not in self.pending, f"{path} was replaced"
            self.begun.add(id)
            self.pending.add(id)
        elif path.startswith(_DECIDED):
            assert id in self.begun, f"{id} is decided, and was not begun"
            decision = Decision(json.loads(data)["decision"])
            assert self.stored.setdefault(id, decision) is decision, f"{path} was replaced"
            self.first.setdefault(id, decision)
        else:
            assert id not in self.effects, f"{path} was replaced"
            assert id in self.begun, f"{id} is performed, and was not begun"
            self.effects[id] = data

    def deleted(self, path: str) -> None:
        """An object that was there was deleted."""
        id = path.rpartition("/")[2].removesuffix(".json")
        if path.startswith(_PENDING):
            assert id in self.first, f"{path} was deleted before the operation was decided"
            self.pending.remove(id)
        else:
            assert path.startswith(_DECIDED), f"{path} was deleted"
            assert id not in self.pending, f"{path} was deleted before its pending entry was"
            del self.stored[id]


class _WatchedStore(MemoryStore):
    def __init__(self, *, clock: Clock, new_id: Callable[[], str]) -> None:
        super().__init__(clock=clock, new_id=new_id)
        self.truth = LogTruth()

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        data = b"".join(chunks(body))
        result = super().put(path, data, **options)
        self.truth.put(path, data)
        return result

    def delete(self, path: str, **options: Any) -> None:
        was_there = self.begin_head(path)().info is not None
        super().delete(path, **options)
        if was_there:
            self.truth.deleted(path)

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        for path in paths:
            self.delete(path)
        return {}


class LogWorld:
    """One log, and nodes that work on it.

    Args:
        simulation: where it all happens.
        nodes: the clock of each node, by name.
        settle: that of the log, in seconds.
        effects: whether operations change something that tells what became of them; then all who decide
            go by that, and else by what they like.
        backoff: how the node of that name backs off.
        connect: makes a log, such as a mutated one, with the arguments of `OperationLog`.

    Attributes:
        truth: what is so.
        begun: the operations that were begun, as they travel between processes.
        outcomes: how often was told what.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        settle: float = 20.0,
        effects: bool = False,
        backoff: Callable[[str], Backoff] = fixed_backoff,
        connect: Callable[..., OperationLog] = OperationLog,
    ) -> None:
        self.simulation = simulation
        self.settle = settle
        self.effects = effects
        self.outcomes: Counter[str] = Counter()
        self.begun: dict[str, Operation] = {}
        self._server = _WatchedStore(clock=simulation.server_clock(), new_id=simulation.new_id)
        self.truth: LogTruth = self._server.truth
        self._backoff = backoff
        self._connect = connect
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=ticks.rate, offset=ticks.offset)
            for name, ticks in nodes.items()
        }
        simulation.add_state(store_state(self._server))
        simulation.add_state(self.truth.state)
        simulation.add_state(lambda: tuple(self.begun))

    def start(self, name: str, program: Program, **options: Any) -> None:
        """Let a program run on the node of that name, and anew if it dies and `restart`.

        Other options are those of `Node.start`.
        """
        node = self.nodes[name]
        restart = options.pop("restart", False)

        def live() -> None:
            store = ConditionalStore(
                SimulatedStore(node, self._server),
                clock=node.clock,
                backoff=self._backoff(name),
                new_id=node.new_id,
            )
            log = self._connect(
                store, "log", clock=node.clock, retention=self.settle, new_id=node.new_id
            )
            program(Client(world=self, node=node, store=store, log=log))

        node.start(live, restart=live if restart else None, **options)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if something is wrong in a run that has ended; return `outcomes`.

        What is decided agrees with what was decided first. After one recovery without faults everything
        is decided, and agrees with what was changed; in the end it can all be forgotten.
        """
        stuck = [name for name, node in self.nodes.items() if node.running]
        assert not stuck, f"the programs of {stuck} wait for nothing"
        truth, clock = self.truth, ManualClock()
        store = ConditionalStore(self._server, clock=clock)
        log = OperationLog(store, "log", clock=clock, retention=self.settle)
        undecided = truth.pending - truth.first.keys()
        decided = log.recover(judge_of(self, store, Decision.ROLLED_BACK), older_than=0)
        assert undecided <= {operation.id for operation in decided}
        for operation in (*decided, *log.history()):
            assert operation.decision
            truth.learn(operation.id, operation.decision)
        assert truth.pending <= truth.first.keys()
        if self.effects:
            for id, decision in truth.first.items():
                done = truth.effects.get(id) == _DONE
                assert done == (decision is Decision.COMMITTED), f"{id} is {decision}, done: {done}"
        for _ in range(2):
            self.simulation.time.now += 2 * self.settle
            log.compact()
        assert not truth.pending and not truth.stored
        return self.outcomes


@frozen(kw_only=True)
class Client:
    """One life of a node: what its program works with.

    Attributes:
        world: where it lives.
        node: the node.
        store: its own view of the store.
        log: its own view of the log.
    """

    world: LogWorld
    node: Node
    store: ConditionalStore
    log: OperationLog

    def tell(self, what: str, outcome: object = "done") -> None:
        """Note what a call came to."""
        came_to = type(outcome).__name__ if isinstance(outcome, CommitError) else str(outcome)
        self.world.outcomes[f"{what}: {came_to}"] += 1
        self.node.note(f"{what}: {came_to}")

    def learn(self, what: str, operation: Operation, decision: Decision | None) -> None:
        """Note what was told of an operation, and check it."""
        if decision is not None:
            self.world.truth.learn(operation.id, decision)
        self.tell(what, None if decision is None else decision.value)

    @contextlib.contextmanager
    def trouble(self, what: str, *others: type[CommitError]) -> Iterator[None]:
        """End a call that fails as any call may, or by `others`; nothing follows from that."""
        try:
            yield
        except (*TROUBLE, OutcomeUnknown, *others) as error:
            self.tell(what, error)


#: What a node does. An error that a call may raise ends that call, and is no error of the program.
Program: TypeAlias = Callable[[Client], object]


def judge_of(
    world: LogWorld, store: ConditionalStore, opinion: Decision
) -> Callable[[Operation], Decision | None]:
    """Return a judge that goes by what an operation was to change, or else is of that `opinion`.

    It sees to it first that what was not performed never will be.
    """

    def judge(operation: Operation) -> Decision | None:
        if not world.effects:
            return opinion
        path = _EFFECTS + operation.id
        try:
            store.put_if_absent(path, _FENCED)
        except (AlreadyExists, OutcomeUnknown):
            pass
        except TROUBLE:
            return None
        try:
            found = store.get(path).data
        except (NotFound, *TROUBLE):
            return None
        return Decision.COMMITTED if found == _DONE else Decision.ROLLED_BACK

    return judge


def run(*, seconds: float = 0.0, fails: bool = False) -> Program:
    """Run an operation that takes so many seconds, and `fails` or not."""

    def program(client: Client) -> None:
        truth = client.world.truth
        drift = client.log.drift
        operation: Operation | None = None
        try:
            with client.log.run({}) as operation:
                assert operation.id in truth.begun
                client.world.begun[operation.id] = operation
                if seconds:
                    client.node.clock.sleep(seconds)
                if fails:
                    raise _Failure
                if client.world.effects:
                    client.store.put_if_absent(_EFFECTS + operation.id, _DONE)
        except _Failure:
            client.tell("run", "failed")
        except (*TROUBLE, AlreadyExists, OutcomeUnknown) as error:
            client.tell("run" if operation else "begin", error)
        else:
            if client.world.effects:
                assert truth.effects[operation.id] == _DONE
            if client.log.drift > drift:
                client.tell("run", "drift")
            else:
                client.learn("run", operation, Decision.COMMITTED)

    return program


class _Failure(Exception):
    pass


def decide_any(opinion: Decision, *, after: float = 0.0) -> Program:
    """Decide, from another process, the operation that was begun last, so many seconds later."""

    def program(client: Client) -> None:
        for _ in range(10):
            if client.world.begun:
                break
            client.node.clock.sleep(1)
        else:
            return
        operation = list(client.world.begun.values())[-1]
        client.node.note(f"is handed {operation.id}")
        if after:
            client.node.clock.sleep(after)
        decision = judge_of(client.world, client.store, opinion)(operation)
        if decision is None:
            return
        with client.trouble("decide", NotFound):
            client.learn("decide", operation, client.log.decide(operation, decision))
        with client.trouble("decision"):
            client.learn("decision", operation, client.log.decision(operation.id))

    return program


def recover(
    opinion: Decision, *, older_than: float = 0.0, times: int = 1, every: float = 1.0
) -> Program:
    """Recover, `times` times, `every` so many seconds."""

    def call(client: Client) -> None:
        judge = judge_of(client.world, client.store, opinion)
        with client.trouble("recover"):
            for operation in client.log.recover(judge, older_than=older_than):
                client.learn("recover", operation, operation.decision)

    return _repeated(call, times, every)


def compact(*, times: int = 1, every: float = 1.0) -> Program:
    """Compact, `times` times, `every` so many seconds."""

    def call(client: Client) -> None:
        with client.trouble("compact"):
            client.tell("compact", "something" if client.log.compact() else "nothing")

    return _repeated(call, times, every)


def ask(*, times: int = 1, every: float = 1.0) -> Program:
    """Read the history and what is pending, `times` times, `every` so many seconds."""

    def call(client: Client) -> None:
        truth = client.world.truth
        with client.trouble("history"):
            for operation in client.log.history():
                client.learn("history", operation, operation.decision)
        with client.trouble("pending"):
            before = frozenset(truth.begun - truth.first.keys())
            client.node.note(f"could know {sorted(before)}")
            listed = {operation.id for operation in client.log.pending()}
            assert listed >= before - truth.first.keys()
            client.tell("pending", "some" if listed else "none")

    return _repeated(call, times, every)


def _repeated(call: Callable[[Client], object], times: int, every: float) -> Program:
    def program(client: Client) -> None:
        for number in range(times):
            if number:
                client.node.clock.sleep(every)
            call(client)

    return program


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
    after: Mapping[str, float] | None = None,
    outcomes: Counter[str] | None = None,
    **options: Any,
) -> World:
    """Return what `explore` builds worlds with.

    Args:
        programs: what the node of each name does.
        simulation: makes the simulation, with what faults there are to be.
        after: when the node of that name starts, if it is not at the beginning.
        outcomes: where to add up what was told in the runs that came to their end.
        options: those of `LogWorld`, other than its nodes.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        world = LogWorld(simulation(choices), nodes=dict.fromkeys(programs, ClockSkew()), **options)
        for name, program in programs.items():
            world.start(name, program, after=(after or {}).get(name, 0.0))

        def judge() -> None:
            told = world.judge()
            if outcomes is not None:
                outcomes.update(told)

        return world.simulation, judge

    return build
