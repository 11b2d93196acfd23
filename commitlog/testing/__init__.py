"""The public test kit: contract checks and a clock that a test turns by hand."""

from commitlog.testing.clock import ManualClock
from commitlog.testing.history import Action, Call, History, Outcome
from commitlog.testing.linearizability import CheckUndecided, NotLinearizable, check_linearizable
from commitlog.testing.recorded import RecordedStore
from commitlog.testing.recorder import Recorder
from commitlog.testing.store_checks import check_object_store
from commitlog.testing.table_checks import check_table

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
