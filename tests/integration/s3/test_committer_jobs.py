"""Jobs of Spark's file writers on S3, without Spark: the uploads are as those of S3A."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from attrs import evolve

from commitlog.commit import probe_cache
from commitlog.commit.probe import probe
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.connect import connect
from commitlog.errors import JobAborted, OutcomeUnknown
from commitlog.oplog.codec import Document
from commitlog.outputs import Output
from commitlog.outputs.log import CommitLog
from commitlog.outputs.publishing import Publisher
from commitlog.spark.committer.jobs import JobCommitter
from commitlog.stores.api import ObjectStore
from support.committer_jobs import Bucket, Driver, agent
from support.outputs import Death
from support.servers import Seaweedfs

pytestmark = [pytest.mark.servers, pytest.mark.all]

NewAgent = Callable[..., JobCommitter]


#: What the server enforces, by the kind of request.
_measured: dict[Kind, ProbeReport] = {}


@pytest.fixture(autouse=True)
def _probe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe the server for the first agent only. All of its buckets behave alike."""

    def remembered(store: ObjectStore, *, kinds: list[Kind], **options: Any) -> ProbeReport:
        [kind] = kinds
        if kind not in _measured:
            _measured[kind] = probe(store, kinds=[kind], **options)
        return evolve(_measured[kind], url=store.url)

    monkeypatch.setattr(probe_cache, "probe", remembered)


@pytest.fixture
def place(seaweedfs: Seaweedfs) -> Bucket:
    """A directory in a new bucket."""
    return Bucket(seaweedfs, seaweedfs.new_bucket())


@pytest.fixture
def new_agent() -> Iterator[NewAgent]:
    """Begin the life of another agent; all of them end with the test."""
    with ExitStack() as lives:
        yield lambda **options: lives.enter_context(agent(**options))


def gc(place: Bucket) -> int:
    """Collect the garbage of the output; return the number of removed objects."""
    options = place.server.options
    with connect(f"s3://{place.bucket}/out", **options) as store:
        return Output(store).gc(older_than=0).removed


@pytest.mark.parametrize("again", [False, True])
def test_another_agent_commits_the_uploads(place: Bucket, new_agent: NewAgent, again: bool) -> None:
    """A commit may be sent once more. Other uploads and the records of S3A are gone."""
    job = Driver.begin(new_agent(), place)
    job.write("day=1/a", "b", "failed")
    job.files.pop()
    assert place.files() == {}
    assert new_agent().commit(job.request(again=again)) == {}
    assert new_agent().commit(job.request(again=True)) == {}
    assert sorted(place.files().values()) == [b"b", b"day=1/a"]
    assert place.keys("__magic") == []
    assert place.uploads() == []


def test_another_agent_aborts_the_uploads(place: Bucket, new_agent: NewAgent) -> None:
    """The abort finds the uploads; no list of files is needed."""
    job = Driver.begin(new_agent(), place)
    job.write("a")
    job.files.clear()
    new_agent().abort(job.request())
    with pytest.raises(JobAborted):
        new_agent().commit(job.request())
    assert place.files() == {}
    assert place.keys("__magic") == []
    assert place.uploads() == []


@pytest.mark.parametrize("published", [0, 1])
def test_the_next_agent_publishes_the_uploads(
    place: Bucket, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch, published: int
) -> None:
    """An agent dies after the commit point; an upload that it has completed is recognised."""
    job = Driver.begin(new_agent(), place)
    job.write("a", "b")
    usual = Publisher._publish
    count = 0

    def publish(publisher: Publisher, staged: object) -> None:
        nonlocal count
        if count == published:
            raise Death
        count += 1
        usual(publisher, staged)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "_publish", publish)
        with pytest.raises(Death):
            new_agent().commit(job.request())
    assert len(place.files()) <= 1
    assert new_agent().commit(job.request(again=True)) == {}
    assert sorted(place.files().values()) == [b"a", b"b"]


@pytest.mark.parametrize("written", [True, False])
def test_a_lost_answer_is_settled(
    place: Bucket, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """The job is committed and visible, or excluded."""
    usual = CommitLog.claim

    def claim(log: CommitLog, version: int, document: Document) -> bool:
        if document.kind != "commit":
            return usual(log, version, document)
        if written:
            usual(log, version, document)
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(CommitLog, "claim", claim)
    jobs = new_agent()
    job = Driver.begin(jobs, place)
    job.write("a")
    if written:
        assert jobs.commit(job.request()) == {}
        assert list(place.files().values()) == [b"a"]
    else:
        with pytest.raises(JobAborted, match="was not committed: no answer"):
            jobs.commit(job.request())
        jobs.abort(job.request())
        assert place.files() == {}
    assert place.keys("__magic") == []
    assert place.uploads() == []


def test_records_that_no_task_has_read_are_left_for_gc(place: Bucket, new_agent: NewAgent) -> None:
    """S3A keeps most records in memory, so the commit lists them only if a task has read one."""
    jobs = new_agent()
    job = Driver.begin(jobs, place)
    job.write("a")
    job.files[:] = [{**file, "stored": False} for file in job.files]
    jobs.commit(job.request())
    assert len(place.keys("__magic")) == 1
    assert gc(place) == 1
    assert place.keys("__magic") == []
    assert list(place.files().values()) == [b"a"]


def test_a_duplicate_drops_its_uploads(place: Bucket, new_agent: NewAgent) -> None:
    """The job was committed before: nothing is added."""
    jobs = new_agent()
    first = Driver.begin(jobs, place, jobId="daily")
    first.write("a")
    jobs.commit(first.request())
    second = Driver.begin(jobs, place, jobId="daily", onDuplicate="skip")
    second.write("b", "of an attempt that failed")
    second.files.pop()
    new_agent().commit(second.request())
    assert list(place.files().values()) == [b"a"]
    assert place.keys("__magic") == []
    assert place.uploads() == []
