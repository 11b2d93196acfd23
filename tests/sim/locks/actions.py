"""The actions of clients of a lock: hold it, increment a fenced counter, break it, remove its record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

from commitlog.errors import (
    CommitError,
    Conflict,
    LockLost,
    LockNotHeld,
    OutcomeUnknown,
    PreconditionFailed,
    StaleToken,
    Unavailable,
)
from commitlog.locks import FencedStore
from commitlog.testing.sim import Crashed, Node

if TYPE_CHECKING:
    from sim.locks.world import LockWorld

__all__ = ["COUNTER", "Client", "Program", "break_lock", "hold", "jump", "remove_record"]

#: The path of the fenced object.
COUNTER = "counter"

#: Errors that any call may raise if requests are lost.
_TROUBLE: tuple[type[CommitError], ...] = (Unavailable, Conflict, OutcomeUnknown)


@frozen(kw_only=True)
class Client:
    """One life of a node, which its program uses.

    Attributes:
        world: the world.
        node: the node.
        name: the name of this life, which describes it as a holder.
        lock: its `Lock`, or `Semaphore`.
        fenced: its client of the fenced object.
    """

    world: LockWorld
    node: Node
    name: str
    lock: Any
    fenced: FencedStore

    def report(self, what: str, outcome: object = "done") -> None:
        """Record the outcome of a call."""
        result = type(outcome).__name__ if isinstance(outcome, CommitError) else str(outcome)
        self.world.outcomes[f"{what}: {result}"] += 1
        self.node.note(f"{what}: {result}")

    @contextlib.contextmanager
    def tolerate(self, what: str, *others: type[CommitError]) -> Iterator[None]:
        """Record the error of a call that fails because of faults, or with `others`."""
        try:
            yield
        except (*_TROUBLE, *others) as error:
            self.report(what, error)

    def acquire(self, *, tries: int = 1, **options: Any) -> bool:
        """Acquire the lock, and let the judge know. Try again after an unknown outcome."""
        truth = self.world.truth
        for _ in range(tries):
            others = truth.others(self.name)
            try:
                held = self.lock.acquire(**options)
            except _TROUBLE as error:
                self.report("acquire", error)
                continue
            if held:
                self.note_token()
                self.note_hold("acquire")
                return True
            assert others or truth.others(self.name), "refused, though nobody else ever held it"
            self.report("acquire", "refused")
        return False

    def note_token(self) -> None:
        """Let the judge know the token of a hold that has begun."""
        with contextlib.suppress(LockLost):
            self.world.truth.begin(self.lock.slot, self.lock.token)

    def note_hold(self, what: str) -> None:
        """Let the judge know until when this client holds the lock."""
        try:
            expires = self.lock.expires
        except LockLost:
            self.world.truth.stop(self.name)
            self.report(what, "lost")
            return
        now = self.world.simulation.now
        self.world.truth.hold(self.name, until=expires / self.node.clock.rate, now=now)
        self.report(what, "held")

    def release(self) -> None:
        """Release the lock, and let the judge know."""
        self.world.truth.stop(self.name)
        try:
            self.lock.release()
        except LockLost as error:
            self.report("release", error)
        else:
            self.report("release")

    def increment(self, work: float) -> None:
        """Increment the fenced counter under the lock, with `work` seconds between read and write."""
        truth = self.world.truth
        try:
            token = self.lock.token
            seen = self.fenced.claim(COUNTER, token=token)
            self.node.clock.sleep(work)
            self.fenced.put(COUNTER, b"%d" % (int(seen.data) + 1), token=token)
        except (StaleToken, LockNotHeld) as error:
            self.report("increment", error)
        except OutcomeUnknown as error:
            truth.unknown += 1
            self.report("increment", error)
        except (Unavailable, Conflict, PreconditionFailed) as error:
            self.report("increment", error)
        except Crashed:
            truth.unknown += 1
            raise
        else:
            truth.done += 1
            self.report("increment")


#: The code of a node.
Program: TypeAlias = Callable[[Client], object]


def hold(
    *,
    beats: int = 0,
    every: float = 1.0,
    rest: float = 0.0,
    increments: int = 0,
    work: float = 0.0,
    tries: int = 1,
    releases: bool = True,
    **options: Any,
) -> Program:
    """Acquire the lock, keep it, and release it.

    Args:
        beats, every: the number of heartbeats, and the seconds before each of them.
        rest: the seconds without a heartbeat after them.
        increments: increments of the counter, after that.
        work: seconds between the read and the write of each of them.
        tries: attempts to acquire the lock.
        releases: whether it is released; otherwise the holder is as good as dead.
        options: those of `Lock.acquire`.
    """

    def program(client: Client) -> None:
        client.world.truth.stop(client.name)
        with contextlib.suppress(LockNotHeld):  # an earlier program of this client may have kept it
            client.lock.release()
        if not client.acquire(tries=tries, **options):
            return
        for _ in range(beats):
            client.node.clock.sleep(every)
            if client.lock.renew():
                client.note_hold("heartbeat")
            else:
                client.world.truth.stop(client.name)
                client.report("heartbeat", "lost")
        if rest:
            client.node.clock.sleep(rest)
            if client.lock.held:
                client.note_hold("rest")
        for _ in range(increments):
            client.increment(work)
        if releases:
            client.release()

    return program


def break_lock(*, after: float = 0.0, wait: bool = True) -> Program:
    """Break the lock of whoever holds it after some seconds."""

    def program(client: Client) -> None:
        client.node.clock.sleep(after)
        with client.tolerate("break"):
            for holder in client.lock.holders():
                broken = client.lock.break_holder(holder.token, wait=wait)
                client.report("break", "done" if broken else "needless")

    return program


def remove_record(*, after: float = 0.0) -> Program:
    """Remove all records of the lock after some seconds, as an operator might by mistake."""

    def program(client: Client) -> None:
        client.node.clock.sleep(after)
        client.world.remove_records()
        client.node.note("removes the record")

    return program


def jump(seconds: float, *, after: float = 0.0) -> Program:
    """Set the node's wall clock after some seconds."""

    def program(client: Client) -> None:
        client.node.clock.sleep(after)
        client.node.clock.set_forward(seconds)
        client.node.note(f"sets its wall clock by {seconds:g} s")

    return program
