"""Outputs on the simulator: small worlds explored whole, large ones drawn from seeds.

What is checked, at every mutation, at every answer and at the end, is in `sim.outputs.model` and
`sim.outputs.world`. ``python -m pytest tests/sim/outputs/test_outputs.py -s -k states`` prints how large
the worlds are. With ``-m campaign`` the larger ones are explored, for an hour. ``python -m
commitlog.testing.sim --list`` names the large worlds, which it runs from seeds.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from attrs import field, frozen

from commitlog.outputs import Batch
from commitlog.testing.sim import Choices, Fault, Faults, Forced, Seeded, Simulation
from sim.outputs.seeded import seeded_world
from sim.outputs.world import (
    Program,
    abort_one,
    commit_again,
    compact,
    drive,
    explored,
    gc,
    in_turn,
    lose_uploads,
    read,
    recover,
    world_of,
    write_again,
)
from support.project import environment
from support.selection import with_all_but
from worlds import LIMITS, run_seeds

#: What a request can meet whose sender lives on.
ON_THE_WAY = tuple(set(Fault) - {Fault.PAUSED, Fault.CRASHED, Fault.SWEPT, Fault.MISROUTED})


@pytest.fixture(autouse=True)
def _no_warnings_are_kept() -> Iterator[None]:
    """Spare the log the warnings of a million drivers that could not tidy up."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@frozen(kw_only=True)
class Case:
    """A world to explore.

    Attributes:
        name: what it is about.
        nodes: what each does.
        faults: what may happen.
        most: most faults in a run.
        told: what must have been told to somebody in some run, or the world is not what it seems.
        options: those of `world_of`.
    """

    name: str
    nodes: Mapping[str, Program]
    faults: tuple[Fault, ...] = tuple(Fault)
    most: int = 1
    told: tuple[str, ...] = ("commit: done",)
    options: Mapping[str, Any] = field(factory=dict)

    def __str__(self) -> str:
        return self.name

    def simulation(self, choices: Choices) -> Simulation:
        """Return the simulation; what is late is so by more than anybody waits for it."""
        rates = dict.fromkeys(self.faults, 0.01)
        return Simulation(choices, faults=Faults(rates=rates, delays=(5.0,), most=self.most))

    def check(self) -> None:
        """Explore it all."""
        told: Counter[str] = Counter()
        print(f"\n{self.name:50}", end="")
        explored(world_of(self.nodes, simulation=self.simulation, outcomes=told, **self.options))
        assert told.keys() >= set(self.told)


CRASH = (Fault.CRASHED,)

SMALL = [
    Case(
        name="a driver with two files and a lost task, any fault",
        nodes={"A": drive("j", files=2, lost=True, beats=True)},
        told=("commit: done", "commit: Unavailable", "abort: done", "beat: OutcomeUnknown"),
    ),
    Case(
        name="the same, where only the log shows files, any fault",
        nodes={"A": drive("j", files=2, lost=True)},
        told=("commit: done", "commit: Unavailable", "abort: done", "stage: OutcomeUnknown"),
        options={"logged": True},
    ),
    Case(
        name="a driver that replaces what is there, any fault",
        nodes={"A": drive("j", mode="overwrite")},
        told=("commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"before": ("b",)},
    ),
    Case(
        name="a driver that replaces what others left, any fault",
        nodes={"A": drive("j", mode="overwrite")},
        told=("commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"foreign": ("old",)},
    ),
    Case(
        name="the same, where only the log shows files, in one partition",
        nodes={"A": drive("j", mode="overwrite-partitions", partition="x")},
        told=("commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"foreign": ("p=x/old", "p=y/old"), "logged": True},
    ),
    Case(
        name="a driver that wants the output empty, where others left something",
        nodes={"A": drive("j", mode="error")},
        told=("begin: AlreadyExists",),
        options={"foreign": ("old",)},
    ),
    Case(
        name="what others left is written again before a recovery, a crash",
        nodes={"A": drive("j", mode="overwrite"), "W": write_again("old"), "R": recover()},
        faults=CRASH,
        told=("commit: done", "recover: done", "write: done"),
        options={"foreign": ("old",), "after": {"W": 5.0, "R": 10.0}},
    ),
    Case(
        name="a driver by lease, any fault",
        nodes={"A": drive("j")},
        options={"leases": True},
        told=("commit: done", "abort: done"),
    ),
    Case(
        name="a driver and a recovery, a crash",
        nodes={"A": drive("j"), "R": recover()},
        faults=CRASH,
        told=("commit: done", "commit: JobAborted", "recover: done", "recover: aborts"),
    ),
    Case(
        name="a driver and gc, where only the log shows files",
        nodes={"A": drive("j"), "G": gc()},
        most=0,
        told=("commit: done", "commit: JobAborted", "gc: done", "gc: removes"),
        options={"logged": True},
    ),
    Case(
        name="a driver and a recovery that cannot publish",
        nodes={"A": drive("j"), "R": recover()},
        most=0,
        told=("commit: done", "recover: PublishIncomplete", "recover: aborts"),
        options={"denied": {"R": ("publish",)}},
    ),
    Case(
        name="lost uploads of a committed job, recoveries, and a job that replaces it",
        nodes={
            "A": drive("j", files=2),
            "L": lose_uploads(),
            "R": recover(times=2, every=3.0),
            "B": drive("k", mode="overwrite"),
        },
        most=0,
        told=("commit: done", "commit: PublishIncomplete", "recover: reports a loss", "recover: done"),
        options={"denied": {"A": ("publish",)}, "after": {"L": 1, "R": 2, "B": 4}},
    ),
    Case(
        name="two drivers of one job, a crash",
        nodes={"A": drive("j"), "B": drive("j")},
        faults=CRASH,
        told=("commit: done", "commit: JobAlreadyCommitted", "begin: JobAlreadyCommitted"),
    ),
    Case(
        name="a batch, a job of its id, and a job of the id of the batch before",
        nodes={
            "A": drive("s/1", batch=Batch("s", 1)),
            "B": in_turn(drive("s/1"), drive("s/0")),
        },
        most=0,
        told=("commit: done", "commit: JobAlreadyCommitted", "begin: JobAlreadyCommitted"),
    ),
    Case(
        name="a driver and an abort from elsewhere, a crash",
        nodes={"A": drive("j"), "B": abort_one()},
        faults=CRASH,
        told=("commit: done", "commit: JobAborted", "abort: done", "abort: is committed"),
    ),
    Case(
        name="a commit called again with other files, a crash",
        nodes={"A": drive("j"), "B": commit_again(others=True)},
        faults=CRASH,
        told=("commit: done", "commit: ConfigurationError", "commit: JobAborted"),
    ),
    Case(
        name="a driver and a reader, a crash",
        nodes={"A": drive("j"), "R": read()},
        faults=CRASH,
        told=("commit: done", "read: something", "read: nothing"),
    ),
    Case(
        name="a driver and a reader that may not write, a crash",
        nodes={"A": drive("j"), "R": read(roll_forward=False)},
        faults=CRASH,
        told=("commit: done", "read: something", "read: nothing"),
    ),
    Case(
        name="two drivers that want the output empty",
        nodes={"A": drive("j", mode="error"), "B": drive("k", mode="error")},
        most=0,
        told=("commit: done", "commit: AlreadyExists", "begin: AlreadyExists"),
    ),
    Case(
        name="a compaction, any fault",
        nodes={"C": compact()},
        told=("compact: done", "commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"before": ("a", "b")},
    ),
    Case(
        name="a compaction of what only the log shows, any fault",
        nodes={"C": compact()},
        told=("compact: done", "commit: done", "commit: Unavailable", "abort: done"),
        options={"before": ("a", "b"), "logged": True},
    ),
    Case(
        name="a compaction and a driver that replaces what is there",
        nodes={"C": compact(), "A": drive("j", mode="overwrite")},
        most=0,
        told=("compact: done", "commit: done", "commit: Conflict", "compact: nothing"),
        options={"before": ("a", "b"), "logged": True},
    ),
]

LARGE = [
    Case(
        name="a driver, two faults",
        nodes={"A": drive("j")},
        most=2,
        told=("commit: done", "commit: Unavailable", "abort: done"),
    ),
    Case(name="a driver and a recovery, any fault", nodes={"A": drive("j"), "R": recover()}),
    Case(
        name="a driver and a recovery that cannot publish, a crash",
        nodes={"A": drive("j", lost=True), "R": recover()},
        faults=CRASH,
        told=("commit: done", "recover: PublishIncomplete", "recover: aborts"),
        options={"denied": {"R": ("publish",)}},
    ),
    Case(
        name="a dead driver, its late requests, and a recovery",
        nodes={"A": drive("j", abort=False), "R": recover()},
        faults=(Fault.DELAYED, Fault.CRASHED),
        most=2,
        options={"after": {"R": 3.0}},
    ),
    Case(
        name="a driver that begins anew and a recovery, a crash",
        nodes={"A": drive("j"), "R": recover()},
        faults=CRASH,
        told=("commit: done", "begin: JobAlreadyCommitted", "commit: JobAborted"),
        options={"after": {"R": 1.0}, "restart": {"A": drive("j")}},
    ),
    Case(name="two drivers of one job, any fault", nodes={"A": drive("j"), "B": drive("j")}),
    Case(
        name="two drivers of two jobs, a crash",
        nodes={"A": drive("j"), "B": drive("k")},
        faults=CRASH,
    ),
    Case(
        name="two drivers that want the output empty, a crash",
        nodes={"A": drive("j", mode="error"), "B": drive("k", mode="error")},
        faults=CRASH,
        told=("commit: done", "commit: AlreadyExists", "begin: AlreadyExists"),
    ),
    Case(
        name="a driver and an abort from elsewhere, any fault",
        nodes={"A": drive("j"), "B": abort_one()},
    ),
    Case(
        name="a commit called twice, a crash",
        nodes={"A": drive("j"), "B": commit_again()},
        faults=CRASH,
    ),
    Case(
        name="a commit called again with other files, any fault",
        nodes={"A": drive("j"), "B": commit_again(others=True)},
    ),
    Case(name="a driver and a reader, any fault", nodes={"A": drive("j"), "R": read()}),
    Case(
        name="two drivers that replace what is there, one another included",
        nodes={"A": drive("j", mode="overwrite"), "B": drive("k", mode="overwrite")},
        most=0,
        options={"before": ("b",)},
    ),
    Case(
        name="a driver that replaces what is there, a recovery, a crash",
        nodes={"A": drive("j", mode="overwrite"), "R": recover()},
        faults=CRASH,
        options={"before": ("b",)},
    ),
    Case(
        name="a driver that replaces what is there, a reader, a crash",
        nodes={"A": drive("j", mode="overwrite"), "R": read()},
        faults=CRASH,
        options={"before": ("b",)},
    ),
    Case(
        name="a driver that replaces what only the log shows, gc, a crash",
        nodes={"A": drive("j", mode="overwrite", lost=True), "G": gc()},
        faults=CRASH,
        told=("commit: done", "commit: JobAborted", "gc: done", "gc: removes"),
        options={"before": ("b",), "logged": True},
    ),
    Case(
        name="two compactions",
        nodes={"C": compact(), "D": compact()},
        most=0,
        told=("compact: done", "commit: done", "commit: Conflict"),
        options={"before": ("a", "b")},
    ),
    Case(
        name="a compaction and a driver that adds, a crash",
        nodes={"C": compact(), "A": drive("j")},
        faults=CRASH,
        told=("compact: done", "commit: done"),
        options={"before": ("a", "b"), "logged": True},
    ),
    Case(
        name="a compaction and a reader, a crash",
        nodes={"C": compact(), "R": read()},
        faults=CRASH,
        told=("compact: done", "commit: done", "read: something"),
        options={"before": ("a", "b")},
    ),
    Case(
        name="two drivers of one job by lease, one later, a crash",
        nodes={"A": drive("j"), "B": drive("j")},
        faults=CRASH,
        options={"leases": True, "after": {"B": 1.0}},
    ),
]

#: Those with many states, of which others have the rules: only with ``--all``.
LONG = (
    "a driver and a recovery, a crash",
    "a driver and a recovery that cannot publish",
    "a driver by lease, any fault",
)


@pytest.mark.parametrize("case", with_all_but(lambda case: case.name not in LONG, SMALL), ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """Jobs are whole or not there, once, and all who are told something of them are told the truth."""
    case.check()


@pytest.mark.parametrize("trusts_any_404", [True, False])
def test_a_404_of_something_else_must_not_hide_a_pending_entry(trusts_any_404: bool) -> None:
    """Or the recovery of a job whose driver died takes it for published.

    The client of S3 takes a 404 for the store's only if it has an error code of the store.
    """
    attempt = "0fce7f37bc4e7be982ab79ec4fb6388a"
    forced = (
        Forced(f"A publish out/part-00000-{attempt}-c000", Fault.CRASHED),
        Forced(f"R get out/_commitlog/pending/{attempt}.json", Fault.MISROUTED),
    )
    build = world_of(
        {"A": drive("j"), "R": recover()},
        simulation=lambda choices: Simulation(choices, faults=Faults(forced=forced)),
        after={"R": 10.0},
        trusts_any_404=trusts_any_404,
    )
    simulation, judge = build(Seeded(0))
    refused = pytest.raises(AssertionError, match="not all visible")
    with simulation, refused if trusts_any_404 else contextlib.nullcontext():
        simulation.run()
        judge()
    assert simulation.injected[Fault.CRASHED] == 1
    assert simulation.injected[Fault.MISROUTED] == trusts_any_404


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same, with more ways to go wrong."""
    case.check()


#: How many seeds of each large world a default run makes.
RUNS: Mapping[str, int] = {
    "outputs-conditions": 300,
    "outputs-leases": 250,
    "outputs-records-staged": 150,
    "outputs-lists": 200,
}


@pytest.fixture(params=RUNS)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each large world. The sizes that it sets are put back after the test."""
    name: str = request.param
    for what, size in LIMITS.get(name, {}).items():
        monkeypatch.setattr(what, size)
    return name


def test_some_seeds(world: str) -> None:
    """Three to five nodes, everything that can go wrong, and the same."""
    report = run_seeds(world, RUNS[world])
    assert set(report.faults) >= set(ON_THE_WAY) - {Fault.PARTIAL, Fault.DUPLICATED}
    calls = ("begin", "stage", "commit", "abort", "recover", "read", "log")
    assert not [call for call in calls if not report.outcomes[f"{call}: Unavailable"]]
    wanted = ["commit: JobAborted", "commit: JobAlreadyCommitted", "abort: is committed"]
    wanted += ["gc: removes", "compact: done"]
    assert report.outcomes.keys() >= set(wanted)


def digest(seed: int) -> str:
    """Return what tells the trace of a run from others."""
    simulation, judge = seeded_world()(Seeded(seed))
    with simulation:
        simulation.run()
        judge()
    return hashlib.sha256("\n".join(simulation.trace).encode()).hexdigest()


def test_a_seed_is_a_trace_in_any_process() -> None:
    """The same seed gives the same run, bit for bit, whatever order sets of words have in a process."""
    code = "from sim.outputs.test_outputs import digest; print(*map(digest, range(40)))"
    traces = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env=environment(PYTHONHASHSEED=seed),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1
