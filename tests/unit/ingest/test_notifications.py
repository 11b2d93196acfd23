"""Notifications of new objects: lost, late, repeated, reordered, malformed and foreign ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve, frozen

from commitlog.errors import OutcomeUnknown, Unavailable
from commitlog.ingest import IngestSettings
from commitlog.ingest.notifications import created_objects
from commitlog.stores.api import ObjectStore
from commitlog.stores.counting_store import CountingStore
from commitlog.testing import ManualClock
from support.ingest import Bucket, Checkpoint, Engine, Vast, state_table
from support.requests import Recorder

GRACE = 60.0
SETTINGS = IngestSettings(source="s", prefix="in/", grace=GRACE, listing_interval=1000.0)


def record(key: str, *, bucket: str = "landing", event: str = "ObjectCreated:Put") -> dict[str, Any]:
    """Return a record of S3 about an object."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventName": event,
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1, "eTag": "x"}},
    }


def message(*records: dict[str, Any]) -> str:
    """Return the body of a message of S3."""
    return json.dumps({"Records": records})


EVENT_BRIDGE = {
    "version": "0",
    "detail-type": "Object Created",
    "source": "aws.s3",
    "detail": {"bucket": {"name": "b"}, "object": {"key": "in/a+b%20ü", "etag": "x"}},
}


@pytest.mark.parametrize(
    ("body", "objects"),
    [
        (message(record("in/a+b%2B%C3%BC%25", bucket="b")), [("b", "in/a b+ü%")]),
        (
            message(record("x", bucket="b"), record("y", bucket="c", event="ObjectCreated:Copy")),
            [("b", "x"), ("c", "y")],
        ),
        (
            message(record("x", bucket="b", event="s3:ObjectCreated:CompleteMultipartUpload")),
            [("b", "x")],
        ),
        (message(record("x", bucket="b", event="ObjectRemoved:Delete")), []),
        (message(), []),
        (
            json.dumps({"Type": "Notification", "Message": message(record("x", bucket="b"))}),
            [("b", "x")],
        ),
        (json.dumps(EVENT_BRIDGE), [("b", "in/a+b%20ü")]),
        (
            json.dumps({"Type": "Notification", "Message": json.dumps(EVENT_BRIDGE)}),
            [("b", "in/a+b%20ü")],
        ),
        (json.dumps({**EVENT_BRIDGE, "detail-type": "Object Deleted"}), []),
        (json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}), []),
    ],
)
def test_events_are_understood_in_every_envelope(body: str, objects: list[tuple[str, str]]) -> None:
    """Keys are decoded, except in those of EventBridge, which are plain."""
    assert created_objects(body) == objects


@pytest.mark.parametrize(
    "body",
    [
        "",
        "nothing",
        "[]",
        "{}",
        "[" * 100_000,
        '{"Records": 1}',
        '{"Records": [1]}',
        '{"Records": [{"eventName": "ObjectCreated:Put", "s3": {}}]}',
        message(record("", bucket="b")),
        message(record("%FF", bucket="b")),
        message({**record("x", bucket="b"), "eventVersion": "3.0"}),
        message({**record("x", bucket="b"), "eventName": 7}),
        json.dumps({"Type": "Notification", "Message": 5}),
        json.dumps({**EVENT_BRIDGE, "detail": None}),
    ],
)
def test_anything_else_is_an_error(body: str) -> None:
    """A message that cannot be understood names no object."""
    with pytest.raises(ValueError):
        created_objects(body)


@frozen
class Sent:
    """A message in the queue."""

    handle: str
    body: str


class Queue:
    """A queue in memory. A received message comes again until it is deleted, if it is `returned`.

    Attributes:
        messages: those that can be received.
        hidden: those that were received and not deleted.
        waits: the waits of the calls.
        broken: the error that the next calls raise, if any.
    """

    visible_after = 30

    def __init__(self) -> None:
        self.messages: list[Sent] = []
        self.hidden: list[Sent] = []
        self.waits: list[int] = []
        self.broken: Exception | None = None
        self._sent = 0

    def send(self, *bodies: str) -> None:
        """Add messages."""
        for body in bodies:
            self._sent += 1
            self.messages.append(Sent(str(self._sent), body))

    def give_back(self) -> None:
        """Let the hidden messages be received again."""
        self.messages += self.hidden
        self.hidden = []

    def receive(self, most: int = 10, *, wait: int = 0) -> list[Sent]:
        """See `Notifications`."""
        self.waits.append(wait)
        if self.broken is not None:
            raise self.broken
        found, self.messages = self.messages[:most], self.messages[most:]
        self.hidden += found
        return found

    def acknowledge(self, handles: Iterable[str]) -> None:
        """See `Notifications`."""
        if self.broken is not None:
            raise self.broken
        gone = set(handles)
        self.hidden = [each for each in self.hidden if each.handle not in gone]
        self.messages = [each for each in self.messages if each.handle not in gone]


class Site:
    """A source with notifications, and its query."""

    def __init__(self, store: ObjectStore | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.bucket = Bucket(clock=self.clock)
        for each in (self.bucket, store):
            if each is not None:
                each.url = "memory://landing"
        self.recorder = Recorder()
        self.table = state_table()
        self.queue = Queue()
        self.settings = evolve(SETTINGS, **settings)
        self.checkpoint = Checkpoint()
        self.engine = self.new_engine(store)

    def new_engine(self, store: ObjectStore | None = None) -> Engine:
        """Return the query in a new process."""
        return Engine(
            store=CountingStore(store or self.bucket, self.recorder),
            table=self.table,
            settings=self.settings,
            clock=self.clock,
            checkpoint=self.checkpoint,
            notifications=self.queue,
        )

    def put(self, path: str, *, age: float = 0.0, tell: bool = True, body: bytes = b"1") -> None:
        """Put an object; send its notification, if `tell`."""
        self.bucket.put_at(path, body, self.clock.epoch() - age)
        if tell:
            self.queue.send(message(record(path)))

    def read(self) -> list[str]:
        """Run the query until it finds nothing; return the paths that it reads."""
        before = len(self.checkpoint.sink)
        self.engine.drain()
        new = range(before, len(self.checkpoint.sink))
        return [each.file.path for number in new for each in self.checkpoint.slices[number]]


def test_objects_are_found_without_a_listing() -> None:
    """A new process lists once. Messages are deleted when their objects are in a stored epoch."""
    site = Site()
    site.put("in/a")
    assert site.read() == ["in/a"]
    assert site.recorder.requests["store_lists"] == 1
    site.put("in/c")
    site.put("in/b")
    assert site.read() == ["in/b", "in/c"]
    assert site.recorder.requests["store_lists"] == 1
    assert not site.queue.messages and not site.queue.hidden
    assert site.read() == []
    assert site.queue.waits[-1] > 0


def test_a_lost_message_is_made_up_for_by_the_listing() -> None:
    """The bucket is listed at each interval. The message that comes late then changes nothing."""
    site = Site()
    assert site.read() == []
    site.put("in/a", tell=False)
    assert site.read() == []
    site.clock.advance(1000)
    assert site.read() == ["in/a"]
    site.queue.send(message(record("in/a")))
    assert site.read() == []
    site.clock.advance(2000)
    assert site.read() == []
    site.queue.send(message(record("in/a")))
    assert site.read() == []
    assert not site.queue.messages and not site.queue.hidden


def test_a_repeated_message_is_read_once() -> None:
    """In one step, in two steps, and after the memory of the file has gone."""
    site = Site()
    site.read()
    for _ in range(2):
        site.put("in/a")
        site.queue.send(message(record("in/a"), record("in/a")))
        assert site.read() == ["in/a"]
        site.queue.send(message(record("in/a")))
        assert site.read() == []
        site.clock.advance(GRACE + 1000)
        assert site.read() == []
        site.queue.send(message(record("in/a")))
        assert site.read() == []
    assert set(site.checkpoint.records.values()) == {1}


def test_messages_about_versions_that_are_gone_are_deleted() -> None:
    """The version that is read is the one that the store has when the message is handled."""
    site = Site()
    site.read()
    site.put("in/a", body=b"1")
    site.put("in/a", body=b"22")
    site.put("in/b")
    site.bucket.delete("in/b")
    assert site.read() == ["in/a"]
    assert [etag for _, etag, _ in site.checkpoint.records] == [site.bucket.head("in/a").etag] * 2
    assert not site.queue.hidden


def test_unusable_messages_are_left_to_the_queue() -> None:
    """They are counted and not deleted: its policy moves them to a dead-letter queue."""
    site = Site()
    site.read()
    site.queue.send("nonsense", message(record("in/a", bucket="other")), message(record("out/a")))
    site.put("in/a")
    site.put("in/_hidden")
    assert site.read() == ["in/a"]
    assert [each.handle for each in site.queue.hidden] == ["1", "2"]
    assert site.engine.source.counters().unusable == 2
    site.queue.give_back()
    assert site.read() == []
    assert site.engine.source.counters().unusable == 4


def test_keys_that_are_no_paths_are_left_to_the_listing() -> None:
    """It hands them out, and the executor reports them."""
    site = Site()
    site.read()
    site.queue.send(message(record("in//a")))
    assert site.read() == []
    assert not site.queue.hidden


def test_a_message_is_kept_until_its_last_object_is_stored() -> None:
    """The epochs have one file each."""
    site = Site(max_files=1)
    site.read()
    for path in ("in/a", "in/b"):
        site.put(path, tell=False)
    site.queue.send(message(record("in/a"), record("in/b")))
    assert site.engine.batch()
    assert len(site.queue.hidden) == 1
    assert site.engine.batch()
    assert site.queue.hidden == []


def test_a_crash_before_the_deletion_of_a_message_repeats_it() -> None:
    """The epoch is stored, so the new process finds nothing new."""
    site = Site()
    site.read()
    site.put("in/a")
    offset = site.checkpoint.log[-1] if site.checkpoint.log else site.engine.source.initial_offset()
    acknowledge = site.queue.acknowledge
    site.queue.acknowledge = lambda handles: None  # type: ignore[method-assign]
    end = site.engine.source.latest_offset(offset)
    assert end != offset
    site.queue.acknowledge = acknowledge  # type: ignore[method-assign]
    site.queue.give_back()
    site.engine = site.new_engine()
    assert site.read() == ["in/a"]
    assert site.read() == []
    assert not site.queue.messages and not site.queue.hidden


def test_a_step_that_is_not_stored_handles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its listing is made again, and its message is not deleted."""
    site = Site()
    transact = site.table.transact
    losses = iter([True, False, False, True, False])

    def lossy(writes: Any) -> None:
        if next(losses):
            raise OutcomeUnknown("lost")
        transact(writes)

    monkeypatch.setattr(site.table, "transact", lossy)
    site.put("in/a", tell=False)
    assert site.read() == ["in/a"]
    site.put("in/b")
    assert site.read() == ["in/b"]
    assert not site.queue.messages and not site.queue.hidden
    assert next(losses, None) is None


def test_held_messages_are_dropped_before_they_come_again() -> None:
    """There is more in them than an epoch takes."""
    site = Site(max_files=1)
    site.read()
    for path in ("in/a", "in/b", "in/c"):
        site.put(path, tell=False)
    site.queue.send(message(record("in/a"), record("in/b"), record("in/c")))
    site.engine.batch()
    site.clock.advance(Queue.visible_after / 2)  # the rest of the time is for planning
    assert not site.engine.batch()
    site.queue.give_back()
    assert site.read() == ["in/b", "in/c"]
    assert site.queue.hidden == []


def test_a_queue_that_does_not_answer_leaves_the_listing() -> None:
    """Objects are found later. An error that the user must mend stops the query."""
    site = Site()
    site.read()
    site.put("in/a")
    for error in (Unavailable("throttled"), OutcomeUnknown("lost")):
        site.queue.broken = error
        assert site.read() == []
    site.clock.advance(1000)
    assert site.read() == ["in/a"]
    site.queue.broken = PermissionError("denied")
    with pytest.raises(PermissionError):
        site.read()


def test_a_stream_of_messages_does_not_prevent_the_listing() -> None:
    """The epochs are full of objects with messages, and one object has none."""
    site = Site(max_files=2)
    site.read()
    site.put("in/lost", tell=False)
    site.clock.advance(1000)
    for number in range(20):
        site.put(f"in/{number:02}")
    found = []
    for _ in range(4):
        site.engine.batch()
        found += [each.file.path for each in site.checkpoint.slices[len(site.checkpoint.sink) - 1]]
    assert len(found) == 8
    site.read()
    assert set(site.checkpoint.records.values()) == {1}
    assert len(site.checkpoint.records) == 21


def test_a_run_that_must_end_lists_everything() -> None:
    """Its messages stay in the queue."""
    site = Site()
    site.put("in/a")
    site.put("in/b", tell=False)
    site.engine.source.finish()
    assert site.read() == ["in/a", "in/b"]
    assert len(site.queue.messages) == 1
    assert site.queue.waits == []


def test_requests_grow_with_the_new_objects_only() -> None:
    """A call takes a HEAD for each new object, and lists nothing of a long history."""
    vast = Vast(20_000, clock=ManualClock())
    site = Site(vast, max_files=100_000)
    assert site.engine.batch()
    listed = vast.pages
    assert listed == 20
    for number in range(3):
        path = f"in/new{number}"
        vast.put(path, b"1")
        site.queue.send(message(record(path)))
    before = site.recorder.requests["store_heads"]
    offset = site.engine.source.latest_offset(site.checkpoint.log[-1])
    assert offset["epoch"] == 2
    assert vast.pages == listed
    assert site.recorder.requests["store_heads"] - before == 3


@pytest.mark.parametrize("seed", range(60))
def test_any_history_is_read_once(seed: int) -> None:
    """Objects arrive late and are overwritten; messages are lost, repeated, late and reordered."""
    chance = random.Random(seed)
    site = Site(
        max_files=chance.choice((1, 2, 5)),
        list_limit=chance.choice((None, 1, 3)),
        ordered=chance.random() < 0.3,
        remember=chance.choice(("window", "window", "everything")),
        listing_interval=chance.choice((0.0, 30.0, 500.0)),
    )
    current: dict[str, bytes] = {}
    old: list[str] = []
    for step in range(60):
        action = chance.random()
        if action < 0.4:
            path = f"in/{chance.choice('abcdef')}{chance.randrange(3)}"
            body = f"{step}".encode()
            site.put(path, age=chance.uniform(0, GRACE - 2), tell=False, body=body)
            current[path] = body
            told = [message(record(path))] * chance.choice((0, 1, 1, 2))
            if chance.random() < 0.3:
                old += told
            else:
                site.queue.send(*told)
        elif action < 0.7:
            site.engine.batch()
        elif action < 0.8:
            site.clock.advance(chance.choice((1, 10, GRACE, 3 * GRACE)))
        elif action < 0.9:
            site.queue.send(*old)
            old.clear()
            site.queue.give_back()
            chance.shuffle(site.queue.messages)
        else:
            site.engine = site.new_engine()
    for _ in range(2):  # the first pass over the listing may have begun before
        site.clock.advance(2000)
        for _ in range(100):
            site.engine.batch()
    assert set(site.checkpoint.records.values()) <= {1}
    for path, body in current.items():
        etag = site.bucket.head(path).etag
        assert sum(each[:2] == (path, etag) for each in site.checkpoint.records) == len(body)
