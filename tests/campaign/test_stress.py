"""Processes on real servers, with a faulty network, kills and stops: their history is linearizable.

The outcome of a run depends on timing, because its seed determines only the plan. So the asserted
figures are those that any run reaches.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from commitlog.commit.probe_report import Kind, ProbeReport, ProbeResult
from commitlog.errors import ConfigurationError
from commitlog.stores.api import ObjectStore
from commitlog.testing.history import Outcome
from commitlog.testing.proxy import Hazard, Proxy
from commitlog.testing.stress import StressReport, StressSettings, run, run_stress
from commitlog.testing.stress.__main__ import main
from commitlog.testing.stress.fleet import Fleet
from commitlog.testing.stress.plan import KEPT, OWN, REMOVABLE, hazards, interruptions, signals
from commitlog.testing.stress.worker import Schedule, Task
from commitlog.urls import Url, parse_store_url, parse_table_url
from support.project import environment
from support.selection import with_all_but
from support.servers import Ministack

TIMEOUT = 3.0


@frozen(kw_only=True)
class World:
    """A store, its table of leases, and the number of foreign writers."""

    store: str
    table: str | None = None
    mode: Any = "lease"
    foreign: int = 0

    def __str__(self) -> str:
        return "-".join(
            filter(None, (self.store, self.table, self.mode, "foreign" * bool(self.foreign)))
        )

    def stress(self, request: pytest.FixtureRequest, **settings: Any) -> StressSettings:
        """Return a run on a new bucket and a new table."""
        server = request.getfixturevalue(self.store)
        store = parse_store_url(f"s3://{server.new_bucket()}").with_options(server.options)
        table: Url | None = None
        if self.table is not None:
            server = request.getfixturevalue(self.table)
            table = parse_table_url(f"dynamodb://{server.new_table_name()}")
            table = table.with_options(server.options)
        settings = {
            # A waiter gives the holder three seconds more than its lease: nothing fences off a client of
            # object_store, and a loaded store may be slow with a request that it accepted just before
            # the expiry.
            "skew": 2.0,
            # The time for the last writes on a loaded machine.
            "grace": 150.0,
            # JuiceFS reads etag, metadata and body of an object separately.
            "whole_reads": self.store != "juicefs",
            **settings,
        }
        return StressSettings(store=store, table=table, mode=self.mode, foreign=self.foreign, **settings)


#: One world for each way to enforce conditions, and for each server.
WORLDS = [
    World(store="seaweedfs", table="dynalite"),
    World(store="juicefs", table="ministack", foreign=1),
    World(store="ministack", table="ministack", mode="auto"),
]

MORE_WORLDS = [
    *WORLDS,
    World(store="ministack", table="ministack", foreign=2),
    World(store="seaweedfs", table="ministack", foreign=1),
    World(store="juicefs", table="dynalite"),
    World(store="ministack", mode="native"),
    World(store="seaweedfs", mode="native"),
]


def check(report: StressReport) -> None:
    """Print the figures, and check that the run is correct and had enough faults."""
    lines = "\n".join(report.lines())
    print(f"\n{lines}")
    assert report.ok, lines
    assert report.strikes.total() >= 5, lines
    assert report.kills, lines
    assert max(report.stops) > TIMEOUT, lines
    assert {Outcome.DONE, Outcome.CONTRADICTED} <= {call.outcome for call in report.history}, lines


@pytest.mark.servers
@pytest.mark.parametrize("world", with_all_but(lambda world: world is WORLDS[0], WORLDS), ids=str)
def test_the_history_is_linearizable(world: World, request: pytest.FixtureRequest) -> None:
    """With faults and deaths, each path behaves as one object, and all workers finish."""
    check(run_stress(world.stress(request, seconds=5.0, seed=3, workers=5, interval=0.7, rate=0.03)))


@pytest.mark.all
@pytest.mark.servers
def test_the_history_is_linearizable_on_a_server_like_ceph(
    ministack: Ministack, request: pytest.FixtureRequest
) -> None:
    """This server refuses late requests as `AccessDenied`, which ends neither probe nor worker."""
    world = World(store="ministack", table="ministack", mode="auto")
    stress = world.stress(request, seconds=5.0, seed=3, workers=5, interval=0.7, rate=0.03)
    with Proxy(ministack.endpoint_url, like_ceph=True) as ceph:
        store = stress.store.with_options({"endpoint_url": ceph.endpoint_url})
        report = run_stress(evolve(stress, store=store))
    check(report)
    assert report.enforces_expiry


@pytest.mark.campaign
@pytest.mark.servers
@pytest.mark.timeout(0)
@pytest.mark.parametrize("world", MORE_WORLDS, ids=str)
def test_campaign(
    world: World, request: pytest.FixtureRequest, campaign_seconds: float, campaign_seed: int
) -> None:
    """Run for any time, with every server."""
    check(run_stress(world.stress(request, seconds=campaign_seconds, seed=campaign_seed, workers=6)))


@pytest.mark.servers
def test_a_wrong_probe_report_is_detected(request: pytest.FixtureRequest) -> None:
    """Clients that rely on ignored conditions overwrite each other, and the check detects it."""
    world = World(store="juicefs", mode="native")
    stress = world.stress(request, seconds=2.0, seed=1, rate=0.0, interval=10.0)
    rows = [
        ProbeResult(kind=kind, check=check, expected="", got="", ok=True)
        for kind in Kind
        for check in sorted(kind.checks)
    ]
    report = run_stress(evolve(stress, probe_report=ProbeReport(url=str(stress.store), rows=rows)))
    assert report.violation is not None
    assert not report.ok
    assert not report.failures
    assert "linearizable: NO" in list(report.lines())[-1]


def test_the_command_runs_on_a_local_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is a directory with leases in a file. Workers are killed, and the result is printed.

    At the end all objects are removed, including those that kept directories from being empty.
    """
    found: list[str] = []
    clear = run._clear

    def look_and_clear(store: ObjectStore) -> None:
        found.extend(info.path for info in store.list())
        clear(store)

    monkeypatch.setattr(run, "_clear", look_and_clear)
    arguments = ["--store", f"file://{tmp_path}/lake", "--table", f"sqlite://{tmp_path}/leases"]
    assert main([*arguments, "--seconds", "2", "--interval", "0.5", "--workers", "3"]) == 0, (
        capsys.readouterr()
    )
    shown = capsys.readouterr().out
    assert "linearizable: yes" in shown
    assert "put_if_absent: " in shown
    assert "faults: 0" in shown
    assert {sort + "stays" for sort in (KEPT, REMOVABLE, OWN)} < set(found)
    assert not [path for path in (tmp_path / "lake").rglob("*") if path.name in ("stays", "0-0")]


def test_a_store_that_processes_cannot_share_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """No worker is started."""
    assert main(["--store", "memory://"]) == 2
    assert "share no memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings",
    [
        {"store": "file:///a"},
        {"store": "file:///a", "table": "memory://"},
        {"store": "file:///a", "table": "sqlite:///b", "mode": "native"},
        {"store": "file:///a", "table": "sqlite:///b", "foreign": 1},
        {"store": "s3://abc", "table": "dynamodb://abc", "foreign": 1},
        {"store": "file:///a", "table": "sqlite:///b", "foreign": -1},
        {"store": "file:///a", "table": "sqlite:///b", "foreign": 5},
    ],
)
def test_contradictory_settings_are_refused(settings: dict[str, Any]) -> None:
    """Leases need a table that processes share, and foreign writers need servers."""
    with pytest.raises(ConfigurationError):
        StressSettings(**settings)


def test_a_failed_worker_is_reported(tmp_path: Path) -> None:
    """Its last error is in the report, and the run counts as failed."""
    with Fleet([task("s3://no-region-and-no-credentials")], tmp_path) as fleet:
        fleet.begin(schedule(0.1))
        fleet.join(time.monotonic() + 60)
    assert len(fleet.failures) == 1
    assert "ConfigurationError" in fleet.failures[0]


def test_a_worker_that_does_not_finish_is_reported(tmp_path: Path) -> None:
    """It is killed at the deadline."""
    with Fleet([task(f"file://{tmp_path}/lake")], tmp_path) as fleet:
        fleet.begin(schedule(60.0))
        fleet.join(time.monotonic() + 0.5)
    assert fleet.failures == ["worker-0.0 did not finish in time"]


def test_workers_die_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """This includes stopped workers."""
    script = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from commitlog.testing.stress.fleet import Fleet\n"
        "from campaign.test_stress import task\n"
        "with Fleet([task('file:///nowhere')] * 2, Path(sys.argv[1])) as fleet:\n"
        "    fleet.signal(1, signal.SIGSTOP)\n"
        "    print(*[process.pid for process in fleet._processes], flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as runner:
        assert runner.stdout is not None
        ended = [os.pidfd_open(int(pid)) for pid in runner.stdout.readline().split()]
        runner.send_signal(signal.SIGKILL)
    try:
        assert len(ended) == 2
        for process in ended:
            assert select.select([process], [], [], 60)[0]
    finally:
        for process in ended:
            os.close(process)


def task(store: str) -> Task:
    """Return a task on a store that needs no server, or that cannot be opened."""
    return Task(
        client="worker-",
        foreign=False,
        store=parse_store_url(store),
        table=None,
        mode="native",
        timeout=TIMEOUT,
        skew=1.5,
        patient=True,
        probe_report=ProbeReport(url=store, rows=()).to_json(),
        whole_reads=True,
        seed="",
        history="",
    )


def schedule(seconds: float) -> Schedule:
    """Return a schedule that starts now."""
    now = time.monotonic()
    return Schedule(begin=now, end=now + seconds, deadline=now + seconds)


# -- faults by kind of request ---------------------------------------------------------------------


def strikes(enforces_expiry: bool, kinds: set[str], path: str) -> list[Hazard]:
    """Return the hazards of requests of these kinds to that path."""
    return [
        hazard
        for hazard in hazards(timeout=TIMEOUT, enforces_expiry=enforces_expiry, rate=0.5)
        if set(hazard.kinds) <= kinds and hazard.path in f"/bucket/{path}"
    ]


MUTATIONS = [{"PUT", "S3"}, {"COPY", "PUT", "S3"}, {"PUBLISH", "POST", "S3"}, {"DELETE", "S3"}]


@pytest.mark.parametrize("enforces_expiry", [True, False])
@pytest.mark.parametrize("kinds", MUTATIONS, ids=lambda kinds: " ".join(sorted(kinds)))
@pytest.mark.parametrize("path", [KEPT, REMOVABLE, OWN])
def test_unguarded_mutations_are_not_late(kinds: set[str], path: str, enforces_expiry: bool) -> None:
    """A mutation without a condition or an enforced expiry is delayed only briefly."""
    guards = set() if enforces_expiry else {"expiring"}
    found = strikes(enforces_expiry, kinds | guards, path)
    assert found
    assert max(hazard.seconds[1] for hazard in found) < 0.5
    assert {hazard.seconds for hazard in found if hazard.action == "duplicate"} == {(0.0, 0.0)}


@pytest.mark.parametrize("kinds", MUTATIONS, ids=lambda kinds: " ".join(sorted(kinds)))
@pytest.mark.parametrize("guard", ["expiring", "if-match", "if-absent"])
def test_guarded_mutations_are_late(kinds: set[str], guard: str) -> None:
    """They are delayed beyond a lease, and repeated after one."""
    late = [hazard for hazard in strikes(True, kinds | {guard}, KEPT) if hazard.seconds[1] > TIMEOUT]
    assert {hazard.action for hazard in late} == {"delay", "duplicate", "reset"}


@pytest.mark.parametrize("kinds", MUTATIONS, ids=lambda kinds: " ".join(sorted(kinds)))
@pytest.mark.parametrize("path", [KEPT, REMOVABLE, OWN])
def test_no_second_copy_comes_between_release_and_expiry(kinds: set[str], path: str) -> None:
    """A request that is repeated under an expiry arrives at once, or after the expiry."""
    doubles = [h for h in strikes(True, kinds | {"expiring"}, path) if h.action == "duplicate"]
    assert all(hazard.seconds == (0.0, 0.0) or hazard.seconds[0] > TIMEOUT for hazard in doubles)


@pytest.mark.parametrize("kinds", MUTATIONS[:3], ids=lambda kinds: " ".join(sorted(kinds)))
@pytest.mark.parametrize("guard", ["expiring", "if-absent"])
def test_creations_of_removable_objects_get_their_responses(kinds: set[str], guard: str) -> None:
    """Otherwise they would be retried, and could create an object again that was removed meanwhile."""
    actions = {hazard.action for hazard in strikes(True, kinds | {guard}, REMOVABLE)}
    assert actions <= {"drop_request", "delay", "duplicate"}
    if guard == "if-absent":
        doubles = [h for h in strikes(True, kinds | {guard}, REMOVABLE) if h.action == "duplicate"]
        assert {hazard.seconds for hazard in doubles} == {(0.0, 0.0)}


def test_all_faults_happen_to_the_table() -> None:
    """All requests to the table are conditional on generations."""
    found = strikes(False, {"PutItem", "DynamoDB"}, "")
    assert {hazard.action for hazard in found} == {
        "drop_request",
        "drop_response",
        "fail",
        "reset",
        "delay",
        "duplicate",
    }


# -- kills and stops -------------------------------------------------------------------------------


def run_of(**settings: Any) -> StressSettings:
    """Return settings of a run that is not started."""
    settings = {"mode": "native", "seconds": 100.0, "workers": 3, **settings}
    return StressSettings(store="s3://abc?endpoint_url=http://localhost", **settings)


LEASES = {"mode": "lease", "table": "dynamodb://abc?endpoint_url=http://localhost"}


def test_a_seed_determines_the_plan() -> None:
    """The plan is ordered by time, and has kills and stops for every worker."""
    found = interruptions(run_of(seed=1), enforces_expiry=False)
    assert interruptions(run_of(seed=1), enforces_expiry=False) == found
    assert interruptions(run_of(seed=2), enforces_expiry=False) != found
    assert [interruption.at for interruption in found] == sorted(
        interruption.at for interruption in found
    )
    assert {interruption.worker for interruption in found} == {0, 1, 2}
    assert 60 < len(found) < 120
    assert 20 < sum(interruption.stop is None for interruption in found) < 60


def test_a_stopped_worker_gets_no_signal_and_none_is_stopped_at_the_end() -> None:
    """Each stop has its planned duration, and all workers run during the last writes."""
    found = interruptions(run_of(seed=1), enforces_expiry=True)
    stopped: set[int] = set()
    for at, worker, number in signals(found):
        assert 0 <= at <= 100.0
        assert (worker in stopped) == (number == signal.SIGCONT)
        (stopped.discard if number == signal.SIGCONT else stopped.add)(worker)
        stopped -= {worker} if number == signal.SIGKILL else set()
    assert not stopped


@pytest.mark.parametrize(
    ("settings", "enforces_expiry", "long"),
    [
        ({"mode": "native"}, False, {0, 1, 2}),
        (LEASES, True, {0, 1, 2}),
        (LEASES, False, set()),
        ({**LEASES, "foreign": 1}, True, {0, 1}),
    ],
)
def test_workers_without_expiry_are_stopped_only_briefly(
    settings: dict[str, Any], enforces_expiry: bool, long: set[int]
) -> None:
    """Only a worker whose late requests the store refuses may be stopped for longer than a lease."""
    found = interruptions(run_of(seed=1, **settings), enforces_expiry=enforces_expiry)
    assert {t.worker for t in found if t.stop is not None and t.stop > TIMEOUT} == long
    assert all(t.stop is None or t.stop <= 1.0 or t.worker in long for t in found)
