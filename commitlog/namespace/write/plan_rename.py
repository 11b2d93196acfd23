"""Plans that rename a file or directory, with or without replacing the one at the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import evolve

from commitlog.errors import AlreadyExists, InvalidPath, IsADirectory, NotADirectory, NotFound
from commitlog.namespace.model.codec import attributes_of
from commitlog.namespace.model.keys import ROOT, split, split_new
from commitlog.namespace.model.records import Entry, Guard
from commitlog.namespace.tree import Walk
from commitlog.namespace.write.plan_common import (
    PlanContext,
    add_entry,
    add_garbage,
    check_expected,
    close_directory,
    close_empty_directory,
    delete_guards,
    entry_key,
    existing,
    leave_tombstone,
    move_directory_record,
    move_to_trash,
    read_guards,
    require_stable_path,
)
from commitlog.namespace.write.transaction import Change, PlanOutdated
from commitlog.tables.api import Equals

__all__ = ["links_to_check", "plan_rename", "plan_replace"]

_NEARER = "Rename it in steps: first to a directory that is nearer to both paths"


def plan_rename(
    context: PlanContext, source: str, target: str, *, overwrite: bool, into: Entry | None = None
) -> tuple[Change | None, Entry]:
    """Plan to rename `source` to `target`; the change is None if both are the same path.

    Args:
        context: the context.
        source, target: paths.
        overwrite: replace a file, or an empty directory, at the target.
        into: if given, the parent directory of the target must still be this version.
    """
    return _plan_move(context, source, target, overwrite=overwrite, whole=False, into=into)


def plan_replace(
    context: PlanContext,
    source: str,
    target: str,
    *,
    expected: Entry | None,
    inherit: Callable[[Entry], Mapping[str, str]] | None = None,
) -> tuple[Change | None, Entry]:
    """Plan to move the directory at `source` to `target`, and the one there to the trash.

    Given `inherit`, the moved directory gets the attributes that it returns for the replaced one,
    and the change is on condition that no entry was added to the replaced one since.
    """
    from_names, to_names = split(source), split_new(target)
    if not to_names:
        raise InvalidPath("the root cannot be replaced")
    if from_names[: len(to_names)] == to_names != from_names:
        raise InvalidPath(
            f"{source!r} is in {target!r}, and would go into the trash with it: rename it to another"
            " directory first"
        )
    return _plan_move(
        context, source, target, overwrite=True, whole=True, expected=expected, inherit=inherit
    )


def _plan_move(
    context: PlanContext,
    source: str,
    target: str,
    *,
    overwrite: bool,
    whole: bool,
    expected: Entry | None = None,
    into: Entry | None = None,
    inherit: Callable[[Entry], Mapping[str, str]] | None = None,
) -> tuple[Change | None, Entry]:
    """Plan a rename; with `whole`, the source is a directory, and replaces one with all its contents."""
    from_names, to_names = split(source), split_new(target)
    if not from_names:
        raise InvalidPath("the root cannot be renamed")
    walks = context.tree.walk_all([from_names, to_names])
    here, there = walks[from_names], walks[to_names]
    moving = existing(source, here)
    if whole and not moving.is_directory:
        raise NotADirectory(f"{source!r} is a file, and cannot replace a directory")
    if from_names == to_names:
        check_expected(target, moving, expected)
        check_expected("/".join(to_names[:-1]), here.found[-2], into)
        return None, moving
    if moving.is_directory and to_names[: len(from_names)] == from_names:
        raise InvalidPath(f"{source!r} cannot be moved below itself, to {target!r}")
    replaced = None if there.missing else there.last
    above = there.found if replaced is None else there.found[:-1]
    _check_target(target, there, moving, overwrite=overwrite)
    check_expected(target, replaced, expected)
    check_expected("/".join(to_names[:-1]), above[-1], into)
    if moving.id in _ids(there.found):
        raise PlanOutdated("the source was moved while the paths were looked up")
    if whole and replaced is not None and replaced.id in _ids(here.found):
        raise PlanOutdated("the target was moved while the paths were looked up")
    old_parent, parent = here.found[-2], above[-1]
    key = entry_key(context, parent, to_names[-1]) if replaced is None else replaced.key
    if key == moving.key:
        raise PlanOutdated("a directory was moved while the paths were looked up")
    what = "rename a directory" if moving.is_directory else "rename a file"
    change = Change(what, context.new_id(), key, _NEARER)
    guards: tuple[Guard, ...] | None = None
    attributes = moving.attributes
    if replaced is not None and inherit is not None:
        guards = read_guards(context, replaced)
        attributes = attributes_of({**attributes, **inherit(replaced)})
    moved = evolve(
        moving,
        key=key,
        version=moving.version + 1,
        change_id=change.id,
        updated=context.now(),
        attributes=attributes,
    )
    change.delete(moving.key, moving.unchanged())
    leave_tombstone(context, change, old_parent, moving)
    if replaced is None:
        add_entry(context, change, parent, moved)
    else:
        change.put(moved, replaced.unchanged())
        leave_tombstone(context, change, parent, replaced)
        if not replaced.is_directory:
            add_garbage(context, change, replaced)
        else:
            # Empty directories go to the trash, too: they may have tombstones and outdated rows.
            move_to_trash(context, change, parent.id, replaced)
            if guards is not None:
                delete_guards(change, replaced, guards)
            elif whole:
                close_directory(context, change, replaced)
            else:
                close_empty_directory(context, change, target, replaced)
    if moving.is_directory:
        move_directory_record(context, change, moved, old_parent.id, moving.name, parent.id)
        for lower, upper in links_to_check(_ids(here.found[:-1]), _ids(above)):
            change.check(context.keys.directory(lower), Equals("parent", upper))
    if into is not None:  # before `require_stable_path`, whose conditions are weaker
        change.check(into.key, into.unchanged())
    require_stable_path(context, change, here.found[:-1])
    require_stable_path(context, change, above)
    return change, moved


def _check_target(target: str, there: Walk, moving: Entry, *, overwrite: bool) -> None:
    if there.missing:
        if not there.last.is_directory:
            raise NotADirectory(f"{target!r} leads through a file; nothing was renamed")
        if len(there.missing) > 1:
            raise NotFound(f"the directory of {target!r} does not exist; nothing was renamed")
    elif not overwrite or there.last.id == ROOT:
        raise AlreadyExists(f"there is something at {target!r} already; nothing was renamed")
    elif moving.is_directory and not there.last.is_directory:
        raise NotADirectory(f"{target!r} is a file, and a directory cannot replace it")
    elif there.last.is_directory and not moving.is_directory:
        raise IsADirectory(f"{target!r} is a directory, and a file cannot replace it")


def _ids(chain: Sequence[Entry]) -> list[str]:
    return [entry.id for entry in chain]


def links_to_check(here: Sequence[str], there: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the parent links that must be unchanged when a directory moves between two directories.

    Args:
        here: ids of the directories from the root to the old parent, as they were read, both included.
        there: the same for the new parent.

    Yields pairs of ids, a directory and its parent: for each directory on one of the two paths but not
    on both.

    Why no cycle can arise: let L be the last directory that both paths have in common. The conditions
    hold at the moment of the move, so both paths are then as they were read, from the parents up to L.
    Suppose that the moving directory X were above its new parent at that moment. X was not seen on the
    path from there to L, so it would be above L. L is above the old parent of X, so X would be above its
    own parent: there was a cycle before. The proof does not need L to be the last common directory at
    that moment, nor all directories to be read at one time.

    Checking the new parent's path alone is not enough. Example: ``c`` moves from below ``b`` to below
    ``a``, and ``a`` contains ``b``. Meanwhile another client moves ``b`` to the root, and ``a`` below
    ``c``.

    >>> list(links_to_check(["root", "a", "b"], ["root", "a"]))
    [('b', 'a')]
    >>> list(links_to_check(["root", "a"], ["root", "c", "d"]))
    [('a', 'root'), ('c', 'root'), ('d', 'c')]
    """
    common = 0
    while common < min(len(here), len(there)) and here[common] == there[common]:
        common += 1
    for chain in (here, there):
        for upper, lower in pairwise(chain[common - 1 :]):
            yield lower, upper
