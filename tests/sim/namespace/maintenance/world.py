"""Worlds of a namespace's maintenance.

A `MaintenanceWorld` is a `NamespaceWorld` with a log and a second table. Its nodes compact the log,
restore the namespace from it in the second table, check, repair and recover, while other clients work.
The invariants of a `NamespaceWorld` hold after each change. In addition, after each change,

* the log and its checkpoint, restored to a table, give the current table, if each pending operation is
  decided as it happened: a client that loses the table loses nothing;
* a check has changed nothing, and the objects of other programs exist;
* the second table has a metadata record only if the restored namespace is complete and consistent, and
  has all changes that clients know to have succeeded.

A check finds nothing in an undamaged namespace. At the end, interrupted actions can be repeated, damage
can be repaired, and the log is as short as the namespace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from attrs import evolve

from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError
from commitlog.namespace import Namespace, Restorer
from commitlog.namespace.log.epoch import Epochs
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.partitioned.contents import PartitionedLog
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.tables.api import InFlight, Item, ItemPage, TableCondition
from commitlog.testing import ManualClock
from commitlog.testing.sim import (
    EPOCH,
    Node,
    SimulatedTable,
    Simulation,
    World,
    table_state,
)
from sim.namespace.actions import Action, Program
from sim.namespace.judge import NAME, Call
from sim.namespace.maintenance.actions import A_DAY, KEYS, Restore
from sim.namespace.maintenance.judge import check_restorable, compare_tables
from sim.namespace.servers import WatchedTable
from sim.namespace.world import NamespaceWorld
from sim.namespace.world import world_of as namespace_world_of
from support.library import GetClass, original
from support.namespace import Auditor, Model, ServiceTable

#: Directories with objects of other programs.
FOREIGN = ("others", "old")

#: Outcomes of maintenance by several clients at once.
_REFUSALS = {
    "compact": ("done", "unknown", "Unavailable", "Conflict"),
    "copy": ("done", "Conflict"),
    "restore": ("done", "unknown", "Unavailable", "Conflict", "AlreadyExists"),
    "rewrite": ("done", "unknown", "Unavailable", "Conflict"),
}

#: The beginning of a request of a node in the trace, and the requests that change nothing.
_REQUEST = re.compile(r"  (?P<node>\w+) (?P=node)\d+: (?P<verb>\S+)")

_READING = {"table.get", "table.query", "table.scan", "get", "head", "list"}

#: Actions that remove no files and no content.
_KEEPING = {"check", "collect", "compact", "repair"}


class SequentialTable(SimulatedTable):
    """A client of a table that waits for each of its requests, and scans in small pages.

    Otherwise a restore could write records in any order, and the worlds would be many times as large.
    """

    #: Maximum number of records in a page of a scan.
    page = 1000

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """Put the item, and return its pending result."""
        pending = super().begin_put(item, condition=condition)
        try:
            pending()
        except CommitError:
            return pending
        return lambda: None

    def scan_page(self, *, limit: int = 1000, **options: Any) -> ItemPage:
        """Return a page of at most `page` records."""
        return super().scan_page(limit=min(limit, self.page), **options)


class MaintenanceWorld(NamespaceWorld):
    """A namespace with a log and a second table, and nodes that use or maintain it.

    Args:
        simulation: the simulation, with its faults and latencies.
        page: maximum number of records in a page of a scan.
        backup: whether the second table has an old backup of the namespace.
        damage: damages the table before the programs start.
        spared: kinds of findings that are allowed until they are repaired.
        moments: whether the log is compared with the table after each change, and not only at the end.
        options: those of `NamespaceWorld`.

    Attributes:
        elsewhere: the second table, in which the namespace is restored.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        page: int = 1000,
        backup: bool = False,
        damage: Callable[[WatchedTable], object] = lambda table: None,
        spared: Collection[str] = (),
        moments: bool = True,
        code: GetClass = original,
        **options: Any,
    ) -> None:
        self._page = page
        self._backup = backup
        self._damage = damage
        self._spared = frozenset(spared)
        self._moments = moments
        self._damaged = bool(spared)
        #: Clients of the restored namespace, by node.
        self._moved: dict[str, Namespace] = {}
        #: Nodes that have stopped because the namespace was not restored.
        self._waiting: set[str] = set()
        #: Whether a restore decided pending operations arbitrarily.
        self._arbitrary = False
        #: Objects of other programs.
        self._foreign: set[str] = set()
        self.elsewhere = WatchedTable(
            clock=simulation.server_clock(), watch=lambda token: None, tokens=True
        )
        #: The tree before the damage.
        self._undamaged = Model()
        for path in options.get("made", ()):
            self._undamaged.make_directory(path)
        for path, body in options.get("files", {}).items():
            self._undamaged.write(path, body, overwrite=True, parents=True)
        super().__init__(simulation, logged=True, code=code, **options)
        self._first = self.model.copy()
        if backup:
            for item in self._known.items:
                self.elsewhere.put(item)
        self.elsewhere.watch = self._put
        simulation.add_state(table_state(self.elsewhere))
        simulation.add_state(lambda: (frozenset(self._moved), frozenset(self._waiting), self._arbitrary))

    def _begin(self, *arguments: Any) -> None:
        self.auditor.spared = self._spared
        super()._begin(*arguments)

    def _make(self, *arguments: Any) -> None:
        super()._make(*arguments)
        self._damage(self.table)

    # programs

    def _client(self, node: Node) -> Namespace:
        namespace = super()._client(node)
        namespace._context.table._table = self._sequential(node, self.table)
        return namespace

    def _sequential(self, node: Node, table: WatchedTable) -> SimulatedTable:
        client = SequentialTable(node, table)
        client.page = self._page
        return client

    def _do(self, node: Node, namespace: Namespace, do: Action) -> None:
        if node.name in self._waiting:
            return
        namespace = self._moved.get(node.name, namespace)
        if isinstance(do, Restore):
            self._arbitrary |= do.decide is not None
            do = evolve(do, call=partial(self._restore, node, do))
        elif do.name == "copy":
            do = evolve(do, call=partial(self._copy, node))
        elif do.name == "move":
            do = evolve(do, call=partial(self._move, node))
        if do.name != "check":
            super()._do(node, namespace, do)
            return
        begun = len(self.simulation.trace)
        tracing, self.simulation.tracing = self.simulation.tracing, True
        try:
            super()._do(node, namespace, do)
            sent = (_REQUEST.search(line) for line in self.simulation.trace[begun:])
            kinds = {found["verb"] for found in sent if found and found["node"] == node.name}
            assert kinds <= _READING, f"a check has sent {kinds - _READING}"
        finally:
            self.simulation.tracing = tracing

    def _restore(self, node: Node, do: Restore, namespace: Namespace) -> None:
        assert namespace._context.changes.log is not None
        restorer = self._code(Restorer)(
            table=self._sequential(node, self.elsewhere),
            store=namespace.store,
            log=namespace._context.changes.log.root,
            name=NAME,
            new_id=node.new_id,
        )
        if do.partitioned:
            access = nullcontext(restorer)
            read = partial(self._code(PartitionedLog).of, SerialEngine(), lambda: access)
            restorer = evolve(restorer, read_contents=read)
        done = restorer.restore(decide=self._decider(do.decide), replace=do.replace)
        assert not done.lost, f"I4: {done.lost}"

    def _copy(self, node: Node, namespace: Namespace) -> None:
        assert namespace._context.changes.log is not None
        copy = ServiceTable()
        restorer = self._code(Restorer)(
            table=copy,
            store=namespace.store,
            log=namespace._context.changes.log.root,
            name=NAME,
            new_id=node.new_id,
        )
        restorer.restore(read_only=True)
        compare_tables(copy, self.table, self.store)

    def _decider(self, decide: Decision | None) -> Callable[[Operation], Decision]:
        return lambda operation: self._truth(operation) if decide is None else decide

    def _truth(self, operation: Operation) -> Decision:
        done = operation.body["change_id"] in self.table.applied
        return Decision.COMMITTED if done else Decision.ROLLED_BACK

    def _move(self, node: Node, namespace: Namespace) -> None:
        if self.elsewhere.get(KEYS.metadata) is None:
            self._waiting.add(node.name)
            return
        self._move_all()
        self._moved[node.name] = self._client(node)

    def _move_all(self) -> None:
        """Make the restored table that of the namespace."""
        if self.table is self.elsewhere:
            return
        change_ids, tree = self._as_decided()
        self.table.watch = lambda token: None  # it is fenced: requests in flight have no effect
        self.elsewhere.applied = change_ids
        self.elsewhere.watch = self._changed
        self.table = self.elsewhere
        if self._arbitrary:  # an undone operation may be repeated with another result
            self.auditor = Auditor(self.table, NAME, self.store)
            self._closed = {}
            self.model = tree
        else:
            self.auditor.table = self.table

    # invariants

    def _changed(self, token: str) -> None:
        foreign = {info.path for info in self.store.list() if info.path.split("/")[0] in FOREIGN}
        assert foreign >= self._foreign, (
            f"{self._foreign - foreign} is gone, but belongs to another program"
        )
        self._foreign = foreign
        super()._changed(token)

    def _judge_answer(self, call: Call, value: object) -> None:
        refusals = _REFUSALS.get(call.do.name)
        assert refusals is None or call.outcome in refusals, f"{call} got {call.outcome}"
        if self._arbitrary and call.outcome == "done":
            ids = {id for id, owner in self._owners.items() if owner is call}
            undone = [
                operation
                for operation, decision in self._operations()
                if operation["change_id"] in ids and decision is Decision.ROLLED_BACK
            ]
            done = call.do.changes == "many" or not ids or len(undone) < len(ids)
            assert done, f"{call} succeeded, but the log says that it did not happen"
        super()._judge_answer(call, value)

    def _check_log(self) -> None:
        """I8: the decisions are correct, and the namespace can be restored from the log."""
        if self._arbitrary:
            return
        for operation, decision in self._operations():
            change_id = operation["change_id"]
            done = change_id in self.table.applied
            if operation["what"].startswith("repair: ") and not operation["put"]:
                continue  # no record shows which operation removed an entry
            if decision is Decision.COMMITTED:
                assert done, f"I8: {change_id} is logged as committed, but did not happen"
            if decision is Decision.ROLLED_BACK:
                assert not done, f"I8: {change_id} is logged as rolled back, but happened"
        if self._moments:
            self._check_restorable()

    def _check_restorable(self) -> None:
        assert self.logs is not None
        check_restorable(self.table, logs=self.logs, store=self.store, decide=self._truth)

    def _put(self, token: str) -> None:
        """Check the second table after each change of it: it has a complete namespace, or none."""
        metadata = self.elsewhere.get(KEYS.metadata)
        if metadata is None or (self._backup and metadata in self._known.items):
            return
        if not self._arbitrary:
            compare_tables(self.elsewhere, self.table, self.store)
            return
        try:
            tree = Auditor(self.elsewhere, NAME, self.store).audit()
        except CommitError as error:
            raise AssertionError(f"I4: {error}") from error
        found, (_, wanted) = self._found(tree), self._as_decided()
        assert found == wanted, f"the restored tree is {found}, but by the log it is {wanted}"

    def _as_decided(self) -> tuple[list[str], Model]:
        """Return the change ids of the operations that happened by the log, and their tree."""
        decided = {operation["change_id"]: decision for operation, decision in self._operations()}
        ids = [id for id in self.table.applied if decided.get(id) is not Decision.ROLLED_BACK]
        ids += [
            id
            for id, decision in decided.items()
            if decision is Decision.COMMITTED and id not in ids and id in self._owners
        ]
        tree = self._first.copy()
        for id in ids:
            if id in self._owners:
                self._owners[id].do.model(tree)
        return ids, tree

    # the end

    def judge(self) -> Counter[str]:
        """See `NamespaceWorld.judge`. Before it, interrupted actions are repeated; after it, the log is
        compacted twice: it still has the whole namespace, and nothing else.
        """
        self._finish_restores()
        self._finish_rewrites()
        if self.auditor.spared:
            self._finish_repairs()
        outcomes = super().judge()
        if not self._arbitrary:
            self._finish_compactions()
        return outcomes

    def _finish_restores(self) -> None:
        restores = [call for call in self.calls if isinstance(call.do, Restore)]
        if not restores:
            return
        if self.table is self.elsewhere:
            ended = {call.outcome for call in restores} <= {"done", "Conflict", "AlreadyExists"}
            owned = not ended or self._has_the_log(self.table)
            assert owned, "all restores have ended, but the restored table cannot be changed"
            return
        if self._backup and not any(
            isinstance(call.do, Restore) and call.do.replace for call in restores
        ):
            assert tuple(self.elsewhere.scan()) == self._known.items, (
                "the content of the second table has changed"
            )
            return
        last = restores[-1].do
        assert isinstance(last, Restore)
        there = self.elsewhere.get(KEYS.metadata) is not None
        done = any(call.outcome == "done" for call in restores)
        assert there or not done, "a restore succeeded, but there is no namespace"
        replace = any(isinstance(call.do, Restore) and call.do.replace for call in restores)
        if there and not self._has_the_log(self.elsewhere):
            done, replace = False, True
        if not done and (replace or not there):
            restorer = Restorer(table=self.elsewhere, store=self.store, log=self._log(), name=NAME)
            restorer.restore(decide=self._decider(last.decide), replace=replace)
        self._move_all()

    def _finish_rewrites(self) -> None:
        rewrites = [call for call in self.calls if call.do.name == "rewrite"]
        if not rewrites or self._has_the_log(self.table):
            return
        ended = {call.outcome for call in rewrites} <= {"done", "Conflict"}
        assert not ended, "all rewrites have ended, but the table cannot be changed"
        self._owner().maintenance.rewrite_log(older_than=0)

    def _finish_repairs(self) -> None:
        self._watching = False
        self.simulation.time.now += A_DAY
        owner = self._owner()
        for _ in range(4):
            list(owner.maintenance.repair(owner.maintenance.fsck().findings, dry_run=False))
        found = owner.maintenance.fsck().findings
        assert not found, f"findings that cannot be repaired: {[str(each) for each in found]}"
        self.auditor.spared = frozenset()
        self.model = self._found(self.auditor.audit())
        if {call.do.name for call in self.calls} <= _KEEPING:
            assert self.model == self._undamaged, f"a repair has lost entries of the log: {self.model}"
        self._watching = True

    def _finish_compactions(self) -> None:
        for _ in range(2):
            self.simulation.time.now += A_DAY
            self._owner().maintenance.compact_log()
            self._check_restorable()
        epochs = Epochs(self._log())
        left = list(epochs.log_of(epochs.newest()).names())
        assert not left, f"the log is not empty: {left}"

    def _later(self) -> ManualClock:
        return ManualClock(epoch=EPOCH + self.simulation.now + 1e6)

    def _log(self) -> OperationLog:
        """Return the log of a client without faults."""
        assert self.logs is not None
        clock = self._later()
        return OperationLog(ConditionalStore(self.logs, clock=clock), "log", clock=clock)

    def _has_the_log(self, table: ServiceTable) -> bool:
        item = table.get(KEYS.metadata)
        assert item is not None
        return NamespaceMetadata.from_item(item).epoch == Epochs(self._log()).newest()

    def _owner(self) -> Namespace:
        """Return a client without faults."""
        clock = self._later()
        return Namespace(self.table, self.store, NAME, clock=clock, log=self._log(), grace=self._grace)

    def _check_leftovers(self) -> None:
        if not self._arbitrary and not self._damaged:
            super()._check_leftovers()


def world_of(programs: Mapping[str, Program], **options: Any) -> World:
    """Return a world for `explore`.

    Options are those of `sim.namespace.world.world_of` and of `MaintenanceWorld`.
    """
    return namespace_world_of(programs, kind=MaintenanceWorld, **options)
