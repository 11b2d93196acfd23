"""Exactly-once ingest: read every version of every object in a bucket exactly once.

A driver uses `Ingest`, an executor uses `Fetch`, an operator uses `IngestAdmin`.

* `settings`, `path_filter`: the configuration of a source.
* `files`, `offset`: the data that goes from the driver to the query and its executors.
* `watermarks`, `source_state`, `rows`, `quarantine`, `source_metadata`, `state`: the stored state.
* `seen_files`, `epoch_builder`, `notifications`, `planning`: the planning of an epoch.
* `source`, `counters`: the driver's side.
* `cleaning_queue`, `cleaner`: the deletion, or archiving, of delivered files.
* `fetch`: the executor's side.
* `admin`: the operator's side.
"""

from commitlog.ingest.admin import Backlog, IngestAdmin, SourceStatus, sources
from commitlog.ingest.cleaner import Cleaned, Cleaner, store_to_clean
from commitlog.ingest.counters import Counters
from commitlog.ingest.fetch import Fetch, Pinned
from commitlog.ingest.files import File, Partition, Slice
from commitlog.ingest.notifications import Notification, Notifications
from commitlog.ingest.path_filter import PathFilter
from commitlog.ingest.quarantine import InputProblem, Quarantine
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.source import Ingest
from commitlog.ingest.source_metadata import SourceMetadata
from commitlog.ingest.source_state import INGEST_SCHEMA
from commitlog.ingest.state import StateTable

__all__ = [
    "INGEST_SCHEMA",
    "Backlog",
    "Cleaned",
    "Cleaner",
    "Counters",
    "Fetch",
    "File",
    "Ingest",
    "IngestAdmin",
    "IngestSettings",
    "InputProblem",
    "Notification",
    "Notifications",
    "Partition",
    "PathFilter",
    "Pinned",
    "Quarantine",
    "Slice",
    "SourceMetadata",
    "SourceStatus",
    "StateTable",
    "sources",
    "store_to_clean",
]
