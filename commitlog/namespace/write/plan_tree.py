"""Plans of all operations on a namespace: which records are written, on which conditions.

A `Planner` reads the namespace and returns one `Change`. The caller applies it, or plans again if the
namespace has changed in between. A planner writes nothing itself. The rules:

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

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

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
from commitlog.namespace.write.plan_common import check_expected
from commitlog.namespace.write.plan_rename import Moving
from commitlog.namespace.write.transaction import Change
from commitlog.oplog.validate import count
from commitlog.tables.api import Absent, Equals

__all__ = ["Planner"]

_MAKE_UPPER = "Make the upper directories first"


@frozen(kw_only=True)
class Planner(Moving):
    """Plans changes of one namespace. Thread-safe."""

    # directories

    def make_directory(
        self, path: str, *, shards: int, exist_ok: bool = True, parents: bool = True
    ) -> tuple[Change | None, Entry]:
        """Plan to make the directory `path` and those above it; None if they exist."""
        change, found = self._directories(path, _shards(shards), exist_ok=exist_ok, parents=parents)
        return change, found[-1]

    def make_below(self, path: str, known: Sequence[Entry]) -> tuple[Change | None, tuple[Entry, ...]]:
        """Plan the same; return all directories on the path, the root first.

        Args:
            path: of the directory.
            known: the first directories on the path, as they were read before.

        Raises `Conflict` if the path does not lead through the last of `known` any more.
        """
        return self._directories(path, Shards(), known=known)

    def _directories(
        self,
        path: str,
        wanted: Shards,
        *,
        exist_ok: bool = True,
        parents: bool = True,
        known: Sequence[Entry] = (),
    ) -> tuple[Change | None, tuple[Entry, ...]]:
        walk = self.tree.walk(split_new(path))
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
        word = self.new_id()
        made = self._new_directories(walk.last, walk.missing, word, wanted)
        change = Change("make directories", word, made[-1].key, _MAKE_UPPER)
        self._make_directories(change, walk.last, made)
        self._pin(change, walk.found)
        return change, (*walk.found, *made)

    def grow(self, path: str, *, shards: int) -> tuple[Change | None, Entry]:
        """Plan to spread a directory over more shards; None if it has as many already."""
        wanted = _shards(shards)
        walk = self.tree.walk(split(path))
        entry = self._existing(path, walk)
        if not entry.is_directory:
            raise NotADirectory(f"{path!r} is a file; nothing was changed")
        before = entry.shards.now
        if wanted.now <= before:
            return None, entry
        change = Change("grow a directory", self.new_id(), entry.key)
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

    def delete(
        self, path: str, *, recursive: bool, expected: Entry | None = None
    ) -> tuple[Change, None]:
        """Plan to delete `path`; given `expected`, only if that version is there."""
        walk = self.tree.walk(split(path))
        entry = self._existing(path, walk)
        check_expected(path, entry, expected)
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
        """Plan to move a directory to the trash, and to refuse later additions to it.

        Args:
            parent: id of the directory that contains it.
            entry: the directory.
            path: if given, the directory has to be empty; the error names this path.
        """
        change = Change("delete a directory", self.new_id(), self._trash_key(entry))
        change.delete(entry.key, entry.unchanged())
        self._trash(change, parent, entry)
        if path is not None:
            self._close_empty(change, path, entry)
        else:
            self._close(change, entry)
        return change

    def forget(self, trashed: Entry) -> Change:
        """Plan to remove an empty directory from the trash."""
        key = self.keys.directory(trashed.id)
        change = Change("empty the trash", self.new_id(), trashed.key)
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
        """Plan to set attributes; those with the value None are removed, those not named stay."""
        walk = self.tree.walk(split(path))
        entry = self._existing(path, walk)
        check_expected(path, entry, expected)
        merged = {**entry.attributes, **attributes}
        change = Change("set attributes", self.new_id(), entry.key)
        new = evolve(
            entry,
            version=entry.version + 1,
            word=change.word,
            modified=entry.modified if modified is None else count(max(0, modified)),
            updated=self._now(),
            attributes=attributes_of(
                {name: value for name, value in merged.items() if value is not None}
            ),
        )
        change.put(new, entry.unchanged())
        self._pin(change, walk.found[:-1])
        return change, new


def _shards(number: int) -> Shards:
    try:
        return Shards(now=number, first=number)
    except ValueError as error:
        raise ConfigurationError(f"a directory has 1, 2, 4, … or 64 shards, not {number!r}") from error
