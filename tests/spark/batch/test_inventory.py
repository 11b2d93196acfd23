"""Checks of a namespace by Spark with an S3 Inventory, which the executors read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

import commitlog
from commitlog.errors import ConfigurationError, CorruptRecord
from commitlog.namespace import FsckReport
from commitlog.stores.open import open_store
from support.damage import lose_object, replaced, store_unnamed
from support.inventory import FORMATS, Row, inventory_of, write_inventory
from support.restore import LAKE
from support.selection import in_campaigns
from support.spark_maintenance import Place, open_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A namespace with a bit of everything, and a directory for inventories of its store."""
    (tmp_path / "reports").mkdir()
    with open_place(tmp_path) as made:
        yield made


def take_inventory(place: Place, format: str, **how: Any) -> str:
    """Write an inventory of the store; return the URL of the directory of all dates."""
    rows = [*inventory_of(place.at.store.list()), Row("elsewhere/a b")]
    url = f"file://{place.directory}/reports"
    with closing(open_store(url)) as store:
        path = write_inventory(store, rows, format, bucket="store", **how)
    return f"{url}/{path.rsplit('/', 2)[0]}"


def check(place: Place, spark: SparkSession, **how: Any) -> FsckReport:
    """Check the namespace on Spark."""
    report: FsckReport = commitlog.spark.fsck(
        spark,
        LAKE,
        metadata=place.metadata,
        partitions=2,
        grace=0,
        age=-1e9,
        **{"objects": True, "orphans": True, **how},
    )
    return report


def compared(report: FsckReport) -> FsckReport:
    """Return a report without the numbers that depend on the way."""
    return evolve(report, states=0, listed=0, listed_at=None)


@pytest.mark.all
@pytest.mark.parametrize(
    "format", [name if name == "Parquet" else in_campaigns(name) for name in FORMATS]
)
def test_an_inventory_shows_the_same(place: Place, spark: SparkSession, format: str) -> None:
    """As a listing, and as a check in one process."""
    lose_object(place.at)
    store_unnamed(place.at)
    inventory = take_inventory(place, format)
    found = check(place, spark, inventory=inventory)
    expected = place.at.lake.maintenance.fsck(objects=True, orphans=True, grace=0, age=-1e9)
    assert compared(found) == compared(expected)
    assert {"object-missing", "orphan-object"} <= found.counts.keys()
    assert found.listed > found.objects > 1
    assert found.listed_at == 1000.0
    assert compared(check(place, spark)) == compared(expected)


@pytest.mark.campaign
def test_an_old_inventory_shows_nothing_wrong(place: Place, spark: SparkSession) -> None:
    """Files that were written since are looked up."""
    inventory = take_inventory(place, "Parquet")
    place.at.lake.write("since", b"1")
    place.at.lake.write("over", b"again")
    assert check(place, spark, inventory=inventory).is_clean
    replaced(place.at)
    [found] = check(place, spark, inventory=inventory).findings
    assert found.problem.name == "object-changed"


@pytest.mark.all
def test_errors_are_typed(place: Place, spark: SparkSession) -> None:
    """Those of the driver, and those of tasks."""
    inventory = take_inventory(place, "CSV")
    for wrong in ({"objects": False, "orphans": False}, {"inventory": inventory + "/none"}):
        with pytest.raises(ConfigurationError):
            check(place, spark, **{"inventory": inventory, **wrong})
    with pytest.raises(ConfigurationError, match="not an argument"):
        commitlog.spark.fsck(  # type: ignore[call-overload]
            spark, LAKE, mode="rewrite-log", metadata=place.metadata, inventory=inventory
        )
    for file in place.directory.glob("reports/**/*.gz"):
        file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(CorruptRecord, match="CSV"):
        check(place, spark, inventory=inventory)


@pytest.mark.all
def test_lost_files_are_found_in_an_inventory(place: Place, spark: SparkSession) -> None:
    """And removed, but not a file whose object was lost since."""
    for name in "abc":
        place.at.store.put(f"raw/{name}", b"1")
    place.at.lake.maintenance.import_objects("raw/", "in")
    place.at.store.delete("raw/a")
    inventory = take_inventory(place, "Parquet")
    place.at.store.delete("raw/b")
    options: dict[str, Any] = {"metadata": place.metadata, "partitions": 2, "inventory": inventory}
    [found] = commitlog.spark.diff(spark, LAKE, "in", **options)
    assert (found.status.path, found.kind) == ("in/a", "missing")
    assert commitlog.spark.prune(spark, LAKE, "in", **options).files == 1
    assert [each.path for each in place.at.lake.list("in")] == ["in/b", "in/c"]


@pytest.mark.campaign
def test_the_command_reads_an_inventory(place: Place) -> None:
    """It says of which time it is."""
    lose_object(place.at)
    inventory = take_inventory(place, "ORC", milliseconds=1_800_000_000_000)
    command = [sys.executable, "-m", "commitlog", "namespace", "fsck", LAKE, "--objects"]
    command += ["--metadata", place.metadata, "--confirm-after", "0s"]
    command += ["--inventory", inventory]
    done = subprocess.run([*command, "--spark", "local[1]"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "inventory of 2027-01-15T08:00:00Z; problems: 1" in done.stdout
    done = subprocess.run([*command, "--spark", "local[1]", "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout)["kind"] == "object-missing"
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "--inventory requires --spark" in done.stderr
