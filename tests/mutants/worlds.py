"""The worlds in which mutants of `ConditionalStore` are looked for: few writers, few misfortunes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from sim_kit import CommitWorld, Program, Ticks

from commitlog.commit import ConditionalStore
from commitlog.commit.record import LeaseRecord
from commitlog.testing.sim import Choices, Fault, Faults, Forced, Node, SimulatedStore, Simulation, World
from mutants.loader import Code

__all__ = ["FAST", "SMALL", "Setting", "racing"]

#: Makes a world of some code. The second argument: whether the store enforces the expiry of requests.
Setting: TypeAlias = Callable[[Code, bool], World]

#: Settings of the shortest leases. Waiters look at their beginning and at their end alone.
SMALL: Mapping[str, float] = MappingProxyType(
    {"timeout": 3, "max_clock_skew_rate": 1.5, "ttl": 9, "test_interval": 3}
)

#: The fastest clock that those settings allow beside ordinary ones.
FAST = Ticks(rate=1.5)

_NONE: Mapping[str, Any] = MappingProxyType({})


class _World(CommitWorld):
    """A world whose clients can differ."""

    def __init__(
        self,
        *arguments: Any,
        own: Mapping[str, Mapping[str, Any]],
        wrap: Callable[[SimulatedStore, Node], Any] | None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._own = own
        self._wrap = wrap
        self._common = self._connect

    def client(self, name: str) -> Any:
        own = dict(self._own.get(name, {}))
        make = own.pop("make", self._common)

        def connect(store: SimulatedStore, **options: Any) -> ConditionalStore:
            wrapped = store if self._wrap is None else self._wrap(store, self.nodes[name])
            return make(wrapped, **{**options, **own})

        self._connect = connect
        return super().client(name)


def racing(
    programs: Mapping[str, Program],
    *faults: Fault,
    most: int = 1,
    delays: tuple[float, ...] = (1.0,),
    forced: tuple[Forced, ...] = (),
    patience: float = 2.0,
    starts: Mapping[str, float] = _NONE,
    clocks: Mapping[str, Ticks] = _NONE,
    own: Mapping[str, Mapping[str, Any]] = _NONE,
    wrap: Callable[[SimulatedStore, Node], Any] | None = None,
    records: Iterable[LeaseRecord] = (),
    settings: Callable[[Callable[..., Any]], Any] = lambda cls: cls(**SMALL),
    **options: Any,
) -> Setting:
    """Return what builds a world of these programs.

    Args:
        programs: what the node of each name does.
        faults: what may go wrong at any point, `most` times in a run.
        delays, forced, patience: see `Faults` and `Simulation`.
        starts: when nodes start that do not start at once.
        clocks: clocks of the nodes that do not go right.
        own: arguments of the clients of single nodes; ``make`` is what makes the client.
        wrap: makes something else of a node's client of the store.
        records: what is in the table of leases at the beginning.
        settings: makes the settings of leases, given their class.
        options: those of `CommitWorld`.
    """
    rates = dict.fromkeys(faults, 0.05)

    def setting(code: Code, fences: bool) -> World:
        def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
            simulation = Simulation(
                choices,
                faults=Faults(rates=rates, most=most, delays=delays, forced=forced),
                patience=patience,
            )
            world = _World(
                simulation,
                nodes={name: clocks.get(name, Ticks()) for name in programs},
                fences=fences,
                settings=settings(code.get("commit.settings.LeaseSettings")),
                connect=code.get("commit.conditional.ConditionalStore"),
                own=own,
                wrap=wrap,
                **options,
            )
            for record in records:
                world.items.put(record.to_item())
            for name, program in programs.items():
                world.start(name, program, after=starts.get(name, 0.0))
            return world.simulation, world.judge

        return build

    return setting


#: The library as it is, for clients beside mutants.
AS_IT_IS: Mapping[str, Any] = MappingProxyType({"make": ConditionalStore})
