"""Large random worlds of leases: settings, clocks, latencies, faults and programs are drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from attrs import evolve

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore, LeaseSettings
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.errors import (
    AlreadyExists,
    LeaseTimeout,
    NotFound,
    PreconditionFailed,
)
from commitlog.testing import Action, Call, History
from commitlog.testing.sim import Choices, Fault, Faults, Node, SimulatedStore, Simulation, World
from sim.drawing import Draw, DrawnJitter
from sim.leases.actions import Client, Workload
from sim.leases.judge import WatchedStore
from sim.leases.world import CommitWorld
from sim.nodes import ClockSkew
from support.commit import proven

T = TypeVar("T")

#: How conditions are enforced: by leases, on a store with or without expiries; by the store; by both.
Enforcement = Literal["lease", "unfenced", "native", "auto"]
ENFORCEMENTS: tuple[Enforcement, ...] = ("lease", "unfenced", "native", "auto")

#: Timeout and skew rate of the leases.
_LEASES = ((3.0, 1.5), (4.0, 3.0), (6.0, 2.0), (20.0, 3.0))

#: Alternatives for the probability of a fault at each point where it is possible.
_USUAL = (0.0, 0.01, 0.04)
_RARE = (0.0, 0.002, 0.01)
_RATES: Mapping[Fault, tuple[float, ...]] = {
    **dict.fromkeys(Fault, _USUAL),
    Fault.PAUSED: _RARE,
    Fault.CRASHED: _RARE,
    Fault.SWEPT: (0.0, 0.02, 0.3),
}

#: Faults that break an assumption of the protocol, and so never strike requests to the store; see
#: tests/sim/leases/test_assumptions.py.
EXCLUDED: Mapping[Enforcement, frozenset[Fault]] = {
    "lease": frozenset({Fault.DUPLICATED}),
    "unfenced": frozenset({Fault.DUPLICATED, Fault.DELAYED, Fault.PAUSED}),
    "native": frozenset({Fault.DUPLICATED, Fault.REPEATED}),
    "auto": frozenset({Fault.DUPLICATED, Fault.REPEATED}),
}

#: Probe reports on one store that disagree: all conditions hold, or copies ignore theirs.
_PROBE_REPORTS = (proven(*Kind), proven(*(kind for kind in Kind if kind is not Kind.COPY_IF_ABSENT)))

#: Errors that describe the state of an object, and so may occur without faults.
_ALLOWED = (AlreadyExists, PreconditionFailed, NotFound)


def seeded_world(
    enforcement: Enforcement, *, spared: frozenset[Fault] | None = None, small: bool = False
) -> World:
    """Return a world with 3 to 5 nodes and 1 to 4 keys, or with 2 or 3 nodes and 1 or 2 keys.

    Args:
        enforcement: how conditions are enforced. With ``auto`` the store does, but some nodes have a
            probe report that says otherwise.
        spared: faults that never strike writes to the store; by default those of `EXCLUDED`.
        small: whether there are few nodes and calls.
    """
    spared = EXCLUDED[enforcement] if spared is None else spared
    counts = ((2, 3), (1, 2), (1, 2, 3)) if small else ((3, 4, 5), (1, 2, 4), (2, 6, 10, 14))

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        draw = Draw(choices)
        timeout, skew = draw("lease", _LEASES)
        margin = draw("TTL margin", (0.0, 10.0, 3600.0))
        # Bodies take no time; or are sent under the lease, in the reserved time; or are staged.
        bandwidth = draw("bandwidth", (math.inf, 16.0, 1.0))
        settings = LeaseSettings(
            timeout=timeout,
            max_clock_skew_rate=skew,
            ttl=2 * timeout * skew + margin,
            test_interval=draw("test interval", (1.0, 0.3)) * min(timeout, 5.0) / 3,
            max_wait=draw("max wait", (None, None, timeout / 2)),
            min_bandwidth=bandwidth,
        )
        until = draw("faults until", (30.0, 100.0)) * timeout / 3
        faults = Faults(
            rates={fault: draw(f"rate of {fault.value}", rates) for fault, rates in _RATES.items()},
            delays=(0.2, 1.0, timeout / 2, timeout, timeout * skew, 3 * timeout * skew),
            until=until,
        )
        patience = draw("patience", (2.0, 7.0))
        # A round trip that is longer than the patience, or than the expiry of a short lease allows,
        # is a wrong configuration. (The expiry is in whole seconds, and loses up to two of them.)
        longest = min(patience, (timeout - settings.reserve - 2) / 2 if timeout >= 4 else 0.1)
        slowest = min(1.0, 0.45 * longest / skew)
        latencies = draw("network", ((0.005,), (0.005, slowest)))
        simulation = Simulation(choices, faults=faults, latencies=latencies, patience=patience)
        rates = (1.0, (1 + skew) / 2, skew)
        names = "ABCDE"[: draw("nodes", counts[0])]
        nodes = {
            name: ClockSkew(
                rate=draw(f"{name}'s rate", rates),
                offset=draw(f"{name}'s offset", (0.0, -7.0, 1000.0)),
            )
            for name in names
        }
        rate = draw("table's rate", rates)
        # The table's clock is as far ahead of the writers' clocks as allowed, at the worst moment.
        ahead = min(
            node.offset + (node.rate - rate) * at for node in nodes.values() for at in (0.0, until)
        )
        world = _World(
            simulation,
            nodes=nodes,
            enforcement=enforcement,
            spared=spared,
            probe_reports={name: draw(f"{name}'s probe report", _PROBE_REPORTS) for name in names}
            if enforcement == "auto"
            else {},
            store=ClockSkew(
                rate=draw("store's rate", rates), offset=draw("store's offset", (0.0, 500.0))
            ),
            table=ClockSkew(rate=rate, offset=ahead + margin - draw("table's slack", (0.0, 5.0, 100.0))),
            settings=settings,
            backoff=lambda name: Backoff(random=DrawnJitter(draw, name)),
            returns_old_item=draw("table returns old item", (True, False)),
            bandwidths={name: bandwidth * draw(f"{name}'s link", (1.0, 8.0)) for name in names},
        )
        keys = tuple(f"k{number}" for number in range(draw("keys", counts[1])))
        repeats = faults.rates[Fault.REPEATED] > 0 and Fault.REPEATED not in spared
        allowed = _ALLOWED if settings.max_wait is None else (*_ALLOWED, LeaseTimeout)
        workload = Workload(
            world, draw, keys, until, length=timeout, allowed=allowed, publishes=not repeats
        )
        for name in names:
            left = [draw(f"{name}'s calls", counts[2])]
            world.start(
                name,
                lambda client, left=left: workload.run(client, left),
                after=draw(f"{name}'s start", (0.0, 0.01, 1.0)),
                restart=lambda client, left=left: workload.run(client, left),
                restart_after=draw(f"{name}'s restart", (1.0, timeout * skew)),
            )

        def judge() -> Counter[str]:
            world.judge()
            return Counter(f"{call.name} {call.outcome.value}" for call in world.recorder.history())

        return simulation, judge

    return build


class _World(CommitWorld):
    """A world whose judge allows for the effects of a lost answer (docs/protocol.md).

    A retried creation may create an object again that another client removed meanwhile. So each attempt
    whose answer was lost counts as a separate call of unknown outcome.

    Args:
        enforcement: how conditions are enforced.
        spared: faults that never strike writes to the store.
        probe_reports: with ``auto``, the probe report of each node.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        enforcement: Enforcement,
        spared: frozenset[Fault],
        probe_reports: Mapping[str, ProbeReport],
        **options: Any,
    ) -> None:
        if enforcement == "auto":
            options |= {"conditions": True, "connect": self._auto}
        mode: Literal["lease", "native"] = "native" if enforcement == "native" else "lease"
        super().__init__(simulation, mode=mode, enforces_expiry=enforcement != "unfenced", **options)
        self._spared = spared
        self._attempts: list[Call] = []
        self._probe_reports = probe_reports

    def client(self, name: str) -> Client:
        self._probe_report = self._probe_reports.get(name, self._probe_report)
        return super().client(name)

    def port(self, node: Node) -> SimulatedStore:
        port = WatchedStore(
            node,
            self.objects,
            enforces_expiry=self._enforces_expiry,
            spared=self._spared,
            lost=lambda path: self._add_attempt(node.name, path),
            bandwidth=self._bandwidths[node.name],
        )
        if self._probe_reports:
            port.capabilities = evolve(port.capabilities, enforced=False)
        return port

    @staticmethod
    def _auto(store: SimulatedStore, **options: Any) -> ConditionalStore:
        return ConditionalStore(store, **{**options, "mode": "auto"})

    def history(self) -> History:
        return History((*self.recorder.history(), *self._attempts))

    def _add_attempt(self, client: str, path: str) -> None:
        calls = [call for call in super().history() if (call.client, call.key) == (client, path)]
        if not calls:
            return  # not a call of the client, but the object that identifies the bucket
        call = calls[-1]
        if call.action is Action.CREATE:
            self._attempts.append(call)  # it has no outcome yet
