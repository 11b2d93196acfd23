"""The command that merges small files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyspark.sql.pandas.types import from_arrow_schema

import commitlog
from commitlog.cli import main
from commitlog.outputs import Output, Visibility
from commitlog.spark.schema import dump_schema
from commitlog.spark.targets.output import OutputUploads, WriteOptions
from commitlog.spark.tasks import TaskFiles

ROWS = pa.record_batch({"k": ["a", "b", None], "v": [1, 2, 3]})


def run(*words: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def lines(result: Result) -> list[dict[str, object]]:
    """Return the JSON objects that a command printed, one a line."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def filled(path: Path, visibility: Visibility = "listed", jobs: int = 3) -> str:
    """Return the URL of an output of some jobs with a file in each of three partitions."""
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
    """One commit leaves a file a partition; the next run finds nothing, and says so."""
    url = filled(tmp_path, visibility)
    assert run("output", "compact", url).stdout == "version 4: 9 files merged into 3\n"
    assert run("output", "compact", url).stdout == f"nothing to merge at file://{url}/\n"
    with commitlog.connect(url) as store:
        snapshot = Output(store).snapshot()
    assert (snapshot.rows, len(snapshot.files)) == (9, 3)
    assert lines(run("output", "log", url, "--json"))[-1]["mode"] == "rewrite"
    assert len(list(tmp_path.glob("out/k=a/*.parquet"))) == (1 if visibility == "listed" else 0)


def test_scripts_read_json(tmp_path: Path) -> None:
    """With --json it tells the version, and how many files became how many."""
    url = filled(tmp_path)
    assert lines(run("output", "compact", url, "--json")) == [{"version": 4, "files": 3, "replaced": 9}]
    assert lines(run("output", "compact", url, "--json")) == [
        {"version": None, "files": 0, "replaced": 0}
    ]


def test_a_dry_run_shows_the_plan_and_does_nothing(tmp_path: Path) -> None:
    """Each file that would be written is shown with its partition and what it would be made of."""
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


def test_size_and_number_can_be_chosen(tmp_path: Path) -> None:
    """Files that are large enough, and groups that are too small, are left alone."""
    url = filled(tmp_path)
    for options in (["--target-size", "0.5KiB"], ["--min-files", "4"]):
        assert lines(run("output", "compact", url, "--json", *options))[0]["version"] is None
    for options in (["--target-size", "many"], ["--min-files", "1"], ["--target-size", "0"]):
        assert run("output", "compact", url, *options).exit_code == 2


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path) -> None:
    """The extra that it takes is named, and the exit status is that of a wrong usage."""
    code = "import sys; sys.modules['pyarrow'] = None; from commitlog.cli import main; main()"
    words = [sys.executable, "-c", code, "output", "compact", filled(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'commitlog-store[spark]'" in done.stderr
