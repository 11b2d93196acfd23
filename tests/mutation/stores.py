"""Stores with a peculiar behaviour, as the client of a node sees them."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from commitlog.stores.api import InFlight, Observation
from commitlog.testing.sim import Node, SimulatedStore

__all__ = ["BareHeads", "SlowHeads"]


class _Wrapped:
    """A client of a store with a peculiar behaviour."""

    def __init__(self, store: SimulatedStore, node: Node) -> None:
        self.store = store
        self.node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class BareHeads(_Wrapped):
    """A store that omits the quotes of etags in its answers to HEAD only."""

    def begin_head(self, path: str) -> InFlight[Observation]:
        pending = self.store.begin_head(path)

        def wait() -> Observation:
            seen = pending()
            info = seen.info and evolve(seen.info, etag=seen.info.etag.strip('"'))
            return evolve(seen, info=info)

        return wait


class SlowHeads(_Wrapped):
    """A store that takes two seconds to answer HEAD, and dates the answer when it is sent."""

    def begin_head(self, path: str) -> InFlight[Observation]:
        pending = self.store.begin_head(path)

        def wait() -> Observation:
            seen = pending()
            self.node.clock.sleep(2)
            now = self.node.simulation.server_clock().epoch()
            return evolve(seen, store_time=int(now))

        return wait
