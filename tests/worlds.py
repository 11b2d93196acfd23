"""All seeded worlds by name, for tests and for ``python -m commitlog.testing.sim``.

Each name is stable: the ledger of campaigns (docs/campaigns.md) lists seeds by it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import sim.ingest.random_world as ingest
import sim.leases.random_world as leases
import sim.locks.random_world as locks
import sim.namespace.bindings.random_world as bindings
import sim.namespace.maintenance.random_world as maintenance
import sim.namespace.random_world as namespace
import sim.oplog.random_world as oplog
import sim.outputs.random_world as outputs
from commitlog.testing.sim import CampaignReport, Choices, Simulation, World, run_campaign

__all__ = ["LIMITS", "WORLDS", "run_seeds"]

#: Sizes that separate short from long, as production has them. Small values reach the long cases.
_SIZES = (
    "commitlog.commit.conditional.STAGE_ABOVE",
    "commitlog.outputs.pending.INLINE_FILES",
    "commitlog.outputs.log.INLINE_FILES",
    "commitlog.outputs.checkpoints.INTERVAL",
    "commitlog.outputs.output.INTERVAL",
    "commitlog.outputs.job_index.GROWTH",
    "commitlog.outputs.job_index.WHOLE",
)


def _split(name: str) -> tuple[object, str]:
    module, _, attribute = name.rpartition(".")
    return importlib.import_module(module), attribute


_DEFAULTS: Mapping[str, int] = MappingProxyType({name: getattr(*_split(name)) for name in _SIZES})

_SHORT_LISTS: Mapping[str, int] = MappingProxyType(
    {
        "commitlog.outputs.pending.INLINE_FILES": 1,
        "commitlog.outputs.log.INLINE_FILES": 1,
        "commitlog.outputs.checkpoints.INTERVAL": 2,
        "commitlog.outputs.output.INTERVAL": 2,
        "commitlog.outputs.job_index.GROWTH": 1,
        "commitlog.outputs.job_index.WHOLE": 0,
    }
)

#: The sizes of a world of outputs, where they are not those of production.
LIMITS: Mapping[str, Mapping[str, int]] = {
    "outputs-records-staged": {"commitlog.commit.conditional.STAGE_ABOVE": 200},
    "outputs-lists": _SHORT_LISTS,
    "outputs-s3a-lists": _SHORT_LISTS,
}


def _limited(world: World, limits: Mapping[str, int]) -> World:
    """Return `world`, which sets the library's sizes each time that it is built."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        for name, size in {**_DEFAULTS, **limits}.items():
            setattr(*_split(name), size)
        return world(choices)

    return build


_OUTPUTS: Mapping[str, World] = {
    "outputs-conditions": outputs.seeded_world(),
    "outputs-leases": outputs.seeded_world(leases=True),
    "outputs-records-staged": outputs.seeded_world(staged=True),
    "outputs-lists": outputs.seeded_world(),
    "outputs-s3a": outputs.seeded_world(s3a=True),
    "outputs-s3a-lists": outputs.seeded_world(s3a=True),
    "outputs-shared-records": outputs.seeded_world(shared=True),
}

WORLDS: Mapping[str, World] = {
    **{name: leases.seeded_world(name) for name in leases.ENFORCEMENTS},
    **{f"{name}-small": leases.seeded_world(name, small=True) for name in leases.ENFORCEMENTS},
    "oplog-effects": oplog.seeded_world(effects=True),
    "oplog-opinions": oplog.seeded_world(effects=False),
    "locks-table": locks.seeded_world(place="table"),
    "locks-store": locks.seeded_world(place="store"),
    "locks-broken": locks.seeded_world(place="table", exclusive=False),
    "locks-semaphore": locks.seeded_world(place="table", permits=2),
    **{name: _limited(world, LIMITS.get(name, {})) for name, world in _OUTPUTS.items()},
    "ingest": ingest.seeded_world,
    "namespace-stable": namespace.seeded_world(stable=True),
    "namespace-loose": namespace.seeded_world(stable=False),
    "namespace-stable-logged": namespace.seeded_world(stable=True, logged=True),
    "namespace-loose-logged": namespace.seeded_world(stable=False, logged=True),
    "binding-asked": bindings.seeded_world(max_age=0.0),
    "binding-young": bindings.seeded_world(max_age=8.0),
    "binding-believed": bindings.seeded_world(max_age=None),
    "upkeep": maintenance.seeded_world,
}


def run_seeds(name: str, runs: int) -> CampaignReport:
    """Run the first seeds of a world; raise `CampaignFailed`, with the command that repeats the run."""
    again = f"python -m commitlog.testing.sim --world {name} --seeds 1 --from {{seed}}"
    report = run_campaign(WORLDS[name], runs=runs, again=again)
    print(f"\n{name}: {report}")
    return report
