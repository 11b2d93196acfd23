"""The actions of clients with bound directories."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import frozen

from sim.namespace.actions import Action, without_result
from support.namespace import Model


@frozen(kw_only=True)
class Sync(Action):
    """A synchronization.

    Attributes:
        path: the directory.
    """

    path: str


@frozen(kw_only=True)
class Prune(Action):
    """A removal of useless tombstones and files.

    Attributes:
        hidden: whether old tombstones that still hide an object are removed too.
    """

    hidden: bool


def sync(path: str = "") -> Sync:
    """Record the objects of the store."""
    return Sync(
        name="sync",
        call=without_result(lambda namespace: namespace.bindings.sync(path)),
        changes="many",
        path=path,
    )


def prune(path: str = "", *, older_than: float | None = None) -> Prune:
    """Remove tombstones that hide nothing or are old, and files whose objects are gone."""
    return Prune(
        name="prune",
        call=without_result(lambda namespace: namespace.bindings.prune(path, older_than=older_than)),
        changes="many",
        hidden=older_than is not None,
    )


def bind(prefix: str, into: str, *, max_age: float | None) -> Action:
    """Bind a directory."""
    return Action(
        name="bind",
        call=without_result(lambda namespace: namespace.bindings.bind(prefix, into, max_age=max_age)),
        changes="many",
        step=lambda before, after: before.nodes.items() <= after.nodes.items(),
    )


def unbind(path: str) -> Action:
    """Unbind a directory. It keeps its rows."""
    return Action(
        name="unbind",
        call=without_result(lambda namespace: namespace.bindings.unbind(path)),
        changes="many",
        step=lambda before, after: after.nodes.keys() <= before.nodes.keys(),
    )


def import_changing_objects(prefix: str, into: str, contents: Mapping[str, Collection[bytes]]) -> Action:
    """Import the objects below a prefix while other programs change them.

    Args:
        prefix, into: see `Maintenance.import_objects`.
        contents: the possible contents of each file.
    """

    def step(before: Model, after: Model) -> bool:
        changed = after.nodes.items() - before.nodes.items()
        is_possible = all(body is None or body in contents["/".join(names)] for names, body in changed)
        return is_possible and before.nodes.keys() <= after.nodes.keys()

    return Action(
        name="adopt",
        call=without_result(lambda namespace: namespace.maintenance.import_objects(prefix, into)),
        changes="many",
        step=step,
    )
