"""A tree over an object store: paths that are not names of objects, and renames in one step.

`Namespace` is what callers work with; it is made of `opened` (its table and store), `looking`, `upkeep`,
`bound` (directories that others write to) and `namespace` (changes). The other modules: `keys` and
`records`, `data`, `leftovers`, `marker`, `items` (what is stored, and where), `tree` (reading), `parts`,
`linking`, `planning`, `cycles` (what each operation writes, on which conditions), `change` (one
transaction), `batches` and `singly` (many), `content` and `files` (bytes), `reclaim` (trash and
garbage), `staged` (uploads of the dead), `adopt` (objects that were there before), `binding`, `outside`,
`joint`, `levels`, `joining`, `views`, `differing` and `pruning` (objects that others store and remove),
`publishing` and `jobs` (the output of jobs), `recovery` (what was left pending in the log), `logged`,
`base` and `compaction` (what the log says, and keeping it short), `restore` (names made
again from it), `problems`, `snapshot`, `shape`, `check`, `repair`, `fixes` and `fixing` (what is wrong),
`recording`, `counting` and `requests` (how much all that asks for), `status` (what callers are told).
"""

from commitlog.namespace.adopt import Adopted
from commitlog.namespace.attempts import Attempt, sweep_staging
from commitlog.namespace.binding import Binding
from commitlog.namespace.bound import Synced
from commitlog.namespace.check import Checked
from commitlog.namespace.collecting import Collected
from commitlog.namespace.compaction import Compacted
from commitlog.namespace.data import Data
from commitlog.namespace.files import FileWriter, OpenFile
from commitlog.namespace.fixing import LOST_AND_FOUND
from commitlog.namespace.keys import NAMESPACE_SCHEMA
from commitlog.namespace.marker import Marker
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.problems import PROBLEMS, Finding, Problem, Severity
from commitlog.namespace.pruning import Pruned
from commitlog.namespace.publishing import Publication
from commitlog.namespace.refill import Lost
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
    "sweep_staging",
]
