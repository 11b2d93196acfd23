"""One round through all uses of Spark, for a Python with another Spark than that of the tests.

``python smoke.py DIRECTORY`` works in the directory and prints the results of the steps as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import SparkSession

import commitlog
from commitlog.outputs import Output
from commitlog.spark import compact, configure, read, write
from support.spark_status import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(where: str) -> dict[str, Any]:
    """Return the result of each step."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = configure(builder).getOrCreate()

    def numbers(start: int, end: int) -> DataFrame:
        return spark.range(start, end, numPartitions=2).selectExpr("id", "id % 2 AS odd")

    def ids(rows: DataFrame) -> list[int]:
        return sorted(row.id for row in rows.select("id").collect())

    def load(path: str) -> DataFrame:
        return spark.read.format("commitlog").load(path)

    came: dict[str, Any] = {"spark": pyspark.__version__}

    out = f"{where}/out"
    write(numbers(0, 6), out, job_id="first", partition_by=["odd"])
    again = numbers(0, 6).write.format("commitlog").mode("append").option("partitionBy", "odd")
    came["again"] = error_of(lambda: again.option("jobId", "first").save(out))
    again.option("jobId", "second").save(out)
    came["appended"] = ids(load(out))
    compact(spark, out)
    came["merged"] = ids(read(spark, out).where("odd = 1 AND id > 1"))
    write(numbers(6, 10).where("odd = 1"), out, mode="overwrite-partitions", partition_by=["odd"])
    came["dynamic"] = ids(load(out).where("odd = 1 AND id > 0"))
    write(numbers(20, 24), out, mode="overwrite", options={"fileFormat": "orc"})
    came["overwritten"] = ids(load(out))

    copied = f"{where}/copied"
    rows = spark.readStream.schema("id BIGINT").orc(out).writeStream.format("commitlog")
    rows = rows.queryName("copy").option("checkpointLocation", f"{where}/checkpoint")
    rows.trigger(availableNow=True).start(copied).awaitTermination()
    came["streamed"] = ids(load(copied))

    landing = Path(where, "landing")
    landing.mkdir()
    for number in range(5):
        (landing / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    ingested = f"{where}/ingested"
    for _ in range(2):
        rows = spark.readStream.format("commitlog_ingest").option("fileFormat", "json")
        rows = rows.option("maxFilesPerTrigger", 2).load(str(landing)).writeStream.format("commitlog")
        rows = rows.option("checkpointLocation", f"{where}/ingest-checkpoint")
        rows = rows.trigger(availableNow=True)
        started(partial(rows.start, ingested)).awaitTermination()
    came["ingested"] = ids(load(ingested))

    plain = f"{where}/plain"
    by_id = numbers(0, 6).write.option("spark.commitlog.jobId", "daily").partitionBy("odd")
    by_id.parquet(plain)
    came["configured again"] = error_of(lambda: by_id.mode("append").parquet(plain))
    came["configured"] = ids(spark.read.parquet(plain)) + ids(load(plain))
    numbers(7, 9).write.mode("overwrite").parquet(plain)
    came["configured overwritten"] = ids(spark.read.parquet(plain))

    came["versions"] = {path.name: versions(path) for path in map(Path, (out, copied, ingested, plain))}
    spark.stop()
    return came


def error_of(step: Callable[[], Any]) -> str:
    """Return the text of the error that `step` raises, or ""."""
    try:
        step()
    except Exception as error:
        return str(error)
    return ""


def versions(path: Path) -> list[str]:
    """Return the mode of each version; raise if any file is left staged."""
    output = Output(commitlog.connect(str(path)))
    with output.store:
        assert list(output.store.list_staged()) == []
        return [record.mode for record in output.log()]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
