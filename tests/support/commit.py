"""Helpers of the tests of `commitlog.commit`: a clock with events, and ports that fail on demand."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import evolve

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore, LeaseSettings
from commitlog.commit.probe_cache import FINDINGS
from commitlog.commit.probe_report import Kind, ProbeReport, ProbeResult
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.errors import OutcomeUnknown
from commitlog.stores.api import (
    Capabilities,
    Dialect,
    InFlight,
    ObjectData,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    Staged,
    StagedInfo,
    StageWriter,
)
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import ConditionFailed, Item, ItemPage, Key, Table, TableInfo
from commitlog.tables.open import open_table
from commitlog.tables.rules import settled
from commitlog.testing import ManualClock

#: The course of one call of a port: takes the function that performs it, and returns or raises
#: its result.
Fate = Callable[[Callable[[], Any]], Any]


class Timetable(ManualClock):
    """A manual clock with events at set times, also during a sleep."""

    def __init__(self) -> None:
        super().__init__()
        self._events: list[tuple[float, Callable[[], object]]] = []

    def at(self, moment: float, event: Callable[[], object]) -> None:
        """Call `event` once `monotonic` reaches `moment`."""
        self._events.append((moment, event))
        self._events.sort(key=lambda entry: entry[0])

    def advance(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while self._events and self._events[0][0] <= end:
            moment, event = self._events.pop(0)
            super().advance(max(0.0, moment - self.monotonic()))
            event()
        super().advance(max(0.0, end - self.monotonic()))


class Script:
    """The log of all calls of the ports, and the fates of the next ones."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.arguments: list[dict[str, Any]] = []
        self._fates: dict[str, deque[Fate | None]] = {}

    def next(self, call: str, *fates: Fate | None) -> None:
        """Set the fates of the next calls of that name, in order; None performs the call."""
        self._fates.setdefault(call, deque()).extend(fates)

    def run(self, call: str, perform: Callable[[], Any], **arguments: Any) -> Any:
        """Log a call and apply its fate."""
        self.log.append(call)
        self.arguments.append(arguments)
        fates = self._fates.get(call)
        fate = fates.popleft() if fates else None
        return perform() if fate is None else fate(perform)

    def sent(self, call: str) -> list[dict[str, Any]]:
        """Return the arguments of all calls of that name so far."""
        return [given for name, given in zip(self.log, self.arguments, strict=True) if name == call]


def proven(*kinds: Kind, url: str = "memory://", dialect: Dialect = Dialect.STANDARD) -> ProbeReport:
    """Return the report that the store at `url` enforces these kinds of conditions, and no other."""
    rows = [
        ProbeResult(kind=kind, check=check, expected="", got="", ok=kind in kinds)
        for kind in Kind
        for check in sorted(kind.checks_in(dialect))
    ]
    return ProbeReport(url=url, rows=rows)


#: The report on a store that no probe has checked.
UNKNOWN = ProbeReport(url="memory://", rows=())


# -- fates -----------------------------------------------------------------------------------------


def lost_after(perform: Callable[[], Any]) -> Any:
    """Perform the call and lose its answer."""
    perform()
    raise OutcomeUnknown("the answer was lost")


def lost_before(_perform: Callable[[], Any]) -> Any:
    """Lose the request, which is not performed."""
    raise OutcomeUnknown("the request was lost")


def repeated(perform: Callable[[], Any]) -> Any:
    """Perform the call twice and return the second answer, as a proxy that repeats a request does."""
    perform()
    return perform()


def raising(error: Exception) -> Fate:
    """Return a fate that raises `error`."""

    def fate(_perform: Callable[[], Any]) -> Any:
        raise error

    return fate


def after(event: Callable[[], object], then: Fate = lambda perform: perform()) -> Fate:
    """Return a fate with `event` before the call."""

    def fate(perform: Callable[[], Any]) -> Any:
        event()
        return then(perform)

    return fate


def followed_by(event: Callable[[], object]) -> Fate:
    """Return a fate with `event` between the effect of the call and its answer."""

    def fate(perform: Callable[[], Any]) -> Any:
        result = perform()
        event()
        return result

    return fate


class Delayed:
    """A request that is still under way when its sender has given up."""

    def __init__(self) -> None:
        self._perform: Callable[[], Any] | None = None

    def __call__(self, perform: Callable[[], Any]) -> Any:
        self._perform = perform
        raise OutcomeUnknown("no answer yet")

    def arrive(self) -> Any:
        """Perform the request now."""
        assert self._perform is not None
        return self._perform()


# -- ports -----------------------------------------------------------------------------------------


class ScriptedStore(ObjectStore):
    """A server in memory whose calls follow the script; named ``head``, ``put``, ``copy`` and so on.

    Args:
        inner: the store with the objects.
        script: log and fates.
        ignores: whether it ignores conditions.
        request_expiry: whether it enforces expiries; otherwise its client cannot use them.
    """

    def __init__(
        self, inner: ObjectStore, script: Script, *, ignores: bool = True, request_expiry: bool = True
    ) -> None:
        self.inner = inner
        self.script = script
        self.url = inner.url
        self.capabilities = Capabilities(
            conditions=inner.capabilities.conditions, enforced=False, request_expiry=request_expiry
        )
        self._ignores = ignores

    def _mutate(self, call: str, perform: Callable[..., Any], **options: Any) -> Any:
        seen = dict(options)
        if self._ignores:
            options["condition"] = None
        return self.script.run(call, lambda: perform(**options), **seen)

    def key(self, path: str) -> str:
        return self.inner.key(path)

    def portable_key(self, path: str) -> str:
        return self.inner.portable_key(path)

    def begin_head(self, path: str) -> InFlight[Observation]:
        try:
            pending = self.script.run("head", lambda: self.inner.begin_head(path), path=path)
        except Exception as error:
            return _failing(error)
        return pending

    def get(self, path: str, **options: Any) -> ObjectData:
        return self.inner.get(path, **options)

    def list_page(self, prefix: str = "", **options: Any) -> Page:
        return self.inner.list_page(prefix, **options)

    def put(self, path: str, body: Any, **options: Any) -> PutResult:
        return self._mutate("put", lambda **kept: self.inner.put(path, body, **kept), **options)

    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        return self._mutate("copy", lambda **kept: self.inner.copy(source, target, **kept), **options)

    def delete(self, path: str, **options: Any) -> None:
        self._mutate("delete", lambda **kept: self.inner.delete(path, **kept), **options)

    def delete_many(self, paths: Any) -> Any:
        return self.inner.delete_many(paths)

    def begin_stage(self, path: str, **options: Any) -> StageWriter:
        return self.script.run("stage", lambda: self.inner.begin_stage(path, **options), path=path)

    def publish(self, staged: Staged, **options: Any) -> PutResult:
        return self._mutate("publish", lambda **kept: self.inner.publish(staged, **kept), **options)

    def abort(self, staged: Staged | StagedInfo) -> None:
        self.script.run("abort", lambda: self.inner.abort(staged))

    def list_staged(self, prefix: str = "") -> Any:
        return self.inner.list_staged(prefix)


class ScriptedTable(Table):
    """A table in memory whose calls follow the script; named ``take`` (all puts), ``read``, ``check``.

    It also keeps the findings of probes; requests for those do not follow the script.

    Args:
        inner: the table with the items.
        script: log and fates.
        returns_old_item: whether a failed condition returns the item.
    """

    def __init__(self, inner: Table, script: Script, *, returns_old_item: bool = True) -> None:
        self.inner = inner
        self.script = script
        self.url = inner.url
        self.schema = inner.schema
        self._returns_old_item = returns_old_item

    def create(self) -> bool:
        return self.inner.create()

    def check(self) -> None:
        self.script.run("check", self.inner.check)

    def describe(self) -> TableInfo:
        return self.inner.describe()

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        return settled(lambda: self.get(key))

    def get(self, key: Key) -> Item | None:
        if key.hash.startswith(FINDINGS):
            return self.inner.get(key)
        return self.script.run("read", lambda: self.inner.get(key), key=key)

    def begin_put(self, item: Item, *, condition: Any = None) -> InFlight[None]:
        if str(item["path"]).startswith(FINDINGS):
            return self.inner.begin_put(item, condition=condition)
        try:
            self.script.run(
                "take", lambda: self.inner.put(item, condition=condition), item=item, condition=condition
            )
        except ConditionFailed as error:
            return _failing(error if self._returns_old_item else ConditionFailed(str(error)))
        except Exception as error:
            return _failing(error)
        return lambda: None

    def delete(self, key: Key, *, condition: Any = None) -> None:
        self.inner.delete(key, condition=condition)

    def query_page(self, hash_key: str, **options: Any) -> ItemPage:
        return self.inner.query_page(hash_key, **options)

    def scan_page(self, **options: Any) -> ItemPage:
        return self.inner.scan_page(**options)

    def transact(self, writes: Any, *, token: str | None = None) -> None:
        self.inner.transact(writes, token=token)


def _failing(error: Exception) -> InFlight[Any]:
    def pending() -> Any:
        raise error

    return pending


# -- a small world -----------------------------------------------------------------------------------


class World:
    """One store, one table and one clock, and a client whose calls fail as the script says.

    Args:
        mode: as of `ConditionalStore`.
        ignores, request_expiry: as of `ScriptedStore`.
        returns_old_item: as of `ScriptedTable`.
        settings: of leases.
        probe_report: of the store; by default, it enforces expiries.
    """

    def __init__(
        self,
        *,
        mode: Any = "lease",
        ignores: bool = True,
        request_expiry: bool = True,
        returns_old_item: bool = True,
        settings: LeaseSettings | None = None,
        probe_report: ProbeReport | None = None,
    ) -> None:
        self.clock = Timetable()
        self.script = Script()
        self.settings = settings or LeaseSettings()
        #: The real content, without the script.
        self.objects = MemoryStore(clock=self.clock)
        self.items = open_table("memory://", LEASE_SCHEMA, clock=self.clock)
        self.items.create()
        self.server = ScriptedStore(
            self.objects, self.script, ignores=ignores, request_expiry=request_expiry
        )
        self.table = ScriptedTable(self.items, self.script, returns_old_item=returns_old_item)
        numbers = itertools.count()
        self.client = ConditionalStore(
            self.server,
            table=None if mode == "native" else self.table,
            mode=mode,
            settings=self.settings,
            probe_report=probe_report or proven(Kind.REQUEST_EXPIRY),
            clock=self.clock,
            backoff=Backoff(base=0.01, tries=5),
            new_id=lambda: f"word-{next(numbers)}",
        )

    def plant(self, **values: Any) -> LeaseRecord:
        """Put a record of another client into the table, over any existing one."""
        defaults = {
            "path": "a",
            "etag": "*",
            "generation": 0,
            "timeout": 5000,
            "ttl": int(self.clock.epoch()) + 3600,
            "owner": "stranger",
        }
        record = LeaseRecord(**{**defaults, **values})
        self.items.put(record.to_item())
        return record

    def replant(self, record: LeaseRecord, **values: Any) -> LeaseRecord:
        """Rewrite a planted record."""
        changed = evolve(record, **values)
        self.items.put(changed.to_item())
        return changed

    def sweep(self, path: str = "a", etag: str = "*") -> None:
        """Remove a record, as TTL does."""
        self.items.delete(Key(path, etag))

    def record(self, path: str = "a", etag: str = "*") -> LeaseRecord:
        """Return the record in the table."""
        item = self.items.get(Key(path, etag))
        assert item is not None
        return LeaseRecord.from_item(item)
