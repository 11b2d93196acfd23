"""The actions of clients in a world of leases: conditional calls, alone, in sequence, or drawn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from commitlog.errors import CommitError, NotFound
from commitlog.testing import RecordedStore
from sim.drawing import Draw

if TYPE_CHECKING:
    from sim.leases.world import CommitWorld

__all__ = [
    "Client",
    "Program",
    "Workload",
    "copy",
    "create",
    "delete",
    "edit",
    "publish",
    "read",
    "remove",
    "rename",
    "update",
]


@frozen(kw_only=True)
class Client:
    """One life of a node, which its program uses.

    Attributes:
        world: the world.
        name: the name of the node.
        store: its recorded store.
    """

    world: CommitWorld
    name: str
    store: RecordedStore

    def new_version(self) -> str:
        """Return a version that no other write has."""
        return self.world.new_version(self.name)


#: The code of a node. An error of the library ends one call, but not the program.
Program: TypeAlias = Callable[[Client], object]


def _attempt(call: Callable[[Client], object]) -> Program:
    def program(client: Client) -> None:
        with contextlib.suppress(CommitError):
            call(client)

    return program


def create(path: str) -> Program:
    """Put an object if there is none."""
    return _attempt(lambda client: client.store.put_if_absent(path, client.new_version()))


def update(path: str) -> Program:
    """Replace the object that existed at the beginning."""
    return _attempt(
        lambda client: client.store.put_if_match(
            path,
            client.new_version(),
            etag=client.world.etags[path],
            expected=client.world.versions[path],
        )
    )


def delete(path: str) -> Program:
    """Delete the object that existed at the beginning."""
    return _attempt(
        lambda client: client.store.delete_if_match(
            path, etag=client.world.etags[path], expected=client.world.versions[path]
        )
    )


def copy(source: str, target: str) -> Program:
    """Copy an object that existed at the beginning. No other program may copy it to that target."""
    return _attempt(
        lambda client: client.store.copy_if_absent(source, target, version=client.world.versions[source])
    )


def rename(source: str, target: str) -> Program:
    """Rename an object that existed at the beginning. No other program may copy it to that target."""
    return _attempt(
        lambda client: client.store.rename_if_absent(
            source, target, version=client.world.versions[source]
        )
    )


def publish(path: str) -> Program:
    """Upload an object, and publish it if there is none."""

    def call(client: Client) -> None:
        version = client.new_version()
        client.store.publish_if_absent(client.store.stage(path, version), version=version)

    return _attempt(call)


def read(path: str) -> Program:
    """Read the object."""
    return _attempt(lambda client: client.store.get(path))


def edit(path: str) -> Program:
    """Replace the current object."""

    def call(client: Client) -> None:
        etag = client.store.get(path).etag
        client.store.put_if_match(path, client.new_version(), etag=etag)

    return _attempt(call)


def remove(path: str) -> Program:
    """Delete the current object."""
    return _attempt(lambda client: client.store.delete_if_match(path, etag=client.store.get(path).etag))


class Workload:
    """Drawn calls of all nodes on a few common keys, many of them at the same time.

    Args:
        world: the world.
        draw: draws the calls.
        keys: the paths that all nodes use.
        until: the time in seconds after which no fault happens.
        length: the nodes that wait for the next round meet every `length` seconds.
        allowed: errors that a correct store may raise after `until`.
        publishes: whether nodes publish uploads too.
    """

    def __init__(
        self,
        world: CommitWorld,
        draw: Draw,
        keys: tuple[str, ...],
        until: float,
        *,
        length: float,
        allowed: tuple[type[CommitError], ...],
        publishes: bool,
    ) -> None:
        self._world = world
        self._draw = draw
        self._keys = keys
        self._until = until
        self._round = length
        self._allowed = allowed
        self._calls: tuple[Callable[[Client, str], object], ...] = (
            *(self._create, self._change, self._remove) * 2,
            self._copy,
            self._rename,
            *((self._publish,) if publishes else ()),
            lambda client, key: client.store.head(key),
            lambda client, key: client.store.get(key),
        )

    def run(self, client: Client, left: list[int]) -> None:
        """Make the calls that are left. After the last fault, change each key once.

        `left` has the number of calls, which a restarted node continues to count.
        """
        while left[0] > 0:
            left[0] -= 1
            call = self._draw(f"{client.name}'s call", self._calls)
            self._attempt(client, call, self._draw(f"{client.name}'s key", self._keys))
            # Nodes that wait for the next round act at the same time.
            next_round = self._round - self._now % self._round
            self._rest(client, self._draw(f"{client.name} rests", (next_round, 0.0, 0.1, 1.0)))
        self._rest(client, max(0.0, self._until - self._now))
        for key in self._keys:
            self._attempt(client, self._change, key)

    @property
    def _now(self) -> float:
        return self._world.simulation.now

    def _rest(self, client: Client, seconds: float) -> None:
        clock = client.world.nodes[client.name].clock
        clock.sleep(seconds * clock.rate)

    def _attempt(self, client: Client, call: Callable[[Client, str], object], key: str) -> None:
        without_faults = self._now >= self._until
        try:
            call(client, key)
        except self._allowed:
            pass
        except CommitError as error:
            if without_faults:
                raise AssertionError(f"{client.name} got {error!r} after the last fault") from error

    def _create(self, client: Client, key: str) -> None:
        client.store.put_if_absent(key, client.new_version())

    def _change(self, client: Client, key: str) -> None:
        try:
            etag = client.store.get(key).etag
        except NotFound:
            self._create(client, key)
        else:
            client.store.put_if_match(key, client.new_version(), etag=etag)

    def _remove(self, client: Client, key: str) -> None:
        client.store.delete_if_match(key, etag=client.store.get(key).etag)

    def _copy(self, client: Client, key: str) -> None:
        source, version = self._source(client)
        client.store.copy_if_absent(source, key, version=version)

    def _rename(self, client: Client, key: str) -> None:
        source, version = self._source(client)
        client.store.rename_if_absent(source, key, version=version)

    def _publish(self, client: Client, key: str) -> None:
        version = client.new_version()
        client.store.publish_if_absent(client.store.stage(key, version), version=version)

    def _source(self, client: Client) -> tuple[str, str]:
        """Create an object that no other client writes, to be copied once."""
        version = client.new_version()
        source = f"source-{version}"
        client.store.put_if_absent(source, version)
        return source, version
