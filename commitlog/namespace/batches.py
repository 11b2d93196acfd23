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

from attrs import frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import AlreadyExists, Conflict, InvalidPath, NotADirectory, NotFound
from commitlog.namespace.change import MAX_WRITES, Changes, Stale
from commitlog.namespace.keys import places_of, split
from commitlog.namespace.linking import NewFile, check_distinct
from commitlog.namespace.planning import Planner
from commitlog.namespace.records import Entry, Shards
from commitlog.namespace.tree import Walk
from commitlog.paths import join

__all__ = ["Batches", "Mapper"]

#: What calls a function with each of several arguments, one after the other or at once: `map`, or that
#: of an executor.
Mapper: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


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

    def link(self, path: str, files: Mapping[str, NewFile]) -> dict[str, AlreadyExists]:
        """Make files in the directory at `path`; return an error for each name that something else has.

        A name that has the same data is no error: then this was called before. What came then and was
        renamed or deleted since is made again, against the rule that an object is one file's. If
        anything but a `NotFound` or `NotADirectory` of the directory is raised, some of the files may be
        there.
        """
        check_distinct(files)
        for name in files:
            if len(split(name)) != 1:
                raise InvalidPath(f"{name!r} is not the name of a file in a directory")
        taken: dict[str, AlreadyExists] = {}
        left = dict(files)
        for attempt in self.backoff.attempts(self.clock):
            with contextlib.suppress(Stale):
                walk = self._walk(path)
                # One shard, as it was made, tells by itself of each name whether it is new, unless
                # there are objects that have no rows yet.
                grown = walk.last.shards.now > walk.last.shards.first
                if attempt or grown or walk.last.binding is not None:
                    left = self._new(path, walk.last, left, taken)
                left = self._send(walk, left)
                if not left:
                    return taken
            self.planner.tree.forget()
        raise Conflict(
            f"somebody else kept changing directory {path!r}: {len(left)} of {len(files)} files were not"
            " linked; repeat it"
        )

    def _walk(self, path: str) -> Walk:
        walk = self.planner.tree.walk(split(path))
        if walk.missing:
            raise NotFound(f"there is no directory {path!r}")
        if not walk.last.is_directory:
            raise NotADirectory(f"{path!r} is a file; nothing can be linked into it")
        return walk

    def _new(
        self,
        path: str,
        directory: Entry,
        files: Mapping[str, NewFile],
        taken: dict[str, AlreadyExists],
    ) -> dict[str, NewFile]:
        """Return those of which there is nothing yet."""
        tree = self.planner.tree
        # A directory with no more than that is listed in fewer requests than its names are looked up.
        first = {entry.name: entry for entry in islice(tree.entries(directory), len(files) + 1)}
        listed = len(first) <= len(files)
        new: dict[str, NewFile] = {}
        for name, file in files.items():
            found = first.get(name) if listed else tree.find(directory, name)
            if found is None:
                new[name] = file
            elif found.data != file.data:
                taken[name] = AlreadyExists(f"there is something else at {join(path, name)!r}")
        return new

    def _send(self, walk: Walk, files: Mapping[str, NewFile]) -> dict[str, NewFile]:
        """Link files; return those whose transactions were refused."""
        pins = len(walk.found) - 1 if self.planner.stable_paths else 0
        lanes, rest = _batches(files, walk.last.shards, max(1, MAX_WRITES - 1 - pins))

        def send(lane: list[list[str]]) -> list[str]:
            return list(
                chain.from_iterable(batch for batch in lane if not self._done(walk, files, batch))
            )

        refused = list(chain.from_iterable(self.mapper(send, lanes)))
        for some in (rest[::2], rest[1::2]):
            refused += chain.from_iterable(self.mapper(send, [[batch] for batch in some]))
        return {name: files[name] for name in refused}

    def _done(self, walk: Walk, files: Mapping[str, NewFile], batch: list[str]) -> bool:
        try:
            self.changes.apply(self.planner.link_new(walk.found, {name: files[name] for name in batch}))
        except Stale:
            return False
        return True


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
