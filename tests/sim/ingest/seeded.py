"""Large worlds of sources whose everything is drawn: drivers, a bucket that fills, clocks and faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from commitlog.ingest import IngestSettings
from commitlog.testing.sim import Choices, Fault, Faults, Simulation
from sim.ingest.world import IngestWorld, Upload
from sim.nodes import ClockSkew, seeded_backoff

T = TypeVar("T")

#: Grace window of every source here, in seconds.
GRACE = 10.0

#: How probable a fault is, at each point where it is possible, when a run has it at all.
_USUAL = (0.0, 0.01, 0.04)
_RATES: Mapping[Fault, tuple[float, ...]] = {
    **dict.fromkeys(Fault, _USUAL),
    Fault.PAUSED: (0.0, 0.003, 0.02),
    Fault.CRASHED: (0.0, 0.003, 0.02),
}


def seeded_world(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
    """Build a world of two or three drivers and a bucket that fills; everything about it is drawn."""

    def draw(what: str, options: Sequence[T]) -> T:
        return options[choices.pick(what, [1.0] * len(options))]

    faults = Faults(
        rates={fault: draw(f"rate of {fault.value}", rates) for fault, rates in _RATES.items()},
        delays=(0.2, 1.0, 3.0, 9.0),
        until=draw("faults until", (10.0, 60.0)),
    )
    latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
    simulation = Simulation(choices, faults=faults, latencies=latencies)
    ordered = draw("ordered", (False, False, True))
    settings = IngestSettings(
        source="s",
        grace=GRACE,
        ordered=ordered,
        max_files=draw("files", (1, 2, 5)),
        max_bytes=draw("bytes", (None, 2, 7)),
        slice_bytes=draw("slice", (1, 3)),
        list_limit=draw("limit", (None, 1, 3)),
        remember=draw("remember", ("window", "window", "everything")),
    )
    uploads = []
    at = 0.0
    for number in range(draw("uploads", (3, 8))):
        at += draw("pause", (0.0, 0.3, 3.0, 2 * GRACE))
        age = draw("age", (0.0, 0.0, 1.0, GRACE - 1))
        # Keys grow, or do not.
        name = draw("name", (*"abcde", *[f"c{number:03}"] * (5 if ordered else 1)))
        uploads.append(Upload(name, at=at, size=draw("size", (0, 1, 4, 9)), age=age))

    def clock() -> ClockSkew:
        return ClockSkew(rate=draw("rate", (1.0, 0.9, 1.1)), offset=draw("offset", (0.0, -5e4, 5e4)))

    world = IngestWorld(
        simulation,
        nodes={name: clock() for name in draw("drivers", ("A", "AB", "ABC"))},
        settings=settings,
        uploads=uploads,
        splits=draw("splits", (False, True)),
        store=ClockSkew(offset=draw("store", (0.0, 300.0))),
        backoff=seeded_backoff(draw("jitter", range(100)), base=0.1, cap=1.0, tries=4),
    )
    for name in world.nodes:
        every = draw("every", (0.05, 1.0, GRACE / 2))
        world.start(name, batches=draw("batches", (3, 10)), every=every, lives=10)
    return simulation, world.judge
