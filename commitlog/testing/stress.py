"""Stress: processes that write conditionally to a real store, over a bad network, and die at any time.

`run_stress` starts workers that call one store at random, through a proxy that loses, delays and
duplicates what they send; it kills and stops them, and hands what all of them saw to
`check_linearizable`. From the shell, against a store and a table of one's own:

    python -m commitlog.testing.stress --store 's3://bucket?endpoint_url=http://host:9000' \\
        --table 'dynamodb://commits?endpoint_url=http://host:8000' --seconds 60 --seed 1

What comes from the seed is the plan: the request of which number meets which fault, who is killed or
stopped when, and what each worker calls. How that falls together is a matter of real timing, so a seed
does not reproduce a run. What is left out of the plan, and why, is said in `stress_faults`.

May import anything of the library. Everything is bounded in time, and no process outlives the call, nor
(on Linux) the process that made it. Nothing that is shown has credentials in it.
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

from commitlog.commit.conditional import ConditionalStore, Mode
from commitlog.commit.probe import RACERS, probe
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.commit.verdict import Kind, Verdict
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
from commitlog.words import random_word

__all__ = ["Report", "Stress", "main", "run_stress"]

#: Name of an object of each sort that nobody removes.
_STAYS = "stays"
#: Seconds between two looks at what is still under way.
_POLL = 0.1


def run_stress(stress: Stress) -> Report:
    """Run `stress` and judge what came of it.

    All objects are below a new prefix, and are removed in the end; lease records stay in the table until
    their TTL.

    Raises:
        ConfigurationError: the store or the table cannot be opened so.
        CommitError: the store or the table cannot be reached without any faults.
        CheckUndecided: the judge gave up on the history.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="commitlog-stress-")))
        prefix = "/".join(filter(None, (stress.store.prefix, f"stress-{random_word()}")))
        place = _below(stress.store, prefix)
        store = open_store(place)
        stack.callback(store.close)
        if stress.table is not None:
            with closing(open_table(stress.table, LEASE_SCHEMA)) as table:
                table.create()
        verdict = _measure(store, stress.mode) if stress.verdict is None else stress.verdict
        stack.callback(_clear, store)
        # For a second, JuiceFS may answer to a put or a copy into a directory whose last object was just
        # removed that there is no such object. Of a copy that says that its source is gone.
        for sort in (KEPT, REMOVABLE, OWN):
            store.put(sort + _STAYS, b"")
        return _Run(stress, place, store, verdict, directory).report()


class _Run:
    def __init__(
        self, stress: Stress, place: Url, store: ObjectStore, verdict: Verdict, directory: Path
    ) -> None:
        self._stress = stress
        self._place = place
        self._store = store
        self._verdict = verdict
        self._directory = directory
        self._fenced = verdict.proves(Kind.FENCE)
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
        # A verdict names the endpoint that it is of, and this one is the same store's.
        verdict = evolve(self._verdict, url=str(store)).to_json()
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
                verdict=verdict,
                whole_reads=stress.whole_reads,
                seed=str(stress.seed),
                history="",
            )
            for worker in range(stress.workers)
        ]

    def _audit(self, history: History) -> tuple[History, list[str]]:
        """Read every path once more, past the proxy; return the whole history, and what is torn."""
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
    """Return what all faults did, once even the latest of the late requests has arrived."""
    while proxy.pending() and time.monotonic() < deadline:
        time.sleep(_POLL)
    return proxy.strikes()


def _below(url: Url, prefix: str) -> Url:
    if url.scheme == "file":
        return evolve(url, name=os.path.join(url.name, prefix))
    return evolve(url, prefix=prefix)


def _measure(store: ObjectStore, mode: Mode) -> Verdict:
    if store.capabilities.enforced:
        return Verdict(url=store.url, rows=())
    kinds = [Kind.FENCE] if mode == "lease" else list(Kind)
    with ThreadPoolExecutor(RACERS) as executor:
        return probe(store, kinds=kinds, executor=executor)


def _clear(store: ObjectStore) -> None:
    with suppress(CommitError):  # the run has been judged; what is left is below a prefix of its own
        for staged in store.list_staged():
            store.abort(staged)
        store.delete_many(info.path for info in store.list())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the shell; return 0 if all was well, 1 if not, 2 if there is no verdict."""
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
