"""Streaming queries in a driver that is killed: one writes an output, another one follows it.

The driver has a chain of queries for each place and step, so that one kill is enough.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from support.selection import in_campaigns, wanted
from support.spark_driver import Driver
from support.spark_gates import Gate
from support.spark_jobs import Trap
from support.spark_streams import SINK, TAIL, WRITER, Chain, Doom, new_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.servers import Ministack

pytestmark = [
    pytest.mark.all,
    pytest.mark.spark,
    pytest.mark.servers,
    pytest.mark.timeout(900),
]


@frozen
class Death:
    """The part of a chain, and the request in it, at which the driver dies.

    Attributes:
        where: the part.
        at: the request.
        nth: number of the request among those of its kind, from 1.
        versions: committed versions of that part's output at the kill. The writer dies in its
            second batch, the other parts in their first.
    """

    where: str
    at: str
    nth: int
    versions: int


DEATHS = {
    "while its tasks write": Death(WRITER, "stage", 1, 1),
    "before the commit record": Death(WRITER, "request", 1, 1),
    "a version is committed and not published": Death(WRITER, "publish", 2, 2),
    "the log is read": Death(TAIL, "plan", 1, 0),
    "a task has read a file": Death(TAIL, "read", 2, 0),
    "before the commit of what was read": Death(SINK, "request", 1, 0),
    "after the commit of what was read": Death(SINK, "publish", 1, 1),
}

#: The steps of each run with ``--all``: each part is killed, and a version waits to be published.
SOME = (
    "while its tasks write",
    "a version is committed and not published",
    "a task has read a file",
)
CASES = [
    *(("local", death) if death in SOME else in_campaigns("local", death) for death in DEATHS),
    in_campaigns("s3", "while its tasks write"),
    in_campaigns("s3", "a version is committed and not published"),
    in_campaigns("s3", "after the commit of what was read"),
]


@pytest.fixture(scope="module")
def chains(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ministack: Ministack
) -> dict[tuple[str, str], Chain]:
    """Chains after a driver was killed while it had a chain at each step."""
    scratch = tmp_path_factory.mktemp("chains")
    with ExitStack() as stack:
        dooms, gates = {}, []
        for number, (way, name) in enumerate(
            wanted(request, test_a_killed_driver_neither_loses_nor_doubles_a_row, "way", "when")
        ):
            death = DEATHS[name]
            chain = new_chain(way, scratch / str(number), lambda: ministack)
            if death.where != WRITER:
                for first in (0, 4, 8):
                    chain.fill(range(first, first + 4))
            gates.append(stack.enter_context(Gate()))
            trap = Trap(at=death.at, what="hold", nth=death.nth, port=gates[-1].port)
            dooms[way, name] = Doom(chain, death.where, trap)
        program = "support.spark_streams"
        driver = stack.enter_context(Driver(scratch, list(dooms.values()), program=program))
        for gate, job in zip(gates, driver.jobs, strict=True):
            gate.wait(job)
            driver.next()
        driver.kill()
        # Processes that commit, and Python workers, are not in the driver's process group.
        for gate in gates:
            gate.kill()
    return {case: doom.chain for case, doom in dooms.items()}


@pytest.mark.parametrize(("way", "when"), CASES)
def test_a_killed_driver_neither_loses_nor_doubles_a_row(
    spark: SparkSession, chains: dict[tuple[str, str], Chain], way: str, when: str
) -> None:
    """After a kill at any step both queries continue where they were, and each row arrives once.

    The query that follows publishes a version that was committed and not published.
    """
    chain, death = chains[way, when], DEATHS[when]
    if death.where == WRITER:
        chain.follow(spark)
        assert chain.versions("a") == death.versions
        chain.write(spark)
    else:
        chain.recover("b")
        assert chain.versions("b") == death.versions
    chain.follow(spark)
    chain.check(spark, range(12))
