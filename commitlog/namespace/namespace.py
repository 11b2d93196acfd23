"""`Namespace`: a tree of files and directories over an object store, in which a rename is one step.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.namespace.batches import Mapper
from commitlog.namespace.bound import Bound
from commitlog.namespace.data import Data
from commitlog.namespace.files import FileWriter
from commitlog.namespace.items import attributes_of
from commitlog.namespace.keys import split
from commitlog.namespace.linking import NewFile
from commitlog.namespace.records import Entry
from commitlog.namespace.status import Status
from commitlog.paths import join
from commitlog.stores.api import Body

__all__ = ["Inherit", "Namespace"]

#: Given a directory that is to be replaced, and what yields what it has from behind a name on, by name:
#: attributes that the one in its place is to have.
Inherit: TypeAlias = Callable[[Status, Callable[[str], Iterator[Status]]], Mapping[str, str]]

_EMPTY: Mapping[str, str] = MappingProxyType({})


class Namespace(Bound):
    """A tree of files and directories: names in a table, content in a store. Thread-safe.

    Args:
        table: where names are kept (`commitlog.namespace.NAMESPACE_SCHEMA`); it must have transactions.
        store: where content is kept, under names that tell nothing.
        name: of the namespace; a table can have any number of them.
        clock: dates what is done; waited on between attempts.
        backoff: how often, and after what pauses, is repeated what did nothing, got no answer, or met
            with a change by somebody else.
        log: has every change before it happens, and what became of it; it costs three requests to the
            store that has it, for each change. Whether there is one, and where, is settled when the
            namespace is created: all who change it use the same.
        grace: seconds for which the content of a file is kept after the file was overwritten or deleted.
            Longer than any reader reads, by as much as clocks may differ.
        stable_paths: see below.
        words: makes words that nobody else ever makes: ids, names of objects.

    Paths are relative to the root, which is "". Every mutation is one transaction: it has happened,
    whole, when the call returns; nothing has happened if it raises anything but `OutcomeUnknown`. It is
    done once, however often its request or answer is lost, as far as the table keeps the tokens of
    transactions (DynamoDB does, for ten minutes).

    A path is looked up name by name before that. If somebody renames a directory above in the meantime,
    the change is made to what was found, wherever that is now; as in POSIX. With `stable_paths` it is
    made only if the path still leads there; that costs a write unit for each directory on it, and
    changes that have directories in common get in each other's way.

    All methods may raise `InvalidPath`, `NotFound` (there is no such namespace), `FormatTooNew`,
    `CorruptRecord`, `Unavailable`, `AccessDenied`; mutations also `Conflict` and `OutcomeUnknown`.

    >>> from commitlog.namespace import NAMESPACE_SCHEMA
    >>> from commitlog.stores.open import open_store
    >>> from commitlog.tables.open import open_table
    >>> table = open_table("memory://", NAMESPACE_SCHEMA)
    >>> table.create()
    True
    >>> lake = Namespace(table, open_store("memory://"), "lake")
    >>> lake.create()
    True
    >>> lake.write("staging/day=1/part-0", b"rows").size
    4
    >>> lake.make_directory("events").path
    'events'
    >>> lake.rename("staging/day=1", "events/day=1").path
    'events/day=1'
    >>> lake.read("events/day=1/part-0")
    b'rows'
    """

    # content

    def write(
        self,
        path: str,
        body: Body,
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
    ) -> Status:
        """Make `path` a file with this content; return it.

        The content is stored first, and shows when all of it is there. A file that is overwritten keeps
        its id; who has it open goes on reading what it was.

        Args:
            path: where.
            body: what; else than bytes and binary files, it is a `TypeError`.
            overwrite: whether to replace a file that is there.
            parents: whether to make the directories above that are missing.
            attributes: what to keep with it, at most 400,000 bytes as JSON.

        Raises:
            TransactionTooLarge: there is more in `attributes`.
            AlreadyExists: something is there, and is not to be overwritten.
            IsADirectory: a directory is there.
            NotADirectory: the path leads through a file.
            NotFound: a directory above is missing, and is not to be made.
        """
        kept = attributes_of(attributes)
        split(path)
        self.check()
        if not overwrite:  # else it is rarely refused, and looking first would cost more
            self._check_creatable(path, overwrite=False, parents=parents)
        data = self._content.put(body)
        return self._link_own(path, data, overwrite, parents, kept)

    def begin_write(
        self,
        path: str,
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
    ) -> FileWriter:
        """Return a writer for content that comes bit by bit; `FileWriter.commit` makes the file.

        Arguments and errors as of `write`, here and at the commit.
        """
        kept = attributes_of(attributes)
        self.check()
        self._check_creatable(path, overwrite=overwrite, parents=parents)
        return FileWriter(
            self._content,
            lambda data: self._link_own(path, data, overwrite, parents, kept),
        )

    def store_content(self, body: Body) -> Data:
        """Store content, and make no file of it yet; return what `link` takes.

        The object is the caller's: nobody else removes it if nothing comes to name it. Raises
        `Unavailable` if it could not be stored.
        """
        self.check()
        return self._content.put(body)

    def link(
        self,
        path: str,
        data: Data,
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
    ) -> Status:
        """Make `path` a file whose content is in the store already.

        The object must be there and must never be changed. If it is the namespace's `own`, it must be no
        other file's: it is removed some time after the file is overwritten or deleted. So after
        `OutcomeUnknown` it must not be linked again, for it may have been a file's and be garbage by
        then: look, or store the content anew. Arguments and errors as of `write`.
        """
        return self.link_all({path: data}, overwrite=overwrite, parents=parents, attributes=attributes)[
            0
        ]

    def link_all(
        self,
        files: Mapping[str, Data],
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
    ) -> tuple[Status, ...]:
        """Make files at several paths, in any directories, at one moment; return them in that order.

        Args:
            files: for each path what becomes its content, as for `link`, also after `OutcomeUnknown`.
            overwrite: whether to replace files that are there.
            parents: whether to make the directories above that are missing.
            attributes: what to keep with each of the files.

        Raises what `link` does, of the first path with which something is wrong, `NotADirectory` if one
        of the paths leads through another, `ConfigurationError` if two are given the same object of the
        namespace's own, and `TransactionTooLarge` if they take more than 100 writes: a new file takes
        one, a file that is replaced two, a directory two that anything new comes into, and a directory
        that is made three. Nothing has happened then.
        """
        new = _new_files(files, attributes)
        entries = self._run(lambda: self._planner.link_all(new, overwrite=overwrite, parents=parents))
        return tuple(Status(path=path, entry=entries[path]) for path in files)

    def link_into(
        self,
        directory: str,
        files: Mapping[str, Data],
        *,
        attributes: Mapping[str, str] = _EMPTY,
        mapper: Mapper = map,
    ) -> None:
        """Make any number of new files in one directory, about a hundred in each transaction.

        They do not come at one moment: this is for a directory that nobody looks at yet, and that is
        renamed when it is complete. It can be repeated: a file that has the same content is passed over.
        So it can after `OutcomeUnknown`, too, and then tells what the outcome is. That holds as long as
        nobody renames or deletes the files that came: one that is not under its name any more is made
        again, and has an object that is another file's then, or is removed some time as garbage.

        Args:
            directory: a directory that is there.
            files: for each name what becomes its content, as for `link`.
            attributes: what to keep with each of the files.
            mapper: calls a function with each of several arguments, as `map` does. That of an executor
                has the shards of the directory filled at once; transactions of one shard follow each
                other.

        Raises `NotFound` and `NotADirectory` of the directory, `ConfigurationError` as `link_all` does,
        and `AlreadyExists` if something else has a name: then all others are there. After any other
        error some may be there.
        """
        new = _new_files(files, attributes)
        self.check()
        taken = self._batches(mapper).link(directory, new)
        for error in taken.values():
            raise error

    def _check_creatable(self, path: str, *, overwrite: bool, parents: bool) -> None:
        check = self._planner.check_creatable
        self._run(lambda: (None, check(path, overwrite=overwrite, parents=parents)))

    def _link_own(
        self, path: str, data: Data, overwrite: bool, parents: bool, attributes: Mapping[str, str]
    ) -> Status:
        """Link an object that was stored for this; remove it if nothing names it."""
        try:
            return self.link(path, data, overwrite=overwrite, parents=parents, attributes=attributes)
        except OutcomeUnknown:
            raise
        except CommitError:
            self._content.drop(data)
            raise

    # names

    def make_directory(
        self, path: str, *, shards: int = 1, exist_ok: bool = True, parents: bool = True
    ) -> Status:
        """Make a directory, and all above it that are missing, at once; return it.

        Args:
            path: where.
            shards: over how many partitions what it has is spread: 1, 2, 4, … 64. One takes some hundred
                new names a second. See `grow`.
            exist_ok: whether one that is there already will do; it is left as it is. If not, only one of
                those who make it succeeds.
            parents: whether to make the directories above that are missing.

        Raises `AlreadyExists` (it is a file, or a directory and not `exist_ok`), `NotADirectory`,
        `NotFound` (a directory above is missing, and is not to be made), `TransactionTooLarge` (with its
        gates, more directories are missing than one transaction makes).
        """
        entry = self._run(
            lambda: self._planner.make_directory(path, shards=shards, exist_ok=exist_ok, parents=parents)
        )
        return Status(path=path, entry=entry)

    def grow(self, path: str, *, shards: int) -> Status:
        """Spread new names of a directory over more partitions; what it has stays where it is.

        Looking up a name costs a request more for each doubling since the directory was made, at most.
        A directory that has as many already is left as it is. Raises `NotFound`, `NotADirectory`.
        """
        entry = self._run(lambda: self._planner.grow(path, shards=shards))
        return Status(path=path, entry=entry)

    def rename(
        self, source: str, target: str, *, overwrite: bool = False, into: Status | None = None
    ) -> Status:
        """Rename a file, or a directory with all that is in it, in one step; return it.

        `target` is the new path itself, not a directory to move into; the directory above it must exist.

        Args:
            source: what.
            target: its new path.
            overwrite: whether a file may replace a file, and a directory an empty one.
            into: what has to be the directory above `target`, that version of it; by default any.

        Raises:
            NotFound: there is nothing at `source`, or no directory above `target`.
            AlreadyExists: something is at `target`, and is not to be replaced.
            IsADirectory, NotADirectory, DirectoryNotEmpty: it cannot be replaced by this.
            InvalidPath: `source` is the root, or `target` is below it.
            TransactionTooLarge: the two paths have more than about 90 directories that they do not
            share.
            PreconditionFailed: the directory above `target` is not, or not any more, what was expected.
        """
        entry = self._run(
            lambda: self._planner.rename(
                source, target, overwrite=overwrite, into=None if into is None else into.entry
            )
        )
        return Status(path=target, entry=entry)

    def replace(
        self,
        source: str,
        target: str,
        *,
        expected: Status | None = None,
        inherit: Inherit | None = None,
    ) -> Status:
        """Give a directory the path of another, which is deleted with all that is in it, in one step.

        Whoever looks at `target` finds either of them, whole. If there is nothing, it is a `rename`.
        What was replaced is in the trash then: `sweep` removes it.

        Args:
            source: the directory that stays.
            target: the path that it gets.
            expected: what has to be at `target`, that version of it; by default anything.
            inherit: asked, if there is a directory at `target`, which attributes `source` is to have
                beside its own. That directory is replaced only if nothing was added to it since; else it
                is asked again. What it raises is raised, and nothing was replaced.

        Raises:
            NotFound: there is nothing at `source`, or no directory above `target`.
            NotADirectory: one of them is a file.
            InvalidPath: one of them is the root, or in the other.
            PreconditionFailed: something else is at `target` than was expected, or nothing.
            TransactionTooLarge: as of `rename`.
        """
        entry = self._run(
            lambda: self._planner.replace(
                source,
                target,
                expected=None if expected is None else expected.entry,
                inherit=None if inherit is None else partial(self._asked, inherit, target),
            )
        )
        return Status(path=target, entry=entry)

    def _asked(self, inherit: Inherit, path: str, there: Entry) -> Mapping[str, str]:
        def entries(after: str) -> Iterator[Status]:
            for entry in self._tree.entries(there, after=after):
                yield Status(path=join(path, entry.name), entry=entry)

        return inherit(Status(path=path, entry=there), entries)

    def delete(self, path: str, *, recursive: bool = False, expected: Status | None = None) -> None:
        """Delete a file or a directory in one step.

        A directory goes into the trash, with all that is in it, where no path leads; `sweep` removes it
        for good. Content is removed by `collect`.

        Args:
            path: what.
            recursive: whether a directory may have something in it.
            expected: what has to be at `path`, that version of it; by default anything.

        Raises `NotFound`, `DirectoryNotEmpty`, `InvalidPath` for the root, and `PreconditionFailed` if
        something else is there than was expected.
        """
        wanted = None if expected is None else expected.entry
        self._run(lambda: self._planner.delete(path, recursive=recursive, expected=wanted))

    def set_attributes(
        self,
        path: str,
        *,
        modified: int | None = None,
        attributes: Mapping[str, str | None] = _EMPTY,
        expected: Status | None = None,
    ) -> Status:
        """Change what is kept with a file or directory; return it.

        Args:
            path: which.
            modified: epoch millisecond; None leaves it as it is.
            attributes: new values; None removes one, and those that are not named stay. All together
                take at most 400,000 bytes as JSON.
            expected: what has to be at `path`, that version of it; by default anything.

        Raises `NotFound`, `PreconditionFailed` if something else is there than was expected, and
        `TransactionTooLarge` for too much in attributes.
        """
        entry = self._run(
            lambda: self._planner.set_attributes(
                path,
                modified=modified,
                attributes=attributes,
                expected=None if expected is None else expected.entry,
            )
        )
        return Status(path=path, entry=entry)


def _new_files(files: Mapping[str, Data], attributes: Mapping[str, str]) -> dict[str, NewFile]:
    kept = attributes_of(attributes)
    return {path: NewFile(data=data, attributes=kept) for path, data in files.items()}
