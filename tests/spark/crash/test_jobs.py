"""Jobs of a real Spark that race, fail during their commit, or continue after a recovery."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import commitlog.spark
from support.selection import in_campaigns, with_all
from support.spark_gates import Gate
from support.spark_jobs import Trap, running
from support.spark_targets import (
    WAYS_TO_COMMIT,
    Place,
    configured,  # noqa: F401 - fixture
    place_of_test,  # noqa: F401 - fixture
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("configured")]


@pytest.mark.all
@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
def test_a_driver_commits_after_its_job_was_aborted(spark: SparkSession, place: Place) -> None:
    """The driver was taken for dead and fails with JobAborted; the rows of the rerun are committed."""
    base = place.begin_base()
    with Gate() as gate:
        job = place.job(trap=Trap(at="record", what="hold", port=gate.port))
        with running(spark, job) as (zombie,):
            gate.wait(zombie)
            assert list(place.recover().aborted.values()) == ["daily"]
            place.job().run(spark)
            gate.open()
            assert "commitlog.errors.JobAborted: " in str(zombie.exception())
    place.audit(spark, base + job.numbers, "base", "daily")


@pytest.mark.parametrize(
    ("place", "what"),
    [
        in_campaigns("local", "fail"),
        with_all("local", "die"),
        ("configured", "fail"),
        with_all("s3", "fail", marks=[pytest.mark.servers]),
        in_campaigns("s3", "die", marks=[pytest.mark.servers]),
    ],
    indirect=["place"],
)
def test_a_commit_raises_after_the_commit_point(spark: SparkSession, place: Place, what: str) -> None:
    """Spark calls abort, which changes nothing: the job is committed, and readers see all its rows.

    The commit agent settles an error by the log, and completes the job instead.
    """
    base = place.begin_base()
    job = place.job(trap=Trap(at="publish", what=what, nth=2))
    if place.configured:
        job.run(spark)
    else:
        with pytest.raises(Exception, match="a trap" if what == "fail" else "(?i)python"):
            job.run(spark)
        assert place.by_log(spark, rollForward="false") == base
    assert place.by_log(spark) == job.numbers + base
    with pytest.raises(Exception, match=r"errors\.JobAlreadyCommitted: job 'daily'"):
        place.job().run(spark)
    place.recover()
    place.audit(spark, base + job.numbers, "base", "daily")


@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
def test_the_answer_to_the_commit_is_lost(spark: SparkSession, place: Place) -> None:
    """The driver finds the record in the log, and the job succeeds once."""
    job = place.job(trap=Trap(at="request", what="lose", after=True))
    job.run(spark)
    place.audit(spark, job.numbers, "daily")


@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
def test_two_jobs_append_at_once(spark: SparkSession, place: Place) -> None:
    """Both jobs are committed. The job that waited during its commit comes second."""
    base = place.begin_base()
    with Gate() as gate:
        job = place.job(trap=Trap(at="record", what="hold", port=gate.port))
        other = place.job(first=100, job_id="other")
        with running(spark, job) as (done,):
            gate.wait(done)
            other.run(spark)
            gate.open()
            done.result()
    place.audit(spark, base + job.numbers + other.numbers, "base", "other", "daily")


@pytest.mark.parametrize("place", WAYS_TO_COMMIT, indirect=True)
def test_the_later_of_two_first_overwrites_replaces_the_earlier(
    spark: SparkSession, place: Place
) -> None:
    """The directory did not exist when the later one began, so Spark did not ask to delete it."""
    with Gate() as gate:
        later = place.job(mode="overwrite", trap=Trap(at="record", what="hold", port=gate.port))
        earlier = place.job(first=100, mode="overwrite", job_id="other")
        with running(spark, later) as (done,):
            gate.wait(done)
            earlier.run(spark)
            gate.open()
            done.result()
    place.audit(spark, later.numbers, "other", "daily")


@pytest.mark.parametrize(
    ("place", "mode", "error"),
    [
        ("local", "append", "JobAlreadyCommitted"),
        ("configured", "append", "JobAlreadyCommitted"),
        ("local", "error", "AlreadyExists"),
        with_all("s3", "append", "JobAlreadyCommitted", marks=[pytest.mark.servers]),
        with_all("s3", "error", "AlreadyExists", marks=[pytest.mark.servers]),
    ],
    indirect=["place"],
)
def test_two_jobs_exclude_each_other(spark: SparkSession, place: Place, mode: str, error: str) -> None:
    """Of two jobs with one id, or two in mode error, one is committed, and the other fails by name."""
    with Gate() as gate:
        loser = place.job(mode=mode, job_id="daily", trap=Trap(at="record", what="hold", port=gate.port))
        name = "daily" if mode == "append" else "other"
        winner = place.job(first=100, mode=mode, job_id=name)
        with running(spark, loser) as (done,):
            gate.wait(done)
            winner.run(spark)
            gate.open()
            assert f"commitlog.errors.{error}: " in str(done.exception())
    place.audit(spark, winner.numbers, name)


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        *(("local", "overwrite-partitions"), ("configured", "overwrite-partitions")),
        with_all("s3", "overwrite-partitions", marks=[pytest.mark.servers]),
        in_campaigns("s3a", "overwrite-partitions", marks=[pytest.mark.servers]),
        *(with_all("local", "append"), in_campaigns("configured", "append")),
        in_campaigns("s3", "append", marks=[pytest.mark.servers]),
        in_campaigns("s3a", "append", marks=[pytest.mark.servers]),
    ],
    indirect=["place"],
)
def test_readers_of_the_log_see_a_job_whole_or_not_at_all(
    spark: SparkSession, place: Place, mode: str
) -> None:
    """During publication a read-only reader sees the old rows, any other reader all new ones."""
    base = place.begin_base()
    with Gate() as gate:
        trap = Trap(at="publish", what="hold", port=gate.port, nth=2)
        job = place.job(mode=mode, parts="part = 1", trap=trap)
        new = [number for number in job.numbers if number % 2]
        after = new + [number for number in base if mode == "append" or not number % 2]
        with running(spark, job) as (done,):
            gate.wait(done)
            assert place.by_log(spark, rollForward="false") == base
            assert place.by_log(spark) == after
            gate.open()
            done.result()
    place.audit(spark, after, "base", "daily")


@pytest.mark.all
@pytest.mark.parametrize(
    "place", ["local", in_campaigns("s3", marks=[pytest.mark.servers])], indirect=True
)
def test_gc_keeps_files_of_a_job_that_is_alive(spark: SparkSession, place: Place) -> None:
    """Staged files of a job with heartbeats stay however old they are; those of a dead job go."""
    output, pause = place.open(), threading.Event()
    with Gate() as gate, output.store, ThreadPoolExecutor(1) as pool:
        job = place.job(trap=Trap(at="rows", what="hold", port=gate.port))
        done = pool.submit(
            commitlog.spark.write,
            job.read(spark),
            place.url,
            job_id="daily",
            partition_by=["part"],
            options=place.options,
            heartbeat=0.2,
        )
        gate.wait(done)
        while not list(output.store.list_staged()):
            pause.wait(0.2)
        # The staged files of the live job are older.
        dead = output.begin("dead")
        output.stage(dead, dead.file_name(0), b"never to be seen")
        # Stores keep times in seconds, and on a busy machine one or two heartbeats may be late.
        while not (report := output.gc(older_than=10.0).recovery).aborted:
            pause.wait(0.2)
        assert list(report.aborted) == [dead.attempt]
        assert len(report.live) == 1
        gate.open()
        done.result()
    place.audit(spark, job.numbers, "daily")
