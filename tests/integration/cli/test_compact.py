"""The command ``output compact``, which merges small files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from click.testing import CliRunner, Result
from pyspark.sql.pandas.types import from_arrow_schema

import commitlog
from commitlog.cli import main
from commitlog.errors import Unavailable
from commitlog.outputs import Output, Visibility
from commitlog.spark.schema import dump_schema
from commitlog.spark.targets.output import WriteOptions
from commitlog.tabular import OutputUploads, TaskFiles

ROWS = pa.record_batch({"k": ["a", "b", None], "v": [1, 2, 3]})


def run(*words: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def lines(result: Result) -> list[dict[str, object]]:
    """Return the JSON objects that a command printed, one a line."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def filled(path: Path, visibility: Visibility = "listed", jobs: int = 3) -> str:
    """Create an output of some jobs with a file in each of three partitions; return its URL."""
    url = f"{path}/out"
    with commitlog.connect(url) as store:
        output = Output(store)
        schema = dump_schema(from_arrow_schema(ROWS.schema))
        for _ in range(jobs):
            job = output.begin(schema=schema, visibility=visibility)
            options = WriteOptions.parse({"path": url, "partitionBy": "k"}).job
            with TaskFiles(OutputUploads(output, job), 0, ROWS.schema, options) as files:
                files.write(ROWS)
                output.commit(job, files.finish())
    return url


@pytest.mark.parametrize("visibility", ["listed", "logged"])
def test_small_files_are_merged(tmp_path: Path, visibility: Visibility) -> None:
    """One commit leaves one file per partition. The next run finds nothing to merge."""
    url = filled(tmp_path, visibility)
    assert run("output", "compact", url).stdout == "version 4: 9 files merged into 3\n"
    assert run("output", "compact", url).stdout == f"nothing to merge at file://{url}/\n"
    with commitlog.connect(url) as store:
        snapshot = Output(store).snapshot()
    assert (snapshot.rows, len(snapshot.files)) == (9, 3)
    assert lines(run("output", "log", url, "--json"))[-1]["mode"] == "rewrite"
    assert len(list(tmp_path.glob("out/k=a/*.parquet"))) == (1 if visibility == "listed" else 0)


def test_json_has_the_version_and_the_numbers_of_files(tmp_path: Path) -> None:
    """--json prints the version, and the numbers of new and of replaced files."""
    url = filled(tmp_path)
    for version, files, replaced in ((4, 3, 9), (None, 0, 0)):
        assert lines(run("output", "compact", url, "--json")) == [
            {"version": version, "files": files, "replaced": replaced, "left_out": []}
        ]


def test_files_that_a_merged_one_could_not_replace_are_named(tmp_path: Path) -> None:
    """A file with a column that its record lacks stays, and so do all of its values."""
    url = filled(tmp_path, jobs=2)
    with commitlog.connect(url) as store:
        output = Output(store)
        job = output.begin()
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"v": [4], "extra": ["kept"]}), sink)
        name = job.file_name(0, suffix=".snappy.parquet")
        file = evolve(
            output.stage(job, f"k=a/{name}", sink.getvalue().to_pybytes()), partition={"k": "a"}
        )
        output.commit(job, [file])
    why = f"'k=a/{name}' has a column 'extra' of type string, which a new file could not keep"
    assert run("output", "compact", url).stdout == (
        f"left out: k=a/{name}: {why}\nversion 4: 6 files merged into 3\n"
    )
    [answer] = lines(run("output", "compact", url, "--json"))
    assert (answer["version"], answer["left_out"]) == (None, [{"path": f"k=a/{name}", "why": why}])
    assert pq.read_table(f"{url}/k=a/{name}", partitioning=None)["extra"].to_pylist() == ["kept"]


def test_a_compaction_that_is_committed_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers need no request, whose error would look as if nothing was committed."""
    url = filled(tmp_path)

    def fail(*_: object) -> None:
        raise Unavailable("down")

    monkeypatch.setattr(Output, "replaced", fail)
    assert run("output", "compact", url).stdout == "version 4: 9 files merged into 3\n"


def test_a_dry_run_prints_the_plan_and_changes_nothing(tmp_path: Path) -> None:
    """The plan has each new file with its partition and its sources."""
    url = filled(tmp_path)
    plan = lines(run("output", "compact", url, "--dry-run", "--json"))
    assert [(group["partition"], group["rows"]) for group in plan] == [
        ({"k": "a"}, 3),
        ({"k": "b"}, 3),
        ({"k": None}, 3),
    ]
    with commitlog.connect(url) as store:
        snapshot = Output(store).snapshot()
    assert snapshot.version == 3
    files = {file.path: file.size for file in snapshot.files}
    for group in plan:
        paths = group["files"]
        assert isinstance(paths, list)
        assert group["bytes"] == sum(files.pop(path) for path in paths)
    assert files == {}
    shown = run("output", "compact", url, "--dry-run").stdout
    assert "k = a" in shown and "k = null" in shown
    run("output", "compact", url)
    assert run("output", "compact", url, "--dry-run").stdout == f"nothing to merge at file://{url}/\n"


def test_target_size_and_minimum_number_are_options(tmp_path: Path) -> None:
    """Large files and small groups are not merged."""
    url = filled(tmp_path)
    for options in (["--target-size", "0.5KiB"], ["--min-files", "4"]):
        assert lines(run("output", "compact", url, "--json", *options))[0]["version"] is None
    for options in (["--target-size", "many"], ["--min-files", "1"], ["--target-size", "0"]):
        assert run("output", "compact", url, *options).exit_code == 2


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path) -> None:
    """The exit status is that of wrong usage."""
    code = "import sys; sys.modules['pyarrow'] = None; from commitlog.cli import main; main()"
    words = [sys.executable, "-c", code, "output", "compact", filled(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'commitlog-store[spark]'" in done.stderr
