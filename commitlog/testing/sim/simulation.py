"""The simulator: nodes that run one at a time, requests on their way, and a time that jumps.

Every node is a greenlet that runs ordinary synchronous code on simulated ports (`SimulatedStore`,
`SimulatedTable`, its clock). A port call stops the node and puts an event into the one queue; the
scheduler takes the earliest event, performs it, and lets the node run on that it concerns. Whatever
could go otherwise (which of several events of one moment comes first, how long a request travels, what
goes wrong) is asked of one `Choices`. So the same choices give the same trace, bit for bit.

Time passes only from event to event. A node computes in no time at all, unless it is paused.

Imports greenlet and its siblings.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

from commitlog.testing.sim.choices import Choices
from commitlog.testing.sim.clock import SimulatedClock, TrueTime
from commitlog.testing.sim.faults import Fault, Faults

__all__ = ["Crashed", "Node", "NodeClock", "Simulation", "Stuck"]

T = TypeVar("T")

#: Faults that have a length.
_LENGTHY = (Fault.DELAYED, Fault.DUPLICATED, Fault.PAUSED)
_SWEEPS = (Fault.SWEPT,)


class Crashed(BaseException):
    """What ends the code of a node that dies. Not an `Exception`, so nobody recovers from it."""


class Stuck(AssertionError):
    """A run went on for more steps than it was given: some node does not finish."""


class _Event(NamedTuple):
    """What is going to happen. No two have the same `order`, so nothing beyond it is ever compared."""

    at: float
    order: int
    name: str
    action: Callable[[], None]


class Simulation:
    """One world, with its time, its nodes and its misfortunes. For one run; not thread-safe.

    Args:
        choices: decides what is open.
        faults: what goes wrong.
        latencies: times that a request travels, in seconds of true time, each as likely as the others.
            One alone leaves nothing to chance but the order of what happens at one moment.
        patience: for how many seconds of its own clock a node waits for an answer that does not come.

    Use it as a context manager, or call `close`: it ends what nodes are left in the middle of.

    >>> from commitlog.testing.sim.choices import Seeded
    >>> with Simulation(Seeded(1)) as simulation:
    ...     node = simulation.node("A")
    ...     node.start(lambda: node.clock.sleep(5))
    ...     simulation.run()
    ...     simulation.now
    5.0
    """

    def __init__(
        self,
        choices: Choices,
        *,
        faults: Faults | None = None,
        latencies: tuple[float, ...] = (0.0,),
        patience: float = 2.0,
    ) -> None:
        self.time = TrueTime()
        self.patience = patience
        #: What happened, a line each. Empty while `tracing` is false.
        self.trace: list[str] = []
        #: Whether to write the trace. Without it a run takes the same course in less time, and `state`
        #: cannot be used.
        self.tracing = True
        #: How often each fault happened.
        self.injected: Counter[Fault] = Counter()
        #: How many events there were.
        self.steps = 0
        #: Called before each step; may raise to break the run off.
        self.watch: Callable[[], None] | None = None
        self._choices = choices
        self._faults = Faults() if faults is None else faults
        self._forced = {(forced.where, forced.nth): forced for forced in self._faults.forced}
        self._sweeps = bool(self._faults.rates.get(Fault.SWEPT)) or any(
            forced.fault is Fault.SWEPT for forced in self._faults.forced
        )
        self._odds: dict[tuple[Fault, ...], tuple[tuple[Fault, ...], tuple[float, ...]]] = {}
        self._evenly = [(1.0,) * count for count in range(8)]
        self._latencies = latencies
        self._events: list[_Event] = []
        self._ticks = 0
        self._chosen = 0  # faults that count towards `Faults.most`
        self._visits: Counter[str] = Counter()
        self._nodes: dict[str, Node] = {}
        self._parts: list[Callable[[], Hashable]] = []
        self._sweepers: list[tuple[Callable[[], bool], Callable[[], object]]] = []
        self._performing = "nobody"
        self._effects = 0

    @property
    def now(self) -> float:
        """Seconds of true time since the beginning."""
        return self.time.now

    def tick(self) -> int:
        """Return a number larger than all before: the order of what happens, finer than time."""
        self._ticks += 1
        return self._ticks

    # building the world

    def node(self, name: str, *, rate: float = 1.0, offset: float = 0.0) -> Node:
        """Add a node, whose clock counts `rate` seconds a true second, and is `offset` seconds ahead."""
        if name in self._nodes:
            raise ValueError(f"there is a node {name!r} already")
        self._nodes[name] = Node(self, name, rate=rate, offset=offset)
        return self._nodes[name]

    def server_clock(self, *, rate: float = 1.0, offset: float = 0.0) -> SimulatedClock:
        """Return a clock for a server."""
        return SimulatedClock(self.time, rate=rate, offset=offset)

    def server_word(self) -> str:
        """Return a word for a server to name what it stores by: after the request that it performs."""
        self._effects += 1
        return f"{self._performing}.{self._effects}"

    def add_state(self, part: Callable[[], Hashable]) -> None:
        """Let `part` contribute to `state`: what a server holds."""
        self._parts.append(part)

    def add_sweeper(self, due: Callable[[], bool], sweep: Callable[[], object]) -> None:
        """Let `sweep` drop expired items at any moment at which `due`, if faults have it so."""
        self._sweepers.append((due, sweep))

    # running it

    def run(self, *, until: float = math.inf, steps: int = 100_000) -> None:
        """Let things happen until nothing is left to happen.

        Args:
            until: moment of true time at which to stop.
            steps: most steps; `Stuck` is raised after so many.

        Raises what a node's program raises, other than `Crashed`.
        """
        while self._events and self._events[0].at <= until:
            steps -= 1
            if steps < 0:
                raise Stuck(f"still busy after all steps, at {self.now} s; next: {self._events[0].name}")
            if self.watch is not None:
                self.watch()
            if self._sweeps:
                self._sweep()
            events = self._events
            same, first = 1, events[0].at
            while same < len(events) and events[same].at == first:
                same += 1
            at = 0 if same == 1 else self.pick(f"before {events[0].name}", self._even(same))
            event = events.pop(at)
            self.steps += 1
            if event.at > self.time.now:
                self.time.now = event.at
            event.action()

    def state(self) -> Hashable:
        """Return all that the future depends on, between two steps, as far as it can matter.

        The code of a node is a function of what it was answered, so its past stands for its variables.
        """
        return (
            self.now,
            self._chosen,
            tuple(node.past for node in self._nodes.values()),
            tuple(sorted((event.at, event.name) for event in self._events)),
            tuple(part() for part in self._parts),
        )

    def close(self) -> None:
        """End all nodes. Idempotent."""
        for node in self._nodes.values():
            node.kill()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # for nodes and ports

    def pick(self, what: str, weights: Sequence[float]) -> int:
        """Decide between alternatives; without asking if there is one alone."""
        return 0 if len(weights) == 1 else self._choices.pick(what, weights)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self.tracing:
            self.trace.append(f"{self.now:9.3f}  {text}")

    def after(self, seconds: float, name: str, action: Callable[[], None]) -> None:
        """Put an event into the queue, `seconds` of true time from now."""
        self._ticks += 1
        insort(self._events, _Event(round(self.time.now + seconds, 9), self._ticks, name, action))

    def latency(self, node: str) -> float:
        """Return how long the next request or answer of a node travels."""
        latencies = self._latencies
        if len(latencies) == 1:
            return latencies[0]
        return latencies[self.pick(f"{node} latency", self._even(len(latencies)))]

    def fate(self, where: str, possible: tuple[Fault, ...]) -> tuple[Fault | None, float]:
        """Decide what goes wrong at a point, and for how many seconds of true time."""
        if self._forced:
            self._visits[where] += 1
            forced = self._forced.get((where, self._visits[where]))
            if forced is not None and forced.fault in possible:
                self.injected[forced.fault] += 1
                return forced.fault, forced.seconds
        fault = self._strikes(where, possible)
        if fault in _LENGTHY:
            delays = self._faults.delays
            return fault, delays[self.pick(f"{where}: how long", self._even(len(delays)))]
        return fault, 0.0

    def perform(self, name: str, action: Callable[[], T]) -> T:
        """Perform a request of that name on a server."""
        self._performing, self._effects = name, 0
        return action()

    # inside

    def _even(self, count: int) -> Sequence[float]:
        """Return equal weights."""
        return self._evenly[count] if count < len(self._evenly) else (1.0,) * count

    def _sweep(self) -> None:
        for due, sweep in self._sweepers:
            faults = self._faults
            over = self._chosen == faults.most or self.time.now >= faults.until
            if over and not self._forced:
                continue
            if due() and self.fate("table sweep", _SWEEPS)[0]:
                sweep()
                self.note("the table drops what has expired")

    def _strikes(self, where: str, possible: tuple[Fault, ...]) -> Fault | None:
        faults = self._faults
        odds = self._odds.get(possible)
        if odds is None:
            odds = self._odds[possible] = _odds(faults.rates, possible)
        candidates, weights = odds
        if not candidates or self._chosen == faults.most or self.time.now >= faults.until:
            return None
        at = self.pick(where, weights)
        if at == 0:
            return None
        self._chosen += 1
        self.injected[candidates[at - 1]] += 1
        return candidates[at - 1]


def _odds(
    rates: Mapping[Fault, float], possible: tuple[Fault, ...]
) -> tuple[tuple[Fault, ...], tuple[float, ...]]:
    """Return which faults may happen at a point, and the weights of none and of each."""
    candidates = tuple(fault for fault in possible if rates.get(fault))
    weights = [rates[fault] for fault in candidates]
    return candidates, (max(0.0, 1.0 - sum(weights)), *weights)


class Node:
    """A process in the simulated world: a name, a clock, and code that runs until it ends or dies.

    Made by `Simulation.node`.

    Attributes:
        name: what the trace calls it.
        clock: its own.
        past: stands for all that its code has experienced, see `Simulation.state`.
        crashes: how often it died.
    """

    def __init__(self, simulation: Simulation, name: str, *, rate: float, offset: float) -> None:
        self.simulation = simulation
        self.name = name
        self.clock = NodeClock(self, rate=rate, offset=offset)
        self.past = 0
        self.crashes = 0
        self._greenlet: greenlet | None = None
        self._awaited: object = None
        self._words = 0
        self._requests = 0
        self._points = 0  # scheduling points that were passed

    @property
    def running(self) -> bool:
        """True from the moment at which its program was started until it ended or died."""
        return self._greenlet is not None and not self._greenlet.dead

    def start(
        self,
        program: Callable[[], object],
        *,
        after: float = 0.0,
        restart: Callable[[], object] | None = None,
        restart_after: float = 1.0,
    ) -> None:
        """Let `program` run on this node.

        Args:
            program: ordinary code that uses the node's clock and ports.
            after: seconds of true time until it starts.
            restart: what runs if it dies (and if that dies, again); None: nothing.
            restart_after: seconds of true time between death and restart.
        """

        def live() -> None:
            crashes = self.crashes
            try:
                program()
                self.note("ends")
            except Crashed:
                if restart is not None and self.crashes > crashes:
                    self.start(
                        restart, after=restart_after, restart=restart, restart_after=restart_after
                    )

        def begin() -> None:
            self._greenlet = greenlet(live)
            self.note("starts")
            self._greenlet.switch()

        self.simulation.after(after, f"{self.name} starts", begin)

    def word(self) -> str:
        """Return a word that no other call returns, in any node."""
        self._words += 1
        return f"{self.name}-{self._words}"

    def note(self, text: str) -> None:
        """Add a line to the trace, and to the node's past."""
        simulation = self.simulation
        if simulation.tracing:
            self.past = hash((self.past, simulation.now, text))
            simulation.note(f"{self.name} {text}")

    def kill(self) -> None:
        """End the program, from outside, without a restart. Idempotent."""
        if self.running:
            assert self._greenlet is not None
            doomed, self._greenlet = self._greenlet, None
            doomed.throw(Crashed())

    # for ports and the clock

    def point(self, what: str, possible: tuple[Fault, ...]) -> tuple[Fault | None, float]:
        """Pass a scheduling point: be paused or die here, or return what else goes wrong."""
        if self._greenlet is None or getcurrent() is not self._greenlet:
            raise Crashed  # the code of a dead process is being unwound
        fault, seconds = self.simulation.fate(f"{self.name} {what}", possible)
        self._points += 1
        if fault is Fault.PAUSED:
            # Of several readings of the clock at one moment, the code knows which one came after it.
            self.past = hash((self.past, self._points))
            self.note(f"is paused before {what} for {seconds:g} s")
            self.rest(seconds)
            return None, 0.0
        if fault is Fault.CRASHED:
            self.note(f"dies before {what}")
            self.crashes += 1
            self._greenlet = None
            raise Crashed
        return fault, seconds

    def rest(self, seconds: float) -> None:
        """Stand still for so many seconds of true time."""
        token = object()
        self.simulation.after(seconds, f"{self.name} goes on", lambda: self._wake(token))
        self.wait_for(token)

    def wait_for(self, awaited: object) -> None:
        """Stop until `go_on` is called with the same object."""
        self._awaited = awaited
        hub = getcurrent().parent
        assert hub is not None
        hub.switch()

    def go_on(self, awaited: object) -> None:
        """Let the node run, if that is what it waits for."""
        if self._greenlet is not None and self._awaited is awaited:
            self._awaited = None
            self._greenlet.switch()

    def next_request(self) -> str:
        """Return the name of the next request."""
        self._requests += 1
        return f"{self.name}{self._requests}"

    def _wake(self, token: object) -> None:
        if self._awaited is token:
            self.note("goes on")
            self.go_on(token)


class NodeClock(SimulatedClock):
    """The clock of a node. Every reading is a point at which the node may be paused."""

    def __init__(self, node: Node, *, rate: float, offset: float) -> None:
        super().__init__(node.simulation.time, rate=rate, offset=offset)
        self._node = node

    def monotonic(self) -> float:
        """Seconds since the beginning, as this clock counts."""
        self._node.point("clock", (Fault.PAUSED,))
        return super().monotonic()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass on this clock, and others run."""
        self._node.point("sleep", (Fault.CRASHED,))
        if seconds > 0:
            self._node.rest(seconds / self.rate)
