"""What each operation on a namespace writes, and on which conditions.

A `Planner` looks at what is there and returns one `Change`, to be applied or, if something has changed
meanwhile, planned again. It writes nothing itself. The rules:

* Every write is on condition that what was seen is still so: an entry is still that version of that file
  or directory, or is still absent.
* Whoever adds an entry writes a gate of the directory, which is there as long as the directory is in
  use. So nothing is added to a directory that is being removed, and a directory that was found empty is
  removed only if no gate was written since.
* A directory that moves from one directory to another must not end up below itself. Which directories
  are above the old and the new parent, up to the first that both have in common, must be as it was seen:
  see `cycles`.

Imports the ground floor, its siblings and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    PreconditionFailed,
)
from commitlog.namespace.change import Change, Stale
from commitlog.namespace.cycles import links_to_check
from commitlog.namespace.items import attributes_of
from commitlog.namespace.keys import ROOT, TRASH, split
from commitlog.namespace.linking import Linking
from commitlog.namespace.records import Directory, Entry, Gate, Shards
from commitlog.namespace.tree import Walk
from commitlog.oplog.fields import count
from commitlog.tables.api import Absent, Equals

__all__ = ["Planner"]


@frozen(kw_only=True)
class Planner(Linking):
    """Plans changes of one namespace. Thread-safe."""

    # directories

    def make_directory(
        self, path: str, *, shards: int, exist_ok: bool = True, parents: bool = True
    ) -> tuple[Change | None, Entry]:
        """Plan that `path` is a directory, and all above it are; None if they are already."""
        wanted = _shards(shards)
        walk = self.tree.walk(split(path))
        if not walk.last.is_directory:
            if walk.missing:
                raise NotADirectory(f"{path!r} leads through a file; nothing was made")
            raise AlreadyExists(f"{path!r} is a file; nothing was made")
        if not walk.missing:
            if not exist_ok:
                raise AlreadyExists(f"there is a directory at {path!r} already; nothing was made")
            return None, walk.last
        if len(walk.missing) > 1 and not parents:
            raise NotFound(f"the directory of {path!r} does not exist; nothing was made")
        word = self.words()
        made = self._new_directories(walk.last, walk.missing, word, wanted)
        change = Change("make directories", word, made[-1].key, _MAKE_UPPER)
        self._make_directories(change, walk.last, made)
        self._pin(change, walk.found)
        return change, made[-1]

    def grow(self, path: str, *, shards: int) -> tuple[Change | None, Entry]:
        """Plan that the directory spreads over that many shards; None if it has as many already."""
        wanted = _shards(shards)
        walk = self.tree.walk(split(path))
        entry = self._existing(path, walk)
        if not entry.is_directory:
            raise NotADirectory(f"{path!r} is a file; nothing was changed")
        before = entry.shards.now
        if wanted.now <= before:
            return None, entry
        change = Change("grow a directory", self.words(), entry.key)
        new = evolve(
            entry,
            version=entry.version + 1,
            word=change.word,
            updated=self._now(),
            shards=Shards(now=wanted.now, first=entry.shards.first),
        )
        change.put(new, entry.unchanged())
        for shard in range(wanted.now):
            condition = Equals("shards", before) if shard < before else Absent()
            change.put(self._gate(new, shard, change.word), condition)
        self._pin(change, walk.found[:-1])
        return change, new

    # either

    def rename(
        self, source: str, target: str, *, overwrite: bool, into: Entry | None = None
    ) -> tuple[Change | None, Entry]:
        """Plan that what is at `source` is at `target`; None if that is the same path.

        Given `into`, only if the directory above the target is still that version of it.
        """
        return self._move(source, target, overwrite=overwrite, whole=False, into=into)

    def replace(
        self,
        source: str,
        target: str,
        *,
        expected: Entry | None,
        inherit: Callable[[Entry], Mapping[str, str]] | None = None,
    ) -> tuple[Change | None, Entry]:
        """Plan that the directory at `source` is at `target`, and the one there in the trash.

        Given `inherit`, with the attributes that it returns for the one there, and only if nothing was
        added to that since.
        """
        from_names, to_names = split(source), split(target)
        if not to_names:
            raise InvalidPath("the root cannot be replaced")
        if from_names[: len(to_names)] == to_names != from_names:
            raise InvalidPath(
                f"{source!r} is in {target!r}, and would go into the trash with it: rename it to another"
                " directory first"
            )
        return self._move(source, target, overwrite=True, whole=True, expected=expected, inherit=inherit)

    def _move(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool,
        whole: bool,
        expected: Entry | None = None,
        into: Entry | None = None,
        inherit: Callable[[Entry], Mapping[str, str]] | None = None,
    ) -> tuple[Change | None, Entry]:
        from_names, to_names = split(source), split(target)
        if not from_names:
            raise InvalidPath("the root cannot be renamed")
        here = self.tree.walk(from_names)
        moving = self._existing(source, here)
        if whole and not moving.is_directory:
            raise NotADirectory(f"{source!r} is a file, and replaces no directory")
        if from_names == to_names:
            _check_expected(target, moving, expected)
            _check_expected("/".join(to_names[:-1]), here.found[-2], into)
            return None, moving
        if moving.is_directory and to_names[: len(from_names)] == from_names:
            raise InvalidPath(f"{source!r} cannot be moved below itself, to {target!r}")
        there = self.tree.walk(to_names, beside=here)
        replaced = None if there.missing else there.last
        above = there.found if replaced is None else there.found[:-1]
        self._check_target(target, there, moving, overwrite=overwrite)
        _check_expected(target, replaced, expected)
        _check_expected("/".join(to_names[:-1]), above[-1], into)
        if moving.id in _ids(there.found):
            raise Stale("what is to be moved was moved while it was looked for")
        if whole and replaced is not None and replaced.id in _ids(here.found):
            raise Stale("what is to be replaced was moved while it was looked for")
        old_parent, parent = here.found[-2], above[-1]
        key = self._place(parent, to_names[-1]) if replaced is None else replaced.key
        if key == moving.key:
            raise Stale("a directory was moved while it was looked for")
        what = "rename a directory" if moving.is_directory else "rename a file"
        change = Change(what, self.words(), key, _NEARER)
        gates: tuple[Gate, ...] | None = None
        attributes = moving.attributes
        if replaced is not None and inherit is not None:
            gates = self._gates(replaced)
            attributes = attributes_of({**attributes, **inherit(replaced)})
        moved = evolve(
            moving,
            key=key,
            version=moving.version + 1,
            word=change.word,
            updated=self._now(),
            attributes=attributes,
        )
        change.delete(moving.key, moving.unchanged())
        self._leave(change, old_parent, moving)
        if replaced is None:
            self._add(change, parent, moved)
        else:
            change.put(moved, replaced.unchanged())
            self._leave(change, parent, replaced)
            if not replaced.is_directory:
                self._drop_data(change, replaced)
            else:
                # Also if it is empty: it may have tombstones, and rows of objects that are gone.
                self._trash(change, parent.id, replaced)
                if gates is not None:
                    self._close_gates(change, replaced, gates)
                elif whole:
                    self._close(change, replaced)
                else:
                    self._close_empty(change, target, replaced)
        if moving.is_directory:
            self._redirect(change, moved, old_parent.id, moving.name, parent.id)
            for lower, upper in links_to_check(_ids(here.found[:-1]), _ids(above)):
                change.check(self.keys.directory(lower), Equals("parent", upper))
        if into is not None:  # before what is pinned: that says less
            change.check(into.key, into.unchanged())
        self._pin(change, here.found[:-1])
        self._pin(change, above)
        return change, moved

    def _check_target(self, target: str, there: Walk, moving: Entry, *, overwrite: bool) -> None:
        if there.missing:
            if not there.last.is_directory:
                raise NotADirectory(f"{target!r} leads through a file; nothing was renamed")
            if len(there.missing) > 1:
                raise NotFound(f"the directory of {target!r} does not exist; nothing was renamed")
        elif not overwrite or there.last.id == ROOT:
            raise AlreadyExists(f"there is something at {target!r} already; nothing was renamed")
        elif moving.is_directory and not there.last.is_directory:
            raise NotADirectory(f"{target!r} is a file, and no directory replaces it")
        elif there.last.is_directory and not moving.is_directory:
            raise IsADirectory(f"{target!r} is a directory, and no file replaces it")

    def delete(
        self, path: str, *, recursive: bool, expected: Entry | None = None
    ) -> tuple[Change, None]:
        """Plan that nothing is at `path`; given `expected`, only if that version is there."""
        walk = self.tree.walk(split(path))
        entry = self._existing(path, walk)
        _check_expected(path, entry, expected)
        if entry.id == ROOT:
            raise InvalidPath("the root cannot be deleted")
        if entry.is_directory:
            change = self.discard(walk.found[-2].id, entry, path=None if recursive else path)
        else:
            change = self.remove_files([entry])
        self._leave(change, walk.found[-2], entry)
        self._pin(change, walk.found[:-1])
        return change, None

    def discard(self, parent: str, entry: Entry, *, path: str | None = None) -> Change:
        """Plan that a directory is in the trash, and that nothing is added to it any more.

        Args:
            parent: id of the directory that has it.
            entry: the directory.
            path: only if it is empty; the path is named in the error.
        """
        change = Change("delete a directory", self.words(), self._trash_key(entry))
        change.delete(entry.key, entry.unchanged())
        self._trash(change, parent, entry)
        if path is not None:
            self._close_empty(change, path, entry)
        else:
            self._close(change, entry)
        return change

    def forget(self, trashed: Entry) -> Change:
        """Plan that an empty directory in the trash is gone for good."""
        key = self.keys.directory(trashed.id)
        change = Change("empty the trash", self.words(), trashed.key)
        change.delete(trashed.key, trashed.unchanged())
        named = Directory(key=key, parent=TRASH, name=trashed.name).named()
        change.delete(key, named)
        return change

    def set_attributes(
        self,
        path: str,
        *,
        modified: int | None,
        attributes: Mapping[str, str | None],
        expected: Entry | None = None,
    ) -> tuple[Change, Entry]:
        """Plan new attributes; those that are None are removed, and those not named stay."""
        walk = self.tree.walk(split(path))
        entry = self._existing(path, walk)
        _check_expected(path, entry, expected)
        merged = {**entry.attributes, **attributes}
        change = Change("set attributes", self.words(), entry.key)
        new = evolve(
            entry,
            version=entry.version + 1,
            word=change.word,
            modified=entry.modified if modified is None else count(modified),
            updated=self._now(),
            attributes=attributes_of(
                {name: value for name, value in merged.items() if value is not None}
            ),
        )
        change.put(new, entry.unchanged())
        self._pin(change, walk.found[:-1])
        return change, new


def _check_expected(path: str, found: Entry | None, expected: Entry | None) -> None:
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


def _ids(chain: Sequence[Entry]) -> list[str]:
    return [entry.id for entry in chain]


_MAKE_UPPER = "Make the upper directories first"
_NEARER = "Rename it in steps: first to a directory that is nearer to both paths"


def _shards(number: int) -> Shards:
    try:
        return Shards(now=number, first=number)
    except ValueError as error:
        raise ConfigurationError(f"a directory has 1, 2, 4, … 64 shards, not {number!r}") from error
