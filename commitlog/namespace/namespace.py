"""`Namespace`: a tree of files and directories over an object store, with renames in one step."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias, overload

from commitlog._util.concurrency import SERIAL, Executor
from commitlog._util.ids import random_id
from commitlog._util.request_stats import count_methods
from commitlog._util.retry import Backoff
from commitlog._util.tracing import traced
from commitlog.clock import Clock, SystemClock
from commitlog.errors import (
    CommitError,
    ConfigurationError,
    IsADirectory,
    NotFound,
    ObjectChanged,
    OutcomeUnknown,
    TransactionTooLarge,
)
from commitlog.namespace.bindings import Bindings
from commitlog.namespace.context import open_context, span_attributes
from commitlog.namespace.creation import create
from commitlog.namespace.maintenance import Maintenance
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.model.codec import attributes_of
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import ROOT, STAGING, split, split_new
from commitlog.namespace.model.records import Entry
from commitlog.namespace.stats import RequestStats
from commitlog.namespace.status import ListPage, Status, Summary
from commitlog.namespace.tree import PAGE
from commitlog.namespace.write.bulk import SharedLinks, link_separately
from commitlog.namespace.write.file_io import FileWriter, OpenFile
from commitlog.namespace.write.plan_common import PlanContext
from commitlog.namespace.write.plan_files import NewFile, check_creatable, plan_link
from commitlog.namespace.write.plan_rename import plan_rename, plan_replace
from commitlog.namespace.write.plan_tree import (
    plan_delete,
    plan_make_directory,
    plan_reshard,
    plan_set_attributes,
)
from commitlog.oplog import OperationLog
from commitlog.paths import join
from commitlog.stores.api import ObjectStore
from commitlog.stores.body import Body
from commitlog.tables.api import Table

__all__ = ["Inherit", "Namespace"]

#: A function that chooses attributes for a directory that replaces another. Its arguments: the directory
#: to replace, and a function that yields the entries of that directory after a given name, by name.
Inherit: TypeAlias = Callable[[Status, Callable[[str], Iterator[Status]]], Mapping[str, str]]

_EMPTY: Mapping[str, str] = MappingProxyType({})

#: The largest page of a listing: a page is held in memory.
_MAX_PAGE = 1_000_000


@traced(lambda namespace, arguments: span_attributes(namespace.name, arguments))
@count_methods
class Namespace:
    """A tree of files and directories: names in a table, content in a store. Thread-safe.

    Args:
        table: the table for names (`commitlog.namespace.NAMESPACE_SCHEMA`); it must support
            transactions.
        store: the store for content; the paths of its objects do not show the names of the files.
        name: the name of the namespace; a table can have any number of namespaces.
        clock: the clock for timestamps and pauses.
        backoff: the retry policy for requests that did nothing or got no answer, and for conflicts with
            other clients.
        log: the log that records every change before it happens, and its outcome. It costs four requests
            to the log's store for each change. Whether there is a log, and where, is fixed when the
            namespace is created: all clients that change it must use the same log.
        grace: seconds for which the content of a file is kept after the file was overwritten or deleted.
            This must be longer than any read takes, plus the difference between clocks.
        stable_paths: see below.
        new_id: returns a unique string at each call, for ids and names of objects.

    Paths are relative to the root, which is "". Every mutation is one transaction. When the call
    returns, the whole mutation has happened. If it raises any error except `OutcomeUnknown`, nothing has
    happened. It is applied once, even if requests or answers are lost, as long as the table keeps the
    tokens of transactions (DynamoDB keeps them for ten minutes, and nothing is sent again after nine).

    Before that, the path is looked up name by name. If another client renames a directory above in the
    meantime, the change applies to the file or directory that was found, wherever it is now; as in
    POSIX. With `stable_paths`, the change applies only if the path still leads there. That costs a write
    unit for each directory on the path, and changes with common directories conflict with each other.

    Threads that create files in one directory at the same time share a transaction, and its entry in the
    log; each file has its own outcome. See `commitlog.namespace.write.bulk.SharedLinks`.

    All methods may raise `InvalidPath`, `NotFound` (the namespace does not exist), `FormatTooNew`,
    `CorruptRecord`, `Unavailable`, `AccessDenied`; mutations also `Conflict` and `OutcomeUnknown`.

    >>> from commitlog.namespace import NAMESPACE_SCHEMA
    >>> from commitlog.stores import open_store
    >>> from commitlog.tables import open_table
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

    def __init__(
        self,
        table: Table,
        store: ObjectStore,
        name: str,
        *,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        log: OperationLog | None = None,
        grace: float = 3600.0,
        stable_paths: bool = False,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self.name = name
        self.table = table
        self.store = store
        self._context = open_context(
            table,
            store,
            name,
            clock=SystemClock() if clock is None else clock,
            backoff=Backoff() if backoff is None else backoff,
            log=log,
            grace=grace,
            stable_paths=stable_paths,
            new_id=new_id,
        )
        self._recorder = self._context.recorder
        self._links = SharedLinks(self._link_together, self._context.clock)
        #: Checks, repairs and cleans the namespace.
        self.maintenance = Maintenance(self._context)
        #: Binds directories to prefixes of the store.
        self.bindings = Bindings(self._context)

    def __repr__(self) -> str:
        return f"Namespace({self.table.url!r}, {self.store.url!r}, {self.name!r})"

    def close(self) -> None:
        """Close the log, the store and the table. Idempotent."""
        if self._context.changes.log is not None:
            self._context.changes.log.root.close()
        self.store.close()
        self.table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def request_stats(self) -> RequestStats:
        """The requests that this `Namespace` has sent to its table and store, by operation.

        Requests to the operation log are not included.
        """
        return RequestStats.of(self.name, self._recorder.counts())

    def create(self) -> bool:
        """Create the namespace, in a table that exists; return False if it exists already.

        Many processes may call it at once. Unless the store denies the write, an object is stored by
        which the namespace recognises its store. A local store's directory is created.

        Raises:
            NotSupported: the table has no transactions.
            AlreadyExists: the log belongs to a namespace that this table does not have: its table was
                lost, or is another one.
            CorruptRecord: the table has records of a namespace, but not the record of its format.
            BucketNotFound: the store does not exist.
        """
        return create(self._context)

    def describe(self, *, writing: bool = True) -> NamespaceMetadata:
        """Return the metadata of the namespace, after checking that this library can use it.

        The metadata is read once; every other method makes the same check.

        Args:
            writing: whether the namespace is going to be changed.

        Raises `NotFound` or `FormatTooNew`. If the namespace is going to be changed, raises
        `ConfigurationError` for a read-only copy, and if it was opened without its log, or with another.
        """
        return self._context.describe(writing=writing)

    # reading

    def stat(self, path: str) -> Status:
        """Return the status of `path`. Raises `NotFound`, also for a path that leads through a file."""
        return self._context.stat(path)

    def path_of(self, id: str) -> str | None:
        """Return the current path of a directory; None if it was deleted, or is not a directory.

        Args:
            id: its `Status.id`.

        The path is looked up from the directory upwards, with one request for each directory above it.
        If one of those is renamed meanwhile, the result may be a path that the directory never had.
        Check that the directory is there.

        Raises `CorruptRecord` if the directory is inside itself, so that no path leads to it: `fsck`
        reports that.
        """
        return self._context.path_of(id)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory at `path`."""
        with contextlib.suppress(NotFound):
            self.stat(path)
            return True
        self._context.describe(writing=False)
        return False

    def list_page(self, path: str = "", *, limit: int = PAGE, token: str | None = None) -> ListPage:
        """Return one page of a directory's entries, by name in the order of UTF-8 bytes.

        An entry that is there all the time is listed once. An entry that is added, renamed or removed
        between two pages may be listed or not. For a file, the file itself is listed. A listing of the
        root leaves out ``.staging``, the directory of jobs in progress.

        Args:
            path: the directory.
            limit: the maximum number of entries, 1 to 1,000,000.
            token: `ListPage.next_token` of the previous page.

        Raises `NotFound`.
        """
        if not 1 <= limit <= _MAX_PAGE:
            raise ConfigurationError(f"limit {limit}: ask for 1 to {_MAX_PAGE} entries a page")
        after = "" if token is None else _name_of(token)
        status = self.stat(path)
        if not status.is_directory:
            return ListPage(entries=() if after else (status,))
        # One entry more than the limit shows whether this is the last page.
        found = list(islice(self._entries(status.entry, after=after, page=limit + 1), limit + 1))
        entries = tuple(Status(path=join(path, entry.name), entry=entry) for entry in found[:limit])
        more = len(found) > limit
        return ListPage(entries=entries, next_token=_token_of(entries[-1].name) if more else None)

    def list(self, path: str = "") -> Iterator[Status]:
        """Yield the entries of a directory, as `list_page` does; for a file, the file itself.

        Raises `NotFound` at the first entry.
        """
        status = self.stat(path)
        if not status.is_directory:
            yield status
            return
        for entry in self._entries(status.entry):
            yield Status(path=join(path, entry.name), entry=entry)

    def walk(self, path: str = "") -> Iterator[Status]:
        """Yield everything below a directory, by name, each directory right before its entries.

        For a file, the file itself is yielded. Changes made meanwhile may be seen or not. A directory
        that is renamed meanwhile may be seen twice, or not at all. A directory can seem to be inside
        itself, if it was moved meanwhile or has a wrong record: it is yielded there, but not walked
        again.

        Raises `NotFound`.
        """
        status = self.stat(path)
        if not status.is_directory:
            yield status
            return
        pending = [(path, self._entries(status.entry))]
        ids = [status.entry.id]
        while pending:
            above, entries = pending[-1]
            entry = next(entries, None)
            if entry is None:
                pending.pop()
                ids.pop()
                continue
            found = Status(path=join(above, entry.name), entry=entry)
            yield found
            if entry.is_directory and not (entry.is_stored and entry.id in ids):
                pending.append((found.path, self._entries(entry)))
                ids.append(entry.id)

    def summary(self, path: str = "") -> Summary:
        """Return the number and total size of files at and below `path`. Raises `NotFound`."""
        status = self.stat(path)
        files = size = 0
        directories = int(status.is_directory)
        for found in self.walk(path):
            directories += found.is_directory
            files += not found.is_directory
            size += found.size
        return Summary(files=files, directories=directories, bytes=size)

    def _entries(self, directory: Entry, *, after: str = "", page: int = PAGE) -> Iterator[Entry]:
        entries = self._context.view.entries(directory, after=after, page=page)
        if directory.id != ROOT:
            return entries
        return (entry for entry in entries if entry.name != STAGING)

    # content

    def open(self, path: str) -> OpenFile:
        """Return a reader of the file's current version; later changes do not affect the reader.

        Raises `NotFound`, `IsADirectory`.
        """
        status = self.stat(path)
        if status.is_directory:
            raise IsADirectory(f"{path!r} is a directory; it has no content")
        return OpenFile(status, self._context.content)

    def read(self, path: str, *, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes ``[start, end)`` of a file; all of them by default.

        Raises `NotFound`, `IsADirectory`, `ObjectChanged` if the object was changed or removed other
        than through the namespace, and `BucketNotFound` if the store itself does not exist.
        """
        opened = self.open(path)
        try:
            return opened.read(start, end)
        except ObjectChanged:
            # The file may have been overwritten, and its old object collected, since it was opened.
            reopened = self.open(path)
            if reopened.data == opened.data:
                raise
            return reopened.read(start, end)

    # files

    def write(
        self,
        path: str,
        body: Body,
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
    ) -> Status:
        """Create a file at `path` with this content, or overwrite it; return it.

        The content is stored first, and becomes visible when all of it is stored. A file that is
        overwritten keeps its id; a reader that has it open continues to read the old content.

        Args:
            path: the path of the file.
            body: the content; a type other than bytes or a binary file is a `TypeError`.
            overwrite: whether to replace an existing file.
            parents: whether to create missing parent directories.
            attributes: attributes to keep with the file, at most 400,000 bytes as JSON.

        Raises:
            TransactionTooLarge: the attributes are larger than that.
            AlreadyExists: the path exists, and `overwrite` is False.
            IsADirectory: the path is a directory.
            NotADirectory: the path leads through a file.
            NotFound: a directory above is missing, and `parents` is False.
        """
        kept = attributes_of(attributes)
        split_new(path)
        self._context.describe()
        if not overwrite:  # an overwrite is rarely refused, so a check first would cost more
            self._check_creatable(path, overwrite=False, parents=parents)
        data = self._context.content.put(body)
        return self._link_own(path, data, overwrite, parents, kept)

    def open_writer(
        self,
        path: str,
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
    ) -> FileWriter:
        """Return a writer for content that arrives in parts; `FileWriter.commit` creates the file.

        Arguments and errors are as for `write`; errors are raised here and at the commit.
        """
        kept = attributes_of(attributes)
        self._context.describe()
        self._check_creatable(path, overwrite=overwrite, parents=parents)
        return FileWriter(
            self._context.content,
            lambda data: self._link_own(path, data, overwrite, parents, kept),
        )

    def upload(self, body: Body) -> Data:
        """Store content without creating a file; return the reference to pass to `link`.

        The caller owns the object: if no file is linked to it, the caller has to remove it. Raises
        `Unavailable` if the content could not be stored.
        """
        self._context.describe()
        return self._context.content.put(body)

    def link(
        self,
        path: str,
        data: Data,
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
    ) -> Status:
        """Create a file at `path` from content that is already in the store.

        The object must exist and must never be changed. If it is the namespace's `own`, no other file
        may refer to it: it is removed some time after the file is overwritten or deleted. So do not link
        it again after `OutcomeUnknown`: it may have belonged to a file, and may be garbage already. Look
        for the file, or store the content again. Arguments and errors are as for `write`.
        """
        file = NewFile(data=data, attributes=attributes_of(attributes))
        entry = self._links.link(path, file, overwrite=overwrite, parents=parents)
        return Status(path=path, entry=entry)

    @overload
    def link_many(
        self,
        files: Mapping[str, Data],
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
        executor: Executor = SERIAL,
        atomic: Literal[True] = True,
    ) -> dict[str, Status]: ...

    @overload
    def link_many(
        self,
        files: Mapping[str, Data],
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
        executor: Executor = SERIAL,
        atomic: Literal[False],
    ) -> dict[str, Status | CommitError]: ...

    def link_many(
        self,
        files: Mapping[str, Data],
        *,
        overwrite: bool = True,
        parents: bool = True,
        attributes: Mapping[str, str] = _EMPTY,
        executor: Executor = SERIAL,
        atomic: bool = True,
    ) -> Any:
        """Create files at several paths, in any directories; return the status of each by its path.

        Args:
            files: the content for each path, as for `link`; that also applies after `OutcomeUnknown`.
            overwrite: whether to replace existing files.
            parents: whether to create missing parent directories.
            attributes: attributes to keep with each of the files.
            executor: makes requests in parallel, such as a `ThreadPoolExecutor`. With it, all names of
                one level of the tree are read at the same time: however many files there are, the call
                takes one round trip for each level, and one for the transaction. By default, up to 32
                names are read at the same time, those below known directories together with these.
            atomic: whether all files are created at one moment, or none. See below for False.

        Raises the errors of `link`, for the first path with a problem. Raises `NotADirectory` if one of
        the paths leads through another, `ConfigurationError` if two files refer to the same object of
        the namespace's own, and `TransactionTooLarge` if the call takes more than 100 writes. A new file
        takes one write, a replaced file two, a directory that gets new entries two, and a created
        directory three. After an error nothing has happened.

        With ``atomic=False``, as many files as possible are created, each by itself, and the result has
        the error for each of the others. All files go into one transaction. If that is refused with an
        error that may concern only some of them, each half goes into its own transaction, and so on:
        this takes far fewer transactions than one for each file. `LINK_BATCH_SIZE` files fit into one
        transaction even if all replace others. The content of a file that was not created is removed,
        as `write` does. After an `OutcomeUnknown` it is left, since a file may refer to it.

        >>> from commitlog import create_namespace
        >>> lake = create_namespace("lake", store="memory://linked", metadata="memory://linked")
        >>> stored = {path: lake.upload(b"rows") for path in ("a", "b", "b/c")}
        >>> [type(made).__name__ for made in lake.link_many(stored, atomic=False).values()]
        ['Status', 'Status', 'NotADirectory']
        """
        if not atomic:
            link = partial(
                self.link_many,
                overwrite=overwrite,
                parents=parents,
                attributes=attributes,
                executor=executor,
            )
            return link_separately(files, link, self._context.store)
        entries = self._context.run(
            plan_link,
            _new_files(files, attributes),
            overwrite=overwrite,
            parents=parents,
            executor=self._recorder.bind(executor),
        )
        return {path: Status(path=path, entry=entries[path]) for path in files}

    def bulk_link(
        self,
        directory: str,
        files: Mapping[str, Data],
        *,
        attributes: Mapping[str, str] = _EMPTY,
        executor: Executor = SERIAL,
    ) -> None:
        """Create any number of new files in one directory, about a hundred in each transaction.

        The files do not appear at one moment. So use this for a directory that no client reads yet, and
        rename the directory when it is complete. The call can be repeated, also after `OutcomeUnknown`:
        a file that already has the same content is skipped, and the outcome becomes known. That holds as
        long as no client renames or deletes the new files. A file that is no longer under its name is
        created again; its object then belongs to another file too, or is removed some time as garbage.

        Args:
            directory: an existing directory.
            files: the content for each name, as for `link`.
            attributes: attributes to keep with each of the files.
            executor: makes requests in parallel, such as a `ThreadPoolExecutor`. With it, the shards of
                the directory are filled in parallel; the transactions of one shard run one after the
                other.

        Raises `NotFound` and `NotADirectory` for the directory, and `ConfigurationError` as `link_many`
        does. Raises `AlreadyExists` if a name is taken by something else: then all other files are
        there. After any other error some of the files may be there. All files go into one directory. If
        the path leads to another directory halfway, or to none, a `Conflict` or `NotFound` says how many
        files are in the first one.
        """
        new = _new_files(files, attributes)
        self._context.describe()
        linked = self._context.bulk_linker(executor).link(directory, new)
        for error in linked.errors.values():
            raise error

    def _check_creatable(self, path: str, *, overwrite: bool, parents: bool) -> None:
        def check(planning: PlanContext) -> tuple[None, None]:
            check_creatable(planning, path, overwrite=overwrite, parents=parents)
            return None, None

        self._context.run(check)

    def _link_together(
        self, files: Mapping[str, NewFile], *, overwrite: bool, parents: bool
    ) -> Mapping[str, Entry]:
        return self._context.run(plan_link, files, overwrite=overwrite, parents=parents)

    def _link_own(
        self, path: str, data: Data, overwrite: bool, parents: bool, attributes: Mapping[str, str]
    ) -> Status:
        """Link an object that was stored for this call; remove the object if the link fails."""
        try:
            return self.link(path, data, overwrite=overwrite, parents=parents, attributes=attributes)
        except OutcomeUnknown:
            raise
        except CommitError:
            self._context.content.remove(data)
            raise

    # names

    def make_directory(
        self,
        path: str,
        *,
        shards: int = 1,
        exist_ok: bool = True,
        parents: bool = True,
        atomic: bool = True,
    ) -> Status:
        """Create a directory, and all missing directories above it, in one step; return it.

        Args:
            path: the path of the directory.
            shards: the number of partitions over which its entries are spread: 1, 2, 4, … 64. One shard
                takes some hundred new names a second. See `reshard`.
            exist_ok: whether the directory may exist already; then it is left as it is. If False, only
                one of several concurrent callers succeeds.
            parents: whether to create missing parent directories.
            atomic: whether the step has to be one transaction. If False, and more directories are
                missing than one transaction can create, the upper ones are created first, with one
                shard each; they stay if the call fails.

        Raises `AlreadyExists` (the path is a file, or a directory and not `exist_ok`), `NotADirectory`,
        `NotFound` (a directory above is missing, and `parents` is False), `TransactionTooLarge` (more
        directories are missing than one transaction can create, with their guard records).

        >>> from commitlog import create_namespace
        >>> lake = create_namespace("lake", store="memory://deep", metadata="memory://deep")
        >>> lake.make_directory("/".join("d" * 100), atomic=False).is_directory
        True
        """
        if atomic or not parents:
            make = plan_make_directory
            entry = self._context.run(make, path, shards=shards, exist_ok=exist_ok, parents=parents)
        else:
            entry = self._make_in_steps(split(path), 0, shards=shards, exist_ok=exist_ok)
        return Status(path=path, entry=entry)

    def _make_in_steps(
        self, names: tuple[str, ...], existing: int, *, shards: int, exist_ok: bool
    ) -> Entry:
        """Create a directory, the upper ones first if one change cannot create all; `existing` exist."""
        try:
            return self._context.run(
                plan_make_directory, "/".join(names), shards=shards, exist_ok=exist_ok
            )
        except TransactionTooLarge:
            half = (existing + len(names)) // 2
            if half == existing:
                raise
        self._make_in_steps(names[:half], existing, shards=1, exist_ok=True)
        return self._make_in_steps(names, half, shards=shards, exist_ok=exist_ok)

    def reshard(self, path: str, *, shards: int) -> Status:
        """Spread new names of a directory over more partitions; existing entries stay where they are.

        A lookup of a name then costs at most one request more for each doubling since the directory was
        created. A directory that already has that many shards is left as it is. Raises `NotFound`,
        `NotADirectory`.
        """
        entry = self._context.run(plan_reshard, path, shards=shards)
        return Status(path=path, entry=entry)

    def rename(
        self, source: str, target: str, *, overwrite: bool = False, into: Status | None = None
    ) -> Status:
        """Rename a file, or a directory with all its contents, in one step; return it.

        `target` is the new path itself, not a directory to move into; the directory above it must exist.

        Args:
            source: the file or directory.
            target: its new path.
            overwrite: whether a file may replace a file, and a directory an empty directory.
            into: the required directory above `target`, in the required version; by default any.

        Raises:
            NotFound: there is nothing at `source`, or no directory above `target`.
            AlreadyExists: the target exists, and `overwrite` is False.
            IsADirectory, NotADirectory, DirectoryNotEmpty: the source cannot replace the target.
            InvalidPath: `source` is the root, or `target` is below it.
            TransactionTooLarge: the two paths have more than about 95 directories that they do not
            share.
            PreconditionFailed: the directory above `target` is not the required one, or not that
                version.
        """
        entry = self._context.run(
            plan_rename,
            source,
            target,
            overwrite=overwrite,
            into=None if into is None else into.entry,
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
        """Give a directory the path of another one, which is deleted with all its contents, in one step.

        A reader of `target` finds one directory or the other, whole. If there is nothing at `target`,
        this is a `rename`. The replaced directory goes to the trash: `Maintenance.empty_trash` removes
        it.

        Args:
            source: the directory that stays.
            target: the path that it gets.
            expected: the required directory at `target`, in this version; by default anything.
            inherit: called if there is a directory at `target`; returns the attributes that `source`
                gets in addition to its own. That directory is replaced only if nothing was added to it
                since; else `inherit` is called again. If it raises an error, nothing is replaced and the
                error is passed on.

        Raises:
            NotFound: there is nothing at `source`, or no directory above `target`.
            NotADirectory: one of them is a file.
            InvalidPath: one of them is the root, or inside the other.
            PreconditionFailed: `target` is not the required directory, or not in that version, or is
                missing.
            TransactionTooLarge: as for `rename`.
        """
        entry = self._context.run(
            plan_replace,
            source,
            target,
            expected=None if expected is None else expected.entry,
            inherit=None if inherit is None else partial(self._inherited, inherit, target),
        )
        return Status(path=target, entry=entry)

    def _inherited(self, inherit: Inherit, path: str, there: Entry) -> Mapping[str, str]:
        def entries(after: str) -> Iterator[Status]:
            for entry in self._context.tree.entries(there, after=after):
                yield Status(path=join(path, entry.name), entry=entry)

        return inherit(Status(path=path, entry=there), entries)

    def delete(self, path: str, *, recursive: bool = False, expected: Status | None = None) -> None:
        """Delete a file or a directory in one step.

        A directory goes to the trash with all its contents, and no path leads there.
        `Maintenance.empty_trash` removes it permanently. `Maintenance.gc` removes the content of files.

        Args:
            path: the file or directory.
            recursive: whether a directory may have entries.
            expected: the required file or directory, in this version; by default anything.

        Raises `NotFound`, `DirectoryNotEmpty`, `InvalidPath` for the root, and `PreconditionFailed` if
        something other than expected is there.
        """
        wanted = None if expected is None else expected.entry
        self._context.run(plan_delete, path, recursive=recursive, expected=wanted)

    def set_attributes(
        self,
        path: str,
        *,
        modified: int | None = None,
        attributes: Mapping[str, str | None] = _EMPTY,
        expected: Status | None = None,
    ) -> Status:
        """Change the attributes or the modification time of a file or directory; return it.

        Args:
            path: the file or directory.
            modified: epoch millisecond; a time before 1970 becomes 0. None leaves the time as it is.
            attributes: new values; None removes an attribute, and those that are not given stay. All
                attributes together take at most 400,000 bytes as JSON.
            expected: the required file or directory, in this version; by default anything.

        Raises `NotFound`, `PreconditionFailed` if something other than expected is there, and
        `TransactionTooLarge` if the attributes are too large.
        """
        entry = self._context.run(
            plan_set_attributes,
            path,
            modified=modified,
            attributes=attributes,
            expected=None if expected is None else expected.entry,
        )
        return Status(path=path, entry=entry)


def _token_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _name_of(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ConfigurationError(f"{token!r} is not the token of a page") from error


def _new_files(files: Mapping[str, Data], attributes: Mapping[str, str]) -> dict[str, NewFile]:
    kept = attributes_of(attributes)
    return {path: NewFile(data=data, attributes=kept) for path, data in files.items()}
