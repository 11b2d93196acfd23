"""The example runs, and its processes lose no row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT, environment


@pytest.mark.all
def test_the_example_loses_no_row(tmp_path: Path) -> None:
    """Two writers append to one table in a directory, and each row is there once."""
    program = ROOT / "examples" / "iceberg_catalog.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), str(tmp_path), "--appends", "3"],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "6 of 6 appends succeeded" in done.stdout
    assert "0 of their rows are lost, 0 are there twice" in done.stdout
