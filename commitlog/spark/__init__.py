"""Spark API: the data source ``commitlog``, `read`, `write` and `compact`, and the committer.

    spark.dataSource.register(CommitlogDataSource)
    commitlog.spark.write(df, url, job_id="daily-2026-11-21")
    df.write.format("commitlog").mode("append").option("jobId", "daily-2026-11-21").save(url)
    spark.read.format("commitlog").load(url)
    commitlog.spark.read(spark, url)
    commitlog.spark.compact(spark, url)

Needs the extra ``spark`` (pyspark and pyarrow). See ``docs/spark.md``.

Names are imported on first use, because each of Spark's many Python processes imports this package and
needs little of it. If PySpark is missing or older than 4.2, the first use raises a `ConfigurationError`
that names the required version.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from commitlog.errors import ConfigurationError

if TYPE_CHECKING:
    from commitlog.spark import ingest
    from commitlog.spark.builder import session
    from commitlog.spark.committer.configure import attach, committer_jar, configure
    from commitlog.spark.compaction import compact
    from commitlog.spark.dataframe import read, write
    from commitlog.spark.datasource import CommitlogDataSource
    from commitlog.spark.errors import error_of
    from commitlog.spark.targets.namespace import physical_files

__all__ = [
    "CommitlogDataSource",
    "attach",
    "committer_jar",
    "compact",
    "configure",
    "error_of",
    "ingest",
    "physical_files",
    "read",
    "session",
    "write",
]

_HOMES = MappingProxyType(
    {
        "CommitlogDataSource": "datasource",
        "attach": "committer.configure",
        "committer_jar": "committer.configure",
        "compact": "compaction",
        "configure": "committer.configure",
        "error_of": "errors",
        "physical_files": "targets.namespace",
        "read": "dataframe",
        "session": "builder",
        "write": "dataframe",
    }
)


#: The oldest supported version of PySpark.
_PYSPARK = (4, 2)


def __getattr__(name: str) -> Any:
    if name == "ingest":
        return import_module(f"{__name__}.ingest")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_pyspark()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def check_pyspark() -> None:
    """Raise `ConfigurationError` unless a supported PySpark is installed."""
    try:
        from pyspark import __version__ as found
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        found = ""
    if found and tuple(map(int, re.findall(r"\d+", found)[:2])) >= _PYSPARK:
        return
    needed = ".".join(map(str, _PYSPARK))
    what = f"this is PySpark {found}" if found else "there is no PySpark"
    raise ConfigurationError(
        f"commitlog.spark needs PySpark {needed} or newer, and {what}, in {sys.executable}: pip install"
        f" 'pyspark>={needed}', which 'commitlog-store[spark]' does, on the driver and on the workers"
    )


def __dir__() -> list[str]:
    return __all__
