"""A table with transaction tokens, a table that fails on demand, a plain tree, and an auditor.

`Auditor.audit` checks the invariants that hold at any moment, whichever processes have died, as
`Namespace.maintenance.fsck` does. It also checks those that need the earlier state. The invariants are
numbered as in docs/namespace.md.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import pytest
from attrs import define, field

from commitlog._util.concurrency import SERIAL, Executor
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    DirectoryNotEmpty,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    TransactionCanceled,
)
from commitlog.namespace import LINK_BATCH_SIZE, NAMESPACE_SCHEMA, Data, Namespace
from commitlog.namespace.fsck.cross_checks import compare_with_log, compare_with_store
from commitlog.namespace.fsck.problems import Finding
from commitlog.namespace.fsck.readers import LogReader, ScannedRecords, StoreReader, TableReader
from commitlog.namespace.fsck.tree_checks import TreeChecks
from commitlog.namespace.model.binding import RESERVED
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.model.records import Entry, Record, record_of
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectInfo, ObjectStore
from commitlog.tables.api import (
    InFlight,
    Item,
    ItemPage,
    Key,
    Table,
    TableCondition,
    TableInfo,
    Write,
)
from commitlog.tables.memory import MemoryTable
from commitlog.tables.rules import settled
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url

T = TypeVar("T")


def stored(store: ObjectStore, path: str, body: bytes = b"1") -> Data:
    """Return an object that can be linked, and put it if it is missing."""
    try:
        info = store.head(path)
    except NotFound:
        store.put(path, body)
        info = store.head(path)
    return Data(path=path, size=info.size, etag=info.etag)


#: Seconds for which DynamoDB keeps the token of a transaction.
TOKENS_KEPT = 600.0

#: Negligible pauses, on a clock that does not wait.
QUICK = Backoff(base=1e-6, cap=1e-6)


def atomic_links(stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Namespace.link_many` with `stand_in` for its calls with ``atomic=True``."""
    real = Namespace.link_many

    def link_many(self: Namespace, files: Any, *, atomic: bool = True, **how: Any) -> Any:
        return stand_in(self, files, **how) if atomic else real(self, files, atomic=False, **how)

    return link_many


def watched_executors(monkeypatch: pytest.MonkeyPatch, calls: int = LINK_BATCH_SIZE) -> list[int]:
    """Check that each executor of `Namespace.link_many` makes `calls` calls in parallel.

    Returns the number of files of each of these calls of `link_many`.
    """
    seen: list[int] = []
    real = Namespace.link_many

    def link_many(self: Namespace, files: Any, *, executor: Executor = SERIAL, **how: Any) -> Any:
        if executor is not SERIAL:
            meeting = threading.Barrier(calls)
            list(executor.map(lambda _: meeting.wait(30), range(calls)))
            seen.append(len(files))
        return real(self, files, executor=executor, **how)

    monkeypatch.setattr(Namespace, "link_many", atomic_links(link_many))
    return seen


class ServiceTable(MemoryTable):
    """A table in memory that performs a transaction with the same token once, as DynamoDB does.

    It forgets tokens after ten minutes, as DynamoDB may.

    Attributes:
        applied: the tokens of the transactions that were performed, in order.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=clock or ManualClock())
        self.applied: list[str] = []
        self._kept: dict[str | None, float] = {}
        self.create()

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """Perform the transaction, unless its token was used."""
        now = self._clock.epoch()
        if token is None or now - self._kept.get(token, -math.inf) > TOKENS_KEPT:
            super().transact(writes, token=token)
            self.applied.append(token or "")
            self._kept[token] = now


class InterceptedTable(Table):
    """A client's connection to a table: it counts requests, and calls a hook for each of them.

    Attributes:
        requests: number of calls of each method.
        step: a hook with the name of a request and a function that performs it. It may perform it, or
            raise.
    """

    def __init__(self, table: Table) -> None:
        self.url, self.schema = table.url, table.schema
        self.requests: Counter[str] = Counter()
        self.step: Callable[[str, Callable[[], object]], object] = lambda what, perform: perform()
        self._table = table

    def create(self) -> bool:
        """Create the table, not counted."""
        return self._table.create()

    def check(self) -> None:
        """Check the table, not counted."""
        self._table.check()

    def describe(self) -> TableInfo:
        """Describe the table, not counted."""
        return self._table.describe()

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        """Read an item."""
        return settled(lambda: self._do("get", lambda: self._table.get(key)))

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """Write an item."""
        self._do("put", lambda: self._table.put(item, condition=condition))
        return lambda: None

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """Delete an item."""
        self._do("delete", lambda: self._table.delete(key, condition=condition))

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """Read a page of items of a hash key."""
        return self._do(
            "query",
            lambda: self._table.query_page(hash_key, start_after=start_after, limit=limit, token=token),
        )

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """Read a page of all items."""
        return self._do(
            "scan",
            lambda: self._table.scan_page(segment=segment, segments=segments, limit=limit, token=token),
        )

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """Perform a transaction."""
        self._do("transact", lambda: self._table.transact(writes, token=token))

    def _do(self, what: str, perform: Callable[[], T]) -> T:
        self.requests[what] += 1
        answers: list[T] = []

        def once() -> None:
            answers.append(perform())

        self.step(what, once)
        assert answers, "a step that does not perform the request must raise"
        return answers[-1]


# -- invariants -----------------------------------------------------------------------------------------


_decoded = lru_cache(maxsize=8192)(lambda fields: record_of(dict(fields)))


class DecodedOnce(ScannedRecords):
    """A snapshot that decodes each item once, even if several scans find it; records are frozen."""

    @staticmethod
    def _decode(item: Item) -> Record | None:
        record: Record | None = _decoded(tuple(item.items()))
        return record


@define
class Auditor:
    """A checker of all records of a namespace, as `Namespace.maintenance.fsck`, and of their history.

    Attributes:
        table, name: the namespace.
        store: its content, if that is checked.
        log: its log, if it has one that is checked.
        spared: names of problems that are allowed.
        objects: paths of all objects that are or were named.
    """

    table: Table
    name: str
    store: ObjectStore | None = None
    log: OperationLog | None = None
    spared: frozenset[str] = frozenset()
    _seen: dict[str, Entry] = field(factory=dict)
    _gone: set[str] = field(factory=set)
    objects: set[str] = field(factory=set)
    _scanned: tuple[object, TreeChecks, list[Finding]] | None = None

    def audit(self) -> dict[str, Entry]:
        """Return the entry of each path; raise `AssertionError` if an invariant is broken."""
        shape, findings = self._scan()
        snapshot, found = shape.snapshot, list(findings)
        if self.log is not None:
            found += compare_with_log(shape, LogReader.of(self.log).read())
        if self.store is not None:
            for _, missing in compare_with_store(shape, StoreReader.of(self.store)):
                found += missing
        found = [each for each in found if each.problem.name not in self.spared]
        assert not found, "; ".join(f"{each.problem.invariant}: {each}" for each in found)
        for tombstone in snapshot.tombstones.values():
            assert tombstone.path.endswith(f"/{tombstone.name}"), "I11: a tombstone of something else"
        self._check_content(snapshot)
        self._check_history(list(snapshot.entries.values()))
        return shape.tree

    def snapshot(self) -> ScannedRecords:
        """Return all records of the namespace."""
        return self._scan()[0].snapshot

    def _scan(self) -> tuple[TreeChecks, list[Finding]]:
        """Return the records and their problems; scan a table that counts its changes once for each."""
        changes = getattr(self.table, "changes", None)
        state = None if changes is None else (self.table, changes)
        if state is None or self._scanned is None or self._scanned[0] != state:
            shape = TreeChecks(DecodedOnce.of(TableReader.of(self.table), self.name), Keys(self.name))
            self._scanned = state, shape, list(shape.findings())
        return self._scanned[1:]

    def _check_content(self, snapshot: ScannedRecords) -> None:
        named = [entry.data for entry in snapshot.entries.values() if entry.data is not None]
        named += [each.data for each in snapshot.garbage.values()]
        paths = {data.path for data in named if data.own}
        lost = self.objects - paths
        self.objects |= paths
        if lost and self.store is not None:
            left = {info.path for info in self.store.list()}
            assert not lost & left, "I5: an object that was named is there, but nothing knows it"

    def _check_history(self, entries: list[Entry]) -> None:
        now = {entry.id: entry for entry in entries}
        for id, before in self._seen.items():
            if id not in now:
                self._gone.add(id)
                continue
            after = now[id]
            assert after.version >= before.version, "I6: a version went back"
            assert after.version > before.version or after == before, "I6: a version says two things"
        assert not self._gone & now.keys(), "I6: what was gone is back"
        self._seen = now


def objects_in(store: ObjectStore) -> list[ObjectInfo]:
    """Return the objects of a store without those that the library keeps for itself."""
    return [info for info in store.list() if not info.path.startswith(RESERVED)]


# -- the model ------------------------------------------------------------------------------------------


class Model:
    """A plain tree: the content of each path, None for directories."""

    def __init__(self, nodes: dict[tuple[str, ...], bytes | None] | None = None) -> None:
        self.nodes: dict[tuple[str, ...], bytes | None] = nodes or {(): None}

    def copy(self) -> Model:
        """Return an equal tree."""
        return Model(dict(self.nodes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.nodes == other.nodes

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr({"/".join(names): body for names, body in sorted(self.nodes.items())})

    def _is_directory(self, names: tuple[str, ...]) -> bool:
        return names in self.nodes and self.nodes[names] is None

    def _is_file(self, names: tuple[str, ...]) -> bool:
        return self.nodes.get(names) is not None

    def _through_file(self, names: tuple[str, ...]) -> bool:
        return any(self._is_file(names[:length]) for length in range(len(names)))

    def _below(self, names: tuple[str, ...]) -> list[tuple[str, ...]]:
        return [each for each in self.nodes if each[: len(names)] == names]

    def write(self, path: str, body: bytes, *, overwrite: bool, parents: bool) -> None:
        """See `Namespace.write`."""
        names = tuple(path.split("/"))
        if names in self.nodes:
            if not overwrite:
                raise AlreadyExists(path)
            if self._is_directory(names):
                raise IsADirectory(path)
        elif self._through_file(names):
            raise NotADirectory(path)
        elif names[:-1] not in self.nodes:
            if not parents:
                raise NotFound(path)
            self.make_directory("/".join(names[:-1]))
        self.nodes[names] = body

    def make_directory(self, path: str) -> None:
        """See `Namespace.make_directory`."""
        names = tuple(path.split("/")) if path else ()
        if self._is_file(names):
            raise AlreadyExists(path)
        if self._through_file(names):
            raise NotADirectory(path)
        for length in range(len(names) + 1):
            self.nodes[names[:length]] = None

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """See `Namespace.rename`."""
        here, there = tuple(source.split("/")), tuple(target.split("/"))
        if here not in self.nodes:
            raise NotFound(source)
        if here == there:
            return
        directory = self._is_directory(here)
        if directory and there[: len(here)] == here:
            raise InvalidPath(target)
        if there in self.nodes:
            if not overwrite:
                raise AlreadyExists(target)
            if directory and self._is_file(there):
                raise NotADirectory(target)
            if not directory and self._is_directory(there):
                raise IsADirectory(target)
            if directory and len(self._below(there)) > 1:
                raise DirectoryNotEmpty(target)
        elif self._through_file(there):
            raise NotADirectory(target)
        elif there[:-1] not in self.nodes:
            raise NotFound(target)
        self._move(here, there)

    def _move(self, here: tuple[str, ...], there: tuple[str, ...]) -> None:
        moved = {there + each[len(here) :]: self.nodes[each] for each in self._below(here)}
        for each in [*self._below(here), *self._below(there)]:
            del self.nodes[each]
        self.nodes |= moved

    def replace(self, source: str, target: str) -> None:
        """See `Namespace.replace`."""
        here, there = tuple(source.split("/")), tuple(target.split("/"))
        if here != there and here[: len(there)] == there:
            raise InvalidPath(source)
        if here not in self.nodes:
            raise NotFound(source)
        if self._is_file(here):
            raise NotADirectory(source)
        if here == there:
            return
        if there[: len(here)] == here:
            raise InvalidPath(target)
        if self._is_file(there) or self._through_file(there):
            raise NotADirectory(target)
        if there[:-1] not in self.nodes:
            raise NotFound(target)
        self._move(here, there)

    def link_many(self, files: Mapping[str, bytes], *, overwrite: bool, parents: bool) -> None:
        """See `Namespace.link_many`."""
        if any(path.startswith(above + "/") for path in files for above in files):
            raise NotADirectory
        changed = self.copy()
        for path, body in files.items():
            changed.write(path, body, overwrite=overwrite, parents=parents)
        self.nodes = changed.nodes

    def delete(self, path: str, *, recursive: bool) -> None:
        """See `Namespace.delete`."""
        names = tuple(path.split("/"))
        if names not in self.nodes:
            raise NotFound(path)
        below = self._below(names)
        if len(below) > 1 and not recursive:
            raise DirectoryNotEmpty(path)
        for each in below:
            del self.nodes[each]


def outcome(call: Callable[[], object]) -> type[CommitError] | None:
    """Return the class of the error that a call raises, or None."""
    try:
        call()
    except TransactionCanceled:  # never meant for callers
        raise
    except CommitError as error:
        return type(error)
    return None


def watched_transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of writes of each transaction of any table in memory."""
    sizes: list[int] = []
    real = MemoryTable.transact

    def transact(self: MemoryTable, writes: Sequence[Write], **kwargs: Any) -> None:
        sizes.append(len(writes))
        real(self, writes, **kwargs)

    monkeypatch.setattr(MemoryTable, "transact", transact)
    return sizes
