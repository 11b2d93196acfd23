"""What is remembered of a namespace with bound directories, to judge what comes after it: what was to be
seen since a call began, and what was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise

from attrs import define, field

from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.records import Entry
from sim.namespace.bindings.views import Names, Sight, Spot, View


@define
class Moment:
    """What was to be seen from a second on."""

    at: float
    asked: View


@define(eq=False)
class Memory:
    """What is remembered of a call that is under way.

    Attributes:
        puts: how often others had stored anything before.
        moments: what was to be seen since it began.
    """

    puts: int
    moments: list[Moment] = field(factory=list)

    def add(self, at: float, asked: View) -> None:
        """Remember what is to be seen, if it is something else than before."""
        if not self.moments or self.moments[-1].asked.tree != asked.tree:
            self.moments.append(Moment(at, asked))

    def ever(self, names: Names) -> set[bytes | str | None]:
        """Return what there was at a path; "nothing" if it was not there."""
        return {each.asked.tree.nodes.get(names, "nothing") for each in self.moments}

    def was_moved(self, asked: View, names: Names) -> bool:
        """Tell whether a directory above a path was in another directory at some moment of the call."""
        chain = [asked.places[names[:length]][0] for length in range(len(names))]
        return any(
            each.asked.parents().get(id, parent) != parent
            for parent, id in pairwise(chain)
            for each in self.moments
        )

    def state(self) -> Hashable:
        """Return what of it matters."""
        moments = ((each.at, frozenset(each.asked.tree.nodes.items())) for each in self.moments)
        return self.puts, tuple(moments)


@define(eq=False)
class Deleted:
    """Objects, and prefixes, that are not to be seen again, by where they were.

    Attributes:
        paths: which.
    """

    paths: set[tuple[Spot, str]] = field(factory=set)

    def changed(self, before: Sight, after: Sight) -> None:
        """Take in that a change of the namespace has taken something from its place."""
        for directory, binding in before.rowed.places.values():
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

    def found(self, after: Sight) -> None:
        """Forget what has a row again: somebody has brought it back."""
        for (directory, name), path in list(self.paths):
            row = after.rows.get(directory, {}).get(name.removesuffix("/"))
            if row is None or row.is_directory != name.endswith("/"):
                continue
            if path == (row.data.path if row.data else row.binding and row.binding.prefix):
                self.paths.discard(((directory, name), path))

    def stored(self, path: str) -> None:
        """Forget an object that others have stored anew."""
        self.paths = {each for each in self.paths if each[1] != path}

    def pruned(self, spot: Spot) -> None:
        """Forget what nothing hides any more."""
        self.paths = {each for each in self.paths if each[0] != spot}

    def unhidden(self, before: Sight, after: Sight, may_show: Callable[[str], bool]) -> None:
        """Forget what a tombstone hid that was just pruned, if `prune` may remove that one.

        It removes tombstones "whose objects are gone or replaced", and old ones (docs/namespace.md). So
        each object that this one hid is gone, or one that `may_show`. Afterwards, all that the store has
        there may be seen, now or when the row goes that has the name.
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

    def check(self, asked: View) -> None:
        """Raise `AssertionError` if anything of it is to be seen."""
        back = set(asked.alone.values()) & {spot for spot, _ in self.paths}
        assert not back, f"what was deleted is back: {sorted(back)}"

    def state(self) -> Hashable:
        """Return what of it matters."""
        return frozenset(self.paths)


def _home(binding: Binding | None, row: Entry) -> str | None:
    """Return the object, or prefix, that a row of a directory is, if it is at home there."""
    if binding is None:
        return None
    home = binding.path_of(row.name)
    if row.data is not None:
        return home if row.data.path == home and not row.data.own else None
    return f"{home}/" if row.binding is not None and row.binding.prefix == f"{home}/" else None
