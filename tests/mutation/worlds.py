"""Worlds for mutants, with few nodes and few faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from attrs import asdict

from commitlog.commit import ConditionalStore, LeaseSettings
from commitlog.commit.record import CREATE, LeaseRecord
from commitlog.iceberg.records import CatalogRecords
from commitlog.ingest import IngestSettings
from commitlog.oplog import OperationLog
from commitlog.outputs import Output
from commitlog.testing import Action, Outcome
from commitlog.testing.sim import (
    EPOCH,
    Choices,
    Fault,
    Faults,
    Forced,
    Node,
    SimulatedStore,
    Simulation,
    World,
)
from mutation.loader import Code
from sim.iceberg.world import Program as CatalogProgram
from sim.iceberg.world import world_of as catalog_world_of
from sim.ingest.actions import Upload
from sim.ingest.world import world_of as ingest_world_of
from sim.leases import world as leases
from sim.leases.actions import Program, create
from sim.leases.world import CommitWorld
from sim.locks.actions import Program as LockProgram
from sim.locks.world import world_of as lock_world_of
from sim.namespace.actions import Program as NamespaceProgram
from sim.namespace.world import world_of as namespace_world_of
from sim.nodes import ClockSkew
from sim.oplog.actions import Program as LogProgram
from sim.oplog.world import world_of as log_world_of
from sim.outputs.actions import Program as OutputProgram
from sim.outputs.world import world_of as output_world_of

__all__ = [
    "BOTH",
    "FAST",
    "HELD",
    "LONGER",
    "RELEASED",
    "SMALL",
    "TWO_WINNERS",
    "UNCHANGED",
    "UNEXPLAINED",
    "Setting",
    "cataloguing",
    "locking",
    "logging",
    "naming",
    "one_winner",
    "racing",
    "reading",
    "writing",
]

#: Makes a world of some code. The second argument is whether the store enforces the expiry of requests.
Setting: TypeAlias = Callable[[Code, bool], World]

#: Settings of the shortest leases, as arguments of their class.
SMALL: Mapping[str, Any] = MappingProxyType(asdict(leases.SMALL))

#: Leases so long that a second makes no difference.
LONGER: Mapping[str, Any] = MappingProxyType({**SMALL, "timeout": 6, "ttl": 18, "test_interval": 6})

#: The fastest clock that those settings allow together with accurate clocks.
FAST = ClockSkew(rate=SMALL["max_clock_skew_rate"])

#: Arguments of clients that run the library as it is.
UNCHANGED: Mapping[str, Any] = MappingProxyType({"make": ConditionalStore})

#: The error of every counter-example to mutual exclusion.
UNEXPLAINED = "no order of the calls"

#: The error of a run in which two creations of one object succeed.
TWO_WINNERS = "two creations succeeded"

#: Two writers that want to create one object.
BOTH: Mapping[str, Program] = MappingProxyType({"A": create("k"), "B": create("k")})

_TTL = int(EPOCH) + int(SMALL["ttl"])
#: The record of an earlier holder, which released its lease or died.
RELEASED = LeaseRecord(path="k", etag=CREATE, generation=1, timeout=0, ttl=_TTL, owner="earlier")
HELD = LeaseRecord(path="k", etag=CREATE, generation=0, timeout=3000, ttl=_TTL, owner="earlier")

_NONE: Mapping[str, Any] = MappingProxyType({})


class _World(CommitWorld):
    """A world whose clients may have different arguments."""

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


def one_winner(world: CommitWorld) -> None:
    """Check that at most one writer succeeds, even in a world that breaks an assumption.

    Raises `AssertionError`.
    """
    done = [call for call in world.history() if call.outcome is Outcome.DONE]
    assert sum(call.action is Action.CREATE for call in done) < 2, TWO_WINNERS


def racing(
    programs: Mapping[str, Program],
    *faults: Fault,
    most: int = 1,
    delays: tuple[float, ...] = (1.0,),
    forced: tuple[Forced, ...] = (),
    patience: float = 2.0,
    starts: Mapping[str, float] = _NONE,
    clocks: Mapping[str, ClockSkew] = _NONE,
    own: Mapping[str, Mapping[str, Any]] = _NONE,
    wrap: Callable[[SimulatedStore, Node], Any] | None = None,
    records: Iterable[LeaseRecord] = (),
    settings: Callable[[Callable[..., Any]], Any] = lambda cls: cls(**SMALL),
    judge: Callable[[CommitWorld], None] = CommitWorld.judge,
    **options: Any,
) -> Setting:
    """Return a function that builds a world of these programs.

    Args:
        programs: the program of each node, by the node's name.
        faults: faults that may happen at any point, at most `most` in a run.
        delays, forced, patience: see `Faults` and `Simulation`.
        starts: the start time of each node that does not start at once.
        clocks: the clocks of nodes that are not correct.
        own: arguments of the clients of single nodes; ``make`` makes the client.
        wrap: wraps a node's client of the store.
        records: the records in the table of leases at the beginning.
        settings: makes the settings of leases, given their class.
        judge: judges a run that has ended.
        options: those of `CommitWorld`.
    """
    simulation = _simulation(faults, most=most, delays=delays, forced=forced, patience=patience)

    def setting(code: Code, enforces_expiry: bool) -> World:
        def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
            world = _World(
                simulation(choices),
                nodes={name: clocks.get(name, ClockSkew()) for name in programs},
                enforces_expiry=enforces_expiry,
                settings=settings(code.get(LeaseSettings)),
                connect=code.get(ConditionalStore),
                own=own,
                wrap=wrap,
                **options,
            )
            for record in records:
                world.items.put(record.to_item())
            for name, program in programs.items():
                world.start(name, program, after=starts.get(name, 0.0))
            return world.simulation, lambda: judge(world)

        return build

    return setting


def writing(
    programs: Mapping[str, OutputProgram],
    *faults: Fault,
    forced: tuple[Forced, ...] = (),
    **options: Any,
) -> Setting:
    """Return the setting of a world of one output; for options see `sim.outputs.world.world_of`."""

    def setting(code: Code, _: bool) -> World:
        return output_world_of(
            programs,
            simulation=_simulation(faults, forced=forced),
            connect=code.get(Output),
            **options,
        )

    return setting


def logging(programs: Mapping[str, LogProgram], **options: Any) -> Setting:
    """Return the setting of a world of one operation log; for options see `sim.oplog.world.world_of`."""
    return lambda code, _: log_world_of(programs, connect=code.get(OperationLog), **options)


def cataloguing(
    programs: Mapping[str, CatalogProgram],
    *faults: Fault,
    forced: tuple[Forced, ...] = (),
    **options: Any,
) -> Setting:
    """Return the setting of a world of one Iceberg catalog; see `sim.iceberg.world.world_of`."""
    simulation = _simulation(faults, forced=forced)
    return lambda code, _: catalog_world_of(
        programs, simulation=simulation, connect=code.get(CatalogRecords), **options
    )


def reading(
    drivers: Mapping[str, Mapping[str, Any]],
    uploads: Iterable[Upload],
    *faults: Fault,
    forced: tuple[Forced, ...] = (),
    settings: Mapping[str, Any] = _NONE,
    **options: Any,
) -> Setting:
    """Return the setting of a world of one source; for options see `sim.ingest.world.world_of`.

    Args:
        drivers: arguments of `IngestWorld.start` for each node.
        uploads: the objects that are put into the bucket.
        faults, forced: as of `racing`.
        settings: the settings of the source. By default it has a grace window of ten seconds, and one
            file per epoch.
    """
    chosen = IngestSettings(**{"source": "s", "grace": 10.0, "max_files": 1, **settings})

    def setting(code: Code, _: bool) -> World:
        return ingest_world_of(
            drivers,
            simulation=_simulation(faults, forced=forced),
            uploads=tuple(uploads),
            settings=chosen,
            code=code.get,
            **options,
        )

    return setting


def naming(
    programs: Mapping[str, NamespaceProgram],
    *faults: Fault,
    most: int = 1,
    forced: tuple[Forced, ...] = (),
    **options: Any,
) -> Setting:
    """Return the setting of a world of one namespace; for options see `sim.namespace.world.world_of`."""
    simulation = _simulation(faults, most=most, delays=(5.0,), forced=forced)
    return lambda code, _: namespace_world_of(programs, simulation=simulation, code=code.get, **options)


def locking(
    programs: Mapping[str, LockProgram],
    *faults: Fault,
    most: int = 1,
    delays: tuple[float, ...] = (5.0,),
    forced: tuple[Forced, ...] = (),
    **options: Any,
) -> Setting:
    """Return the setting of a world of one lock; for options see `sim.locks.world.world_of`."""
    simulation = _simulation(faults, most=most, delays=delays, forced=forced)
    return lambda code, _: lock_world_of(programs, simulation=simulation, code=code.get, **options)


def _simulation(
    faults: Iterable[Fault], *, most: int = 1, patience: float = 2.0, **options: Any
) -> Callable[[Choices], Simulation]:
    """Return a factory of simulations with up to `most` of these faults in a run."""
    allowed = Faults(rates=dict.fromkeys(faults, 0.05), most=most, **options)
    return lambda choices: Simulation(choices, faults=allowed, patience=patience)
