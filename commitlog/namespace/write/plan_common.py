"""Building blocks of plans: records that are written together, and the conditions of their writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.errors import DirectoryNotEmpty, NotFound, PreconditionFailed
from commitlog.namespace.external.overlay import left_by
from commitlog.namespace.model.garbage import Garbage
from commitlog.namespace.model.keys import TRASH, TRASH_SHARDS, Keys, places_of
from commitlog.namespace.model.records import Directory, Entry, Guard, Shards
from commitlog.namespace.read.tree import Tree, Walk
from commitlog.namespace.write.content import is_content
from commitlog.namespace.write.transaction import Change, PlanOutdated
from commitlog.tables.api import Absent, Equals, Key, TableCondition

__all__ = ["Parts", "check_expected"]


@frozen(kw_only=True)
class Parts:
    """The parts from which changes of one namespace are composed. Thread-safe.

    Args:
        tree: reads the namespace.
        keys: of the namespace.
        clock: gives the times in records.
        new_id: makes ids of entries and of changes.
        grace: seconds for which content without references is kept for readers.
        stable_paths: whether a change also requires that every directory on its paths still has the name
            by which it was found.
    """

    tree: Tree
    keys: Keys
    clock: Clock
    new_id: Callable[[], str]
    grace: float
    stable_paths: bool

    def _existing(self, path: str, walk: Walk) -> Entry:
        if walk.missing:
            raise NotFound(f"there is nothing at {path!r}")
        return walk.last

    def _add(self, change: Change, parent: Entry, entry: Entry) -> None:
        """Add an entry to a directory, which the same change may have made."""
        self._put(change, entry, Absent())
        # Only the shard for new entries needs the condition `Absent`. After a directory has grown, no
        # entries are added to its earlier shards, and they were searched after that.
        shards = parent.shards
        place = places_of(entry.name, shards.now, shards.first)[0]
        if not change.writes_to(self.keys.gate(parent.id, place)):
            change.put(self._gate(parent, place, change.word), Equals("shards", shards.now))

    def _put(self, change: Change, entry: Entry, condition: TableCondition) -> None:
        if change.writes_to(entry.key):
            raise PlanOutdated("a directory was renamed while two paths were looked up")
        change.put(entry, condition)

    def _place(self, parent: Entry, name: str) -> Key:
        shard = places_of(name, parent.shards.now, parent.shards.first)[0]
        return self.keys.entry(parent.id, shard, name)

    def _gate(self, directory: Entry, shard: int, word: str) -> Guard:
        return Guard(key=self.keys.gate(directory.id, shard), shards=directory.shards.now, word=word)

    def _new_directories(
        self, upper: Entry, names: Sequence[str], word: str, shards: Shards
    ) -> list[Entry]:
        """Return entries for a chain of nested directories; the last one has `shards`."""
        now = self._now()
        made: list[Entry] = []
        for number, name in enumerate(names, 1):
            parent = made[-1] if made else upper
            binding = None if parent.binding is None else parent.binding.below(name)
            if binding is not None and not made and self.tree.tombstone(upper, f"{name}/") is not None:
                binding = None  # otherwise the directory would show the deleted objects again
            made.append(
                Entry(
                    key=self._place(parent, name),
                    id=self.new_id(),
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
        """Move a directory from its parent to the trash."""
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
        """Refuse all later additions to a directory, whether it is empty or not."""
        shards = directory.shards.now
        for shard in range(shards):
            change.delete(self.keys.gate(directory.id, shard), Equals("shards", shards))

    def _close_empty(self, change: Change, path: str, directory: Entry) -> None:
        """Refuse all later additions to a directory, on condition that it is empty."""
        gates = self._gates(directory)
        if next(self.tree.entries(directory, page=directory.shards.now), None) is not None:
            raise DirectoryNotEmpty(f"directory {path!r} is not empty; nothing was changed")
        self._close_gates(change, directory, gates)

    def _gates(self, directory: Entry) -> tuple[Guard, ...]:
        """Return the guards of a directory. Every later addition changes one of them."""
        gates = self.tree.gates(directory)
        if gates is None:
            raise PlanOutdated("the directory is being removed, or has grown")
        return gates

    def _close_gates(self, change: Change, directory: Entry, gates: Sequence[Guard]) -> None:
        """Refuse all later additions, on condition that none was made since the guards were read."""
        for gate in gates:
            change.delete(gate.key, Equals("shards", directory.shards.now) & Equals("word", gate.word))

    def _garbage_key(self, file: Entry, not_before: int) -> Key:
        assert file.data is not None
        # Any number of files may refer to one object of another owner. A path that the library did not
        # make may be as long as a key.
        path = file.data.path
        short = file.data.own and is_content(path)
        return self.keys.garbage(not_before, path if short else f"{file.id}-{file.version}")

    def _drop_data(self, change: Change, file: Entry, not_before: int | None = None) -> None:
        assert file.data is not None
        not_before = self._not_before() if not_before is None else not_before
        key = self._garbage_key(file, not_before)
        if change.writes_to(key):
            return  # two files had one object, which is not allowed; one garbage record is enough
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
        """Hide the object or prefix of a removed entry, in case the store still has it.

        The write needs no condition: removing the entry is conditional on the entry, and only the client
        that removes it leaves a tombstone.
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
    """Raise `PreconditionFailed` if `expected` is not None and differs from `found`."""
    if expected is not None and (found is None or not _is_still(found, expected)):
        raise PreconditionFailed(f"{path!r} has changed since it was read; nothing was changed now")


def _is_still(found: Entry, expected: Entry) -> bool:
    if expected.is_stored:
        return (found.id, found.version) == (expected.id, expected.version)
    # `expected` was only in the store; it may have a row now. It is the same object, or the same prefix.
    if expected.binding is None:
        return found.data == expected.data
    return found.binding is not None and found.binding.prefix == expected.binding.prefix
