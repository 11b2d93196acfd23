"""Reading outputs in Spark, with Spark's own readers and with the data source, and past versions."""

from __future__ import annotations

import datetime as dt
import functools
import random
import re
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

import commitlog.spark
from commitlog.errors import ConfigurationError, CorruptRecord, NotFound
from commitlog.outputs import Output
from commitlog.spark.pruning import ReadFilter
from commitlog.spark.schema import dump_schema
from commitlog.spark.targets.output import ReadOptions
from support.selection import in_campaigns, with_all, with_all_but
from support.spark_status import wait_for_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.servers import Ministack

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
MOMENT = dt.datetime(2013, 3, 10, 2, 30, 0, 120_000)
HOSTILE = [
    *("a/b", "..", ".", "%2F", "%", "=", "a=b", "trailing  ", " ", "\t\n\r\x01\x7f", "\\", '"', "'"),
    *(
        "{a,b}",
        "[a-c]",
        "*",
        "?",
        "#",
        ":",
        "&",
        "+",
        "null",
        "01",
        "1e3",
        "true",
        "2013-03-10",
        "Grüße 世界",
    ),
    *("\U0001f680", "e\u0301", "\u2028", "\ufeff", "x" * 200),
]


def save(rows: DataFrame, url: Path | str, **options: str) -> None:
    """Append `rows` to the output."""
    rows.write.format("commitlog").mode("append").options(**options).save(str(url))


def load(spark: SparkSession, url: Path | str, **options: str) -> DataFrame:
    """Return the rows of the output from the data source."""
    return spark.read.format("commitlog").options(**options).load(str(url))


def opened(url: Path | str) -> Output:
    """Return the output for work without Spark."""
    return Output(ReadOptions.parse({"path": str(url)}).open())


def rows_of(frame: DataFrame) -> list[Any]:
    """Return all rows in an order that does not depend on the reader."""
    return sorted(frame.collect(), key=str)


def is_native(frame: DataFrame) -> bool:
    """Return whether Spark's own reader reads the rows."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return "FileScan" in plan and "BatchScan commitlog" not in plan


def check_alike(spark: SparkSession, url: Path | str, *, native: bool, **options: Any) -> DataFrame:
    """Check that `read` returns the rows of the data source; return the DataFrame of `read`."""
    by_list = commitlog.spark.read(spark, str(url), **options)
    by_source = load(spark, url)
    assert by_list.schema == by_source.schema
    assert str(rows_of(by_list)) == str(rows_of(by_source))  # NaN is not equal to itself
    assert is_native(by_list) is native
    return by_list


def everything(spark: SparkSession, fmt: str) -> DataFrame:
    """Return rows with every type that the format `fmt` supports, and a row of nulls."""
    columns = {
        "boolean boolean": True,
        "byte tinyint": -128,
        "long bigint": -(2**63),
        "float float": float("nan"),
        "double double": -0.0,
        "wide decimal(38,18)": Decimal("12345678901234567890.123456789012345678"),
        "narrow decimal(5,2)": Decimal("-0.01"),
        "`a.text` string": "Grüße, 世界 \U0001f680\n\x00",
        "date date": dt.date(1582, 10, 15),
        "instant timestamp": MOMENT,
        "local timestamp_ntz": MOMENT,
    }
    if fmt != "csv":
        columns |= {
            "binary binary": b"\x00\xff",
            "list array<string>": ["a", None],
            "map map<string,array<int>>": {"k": [1, None]},
            "nested struct<a:int,b:array<date>>": (7, [dt.date(1969, 12, 31), None]),
        }
    if fmt == "parquet":
        columns |= {"early date": dt.date(1, 1, 1), "old timestamp_ntz": dt.datetime(1, 1, 1)}
    rows = [tuple(columns.values()), (None,) * len(columns)]
    return spark.createDataFrame(rows, ", ".join(columns)).coalesce(1)


@pytest.mark.parametrize(
    ("fmt", "visibility"),
    [
        *((fmt, "listed") for fmt in ("parquet", "orc")),
        *(with_all(fmt, "listed") for fmt in ("csv", "json", "arrow")),
        ("parquet", "logged"),
        *(in_campaigns(fmt, "logged") for fmt in ("orc", "csv", "json", "arrow")),
    ],
)
def test_sparks_reader_and_the_data_source_return_the_same_rows(
    spark: SparkSession, tmp_path: Path, fmt: str, visibility: str
) -> None:
    """For every type, Spark's own reader returns the same values as the data source."""
    given = everything(spark, fmt)
    if fmt == "orc":
        given = given.drop("float", "double")  # see the next test
    save(given, tmp_path / "out", fileFormat=fmt, visibility=visibility)
    read = check_alike(spark, tmp_path / "out", native=fmt in ("parquet", "orc"))
    assert read.schema.simpleString() == given.schema.simpleString()
    assert str(rows_of(read)) == str(rows_of(given))


@pytest.mark.parametrize(("fmt", "own"), [("parquet", True), with_all("parquet", False), ("orc", True)])
def test_zeros_of_both_signs_are_found(spark: SparkSession, tmp_path: Path, fmt: str, own: bool) -> None:
    """To Spark -0.0 equals 0.0, but not when it looks into dictionaries, nor into the bounds of ORC."""
    url = tmp_path / "out"
    frames = [spark.createDataFrame([(x,) for x in each] * 5, "d double").coalesce(1) for each in ZEROS]
    for rows in frames:
        save(rows, url, fileFormat=fmt)
    if not own:
        output = opened(url)
        with output.store:
            for number, rows in enumerate(frames):
                rows.write.format(fmt).save(str(tmp_path / f"{number}"))
                (made,) = (tmp_path / f"{number}").glob(f"*.{fmt}")
                job = output.begin(schema=output.state().schema)
                name = job.file_name(0, suffix=f".{fmt}")
                output.commit(job, [output.stage(job, name, made.read_bytes())])
    read = check_alike(spark, url, native=fmt == "parquet")
    conditions = ["d = 0D", "d >= 0D", "d <= -0D", "d <=> -0D", "d in (0D, 7D)", "d > 5D", "d < 0D"]
    found = [read.where(each).agg(f.lit(each), f.count("*")) for each in conditions]
    filters: list[Any] = [
        ("=", 0.0),
        ("=", -0.0),
        ("in", [0, 7.0]),
        (">=", 0.0),
        ("<=", -0.0),
        ("<", 0.0),
    ]
    for operator, value in filters:
        rows = commitlog.spark.read(spark, str(url), filters=[("d", operator, value)])
        found.append(rows.agg(f.lit(f"{operator} {value}"), f.count("*")))
    times = 5 if own else 10
    assert [
        tuple(row) for row in functools.reduce(lambda one, other: one.union(other), found).collect()
    ] == [
        *zip(conditions, (times * n for n in (2, 5, 2, 2, 2, 2, 0)), strict=True),
        *((f"{op} {v}", times * n) for (op, v), n in zip(filters, (2, 2, 2, 5, 2, 0), strict=True)),
    ]


#: Values of some files.
ZEROS = ([-0.0], [0.0], [1.0, float("nan")], [float("nan")])


def test_files_of_several_formats_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    """The data source reads files that no single reader of Spark can read, and stays at its version."""
    for fmt in ("parquet", "orc", "json"):
        save(spark.range(3), tmp_path / "out", fileFormat=fmt)
    assert check_alike(spark, tmp_path / "out", native=False).count() == 9
    read = commitlog.spark.read(spark, str(tmp_path / "out"))
    save(spark.range(3), tmp_path / "out")
    assert read.count() == 9


@pytest.mark.parametrize("visibility", ["listed", with_all("logged")])
def test_partition_columns_keep_their_types(
    spark: SparkSession, tmp_path: Path, visibility: str
) -> None:
    """Partition values of every type, and nulls, are read back unchanged in any session time zone."""
    columns = (
        "day date, at timestamp, local timestamp_ntz, price decimal(20,2), flag boolean, n tinyint,"
        " `te xt` string, `v.w` map<string,struct<x:int>>"
    )
    rows = [
        (dt.date(1, 1, 1), MOMENT, MOMENT, Decimal("1.50"), True, -128, "007", {"a": (1,)}),
        (dt.date(9999, 12, 31), MOMENT.replace(microsecond=0), dt.datetime(1, 1, 1), *[None] * 5),
        (None, None, None, Decimal("-0.01"), False, 0, "a/b", {}),
    ]
    given = spark.createDataFrame(rows, columns)
    names = given.columns[:-1]
    save(given, tmp_path / "out", partitionBy=",".join(names), visibility=visibility)
    read = check_alike(spark, tmp_path / "out", native=True)
    assert read.dtypes == given.dtypes
    assert rows_of(read) == rows_of(given)
    assert read.where("price = 1.5 and flag").select("n", "te xt").collect() == [(-128, "007")]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        moved = commitlog.spark.read(spark, str(tmp_path / "out")).select(f.unix_micros("at"))
        assert rows_of(moved) == rows_of(given.select(f.unix_micros("at")))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")


def test_hostile_partition_values_are_read_back(spark: SparkSession, tmp_path: Path) -> None:
    """Any string becomes a directory, and every reader gets the same string back."""
    url = tmp_path / "out"
    given = spark.createDataFrame(
        [(number, text) for number, text in enumerate([*HOSTILE, None])], "n long, text string"
    ).coalesce(1)
    save(given, url, partitionBy="text")
    assert rows_of(check_alike(spark, url, native=True)) == rows_of(given)
    plain = spark.read.schema("n long, text string").parquet(str(url))
    assert rows_of(plain) == rows_of(given)


@pytest.mark.all
def test_a_partition_value_that_is_too_long_fails_the_job(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the problem, and nothing is committed."""
    given = spark.createDataFrame([(1, "x" * 300)], "n long, text string")
    with pytest.raises(PySparkException, match=r"errors\.InvalidPath: "):
        save(given, tmp_path / "out", partitionBy="text")
    with pytest.raises(NotFound, match="nothing has been committed"):
        commitlog.spark.read(spark, str(tmp_path / "out"))


@pytest.mark.parametrize(
    "name",
    with_all_but(
        lambda name: name == "[x]{y,z}*?",
        ["a b", "50%", "%41", "k=v", "a:b", "[x]{y,z}*?", "back\\slash", "ü 世"],
    ),
)
def test_an_output_may_be_in_any_directory(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The name of the directory is not taken as a pattern, and nothing in it is decoded."""
    url = tmp_path / name / "out}"
    (tmp_path / "x" / "out}").mkdir(parents=True)
    job = spark.range(3).select("id", (f.col("id") % 2).alias("half"))
    commitlog.spark.write(job, str(url), partition_by=["half"])
    read = check_alike(spark, url, native=True)
    assert rows_of(read) == rows_of(job)


def test_columns_are_returned_in_the_requested_order(spark: SparkSession, tmp_path: Path) -> None:
    """A column that does not exist, or that is named twice, is refused."""
    save(spark.range(3).selectExpr("id", "id % 2 half", "'x' `a.b`"), tmp_path / "p", partitionBy="half")
    save(spark.range(3).selectExpr("id", "id % 2 half", "'x' `a.b`"), tmp_path / "j", fileFormat="json")
    for name in "pj":
        read = commitlog.spark.read(spark, str(tmp_path / name), columns=["a.b", "half"])
        assert read.columns == ["a.b", "half"]
        assert rows_of(read) == [("x", 0), ("x", 0), ("x", 1)]
        for columns in (["id", "id"], [], ["ID"]):
            with pytest.raises(ConfigurationError):
                commitlog.spark.read(spark, str(tmp_path / name), columns=columns)


def test_a_version_without_files_has_columns_and_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Without any commit, reading raises NotFound."""
    url = str(tmp_path / "out")
    with pytest.raises(NotFound, match="nothing has been committed to it"):
        commitlog.spark.read(spark, url)
    commitlog.spark.write(spark.range(0), url)
    for read in (commitlog.spark.read(spark, url), load(spark, url)):
        assert (read.dtypes, read.collect()) == ([("id", "bigint")], [])
    commitlog.spark.write(spark.range(0, 5, 1, 8), url)
    assert check_alike(spark, url, native=True).count() == 5
    commitlog.spark.write(spark.range(0), url, mode="overwrite")
    assert commitlog.spark.read(spark, url).count() == 0


@pytest.mark.all
def test_past_versions_are_read_until_they_expire(spark: SparkSession, tmp_path: Path) -> None:
    """A version is readable while its files are kept. After that, the error says that it has expired."""
    url = str(tmp_path / "out")
    for number in range(3):
        mode = "append" if number < 2 else "overwrite"
        options = {"visibility": "logged"}
        commitlog.spark.write(spark.range(number, number + 1), url, mode=mode, options=options)
    wanted = {1: [0], 2: [0, 1], 3: [2]}
    for version, numbers in wanted.items():
        assert [row.id for row in rows_of(load(spark, url, version=str(version)))] == numbers
        read = commitlog.spark.read(spark, url, version=version)
        assert [row.id for row in rows_of(read)] == numbers
    with pytest.raises(NotFound, match="no version 4: its log ends with 3"):
        commitlog.spark.read(spark, url, version=4)
    with pytest.raises(PySparkException, match=r"errors\.NotFound: .* has no version 4"):
        load(spark, url, version="4")
    for wrong in ("0", "-1", "x"):
        with pytest.raises(PySparkException, match=r"errors\.ConfigurationError: option version is"):
            load(spark, url, version=wrong)
    output = opened(url)
    with output.store:
        time.sleep(0.01)  # the replaced files must be older than 0 s
        assert output.gc(older_than=0).expired == 3
    with pytest.raises(NotFound, match=r"version 2 of .* has expired: the first is 3"):
        commitlog.spark.read(spark, url, version=2)
    with pytest.raises(PySparkException, match=r"errors\.NotFound: version 2 of .* has expired"):
        load(spark, url, version="2")
    assert commitlog.spark.read(spark, url, version=3).count() == 1


def test_a_read_with_a_schema_can_be_pinned_to_a_version(spark: SparkSession, tmp_path: Path) -> None:
    """With option version, a DataFrame with its own schema shows that version after later commits."""
    save(spark.range(2), tmp_path / "out")
    read = (
        spark.read.format("commitlog").schema("id long").option("version", 1).load(str(tmp_path / "out"))
    )
    save(spark.range(2), tmp_path / "out")
    assert read.count() == 2


def test_a_data_frame_stays_at_its_version(spark: SparkSession, tmp_path: Path) -> None:
    """If a file of the version is gone, reading fails; it does not return fewer rows."""
    url = str(tmp_path / "out")
    save(spark.range(2), url)
    read = commitlog.spark.read(spark, url)
    save(spark.range(2), url)
    assert read.count() == 2
    for setting in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
        spark.conf.set(setting, "true")
    try:
        commitlog.spark.write(spark.range(1), url, mode="overwrite")
        with pytest.raises(Exception, match=r"FAILED_READ_FILE\.FILE_NOT_EXIST"):
            read.agg(f.sum("id")).collect()
    finally:
        for setting in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
            spark.conf.unset(setting)


def test_columns_that_were_added_later_are_null_in_earlier_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of files that lack a column are null, whatever default Spark stored with the column."""
    noted = {"CURRENT_DEFAULT": "7", "EXISTS_DEFAULT": "7", "comment": "later"}
    both = StructType([StructField("id", LongType()), StructField("n", IntegerType(), True, noted)])
    save(spark.range(1), tmp_path / "out")
    save(spark.createDataFrame([(2, 3)], both), tmp_path / "out", mergeSchema="true")
    read = check_alike(spark, tmp_path / "out", native=True)
    assert rows_of(read) == [(0, None), (2, 3)]
    assert read.schema["n"].metadata == noted


def test_session_settings_do_not_change_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A session that rebases dates of old files reads early dates unchanged, and keeps its settings."""
    save(spark.sql("select date'0001-01-01' d"), tmp_path / "out")
    threshold = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    rebase = "spark.sql.parquet.datetimeRebaseModeInRead"
    spark.conf.set(rebase, "LEGACY")
    spark.conf.set(threshold, "5")
    try:
        read = check_alike(spark, tmp_path / "out", native=True)
        assert read.collect() == [(dt.date(1, 1, 1),)]
        assert spark.conf.get(threshold) == "5"
    finally:
        spark.conf.unset(rebase)
        spark.conf.unset(threshold)


def test_no_directory_is_listed(spark: SparkSession, tmp_path: Path) -> None:
    """An output is readable without list permission, because its files are found by name."""
    url = tmp_path / "out"
    save(spark.range(40).selectExpr("id", "id % 20 k"), url, partitionBy="k")
    for day in sorted(url.glob("k=*")):
        (day / "part-of-nobody.parquet").write_bytes(b"not a file of the output")
    jobs = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("reading", "of many files")
    try:
        read = commitlog.spark.read(spark, str(url))
        # Spark starts no job to look at the files either.
        wait_for_events(spark)
        assert list(jobs.getJobIdsForGroup("reading")) == []
        assert read.count() == 40
        wait_for_events(spark)
        assert jobs.getJobIdsForGroup("reading")
    finally:
        spark.sparkContext._jsc.clearJobGroup()
    assert load(spark, url).count() == 40


def test_an_output_in_another_store_is_read(
    spark: SparkSession, tmp_path: Path, ministack: Ministack
) -> None:
    """The data source reads files that Spark cannot reach. With `hadoop_url`, Spark reads them."""
    given = ministack.options
    url = f"s3://{ministack.new_bucket()}/out"
    rows = spark.range(10).selectExpr("id", "id % 2 k")
    commitlog.spark.write(rows, url, partition_by=["k"], options=given)
    read = commitlog.spark.read(spark, url, columns=["k", "id"], options=given)
    assert not is_native(read)
    assert rows_of(read) == rows_of(rows.select("k", "id"))
    # Here a directory stands for the file system in which Spark finds the bucket.
    output = Output(ReadOptions.parse({"path": url, **given}).open())
    with output.store:
        for file in output.snapshot().files:
            target = tmp_path / "bucket" / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(output.store.get(output.locate(file)).data)
    own = commitlog.spark.read(spark, url, hadoop_url=f"file:{tmp_path}/bucket", options=given)
    assert is_native(own)
    assert rows_of(own) == rows_of(rows)


def test_only_the_log_defines_partition_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A directory named like a partition that the log does not list as one adds or changes no column."""
    url = tmp_path / "out"
    save(spark.range(1), tmp_path / "made")
    (made,) = (tmp_path / "made").glob("*.parquet")
    output = opened(url)
    with output.store:
        job = output.begin(schema=dump_schema(spark.range(1).schema))
        name = "id=7/" + job.file_name(0, suffix=".parquet")
        output.commit(job, [output.stage(job, name, made.read_bytes(), rows=1)])
    assert check_alike(spark, url, native=False).collect() == [(0,)]


def test_files_with_other_partition_columns_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own writer may append files without them. Spark's own reader would leave those out."""
    url = tmp_path / "out"
    rows = spark.sql("SELECT 1 id, 'a' part UNION ALL SELECT 2, 'b'").coalesce(1)
    save(rows, url, partitionBy="part")
    save(rows, tmp_path / "made")
    (made,) = (tmp_path / "made").glob("*.parquet")
    output = opened(url)
    with output.store:
        job = output.begin(schema=output.state().schema)
        name = job.file_name(0, suffix=".parquet")
        output.commit(job, [output.stage(job, name, made.read_bytes(), rows=2)])
    assert rows_of(check_alike(spark, url, native=False)) == [(1, "a")] * 2 + [(2, "b")] * 2


def test_a_partition_timestamp_without_a_zone_is_corrupt(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would read it in the time zone of the session, so the record is reported as corrupt."""
    output = opened(tmp_path / "out")
    with output.store:
        schema = dump_schema(spark.sql("select 's' s, timestamp'2013-03-10 02:30:00' at").schema)
        job = output.begin(schema=schema)
        name = "at=2013-03-10 02%3A30%3A00/" + job.file_name(0, suffix=".parquet")
        partition = {"at": "2013-03-10 02:30:00"}
        output.commit(job, [output.stage(job, name, b"", rows=0, partition=partition)])
    with pytest.raises(
        CorruptRecord, match=r"'2013-03-10 02:30:00' is not of type timestamp\[us, tz=UTC\]"
    ):
        commitlog.spark.read(spark, str(tmp_path / "out"))


@pytest.mark.all
def test_files_that_cannot_match_a_filter_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """With `filters` only files that can hold matching rows are read; `where` gives the same rows."""
    url = tmp_path / "out"
    for number, text in enumerate("abc"):
        at = f"timestamp'2013-03-0{number + 1} 00:00:00' at"
        rows = spark.range(number * 10, number * 10 + 10, 1, 1).selectExpr("id", at, f"'{text}' part")
        save(rows, url, partitionBy="part", fileFormat="json" if number == 2 else "parquet")
    third = dt.datetime(2013, 3, 3, tzinfo=dt.UTC)
    cases: list[tuple[list[ReadFilter], str]] = [
        ([("id", "=", 25)], "id = 25"),
        ([("id", "==", 25), ("part", "=", "c")], "id = 25"),
        ([("id", "in", [21, 29])], "id in (21, 29)"),
        ([("id", ">", 19)], "id > 19"),
        ([("id", ">=", 20), ("id", "<=", 22)], "id between 20 and 22"),
        ([("part", "=", "c")], "part = 'c'"),
        ([("id", "=", 19), ("id", "<", 3)], "false"),
        ([("at", ">=", third)], "at >= '2013-03-03'"),
    ]
    expected = [rows_of(load(spark, url).where(condition)) for _, condition in cases]
    for path in [*url.glob("part=a/*"), *url.glob("part=b/*")]:
        path.unlink()
    for (filters, condition), answer in zip(cases, expected, strict=True):
        assert bool(answer) == (condition != "false")
        rows = commitlog.spark.read(spark, str(url), filters=filters)
        assert rows_of(rows) == answer
        narrow = commitlog.spark.read(spark, str(url), filters=filters, columns=["part"])
        assert narrow.columns == ["part"] and narrow.count() == len(answer)
    with pytest.raises(PySparkException, match=r"errors\.NotFound"):
        load(spark, url).where("id = 25").collect()


def test_filters_are_applied_by_sparks_own_reader(spark: SparkSession, tmp_path: Path) -> None:
    """All files are Parquet, so Spark reads them itself and applies the filters to the rows."""
    url = tmp_path / "out"
    save(spark.range(10), url)
    rows = commitlog.spark.read(spark, str(url), filters=[("id", ">", 7)])
    assert sorted(row.id for row in rows.collect()) == [8, 9]


@pytest.mark.parametrize("fmt", ["parquet", "orc"])
def test_rows_with_nan_match_conditions(spark: SparkSession, tmp_path: Path, fmt: str) -> None:
    """Spark's own reader skips row groups by their bounds. To Spark, NaN is greater than all numbers."""
    numbers = spark.sql("SELECT explode(array(1D, double('NaN'))) x")
    rows = numbers.selectExpr("x", "named_struct('y', float(x)) s").coalesce(1)
    save(rows, tmp_path / "out", fileFormat=fmt)
    read = commitlog.spark.read(spark, str(tmp_path / "out"))
    assert is_native(read) == (fmt == "parquet")
    nan = "double('NaN')"
    for condition in ("x > 5", f"x = {nan}", f"x IN (7, {nan})", "NOT x <= 5", "NOT x = 1", "s.y >= 5"):
        assert str(read.where(condition).collect()) == "[Row(x=nan, s=Row(y=nan))]", condition


@pytest.mark.parametrize("fmt", ["parquet", with_all("json")])
def test_filters_by_times_are_exact(spark: SparkSession, tmp_path: Path, fmt: str) -> None:
    """Neither the zone of the session nor that of the process counts, nor the Julian calendar."""
    times = [MOMENT, dt.datetime(1500, 1, 1), dt.datetime(1, 1, 1)]
    rows = [(time.replace(tzinfo=dt.UTC), time, time.date()) for time in times]
    texts = spark.createDataFrame([(str(time),) for time in times], "local string")
    frame = texts.selectExpr(
        "cast(concat(local, 'Z') as timestamp) instant",
        "cast(local as timestamp_ntz) local",
        "cast(local as date) day",
    )
    save(frame, tmp_path / "out", fileFormat=fmt)
    for row in rows:
        for name, value in zip(frame.columns, row, strict=True):
            filters: list[ReadFilter] = [(name, ">=", value), (name, "in", [value]), (name, "<=", value)]
            read = commitlog.spark.read(spark, str(tmp_path / "out"), filters=filters)
            assert [found.local for found in read.select("local").collect()] == [row[1]], filters


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ([("nope", "=", 1)], "names the column 'nope', and the output has id"),
        ([("id", "like", "a%")], "a filter has the operator 'like'; it must be one of"),
        ([("id", "=", "abc")], "does not fit id int64"),
        ([("id", "=", None)], "not null"),
        ([("id", "in", 1)], "a list of values"),
        ([("id", "=", [1])], "one value"),
        (["id"], "a filter is \\(column, operator, value\\)"),
    ],
)
def test_an_invalid_filter_is_refused(
    spark: SparkSession, tmp_path: Path, filters: Any, says: str
) -> None:
    """It is refused before anything is read, and the message says how a filter looks."""
    save(spark.range(3), tmp_path / "out")
    with pytest.raises(ConfigurationError, match=says):
        commitlog.spark.read(spark, str(tmp_path / "out"), filters=filters)


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """Make Spark offer filters to Python data sources, which is not the default of any version."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.mark.all
@pytest.mark.parametrize("seed", [20261122, *map(in_campaigns, range(3))])
def test_queries_on_one_dataframe_do_not_change_each_other(
    spark: SparkSession, tmp_path: Path, pushdown: None, seed: int
) -> None:
    """Random sequences of queries on one DataFrame return the same rows as on plain Parquet.

    Spark reuses the partitions of a query with pushed filters for the next query of the DataFrame.
    """
    url, plain = tmp_path / "out", tmp_path / "plain"
    for number in range(4):
        rows = spark.range(number * 3, number * 3 + 3, 1, 1).selectExpr("id", f"{number} part")
        save(rows, url, partitionBy="part")
        rows.write.mode("append").partitionBy("part").parquet(str(plain))
    theirs = spark.read.parquet(str(plain)).select("id", "part")
    chance = random.Random(seed)
    conditions = ("id = 1", "id > 6", "part = 2", "part < 2 and id <> 4", "id in (0, 11)", "true")

    def query(rows: DataFrame, first: str, second: str, kind: str) -> list[Any]:
        match kind:
            case "count":
                return [rows.count()]
            case "where":
                return rows_of(rows.where(first))
            case "join":
                return rows_of(rows.where(first).alias("a").join(rows.where(second).alias("b"), "part"))
            case "union":
                return rows_of(rows.where(first).union(rows.where(second)))
        return rows_of(rows.where(first).groupBy("part").count())

    ours = load(spark, url).select("id", "part")
    for _ in range(8):
        kind = chance.choice(["count", "where", "join", "union", "group"])
        first, second = chance.choice(conditions), chance.choice(conditions)
        assert query(ours, first, second, kind) == query(theirs, first, second, kind), (kind, first)


@pytest.mark.all
def test_wide_decimals_match_their_filter(spark: SparkSession, tmp_path: Path, pushdown: None) -> None:
    """Spark rounds a pushed decimal of more than 28 digits; no file is skipped because of that."""
    url, wide = tmp_path / "out", "12345678901234567890.123456789012345678"
    save(spark.sql(f"select {wide}bd x"), url)
    for condition in ("=", ">=", "<=", "<=>"):
        assert load(spark, url).where(f"x {condition} {wide}bd").count() == 1, condition
    assert load(spark, url).where(f"x in ({wide}bd)").count() == 1
    assert load(spark, url).where("x > 12345678901234567890.123456789012345677bd").count() == 1
    for operator, value in (("=", wide), (">=", wide), ("<=", wide), (">", wide[:-1] + "7")):
        rows = commitlog.spark.read(spark, str(url), filters=[("x", operator, Decimal(value))])
        assert rows.count() == 1, operator


CONDITIONS = """
    boolean; not boolean; boolean is null; byte = -128; byte <> -128; long < 0; long <=> null
    float = float('nan'); float > 5.0F; float < 5.0F
    double = 0.0D; double in (0.0D, 1.0D); double <=> -0.0D
    wide > 1.5; narrow = -0.01; date < '1582-10-16'; date > '9999-12-30'
    instant > '2013-03-10 02:30:00'; local <= timestamp_ntz'2013-03-10 02:30:00.12'
    `a.text` like 'Grüße%'; `a.text` like '%x'; not `a.text` like '%世界%'; `a.text` <=> null
    nested.a = 7; binary = X'00FF'; map is not null; list = array('a', null)
"""


@pytest.mark.campaign
def test_filters_do_not_change_an_answer(spark: SparkSession, tmp_path: Path, pushdown: None) -> None:
    """For any condition the rows are those that Spark finds without pushdown."""
    url = tmp_path / "out"
    for fmt in ("parquet", "orc"):
        save(everything(spark, "orc"), url, fileFormat=fmt)
    unfiltered = load(spark, url).localCheckpoint()
    for condition in re.split(r"[;\n]", CONDITIONS.strip()):
        pushed = rows_of(load(spark, url).where(condition))
        assert str(pushed) == str(rows_of(unfiltered.where(condition))), condition


def test_a_column_with_a_backtick_is_read_from_orc(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own ORC reader finds no value for such a column, so the data source reads the files."""
    url = tmp_path / "out"
    rows = spark.sql("select 1 id, 2 `a``b`, named_struct('x`y', 5) n")
    save(rows, url, fileFormat="orc")
    expected = rows_of(rows)
    assert rows_of(load(spark, url)) == expected
    assert rows_of(commitlog.spark.read(spark, str(url))) == expected


@pytest.mark.parametrize("name", ["c", with_all("_col")])
def test_columns_of_orc_are_known_by_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Neither a setting of the session nor names that Hive gives make their order count."""
    first, second = spark.sql(f"SELECT 1 {name}0, 2 {name}1"), spark.sql(f"SELECT 2 {name}1, 1 {name}0")
    for rows in (first, second):
        save(rows, tmp_path / "out", fileFormat="orc")
    spark.conf.set("orc.force.positional.evolution", "true")
    try:
        read = check_alike(spark, tmp_path / "out", native=name == "c")
        assert rows_of(read) == [(1, 2)] * 2
    finally:
        spark.conf.unset("orc.force.positional.evolution")


NOT_UTF8 = "cast(X'ff41' as string)"


@pytest.mark.all
@pytest.mark.parametrize("fmt", ["parquet", "orc"])
def test_strings_that_are_not_utf8_are_kept_by_binary_formats(
    spark: SparkSession, tmp_path: Path, fmt: str
) -> None:
    """Spark's strings may hold any bytes. They have no bounds in statistics, and are read unchanged."""
    url = tmp_path / "out"
    save(spark.sql(f"select 1 id, {NOT_UTF8} s, array({NOT_UTF8}) a"), url, fileFormat=fmt)
    save(spark.sql("select 2 id, 'x' s, array('y') a"), url, fileFormat=fmt)
    for rows in (load(spark, url), commitlog.spark.read(spark, str(url))):
        found = rows.orderBy("id").select(f.hex("s"), f.hex(f.col("a")[0])).collect()
        assert [tuple(row) for row in found] == [("FF41", "FF41"), ("78", "79")]
        assert rows.where("s = 'x'").count() == 1
    assert commitlog.spark.read(spark, str(url), filters=[("s", "=", "x")]).count() == 1


@pytest.mark.parametrize("fmt", [with_all("json"), in_campaigns("csv")])
def test_strings_that_are_not_utf8_are_refused_by_text_formats(
    spark: SparkSession, tmp_path: Path, fmt: str
) -> None:
    """The error names the column; nothing is committed."""
    rows = spark.sql(f"select 1 id, {NOT_UTF8} s")
    with pytest.raises(PySparkException, match=r"column 's' has a string that is not UTF-8"):
        save(rows, tmp_path / "out", fileFormat=fmt)
    with pytest.raises(PySparkException, match=r"errors\.NotFound"):
        load(spark, tmp_path / "out")


@pytest.mark.campaign
def test_a_partition_value_that_is_not_utf8_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the column and says that its string is not UTF-8."""
    with pytest.raises(PySparkException, match=r"column 's' has a string that is not UTF-8"):
        save(spark.sql(f"select 1 id, {NOT_UTF8} s"), tmp_path / "out", partitionBy="s")
