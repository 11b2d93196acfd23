"""Outputs in the simulator: small worlds, explored exhaustively, and large ones from seeds.

`sim.outputs.judge` has the checks at every mutation and at the end, `sim.outputs.actions` those of
every answer. ``python -m pytest tests/sim/outputs/test_outputs.py -s -k states`` prints the size of each
world. With ``-m campaign`` the larger ones are explored, for an hour. ``python -m commitlog.testing.sim
--list`` lists the large worlds.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from commitlog.outputs import Batch
from commitlog.testing.sim import Fault, Faults, Forced, Seeded, Simulation
from sim.exploration import Case
from sim.nodes import in_sequence
from sim.outputs.actions import (
    abort_one,
    commit_again,
    commit_by_next_agent,
    compact,
    damage_lost_files,
    drive,
    drive_many,
    gc,
    lose_uploads,
    read,
    recover,
    write_again,
    write_below,
)
from sim.outputs.random_world import seeded_world
from sim.outputs.world import world_of
from support.project import environment
from support.selection import examples, in_campaigns, one_in, with_all_but
from worlds import LIMITS, run_seeds

#: Faults of requests.
ON_THE_WAY = tuple(set(Fault) - {Fault.PAUSED, Fault.CRASHED, Fault.SWEPT, Fault.MISROUTED})


@pytest.fixture(autouse=True)
def _silence_warnings() -> Iterator[None]:
    """Silence the warnings of drivers that could not clean up."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


output_case = partial(Case, faults=tuple(Fault), expected=("commit: done",))

CRASH = (Fault.CRASHED,)

SMALL = [
    output_case(
        name="a driver with two files and a lost task, any fault",
        programs={"A": drive("j", files=2, lost=True, heartbeats=True)},
        expected=("commit: done", "abort: done", "beat: OutcomeUnknown"),
    ),
    output_case(
        name="the same in a logged output, any fault",
        programs={"A": drive("j", files=2, lost=True)},
        expected=("commit: done", "abort: done", "stage: OutcomeUnknown"),
        options={"logged": True},
    ),
    output_case(
        name="a driver that overwrites the output, any fault",
        programs={"A": drive("j", mode="overwrite")},
        expected=("commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"before": ("b",)},
    ),
    output_case(
        name="a driver that overwrites foreign files, any fault",
        programs={"A": drive("j", mode="overwrite")},
        expected=("commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"foreign": ("old",)},
    ),
    output_case(
        name="the same in one partition of a logged output",
        programs={"A": drive("j", mode="overwrite-partitions", partition="x")},
        expected=("commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"foreign": ("p=x/old", "p=y/old"), "logged": True},
    ),
    output_case(
        name="a driver that requires an empty output, with foreign files",
        programs={"A": drive("j", mode="error")},
        expected=("begin: AlreadyExists",),
        options={"foreign": ("old",)},
    ),
    output_case(
        name="a foreign file that is written again before a recovery, a crash",
        programs={"A": drive("j", mode="overwrite"), "W": write_again("old"), "R": recover()},
        faults=CRASH,
        expected=("commit: done", "recover: done", "write: done"),
        options={"foreign": ("old",), "after": {"W": 5.0, "R": 10.0}},
    ),
    output_case(
        name="a driver that overwrites a partition that is an output, any fault",
        programs={"A": drive("j", mode="overwrite-partitions", partition="x")},
        expected=("commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"below": ("p=x",)},
    ),
    output_case(
        name="a job in a partition that is overwritten, before the recovery",
        programs={"A": drive("j", mode="overwrite"), "B": write_below("p=x"), "R": recover()},
        faults=CRASH,
        expected=("commit: done", "recover: done", "below: done"),
        options={"below": ("p=x",), "after": {"B": 5.0, "R": 10.0}},
    ),
    output_case(
        name="a driver by lease, any fault",
        programs={"A": drive("j")},
        options={"leases": True},
        expected=("commit: done", "abort: done"),
    ),
    output_case(
        name="a driver and a recovery, a crash",
        programs={"A": drive("j"), "R": recover()},
        faults=CRASH,
        expected=("commit: done", "commit: JobAborted", "recover: done", "recover: aborts"),
    ),
    output_case(
        name="a driver and gc in a logged output",
        programs={"A": drive("j"), "G": gc()},
        most=0,
        expected=("commit: done", "commit: JobAborted", "gc: done", "gc: removes"),
        options={"logged": True},
    ),
    output_case(
        name="a driver and a recovery that cannot publish",
        programs={"A": drive("j"), "R": recover()},
        most=0,
        expected=("commit: done", "recover: PublishIncomplete", "recover: aborts"),
        options={"denied": {"R": ("publish",)}},
    ),
    output_case(
        name="lost uploads of a committed job, recoveries, and a job that replaces it",
        programs={
            "A": drive("j", files=2),
            "L": lose_uploads(),
            "R": recover(times=2, every=3.0),
            "B": drive("k", mode="overwrite"),
        },
        most=0,
        expected=(
            "commit: done",
            "commit: PublishIncomplete",
            "recover: reports a loss",
            "recover: done",
        ),
        options={"denied": {"A": ("publish",)}, "after": {"L": 1, "R": 2, "B": 4}},
    ),
    output_case(
        name="two drivers of one job, a crash",
        programs={"A": drive("j"), "B": drive("j")},
        faults=CRASH,
        expected=("commit: done", "commit: JobAlreadyCommitted", "begin: JobAlreadyCommitted"),
    ),
    output_case(
        name="a batch, a job of its id, and a job of the id of the batch before",
        programs={
            "A": drive("s/1", batch=Batch("s", 1)),
            "B": in_sequence(drive("s/1"), drive("s/0")),
        },
        most=0,
        expected=("commit: done", "commit: JobAlreadyCommitted", "begin: JobAlreadyCommitted"),
    ),
    output_case(
        name="a driver and an abort from elsewhere, a crash",
        programs={"A": drive("j"), "B": abort_one()},
        faults=CRASH,
        expected=("commit: done", "commit: JobAborted", "abort: done", "abort: is committed"),
    ),
    output_case(
        name="a commit called again with other files, a crash",
        programs={"A": drive("j"), "B": commit_again(others=True)},
        faults=CRASH,
        expected=("commit: done", "commit: ConfigurationError", "commit: JobAborted"),
    ),
    output_case(
        name="a driver and a reader, a crash",
        programs={"A": drive("j"), "R": read()},
        faults=CRASH,
        expected=("commit: done", "read: something", "read: nothing"),
    ),
    output_case(
        name="a driver and a reader that may not write, a crash",
        programs={"A": drive("j"), "R": read(roll_forward=False)},
        faults=CRASH,
        expected=("commit: done", "read: something", "read: nothing"),
    ),
    output_case(
        name="two drivers that require an empty output",
        programs={"A": drive("j", mode="error"), "B": drive("k", mode="error")},
        most=0,
        expected=("commit: done", "commit: AlreadyExists", "begin: AlreadyExists"),
    ),
    output_case(
        name="a compaction, any fault",
        programs={"C": compact()},
        expected=("compact: done", "commit: done", "commit: PublishIncomplete", "abort: is committed"),
        options={"before": ("a", "b")},
    ),
    output_case(
        name="a compaction of a logged output, any fault",
        programs={"C": compact()},
        expected=("compact: done", "commit: done", "commit: Unavailable", "abort: done"),
        options={"before": ("a", "b"), "logged": True},
    ),
    output_case(
        name="a compaction and a driver that overwrites the output",
        programs={"C": compact(), "A": drive("j", mode="overwrite")},
        most=0,
        expected=("compact: done", "commit: done", "commit: Conflict", "compact: nothing"),
        options={"before": ("a", "b"), "logged": True},
    ),
    output_case(
        name="a job with its uploads in its record, any fault",
        programs={"A": drive("j", files=2, lost=True)},
        options={"shared": True},
        expected=("commit: done", "abort: done"),
    ),
    output_case(
        name="jobs that share a record, any fault",
        programs={"A": drive_many("j", "k")},
        options={"shared": True},
        expected=("commit: done", "abort: done"),
    ),
    output_case(
        name="jobs that share a record and a recovery, a crash",
        programs={"A": drive_many("j", "k"), "R": recover()},
        faults=CRASH,
        options={"shared": True, "after": {"R": 5.0}},
        expected=("commit: done", "recover: done", "recover: aborts"),
    ),
    output_case(
        name="jobs that share a record, and a driver of one of them",
        programs={"A": drive_many("j", "k"), "B": drive("k")},
        most=0,
        options={"shared": True},
        expected=("commit: done", "commit: JobAlreadyCommitted", "begin: JobAlreadyCommitted"),
    ),
    output_case(
        name="jobs that share a record, and an abort of one of them",
        programs={"A": drive_many("j", "k"), "B": abort_one()},
        most=0,
        options={"shared": True},
        expected=("commit: done", "commit: JobAborted", "abort: done", "abort: is committed"),
    ),
    output_case(
        name="two groups of jobs, one job in both",
        programs={"A": drive_many("j", "k"), "B": drive_many("k", "l")},
        most=0,
        options={"shared": True},
        expected=("commit: done", "commit: JobAlreadyCommitted"),
    ),
    output_case(
        name="jobs that share a record, and one that requires an empty output",
        programs={"A": drive_many("j", "k", mode="error"), "B": drive("b")},
        most=0,
        options={"shared": True},
        expected=("commit: done", "commit: AlreadyExists", "begin: AlreadyExists"),
    ),
    output_case(
        name="a driver in a busy output, any fault",
        programs={"A": drive("j")},
        options={"shared": True, "busy": True},
        expected=("commit: done", "abort: done"),
    ),
    output_case(
        name="two drivers that help each other",
        programs={"A": drive("j", abort=False), "B": drive("k", abort=False)},
        most=0,
        options={"shared": True, "busy": True},
        expected=("commit: done", "commit: with others"),
    ),
    output_case(
        name="two drivers of one job that help each other",
        programs={"A": drive("j", abort=False), "B": drive("j", abort=False)},
        most=0,
        options={"shared": True, "busy": True},
        expected=("commit: done", "commit: JobAlreadyCommitted"),
    ),
    output_case(
        name="a driver in a busy output and an abort from elsewhere, a crash",
        programs={"A": drive("j"), "B": abort_one()},
        faults=CRASH,
        options={"shared": True, "busy": True, "after": {"B": 11.0}},
        expected=("commit: done", "commit: JobAborted", "abort: done", "abort: is committed"),
    ),
    output_case(
        name="a dead driver in a busy output, one that helps it, and an abort from elsewhere",
        programs={"A": drive("j", abort=False), "B": drive("k"), "C": abort_one()},
        faults=CRASH,
        options={"shared": True, "busy": True, "after": {"B": 3.0, "C": 27.0}},
        expected=("commit: done", "commit: with others", "abort: done", "abort: is committed"),
    ),
    output_case(
        name="a driver in a busy output that another helps, a lost answer",
        programs={"A": drive("j"), "B": drive("k")},
        faults=(Fault.LOST_RESPONSE,),
        options={"shared": True, "busy": True, "after": {"B": 3.0}},
        expected=("commit: done", "commit: with others"),
    ),
    output_case(
        name="a driver in a busy output and a recovery, a crash",
        programs={"A": drive("j"), "R": recover()},
        faults=CRASH,
        options={"shared": True, "busy": True, "after": {"R": 6.0}},
        expected=("commit: done", "commit: JobAborted", "recover: done", "recover: aborts"),
    ),
    output_case(
        name="a driver with S3A, two files and a lost task, any fault",
        programs={"A": drive("j", files=2, lost=True, heartbeats=True)},
        expected=("commit: done", "abort: done", "clean: OutcomeUnknown"),
        options={"s3a": True},
    ),
    output_case(
        name="a driver with S3A and a recovery, a lost answer",
        programs={"A": drive("j"), "R": recover()},
        faults=(Fault.LOST_RESPONSE,),
        expected=("commit: done", "recover: done"),
        options={"s3a": True, "after": {"R": 5.0}},
    ),
    output_case(
        name="a driver with S3A and gc",
        programs={"A": drive("j"), "G": gc()},
        most=0,
        expected=("commit: done", "commit: JobAborted", "gc: done", "gc: removes"),
        options={"s3a": True},
    ),
    output_case(
        name="a slow driver with S3A and gc, a crash",
        programs={"A": drive("j", files=2, slow=3.0), "G": gc(older_than=4.0)},
        faults=CRASH,
        expected=("commit: done", "gc: done"),
        options={"s3a": True, "after": {"G": 11.0}},
    ),
    output_case(
        name="a driver with S3A whose agent dies, any fault",
        programs={"A": drive("j")},
        expected=("commit: done", "abort: done"),
        options={"s3a": True, "restart": {"A": commit_by_next_agent()}},
    ),
    output_case(
        name="an overwriting driver whose agent dies, and the next agent has other uploads",
        programs={"A": drive("j", mode="overwrite")},
        faults=CRASH,
        expected=("commit: ConfigurationError", "resolve: is committed", "resolve: is aborted"),
        options={
            "s3a": True,
            "before": ("b",),
            "foreign": ("old",),
            "restart": {"A": commit_by_next_agent(others=True)},
        },
    ),
    output_case(
        name="two agents that commit one job with other uploads",
        programs={"A": drive("j"), "B": commit_by_next_agent(others=True)},
        most=0,
        expected=("commit: done", "resolve: is committed", "resolve: is aborted"),
        options={"s3a": True},
    ),
    output_case(
        name="lost uploads of S3A, other objects in their places, and a job that replaces them",
        programs={
            "A": drive("j", files=2),
            "L": lose_uploads(),
            "D": damage_lost_files(),
            "R": recover(times=2, every=3.0),
            "B": drive("k", mode="overwrite"),
        },
        most=0,
        expected=("commit: PublishIncomplete", "recover: reports a loss", "recover: done"),
        options={
            "s3a": True,
            "denied": {"A": ("publish",)},
            "after": {"L": 1, "D": 1.5, "R": 2, "B": 4},
        },
    ),
]

LARGE = [
    output_case(
        name="a driver, two faults",
        programs={"A": drive("j")},
        most=2,
        expected=("commit: done", "commit: Unavailable", "abort: done"),
    ),
    output_case(name="a driver and a recovery, any fault", programs={"A": drive("j"), "R": recover()}),
    output_case(
        name="a driver and a recovery that cannot publish, a crash",
        programs={"A": drive("j", lost=True), "R": recover()},
        faults=CRASH,
        expected=("commit: done", "recover: PublishIncomplete", "recover: aborts"),
        options={"denied": {"R": ("publish",)}},
    ),
    output_case(
        name="a dead driver, its late requests, and a recovery",
        programs={"A": drive("j", abort=False), "R": recover()},
        faults=(Fault.DELAYED, Fault.CRASHED),
        most=2,
        options={"after": {"R": 3.0}},
    ),
    output_case(
        name="a driver that begins again and a recovery, a crash",
        programs={"A": drive("j"), "R": recover()},
        faults=CRASH,
        expected=("commit: done", "begin: JobAlreadyCommitted", "commit: JobAborted"),
        options={"after": {"R": 1.0}, "restart": {"A": drive("j")}},
    ),
    output_case(name="two drivers of one job, any fault", programs={"A": drive("j"), "B": drive("j")}),
    output_case(
        name="two drivers of two jobs, a crash",
        programs={"A": drive("j"), "B": drive("k")},
        faults=CRASH,
    ),
    output_case(
        name="two drivers that require an empty output, a crash",
        programs={"A": drive("j", mode="error"), "B": drive("k", mode="error")},
        faults=CRASH,
        expected=("commit: done", "commit: AlreadyExists", "begin: AlreadyExists"),
    ),
    output_case(
        name="a driver and an abort from elsewhere, any fault",
        programs={"A": drive("j"), "B": abort_one()},
    ),
    output_case(
        name="a commit called twice, a crash",
        programs={"A": drive("j"), "B": commit_again()},
        faults=CRASH,
    ),
    output_case(
        name="a commit called again with other files, any fault",
        programs={"A": drive("j"), "B": commit_again(others=True)},
    ),
    output_case(name="a driver and a reader, any fault", programs={"A": drive("j"), "R": read()}),
    output_case(
        name="two drivers that overwrite the output and each other's files",
        programs={"A": drive("j", mode="overwrite"), "B": drive("k", mode="overwrite")},
        most=0,
        options={"before": ("b",)},
    ),
    output_case(
        name="a driver that overwrites the output, a recovery, a crash",
        programs={"A": drive("j", mode="overwrite"), "R": recover()},
        faults=CRASH,
        options={"before": ("b",)},
    ),
    output_case(
        name="a driver that overwrites the output, a reader, a crash",
        programs={"A": drive("j", mode="overwrite"), "R": read()},
        faults=CRASH,
        options={"before": ("b",)},
    ),
    output_case(
        name="a driver that overwrites a logged output, gc, a crash",
        programs={"A": drive("j", mode="overwrite", lost=True), "G": gc()},
        faults=CRASH,
        expected=("commit: done", "commit: JobAborted", "gc: done", "gc: removes"),
        options={"before": ("b",), "logged": True},
    ),
    output_case(
        name="two compactions",
        programs={"C": compact(), "D": compact()},
        most=0,
        expected=("compact: done", "commit: done", "commit: Conflict"),
        options={"before": ("a", "b")},
    ),
    output_case(
        name="a compaction and a driver that adds, a crash",
        programs={"C": compact(), "A": drive("j")},
        faults=CRASH,
        expected=("compact: done", "commit: done"),
        options={"before": ("a", "b"), "logged": True},
    ),
    output_case(
        name="a compaction and a reader, a crash",
        programs={"C": compact(), "R": read()},
        faults=CRASH,
        expected=("compact: done", "commit: done", "read: something"),
        options={"before": ("a", "b")},
    ),
    output_case(
        name="a driver with S3A and gc, a crash",
        programs={"A": drive("j", lost=True), "G": gc()},
        faults=CRASH,
        expected=("commit: done", "commit: JobAborted", "gc: done", "gc: removes"),
        options={"s3a": True},
    ),
    output_case(
        name="two agents that commit one job, any fault",
        programs={"A": drive("j"), "B": commit_by_next_agent()},
        options={"s3a": True},
    ),
    output_case(
        name="two drivers of one job by lease, one later, a crash",
        programs={"A": drive("j"), "B": drive("j")},
        faults=CRASH,
        options={"leases": True, "after": {"B": 1.0}},
    ),
]


#: Worlds with many states that run only with ``--all``, because other worlds cover their rules.
LONG = (
    "a driver and a recovery that cannot publish",
    "a driver by lease, any fault",
    "a driver and gc in a logged output",
    "a batch, a job of its id, and a job of the id of the batch before",
    "two agents that commit one job with other uploads",
    "two drivers of one job, a crash",
    "a driver and a reader, a crash",
    "a compaction, any fault",
    "two drivers that require an empty output",
    "a compaction and a driver that overwrites the output",
    "jobs that share a record, and a driver of one of them",
    "jobs that share a record, and an abort of one of them",
    "jobs that share a record, and one that requires an empty output",
    "a driver in a busy output and an abort from elsewhere, a crash",
)

#: The worlds with the most states, which campaigns explore. Other worlds have their steps: a slow driver
#: with S3A and gc at once, a group of jobs and a driver of one of them, and jobs that share a record
#: during a recovery.
LONGEST = (
    "a driver with S3A and gc",
    "two groups of jobs, one job in both",
    "a driver and a recovery, a crash",
)


def _small() -> list[Any]:
    cases = with_all_but(lambda case: case.name not in LONG, [c for c in SMALL if c.name not in LONGEST])
    return [*cases, *(in_campaigns(case) for case in SMALL if case.name in LONGEST)]


@pytest.mark.parametrize("case", _small(), ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """Jobs are committed completely or not at all, once, and every client gets a true answer."""
    case.check(world_of)


@pytest.mark.parametrize("trusts_any_404", [True, False])
def test_a_404_of_an_intermediary_must_not_hide_a_pending_entry(trusts_any_404: bool) -> None:
    """The recovery of a job whose driver crashed would otherwise consider it published.

    The S3 client trusts a 404 only if it has an error code of the store.
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
    refused = pytest.raises(AssertionError, match="not completely visible")
    with simulation, refused if trusts_any_404 else contextlib.nullcontext():
        simulation.run()
        judge()
    assert simulation.injected[Fault.CRASHED] == 1
    assert simulation.injected[Fault.MISROUTED] == trusts_any_404


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same holds in larger worlds, with more clients and faults."""
    case.check(world_of)


#: Number of seeds of each large world with ``--all``; half of them run by default.
RUNS: Mapping[str, int] = {
    "outputs-conditions": 300,
    "outputs-leases": 250,
    "outputs-records-staged": 300,
    "outputs-lists": 200,
    "outputs-s3a": 400,
    "outputs-s3a-lists": 250,
    "outputs-shared-records": 400,
}


@pytest.fixture(params=one_in(2, RUNS))
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each large world. The sizes that it sets are restored after the test."""
    name: str = request.param
    for what, size in LIMITS.get(name, {}).items():
        monkeypatch.setattr(what, size)
    return name


def test_some_seeds(world: str) -> None:
    """The same holds in random worlds of three to five nodes with all faults."""
    report = run_seeds(world, examples(RUNS[world] // 2, RUNS[world]))
    assert set(report.faults) >= set(ON_THE_WAY) - {Fault.PARTIAL, Fault.DUPLICATED}
    calls = ("begin", "stage", "commit", "abort", "recover", "read", "log")
    assert not [call for call in calls if not report.outcomes[f"{call}: Unavailable"]]
    wanted = ["commit: JobAborted", "commit: JobAlreadyCommitted", "abort: is committed"]
    wanted += ["gc: removes", "compact: done"]
    if "shared" in world:
        wanted.append("commit: with others")
    if "s3a" in world:
        wanted += ["resolve: is committed", "resolve: is aborted", "clean: done"]
    assert report.outcomes.keys() >= set(wanted)


def digest(seed: int) -> str:
    """Return the hash of the trace of a run."""
    simulation, judge = seeded_world()(Seeded(seed))
    with simulation:
        simulation.run()
        judge()
    return hashlib.sha256("\n".join(simulation.trace).encode()).hexdigest()


@pytest.mark.all
def test_a_seed_determines_the_trace_in_any_process() -> None:
    """A seed gives the same run, bit for bit, in processes that order sets differently."""
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
