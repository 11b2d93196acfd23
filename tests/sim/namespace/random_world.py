"""Large random worlds of namespaces: programs, clocks, latencies and faults are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable

from commitlog._util.retry import Backoff
from commitlog.testing.sim import Choices, Faults, Simulation, World
from sim.drawing import RATES, Draw
from sim.namespace.actions import (
    Action,
    bulk_link,
    delete,
    empty_trash,
    gc,
    import_objects,
    link,
    list_,
    make_directory,
    publish,
    read,
    recover,
    rename,
    replace,
    reshard,
    set_attributes,
    stream,
    write,
)
from sim.namespace.world import NamespaceWorld
from sim.nodes import ClockSkew

#: Longer than any request is in flight, with all of its retries.
_SETTLED = 200.0

_MADE = ("a", "a/b", "b", "c")
_FILES = {"f": b"0", "a/f": b"1", "a/b/f": b"2"}
_OLD = {"old/1": b"3", "old/2": b"4"}


def seeded_world(*, stable: bool, logged: bool = False) -> World:
    """Return a world of 2 to 4 nodes with one namespace and all faults.

    Args:
        stable: the argument `stable_paths` of `Namespace`. If False, nodes publish jobs too.
        logged: whether there is a log, and recoveries of it.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        bodies = iter(range(100, 10_000))

        draw = Draw(choices)

        def path() -> str:
            above = draw("above", ("", "a", "b", "a/b", "c", "b/b"))
            name = draw("name", ("f", "b", "g", "a"))
            return f"{above}/{name}" if above else name

        def body() -> bytes:
            return str(next(bodies)).encode()

        def operation() -> Action | float:
            what = draw("what", tuple(kinds))
            return kinds[what]()

        flag = (False, True)
        kinds: dict[str, Callable[[], Action | float]] = {
            "write": lambda: write(
                path(), body(), overwrite=draw("overwrite", flag), parents=draw("parents", flag)
            ),
            "rename": lambda: rename(path(), path(), overwrite=draw("overwrite", flag)),
            "rename a directory": lambda: rename(
                draw("source", ("a", "b", "a/b")), draw("target", ("b/a", "a/b/a", "c/a", "b"))
            ),
            "replace": lambda: replace(path(), path()),
            "delete": lambda: delete(path(), recursive=draw("recursive", flag)),
            "make": lambda: make_directory(path(), shards=draw("shards", (1, 2))),
            "attributes": lambda: set_attributes(path(), x="1"),
            "grow": lambda: reshard(draw("directory", ("a", "b", "")), shards=draw("shards", (2, 4))),
            "stream": lambda: stream(path(), body(), overwrite=draw("overwrite", flag)),
            "link": lambda: link({path(): body(), "c/" + draw("name", ("f", "g")): body()}),
            "bulk link": lambda: bulk_link(draw("directory", ("a", "b")), {"x": b"5", "y": b"6"}),
            "adopt": lambda: import_objects("old/", "c", {"c": None, "c/1": b"3", "c/2": b"4"}),
            "sweep": empty_trash,
            "collect": gc,
            "read": lambda: read(path(), slowly=draw("slowly", (0.0, 1.0, 5.0))),
            "list": lambda: list_(draw("directory", ("", "a", "b"))),
            "wait": lambda: draw("wait", (0.03, 1.0, 7.0)),
        }
        if logged:
            kinds["recover"] = lambda: recover(older_than=_SETTLED)
            kinds["wait for long"] = lambda: _SETTLED
        if not stable:
            job = iter(range(10))
            kinds["publish"] = lambda: publish(
                f"job-{next(job) % 3}",
                {"part": body()},
                mode=draw("mode", ("append", "overwrite")),
            )
        rates = {fault: draw(f"rate of {fault.value}", rates) for fault, rates in RATES.items()}
        faults = Faults(
            rates=rates, delays=(0.2, 1.0, 3.0, 9.0), until=draw("faults until", (20.0, 100.0))
        )
        latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
        simulation = Simulation(choices, faults=faults, latencies=latencies)
        nodes = {
            name: ClockSkew(rate=draw("rate", (1.0, 0.9, 1.1)))
            for name in "ABCD"[: draw("nodes", (2, 3, 4))]
        }
        seed = choices.pick("jitter", [1.0] * 1000)
        world = NamespaceWorld(
            simulation,
            nodes=nodes,
            made=_MADE,
            files=_FILES,
            objects=_OLD,
            stable=stable,
            exact=False,
            logged=logged,
            stored=draw("stored", (False, True)),
            grace=draw("grace", (100.0, 1000.0)),
            shards=draw("shards at first", (1, 2)),
            backoff=lambda name: Backoff(random=random.Random(f"{seed} {name}"), tries=4),
        )
        for name in nodes:
            world.start(
                name,
                [operation() for _ in range(draw("operations", (3, 6, 12)))],
                after=draw("start", (0.0, 0.02, 1.0)),
                restart=draw("restarts", (True, False)),
                restart_after=draw("restart", (1.0, 5.0)),
            )
        return simulation, world.judge

    return build
