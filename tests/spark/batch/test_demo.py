"""The demo: counting its input, and one whole run on a few rows."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from commitlog.connect import connect
from commitlog.errors import ConfigurationError
from commitlog.outputs import Output
from demo.__main__ import demo as command
from demo.inputs import Count, directory
from demo.story import Story
from support.project import environment


def demo(*arguments: str) -> tuple[int, str]:
    """Run the command in this process; return its exit status and its output."""
    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.output


def test_rows_are_counted_as_the_formats_define_them(tmp_path: Path) -> None:
    """Quoted line breaks, blank lines and compressed files are counted correctly."""
    header = "a,b\n"
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv/1.csv").write_text(header + '1,"two\nlines"\n\n  \n2,x\n')
    with gzip.open(tmp_path / "csv/2.csv.gz", "wt") as packed:
        packed.write(header + "NA, \n")
    (tmp_path / "csv/3.csv").write_text(header)
    (tmp_path / "csv/README.txt").write_text("not data")
    assert directory(tmp_path / "csv").count() == Count(3, 2)
    (tmp_path / "json").mkdir()
    (tmp_path / "json/1.jsonl").write_text('{"a": 1}\n\n{"a": 2}')
    assert directory(tmp_path / "json").count() == Count(2)
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "parquet/1.parquet")
    assert directory(tmp_path / "parquet").count() == Count(3)


def test_input_that_is_not_one_table_is_refused(tmp_path: Path) -> None:
    """No directory, no file, different columns and two kinds of files are each refused by name."""
    with pytest.raises(ConfigurationError, match="is not a directory"):
        directory(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"has no \.csv"):
        directory(tmp_path)
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,a\n1,2\n")
    with pytest.raises(ConfigurationError, match="have different columns"):
        directory(tmp_path)
    (tmp_path / "3.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="mixes csv and json"):
        directory(tmp_path)


def test_an_existing_output_is_left_alone(tmp_path: Path) -> None:
    """The demo writes only to a new directory, and checks that before it starts Spark."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("a\n1\n")
    output = Output(connect(str(tmp_path / "out")))
    with output.store:
        output.commit(output.begin(), [])
    status, text = demo("--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"))
    assert status == 2
    assert "has a log already: use a new directory" in text


def test_a_check_that_fails_fails_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status shows a script that a check failed."""
    (tmp_path / "1.csv").write_text("a\n1\n")
    monkeypatch.setattr(Story, "tell", lambda story: False)
    status, _ = demo("--input", str(tmp_path))
    assert status == 1


def test_a_probe_report_is_refused(tmp_path: Path) -> None:
    """The drivers would not use a report; the table keeps one for them."""
    status, output = demo("--input", str(tmp_path), "--probe-report", "report.json")
    assert status == 2 and "--probe-report" in output


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv.gz", b"junk"),
        ("a.parquet", b"junk"),
        ("a.csv", b"a,b\n1,\xff\n"),
        ("a.json", b'{"a": 1}\n{"a": oops\n'),
        ("b.json", b"[1]\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    """It is reported as wrong input, not as an unexpected error. No run began, so nothing is kept."""
    (tmp_path / name).write_bytes(content)
    status, output = demo("--input", str(tmp_path))
    assert status == 2
    assert f"{name} cannot be read as" in output and "Kept" not in output


@pytest.mark.spark
@pytest.mark.all
def test_the_whole_story(tmp_path: Path) -> None:
    """One driver commits, one is refused, one is killed; recovery completes, and the checks pass."""
    source = tmp_path / "in"
    source.mkdir()
    rows = [{"id": n, "name": f" name {n} ", "tags": ["x"] * (n % 3)} for n in range(50)]
    (source / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    output = tmp_path / "out"
    ended = subprocess.run(
        [sys.executable, "-m", "demo", "--input", str(source), "--output", str(output)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(TMPDIR=str(tmp_path)),
    )
    said = ended.stdout
    assert ended.returncode == 0, said + ended.stderr
    assert ended.stderr == ""
    assert "50 rows, counted without Spark" in said
    assert "JobAlreadyCommitted: job 'first-load' is part of the output since version 1" in said
    assert "ok: killed by signal: 9" in said
    assert "version 2: completed, all files are visible" in said
    assert "ok: rows of the input and of the output: 50" in said
    assert "All checks passed." in said
    assert "FAILED" not in said
    assert len(re.findall(r"^ *\d+\.\d s  \d\. ", said, re.MULTILINE)) == 7
    assert sum(pq.read_metadata(file).num_rows for file in output.glob("*.parquet")) == 50
    # Temporary files are gone.
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}
