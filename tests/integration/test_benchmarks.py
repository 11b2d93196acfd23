"""What the benchmarks conclude from what they saw, which their figures rest on."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.project import ROOT, environment

pytest.importorskip("pyspark")

BENCHMARKS = str(ROOT / "benchmarks")


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs' modules be imported, which are no package."""
    monkeypatch.syspath_prepend(BENCHMARKS)


def write(path: Path, numbers: list[int]) -> None:
    """Store `numbers` as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": numbers}), path)


def test_books_tell_lost_rows_from_surplus_ones(tmp_path: Path) -> None:
    """A number that is there twice makes up for none that is missing."""
    from fault_jobs import books

    write(tmp_path / "a.parquet", [0, 1, 1])
    write(tmp_path / "part=1" / "b.parquet", [2, 7])
    found = books(tmp_path, range(4))
    assert (found.rows, found.lost, found.surplus) == (5, 1, 2)
    assert str(found) == "5 rows (1 lost, 2 too many)"


def test_hidden_files_are_not_counted(tmp_path: Path) -> None:
    """What is staged in a directory that listings skip is not there, nor is a directory that is not."""
    from spark_writers import count_rows

    write(tmp_path / "a.parquet", [0])
    write(tmp_path / "_temporary" / "0" / "b.parquet", [1])
    write(tmp_path / ".hidden.parquet", [2])
    assert count_rows(tmp_path) == 1
    assert count_rows(tmp_path / "missing") == 0


def test_requests_are_told_apart() -> None:
    """Listings are told from reading, and the end of an upload from that of an object."""
    from store_commits import kind_of

    requests = {
        "GET /b?list-type=2&prefix=a": "LIST",
        "GET /b?uploads&prefix=a": "LIST uploads",
        "GET /b/a": "GET",
        "DELETE /b/a?uploadId=1": "ABORT",
        "DELETE /b/a": "DELETE",
        "PUBLISH /b/a?uploadId=1": "PUBLISH",
    }
    assert {request: kind_of(request) for request in requests} == requests


def test_a_table_tells_the_worst_of_several_rounds() -> None:
    """One wrong round in two is told, with how often it came."""
    from faults import Outcome, table_of

    def outcome(found: str, *, right: bool) -> Any:
        return Outcome(scenario="s", writer="w", found=found, right=right)

    assert table_of([outcome("fine", right=True), outcome("bad", right=False)]) == [
        {"scenario": "s", "writer": "w", "rounds": 2, "wrong": 1, "found": "bad"}
    ]


def test_a_gate_holds_until_it_is_told(tmp_path: Path) -> None:
    """A word for a task that never came is not waited for."""
    from fault_jobs import Gate

    gate = Gate.new(tmp_path / "gate", task=0)
    gate.open("fail", wait=False)
    assert not gate.reached.exists()


def test_requests_of_a_job_do_not_depend_on_the_length_of_the_log() -> None:
    """Where checkpoints are, as many are counted after a hundred commits as after twenty."""
    from scale import Sizes, measure_scale

    figures = measure_scale(Sizes(logs=(20, 100), jobs=()), lambda _: None)
    short, long = figures["log"]
    assert short["begin_requests"] == long["begin_requests"] == {"GET": 3, "LIST": 1}
    assert short["snapshot_requests"] == long["snapshot_requests"]
    gets = {length["job_requests"]["GET"] for length in (short, long)}
    assert len(gets) == 1 and gets.pop() < 15


def test_a_large_job_is_committed_in_a_process_of_its_own() -> None:
    """What it took is read from what that printed."""
    from scale import Sizes, measure_scale

    listed, logged = measure_scale(Sizes(logs=(), jobs=(10,)), lambda _: None)["jobs"]
    assert (listed["files"], listed["visibility"]) == (10, "listed")
    assert (logged["files"], logged["visibility"]) == (10, "logged")
    assert listed["commit_megabytes"] >= 0


def test_growth_with_history_is_told_by_way_of_listing(tmp_path: Path) -> None:
    """Of the rules, without Spark: where keys grow, a batch lists a page or two; else, all there is."""
    file = tmp_path / "figures.json"
    command = [sys.executable, f"{BENCHMARKS}/ingest.py", "--quick", "--only", "listing", "--json", file]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    report = json.loads(file.read_text())
    pages = {(row["way"], row["history"]): row["pages"] for row in report["listing"]}
    small, large = (history for way, history in pages if way == "ordered")
    assert pages["ordered", small] == pages["ordered", large] <= 2
    assert pages["whole listing", large] > large / 1000 > pages["whole listing", small]
    ratios = report["ratios"]
    assert ratios["history_growth_memory"] < 1.1
    assert ratios["history_growth_time"] > 0
    # Of a few batches, the time on the clock tells more about who else is at work.
    assert ratios["history_growth_cpu_whole_listing"] > ratios["history_growth_cpu"] > 0


def test_made_files_have_the_rows_that_they_are_said_to_have(tmp_path: Path) -> None:
    """What is counted when a stream has read them rests on it."""
    from ingest_data import write_json, write_parquet

    lines = write_json(tmp_path / "json", files=3, file_bytes=1_000)
    found = sorted(lines.path.iterdir())
    assert sum(len(each.read_text().splitlines()) for each in found) == lines.rows > 3
    assert sum(each.stat().st_size for each in found) == lines.bytes
    columns = write_parquet(tmp_path / "parquet", files=2, file_rows=7)
    ids = [
        row["id"] for each in sorted(columns.path.iterdir()) for row in pq.read_table(each).to_pylist()
    ]
    assert ids == list(range(columns.rows))


@pytest.mark.servers
def test_renames_are_told_by_the_size_of_the_directory(tmp_path: Path) -> None:
    """A ratio bears the sizes that were measured; s3fs is beside it where it is installed."""
    report = namespace_report(tmp_path, "rename")
    rows = {(row["site"], row["way"], row["files"]) for row in report["rename"]}
    own = {(site, "namespace", files) for site in ("sqlite", "dynamodb") for files in (1, 1000, 5000)}
    assert own <= rows
    assert {"rename_5000_over_1", "rename_5000_over_1_sqlite"} <= report["ratios"].keys()
    assert ("rename_over_s3fs" in report["ratios"]) == (("ministack", "s3fs", 1000) in rows)
    assert all(ratio > 0 for ratio in report["ratios"].values())


@pytest.mark.servers
def test_requests_of_a_rename_do_not_depend_on_what_is_in_the_directory(tmp_path: Path) -> None:
    """A directory of a thousand files is renamed by as many requests as a file; the log adds four."""
    rows = namespace_report(tmp_path, "requests")["requests"]
    counts = {(row["operation"], row["log"]): row["requests"] for row in rows}
    assert counts["rename directory of 1000", False] == counts["rename file", False]
    assert counts["rename file", False] == {"GetItem": 5, "TransactWriteItems": 1}
    log = {"PUT": 2, "HEAD": 1, "DELETE": 1}
    assert counts["rename directory of 1000", True] == counts["rename file", False] | log


@pytest.mark.servers
def test_a_published_job_is_counted_by_what_a_listing_shows() -> None:
    """All ways to publish are given as many files; what is measured ends when all of them are seen."""
    from namespace_publish import PublishSizes, measure_publishing

    rows, ratios = measure_publishing(PublishSizes(files=20, rounds=1), lambda _: None)
    assert {row["files"] for row in rows} == {20}
    assert ratios.keys() == {
        "publish_20_files_namespace_over_outputs",
        "publish_20_files_namespace_over_outputs_logged",
    }


@pytest.mark.servers
def test_rates_are_of_all_clients_together(tmp_path: Path) -> None:
    """Each client has its turns in the same window, in a process of its own."""
    from namespace_rates import RateSizes, measure_rates
    from namespace_sites import created, sqlite_site

    sizes = RateSizes(clients=(1, 2), shards=(2,), seconds=0.05, rounds=1)
    site = sqlite_site(tmp_path / "names")
    spawn = multiprocessing.get_context("spawn")
    with created(site, log=False) as lake, ProcessPoolExecutor(2, spawn) as pool:
        rows = measure_rates(site, lake, pool, sizes, lambda _: None)
    found = {(row["clients"], row["shards"], row["operation"]) for row in rows if row["per_second"] > 0}
    assert found == set(product((1, 2), (2,), ("write", "link", "stat", "list")))


@pytest.mark.all
@pytest.mark.servers
def test_reading_a_log_is_measured_side_by_side(tmp_path: Path) -> None:
    """With one thread and with sixteen, each way of reading; the ratio is of the two times."""
    from log import measure_log, ratios_of

    rows = list(measure_log(40, [10.0]))
    assert [(row["store"], row["threads"]) for row in rows] == [
        ("directory", 1),
        ("directory", 16),
        ("seaweedfs_10ms", 1),
        ("seaweedfs_10ms", 16),
    ]
    ratios = ratios_of(rows)
    assert set(ratios) == {
        f"{work}_16_over_1_{store}"
        for work in ("read", "restore")
        for store in ("directory", "seaweedfs_10ms")
    }
    assert ratios["read_16_over_1_seaweedfs_10ms"] == round(
        rows[3]["read_seconds"] / rows[2]["read_seconds"], 3
    )


def namespace_report(tmp_path: Path, part: str) -> dict[str, Any]:
    """Run one part of the benchmark of namespaces, in small; return what it reports."""
    file = tmp_path / "figures.json"
    command = [sys.executable, f"{BENCHMARKS}/namespace.py", "--quick", "--only", part, "--json", file]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    report: dict[str, Any] = json.loads(file.read_text())
    return report
