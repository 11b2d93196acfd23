"""Atomic commits of many objects: jobs that are committed to a directory, each at most once.

Start with `Output`. The modules: `job` (sent to workers), `records`, `manifest` and `pending` (stored
records), `state`, `checkpoints`, `job_index` and `packed` (the state of the log), `log` (the commit
log), `log_cache` (what a process remembers of it), `shared_records` (jobs that share a record),
`ready_jobs` (jobs that drivers leave for each other), `publishing` (work after the commit point),
`recovery`, `inspection` (the work that is left), `history` (the last commits), `reports` (results for
readers and operators), `tail` (new files), `compaction` (files to merge), `foreign` (files that no job
wrote), and `output`, which joins them.
"""

from commitlog.outputs.history import CommitSummary, OutputHistory
from commitlog.outputs.inspection import AttemptStatus, OutputInspection, UnpublishedJob
from commitlog.outputs.job import Batch, Job, Mode, StagedFile, Stats, Visibility
from commitlog.outputs.output import Output
from commitlog.outputs.records import AbortRecord, CommitRecord, DataFile, ExpiryRecord, Record
from commitlog.outputs.reports import LostFiles, OutputGcReport, RecoveryReport, Snapshot
from commitlog.outputs.state import State
from commitlog.outputs.tail import Added, OnRewrite, Position, Tail

__all__ = [
    "AbortRecord",
    "Added",
    "AttemptStatus",
    "Batch",
    "CommitRecord",
    "CommitSummary",
    "DataFile",
    "ExpiryRecord",
    "Job",
    "LostFiles",
    "Mode",
    "OnRewrite",
    "Output",
    "OutputGcReport",
    "OutputHistory",
    "OutputInspection",
    "Position",
    "Record",
    "RecoveryReport",
    "Snapshot",
    "StagedFile",
    "State",
    "Stats",
    "Tail",
    "UnpublishedJob",
    "Visibility",
]
