"""A driver in its own process and JVM competes with another one, and is killed at steps of commits.

It has a job for each race, and one for each way to write and each step, so that one kill is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve, frozen

from support.selection import in_campaigns, wanted, with_all
from support.spark_driver import Driver
from support.spark_gates import Gate
from support.spark_jobs import Job, Trap, running
from support.spark_targets import Place, configured, new_place  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.servers import Ministack

pytestmark = [
    pytest.mark.spark,
    pytest.mark.servers,
    # A dozen jobs start at the same time.
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("configured"),
]


@frozen(kw_only=True)
class Death:
    """A step of a job at which its driver is killed.

    Attributes:
        trap: the step.
        mode: of the job, which has rows for one partition only.
        committed: whether the job has passed its commit point.
    """

    trap: Trap
    mode: str = "append"
    committed: bool = False


#: A step at which the job holds a lease.
LAST = "before it is known to be over"

DEATHS = {
    "before it is known to begin": Death(trap=Trap(at="pending", what="hold")),
    "while its tasks write": Death(trap=Trap(at="rows", what="hold")),
    "before the commit record": Death(trap=Trap(at="record", what="hold"), mode="overwrite"),
    "before it hears of the record": Death(
        trap=Trap(at="record", what="hold", after=True), committed=True
    ),
    "between two files": Death(
        trap=Trap(at="publish", what="hold", nth=2), mode="overwrite-partitions", committed=True
    ),
    LAST: Death(trap=Trap(at="success", what="hold"), committed=True),
}

#: In a directory with leases, the last step would wait a minute for the lease.
CASES = [(way, death) for way in ("local", "s3", "configured", "s3a") for death in DEATHS]
CASES.remove(("local", LAST))
CASES.remove(("s3a", LAST))  # the leases are those of "s3"

#: The case of every run.
ALWAYS = [("local", "before the commit record")]

#: Further cases of each run with ``--all``: on each store, a kill on each side of the commit point.
#: Campaigns have the others.
OFTEN = [
    ("local", "between two files"),
    ("s3", "while its tasks write"),
    ("s3", "between two files"),
    ("configured", "before it hears of the record"),
    ("s3a", "before the commit record"),
    ("s3a", "between two files"),
]


def all_cases() -> list[Any]:
    """Return all cases, with the marks of those that are not in every run."""
    kept = [case for case in CASES if case in ALWAYS]
    return [
        *kept,
        *(
            with_all(*case) if case in OFTEN else in_campaigns(*case)
            for case in CASES
            if case not in kept
        ),
    ]


@frozen(kw_only=True)
class Race:
    """Two jobs that two drivers commit at once.

    Attributes:
        way: how both jobs write.
        mode: of both.
        ours: id of the job in the driver of this process.
        theirs: id of the job in the other driver.
        error: of the job that loses; None if both are committed.
    """

    way: str
    mode: str = "append"
    ours: str = "ours"
    theirs: str = "theirs"
    error: str | None = None


RACES = {
    "two appends": Race(way="s3"),
    "one job in a directory": Race(
        way="local", ours="daily", theirs="daily", error="JobAlreadyCommitted"
    ),
    "one job, on S3": Race(way="s3", ours="daily", theirs="daily", error="JobAlreadyCommitted"),
    "no data may be there": Race(way="local", mode="error", error="AlreadyExists"),
}


@frozen
class Remains:
    """The output of a dead driver's job: the place, the rows from before the job, and the job."""

    place: Place
    base: list[int]
    job: Job


@frozen
class Rival:
    """A job of another driver that waits before its commit record: driver, number, place and gate."""

    driver: Driver
    number: int
    place: Place
    gate: Gate


@frozen
class Doomed:
    """A driver that is killed in the end, after its jobs of races.

    Attributes:
        driver: the driver.
        rivals: its jobs of races.
        remains: its other jobs, by way and step.
        gates: the gates of `remains`.
    """

    driver: Driver
    rivals: dict[str, Rival]
    remains: dict[tuple[str, str], Remains]
    gates: list[Gate]


@pytest.fixture(scope="module")
def doomed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ministack: Ministack
) -> Iterator[Doomed]:
    """A driver with a job for each race, and for each way to write and each step, all at gates."""
    scratch = tmp_path_factory.mktemp("doomed")
    left: dict[tuple[str, str], Remains] = {}
    races: dict[str, tuple[Place, Job]] = {}
    with ExitStack() as stack:
        gates: list[Gate] = []

        def new(way: str) -> Place:
            gates.append(stack.enter_context(Gate()))
            return new_place(way, scratch / str(len(gates)), lambda: ministack)

        for (name,) in wanted(request, test_two_drivers_commit_at_once, "name"):
            race, place = RACES[name], new(RACES[name].way)
            trap = Trap(at="record", what="hold", port=gates[-1].port)
            job = place.job(first=100, mode=race.mode, job_id=race.theirs, trap=trap)
            races[name] = place, job
        for way, name in wanted(request, test_a_driver_is_killed, "way", "death"):
            death, place = DEATHS[name], new(way)
            if (way, name) == ("s3", LAST):
                place = place.with_short_leases()
            trap = evolve(death.trap, port=gates[-1].port)
            job = place.job(mode=death.mode, parts="part = 1", trap=trap)
            left[way, name] = Remains(place, place.begin_base(), job)
        jobs = [*(job for _, job in races.values()), *(each.job for each in left.values())]
        driver = stack.enter_context(Driver(scratch, jobs))
        for gate, done in zip(gates, driver.jobs, strict=True):
            gate.wait(done)
        rivals = {
            name: Rival(driver, number, place, gates[number])
            for number, (name, (place, _)) in enumerate(races.items())
        }
        yield Doomed(driver, rivals, left, gates[len(rivals) :])


#: The races of each run with ``--all``; campaigns have the others.
SOME_RACES = ("two appends", "one job in a directory")


@pytest.mark.all
@pytest.mark.parametrize("name", [name if name in SOME_RACES else in_campaigns(name) for name in RACES])
def test_two_drivers_commit_at_once(spark: SparkSession, doomed: Doomed, name: str) -> None:
    """Two appends are both committed. Of two jobs with one id, or in mode error, one is committed."""
    race, rival = RACES[name], doomed.rivals[name]
    assert not rival.driver.jobs[rival.number].done(), "the driver is killed later"
    place = rival.place
    with Gate() as our_gate:
        trap = Trap(at="record", what="hold", port=our_gate.port)
        job = place.job(mode=race.mode, job_id=race.ours, trap=trap)
        with running(spark, job) as (done,):
            our_gate.wait(done)
            rival.gate.open()
            our_gate.open()
            results = [
                (race.ours, job.numbers, done.exception()),
                (race.theirs, evolve(job, first=100).numbers, rival.driver.error(rival.number)),
            ]
    won = [(job_id, numbers) for job_id, numbers, raised in results if raised is None]
    lost = [str(raised) for _, _, raised in results if raised is not None]
    assert len(won) == (2 if race.error is None else 1)
    assert all(f"commitlog.errors.{race.error}: " in raised for raised in lost)
    output = place.open()
    with output.store:
        order = [record.job_id for record in output.log()]
    assert sorted(order) == sorted(job_id for job_id, _ in won)
    place.audit(spark, [number for _, numbers in won for number in numbers], *order)


# The tests above need the driver alive.
@pytest.fixture(scope="module")
def remains(doomed: Doomed) -> dict[tuple[str, str], Remains]:
    """Outputs after the driver was killed while it had a job at each step, for each way to write."""
    doomed.driver.kill()
    # Processes that commit, and Python workers, are not in the driver's process group.
    for gate in doomed.gates:
        gate.kill()
    return doomed.remains


@pytest.mark.parametrize(("way", "death"), all_cases())
def test_a_driver_is_killed(
    spark: SparkSession, remains: dict[tuple[str, str], Remains], way: str, death: str
) -> None:
    """A driver killed before the commit point leaves the old rows, and one killed after it the new rows.

    In both cases a rerun with the same id leaves each row once, and recovery removes all other files.
    """
    left, expected = remains[way, death], DEATHS[death]
    place, base = left.place, left.base
    new = [number for number in left.job.numbers if number % 2]
    kept = {"append": base, "overwrite": [], "overwrite-partitions": [n for n in base if not n % 2]}
    after = new + kept[expected.mode]

    # A reader that lists may see part of the committed files, but always sees the old rows.
    seen = place.by_listing()
    assert set(base) <= set(seen) <= set(base + new * expected.committed)
    assert place.by_log(spark, rollForward="false") == base
    assert place.by_log(spark) == (after if expected.committed else base)

    rerun = evolve(left.job, trap=None)
    if expected.committed:
        with pytest.raises(Exception, match=r"errors\.JobAlreadyCommitted: job 'daily'"):
            rerun.run(spark)
    else:
        rerun.run(spark)
    assert place.by_listing() == place.by_log(spark) == after
    place.recover()
    place.audit(spark, after, "base", "daily")
