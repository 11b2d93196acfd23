"""Large worlds of namespaces whose everything is drawn: clocks, network, misfortunes, and who does what.

All draws come from the one `Choices` of the simulation, so a run is its picks. Of every draw the first
alternative is the ordinary one, which is what runs are shrunk to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from commitlog._util.retry import Backoff
from commitlog.testing.sim import Choices, Fault, Faults, Simulation, World
from sim.namespace.world import (
    Do,
    NamespaceWorld,
    adopt,
    attributes,
    bulk_link,
    collect,
    delete,
    grow,
    link,
    list_,
    make,
    publish,
    read,
    recover,
    rename,
    replace,
    stream,
    sweep,
    write,
)
from sim.nodes import ClockSkew

T = TypeVar("T")

#: How probable a fault is, at each point where it is possible, when a run has it at all.
_USUAL = (0.0, 0.01, 0.04)
RATES: Mapping[Fault, tuple[float, ...]] = {
    **dict.fromkeys(Fault, _USUAL),
    Fault.PAUSED: (0.0, 0.003, 0.02),
    Fault.CRASHED: (0.0, 0.003, 0.02),
}

#: Longer than a request is on its way, and than its sender goes on sending it.
_SETTLED = 200.0

_MADE = ("a", "a/b", "b", "c")
_FILES = {"f": b"0", "a/f": b"1", "a/b/f": b"2"}
_OLD = {"old/1": b"3", "old/2": b"4"}


def seeded_world(*, stable: bool, logged: bool = False) -> World:
    """Return what builds a world of 2 to 4 nodes that work on one namespace, with all faults.

    Args:
        stable: whether paths are. If not, jobs are published, too.
        logged: whether there is a log, and what is pending in it is recovered.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        bodies = iter(range(100, 10_000))

        def draw(what: str, options: Sequence[T]) -> T:
            return options[choices.pick(what, [1.0] * len(options))]

        def path() -> str:
            above = draw("above", ("", "a", "b", "a/b", "c", "b/b"))
            name = draw("name", ("f", "b", "g", "a"))
            return f"{above}/{name}" if above else name

        def body() -> bytes:
            return str(next(bodies)).encode()

        def operation() -> Do | float:
            what = draw("what", tuple(kinds))
            return kinds[what]()

        flag = (False, True)
        kinds: dict[str, Callable[[], Do | float]] = {
            "write": lambda: write(
                path(), body(), overwrite=draw("overwrite", flag), parents=draw("parents", flag)
            ),
            "rename": lambda: rename(path(), path(), overwrite=draw("overwrite", flag)),
            "rename a directory": lambda: rename(
                draw("source", ("a", "b", "a/b")), draw("target", ("b/a", "a/b/a", "c/a", "b"))
            ),
            "replace": lambda: replace(path(), path()),
            "delete": lambda: delete(path(), recursive=draw("recursive", flag)),
            "make": lambda: make(path(), shards=draw("shards", (1, 2))),
            "attributes": lambda: attributes(path(), x="1"),
            "grow": lambda: grow(draw("directory", ("a", "b", "")), shards=draw("shards", (2, 4))),
            "stream": lambda: stream(path(), body(), overwrite=draw("overwrite", flag)),
            "link": lambda: link({path(): body(), "c/" + draw("name", ("f", "g")): body()}),
            "bulk link": lambda: bulk_link(draw("directory", ("a", "b")), {"x": b"5", "y": b"6"}),
            "adopt": lambda: adopt("old/", "c", {"c": None, "c/1": b"3", "c/2": b"4"}),
            "sweep": sweep,
            "collect": collect,
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
