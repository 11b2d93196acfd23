"""Java's archive of the classes of Spark, which halves the processor time to start a JVM of the tests.

As a program, this module makes the archive: ``python -m support.class_archive FILE``. A JVM ignores an
archive of another Java or of another class path, such as that of another Spark. See JEP 350.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from support.project import ROOT

__all__ = ["JAVA_OPTIONS"]

# Most JVMs of tests live for seconds: the second compiler and parallel collectors cost more than they
# save.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_FILE = ROOT / ".venv" / "spark-classes.jsa"

# A JVM that ignores the archive warns. Some programs of Spark print their results to stdout.
_NO_WARNINGS = "-Xlog:disable -Xlog:all=error:stderr"

#: The options of every JVM of the tests.
JAVA_OPTIONS = (
    f'{_SHORT_LIVED} {_NO_WARNINGS} "-XX:SharedArchiveFile={_FILE}"' if _FILE.exists() else _SHORT_LIVED
)


def _use_spark(directory: Path) -> None:
    """Load the classes that most tests need."""
    from pyspark.sql import functions as f

    from demo.quiet import quiet_session

    spark = quiet_session()
    key, at = (f.col("id") % 7).alias("key"), f.current_timestamp().alias("at")
    rows = spark.range(100).select("id", key, at)
    rows.createOrReplaceTempView("rows")
    for name in "parquet", "json", "csv", "orc":
        path = str(directory / name)
        rows.write.partitionBy("key").mode("overwrite").format(name).save(path)
        spark.read.schema(rows.schema).format(name).load(path).where("key = 3").collect()
    rows.join(rows.groupBy("key").count(), "key").orderBy("id").collect()
    spark.sql("SELECT key, max(at) FROM rows GROUP BY key").collect()
    spark.createDataFrame([(1, "a"), (2, None)], "number int, letter string").collect()
    stream = spark.readStream.schema(rows.schema).parquet(str(directory / "parquet"))
    writer = stream.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    writer = writer.trigger(availableNow=True).foreachBatch(lambda batch, _: batch.count())
    writer.start().awaitTermination()
    gateway = spark.sparkContext._gateway
    spark.stop()
    # The JVM ends when its stdin does, and makes the archive before.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def main(file: str) -> None:
    """Make the archive `file` by a short program of Spark."""
    Path(file).unlink(missing_ok=True)
    os.environ["JDK_JAVA_OPTIONS"] = f'{_SHORT_LIVED} {_NO_WARNINGS} "-XX:ArchiveClassesAtExit={file}"'
    with tempfile.TemporaryDirectory() as directory:
        _use_spark(Path(directory))
    if not Path(file).exists():
        sys.exit(f"Java made no archive {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
