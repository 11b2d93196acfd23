"""Large random worlds with a bound directory: programs, latencies and faults are drawn.

Clocks are correct, because clients use them to compute the age of a directory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from commitlog._util.retry import Backoff
from commitlog.namespace import Namespace
from commitlog.testing.sim import Choices, Faults, Simulation, World
from sim.drawing import RATES, Draw
from sim.namespace.actions import (
    Action,
    delete,
    empty_trash,
    gc,
    list_,
    make_directory,
    read,
    rename,
    write,
)
from sim.namespace.bindings.actions import prune, sync
from sim.namespace.bindings.world import BindingWorld, Others
from sim.nodes import ClockSkew

#: Objects that other programs put and remove. No path is below another.
_OBJECTS = ("raw/a", "raw/b", "raw/d/a", "raw/d/b", "raw/e/a", "raw/e/d/a")


def seeded_world(*, max_age: float | None) -> World:
    """Return a world of 1 to 3 nodes and other programs, with all faults.

    `max_age` is that of the bound directory.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        bodies = iter(range(100, 10_000))

        draw = Draw(choices)

        def path() -> str:
            above = draw("above", ("in/", "in/d/", "in/e/", ""))
            return above + draw("name", ("a", "b", "n", "d"))

        def directory() -> str:
            return draw("directory", ("in/d", "in/e", "in/e/d", "in/m"))

        def body() -> bytes:
            return str(next(bodies)).encode()

        def others() -> tuple[str, bytes | None] | float:
            if draw("others wait", (False, True)):
                return draw("how long", (0.1, 2.0, 9.0))
            there = draw("object", _OBJECTS)
            return there, body() if draw("others store", (True, True, False)) else None

        flag = (False, True)
        kinds: Mapping[str, Callable[[], Action | float]] = {
            "list": lambda: list_(draw("listed", ("in", "in/d", ""))),
            "read": lambda: read(path(), slowly=draw("slowly", (0.0, 1.0))),
            "write": lambda: write(path(), body(), overwrite=draw("overwrite", (True, False))),
            "write below": lambda: write(path(), body(), parents=True),
            "delete": lambda: delete(path(), recursive=draw("recursive", flag)),
            "delete all": lambda: delete(directory(), recursive=True),
            "rename": lambda: rename(path(), path(), overwrite=draw("overwrite", flag)),
            "rename all": lambda: rename(directory(), draw("to", ("in/m", "m", "in/d", "in/e/m"))),
            "make": lambda: make_directory(directory()),
            "sync": lambda: sync(draw("synchronised", ("", "in"))),
            "prune": prune,
            "sweep": empty_trash,
            "collect": gc,
            "wait": lambda: draw("wait", (0.1, 3.0, 9.0)),
        }
        rates = {fault: draw(f"rate of {fault.value}", rates) for fault, rates in RATES.items()}
        faults = Faults(
            rates=rates, delays=(0.2, 1.0, 3.0, 9.0), until=draw("faults until", (20.0, 60.0))
        )
        latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
        simulation = Simulation(choices, faults=faults, latencies=latencies)
        nodes = {name: ClockSkew() for name in "ABC"[: draw("nodes", (2, 1, 3))]}
        seed = choices.pick("jitter", [1.0] * 1000)
        synchronised = draw("synchronised at first", (True, False))

        def prepare(namespace: Namespace) -> None:
            for there in _OBJECTS[:4]:
                namespace.store.put(there, there.encode())
            namespace.bindings.bind("raw/", "in", max_age=max_age)
            if synchronised or max_age is None:
                namespace.bindings.sync()

        happen: Others = [others() for _ in range(draw("others", (3, 6, 12)))]
        world = BindingWorld(
            simulation,
            nodes=nodes,
            others=happen,
            prepare=prepare,
            exact=False,
            grace=draw("grace", (100.0, 1000.0)),
            backoff=lambda name: Backoff(random=random.Random(f"{seed} {name}"), tries=4),
        )
        for name in nodes:
            world.start(
                name,
                [kinds[draw("what", tuple(kinds))]() for _ in range(draw("operations", (3, 6, 12)))],
                after=draw("start", (0.0, 0.02, 1.0)),
                restart=draw("restarts", flag),
                restart_after=draw("restart", (1.0, 5.0)),
            )
        return simulation, world.judge

    return build
