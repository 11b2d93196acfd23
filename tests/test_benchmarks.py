"""What the benchmarks conclude from what they saw, which their figures rest on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")


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
    subprocess.run(command, check=True, capture_output=True)
    report = json.loads(file.read_text())
    pages = {(row["way"], row["history"]): row["pages"] for row in report["listing"]}
    small, large = (history for way, history in pages if way == "ordered")
    assert pages["ordered", small] == pages["ordered", large] <= 2
    assert pages["whole listing", large] > large / 1000 > pages["whole listing", small]
    ratios = report["ratios"]
    assert ratios["history_growth_memory"] < 1.1
    assert ratios["history_growth_time_whole_listing"] > ratios["history_growth_time"] > 0


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
