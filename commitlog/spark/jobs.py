"""What a job is, whatever it writes to, as the options of the data source say.

Imports errors, and the names of formats.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen

from commitlog.errors import ConfigurationError
from commitlog.spark.formats import FORMATS
from commitlog.spark.given import Given

__all__ = ["JOB", "JobOptions"]

#: The options that `JobOptions` are told by.
JOB = (
    *("jobId", "ifExists", "onDuplicate", "mergeSchema"),
    *("fileFormat", "compression", "partitionBy", "sortBy", "targetFileBytes", "targetFileRows"),
)


@frozen(kw_only=True, slots=False)  # it is one of two bases, of which one may have slots
class JobOptions:
    """What a job is, and how its tasks write files.

    Attributes:
        job_id: what is written under one job id is committed at most once; None for a new one.
        if_exists: ``append``; or ``error`` or ``ignore`` if a place that has data is to be left alone.
        on_duplicate: ``error`` or ``skip``: what to do about a job that was committed before.
        merge_schema: whether rows may have columns that the others there lack, and lack columns of them.
        file_format: one of `FORMATS`.
        compression: one of the format's.
        partition_by: names of the columns that become directories.
        sort_by: names of the columns that each file is sorted by.
        target_file_bytes: size from which on a file is complete; None for any.
        target_file_rows: most rows of a file; None for any number.
    """

    job_id: str | None
    if_exists: Literal["append", "error", "ignore"]
    on_duplicate: Literal["error", "skip"]
    merge_schema: bool
    file_format: str
    compression: str
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    target_file_bytes: int | None
    target_file_rows: int | None

    @staticmethod
    def told(given: Given) -> dict[str, Any]:
        """Return the attributes, as the options `JOB` say. Raises `ConfigurationError`."""
        file_format = given.choice("fileFormat", tuple(FORMATS))
        return {
            "job_id": given.get("jobId"),
            "if_exists": given.choice("ifExists", ("append", "error", "ignore")),
            "on_duplicate": given.choice("onDuplicate", ("error", "skip")),
            "merge_schema": given.flag("mergeSchema"),
            "file_format": file_format,
            "compression": given.choice("compression", tuple(FORMATS[file_format].compressions)),
            "partition_by": given.names("partitionBy"),
            "sort_by": given.names("sortBy"),
            "target_file_bytes": given.count("targetFileBytes"),
            "target_file_rows": given.count("targetFileRows"),
        }

    def save_mode(self, overwrite: bool) -> Literal["append", "error", "overwrite"]:
        """Return what ``ifExists`` makes of Spark's save mode, which is ``overwrite`` or ``append``."""
        if not overwrite:
            return "append" if self.if_exists == "append" else "error"
        if self.if_exists != "append":
            raise ConfigurationError("option ifExists goes with save mode append, not with overwrite")
        return "overwrite"
