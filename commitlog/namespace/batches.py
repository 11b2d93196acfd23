"""Many new files in one directory: in as few transactions as they take, some of them at once.

They are not made at one moment, so this is for directories at which nobody looks yet. Imports the ground
floor, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from typing import Any, TypeAlias

from attrs import define, field, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    AlreadyExists,
    Conflict,
    InvalidPath,
    NotADirectory,
    NotFound,
    TransactionTooLarge,
)
from commitlog.namespace.change import MAX_WRITES, Changes, Stale
from commitlog.namespace.keys import places_of, split, split_new
from commitlog.namespace.linking import NewFile, check_distinct
from commitlog.namespace.planning import Planner
from commitlog.namespace.records import Entry, Shards
from commitlog.namespace.tree import Tree, Walk
from commitlog.paths import join

__all__ = ["Batches", "Linked", "Mapper"]

#: What calls a function with each of several arguments, one after the other or at once: `map`, or that
#: of an executor.
Mapper: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@define
class Linked:
    """What has become of files that were to be made.

    Attributes:
        made: the names of those that were made.
        known: of those that were there already, with the same data.
        taken: for each name that something else has, the error.
    """

    made: set[str] = field(factory=set)
    known: set[str] = field(factory=set)
    taken: dict[str, AlreadyExists] = field(factory=dict)

    def told(self, files: int) -> str:
        """Return how many of so many files were made, for messages."""
        left = files - len(self.made) - len(self.known) - len(self.taken)
        return f"{len(self.made)} of {files} files were linked, and {left} were not"


@frozen(kw_only=True)
class Batches:
    """Links new files of one directory. Thread-safe.

    Args:
        planner, changes: those of the namespace.
        clock: waited on between attempts.
        backoff: how often it is tried again if others change the same.
        mapper: sends transactions.
    """

    planner: Planner
    changes: Changes
    clock: Clock
    backoff: Backoff
    mapper: Mapper = map

    def link(self, path: str, files: Mapping[str, NewFile], *, within: str | None = None) -> Linked:
        """Make files in the directory at `path`; return what has become of each.

        A name that has the same data is no error: then this was called before. What came then and was
        renamed or deleted since is made again, against the rule that an object is one file's. All come
        into one directory: if the path leads to another one before all of them are there, or to none,
        the error says how many came into the first one. If any error but a `NotFound` or
        `NotADirectory` that says nothing of that is raised, some of the files may be there.

        Args:
            path: of the directory.
            files: by name.
            within: id that the directory has to have; None: any.
        """
        check_distinct(files)
        for name in files:
            if len(split(name)) != 1:
                raise InvalidPath(f"{name!r} is not the name of a file in a directory")
            split_new(join(path, name))
        linked = Linked()
        left = dict(files)
        for attempt in self.backoff.attempts(self.clock):
            with contextlib.suppress(Stale):
                walk = self._walk(path, within, linked.told(len(files)) if attempt else "")
                within = walk.last.id
                # One shard, as it was made, tells by itself of each name whether it is new, unless an
                # object that has no row yet has it.
                grown = walk.last.shards.now > walk.last.shards.first
                if attempt or grown or not _rows_tell(walk.last, left):
                    left = self._new(path, walk.last, left, linked)
                refused = self._send(walk, left)
                linked.made.update(left.keys() - refused)
                left = {name: left[name] for name in refused}
                if not left:
                    return linked
            self.planner.tree.forget()
        raise Conflict(
            f"somebody else kept changing directory {path!r}: {linked.told(len(files))}; repeat it"
        )

    def _walk(self, path: str, within: str | None, told: str) -> Walk:
        walk = self.planner.tree.walk(split(path))
        if walk.missing:
            more = f" any more: {told}" if told else ""
            raise NotFound(f"there is no directory {path!r}{more}")
        if not walk.last.is_directory:
            more = f", and was a directory: {told}" if told else "; nothing can be linked into it"
            raise NotADirectory(f"{path!r} is a file{more}")
        if within is not None and walk.last.id != within:
            raise Conflict(
                f"there is another directory at {path!r} now: {told or 'nothing was linked into it'}"
            )
        return walk

    def _new(
        self,
        path: str,
        directory: Entry,
        files: Mapping[str, NewFile],
        linked: Linked,
    ) -> dict[str, NewFile]:
        """Return those of which there is nothing yet. An object that has no row yet is to get it."""
        tree = self.planner.tree
        if _rows_tell(directory, files):
            tree = Tree(tree.table, tree.keys)
        # A directory with no more than that is listed in fewer requests than its names are looked up.
        first = {entry.name: entry for entry in islice(tree.entries(directory), len(files) + 1)}
        listed = len(first) <= len(files)
        new: dict[str, NewFile] = {}
        for name, file in files.items():
            found = first.get(name) if listed else tree.find(directory, name)
            if found is None:
                new[name] = file
            elif found.data != file.data:
                linked.taken[name] = AlreadyExists(f"there is something else at {join(path, name)!r}")
            elif found.is_stored:
                linked.known.add(name)
            else:
                new[name] = file
        return new

    def _send(self, walk: Walk, files: Mapping[str, NewFile]) -> list[str]:
        """Link files; return the names of those whose transactions were refused."""
        pins = len(walk.found) - 1 if self.planner.stable_paths else 0
        lanes, rest = _batches(files, walk.last.shards, max(1, MAX_WRITES - 1 - pins))

        def send(lane: list[list[str]]) -> list[str]:
            return list(chain.from_iterable(self._refused(walk, files, batch) for batch in lane))

        refused = list(chain.from_iterable(self.mapper(send, lanes)))
        for some in (rest[::2], rest[1::2]):
            refused += chain.from_iterable(self.mapper(send, [[batch] for batch in some]))
        return refused

    def _refused(self, walk: Walk, files: Mapping[str, NewFile], batch: list[str]) -> list[str]:
        """Link files, with one transaction unless that is too large; return the names of the others."""
        try:
            self.changes.apply(self.planner.link_new(walk.found, {name: files[name] for name in batch}))
        except Stale:
            return batch
        except TransactionTooLarge:
            if len(batch) == 1:
                raise
            half = len(batch) // 2
            return [
                *self._refused(walk, files, batch[:half]),
                *self._refused(walk, files, batch[half:]),
            ]
        return []


def _rows_tell(directory: Entry, files: Mapping[str, NewFile]) -> bool:
    """Tell whether only rows can be in the way of new files: what the store has are these themselves."""
    binding = directory.binding
    return binding is None or all(
        not file.data.own and file.data.path == binding.path_of(name) for name, file in files.items()
    )


def _batches(
    names: Iterable[str], shards: Shards, size: int
) -> tuple[list[list[list[str]]], list[list[str]]]:
    """Return what comes in one transaction each, so that few of them have a shard in common.

    Args:
        names: of new files.
        shards: of the directory.
        size: most files of one shard that a transaction takes, beside the gate.

    Returns first, for each shard, full transactions, to be sent one after the other; then, from all of
    them, what is left, in transactions of which only neighbours have a shard in common.

    >>> _batches("abcde", Shards(), 2)
    ([[['a', 'b'], ['c', 'd']]], [['e']])
    """
    by_shard: dict[int, list[str]] = defaultdict(list)
    for name in names:
        by_shard[places_of(name, shards.now, shards.first)[0]].append(name)
    lanes: list[list[list[str]]] = []
    ends: list[list[str]] = []
    writes = size + 1
    for _, here in sorted(by_shard.items()):
        full = len(here) - len(here) % size
        if full:
            lanes.append([here[at : at + size] for at in range(0, full, size)])
        for number, name in enumerate(here[full:]):
            writes += 1 + (number == 0)
            if writes > size + 1:
                ends.append([])
                writes = 2
            ends[-1].append(name)
    return lanes, ends
