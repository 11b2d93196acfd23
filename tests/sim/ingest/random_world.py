"""Large random worlds of ingest: drivers, uploads, clocks, latencies and faults are drawn."""

from __future__ import annotations

from collections.abc import Callable

from commitlog.ingest import IngestSettings
from commitlog.testing.sim import Choices, Faults, Simulation
from sim.drawing import RATES, Draw
from sim.ingest.actions import Upload
from sim.ingest.world import IngestWorld
from sim.nodes import ClockSkew, seeded_backoff

#: Grace window of the sources in seconds.
GRACE = 10.0


def seeded_world(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
    """Build a world of a bucket that is filled, one to three drivers, and up to two cleaners."""

    draw = Draw(choices)

    faults = Faults(
        rates={fault: draw(f"rate of {fault.value}", rates) for fault, rates in RATES.items()},
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
        listing_interval=draw("interval", (0.0, 3.0, 3 * GRACE)),
        clean=(clean := draw("clean", ("off", "delete", "archive"))),
        archive="_old/" if clean == "archive" else "",
        clean_delay=draw("clean delay", (0.0, 3.0)),
    )
    uploads = []
    at = 0.0
    for number in range(draw("uploads", (3, 8))):
        at += draw("pause", (0.0, 0.3, 3.0, 2 * GRACE))
        age = draw("age", (0.0, 0.0, 1.0, GRACE - 1))
        # Keys grow in order, or not.
        name = draw("name", (*"abcde", *[f"c{number:03}"] * (5 if ordered else 1)))
        uploads.append(Upload(name, at=at, size=draw("size", (0, 1, 4, 9)), age=age))

    messages = []
    if draw("notifications", (False, True)):
        for upload in uploads:
            late = draw("late", (0.0, 1.0, 2 * GRACE))
            messages += [(upload.at + late, upload.path)] * draw("times", (0, 1, 1, 2))

    def clock() -> ClockSkew:
        return ClockSkew(rate=draw("rate", (1.0, 0.9, 1.1)), offset=draw("offset", (0.0, -5e4, 5e4)))

    drivers, cleaners = draw("drivers", ("A", "AB", "ABC")), draw("cleaners", ("X", "XY"))
    world = IngestWorld(
        simulation,
        nodes={name: clock() for name in (*drivers, *cleaners)},
        settings=settings,
        uploads=uploads,
        messages=messages,
        splits=draw("splits", (False, True)),
        store=ClockSkew(offset=draw("store", (0.0, 300.0))),
        backoff=seeded_backoff(draw("jitter", range(100)), base=0.1, cap=1.0, tries=4),
    )
    for name in drivers:
        every = draw("every", (0.05, 1.0, GRACE / 2))
        world.start(name, batches=draw("batches", (3, 10)), every=every, lives=10)
    if settings.cleans:
        for name in cleaners:
            every = draw("clean every", (0.3, GRACE))
            world.start_cleaner(name, steps=10, every=every, most=draw("most", (1, 5)))
    return simulation, world.judge
