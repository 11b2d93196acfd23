"""Stores whose conduct is a bit different, as the client of a node sees them."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from commitlog.stores.api import Observation, Pending
from commitlog.testing.sim import Node, SimulatedStore

__all__ = ["BareHeads", "SlowHeads"]


class _Wrapped:
    """A client of a store whose conduct is a bit different."""

    def __init__(self, store: SimulatedStore, node: Node) -> None:
        self.store = store
        self.node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class BareHeads(_Wrapped):
    """A store that spells etags without quotes in what it answers to HEAD, and there alone."""

    def begin_head(self, path: str) -> Pending[Observation]:
        pending = self.store.begin_head(path)

        def wait() -> Observation:
            seen = pending()
            info = seen.info and evolve(seen.info, etag=seen.info.etag.strip('"'))
            return evolve(seen, info=info)

        return wait


class SlowHeads(_Wrapped):
    """A store that takes two seconds to answer to HEAD, and dates its answer then."""

    def begin_head(self, path: str) -> Pending[Observation]:
        pending = self.store.begin_head(path)

        def wait() -> Observation:
            seen = pending()
            self.node.clock.sleep(2)
            now = self.node.simulation.server_clock().epoch()
            return evolve(seen, store_time=int(now))

        return wait
