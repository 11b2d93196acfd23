"""The simulator: nodes that run one at a time, an event queue, and simulated time.

Every node is a greenlet that runs ordinary synchronous code on simulated ports (`SimulatedStore`,
`SimulatedTable`, its clock). A port call suspends the node and adds an event to the only queue. The
scheduler takes the earliest event, performs it, and resumes the node that waits for it. One `Choices`
makes every decision: the order of simultaneous events, the travel times of requests, and the faults. So
the same choices give the same trace, bit for bit.

Time passes only from event to event. The code of a node takes no time, unless the node is paused.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from greenlet import getcurrent, greenlet

from commitlog.testing.clock import SimulatedClock, TrueTime
from commitlog.testing.sim.choices import Choices
from commitlog.testing.sim.faults import Fault, Faults

__all__ = ["Crashed", "Node", "NodeClock", "Simulation", "Stuck"]

T = TypeVar("T")

#: Faults with a duration.
_LENGTHY = (Fault.DELAYED, Fault.DUPLICATED, Fault.PAUSED)
_SWEEPS = (Fault.SWEPT,)
_NOTHING = (None, 0.0)
#: Faults of a node: at a reading of its clock, and before a sleep.
_AT_CLOCK = (Fault.PAUSED,)
_AT_SLEEP = (Fault.CRASHED,)


class Crashed(BaseException):
    """The exception that ends the code of a crashed node. Handlers of `Exception` do not catch it."""


class Stuck(AssertionError):
    """The error of a run that exceeds its limit of steps: some node does not finish."""


#: The name of an event, or its parts: a request or node, its action, and the seconds until its answer,
#: if they are known. The parts save time, because few names are needed.
Label: TypeAlias = str | tuple[str, str, float | None]

#: An event: its time, its order, its label, and the action. The order is unique, so comparisons never
#: reach the label.
_Event: TypeAlias = tuple[float, int, Label, Callable[[], None]]


class Simulation:
    """One simulated world with its time, nodes and faults. For one run; not thread-safe.

    Args:
        choices: the source of decisions.
        faults: the faults to inject.
        latencies: travel times of requests and answers in seconds of true time, all equally likely. With
            a single latency, only the order of simultaneous events is random.
        patience: for how many seconds of its own clock a node waits for a missing answer.

    Use it as a context manager, or call `close`, to end the nodes that still run.

    >>> from commitlog.testing.sim import Seeded
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
        self.latencies = latencies
        self.patience = patience
        #: The trace: one line per occurrence. Empty while `tracing` is false.
        self.trace: list[str] = []
        #: Whether to write the trace. Without a trace, a run takes the same course in less time, but
        #: `state` cannot be used.
        self.tracing = True
        #: How often each fault struck.
        self.injected: Counter[Fault] = Counter()
        #: Number of events so far.
        self.steps = 0
        #: Called before each step. It may raise an exception to end the run.
        self.watch: Callable[[], None] | None = None
        self._choices = choices
        self._faults = Faults() if faults is None else faults
        self._forced = {(forced.where, forced.nth): forced for forced in self._faults.forced}
        self._sweeps = bool(self._faults.rates.get(Fault.SWEPT)) or any(
            forced.fault is Fault.SWEPT for forced in self._faults.forced
        )
        self._odds: dict[tuple[Fault, ...], tuple[tuple[Fault, ...], tuple[float, ...]]] = {}
        self._evenly = [(1.0,) * count for count in range(8)]
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
        """Seconds of true time since the beginning of the run."""
        return self.time.now

    def tick(self) -> int:
        """Return a number larger than all before: it orders events of the same time."""
        self._ticks += 1
        return self._ticks

    # building the world

    def node(self, name: str, *, rate: float = 1.0, offset: float = 0.0) -> Node:
        """Add a node. Its clock counts `rate` seconds per true second, and is `offset` seconds ahead."""
        if name in self._nodes:
            raise ValueError(f"there is a node {name!r} already")
        self._nodes[name] = Node(self, name, rate=rate, offset=offset)
        return self._nodes[name]

    def server_clock(self, *, rate: float = 1.0, offset: float = 0.0) -> SimulatedClock:
        """Return a clock for a server."""
        return SimulatedClock(self.time, rate=rate, offset=offset)

    def new_id(self) -> str:
        """Return a unique word for an object that a server stores, derived from the current request."""
        self._effects += 1
        return f"{self._performing}.{self._effects}"

    def add_state(self, part: Callable[[], Hashable]) -> None:
        """Add the result of `part`, such as the contents of a server, to `state`."""
        self._parts.append(part)

    def add_sweeper(self, due: Callable[[], bool], sweep: Callable[[], object]) -> None:
        """Add a sweep of expired items. The fault `Fault.SWEPT` may run it whenever `due()` is true."""
        self._sweepers.append((due, sweep))

    # running it

    def run(self, *, until: float = math.inf, steps: int = 100_000) -> None:
        """Perform events until the queue is empty.

        Args:
            until: the true time at which to stop.
            steps: the maximum number of steps. More steps raise `Stuck`.

        Exceptions of a node's program propagate, except `Crashed`.
        """
        events, time = self._events, self.time
        while events and events[0][0] <= until:
            steps -= 1
            if steps < 0:
                name = _name_of(events[0][2])
                raise Stuck(f"still busy after all steps, at {self.now} s; next: {name}")
            if self.watch is not None:
                self.watch()
            if self._sweeps:
                self._sweep()
            same, first = 1, events[0][0]
            while same < len(events) and events[same][0] == first:
                same += 1
            at = 0
            if same > 1:
                at = self.pick(f"before {_name_of(events[0][2])}", self._even(same))
            moment, _, _, action = events.pop(at)
            self.steps += 1
            if moment > time.now:
                time.now = moment
            action()

    def state(self) -> Hashable:
        """Return the state between two steps on which the future depends.

        The state of a node's code is a function of the responses it got, so `Node.past` represents it.
        """
        return (
            self.now,
            self._chosen,
            tuple(node.past for node in self._nodes.values()),
            tuple(sorted((at, _name_of(label)) for at, _, label, _ in self._events)),
            tuple(part() for part in self._parts),
        )

    def close(self) -> None:
        """End the programs of all nodes. Idempotent."""
        for node in self._nodes.values():
            node.kill()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # for nodes and ports

    def pick(self, what: str, weights: Sequence[float]) -> int:
        """Choose an alternative by its index. A single alternative needs no decision."""
        return 0 if len(weights) == 1 else self._choices.pick(what, weights)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self.tracing:
            self.trace.append(f"{self.now:9.3f}  {text}")

    def after(self, seconds: float, label: Label, action: Callable[[], None]) -> None:
        """Schedule an event `seconds` of true time from now."""
        self._ticks += 1
        insort(self._events, (round(self.time.now + seconds, 9), self._ticks, label, action))

    def latency(self, node: str) -> float:
        """Return the travel time of the next request or answer of a node, in seconds of true time."""
        latencies = self.latencies
        if len(latencies) == 1:
            return latencies[0]
        return latencies[self._choices.pick(f"{node} latency", self._even(len(latencies)))]

    def fate(self, where: str, possible: tuple[Fault, ...]) -> tuple[Fault | None, float]:
        """Choose the fault at a point, and its length in seconds of true time."""
        if self._forced:
            self._visits[where] += 1
            forced = self._forced.get((where, self._visits[where]))
            if forced is not None and forced.fault in possible:
                self.injected[forced.fault] += 1
                return forced.fault, forced.seconds
        fault = self._strikes(where, possible)
        if fault is None:
            return _NOTHING
        if fault in _LENGTHY:
            delays = self._faults.delays
            return fault, delays[self.pick(f"{where}: how long", self._even(len(delays)))]
        return fault, 0.0

    def perform(self, name: str, action: Callable[[], T]) -> T:
        """Perform the request `name` on a server."""
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
                self.note("the table removes expired items")

    def _strikes(self, where: str, possible: tuple[Fault, ...]) -> Fault | None:
        faults = self._faults
        if self._chosen == faults.most or self.time.now >= faults.until:
            return None
        odds = self._odds.get(possible)
        if odds is None:
            odds = self._odds[possible] = _odds(faults.rates, possible)
        candidates, weights = odds
        if not candidates:
            return None
        at = self._choices.pick(where, weights)
        if at == 0:
            return None
        self._chosen += 1
        self.injected[candidates[at - 1]] += 1
        return candidates[at - 1]


def _name_of(label: Label) -> str:
    if isinstance(label, str):
        return label
    who, what, back = label
    return f"{who} {what}" if back is None else f"{who} {what}, to be answered in {back:g} s"


def _odds(
    rates: Mapping[Fault, float], possible: tuple[Fault, ...]
) -> tuple[tuple[Fault, ...], tuple[float, ...]]:
    """Return the possible faults at a point, and the weights: first of no fault, then of each one."""
    candidates = tuple(fault for fault in possible if rates.get(fault))
    weights = [rates[fault] for fault in candidates]
    return candidates, (max(0.0, 1.0 - sum(weights)), *weights)


class Node:
    """A process in the simulated world: a name, a clock, and code that runs until it ends or crashes.

    `Simulation.node` creates nodes.

    Attributes:
        name: the name in the trace.
        clock: the clock of this node.
        past: a hash of everything that the node's code has observed, see `Simulation.state`.
        crashes: number of crashes so far.
    """

    def __init__(self, simulation: Simulation, name: str, *, rate: float, offset: float) -> None:
        self.simulation = simulation
        self.name = name
        self.clock = NodeClock(self, rate=rate, offset=offset)
        self.past = 0
        self.crashes = 0
        self._greenlet: greenlet | None = None
        self._awaited: object = None
        self._ids = 0
        self._requests = 0
        self._points = 0  # scheduling points passed so far

    @property
    def running(self) -> bool:
        """Whether the node's program has started and has neither ended nor crashed."""
        return self._greenlet is not None and not self._greenlet.dead

    def start(
        self,
        program: Callable[[], object],
        *,
        after: float = 0.0,
        restart: Callable[[], object] | None = None,
        restart_after: float = 1.0,
    ) -> None:
        """Schedule `program` to run on this node.

        Args:
            program: ordinary code that uses the node's clock and ports.
            after: seconds of true time until it starts.
            restart: the code that runs after each crash; None for no restart.
            restart_after: seconds of true time between crash and restart.
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

    def new_id(self) -> str:
        """Return an id that is unique among all nodes and calls."""
        self._ids += 1
        return f"{self.name}-{self._ids}"

    def note(self, text: str) -> None:
        """Add a line to the trace and to the node's past."""
        simulation = self.simulation
        if simulation.tracing:
            self.past = hash((self.past, simulation.now, text))
            simulation.note(f"{self.name} {text}")

    def kill(self) -> None:
        """End the node's program from outside, without a restart. Idempotent."""
        if self.running:
            assert self._greenlet is not None
            doomed, self._greenlet = self._greenlet, None
            doomed.throw(Crashed())

    # for ports and the clock

    def point(self, what: str, possible: tuple[Fault, ...]) -> tuple[Fault | None, float]:
        """Pass a scheduling point: pause or crash the node, or return another fault and its seconds."""
        if self._greenlet is None or getcurrent() is not self._greenlet:
            raise Crashed  # the code of a crashed process is being unwound
        fault, seconds = self.simulation.fate(f"{self.name} {what}", possible)
        self._points += 1
        if fault is Fault.PAUSED:
            # The code may read the clock several times at one time: the past shows after which reading.
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
        """Suspend the node for `seconds` of true time."""
        token = object()
        self.simulation.after(seconds, (self.name, "goes on", None), lambda: self._wake(token))
        self.wait_for(token)

    def wait_for(self, awaited: object) -> None:
        """Suspend the node until `go_on` is called with the same object."""
        self._awaited = awaited
        hub = getcurrent().parent
        assert hub is not None
        hub.switch()

    def go_on(self, awaited: object) -> None:
        """Resume the node if it waits for `awaited`."""
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
    """The clock of a node. Every reading is a scheduling point at which the node may be paused."""

    def __init__(self, node: Node, *, rate: float, offset: float) -> None:
        super().__init__(node.simulation.time, rate=rate, offset=offset)
        self._node = node

    def monotonic(self) -> float:
        """Return the seconds since the beginning of the run on this clock."""
        self._node.point("clock", _AT_CLOCK)
        return super().monotonic()

    def sleep(self, seconds: float) -> None:
        """Suspend the node for `seconds` of this clock; other nodes run."""
        self._node.point("sleep", _AT_SLEEP)
        if seconds > 0:
            self._node.rest(seconds / self.rate)
