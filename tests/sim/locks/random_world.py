"""Large random worlds of locks: programs, clocks, latencies and faults are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from commitlog.testing.sim import Choices, Faults, Simulation, World
from sim.drawing import RATES, Draw
from sim.locks.actions import Program, break_lock, hold, jump
from sim.locks.world import LockWorld
from sim.nodes import ClockSkew, in_sequence, seeded_backoff

#: Times in seconds: a lock, and how much longer than it everything else may take.
_TIMEOUT = 6.0
_SETTINGS = {
    "timeout": _TIMEOUT,
    "heartbeat": 1.2,
    "margin": 1.5,
    "max_clock_skew_rate": 1.5,
    "test_interval": 0.5,
}


def seeded_world(
    *, place: Literal["table", "store"], permits: int | None = None, exclusive: bool = True
) -> World:
    """Return a world of 2 to 4 nodes with one lock, or semaphore, and all faults.

    Unless it is `exclusive`, locks are broken without a wait. Then two clients may hold the lock, but
    their tokens still protect the counter.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        draw = Draw(choices)

        def program() -> Program:
            return draw(
                "role",
                (
                    hold(
                        beats=draw("beats", (0, 2, 6)),
                        every=draw("every", (1.2, 0.3, 3.0)),
                        rest=draw("rest", (0.0, 2.0, 2 * _TIMEOUT)),
                        increments=1 if permits is None else 0,
                        work=draw("work", (0.0, 0.5, _TIMEOUT)),
                        tries=draw("tries", (1, 3)),
                        releases=draw("releases", (True, True, False)),
                        **draw("waits", ({"timeout": 40.0}, {"blocking": False}, {"timeout": 3.0})),
                    ),
                    break_lock(after=draw("after", (0.0, 2.0)), wait=exclusive),
                    jump(draw("jump", (-1e6, 3600.0)), after=draw("after", (0.0, 2.0))),
                ),
            )

        faults = Faults(
            rates={fault: draw(f"rate of {fault.value}", rates) for fault, rates in RATES.items()},
            delays=(0.2, 1.0, 4.0, 3 * _TIMEOUT),
            until=draw("faults until", (20.0, 20 * _TIMEOUT)),
        )
        latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
        simulation = Simulation(choices, faults=faults, latencies=latencies)
        nodes = {
            name: ClockSkew(
                rate=draw("rate", (1.0, 0.8, 1.2)), offset=draw("offset", (0.0, -100.0, 1e6))
            )
            for name in "ABCD"[: draw("nodes", (2, 3, 4))]
        }
        world = LockWorld(
            simulation,
            nodes=nodes,
            place=place,
            permits=permits,
            settings=_SETTINGS,
            backoff=seeded_backoff(draw("jitter", (1, 2, 3)), tries=4),
        )
        if not exclusive:
            world.truth.permits = len(nodes)
        for name in nodes:
            programs = [program() for _ in range(draw("programs", (1, 2, 4)))]
            again = in_sequence(*programs)
            world.start(
                name,
                again,
                restart=draw("restarts", (again, None)),
                after=draw("start", (0.0, 0.02, 1.0, 4.0)),
            )
        return simulation, world.judge

    return build
