"""Stress test: processes write conditionally to a real store through a faulty network and get killed.

`run_stress` starts worker processes that call one store at random. A proxy between them and the store
loses, delays and duplicates their requests. The test also kills and stops workers. At the end,
`check_linearizable` judges the history of all calls. To run it from the shell, give a store and a table
that the test may write to:

    python -m commitlog.testing.stress --store 's3://bucket?endpoint_url=http://host:9000' \\
        --table 'dynamodb://commits?endpoint_url=http://host:8000' --seconds 60 --seed 1

The seed determines the plan: which fault strikes the request of which number, which worker is killed or
stopped at which time, and which calls each worker makes. How these coincide depends on real timing, so a
seed does not reproduce a run. `stress_faults` lists the faults that the plan excludes, with the reasons.

Every step has a time limit. No process outlives the call or, on Linux, the process that started it. The
output contains no credentials.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from attrs import evolve, fields

from commitlog._util.ids import random_id
from commitlog.commit.conditional import ConditionalStore, Mode
from commitlog.commit.probe import RACERS, probe
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import CommitError, NotFound
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.testing.history import History
from commitlog.testing.linearizability import CheckUndecided, NotLinearizable, check_linearizable
from commitlog.testing.proxy import Proxy, Strike
from commitlog.testing.recorded import WORD, RecordedStore
from commitlog.testing.recorder import Recorder
from commitlog.testing.stress_faults import KEPT, OWN, REMOVABLE, hazards
from commitlog.testing.stress_fleet import Fleet
from commitlog.testing.stress_report import Report
from commitlog.testing.stress_settings import Stress
from commitlog.testing.stress_signals import signals, troubles
from commitlog.testing.stress_worker import Hours, Task
from commitlog.urls import Url

__all__ = ["Report", "Stress", "main", "run_stress"]

#: Name of the object under each path prefix that is never removed.
_STAYS = "stays"
#: Seconds between two checks of running work.
_POLL = 0.1


def run_stress(stress: Stress) -> Report:
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
        self, stress: Stress, place: Url, store: ObjectStore, probe_report: ProbeReport, directory: Path
    ) -> None:
        self._stress = stress
        self._place = place
        self._store = store
        self._probe_report = probe_report
        self._directory = directory
        self._fenced = probe_report.proves(Kind.FENCE)
        self._troubles = troubles(stress, fenced=self._fenced)

    def report(self) -> Report:
        stress = self._stress
        strikes: Counter[Strike] = Counter()
        with ExitStack() as stack:
            addresses = (stress.store_address, stress.table_address)
            proxy = None
            if upstream := addresses[0] or addresses[1]:
                proxy = stack.enter_context(Proxy(upstream, dynamodb=addresses[1]))
                dangers = hazards(timeout=stress.timeout, fenced=self._fenced, rate=stress.rate)
                proxy.endanger(dangers, seed=stress.seed)
            fleet = stack.enter_context(Fleet(self._tasks(proxy), self._directory))
            begin = time.monotonic()
            end = begin + stress.seconds
            deadline = end + stress.grace
            fleet.begin(Hours(begin=begin, end=end, deadline=deadline))
            for at, worker, number in signals(self._troubles):
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
        return Report(
            stress=stress,
            fenced=self._fenced,
            history=history,
            strikes=strikes,
            troubles=self._troubles,
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
                if found.data != found.metadata.get(WORD, "").encode():
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
    kinds = [Kind.FENCE] if mode == "lease" else list(Kind)
    with ThreadPoolExecutor(RACERS) as executor:
        return probe(store, kinds=kinds, executor=executor)


def _clear(store: ObjectStore) -> None:
    with suppress(CommitError):  # the check is done; leftovers are below the run's own prefix
        for staged in store.list_staged():
            store.abort(staged)
        store.delete_many(info.path for info in store.list())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stress test from the shell; return 0 if it passed, 1 if it failed, 2 without a verdict."""
    parser = argparse.ArgumentParser(
        prog="python -m commitlog.testing.stress",
        description="Write conditionally from many processes over a bad network, and judge the outcome.",
    )
    parser.add_argument(
        "--store", required=True, metavar="URL", help="s3://bucket?endpoint_url=http://…"
    )
    parser.add_argument(
        "--table", metavar="URL", help="dynamodb://table?endpoint_url=http://… or sqlite:///file"
    )
    parser.add_argument(
        "--mode", choices=["lease", "auto", "native"], help="default: lease with a table"
    )
    for name, kind, what in (
        ("seconds", float, "how long faults go on"),
        ("workers", int, "processes at a time"),
        ("foreign", int, "how many of them are clients of object_store"),
        ("seed", int, "what the plan is drawn from"),
        ("timeout", float, "seconds of a lease"),
        ("skew", float, "max_clock_skew_rate"),
        ("rate", float, "share of requests that each sort of fault strikes"),
        ("interval", float, "seconds between signals, on average"),
    ):
        default = getattr(fields(Stress), name).default
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{what} (default: {default})")
    parser.add_argument(
        "--torn-reads",
        dest="whole_reads",
        action="store_false",
        help="a read of the store may show parts of two versions, as JuiceFS does: read twice",
    )
    given = vars(parser.parse_args(arguments))
    given["mode"] = given["mode"] or ("native" if given["table"] is None else "lease")
    try:
        report = run_stress(Stress(**given))
    except (CommitError, CheckUndecided) as error:
        print(f"stress: {error}", file=sys.stderr)
        return 2
    for line in report.lines():
        print(line)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
