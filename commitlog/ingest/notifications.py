"""Notifications of new objects: messages of a queue that name objects of the bucket.

They are hints. Of an object that a message names, the store is asked for etag, size and time, and the
state table decides whether that version is new. So a message that is lost, late, repeated or out of
order changes nothing but when an object is found: what no message names, a listing finds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import unquote_plus

from attrs import define

from commitlog.clock import Clock
from commitlog.errors import Conflict, OutcomeUnknown, Unavailable

__all__ = ["Inbox", "Notification", "Notifications", "created_objects"]

#: Number of messages that one request receives.
_BATCH = 10

#: Most envelopes around an event.
_MAX_DEPTH = 4


class Notification(Protocol):
    """A received message."""

    @property
    def handle(self) -> str:
        """Identifies this receipt of the message."""
        ...

    @property
    def body(self) -> str:
        """Its text."""
        ...


class Notifications(Protocol):
    """The port to a queue of messages. A message may come again until it is acknowledged, and after."""

    #: Number of seconds after which a message that was not acknowledged may come again.
    visible_after: int

    def receive(self, most: int = _BATCH, *, wait: int = 0) -> Sequence[Notification]:
        """Return up to `most` messages; none if the queue has none for `wait` seconds."""
        ...

    def acknowledge(self, handles: Iterable[str]) -> None:
        """Delete messages. One that is not deleted comes again."""
        ...


def created_objects(body: str) -> list[tuple[str, str]]:
    """Return bucket and key of each object that a message says was created.

    Args:
        body: an event notification of S3, or an event of EventBridge about S3; either of them directly
            or within messages of SNS.

    Raises `ValueError` for anything else. S3's test event, and events about deletions, name no objects.
    """
    return _created(_parsed(body), _MAX_DEPTH)


def _parsed(text: object) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except RecursionError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _created(event: dict[str, Any], depth: int) -> list[tuple[str, str]]:
    if not depth:
        raise ValueError("too many envelopes")
    if event.get("Type") == "Notification" and "Message" in event:
        return _created(_parsed(event["Message"]), depth - 1)
    if event.get("Event") == "s3:TestEvent":
        return []
    try:
        if event.get("source") == "aws.s3":
            # Here keys are not URL-encoded.
            detail = event["detail"]
            found = [(detail["bucket"]["name"], detail["object"]["key"])]
            found = found if event["detail-type"] == "Object Created" else []
        else:
            found = [each for record in event["Records"] for each in _of_record(record)]
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"not an event of S3: {error!r}") from None
    if not all(isinstance(part, str) and part for each in found for part in each):
        raise ValueError("not the names of objects")
    return found


def _of_record(record: dict[str, Any]) -> list[tuple[str, str]]:
    if not str(record.get("eventVersion", "2.0")).startswith("2."):
        raise ValueError(f"an event of version {record['eventVersion']!r}")
    if not record["eventName"].removeprefix("s3:").startswith("ObjectCreated:"):
        return []
    described = record["s3"]
    return [(described["bucket"]["name"], unquote_plus(described["object"]["key"], errors="strict"))]


@define
class _Held:
    """A message whose objects are not all handled: its paths, and when it may come again."""

    handle: str
    paths: set[str]
    until: float


class Inbox:
    """Received messages until their objects are handled. Not thread-safe.

    Args:
        queue: the queue.
        bucket: name of the bucket of the source.
        below: the prefix of the keys in the bucket that paths of the source are below.
        wants: returns whether the source reads a path.
        clock: measures how long a message is held.

    Attributes:
        unusable: number of received messages that were no event of this bucket. They are not
            acknowledged, so that the queue's policy moves them to its dead-letter queue.
    """

    def __init__(
        self,
        queue: Notifications,
        *,
        bucket: str,
        below: str,
        wants: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._bucket = bucket
        self._below = below
        self._wants = wants
        self._clock = clock
        self._held: list[_Held] = []
        self.unusable = 0

    def fill(self, most: int, *, wait: int) -> None:
        """Receive messages until `most` are held, or the queue seems to be empty.

        A message that was held for half the time after which it comes again is dropped: it comes again.
        If the queue does not answer, nothing is received, and the listing finds the objects.

        Args:
            most: most messages to hold; a few more are possible.
            wait: number of seconds to wait for the first message.

        Raises `NotFound` and `AccessDenied`.
        """
        now = self._clock.monotonic()
        self._held = [each for each in self._held if now < each.until]
        done: list[str] = []
        with suppress(Unavailable, OutcomeUnknown, Conflict):
            for attempt in range(most // _BATCH + 1):
                if len(self._held) >= most:
                    break
                messages = self._queue.receive(_BATCH, wait=0 if attempt or self._held else wait)
                if not messages:
                    break
                done += [each.handle for each in messages if self._open(each)]
        self._acknowledge(done)

    def paths(self) -> list[str]:
        """Return the paths of all held messages, each once, in their order."""
        return sorted({path for each in self._held for path in each.paths})

    def handled(self, paths: Collection[str]) -> None:
        """Acknowledge the messages whose objects have all been handled, `paths` included."""
        for each in self._held:
            each.paths.difference_update(paths)
        self._acknowledge([each.handle for each in self._held if not each.paths])
        self._held = [each for each in self._held if each.paths]

    def _open(self, message: Notification) -> bool:
        """Hold a message; return whether it needs nothing but its acknowledgement."""
        try:
            created = created_objects(message.body)
        except ValueError:
            created = [("", "")]
        if any(bucket != self._bucket for bucket, _ in created):
            self.unusable += 1
            return False
        paths = {key[len(self._below) :] for _, key in created if key.startswith(self._below)}
        wanted = {path for path in paths if self._wants(path)}
        if wanted:
            until = self._clock.monotonic() + self._queue.visible_after / 2
            self._held.append(_Held(message.handle, wanted, until))
        return not wanted

    def _acknowledge(self, handles: Sequence[str]) -> None:
        if handles:
            with suppress(Unavailable, OutcomeUnknown, Conflict):
                self._queue.acknowledge(handles)
