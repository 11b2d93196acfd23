"""One round through the data sources and Spark's own writers, for a Python with any Spark.

``python formats.py DIRECTORY`` works in the directory and prints the results of the parts as JSON. If a
part fails with an error of the library, its result is that error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from attrs import frozen
from pyspark.sql import SparkSession

import commitlog
from commitlog.namespaces import create_namespace
from commitlog.outputs import Output
from commitlog.spark import compact, configure, error_of, read, write
from support.spark_status import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A row of every type, and one of nulls.
TYPES = """
    SELECT 1 AS id, true AS b, 2Y AS i8, 3S AS i16, 4 AS i32, 5L AS i64, float(0.5) AS f32, -0.0D AS f64,
        'é' AS s, X'00FF' AS bin, DATE'2013-03-10' AS d, TIMESTAMP'2013-03-10 02:30:00.000001' AS t,
        TIMESTAMP_NTZ'2013-03-10 02:30:00' AS n, 1.50BD AS dec, array(1, NULL) AS a,
        map('k', array(2L)) AS m, named_struct('x', 1, 'y', TIMESTAMP'1969-12-31 23:59:59') AS st
    UNION ALL
    SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL,
        NULL, NULL, NULL,
        NULL, NULL
"""


@frozen
class Round:
    """The parts, in one session and one directory."""

    spark: SparkSession
    where: str

    def batch(self) -> dict[str, Any]:
        """Write an output in all modes, read it, and merge its files."""
        came: dict[str, Any] = {}
        out = f"{self.where}/out"
        write(self.numbers(0, 6), out, job_id="first", partition_by=["odd"])
        again = self.numbers(0, 6).write.format("commitlog").mode("append").option("partitionBy", "odd")
        came["again"] = attempt(lambda: again.option("jobId", "first").save(out))
        again.option("jobId", "second").save(out)
        came["appended"] = ids(self.load(out))
        compact(self.spark, out)
        came["merged"] = ids(read(self.spark, out).where("odd = 1 AND id > 1"))
        one = self.numbers(6, 10).where("odd = 1")
        write(one, out, mode="overwrite-partitions", partition_by=["odd"])
        came["dynamic"] = ids(self.load(out).where("odd = 1 AND id > 0"))
        bad = self.numbers(0, 4).selectExpr("if(id = 3, raise_error('a bad row'), id) AS id", "odd")
        came["failed"] = failure(lambda: write(bad, out, partition_by=["odd"]))
        came["after the failure"] = ids(self.load(out).where("odd = 1 AND id > 0"))
        write(self.numbers(20, 24), out, mode="overwrite", options={"fileFormat": "orc"})
        came["overwritten"] = ids(self.load(out))
        came["versions"] = versions(out)
        write(self.numbers(0, 0), f"{self.where}/empty")
        came["empty"] = ids(self.load(f"{self.where}/empty"))
        return came

    def types(self) -> dict[str, list[bool]]:
        """Return for each format whether the data source and `read` return all values."""
        rows = self.spark.sql(TYPES)
        came = {}
        for name in ("parquet", "orc", "arrow"):
            url = f"{self.where}/types-{name}"
            write(rows, url, options={"fileFormat": name})
            expected = str(rows.orderBy("id").collect())
            found = [self.load(url), read(self.spark, url)]
            came[name] = [str(each.orderBy("id").collect()) == expected for each in found]
        return came

    def namespace(self) -> dict[str, list[int]]:
        """Write to a directory of a namespace and read it."""
        names, url = f"sqlite://{self.where}/names.db", "commitlog://lake/events"
        options = {"metadata": names}
        with create_namespace("lake", store=f"file://{self.where}/lake", metadata=names):
            write(self.numbers(0, 3), url, options=options)
            more = self.numbers(3, 6).write.format("commitlog").options(**options).mode("append")
            more.save(url)
            rows = self.spark.read.format("commitlog").options(**options).load(url)
            filtered = read(self.spark, url, filters=[("id", ">", 3)], options=options)
            return {"rows": ids(rows), "filtered": ids(filtered)}

    def sink(self) -> dict[str, Any]:
        """Copy files to an output by a streaming query, in two batches."""
        source, copied = f"{self.where}/source", f"{self.where}/copied"
        for number in range(2):
            self.numbers(4 * number, 4 * number + 4).write.mode("append").orc(source)
            rows = self.spark.readStream.schema("id BIGINT").orc(source).writeStream.format("commitlog")
            rows = rows.queryName("copy").option("checkpointLocation", f"{self.where}/checkpoint")
            rows.trigger(availableNow=True).start(copied).awaitTermination()
        return {"rows": ids(self.load(copied)), "versions": versions(copied)}

    def tail(self) -> list[int]:
        """Follow an output by a streaming query to files of Spark."""
        out, copied = f"{self.where}/followed", f"{self.where}/tail"
        for number in range(2):
            write(self.numbers(4 * number, 4 * number + 4), out)
            rows = self.spark.readStream.format("commitlog").option("maxFilesPerTrigger", 1).load(out)
            query = rows.writeStream.format("parquet").trigger(availableNow=True)
            query = query.option("checkpointLocation", f"{self.where}/tail-checkpoint")
            started(partial(query.start, copied)).awaitTermination()
        return ids(self.spark.read.parquet(copied))

    def ingest(self) -> dict[str, Any]:
        """Ingest files to an output, in two runs."""
        landing = Path(self.where, "landing")
        landing.mkdir()
        for number in range(5):
            (landing / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        ingested = f"{self.where}/ingested"
        for _ in range(2):
            rows = self.spark.readStream.format("commitlog_ingest").option("fileFormat", "json")
            query = rows.option("maxFilesPerTrigger", 2).load(str(landing)).writeStream
            query = query.format("commitlog").trigger(availableNow=True)
            query = query.option("checkpointLocation", f"{self.where}/ingest-checkpoint")
            started(partial(query.start, ingested)).awaitTermination()
        return {"rows": ids(self.load(ingested)), "versions": versions(ingested)}

    def configured(self) -> dict[str, Any]:
        """Write with Spark's own writer."""
        plain = f"{self.where}/plain"
        came: dict[str, Any] = {}
        by_id = self.numbers(0, 6).write.option("spark.commitlog.jobId", "daily").partitionBy("odd")
        by_id.parquet(plain)
        came["again"] = attempt(lambda: by_id.mode("append").parquet(plain))
        came["written"] = ids(self.spark.read.parquet(plain))
        came["loaded"] = ids(self.load(plain))
        self.numbers(7, 9).write.mode("overwrite").parquet(plain)
        came["overwritten"] = ids(self.spark.read.parquet(plain))
        came["versions"] = versions(plain)
        return came

    def numbers(self, start: int, end: int) -> DataFrame:
        """Return the numbers of a range."""
        return self.spark.range(start, end, numPartitions=2).selectExpr("id", "id % 2 AS odd")

    def load(self, path: str) -> DataFrame:
        """Return the rows of an output."""
        return self.spark.read.format("commitlog").load(path)


def main(where: str) -> dict[str, Any]:
    """Return the result of each part."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "Asia/Kolkata")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = configure(builder).getOrCreate()
    this = Round(spark, where)
    parts = (
        *(this.batch, this.types, this.namespace),
        *(this.sink, this.tail, this.ingest, this.configured),
    )
    came = {part.__name__: attempt(part) for part in parts}
    spark.stop()
    return {"spark": pyspark.__version__, **came}


def attempt(part: Callable[[], Any]) -> Any:
    """Return what `part` returns, or the error of this library that it ends with, as text."""
    try:
        return part()
    except Exception as error:
        own = error_of(error)
        if own is None:
            raise
        return f"{type(own).__name__}: {own}"


def failure(step: Callable[[], Any]) -> str:
    """Return the text of the error that `step` raises, or ""."""
    try:
        step()
    except Exception as error:
        return str(error)
    return ""


def ids(rows: DataFrame) -> list[int]:
    """Return the values of the column id, sorted."""
    return sorted(row.id for row in rows.select("id").collect())


def versions(path: str) -> list[str]:
    """Return the mode of each version of an output; raise if any file is left staged."""
    output = Output(commitlog.connect(path))
    with output.store:
        assert list(output.store.list_staged()) == []
        return [record.mode for record in output.log()]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
