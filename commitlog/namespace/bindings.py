"""`Bindings`: directories bound to prefixes of the store, to which other programs write, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator

from attrs import evolve, field, frozen

from commitlog._util.frozen_map import AppendOnly
from commitlog._util.request_stats import count_methods
from commitlog._util.tracing import traced
from commitlog.errors import ConfigurationError, Conflict, NotADirectory, NotFound
from commitlog.namespace.context import NamespaceContext, span_attributes
from commitlog.namespace.creation import store_identity_object
from commitlog.namespace.external.diff import DiffReader
from commitlog.namespace.external.listing_diff import diff_listing
from commitlog.namespace.external.prune import Pruner, PruneReport
from commitlog.namespace.external.sync import plan_bind
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.keys import split
from commitlog.namespace.model.records import Entry
from commitlog.namespace.status import Difference, Status
from commitlog.namespace.tree import Walk
from commitlog.namespace.write.plan_common import PlanContext
from commitlog.namespace.write.plan_tree import plan_make_directory
from commitlog.namespace.write.transaction import Change

__all__ = ["Bindings", "SyncReport"]


@frozen(kw_only=True)
class SyncReport:
    """The result of a synchronization with the store.

    Attributes:
        directories: number of bound directories that agree with the store.
        files: number of objects that became files.
        updated: number of files that were updated because their objects had changed.
        removed: number of files that were removed because their objects were gone.
        unfit: objects and prefixes that cannot be files and directories there: the name is taken by
            something else, or is not valid.
    """

    directories: int = 0
    files: int = 0
    updated: int = 0
    removed: int = 0
    unfit: AppendOnly[str] = field(factory=AppendOnly)


@traced(
    lambda bindings, arguments: span_attributes(bindings._context.name, arguments),
    without=("pruner", "diff_reader"),
)
@count_methods
class Bindings:
    """Bindings of directories to prefixes of the store: `Namespace.bindings`. Thread-safe.

    Every method may also raise the errors that every method of `Namespace` may raise. Each call counts
    as an operation under the name of its method.
    """

    def __init__(self, context: NamespaceContext) -> None:
        self._context = context
        self._recorder = context.recorder

    def bind(self, prefix: str, into: str, *, max_age: float | None = 0.0) -> Status:
        """Bind a directory to a prefix, so that it also shows the objects there; return it.

        Other programs continue to store objects there, under names of their own, and need not know the
        namespace. Directories inside it are bound, too, each to its part of the prefix; so are
        directories that are created in it later, or come from the store. A renamed directory stays
        bound. Repeat the call to change `max_age`, or after an interruption. The call is not one
        mutation, but one for each directory; each applies to the directory that the path lookup found
        (also with ``stable_paths``).

        Args:
            prefix: the prefix with its slash, in the store of the namespace.
            into: the directory; it is created if it is missing. Not the root.
            max_age: seconds for which the table alone is used after the directory was synchronised by a
                listing or by `sync`. 0: every read asks the store. None: after the first
                synchronisation, only changes through the namespace are visible, until the next `sync`.

        Raises `NotADirectory`, `AlreadyExists` (it is a file), and `ConfigurationError` if the directory
        is bound to another prefix: unbind it first.
        """
        wanted = _binding(prefix, max_age)
        if not split(into):
            raise ConfigurationError("the root cannot be bound: name a directory in it")
        top = self._context.run(plan_make_directory, into, shards=1)
        if top.binding is not None and top.binding.prefix != prefix:
            raise ConfigurationError(f"{into!r} is bound to {top.binding.prefix!r}: unbind it first")
        bound = self._rebind(top, wanted)
        pending = [(bound, wanted)]
        while pending:
            directory, binding = pending.pop()
            for child in self._directories(directory):
                below = binding.below(child.name)
                if below is None or not self._can_bind(directory, child, below):
                    continue
                with contextlib.suppress(NotFound):
                    pending.append((self._rebind(child, below), below))
        return Status(path=into, entry=bound)

    def unbind(self, path: str) -> Status:
        """Unbind a directory, and those bound with it; from then on only the namespace changes them.

        The files that they have at that time stay, as if they were imported; call `sync` before to get
        all of them. The call can be interrupted and repeated. Raises `NotFound`, `NotADirectory`.
        """
        top = self._directory(path)
        done: set[str] = set()
        while bound := self._bound_with(top, done):
            for directory in reversed(bound):  # parents last: their bindings show the rest
                with contextlib.suppress(NotFound):
                    self._rebind(directory, None)
                done.add(directory.id)
        return Status(path=path, entry=self._directory(path))

    def sync(
        self,
        path: str = "",
        *,
        empty_store: bool = False,
        progress: Callable[[SyncReport], object] | None = None,
    ) -> SyncReport:
        """Make all bound directories at and below a path agree with the store; return a report.

        The call can be interrupted and repeated, and several clients can do it at once. A directory
        costs one listing of its prefix, and a transaction for each fifty new objects. If another client
        renames a directory meanwhile, the call follows it to its new path. If another client moves one
        into a different directory, the call may miss it.

        Args:
            path: a directory.
            empty_store: accept the store even if the object that identifies it is missing, and store
                that object again; all files whose objects are missing are removed. Without it the call
                refuses, because the store may be the wrong one.
            progress: called after each directory with the report so far.

        Raises `NotFound`, `NotADirectory`, and `Conflict` if other clients kept changing a directory.
        Raises `BucketNotFound` and `StoreEmpty` before a file is removed for a missing object.
        """
        done = SyncReport()
        pending: list[tuple[Entry, tuple[str, ...]]] = [(self._directory(path), ())]
        if empty_store:
            self._accept_store()
        while pending:
            directory, above = pending.pop()
            ids = (*above, directory.id)
            below: Iterable[Entry] = ()
            if directory.binding is None:
                below = self._directories(directory)
            else:
                below, done = self._sync(directory, done, may_be_empty=empty_store)
            # A damaged directory may be inside itself.
            pending += [(each, ids) for each in below if each.id not in ids]
            if directory.binding is not None and progress is not None:
                progress(done)
        return done

    def prune(
        self,
        path: str = "",
        *,
        older_than: float | None = None,
        empty_store: bool = False,
        prune_tree: Callable[[Entry], PruneReport] | None = None,
        progress: Callable[[PruneReport], object] | None = None,
    ) -> PruneReport:
        """Remove files and tombstones without objects at and below a path; return a report.

        These are removed: files whose objects other programs have removed, so that they cannot be read;
        tombstones whose objects are gone, or were replaced by newer ones; and tombstones of a directory
        that is not bound, where they hide nothing. If that directory is bound again, the objects that
        they hid become visible. The call can be interrupted and repeated. A bound directory costs one
        listing of its prefix; elsewhere each imported file costs a HEAD. Files are removed a hundred at
        a time. Before that, each of them costs another HEAD, and two more requests prove that the store
        is there.

        Args:
            path: a directory.
            older_than: remove also tombstones that are at least so many seconds old. The objects that
                they hide become visible again, if they are still in the store: choose an age by which
                they have certainly been removed.
            empty_store: as for `sync`.
            prune_tree: prunes a directory, and those below; by default this process does.
                `commitlog.spark.prune` does it on a cluster.
            progress: called after each directory with the report so far.

        The report has the items that could not be removed, because other clients changed them, or
        because the table or the store could not be reached. Raises `NotFound`, `NotADirectory`; and
        `BucketNotFound`, `StoreEmpty` before a file is removed for a missing object.
        """
        if older_than is not None and not older_than >= 0:
            raise ConfigurationError(f"older_than is {older_than!r} seconds; it must be 0 or more")
        top = self._directory(path)
        if empty_store:
            self._accept_store()
        if prune_tree is not None:
            return prune_tree(top)
        return self.pruner(older_than=older_than, empty_store=empty_store).prune(top, progress=progress)

    def pruner(self, *, older_than: float | None = None, empty_store: bool = False) -> Pruner:
        """Return what prunes directories one by one, as `prune` and the tasks of a cluster do.

        Arguments as of `prune`.
        """
        return Pruner(
            overlay=self._context.overlay,
            synchronizer=self._context.synchronizer,
            planning=self._context.planning,
            clock=self._context.clock,
            backoff=self._context.backoff,
            older_than=older_than,
            may_be_empty=empty_store,
        )

    def diff(
        self,
        path: str = "",
        *,
        prefix: str | None = None,
        diff_tree: Callable[[str, Entry], Iterable[Difference]] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Iterator[Difference]:
        """Yield the differences between the store and the table, at and below a path.

        The differences are files whose objects another program changed or removed; and, in bound
        directories, objects that are not files, and objects that tombstones hide. Nothing is changed,
        and no content is read. Each difference is read again before it is reported, so a change made
        meanwhile is not reported.

        A bound directory costs one listing of its prefix, a request for each thousand objects. A file
        whose object is not under that prefix with the same name costs a request to the store; many are
        sent at a time.

        Args:
            path: a file or directory.
            prefix: treat the directory as if it was bound to this prefix, from which it was imported.
            diff_tree: compares a directory of the table, given its path, and those below; by default
                this process does. `commitlog.spark.diff` does it on a cluster.
            progress: called from time to time with the number of files and directories compared so far.

        Raises `NotFound`, and `ConfigurationError` for a prefix to which a directory cannot be bound.
        """
        if prefix is not None:
            _binding(prefix, None)
        self._context.describe(writing=False)
        walk = self._context.tree.walk(split(path))
        # An entry that only the store has is compared, too.
        top = self._context.stat(path).entry if walk.missing else walk.last
        if diff_tree is not None and top.is_directory and top.is_stored:
            yield from diff_tree(path, top)
            return
        yield from self.diff_reader().diff(path, top, prefix, progress or (lambda count: None))

    def diff_reader(self) -> DiffReader:
        """Return what compares directories one by one, as `diff` and the tasks of a cluster do."""
        return DiffReader(overlay=self._context.overlay, content=self._context.content)

    def _accept_store(self) -> None:
        """Accept the store as the right one from now on. Raises `BucketNotFound`."""
        backing_store = self._context.overlay.backing_store
        backing_store.verify(may_be_empty=True)
        identity = backing_store.identity()
        if identity is not None and backing_store.is_missing(identity):
            store_identity_object(self._context, identity)

    def _sync(
        self, directory: Entry, done: SyncReport, *, may_be_empty: bool
    ) -> tuple[list[Entry], SyncReport]:
        """Synchronise one directory; return the directories in it."""
        for _ in self._context.backoff.attempts(self._context.clock):
            now = self._context.tree.reread(directory)
            if now is None:
                path = self._context.path_of(directory.id)
                if path is None:  # deleted meanwhile
                    return [], done
                now = self._context.tree.walk(split(path)).last
                if now.id != directory.id:  # renamed again
                    continue
                directory = now
            if now.binding is None:  # unbound meanwhile
                return [], done
            listing = diff_listing(self._context.overlay, now)
            synced = self._context.synchronizer.sync_listing(now, listing, may_be_empty=may_be_empty)
            new = [entry for entry in synced.written.values() if entry.data is not None]
            done = evolve(
                done,
                files=done.files + sum(entry.version == 1 for entry in new),
                updated=done.updated + sum(entry.version > 1 for entry in new),
                removed=done.removed + synced.removed,
            )
            if synced.complete:
                visible = {**listing.visible, **synced.written}
                below = [entry for entry in visible.values() if entry.is_directory]
                unfit = done.unfit + listing.unfit
                return below, evolve(done, directories=done.directories + 1, unfit=unfit)
        raise Conflict(f"other clients kept changing the tree below {directory.name!r}; try again")

    def _bound_with(self, top: Entry, done: Collection[str]) -> list[Entry]:
        """Return a directory and the directories bound with it, from top to bottom, without those in
        `done`.
        """
        found: list[Entry] = []
        pending = [(top, top.binding)]
        while pending:
            directory, binding = pending.pop()
            if directory.id not in done:
                found.append(directory)
            if binding is None:
                continue
            for child in self._directories(directory):
                below = binding.below(child.name)
                if child.id in done or _have_same_prefix(child.binding, below):
                    pending.append((child, below))
        return found

    def _directory(self, path: str) -> Entry:
        names = split(path)

        def look_up(planning: PlanContext) -> tuple[None, Walk]:
            return None, planning.tree.walk(names)

        walk = self._context.run(look_up)
        if walk.missing:
            raise NotFound(f"there is nothing at {path!r}")
        if not walk.last.is_directory:
            raise NotADirectory(f"{path!r} is a file")
        return walk.last

    def _directories(self, directory: Entry) -> Iterator[Entry]:
        return (entry for entry in self._context.tree.entries(directory) if entry.is_directory)

    def _can_bind(self, directory: Entry, child: Entry, below: Binding) -> bool:
        """Return whether a directory inside a bound one is to be bound with it."""
        if child.binding is not None:
            return child.binding.prefix == below.prefix
        return self._context.tree.tombstone(directory, f"{child.name}/") is None

    def _rebind(self, directory: Entry, binding: Binding | None) -> Entry:
        """Change the binding of a directory; raise `NotFound` if it is no longer at its path."""

        planning = self._context.row_planning  # the path may lead elsewhere

        def plan(_: PlanContext) -> tuple[Change | None, Entry]:
            now = planning.tree.reread(directory)
            if now is None:
                raise NotFound(f"directory {directory.name!r} was renamed, or deleted, meanwhile")
            return plan_bind(planning, now, binding)

        return self._context.run(plan)


def _have_same_prefix(binding: Binding | None, other: Binding | None) -> bool:
    """Return whether both bindings exist and have the same prefix."""
    return binding is not None and other is not None and binding.prefix == other.prefix


def _binding(prefix: str, max_age: float | None) -> Binding:
    try:
        return Binding(prefix=prefix, max_age=max_age)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"no directory can be bound so: {error}") from error
