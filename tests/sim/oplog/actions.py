"""The actions of clients of an operation log: begin, decide, recover, compact and read.

Operations put an object. A client that recovers an operation first puts another object in its place, so
that the operation cannot be performed later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

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
from commitlog.testing.sim import Node
from sim.nodes import repeated

if TYPE_CHECKING:
    from sim.oplog.world import LogWorld

_EFFECTS = "effects/"
DONE, _FENCED = b"done", b"fenced"

#: Errors that any call may raise if requests are lost. They prove nothing about other operations.
TROUBLE: tuple[type[CommitError], ...] = (Unavailable, Conflict)


@frozen(kw_only=True)
class Client:
    """One life of a node, which its program uses.

    Attributes:
        world: the world.
        node: the node.
        store: its client of the store.
        log: its client of the log.
    """

    world: LogWorld
    node: Node
    store: ConditionalStore
    log: OperationLog

    def report(self, what: str, outcome: object = "done") -> None:
        """Record the outcome of a call."""
        result = type(outcome).__name__ if isinstance(outcome, CommitError) else str(outcome)
        self.world.outcomes[f"{what}: {result}"] += 1
        self.node.note(f"{what}: {result}")

    def check(self, what: str, operation: Operation, decision: Decision | None) -> None:
        """Check and record the decision that a call returned."""
        if decision is not None:
            self.world.truth.check(operation.id, decision)
        self.report(what, None if decision is None else decision.value)

    @contextlib.contextmanager
    def tolerate(self, what: str, *others: type[CommitError]) -> Iterator[None]:
        """Record the error of a call that fails with `TROUBLE`, an unknown outcome, or `others`."""
        try:
            yield
        except (*TROUBLE, OutcomeUnknown, *others) as error:
            self.report(what, error)


#: The code of a node. An error that a call may raise ends that call, but not the program.
Program: TypeAlias = Callable[[Client], object]


def recovery_judge(
    world: LogWorld, store: ConditionalStore, opinion: Decision
) -> Callable[[Operation], Decision | None]:
    """Return the `judge` of a recovery, which decides by the effect of an operation.

    If the effect is missing, it first makes sure that the operation cannot be performed later. In a
    world without effects it always decides `opinion`.
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
        return Decision.COMMITTED if found == DONE else Decision.ROLLED_BACK

    return judge


def run(*, seconds: float = 0.0, fails: bool = False) -> Program:
    """Run an operation that takes `seconds`; if `fails`, its block raises an error."""

    def program(client: Client) -> None:
        truth = client.world.truth
        drift = client.log.drift
        operation: Operation | None = None
        try:
            with client.log.run({}) as operation:
                assert operation.id in truth.begun
                client.world.operations[operation.id] = operation
                if seconds:
                    client.node.clock.sleep(seconds)
                if fails:
                    raise _Failure
                if client.world.effects:
                    client.store.put_if_absent(_EFFECTS + operation.id, DONE)
        except _Failure:
            client.report("run", "failed")
        except (*TROUBLE, AlreadyExists, OutcomeUnknown) as error:
            client.report("run" if operation else "begin", error)
        else:
            if client.world.effects:
                assert truth.effects[operation.id] == DONE
            if client.log.drift > drift:
                client.report("run", "drift")
            else:
                client.check("run", operation, Decision.COMMITTED)

    return program


class _Failure(Exception):
    pass


def decide_any(opinion: Decision, *, after: float = 0.0) -> Program:
    """Decide the newest operation from another process, `after` seconds after it was found."""

    def program(client: Client) -> None:
        for _ in range(10):
            if client.world.operations:
                break
            client.node.clock.sleep(1)
        else:
            return
        operation = list(client.world.operations.values())[-1]
        client.node.note(f"is handed {operation.id}")
        if after:
            client.node.clock.sleep(after)
        decision = recovery_judge(client.world, client.store, opinion)(operation)
        if decision is None:
            return
        with client.tolerate("decide", NotFound):
            client.check("decide", operation, client.log.decide(operation, decision))
        with client.tolerate("decision"):
            client.check("decision", operation, client.log.decision(operation.id))

    return program


def recover(
    opinion: Decision, *, older_than: float = 0.0, times: int = 1, every: float = 1.0
) -> Program:
    """Recover `times` times, `every` seconds."""

    def call(client: Client) -> None:
        judge = recovery_judge(client.world, client.store, opinion)
        with client.tolerate("recover"):
            for operation in client.log.recover(judge, older_than=older_than):
                client.check("recover", operation, operation.decision)

    return repeated(call, times=times, every=every)


def compact(*, times: int = 1, every: float = 1.0) -> Program:
    """Compact `times` times, `every` seconds."""

    def call(client: Client) -> None:
        with client.tolerate("compact"):
            client.report("compact", "something" if client.log.compact() else "nothing")

    return repeated(call, times=times, every=every)


def read(*, times: int = 1, every: float = 1.0) -> Program:
    """Read the history and the pending operations `times` times, `every` seconds."""

    def call(client: Client) -> None:
        truth = client.world.truth
        with client.tolerate("history"):
            for operation in client.log.history():
                client.check("history", operation, operation.decision)
        with client.tolerate("pending"):
            before = frozenset(truth.begun - truth.first.keys())
            client.node.note(f"could know {sorted(before)}")
            listed = {operation.id for operation in client.log.pending()}
            assert listed >= before - truth.first.keys()
            client.report("pending", "some" if listed else "none")

    return repeated(call, times=times, every=every)
