"""The rules by which the benchmarks compute their figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.project import ROOT, environment
from support.s3a import hadoop_committer_jars, s3a_jars
from support.selection import one_in

pytest.importorskip("pyspark")

BENCHMARKS = str(ROOT / "benchmarks")


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the modules of the benchmark programs importable; they are not a package."""
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.mark.parametrize(
    "name",
    one_in(
        3,
        [
            "conditional_put",
            "committer",
            "faults",
            "formats",
            "fsck",
            "ingest",
            "log",
            "namespace",
            "cost",
            "transfers",
        ],
    ),
)
def test_a_benchmark_runs_from_a_checkout_without_an_import_path(name: str, tmp_path: Path) -> None:
    """Each program finds the test servers itself."""
    without = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
    command = [sys.executable, f"{BENCHMARKS}/{name}.py", "--help"]
    done = subprocess.run(command, env=without, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "--quick" in done.stdout and "--json" in done.stdout


def write(path: Path, numbers: list[int]) -> None:
    """Store `numbers` as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": numbers}), path)


def test_books_count_lost_and_surplus_rows_separately(tmp_path: Path) -> None:
    """A duplicate number does not make up for a missing one."""
    from fault_jobs import books
    from fault_sites import Directory

    write(tmp_path / "a.parquet", [0, 1, 1])
    write(tmp_path / "part=1" / "b.parquet", [2, 7])
    found = books(Directory(tmp_path), range(4))
    assert (found.rows, found.lost, found.surplus) == (5, 1, 2)
    assert str(found) == "5 rows (1 lost, 2 too many)"


def test_hidden_files_are_not_counted(tmp_path: Path) -> None:
    """Files in directories that listings skip are not counted. A missing directory has no rows."""
    from spark_writers import count_rows

    write(tmp_path / "a.parquet", [0])
    write(tmp_path / "_temporary" / "0" / "b.parquet", [1])
    write(tmp_path / ".hidden.parquet", [2])
    assert count_rows(tmp_path) == 1
    assert count_rows(tmp_path / "missing") == 0


def test_requests_have_kinds() -> None:
    """Listings differ from reads, aborted uploads from deleted objects, and parts from objects."""
    from measure import kind_of

    requests = {
        "GET /b?list-type=2&prefix=a": "LIST",
        "GET /b?uploads&prefix=a": "LIST uploads",
        "GET /b/a": "GET",
        "PUT /b/a": "PUT",
        "COPY /b/a": "COPY",
        "POST /b/a?uploads": "begin upload",
        "PUT /b/a?partNumber=1&uploadId=1": "upload part",
        "PUBLISH /b/a?uploadId=1": "complete upload",
        "DELETE /b/a?uploadId=1": "abort upload",
        "DELETE /b/a": "DELETE",
        "POST /b/?delete": "bulk delete",
    }
    assert {request: kind_of(request) for request in requests} == requests


def test_a_table_shows_the_worst_of_several_rounds() -> None:
    """If one round of two is wrong, the table shows that round and the count of wrong rounds."""
    from faults import Outcome, table_of

    def outcome(found: str, *, right: bool) -> Any:
        return Outcome(scenario="s", writer="w", found=found, right=right)

    assert table_of([outcome("fine", right=True), outcome("bad", right=False)]) == [
        {"scenario": "s", "writer": "w", "rounds": 2, "wrong": 1, "found": "bad"}
    ]


def test_a_table_has_the_scenarios_in_the_order_of_the_writer_with_the_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A writer without a log leaves out the scenario of the log, which stays in its place."""
    from faults import Outcome, show

    def outcome(writer: str, scenario: str, *, right: bool = True) -> Any:
        return Outcome(scenario=scenario, writer=writer, found="fine", right=right)

    show([outcome("magic", "a", right=False), outcome("magic", "c")])
    show([outcome("magic", "a"), outcome("magic", "c"), *(outcome("ours", name) for name in "abc")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == ["| a | **fine** |", "| c | fine |"]
    assert lines[6:] == ["| a | fine | fine |", "| b | – | fine |", "| c | fine | fine |"]


def test_a_ratio_on_s3_is_that_of_the_worst_size() -> None:
    """The plain name has the largest ratio by size. FileOutputCommitter v1 may have fewer rounds."""
    from s3a_commits import S3aJob, Shape, s3a_ratios

    def job(seconds: float) -> Any:
        return S3aJob(job=seconds, commit=seconds / 10, kinds=Counter(PUT=2, GET=3), copied=0)

    ratios = s3a_ratios(
        {
            (Shape(10), "magic"): [job(2), job(4)],
            (Shape(10), "listed"): [job(1), job(3)],
            (Shape(10), "file v1"): [job(4)],
            (Shape(100, 10), "magic"): [job(10)],
            (Shape(100, 10), "listed"): [job(9)],
        }
    )
    assert ratios["s3a_job_over_magic_10"] == 0.625
    assert ratios["s3a_job_over_magic_100_partitioned"] == ratios["s3a_job_over_magic"] == 0.9
    assert ratios["s3a_requests_over_magic"] == 1
    assert ratios["s3a_job_over_v1"] == ratios["s3a_job_over_v1_10"] == 0.25
    assert not [name for name in ratios if "logged" in name or "memory" in name]


def test_commit_times_are_those_of_job_commits(tmp_path: Path) -> None:
    """They are in the log of Spark's file writer."""
    from s3a_spark import CommitTimes

    times = CommitTimes(tmp_path)
    lines = ["Start to commit write Job a.", "Write Job a committed. Elapsed time: 37 ms."]
    (tmp_path / "commits.log").write_text(
        "\n".join([*lines, "Write Job b committed. Elapsed time: 1250 ms."])
    )
    assert times.seconds() == [0.037, 1.25]


def test_opening_a_gate_need_not_wait_for_its_task(tmp_path: Path) -> None:
    """Without `wait`, the call returns if the task has not arrived."""
    from fault_jobs import Gate

    gate = Gate.new(tmp_path / "gate", task=0)
    gate.open("fail", wait=False)
    assert not gate.reached.exists()


def test_requests_of_a_job_do_not_depend_on_the_length_of_the_log() -> None:
    """With checkpoints, a job sends as many requests after a hundred commits as after twenty."""
    from scale import Sizes, measure_scale

    figures = measure_scale(Sizes(logs=(20, 100), jobs=()), lambda _: None)
    short, long = figures["log"]
    assert short["begin_requests"] == long["begin_requests"] == {"GET": 4, "LIST": 1}
    assert short["snapshot_requests"] == long["snapshot_requests"]
    for step in ("begin_second", "begin_again"):
        assert short[f"{step}_requests"] == long[f"{step}_requests"] == {"GET": 1}
    for step, most in (("commit", 8), ("job", 15)):
        fewest, largest = sorted(length[f"{step}_requests"]["GET"] for length in (short, long))
        # Segments of the index of jobs are merged in one of some hundred commits.
        assert round(largest - fewest, 6) <= 0.1 and largest < most


def test_a_large_job_is_committed_in_its_own_process() -> None:
    """The figures are read from the output of that process."""
    from scale import Sizes, measure_scale

    listed, logged = measure_scale(Sizes(logs=(), jobs=(10,)), lambda _: None)["jobs"]
    assert (listed["files"], listed["visibility"]) == (10, "listed")
    assert (logged["files"], logged["visibility"]) == (10, "logged")
    assert listed["commit_megabytes"] >= 0


@pytest.mark.campaign
def test_growth_with_history_is_measured_for_each_way_to_list(tmp_path: Path) -> None:
    """Without Spark. With ordered keys a batch lists a page or two, and otherwise the whole history."""
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
    # With few batches, wall time depends too much on other load.
    assert ratios["history_growth_cpu_whole_listing"] > ratios["history_growth_cpu"] > 0


def test_written_files_have_the_reported_rows(tmp_path: Path) -> None:
    """The check of the rows that a stream has read relies on this count."""
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


@pytest.mark.campaign
@pytest.mark.servers
def test_renames_are_reported_by_directory_size(tmp_path: Path) -> None:
    """A ratio's name has the measured sizes. If s3fs is installed, it is measured too."""
    report = namespace_report(tmp_path, "rename")
    rows = {(row["site"], row["way"], row["files"]) for row in report["rename"]}
    own = {(site, "namespace", files) for site in ("sqlite", "dynamodb") for files in (1, 1000, 5000)}
    assert own <= rows
    assert {"rename_5000_over_1", "rename_5000_over_1_sqlite"} <= report["ratios"].keys()
    assert ("rename_over_s3fs" in report["ratios"]) == (("ministack", "s3fs", 1000) in rows)
    assert all(ratio > 0 for ratio in report["ratios"].values())


@pytest.mark.all
@pytest.mark.servers
def test_requests_of_a_rename_do_not_depend_on_the_size_of_the_directory(tmp_path: Path) -> None:
    """A directory of a thousand files is renamed with as many requests as a file; the log adds four."""
    rows = namespace_report(tmp_path, "requests")["requests"]
    counts = {(row["operation"], row["log"]): row["requests"] for row in rows}
    assert counts["rename directory of 1000", False] == counts["rename file", False]
    assert counts["rename file", False] == {"GetItem": 5, "TransactWriteItems": 1}
    log = {"PUT": 2, "HEAD": 1, "DELETE": 1}
    assert counts["rename directory of 1000", True] == counts["rename file", False] | log


@pytest.mark.all
@pytest.mark.servers
def test_each_way_to_publish_has_the_same_files() -> None:
    """Each way publishes the same number of files, and the time ends when all of them are visible."""
    from namespace_publish import PublishSizes, measure_publishing

    rows, ratios = measure_publishing(PublishSizes(files=20, rounds=1), lambda _: None)
    assert {row["files"] for row in rows} == {20}
    assert ratios.keys() == {
        "publish_20_files_namespace_over_outputs",
        "publish_20_files_namespace_over_outputs_logged",
    }


@pytest.mark.all
@pytest.mark.servers
def test_rates_are_of_all_clients_together(tmp_path: Path) -> None:
    """Processes and threads, with and without a log, are measured in each round, and so is JuiceFS.

    JuiceFS stores content only where that can wait for the disk.
    """
    from namespace_juicefs import JUICEFS, JUICEFS_CONTENT, JuicefsVolume, juicefs_program
    from namespace_rates import RateSizes, measure_rates
    from namespace_sites import created, sqlite_site

    program = juicefs_program()
    if program is None:
        pytest.skip("JuiceFS is not installed")
    sizes = RateSizes(clients=2, shards=(2, 1), seconds=0.05, rounds=2)
    juicefs = JuicefsVolume(program, tmp_path / "juicefs")
    plain, logged = sqlite_site(tmp_path / "plain"), sqlite_site(tmp_path / "logged")
    with created(plain, log=False) as lake, created(logged, log=True) as other:
        rows, ratios = measure_rates(
            {("sqlite", False): (plain, lake), ("sqlite", True): (logged, other)},
            sizes,
            lambda _: None,
            juicefs=juicefs,
        )
    found = {(row["site"], row["log"], row["clients"], row["of"], row["shards"]) for row in rows}
    clients = ((1, "processes"), (2, "processes"), (2, "threads"))
    assert found == {
        *(("sqlite", False, *each, shards) for each in clients for shards in (1, 2)),
        *(("sqlite", True, *each, 2) for each in clients),
        *(
            (kind, False, number, "threads", 1)
            for kind in ([JUICEFS, JUICEFS_CONTENT] if juicefs.waits else [JUICEFS])
            for number in (1, 2)
        ),
    }
    assert all(row["per_second"] > 0 for row in rows)
    assert ratios.keys() >= {"write_with_log_over_without_sqlite", "stat_rate_2_clients_over_1_sqlite"}


@pytest.mark.all
@pytest.mark.servers
def test_reading_a_log_is_measured_with_one_thread_and_with_many(tmp_path: Path) -> None:
    """Each store is measured with one thread and with sixteen. The ratio compares the two times."""
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


@pytest.mark.campaign
@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_committers_are_compared_on_s3(tmp_path: Path) -> None:
    """All write through S3A in one application. Ours copies nothing and needs the fewest requests."""
    assert s3a_jars() and hadoop_committer_jars()  # without them, the test is skipped
    file = tmp_path / "figures.json"
    command = [sys.executable, f"{BENCHMARKS}/committer.py", "--quick", "--only", "s3a", "--json", file]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    report = json.loads(file.read_text())
    rows = {(row["files"], row["committer"]): row for row in report["s3a"]["jobs"]}
    committers = ["file v1", "file v2", "directory", "magic", "magic in memory", "listed", "logged"]
    assert [name for files, name in rows if files == 10] == committers
    assert rows[100, "listed"]["requests_by_kind"]["complete upload"] == 100
    assert rows[100, "listed"]["bytes_copied"] == 0 < rows[100, "file v2"]["bytes_copied"]
    assert report["ratios"]["s3a_requests_over_magic"] < 0.5
    assert report["ratios"]["s3a_commit_over_magic"] > 0


def namespace_report(tmp_path: Path, part: str) -> dict[str, Any]:
    """Run one part of the namespace benchmark with small sizes; return its report."""
    file = tmp_path / "figures.json"
    command = [sys.executable, f"{BENCHMARKS}/namespace.py", "--quick", "--only", part, "--json", file]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    report: dict[str, Any] = json.loads(file.read_text())
    return report


def test_ratios_of_transfers_compare_the_same_round() -> None:
    """A ratio is the median of the ratios of the rounds, of time, requests and memory."""
    from transfers import ratios_of, works

    rows = [
        {
            "work": work.name,
            "contender": contender,
            "round": turn,
            "seconds": seconds * (1 if contender in ("commitlog", "fsspec") else 2),
            "requests": 8.0 if contender == "s3fs" else 4.0,
            "memory": 10.0,
        }
        for turn, seconds in enumerate((1.0, 5.0, 3.0))
        for work in works(["1gib"])
        for contender in work.contenders
    ]
    found = ratios_of(rows, ["1gib"])
    assert found["get_1gib_over_boto3"] == found["put_1gib_over_boto3"] == 0.5
    assert found["fsspec_read_1gib_requests_over_s3fs"] == 0.5
    assert found["put_1gib_memory_over_obstore"] == 1.0
    assert len(found) == 3 * (2 * 3 + 3)
