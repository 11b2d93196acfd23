"""Processes on real servers, behind a bad network, killed and stopped: what they saw has one order.

How a run turns out is a matter of timing; its seed fixes the plan alone. So what is asserted of figures
is what any run reaches.
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
from commitlog.testing.stress.plan import KEPT, OWN, REMOVABLE, hazards, signals, troubles
from commitlog.testing.stress.worker import Schedule, Task
from commitlog.urls import Url, parse_store_url, parse_table_url
from support.project import environment
from support.selection import with_all_but
from support.servers import Ministack

TIMEOUT = 3.0


@frozen(kw_only=True)
class World:
    """A store, where its leases are, and how many foreign writers there are."""

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
            # Who waits for a lease leaves its holder three seconds more than it lasts: nothing fences
            # off a client of object_store, and a store under load may take its time over what it
            # accepted just before the expiry.
            "skew": 2.0,
            # How long the last writes take on a machine that has other things to do.
            "grace": 150.0,
            # JuiceFS reads etag, metadata and body of an object one after the other.
            "whole_reads": self.store != "juicefs",
            **settings,
        }
        return StressSettings(store=store, table=table, mode=self.mode, foreign=self.foreign, **settings)


#: One world for each way of enforcing conditions, and for each server.
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
    """Print the figures, and check that nothing was wrong and that there was trouble enough."""
    lines = "\n".join(report.lines())
    print(f"\n{lines}")
    assert report.ok, lines
    assert report.strikes.total() >= 5, lines
    assert report.kills, lines
    assert max(report.stops) > TIMEOUT, lines
    assert {Outcome.DONE, Outcome.CONTRADICTED} <= {call.outcome for call in report.history}, lines


@pytest.mark.servers
@pytest.mark.parametrize("world", with_all_but(lambda world: world is WORLDS[0], WORLDS), ids=str)
def test_what_all_saw_has_one_order(world: World, request: pytest.FixtureRequest) -> None:
    """Whatever gets lost and whoever dies, each path was one object all the time, and all finish."""
    check(run_stress(world.stress(request, seconds=5.0, seed=3, workers=5, interval=0.7, rate=0.03)))


@pytest.mark.servers
def test_what_all_saw_has_one_order_on_a_server_like_ceph(
    ministack: Ministack, request: pytest.FixtureRequest
) -> None:
    """Late requests are refused there as `AccessDenied`, which ends neither probe nor worker."""
    world = World(store="ministack", table="ministack", mode="auto")
    stress = world.stress(request, seconds=5.0, seed=3, workers=5, interval=0.7, rate=0.03)
    with Proxy(ministack.endpoint_url, like_ceph=True) as ceph:
        store = stress.store.with_options({"endpoint_url": ceph.endpoint_url})
        report = run_stress(evolve(stress, store=store))
    check(report)
    assert report.fenced


@pytest.mark.campaign
@pytest.mark.servers
@pytest.mark.timeout(0)
@pytest.mark.parametrize("world", MORE_WORLDS, ids=str)
def test_campaign(
    world: World, request: pytest.FixtureRequest, campaign_seconds: float, campaign_seed: int
) -> None:
    """The same for as long as one likes, with every server."""
    check(run_stress(world.stress(request, seconds=campaign_seconds, seed=campaign_seed, workers=6)))


@pytest.mark.servers
def test_a_store_that_was_trusted_wrongly_is_caught(request: pytest.FixtureRequest) -> None:
    """Clients that rest on conditions which the store ignores overwrite one another, and it shows."""
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


def test_from_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory with leases in a file: workers die all the same, and the verdict is printed.

    In the end all is removed that was there, among it what kept directories from being empty.
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


def test_what_does_not_go_together_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is started then."""
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
def test_settings_that_contradict_one_another_are_refused(settings: dict[str, Any]) -> None:
    """Leases need a table that processes share, and foreign writers need servers."""
    with pytest.raises(ConfigurationError):
        StressSettings(**settings)


def test_a_worker_that_fails_is_told_of(tmp_path: Path) -> None:
    """Its last words are in the report, and the report is not in order."""
    with Fleet([task("s3://no-region-and-no-credentials")], tmp_path) as fleet:
        fleet.begin(schedule(0.1))
        fleet.join(time.monotonic() + 60)
    assert len(fleet.failures) == 1
    assert "ConfigurationError" in fleet.failures[0]


def test_a_worker_that_does_not_finish_is_told_of(tmp_path: Path) -> None:
    """It is killed at the deadline."""
    with Fleet([task(f"file://{tmp_path}/lake")], tmp_path) as fleet:
        fleet.begin(schedule(60.0))
        fleet.join(time.monotonic() + 0.5)
    assert fleet.failures == ["worker-0.0 did not finish in time"]


def test_workers_die_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """Those that are stopped, too."""
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
    """Return a task on a store that needs no server, or cannot be opened."""
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
    """Return schedule that begin now."""
    now = time.monotonic()
    return Schedule(begin=now, end=now + seconds, deadline=now + seconds)


# -- which faults strike which requests ------------------------------------------------------------


def strikes(fenced: bool, kinds: set[str], path: str) -> list[Hazard]:
    """Return the hazards of requests of these kinds to that path."""
    return [
        hazard
        for hazard in hazards(timeout=TIMEOUT, fenced=fenced, rate=0.5)
        if set(hazard.kinds) <= kinds and hazard.path in f"/bucket/{path}"
    ]


MUTATIONS = [{"PUT", "S3"}, {"COPY", "PUT", "S3"}, {"PUBLISH", "POST", "S3"}, {"DELETE", "S3"}]


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("kinds", MUTATIONS, ids=lambda kinds: " ".join(sorted(kinds)))
@pytest.mark.parametrize("path", [KEPT, REMOVABLE, OWN])
def test_what_nothing_guards_is_not_late(kinds: set[str], path: str, fenced: bool) -> None:
    """A mutation without a condition or an expiry that is enforced is held back for moments alone."""
    guards = set() if fenced else {"fenced"}
    found = strikes(fenced, kinds | guards, path)
    assert found
    assert max(hazard.seconds[1] for hazard in found) < 0.5
    assert {hazard.seconds for hazard in found if hazard.action == "duplicate"} == {(0.0, 0.0)}


@pytest.mark.parametrize("kinds", MUTATIONS, ids=lambda kinds: " ".join(sorted(kinds)))
@pytest.mark.parametrize("guard", ["fenced", "if-match", "if-absent"])
def test_what_is_guarded_is_late(kinds: set[str], guard: str) -> None:
    """It is held back beyond a lease, and comes a second time after one."""
    late = [hazard for hazard in strikes(True, kinds | {guard}, KEPT) if hazard.seconds[1] > TIMEOUT]
    assert {hazard.action for hazard in late} == {"delay", "duplicate", "reset"}


@pytest.mark.parametrize("kinds", MUTATIONS, ids=lambda kinds: " ".join(sorted(kinds)))
@pytest.mark.parametrize("path", [KEPT, REMOVABLE, OWN])
def test_no_second_copy_comes_between_release_and_expiry(kinds: set[str], path: str) -> None:
    """What is sent again under an expiry comes at once, or after it."""
    doubles = [h for h in strikes(True, kinds | {"fenced"}, path) if h.action == "duplicate"]
    assert all(hazard.seconds == (0.0, 0.0) or hazard.seconds[0] > TIMEOUT for hazard in doubles)


@pytest.mark.parametrize("kinds", MUTATIONS[:3], ids=lambda kinds: " ".join(sorted(kinds)))
@pytest.mark.parametrize("guard", ["fenced", "if-absent"])
def test_creations_of_what_may_be_removed_get_their_answers(kinds: set[str], guard: str) -> None:
    """Or they would be tried again, and could bring back what was removed meanwhile."""
    actions = {hazard.action for hazard in strikes(True, kinds | {guard}, REMOVABLE)}
    assert actions <= {"drop_request", "delay", "duplicate"}
    if guard == "if-absent":
        doubles = [h for h in strikes(True, kinds | {guard}, REMOVABLE) if h.action == "duplicate"]
        assert {hazard.seconds for hazard in doubles} == {(0.0, 0.0)}


def test_everything_happens_to_the_table() -> None:
    """All that a table is asked is conditional on generations."""
    found = strikes(False, {"PutItem", "DynamoDB"}, "")
    assert {hazard.action for hazard in found} == {
        "drop_request",
        "drop_response",
        "fail",
        "reset",
        "delay",
        "duplicate",
    }


# -- who dies, and who is stopped ------------------------------------------------------------------


def run_of(**settings: Any) -> StressSettings:
    """Return a run that nobody makes."""
    settings = {"mode": "native", "seconds": 100.0, "workers": 3, **settings}
    return StressSettings(store="s3://abc?endpoint_url=http://localhost", **settings)


LEASES = {"mode": "lease", "table": "dynamodb://abc?endpoint_url=http://localhost"}


def test_a_seed_says_who_dies_when() -> None:
    """The same seed, the same troubles; in order, some of each sort, and for every worker."""
    found = troubles(run_of(seed=1), fenced=False)
    assert troubles(run_of(seed=1), fenced=False) == found
    assert troubles(run_of(seed=2), fenced=False) != found
    assert [trouble.at for trouble in found] == sorted(trouble.at for trouble in found)
    assert {trouble.worker for trouble in found} == {0, 1, 2}
    assert 60 < len(found) < 120
    assert 20 < sum(trouble.stop is None for trouble in found) < 60


def test_nobody_is_signalled_while_stopped_nor_stopped_at_the_end() -> None:
    """Each stop is as long as it says, and everybody is there for the last writes."""
    found = troubles(run_of(seed=1), fenced=True)
    stopped: set[int] = set()
    for at, worker, number in signals(found):
        assert 0 <= at <= 100.0
        assert (worker in stopped) == (number == signal.SIGCONT)
        (stopped.discard if number == signal.SIGCONT else stopped.add)(worker)
        stopped -= {worker} if number == signal.SIGKILL else set()
    assert not stopped


@pytest.mark.parametrize(
    ("settings", "fenced", "long"),
    [
        ({"mode": "native"}, False, {0, 1, 2}),
        (LEASES, True, {0, 1, 2}),
        (LEASES, False, set()),
        ({**LEASES, "foreign": 1}, True, {0, 1}),
    ],
)
def test_who_is_not_fenced_off_is_stopped_for_moments(
    settings: dict[str, Any], fenced: bool, long: set[int]
) -> None:
    """Only whose requests the store refuses afterwards may be stopped for longer than a lease."""
    found = troubles(run_of(seed=1, **settings), fenced=fenced)
    assert {t.worker for t in found if t.stop is not None and t.stop > TIMEOUT} == long
    assert all(t.stop is None or t.stop <= 1.0 or t.worker in long for t in found)
