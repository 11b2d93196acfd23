"""Writes to directories that hold files of other programs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

import commitlog.spark
from commitlog.errors import NotSupported
from support.selection import with_all
from support.spark_targets import (
    WAYS_TO_COMMIT,
    Place,
    configured,  # noqa: F401 - fixture
    place_of_test,  # noqa: F401 - fixture
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.spark_session import SparkLogs

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("configured")]

#: With the value ``dynamic``, Spark's own writers overwrite only partitions with new rows.
DYNAMIC = "spark.sql.sources.partitionOverwriteMode"


@pytest.fixture(autouse=True)
def _static(spark: SparkSession) -> Any:
    yield
    spark.conf.unset(DYNAMIC)


def numbers(spark: SparkSession, *of: int) -> DataFrame:
    """Return rows with these ids in the form that `Place.by_listing` checks."""
    rows = spark.createDataFrame([(number,) for number in of], "id BIGINT").coalesce(1)
    return rows.selectExpr("id", "concat('Zeile ', id) AS text", "CAST(id % 2 AS INT) AS part")


def leave(spark: SparkSession, place: Place, tmp_path: Path, *of: int) -> None:
    """Write rows into the place with Spark's own writer and its own committer."""
    before = spark.conf.get("spark.sql.sources.commitProtocolClass")
    spark.conf.unset("spark.sql.sources.commitProtocolClass")
    numbers(spark, *of).write.partitionBy("part").parquet(str(tmp_path / "left"))
    spark.conf.set("spark.sql.sources.commitProtocolClass", before or "")
    output = place.open()
    with output.store:
        for path in (tmp_path / "left").rglob("*.parquet"):
            name = path.relative_to(tmp_path / "left")
            target = tmp_path / place.url.rpartition("/")[2] / name
            if place.url.startswith("/"):  # another program does not use the store
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
            else:
                output.store.put(str(name), path.read_bytes())


def write(place: Place, rows: DataFrame, mode: str, partition_by: Sequence[str] = ("part",)) -> None:
    """Write `rows` by the configured committer or by `commitlog.spark.write`, as the place says."""
    if not place.configured:
        options: Mapping[str, str] = place.options
        commitlog.spark.write(rows, place.url, mode=mode, partition_by=partition_by, options=options)
        return
    conf = rows.sparkSession.conf
    conf.set(DYNAMIC, "dynamic" if mode == "overwrite-partitions" else "static")
    job = place.job()
    of_committer = {f"spark.commitlog.{name}": value for name, value in job.options.items()}
    writer = rows.write.mode(mode.partition("-")[0]).options(**of_committer, **job.hadoop)
    writer.partitionBy(*partition_by).parquet(job.url)


@pytest.mark.parametrize("place", [with_all("local"), *WAYS_TO_COMMIT[1:]], indirect=True)
def test_an_overwrite_replaces_foreign_files(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    """A reader that lists the directory sees only the new rows, as a reader of the log does."""
    leave(spark, place, tmp_path, 1, 2, 3)
    assert place.by_listing() == [1, 2, 3]
    write(place, numbers(spark, 10, 11), "overwrite")
    assert place.by_listing() == place.by_log(spark) == [10, 11]


@pytest.mark.all
@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
def test_a_partition_overwrite_replaces_foreign_files(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """The partition with new rows is replaced, and the other one stays."""
    leave(spark, place, tmp_path, 1, 2, 3)
    write(place, numbers(spark, 11), "overwrite-partitions")
    assert place.by_listing() == [2, 11]
    write(place, numbers(spark, 12), "overwrite-partitions")
    assert place.by_listing() == place.by_log(spark) == [11, 12]


@pytest.mark.all
@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
def test_rows_without_partition_columns_replace_everything(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """They do so even in dynamic mode, as with Spark's own writers."""
    leave(spark, place, tmp_path, 1, 2, 3)
    for number in (11, 12):
        write(place, numbers(spark, number), "overwrite-partitions", partition_by=())
        assert place.by_log(spark) == [number]
        [name] = place.visible()
        assert "/" not in name


@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
def test_an_append_keeps_foreign_files_and_warns(
    spark: SparkSession,
    spark_logs: SparkLogs,
    place: Place,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first append logs a warning. The foreign files stay visible and are not in the log."""
    leave(spark, place, tmp_path, 1, 2, 3)

    def warnings() -> int:
        log = "\n".join([*caplog.messages, spark_logs.log.read_text(errors="replace")])
        return log.count("has files that were written without it")

    before = warnings()
    for number in (10, 11):
        with caplog.at_level(logging.WARNING):
            write(place, numbers(spark, number), "append")
        assert warnings() == before + 1
    assert place.by_listing() == [1, 2, 3, 10, 11]
    assert place.by_log(spark) == [10, 11]


@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
def test_foreign_files_count_as_data(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    """Mode error is refused, and mode ignore does nothing."""
    leave(spark, place, tmp_path, 1, 2, 3)
    with pytest.raises(Exception, match=r"written without it|PATH_ALREADY_EXISTS"):
        write(place, numbers(spark, 10), "error")
    write(place, numbers(spark, 11), "ignore")
    assert place.by_listing() == [1, 2, 3]


def test_a_table_with_foreign_files_is_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    """INSERT OVERWRITE replaces partitions with new rows, or the partition that the statement names."""
    path = tmp_path / "t"
    before = spark.conf.get("spark.sql.sources.commitProtocolClass")
    spark.sql(
        f"CREATE TABLE filled (id INT, k STRING) USING parquet PARTITIONED BY (k) LOCATION '{path}'"
    )
    try:
        spark.conf.unset("spark.sql.sources.commitProtocolClass")
        spark.sql("INSERT INTO filled VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        spark.conf.set("spark.sql.sources.commitProtocolClass", before or "")
        spark.conf.set(DYNAMIC, "dynamic")
        spark.sql("INSERT OVERWRITE filled VALUES (10, 'a')")
        assert sorted(map(tuple, spark.table("filled").collect())) == [(2, "b"), (3, "c"), (10, "a")]
        spark.conf.set(DYNAMIC, "static")
        spark.sql("INSERT OVERWRITE filled PARTITION (k = 'b') SELECT 20")
        assert sorted(map(tuple, spark.table("filled").collect())) == [(3, "c"), (10, "a"), (20, "b")]
    finally:
        spark.sql("DROP TABLE filled")


@pytest.mark.all
def test_a_foreign_timestamp_partition_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A partition value in the session's time zone cannot be compared with the values of the output."""
    path = str(tmp_path / "out")
    rows = spark.sql("SELECT 1 AS n, timestamp'2013-07-10 02:30:00' AS at")
    before = spark.conf.get("spark.sql.sources.commitProtocolClass")
    spark.conf.unset("spark.sql.sources.commitProtocolClass")
    rows.write.partitionBy("at").parquet(path)
    spark.conf.set("spark.sql.sources.commitProtocolClass", before or "")
    with pytest.raises(NotSupported, match="is not spelled as the output spells"):
        commitlog.spark.write(rows, path, mode="overwrite-partitions", partition_by=["at"])
    commitlog.spark.write(rows, path, mode="overwrite", partition_by=["at"])
    assert commitlog.spark.read(spark, path).count() == spark.read.parquet(path).count() == 1
