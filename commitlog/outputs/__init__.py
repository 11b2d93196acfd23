"""Many objects, all or nothing: jobs that are committed to a directory, each at most once.

`Output` is the way in. The modules: `job` (what travels to workers), `records` and `pending` (what is
stored), `log` (who is committed), `publishing` (what follows from it), `recovery`, `reports` (what
readers and operators are told), and `output`, which joins them.
"""

from commitlog.outputs.job import Job, Mode, StagedFile
from commitlog.outputs.output import Output
from commitlog.outputs.records import AbortRecord, CommitRecord, DataFile, Record
from commitlog.outputs.reports import RecoveryReport, Snapshot

__all__ = [
    "AbortRecord",
    "CommitRecord",
    "DataFile",
    "Job",
    "Mode",
    "Output",
    "Record",
    "RecoveryReport",
    "Snapshot",
    "StagedFile",
]
