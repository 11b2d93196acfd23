"""fsck and restore of a namespace by Spark: as in one process, and again after the driver has failed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

import commitlog
from commitlog.errors import ConfigurationError, CorruptRecord, NotFound, NotSupported
from commitlog.namespace import FsckReport, Namespace, RepairOutcome
from commitlog.namespaces import restore_namespace
from commitlog.oplog import Decision
from support.damage import behind_the_log, cycle, lose, lose_object, spoil, take_place, wrong_record
from support.restore import LAKE, Dies, leave_pending
from support.selection import in_campaigns
from support.spark_maintenance import LOG, Place, open_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A namespace with a bit of everything."""
    with open_place(tmp_path) as made:
        yield made


def check(place: Place, spark: SparkSession, **how: Any) -> None:
    """Compare the check by Spark with the one in this process."""
    lake = Namespace(place.at.table, place.at.store, LAKE, clock=place.at.clock, log=place.at.log)
    what: dict[str, Any] = {"objects": True, "orphans": True, "grace": 0, "pending": -1e9, "age": -1e9}
    expected = lake.maintenance.fsck(**what)
    found = commitlog.spark.fsck(spark, LAKE, metadata=place.metadata, partitions=2, **what, **how)
    assert compared(found) == compared(expected)


def compared(report: FsckReport) -> FsckReport:
    """Return a report without the numbers that depend on the way.

    If several records hide references, each way names one of them.
    """
    findings = (
        evolve(each, detail="") if each.problem.name == "references-unknown" else each
        for each in report.findings
    )
    return evolve(report, states=0, listed=0, findings=tuple(findings))


@pytest.mark.all
def test_damages_are_found_alike(place: Place, spark: SparkSession) -> None:
    """The findings are also rows of an output."""
    lose(place.at, "empty/b/1")
    take_place(place.at, "empty/new")
    for damage in (wrong_record, lose_object, cycle):
        damage(place.at)
    leave_pending(place.at, lambda lake: lake.write("left", b"1"))
    place.at.store.put("abc/abc" + 29 * "0", b"nobody's")
    output = f"file://{place.directory}/findings"
    check(place, spark, findings=output, job_id="first")
    rows = commitlog.spark.read(spark, output).collect()
    assert {row.run for row in rows} == {"first"}
    kinds = {row.kind for row in rows}
    assert {"cycle", "wrong-directory-record", "log-newer", "object-missing", "orphan-object"} <= kinds


@pytest.mark.all
def test_damages_are_repaired(place: Place, spark: SparkSession) -> None:
    """The executors find the references to the objects of files that the repair replaces.

    A repeated call leaves the findings that the first one has written.
    """
    lose(place.at, "empty/b/1")
    behind_the_log(place.at)
    wrong_record(place.at)
    options: dict[str, Any] = {"metadata": place.metadata, "grace": 0, "partitions": 2}
    output = f"file://{place.directory}/findings"
    found: dict[str, Any] = {"findings": output, "job_id": "nightly"}
    planned = commitlog.spark.fsck(spark, LAKE, mode="repair", **options, **found)
    done = commitlog.spark.fsck(spark, LAKE, mode="repair", dry_run=False, **options, **found)
    assert [each.outcome for each in planned] == [RepairOutcome.PLANNED] * 3
    assert [each.outcome for each in done] == [RepairOutcome.DONE] * 3
    assert commitlog.spark.read(spark, output).count() == 3
    assert commitlog.spark.fsck(spark, LAKE, **options).is_clean


@pytest.mark.campaign
def test_random_damages_are_found_alike(place: Place, spark: SparkSession) -> None:
    """Many at once."""
    random = Random(1)
    for _ in range(15):
        spoil(place.at, random)
    check(place, spark)


@pytest.mark.campaign
def test_an_unreadable_log_is_a_finding(place: Place, spark: SparkSession) -> None:
    """A restore is refused, or leaves the entry out."""

    *_, last = place.at.store.list(f"{LOG}/decided/")
    place.at.store.put(last.path, place.at.store.get(last.path).data[:40])
    check(place, spark)
    options: dict[str, Any] = {"store": place.store, "metadata": place.table("copy"), "partitions": 2}
    with pytest.raises(CorruptRecord, match="salvage"):
        commitlog.spark.fsck(spark, LAKE, mode="restore", **options)
    done = commitlog.spark.fsck(
        spark, LAKE, mode="restore", unreadable="report", read_only=True, **options
    )
    assert len(done.unreadable) == 1


def restored(place: Place, name: str, **how: Any) -> Any:
    """Restore a read-only copy in this process."""
    with restore_namespace(LAKE, store=place.store, metadata=place.table(name)) as restorer:
        return evolve(restorer.restore(read_only=True, **how), operations=0)


@pytest.mark.all
def test_a_copy_has_the_same_records(place: Place, spark: SparkSession) -> None:
    """It has the same pending changes rolled back, and the same lost files."""
    leave_pending(place.at, lambda lake: lake.write("left", b"1"))
    lose_object(place.at)
    expected = restored(place, "one")
    done = commitlog.spark.fsck(
        spark,
        f"commitlog://{LAKE}",
        mode="restore",
        store=place.store,
        metadata=place.table("two"),
        read_only=True,
        partitions=3,
    )
    assert evolve(done, operations=0) == expected
    assert place.rows("two") == place.rows("one")
    assert done.decided and done.lost


@pytest.mark.all
@pytest.mark.parametrize("stop", [2, in_campaigns(4)])
def test_an_interrupted_restore_is_repeated(place: Place, spark: SparkSession, stop: int) -> None:
    """No client finds the namespace in between."""
    restored(place, "one")
    calls = iter(range(stop))

    def progress(report: object) -> None:
        if next(calls, None) is None:
            raise Dies

    def restore(**how: Any) -> Any:
        return commitlog.spark.fsck(
            spark,
            LAKE,
            mode="restore",
            store=place.store,
            metadata=place.table("two"),
            undecided=Decision.ROLLED_BACK,
            partitions=2,
            **how,
        )

    with pytest.raises(Dies):
        restore(progress=progress)
    with pytest.raises(NotFound):
        commitlog.spark.fsck(spark, LAKE, metadata=place.table("two"))
    done = restore()
    assert done.epoch and done.files == 5
    assert place.rows("two") == place.rows("one")


def test_a_damaged_log_is_written_again(place: Place, spark: SparkSession) -> None:
    """The namespace can be restored afterwards."""
    for info in list(place.at.store.list(f"{LOG}/")):
        place.at.store.put(info.path, b"damaged")
    done = commitlog.spark.fsck(
        spark, LAKE, mode="rewrite-log", metadata=place.metadata, partitions=2, older_than=0
    )
    assert done.epoch == 1
    restored(place, "one")
    # The change ids of directory and guard records are those of the restore.
    copied, original = (
        [item for item in place.rows(name) if not {"/d/", "/g/"} & {str(item["place"])[4:7]}]
        for name in ("one", "names")
    )
    assert copied == original and len(copied) == done.states


def test_arguments_belong_to_a_mode(place: Place, spark: SparkSession) -> None:
    """Nothing is read before they are checked."""
    wrong: list[dict[str, Any]] = [
        {"mode": "repare"},
        {"mode": "verify", "replace": True},
        {"mode": "restore"},
        {"mode": "restore", "store": place.store, "objects": True},
        {"mode": "restore", "store": place.store, "unreadable": "skip"},
        {"mode": "rewrite-log", "findings": "memory://"},
        {"mode": "verify", "dry_run": False},
        {"mode": "verify", "write_units": 5.0},
        {"mode": "repair", "write_units": 0.0},
    ]
    for arguments in wrong:
        with pytest.raises(ConfigurationError):
            commitlog.spark.fsck(spark, LAKE, metadata=place.metadata, **arguments)
    with pytest.raises(NotSupported):
        commitlog.spark.fsck(object(), LAKE, metadata=place.metadata)  # type: ignore[call-overload]


@pytest.mark.all
def test_the_command_checks_on_spark(place: Place) -> None:
    """It prints the findings, and repairs them."""
    lose(place.at, "over")
    command = [sys.executable, "-m", "commitlog", "namespace", "fsck", LAKE, "--spark", "local[1]"]
    command += ["--metadata", place.metadata, "--json", "--confirm-after", "0s", "--repair"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [found] = map(json.loads, done.stdout.splitlines())
    assert (found["kind"], found["outcome"]) == ("log-newer", "done")
    assert place.at.lake.read("over") == b"3"


@pytest.mark.campaign
def test_the_command_restores_on_spark(place: Place) -> None:
    """The rate of its writes can be limited."""
    restored(place, "one")
    command = [sys.executable, "-m", "commitlog", "namespace", "restore", LAKE, "--spark", "local[1]"]
    command += ["--metadata", place.table("two"), "--store", place.store, "--json", "--read-only"]
    done = subprocess.run([*command, "--write-units", "100000"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"]
    assert place.rows("two") == place.rows("one")
