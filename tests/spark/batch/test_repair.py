"""Repairs of a namespace by Spark: as in one process, and again after tasks have died."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark.cloudpickle
import pytest
from attrs import evolve, frozen
from pyspark import TaskContext

import commitlog
from commitlog.namespace import (
    PROBLEMS,
    Namespace,
    RepairOutcome,
    RepairReport,
    StepProgress,
)
from commitlog.namespace.fsck.references import References
from commitlog.namespace.fsck.repair import Repairer
from commitlog.namespace.partitioned.repair import PartitionedRepairer
from commitlog.oplog import Decision
from commitlog.spark.cluster import NamespaceAddress, SparkEngine
from support.damage import behind_the_log, cycle, forget_directory, lose, wrong_record
from support.restore import LAKE
from support.spark_maintenance import Place, open_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: Options of a check that looks for everything at once.
HOW: dict[str, Any] = {"grace": 0, "pending": -1e9, "age": -1e9, "orphans": True}


def damage(place: Place) -> None:
    """Cause damage of several kinds."""
    at = place.at
    for number in range(12):
        at.lake.write(f"many/{number}", b"%d" % number)
        lose(at, f"many/{number}")
    lose(at, "empty/b/1")
    for each in (behind_the_log, wrong_record, forget_directory, cycle):
        each(at)
    at.store.put("abc/abc" + 29 * "0", b"nobody's")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A damaged namespace."""
    with open_place(tmp_path / "one") as made:
        damage(made)
        yield made


def outcomes(reports: Iterable[RepairReport]) -> list[tuple[str, str, RepairOutcome, int]]:
    """Return the part of reports that is the same in each process."""
    return [
        (each.finding.problem.name, each.finding.path, each.outcome, each.writes) for each in reports
    ]


def lake_of(place: Place) -> Namespace:
    """Return a client."""
    return Namespace(place.at.table, place.at.store, LAKE, clock=place.at.clock, log=place.at.log)


def contents(place: Place) -> dict[str, bytes | None]:
    """Return the content at each path; None for directories."""
    lake = lake_of(place)
    return {found.path: None if found.is_directory else lake.read(found.path) for found in lake.walk()}


def repair(place: Place, spark: SparkSession, **how: Any) -> tuple[RepairReport, ...]:
    """Repair a namespace by Spark."""
    return commitlog.spark.fsck(
        spark,
        LAKE,
        mode="repair",
        metadata=place.metadata,
        partitions=2,
        only=list(PROBLEMS),
        **{**HOW, **how},
    )


@pytest.mark.campaign
def test_repairs_are_those_of_one_process(place: Place, spark: SparkSession, tmp_path: Path) -> None:
    """Plan and repairs have the same results in the same order, and the same files are there then."""
    with open_place(tmp_path / "two") as other:
        damage(other)
        maintenance = lake_of(other).maintenance
        for dry_run in (True, False):
            found = maintenance.fsck(**HOW).findings
            expected = maintenance.repair(found, dry_run=dry_run, only=list(PROBLEMS))
            assert outcomes(repair(place, spark, dry_run=dry_run)) == outcomes(expected)
        assert contents(place) == contents(other)
    repair(place, spark, dry_run=False)
    assert commitlog.spark.fsck(spark, LAKE, metadata=place.metadata, **HOW).is_clean


@pytest.mark.campaign
def test_progress_is_shown_and_the_rate_is_kept(place: Place, spark: SparkSession) -> None:
    """The steps have the numbers of records, and a rate that is high enough changes nothing."""
    shown: list[StepProgress] = []
    found = commitlog.spark.fsck(spark, LAKE, metadata=place.metadata, **HOW).findings
    done = repair(place, spark, dry_run=False, write_units=1e6, step_progress=shown.append)
    assert len(done) == len(found)
    last = {now.step: now for now in shown}
    assert last.keys() >= {"reading the table", "reading the log", "repairing"}
    assert last["reading the table"].done > 50
    assert last["repairing"].done
    copy = commitlog.spark.fsck(
        spark,
        LAKE,
        mode="restore",
        store=place.store,
        metadata=place.table("copy"),
        read_only=True,
        undecided=Decision.ROLLED_BACK,
        write_units=1e6,
        step_progress=shown.append,
    )
    assert {now.step: now for now in shown}["writing the table"].done >= copy.files + copy.directories


@frozen
class Killer:
    """Opens a namespace in a task whose process dies in its first attempt.

    Attributes:
        place: the namespace.
        after: whether the process dies after its second change, rather than before.
    """

    place: NamespaceAddress
    after: bool

    @contextmanager
    def __call__(self, references: References) -> Iterator[Repairer]:
        """Open it."""
        context = TaskContext.get()
        with self.place.open_repairer(references) as repairer:
            assert context is not None
            if not context.attemptNumber():
                plans = repairer.context
                changes = evolve(plans.changes, table=_Dying(plans.changes.table, self.after))
                repairer = evolve(repairer, context=evolve(plans, changes=changes))
            yield repairer


class _Dying:
    """A table that kills this process at its second transaction."""

    def __init__(self, table: Any, after: bool) -> None:
        self._table = table
        self._after = after
        self._left = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def transact(self, writes: Sequence[Any], *, token: str | None = None) -> None:
        """Perform the transaction, and die before or after the second one."""
        last, self._left = not self._left, self._left - 1
        if not last or self._after:
            self._table.transact(writes, token=token)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.campaign
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_tasks_that_died_are_repeated(place: Place, spark: SparkSession, after: bool) -> None:
    """Nothing is lost: the next repair leaves nothing to do."""
    expected = {f"many/{number}": b"%d" % number for number in range(12)}
    where = NamespaceAddress(name=LAKE, metadata=place.metadata, store=None, options={})
    engine = SparkEngine(spark, partitions=1)
    with where.open() as (namespace, open_access):
        found = namespace.maintenance.fsck(**HOW).findings
        repairer: Callable[..., Any] = partial(
            PartitionedRepairer.of, engine, open_access, Killer(where, after)
        )
        done = list(
            namespace.maintenance.repair(
                found, dry_run=False, only=list(PROBLEMS), open_repairer=repairer
            )
        )
        namespace.maintenance.recover(older_than=0)  # of the processes that died
    assert {each.outcome for each in done} >= {RepairOutcome.DONE, *([RepairOutcome.CHANGED] * after)}
    for _ in range(3):
        repair(place, spark, dry_run=False)
    assert commitlog.spark.fsck(spark, LAKE, metadata=place.metadata, **HOW).is_clean
    assert contents(place).items() >= expected.items()
