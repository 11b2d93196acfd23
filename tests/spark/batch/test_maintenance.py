"""Import, garbage collection, prune and diff of a namespace by Spark: as in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve, frozen

import commitlog
from commitlog.errors import ConfigurationError, NotSupported
from commitlog.namespace import ImportReport, Namespace, PruneReport, StepProgress, TrashReport
from commitlog.namespaces import create_namespace
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from support.maintenance_driver import MaintenanceJob
from support.selection import in_campaigns
from support.spark_driver import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

LAKE = "lake"


@frozen
class Place:
    """A namespace in files, which other processes can open.

    Attributes:
        directory: the directory of all files.
        lake: the namespace.
        store: its store.
    """

    directory: Path
    lake: Namespace
    store: ObjectStore

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of jobs."""
        return {"metadata": f"sqlite://{self.directory}/names.db", "partitions": 2}

    @property
    def journal(self) -> str:
        """URL of a journal."""
        return f"file://{self.directory}/journal"

    @property
    def reports(self) -> str:
        """URL of an output."""
        return f"file://{self.directory}/reports"

    def put(self, number: int) -> None:
        """Put objects in some directories."""
        for each in range(number):
            self.store.put(f"raw/{each % 3}/{each:03}", b"1")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """An empty namespace, and a directory for journals."""
    for name in ("store", "journal"):
        (tmp_path / name).mkdir()
    url = f"file://{tmp_path}/store"
    metadata = f"sqlite://{tmp_path}/names.db"
    with (
        create_namespace(LAKE, store=url, metadata=metadata, grace=0) as lake,
        closing(open_store(url)) as store,
    ):
        yield Place(tmp_path, lake, store)


def test_objects_become_files(place: Place, spark: SparkSession) -> None:
    """A second call finds them, and one with the id of the first repeats its report."""
    place.put(30)
    how = {**place.options, "journal": place.journal}
    first = commitlog.spark.import_objects(spark, LAKE, "raw/", "in", job_id="one", **how)
    again = commitlog.spark.import_objects(spark, LAKE, "raw/", "in", job_id="one", **how)
    other = commitlog.spark.import_objects(spark, f"commitlog://{LAKE}", "raw/", "in", **place.options)
    assert first == again == ImportReport(files=30, bytes=30, last="raw/2/029")
    assert other == evolve(first, files=0, bytes=0, known=30)
    assert place.lake.read("in/1/001") == b"1"
    with pytest.raises(ConfigurationError, match="choose another id"):
        commitlog.spark.import_objects(spark, LAKE, "raw/", "elsewhere", job_id="one", **how)


def test_two_imports_run_at_once(place: Place, spark: SparkSession) -> None:
    """Together they create each file once."""
    place.put(60)

    def run(number: int) -> ImportReport:
        return commitlog.spark.import_objects(spark, LAKE, "raw/", "in", **place.options)

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(run, range(2)))
    assert sum(each.files for each in reports) == 60
    assert all(each.files + each.known == 60 and not each.refused for each in reports)
    assert place.lake.summary("in").files == 60


@pytest.mark.campaign
def test_garbage_is_removed(place: Place, spark: SparkSession) -> None:
    """First the trash is emptied. Listed objects without a file are removed, too."""
    for number in range(20):
        place.lake.write(f"a/{number % 3}/{number}", b"1")
    place.lake.delete("a", recursive=True)
    metadata = place.options["metadata"]
    swept = commitlog.spark.empty_trash(spark, LAKE, metadata=metadata, grace=0)
    assert swept == TrashReport(files=20, directories=4)
    place.store.put(f"abc/abc{29 * '0'}", b"1")
    found = place.lake.maintenance.fsck(orphans=True, age=-1e9, grace=0).findings
    list(place.lake.maintenance.repair(found, dry_run=False, only=["orphan-object"]))
    done = commitlog.spark.gc(spark, LAKE, **place.options)
    assert (done.objects, done.bytes, list(done.failed)) == (21, 21, [])
    assert commitlog.spark.gc(spark, LAKE, **place.options).objects == 0


def lose_objects(place: Place) -> None:
    """Import objects, and let others remove some and change one."""
    place.put(30)
    place.lake.maintenance.import_objects("raw/", "in")
    for number in range(0, 30, 3):
        place.store.delete(f"raw/0/{number:03}")
    place.store.put("raw/1/001", b"changed")
    place.store.put("bound/a/b", b"1")
    place.lake.bindings.bind("bound/", "bound", max_age=None)


@pytest.mark.all
@pytest.mark.parametrize("few", [in_campaigns(0), 100])
def test_lost_files_are_found_and_removed(place: Place, spark: SparkSession, few: int) -> None:
    """Whether each object is looked up, or the store is listed for that."""
    lose_objects(place)
    expected = sorted(place.lake.bindings.diff(), key=lambda each: each.status.path)
    found = commitlog.spark.diff(spark, LAKE, few_files=few, **place.options)
    kinds = [(each.status.path, each.kind) for each in found]
    assert kinds == [(each.status.path, each.kind) for each in expected]
    assert len(found) == 12
    compared = commitlog.spark.diff(spark, LAKE, "in", prefix="raw/", **place.options)
    assert len(compared) == 11

    def run(number: int) -> PruneReport:
        return commitlog.spark.prune(spark, LAKE, few_files=few, **place.options)

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(run, range(2)))
    assert sum(each.files for each in reports) == 10
    assert not any(each.failed for each in reports)
    assert place.lake.summary("in").files == 20


@pytest.mark.all
@pytest.mark.parametrize(
    "what",
    [
        "import",
        in_campaigns("prune"),
        in_campaigns("gc"),
    ],
)
def test_a_job_whose_driver_was_killed_is_continued(
    place: Place, spark: SparkSession, what: str, tmp_path: Path
) -> None:
    """Another driver continues it under the same id, and reports what the first one has done."""
    arguments: dict[str, Any] = {**place.options, "journal": place.journal, "job_id": "one"}
    if what == "import":
        place.put(30)
        job = MaintenanceJob("import_objects", (LAKE, "raw/", "in"), arguments, 3, str(tmp_path))
    elif what == "prune":
        lose_objects(place)
        job = MaintenanceJob("prune", (LAKE,), arguments, 3, str(tmp_path))
    else:
        for number in range(30):
            place.lake.write(f"a/{number}", b"1")
            place.lake.delete(f"a/{number}")
        place.lake.maintenance.empty_trash()
        job = MaintenanceJob("gc", (LAKE,), arguments, 3, str(tmp_path))
    with Driver(tmp_path, [job], "support.maintenance_driver") as driver:
        assert driver.error(0) == "the driver is dead"
    units = list((tmp_path / "journal" / "one" / "units").iterdir())
    assert 1 <= len(units) <= 3
    done = job.run(spark)
    if what == "import":
        assert (done.files, done.known) == (30, 0)
    elif what == "prune":
        assert done.files == 10 and not done.failed
        assert place.lake.summary("in").files == 20
    else:
        assert done.objects == 30 and not done.failed
        assert place.lake.maintenance.gc().objects == 0
    assert job.run(spark) == done


@pytest.mark.campaign
def test_the_commands_run_on_spark(place: Place) -> None:
    """Their output is that of one process."""
    lose_objects(place)
    metadata = ["--metadata", place.options["metadata"], "--spark", "local[1]", "--json"]
    raw = f"file://{place.directory}/store/raw"

    def run(*words: str) -> tuple[int, list[dict[str, Any]]]:
        command = [sys.executable, "-m", "commitlog", "namespace", *words, *metadata]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    journal = ["--journal", place.journal, "--job-id", "one", "--report", place.reports]
    status, [imported] = run("import", raw, f"commitlog://{LAKE}/again", *journal)
    assert (status, imported["files"]) == (0, 20)
    findings = ["--findings", f"file://{place.directory}/differences"]
    status, found = run("diff", f"commitlog://{LAKE}/in", *findings)
    assert (status, len(found)) == (1, 11)
    status, [pruned] = run("prune", f"commitlog://{LAKE}", "--journal", place.journal)
    assert (status, pruned["files"]) == (0, 10)
    status, [collected] = run("gc", LAKE, "--report", place.reports, "--write-units", "1000")
    assert (status, collected["objects"]) == (0, 0)
    command = [sys.executable, "-m", "commitlog", "output", "log", place.reports, "--json"]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "one" in {json.loads(line)["job"] for line in log.splitlines()}
    assert len(log.splitlines()) == 2


@pytest.mark.all
def test_the_report_is_an_output(place: Place, spark: SparkSession) -> None:
    """A repeated job appends nothing. Writes keep to a rate, and the progress of steps is shown."""
    place.put(30)
    output = place.reports
    shown: list[StepProgress] = []
    how = {**place.options, "report": output, "write_units": 10_000.0, "step_progress": shown.append}
    for _ in range(2):
        done = commitlog.spark.import_objects(spark, LAKE, "raw/", "in", job_id="one", **how)
    assert (done.files, done.known) == (0, 30)  # there is no journal
    place.store.delete("raw/1/001")
    pruned = commitlog.spark.prune(spark, LAKE, job_id="two", **how)
    place.lake.delete("in", recursive=True)
    del how["partitions"]
    swept = commitlog.spark.empty_trash(spark, LAKE, grace=0, job_id="three", **how)
    collected = commitlog.spark.gc(spark, LAKE, **how)
    rows = {row["job"]: row for row in commitlog.spark.read(spark, output).collect()}
    found = {job: (row["namespace"], json.loads(row["report"])) for job, row in rows.items()}
    assert rows["import"]["run"] == "one" and rows["import"]["ended"]
    assert found.pop("import")[1]["files"] == 30
    reports = {"prune": pruned, "empty_trash": swept, "gc": collected}
    assert found == {job: (LAKE, each.to_json()) for job, each in reports.items()}  # type: ignore[attr-defined]
    assert (pruned.files, swept.files) == (1, 29)
    last = {each.step: each.done for each in shown}
    assert last["importing objects"] == 30 and last["reading directories, level 0"] == 1


def test_the_differences_are_an_output(place: Place, spark: SparkSession) -> None:
    """A row each."""
    lose_objects(place)
    output = f"file://{place.directory}/differences"
    found = commitlog.spark.diff(spark, LAKE, findings=output, job_id="one", **place.options)
    rows = commitlog.spark.read(spark, output).collect()
    assert sorted((row["path"], row["kind"], row["run"]) for row in rows) == [
        (each.status.path, each.kind, "one") for each in found
    ]


def test_arguments_are_checked(place: Place, spark: SparkSession) -> None:
    """Nothing is read before that."""
    with pytest.raises(ConfigurationError, match="journal"):
        commitlog.spark.gc(spark, LAKE, job_id="one", **place.options)
    with pytest.raises(ConfigurationError, match="slash"):
        commitlog.spark.import_objects(spark, LAKE, "raw", "in", **place.options)
    with pytest.raises(NotSupported):
        commitlog.spark.gc(object(), LAKE, **place.options)  # type: ignore[arg-type]
