"""A tree over an object store: paths that are not names of objects, and renames in one step.

`Namespace` is what callers work with. Its methods stand in layers, each upon the one before: `opened`
(table, store and format), `looking` (reading), `upkeep` (running it), `bound` (directories that others
write to), `writing` (files), `namespace` (names). They delegate to the other modules::

    keys  items  records  data  leftovers  marker     what is stored in the table, and where
    tree                                              reading it: paths, and what directories have
    parts  linking  moving  planning  cycles          what operations write, and on which conditions
    change  batches  singly  deep                     one transaction; many; for files singly; deep paths
    content  files  staged                            bytes: objects, open files, uploads of the dead
    sweeping  collecting  removals                    emptying the trash, and removing garbage
    adopt                                             making files of objects that were there before
    binding  outside  mark  joint  levels             what a bound directory has, beside its rows
    joining  views  differing  pruning                … brought into the table, shown, compared, removed
    attempts  filling  jobs  publishing               the output of a job, published by one rename
    logged  base  compaction                          what the log says of changes, and keeping it short
    epoch                                             which table the log belongs to
    recovery                                          what became of pending changes: found out
    restore  inference  claims  known                 … inferred, when the table is lost, …
    merging  takeover  refill                         … made one tree, and its records written again
    relog                                             the log written again, from the table
    problems  readers  snapshot  survey               what can be wrong, and what a check reads
    check  shape  against  named  confirming          looking for it
    repair  fixes  fixing                             repairing it
    recording  counting  requests                     how much all that asks for
    status                                            what callers are told
"""

from commitlog.namespace.adopt import Adopted
from commitlog.namespace.attempts import Attempt, sweep_staging
from commitlog.namespace.binding import Binding
from commitlog.namespace.bound import Synced
from commitlog.namespace.check import Checked
from commitlog.namespace.collecting import Collected
from commitlog.namespace.compaction import Compacted
from commitlog.namespace.data import Data
from commitlog.namespace.deep import make_directories
from commitlog.namespace.files import FileWriter, OpenFile
from commitlog.namespace.fixing import LOST_AND_FOUND
from commitlog.namespace.keys import NAMESPACE_SCHEMA
from commitlog.namespace.marker import Marker
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.problems import PROBLEMS, Finding, Problem, Severity
from commitlog.namespace.pruning import Pruned
from commitlog.namespace.publishing import Publication
from commitlog.namespace.refill import Lost
from commitlog.namespace.relog import Relogged
from commitlog.namespace.repair import Outcome, Repaired
from commitlog.namespace.requests import Counts, Requests
from commitlog.namespace.restore import Restored, Restorer
from commitlog.namespace.singly import FILES_OF_A_LINK, link_each
from commitlog.namespace.staged import abort_uploads
from commitlog.namespace.status import Difference, ListPage, Status, Summary
from commitlog.namespace.sweeping import Swept

__all__ = [
    "FILES_OF_A_LINK",
    "LOST_AND_FOUND",
    "NAMESPACE_SCHEMA",
    "PROBLEMS",
    "Adopted",
    "Attempt",
    "Binding",
    "Checked",
    "Collected",
    "Compacted",
    "Counts",
    "Data",
    "Difference",
    "FileWriter",
    "Finding",
    "ListPage",
    "Lost",
    "Marker",
    "Namespace",
    "OpenFile",
    "Outcome",
    "Problem",
    "Pruned",
    "Publication",
    "Relogged",
    "Repaired",
    "Requests",
    "Restored",
    "Restorer",
    "Severity",
    "Status",
    "Summary",
    "Swept",
    "Synced",
    "abort_uploads",
    "link_each",
    "make_directories",
    "sweep_staging",
]
