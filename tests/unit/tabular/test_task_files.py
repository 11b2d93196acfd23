"""The files of a task attempt, without Spark."""

from __future__ import annotations

import io
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlog.commit import ConditionalStore
from commitlog.errors import ConfigurationError, NotSupported, Unavailable
from commitlog.files import OUTPUT_FORMATS, StoredObject, output_format_of
from commitlog.outputs import Job, Output, StagedFile
from commitlog.spark.targets.output import WriteOptions
from commitlog.stores import StageWriter
from commitlog.stores.memory import MemoryStore
from commitlog.tabular import OutputUploads, TaskFiles, check_files
from commitlog.tabular import task_files as task_module

ARROW = {"fileformat": "arrow", "compression": "none"}
SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64())])


def rows(*keys: str | None) -> pa.RecordBatch:
    """Return a row for each of `keys`."""
    return pa.record_batch([list(keys), list(range(len(keys)))], schema=SCHEMA)


@pytest.fixture
def output() -> Output:
    """A new output in memory."""
    return Output(ConditionalStore(MemoryStore()))


def attempt(output: Output, job: Job, task: int = 0, **options: str) -> TaskFiles:
    """Return the files of an attempt at a task."""
    given = WriteOptions.parse({"path": "s3://bucket/out", **options}).job
    return TaskFiles(OutputUploads(output, job), task, SCHEMA, given)


def staged(output: Output) -> list[str]:
    """Return the paths of the uploads that are neither published nor dropped."""
    return sorted(info.path for info in output.store.list_staged())


def test_only_the_winning_attempt_is_published(output: Output) -> None:
    """Two attempts stage the same names. The winner's rows are visible, and the other's are dropped."""
    job = output.begin()
    with attempt(output, job) as winner, attempt(output, job) as loser:
        winner.write(rows("won"))
        loser.write(rows("lost", "lost"))
        files = winner.finish()
        assert loser.finish()[0].staged.path == files[0].staged.path
    record = output.commit(job, files)
    (file,) = record.files
    table = pq.read_table(io.BytesIO(output.store.get(file.path).data))
    assert table.column("k").to_pylist() == ["won"]
    assert file.rows == 1
    assert staged(output) == []


def test_a_file_for_each_partition(output: Output) -> None:
    """Rows of all batches go to the directory of their value, with one numbered file each."""
    job = output.begin()
    with attempt(output, job, task=3, partitionby="k", compression="gzip") as files:
        files.write(rows("a", None, "a"))
        files.write(rows())
        files.write(rows("b", "a"))
        found = files.finish()
    assert [(file.staged.path.partition("/")[0], file.rows, dict(file.partition)) for file in found] == [
        ("k=a", 3, {"k": "a"}),
        ("k=__HIVE_DEFAULT_PARTITION__", 1, {"k": None}),
        ("k=b", 1, {"k": "b"}),
    ]
    assert {file.staged.path[-len("-c000.gz.parquet") :] for file in found} == {
        f"-c00{index}.gz.parquet" for index in range(3)
    }
    assert output.commit(job, found).rows == 5


def test_a_task_without_rows_stages_nothing(output: Output) -> None:
    """No file is begun before the first row."""
    with attempt(output, output.begin()) as files:
        files.write(rows())
        assert files.finish() == ()
    assert staged(output) == []


def test_an_attempt_that_fails_drops_its_uploads(output: Output) -> None:
    """An error while rows are written leaves no upload."""
    with attempt(output, output.begin(), partitionby="k") as files:
        files.write(rows("a", "b"))
        assert len(staged(output)) == 2
        with pytest.raises(NotSupported, match="cannot distinguish from null"):
            files.write(rows(""))
    assert staged(output) == []


def test_an_upload_whose_first_write_fails_is_dropped(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed attempt leaves no upload."""
    begin_stage = output.begin_stage

    def full(job: Job, name: str) -> StageWriter:
        upload = begin_stage(job, name)

        def write(data: bytes) -> int:
            raise Unavailable("no answer")

        monkeypatch.setattr(upload, "write", write)
        return upload

    monkeypatch.setattr(output, "begin_stage", full)
    with attempt(output, output.begin()) as files:
        files.write(rows("a"))
        with pytest.raises(Unavailable):
            files.finish()
    assert staged(output) == []


def test_an_attempt_that_fails_at_the_end_drops_its_files(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file cannot be completed, the complete ones are dropped too."""
    begin_stage = output.begin_stage

    def second_fails(job: Job, name: str) -> StageWriter:
        upload = begin_stage(job, name)
        if name.startswith("k=b/"):

            def finish() -> None:
                raise Unavailable("no answer")

            monkeypatch.setattr(upload, "finish", finish)
        return upload

    monkeypatch.setattr(output, "begin_stage", second_fails)
    with attempt(output, output.begin(), partitionby="k") as files:
        files.write(rows("a", "b", "c"))
        with pytest.raises(Unavailable):
            files.finish()
    assert staged(output) == []


def test_a_failing_clean_up_does_not_hide_the_error(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload that cannot be dropped hides neither the error nor the other uploads."""
    begin_stage = output.begin_stage

    def first_stays(job: Job, name: str) -> StageWriter:
        upload = begin_stage(job, name)
        if name.startswith("k=a/"):

            def abort() -> None:
                raise Unavailable("no answer")

            monkeypatch.setattr(upload, "abort", abort)
        return upload

    monkeypatch.setattr(output, "begin_stage", first_stays)

    def write(error: Exception | None) -> None:
        with attempt(output, output.begin(), partitionby="k") as files:
            files.write(rows("a", "b"))
            if error is not None:
                raise error

    with pytest.raises(ZeroDivisionError) as caught:
        write(ZeroDivisionError())
    assert ["no answer" in note for note in caught.value.__notes__] == [True]
    assert [path.partition("/")[0] for path in staged(output)] == ["k=a"]
    with pytest.raises(Unavailable):
        write(None)


def test_memory_does_not_grow_with_the_number_of_partitions(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that a task buffers for many files are limited together."""
    monkeypatch.setattr(task_module, "GROUP_BYTES", 1000)
    gathered = []
    with attempt(output, output.begin(), partitionby="k") as files:
        for _ in range(20):
            files.write(rows(*"abcdefghij"))
            gathered.append(sum(file.buffered_bytes for file in files._open.values()))
        files.finish()
    assert max(gathered) <= 1000


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_files_of_every_format(output: Output, name: str) -> None:
    """The option selects the format, the file's name shows it, and the file can be read."""
    job = output.begin()
    with attempt(output, job, fileformat=name) as files:
        files.write(rows("a", None, "b"))
        record = output.commit(job, files.finish())
    (file,) = record.files
    assert output_format_of(file.path).name == name
    known = OUTPUT_FORMATS[name]
    source = StoredObject(output.store, output.locate(file), file.size)
    read = list(known.read(source, SCHEMA, {"k", "v"}))
    assert pa.Table.from_batches(read).to_batches() == [rows("a", None, "b")]


def contents(output: Output, job: Job, files: tuple[StagedFile, ...]) -> list[list[object]]:
    """Commit the Parquet `files`; return the column v of each, in the order of their numbers."""
    record = output.commit(job, files)
    found = sorted(record.files, key=lambda file: file.path.rpartition("-c")[2])
    tables = [pq.read_table(io.BytesIO(output.store.get(file.path).data)) for file in found]
    assert [table.num_rows for table in tables] == [file.rows for file in found]
    return [table.column("v").to_pylist() for table in tables]


def test_target_file_rows_limits_each_file(output: Output) -> None:
    """The limit is exact for any batches, and no row is lost."""
    job = output.begin()
    with attempt(output, job, targetfilerows="4") as files:
        for _ in range(3):
            files.write(rows(*"abc"))
        files.write(rows())
        found = files.finish()
    names = [file.staged.path.partition("-c")[2] for file in found]
    assert names == ["000.snappy.parquet", "001.snappy.parquet", "002.snappy.parquet"]
    assert contents(output, job, found) == [[0, 1, 2, 0], [1, 2, 0, 1], [2]]


def test_a_full_last_file_is_followed_by_no_empty_file(output: Output) -> None:
    """A file that is full is complete, and the next one begins with the next row."""
    job = output.begin()
    with attempt(output, job, targetfilerows="2") as files:
        files.write(rows(*"abcd"))
        assert contents(output, job, files.finish()) == [[0, 1], [2, 3]]


def test_target_file_bytes_limits_each_file(output: Output) -> None:
    """A file is completed once it has that many bytes, in each partition."""
    job = output.begin()
    with attempt(output, job, targetfilebytes="20000", partitionby="k", **ARROW) as files:
        for _ in range(10):
            files.write(rows(*("a" * 1000 + "b" * 100)))
        found = files.finish()
    sizes = [(file.staged.path.partition("/")[0], file.staged.size) for file in found]
    large = [size for partition, size in sizes if partition == "k=a"]
    assert len(large) > 2 and all(20_000 <= size < 45_000 for size in large[:-1])
    assert [partition for partition, _ in sizes].count("k=b") == 1
    assert output.commit(job, found).rows == 11_000


def test_sort_by_sorts_the_rows_of_each_partition(output: Output) -> None:
    """The rows of all batches of a task are sorted together, nulls first."""
    job = output.begin()
    with attempt(output, job, sortby="k,v") as files:
        files.write(rows("c", "a", None))
        files.write(rows("b", "a"))
        assert staged(output) == []
        assert contents(output, job, files.finish()) == [[2, 1, 1, 0, 0]]
    job = output.begin()
    with attempt(output, job, sortby="v", partitionby="k") as files:
        files.write(rows("b", "a", "b"))
        files.write(rows("b", "a"))
        assert contents(output, job, files.finish()) == [[0, 0, 2], [1, 1]]


def test_rows_are_sorted_as_in_spark(output: Output) -> None:
    """Nulls come first, and NaN comes last."""
    schema = pa.schema([pa.field("v", pa.float64())])
    options = WriteOptions.parse({"path": "s3://bucket/out", "sortby": "v"}).job
    job = output.begin()
    with TaskFiles(OutputUploads(output, job), 0, schema, options) as files:
        files.write(pa.record_batch([[1.0, math.nan, None, -math.inf]], schema=schema))
        (values,) = contents(output, job, files.finish())
    assert list(map(str, values)) == ["None", "-inf", "1.0", "nan"]


def test_the_rows_that_a_task_sorts_are_limited(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit, the rows of the largest partition become a sorted file."""
    monkeypatch.setattr(task_module, "SORT_BYTES", 1000)
    job = output.begin()
    with attempt(output, job, sortby="v", partitionby="k") as files:
        gathered = []
        for _ in range(100):
            files.write(rows(*"aaab"))
            gathered.append(sum(part.buffered_bytes for part in files._unsorted.values()))
        assert max(gathered) <= 1000 and not files._open
        found = contents(output, job, files.finish())
    assert len(found) > 2
    assert all(values == sorted(values) for values in found)
    assert sum(map(len, found)) == 400


def test_an_attempt_that_fails_drops_the_files_that_were_complete(output: Output) -> None:
    """Files that were full and complete before the error are dropped as well."""
    with attempt(output, output.begin(), targetfilerows="1") as files:
        files.write(rows("a", "b"))
        assert len(staged(output)) == 2
    assert staged(output) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sortby": "x"}, ConfigurationError, "no column 'x' to sort by; a file has k, v, l"),
        ({"sortby": "k", "partitionby": "k"}, ConfigurationError, "no column 'k' to sort by; .* v, l"),
        ({"sortby": "l"}, NotSupported, "column 'l' cannot be sorted by: type list.* has no order"),
        ({"partitionby": "x"}, ConfigurationError, "no column 'x' to partition by"),
        ({"fileformat": "csv"}, NotSupported, "column 'l' is of type list.*, which CSV cannot hold"),
    ],
)
def test_unsupported_columns_are_refused_before_a_task_runs(
    options: dict[str, str], error: type[Exception], message: str
) -> None:
    """Columns that the options do not allow are refused by name."""
    schema = SCHEMA.append(pa.field("l", pa.list_(pa.int8())))
    with pytest.raises(error, match=message):
        check_files(schema, WriteOptions.parse({"path": "s3://bucket/out", **options}).job)
