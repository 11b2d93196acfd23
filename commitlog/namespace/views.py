"""Two views of a tree some of whose directories are bound: for those who look, and for those who change.

Both are the rows alone where no directory is bound, or a bound one was synchronised lately. Imports the
ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, evolve, field

from commitlog.errors import AccessDenied, BucketNotFound, CommitError
from commitlog.namespace.change import Stale
from commitlog.namespace.joining import Joining
from commitlog.namespace.joint import Joint, News
from commitlog.namespace.levels import level_of
from commitlog.namespace.records import Entry
from commitlog.namespace.tree import PAGE, Tree

__all__ = ["Brought", "Seen"]

#: How often one name is asked for, while others change it.
_TRIES = 3


@define(kw_only=True)
class _View(Tree):
    """A tree that knows its root from another one.

    Args:
        joint: has that, and asks the store.
        joining: takes what the store has.
    """

    joint: Joint
    joining: Joining

    def root(self) -> Entry:
        """See `Tree.root`."""
        return self.joint.rows.root()

    def known_root(self) -> Entry:
        """See `Tree.known_root`."""
        return self.joint.rows.known_root()

    def forget(self) -> None:
        """See `Tree.forget`."""
        self.joint.rows.forget()


@define(kw_only=True)
class Seen(_View):
    """What those see who look; what is in the store alone has no id, and the version 0.

    Looking needs no permission to write. Who has it takes into the table what a listing of a whole
    directory has shown, if that is to be believed for longer than a moment.

    Args:
        may_write: raises an error if the namespace is not to be changed.
    """

    may_write: Callable[[], object]
    _denied: bool = field(default=False, init=False)

    def find(self, directory: Entry, name: str) -> Entry | None:
        """Return what is to be seen of a name, or None."""
        row = self.joint.row(directory, name)
        return self.joint.look(directory, name, row).seen if self.joint.asks(directory) else row

    def entries(self, directory: Entry, *, after: str = "", page: int = PAGE) -> Iterator[Entry]:
        """Yield what is to be seen in a directory, by name."""
        if not self.joint.asks(directory):
            yield from Tree.entries(self, directory, after=after, page=page)
            return
        level = level_of(self.joint, directory, after=after)
        if not after and self._is_worth_it(directory):
            try:
                self.may_write()
                made = self.joining.settle(directory, level).made
                level = evolve(level, seen={**level.seen, **made})
            except AccessDenied:
                self._denied = True
            except BucketNotFound:
                raise
            except CommitError:
                pass  # what was seen is right all the same
        yield from level.in_order()

    def _is_worth_it(self, directory: Entry) -> bool:
        assert directory.binding is not None
        return directory.is_stored and directory.binding.max_age != 0 and not self._denied


@define(kw_only=True)
class Brought(_View):
    """What changes are planned on: rows, into which what the store has of these names was taken first.

    Raises `Stale` where others change the same.
    """

    def find(self, directory: Entry, name: str) -> Entry | None:
        """Return the row that a directory has under a name, or None."""
        for _ in range(_TRIES):
            row = self.joint.row(directory, name)
            if not self.joint.asks(directory):
                return row
            news = self.joint.look(directory, name, row)
            if news.is_none:
                return news.row
            row = news.row
            changes = row is not None and news.seen is not None and news.seen.is_directory
            if changes:  # a file goes, and then a directory comes
                news = News(name=name, row=row, seen=None)
            directory, made = self.joining.take(directory, [news])
            if not changes:
                return made.get(name)
        raise Stale(f"{name!r} kept changing in the store")

    def entries(self, directory: Entry, *, after: str = "", page: int = PAGE) -> Iterator[Entry]:
        """Yield what a directory has, by name; what is in the store alone is not taken.

        Raises what `Outside.prove` raises if it has less than its rows say.
        """
        if not self.joint.asks(directory):
            yield from Tree.entries(self, directory, after=after, page=page)
            return
        level = level_of(self.joint, directory, after=after)
        if len(self.joining.still(level.news)) < len(level.news):
            raise Stale("an object is there again")
        yield from level.in_order()
