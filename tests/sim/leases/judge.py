"""The judge of a world of leases: records the calls of clients, and checks their history at the end."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.stores.api import PutResult, Staged, StagedInfo
from commitlog.stores.memory import MemoryStore
from commitlog.testing import Action, History, Outcome, RecordedStore, Recorder, check_linearizable
from commitlog.testing.recorded_store import VERSION
from commitlog.testing.sim import SimulatedStore, Simulation
from sim.nodes import ClockSkew

__all__ = ["OrderedRecorder", "Server", "WatchedStore", "check_history", "read_all"]


class Server(MemoryStore):
    """The store, which may ignore conditions. It remembers which versions were removed.

    Attributes:
        removed: versions of objects that were deleted, and of uploads that were aborted.
    """

    def __init__(self, simulation: Simulation, skew: ClockSkew, *, conditions: bool) -> None:
        clock = simulation.server_clock(rate=skew.rate, offset=skew.offset)
        super().__init__(clock=clock, new_id=simulation.new_id)
        self._conditions = conditions
        self.removed: set[str] = set()

    def _allow(self, key: str, condition: Any, expiry: Any) -> None:
        super()._allow(key, condition if self._conditions else None, expiry)

    def delete(self, path: str, **options: Any) -> None:
        info = self.begin_head(path)().info
        super().delete(path, **options)
        if info is not None:
            self.removed.add(info.metadata.get(VERSION, ""))

    def abort(self, staged: Staged | StagedInfo) -> None:
        upload = self._space.uploads.get(staged.upload_id)
        if upload is not None:
            self.removed.add(upload.metadata.get(VERSION, ""))
        super().abort(staged)


class OrderedRecorder(Recorder):
    """A recorder that knows which calls had returned when a call began.

    This order is all that the check of a history uses of time, so it is part of the state of an
    exploration. Without a trace, as in a campaign, it is not recorded.
    """

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(now=lambda: simulation.now)
        self._simulation = simulation
        self._ended: Counter[str] = Counter()
        self._clients: list[str] = []
        self._before: dict[str, list[Hashable]] = {}

    def begin(self, client: str, action: Action, key: str, **options: Any) -> int:
        self._clients.append(client)
        if self._simulation.tracing:
            self._before.setdefault(client, []).append(tuple(sorted(self._ended.items())))
        return super().begin(client, action, key, **options)

    def end(self, number: int, outcome: Outcome, *, version: str | None = None) -> None:
        self._ended[self._clients[number]] += 1
        super().end(number, outcome, version=version)

    def order(self) -> Hashable:
        """Return, for each call of each client, the number of calls of each client before it."""
        return tuple(sorted((client, tuple(calls)) for client, calls in self._before.items()))


class WatchedStore(SimulatedStore):
    """A client's store that reports the paths of writes whose outcome is unknown to `lost`."""

    def __init__(self, *args: Any, lost: Callable[[str], object], **options: Any) -> None:
        super().__init__(*args, **options)
        self._lost = lost

    def put(self, path: str, *args: Any, **options: Any) -> PutResult:
        with self._watched(path):
            return super().put(path, *args, **options)

    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        with self._watched(target):
            return super().copy(source, target, **options)

    def publish(self, staged: Staged, **options: Any) -> PutResult:
        with self._watched(staged.path):
            return super().publish(staged, **options)

    @contextlib.contextmanager
    def _watched(self, path: str) -> Iterator[None]:
        try:
            yield
        except OutcomeUnknown:
            self._lost(path)
            raise


def read_all(server: Server, recorder: Recorder) -> None:
    """Read every path of the history once more, as a client without faults."""
    reader = RecordedStore(ConditionalStore(server), recorder, client="reader")
    for path in sorted({call.key for call in recorder.history()}):
        for read in (reader.head, reader.get):
            with contextlib.suppress(CommitError):
                read(path)


def check_history(history: History, server: Server) -> None:
    """Check that a history is linearizable, and that no client removed its write of unknown outcome."""
    check_linearizable(history)
    wanted = {call.expected for call in history if call.action is Action.REMOVE}
    unknown = {call.version for call in history if call.outcome is Outcome.UNKNOWN}
    cleaned_up = (server.removed & unknown) - wanted
    assert not cleaned_up, f"{cleaned_up} may have been written, but was removed"
