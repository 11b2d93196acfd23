"""The judge of a world of locks: follows each record and each fenced object that is stored.

It knows who holds the lock, from the holders, and which tokens were stored, from the server. It checks:

* Of all holders, at most `permits` hold the lock at the same true time.
* Each new holder's token is larger than all earlier ones of its record; so is that of each new hold of
  one client.
* The token of a fenced object never decreases, and no increment of a counter is lost.
* A client is refused only if another one's record was there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from attrs import define, field

from commitlog.clock import Clock
from commitlog.stores.api import PutResult
from commitlog.stores.body import Body, chunks
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, TableCondition
from commitlog.tables.memory import MemoryTable

__all__ = ["LockTruth", "WatchedStore", "WatchedTable"]


@define
class LockTruth:
    """The true state of the lock.

    Attributes:
        permits: the number of holders that there may be.
        holds: for each holder, the true time at which it must have stopped.
        records: for each record, the holder's description, or None if it is free.
        seen: for each record, the holders that it has had.
        tokens: for each record, the largest token.
        owners: for each record and each owner that it has had, the owner's last token.
        begun: for each slot, the token of the last hold.
        fence: the largest token of the fenced object.
        counter: its content.
        done, unknown: the increments that succeeded, and those whose outcome is unknown.
    """

    permits: int = 1
    holds: dict[str, float] = field(factory=dict)
    records: dict[str, str | None] = field(factory=dict)
    seen: dict[str, list[str]] = field(factory=dict)
    tokens: dict[str, int] = field(factory=dict)
    owners: dict[tuple[str, str], int] = field(factory=dict)
    begun: dict[int, int] = field(factory=dict)
    fence: int = 0
    counter: int = 0
    done: int = 0
    unknown: int = 0

    # called by clients

    def begin(self, slot: int, token: int) -> None:
        """Record that a client has acquired a slot with a token."""
        largest = self.begun.get(slot, 0)
        assert token > largest, f"token {token} was given after {largest}"
        self.begun[slot] = token

    def hold(self, name: str, *, until: float, now: float) -> None:
        """Record that a client holds the lock until a true time, unless it prolongs or releases it."""
        self.holds[name] = until
        held = sorted(each for each, end in self.holds.items() if end > now or each == name)
        assert len(held) <= self.permits, f"two holders at one time: {' and '.join(held)}"

    def stop(self, name: str) -> None:
        """Record that a client no longer relies on the lock."""
        self.holds.pop(name, None)

    def others(self, me: str) -> int:
        """Return a number that is larger, and not zero, if another client's record is or was there."""
        there = sum(holder not in (None, me) for holder in self.records.values())
        return there + sum(holder != me for seen in self.seen.values() for holder in seen)

    def state(self) -> Hashable:
        """Return the state that does not follow from the contents of the servers."""
        return (
            tuple(sorted(self.holds.items())),
            tuple((path, tuple(seen)) for path, seen in sorted(self.seen.items())),
            tuple(sorted(self.tokens.items())),
            tuple(sorted(self.begun.items())),
            (self.fence, self.done, self.unknown),
        )

    def check(self) -> None:
        """Check the counter after the run."""
        assert self.done <= self.counter <= self.done + self.unknown, (
            f"an increment was lost: {self.done} were done, {self.unknown} are unknown, and the counter"
            f" is {self.counter}"
        )

    # called by servers

    def stored(self, record: Mapping[str, Any]) -> None:
        """Record that a lock's record was stored."""
        path, owner, token = record["path"], record["owner"], record["token"]
        if not record["timeout"]:
            self.records[path] = None
            return
        self.records[path] = record["holder"]
        self.seen.setdefault(path, []).append(record["holder"])
        if self.owners.get((path, owner)) == token:  # a heartbeat
            assert token == self.tokens[path], f"token {token} came back after {self.tokens[path]}"
            return
        largest = self.tokens.get(path, 0)
        assert token > largest, f"token {token} was given after {largest}"
        self.tokens[path] = self.owners[path, owner] = token

    def written(self, data: bytes) -> None:
        """Record that the fenced object was stored."""
        header, _, body = data.partition(b"\n")
        token = int(header.split()[2])
        assert token >= self.fence, f"a write with token {token} replaced one with {self.fence}"
        self.fence, self.counter = token, int(body)


class WatchedTable(MemoryTable):
    """A table that reports the records that it stores."""

    truth: LockTruth

    def put(self, item: Item, *, condition: TableCondition | None = None) -> None:
        super().put(item, condition=condition)
        self.truth.stored(item)


class WatchedStore(MemoryStore):
    """A store that reports the records and the fenced objects that it stores."""

    def __init__(self, *, clock: Clock, new_id: Callable[[], str], truth: LockTruth) -> None:
        super().__init__(clock=clock, new_id=new_id)
        self.truth = truth

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        data = b"".join(chunks(body))
        result = super().put(path, data, **options)
        if data.startswith(b"{"):
            self.truth.stored(json.loads(data))
        else:
            self.truth.written(data)
        return result
