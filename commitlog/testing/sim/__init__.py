"""A simulator that breaks commit protocols: the ports, time and every misfortune, under one scheduler.

See docs/verification.md for what is modelled and what is not. Needs the extra ``simulator``.
"""

from commitlog.testing.sim.campaign import CampaignFailed, CampaignReport, campaign
from commitlog.testing.sim.choices import (
    Choices,
    Deviating,
    Drawn,
    Pick,
    Recording,
    Replayed,
    Seeded,
)
from commitlog.testing.sim.clock import EPOCH, SimulatedClock
from commitlog.testing.sim.explore import Exploration, Violation, World, explore
from commitlog.testing.sim.faults import Fault, Faults, Forced
from commitlog.testing.sim.shrink import Orders, Shrunk, shrink
from commitlog.testing.sim.simulation import Crashed, Node, Simulation, Stuck
from commitlog.testing.sim.store import SimulatedStore, store_state
from commitlog.testing.sim.table import SimulatedTable, something_expired, table_state

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
    "campaign",
    "explore",
    "shrink",
    "something_expired",
    "store_state",
    "table_state",
]
