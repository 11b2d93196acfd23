"""One namespace on the simulator, and nodes that work on it.

In the end what is pending is decided as it was, the trash can be emptied, and garbage be collected. What
must be so before that is in `sim.namespace.judge`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.namespace import Namespace
from commitlog.oplog import OperationLog
from commitlog.testing import ManualClock
from commitlog.testing.sim import (
    EPOCH,
    Node,
    SimulatedStore,
    SimulatedTable,
    Simulation,
    store_state,
    table_state,
)
from sim.namespace.actions import Do, Program
from sim.namespace.judge import LAKE, Call, Known, NamespaceJudge
from sim.namespace.servers import WatchedStore, WatchedTable
from sim.nodes import ClockSkew, LongestPause
from support.library import GetClass, original

#: How nodes back off: few attempts, for few states.
STEADY = Backoff(base=1, cap=1, tries=3, random=LongestPause())

#: What the paths of objects begin with that are not the namespace's.
_FOREIGN = ("others", "old", "raw", "_commitlog")

_NONE: Mapping[str, Any] = {}


class NamespaceWorld(NamespaceJudge):
    """One namespace, and nodes that work on it.

    Args:
        simulation: where it all happens.
        nodes: the clock of each node, by name.
        made: directories that are there.
        files: files that are there.
        objects: objects that are in the store, and no files.
        stable: whether paths are.
        exact: whether every answer must be one that the plain tree gives at some moment of the call.
            Looking up a path takes several requests, so with several rivals it need not be.
        tokens: whether the table keeps those of transactions.
        logged: whether there is a log.
        stored: whether requests to the store travel through the simulation, too.
        grace: that of the namespace, in seconds.
        shards: of the directories that are made at the beginning.
        backoff: how the node of that name backs off.
        prepare: does more to the namespace before anybody begins.
        code: returns the class that takes the place of a class of the library.
        known: what is known from other runs of this world.

    Attributes:
        outcomes: how often was told what.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        made: Iterable[str] = (),
        files: Mapping[str, bytes] = _NONE,
        objects: Mapping[str, bytes] = _NONE,
        stable: bool = True,
        exact: bool = True,
        tokens: bool = True,
        logged: bool = False,
        stored: bool = False,
        grace: float = 100.0,
        shards: int = 1,
        backoff: Callable[[str], Backoff] = lambda name: STEADY,
        prepare: Callable[[Namespace], object] = lambda owner: None,
        code: GetClass = original,
        known: Known | None = None,
    ) -> None:
        clock = simulation.server_clock()
        words = simulation.new_id
        super().__init__(
            table=WatchedTable(clock=clock, watch=self._changed, tokens=tokens),
            store=WatchedStore(clock=clock, new_id=words, watch=self._changed),
            logs=WatchedStore(clock=clock, new_id=words, watch=self._changed) if logged else None,
            stable=stable,
            exact=exact,
            known=Known(shared=False) if known is None else known,
        )
        self.simulation = simulation
        self.outcomes: Counter[str] = Counter()
        self._stored = stored
        self._grace = grace
        self._backoff = backoff
        self._prepare = prepare
        self._code = code
        self._begin(made, files, objects, shards)
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=ticks.rate, offset=ticks.offset)
            for name, ticks in nodes.items()
        }
        simulation.add_state(table_state(self.table))
        simulation.add_state(store_state(self.store))
        if self.logs is not None:
            simulation.add_state(store_state(self.logs))
        simulation.add_state(lambda: tuple(self.table.applied))
        simulation.add_state(lambda: tuple(call.state() for call in self.calls))
        simulation.add_state(lambda: frozenset(self.auditor._gone))

    def _begin(
        self, made: Iterable[str], files: Mapping[str, bytes], objects: Mapping[str, bytes], shards: int
    ) -> None:
        stores = (self.store,) if self.logs is None else (self.store, self.logs)
        if self._known.items:
            self._begin_again(stores)
        else:
            self._make(made, files, objects, shards)
            self._known.items = tuple(self.table.scan())
            self._known.objects = tuple(dict(store._space.objects) for store in stores)
            self._known.applied = tuple(self.table.applied)
        self.model = self._audit()
        self._watching = True

    def _begin_again(self, stores: Sequence[WatchedStore]) -> None:
        for item in self._known.items:
            self.table.put(item)
        for store, objects in zip(stores, self._known.objects, strict=True):
            for path, stored in objects.items():
                store._space.set(path, stored)
        self.table.applied += self._known.applied

    def _make(
        self, made: Iterable[str], files: Mapping[str, bytes], objects: Mapping[str, bytes], shards: int
    ) -> None:
        numbers = (f"w{number}" for number in itertools.count())
        clock = self.simulation.server_clock()
        log = None
        if self.logs is not None:
            logs = ConditionalStore(self.logs, clock=clock, new_id=lambda: next(numbers))
            log = OperationLog(logs, "log", clock=clock, new_id=lambda: next(numbers))
        owner = Namespace(
            self.table,
            self.store,
            LAKE,
            clock=clock,
            log=log,
            new_id=lambda: next(numbers),
            backoff=STEADY,
        )
        owner.create()
        for path in made:
            owner.make_directory(path, shards=shards)
        for path, body in files.items():
            owner.write(path, body)
        for path, body in objects.items():
            self.store.put(path, body)
        self._prepare(owner)

    # what nodes do

    def start(self, name: str, program: Program, *, restart: bool = False, **options: Any) -> None:
        """Let a program run on the node of that name, and anew if it dies and `restart`.

        Other options are those of `Node.start`.
        """
        node = self.nodes[name]

        def live() -> None:
            lake = self._client(node)
            for step in program:
                if isinstance(step, Do):
                    self._do(node, lake, step)
                else:
                    node.clock.sleep(step)

        node.start(live, restart=live if restart else None, **options)

    def _client(self, node: Node) -> Namespace:
        backoff = self._backoff(node.name)

        def word() -> str:
            made = node.new_id()
            if node.name in self._running:
                self._owners[made] = self._running[node.name]
            return made

        log = None
        if self.logs is not None:
            logs = ConditionalStore(
                SimulatedStore(node, self.logs), clock=node.clock, backoff=backoff, new_id=node.new_id
            )
            log = self._code(OperationLog)(logs, "log", clock=node.clock, new_id=node.new_id)
        return self._code(Namespace)(
            SimulatedTable(node, self.table),
            SimulatedStore(node, self.store) if self._stored else self.store,
            LAKE,
            clock=node.clock,
            backoff=backoff,
            log=log,
            grace=self._grace,
            stable_paths=self._stable,
            new_id=word,
        )

    def _do(self, node: Node, lake: Namespace, do: Do) -> None:
        call = Call(do, node.name)
        self._notice(call)
        self.calls.append(call)
        self._running[node.name] = call
        if do.name == "tamper":
            self._tampered = True
            self.auditor.store = None
        value: object = None
        try:
            value = do.lake(lake)
            call.told = "done"
        except OutcomeUnknown:
            call.told = "unknown"
        except CommitError as error:
            call.told = type(error).__name__
        except BaseException:
            call.told = "unknown"
            raise
        finally:
            del self._running[node.name]
        node.note(f"{do.name} is told {call.told}")
        self.outcomes[f"{do.name}: {call.told}"] += 1
        self._judge_answer(call, value)

    # the end

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if something is wrong in a run that has ended; return `outcomes`.

        What is pending is decided as it was; nothing stays in the trash; of the objects that the
        namespace has written, those of files are left, and such as somebody may have left who died.
        """
        stuck = [name for name, node in self.nodes.items() if node.running]
        assert not stuck, f"the programs of {stuck} wait for nothing"
        clock = ManualClock(epoch=EPOCH + self.simulation.now + 1e6)
        owner = self._bystander(clock)
        if self.logs is not None:
            owner.maintenance.recover(older_than=0)
            self._check_log()
        tree = self.model.copy()
        owner.maintenance.empty_trash()
        clock.advance(self._grace + 1)
        collected = owner.maintenance.gc()
        assert not collected.failed
        assert self.model == tree, "emptying the trash has changed the tree"
        places = [str(item["place"]).split("/")[1:3] for item in self.table.scan()]
        left = [place for place in places if place == ["e", "trash"] or place[:1] == ["x"]]
        assert not left, "something stays in the trash"
        self._check_leftovers()
        return self.outcomes

    def _bystander(self, clock: Clock) -> Namespace:
        """Return a client to whom nothing happens."""
        log = None
        if self.logs is not None:
            log = self._code(OperationLog)(ConditionalStore(self.logs, clock=clock), "log", clock=clock)
        return self._code(Namespace)(
            self.table, self.store, LAKE, clock=clock, log=log, grace=self._grace
        )

    def _check_leftovers(self) -> None:
        excused = any(call.told == "unknown" for call in self.calls) or (
            self._stored and self.simulation.injected
        )
        if excused or self._tampered:
            return
        named = {entry.data.path for entry in self.auditor._seen.values() if entry.data is not None}
        left = {info.path for info in self.store.list() if info.path.split("/")[0] not in _FOREIGN}
        assert left <= named, f"I10: nobody died, and {sorted(left - named)} is left over"
