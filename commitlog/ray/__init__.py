"""Ray Data: write a Dataset to an output, as one commit of many tasks.

    ds.write_datasink(commitlog.ray.CommitlogDatasink("s3://bucket/out", job_id="daily-2026-11-21"))

See ``docs/dask-and-ray.md``. `datasink` is the part for Ray, and `commitlog.tabular` has the job.

Importing the package raises `ImportError` without the extra ``ray`` (ray, pandas and pyarrow).
"""

from __future__ import annotations

from commitlog.extras import require

require("ray", extra="ray", user=__name__)
require("pyarrow", extra="ray", user=__name__)

from commitlog.ray.datasink import CommitlogDatasink, write_commitlog  # noqa: E402 - the extras are there

__all__ = ["CommitlogDatasink", "write_commitlog"]
