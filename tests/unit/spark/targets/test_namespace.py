"""The data source on directories of namespaces, without a Spark session."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from attrs import define, frozen
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    JobAlreadyCommitted,
    NotFound,
    NotSupported,
    ObjectChanged,
)
from commitlog.namespace import Data, Namespace, creation
from commitlog.namespaces import create_namespace
from commitlog.outputs import StagedFile
from commitlog.spark import CommitlogDataSource, physical_files
from commitlog.spark.batch import CommitlogWriter, NothingToWrite
from commitlog.spark.schema import dump_schema
from commitlog.spark.targets.directory import directory_at
from commitlog.spark.targets.namespace import (
    NamespaceJob,
    NamespaceLocation,
    NamespaceUploads,
    NamespaceWriteOptions,
    with_environment,
)
from commitlog.spark.tasks import TaskCommitted
from commitlog.urls import parse_store_url

URL = "commitlog://lake/out"
SECRETS = {
    "accessKeyId": "AKIDHIDDEN",
    "secretAccessKey": "KEYHIDDEN",
    "metadata.secretAccessKey": "NAMESHIDDEN",
    "table.sessionToken": "TABLEHIDDEN",
}
ID = StructType([StructField("id", LongType())])


# -- options -----------------------------------------------------------------------------------------


def test_a_url_needs_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL alone means the metadata store in the environment, and the store recorded there."""
    options = NamespaceWriteOptions.parse({"path": f"{URL}/deep/"})
    assert (options.name, options.path) == ("lake", "out/deep")
    assert (options.metadata, options.store, options.leases, options.commit) == (
        None,
        None,
        None,
        "auto",
    )
    assert (options.job.mode(False), options.job.mode(True)) == ("append", "overwrite")
    assert (options.job.file_format, options.job.partition_by) == ("parquet", ())
    monkeypatch.delenv("COMMITLOG_METADATA", raising=False)
    with pytest.raises(ConfigurationError, match="COMMITLOG_METADATA before the session starts"):
        options.open()
    with pytest.raises(ConfigurationError) as refused:
        NamespaceLocation.parse({"path": URL, "nope": "1"})
    assert "rollForward" not in str(refused.value)


def test_the_environment_of_the_caller_gives_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata store and its credentials in the environment become options; given options stay."""
    monkeypatch.delenv("COMMITLOG_METADATA", raising=False)
    assert with_environment({"jobId": "j"}) == {"jobId": "j"}
    monkeypatch.setenv("COMMITLOG_METADATA", "dynamodb://names?region=x-1&secret_access_key=s")
    reported = with_environment({"jobId": "j"})
    secret = {"metadata.secretAccessKey": "s"}
    assert reported == {"jobId": "j", "metadata": "dynamodb://names?region=x-1", **secret}
    names = NamespaceLocation.parse({"path": URL, **secret, "metadata": reported["metadata"]}).metadata
    assert names is not None and names.options == {"region": "x-1", "secret_access_key": "s"}
    assert with_environment({"Metadata": "sqlite:///n"}) == {"Metadata": "sqlite:///n"}


def test_credentials_are_not_shown() -> None:
    """Credentials complete the URLs of store and tables, and are in no repr and no error."""
    given = {
        **SECRETS,
        "path": URL,
        "metadata": "dynamodb://names",
        "metadata.region": "eu-west-1",
        "store": "s3://bucket/p",
        "table": "dynamodb://leases",
    }
    options = NamespaceWriteOptions.parse(given)
    assert options.metadata is not None and options.store is not None and options.leases is not None
    assert options.metadata.options == {"region": "eu-west-1", "secret_access_key": "NAMESHIDDEN"}
    assert options.store.options["secret_access_key"] == "KEYHIDDEN"
    assert options.leases.options == {"session_token": "TABLEHIDDEN"}
    assert "HIDDEN" not in repr(options)
    with pytest.raises(ConfigurationError, match="unknown option") as refused:
        NamespaceWriteOptions.parse({**given, "odd": "1"})
    assert "HIDDEN" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"path": "commitlog://"}, ConfigurationError, "a name has"),
        ({"metadata": "memory://n"}, ConfigurationError, "Spark has many"),
        ({"store": "memory://s"}, ConfigurationError, "Spark has many"),
        ({"store": "s3://bucket?secret_access_key=x"}, ConfigurationError, "because Spark prints it"),
        ({"metadata.region": "x"}, ConfigurationError, "go with option metadata"),
        ({"version": "1"}, NotSupported, "option version does not go with a namespace"),
        ({"rollForward": "false"}, NotSupported, "rollForward"),
        ({"visibility": "logged"}, NotSupported, "visibility"),
        ({"partitionOverwriteMode": "dynamic"}, NotSupported, "partitionOverwriteMode=dynamic"),
        ({"nope": "1"}, ConfigurationError, "unknown option 'nope'; known: accessKeyId, .*ifExists"),
        ({"paths": '["commitlog://a/b", "commitlog://a/c"]'}, ConfigurationError, "one path at a time"),
        ({"jobbid": "1"}, ConfigurationError, r"unknown option 'jobbid'; is it jobId\?; known"),
    ],
)
def test_wrong_options_are_refused(
    given: Mapping[str, str], error: type[CommitError], text: str
) -> None:
    """Wrong options are refused, and so are options of outputs."""
    with pytest.raises(error, match=text):
        NamespaceWriteOptions.parse({"path": URL, **given})


# -- a namespace in this process ---------------------------------------------------------------------


@frozen
class Site:
    """A namespace, and the calls that Spark would make."""

    lake: Namespace
    options: dict[str, str]

    def source(self, **options: str) -> CommitlogDataSource:
        """Return the data source for `URL`."""
        return CommitlogDataSource({"path": URL, **self.options, **options})

    def writer(self, *, overwrite: bool = False, columns: StructType = ID, **options: str) -> Any:
        """Return the writer of a job."""
        return self.source(**options).writer(columns, overwrite)

    def task(self, *ids: int) -> TaskCommitted:
        """Store rows as a task of a micro-batch does; return its message."""
        job = NamespaceJob(
            job_id="job",
            attempt="0" * 32,
            schema=dump_schema(ID),
            store=parse_store_url(self.lake.store.url),
            directory=None,
        )
        uploads = NamespaceUploads(self.lake._context.content, job)
        files = []
        for id in ids:
            with uploads.open_file(f"part-{id}.parquet") as upload:
                upload.write(parquet(id=[id]))
                files.append(StagedFile(staged=upload.finish()))
        return TaskCommitted(job, tuple(files))

    def names(self) -> list[str]:
        """Return the names of the files in the directory."""
        return [file.path.rpartition("/")[2] for file in directory_at(self.lake, "out").files]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A namespace in an SQLite file and a directory."""
    names = f"sqlite://{tmp_path}/names.db"
    with create_namespace("lake", store=f"file://{tmp_path}/store", metadata=names, log=False) as lake:
        yield Site(lake, {"metadata": names})


def parquet(**columns: list[Any]) -> bytes:
    """Return a Parquet file."""
    body = io.BytesIO()
    pa.parquet.write_table(pa.table(columns), body)
    return body.getvalue()


def columns_at(site: Site) -> dict[str, str]:
    """Return the columns that the data source finds."""
    return {field.name: field.dataType.simpleString() for field in site.source().schema()}


def rows_at(site: Site) -> dict[str, list[Any]]:
    """Return the rows that the data source reads."""
    reader = site.source().reader(ID)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pydict()


def test_refusals_before_there_are_files(site: Site) -> None:
    """A job that cannot succeed is refused before a task runs, and leaves nothing."""
    site.writer(jobId="one").commit([site.task(1)])
    for error, options in (
        (JobAlreadyCommitted, {"jobId": "one"}),
        (AlreadyExists, {"ifExists": "error"}),
        (ConfigurationError, {"partitionBy": "id"}),
        (ConfigurationError, {"overwrite": True, "ifExists": "error"}),
        (ConfigurationError, {"columns": StructType([StructField("id", StringType())])}),
        (ConfigurationError, {"columns": StructType([*ID, StructField("more", LongType())])}),
    ):
        with pytest.raises(error):
            site.writer(**options)
    assert isinstance(site.writer(jobId="one", onDuplicate="skip"), NothingToWrite)
    assert isinstance(site.writer(ifExists="ignore"), NothingToWrite)
    assert list(site.lake.list(".staging")) == []
    assert site.names() == ["part-1.parquet"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"jobId": "one"}, JobAlreadyCommitted),
        ({"jobId": "one", "onDuplicate": "skip"}, None),
        ({"ifExists": "error"}, AlreadyExists),
        ({"ifExists": "ignore"}, None),
    ],
)
def test_a_job_is_checked_again_at_its_commit(
    site: Site, options: dict[str, str], error: type[CommitError] | None
) -> None:
    """Of two drivers with one job, the later one publishes nothing."""
    late = site.writer(**options)
    site.writer(jobId="one").commit([site.task(1)])
    reported = [site.task(2)]
    if error is None:
        late.commit(reported)
    else:
        with pytest.raises(error):
            late.commit(reported)
        late.abort([*reported, None])
    assert site.names() == ["part-1.parquet"]
    assert list(site.lake.list(".staging")) == []


def test_a_commit_without_the_message_of_a_task_is_refused(site: Site) -> None:
    """The rows of that task would be missing. Nothing was added."""
    for writer, number in ((site.writer(), ()), (site.source().streamWriter(ID, False), (0,))):
        with pytest.raises(AttributeError):
            writer.commit([site.task(1), None], *number)
    assert not site.lake.exists("out")


def test_an_abort_after_the_commit_changes_nothing(site: Site) -> None:
    """Spark calls abort after a commit that raised, even if the job is committed."""
    writer: CommitlogWriter = site.writer()
    reported = [site.task(1), site.task(2)]
    writer.commit(reported)
    writer.abort(reported)
    assert site.names() == ["part-1.parquet", "part-2.parquet"]
    assert rows_at(site) == {"id": [1, 2]}


def test_a_stream_writes_and_does_not_read(site: Site) -> None:
    """A stream can write to a directory, batch by batch, but cannot read from it."""
    source = site.source()
    with pytest.raises(NotSupported, match="cannot be read as a stream"):
        source.streamReader(ID)
    with pytest.raises(NotSupported, match="complete"):
        source.streamWriter(ID, overwrite=True)
    with pytest.raises(ConfigurationError, match="each batch of a stream is a job"):
        site.source(jobId="x").streamWriter(ID, False)
    writer: Any = site.source().streamWriter(ID, False)
    writer.commit([], 0)
    assert not site.lake.exists("out")
    writer.commit([site.task(1)], 0)
    writer.commit([site.task(2)], 0)
    writer.abort([site.task(3)], 0)
    assert site.names() == ["part-1.parquet"]


def test_a_batch_that_is_committed_again_keeps_its_objects(site: Site) -> None:
    """Spark repeats a commit whose answer was lost, and the files of the first one have the objects."""
    writer: Any = site.source().streamWriter(ID, False)
    reported = [site.task(1)]
    writer.commit(reported, 0)
    writer.commit(reported, 0)
    assert rows_at(site) == {"id": [1]}


# -- reading -----------------------------------------------------------------------------------------


def test_hidden_files_are_ignored(site: Site) -> None:
    """The names of directories give the partitions of the other files."""
    for path in ("b=1/x", "job-0/b=2/y", "z", "_b=3/w", ".hidden/x", "_temporary/x", "c/.x", "c/_x"):
        site.lake.write(f"out/{path}", b"")
    found = directory_at(site.lake, "out").files
    assert [(file.path, file.partition) for file in found] == [
        ("_b=3/w", {"_b": "3"}),
        ("b=1/x", {"b": "1"}),
        ("job-0/b=2/y", {"b": "2"}),
        ("z", {}),
    ]
    assert [file.path for file in directory_at(site.lake, "out/z").files] == ["z"]
    with pytest.raises(NotFound):
        directory_at(site.lake, "nothing")


@define
class Replacing:
    """A namespace whose directory is replaced during the first `times` listings."""

    lake: Namespace
    times: int

    def walk(self, path: str) -> Iterator[Any]:
        yield from self.lake.walk(path)
        if self.times:
            self.times -= 1
            self.lake.write(f"new{self.times}/n{self.times}", b"")
            self.lake.replace(f"new{self.times}", "out")

    def stat(self, path: str) -> Any:
        return self.lake.stat(path)


def test_a_directory_that_is_replaced_during_its_listing_is_listed_again(site: Site) -> None:
    """If it is replaced each time, the listing ends with Conflict."""
    site.lake.write("out/old", b"")
    found = directory_at(Replacing(site.lake, 2), "out")  # type: ignore[arg-type]
    assert [file.path for file in found.files] == ["n0"]
    with pytest.raises(Conflict, match="again and again"):
        directory_at(Replacing(site.lake, 100), "out")  # type: ignore[arg-type]


def test_columns_come_from_the_first_file_and_from_directories(site: Site) -> None:
    """This holds for a directory without a job that has stored its columns."""
    site.lake.write("out/n=1/s=007/w=1/a.parquet", parquet(id=[1], t=["x"]))
    site.lake.write("out/n=-2/s=1/w=__HIVE_DEFAULT_PARTITION__/a.parquet", parquet(id=[1], t=["x"]))
    assert columns_at(site) == {
        "id": "bigint",
        "t": "string",
        "n": "bigint",
        "s": "string",
        "w": "bigint",
    }


@pytest.mark.parametrize("kind", ["orc", "arrow"])
def test_columns_in_other_formats(site: Site, kind: str) -> None:
    """ORC and Arrow files store their columns, too."""
    table, body = pa.table({"id": pa.array([1], pa.int32())}), io.BytesIO()
    if kind == "orc":
        pa.orc.write_table(table, body)
    else:
        with pa.ipc.new_file(body, table.schema) as writer:
            writer.write_table(table)
    site.lake.write(f"out/a.zstd.{kind}" if kind == "orc" else "out/a.arrow", body.getvalue())
    assert columns_at(site) == {"id": "int"}


def test_a_directory_without_columns_is_refused(site: Site) -> None:
    """The error says what to do."""
    site.lake.make_directory("out")
    with pytest.raises(NotFound, match="no job has stored columns"):
        site.source().schema()
    site.lake.write("out/a.csv", b"1\n")
    with pytest.raises(NotSupported, match="name them in schema"):
        site.source().schema()
    site.lake.write("out/a.csv", b"1\n")
    rows = list(site.source().reader(ID).read(InputPartition(directory_at(site.lake, "out").files)))
    assert [batch.to_pydict() for batch in rows] == [{"id": [1]}]
    site.lake.delete("out/a.csv")
    site.lake.write("out/a.parquet", parquet(id=pa.array([1], pa.uint64())))  # type: ignore[arg-type]
    with pytest.raises(NotSupported, match="types that Spark does not know"):
        site.source().schema()


def test_rows_are_added_to_foreign_files(site: Site) -> None:
    """The foreign files must have the same columns; the job then stores the columns."""
    site.lake.write("out/given.parquet", parquet(id=[1]))
    with pytest.raises(ConfigurationError, match="the output has the columns"):
        site.writer(columns=StructType([StructField("id", IntegerType())]))
    site.writer().commit([site.task(2)])
    assert columns_at(site) == {"id": "bigint"}
    assert sorted(site.names()) == ["given.parquet", "part-2.parquet"]


def test_a_changed_object_is_not_read(site: Site) -> None:
    """The bytes of another object at the same path are never returned."""
    site.writer().commit([site.task(1)])
    reader = site.source().reader(ID)
    [partition] = reader.partitions()
    assert [batch.to_pydict() for batch in reader.read(partition)] == [{"id": [1]}]
    [file] = directory_at(site.lake, "out").files
    site.lake.store.put(file.data.path, parquet(id=[2]))
    with pytest.raises(ObjectChanged, match="another program replaced it"):
        list(reader.read(partition))
    site.lake.store.delete(file.data.path)
    with pytest.raises(ObjectChanged, match="is gone"):
        list(reader.read(partition))


def test_unknown_columns_are_refused(site: Site) -> None:
    """A query cannot ask for a column that the directory does not have."""
    site.writer().commit([site.task(1)])
    with pytest.raises(ConfigurationError, match="the output has no nope"):
        site.source().reader(StructType([StructField("nope", LongType())]))


# -- other readers -----------------------------------------------------------------------------------


def test_physical_files_are_listed_by_path(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is a list of URLs for Spark's own readers, in the order of the files' paths."""
    site.writer().commit([site.task(2, 1)])
    urls = physical_files(URL, options=site.options)
    read = [pa.parquet.read_table(url.removeprefix("file://"))["id"].to_pylist() for url in urls]
    assert read == [[1], [2]]
    monkeypatch.setattr(
        creation, "store_identity_object", lambda context, path: False
    )  # no request reaches that bucket
    names = f"sqlite://{tmp_path}/other.db"
    with create_namespace(
        "lake", store="s3://bucket/a b?region=eu-west-1", metadata=names, log=False
    ) as lake:
        lake.link("out/f", Data(path="0ab/0abc", size=1, etag="e"))
    assert physical_files(URL, options={"metadata": names}) == ["s3a://bucket/a b/0ab/0abc"]
