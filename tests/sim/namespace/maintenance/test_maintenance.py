"""Maintenance of a namespace in the simulator: compaction, restore, check, repair, recovery, clean-up.

`sim.namespace.maintenance.world` and `sim.namespace.judge` have the checks. ``python -m pytest
tests/sim/namespace/maintenance/test_maintenance.py -s -k states`` prints the size of each world. With
``-m campaign`` the larger ones are explored, and drawn from seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from commitlog.oplog import Decision
from commitlog.testing.sim import Choices, Fault, Faults, Simulation, World, run_campaign
from sim.exploration import Case
from sim.namespace.actions import (
    Program,
    delete,
    empty_trash,
    gc,
    make_directory,
    publish,
    read,
    recover,
    rename,
    write,
)
from sim.namespace.maintenance.actions import (
    A_DAY,
    abort_old_jobs,
    compact_log,
    copy,
    forget_directory,
    fsck,
    job,
    list_as_garbage,
    lose_file,
    move,
    repair,
    restore,
    rewrite_log,
    same_names,
    share_object,
    share_object_before,
)
from sim.namespace.maintenance.world import MaintenanceWorld
from sim.namespace.world import world_of
from sim.nodes import ClockSkew
from support.namespace import Model
from support.selection import in_campaigns, with_all_but
from worlds import run_seeds

TREE: Mapping[str, Any] = {"made": ("d",), "files": {"d/f": b"0"}, "kind": MaintenanceWorld}

_LOSSES = (Fault.CRASHED, Fault.LOST_RESPONSE, Fault.DELAYED)


def world_with(case: Case, *, rate: float) -> World:
    """Return the world of a case, with this probability of each fault at each point."""

    def simulation(choices: Choices) -> Simulation:
        rates = dict.fromkeys(case.faults, rate)
        return Simulation(choices, faults=Faults(rates=rates, delays=case.delays, most=case.most))

    return world_of(case.programs, simulation=simulation, **case.options)


def case(name: str, programs: Mapping[str, Program], *faults: Fault, **options: Any) -> Case:
    """Return a case; options are those of `Case` and of its world."""
    own = {option: options.pop(option) for option in ("expected", "most", "delays") if option in options}
    return Case(name=name, programs=programs, faults=faults, options={**TREE, **options}, **own)


def _brings(before: Model, after: Model) -> bool:
    """Return whether a tree has all entries of another: a repair may add lost entries."""
    return before.nodes.items() <= after.nodes.items()


# -- worlds --------------------------------------------------------------------------------------------

SMALL = [
    case(
        "a compaction, a crash or a lost answer",
        {"C": [compact_log()]},
        Fault.CRASHED,
        Fault.LOST_RESPONSE,
        after={"C": A_DAY},
        restarts=("C",),
        expected=("compact: done", "compact: unknown"),
    ),
    case(
        "a file that is removed before its creation is decided, by a client whose clock is ahead",
        {
            "A": [write("d/g", b"1")],
            "B": [10.0, delete("d/g"), A_DAY, recover(older_than=10.0), compact_log()],
        },
        Fault.CRASHED,
        clocks={"A": ClockSkew(offset=A_DAY)},
        expected=("compact: done",),
    ),
    case(
        "a restore that is repeated, a crash",
        {"R": [restore(), 10.0, restore(), move(), write("d/f", b"2")]},
        Fault.CRASHED,
        restarts=("R",),
        expected=("restore: done", "restore: AlreadyExists", "write: done"),
    ),
    case(
        "a restore in partitions that is repeated, a crash or a lost answer",
        {"R": [restore(partitioned=True), 10.0, restore(partitioned=True), move(), write("d/f", b"2")]},
        Fault.CRASHED,
        Fault.LOST_RESPONSE,
        restarts=("R",),
        expected=("restore: done", "restore: AlreadyExists", "write: done"),
    ),
    case(
        "a restore, requests that arrive twice, and changes right after it",
        {"R": [restore(), move(), rename("d/f", "d/g"), rename("d", "e")]},
        Fault.DUPLICATED,
        Fault.REPEATED,
        expected=("restore: done", "rename: done"),
    ),
    case(
        "a restore that finds an old backup",
        {"A": [delete("d/f")], "R": [20.0, restore()]},
        backup=True,
        expected=("restore: AlreadyExists",),
    ),
    case(
        "a restore over an old backup, a crash",
        {"A": [delete("d/f")], "R": [20.0, restore(replace=True)]},
        Fault.CRASHED,
        backup=True,
        expected=("restore: done",),
    ),
    case(
        "a restore over an old backup, and requests that arrive twice",
        {"A": [delete("d/f")], "R": [20.0, restore(replace=True)]},
        Fault.DUPLICATED,
        delays=(0.0,),
        backup=True,
        expected=("restore: done",),
    ),
    case(
        "a restore that is paused, while another one ends and its namespace is used",
        {"R": [restore()], "S": [1.0, restore(), move(), write("d/g", b"1"), 60.0, read("d/g")]},
        Fault.PAUSED,
        delays=(30.0,),
        expected=("restore: done", "restore: AlreadyExists", "restore: Conflict", "read: done"),
    ),
    case(
        "two rewrites of the log",
        {"R": [rewrite_log()], "S": [rewrite_log()]},
        expected=("rewrite: done", "rewrite: Conflict"),
    ),
    case(
        "a repair of unreferenced objects beside a job",
        {"A": [job({"1": b"1"}, seconds=5.0)], "R": [2.0, repair(only=("orphan-object",), age=10.0)]},
        stable=False,
    ),
    case(
        "a repair after a dead client, a late request",
        {"A": [write("d/f", b"1")], "R": [60.0, repair(pending=30.0)]},
        Fault.CRASHED,
        Fault.DELAYED,
        moments=False,
    ),
    case(
        "a collection beside a reader, within its grace",
        {"A": [read("d/f", slowly=8.0)], "B": [1.0, write("d/f", b"1"), 5.0, gc(), 7.0, gc()]},
        grace=10.0,
        expected=("read: done",),
    ),
    case(
        "a restore over an old backup that dies, and one without replace",
        {"A": [delete("d/f")], "R": [20.0, restore(replace=True)], "S": [21.0, restore()]},
        Fault.CRASHED,
        backup=True,
        expected=("restore: AlreadyExists",),
    ),
]

#: Clients of the old table, while the restored one has the log.
FORKS = [
    case(
        "a second table on one log, and writes to the first",
        {
            "A": [write("d/f", b"1"), 40.0, make_directory("tried"), write("tried/a", b"1")],
            "R": [20.0, restore(), move(), make_directory("tried"), write("tried/b", b"2")],
        },
        expected=("restore: done", "make: done", "make: Fenced"),
        exact=False,
    ),
]

_BOTH = {"C": A_DAY, "A": A_DAY}

LARGE = [
    case(
        "a compaction beside writes, a fault",
        {
            "C": [compact_log()],
            "A": [write("d/f", b"1"), rename("d", "e"), delete("e/f"), write("d", b"2")],
        },
        *_LOSSES,
        after=_BOTH,
    ),
    case(
        "two compactions, a fault", {"C": [compact_log()], "A": [compact_log()]}, *_LOSSES, after=_BOTH
    ),
    case(
        "a dead client, a compaction beside a recovery, and another one",
        {
            "A": [write("d/f", b"1"), rename("d", "e")],
            "R": [2 * A_DAY, recover(older_than=10.0)],
            "C": [2 * A_DAY, compact_log(), A_DAY, compact_log()],
        },
        *_LOSSES,
        most=2,
    ),
    *(
        case(
            f"a dead client's {name}, a recovery beside an overwrite of the file",
            {"A": [left], "B": [19.0, write("d/f", b"1")], "R": [19.0, recover(older_than=9.0)]},
            Fault.CRASHED,
            moments=False,
        )
        for name, left in {
            "rename": rename("d/f", "g"),
            "write": write("d/f", b"2"),
        }.items()
    ),
    case(
        "writes, a restore, and work in the restored namespace, two faults",
        {
            "A": [write("d/f", b"1"), rename("d", "e"), write("d", b"2"), delete("e/f")],
            "R": [20.0, restore(), 10.0, restore(), move(), rename("d", "f"), gc()],
        },
        *_LOSSES,
        most=2,
        restarts=("R",),
    ),
    *(
        case(
            f"a restore after a dead client, whose change is to be {decision.value}",
            {"A": [write("d/f", b"1"), rename("d", "e")], "R": [20.0, restore(decide=decision)]},
            *_LOSSES,
        )
        for decision in Decision
    ),
    case(
        "a restore beside a change of the table that is lost",
        {
            "A": [make_directory("tried")],
            "R": [restore(decide=Decision.ROLLED_BACK), move(), make_directory("tried")],
        },
        Fault.DELAYED,
        exact=False,
    ),
    case(
        "two tables on one log, beside changes of both, a fault",
        {
            "A": [make_directory("a"), write("a/1", b"1"), rename("a", "b"), delete("d/f")],
            "R": [restore(decide=Decision.ROLLED_BACK), move(), make_directory("a"), rename("d", "a/d")],
        },
        *_LOSSES,
        restarts=("R",),
        exact=False,
        stable=False,
    ),
    case("two restores, a fault", {"R": [restore()], "S": [restore()]}, *_LOSSES),
    case(
        "two rewrites of the log beside a write, a fault",
        {"R": [rewrite_log()], "S": [rewrite_log()], "A": [30.0, write("d/f", b"1")]},
        *_LOSSES,
        exact=False,
    ),
    case(
        "two restores over an old backup, a crash",
        {"R": [restore(replace=True)], "S": [restore(replace=True)]},
        Fault.CRASHED,
        backup=True,
    ),
    case(
        "a restore over an old backup, and one without replace, a crash",
        {
            "A": [delete("d/f")],
            "R": [20.0, restore(replace=True)],
            "S": [20.0, restore(), 1.0, restore()],
        },
        Fault.CRASHED,
        backup=True,
    ),
    case(
        "a check beside writes that die",
        {"K": [fsck()], "A": [write("d/f", b"1"), delete("d/f"), write("d/g", b"1")]},
        Fault.CRASHED,
        page=4,
    ),
    case(
        "a check beside renames of a directory",
        {"K": [fsck()], "A": [rename("d", "e/d"), rename("e/d", "d")]},
        page=3,
        made=("d", "e"),
    ),
    case(
        "a check beside an overwrite, a collection, and a sweep",
        {"K": [fsck()], "A": [write("d/f", b"1"), delete("d", recursive=True), empty_trash(), gc()]},
        page=4,
        grace=0.0,
    ),
    case(
        "a check beside a compaction, a crash",
        {"K": [fsck()], "A": [compact_log()]},
        Fault.CRASHED,
        after={"K": A_DAY, "A": A_DAY},
    ),
    case(
        "a read-only copy beside a compaction",
        {"R": [copy()], "C": [compact_log()]},
        after={"R": A_DAY, "C": A_DAY},
    ),
    case(
        "a repair of a directory's record beside its rename, a fault",
        {"R": [repair()], "A": [rename("d", "e")]},
        *_LOSSES,
        restarts=("R",),
        damage=forget_directory,
        spared=("no-directory-record",),
        moments=False,
        exact=False,
    ),
    case(
        "two repairs of a directory's record, a crash",
        {"R": [repair()], "S": [repair()]},
        Fault.CRASHED,
        damage=forget_directory,
        spared=("no-directory-record",),
        moments=False,
    ),
    case(
        "a repair of a lost file beside a new one of its name, a fault",
        {"R": [repair(_brings)], "A": [write("d/f", b"1", overwrite=False)]},
        *_LOSSES,
        damage=lose_file,
        spared=("log-newer",),
        moments=False,
        exact=False,
    ),
    case(
        "two repairs of a file that names another's object, a fault",
        {"R": [repair(same_names)], "S": [repair(same_names)]},
        *_LOSSES,
        damage=share_object,
        spared=("record-differs", "object-shared"),
        files={"d/f": b"0", "d/g": b"1"},
        moments=False,
        exact=False,
    ),
    case(
        "a repair of an older file that names another's object, and a collection, a fault",
        {"R": [repair(same_names, times=1), 1.0, gc()]},
        *_LOSSES,
        restarts=("R",),
        damage=share_object_before,
        spared=("log-newer", "object-shared"),
        files={"d/f": b"0", "d/g": b"1"},
        moments=False,
        grace=0.0,
        exact=False,
    ),
    case(
        "a repair of content that is listed as garbage beside an overwrite, a fault",
        {"R": [repair()], "A": [write("d/f", b"1")]},
        *_LOSSES,
        damage=list_as_garbage,
        spared=("garbage-in-use", "duplicate-garbage"),
        moments=False,
        exact=False,
    ),
    case(
        "an abort of old jobs beside a job",
        {"A": [publish("j", {"1": b"1"})], "S": [abort_old_jobs(older_than=0.0)]},
        stable=False,
        moments=False,
    ),
    case(
        "a job that dies, an abort of old jobs, and a clean-up, a fault",
        {
            "A": [publish("j", {"1": b"1"})],
            "S": [20.0, abort_old_jobs(older_than=10.0), empty_trash(), gc()],
        },
        *_LOSSES,
        stable=False,
        moments=False,
    ),
]


#: Small worlds of the default run.
QUICK = (
    "a compaction, a crash or a lost answer",
    "a restore that finds an old backup",
    "a repair of unreferenced objects beside a job",
    "a repair after a dead client, a late request",
    "a collection beside a reader, within its grace",
    "a second table on one log, and writes to the first",
)


#: Worlds that only campaigns explore. Other worlds have their steps: a restore in partitions, two
#: restores over an old backup at once, and the worlds of mutants with a paused restore and with two
#: rewrites of the log.
REPEATED = (
    "a restore that is paused, while another one ends and its namespace is used",
    "a restore that is repeated, a crash",
    "a restore over an old backup, a crash",
    "two rewrites of the log",
)


def _small() -> list[Any]:
    cases = [case for case in (*SMALL, *FORKS) if case.name not in REPEATED]
    rest = [case for case in SMALL if case.name in REPEATED]
    return [*with_all_but(lambda case: case.name in QUICK, cases), *map(in_campaigns, rest)]


@pytest.mark.parametrize("case", _small(), ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """The log is complete, no file is lost, and interrupted actions can be repeated."""
    case.check(world_of)


def repeat_command(which: str) -> str:
    """Return the command that repeats the run of ``{seed}``."""
    return (
        'python -m pytest "tests/sim/namespace/maintenance/test_maintenance.py::'
        f'test_many_seeds{which}" -m campaign'
        " --campaign-seconds 1 --campaign-seed {seed}"
    )


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_some_seeds(case: Case) -> None:
    """The same holds in some runs of larger worlds."""
    again = repeat_command(f"[{case}]")
    report = run_campaign(world_with(case, rate=0.03), runs=3, again=again)
    print(f"\n{case}: {report}")


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_many_seeds(
    case: Case, campaign_seconds: float, campaign_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same holds in many runs of larger worlds."""
    with capsys.disabled():
        report = run_campaign(
            world_with(case, rate=0.03),
            seed=campaign_seed,
            seconds=campaign_seconds,
            again=repeat_command(f"[{case}]"),
        )
        print(f"\n{case}: {report}")


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same holds in all runs of larger worlds."""
    case.check(world_of)


def test_some_seeds_of_the_random_world() -> None:
    """The same holds in random worlds with maintenance and all faults, and after a restore."""
    run_seeds("upkeep", 6)
