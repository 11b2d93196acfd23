"""Large worlds of operation logs whose everything is drawn; see `sim.outputs.seeded`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from commitlog.oplog import Decision
from commitlog.testing.sim import Choices, Fault, Faults, Simulation, World
from sim.nodes import ClockSkew
from sim.oplog.world import LogWorld, Program, ask, compact, decide_any, in_turn, recover, run

T = TypeVar("T")

#: How probable a fault is, at each point where it is possible, when a run has it at all.
_USUAL = (0.0, 0.01, 0.04)
_RATES: Mapping[Fault, tuple[float, ...]] = {
    **dict.fromkeys(Fault, _USUAL),
    Fault.PAUSED: (0.0, 0.003, 0.02),
    Fault.CRASHED: (0.0, 0.003, 0.02),
}

#: A quarter of it is longer than any request is under way, and than all but the worst series of faults.
_SETTLE = 120.0


def seeded_world(*, effects: bool) -> World:
    """Return what builds a world of 3 to 5 nodes that work on one log, with all faults."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        def draw(what: str, options: Sequence[T]) -> T:
            return options[choices.pick(what, [1.0] * len(options))]

        def program() -> Program:
            opinion = draw("opinion", tuple(Decision))
            every = draw("every", (1.0, 0.03, _SETTLE / 3))
            times = draw("times", (1, 3, 8))
            return draw(
                "role",
                (
                    run(
                        seconds=draw("takes", (0.0, 1.0, _SETTLE / 3, 3 * _SETTLE)),
                        fails=draw("fails", (False, False, True)),
                    ),
                    decide_any(opinion, after=draw("after", (0.0, 1.0, _SETTLE / 3, 3 * _SETTLE))),
                    recover(opinion, older_than=draw("age", (0.0, 3.0)), times=times, every=every),
                    compact(times=times, every=every),
                    ask(times=times, every=every),
                ),
            )

        faults = Faults(
            rates={fault: draw(f"rate of {fault.value}", rates) for fault, rates in _RATES.items()},
            delays=(0.2, 1.0, 3.0, 9.0),
            until=draw("faults until", (30.0, 10 * _SETTLE)),
        )
        latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
        simulation = Simulation(choices, faults=faults, latencies=latencies)
        nodes = {
            name: ClockSkew(
                rate=draw("rate", (1.0, 0.9, 1.1)), offset=draw("offset", (0.0, -100.0, 1e6))
            )
            for name in "ABCDE"[: draw("nodes", (3, 4, 5))]
        }
        world = LogWorld(simulation, nodes=nodes, settle=_SETTLE, effects=effects)
        for number, name in enumerate(nodes):
            programs = [program() for _ in range(draw("programs", (1, 2, 4)))]
            if number == 0:
                programs.insert(0, run(seconds=draw("takes", (0.0, 1.0, _SETTLE))))
            world.start(
                name,
                in_turn(*programs),
                after=draw("start", (0.0, 0.02, 1.0, 4.0)),
                restart=draw("restarts", (True, False)),
                restart_after=draw("restart", (1.0, 5.0)),
            )
        return simulation, world.judge

    return build
