"""Notifications through a real queue: a bucket that tells SQS of its objects, and hostile messages."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from commitlog.aws.sqs import SqsQueue
from commitlog.clock import SystemClock
from commitlog.errors import NotFound
from commitlog.ingest import INGEST_SCHEMA, IngestSettings
from commitlog.stores.counting_store import CountingStore
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.urls import parse_queue_url
from support.ingest import Checkpoint, Engine
from support.requests import Recorder
from support.servers import Ministack

pytestmark = pytest.mark.servers

#: A pass over the listing at the start of a process, and none after it.
SETTINGS = IngestSettings(source="s", prefix="in/", listing_interval=1e6)


@frozen
class Site:
    """A bucket, its queue, and a query.

    Attributes:
        bucket, queue: their names.
        directory: for the state.
        options: the options of the services.
        checkpoint: of the query.
    """

    bucket: str
    queue: str
    directory: Path
    options: dict[str, str]
    checkpoint: Checkpoint = field(factory=Checkpoint)
    recorder: Recorder = field(factory=Recorder)

    def open_queue(self, *, visible_after: int = 30) -> SqsQueue:
        """Open the queue."""
        options = {name: self.options[name] for name in self.options if name != "addressing_style"}
        url = parse_queue_url(f"sqs://{self.queue}").with_options(options)
        return SqsQueue(url, visible_after=visible_after)

    def engine(self, queue: SqsQueue) -> Engine:
        """Return the query in a new process."""
        table = open_table(f"sqlite:///{self.directory}/state.db", INGEST_SCHEMA)
        table.create()
        return Engine(
            store=CountingStore(open_store(f"s3://{self.bucket}/below", **self.options), self.recorder),
            table=table,
            settings=SETTINGS,
            clock=SystemClock(),
            checkpoint=self.checkpoint,
            notifications=queue,
        )

    def put(self, *paths: str) -> None:
        """Put objects."""
        with closing(open_store(f"s3://{self.bucket}/below", **self.options)) as store:
            for path in paths:
                store.put(path, b"12")


def body(bucket: str, key: str) -> str:
    """Return a message of S3 about an object."""
    described = {"bucket": {"name": bucket}, "object": {"key": key}}
    record = {"eventVersion": "2.1", "eventName": "ObjectCreated:Put", "s3": described}
    return json.dumps({"Records": [record]})


@pytest.fixture
def site(ministack: Ministack, tmp_path: Path) -> Site:
    """An empty bucket that sends its events to an empty queue."""
    bucket = ministack.new_bucket()
    sqs = ministack.client("sqs")
    url = sqs.create_queue(QueueName=f"events-{bucket}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    ministack.client("s3").put_bucket_notification_configuration(
        Bucket=bucket,
        NotificationConfiguration={
            "QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]
        },
    )
    return Site(bucket, f"events-{bucket}", tmp_path, ministack.options)


def send(ministack: Ministack, site: Site, *bodies: str) -> None:
    """Send messages to the queue."""
    sqs = ministack.client("sqs")
    url = sqs.get_queue_url(QueueName=site.queue)["QueueUrl"]
    for text in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=text)


def waiting(ministack: Ministack, site: Site) -> dict[str, int]:
    """Return the number of messages that can be received, and of those that are hidden."""
    sqs = ministack.client("sqs")
    url = sqs.get_queue_url(QueueName=site.queue)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return {"waiting": int(found[names[0]]), "hidden": int(found[names[1]])}


@pytest.mark.all
def test_a_bucket_tells_of_its_objects(ministack: Ministack, site: Site) -> None:
    """They are found with a HEAD for each, whatever else the bucket has. Keys are decoded."""
    site.put(*(f"in/old{number}" for number in range(30)))
    with closing(site.open_queue()) as queue:
        engine = site.engine(queue)
        engine.drain()
        assert len(site.checkpoint.records) == 60
        before = site.recorder.requests.copy()
        site.put("in/ü +%2F.json", "in/b", "out/c")
        # The server sends messages in the background, and a call takes those that are there.
        while waiting(ministack, site)["waiting"] < 3:
            pass
        assert engine.batch()
        used = site.recorder.requests - before
        assert (used["store_heads"], used["store_lists"]) == (2, 0)
        [slices] = list(site.checkpoint.slices.values())[-1:]
        assert {each.file.path for each in slices} == {"in/ü +%2F.json", "in/b"}
        assert waiting(ministack, site) == {"waiting": 0, "hidden": 0}
    assert set(site.checkpoint.records.values()) == {1}


@pytest.mark.all
def test_hostile_messages_change_nothing(ministack: Ministack, site: Site) -> None:
    """Repeated, reordered, premature and late ones are deleted. Others are left to the queue."""
    with closing(site.open_queue()) as queue:
        engine = site.engine(queue)
        engine.drain()
        site.put("in/a", "in/b")
        known = [body(site.bucket, f"below/in/{name}") for name in "ba"]
        send(ministack, site, *known, *known, body(site.bucket, "below/in/later"))
        send(ministack, site, "nonsense", body("another", "below/in/a"), body(site.bucket, "elsewhere"))
        engine.drain()
        send(ministack, site, *known)
        engine.drain()
        assert waiting(ministack, site) == {"waiting": 0, "hidden": 2}
        assert engine.source.counters().unusable == 2
    assert {path for path, _, _ in site.checkpoint.records} == {"in/a", "in/b"}
    assert set(site.checkpoint.records.values()) == {1}


def test_a_message_comes_again_after_a_kill(ministack: Ministack, site: Site) -> None:
    """The process is killed when it has stored the epoch, before it deletes the message."""
    with closing(site.open_queue()) as queue:
        site.engine(queue).drain()
    site.put("in/a")
    child = get_context("spawn").Process(target=_die_before_the_acknowledgement, args=(site,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    with closing(site.open_queue()) as queue:
        messages: list[Any] = []
        for _ in range(10):  # until the message can be received again
            messages = queue.receive(wait=5)
            if messages:
                break
        assert len(messages) == 1
        send(ministack, site, messages[0].body)
        queue.acknowledge([messages[0].handle])
        engine = site.engine(queue)
        assert engine.drain() == 1
    assert set(site.checkpoint.records.values()) == {1}
    assert {path for path, _, _ in site.checkpoint.records} == {"in/a"}
    assert waiting(ministack, site) == {"waiting": 0, "hidden": 0}


def _die_before_the_acknowledgement(site: Site) -> None:
    queue = site.open_queue(visible_after=1)
    queue.acknowledge = lambda handles: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    site.engine(queue).batch()


def test_the_options_of_spark_reach_the_queue(ministack: Ministack, site: Site) -> None:
    """The reader finds an object by its message."""
    pytest.importorskip("pyspark")
    from pyspark.sql.streaming.datasource import ReadMaxFiles
    from pyspark.sql.types import BinaryType, StructField, StructType

    from commitlog.spark.ingest.columns import RowBuilder
    from commitlog.spark.ingest.options import IngestOptions
    from commitlog.spark.ingest.reader import IngestReader

    given = {**site.options, "path": f"s3://{site.bucket}/below", "fileFormat": "binaryFile"}
    given |= {"state": f"sqlite:///{site.directory}/state.db", "notifications": f"sqs://{site.queue}"}
    given |= {
        f"notifications.{name}": text for name, text in site.options.items() if "style" not in name
    }
    options = IngestOptions.parse(given)
    with options.opened_table() as table:
        table.create()
    reader = IngestReader(
        options, RowBuilder(StructType([StructField("content", BinaryType())]), "ignore", "_rescued")
    )
    try:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadMaxFiles(9)) == start
        site.put("in/a")
        end = reader.latestOffset(start, ReadMaxFiles(9))
        [part] = reader.partitions(start, end)
        assert [each.file.path for each in part.value.slices] == ["in/a"]
        progress = reader.reportLatestOffset()
        assert progress is not None
        assert (progress["counters"]["notified"], progress["counters"]["listed"]) == (1, 0)
    finally:
        reader.stop()
    assert waiting(ministack, site) == {"waiting": 0, "hidden": 0}


def test_the_agent_receives_and_cleans(ministack: Ministack, site: Site) -> None:
    """With Spark's readers the queue and the cleaning are the agent's, with the connection of S3A."""
    pytest.importorskip("pyspark")
    from commitlog.spark.ingest.scans import ScanPlanner
    from support.s3a import s3a_settings

    options = {
        "path": f"s3a://{site.bucket}/below",
        "fileFormat": "text",
        "state": f"sqlite:///{site.directory}/state.db",
        "notifications": f"sqs://{site.queue}",
        "remember": "everything",
        "cleanSource": "delete",
    }
    options |= {
        f"notifications.{name}": text for name, text in site.options.items() if "style" not in name
    }
    field = {"name": "value", "type": "string", "nullable": True, "metadata": {}}
    request = {
        "query": "q",
        "options": options,
        "schema": json.dumps({"type": "struct", "fields": [field]}),
        "hadoop": {
            name.removeprefix("spark.hadoop."): text for name, text in s3a_settings(ministack).items()
        },
    }
    agent = ScanPlanner()

    def latest(start: str | None) -> str | None:
        found: str | None = agent.latest_offset({**request, "start": start, "finite": False})["offset"]
        return found

    assert agent.check(request)["cleans"]
    try:
        site.put("in/a")
        start = latest(None)
        [file] = agent.files({**request, "start": None, "end": start})["files"]
        assert file["path"] == "/below/in/a"
        site.put("in/b")
        answer = agent.latest_offset({**request, "start": start, "finite": False})
        counters = json.loads(answer["report"])["counters"]
        assert (counters["notified"], counters["listed"]) == (1, 0)
        assert waiting(ministack, site) == {"waiting": 0, "hidden": 0}
        assert agent.commit({**request, "end": start}) == {}
    finally:
        agent.stop(request)
    with closing(open_store(f"s3://{site.bucket}", **site.options)) as store:
        assert [info.path for info in store.list()] == ["below/in/b"]


def test_a_missing_queue_is_an_error(site: Site) -> None:
    """Nothing is read: the user has to correct the name."""
    wrong = Site("any", "no-such-queue", site.directory, site.options)
    with closing(wrong.open_queue()) as queue, pytest.raises(NotFound, match="no such queue"):
        queue.receive()
