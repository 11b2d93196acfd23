"""Directories that others write to, too: which prefix of the store each has, and keeping them together.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from attrs import evolve, field, frozen

from commitlog.errors import ConfigurationError, Conflict, NotADirectory, NotFound
from commitlog.maps import AppendOnly
from commitlog.namespace.binding import Binding
from commitlog.namespace.change import Change
from commitlog.namespace.differing import Differ
from commitlog.namespace.keys import split
from commitlog.namespace.levels import level_of
from commitlog.namespace.pruning import Pruned, Pruner
from commitlog.namespace.records import Entry
from commitlog.namespace.status import Difference, Status
from commitlog.namespace.upkeep import Upkeep

__all__ = ["Bound", "Synced"]


@frozen(kw_only=True)
class Synced:
    """What a call has taken from the store.

    Attributes:
        directories: number of bound directories that agree with the store.
        files: objects that became files.
        updated: files that are as their objects are now.
        removed: files whose objects were gone.
        unfit: objects and prefixes that cannot be files and directories there: something else has the
            name, or nothing can have it.
    """

    directories: int = 0
    files: int = 0
    updated: int = 0
    removed: int = 0
    unfit: AppendOnly[str] = field(factory=AppendOnly)


class Bound(Upkeep):
    """What `Namespace` offers for directories that others write to, too."""

    def bind(self, prefix: str, into: str, *, max_age: float | None = 0.0) -> Status:
        """Make a directory that has, beside what it has, what the store has under a prefix; return it.

        Others go on storing objects there, under names of their own, and know nothing of the namespace.
        Directories that are in it, are made in it, or come from the store are bound, too, each to its
        part of the prefix. It stays bound when it is renamed. Repeat it to change `max_age`, or if it
        was interrupted. It is not one mutation, but one for each directory, which the path leads to when
        that is looked up (also with ``stable_paths``).

        Args:
            prefix: with its slash, in the store of the namespace.
            into: the directory; it is made if it is missing. Not the root.
            max_age: seconds for which a directory is what the table says, after it was synchronised by a
                listing or `sync`. 0: every look asks the store. None: only what the namespace is told
                counts, once it was synchronised; `sync` does that again.

        Raises `NotADirectory`, `AlreadyExists` (it is a file), and `ConfigurationError` if the directory
        is bound to another prefix: unbind it first.
        """
        wanted = _binding(prefix, max_age)
        if not split(into):
            raise ConfigurationError("the root cannot be bound: name a directory in it")
        top = self._run(lambda: self._planner.make_directory(into, shards=1))
        if top.binding is not None and top.binding.prefix != prefix:
            raise ConfigurationError(
                f"{into!r} is bound to {top.binding.prefix!r}, and stays so: unbind it first"
            )
        bound = self._rebind(top, wanted)
        pending = [(bound, wanted)]
        while pending:
            directory, binding = pending.pop()
            for child in self._directories(directory):
                below = binding.below(child.name)
                if below is None or not self._is_free(directory, child, below):
                    continue
                with contextlib.suppress(NotFound):
                    pending.append((self._rebind(child, below), below))
        return Status(path=into, entry=bound)

    def unbind(self, path: str) -> Status:
        """Make a bound directory, and what is bound with it, one that only the namespace changes.

        It keeps the files that it has by then, as if they were adopted; call `sync` before to have all.
        It can be broken off and repeated. Raises `NotFound`, `NotADirectory`.
        """
        top = self._directory(path)
        done: set[str] = set()
        while bound := self._bound_with(top, done):
            for directory in reversed(bound):  # what is above tells what belongs to it: that goes last
                with contextlib.suppress(NotFound):
                    self._rebind(directory, None)
                done.add(directory.id)
        return Status(path=path, entry=self._directory(path))

    def sync(
        self,
        path: str = "",
        *,
        empty_store: bool = False,
        progress: Callable[[Synced], object] | None = None,
    ) -> Synced:
        """Make all bound directories at and below a path agree with the store; return what that took.

        It can be broken off and repeated, and done by several at once. A directory costs one listing of
        its prefix, and a transaction for each fifty objects that are new. A directory that others rename
        meanwhile is followed to its new path. One that they move into another directory may be missed.

        Args:
            path: a directory.
            empty_store: take the store for the right one though it lacks the object by which it is
                known, and put that back; all files are removed whose objects it has not. Else that is
                refused, as the store may be the wrong one.
            progress: told after each directory what was done so far.

        Raises `NotFound`, `NotADirectory`, `Conflict` if others kept changing a directory; and
        `BucketNotFound`, `StoreEmpty` before anything is removed for that.
        """
        done = Synced()
        pending = [self._directory(path)]
        if empty_store:
            self._believe()
        while pending:
            directory = pending.pop()
            if directory.binding is None:
                pending += self._directories(directory)
                continue
            below, done = self._sync(directory, done, may_be_empty=empty_store)
            pending += below
            if progress is not None:
                progress(done)
        return done

    def prune(
        self,
        path: str = "",
        *,
        older_than: float | None = None,
        empty_store: bool = False,
        progress: Callable[[Pruned], object] | None = None,
    ) -> Pruned:
        """Remove what is of no use any more from the directories at and below a path; return how much.

        That is: files whose objects others have removed, which nobody can read; and tombstones whose
        objects are gone, or replaced by newer ones, or that hide nothing since the directory is not
        bound: bound again, it shows what they hid. It can be broken off and repeated. A bound directory
        costs one listing of its prefix; elsewhere, each file that was adopted costs a HEAD. Before files
        are removed, a hundred at a time, each costs another one, and the store proves twice that it is
        there: two more.

        Args:
            path: a directory.
            older_than: also tombstones that were left so many seconds ago, or longer. What they hide is
                there again, if it is still in the store: an age by which somebody has surely removed it.
            empty_store: as of `sync`.
            progress: told after each directory what was done so far.

        What could not be removed for others, or as the table or the store was not to be reached, is told
        in the result. Raises `NotFound`, `NotADirectory`; and `BucketNotFound`, `StoreEmpty` before any
        file is removed for that.
        """
        if older_than is not None and not older_than >= 0:
            raise ConfigurationError(f"older_than is {older_than!r} seconds; it must be 0 or more")
        pruner = Pruner(
            joint=self._joint,
            joining=self._joining,
            planner=self._planner,
            clock=self._clock,
            backoff=self._backoff,
            older_than=older_than,
            may_be_empty=empty_store,
        )
        top = self._directory(path)
        if empty_store:
            self._believe()
        return pruner.prune(top, progress=progress)

    def differences(
        self,
        path: str = "",
        *,
        prefix: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Iterator[Difference]:
        """Yield in what the store differs from what the table says, at and below a path.

        Files whose objects were changed or removed by somebody else; and, in directories that are bound,
        objects that are no files, and what tombstones hide. Nothing is changed, and no content is read.
        What differs is looked at again before it is told, so what changes meanwhile is no difference.

        A bound directory costs one listing of its prefix, a request for each thousand objects. Of files
        that are not objects under that prefix and their own names, the store is asked, many at a time.

        Args:
            path: a file or directory.
            prefix: treat the directory as if it was bound to this one, from which it was adopted.
            progress: told now and then at how many files and directories it has looked.

        Raises `NotFound`, and `ConfigurationError` for a prefix to which nothing can be bound.
        """
        if prefix is not None:
            _binding(prefix, None)
        self.check(writing=False)
        walk = self._tree.walk(split(path))
        # What only the store knows is compared, too.
        top = self.stat(path).entry if walk.missing else walk.last
        differ = Differ(joint=self._joint, content=self._content)
        yield from differ.differences(path, top, prefix, progress or (lambda looked: None))

    def _believe(self) -> None:
        """Take the store for the right one from now on. Raises `BucketNotFound`."""
        outside = self._joint.outside
        outside.prove(may_be_empty=True)
        mark = outside.mark()
        if mark is not None and outside.is_gone(mark):
            self._marks.put(mark)

    def _sync(self, directory: Entry, done: Synced, *, may_be_empty: bool) -> tuple[list[Entry], Synced]:
        """Synchronise one directory; return the directories in it."""
        for _ in self._backoff.attempts(self._clock):
            now = self._tree.again(directory)
            if now is None:
                path = self.path_of(directory.id)
                if path is None:  # deleted meanwhile
                    return [], done
                now = self._tree.walk(split(path)).last
                if now.id != directory.id:  # renamed again
                    continue
                directory = now
            if now.binding is None:  # unbound meanwhile
                return [], done
            level = level_of(self._joint, now)
            settled = self._joining.settle(now, level, may_be_empty=may_be_empty)
            new = [entry for entry in settled.made.values() if entry.data is not None]
            done = evolve(
                done,
                files=done.files + sum(entry.version == 1 for entry in new),
                updated=done.updated + sum(entry.version > 1 for entry in new),
                removed=done.removed + settled.removed,
            )
            if settled.whole:
                seen = {**level.seen, **settled.made}
                below = [entry for entry in seen.values() if entry.is_directory]
                unfit = done.unfit + level.unfit
                return below, evolve(done, directories=done.directories + 1, unfit=unfit)
        raise Conflict(f"others kept changing what is below {directory.name!r}; repeat it")

    def _bound_with(self, top: Entry, done: Collection[str]) -> list[Entry]:
        """Return, from top to bottom, a directory and what is bound with it, but what is `done`."""
        found: list[Entry] = []
        pending = [(top, top.binding)]
        while pending:
            directory, binding = pending.pop()
            if directory.id not in done:
                found.append(directory)
            if binding is None:
                continue
            for child in self._directories(directory):
                below = binding.below(child.name)
                if child.id in done or _is_at(child.binding, below):
                    pending.append((child, below))
        return found

    def _directory(self, path: str) -> Entry:
        names = split(path)
        walk = self._run(lambda: (None, self._planner.tree.walk(names)))
        if walk.missing:
            raise NotFound(f"there is nothing at {path!r}")
        if not walk.last.is_directory:
            raise NotADirectory(f"{path!r} is a file")
        return walk.last

    def _directories(self, directory: Entry) -> Iterator[Entry]:
        return (entry for entry in self._tree.entries(directory) if entry.is_directory)

    def _is_free(self, directory: Entry, child: Entry, below: Binding) -> bool:
        """Tell whether a directory that is in a bound one is to be bound with it."""
        if child.binding is not None:
            return child.binding.prefix == below.prefix
        return self._tree.tombstone(directory, f"{child.name}/") is None

    def _rebind(self, directory: Entry, binding: Binding | None) -> Entry:
        """Give a directory another binding; raise `NotFound` if it is not where it was."""

        def plan() -> tuple[Change | None, Entry]:
            now = self._tree.again(directory)
            if now is None:
                raise NotFound(f"directory {directory.name!r} was renamed, or deleted, meanwhile")
            return self._joining.bind(now, binding)

        return self._run(plan)


def _is_at(binding: Binding | None, other: Binding | None) -> bool:
    """Tell whether both are there, and of one prefix."""
    return binding is not None and other is not None and binding.prefix == other.prefix


def _binding(prefix: str, max_age: float | None) -> Binding:
    try:
        return Binding(prefix=prefix, max_age=max_age)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"no directory can be bound so: {error}") from error
