"""Every object of a bucket, each version exactly once: what is listed, and what is read of it.

`Ingest` is what a driver works with, `Fetch` what an executor does, `Operator` what people do.
The modules: `settings` and `names` (what is wanted), `files` (what is handed out), `offset` (where a
query is), `floors`, `head`, `rows`, `problems`, `about` and `state` (what is stored), `window` (what is
remembered), `cargo` and `planning` (what an epoch is made of), `counters`, `source`, `ahead`, `fetch`
and `operator`.
"""

from commitlog.ingest.about import About
from commitlog.ingest.counters import Counters
from commitlog.ingest.fetch import Fetch, Pinned
from commitlog.ingest.files import File, Partition, Slice
from commitlog.ingest.head import INGEST_SCHEMA
from commitlog.ingest.names import Names
from commitlog.ingest.operator import Backlog, Operator, Status, sources
from commitlog.ingest.problems import Problem, Problems
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.source import Ingest
from commitlog.ingest.state import State

__all__ = [
    "INGEST_SCHEMA",
    "About",
    "Backlog",
    "Counters",
    "Fetch",
    "File",
    "Ingest",
    "IngestSettings",
    "Names",
    "Operator",
    "Partition",
    "Pinned",
    "Problem",
    "Problems",
    "Slice",
    "State",
    "Status",
    "sources",
]
