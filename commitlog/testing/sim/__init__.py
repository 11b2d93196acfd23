"""A simulator for commit protocols: the ports, time and faults, under one deterministic scheduler.

docs/verification.md describes the model and its limits. Needs the extra ``simulator``.

`simulation` has the nodes and the scheduler, `store`, `table` and `request` the simulated clients,
`choices` and `faults` its decisions. Runs are searched by `exploration`, repeated by `campaign` and
`runner`, and made smaller by `shrinking`.
"""

from commitlog.extras import require

require("greenlet", extra="simulator", user=__name__)

from commitlog.testing.clock import EPOCH, SimulatedClock  # noqa: E402
from commitlog.testing.sim.campaign import CampaignFailed, CampaignReport, run_campaign  # noqa: E402
from commitlog.testing.sim.choices import (  # noqa: E402
    Choices,
    Deviating,
    Drawn,
    Pick,
    Recording,
    Replayed,
    Seeded,
)
from commitlog.testing.sim.exploration import Exploration, Violation, World, explore  # noqa: E402
from commitlog.testing.sim.faults import Fault, Faults, Forced  # noqa: E402
from commitlog.testing.sim.shrinking import Orders, Shrunk, shrink  # noqa: E402
from commitlog.testing.sim.simulation import Crashed, Node, Simulation, Stuck  # noqa: E402
from commitlog.testing.sim.store import SimulatedStore, store_state  # noqa: E402
from commitlog.testing.sim.table import SimulatedTable, has_expired_items, table_state  # noqa: E402

__all__ = [
    "EPOCH",
    "CampaignFailed",
    "CampaignReport",
    "Choices",
    "Crashed",
    "Deviating",
    "Drawn",
    "Exploration",
    "Fault",
    "Faults",
    "Forced",
    "Node",
    "Orders",
    "Pick",
    "Recording",
    "Replayed",
    "Seeded",
    "Shrunk",
    "SimulatedClock",
    "SimulatedStore",
    "SimulatedTable",
    "Simulation",
    "Stuck",
    "Violation",
    "World",
    "explore",
    "has_expired_items",
    "run_campaign",
    "shrink",
    "store_state",
    "table_state",
]
