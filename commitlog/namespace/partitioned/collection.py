"""A garbage collection in partitions: see `commitlog.namespace.gc`.

The garbage that is due is divided by its partitions and by time, and each task removes a share. Objects
that were unreferenced when they were listed are left for a second step. For all of them together, the
table and the log are read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import chain
from typing import Any

from attrs import frozen

from commitlog.errors import AccessDenied, CorruptRecord, FormatTooNew, Unavailable
from commitlog.namespace.fsck.references import IN_LOG, OpenReferences
from commitlog.namespace.gc.objects import GarbageShare, GcReport
from commitlog.namespace.gc.trash import TrashReport
from commitlog.namespace.model.keys import TRASH_SHARDS
from commitlog.namespace.model.records import Garbage
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.partitioned.journal import OpenJournal, OpenNamespace, PartitionedJob

__all__ = ["PartitionedCollection", "PartitionedTrash"]

#: Number of shares for each partition: garbage is not spread evenly over time.
_SHARES = 4


@frozen(kw_only=True)
class PartitionedCollection(PartitionedJob):
    """Removes garbage in the partitions of an engine.

    Args:
        open_references: opens what finds the references to objects that were unreferenced when listed.
    """

    open_references: OpenReferences

    def collect(
        self, namespace: Namespace, *, progress: Callable[[GcReport], object] | None = None
    ) -> GcReport:
        """Remove the garbage that is due; see `Maintenance.gc`.

        Args:
            namespace: the namespace, open in this process.
            progress: called with the report so far after each step.

        With a journal, garbage that is due only after the first run began is left for another job.
        """
        collector = namespace.maintenance.collector()

        def divide() -> list[Mapping[str, Any]]:
            return [each.to_json() for each in collector.shares(_SHARES * self.engine.partitions)]

        units = self.plan({"what": "gc", "namespace": namespace.name}, divide)
        numbered = [(number, GarbageShare.from_json(each)) for number, each in enumerate(units)]
        call = partial(_collect, self.open_namespace, self.open_journal)
        with self.engine.counting("removing objects", partitions=len(numbered)) as counter:
            counted = partial(counter.count, weight=_objects_of)
            collected = self.engine.distribute(numbered).map(call).map(counted).keep()
            done = reduce(GcReport.followed_by, collected.map(_reports_alone).collect(), GcReport())
        if progress is not None:
            progress(done)
        orphans = collected.map(_orphans_alone)
        paths = frozenset(orphans.map(_paths).collect())
        if not paths:
            return done
        try:
            referenced = self._referenced(namespace, paths)
        except (AccessDenied, CorruptRecord, FormatTooNew, Unavailable) as error:
            done = done.followed_by(_left(paths, error))
        else:
            with self.engine.counting("removing unreferenced objects", lambda: len(paths)) as counter:
                remove = partial(_collect_orphans, self.open_namespace, referenced)
                rest = orphans.map(counter.count).map(remove)
                done = reduce(GcReport.followed_by, rest.collect(), done)
        if progress is not None:
            progress(done)
        return done

    def _referenced(self, namespace: Namespace, paths: Collection[str]) -> frozenset[str]:
        """Return the objects to which files of any namespace refer, in the table or in the log."""
        references = namespace.maintenance.references(self.open_references)
        described = references.describe(paths)
        return frozenset(path for path, names in described.items() if any(map(_is_of_file, names)))


@frozen(kw_only=True)
class PartitionedTrash(PartitionedJob):
    """Empties the trash in the partitions of an engine. It uses no journal."""

    def empty(
        self, namespace: Namespace, *, progress: Callable[[TrashReport], object] | None = None
    ) -> TrashReport:
        """Remove the contents of the trash; see `Maintenance.empty_trash`.

        Args:
            namespace: the namespace, open in this process.
            progress: called from time to time with the report so far.
        """
        namespace.describe()
        done = TrashReport()
        while True:  # directories move from one shard to another
            call = partial(_empty_shards, self.open_namespace)
            emptied = self.engine.distribute(range(TRASH_SHARDS)).map(call)
            with self.engine.counting("emptying the trash", partitions=TRASH_SHARDS) as counter:
                reports = emptied.map(partial(counter.count, weight=_names_of)).collect()
            files = sum(each.files for each in reports)
            directories = sum(each.directories for each in reports)
            done = TrashReport(
                files=done.files + files,
                directories=done.directories + directories,
                failed=tuple(dict(chain.from_iterable(each.failed for each in reports)).items()),
            )
            if progress is not None:
                progress(done)
            if not (files or directories):
                return done


def _empty_shards(open_namespace: OpenNamespace, shards: Iterator[int]) -> Iterator[TrashReport]:
    with open_namespace() as namespace:
        for shard in shards:
            yield namespace.maintenance.empty_trash(shards=[shard])


def _names_of(report: TrashReport) -> int:
    return report.files + report.directories


def _objects_of(collected: GcReport | Garbage) -> int:
    return collected.objects if isinstance(collected, GcReport) else 0


def _is_of_file(reference: str) -> bool:
    """Return whether a reference, as `References.describe` returns it, is that of a file."""
    return reference == IN_LOG or " " in reference


def _left(paths: Iterable[str], error: Exception) -> GcReport:
    return GcReport.from_json(
        {"objects": 0, "bytes": 0, "failed": [(path, str(error)) for path in paths]}
    )


def _collect(
    open_namespace: OpenNamespace,
    open_journal: OpenJournal,
    shares: Iterator[tuple[int, GarbageShare]],
) -> Iterator[GcReport | Garbage]:
    """Yield the reports and the orphans of shares, as a task."""
    with open_journal() as journal:
        for number, share in shares:
            unit = f"{number:06}"
            found = journal.find(unit)
            if found is not None and not found["orphans"]:
                yield GcReport.from_json(found["report"])
                continue
            with open_namespace() as namespace:
                report, orphans = namespace.maintenance.collector().collect_share(share)
            if found is None:
                record = {"report": report.to_json(), "orphans": len(orphans)}
                report = GcReport.from_json(journal.record(unit, record)["report"])
            else:
                report = GcReport.from_json(found["report"]).followed_by(report)
            yield report
            yield from orphans


def _collect_orphans(
    open_namespace: OpenNamespace, referenced: frozenset[str], orphans: Iterator[Garbage]
) -> Iterator[GcReport]:
    found = list(orphans)
    if found:
        with open_namespace() as namespace:
            collector = namespace.maintenance.collector(referenced.intersection)
            yield collector.collect_orphans(found)


def _reports_alone(collected: Iterator[object]) -> Iterator[GcReport]:
    return (each for each in collected if isinstance(each, GcReport))


def _orphans_alone(collected: Iterator[object]) -> Iterator[Garbage]:
    return (each for each in collected if isinstance(each, Garbage))


def _paths(orphans: Iterator[Garbage]) -> Iterator[str]:
    return (each.data.path for each in orphans)
