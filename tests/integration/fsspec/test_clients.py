"""pandas, pyarrow, DuckDB, Dask and Polars with namespaces, through fsspec."""

from __future__ import annotations

import contextlib
import gzip
import multiprocessing
import re
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import duckdb
import fsspec
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyarrow.fs import FileSelector, FileType, FSSpecHandler, PyFileSystem

from commitlog.errors import TableNotFound
from commitlog.filesystem import CommitlogFileSystem
from commitlog.namespace import NAMESPACE_SCHEMA
from commitlog.namespaces import create_namespace
from commitlog.tables.open import open_table
from support.project import ROOT
from support.selection import with_all

FRAME = pandas.DataFrame(
    {"number": range(30), "text": [f"ü{number}" for number in range(30)], "day": [1, 2, 3] * 10}
)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Options of a file system whose one namespace is a directory and an SQLite file."""
    names = f"sqlite://{tmp_path / 'names.db'}"
    create_namespace("lake", store=str(tmp_path / "content"), metadata=names).close()
    yield {"metadata": names}
    _close_all()


@pytest.fixture(params=["local", pytest.param("ministack", marks=pytest.mark.servers)])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Options of such a file system, and of one whose namespace is in S3 and DynamoDB."""
    if request.param == "local":
        yield request.getfixturevalue("local")
        return
    server = request.getfixturevalue("ministack")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
    place = f"?endpoint_url={server.endpoint_url}&region={server.region}"
    names = f"dynamodb://{server.new_table_name()}{place}"
    with contextlib.closing(open_table(names, NAMESPACE_SCHEMA)) as table:
        table.create()
    create_namespace("lake", store=f"s3://{server.new_bucket()}/a{place}", metadata=names).close()
    yield {"metadata": names}
    _close_all()


def _pool(kind: type[Executor]) -> Executor:
    if kind is ThreadPoolExecutor:
        return ThreadPoolExecutor(2)
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def _close_all() -> None:
    for fs in CommitlogFileSystem._cache.values():
        fs.close()
    CommitlogFileSystem.clear_instance_cache()


def test_pandas_writes_and_reads(options: dict[str, str]) -> None:
    """Text, compressed text, JSON and Parquet, in one file or several, by URL."""
    url = "commitlog://lake/frames/frame"
    for ending in ("csv", "csv.gz"):
        FRAME.to_csv(f"{url}.{ending}", index=False, storage_options=options)
        assert pandas.read_csv(f"{url}.{ending}", storage_options=options).equals(FRAME)
    FRAME.to_json(f"{url}.json", orient="records", lines=True, storage_options=options)
    assert pandas.read_json(f"{url}.json", lines=True, storage_options=options).equals(FRAME)
    FRAME.to_parquet(f"{url}.parquet", storage_options=options)
    assert pandas.read_parquet(f"{url}.parquet", storage_options=options).equals(FRAME)
    FRAME.to_parquet(url, partition_cols=["day"], storage_options=options)
    found = pandas.read_parquet(url, filters=[("day", "==", 2)], storage_options=options)
    assert found["number"].tolist() == list(range(1, 30, 3))


def test_pandas_in_a_transaction(options: dict[str, str]) -> None:
    """Files of several calls appear at once, or not at all."""
    fs = fsspec.filesystem("commitlog", **options)
    for fails in (True, False):
        with contextlib.suppress(KeyError), fs.transaction:
            FRAME.to_csv("commitlog://lake/a/frame.csv", storage_options=options)
            FRAME.to_parquet("commitlog://lake/b/frame.parquet", storage_options=options)
            if fails:
                raise KeyError
        assert bool(fs.find("lake")) is not fails
    assert fs.find("lake") == ["lake/a/frame.csv", "lake/b/frame.parquet"]


def test_pyarrow_writes_and_reads(options: dict[str, str]) -> None:
    """Datasets and files, with fsspec's file system or pyarrow's wrapper around it."""
    fs = fsspec.filesystem("commitlog", **options)
    wrapped = PyFileSystem(FSSpecHandler(fs))
    table = pyarrow.Table.from_pandas(FRAME)
    for each in (fs, wrapped):
        pyarrow.dataset.write_dataset(
            table,
            "lake/dataset",
            filesystem=each,
            format="parquet",
            partitioning=["day"],
            partitioning_flavor="hive",
            existing_data_behavior="delete_matching",
        )
        found = pyarrow.dataset.dataset("lake/dataset", filesystem=each, partitioning="hive")
        assert len(found.files) == 3
        assert found.to_table().sort_by("number")["text"].to_pylist() == FRAME["text"].tolist()
        pyarrow.parquet.write_table(table, "lake/file", filesystem=each)
        assert pyarrow.parquet.read_table("lake/file", filesystem=each).equals(table)


def test_pyarrow_manages_files(local: dict[str, str]) -> None:
    """The methods of pyarrow's file system interface work."""
    fs = PyFileSystem(FSSpecHandler(fsspec.filesystem("commitlog", **local)))
    fs.create_dir("lake/a/b")
    fs.create_dir("lake/a/b")
    with fs.open_output_stream("lake/a/f") as stream:
        stream.write(b"0123456789")
    with fs.open_input_file("lake/a/f") as file:
        assert (file.read_at(3, 4), file.size()) == (b"456", 10)
    fs.copy_file("lake/a/f", "lake/a/g")
    fs.move("lake/a/g", "lake/a/b/g")
    (info, missing) = fs.get_file_info(["lake/a/b/g", "lake/no"])
    assert (info.size, info.type, missing.type) == (10, FileType.File, FileType.NotFound)
    assert info.mtime is not None
    found = fs.get_file_info(FileSelector("lake", recursive=True))
    assert [each.path for each in found] == ["lake/a", "lake/a/b", "lake/a/b/g", "lake/a/f"]
    assert fs.get_file_info(FileSelector("lake/no", allow_not_found=True)) == []
    fs.delete_file("lake/a/f")
    with pytest.raises(FileNotFoundError):
        fs.delete_file("lake/a/f")
    fs.delete_dir_contents("lake/a")
    fs.delete_dir("lake/a")
    assert fs.get_file_info("lake/a").type == FileType.NotFound


def test_pyarrow_does_not_take_a_missing_table_for_a_missing_file(local: dict[str, str]) -> None:
    """The error reaches the caller. pyarrow reports a `FileNotFoundError` as a missing file."""
    missing = fsspec.filesystem("commitlog", metadata=f"{local['metadata']}-nowhere")
    with pytest.raises(TableNotFound):
        PyFileSystem(FSSpecHandler(missing)).get_file_info("lake/a")


def test_duckdb_writes_and_reads(local: dict[str, str]) -> None:
    """Queries over files and patterns, and COPY, also to an existing file."""
    fs = fsspec.filesystem("commitlog", **local)
    with duckdb.connect() as session:
        session.register_filesystem(fs)
        session.register("frame", FRAME)
        for limit in (5, 20):
            session.execute(
                f"COPY (FROM frame LIMIT {limit}) TO 'commitlog://lake/f.parquet' (FORMAT parquet)"
            )
            assert session.execute("SELECT count(*) FROM 'commitlog://lake/f.parquet'").fetchone() == (
                limit,
            )
        session.execute("COPY frame TO 'commitlog://lake/f.csv'")
        assert session.execute("FROM read_csv('commitlog://lake/f.csv')").df().equals(FRAME)
        session.execute("COPY frame TO 'commitlog://lake/days' (FORMAT parquet, PARTITION_BY (day))")
        total = session.execute(
            "SELECT sum(number) FROM read_parquet('commitlog://lake/days/*/*.parquet') WHERE day = 2"
        )
        assert total.fetchone() == (sum(range(1, 30, 3)),)
        with pytest.raises(duckdb.Error):
            session.execute("FROM 'commitlog://lake/no.parquet'")
    assert fs.ls("lake", detail=False) == ["lake/days", "lake/f.csv", "lake/f.parquet"]


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, with_all(ProcessPoolExecutor)])
def test_dask_writes_and_reads(local: dict[str, str], kind: type[Executor]) -> None:
    """In threads and in other processes. A rename makes the result visible."""
    frame: Any = dask.dataframe.from_pandas(FRAME, npartitions=3)
    fs = fsspec.filesystem("commitlog", **local)
    scheduler = "threads" if kind is ThreadPoolExecutor else "processes"
    with _pool(kind) as pool, dask.config.set(scheduler=scheduler, pool=pool):
        frame.to_parquet("commitlog://lake/staging/frame", storage_options=local)
        assert not fs.exists("lake/frame")
        fs.mv("lake/staging/frame", "lake/frame")
        found = dask.dataframe.read_parquet("commitlog://lake/frame", storage_options=local)
        rows = found.compute().sort_values("number")
        assert rows.astype({"text": object}).equals(FRAME)
    assert len(fs.find("lake/frame")) == 3


def test_the_examples_of_the_page_run(local: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of docs/filesystem.md without prompts works with these clients."""
    fs = fsspec.filesystem("commitlog", **local)
    monkeypatch.setenv("COMMITLOG_METADATA", local["metadata"])
    fs.pipe("lake/frames/b.csv.gz", gzip.compress(FRAME.to_csv(index=False).encode()))
    page = (ROOT / "docs/filesystem.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [clients] = [block for block in blocks if "# Dask" in block]
    sections = {section.partition(":")[0].split()[0]: section for section in clients.split("\n# ")}
    assert sections.keys() == {"#", "pyarrow", "DuckDB", "Dask", "Polars", "fsspec"}
    known: dict[str, Any] = {
        "dask": dask,
        "duckdb": duckdb,
        "pandas": pandas,
        "polars": pytest.importorskip("polars"),
        "pyarrow": pyarrow,
        "fs": fs,
        "options": local,
    }
    for name, section in sections.items():
        frame = dask.dataframe.from_pandas(FRAME, npartitions=3) if name == "Dask" else FRAME
        table = pyarrow.Table.from_pandas(FRAME, preserve_index=False)
        source = Path(local["metadata"].removeprefix("sqlite://")).parent / "events"
        source.mkdir(exist_ok=True)
        (source / "new.csv").write_bytes(b"1")
        text = section.replace("file:///data/events", f"file://{source}")
        code = compile("# " + text, name, "exec")
        with _pool(ThreadPoolExecutor) as pool, dask.config.set(scheduler="threads", pool=pool):
            exec(code, {**known, "frame": frame, "table": table})
    assert len(fs.glob("lake/tables/run-7/*.parquet")) == 3
    assert not fs.exists("lake/staging/run-7")
    assert fs.find("lake/events") == ["lake/events/new.csv"]
    assert pandas.read_parquet("commitlog://lake/frames/c.parquet", storage_options=local).equals(
        FRAME[FRAME["day"] == 2].reset_index(drop=True)
    )


def test_polars_reads_and_writes_file_objects(options: dict[str, str]) -> None:
    """Text and Parquet, read, scanned and written, one file or several, with pushdown."""
    polars = pytest.importorskip("polars")
    fs = fsspec.filesystem("commitlog", **options)
    frame = polars.from_pandas(FRAME)
    for number in range(2):
        with fs.open(f"lake/polars/{number}.parquet", "wb") as file:
            frame.write_parquet(file)
    with fs.open("lake/sunk.parquet", "wb") as file:
        frame.lazy().filter(polars.col("day") == 2).sink_parquet(file)
    assert polars.read_parquet(fs.open("lake/polars/0.parquet")).equals(frame)
    assert polars.read_parquet(fs.open("lake/sunk.parquet"))["number"].to_list() == list(range(1, 30, 3))
    files = [fs.open(path) for path in fs.glob("lake/polars/*.parquet")]
    scanned = polars.scan_parquet(files).filter(polars.col("day") == 2).select("number").collect()
    assert sorted(scanned["number"].to_list()) == sorted([*range(1, 30, 3)] * 2)
    dataset = pyarrow.dataset.dataset("lake/polars", filesystem=fs)
    lazy = polars.scan_pyarrow_dataset(dataset).filter(polars.col("number") < 3)
    assert lazy.collect().height == 6
    fs.pipe("lake/a.csv", b"a,b\n1,2\n")
    assert polars.read_csv(fs.open("lake/a.csv")).rows() == [(1, 2)]
    assert polars.scan_csv(fs.open("lake/a.csv")).collect().rows() == [(1, 2)]


def test_polars_does_not_open_urls_of_namespaces(local: dict[str, str]) -> None:
    """Polars opens URLs itself, without fsspec, except through pyarrow."""
    polars = pytest.importorskip("polars")
    fs = fsspec.filesystem("commitlog", **local)
    url = "commitlog://lake/a.parquet"
    with fs.open("lake/a.parquet", "wb") as file:
        polars.from_pandas(FRAME).write_parquet(file)
    for read in (polars.read_parquet, lambda url, **how: polars.scan_parquet(url, **how).collect()):
        with pytest.raises(FileNotFoundError):
            read(url, storage_options=local)
    assert polars.read_parquet(url, use_pyarrow=True, storage_options=local).height == len(FRAME)


def test_clients_read_and_write_plain_stores() -> None:
    """They accept the protocols with a plus sign."""
    url, name = "commitlog+memory://of-clients", "of-clients"
    fs = fsspec.filesystem("commitlog+memory")
    FRAME.to_parquet(f"{url}/pandas.parquet", partition_cols=["day"])
    assert len(pandas.read_parquet(f"{url}/pandas.parquet")) == len(FRAME)
    table = pyarrow.Table.from_pandas(FRAME)
    pyarrow.dataset.write_dataset(table, f"{name}/arrow", filesystem=fs, format="parquet")
    assert pyarrow.dataset.dataset(f"{name}/arrow", filesystem=fs).to_table().num_rows == len(FRAME)
    frame: Any = dask.dataframe.from_pandas(FRAME, npartitions=2)
    with _pool(ThreadPoolExecutor) as pool, dask.config.set(scheduler="threads", pool=pool):
        frame.to_parquet(f"{url}/dask")
        assert len(dask.dataframe.read_parquet(f"{url}/dask").compute()) == len(FRAME)
    with duckdb.connect() as session:
        session.register_filesystem(fs)
        found = session.execute(f"SELECT count(*) FROM read_parquet('{url}/dask/*.parquet')").fetchone()
    assert found == (len(FRAME),)
    type(fs).clear_instance_cache()
