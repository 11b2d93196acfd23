"""Plans of directories, deletions and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    InvalidPath,
    NotADirectory,
    NotFound,
)
from commitlog.namespace.model.codec import attributes_of
from commitlog.namespace.model.keys import ROOT, TRASH, split, split_new
from commitlog.namespace.model.records import Directory, Entry, Shards
from commitlog.namespace.write.plan_common import (
    PlanContext,
    add_directories,
    check_expected,
    close_directory,
    close_empty_directory,
    existing,
    leave_tombstone,
    move_to_trash,
    new_directories,
    new_guard,
    require_stable_path,
    trash_key,
)
from commitlog.namespace.write.plan_files import plan_remove_files
from commitlog.namespace.write.transaction import Change
from commitlog.oplog.validate import count
from commitlog.tables.api import Absent, Equals

__all__ = [
    "plan_delete",
    "plan_directories",
    "plan_make_directory",
    "plan_remove_trashed",
    "plan_reshard",
    "plan_set_attributes",
    "plan_trash_directory",
]

_MAKE_UPPER = "Make the upper directories first"


def plan_make_directory(
    context: PlanContext, path: str, *, shards: int, exist_ok: bool = True, parents: bool = True
) -> tuple[Change | None, Entry]:
    """Plan to create the directory `path` and those above it; the change is None if they exist."""
    change, found = _plan_directories(context, path, _shards(shards), exist_ok=exist_ok, parents=parents)
    return change, found[-1]


def plan_directories(
    context: PlanContext, path: str, known: Sequence[Entry]
) -> tuple[Change | None, tuple[Entry, ...]]:
    """Plan to create the directory `path` and those above it; return all of them, the root first.

    Args:
        context: the context.
        path: the path of the directory.
        known: the first directories on the path, as they were read before.

    Raises `Conflict` if the path does not lead through the last of `known` any more.
    """
    return _plan_directories(context, path, Shards(), known=known)


def _plan_directories(
    context: PlanContext,
    path: str,
    wanted: Shards,
    *,
    exist_ok: bool = True,
    parents: bool = True,
    known: Sequence[Entry] = (),
) -> tuple[Change | None, tuple[Entry, ...]]:
    walk = context.tree.walk(split_new(path))
    at = len(known) - 1
    if known and (at >= len(walk.found) or walk.found[at].id != known[at].id):
        raise Conflict(f"{'/'.join(entry.name for entry in known[1:])!r} was renamed, or deleted")
    if not walk.last.is_directory:
        if walk.missing:
            raise NotADirectory(f"{path!r} leads through a file; nothing was made")
        raise AlreadyExists(f"{path!r} is a file; nothing was made")
    if not walk.missing:
        if not exist_ok:
            raise AlreadyExists(f"there is a directory at {path!r} already; nothing was made")
        return None, walk.found
    if len(walk.missing) > 1 and not parents:
        raise NotFound(f"the directory of {path!r} does not exist; nothing was made")
    change_id = context.new_id()
    chain = new_directories(context, walk.last, walk.missing, change_id, wanted)
    change = Change("make directories", change_id, chain[-1].key, _MAKE_UPPER)
    add_directories(context, change, walk.last, chain)
    require_stable_path(context, change, walk.found)
    return change, (*walk.found, *chain)


def plan_reshard(context: PlanContext, path: str, *, shards: int) -> tuple[Change | None, Entry]:
    """Plan to spread a directory over more shards; the change is None if it has as many already."""
    wanted = _shards(shards)
    walk = context.tree.walk(split(path))
    entry = existing(path, walk)
    if not entry.is_directory:
        raise NotADirectory(f"{path!r} is a file; nothing was changed")
    before = entry.shards.now
    if wanted.now <= before:
        return None, entry
    change = Change("grow a directory", context.new_id(), entry.key)
    new = evolve(
        entry,
        version=entry.version + 1,
        change_id=change.id,
        updated=context.now(),
        shards=Shards(now=wanted.now, first=entry.shards.first),
    )
    change.put(new, entry.unchanged())
    for shard in range(wanted.now):
        condition = Equals("shards", before) if shard < before else Absent()
        change.put(new_guard(context, new, shard, change.id), condition)
    require_stable_path(context, change, walk.found[:-1])
    return change, new


def plan_delete(
    context: PlanContext, path: str, *, recursive: bool, expected: Entry | None = None
) -> tuple[Change, None]:
    """Plan to delete `path`; given `expected`, only if that version is there."""
    walk = context.tree.walk(split(path))
    entry = existing(path, walk)
    check_expected(path, entry, expected)
    if entry.id == ROOT:
        raise InvalidPath("the root cannot be deleted")
    if entry.is_directory:
        must_be_empty = None if recursive else path
        change = plan_trash_directory(context, walk.found[-2].id, entry, path=must_be_empty)
    else:
        change = plan_remove_files(context, [entry])
    leave_tombstone(context, change, walk.found[-2], entry)
    require_stable_path(context, change, walk.found[:-1])
    return change, None


def plan_trash_directory(
    context: PlanContext, parent: str, entry: Entry, *, path: str | None = None
) -> Change:
    """Plan to move a directory to the trash, and to refuse later additions to it.

    Args:
        context: the context.
        parent: id of the directory that contains it.
        entry: the directory.
        path: if given, the directory has to be empty; the error names this path.
    """
    change = Change("delete a directory", context.new_id(), trash_key(context, entry))
    change.delete(entry.key, entry.unchanged())
    move_to_trash(context, change, parent, entry)
    if path is not None:
        close_empty_directory(context, change, path, entry)
    else:
        close_directory(context, change, entry)
    return change


def plan_remove_trashed(context: PlanContext, trashed: Entry) -> Change:
    """Plan to remove an empty directory from the trash."""
    key = context.keys.directory(trashed.id)
    change = Change("empty the trash", context.new_id(), trashed.key)
    change.delete(trashed.key, trashed.unchanged())
    named = Directory(key=key, parent=TRASH, name=trashed.name).named()
    change.delete(key, named)
    return change


def plan_set_attributes(
    context: PlanContext,
    path: str,
    *,
    modified: int | None,
    attributes: Mapping[str, str | None],
    expected: Entry | None = None,
) -> tuple[Change, Entry]:
    """Plan to set attributes; those with the value None are removed, the others stay."""
    walk = context.tree.walk(split(path))
    entry = existing(path, walk)
    check_expected(path, entry, expected)
    merged = {**entry.attributes, **attributes}
    change = Change("set attributes", context.new_id(), entry.key)
    new = evolve(
        entry,
        version=entry.version + 1,
        change_id=change.id,
        modified=entry.modified if modified is None else count(max(0, modified)),
        updated=context.now(),
        attributes=attributes_of({name: value for name, value in merged.items() if value is not None}),
    )
    change.put(new, entry.unchanged())
    require_stable_path(context, change, walk.found[:-1])
    return change, new


def _shards(number: int) -> Shards:
    try:
        return Shards(now=number, first=number)
    except ValueError as error:
        raise ConfigurationError(f"a directory has 1, 2, 4, … or 64 shards, not {number!r}") from error
