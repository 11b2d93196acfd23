"""Large random worlds of a namespace's maintenance: programs, latencies and faults are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable

from commitlog._util.retry import Backoff
from commitlog.testing.sim import Choices, Fault, Faults, Simulation
from sim.drawing import Draw
from sim.namespace.actions import (
    Action,
    delete,
    empty_trash,
    gc,
    make_directory,
    recover,
    rename,
    replace,
    reshard,
    set_attributes,
    write,
)
from sim.namespace.maintenance.actions import A_DAY, compact_log, fsck, move, repair, restore
from sim.namespace.maintenance.world import MaintenanceWorld
from sim.nodes import ClockSkew

#: Longer than any request is in flight, with all of its retries.
_SETTLED = 200.0

_FAULTS = tuple(fault for fault in Fault if fault not in (Fault.SWEPT, Fault.PARTIAL))

#: Findings of a check after a crash of other clients.
_LEFT = ("pending-change", "orphan-object")


def seeded_world(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
    """Build a world with 1 or 2 nodes that use a namespace, and one that maintains it.

    The third node compacts, checks, repairs and recovers, while days pass. After the end of all others,
    the namespace is restored in the second table, and used there.
    """
    bodies = iter(range(100, 10_000))

    draw = Draw(choices)

    def path() -> str:
        above = draw("above", ("", "a", "b", "a/b"))
        name = draw("name", ("f", "b", "g"))
        return f"{above}/{name}" if above else name

    def work() -> Action | float:
        flag = (False, True)
        kinds: tuple[Callable[[], Action | float], ...] = (
            lambda: write(path(), str(next(bodies)).encode(), overwrite=draw("overwrite", flag)),
            lambda: rename(path(), path(), overwrite=draw("overwrite", flag)),
            lambda: rename(draw("source", ("a", "b", "a/b")), draw("target", ("b/a", "c", "a/b/a"))),
            lambda: replace(path(), path()),
            lambda: delete(path(), recursive=draw("recursive", flag)),
            lambda: make_directory(path()),
            lambda: set_attributes(path(), x="1"),
            lambda: reshard(draw("directory", ("a", "b")), shards=2),
            lambda: draw("wait", (0.03, 7.0, A_DAY / 2)),
        )
        return draw("work", kinds)()

    def maintenance() -> Action | float:
        kinds: tuple[Callable[[], Action | float], ...] = (
            compact_log,
            lambda: fsck(spared=_LEFT),
            lambda: repair(pending=_SETTLED),
            lambda: recover(older_than=_SETTLED),
            empty_trash,
            gc,
            lambda: draw("pause", (0.03, _SETTLED, A_DAY)),
        )
        return draw("upkeep", kinds)()

    rate = draw("rate of faults", (0.0, 0.002, 0.01))
    faults = Faults(rates=dict.fromkeys(_FAULTS, rate), delays=(0.2, 3.0, 9.0))
    latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
    simulation = Simulation(choices, faults=faults, latencies=latencies)
    workers = "AB"[: draw("nodes", (1, 2))]
    seed = choices.pick("jitter", [1.0] * 1000)
    world = MaintenanceWorld(
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
    world.start("U", [maintenance() for _ in range(draw("upkeeps", (3, 8)))], after=A_DAY, restart=True)
    world.start("R", [restore(), 60.0, restore(), 60.0, restore(), move(), work(), work()], after=1e7)
    return simulation, world.judge
