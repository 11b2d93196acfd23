"""Plans that create files from objects in the store, update them, and remove them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from attrs import evolve, frozen

from commitlog._util.concurrency import SERIAL, Executor
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    IsADirectory,
    NotADirectory,
    NotFound,
    TransactionTooLarge,
)
from commitlog.namespace.model.backing import refreshed
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import split, split_new
from commitlog.namespace.model.records import Entry, Shards
from commitlog.namespace.tree import Walk
from commitlog.namespace.write.plan_common import (
    PlanContext,
    add_directories,
    add_entry,
    add_garbage,
    entry_key,
    garbage_key,
    leave_tombstone,
    new_directories,
    put_entry,
    require_stable_path,
)
from commitlog.namespace.write.transaction import Change
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import MAX_TRANSACTION_WRITES

__all__ = [
    "NewFile",
    "check_apart",
    "check_creatable",
    "check_distinct",
    "plan_bulk_link",
    "plan_link",
    "plan_object_update",
    "plan_remove_files",
]

_EMPTY: Mapping[str, str] = MappingProxyType({})
_FEWER = "Make the upper directories first, and link fewer files at once"


@frozen(kw_only=True)
class NewFile:
    """A file to create.

    Attributes:
        data: the reference to its content.
        modified: epoch millisecond; None: now.
        attributes: the users' attributes.
    """

    data: Data
    modified: int | None = None
    attributes: Mapping[str, str] = _EMPTY


def check_distinct(files: Mapping[str, NewFile]) -> None:
    """Raise `ConfigurationError` if two files would share an object that the namespace owns."""
    names: dict[str, str] = {}
    for name, file in files.items():
        other = names.setdefault(file.data.path, name)
        if file.data.own and other != name:
            raise ConfigurationError(
                f"{other!r} and {name!r} would have the same object {file.data.path!r}, which is"
                " removed when one of them is deleted; nothing was linked"
            )


def check_apart(files: Mapping[str, NewFile]) -> None:
    """Raise `InvalidPath` for a wrong path, `NotADirectory` for one that leads through another one."""
    for path in files:
        names = split(path)
        for length in range(1, len(names)):
            if (above := "/".join(names[:length])) in files:
                raise NotADirectory(
                    f"{path!r} leads through {above!r}, which is to be a file; nothing was written"
                )


def check_creatable(context: PlanContext, path: str, *, overwrite: bool, parents: bool) -> None:
    """Raise the errors that `plan_link` would raise for a path, before there is any data."""
    _check_creatable(path, context.tree.walk(split_new(path)), overwrite=overwrite, parents=parents)


def _check_creatable(path: str, walk: Walk, *, overwrite: bool, parents: bool) -> None:
    if not walk.missing:
        if not overwrite:
            raise AlreadyExists(f"there is something at {path!r} already; nothing was written")
        if walk.last.is_directory:
            raise IsADirectory(f"{path!r} is a directory; nothing was written")
    elif not walk.last.is_directory:
        raise NotADirectory(f"{path!r} leads through a file; nothing was written")
    elif len(walk.missing) > 1 and not parents:
        raise NotFound(f"the directory of {path!r} does not exist; nothing was written")


def plan_link(
    context: PlanContext,
    files: Mapping[str, NewFile],
    *,
    overwrite: bool,
    parents: bool,
    executor: Executor = SERIAL,
) -> tuple[Change | None, dict[str, Entry]]:
    """Plan to create or overwrite a file at each path; return the change, and the new entries.

    The names of each level are read with one call of `executor.map`.
    """
    if len(files) > MAX_TRANSACTION_WRITES:
        raise TransactionTooLarge(
            f"linking {len(files)} files takes at least as many writes in one transaction, and the"
            f" limit is {MAX_TRANSACTION_WRITES}; nothing was sent. {_FEWER}"
        )
    if not files:
        return None, {}
    check_distinct(files)
    check_apart(files)
    walks = _walks(context, files, overwrite=overwrite, parents=parents, executor=executor)
    first = next(iter(walks.values()))
    what = "create a file" if first.missing else "overwrite a file"
    change = Change(what if len(files) == 1 else "link files", context.new_id(), first.last.key, _FEWER)
    made: dict[tuple[str, ...], Entry] = {}
    new: dict[str, Entry] = {}
    kept = {file.data.path for file in files.values()}  # in use, also if this call is a repetition
    for path, walk in walks.items():
        old = walk.last
        if walk.missing:
            parent = _parent(context, change, path, walk, made)
            new[path] = entry = _new_file(context, parent, walk.missing[-1], files[path], change.id)
            add_entry(context, change, parent, entry)
            continue
        new[path] = entry = _next_version(context, old, files[path], change.id)
        put_entry(change, entry, old.unchanged())
        if old.data is not None and old.data.path != files[path].data.path:
            leave_tombstone(context, change, walk.found[-2], old)
        if old.data is not None and old.data.path not in kept:
            add_garbage(context, change, old)
    for walk in walks.values():
        require_stable_path(context, change, walk.found if walk.missing else walk.found[:-1])
    change.primary = next(iter(new.values())).key
    return change, new


def plan_bulk_link(context: PlanContext, above: Sequence[Entry], files: Mapping[str, NewFile]) -> Change:
    """Plan to add new files to a directory, by name.

    Args:
        context: the context.
        above: the directories from the root to this one, included.
        files: none of them may be in a shard from before the directory grew.
    """
    directory = above[-1]
    change_id = context.new_id()
    new = [_new_file(context, directory, name, file, change_id) for name, file in files.items()]
    change = Change("link files", change_id, new[0].key, _FEWER)
    for entry in new:
        add_entry(context, change, directory, entry)
    require_stable_path(context, change, above)
    return change


def plan_object_update(
    context: PlanContext, path: str, info: ObjectInfo
) -> tuple[Change | None, Entry | None]:
    """Plan to update the file at `path` to its object, which other programs own and have changed.

    The entry is None if the path does not exist; the change is None if nothing has to be written.
    """
    walk = context.tree.walk(split(path))
    if walk.missing:
        return None, None
    old = walk.last
    if old.data is None or old.data.own or old.data.path != info.path:
        raise AlreadyExists(f"there is something else at {path!r}; it stays as it is")
    if (updated := refreshed(old, info)) is old:
        return None, old
    change = Change("overwrite a file", context.new_id(), old.key)
    new = evolve(updated, version=old.version + 1, change_id=change.id, updated=context.now())
    change.put(new, old.unchanged())
    require_stable_path(context, change, walk.found[:-1])
    return change, new


def plan_remove_files(context: PlanContext, files: Sequence[Entry]) -> Change:
    """Plan to remove files, and to record their content as garbage."""
    not_before = context.garbage_date()
    change = Change("delete files", context.new_id(), garbage_key(context, files[0], not_before))
    for file in files:
        change.delete(file.key, file.unchanged())
        add_garbage(context, change, file, not_before)
    return change


def _walks(
    context: PlanContext, paths: Iterable[str], *, overwrite: bool, parents: bool, executor: Executor
) -> dict[str, Walk]:
    """Look up all paths; common parts are looked up once."""
    names = {path: split_new(path) for path in paths}
    found = context.tree.walk_all(names.values(), executor=executor)
    walks = {path: found[each] for path, each in names.items()}
    for path, walk in walks.items():
        _check_creatable(path, walk, overwrite=overwrite, parents=parents)
    return walks


def _parent(
    context: PlanContext, change: Change, path: str, walk: Walk, made: dict[tuple[str, ...], Entry]
) -> Entry:
    """Return the parent directory of a new file; plan to create it if it is missing.

    `made` has the directories that the change creates, by their names from the root.
    """
    names = split(path)
    upper, at = walk.last, len(walk.found) - 1
    while names[: at + 1] in made:
        at += 1
        upper = made[names[:at]]
    chain = new_directories(context, upper, names[at:-1], change.id, Shards())
    made.update((names[:length], entry) for length, entry in enumerate(chain, at + 1))
    add_directories(context, change, upper, chain)
    return chain[-1] if chain else upper


def _new_file(context: PlanContext, parent: Entry, name: str, file: NewFile, change_id: str) -> Entry:
    now = context.now()
    modified = now if file.modified is None else file.modified
    return Entry(
        key=entry_key(context, parent, name),
        id=context.new_id(),
        version=1,
        change_id=change_id,
        created=modified,
        modified=modified,
        updated=now,
        data=file.data,
        attributes=file.attributes,
    )


def _next_version(context: PlanContext, old: Entry, file: NewFile, change_id: str) -> Entry:
    now = context.now()
    return evolve(
        old,
        version=old.version + 1,
        change_id=change_id,
        modified=now if file.modified is None else file.modified,
        updated=now,
        data=file.data,
        attributes=file.attributes,
    )
