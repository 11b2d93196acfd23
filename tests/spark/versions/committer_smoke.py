"""One round through Spark's own writers with the committer, for a Python with any Spark.

``python committer_smoke.py`` reads a `Round` as JSON from standard input, and prints the results of its
steps as JSON. A step's error is its text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from attrs import frozen
from pyspark.sql import SparkSession

import commitlog
import commitlog.spark
from commitlog.outputs import Output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


#: The formats that Spark finds by their classes: only the jar of Avro has a name for it.
WRITERS = {"avro": "org.apache.spark.sql.avro.AvroFileFormat"}


@frozen(kw_only=True)
class Round:
    """The settings of a session, and the outputs that it writes.

    Attributes:
        conf: settings of the session, besides those of the committer.
        jar: the committer's jar; None: `commitlog.spark.configure` sets the session up.
        outputs: for each output its URL in Spark, and its URL for `commitlog.connect`.
        more: whether tables are written, and columns inferred.
        tables: a directory for tables, and for files to ingest.
        options: options of the stores.
        formats: formats of files to ingest, from a directory (``local``) and by S3A (``s3a``).
    """

    conf: Mapping[str, str]
    jar: str | None
    outputs: Mapping[str, tuple[str, str]]
    more: bool
    tables: str
    options: Mapping[str, str]
    formats: Mapping[str, list[str]]


def main(this: Round) -> dict[str, Any]:
    """Return the results of the steps for each output."""
    spark = session(this)
    came: dict[str, Any] = versions(spark)
    for name, (url, store_url) in this.outputs.items():
        # Between them, both visibilities and both kinds of stores.
        visibility = {"local": "logged", "s3a": "listed"}[name]
        spark.conf.set("spark.commitlog.visibility", visibility)
        output = f"{store_url}/{visibility}"
        options = this.options if store_url.startswith("s3:") else {}
        came[f"{name} {visibility}"] = steps(spark, f"{url}/{visibility}", output, options)
    spark.conf.unset("spark.commitlog.visibility")
    places = {"local": f"{this.tables}/in put", "s3a": f"{this.outputs['s3a'][0]}-in put"}
    came["ingested"] = {
        place: ingested(spark, places[place], this.tables, names)
        for place, names in this.formats.items()
    }
    of_avro = spark.readStream.format("commitlog_ingest_spark").schema("n int")
    of_avro = of_avro.option("fileFormat", "avro")
    came["avro"] = error_of(lambda: of_avro.load(this.tables))
    if this.more:
        came["tables"] = tables(spark, this.tables)
        came["inferred and cleaned"] = inferred_and_cleaned(spark, Path(this.tables, "landing"))
    came["data source"] = error_of(lambda: commitlog.spark.CommitlogDataSource)
    spark.stop()
    return came


def session(this: Round) -> SparkSession:
    """Return a session with the committer."""
    builder: Any = SparkSession.builder.master("local[2]")
    for name, value in this.conf.items():
        builder.config(name, value)
    if this.jar is None:
        return commitlog.spark.configure(builder).getOrCreate()
    builder.config("spark.jars", ",".join([this.jar, this.conf["spark.jars"]]))
    return builder.config("spark.plugins", "io.commitlog.CommitlogPlugin").getOrCreate()


def versions(spark: SparkSession) -> dict[str, str]:
    """Return the versions of Spark, Scala and Hadoop."""
    jvm: Any = spark._jvm
    return {
        "spark": pyspark.__version__,
        "scala": jvm.scala.util.Properties.versionNumberString(),
        "hadoop": jvm.org.apache.hadoop.util.VersionInfo.getVersion(),
    }


def steps(spark: SparkSession, url: str, store_url: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Write to an output in all modes; return the rows after each write, and the output's versions."""

    def numbers(start: int, end: int) -> DataFrame:
        return spark.range(start, end, numPartitions=2).selectExpr("id", "id % 2 AS odd")

    def ids() -> list[int]:
        with commitlog.connect(store_url, **options) as store:
            files = [file.path for file in Output(store).snapshot().files]
        listed = [not file.startswith("_commitlog/") for file in files]
        assert listed == [url.endswith("/listed")] * len(files)
        rows = spark.read.option("basePath", url).parquet(*(f"{url}/{file}" for file in files))
        found = sorted(row.id for row in rows.collect())
        if all(listed):
            assert sorted(row.id for row in spark.read.parquet(url).collect()) == found
        return found

    came: dict[str, Any] = {}
    first = numbers(0, 6).write.partitionBy("odd").option("spark.commitlog.jobId", "first")
    first.parquet(url)
    came["written"] = ids()
    came["again"] = error_of(lambda: first.mode("append").parquet(url))
    first.option("spark.commitlog.onDuplicate", "skip").mode("append").parquet(url)
    numbers(6, 8).write.partitionBy("odd").mode("append").parquet(url)
    came["appended"] = ids()

    fails = numbers(10, 14).selectExpr("if(id = 13, raise_error('a bad row'), id) AS id", "odd")
    came["failed"] = error_of(lambda: fails.write.partitionBy("odd").mode("append").parquet(url))
    came["after the failure"] = ids()

    dynamic = numbers(20, 24).where("odd = 1").write.partitionBy("odd").mode("overwrite")
    dynamic.option("partitionOverwriteMode", "dynamic").parquet(url)
    came["partitions overwritten"] = ids()
    numbers(30, 34).write.partitionBy("odd").mode("overwrite").parquet(url)
    came["overwritten"] = ids()

    def append(start: int) -> None:
        numbers(start, start + 2).write.partitionBy("odd").mode("append").parquet(url)

    with ThreadPoolExecutor(2) as both:
        list(both.map(append, (40, 50)))
    came["appended at once"] = ids()

    with commitlog.connect(store_url, **options) as store:
        output = Output(store)
        came["versions"] = [record.mode for record in output.log()]
        # A task of the failed job may have gone on after its job was aborted.
        output.recover(older_than=0)
        came["staged"] = [upload.path for upload in store.list_staged()]
    return came


def tables(spark: SparkSession, directory: str) -> dict[str, Any]:
    """Write to tables; return the rows after each write, and the versions of their outputs."""

    def ids(table: str) -> list[int]:
        return sorted(row.id for row in spark.table(table).select("id").collect())

    came: dict[str, Any] = {}
    spark.sql(
        f"CREATE TABLE parts USING parquet PARTITIONED BY (k) LOCATION '{directory}/parts'"
        " AS SELECT id, id % 2 AS k FROM range(4)"
    )
    spark.sql("INSERT INTO parts SELECT id, id % 2 AS k FROM range(4, 6)")
    came["inserted"] = ids("parts")
    spark.sql("INSERT OVERWRITE parts PARTITION (k = 1) SELECT id FROM range(10, 12)")
    came["partition overwritten"] = ids("parts")

    def save(number: int, job_id: str) -> None:
        rows = spark.range(number, number + 1, numPartitions=1).write.format("parquet").mode("append")
        rows = rows.option("path", f"{directory}/saved").option("spark.commitlog.jobId", job_id)
        rows.saveAsTable("saved")

    save(0, "first")
    came["saved again"] = error_of(lambda: save(1, "first"))
    spark.sparkContext.setLocalProperty("spark.commitlog.jobId", "second")
    spark.sql("INSERT INTO saved VALUES (2)")
    came["inserted again"] = error_of(lambda: spark.sql("INSERT INTO saved VALUES (3)"))
    came["saved"] = ids("saved")
    for table in ("parts", "saved"):
        with commitlog.connect(f"{directory}/{table}") as store:
            came[f"log of {table}"] = [record.mode for record in Output(store).log()]
    return came


def ingested(spark: SparkSession, place: str, scratch: str, formats: list[str]) -> dict[str, Any]:
    """Read files as a stream with Spark's own readers; return the rows by format."""
    came: dict[str, Any] = {}
    for name in formats:
        for day in (1, 2):
            rows = spark.range(day, day + 2, numPartitions=1).selectExpr("cast(id as string) value")
            rows.write.format(WRITERS.get(name, name)).save(f"{place}/{name}/day=2026-01-0{day}")
        key = f"{scratch}/{place.partition(':')[0].rpartition('/')[2]}-{name}"
        found = commitlog.spark.stream_files(
            spark,
            f"{place}/{name}",
            schema="value string, day date, _metadata struct<file_size:bigint>",
            reader="spark",
            options={"fileFormat": name, "state": f"sqlite://{key}-state", "maxFilesPerTrigger": "1"},
        ).where("day > date'2026-01-01'")
        run(
            found.selectExpr("value", "cast(day as string) day", "_metadata.file_size > 0 as sized"), key
        )
        came[name] = sorted(list(row) for row in spark.read.parquet(f"{key}-out").collect())
    return came


def run(rows: DataFrame, key: str) -> Any:
    """Write a stream to Parquet files until it has ended; return its last progress."""
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", f"{key}-checkpoint")
        .trigger(availableNow=True)
        .start(f"{key}-out")
    )
    query.awaitTermination()
    return query.lastProgress


def inferred_and_cleaned(spark: SparkSession, landing: Path) -> dict[str, Any]:
    """Infer the columns of files, read one in each batch, and delete them; return the results."""
    options = {"fileFormat": "json", "newColumns": "ignore", "cleanSource": "delete"}
    for number in range(3):
        path = landing / f"k={number}" / f"{number}.json"
        path.parent.mkdir(parents=True)
        path.write_text(f'{{"n":{number}}}\n')
    stream = commitlog.spark.stream_files(
        spark, str(landing), options={**options, "maxFilesPerTrigger": "1"}
    )
    progress = run(stream, f"{landing}-json")
    rows = spark.read.parquet(f"{landing}-json-out").selectExpr("n", "k").collect()
    return {
        "columns": stream.schema.simpleString(),
        "rows": sorted(list(row) for row in rows),
        "left": sorted(path.name for path in landing.rglob("*.json")),
        "reader": progress["sources"][0]["description"].partition("[")[0],
    }


def error_of(step: Callable[[], Any]) -> str:
    """Return the text of the error that `step` raises, or ""."""
    try:
        step()
    except Exception as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(Round(**json.load(sys.stdin)))))
