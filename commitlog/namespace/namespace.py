"""`Namespace`: a tree of files and directories over an object store, in which a rename is one step.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from commitlog.namespace.records import Entry
from commitlog.namespace.status import Status
from commitlog.namespace.writing import Writing
from commitlog.paths import join

__all__ = ["Inherit", "Namespace"]

#: Given a directory that is to be replaced, and what yields what it has from behind a name on, by name:
#: attributes that the one in its place is to have.
Inherit: TypeAlias = Callable[[Status, Callable[[str], Iterator[Status]]], Mapping[str, str]]

_EMPTY: Mapping[str, str] = MappingProxyType({})


class Namespace(Writing):
    """A tree of files and directories: names in a table, content in a store. Thread-safe.

    Args:
        table: where names are kept (`commitlog.namespace.NAMESPACE_SCHEMA`); it must have transactions.
        store: where content is kept, under names that tell nothing.
        name: of the namespace; a table can have any number of them.
        clock: dates what is done; waited on between attempts.
        backoff: how often, and after what pauses, is repeated what did nothing, got no answer, or met
            with a change by somebody else.
        log: has every change before it happens, and what became of it; it costs four requests to the
            store that has it, for each change. Whether there is one, and where, is settled when the
            namespace is created: all who change it use the same.
        grace: seconds for which the content of a file is kept after the file was overwritten or deleted.
            Longer than any reader reads, by as much as clocks may differ.
        stable_paths: see below.
        words: makes words that nobody else ever makes: ids, names of objects.

    Paths are relative to the root, which is "". Every mutation is one transaction: it has happened,
    whole, when the call returns; nothing has happened if it raises anything but `OutcomeUnknown`. It is
    done once, however often its request or answer is lost, as far as the table keeps the tokens of
    transactions (DynamoDB does, for ten minutes, and nothing is sent again after nine).

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
            modified: epoch millisecond; a time before 1970 becomes 0. None leaves it as it is.
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
