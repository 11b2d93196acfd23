"""Worlds for tests of a namespace's upkeep on the simulator: compaction of its log, restoring it from
that, checks, repairs, recoveries, and what sweeps up after jobs, beside clients that work.

An `UpkeepWorld` is a `NamespaceWorld` with a log, so after every request that changes anything all
that holds there holds here. Beyond that, at each of these moments,

* what the log and its base say, made a table of, is the table as it is, if each pending operation is
  decided as it was: whoever loses the table at that moment loses nothing;
* a check has changed nothing, and objects that are not the namespace's are there;
* what is restored elsewhere has its marker only if it is all there, and fits, and has what anybody was
  told to have succeeded.

At every answer: a check has found nothing where nothing is wrong. In the end what was broken off can be
done again, what is wrong can be repaired, and the log is as short as the namespace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from attrs import evolve, frozen

import sim.namespace.world as names
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError
from commitlog.namespace import Data, DirectoryCommitter, Namespace, Outcome, Restorer
from commitlog.namespace.jobs.committer import sweep_staging
from commitlog.namespace.log.epoch import Epochs
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.model.records import Entry, Garbage
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import InFlight, Item, ItemPage, Key, Table, TableCondition
from commitlog.testing import ManualClock
from commitlog.testing.sim import (
    EPOCH,
    Node,
    SimulatedTable,
    Simulation,
    World,
    table_state,
)
from sim.namespace.actions import attempts
from sim.namespace.world import LAKE, Call, Do, NamespaceWorld, Program, WatchedTable, publish
from support.library import GetClass, original
from support.namespace import Auditor, Model, ServiceTable

KEYS = Keys(LAKE)

#: What the paths of objects begin with that are not the namespace's.
FOREIGN = ("others", "old")

#: What may be told of upkeep that several do at once.
_REFUSALS = {
    "compact": ("done", "unknown", "Unavailable", "Conflict"),
    "restore": ("done", "unknown", "Unavailable", "Conflict", "AlreadyExists"),
}

#: How a request of a node begins in the trace, and what requests there are that change nothing.
_REQUEST = re.compile(r"  (?P<node>\w+) (?P=node)\d+: (?P<verb>\S+)")
_READING = {"table.get", "table.query", "table.scan", "get", "head", "list"}

#: What takes no file and no content away.
_KEEPING = {"check", "collect", "compact", "repair"}

#: Longer than decisions are kept, by the logs of these worlds.
A_DAY = 90_000.0


# -- what nodes do -------------------------------------------------------------------------------------


def compact() -> Do:
    """Compact the log."""
    return Do(
        name="compact",
        lake=lambda lake: lake.maintenance.compact_log() and None,
        changes="many",
        tidies=True,
    )


def check(*, spared: Collection[str] = (), **options: Any) -> Do:
    """Look for what is wrong, where nothing is.

    Args:
        spared: kinds of findings that there may be all the same.
        options: those of `Namespace.audit`.
    """

    def call(lake: Namespace) -> None:
        found = lake.maintenance.fsck(objects=True, orphans=True, **options).findings
        wrong = [str(each) for each in found if each.problem.name not in spared]
        assert not wrong, f"a check tells what is not so: {wrong}"

    return Do(name="check", lake=call, changes="at most one")


def same_names(before: Model, after: Model) -> bool:
    """Tell whether two trees have the same names, whatever the files have: a repair may change that."""
    return before.nodes.keys() == after.nodes.keys()


def repair(
    step: Callable[[Model, Model], bool] = Model.__eq__,
    *,
    only: Collection[str] | None = None,
    age: float = 30.0,
    pending: float = 30.0,
    times: int = 2,
) -> Do:
    """Check, and repair what is found, until nothing is, or nothing can be done about it.

    Args:
        step: tells whether a repair may have made the second tree of the first.
        only: kinds of findings.
        age, pending: see `Namespace.audit`.
        times: at most.
    """

    def call(lake: Namespace) -> None:
        for _ in range(times):
            found = lake.maintenance.fsck(
                orphans=only is not None, grace=0.1, age=age, pending=pending
            ).findings
            done = [each.outcome for each in lake.maintenance.repair(found, dry_run=False, only=only)]
            if not done or set(done) == {Outcome.LEFT}:
                return

    return Do(name="repair", lake=call, changes="many", step=step)


def job(files: Mapping[str, bytes], *, seconds: float) -> Do:
    """Publish a job at ``out``, with content of the namespace's own, that takes so many seconds."""

    def call(lake: Namespace) -> None:
        words = attempts(lake)
        target = DirectoryCommitter(
            lake, "out", clock=lake._context.clock, backoff=lake._context.backoff, new_id=words
        )
        attempt = target.begin("job")
        data: dict[str, Data] = {}
        for name, body in files.items():
            with lake.open_writer(name) as writer:
                writer.write(body)
                data[name] = writer.finish()
        lake._context.clock.sleep(seconds)
        target.publish(attempt, data)

    return evolve(publish("job", files), lake=call)


def sweep_jobs(*, older_than: float) -> Do:
    """Abort jobs that were begun so many seconds ago."""

    def call(lake: Namespace) -> None:
        sweep_staging(lake, older_than=older_than, clock=lake._context.clock)

    return Do(name="sweep jobs", lake=call, changes="many", removes=None, step=_only_staging)


def _only_staging(before: Model, after: Model) -> bool:
    def rest(model: Model) -> Mapping[tuple[str, ...], bytes | None]:
        return {names: body for names, body in model.nodes.items() if names[:1] != (".staging",)}

    return rest(before) == rest(after) and after.nodes.keys() <= before.nodes.keys()


@frozen(kw_only=True)
class Restore(Do):
    """Make the names again from the log, in a table elsewhere.

    Attributes:
        decide: what is said of operations of which the log does not tell; None: as it was.
        replace: whether what is there is removed first.
    """

    decide: Decision | None
    replace: bool


def restore(*, decide: Decision | None = None, replace: bool = False) -> Restore:
    """Return a `Restore`."""

    def call(lake: Namespace) -> None:
        raise AssertionError("done by the world")

    return Restore(name="restore", lake=call, changes="many", decide=decide, replace=replace)


def move() -> Do:
    """From now on, this node works with what was restored; if it was not, this node does nothing."""
    return Do(name="move", lake=lambda lake: None, changes="at most one")


# -- damage --------------------------------------------------------------------------------------------


def _entry(table: Table, name: str) -> Entry:
    return next(
        Entry.from_item(item) for item in table.scan() if (item["name"], "id" in item) == (name, True)
    )


def forget_directory(table: Table) -> None:
    """Remove the record that tells which entry names the directory."""
    table.delete(KEYS.directory(_entry(table, "d").id))


def lose_file(table: Table) -> None:
    """Remove the entry of the file."""
    table.delete(_entry(table, "f").key)


def share_object(table: Table) -> None:
    """Have one file name the object of another."""
    table.put(evolve(_entry(table, "f"), data=_entry(table, "g").data).to_item())


def share_object_before(table: Table) -> None:
    """Have one file be older than it is, and name the object of another."""
    table.put(evolve(_entry(table, "f"), version=0, data=_entry(table, "g").data).to_item())


def list_as_garbage(table: Table) -> None:
    """List the content of the file as garbage that is never due."""
    entry, never = _entry(table, "f"), 10**14
    assert entry.data is not None
    key = KEYS.garbage(never, entry.data.path)
    garbage = Garbage(
        key=key, file=entry.id, version=entry.version, change_id="x", not_before=never, data=entry.data
    )
    table.put(garbage.to_item())


# -- clients -------------------------------------------------------------------------------------------


class Patient(SimulatedTable):
    """A client of a table whose scans take several pages, and that waits for each of its requests.

    Otherwise records could be written in any order, and worlds would be as many times as large.
    """

    #: How many records a page of a scan has.
    page = 1000

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """Do it, and return what tells how that went."""
        pending = super().begin_put(item, condition=condition)
        try:
            pending()
        except CommitError:
            return pending
        return lambda: None

    def scan_page(self, *, limit: int = 1000, **options: Any) -> ItemPage:
        """Ask for less than it could."""
        return super().scan_page(limit=min(limit, self.page), **options)


# -- the world -----------------------------------------------------------------------------------------


class UpkeepWorld(NamespaceWorld):
    """A namespace with a log, a table elsewhere, and nodes that work, or do the upkeep.

    Args:
        simulation: where it all happens.
        page: how many records a page of a scan has.
        backup: whether the table elsewhere has an old backup of the namespace.
        damage: does something to the table before anybody begins.
        spared: kinds of findings that there may be until they are repaired.
        moments: whether the log is compared with the table at each moment, and not only in the end.
        options: those of `NamespaceWorld`.

    Attributes:
        elsewhere: where the namespace is restored.
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
        #: Clients of what was restored, by node.
        self._moved: dict[str, Namespace] = {}
        #: Nodes that wait for somebody to restore the namespace.
        self._waiting: set[str] = set()
        #: Whether a restore was told anything but the truth.
        self._arbitrary = False
        #: Objects that are not the namespace's.
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

    # what nodes do

    def _client(self, node: Node) -> Namespace:
        lake = super()._client(node)
        lake._context.table._table = self._wire(node, self.table)
        return lake

    def _wire(self, node: Node, table: WatchedTable) -> SimulatedTable:
        wire = Patient(node, table)
        wire.page = self._page
        return wire

    def _do(self, node: Node, lake: Namespace, do: Do) -> None:
        if node.name in self._waiting:
            return
        lake = self._moved.get(node.name, lake)
        if isinstance(do, Restore):
            self._arbitrary |= do.decide is not None
            do = evolve(do, lake=partial(self._restore, node, do))
        elif do.name == "move":
            do = evolve(do, lake=partial(self._move, node))
        if do.name != "check":
            super()._do(node, lake, do)
            return
        begun = len(self.simulation.trace)
        tracing, self.simulation.tracing = self.simulation.tracing, True
        try:
            super()._do(node, lake, do)
            sent = (_REQUEST.search(line) for line in self.simulation.trace[begun:])
            kinds = {found["verb"] for found in sent if found and found["node"] == node.name}
            assert kinds <= _READING, f"a check has sent {kinds - _READING}"
        finally:
            self.simulation.tracing = tracing

    def _restore(self, node: Node, do: Restore, lake: Namespace) -> None:
        assert lake._context.changes.log is not None
        restorer = self._code(Restorer)(
            table=self._wire(node, self.elsewhere),
            store=lake.store,
            log=lake._context.changes.log.root,
            name=LAKE,
            new_id=node.new_id,
        )
        done = restorer.restore(decide=self._decider(do.decide), replace=do.replace)
        assert not done.lost, f"I4: {done.lost}"

    def _decider(self, decide: Decision | None) -> Callable[[Operation], Decision]:
        return lambda operation: self._truth(operation) if decide is None else decide

    def _truth(self, operation: Operation) -> Decision:
        done = operation.body["word"] in self.table.applied
        return Decision.COMMITTED if done else Decision.ROLLED_BACK

    def _move(self, node: Node, lake: Namespace) -> None:
        if self.elsewhere.get(KEYS.metadata) is None:
            self._waiting.add(node.name)
            return
        self._go_on_elsewhere()
        self._moved[node.name] = self._client(node)

    def _go_on_elsewhere(self) -> None:
        """Have what was restored be the namespace."""
        if self.table is self.elsewhere:
            return
        words, tree = self._as_decided()
        self.table.watch = lambda token: None  # it is fenced; what is on its way to it happens nowhere
        self.elsewhere.applied = words
        self.elsewhere.watch = self._changed
        self.table = self.elsewhere
        if self._arbitrary:  # what was undone may be done anew, in another way
            self.auditor = Auditor(self.table, LAKE, self.store)
            self._closed = {}
            self.model = tree
        else:
            self.auditor.table = self.table

    # what must be so

    def _changed(self, token: str) -> None:
        foreign = {info.path for info in self.store.list() if info.path.split("/")[0] in FOREIGN}
        assert foreign >= self._foreign, (
            f"{self._foreign - foreign} is gone, which is not the namespace's"
        )
        self._foreign = foreign
        super()._changed(token)

    def _judge_answer(self, call: Call, value: object) -> None:
        refusals = _REFUSALS.get(call.do.name)
        assert refusals is None or call.told in refusals, f"{call} is told {call.told}"
        if self._arbitrary and call.told == "done":
            words = {word for word, owner in self._owners.items() if owner is call}
            undone = [
                operation
                for operation, decision in self._operations()
                if operation["word"] in words and decision is Decision.ROLLED_BACK
            ]
            done = call.do.changes == "many" or not words or len(undone) < len(words)
            assert done, f"{call} is told that it was done, and the log says that it was not"
        super()._judge_answer(call, value)

    def _check_log(self) -> None:
        """I8: what it has decided is so; and at each moment the names can be made again from it."""
        if self._arbitrary:
            return
        for operation, decision in self._operations():
            word = operation["word"]
            done = word in self.table.applied
            if operation["what"].startswith("repair: ") and not operation["put"]:
                continue  # what was to go is gone, or not; whose doing that is, no record tells
            if decision is Decision.COMMITTED:
                assert done, f"I8: {word} is logged as committed, and was not done"
            if decision is Decision.ROLLED_BACK:
                assert not done, f"I8: {word} is logged as rolled back, and was done"
        if self._moments:
            self._check_restorable()

    def _check_restorable(self) -> None:
        """Make the names again from a copy of the log, and compare."""
        assert self.logs is not None
        logs = MemoryStore(clock=ManualClock(epoch=EPOCH))
        for path, stored in self.logs._space.objects.items():
            logs._space.set(path, stored)
        log = OperationLog(ConditionalStore(logs), "log", clock=ManualClock(epoch=EPOCH))
        table = ServiceTable()
        try:
            Restorer(table=table, store=self.store, log=log, name=LAKE).restore(decide=self._truth)
        except CommitError as error:
            raise AssertionError(f"the names cannot be made again: {error}") from error
        self._compare(table, self.table)

    def _compare(self, restored: ServiceTable, was: ServiceTable) -> None:
        found, wanted = self._records(restored), self._records(was)
        wrong = sorted(
            str(key) for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)
        )
        assert not wrong, f"restored is something else than there was: {wrong}"

    def _records(self, table: ServiceTable) -> dict[Key, Item]:
        """Return what a restore is to bring back: not what gates were written for, nor what is gone."""
        found: dict[Key, Item] = {}
        for item in table.scan():
            key = table.schema.key_of(item)
            if "/r/" in key.hash or key == KEYS.metadata:  # somebody restores it, in another epoch
                continue
            if "/g/" in key.hash:
                item = {**item, "word": ""}
            elif "/x/" in key.hash:
                data = Garbage.from_item(item).data
                if not data.own or self.store.begin_head(data.path)().info is None:
                    continue
            found[key] = item
        return found

    def _put(self, token: str) -> None:
        """Check what is elsewhere, after each change of it: all that is to be there, or no namespace."""
        marker = self.elsewhere.get(KEYS.metadata)
        if marker is None or (self._backup and marker in self._known.items):
            return
        if not self._arbitrary:
            self._compare(self.elsewhere, self.table)
            return
        try:
            tree = Auditor(self.elsewhere, LAKE, self.store).audit()
        except CommitError as error:
            raise AssertionError(f"I4: {error}") from error
        found, (_, wanted) = self._found(tree), self._as_decided()
        assert found == wanted, f"restored is {found}, and by the log it was {wanted}"

    def _as_decided(self) -> tuple[list[str], Model]:
        """Return the words of what has happened, as the log has decided, and the tree."""
        decided = {operation["word"]: decision for operation, decision in self._operations()}
        words = [word for word in self.table.applied if decided.get(word) is not Decision.ROLLED_BACK]
        words += [
            word
            for word, decision in decided.items()
            if decision is Decision.COMMITTED and word not in words and word in self._owners
        ]
        tree = self._first.copy()
        for word in words:
            if word in self._owners:
                self._owners[word].do.model(tree)
        return words, tree

    # the end

    def judge(self) -> Counter[str]:
        """See `NamespaceWorld.judge`. Before that, what was broken off is done; after that, the log is
        compacted twice, and tells all that there is, and nothing else.
        """
        self._restore_at_last()
        if self.auditor.spared:
            self._repair_at_last()
        outcomes = super().judge()
        if not self._arbitrary:
            self._compact_at_last()
        return outcomes

    def _restore_at_last(self) -> None:
        restores = [call for call in self.calls if isinstance(call.do, Restore)]
        if not restores or self.table is self.elsewhere:
            return
        if self._backup and not any(
            isinstance(call.do, Restore) and call.do.replace for call in restores
        ):
            assert tuple(self.elsewhere.scan()) == self._known.items, "what was there was changed"
            return
        last = restores[-1].do
        assert isinstance(last, Restore)
        there = self.elsewhere.get(KEYS.metadata) is not None
        done = any(call.told == "done" for call in restores)
        assert there or not done, "a restore is told that it was done, and it was not"
        replace = any(isinstance(call.do, Restore) and call.do.replace for call in restores)
        if there and not self._has_the_log(self.elsewhere):
            done, replace = False, True
        if not done and (replace or not there):
            restorer = Restorer(table=self.elsewhere, store=self.store, log=self._log(), name=LAKE)
            restorer.restore(decide=self._decider(last.decide), replace=replace)
        self._go_on_elsewhere()

    def _repair_at_last(self) -> None:
        self._watching = False
        self.simulation.time.now += A_DAY
        owner = self._owner()
        for _ in range(4):
            list(owner.maintenance.repair(owner.maintenance.fsck().findings, dry_run=False))
        found = owner.maintenance.fsck().findings
        assert not found, f"what cannot be repaired: {[str(each) for each in found]}"
        self.auditor.spared = frozenset()
        self.model = self._found(self.auditor.audit())
        if {call.do.name for call in self.calls} <= _KEEPING:
            assert self.model == self._undamaged, f"a repair has lost what the log has: {self.model}"
        self._watching = True

    def _compact_at_last(self) -> None:
        for _ in range(2):
            self.simulation.time.now += A_DAY
            self._owner().maintenance.compact_log()
            self._check_restorable()
        epochs = Epochs(self._log())
        left = list(epochs.log_of(epochs.newest()).names())
        assert not left, f"there is something left in the log: {left}"

    def _later(self) -> ManualClock:
        return ManualClock(epoch=EPOCH + self.simulation.now + 1e6)

    def _log(self) -> OperationLog:
        """Return the log as a client has it to which nothing happens."""
        assert self.logs is not None
        clock = self._later()
        return OperationLog(ConditionalStore(self.logs, clock=clock), "log", clock=clock)

    def _has_the_log(self, table: ServiceTable) -> bool:
        item = table.get(KEYS.metadata)
        assert item is not None
        return NamespaceMetadata.from_item(item).epoch == Epochs(self._log()).newest()

    def _owner(self) -> Namespace:
        """Return a client to which nothing happens."""
        clock = self._later()
        return Namespace(self.table, self.store, LAKE, clock=clock, log=self._log(), grace=self._grace)

    def _check_leftovers(self) -> None:
        if not self._arbitrary and not self._damaged:
            super()._check_leftovers()


def world_of(programs: Mapping[str, Program], **options: Any) -> World:
    """Return what `explore` builds worlds with.

    Options are those of `sim.namespace.world.world_of`, and of `UpkeepWorld`.
    """
    return names.world_of(programs, make=UpkeepWorld, **options)
