"""What plans share: their context, and the writes and conditions of which they consist.

A plan is a function that reads the namespace and returns one `Change` and its result. It writes nothing:
`transaction` applies the change, or plans again if the namespace has changed in between. The rules:

* Every write is on condition that the record is as it was read: an entry is still that version of that
  file or directory, or is still absent.
* Adding an entry writes a guard of the directory. A directory has guards as long as it is in use. So
  nothing is added to a directory that is being removed, and a directory that was found empty is removed
  only if no guard was written since.
* A directory that moves to another parent must not end up below itself. The directories above the old
  and the new parent, up to the first that both have in common, must be as they were read: see
  `plan_rename.links_to_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.errors import DirectoryNotEmpty, NotFound, PreconditionFailed
from commitlog.namespace.model.backing import tombstone_for
from commitlog.namespace.model.keys import TRASH, TRASH_SHARDS, Keys, shards_of
from commitlog.namespace.model.records import Directory, Entry, Garbage, Guard, Shards
from commitlog.namespace.tree import Tree, Walk
from commitlog.namespace.write.content import is_content
from commitlog.namespace.write.transaction import Change, PlanOutdated
from commitlog.tables.api import Absent, Equals, Key, TableCondition

__all__ = [
    "PlanContext",
    "add_directories",
    "add_entry",
    "add_garbage",
    "check_expected",
    "close_directory",
    "close_empty_directory",
    "delete_guards",
    "entry_key",
    "existing",
    "garbage_key",
    "leave_tombstone",
    "move_directory_record",
    "move_to_trash",
    "new_directories",
    "new_guard",
    "put_entry",
    "read_guards",
    "require_stable_path",
    "trash_key",
]


@frozen(kw_only=True)
class PlanContext:
    """What a plan reads and uses. Thread-safe.

    Attributes:
        tree: reads the namespace.
        keys: the keys of its records.
        clock: the clock for timestamps in records.
        new_id: returns a unique id, for entries and changes.
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

    def now(self) -> int:
        """Return the present epoch millisecond."""
        return int(self.clock.epoch() * 1000)

    def garbage_date(self) -> int:
        """Return the epoch millisecond until which content is kept that loses its reference now."""
        return self.now() + int(self.grace * 1000)


def existing(path: str, walk: Walk) -> Entry:
    """Return the entry at the end of a path lookup. Raises `NotFound`."""
    if walk.missing:
        raise NotFound(f"there is nothing at {path!r}")
    return walk.last


def check_expected(path: str, found: Entry | None, expected: Entry | None) -> None:
    """Raise `PreconditionFailed` if `expected` is not None and differs from `found`."""
    if expected is not None and (found is None or not _is_same(found, expected)):
        raise PreconditionFailed(f"{path!r} has changed since it was read; nothing was changed now")


def _is_same(found: Entry, expected: Entry) -> bool:
    if expected.is_stored:
        return (found.id, found.version) == (expected.id, expected.version)
    # `expected` was only in the store; it may have a row now. It is the same object, or the same prefix.
    if expected.binding is None:
        return found.data == expected.data
    return found.binding is not None and found.binding.prefix == expected.binding.prefix


def require_stable_path(context: PlanContext, change: Change, found: Sequence[Entry]) -> None:
    """With stable paths, require that each of the directories on a path still has its name."""
    if context.stable_paths:
        for entry in found[1:]:
            change.check(entry.key, Equals("id", entry.id))


# entries


def entry_key(context: PlanContext, parent: Entry, name: str) -> Key:
    """Return the key of a new entry."""
    shard = shards_of(name, parent.shards.now, parent.shards.first)[0]
    return context.keys.entry(parent.id, shard, name)


def add_entry(context: PlanContext, change: Change, parent: Entry, entry: Entry) -> None:
    """Add an entry to a directory, which the same change may have made."""
    put_entry(change, entry, Absent())
    # Only the shard for new entries needs the condition `Absent`. After a directory has grown, no
    # entries are added to its earlier shards, and they were searched after that.
    shards = parent.shards
    place = shards_of(entry.name, shards.now, shards.first)[0]
    if not change.writes_to(context.keys.guard(parent.id, place)):
        change.put(new_guard(context, parent, place, change.id), Equals("shards", shards.now))


def put_entry(change: Change, entry: Entry, condition: TableCondition) -> None:
    """Write an entry. Raises `PlanOutdated` if the change writes to its key already."""
    if change.writes_to(entry.key):
        raise PlanOutdated("a directory was renamed while two paths were looked up")
    change.put(entry, condition)


# directories


def new_directories(
    context: PlanContext, upper: Entry, names: Sequence[str], change_id: str, shards: Shards
) -> list[Entry]:
    """Return entries for a chain of nested directories below `upper`; the last one has `shards`."""
    now = context.now()
    made: list[Entry] = []
    for number, name in enumerate(names, 1):
        parent = made[-1] if made else upper
        binding = None if parent.binding is None else parent.binding.below(name)
        if binding is not None and not made and context.tree.tombstone(upper, f"{name}/") is not None:
            binding = None  # otherwise the directory would show the deleted objects again
        made.append(
            Entry(
                key=entry_key(context, parent, name),
                id=context.new_id(),
                version=1,
                change_id=change_id,
                created=now,
                modified=now,
                updated=now,
                shards=shards if number == len(names) else Shards(),
                binding=binding,
            )
        )
    return made


def add_directories(context: PlanContext, change: Change, upper: Entry, chain: Sequence[Entry]) -> None:
    """Add a chain of nested directories below `upper`, each with its record and its guards."""
    for parent, entry in pairwise([upper, *chain]):
        add_entry(context, change, parent, entry)
        if entry.binding is not None and parent is upper:
            change.check(context.keys.tombstone(parent.id, f"{entry.name}/"), Absent())
        key = context.keys.directory(entry.id)
        change.put(Directory(key=key, parent=parent.id, name=entry.name), Absent())
        for shard in range(entry.shards.now):
            change.put(new_guard(context, entry, shard, change.id), Absent())


def move_directory_record(
    context: PlanContext, change: Change, moved: Entry, parent: str, name: str, new_parent: str
) -> None:
    """Write the record of a moved directory, on condition that it has the old parent and name."""
    key = context.keys.directory(moved.id)
    before = Directory(key=key, parent=parent, name=name)
    change.put(Directory(key=key, parent=new_parent, name=moved.name), before.named())


def trash_key(context: PlanContext, directory: Entry) -> Key:
    """Return the key of a directory's entry in the trash."""
    place = shards_of(directory.id, TRASH_SHARDS, TRASH_SHARDS)[0]
    return context.keys.entry(TRASH, place, directory.id)


def move_to_trash(context: PlanContext, change: Change, parent: str, directory: Entry) -> None:
    """Move a directory from its parent to the trash."""
    moved = evolve(
        directory,
        key=trash_key(context, directory),
        version=directory.version + 1,
        change_id=change.id,
        updated=context.now(),
    )
    change.put(moved, Absent())
    move_directory_record(context, change, moved, parent, directory.name, TRASH)


# guards


def new_guard(context: PlanContext, directory: Entry, shard: int, change_id: str) -> Guard:
    """Return the guard of one shard of a directory, as a change writes it."""
    return Guard(
        key=context.keys.guard(directory.id, shard), shards=directory.shards.now, change_id=change_id
    )


def read_guards(context: PlanContext, directory: Entry) -> tuple[Guard, ...]:
    """Return the guards of a directory. Every later addition changes one of them."""
    guards = context.tree.guards(directory)
    if guards is None:
        raise PlanOutdated("the directory is being removed, or has grown")
    return guards


def close_directory(context: PlanContext, change: Change, directory: Entry) -> None:
    """Refuse all later additions to a directory, whether it is empty or not."""
    shards = directory.shards.now
    for shard in range(shards):
        change.delete(context.keys.guard(directory.id, shard), Equals("shards", shards))


def close_empty_directory(context: PlanContext, change: Change, path: str, directory: Entry) -> None:
    """Refuse all later additions to a directory, on condition that it is empty."""
    guards = read_guards(context, directory)
    if next(context.tree.entries(directory, page=directory.shards.now), None) is not None:
        raise DirectoryNotEmpty(f"directory {path!r} is not empty; nothing was changed")
    delete_guards(change, directory, guards)


def delete_guards(change: Change, directory: Entry, guards: Sequence[Guard]) -> None:
    """Refuse all later additions, on condition that none was made since the guards were read."""
    for guard in guards:
        change.delete(
            guard.key, Equals("shards", directory.shards.now) & Equals("change_id", guard.change_id)
        )


# removed content


def garbage_key(context: PlanContext, file: Entry, not_before: int) -> Key:
    """Return the key of the garbage record for the content of a file."""
    assert file.data is not None
    # Any number of files may refer to one object of another owner. A path that the library did not
    # make may be as long as a key.
    path = file.data.path
    short = file.data.own and is_content(path)
    return context.keys.garbage(not_before, path if short else f"{file.id}-{file.version}")


def add_garbage(
    context: PlanContext, change: Change, file: Entry, not_before: int | None = None
) -> None:
    """Record the content of a file as garbage: the file is removed or gets other content."""
    assert file.data is not None
    not_before = context.garbage_date() if not_before is None else not_before
    key = garbage_key(context, file, not_before)
    if change.writes_to(key):
        return  # two files had one object, which is not allowed; one garbage record is enough
    garbage = Garbage(
        key=key,
        file=file.id,
        version=file.version,
        change_id=change.id,
        not_before=not_before,
        data=file.data,
    )
    change.put(garbage, Absent())


def leave_tombstone(context: PlanContext, change: Change, directory: Entry, entry: Entry) -> None:
    """Hide the object or prefix of a removed entry, in case the store still has it.

    The write needs no condition: removing the entry is conditional on the entry, and only the client
    that removes it leaves a tombstone.
    """
    tombstone = tombstone_for(context.keys, directory, entry, change_id=change.id, now=context.now())
    if tombstone is not None:
        change.put(tombstone, None)
