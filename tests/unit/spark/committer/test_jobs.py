"""The settings and the jobs of Spark's own file writers, without Spark."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from commitlog.connect import connect
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PublishIncomplete,
    Unavailable,
)
from commitlog.oplog.codec import Document
from commitlog.outputs import Output
from commitlog.outputs.log import CommitLog
from commitlog.outputs.publishing import Publisher
from commitlog.spark.committer.jobs import JobCommitter, settings
from commitlog.tabular.columns import OutputColumns
from support.committer_jobs import Directory, Driver, agent
from support.outputs import Death


def of_save_as_table(**fields: Any) -> dict[str, Any]:
    """Return the settings of a write to a table with a job id, whose options Spark hides."""
    properties = {"jobid": "first", "visibility": "logged"}
    return {"options": properties, "table": properties, "statement": None, "session": {}, **fields}


def test_a_job_id_that_spark_may_hide_is_refused() -> None:
    """The job id of an earlier statement does not count, and that of this one is unknown."""
    with pytest.raises(NotSupported, match="hides the options of saveAsTable"):
        settings(of_save_as_table())


@pytest.mark.parametrize("origin", [{"thread": "second"}, {"session": {"jobId": "second"}}])
def test_another_job_id_is_used_instead(origin: dict[str, Any]) -> None:
    """That of the thread or of the session."""
    assert settings(of_save_as_table(**origin)) == {"visibility": "logged", "jobId": "second"}


def test_the_job_id_of_the_thread_overrides_that_of_the_session() -> None:
    """Otherwise, with onDuplicate=skip, the jobs of all threads but one would be left out."""
    session = {"jobId": "of the session", "onDuplicate": "skip"}
    given = settings({"options": session, "session": session, "thread": "of the thread"})
    assert given == {"jobId": "of the thread", "onDuplicate": "skip"}


@pytest.mark.parametrize("origin", ["options", "statement"])
def test_the_job_id_of_a_write_overrides_that_of_the_thread(origin: str) -> None:
    """The option of a write, or of saveAsTable."""
    session = {"jobId": "of the session"}
    write = {"jobId": "of the write"}
    given = {"options": session, "session": session, "thread": "of the thread", origin: write}
    assert settings(given) == write


def test_a_table_without_a_job_id_is_written_without_one() -> None:
    """Nothing shows that the statement has one."""
    properties = {"visibility": "logged"}
    assert settings(of_save_as_table(options=properties, table=properties)) == properties


def test_unknown_settings_are_refused() -> None:
    """The error lists the known ones. The setting of the driver's interpreter is none of a write."""
    with pytest.raises(
        ConfigurationError, match=r"unknown setting spark\.commitlog\.jobid2; known: .*jobId"
    ):
        settings({"options": {"jobid2": "a"}})
    with pytest.raises(ConfigurationError, match=r"spark\.commitlog\.jobId is given twice"):
        settings({"options": {"jobId": "a", "jobid": "b"}})
    assert settings({"options": {"python": "/usr/bin/python3", "JOBID": "a"}}) == {"jobId": "a"}


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    """A directory for an output."""
    (tmp_path / "out").mkdir()
    return Directory(tmp_path / "out")


#: Begins the life of another agent.
NewAgent = Callable[..., JobCommitter]


@pytest.fixture
def new_agent() -> Any:
    """Begin the life of another agent; all of them end with the test."""
    with ExitStack() as lives:
        yield lambda **options: lives.enter_context(agent(**options))


@pytest.mark.parametrize("scheme", ["hdfs", "abfs", "gs", "s3", "s3n"])
def test_other_file_systems_are_refused(new_agent: NewAgent, scheme: str) -> None:
    """The error names the file system, and gives the way to write there."""
    modes = {"replaced": [], "dynamic": False, "exclusive": False}
    request = {"path": f"{scheme}://host/out", "options": {}, **modes}
    advice = "Write to s3a://…, through S3A" if scheme in ("s3", "s3n") else "Write elsewhere"
    with pytest.raises(NotSupported, match=f"not in the file system {scheme!r}. {advice}, or set"):
        new_agent().begin({**request, "schema": None})


BOTH = pytest.mark.parametrize("visibility", ["listed", "logged"])


def rows(place: Directory) -> list[str]:
    """Return the content of all files that a reader of the log reads, sorted."""
    with connect(str(place.path)) as store:
        output = Output(store)
        return sorted(store.get(output.locate(f)).data.decode() for f in output.snapshot().files)


def versions(place: Directory) -> int:
    """Return the number of commits."""
    with connect(str(place.path)) as store:
        return len(list(Output(store).log()))


def commit_and_die(jobs: JobCommitter, job: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an agent die after the commit point of a job, before it publishes a file."""

    def die(*_: object) -> None:
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", die)
        with pytest.raises(Death):
            jobs.commit(job.request())


@BOTH
def test_another_agent_commits(place: Directory, new_agent: NewAgent, visibility: str) -> None:
    """The state of the job travels as JSON. A commit that is sent once more changes nothing."""
    job = Driver.begin(new_agent(), place, visibility=visibility, jobId="daily")
    job.write("a", "b")
    assert place.files() == {}
    assert new_agent().commit(job.request(again=True)) == {}
    assert rows(place) == ["a", "b"]
    assert sorted(place.files().values()) == ([b"a", b"b"] if visibility == "listed" else [])
    assert new_agent().commit(job.request(again=True)) == {}
    assert rows(place) == ["a", "b"]
    assert versions(place) == 1


@BOTH
def test_the_next_agent_publishes(
    place: Directory, new_agent: NewAgent, visibility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent dies after the commit point. The next one publishes the job and removes the old file."""
    (place.path / "old").write_bytes(b"old")
    job = Driver.begin(new_agent(), place, visibility=visibility, replaced=[""])
    job.write("a", "b")

    commit_and_die(new_agent(), job, monkeypatch)
    assert versions(place) == 1
    assert "old" in place.files()
    assert new_agent().commit(job.request(again=True)) == {}
    assert sorted(place.files().values()) == ([b"a", b"b"] if visibility == "listed" else [])
    assert rows(place) == ["a", "b"]


@BOTH
def test_another_agent_aborts(place: Directory, new_agent: NewAgent, visibility: str) -> None:
    """The job is excluded permanently, and its files are gone. An abort may be sent once more."""
    job = Driver.begin(new_agent(), place, visibility=visibility)
    job.write("a")
    new_agent().abort(job.request())
    new_agent().abort(job.request())
    # A listed job has no files any more.
    with pytest.raises(NotFound if visibility == "listed" else JobAborted):
        new_agent().commit(job.request())
    assert rows(place) == []
    assert not [path for path in place.path.rglob(f"*{job.attempt}*") if path.is_file()]


def test_an_abort_spares_a_committed_job(place: Directory, new_agent: NewAgent) -> None:
    """A driver that has no answer to its commit may send an abort."""
    job = Driver.begin(new_agent(), place)
    job.write("a")
    new_agent().commit(job.request())
    new_agent().abort(job.request())
    assert rows(place) == ["a"]


class LostAnswer:
    """The first claim of a commit record has no answer; `written`: whether the record was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, written: bool) -> None:
        usual = CommitLog.claim
        lost = False

        def claim(log: CommitLog, version: int, document: Document) -> bool:
            nonlocal lost
            if lost or document.kind != "commit":
                return usual(log, version, document)
            lost = True
            if written:
                usual(log, version, document)
            raise OutcomeUnknown("no answer")

        monkeypatch.setattr(CommitLog, "claim", claim)


@BOTH
def test_a_lost_answer_of_a_committed_job_is_settled(
    place: Directory, new_agent: NewAgent, visibility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has the commit record: the call returns, and the files are visible."""
    LostAnswer(monkeypatch, written=True)
    jobs = new_agent()
    job = Driver.begin(jobs, place, visibility=visibility)
    job.write("a")
    assert jobs.commit(job.request()) == {}
    assert rows(place) == ["a"]
    assert list(place.files().values()) == ([b"a"] if visibility == "listed" else [])


@BOTH
def test_a_lost_claim_is_settled_by_an_abort(
    place: Directory, new_agent: NewAgent, visibility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has no commit record: the job is excluded, and the error says so."""
    LostAnswer(monkeypatch, written=False)
    jobs = new_agent()
    job = Driver.begin(jobs, place, visibility=visibility, jobId="daily")
    job.write("a")
    with pytest.raises(JobAborted, match=r"'daily' was not committed: no answer\. It was aborted"):
        jobs.commit(job.request())
    jobs.abort(job.request())
    assert rows(place) == []


def test_an_outcome_that_stays_unknown_is_an_error(
    place: Directory, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log cannot be read after a lost answer."""

    def fail(*_: object) -> None:
        raise Unavailable("the store is down")

    LostAnswer(monkeypatch, written=True)
    jobs = new_agent()
    job = Driver.begin(jobs, place)
    job.write("a")
    with monkeypatch.context() as patch:
        patch.setattr(Output, "resolve", fail)
        with pytest.raises(OutcomeUnknown, match=r"may or may not be committed.*the store is down"):
            jobs.commit(job.request())
    assert jobs.commit(job.request(again=True)) == {}
    assert rows(place) == ["a"]


@BOTH
def test_an_exclusive_job_is_refused_if_data_comes_first(
    place: Directory, new_agent: NewAgent, visibility: str
) -> None:
    """Of two such jobs that began together, one is committed; later ones are refused at once."""
    jobs = new_agent()
    first, second = (Driver.begin(jobs, place, exclusive=True, visibility=visibility) for _ in range(2))
    first.write("a")
    second.write("b")
    jobs.commit(first.request())
    with pytest.raises(AlreadyExists, match="nothing was added"):
        jobs.commit(second.request())
    jobs.abort(second.request())
    with pytest.raises(AlreadyExists, match="nothing was done"):
        Driver.begin(jobs, place, exclusive=True, visibility=visibility)
    assert rows(place) == ["a"]


def test_a_duplicate_of_an_exclusive_job_is_skipped(place: Directory, new_agent: NewAgent) -> None:
    """The data that it finds is its own."""
    jobs = new_agent()
    options = {"jobId": "daily", "onDuplicate": "skip"}
    first = Driver.begin(jobs, place, exclusive=True, **options)
    first.write("a")
    jobs.commit(first.request())
    second = Driver.begin(jobs, place, exclusive=True, **options)
    second.write("b")
    jobs.commit(second.request())
    assert rows(place) == ["a"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_unexpected_error_is_settled_by_the_log(
    place: Directory, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """If the system refuses a thread or memory, the job is completed, or aborted permanently."""
    jobs = new_agent()
    job = Driver.begin(jobs, place)
    job.write("a")
    commit = Output.commit

    def fail(*arguments: Any, **options: Any) -> None:
        if is_committed:
            commit(*arguments, **options)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Output, "commit", fail)
    if is_committed:
        assert jobs.commit(job.request()) == {}
    else:
        with pytest.raises(JobAborted, match="was not committed: can't start new thread"):
            jobs.commit(job.request())
    assert rows(place) == (["a"] if is_committed else [])


def test_an_unexpected_error_of_the_publishing_is_settled_by_the_log(
    place: Directory, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the commit point, and the agent completes the job."""
    jobs = new_agent()
    job = Driver.begin(jobs, place)
    job.write("a")
    publish = Publisher.publish

    def fail(*_: Any) -> None:
        monkeypatch.setattr(Publisher, "publish", publish)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Publisher, "publish", fail)
    assert jobs.commit(job.request()) == {}
    assert rows(place) == ["a"]


def test_a_failed_settling_of_the_publishing_leaves_the_outcome_unknown(
    place: Directory, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the commit point, an error of the log changes nothing: the job is known to be committed."""

    def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    def down(*_: Any) -> None:
        raise Unavailable("the store is down")

    jobs = new_agent()
    job = Driver.begin(jobs, place)
    job.write("a")
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", fail)
        patch.setattr(Output, "resolve", down)
        with pytest.raises(PublishIncomplete, match="is committed as version 1") as caught:
            jobs.commit(job.request())
        assert str(caught.value.__cause__) == "the store is down"
    assert jobs.commit(job.request(again=True)) == {}
    assert rows(place) == ["a"]


@BOTH
def test_a_duplicate_is_refused_or_skipped(
    place: Directory, new_agent: NewAgent, visibility: str
) -> None:
    """A job that was committed before writes its files in vain, also if its agent is replaced."""
    options = {"visibility": visibility, "jobId": "daily"}
    first = Driver.begin(new_agent(), place, **options)
    first.write("a")
    new_agent().commit(first.request())
    with pytest.raises(JobAlreadyCommitted):
        Driver.begin(new_agent(), place, **options)
    second = Driver.begin(new_agent(), place, **options, onDuplicate="skip")
    second.write("b")
    assert new_agent().commit(second.request()) == {}
    assert rows(place) == ["a"]
    assert versions(place) == 1
    assert not [path for path in place.path.rglob(f"*{second.attempt}*") if path.is_file()]


@pytest.mark.parametrize("duplicates", ["error", "skip"])
def test_of_two_jobs_with_one_id_one_is_committed(
    place: Directory, new_agent: NewAgent, duplicates: str
) -> None:
    """The other one learns it at its commit."""
    jobs = new_agent()
    first, second = (Driver.begin(jobs, place, jobId="daily", onDuplicate=duplicates) for _ in range(2))
    first.write("a")
    second.write("b")
    jobs.commit(first.request())
    if duplicates == "skip":
        jobs.commit(second.request())
    else:
        with pytest.raises(JobAlreadyCommitted):
            jobs.commit(second.request())
        jobs.abort(second.request())
    assert rows(place) == ["a"]
    assert list(place.files().values()) == [b"a"]


def test_a_resumed_job_sends_heartbeats(place: Directory, new_agent: NewAgent) -> None:
    """The next agent sends them until the job ends, so that a recovery does not abort it."""
    job = Driver.begin(new_agent(), place)
    alive = place.path / "_commitlog" / "alive" / job.attempt
    jobs = new_agent(heartbeat=0.01)
    jobs.resume({"state": job.answer["state"]})
    deadline = time.monotonic() + 30
    while not alive.exists():
        assert time.monotonic() < deadline, "no heartbeat"
        time.sleep(0.01)
    job.write("a")
    jobs.commit(job.request())
    assert not alive.exists()
    assert rows(place) == ["a"]


def test_replaced_partitions_become_empty_without_new_rows(
    place: Directory, new_agent: NewAgent
) -> None:
    """Only the named partitions are replaced, with their foreign files; the slash counts."""
    first = Driver.begin(new_agent(), place)
    first.write("day=1/a", "day=2/b", "day=10/c")
    new_agent().commit(first.request())
    (place.path / "day=1" / "old").write_bytes(b"old")
    second = Driver.begin(new_agent(), place, replaced=["day=1", "day=2"])
    second.write("day=2/d")
    new_agent().commit(second.request())
    assert rows(place) == ["day=10/c", "day=2/d"]
    assert sorted(place.files().values()) == [b"day=10/c", b"day=2/d"]
    third = Driver.begin(new_agent(), place, dynamic=True)
    third.write("day=10/e")
    new_agent().commit(third.request())
    assert rows(place) == ["day=10/e", "day=2/d"]


def test_the_next_agent_settles_a_job_that_replaces_partitions(
    place: Directory, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the job are in the partitions, and must not be replaced."""
    first = Driver.begin(new_agent(), place)
    first.write("day=1/a", "day=2/b")
    new_agent().commit(first.request())
    second = Driver.begin(new_agent(), place, replaced=["day=1", "day=2"])
    second.write("day=1/c")

    commit_and_die(new_agent(), second, monkeypatch)
    new_agent().commit(second.request(again=True))
    assert rows(place) == ["day=1/c"]
    assert list(place.files().values()) == [b"day=1/c"]


SCHEMA = '{"fields":[{"metadata":{},"name":"id","nullable":true,"type":"long"}],"type":"struct"}'


def columns(place: Directory) -> list[str]:
    """Return the columns of the output, according to its log."""
    with connect(str(place.path)) as store:
        return [each["name"] for each in json.loads(Output(store).snapshot().schema or "")["fields"]]


def run(jobs: JobCommitter, place: Directory, *names: str, **options: Any) -> None:
    """Commit a job with columns and these files."""
    job = Driver.begin(jobs, place, schema=SCHEMA, file_format="parquet", **options)
    job.write(*names, suffix=".parquet")
    jobs.commit(job.request())


def test_names_of_partition_columns_are_compared_without_case(
    place: Directory, new_agent: NewAgent
) -> None:
    """As Spark compares them. So the output has one column, and a partition is replaced as a whole."""
    jobs = new_agent()
    run(jobs, place, "day=1/a", "day=2/b")
    run(jobs, place, "Day=2/c", "Day=3/d", partition=["Day"])
    assert columns(place) == ["id", "day"]
    run(jobs, place, "DAY=2/e", partition=["DAY"], dynamic=True)
    assert rows(place) == ["DAY=2/e", "Day=3/d", "day=1/a"]
    run(jobs, place, partition=["Day"], replaced=["Day=1"])
    assert rows(place) == ["DAY=2/e", "Day=3/d"]
    (place.path / "Day=3" / "old").write_bytes(b"old")
    run(jobs, place, "Day=3/f", partition=["Day"], dynamic=True)
    assert sorted(place.files().values()) == [b"DAY=2/e", b"Day=3/f"]
    run(jobs, place, "Day=3/g", partition=["Day"], replaced=[""])
    assert columns(place) == ["id", "Day"]


def test_names_that_differ_by_case_are_two_columns_if_spark_says_so(
    place: Directory, new_agent: NewAgent
) -> None:
    jobs = new_agent()
    run(jobs, place, "day=1/a")
    with pytest.raises(ConfigurationError, match="by day, and the rows by Day"):
        run(jobs, place, "Day=1/a", case_sensitive=True, partition=["Day"])


@pytest.mark.parametrize("told", [True, False])
def test_other_partition_columns_are_refused(place: Directory, new_agent: NewAgent, told: bool) -> None:
    """Spark reads only the files of one of both. An overwrite of everything may have others."""
    jobs = new_agent()
    run(jobs, place, "day=1/a")
    for name in ("b", "hour=1/b", "day=1/hour=1/b"):
        partition = [part.split("=")[0] for part in name.split("/")[:-1]] if told else None
        with pytest.raises(ConfigurationError, match="by day, and the rows by"):
            run(jobs, place, name, partition=partition)
    assert rows(place) == ["day=1/a"]
    run(jobs, place, "hour=1/b", replaced=[""], partition=["hour"])
    assert (rows(place), columns(place)) == (["hour=1/b"], ["id", "hour"])


@pytest.mark.parametrize("first", [True, False])
def test_a_job_without_rows_keeps_the_partition_columns(
    place: Directory, new_agent: NewAgent, first: bool
) -> None:
    """The first job of an output, or one that overwrites it."""
    jobs = new_agent()
    if not first:
        run(jobs, place, "day=1/a")
    run(jobs, place, partition=["day"], replaced=[""])
    assert (rows(place), columns(place)) == ([], ["id", "day"])


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_staging_directory_is_removed(place: Directory, new_agent: NewAgent, end: str) -> None:
    """It may have files of failed tasks, which no commit names."""
    jobs = new_agent()
    job = Driver.begin(jobs, place)
    job.write("a", "failed")
    job.files.pop()
    staging = place.path / job.answer["directory"]
    assert len(list(staging.iterdir())) == 2
    getattr(jobs, end)(job.request())
    assert not staging.exists()
    assert rows(place) == (["a"] if end == "commit" else [])


def test_a_staging_directory_that_cannot_be_removed_is_left(
    place: Directory,
    new_agent: NewAgent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The job is committed, with a warning; gc removes the files."""

    def refuse(path: Path) -> None:
        raise PermissionError(f"{path} is protected")

    jobs = new_agent()
    job = Driver.begin(jobs, place)
    job.write("a", "failed")
    job.files.pop()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(shutil, "rmtree", refuse)
        jobs.commit(job.request())
    assert f"files of attempt {job.attempt} are left for gc" in caplog.text
    with connect(str(place.path)) as store:
        assert Output(store).gc(older_than=0).removed == 1
    assert rows(place) == ["a"]


def text_of(**columns: str) -> str:
    """Return columns in Spark's notation."""
    fields = [{"metadata": {}, "name": n, "nullable": False, "type": k} for n, k in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def add(place: Directory, jobs: JobCommitter, name: str, file_format: str, **columns: str) -> None:
    """Append a file of a format."""
    job = Driver.begin(jobs, place, schema=text_of(**columns), file_format=file_format)
    job.files.append(place.write(job.answer, f"{name}-{job.attempt}-0.{file_format}", name.encode()))
    jobs.commit(job.request())


def described(place: Directory) -> OutputColumns:
    """Return the columns in the last commit record."""
    with connect(str(place.path)) as store:
        schema = Output(store).snapshot().schema
    assert schema is not None
    return OutputColumns.parse(schema)


def test_a_record_has_types_that_spark_alone_has(place: Directory, new_agent: NewAgent) -> None:
    """An append with another type is refused, whatever the type; an overwrite replaces all columns."""
    jobs = new_agent()
    add(place, jobs, "a", "parquet", id="integer", a="long")
    for kind in ("interval second", "variant", "void"):
        with pytest.raises(ConfigurationError, match="no reader can read both: cast them"):
            Driver.begin(jobs, place, schema=text_of(a=kind), file_format="parquet")
    add(place, jobs, "b", "parquet", id="integer", more="variant")
    assert described(place).names == ["id", "a", "more"]
    assert str(described(place)) == "struct<id:int,a:bigint,more:variant>"
    job = Driver.begin(jobs, place, replaced=[""], schema=text_of(a="variant"), file_format="orc")
    jobs.commit(job.request())
    assert str(described(place)) == "struct<a:variant>"


@pytest.mark.parametrize("name", ["csv", "text", "avro"])
def test_a_record_says_that_columns_are_unknown(
    place: Directory, new_agent: NewAgent, name: str
) -> None:
    """Files that do not tell their columns are not added to others; alone, they have names."""
    jobs = new_agent()
    add(place, jobs, "a", name, a="long")
    add(place, jobs, "b", name, a="string", b="long")
    add(place, jobs, "c", "parquet", c="long")
    assert described(place) == OutputColumns.unknown_of(name, ["a", "b", "c"])
    replacing = Driver.begin(jobs, place, replaced=[""], schema=text_of(a="long"), file_format="parquet")
    replacing.files.append(place.write(replacing.answer, f"d-{replacing.attempt}-0.parquet", b"d"))
    jobs.commit(replacing.request())
    assert described(place).unknown is None
    with pytest.raises(NotSupported, match=f"writer of {name} .* Nothing was written"):
        Driver.begin(jobs, place, schema=text_of(a="long"), file_format=name)
    assert Driver.begin(jobs, place, replaced=[""], schema=text_of(a="long"), file_format=name)


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({}, True),
        ({"path": "x", "Compression": "GZIP", "spark.commitlog.jobId": "1"}, True),
        ({"compression": "deflate"}, False),
        ({"dateFormat": "yyyy"}, False),
        ({"lineSep": "|"}, False),
    ],
)
def test_json_is_known_unless_an_option_changes_it(
    place: Directory, new_agent: NewAgent, given: dict[str, str], known: bool
) -> None:
    """Spark's JSON writer spells values as readers of the log do, by default."""
    jobs, schema = new_agent(), text_of(a="long")
    job = Driver.begin(jobs, place, schema=schema, file_format="json", format_options=given)
    jobs.commit(job.request())
    assert (described(place).unknown is None) == known


def test_files_of_csv_get_no_further_column(place: Directory, new_agent: NewAgent) -> None:
    """The data source may have written some, whose columns are known by their order."""
    with connect(str(place.path)) as store:
        output = Output(store)
        job = output.begin(schema=OutputColumns.of_spark(text_of(a="long")).dump())
        output.commit(job, [output.stage(job, job.file_name(0, suffix=".csv"), b"1\n")])
    jobs = new_agent()
    add(place, jobs, "same", "parquet", a="long")
    with pytest.raises(ConfigurationError, match="the output has CSV files"):
        Driver.begin(jobs, place, schema=text_of(b="long"), file_format="parquet")


def test_a_file_whose_name_tells_no_format_is_refused(place: Directory, new_agent: NewAgent) -> None:
    """Readers of the log could not read the output any more; nothing was added."""
    jobs = new_agent()
    job = Driver.begin(jobs, place, schema=text_of(a="long"), file_format="json")
    job.files.append(place.write(job.answer, f"a-{job.attempt}-0.json.deflate", b"a"))
    with pytest.raises(NotSupported, match="does not tell its format"):
        jobs.commit(job.request())
    assert versions(place) == 0
