"""Writing to a namespace: files, of content that is stored for them, or that is in the store already.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.namespace.batches import Mapper
from commitlog.namespace.bound import Bound
from commitlog.namespace.data import Data
from commitlog.namespace.files import FileWriter
from commitlog.namespace.items import attributes_of
from commitlog.namespace.keys import split_new
from commitlog.namespace.linking import NewFile
from commitlog.namespace.status import Status
from commitlog.stores.api import Body

__all__ = ["Writing"]

_EMPTY: Mapping[str, str] = MappingProxyType({})


class Writing(Bound):
    """What `Namespace` offers those who make files."""

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
        split_new(path)
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
        error some may be there. All come into one directory: if the path leads to another one in the
        middle, or to none, a `Conflict` or `NotFound` says how many files came into the first one.
        """
        new = _new_files(files, attributes)
        self.check()
        linked = self._batches(mapper).link(directory, new)
        for error in linked.taken.values():
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


def _new_files(files: Mapping[str, Data], attributes: Mapping[str, str]) -> dict[str, NewFile]:
    kept = attributes_of(attributes)
    return {path: NewFile(data=data, attributes=kept) for path, data in files.items()}
