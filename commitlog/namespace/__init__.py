"""A namespace: a tree of files and directories over an object store, with renames in one step.

`Namespace` is the class that callers use. Its attribute `maintenance` has the work of operators, and
`bindings` the directories that other programs write to. Modules and packages::

    namespace, maintenance, bindings    the public methods
    context, creation, metadata         an open namespace, its creation, and its metadata record
    tree                                path lookup and listings
    status, stats                       results for callers, and request counts
    inspection                          the work that is left for maintenance
    model                               the records, and rules for names and paths
    write                               content of files, plans, and transactions
    log                                 the operation log: recovery, compaction, restore
    gc                                  emptying the trash, and garbage collection
    external                            bound directories: sync, prune, diff; and import
    fsck                                checks and repairs
    partitioned                         the same on a cluster, in partitions
    jobs                                job output, published by one rename

The docstring of each package lists its parts in the order in which an operation passes them.
"""

from commitlog.namespace.bindings import SyncReport
from commitlog.namespace.external.importer import ImportReport
from commitlog.namespace.external.prune import PruneReport
from commitlog.namespace.fsck.checker import FsckReport
from commitlog.namespace.fsck.problems import PROBLEMS, Finding, Problem, Severity
from commitlog.namespace.fsck.repair import RepairOutcome, RepairReport
from commitlog.namespace.gc.objects import GcReport
from commitlog.namespace.gc.trash import TrashReport
from commitlog.namespace.inspection import NamespaceInspection
from commitlog.namespace.jobs.committer import (
    Attempt,
    DirectoryCommitter,
    abort_stale_attempts,
    abort_uploads,
)
from commitlog.namespace.log.compaction import CompactionReport
from commitlog.namespace.log.restore import Restorer, RestoreReport
from commitlog.namespace.log.restore_writer import LostFile
from commitlog.namespace.log.rewrite import LogRewriteReport
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import LOST_AND_FOUND, NAMESPACE_SCHEMA
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.partitioned.dataset import StepProgress
from commitlog.namespace.stats import RequestCounts, RequestStats
from commitlog.namespace.status import Difference, ListPage, Status, Summary
from commitlog.namespace.write.bulk import LINK_BATCH_SIZE
from commitlog.namespace.write.file_io import FileWriter, OpenFile

__all__ = [
    "LINK_BATCH_SIZE",
    "LOST_AND_FOUND",
    "NAMESPACE_SCHEMA",
    "PROBLEMS",
    "Attempt",
    "Binding",
    "CompactionReport",
    "Data",
    "Difference",
    "DirectoryCommitter",
    "FileWriter",
    "Finding",
    "FsckReport",
    "GcReport",
    "ImportReport",
    "ListPage",
    "LogRewriteReport",
    "LostFile",
    "Namespace",
    "NamespaceInspection",
    "NamespaceMetadata",
    "OpenFile",
    "Problem",
    "PruneReport",
    "RepairOutcome",
    "RepairReport",
    "RequestCounts",
    "RequestStats",
    "RestoreReport",
    "Restorer",
    "Severity",
    "Status",
    "StepProgress",
    "Summary",
    "SyncReport",
    "TrashReport",
    "abort_stale_attempts",
    "abort_uploads",
]
