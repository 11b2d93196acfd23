"""Large worlds of a namespace's upkeep whose everything is drawn; see `sim.namespace.seeded`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from commitlog._util.retry import Backoff
from commitlog.testing.sim import Choices, Fault, Faults, Simulation
from sim.namespace.maintenance.world import A_DAY, UpkeepWorld, check, compact, move, repair, restore
from sim.namespace.world import (
    Do,
    attributes,
    collect,
    delete,
    grow,
    make,
    recover,
    rename,
    replace,
    sweep,
    write,
)
from sim.nodes import ClockSkew

T = TypeVar("T")

#: Longer than a request is on its way, and than its sender goes on sending it.
_SETTLED = 200.0

_FAULTS = tuple(fault for fault in Fault if fault not in (Fault.SWEPT, Fault.PARTIAL))

#: What a check may tell of what those have left who died.
_LEFT = ("pending-change", "orphan-object")


def seeded_world(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
    """Build a world of 2 or 3 nodes that work on one namespace, and one that does its upkeep.

    It compacts, checks, repairs and recovers; some days pass; when all others have ended, the names
    are restored elsewhere, and there it goes on.
    """
    bodies = iter(range(100, 10_000))

    def draw(what: str, options: Sequence[T]) -> T:
        return options[choices.pick(what, [1.0] * len(options))]

    def path() -> str:
        above = draw("above", ("", "a", "b", "a/b"))
        name = draw("name", ("f", "b", "g"))
        return f"{above}/{name}" if above else name

    def work() -> Do | float:
        flag = (False, True)
        kinds: tuple[Callable[[], Do | float], ...] = (
            lambda: write(path(), str(next(bodies)).encode(), overwrite=draw("overwrite", flag)),
            lambda: rename(path(), path(), overwrite=draw("overwrite", flag)),
            lambda: rename(draw("source", ("a", "b", "a/b")), draw("target", ("b/a", "c", "a/b/a"))),
            lambda: replace(path(), path()),
            lambda: delete(path(), recursive=draw("recursive", flag)),
            lambda: make(path()),
            lambda: attributes(path(), x="1"),
            lambda: grow(draw("directory", ("a", "b")), shards=2),
            lambda: draw("wait", (0.03, 7.0, A_DAY / 2)),
        )
        return draw("work", kinds)()

    def upkeep() -> Do | float:
        kinds: tuple[Callable[[], Do | float], ...] = (
            compact,
            lambda: check(spared=_LEFT),
            lambda: repair(pending=_SETTLED),
            lambda: recover(older_than=_SETTLED),
            sweep,
            collect,
            lambda: draw("pause", (0.03, _SETTLED, A_DAY)),
        )
        return draw("upkeep", kinds)()

    rate = draw("rate of faults", (0.0, 0.002, 0.01))
    faults = Faults(rates=dict.fromkeys(_FAULTS, rate), delays=(0.2, 3.0, 9.0))
    latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
    simulation = Simulation(choices, faults=faults, latencies=latencies)
    workers = "AB"[: draw("nodes", (1, 2))]
    seed = choices.pick("jitter", [1.0] * 1000)
    world = UpkeepWorld(
        simulation,
        nodes={name: ClockSkew() for name in (*workers, "U", "R")},
        made=("a", "a/b", "b"),
        files={"f": b"0", "a/f": b"1"},
        exact=False,
        grace=draw("grace", (0.0, 1000.0)),
        page=draw("page", (1000, 5)),
        moments=False,
        backoff=lambda name: Backoff(random=random.Random(f"{seed} {name}"), tries=4),
    )
    for name in workers:
        program = [work() for _ in range(draw("works", (3, 8)))]
        world.start(name, program, after=draw("start", (0.0, 1.0, A_DAY)))
    world.start("U", [upkeep() for _ in range(draw("upkeeps", (3, 8)))], after=A_DAY, restart=True)
    world.start("R", [restore(), 60.0, restore(), 60.0, restore(), move(), work(), work()], after=1e7)
    return simulation, world.judge
