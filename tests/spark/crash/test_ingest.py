"""Exactly-once ingest from end to end: drivers are killed, or run twice, at each step of a batch.

Files are ingested, their records transformed and committed to an output: from directory to directory
with the state in SQLite, and on S3 with state and leases in DynamoDB. Python workers read the files, or
Spark's own readers do, and the commit agent plans. One driver process has a query for each place and
step, and for each second run, so that one kill is enough.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from attrs import evolve, frozen

from support.selection import in_campaigns, wanted
from support.spark_cluster import HOSTS, Workers
from support.spark_driver import Driver
from support.spark_gates import PATIENCE, Gate
from support.spark_ingest import Landing, new_landing
from support.spark_ingest_traps import BatchTrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.servers import Ministack

pytestmark = [
    pytest.mark.all,
    pytest.mark.spark,
    pytest.mark.servers,
    # A dozen queries start at the same time.
    pytest.mark.timeout(900),
]


@frozen(kw_only=True)
class Step:
    """A step of a batch at which the driver is killed, and the progress of the batch at that step.

    Attributes:
        trap: the step.
        planned: whether the epoch is stored.
        offset: whether Spark's offset log has the batch.
        committed: whether the output has its rows.
    """

    trap: BatchTrap
    planned: bool = False
    offset: bool = False
    committed: bool = False

    @classmethod
    def at(cls, at: str, how_far: str = "", **trap: object) -> Step:
        """Return a step; `how_far` names the last attribute that is true."""
        names = ("planned", "offset", "committed")
        so_far = names[: names.index(how_far) + 1] if how_far else ()
        return cls(
            trap=BatchTrap(at=at, what="hold", **trap),  # type: ignore[arg-type]
            **dict.fromkeys(so_far, True),
        )


#: In the order of the batch; most steps are in the second batch.
STEPS = {
    "before the state is made": Step.at("begin", batch=0),
    "before the query takes the source": Step.at("claim", "offset", batch=0),
    "after the query takes the source": Step.at("claim", "offset", batch=0, after=True),
    "between two batches": Step.at("latestOffset"),
    "before the epoch is stored": Step.at("plan"),
    "before Spark's offset log": Step.at("latestOffset", "planned", after=True),
    "before Spark asks for partitions": Step.at("partitions", "offset"),
    "before tasks": Step.at("partitions", "offset", after=True),
    "before Spark asks for files": Step.at("files", "offset"),
    "when some slices are read": Step.at("slice", "offset", nth=2),
    "in a slice": Step.at("rows", "offset"),
    "before the commit record": Step.at("record", "offset"),
    "before it is published": Step.at("publish", "committed"),
    "before Spark's commit log": Step.at("commit", "committed", after=True),
}


#: The steps that only one of the two ways to read has.
BY_PYTHON = ("when some slices are read",)
BY_SPARK = ("before Spark asks for files",)

#: One step for each process that works, on both sides of the commit. Campaigns have the other steps of
#: `STEPS`.
CASES = {
    "local": (
        "in a slice",
        "before it is published",
    ),
    "s3": ("before the epoch is stored",),
    "local by Spark": ("before Spark asks for files", "before the commit record"),
    "s3 by Spark": (),
}


def all_cases() -> list[Any]:
    """Return each way with each step that it has, in the order of the batch."""
    cases = []
    for way, always in CASES.items():
        others = BY_PYTHON if "by Spark" in way else BY_SPARK
        for name in STEPS:
            if name not in others:
                cases.append((way, name) if name in always else in_campaigns(way, name))
    return cases


#: Two files in a batch, and files of more than a KiB in slices.
LIMITS = {"maxFilesPerTrigger": "2", "maxBytesPerTrigger": "2500", "sliceBytes": "1024"}


def filled(landing: Landing) -> None:
    """Add the files of about three batches, with some equal lines, and one file that is sliced."""
    landing.put("a.txt", *(f"Zeile {number}" for number in range(30)))
    landing.put("b=1/ü %41+.txt", "Zeile 1", "Zeile 1", "€")
    landing.put("c.txt", *(f"lange Zeile {number} " + "x" * 100 for number in range(40)))
    landing.put("d.txt", "Zeile 1")
    landing.put("e.txt", "")
    landing.put("leer.txt")


@frozen
class Held:
    """A query that waits at a gate, and the place that it reads from and writes to."""

    landing: Landing
    gate: Gate
    job: Future[None]


def waiting(
    stack: ExitStack, scratch: Path, trapped: Iterable[tuple[Landing, BatchTrap]]
) -> tuple[Driver, list[Held]]:
    """Return a separate driver, and its queries, which wait at their traps or have ended."""
    driver, held = started_driver(stack, scratch, trapped)
    for each in held:
        try:
            each.gate.wait(each.job)
            driver.next()
        except AssertionError:
            # A query may end before its trap, but only without an error.
            each.job.result(timeout=0)
    return driver, held


def started_driver(
    stack: ExitStack,
    scratch: Path,
    trapped: Iterable[tuple[Landing, BatchTrap]],
    conf: Mapping[str, str] | None = None,
) -> tuple[Driver, list[Held]]:
    """Return a separate driver, with further settings, and its queries, which get to their traps."""
    traps, gates = list(trapped), []
    for number, (landing, trap) in enumerate(traps):
        gates.append(stack.enter_context(Gate()))
        trap = evolve(trap, port=gates[-1].port)
        traps[number] = landing, trap
    flows = [evolve(landing.flow, trap=trap) for landing, trap in traps]
    driver = Driver(scratch, flows, program="support.spark_ingest", conf=conf)
    stack.enter_context(driver)
    return driver, [
        Held(landing, gate, job)
        for (landing, _), gate, job in zip(traps, gates, driver.jobs, strict=True)
    ]


def places(
    cases: Sequence[tuple[str, str]], scratch: Path, ministack: Ministack
) -> Iterator[tuple[Landing, BatchTrap]]:
    """Yield a place with input for each case, with the trap of its step."""
    for number, (way, name) in enumerate(cases):
        place, _, by_spark = way.partition(" by ")
        landing = new_landing(place, scratch / str(number), lambda: ministack, **LIMITS)
        if by_spark:
            # Files that were cleaned too early would be missing.
            landing = landing.by_spark().with_options(cleanSource="delete")
        filled(landing)
        yield landing, STEPS[name].trap


#: The steps at which a driver waits while another one takes it for dead; campaigns have all.
ZOMBIES = [
    in_campaigns("local", "between two batches"),
    ("s3", "before the epoch is stored"),
    in_campaigns("local", "before Spark's offset log"),
    in_campaigns("local", "in a slice"),
    in_campaigns("s3", "before the commit record"),
    in_campaigns("local", "before Spark's commit log"),
    in_campaigns("local by Spark", "before the epoch is stored"),
    in_campaigns("s3 by Spark", "before Spark asks for files"),
    in_campaigns("local by Spark", "in a slice"),
    in_campaigns("local by Spark", "before the commit record"),
]


@frozen
class Doomed:
    """A driver that is killed in the end, after some of its queries went on.

    Attributes:
        driver: the driver.
        zombies: queries of `test_two_drivers_run_one_query`, by case.
        others: queries of `test_a_driver_is_killed`, by case.
    """

    driver: Driver
    zombies: dict[tuple[str, str], Held]
    others: dict[tuple[str, str], Held]


@pytest.fixture(scope="module")
def doomed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ministack: Ministack
) -> Iterator[Doomed]:
    """A driver with a query that waits at the step of each case, each in its own place."""
    scratch = tmp_path_factory.mktemp("doomed")
    zombies = wanted(request, test_two_drivers_run_one_query, "way", "name")
    others = wanted(request, test_a_driver_is_killed, "way", "name")
    with ExitStack() as stack:
        driver, held = waiting(stack, scratch, places([*zombies, *others], scratch, ministack))
        yield Doomed(
            driver,
            dict(zip(zombies, held[: len(zombies)], strict=True)),
            dict(zip(others, held[len(zombies) :], strict=True)),
        )


@pytest.mark.all
@pytest.mark.parametrize(("way", "name"), ZOMBIES)
def test_two_drivers_run_one_query(spark: SparkSession, doomed: Doomed, way: str, name: str) -> None:
    """One driver is taken for dead, another one runs the query, then the first continues."""
    zombie = doomed.zombies[way, name]
    assert not zombie.job.done(), "the driver is killed later"
    landing = zombie.landing
    landing.flow.run(spark)
    landing.put("later.txt", "Zeile 1", "nachher")
    zombie.gate.open()
    # Spark decides whether this driver notices.
    zombie.job.exception()
    query = landing.flow.run(spark)
    landing.audit(spark, query)


# The tests above need the driver alive.
@pytest.fixture(scope="module")
def killed(doomed: Doomed) -> dict[tuple[str, str], Landing]:
    """Places after the driver was killed while it had a query at the step of each case."""
    doomed.driver.kill()
    return {case: each.landing for case, each in doomed.others.items()}


@pytest.mark.parametrize(("way", "name"), all_cases())
def test_a_driver_is_killed(
    spark: SparkSession, killed: dict[tuple[str, str], Landing], way: str, name: str
) -> None:
    """After a kill at any step a restart continues, and the output has each input record once."""
    landing, step = killed[way, name], STEPS[name]
    batch = step.trap.batch
    head = landing.head()
    assert (0 if head is None else head.epoch) == batch + step.planned
    assert landing.flow.logged("offsets") == list(range(batch + step.offset))
    assert landing.flow.logged("commits") == list(range(batch))
    assert len(landing.committed()) == batch + step.committed

    landing.put("later.txt", "Zeile 1", "nachher")
    query = landing.flow.run(spark)
    landing.audit(spark, query)


@pytest.mark.campaign
def test_executors_are_killed(spark: SparkSession, tmp_path: Path, ministack: Ministack) -> None:
    """Their host starts others, and the queries go on. What the dead had read is there once."""
    ways = ["local", "s3 by Spark"]
    conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    with ExitStack() as stack:
        workers = stack.enter_context(Workers(tmp_path, HOSTS[:1]))
        conf["spark.master"] = workers.master
        trapped = places([(way, "in a slice") for way in ways], tmp_path, ministack)
        held = started_driver(stack, tmp_path, trapped, conf)[1]
        left = list(held)
        while left:
            # The cluster has one core, and the driver one query at a time.
            [gate] = select.select([each.gate for each in left], [], [], PATIENCE)[0]
            gate.wait()
            kill_executor_of(gate)
            left = [each for each in left if each.gate is not gate]
        for each in held:
            assert each.job.exception() is None
    for each in held:
        each.landing.put("later.txt", "Zeile 1", "nachher")
        each.landing.audit(spark, each.landing.flow.run(spark))


def kill_executor_of(gate: Gate) -> None:
    """Kill the executor whose Python worker waits at a gate, and the worker, which would outlive it."""
    above = psutil.Process(gate.pid).parents()
    [executor] = [each for each in above if any("ExecutorBackend" in word for word in each.cmdline())]
    executor.kill()
    psutil.wait_procs([executor], timeout=PATIENCE)
    gate.kill()


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_drivers_are_killed_again_and_again(
    spark: SparkSession,
    ministack: Ministack,
    tmp_path: Path,
    campaign_seconds: float,
    campaign_seed: int,
) -> None:
    """Drivers are killed one after another, at any step of any batch, while new files arrive."""
    anywhere = {
        way: [
            (step.trap, batch)
            for name, step in STEPS.items()
            for batch in range(4)
            if name not in others
        ]
        for way, others in (("", BY_SPARK), (" by Spark", BY_PYTHON))
    }
    deadline = time.monotonic() + campaign_seconds
    seed = campaign_seed
    while seed == campaign_seed or time.monotonic() < deadline:
        random = Random(seed)
        print("seed", seed)
        landings = []
        for number in range(8):
            limits = {
                "maxFilesPerTrigger": str(random.randint(1, 4)),
                "maxBytesPerTrigger": str(random.choice([1000, 2500, 100_000])),
                "sliceBytes": str(random.choice([300, 1024, 10_000])),
            }
            place, by = random.choice(["local", "s3"]), random.choice(list(anywhere))
            landing = new_landing(place, tmp_path / f"{seed}-{number}", lambda: ministack, **limits)
            landings.append((landing.by_spark() if by else landing, by))
            filled(landing)
        for death in range(random.randint(1, 3)):
            traps = []
            for landing, by in landings:
                trap, batch = random.choice(anywhere[by])
                traps.append((landing, evolve(trap, batch=batch + 2 * death)))
            with ExitStack() as stack:
                waiting(stack, tmp_path, traps)[0].kill()
            for landing, _ in landings:
                landing.put(f"later-{death}.txt", "Zeile 1", f"nach Tod {death}")
        for landing, _ in landings:
            landing.audit(spark, landing.flow.run(spark))
        seed += 1
