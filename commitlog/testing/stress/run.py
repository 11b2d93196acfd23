"""A stress run: processes write conditionally to a real store through a faulty network and get killed.

The seed determines the plan: which fault strikes the request of which number, which worker is killed or
stopped at which time, and which calls each worker makes. How these coincide depends on real timing, so a
seed does not reproduce a run. `commitlog.testing.stress.plan` lists the faults that the plan excludes,
with the reasons.

Every step has a time limit. No process outlives the call or, on Linux, the process that started it. The
output contains no credentials.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from attrs import evolve, frozen

from commitlog._util.ids import random_id
from commitlog.commit.conditional import ConditionalStore, Mode
from commitlog.commit.probe import THREADS, probe
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import CommitError, NotFound
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.testing.history import History
from commitlog.testing.linearizability import NotLinearizable, check_linearizable
from commitlog.testing.proxy import Proxy, Strike
from commitlog.testing.recorded_store import VERSION, RecordedStore
from commitlog.testing.recorder import Recorder
from commitlog.testing.stress.fleet import Fleet
from commitlog.testing.stress.plan import (
    KEPT,
    OWN,
    REMOVABLE,
    Interruption,
    StressSettings,
    hazards,
    interruptions,
    signals,
)
from commitlog.testing.stress.worker import Schedule, Task
from commitlog.urls import Url

__all__ = ["StressReport", "run_stress"]


@frozen(kw_only=True)
class StressReport:
    """The result of a run.

    Attributes:
        stress: the settings of the run.
        enforces_expiry: whether the store enforces the expiry of requests. Only then did the run inject
            long delays.
        history: all calls of all workers, and the final reads of an auditor.
        strikes: how often each sort of fault struck.
        interruptions: which workers were killed and stopped, and when.
        finished: seconds from the last fault until every worker had written every path.
        violation: the part of the history that no order of the calls explains, or None.
        failures: workers that failed or did not finish, and objects with metadata and body of
            different versions.
    """

    stress: StressSettings
    enforces_expiry: bool
    history: History
    strikes: Counter[Strike]
    interruptions: tuple[Interruption, ...]
    finished: float
    violation: NotLinearizable | None
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the run found no error."""
        return self.violation is None and not self.failures

    @property
    def kills(self) -> int:
        """The number of workers that were killed."""
        return sum(interruption.stop is None for interruption in self.interruptions)

    @property
    def stops(self) -> tuple[float, ...]:
        """The length of each stop of a worker, in seconds."""
        return tuple(
            interruption.stop for interruption in self.interruptions if interruption.stop is not None
        )

    @property
    def refused(self) -> int:
        """The number of late requests that the store refused."""
        return sum(count for strike, count in self.strikes.items() if strike.status == 403)

    def lines(self) -> Iterator[str]:
        """Yield the report line by line, for people."""
        stress = self.stress
        where = f"leases in {stress.table}" if stress.table else "its own conditions"
        yield f"{stress.store}: {stress.mode}, {where}"
        yield (
            f"{stress.workers} workers ({stress.foreign} foreign), {stress.seconds:g} s, seed "
            f"{stress.seed}; expiry enforced: {'yes' if self.enforces_expiry else 'no'}"
        )
        yield f"calls: {len(self.history)} on {len(self.history.by_key())} paths"
        calls = Counter((call.name, call.outcome.value) for call in self.history)
        for name in sorted({name for name, _ in calls}):
            outcomes = [
                f"{outcome} {count}" for (of, outcome), count in sorted(calls.items()) if of == name
            ]
            yield f"  {name}: {', '.join(outcomes)}"
        yield f"faults: {self.strikes.total()}"
        actions: Counter[str] = Counter()
        for strike, count in self.strikes.items():
            actions[strike.action] += count
        for action, count in sorted(actions.items()):
            yield f"  {action}: {count}"
        yield f"  requests that the store refused as late: {self.refused}"
        beyond = sum(seconds > stress.timeout for seconds in self.stops)
        yield f"killed: {self.kills}; stopped: {len(self.stops)}, longer than a lease: {beyond}"
        yield f"all written {self.finished:.1f} s after the last fault"
        yield from self.failures
        yield f"linearizable: {'yes' if self.violation is None else f'NO. {self.violation}'}"


#: Name of the object under each path prefix that is never removed.
_STAYS = "stays"
#: Seconds between two checks of running work.
_POLL = 0.1


def run_stress(stress: StressSettings) -> StressReport:
    """Run `stress` and check its result.

    The run puts all its objects below a new prefix and removes them at the end. Lease records stay in
    the table until their TTL expires.

    Raises:
        ConfigurationError: the store or the table cannot be opened with these settings.
        CommitError: the store or the table cannot be reached, although no faults are injected yet.
        CheckUndecided: the linearizability check gave up on the history.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="commitlog-stress-")))
        prefix = "/".join(filter(None, (stress.store.prefix, f"stress-{random_id()}")))
        place = _below(stress.store, prefix)
        store = open_store(place)
        stack.callback(store.close)
        if stress.table is not None:
            with closing(open_table(stress.table, LEASE_SCHEMA)) as table:
                table.create()
        probe_report = (
            _measure(store, stress.mode) if stress.probe_report is None else stress.probe_report
        )
        stack.callback(_clear, store)
        # For about a second after the last object of a directory is removed, JuiceFS may answer a put or
        # a copy into that directory with "no such object". For a copy, this means that its source is
        # gone.
        for sort in (KEPT, REMOVABLE, OWN):
            store.put(sort + _STAYS, b"")
        return _Run(stress, place, store, probe_report, directory).report()


class _Run:
    def __init__(
        self,
        stress: StressSettings,
        place: Url,
        store: ObjectStore,
        probe_report: ProbeReport,
        directory: Path,
    ) -> None:
        self._stress = stress
        self._place = place
        self._store = store
        self._probe_report = probe_report
        self._directory = directory
        self._enforces_expiry = probe_report.proves(Kind.REQUEST_EXPIRY)
        self._interruptions = interruptions(stress, enforces_expiry=self._enforces_expiry)

    def report(self) -> StressReport:
        stress = self._stress
        strikes: Counter[Strike] = Counter()
        with ExitStack() as stack:
            addresses = (stress.store_address, stress.table_address)
            proxy = None
            if upstream := addresses[0] or addresses[1]:
                proxy = stack.enter_context(Proxy(upstream, dynamodb=addresses[1]))
                dangers = hazards(
                    timeout=stress.timeout, enforces_expiry=self._enforces_expiry, rate=stress.rate
                )
                proxy.endanger(dangers, seed=stress.seed)
            fleet = stack.enter_context(Fleet(self._tasks(proxy), self._directory))
            begin = time.monotonic()
            end = begin + stress.seconds
            deadline = end + stress.grace
            fleet.begin(Schedule(begin=begin, end=end, deadline=deadline))
            for at, worker, number in signals(self._interruptions):
                _sleep_until(begin + at)
                fleet.signal(worker, number)
            _sleep_until(end)
            if proxy is not None:
                proxy.endanger(())
            finished = fleet.join(deadline) - end
            if proxy is not None:
                strikes = _last_strikes(proxy, deadline)
        history, torn = self._audit(History.load(*fleet.histories))
        violation: NotLinearizable | None = None
        try:
            check_linearizable(history)
        except NotLinearizable as error:
            violation = error
        return StressReport(
            stress=stress,
            enforces_expiry=self._enforces_expiry,
            history=history,
            strikes=strikes,
            interruptions=self._interruptions,
            finished=finished,
            violation=violation,
            failures=(*fleet.failures, *torn),
        )

    def _tasks(self, proxy: Proxy | None) -> Sequence[Task]:
        stress, store, table = self._stress, self._place, self._stress.table
        if proxy is not None and stress.store_address:
            store = store.with_options({"endpoint_url": proxy.endpoint_url})
        if proxy is not None and table is not None and stress.table_address:
            table = table.with_options({"endpoint_url": proxy.endpoint_url})
        # A probe report names its endpoint. The proxy is another endpoint of the same store.
        probe_report = evolve(self._probe_report, url=str(store)).to_json()
        return [
            Task(
                client="foreign-" if stress.is_foreign(worker) else "worker-",
                foreign=stress.is_foreign(worker),
                store=store,
                table=table,
                mode=stress.mode,
                timeout=stress.timeout,
                skew=stress.skew,
                patient=worker % 2 == 0,
                probe_report=probe_report,
                whole_reads=stress.whole_reads,
                seed=str(stress.seed),
                history="",
            )
            for worker in range(stress.workers)
        ]

    def _audit(self, history: History) -> tuple[History, list[str]]:
        """Read every path again without the proxy; return the whole history and the torn objects."""
        recorder = Recorder()
        auditor = RecordedStore(ConditionalStore(self._store), recorder, client="auditor")
        torn = []
        for path in history.by_key():
            with suppress(NotFound):
                found = auditor.get(path)
                if found.data != found.metadata.get(VERSION, "").encode():
                    torn.append(f"{path!r} has the metadata of one version and the body of another")
        return History([*history, *recorder.history()]), torn


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _last_strikes(proxy: Proxy, deadline: float) -> Counter[Strike]:
    """Wait until all delayed requests have arrived, and return the effects of all faults."""
    while proxy.pending() and time.monotonic() < deadline:
        time.sleep(_POLL)
    return proxy.strikes()


def _below(url: Url, prefix: str) -> Url:
    if url.scheme == "file":
        return evolve(url, name=os.path.join(url.name, prefix))
    return evolve(url, prefix=prefix)


def _measure(store: ObjectStore, mode: Mode) -> ProbeReport:
    if store.capabilities.enforced:
        return ProbeReport(url=store.url, rows=())
    kinds = [Kind.REQUEST_EXPIRY] if mode == "lease" else list(Kind)
    with ThreadPoolExecutor(THREADS) as executor:
        return probe(store, kinds=kinds, executor=executor)


def _clear(store: ObjectStore) -> None:
    with suppress(CommitError):  # the check is done; leftovers are below the run's own prefix
        for staged in store.list_staged():
            store.abort(staged)
        store.delete_many(info.path for info in store.list())
