"""`Bindings.prune` and `Bindings.diff` in partitions: see `commitlog.namespace.external`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve, frozen

from commitlog.namespace.external.prune import PruneReport, external_files
from commitlog.namespace.fsck.cross_checks import has_content
from commitlog.namespace.model.backing import backing_path
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.model.records import Entry
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.partitioned.levels import (
    DirectoryRef,
    FoundFile,
    LevelJob,
    LevelStep,
    StepReport,
)
from commitlog.namespace.status import Difference
from commitlog.namespace.tree import Tree
from commitlog.paths import join
from commitlog.stores.api import ObjectInfo

__all__ = ["PartitionedDiff", "PartitionedPrune"]


@frozen(kw_only=True)
class PartitionedPrune(LevelJob):
    """Prunes directories in the partitions of an engine."""

    def prune(
        self,
        namespace: Namespace,
        path: str = "",
        *,
        older_than: float | None = None,
        empty_store: bool = False,
        progress: Callable[[PruneReport], object] | None = None,
    ) -> PruneReport:
        """Remove files and tombstones without objects; see `Bindings.prune`.

        Args:
            namespace: the namespace, open in this process.
            path, older_than, empty_store: as there.
            progress: called from time to time with the report so far.
        """
        arguments = {
            "what": "prune",
            "namespace": namespace.name,
            "path": path,
            "older_than": older_than,
            "empty_store": empty_store,
        }
        step = _PruneStep(older_than=older_than, empty_store=empty_store)

        def prune_tree(top: Entry) -> PruneReport:
            done = PruneReport()
            for report in self.walk(DirectoryRef.of(path, top), step, arguments):
                done = done.followed_by(PruneReport.from_json(report))
                if progress is not None:
                    progress(done)
            return done

        return namespace.bindings.prune(
            path, older_than=older_than, empty_store=empty_store, prune_tree=prune_tree
        )


@frozen(kw_only=True)
class _PruneStep(LevelStep[dict[str, Any]]):
    """Prunes directories. Arguments as of `Bindings.prune`."""

    older_than: float | None
    empty_store: bool

    def process(
        self, namespace: Namespace, directories: Iterator[DirectoryRef]
    ) -> StepReport[dict[str, Any]]:
        """See `LevelStep.process`."""
        pruner = namespace.bindings.pruner(older_than=self.older_than, empty_store=self.empty_store)
        done = PruneReport()
        below: list[DirectoryRef] = []
        external: list[tuple[DirectoryRef, int]] = []
        for directory in directories:
            pruned = pruner.prune_directory(directory.entry(), look_up=False)
            done = done.followed_by(pruned.report)
            below += (DirectoryRef.of(join(directory.path, each.name), each) for each in pruned.below)
            if pruned.external:
                external.append((directory, pruned.external))
        return StepReport(report=done.to_json(), below=below, external=external)

    def files_in(self, namespace: Namespace, directory: DirectoryRef) -> Iterator[FoundFile]:
        """See `LevelStep.files_in`."""
        for entry, rows in _rows(namespace, directory):
            for file in external_files(entry, rows):
                yield FoundFile(path=join(directory.path, file.name), entry=file)

    def look_up(self, namespace: Namespace, files: Iterator[FoundFile]) -> dict[str, Any]:
        """See `LevelStep.look_up`."""
        pruner = namespace.bindings.pruner(older_than=self.older_than, empty_store=self.empty_store)
        return pruner.remove_lost(each.entry for each in files).to_json()

    def seems_equal(self, file: Entry, info: ObjectInfo) -> bool:
        """See `LevelStep.seems_equal`: a file stays if there is any object."""
        return True


@frozen(kw_only=True)
class PartitionedDiff(LevelJob):
    """Compares directories with the store in the partitions of an engine. It uses no journal."""

    def diff(
        self,
        namespace: Namespace,
        path: str = "",
        *,
        prefix: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Iterator[Difference]:
        """Yield the differences between the store and the table; see `Bindings.diff`.

        Args:
            namespace: the namespace, open in this process.
            path, prefix: as there.
            progress: called from time to time with the number of files and directories compared so far.
        """
        step = _DiffStep(as_if=prefix is not None)

        def diff_tree(path: str, top: Entry) -> Iterator[Difference]:
            if prefix is not None:
                top = evolve(top, binding=Binding(prefix=prefix))
            compared = 0
            reference = DirectoryRef.of(path, top, as_if=step.as_if)
            for number, found in self.walk(reference, step, {"what": "diff"}):
                compared += number
                if progress is not None:
                    progress(compared)
                yield from found

        return namespace.bindings.diff(path, prefix=prefix, diff_tree=diff_tree)


#: Number of entries that were compared, and the differences.
_Found = tuple[int, list[Difference]]


@frozen(kw_only=True)
class _DiffStep(LevelStep[_Found]):
    """Compares directories.

    Args:
        as_if: whether directories are compared as if they were bound.
    """

    as_if: bool

    def process(self, namespace: Namespace, directories: Iterator[DirectoryRef]) -> StepReport[_Found]:
        """See `LevelStep.process`."""
        reader = namespace.bindings.diff_reader()
        found: list[Difference] = []
        below: list[tuple[str, Entry]] = []
        external: list[tuple[DirectoryRef, int]] = []
        compared = 0

        def count() -> None:
            nonlocal compared
            compared += 1

        for directory in directories:
            entry = directory.read(namespace)
            if entry is None:
                continue
            left: list[str] = []
            found += reader.diff_directory(
                directory.path,
                entry,
                as_if=self.as_if,
                below=below,
                count=count,
                leave=lambda path, file, left=left: left.append(file.id),  # type: ignore[misc]
            )
            if left:
                external.append((directory, len(left)))
        return StepReport(
            report=(compared, found),
            below=[DirectoryRef.of(path, entry, as_if=self.as_if) for path, entry in below],
            external=external,
        )

    def files_in(self, namespace: Namespace, directory: DirectoryRef) -> Iterator[FoundFile]:
        """See `LevelStep.files_in`."""
        for entry, rows in _rows(namespace, directory):
            for file in rows:
                if file.data is not None and backing_path(entry, file) is None:
                    yield FoundFile(path=join(directory.path, file.name), entry=file)

    def look_up(self, namespace: Namespace, files: Iterator[FoundFile]) -> _Found:
        """See `LevelStep.look_up`."""
        reader = namespace.bindings.diff_reader()
        return 0, list(reader.diff_files((each.path, each.entry) for each in files))

    def seems_equal(self, file: Entry, info: ObjectInfo) -> bool:
        """See `LevelStep.seems_equal`."""
        return file.data is not None and has_content(file.data, info)


def _rows(namespace: Namespace, directory: DirectoryRef) -> Iterator[tuple[Entry, Iterator[Entry]]]:
    """Yield the entry and the rows of a directory, unless it is gone."""
    entry = directory.read(namespace)
    if entry is not None:
        yield entry, Tree(namespace.table, Keys(namespace.name)).entries(entry)
