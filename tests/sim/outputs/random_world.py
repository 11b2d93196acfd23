"""Large random worlds of outputs: programs, clocks, latencies and faults are drawn."""

from __future__ import annotations

from collections.abc import Callable

from commitlog.outputs import Batch, Mode
from commitlog.testing.sim import Choices, Fault, Faults, Simulation, World
from sim.drawing import RATES, Draw
from sim.nodes import ClockSkew, in_sequence
from sim.outputs.actions import (
    Program,
    abort_one,
    commit_again,
    commit_by_next_agent,
    compact,
    drive,
    gc,
    read,
    recover,
    stage_late,
)
from sim.outputs.world import OutputWorld

#: With leases, a late duplicate breaks an assumption of the protocol: docs/protocol.md.
_EXCLUDED_BY_LEASE = frozenset({Fault.DUPLICATED})


#: Alternatives for the modes of jobs.
_ADDING: tuple[Mode, ...] = ("append", "append", "append", "append", "error")
_REPLACING: tuple[Mode, ...] = ("append", "overwrite", "overwrite-partitions")


def seeded_world(
    *,
    leases: bool = False,
    staged: bool = False,
    s3a: bool = False,
    shared: bool = False,
) -> World:
    """Return a world of 3 to 5 nodes with one output and all faults.

    The arguments are those of `OutputWorld`.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        draw = Draw(choices)

        def driver() -> Program:
            number = draw("job", (0, 1, 2))
            batch = Batch("stream", number) if batches else None
            return drive(
                f"job-{number}" if batch is None else f"stream/{number}",
                batch=draw("batch", (batch, None)) if batches else None,
                files=draw("files", (1, 2, 3, 0)),
                mode=draw("mode", modes),
                partition=draw("partition", partitions),
                lost=draw("lost task", (False, True)),
                heartbeats=draw("beats", (False, True)),
                slow=draw("slow", (0.0, 1.0, 4.0)) if s3a else 0.0,
                abort=draw("abort", (True, False)),
            )

        def next_agent() -> Program:
            return commit_by_next_agent(others=draw("others", (False, True)))

        def program(of_driver: bool) -> Program:
            if of_driver:
                return in_sequence(*(driver() for _ in range(draw("jobs", (1, 2)))))
            every = draw("every", (1.0, 0.03, 7.0))
            times = draw("times", (1, 3, 6))
            older_than = draw("older than", (0.0, 0.5, 4.0))
            forward = draw("roll forward", (True, False))
            return draw(
                "role",
                (
                    recover(older_than=older_than, times=times, every=every),
                    gc(older_than=older_than, times=times, every=every),
                    read(times=times, every=every, roll_forward=forward),
                    compact(times=times, every=every),
                    abort_one(),
                    commit_again(),
                    commit_again(others=True),
                    stage_late(),
                    *((next_agent(),) if s3a else ()),
                ),
            )

        modes = draw("modes", (_ADDING, _ADDING, _REPLACING))
        batches = draw("batches", (False, False, True))
        partitions = draw("partitions", ((None,), ("x", "y")))
        rates = {
            fault: draw(f"rate of {fault.value}", rates)
            for fault, rates in RATES.items()
            if not (leases and fault in _EXCLUDED_BY_LEASE)
        }
        delays = (0.2, 1.0, 3.0, 9.0, 30.0)
        faults = Faults(rates=rates, delays=delays, until=draw("faults until", (20.0, 100.0)))
        latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
        simulation = Simulation(choices, faults=faults, latencies=latencies)
        rates_of_clocks = (1.0, 1.5) if leases else (1.0, 0.2, 5.0)
        nodes = {
            name: ClockSkew(
                rate=draw("rate", rates_of_clocks),
                offset=0.0 if leases else draw("offset", (0.0, -100.0, 1000.0)),
            )
            for name in "ABCDE"[: draw("nodes", (3, 4, 5))]
        }
        world = OutputWorld(
            simulation,
            nodes=nodes,
            leases=leases,
            staged=staged,
            s3a=s3a,
            shared=shared,
            busy=shared and draw("busy", (True, False)),
            logged=not s3a and draw("logged", (False, True)),
            before=draw("before", ((), ("before",), ("before", "and before"))),
            foreign=draw("foreign", ((), (), ("old", "p=x/old", "p=y/old"))),
        )
        for number, name in enumerate(nodes):
            of_driver = number == 0 or draw("drives", (True, False))
            action = program(of_driver)
            later = (action, next_agent(), None) if s3a and of_driver else (action, None)
            world.start(
                name,
                action,
                after=draw("start", (0.0, 0.02, 1.0, 4.0)),
                restart=draw("restarts", later),
                restart_after=draw("restart", (1.0, 5.0)),
            )
        return simulation, world.judge

    return build
