"""The engine's face: the Spark data source ``commitlog``, and a session that is set up for it.

    spark.dataSource.register(CommitlogDataSource)
    commitlog.spark.write(df, url, job_id="daily-2026-11-21")
    df.write.format("commitlog").mode("append").option("jobId", "daily-2026-11-21").save(url)
    spark.read.format("commitlog").load(url)
    commitlog.spark.read(spark, url)
    commitlog.spark.compact(spark, url)

Needs the extra ``spark`` (pyspark and pyarrow). See ``docs/spark.md``.
"""

from commitlog.spark.compact import compact
from commitlog.spark.configure import attach, committer_jar, configure
from commitlog.spark.read import read
from commitlog.spark.source import CommitlogDataSource
from commitlog.spark.start import session
from commitlog.spark.write import write

__all__ = [
    "CommitlogDataSource",
    "attach",
    "committer_jar",
    "compact",
    "configure",
    "read",
    "session",
    "write",
]
