"""Spark's own writers, configured to commit to outputs in S3, by Hadoop's S3A."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen

from commitlog.outputs import Output
from commitlog.outputs.records import AbortRecord
from commitlog.spark import compact
from support.selection import in_campaigns, with_all
from support.spark_jobs import retried_rows
from support.spark_status import wait_for_tasks
from support.spark_targets import Place, configured, new_place  # noqa: F401 - fixture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from support.servers import Ministack

pytestmark = [pytest.mark.spark, pytest.mark.servers, pytest.mark.usefixtures("configured")]

IN_MEMORY = "committer.magic.track.commits.in.memory.enabled"


@frozen
class Bucket:
    """A new output in S3, and Spark's own writers and readers of it."""

    spark: SparkSession
    place: Place

    @property
    def url(self) -> str:
        """The URL of the output for S3A."""
        assert self.place.s3a is not None
        return self.place.s3a[0]

    @property
    def hadoop(self) -> dict[str, str]:
        """The settings of S3A for the bucket."""
        assert self.place.s3a is not None
        return dict(self.place.s3a[1])

    def writer(self, rows: DataFrame, **settings: str) -> DataFrameWriter:
        """Return a writer with settings ``spark.commitlog.…``."""
        given = {f"spark.commitlog.{name}": value for name, value in self.place.job().options.items()}
        given |= {f"spark.commitlog.{name}": value for name, value in settings.items()}
        return rows.write.options(**given, **self.hadoop)

    def setting(self, name: str) -> str:
        """Return the full name of a setting of S3A for this bucket."""
        return f"fs.s3a.bucket.{self.url.split('/')[2]}.{name}"

    def ids(self, name: str = "parquet") -> list[int]:
        """Return the column id as a reader of the directory sees it, sorted."""
        reader = self.spark.read.format(name).options(**self.hadoop).schema("id BIGINT")
        return sorted(row.id for row in reader.load(self.url).collect())

    def logged_ids(self) -> list[int]:
        """Return the column id as a reader of the log sees it, sorted."""
        rows = self.spark.read.format("commitlog").options(**self.place.options).load(self.place.url)
        return sorted(row.id for row in rows.select("id").collect())

    def output(self) -> Output:
        """Open the output without Spark."""
        return self.place.open()

    def leftovers(self) -> list[str]:
        """Return what should not be there: unfinished uploads, and hidden files that no record names."""
        output = self.output()
        with output.store:
            staged = [upload.path for upload in output.store.list_staged()]
            files = {file.path for file in output.snapshot().files}
        kept = ("_commitlog/000", "_SUCCESS")
        return staged + [p for p in self.place.listed() if not p.startswith(kept) and p not in files]


@pytest.fixture
def bucket(spark: SparkSession, tmp_path: Path, ministack: Ministack) -> Bucket:
    """A new output, with leases in DynamoDB."""
    return Bucket(spark, new_place("s3a", tmp_path, lambda: ministack))


def rows(spark: SparkSession, start: int, end: int) -> Any:
    """Return rows with the ids from `start` to `end` in two tasks, and a partition column."""
    return spark.range(start, end, numPartitions=2).selectExpr("id", "id % 3 AS k")


@pytest.mark.parametrize("visibility", ["listed", with_all("logged")])
def test_each_mode_is_one_version(spark: SparkSession, bucket: Bucket, visibility: str) -> None:
    """Jobs append, overwrite all, partitions with new rows, or a named one; readers see whole jobs."""

    def write(start: int, end: int, mode: str, dynamic: bool = False) -> None:
        writer = bucket.writer(rows(spark, start, end), visibility=visibility).partitionBy("k")
        writer = writer.option("partitionOverwriteMode", "dynamic" if dynamic else "static")
        writer.mode(mode).parquet(bucket.url)

    write(0, 6, "append")
    write(6, 9, "append")
    assert bucket.logged_ids() == list(range(9))
    write(10, 11, "overwrite", dynamic=True)
    assert bucket.logged_ids() == [0, 2, 3, 5, 6, 8, 10]
    write(20, 24, "overwrite")
    assert bucket.logged_ids() == [20, 21, 22, 23]
    output = bucket.output()
    with output.store:
        modes = [record.mode for record in output.log()]
        assert modes == ["append", "append", "overwrite-partitions", "overwrite"]
        assert {file.nonce for file in output.snapshot().files} == {""}
    if visibility == "listed":
        assert bucket.ids() == [20, 21, 22, 23]
    else:
        output = bucket.output()
        with output.store:
            output.gc(older_than=0)
    assert bucket.leftovers() == []


@pytest.mark.all
def test_another_scheme_of_s3a_is_the_same_place(spark: SparkSession, bucket: Bucket) -> None:
    """Where S3A serves the scheme s3, both schemes name one output."""
    writer = bucket.writer(spark.range(2).coalesce(1))
    writer.parquet(bucket.url)
    writer = bucket.writer(spark.range(2, 4).coalesce(1)).mode("append")
    writer = writer.option("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    hadoop.set("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    for name, value in bucket.hadoop.items():  # Spark qualifies the path without the options
        hadoop.set(name, value)
    try:
        writer.parquet(bucket.url.replace("s3a://", "s3://"))
    finally:
        for name in ("fs.s3.impl", *bucket.hadoop):
            hadoop.unset(name)
    assert bucket.ids() == [0, 1, 2, 3]
    assert len(bucket.output().snapshot().files) == 2
    assert bucket.leftovers() == []


@pytest.mark.parametrize("name", ["csv", with_all("json"), with_all("orc")])
def test_every_format_is_committed(spark: SparkSession, bucket: Bucket, name: str) -> None:
    """The output has the files that Spark's writer of each format wrote, with any file ending."""
    bucket.writer(spark.range(9).coalesce(2)).format(name).save(bucket.url)
    assert bucket.ids(name) == list(range(9))
    assert bucket.leftovers() == []


@pytest.mark.parametrize("in_memory", ["true", with_all("false")])
def test_records_of_uploads_are_read_where_s3a_keeps_them(
    spark: SparkSession, bucket: Bucket, in_memory: str
) -> None:
    """S3A has them in memory or in files at the magic paths; a large file has several parts."""
    settings = {
        bucket.setting(IN_MEMORY): in_memory,
        bucket.setting("multipart.size"): "5M",
        bucket.setting("fast.upload.buffer"): "array",
    }
    text = spark.range(3).selectExpr("id", "repeat(uuid(), 60000) AS text").coalesce(1)
    bucket.writer(text).options(**settings, compression="none").json(bucket.url)
    assert bucket.ids("json") == [0, 1, 2]
    (file,) = bucket.output().snapshot().files
    assert file.size > 6 * 1024 * 1024
    assert bucket.leftovers() == []


def test_a_job_id_is_committed_once(spark: SparkSession, bucket: Bucket) -> None:
    """A second job with the same id raises before a task runs, or adds nothing if so configured."""
    for _ in range(2):
        writer = bucket.writer(rows(spark, 0, 4), jobId="daily", onDuplicate="skip").mode("append")
        writer.parquet(bucket.url)
        assert bucket.leftovers() == []
    with pytest.raises(Exception, match=r"commitlog\.errors\.JobAlreadyCommitted: job 'daily'"):
        bucket.writer(rows(spark, 0, 4), jobId="daily").mode("append").parquet(bucket.url)
    assert bucket.ids() == list(range(4))


def test_a_failed_job_leaves_only_what_was_there(spark: SparkSession, bucket: Bucket) -> None:
    """If its tasks use up their retries, it is aborted; the uploads of retried tasks are dropped."""
    bucket.writer(retried_rows(spark, 8)).parquet(bucket.url)
    assert bucket.ids() == list(range(8))
    assert bucket.leftovers() == []

    failing = spark.range(9).selectExpr("if(id > 3, raise_error('no'), id) AS id")
    with pytest.raises(Exception, match="no"):
        bucket.writer(failing).mode("overwrite").parquet(bucket.url)
    wait_for_tasks(spark)
    output = bucket.output()
    with output.store:
        assert isinstance(list(output.records())[-1], AbortRecord)
        output.gc(older_than=0)
    assert bucket.ids() == list(range(8))
    assert bucket.leftovers() == []


@pytest.mark.all
@pytest.mark.parametrize("visibility", ["listed", in_campaigns("logged")])
def test_files_of_s3a_are_compacted(spark: SparkSession, bucket: Bucket, visibility: str) -> None:
    """Compaction merges them, and readers see the merged file: of the directory, or of the log alone."""
    for start in range(0, 4, 2):
        rows = spark.range(start, start + 2, numPartitions=1)
        bucket.writer(rows, visibility=visibility).mode("append").parquet(bucket.url)
    compact(spark, bucket.place.url, options=bucket.place.options)
    assert bucket.logged_ids() == [0, 1, 2, 3]
    assert len(bucket.output().snapshot().files) == 1
    if visibility == "listed":
        assert bucket.ids() == [0, 1, 2, 3]
    else:
        output = bucket.output()
        with output.store:
            output.gc(older_than=0)
    assert bucket.leftovers() == []


@pytest.mark.all
def test_keys_in_a_credential_provider_of_hadoop_are_used(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    """The tasks and the commit have the keys of one key store, and no setting has them."""
    java: Any = spark.sparkContext._gateway
    path = f"jceks://file{tmp_path}/keys.jceks"
    conf = java.jvm.org.apache.hadoop.conf.Configuration(False)
    conf.set("hadoop.security.credential.provider.path", path)
    hadoop_alias = java.jvm.org.apache.hadoop.security.alias
    (provider,) = hadoop_alias.CredentialProviderFactory.getProviders(conf)
    settings = bucket.hadoop
    for name in map(bucket.setting, ("access.key", "secret.key")):
        key = settings.pop(name)
        characters = java.new_array(java.jvm.char, len(key))
        for number, character in enumerate(key):
            characters[number] = character
        provider.createCredentialEntry(name, characters)
    provider.flush()
    settings[bucket.setting("security.credential.provider.path")] = path
    leases = {f"spark.commitlog.{name}": value for name, value in bucket.place.job().options.items()}
    spark.range(4).coalesce(1).write.options(**settings, **leases).parquet(bucket.url)
    assert bucket.ids() == [0, 1, 2, 3]
    assert bucket.leftovers() == []


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("committer.magic.enabled", "false", r"set fs\.s3a\.committer\.magic\.enabled to true"),
        ("signing-algorithm", "MineSignerType", r"NotSupported: fs\.s3a\.\S*signing-algorithm: "),
        (
            "aws.credentials.provider",
            "com.example.Mine",
            r"NotSupported: fs\.s3a\.\S*aws\.credentials\.provider: com\.example\.Mine",
        ),
    ],
)
def test_a_setting_that_cannot_be_followed_is_named(
    spark: SparkSession, bucket: Bucket, setting: str, value: str, error: str
) -> None:
    """The error comes before a task runs, and nothing is written."""
    if not setting.startswith("committer"):  # S3A itself keeps the settings of its first use
        top = spark.read.options(**bucket.hadoop).text(bucket.url.rpartition("/")[0] + "/")
        assert top.columns == ["value"]
    with pytest.raises(Exception, match=error):
        bucket.writer(spark.range(5)).option(bucket.setting(setting), value).parquet(bucket.url)
    assert [path for path in bucket.place.listed() if not path.startswith("_commitlog/")] == []
