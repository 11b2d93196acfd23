"""Dask: write a DataFrame to an output, as one commit of many workers.

    commitlog.dask.to_commitlog(ddf, "s3://bucket/out", job_id="daily-2026-11-21")

See ``docs/dask-and-ray.md``. `dataframe` is the part for Dask, and `commitlog.tabular` has the job.

Importing the package raises `ImportError` without the extra ``dask`` (dask, pandas and pyarrow).
"""

from __future__ import annotations

from commitlog.extras import require

require("dask", extra="dask", user=__name__)
require("pandas", extra="dask", user=__name__)
require("pyarrow", extra="dask", user=__name__)

from commitlog.dask.dataframe import to_commitlog  # noqa: E402 - the extras are there

__all__ = ["to_commitlog"]
