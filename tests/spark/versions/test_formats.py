"""The data sources with every supported Spark, each in an environment of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.environments import run_with, set_up_python
from support.selection import in_campaigns

pytestmark = [
    pytest.mark.all,
    pytest.mark.spark,
    # Each step starts processes, and each Spark starts only once.
    pytest.mark.timeout(900),
]

#: The environments of the versions; that of the oldest dependencies has 4.2.
ENVIRONMENTS = {"4.0": "spark-4.0", "4.1": "spark-4.1", "4.2": "floors"}

#: The versions between the oldest, and the oldest one that has all parts.
BETWEEN = ("4.1",)

#: The results of the parts.
PARTS: dict[str, Any] = {
    "batch": {
        "again": "JobAlreadyCommitted: job 'first' is part of the output since version 1;"
        " nothing was added",
        "appended": sorted([*range(6), *range(6)]),
        "merged": [3, 3, 5, 5],
        "dynamic": [7, 9],
        "after the failure": [7, 9],
        "overwritten": [20, 21, 22, 23],
        "versions": ["append", "append", "rewrite", "overwrite-partitions", "overwrite"],
        "empty": [],
    },
    "types": {name: [True, True] for name in ("parquet", "orc", "arrow")},
    "namespace": {"rows": [0, 1, 2, 3, 4, 5], "filtered": [4, 5]},
    "sink": {"rows": [0, 1, 2, 3, 4, 5, 6, 7], "versions": ["append", "append"]},
    "tail": [0, 1, 2, 3, 4, 5, 6, 7],
    "ingest": {"rows": [0, 1, 2, 3, 4], "versions": ["append", "append", "append"]},
    "configured": {
        "again": "JobAlreadyCommitted: job 'daily' is part of the output since version 1;"
        " nothing was added",
        "written": [0, 1, 2, 3, 4, 5],
        "loaded": [0, 1, 2, 3, 4, 5],
        "overwritten": [7, 8],
        "versions": ["error", "overwrite"],
    },
}

#: The parts that a version lacks, with the first version that has them.
LACKING = {
    "4.0": {"sink": "4.1", "tail": "4.2", "ingest": "4.2"},
    "4.1": {"tail": "4.2", "ingest": "4.2"},
    "4.2": {},
}


@pytest.mark.parametrize(
    "version", [in_campaigns(each) if each in BETWEEN else each for each in ENVIRONMENTS]
)
def test_all_parts_of_a_version_work(version: str, tmp_path: Path) -> None:
    """The others raise `NotSupported` with the version that has them."""
    program = Path(__file__).with_name("formats.py")
    came = run_with(set_up_python(ENVIRONMENTS[version]), program, tmp_path)
    found = came.pop("spark")
    assert found.startswith(f"{version}.")
    for part, needed in LACKING[version].items():
        error = came.pop(part)
        assert error.startswith("NotSupported: "), error
        assert f" needs PySpark {needed} or newer, and this is PySpark {found}" in error
    assert "a bad row" in came["batch"].pop("failed")
    assert came == {part: PARTS[part] for part in PARTS.keys() - LACKING[version].keys()}
