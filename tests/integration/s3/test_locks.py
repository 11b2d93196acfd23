"""Processes that race for a lock through a faulty network, and the data that they leave.

Each appends lines to one fenced object, under the lock. The audit reads that object: no line is lost or
there twice, and the tokens of the lines never decrease.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from commitlog import SqliteCommit, connect
from commitlog.commit.probe_report import Kind
from commitlog.errors import CommitError, LockLost, OutcomeUnknown, StaleToken, Unavailable
from commitlog.locks import LOCK_SCHEMA, FencedStore, Lock, LockSettings
from commitlog.tables import open_table
from commitlog.testing.proxy import Action, Hazard, Proxy
from support.commit import proven
from support.selection import examples, in_campaigns

#: One machine, so one clock.
SETTINGS = LockSettings(timeout=3, max_clock_skew_rate=1, test_interval=0.02)

LINES = "lines"

#: Workers of a race.
PROCESSES = examples(4, 8)

_ACTIONS: tuple[Action, ...] = ("drop_request", "drop_response", "duplicate", "fail", "delay")

#: The faults of one write in eight. Under leases, nothing may repeat a request after its answer.
HAZARDS = [
    Hazard(
        kinds=("PUT",),
        action=action,
        rate=0.025,
        seconds=(0, 0) if action == "duplicate" else (0, 0.2),
        status=500,
    )
    for action in _ACTIONS
]


def _open(where: Mapping[str, Any], **options: Any) -> tuple[Lock, FencedStore]:
    store = connect(where["url"], **where["arguments"])
    table = where["table"]
    place = store if table is None else open_table(table["url"], LOCK_SCHEMA, **table["options"])
    return Lock(place, "locks/lines", settings=SETTINGS, **options), FencedStore(store)


def work(name: str, rounds: int, where: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Append lines; return those that were appended, and those of unknown outcome. Runs in a process."""
    lock, fenced = _open(where, holder=name)
    done, unknown = [], []
    for number in range(rounds):
        while True:
            line = ""
            try:
                with lock:
                    seen = fenced.claim(LINES, token=lock.token)
                    line = f"{name} {number} {lock.token}"
                    fenced.put(LINES, seen.data + line.encode() + b"\n", token=lock.token)
                    done.append(line)
                break
            except OutcomeUnknown:
                if line:
                    unknown.append(line)
            except (Unavailable, StaleToken):
                continue
            except LockLost:
                if line in done:  # noticed at the end; its token was accepted before
                    break
    return done, unknown


def suspended(where: Mapping[str, Any], results: Connection) -> None:
    """Acquire the lock, read the object, be suspended, and write. Runs in a process."""
    lock, fenced = _open(where, holder="suspended")
    lock.acquire()
    token = lock.token
    seen = fenced.claim(LINES, token=token)
    results.send(token)
    os.kill(os.getpid(), signal.SIGSTOP)
    outcome = "written"
    try:
        fenced.put(LINES, seen.data + b"late\n", token=token)
    except CommitError as error:
        outcome = type(error).__name__
    results.send((outcome, lock.held))
    try:
        lock.release()
    except LockLost as error:
        results.send(type(error).__name__)


def race(where: Mapping[str, Any], proxy: Proxy, *, processes: int, rounds: int) -> None:
    """Race workers and a process that is suspended while it holds the lock; audit the result."""
    _, fenced = _open(where)
    fenced.put_if_absent(LINES, b"", token=0)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    sleeper = context.Process(target=suspended, args=(where, there))
    sleeper.start()
    first = here.recv()
    proxy.endanger(HAZARDS, seed=1)
    names = [f"w{number}" for number in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        results = list(pool.map(work, names, [rounds] * processes, [where] * processes))
    proxy.endanger(())
    assert sleeper.pid is not None
    os.kill(sleeper.pid, signal.SIGCONT)
    assert [here.recv(), here.recv()] == [("StaleToken", False), "LockLost"]
    sleeper.join()
    assert proxy.strikes().total()
    lines = fenced.get(LINES).data.decode().splitlines()
    done = [line for found, _ in results for line in found]
    unknown = [line for _, found in results for line in found]
    assert len(done) == processes * rounds
    counts = Counter(lines)
    assert set(counts.values()) == {1}, "a line is there twice"
    assert set(done) <= set(lines), f"lost: {set(done) - set(lines)} of {lines}, unknown {unknown}"
    assert set(lines) <= {*done, *unknown}, f"nobody's: {set(lines) - {*done, *unknown}}"
    tokens = [int(line.split()[2]) for line in lines]
    assert tokens == sorted(tokens)
    assert first < tokens[0]


def natively(server: Any, proxy: Proxy) -> dict[str, Any]:
    """Return where workers find a new bucket that is known to enforce conditions, behind a proxy."""
    options = {**server.options, "endpoint_url": proxy.endpoint_url}
    url = f"s3://{server.new_bucket()}"
    # A probe of each process would meet the faults, too.
    report = proven(Kind.PUT_IF_ABSENT, Kind.PUT_IF_MATCH, url=f"{url}?{urlencode(options)}")
    return {
        "url": url,
        "arguments": {"commit": "native", "probe_report": report, **options},
        "table": None,
    }


@pytest.mark.servers
def test_no_update_is_lost_on_a_server_that_enforces_conditions(ministack: Any) -> None:
    """Several processes, the lock in the store, natively: the late write of another is refused."""
    with Proxy(ministack.endpoint_url) as proxy:
        race(natively(ministack, proxy), proxy, processes=PROCESSES, rounds=2)


@pytest.mark.all
@pytest.mark.servers
def test_no_update_is_lost_on_a_server_that_ignores_conditions(juicefs: Any, tmp_path: Path) -> None:
    """The same holds under leases in SQLite."""
    with Proxy(juicefs.endpoint_url) as proxy:
        commit = SqliteCommit(
            tmp_path / "commits.db", timeout=6, max_clock_skew_rate=1, ttl=60, test_interval=0.02
        )
        where = {
            "url": f"s3://{juicefs.new_bucket()}",
            "arguments": {
                "commit": commit,
                **juicefs.options,
                "endpoint_url": proxy.endpoint_url,
            },
            "table": None,
        }
        race(where, proxy, processes=PROCESSES, rounds=2)


@pytest.mark.all
@pytest.mark.servers
@pytest.mark.parametrize("server", ["ministack", in_campaigns("dynalite")])
def test_no_update_is_lost_with_the_lock_in_dynamodb(
    server: str, ministack: Any, request: pytest.FixtureRequest
) -> None:
    """The same holds if the lock is an item of a table of leases."""
    tables = request.getfixturevalue(server)
    table = {"url": f"dynamodb://{tables.new_table_name()}", "options": tables.options}
    open_table(table["url"], LOCK_SCHEMA, **table["options"]).create()
    with Proxy(ministack.endpoint_url) as proxy:
        race({**natively(ministack, proxy), "table": table}, proxy, processes=4, rounds=2)
