"""The judge of a world of operation logs: follows each mutation of the log's store.

It checks each outcome that a client gets at once: against the first decision that was stored, and
against the effect of the operation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from attrs import define, field

from commitlog.clock import Clock
from commitlog.errors import (
    CommitError,
)
from commitlog.oplog import Decision
from commitlog.stores.api import PutResult
from commitlog.stores.body import Body, chunks
from commitlog.stores.memory import MemoryStore

_PENDING, _DECIDED = "log/pending/", "log/decided/"


@define
class LogTruth:
    """The true state of each operation.

    Attributes:
        pending: operations with a pending entry.
        begun: operations that ever had one.
        first: the decision that was stored first.
        stored: the decision that is stored now.
        effects: the object of each operation: done, or fenced so that it cannot be done.
    """

    pending: set[str] = field(factory=set)
    begun: set[str] = field(factory=set)
    first: dict[str, Decision] = field(factory=dict)
    stored: dict[str, Decision] = field(factory=dict)
    effects: dict[str, bytes] = field(factory=dict)

    def check(self, id: str, decision: Decision) -> None:
        """Check a decision that a client got."""
        assert id in self.first, f"a client got {decision} for {id}, which is not decided"
        assert self.first[id] is decision, (
            f"a client got {decision} for {id}, which was {self.first[id]}"
        )

    def state(self) -> Hashable:
        """Return the state that does not follow from the content of the store."""
        return frozenset(self.begun), frozenset((id, first.value) for id, first in self.first.items())

    # called by the store after each mutation

    def put(self, path: str, data: bytes) -> None:
        """Record that an object was put."""
        id = path.rpartition("/")[2].removesuffix(".json")
        if path.startswith(_PENDING):
            assert id not in self.pending, f"{path} was replaced"
            self.begun.add(id)
            self.pending.add(id)
        elif path.startswith(_DECIDED):
            assert id in self.begun, f"{id} is decided, but was not begun"
            decision = Decision(json.loads(data)["decision"])
            assert self.stored.setdefault(id, decision) is decision, f"{path} was replaced"
            self.first.setdefault(id, decision)
        else:
            assert id not in self.effects, f"{path} was replaced"
            assert id in self.begun, f"{id} is performed, but was not begun"
            self.effects[id] = data

    def deleted(self, path: str) -> None:
        """Record that an existing object was deleted."""
        id = path.rpartition("/")[2].removesuffix(".json")
        if path.startswith(_PENDING):
            assert id in self.first, f"{path} was deleted before the operation was decided"
            self.pending.remove(id)
        else:
            assert path.startswith(_DECIDED), f"{path} was deleted"
            assert id not in self.pending, f"{path} was deleted before its pending entry was"
            del self.stored[id]


class WatchedStore(MemoryStore):
    """A store that reports its mutations to a `LogTruth`."""

    def __init__(self, *, clock: Clock, new_id: Callable[[], str]) -> None:
        super().__init__(clock=clock, new_id=new_id)
        self.truth = LogTruth()

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        data = b"".join(chunks(body))
        result = super().put(path, data, **options)
        self.truth.put(path, data)
        return result

    def delete(self, path: str, **options: Any) -> None:
        was_there = self.begin_head(path)().info is not None
        super().delete(path, **options)
        if was_there:
            self.truth.deleted(path)

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        for path in paths:
            self.delete(path)
        return {}
