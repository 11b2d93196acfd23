"""The context of an open namespace: its parts, its metadata, and how a change is planned and applied."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from attrs import evolve, frozen

from commitlog._util.concurrency import SERIAL, Executor
from commitlog._util.request_stats import RequestRecorder
from commitlog._util.retry import Backoff
from commitlog._util.tracing import Attributes
from commitlog.clock import Clock
from commitlog.errors import ConfigurationError, CorruptRecord, NotFound
from commitlog.namespace.external.overlay import Overlay
from commitlog.namespace.external.store import BackingStore
from commitlog.namespace.external.sync import Synchronizer
from commitlog.namespace.external.views import ReadView, WriteView
from commitlog.namespace.log.epoch import Epochs, FencedLog
from commitlog.namespace.metadata import Epoch, NamespaceMetadata, namespace_not_found
from commitlog.namespace.model.keys import ROOT, Keys, split
from commitlog.namespace.model.records import Directory
from commitlog.namespace.status import Status
from commitlog.namespace.tree import Tree
from commitlog.namespace.write.bulk import BulkLinker
from commitlog.namespace.write.content import Content
from commitlog.namespace.write.plan_common import PlanContext
from commitlog.namespace.write.transaction import Change, Changes
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.stores.counting_store import CountingStore
from commitlog.tables.api import Table
from commitlog.tables.counting_table import CountingTable

__all__ = ["MetadataCache", "NamespaceContext", "open_context", "span_attributes"]

P = ParamSpec("P")
T = TypeVar("T")


def span_attributes(name: str, arguments: Mapping[str, Any]) -> Attributes:
    """Return the attributes of the span of an operation on the namespace `name`."""
    return {
        "commitlog.namespace": name,
        "commitlog.path": arguments.get("path", arguments.get("directory", arguments.get("into"))),
        "commitlog.source": arguments.get("source"),
        "commitlog.target": arguments.get("target"),
        "commitlog.prefix": arguments.get("prefix"),
    }


class MetadataCache:
    """The metadata of a namespace, read from the table at the first use.

    Args:
        name: the name of the namespace.
        table: the table with its records.
        keys: the keys of its records.
        epochs: the epochs of the log that it was opened with; None without a log.
        log_prefix: the path of that log in the store; None without a log.
        new_id: returns an id that is never returned again.
    """

    def __init__(
        self,
        *,
        name: str,
        table: Table,
        keys: Keys,
        epochs: Epochs | None,
        log_prefix: str | None,
        new_id: Callable[[], str],
    ) -> None:
        self.log_prefix = log_prefix
        self.known: NamespaceMetadata | None = None
        self._name = name
        self._table = table
        self._keys = keys
        self._epochs = epochs
        self._new_id = new_id

    def describe(self, *, writing: bool) -> NamespaceMetadata:
        """Return the metadata; see `Namespace.describe`."""
        known = self.known
        if known is None:
            self.known = known = self._read()
        known.check(writing=writing)
        if writing and known.log != self.log_prefix:
            raise ConfigurationError(
                f"namespace {self._name!r} {_keeps(known.log)}, but was opened as one that"
                f" {_keeps(self.log_prefix)}: open it with `commitlog.open_namespace`, or pass its log"
            )
        return known

    def forget(self) -> None:
        """Read the metadata again at the next use."""
        self.known = None

    def epoch(self) -> Epoch:
        """Return the epoch of the table; without readable metadata, the one to restore it from."""
        known = self.known
        if known is not None:
            return known.epoch
        assert self._epochs is not None
        try:
            item = self._table.get(self._keys.metadata)
            if item is None:
                return self._epochs.complete(self._new_id)
            self.known = known = NamespaceMetadata.from_item(item)
        except CorruptRecord:  # the caller is about to repair it
            return self._epochs.complete(self._new_id)
        return known.epoch

    def is_renewed(self, epoch: Epoch) -> bool:
        """Read the metadata again; return whether a restore or a log rewrite has begun a new epoch.

        Args:
            epoch: the epoch that a change was to be logged in. Another thread may have read the metadata
                since.

        False if the metadata could not be read before.
        """
        if self.known is None:
            return False
        self.known = self._read()
        return self.describe(writing=True).epoch != epoch

    def _read(self) -> NamespaceMetadata:
        item = self._table.get(self._keys.metadata)
        if item is None:
            raise namespace_not_found(self._name, self._table.url)
        return NamespaceMetadata.from_item(item)


@frozen(kw_only=True, eq=False)
class NamespaceContext:
    """The parts of one open namespace. Thread-safe.

    Attributes:
        name: the name of the namespace.
        table: its table; requests are counted.
        store: its object store; requests are counted.
        keys: the keys of its records.
        clock: the clock for timestamps and pauses.
        backoff: the retry policy for failed requests and for conflicts.
        new_id: returns an id that is never returned again.
        recorder: counts requests by operation.
        metadata: the metadata of the namespace.
        tree: reads records of the table.
        changes: applies changes, and logs them.
        content: reads and stores the content of files.
        overlay: shows the objects of bound directories over the records.
        synchronizer: writes records for the objects of bound directories.
        view: the tree as readers see it.
        planning: what plans of callers' changes use.
        row_planning: what plans use that concern records alone: without the objects of bound
            directories, and without conditions on paths.
    """

    name: str
    table: CountingTable
    store: CountingStore
    keys: Keys
    clock: Clock
    backoff: Backoff
    new_id: Callable[[], str]
    recorder: RequestRecorder
    metadata: MetadataCache
    tree: Tree
    changes: Changes
    content: Content
    overlay: Overlay
    synchronizer: Synchronizer
    view: ReadView
    planning: PlanContext
    row_planning: PlanContext

    def describe(self, *, writing: bool = True) -> NamespaceMetadata:
        """Return the metadata of the namespace; see `Namespace.describe`."""
        return self.metadata.describe(writing=writing)

    def run(
        self,
        plan: Callable[Concatenate[PlanContext, P], tuple[Change | None, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call `plan` with `planning` and the arguments, and apply the change; see `Changes.run`.

        Raises the errors of `describe`, too.
        """
        self.describe()
        return self.run_undescribed(lambda: plan(self.planning, *args, **kwargs))

    def run_undescribed(self, plan: Callable[[], tuple[Change | None, T]]) -> T:
        """Run a plan like `run`, in a namespace that may not exist yet."""
        return self.changes.run(plan, forget=self.tree.forget)

    def bulk_linker(self, executor: Executor = SERIAL) -> BulkLinker:
        """Return what creates many files in one directory."""
        return BulkLinker(
            planning=self.planning,
            changes=self.changes,
            clock=self.clock,
            backoff=self.backoff,
            executor=self.recorder.bind(executor),
        )

    def stat(self, path: str) -> Status:
        """Return the file or directory at `path`; see `Namespace.stat`."""
        self.describe(writing=False)
        walk = self.view.walk(split(path))
        if walk.missing:
            raise NotFound(f"there is nothing at {path!r} in namespace {self.name!r}")
        return Status(path=path, entry=walk.last)

    def path_of(self, id: str) -> str | None:
        """Return the path of the directory with this id; see `Namespace.path_of`."""
        self.describe(writing=False)
        names: list[str] = []
        passed: set[str] = set()
        while id != ROOT:
            if id in passed:
                raise CorruptRecord(f"directory {id} is in itself: check namespace {self.name!r}")
            passed.add(id)
            item = self.table.get(self.keys.directory(id))
            if item is None:  # deleted, or in the trash
                return None
            above = Directory.from_item(item)
            names.append(above.name)
            id = above.parent
        return "/".join(reversed(names))


def open_context(
    table: Table,
    store: ObjectStore,
    name: str,
    *,
    clock: Clock,
    backoff: Backoff,
    log: OperationLog | None,
    grace: float,
    stable_paths: bool,
    new_id: Callable[[], str],
) -> NamespaceContext:
    """Return the context of a namespace, without any request. Arguments as of `Namespace`."""
    if not 0 <= grace < math.inf:
        raise ConfigurationError(f"grace is {grace!r} seconds; it must be 0 or more, and finite")
    keys = Keys(name)
    recorder = RequestRecorder()
    counting_table = CountingTable(table, recorder)
    counting_store = CountingStore(store, recorder)
    epochs = None if log is None else Epochs(log)
    metadata = MetadataCache(
        name=name,
        table=counting_table,
        keys=keys,
        epochs=epochs,
        log_prefix=None if log is None else log.prefix,
        new_id=new_id,
    )
    tree = Tree(counting_table, keys)
    changes = Changes(
        table=counting_table,
        clock=clock,
        backoff=backoff,
        log=(
            None
            if epochs is None
            else FencedLog(epochs=epochs, epoch=metadata.epoch, is_renewed=metadata.is_renewed)
        ),
        recorder=recorder,
    )
    backing_store = BackingStore(counting_store, lambda: metadata.describe(writing=False).identity)
    overlay = Overlay(tree=tree, backing_store=backing_store, clock=clock)
    row_planning = PlanContext(
        tree=tree, keys=keys, clock=clock, new_id=new_id, grace=grace, stable_paths=False
    )
    synchronizer = Synchronizer(planning=row_planning, changes=changes, backing_store=backing_store)
    return NamespaceContext(
        name=name,
        table=counting_table,
        store=counting_store,
        keys=keys,
        clock=clock,
        backoff=backoff,
        new_id=new_id,
        recorder=recorder,
        metadata=metadata,
        tree=tree,
        changes=changes,
        content=Content(
            store=counting_store, clock=clock, backoff=backoff, new_id=new_id, recorder=recorder
        ),
        overlay=overlay,
        synchronizer=synchronizer,
        view=ReadView(
            table=counting_table,
            keys=keys,
            overlay=overlay,
            synchronizer=synchronizer,
            may_write=lambda: metadata.describe(writing=True),
        ),
        planning=evolve(
            row_planning,
            tree=WriteView(table=counting_table, keys=keys, overlay=overlay, synchronizer=synchronizer),
            stable_paths=stable_paths,
        ),
        row_planning=row_planning,
    )


def _keeps(log: str | None) -> str:
    return "keeps no log" if log is None else f"keeps its log at {log!r}"
