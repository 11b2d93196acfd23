"""A queue of notifications in a world: a message is received again until it is deleted."""

from __future__ import annotations

import json
from collections.abc import Iterable

from attrs import frozen

from commitlog.testing.sim import Node
from commitlog.testing.sim.request import call

__all__ = ["Message", "SimulatedQueue", "created"]


@frozen
class Message:
    """A message in the queue."""

    handle: str
    body: str


def created(number: int, path: str) -> Message:
    """Return the message that an object was put into the bucket of a world."""
    described = {"bucket": {"name": "landing"}, "object": {"key": path}}
    record = {"eventName": "ObjectCreated:Put", "s3": described}
    return Message(f"{number}", json.dumps({"Records": [record]}))


class SimulatedQueue:
    """The client through which a node receives messages; see `commitlog.ingest.Notifications`.

    Args:
        node: the node that uses it.
        messages: the messages that are not deleted.
    """

    visible_after = 60

    def __init__(self, node: Node, messages: list[Message]) -> None:
        self._node = node
        self._messages = messages

    def receive(self, most: int = 10, *, wait: int = 0) -> list[Message]:
        """Return the first messages."""
        return call(self._node, "receive", lambda: self._messages[:most], mutates=True)

    def acknowledge(self, handles: Iterable[str]) -> None:
        """Delete messages."""
        gone = frozenset(handles)

        def delete() -> None:
            self._messages[:] = [each for each in self._messages if each.handle not in gone]

        call(self._node, f"acknowledge {sorted(gone)}", delete, mutates=True)
