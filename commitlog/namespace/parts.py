"""What changes of a namespace are made of: records that come and go together, and their conditions.

Imports the ground floor, its siblings and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.errors import DirectoryNotEmpty, NotFound, PreconditionFailed
from commitlog.namespace.change import Change, Stale
from commitlog.namespace.content import is_content
from commitlog.namespace.joint import left_by
from commitlog.namespace.keys import TRASH, TRASH_SHARDS, Keys, places_of
from commitlog.namespace.leftovers import Garbage
from commitlog.namespace.records import Directory, Entry, Gate, Shards
from commitlog.namespace.tree import Tree, Walk
from commitlog.tables.api import Absent, Equals, Key, TableCondition

__all__ = ["Parts", "check_expected"]


@frozen(kw_only=True)
class Parts:
    """Puts changes of one namespace together. Thread-safe.

    Args:
        tree: reads it.
        keys: its keys.
        clock: dates what is written.
        words: makes ids, and the words of changes.
        grace: seconds for which data that nothing names any more is kept for those who read it.
        stable_paths: whether a change also requires that every directory on its paths still has the name
            by which it was found.
    """

    tree: Tree
    keys: Keys
    clock: Clock
    words: Callable[[], str]
    grace: float
    stable_paths: bool

    def _existing(self, path: str, walk: Walk) -> Entry:
        if walk.missing:
            raise NotFound(f"there is nothing at {path!r}")
        return walk.last

    def _add(self, change: Change, parent: Entry, entry: Entry) -> None:
        """Add an entry to a directory, which may be one that the same change has made."""
        self._put(change, entry, Absent())
        # Not in an earlier shard, either: once a directory has grown, nothing is added there, and it was
        # looked into after that.
        shards = parent.shards
        place = places_of(entry.name, shards.now, shards.first)[0]
        if not change.writes_to(self.keys.gate(parent.id, place)):
            change.put(self._gate(parent, place, change.word), Equals("shards", shards.now))

    def _put(self, change: Change, entry: Entry, condition: TableCondition) -> None:
        if change.writes_to(entry.key):
            raise Stale("a directory was renamed while it was looked for on two paths")
        change.put(entry, condition)

    def _place(self, parent: Entry, name: str) -> Key:
        shard = places_of(name, parent.shards.now, parent.shards.first)[0]
        return self.keys.entry(parent.id, shard, name)

    def _gate(self, directory: Entry, shard: int, word: str) -> Gate:
        return Gate(key=self.keys.gate(directory.id, shard), shards=directory.shards.now, word=word)

    def _new_directories(
        self, upper: Entry, names: Sequence[str], word: str, shards: Shards
    ) -> list[Entry]:
        """Return entries for directories, each in the one before; the last has `shards`."""
        now = self._now()
        made: list[Entry] = []
        for number, name in enumerate(names, 1):
            parent = made[-1] if made else upper
            binding = None if parent.binding is None else parent.binding.below(name)
            if binding is not None and not made and self.tree.tombstone(upper, f"{name}/") is not None:
                binding = None  # or what was deleted would be in it again
            made.append(
                Entry(
                    key=self._place(parent, name),
                    id=self.words(),
                    version=1,
                    word=word,
                    created=now,
                    modified=now,
                    updated=now,
                    shards=shards if number == len(names) else Shards(),
                    binding=binding,
                )
            )
        return made

    def _make_directories(self, change: Change, upper: Entry, made: Sequence[Entry]) -> None:
        for parent, entry in pairwise([upper, *made]):
            self._add(change, parent, entry)
            if entry.binding is not None and parent is upper:
                change.check(self.keys.tombstone(parent.id, f"{entry.name}/"), Absent())
            key = self.keys.directory(entry.id)
            change.put(Directory(key=key, parent=parent.id, name=entry.name), Absent())
            for shard in range(entry.shards.now):
                change.put(self._gate(entry, shard, change.word), Absent())

    def _redirect(self, change: Change, moved: Entry, parent: str, name: str, new_parent: str) -> None:
        key = self.keys.directory(moved.id)
        before = Directory(key=key, parent=parent, name=name)
        change.put(Directory(key=key, parent=new_parent, name=moved.name), before.named())

    def _trash_key(self, directory: Entry) -> Key:
        place = places_of(directory.id, TRASH_SHARDS, TRASH_SHARDS)[0]
        return self.keys.entry(TRASH, place, directory.id)

    def _trash(self, change: Change, parent: str, directory: Entry) -> None:
        """Have the trash name a directory, instead of its parent."""
        moved = evolve(
            directory,
            key=self._trash_key(directory),
            version=directory.version + 1,
            word=change.word,
            updated=self._now(),
        )
        change.put(moved, Absent())
        self._redirect(change, moved, parent, directory.name, TRASH)

    def _close(self, change: Change, directory: Entry) -> None:
        """Let nothing be added to a directory any more, whatever it has."""
        shards = directory.shards.now
        for shard in range(shards):
            change.delete(self.keys.gate(directory.id, shard), Equals("shards", shards))

    def _close_empty(self, change: Change, path: str, directory: Entry) -> None:
        """Let nothing be added to a directory any more, on condition that it is empty."""
        gates = self._gates(directory)
        if next(self.tree.entries(directory, page=directory.shards.now), None) is not None:
            raise DirectoryNotEmpty(f"directory {path!r} is not empty; nothing was changed")
        self._close_gates(change, directory, gates)

    def _gates(self, directory: Entry) -> tuple[Gate, ...]:
        """Return the gates of a directory. What is added after that changes one of them."""
        gates = self.tree.gates(directory)
        if gates is None:
            raise Stale("the directory is being removed, or has grown")
        return gates

    def _close_gates(self, change: Change, directory: Entry, gates: Sequence[Gate]) -> None:
        """Let nothing be added to a directory any more, if nothing was since its gates were read."""
        for gate in gates:
            change.delete(gate.key, Equals("shards", directory.shards.now) & Equals("word", gate.word))

    def _garbage_key(self, file: Entry, not_before: int) -> Key:
        assert file.data is not None
        # Of others' objects any number of files may have one. A path that is not of the library's making
        # may be as long as a key.
        path = file.data.path
        short = file.data.own and is_content(path)
        return self.keys.garbage(not_before, path if short else f"{file.id}-{file.version}")

    def _drop_data(self, change: Change, file: Entry, not_before: int | None = None) -> None:
        assert file.data is not None
        not_before = self._not_before() if not_before is None else not_before
        key = self._garbage_key(file, not_before)
        if change.writes_to(key):
            return  # of two files that have one object, against the rules, one is enough
        garbage = Garbage(
            key=key,
            file=file.id,
            version=file.version,
            word=change.word,
            not_before=not_before,
            data=file.data,
        )
        change.put(garbage, Absent())

    def _leave(self, change: Change, directory: Entry, entry: Entry) -> None:
        """Have a directory show no more what it does not have any more, if the store still has that.

        It takes no condition: the entry goes on condition that it is there, and others leave none.
        """
        tombstone = left_by(self.keys, directory, entry, word=change.word, now=self._now())
        if tombstone is not None:
            change.put(tombstone, None)

    def _pin(self, change: Change, found: Sequence[Entry]) -> None:
        if self.stable_paths:
            for entry in found[1:]:
                change.check(entry.key, Equals("id", entry.id))

    def _not_before(self) -> int:
        return self._now() + int(self.grace * 1000)

    def _now(self) -> int:
        return int(self.clock.epoch() * 1000)


def check_expected(path: str, found: Entry | None, expected: Entry | None) -> None:
    """Raise `PreconditionFailed` if something is expected, and it is not that which was found."""
    if expected is not None and (found is None or not _is_still(found, expected)):
        raise PreconditionFailed(
            f"{path!r} has been changed since it was looked at; nothing was changed now"
        )


def _is_still(found: Entry, expected: Entry) -> bool:
    if expected.is_stored:
        return (found.id, found.version) == (expected.id, expected.version)
    # What only the store knew then, and may have a row by now: it is that object, or that prefix.
    if expected.binding is None:
        return found.data == expected.data
    return found.binding is not None and found.binding.prefix == expected.binding.prefix
