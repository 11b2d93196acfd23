"""Options of the data source in a real Spark: existing data, columns, partitions and visibility."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from commitlog import connect
from commitlog.outputs import Output
from support.spark_targets import configured  # noqa: F401 - fixture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def save(rows: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    """Write `rows` to the output."""
    rows.write.format("commitlog").mode(mode).options(**options).save(str(path))


def rows_of(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    """Return the rows of the last version, sorted, with nulls last."""
    rows = map(tuple, spark.read.format("commitlog").load(str(path)).collect())
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def output_at(path: Path) -> Output:
    """Return the output in a directory."""
    return Output(connect(str(path)))


def files_below(path: Path) -> list[Path]:
    """Return the data files that a reader finds by listing the directory."""
    return [f for f in path.rglob("*.parquet") if not f.relative_to(path).parts[0].startswith("_")]


@pytest.mark.campaign
def test_existing_data_can_be_kept(spark: SparkSession, tmp_path: Path) -> None:
    """With ifExists=ignore only the first job writes; with onDuplicate=skip, the first one of its id."""
    path = tmp_path / "out"
    for number in range(2):
        save(spark.range(number, number + 1), path, ifExists="ignore")
    assert rows_of(spark, path) == [(0,)]
    for number in range(5, 7):
        save(spark.range(number, number + 1), path, jobId="daily", onDuplicate="skip")
    assert rows_of(spark, path) == [(0,), (5,)]
    output = output_at(path)
    assert [record.version for record in output.log()] == [1, 2]
    assert list(output.store.list_staged()) == []
    with pytest.raises(PySparkException, match="ifExists goes with save mode append"):
        save(spark.range(1), path, "overwrite", ifExists="ignore")


@pytest.mark.all
def test_merge_schema_adds_columns(spark: SparkSession, tmp_path: Path) -> None:
    """With mergeSchema, rows may add columns or lack some, which are then null. Types never change."""
    path = tmp_path / "out"
    save(spark.range(1), path)
    more = spark.range(1, 2).selectExpr("'x' AS text", "id")
    with pytest.raises(PySparkException, match="lets some be added or lack"):
        save(more, path)
    save(more, path, mergeSchema="true")
    save(spark.range(2, 3), path, mergeSchema="true")
    assert rows_of(spark, path) == [(0, None), (1, "x"), (2, None)]
    with pytest.raises(PySparkException, match="ConfigurationError: the output has the columns"):
        save(spark.sql("SELECT 'one' AS id"), path, mergeSchema="true")
    plain = spark.read.option("mergeSchema", "true").parquet(str(path)).select("id", "text")
    assert {tuple(row) for row in plain.collect()} == set(rows_of(spark, path))


def test_partitions_are_overwritten_separately(spark: SparkSession, tmp_path: Path) -> None:
    """A dynamic overwrite replaces partitions with new rows, also of null; a static one, all rows."""
    path = tmp_path / "out"
    rows = spark.range(6).selectExpr("id", "nullif(id % 3, 2) AS part")
    save(rows, path, partitionBy="part")
    new = spark.range(10, 12).selectExpr("id", "nullif(id % 3, 2) AS part")
    save(new, path, "overwrite", partitionBy="part", partitionOverwriteMode="dynamic")
    expected = [(0, 0), (3, 0), (10, 1), (11, None)]
    assert rows_of(spark, path) == expected
    assert {tuple(row) for row in spark.read.parquet(str(path)).collect()} == set(expected)
    save(spark.range(0), path, "overwrite", partitionOverwriteMode="static")
    assert rows_of(spark, path) == []
    assert files_below(path) == []
    assert [record.mode for record in output_at(path).log()] == [
        "append", "overwrite-partitions", "overwrite",
    ]  # fmt: skip


@pytest.mark.all
def test_replaced_files_of_a_logged_output_stay_until_gc(spark: SparkSession, tmp_path: Path) -> None:
    """With visibility=logged no listing shows a file, and files of old versions stay until `gc`."""
    path = tmp_path / "out"
    save(spark.range(3), path, visibility="logged")
    old = spark.read.format("commitlog").load(str(path))
    save(spark.range(5, 7), path, "overwrite")  # visibility stays that of the version before
    assert files_below(path) == []
    output = output_at(path)
    replaced = len(output.snapshot(1).files)
    assert output.gc(older_than=3600).removed == 0
    assert old.count() == 3
    assert rows_of(spark, path) == [(5,), (6,)]
    assert output.gc(older_than=0).removed == replaced > 0
    with pytest.raises(PySparkException, match=r"errors\.NotFound"):
        old.count()
    assert rows_of(spark, path) == [(5,), (6,)]
    with pytest.raises(PySparkException, match="logged"):
        save(spark.range(1), path, visibility="listed")


def test_files_have_a_row_limit_and_are_sorted(spark: SparkSession, tmp_path: Path) -> None:
    """No file has more rows than targetFileRows, and each file is sorted."""
    path = tmp_path / "out"
    rows = spark.range(0, 20, 1, 2).selectExpr("(id * 7) % 20 AS id")
    save(rows, path, targetFileRows="4", sortBy="id")
    read = [pq.read_table(file).column("id").to_pylist() for file in files_below(path)]
    assert sorted(len(numbers) for numbers in read) == [2, 2, 4, 4, 4, 4]
    assert all(numbers == sorted(numbers) for numbers in read)
    assert rows_of(spark, path) == [(number,) for number in range(20)]


@pytest.mark.usefixtures("configured")
def test_tables_are_saved_and_appended_to(spark: SparkSession, tmp_path: Path) -> None:
    """saveAsTable commits to an output. The table, a listing and the log show the same rows."""
    path = tmp_path / "table"
    rows = spark.range(4).selectExpr("id", "id % 2 AS part")
    try:
        rows.write.option("path", str(path)).partitionBy("part").saveAsTable("saved")
        rows.selectExpr("id + 4 AS id", "part").write.mode("append").partitionBy("part").saveAsTable(
            "saved"
        )
        table = sorted(row.id for row in spark.table("saved").collect())
    finally:
        spark.sql("DROP TABLE saved")
    listed = sorted(row.id for row in spark.read.parquet(str(path)).collect())
    assert table == listed == [row[0] for row in rows_of(spark, path)] == list(range(8))
    assert [record.version for record in output_at(path).log()] == [1, 2]
