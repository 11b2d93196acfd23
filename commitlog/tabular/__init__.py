"""Rows as files of an output: the parts that Spark, Dask and Ray share. Needs pyarrow.

* `output_job`: a job that several processes write and one commits; start with `OutputWriter`
* `task_files`: the files of one task of a job
* `columns`: the columns of an output, as commit records keep them
* `schema`: the columns of rows, and checks that they fit an output
* `partitions`: partition columns as directories
* `heartbeat`: heartbeats of running jobs

`commitlog.files` has the formats of the files.
"""

from __future__ import annotations

from commitlog.tabular.heartbeat import check_heartbeat, send_heartbeats
from commitlog.tabular.output_job import (
    PUBLISHERS,
    OnDuplicate,
    OutputWriter,
    TabularJob,
    check_spellings,
    commit_of,
    warn_of_foreign,
)
from commitlog.tabular.schema import check_schema, override_types
from commitlog.tabular.task_files import FileOptions, OutputUploads, TaskFiles, Uploads, check_files

__all__ = [
    "PUBLISHERS",
    "FileOptions",
    "OnDuplicate",
    "OutputUploads",
    "OutputWriter",
    "TabularJob",
    "TaskFiles",
    "Uploads",
    "check_files",
    "check_heartbeat",
    "check_schema",
    "check_spellings",
    "commit_of",
    "override_types",
    "send_heartbeats",
    "warn_of_foreign",
]
