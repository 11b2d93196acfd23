"""Plans that make files of objects in the store, and that remove files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from attrs import evolve, frozen

from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    IsADirectory,
    NotADirectory,
    NotFound,
    TransactionTooLarge,
)
from commitlog.namespace.external.overlay import renewed
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import split, split_new
from commitlog.namespace.model.records import Entry, Shards
from commitlog.namespace.read.tree import Mapper, Walk
from commitlog.namespace.write.plan_common import Parts
from commitlog.namespace.write.transaction import MAX_WRITES, Change
from commitlog.stores.api import ObjectInfo

__all__ = ["Linking", "NewFile", "check_apart", "check_distinct"]

_EMPTY: Mapping[str, str] = MappingProxyType({})
_FEWER = "Make the upper directories first, and link fewer files at once"


@frozen(kw_only=True)
class NewFile:
    """A file to be made.

    Attributes:
        data: refers to its content.
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


@frozen(kw_only=True)
class Linking(Parts):
    """Plans the linking, overwriting and removal of files. Thread-safe."""

    def link_all(
        self,
        files: Mapping[str, NewFile],
        *,
        overwrite: bool,
        parents: bool,
        mapper: Mapper = map,
    ) -> tuple[Change | None, dict[str, Entry]]:
        """Plan to make or overwrite a file at each path; return the change, and the new entries.

        The names of each level are read with one call of `mapper`.
        """
        if len(files) > MAX_WRITES:
            raise TransactionTooLarge(
                f"linking {len(files)} files takes at least as many writes in one transaction, and the"
                f" limit is {MAX_WRITES}; nothing was sent. {_FEWER}"
            )
        if not files:
            return None, {}
        check_distinct(files)
        check_apart(files)
        walks = self._look(files, overwrite=overwrite, parents=parents, mapper=mapper)
        first = next(iter(walks.values()))
        what = "create a file" if first.missing else "overwrite a file"
        change = Change(what if len(files) == 1 else "link files", self.new_id(), first.last.key, _FEWER)
        made: dict[tuple[str, ...], Entry] = {}
        new: dict[str, Entry] = {}
        kept = {file.data.path for file in files.values()}  # in use, also if this call is a repetition
        for path, walk in walks.items():
            old = walk.last
            if walk.missing:
                parent = self._above(change, path, walk, made)
                new[path] = entry = self._new_file(parent, walk.missing[-1], files[path], change.word)
                self._add(change, parent, entry)
                continue
            new[path] = entry = self._next_version(old, files[path], change.word)
            self._put(change, entry, old.unchanged())
            if old.data is not None and old.data.path != files[path].data.path:
                self._leave(change, walk.found[-2], old)
            if old.data is not None and old.data.path not in kept:
                self._drop_data(change, old)
        for walk in walks.values():
            self._pin(change, walk.found if walk.missing else walk.found[:-1])
        change.witness = next(iter(new.values())).key
        return change, new

    def link_new(self, above: Sequence[Entry], files: Mapping[str, NewFile]) -> Change:
        """Plan to add new files to a directory, by name.

        Args:
            above: the directories from the root to this one, included.
            files: must not be in a shard from before the directory grew.
        """
        directory = above[-1]
        word = self.new_id()
        new = [self._new_file(directory, name, file, word) for name, file in files.items()]
        change = Change("link files", word, new[0].key, _FEWER)
        for entry in new:
            self._add(change, directory, entry)
        self._pin(change, above)
        return change

    def renew(self, path: str, info: ObjectInfo) -> tuple[Change | None, Entry | None]:
        """Plan to update the file at `path` to its object, which others own and have changed.

        The entry is None if the path does not exist; the change is None if nothing has to be written.
        """
        walk = self.tree.walk(split(path))
        if walk.missing:
            return None, None
        old = walk.last
        if old.data is None or old.data.own or old.data.path != info.path:
            raise AlreadyExists(f"there is something else at {path!r}; it stays as it is")
        if (seen := renewed(old, info)) is old:
            return None, old
        change = Change("overwrite a file", self.new_id(), old.key)
        new = evolve(seen, version=old.version + 1, word=change.word, updated=self._now())
        change.put(new, old.unchanged())
        self._pin(change, walk.found[:-1])
        return change, new

    def check_creatable(self, path: str, *, overwrite: bool, parents: bool) -> None:
        """Raise the errors that `link_all` would raise for a path, before there is any data."""
        _check_creatable(path, self.tree.walk(split_new(path)), overwrite=overwrite, parents=parents)

    def remove_files(self, files: Sequence[Entry]) -> Change:
        """Plan to remove files, and to make garbage of their content."""
        not_before = self._not_before()
        change = Change("delete files", self.new_id(), self._garbage_key(files[0], not_before))
        for file in files:
            change.delete(file.key, file.unchanged())
            self._drop_data(change, file, not_before)
        return change

    def _look(
        self, paths: Iterable[str], *, overwrite: bool, parents: bool, mapper: Mapper
    ) -> dict[str, Walk]:
        """Look up all paths; common parts are looked up once."""
        names = {path: split_new(path) for path in paths}
        found = self.tree.walk_all(names.values(), mapper=mapper)
        walks = {path: found[each] for path, each in names.items()}
        for path, walk in walks.items():
            _check_creatable(path, walk, overwrite=overwrite, parents=parents)
        return walks

    def _above(self, change: Change, path: str, walk: Walk, made: dict[tuple[str, ...], Entry]) -> Entry:
        """Return the parent directory of a new file; plan to make it if it is missing."""
        names = split(path)
        upper, at = walk.last, len(walk.found) - 1
        while names[: at + 1] in made:
            at += 1
            upper = made[names[:at]]
        chain = self._new_directories(upper, names[at:-1], change.word, Shards())
        made.update((names[:length], entry) for length, entry in enumerate(chain, at + 1))
        self._make_directories(change, upper, chain)
        return chain[-1] if chain else upper

    def _new_file(self, parent: Entry, name: str, file: NewFile, word: str) -> Entry:
        now = self._now()
        modified = now if file.modified is None else file.modified
        return Entry(
            key=self._place(parent, name),
            id=self.new_id(),
            version=1,
            word=word,
            created=modified,
            modified=modified,
            updated=now,
            data=file.data,
            attributes=file.attributes,
        )

    def _next_version(self, old: Entry, file: NewFile, word: str) -> Entry:
        now = self._now()
        return evolve(
            old,
            version=old.version + 1,
            word=word,
            modified=now if file.modified is None else file.modified,
            updated=now,
            data=file.data,
            attributes=file.attributes,
        )


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
