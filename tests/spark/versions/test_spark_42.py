"""The oldest supported Spark, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.project import ROOT, TESTS

pytestmark = [
    pytest.mark.all,
    pytest.mark.spark,
    # Each step starts processes, so all steps are one test.
    pytest.mark.timeout(900),
]

PYTHON = ROOT / ".venv/floors/bin/python"


def test_all_uses_work_with_spark_4_2(tmp_path: Path) -> None:
    """Batches, streams, sources, reads and the configured committer, built with that Spark, all work."""
    if not PYTHON.exists():
        reason = f"there is no {PYTHON}, which ./run test --all sets up"
        assert not os.environ.get("CI"), reason
        pytest.skip(reason)
    with (tmp_path / "driver.log").open("w") as log:
        done = subprocess.run(
            [PYTHON, Path(__file__).with_name("smoke.py"), tmp_path],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
            cwd=tmp_path,
            env={
                **os.environ,
                # The workers find the format through a module on the path, as in an installed package.
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]),
                "PYSPARK_PYTHON": str(PYTHON),
                "PYSPARK_DRIVER_PYTHON": str(PYTHON),
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                "TMPDIR": str(tmp_path),
            },
            timeout=850,
        )
    assert done.returncode == 0, (tmp_path / "driver.log").read_text()
    came = json.loads(done.stdout)
    assert came.pop("spark").startswith("4.2.")
    assert "errors.JobAlreadyCommitted: job 'first' is part of" in came.pop("again")
    assert "errors.JobAlreadyCommitted: job 'daily' is part of" in came.pop("configured again")
    assert came == {
        "appended": sorted([*range(6), *range(6)]),
        "merged": [3, 3, 5, 5],
        "dynamic": [7, 9],
        "overwritten": [20, 21, 22, 23],
        "streamed": [20, 21, 22, 23],
        "ingested": [0, 1, 2, 3, 4],
        "configured": [*range(6), *range(6)],
        "configured overwritten": [7, 8],
        "versions": {
            "out": ["append", "append", "rewrite", "overwrite-partitions", "overwrite"],
            "copied": ["append"],
            "ingested": ["append", "append", "append"],
            "plain": ["append", "overwrite"],
        },
    }
