"""What clients of a namespace do with directories that others write to, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import frozen

from sim.namespace.actions import Do, silent
from support.namespace import Model


@frozen(kw_only=True)
class Sync(Do):
    """A synchronisation.

    Attributes:
        path: of what.
    """

    path: str


@frozen(kw_only=True)
class Prune(Do):
    """A removal of what is of no use any more.

    Attributes:
        hidden: whether of what still hides something, too.
    """

    hidden: bool


def sync(path: str = "") -> Sync:
    """Take what the store has."""
    return Sync(
        name="sync", lake=silent(lambda lake: lake.bindings.sync(path)), changes="many", path=path
    )


def prune(path: str = "", *, older_than: float | None = None) -> Prune:
    """Remove tombstones that hide nothing, or are old, and files whose objects are gone."""
    return Prune(
        name="prune",
        lake=silent(lambda lake: lake.bindings.prune(path, older_than=older_than)),
        changes="many",
        hidden=older_than is not None,
    )


def bind(prefix: str, into: str, *, max_age: float | None) -> Do:
    """Bind a directory."""
    return Do(
        name="bind",
        lake=silent(lambda lake: lake.bindings.bind(prefix, into, max_age=max_age)),
        changes="many",
        step=lambda before, after: before.nodes.items() <= after.nodes.items(),
    )


def unbind(path: str) -> Do:
    """Have a directory changed by the namespace alone; it keeps what rows it has."""
    return Do(
        name="unbind",
        lake=silent(lambda lake: lake.bindings.unbind(path)),
        changes="many",
        step=lambda before, after: after.nodes.keys() <= before.nodes.keys(),
    )


def adopt_any(prefix: str, into: str, contents: Mapping[str, Collection[bytes]]) -> Do:
    """Adopt what the store has below a prefix, while others change it.

    Args:
        prefix, into: as of `Namespace.adopt`.
        contents: what each file may come to have.
    """

    def step(before: Model, after: Model) -> bool:
        changed = after.nodes.items() - before.nodes.items()
        fits = all(body is None or body in contents["/".join(names)] for names, body in changed)
        return fits and before.nodes.keys() <= after.nodes.keys()

    return Do(
        name="adopt",
        lake=silent(lambda lake: lake.maintenance.import_objects(prefix, into)),
        changes="many",
        step=step,
    )
