"""Large random worlds of operation logs: programs, clocks, latencies and faults are drawn."""

from __future__ import annotations

from collections.abc import Callable

from commitlog.oplog import Decision
from commitlog.testing.sim import Choices, Faults, Simulation, World
from sim.drawing import RATES, Draw
from sim.nodes import ClockSkew, in_sequence
from sim.oplog.actions import Program, compact, decide_any, read, recover, run
from sim.oplog.world import LogWorld

#: Retention in seconds. A quarter of it is longer than any request, and than most series of faults.
_RETENTION = 120.0


def seeded_world(*, effects: bool) -> World:
    """Return a world of 3 to 5 nodes with one log and all faults."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        draw = Draw(choices)

        def program() -> Program:
            opinion = draw("opinion", tuple(Decision))
            every = draw("every", (1.0, 0.03, _RETENTION / 3))
            times = draw("times", (1, 3, 8))
            return draw(
                "role",
                (
                    run(
                        seconds=draw("takes", (0.0, 1.0, _RETENTION / 3, 3 * _RETENTION)),
                        fails=draw("fails", (False, False, True)),
                    ),
                    decide_any(opinion, after=draw("after", (0.0, 1.0, _RETENTION / 3, 3 * _RETENTION))),
                    recover(opinion, older_than=draw("age", (0.0, 3.0)), times=times, every=every),
                    compact(times=times, every=every),
                    read(times=times, every=every),
                ),
            )

        faults = Faults(
            rates={fault: draw(f"rate of {fault.value}", rates) for fault, rates in RATES.items()},
            delays=(0.2, 1.0, 3.0, 9.0),
            until=draw("faults until", (30.0, 10 * _RETENTION)),
        )
        latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
        simulation = Simulation(choices, faults=faults, latencies=latencies)
        nodes = {
            name: ClockSkew(
                rate=draw("rate", (1.0, 0.9, 1.1)), offset=draw("offset", (0.0, -100.0, 1e6))
            )
            for name in "ABCDE"[: draw("nodes", (3, 4, 5))]
        }
        world = LogWorld(simulation, nodes=nodes, retention=_RETENTION, effects=effects)
        for number, name in enumerate(nodes):
            programs = [program() for _ in range(draw("programs", (1, 2, 4)))]
            if number == 0:
                programs.insert(0, run(seconds=draw("takes", (0.0, 1.0, _RETENTION))))
            world.start(
                name,
                in_sequence(*programs),
                after=draw("start", (0.0, 0.02, 1.0, 4.0)),
                restart=draw("restarts", (True, False)),
                restart_after=draw("restart", (1.0, 5.0)),
            )
        return simulation, world.judge

    return build
