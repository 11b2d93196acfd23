"""One look at outputs, namespaces, tables of leases and the state of ingest: what needs attention.

`look` reads one target in few requests, and returns a `Report`. The modules: `findings` (the kinds of
findings, and the reports), `look` (the rules), and `metrics` (reports as OpenMetrics text).
"""

from commitlog.status.findings import (
    FINDING_KINDS,
    FindingKind,
    LeaseInspection,
    LookSettings,
    Report,
    SourceInspection,
    SourcesInspection,
    StatusFinding,
    TargetKind,
)
from commitlog.status.look import look
from commitlog.status.metrics import metrics_text

__all__ = [
    "FINDING_KINDS",
    "FindingKind",
    "LeaseInspection",
    "LookSettings",
    "Report",
    "SourceInspection",
    "SourcesInspection",
    "StatusFinding",
    "TargetKind",
    "look",
    "metrics_text",
]
