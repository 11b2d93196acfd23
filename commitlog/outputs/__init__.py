"""Many objects, all or nothing: jobs that are committed to a directory, each at most once.

`Output` is the way in. The modules: `job` (what travels to workers), `records`, `manifest` and `pending`
(what is stored), `state` and `checkpoints` (what it adds up to), `log` (who is committed), `publishing`
(what follows from it), `recovery`, `reports` (what readers and operators are told), `tail` (what
is new since), `compaction` (which files to merge), and `output`, which joins them.
"""

from commitlog.outputs.job import Batch, Job, Mode, StagedFile, Stats, Visibility
from commitlog.outputs.output import Output
from commitlog.outputs.records import AbortRecord, CommitRecord, DataFile, ExpiryRecord, Record
from commitlog.outputs.reports import GcReport, LostFiles, RecoveryReport, Snapshot
from commitlog.outputs.state import State
from commitlog.outputs.tail import Added, OnRewrite, Position, Tail

__all__ = [
    "AbortRecord",
    "Added",
    "Batch",
    "CommitRecord",
    "DataFile",
    "ExpiryRecord",
    "GcReport",
    "Job",
    "LostFiles",
    "Mode",
    "OnRewrite",
    "Output",
    "Position",
    "Record",
    "RecoveryReport",
    "Snapshot",
    "StagedFile",
    "State",
    "Stats",
    "Tail",
    "Visibility",
]
