"""Views of a tree with bound directories: one for reads, one for planning changes.

Both show the rows alone where no directory is bound, or a bound one was synchronised recently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, evolve, field

from commitlog.errors import AccessDenied, BucketNotFound, CommitError
from commitlog.namespace.external.listing_diff import diff_listing
from commitlog.namespace.external.overlay import NameDiff, Overlay
from commitlog.namespace.external.sync import Synchronizer
from commitlog.namespace.model.records import Entry
from commitlog.namespace.tree import PAGE, Tree
from commitlog.namespace.write.transaction import PlanOutdated
from commitlog.tables.api import InFlight

__all__ = ["ReadView", "WriteView"]

#: Attempts at one name while others change it.
_TRIES = 3


@define
class _View(Tree):
    """A tree that takes its root from another tree.

    Args:
        overlay: has the other tree, and asks the store.
        synchronizer: saves the state of the store to the table.
    """

    overlay: Overlay = field(kw_only=True)
    synchronizer: Synchronizer = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._directories = self.overlay.tree._directories

    def root(self) -> Entry:
        """See `Tree.root`."""
        return self.overlay.tree.root()

    def cached_root(self) -> Entry:
        """See `Tree.cached_root`."""
        return self.overlay.tree.cached_root()

    def forget(self) -> None:
        """See `Tree.forget`."""
        self.overlay.tree.forget()

    def begin_find(self, directory: Entry, name: str) -> InFlight[Entry | None]:
        """See `Tree.begin_find`. In a bound directory, the pending call does all of it."""
        if self.overlay.needs_store(directory):
            return lambda: self.find(directory, name)
        return self.overlay.tree.begin_find(directory, name)


@define
class ReadView(_View):
    """The view for reads. An object without a row is shown with no id and the version 0.

    Reads need no permission to write. A client that has it saves to the table the result of listing a
    whole directory, if the binding lets it be trusted for some time.

    Args:
        may_write: raises an error if this client must not change the namespace.
    """

    may_write: Callable[[], object] = field(kw_only=True)
    _denied: bool = field(default=False, init=False)

    def find(self, directory: Entry, name: str) -> Entry | None:
        """Return the visible entry under a name, or None."""
        row = self.overlay.row(directory, name)
        return (
            self.overlay.compare(directory, name, row).visible
            if self.overlay.needs_store(directory)
            else row
        )

    def entries(self, directory: Entry, *, after: str = "", page: int = PAGE) -> Iterator[Entry]:
        """Yield the visible entries of a directory, sorted by name."""
        if not self.overlay.needs_store(directory):
            yield from Tree.entries(self, directory, after=after, page=page)
            return
        listing = diff_listing(self.overlay, directory, after=after)
        if not after and self._saves_listing(directory):
            try:
                self.may_write()
                written = self.synchronizer.sync_listing(directory, listing).written
                listing = evolve(listing, visible={**listing.visible, **written})
            except AccessDenied:
                self._denied = True
            except BucketNotFound:
                raise
            except CommitError:
                pass  # the listing is right, even if it could not be saved
        yield from listing.in_order()

    def _saves_listing(self, directory: Entry) -> bool:
        assert directory.binding is not None
        return directory.is_stored and directory.binding.max_age != 0 and not self._denied


@define
class WriteView(_View):
    """The view for planning changes: rows only, after saving the store's state of the looked-up names.

    Raises `PlanOutdated` if others change the same names.
    """

    def find(self, directory: Entry, name: str) -> Entry | None:
        """Return the row of a directory under a name, or None."""
        for _ in range(_TRIES):
            row = self.overlay.row(directory, name)
            if not self.overlay.needs_store(directory):
                return row
            diff = self.overlay.compare(directory, name, row)
            if diff.is_unchanged:
                return diff.row
            row = diff.row
            replaces = row is not None and diff.visible is not None and diff.visible.is_directory
            if replaces:  # first remove the file; then the directory can be made
                diff = NameDiff(name=name, row=row, visible=None)
            directory, written = self.synchronizer.sync_names(directory, [diff])
            if not replaces:
                return written.get(name)
        raise PlanOutdated(f"{name!r} kept changing in the store")

    def is_changed_by_find(self, directory: Entry) -> bool:
        """See `Tree.is_changed_by_find`."""
        return self.overlay.needs_store(directory)

    def entries(self, directory: Entry, *, after: str = "", page: int = PAGE) -> Iterator[Entry]:
        """Yield the entries of a directory, sorted by name, without saving objects that have no row.

        Raises the errors of `BackingStore.verify` if objects are missing that the rows have.
        """
        if not self.overlay.needs_store(directory):
            yield from Tree.entries(self, directory, after=after, page=page)
            return
        listing = diff_listing(self.overlay, directory, after=after)
        if len(self.synchronizer.confirmed(listing.diffs)) < len(listing.diffs):
            raise PlanOutdated("an object is there again")
        yield from listing.in_order()
