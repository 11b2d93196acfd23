"""An import in partitions: see `commitlog.namespace.external.importer`.

The objects are divided into ranges, and each task imports one of them. A directory whose objects lie in
several ranges is created by the first task that gets there. The tasks create all directories in the one
to which the path led at the beginning.

A module of its own: the other jobs begin with records of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial, reduce
from typing import Any

from attrs import frozen

from commitlog._util.concurrency import SERIAL, Executor
from commitlog.errors import AlreadyExists, InvalidPath, NotADirectory
from commitlog.namespace.external.importer import ImportReport, check_import_prefix
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.partitioned.journal import OpenJournal, OpenNamespace, PartitionedJob
from commitlog.namespace.partitioned.listing import ListedRange, objects_in, ranges_of

__all__ = ["PartitionedImport"]

#: Number of ranges for each partition: some take longer than others.
_RANGES = 4


@frozen(kw_only=True)
class PartitionedImport(PartitionedJob):
    """Imports objects in the partitions of an engine.

    Args:
        executor: lists the store in parallel, to divide the objects.
    """

    executor: Executor = SERIAL

    def import_objects(
        self,
        namespace: Namespace,
        prefix: str,
        into: str,
        *,
        progress: Callable[[ImportReport], object] | None = None,
    ) -> ImportReport:
        """Import objects; see `Maintenance.import_objects`.

        Args:
            namespace: the namespace, open in this process.
            prefix, into: as there.
            progress: called with the report at the end.

        Also raises `ConfigurationError` if the job has other arguments, and `NotSupported` if the store
        does not list objects in the order of their bytes.
        """
        check_import_prefix(prefix)
        namespace.describe()
        namespace.store.check()

        def divide() -> list[Mapping[str, Any]]:
            count = _RANGES * self.engine.partitions
            ranges = ranges_of(namespace.store, prefix, count=count, executor=self.executor)
            return [each.to_json() for each in ranges]

        arguments = {"what": "import", "namespace": namespace.name, "prefix": prefix, "into": into}
        units = self.plan(arguments, divide)
        call = partial(
            _import,
            self.open_namespace,
            self.open_journal,
            into,
            _target(namespace, prefix, into),
        )
        numbered = [(number, ListedRange.from_json(each)) for number, each in enumerate(units)]
        with self.engine.counting("importing objects", partitions=len(numbered)) as counter:
            imported = self.engine.distribute(numbered).map(call)
            reports = imported.map(partial(counter.count, weight=_objects_of)).collect()
        done = reduce(ImportReport.followed_by, reports, ImportReport())
        if progress is not None:
            progress(done)
        return done


def _target(namespace: Namespace, prefix: str, into: str) -> str | None:
    """Create the directory of the files; return its id, or None if there are no objects or it cannot be.

    Then each task finds the reason, and reports it for its objects.
    """
    if next(namespace.store.list(prefix), None) is None:
        return None
    with suppress(InvalidPath, NotADirectory, AlreadyExists):
        return namespace.make_directory(into).id
    return None


def _import(
    open_namespace: OpenNamespace,
    open_journal: OpenJournal,
    into: str,
    within: str | None,
    ranges: Iterator[tuple[int, ListedRange]],
) -> Iterator[ImportReport]:
    """Yield the reports of ranges, as a task."""
    with open_journal() as journal:
        for number, listed in ranges:
            unit = f"{number:06}"
            report = journal.find(unit)
            if report is None:
                with open_namespace() as namespace:
                    done = namespace.maintenance.import_objects(
                        listed.prefix,
                        into,
                        objects=objects_in(namespace.store, listed),
                        within=within,
                    )
                report = journal.record(unit, done.to_json())
            yield ImportReport.from_json(report)


def _objects_of(report: ImportReport) -> int:
    return report.files + report.updated + report.known + len(report.refused)
