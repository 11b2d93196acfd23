"""A namespace with a log, changes to it, and the records that a restore must return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from random import Random
from typing import Any

import pytest
from attrs import define, evolve

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    CommitError,
    OutcomeUnknown,
)
from commitlog.namespace import (
    Finding,
    FsckReport,
    LogRewriteReport,
    Namespace,
    RepairReport,
    Restorer,
)
from commitlog.namespace.model.keys import NAMESPACES, Keys
from commitlog.namespace.model.records import Entry, Garbage
from commitlog.namespace.partitioned.contents import PartitionedLog
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.namespace.partitioned.objects import ObjectListing
from commitlog.namespace.partitioned.repair import PartitionedRepairer
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.namespace.partitioned.table import PartitionedTable
from commitlog.oplog import OperationLog
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, Key
from commitlog.testing import ManualClock
from support.namespace import QUICK, InterceptedTable, ServiceTable, outcome

__all__ = [
    "Dies",
    "History",
    "World",
    "act",
    "before_requests",
    "fill",
    "leave_pending",
    "records",
    "world",
]

LAKE = "lake"
KEYS = Keys(LAKE)


class Dies(BaseException):
    """The death of a process."""


@define(slots=False)
class World:
    """A namespace with a log, and its parts.

    Attributes:
        engine: divides the work of restores into partitions; None: they are not divided.
        listing: the list of objects for checks in partitions; by default the store is listed.
    """

    clock: ManualClock
    table: ServiceTable
    store: MemoryStore
    log: OperationLog
    words: Random
    engine: SerialEngine | None = None
    listing: ObjectListing | None = None

    @cached_property
    def lake(self) -> Namespace:
        """A client without faults."""
        return self.client()[1]

    @property
    def backoff(self) -> Backoff:
        """Negligible pauses."""
        return evolve(QUICK, random=self.words)

    def word(self) -> str:
        """Return a unique id."""
        return f"{self.words.getrandbits(128):032x}"

    def client(self) -> tuple[InterceptedTable, Namespace]:
        """Return another client."""
        wire = InterceptedTable(self.table)
        return wire, Namespace(
            wire,
            self.store,
            LAKE,
            clock=self.clock,
            backoff=self.backoff,
            log=self.log,
            grace=0,
            new_id=self.word,
        )

    def restorer(self, table: ServiceTable | InterceptedTable) -> Restorer:
        """Return a restorer of the namespace into another table."""
        restorer = Restorer(table=table, store=self.store, log=self.log, name=LAKE)
        if self.engine is None:
            return restorer
        # `PartitionedLog` opens what a task needs; here that is the same in each task.
        read = partial(PartitionedLog.of, self.engine, lambda: nullcontext(restorer))
        return evolve(restorer, read_contents=read)

    def rewrite_log(self, lake: Namespace | None = None, **how: Any) -> LogRewriteReport:
        """Rewrite the log, in the partitions of `engine` if there is one."""
        lake = self.lake if lake is None else lake
        if self.engine is not None:
            access = Restorer(table=self.table, store=self.store, log=self.log, name=LAKE)
            how["open_states"] = partial(
                PartitionedTable.of,
                self.engine,
                lambda: nullcontext(access),
                LAKE,
                self.clock,
                self.word,
            )
        return lake.maintenance.rewrite_log(**how)

    def check(self, lake: Namespace | None = None, **how: Any) -> FsckReport:
        """Check the namespace, in the partitions of `engine` if there is one."""
        lake = self.lake if lake is None else lake
        return lake.maintenance.fsck(open_surveyor=self._open_surveyor(), **how)

    def repair(self, lake: Namespace, findings: Iterable[Finding], **how: Any) -> list[RepairReport]:
        """Repair findings, in the partitions of `engine` if there is one."""
        if self.engine is not None:
            how["open_repairer"] = partial(
                PartitionedRepairer.of,
                self.engine,
                self._open_access,
                lambda references: nullcontext(lake.maintenance.repairer(references)),
            )
        return list(lake.maintenance.repair(findings, **how))

    def _open_surveyor(self) -> Callable[..., PartitionedSurveyor] | None:
        if self.engine is None:
            return None
        return partial(PartitionedSurveyor.of, self.engine, self._open_access, listing=self.listing)

    def _open_access(self) -> AbstractContextManager[Restorer]:
        """Return what a task opens: it has the table, the store and the log."""
        return nullcontext(Restorer(table=self.table, store=self.store, log=self.log, name=LAKE))

    def entries(self, table: ServiceTable) -> dict[Key, Entry]:
        """Return all entries of a table."""
        found = map(Entry.from_item, (item for item in table.scan() if "id" in item))
        return {entry.key: entry for entry in found}

    def lost(self) -> ServiceTable:
        """Return a new, empty table."""
        return ServiceTable(clock=self.clock)


def world(seed: int = 0, *, settle: float = 86_400) -> World:
    """Return a new namespace."""
    clock, words = ManualClock(), Random(seed)
    table = ServiceTable(clock=clock)
    store = MemoryStore(clock=clock)
    log = OperationLog(
        ConditionalStore(store, clock=clock, backoff=evolve(QUICK, random=words)),
        "log",
        clock=clock,
        retention=settle,
        new_id=lambda: f"{words.getrandbits(128):032x}",
    )
    made = World(clock, table, store, log, words)
    made.lake.create()
    return made


def fill(lake: Namespace, clock: ManualClock) -> None:
    """Perform a bit of everything."""
    steps: list[Callable[[], object]] = [
        lambda: lake.write("a/b/1", b"1", attributes={"x": "ü"}),
        lambda: lake.make_directory("empty/below", shards=2),
        lambda: lake.write("a/b/2", b"22"),
        lambda: lake.rename("a/b", "empty/b"),
        lambda: lake.reshard("empty", shards=4),
        lambda: lake.write("empty/new", b"n"),
        lambda: lake.set_attributes("empty/new", modified=5, attributes={"y": "1"}),
        lambda: lake.write("gone", b"g"),
        lambda: lake.delete("gone"),
        lambda: lake.write("over", b"1"),
        lambda: lake.write("over", b"2"),
        lambda: lake.write("source", b"3"),
        lambda: lake.rename("source", "over", overwrite=True),
        lambda: lake.make_directory("d1"),
        lambda: lake.make_directory("d2"),
        lambda: lake.rename("d1", "d2", overwrite=True),
        lambda: lake.write("tree/x/y", b"y"),
        lambda: lake.delete("tree", recursive=True),
        lambda: lake.reshard("", shards=2),
        lambda: outcome(lambda: lake.write("over", b"", overwrite=False)),
    ]
    for step in steps:
        clock.advance(1)
        step()


def leave_pending(at: World, operation: Callable[[Namespace], object], *, applied: bool = True) -> None:
    """Let a client die after it sent a change, or, with `applied` false, before it sends it."""
    wire, lake = at.client()
    lake.describe()

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            if applied:
                perform()
            raise Dies
        perform()

    wire.step = step
    at.clock.advance(1)
    with pytest.raises(Dies):
        operation(lake)
    at.clock.advance(1)


def before_requests(
    at: World, wire: InterceptedTable, patch: pytest.MonkeyPatch, call: Callable[[str], object]
) -> None:
    """Let `call` run before each request to a table, each listing, and each object that anyone stores.

    Args:
        at: the namespace.
        wire: the connection to the table.
        patch: ends the interception.
        call: takes the name of the request, or the path of the object or the prefix.
    """

    def put(path: str, *arguments: Any, **options: Any) -> Any:
        call(path)
        return MemoryStore.put(at.store, path, *arguments, **options)

    def list_(prefix: str = "", **options: Any) -> Any:
        call(prefix)
        return MemoryStore.list(at.store, prefix, **options)

    def step(what: str, perform: Callable[[], object]) -> None:
        call(what)
        perform()

    patch.setattr(at.store, "put", put)
    patch.setattr(at.store, "list", list_)
    wire.step = step


def act(random: Random, lake: Namespace) -> None:
    """Perform a random operation."""

    def path(most: int = 3) -> str:
        return "/".join(random.choice("abc") for _ in range(random.randint(1, most)))

    match random.choice(["write", "write", "make", "rename", "rename", "delete", "quiet", "upkeep"]):
        case "write":
            lake.write(path(), random.randbytes(2), overwrite=random.random() < 0.8)
        case "make":
            lake.make_directory(path(), shards=random.choice([1, 1, 2]))
        case "rename":
            lake.rename(path(), path(), overwrite=random.random() < 0.5)
        case "delete":
            lake.delete(path(2), recursive=random.random() < 0.7)
        case "quiet":
            where = random.choice([path(), ""])
            if random.random() < 0.5:
                lake.set_attributes(where, attributes={"x": str(random.random())})
            else:
                lake.reshard(where, shards=2 * lake.stat(where).entry.shards.now)
        case "upkeep":
            lake.maintenance.empty_trash()
            if random.random() < 0.5:
                lake.maintenance.gc()


class History:
    """Operations of several clients, some of which die or lose answers, all drawn from one seed."""

    def __init__(self, seed: int, *, settle: float = 86_400) -> None:
        self.random = Random(seed)
        self.at = world(seed, settle=settle)
        self.clients = [self.at.client() for _ in range(3)]

    def go_on(self, steps: int) -> None:
        """Perform `steps` operations."""
        for _ in range(steps):
            self.step(depth=0)
            self.at.clock.advance(self.random.choice([0, 0, 1, 10]))

    def step(self, depth: int) -> None:
        """Let one client perform an operation, during which others may perform some."""
        number = self.random.randrange(len(self.clients))
        wire, lake = self.clients[number]
        if wire.requests["busy"]:
            return
        fault = self.random.choice([None] * 6 + ["before", "after", "lost", "answer"])

        def send(what: str, perform: Callable[[], object]) -> None:
            if depth < 2 and self.random.random() < 0.1:
                self.step(depth + 1)
            if what != "transact" or fault is None:
                perform()
                return
            if fault in ("after", "answer"):
                perform()
            if fault in ("before", "after"):
                raise Dies
            raise OutcomeUnknown("no answer")

        wire.step = send
        wire.requests["busy"] = 1
        try:
            act(self.random, lake)
        except Dies:
            self.clients[number] = self.at.client()
        except CommitError:
            pass
        finally:
            wire.step = lambda what, perform: perform()
            wire.requests["busy"] = 0

    def recover(self) -> None:
        """Decide all pending changes, as an operator does before the table is lost."""
        self.at.clock.advance(3601)
        self.at.lake.maintenance.recover()


def records(table: ServiceTable, store: MemoryStore) -> dict[Key, Item]:
    """Return all records that a restore must return.

    These are all but guard records, whose change ids carry no meaning, records of garbage that is
    already deleted, and the metadata record, which names another epoch.
    """
    found = {table.schema.key_of(item): item for item in table.scan() if item["place"] != NAMESPACES}
    gone = {
        key
        for key, item in found.items()
        if "/x/" in key.hash and store.begin_head(Garbage.from_item(item).data.path)().info is None
    }
    return {key: item for key, item in found.items() if "/g/" not in key.hash and key not in gone}
