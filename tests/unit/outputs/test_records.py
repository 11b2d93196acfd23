"""Records of an output: the round trip through storage, and refusals."""

from __future__ import annotations

import json
import pickle
from typing import Any, get_args
from urllib.parse import quote

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from commitlog.commit import ConditionalStore
from commitlog.errors import ConfigurationError, CorruptRecord, InvalidPath
from commitlog.oplog.codec import Document, decode, encode
from commitlog.outputs import (
    AbortRecord,
    Batch,
    CommitRecord,
    DataFile,
    ExpiryRecord,
    Job,
    Mode,
    Output,
    Record,
    StagedFile,
    Visibility,
)
from commitlog.outputs.job import NAMING, attempt_of
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.records import KINDS, Manifest, Success, records_of
from commitlog.stores import Staged
from commitlog.stores.memory import MemoryStore

ATTEMPT = "0123456789abcdef" * 2

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
counts = st.integers(0, 2**60)
attempts = st.integers(0, 16**32 - 1).map("{:032x}".format)
paths = texts.map(lambda text: f"x/{quote(text, safe='')}y")
partitions = st.dictionaries(texts, st.none() | texts, max_size=3)
values = st.none() | counts | texts
stats = st.dictionaries(texts, st.tuples(values, values, st.none() | counts), max_size=2)
files = st.builds(
    DataFile,
    path=paths,
    size=counts,
    nonce=texts,
    rows=st.none() | counts,
    partition=partitions,
    stats=stats,
)
manifests = st.lists(
    st.builds(Manifest, name=paths, sha256=texts, files=counts, rows=st.none() | counts, bytes=counts),
    max_size=2,
).map(tuple)
times = st.floats(0, 1e11)
commits = st.builds(
    CommitRecord,
    version=st.integers(1, 2**63 - 1),
    job_id=texts,
    attempt=attempts,
    mode=st.sampled_from(get_args(Mode)),
    time=times,
    files=st.lists(files, max_size=3).map(tuple),
    manifests=manifests,
    schema=st.none() | texts,
    visibility=st.sampled_from(get_args(Visibility)),
    batch=st.none() | st.builds(Batch, stream=texts.filter(bool), number=counts),
)
named_commits = st.builds(
    evolve,
    commits,
    mode=st.sampled_from(sorted(NAMING)),
    replaced=st.lists(paths, max_size=3).map(tuple),
    replaced_manifests=manifests,
)
expiries = st.builds(ExpiryRecord, version=st.integers(1, 2**63 - 1), before=counts, time=times)
aborts = st.builds(
    AbortRecord,
    version=st.integers(1, 2**63 - 1),
    attempts=st.dictionaries(attempts, st.none() | texts, max_size=3),
    time=times,
)
staged_files = st.builds(
    StagedFile,
    staged=st.builds(
        Staged,
        path=paths,
        upload_id=texts,
        size=counts,
        nonce=texts,
        parts=st.lists(texts, max_size=3).map(tuple),
    ),
    rows=st.none() | counts,
    partition=partitions,
    stats=stats,
)
pendings = st.builds(
    PendingJob,
    job_id=texts,
    attempt=attempts,
    files=st.lists(staged_files, max_size=3).map(tuple),
    manifests=manifests,
)


def stored(document: Document) -> Document:
    return decode(encode(document), KINDS | {"pending", "success"}, path="x.json")


@given(commits | named_commits | aborts | expiries)
def test_a_log_record_survives_storage(record: Record) -> None:
    """A record read under a number equals the record written under it."""
    assert records_of(record.version, stored(record.to_document())) == (record,)


@given(pendings)
def test_a_pending_entry_survives_storage(pending: PendingJob) -> None:
    """A pending entry has everything for publishing and for the commit record."""
    read = PendingJob.from_document(stored(pending.to_document()))
    assert read == pending
    assert read.data_files() == pending.data_files()


@given(commits)
def test_the_watermark_survives_storage(record: CommitRecord) -> None:
    """`_SUCCESS` has the version, job, files, rows and bytes."""
    success = Success.from_document(stored(Success.of(record).to_document()))
    assert success == Success.of(record)
    assert (success.version, success.files) == (record.version, record.file_count)


@given(commits | named_commits | aborts | expiries | pendings, st.data())
def test_a_record_without_a_field_is_corrupt(record: Record | PendingJob, data: st.DataObject) -> None:
    """A record with a valid checksum is corrupt if a field is missing, or is a list."""
    document = record.to_document()
    name = data.draw(st.sampled_from(sorted(document.body)))
    body: dict[str, Any] = dict(document.body)
    if data.draw(st.booleans()):
        del body[name]
    else:
        body[name] = [[]]
    damaged = Document(document.kind, body)
    with pytest.raises(CorruptRecord):
        PendingJob.from_document(damaged) if damaged.kind == "pending" else records_of(1, damaged)


def test_records_are_relative_to_the_output() -> None:
    """No record has the path of the output, so that the output can be moved."""
    output = Output(ConditionalStore(MemoryStore()), "lake/out")
    job = output.begin()
    record = output.commit(job, [output.stage(job, job.file_name(1), b"x")])
    assert "lake" not in json.dumps(dict(record.to_document().body))
    assert output.locate(record.files[0]) == f"lake/out/{job.file_name(1)}"


def test_partition_columns_keep_their_order() -> None:
    """Columns are read in the order of the directories, not in alphabetical order."""
    file = DataFile(path="p", size=1, nonce="n", partition={"year": "2013", "month": None})
    record = CommitRecord(version=1, job_id="j", attempt=ATTEMPT, mode="append", time=0, files=(file,))
    [read] = records_of(1, stored(record.to_document()))
    assert isinstance(read, CommitRecord)
    assert list(read.files[0].partition.items()) == [("year", "2013"), ("month", None)]


def test_rows_are_known_if_every_file_has_a_count() -> None:
    """The sum is unknown if one file has no count."""
    known = DataFile(path="a", size=1, nonce="n", rows=2)
    unknown = DataFile(path="b", size=1, nonce="n")
    for files, rows in (((known, known), 4), ((known, unknown), None), ((), 0)):
        record = CommitRecord(version=1, job_id="j", attempt="a", mode="append", time=0, files=files)
        assert record.rows == rows


def test_a_job_and_its_files_can_be_pickled() -> None:
    """Jobs and staged files are the same after pickling."""
    staged = Staged(path="a", upload_id="u", size=1, nonce="n", parts=("p",))
    value = (
        Job(job_id="ü", attempt=ATTEMPT, mode="error", base=7, schema="{}"),
        StagedFile(staged=staged, rows=1, partition={"a": None}),
    )
    assert pickle.loads(pickle.dumps(value)) == value


@given(
    st.integers(0, 10**6), st.integers(0, 10**4), st.sampled_from(["", ".parquet", ".snappy.parquet"])
)
def test_a_file_name_has_its_attempt(task: int, index: int, suffix: str) -> None:
    """Recovery finds the attempt in any name from `file_name`, and the job accepts the name."""
    job = Job(job_id="daily", attempt=ATTEMPT)
    name = "day=1/" + job.file_name(task, index, suffix)
    assert attempt_of(name) == ATTEMPT
    assert job.check_name(name) == name


@pytest.mark.parametrize("name", [f"x-{ATTEMPT}0-c.txt", f"{ATTEMPT}/x.txt", "part-0.parquet"])
def test_other_names_have_no_attempt(name: str) -> None:
    """Longer runs of digits, and directories, are not taken for an attempt."""
    assert attempt_of(name) is None
    with pytest.raises(InvalidPath):
        Job(job_id="daily", attempt=ATTEMPT).check_name(name)


def test_partition_columns_may_begin_with_an_underscore() -> None:
    """Their directories are not hidden, as in Spark."""
    job = Job(job_id="daily", attempt=ATTEMPT)
    assert job.check_name(f"_day=1/{job.file_name(0)}")


@pytest.mark.parametrize(
    "fields",
    [
        {"attempt": "x"},
        {"attempt": 7},
        {"attempt": ATTEMPT.upper()},
        {"mode": "replace"},
        {"job_id": 7},
        {"visibility": "hidden"},
        {"schema": {"type": "struct"}},
        {"schema": "\ud800"},
        {"base": -1},
        {"base": 0.0},
    ],
)
def test_a_job_is_validated(fields: dict[str, Any]) -> None:
    """Values that could be written into a record, but not read from it, are refused, too."""
    with pytest.raises(ConfigurationError):
        Job(**{"job_id": "daily", "attempt": ATTEMPT, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"rows": -1},
        {"rows": 3.0},
        {"rows": True},
        {"rows": 2**63},
        {"partition": {"day": 5}},
        {"partition": {5: "day"}},
        {"partition": {"day": "\ud800"}},
        {"partition": "day=5"},
        {"stats": {"a": (1, 2)}},
        {"stats": {"a": (float("nan"), 2, 0)}},
        {"stats": {"a": ([1], 2, 0)}},
        {"stats": {"a": (1, 2, -1)}},
    ],
)
def test_a_staged_file_is_validated(fields: dict[str, Any]) -> None:
    """A record with such a file could be written, and the output could not be read any more."""
    staged = Staged(path=f"part-{ATTEMPT}", upload_id="u", size=1, nonce="n")
    with pytest.raises(ConfigurationError, match="cannot be stored"):
        StagedFile(staged=staged, **fields)


@pytest.mark.parametrize("bad", [{"rows": 3.0}, {"partition": {"day": 5}}])
def test_an_output_stays_readable_after_a_wrong_argument(bad: dict[str, Any]) -> None:
    """Nothing is committed, and other jobs go on."""
    output = Output(ConditionalStore(MemoryStore()))
    job = output.begin("wrong")
    with pytest.raises(ConfigurationError):
        output.commit(job, [output.stage(job, job.file_name(0), b"x", **bad)])
    with pytest.raises(ConfigurationError):
        output.begin("wrong", visibility="hidden")  # type: ignore[arg-type]
    output.abort(job)
    assert output.commit(output.begin("right"), []).version == 2
    assert output.snapshot(roll_forward=False).jobs == ("right",)
    assert not list(output.store.list_staged())
