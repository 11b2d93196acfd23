"""The history of a world with bound directories: the visible trees during each call, and deletions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise

from attrs import define, field

from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.records import Entry
from sim.namespace.bindings.views import Names, Position, State, View


@define
class Moment:
    """A visible tree, and the time in seconds from which on it was visible."""

    at: float
    current: View


@define(eq=False)
class CallHistory:
    """The visible trees during a call.

    Attributes:
        puts: number of changes by other programs before it.
        moments: the visible trees since it began.
    """

    puts: int
    moments: list[Moment] = field(factory=list)

    def add(self, at: float, current: View) -> None:
        """Add a visible tree if it differs from the last one."""
        if not self.moments or self.moments[-1].current.tree != current.tree:
            self.moments.append(Moment(at, current))

    def ever(self, names: Names) -> set[bytes | str | None]:
        """Return all contents of a path during the call; "nothing" if it did not exist."""
        return {each.current.tree.nodes.get(names, "nothing") for each in self.moments}

    def was_moved(self, current: View, names: Names) -> bool:
        """Return whether a directory above a path was in another directory during the call."""
        chain = [current.places[names[:length]][0] for length in range(len(names))]
        return any(
            each.current.parents().get(id, parent) != parent
            for parent, id in pairwise(chain)
            for each in self.moments
        )

    def state(self) -> Hashable:
        """Return the part on which the future depends."""
        moments = ((each.at, frozenset(each.current.tree.nodes.items())) for each in self.moments)
        return self.puts, tuple(moments)


@define(eq=False)
class DeletedPaths:
    """Deleted objects and prefixes, which must not become visible again.

    Attributes:
        paths: the position and the path of each.
    """

    paths: set[tuple[Position, str]] = field(factory=set)

    def changed(self, before: State, after: State) -> None:
        """Add the entries that a change of the namespace has removed from their positions."""
        for directory, binding in before.recorded.places.values():
            for name, row in before.rows.get(directory, {}).items():
                home = _home(binding, row)
                now = after.rows.get(directory, {}).get(name)
                if home is None or (
                    now is not None and now.id == row.id and _home(binding, now) == home
                ):
                    continue
                if row.data is None:
                    self.paths.add(((directory, f"{name}/"), home))
                elif home in after.objects and after.objects[home].etag == row.data.etag:
                    self.paths.add(((directory, name), home))
        self.found(after)

    def found(self, after: State) -> None:
        """Remove the entries that have a row again."""
        for (directory, name), path in list(self.paths):
            row = after.rows.get(directory, {}).get(name.removesuffix("/"))
            if row is None or row.is_directory != name.endswith("/"):
                continue
            if path == (row.data.path if row.data else row.binding and row.binding.prefix):
                self.paths.discard(((directory, name), path))

    def stored(self, path: str) -> None:
        """Remove an object that another program has stored again."""
        self.paths = {each for each in self.paths if each[1] != path}

    def pruned(self, position: Position) -> None:
        """Remove the entries at a position whose tombstone was pruned."""
        self.paths = {each for each in self.paths if each[0] != position}

    def unhidden(self, before: State, after: State, may_show: Callable[[str], bool]) -> None:
        """Remove the entries that a pruned tombstone hid, if `prune` may remove that tombstone.

        It may if the tombstone is old, or its objects are gone or replaced (docs/namespace.md): each
        object that it hid is gone, or `may_show` returns True for it.
        """
        for (directory, name), path in list(self.paths):
            pruned = before.tombstones.get(directory, {}).get(name)
            left = after.tombstones.get(directory, {}).get(name)
            if pruned is None or pruned.path != path or (left is not None and left.path == path):
                continue
            hidden = [
                info.path
                for info in after.objects.values()
                if pruned.hides(info) or (pruned.etag is None and info.path.startswith(path))
            ]
            if all(may_show(each) for each in hidden):
                self.paths.discard(((directory, name), path))

    def check(self, current: View) -> None:
        """Raise `AssertionError` if a deleted entry is visible."""
        back = set(current.alone.values()) & {position for position, _ in self.paths}
        assert not back, f"a deleted entry is visible again: {sorted(back)}"

    def state(self) -> Hashable:
        """Return the part on which the future depends."""
        return frozenset(self.paths)


def _home(binding: Binding | None, row: Entry) -> str | None:
    """Return the object or prefix of a row, if the binding of its directory gives it the same one."""
    if binding is None:
        return None
    home = binding.path_of(row.name)
    if row.data is not None:
        return home if row.data.path == home and not row.data.own else None
    return f"{home}/" if row.binding is not None and row.binding.prefix == f"{home}/" else None
