"""Tasks of real Spark jobs that fail, die, are lost or come back: in the end each row is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from support.selection import in_campaigns, with_all
from support.spark_gates import Gate
from support.spark_jobs import Trap, running
from support.spark_status import wait_for_tasks
from support.spark_targets import (
    SOURCES,
    WAYS_TO_COMMIT,
    Place,
    configured,  # noqa: F401 - fixture
    place_of_test,  # noqa: F401 - fixture
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("configured")]


@pytest.mark.parametrize(
    ("place", "what"),
    [
        *(with_all("local", "die"), ("configured", "die")),
        with_all("s3", "die", marks=[pytest.mark.servers]),
        with_all("s3a", "die", marks=[pytest.mark.servers]),
        *(with_all("local", "fail"), in_campaigns("configured", "fail")),
        in_campaigns("s3", "fail", marks=[pytest.mark.servers]),
        in_campaigns("s3a", "fail", marks=[pytest.mark.servers]),
    ],
    indirect=["place"],
)
def test_a_task_attempt_that_raises_or_dies(spark: SparkSession, place: Place, what: str) -> None:
    """Spark runs the task again. Only the attempt that succeeded is committed and leaves a file."""
    job = place.job(trap=Trap(at="rows", what=what, attempts=2))
    job.run(spark)
    place.audit(spark, job.numbers, "daily")


@pytest.mark.parametrize("place", SOURCES, indirect=True)
def test_a_task_dies_before_it_reports(spark: SparkSession, place: Place) -> None:
    """Its files are complete when its process dies. The files of the next attempt are committed."""
    job = place.job(trap=Trap(at="reported", what="die"))
    job.run(spark)
    place.audit(spark, job.numbers, "daily")


@pytest.mark.parametrize("place", SOURCES, indirect=True)
def test_a_zombie_attempt_writes_after_the_commit(spark: SparkSession, place: Place) -> None:
    """Files that it stages after the commit are never visible, and `recover` drops them."""
    with Gate() as gate:
        job = place.job(trap=Trap(at="reported", what="haunt", port=gate.port))
        with running(spark, job) as (done,):
            gate.wait(done)
            done.result()
        place.audit(spark, job.numbers, "daily")
        gate.open()
        gate.wait()
        output = place.open()
        with output.store:
            assert len(list(output.store.list_staged())) > 0
            assert place.by_listing() == job.numbers
        assert place.recover().uploads > 0
    place.audit(spark, job.numbers, "daily")


@pytest.mark.parametrize("place", [with_all("local"), *WAYS_TO_COMMIT[1:]], indirect=True)
def test_an_overwriting_job_uses_up_its_retries(spark: SparkSession, place: Place) -> None:
    """Every reader still sees the old rows, and the job can run again."""
    base = place.begin_base()
    with pytest.raises(PySparkException, match="a trap"):
        place.job(mode="overwrite", trap=Trap(at="values", what="fail")).run(spark)
    # Spark aborts the job while its other task may still be writing.
    wait_for_tasks(spark)
    place.recover()
    place.audit(spark, base, "base")
    job = place.job(mode="overwrite")
    job.run(spark)
    place.audit(spark, job.numbers, "base", "daily")


@pytest.mark.all
@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
@pytest.mark.parametrize("parts", ["part = 1", "false"])
def test_tasks_and_jobs_without_rows(spark: SparkSession, place: Place, parts: str) -> None:
    """Tasks without rows leave no file, and a job without rows is still a version."""
    base = place.begin_base()
    job = place.job(parts=parts)
    job.run(spark)
    kept = [number for number in job.numbers if number % 2 and parts != "false"]
    place.audit(spark, base + kept, "base", "daily")
