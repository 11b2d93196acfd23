"""Differences between a namespace and its store, which other programs have changed.

A bound directory is compared with a listing of its prefix, one request for each thousand objects. Each
other file takes one request. A difference is checked a second time before it is reported. Nothing is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from attrs import evolve, frozen

from commitlog.errors import InvalidPath
from commitlog.namespace.external.listing_diff import ListingDiff, diff_listing
from commitlog.namespace.external.overlay import Overlay
from commitlog.namespace.external.store import WINDOW
from commitlog.namespace.model.backing import backing_path
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.keys import split
from commitlog.namespace.model.records import Entry
from commitlog.namespace.status import Difference, Kind, Status
from commitlog.namespace.write.content import Content
from commitlog.paths import check_path, join
from commitlog.stores.api import ObjectInfo, same_etag

__all__ = ["DiffReader"]

#: Number of entries between two progress reports.
_PROGRESS_STEP = 100


@frozen(kw_only=True)
class DiffReader:
    """Compares the rows of one namespace with its store.

    Args:
        overlay: compares directories.
        content: compares single files.
    """

    overlay: Overlay
    content: Content

    def diff(
        self, path: str, top: Entry, prefix: str | None, progress: Callable[[int], object]
    ) -> Iterator[Difference]:
        """Yield the differences at and below a path.

        Args:
            path: of a file or directory.
            top: its entry.
            prefix: compare the directory as if it were bound to this prefix.
            progress: called from time to time with the number of files and directories compared so far.
        """
        if not top.is_directory:
            yield from self._diff_file(path, top)
            return
        if prefix is not None:
            top = evolve(top, binding=Binding(prefix=prefix))
        pending: list[tuple[str, Entry, tuple[str, ...]]] = [(path, top, ())]
        compared = 0

        def count() -> None:
            nonlocal compared
            compared += 1
            if compared % _PROGRESS_STEP == 0:
                progress(compared)

        while pending:
            path, directory, above = pending.pop()
            below: list[tuple[str, Entry]] = []
            yield from self.diff_directory(
                path, directory, as_if=prefix is not None, below=below, count=count
            )
            # A damaged directory may be inside itself.
            ids = (*above, directory.id)
            pending += [(at, each, ids) for at, each in below if not (each.is_stored and each.id in ids)]

    def diff_directory(
        self,
        path: str,
        directory: Entry,
        *,
        as_if: bool,
        below: list[tuple[str, Entry]],
        count: Callable[[], object],
        leave: Callable[[str, Entry], object] | None = None,
    ) -> Iterator[Difference]:
        """Yield the differences in one directory, without those in its subdirectories.

        Args:
            path: its path.
            directory: its entry, with the binding to compare it with.
            as_if: whether directories in it are to be compared as if they were bound like it.
            below: takes the directories in it, with their paths.
            count: called for each file and directory in it.
            leave: called with the path and entry of each file outside its backing path; by default its
                object is looked up, as `diff_files` does.
        """
        rows: Iterable[Entry]
        if directory.binding is None:
            rows = self.overlay.tree.entries(directory)
        else:
            listing = diff_listing(self.overlay, directory)
            rows = listing.rows()
            yield from self._diff_listing(path, directory, listing, as_if=as_if)
        files = self._files_to_look_up(path, directory, rows, as_if, below, count)
        if leave is None:
            yield from self.diff_files(files)
        else:
            for at, file in files:
                leave(at, file)

    def _files_to_look_up(
        self,
        path: str,
        directory: Entry,
        rows: Iterable[Entry],
        as_if: bool,
        below: list[tuple[str, Entry]],
        count: Callable[[], object],
    ) -> Iterator[tuple[str, Entry]]:
        """Yield the files outside their backing path; collect the directories in `below`."""
        for entry in rows:
            count()
            at = join(path, entry.name)
            if not entry.is_directory:
                if backing_path(directory, entry) is None:
                    yield at, entry
                continue
            if as_if and entry.binding is None and directory.binding is not None:
                entry = evolve(entry, binding=directory.binding.below(entry.name))
            below.append((at, entry))

    def diff_files(self, files: Iterable[tuple[str, Entry]]) -> Iterator[Difference]:
        """Yield the differences of files from their objects; many are requested at a time.

        Args:
            files: paths and entries of files outside their backing path.
        """
        rest = iter(files)
        while batch := list(islice(rest, WINDOW)):
            yield from self._diff_files(batch)

    def _diff_files(self, files: Sequence[tuple[str, Entry]]) -> Iterator[Difference]:
        store = self.content.store
        heads = [store.begin_head(file.data.path) for _, file in files if file.data is not None]
        for (path, file), head in zip(files, heads, strict=True):
            info = head().info
            assert file.data is not None
            if info is None or not same_etag(info.etag, file.data.etag):
                yield from self._diff_file(path, file)

    def _diff_file(self, path: str, file: Entry) -> Iterator[Difference]:
        assert file.data is not None
        if self.content.difference(file.data) is None:
            return
        now = self._row(path)
        if now is not None and now.data is not None:
            kind = self.content.difference(now.data)
            if kind is not None:
                yield _difference(path, now, kind)

    def _diff_listing(
        self, path: str, directory: Entry, listing: ListingDiff, *, as_if: bool
    ) -> Iterator[Difference]:
        assert directory.binding is not None
        binding = directory.binding
        for diff in listing.diffs:
            below = join(path, diff.name)
            if diff.row is not None or (diff.visible is not None and diff.visible.data is not None):
                yield from self._diff_name(below, directory, diff.name)
            else:
                yield from self._unknown_prefix(below, f"{binding.prefix}{diff.name}/", directory)
        for name, info in listing.hidden.items():
            yield from self._hidden_object(join(path, name.rstrip("/")), directory, name, info)
        for at, info in listing.unfit.items():
            name = at[len(binding.prefix) :].removesuffix("/")
            below = join(path, name)
            if info is None:
                row = listing.visible.get(name)
                if as_if and row is not None and row.is_directory and row.binding is None:
                    continue  # this directory is compared on its own
                yield from self._unknown_prefix(below, at, directory)
            else:
                yield from self._unknown_object(below, info, directory)

    def _diff_name(self, path: str, directory: Entry, name: str) -> Iterator[Difference]:
        row = self.overlay.row(directory, name)
        diff = self.overlay.compare(directory, name, row)
        if diff.is_unchanged:
            return
        if row is None:
            if diff.visible is not None and diff.visible.data is not None:
                yield _difference(path, diff.visible, "unknown")
        elif diff.visible is None or diff.visible.is_directory:
            yield _difference(path, row, "missing")
        else:
            yield _difference(path, row, "changed")

    def _unknown_prefix(self, path: str, prefix: str, directory: Entry) -> Iterator[Difference]:
        """Yield all objects under a prefix that is not a directory of the namespace."""
        assert directory.binding is not None
        for info in self.overlay.backing_store.list_below(prefix, within=directory.binding.prefix):
            if info.path != prefix:  # otherwise it is an empty object that marks the directory
                yield from self._unknown_object(f"{path}/{info.path[len(prefix) :]}", info, directory)

    def _unknown_object(self, path: str, info: ObjectInfo, directory: Entry) -> Iterator[Difference]:
        if self._is_file(path, info):
            return
        name = info.path.rpartition("/")[2]
        if not _is_path(info.path):
            yield _difference(path, self.overlay.unlinkable_file(directory, name, info), "unknown")
        elif self.overlay.backing_store.head(info.path) is not None:
            yield _difference(path, self.overlay.unstored_file(directory, name, info), "unknown")

    def _hidden_object(
        self, path: str, directory: Entry, name: str, info: ObjectInfo | None
    ) -> Iterator[Difference]:
        tombstone = self.overlay.tree.tombstone(directory, name)
        if tombstone is None:
            return
        if info is None:
            if self.overlay.backing_store.has_any(tombstone.path):
                yield _difference(
                    path, self.overlay.unstored_directory(directory, name[:-1], None), "hidden"
                )
            return
        now = self.overlay.backing_store.head(info.path)
        if now is not None and tombstone.hides(now) and not self._is_file(path, info):
            yield _difference(path, self.overlay.unstored_file(directory, name, now), "hidden")

    def _is_file(self, path: str, info: ObjectInfo) -> bool:
        row = self._row(path)
        return row is not None and row.data is not None and row.data.path == info.path

    def _row(self, path: str) -> Entry | None:
        try:
            walk = self.overlay.tree.walk(split(path))
        except InvalidPath:
            return None
        return None if walk.missing else walk.last


def _is_path(path: str) -> bool:
    """Return whether the path is valid in the store."""
    try:
        check_path(path)
    except InvalidPath:
        return False
    return True


def _difference(path: str, entry: Entry, kind: Kind) -> Difference:
    return Difference(status=Status(path=path, entry=entry), kind=kind)
