"""The test kit: contract checks, a checker of histories, a clock for tests, and further packages.

* `check_object_store` and `check_table` check the contract of a port (package `contract`).
* `Recorder` and `RecordedStore` record a `History`; `check_linearizable` checks it. The modules are
  `history`, `recorder`, `recorded_store`, `linearizability`, `linearization` (the search) and
  `counterexample`.
* `ManualClock` (module `clock`) only moves when a test advances it.
* `processes` has the life of the processes that the proxy and the stress test start.
* `commitlog.testing.sim` is the simulator, `commitlog.testing.stress` a stress test of real servers, and
  `commitlog.testing.proxy` an unreliable network.
"""

from commitlog.testing.clock import ManualClock
from commitlog.testing.contract.store import check_object_store
from commitlog.testing.contract.table import check_table
from commitlog.testing.history import Action, Call, History, Outcome
from commitlog.testing.linearizability import CheckUndecided, NotLinearizable, check_linearizable
from commitlog.testing.recorded_store import RecordedStore
from commitlog.testing.recorder import Recorder

__all__ = [
    "Action",
    "Call",
    "CheckUndecided",
    "History",
    "ManualClock",
    "NotLinearizable",
    "Outcome",
    "RecordedStore",
    "Recorder",
    "check_linearizable",
    "check_object_store",
    "check_table",
]
