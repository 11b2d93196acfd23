"""The oldest declared version of each dependency: the constraints list it, and they work."""

from __future__ import annotations

import configparser
import os
import re
import subprocess

import pytest

from commitlog.spark.versions import COMMITTER
from support.environments import set_up_python
from support.project import ROOT

FLOORS = ROOT / "tests/floors.txt"

#: Extras for users, except for Ray: its floor is the version that tests run with. Extras for tests,
#: benchmarks and docs have no floor.
EXTRAS = ("avro", "dask", "fsspec", "iceberg", "lance", "otel", "simulator", "spark")

#: The first version with all parts of the package, which older declared versions have only some of.
#: Those are in tests/spark/versions.
COMPLETE = {"pyspark": "4.2"}

#: Tests without servers and without a Spark session, by the dependencies that they reach. A session
#: with the oldest Spark is in tests/spark/versions.
TESTS = {
    "attrs, boto3, botocore, click, opentelemetry-api": (
        "tests/unit/test_connect.py",
        "tests/unit/_util/test_tracing.py",
        "tests/unit/aws",
        "tests/unit/cli",
        "tests/unit/commit",
        "tests/unit/tables",
        "tests/integration/cli/test_exit_status.py",
        "tests/integration/cli/test_objects.py",
        "tests/integration/cli/test_usage.py",
        # These tests replace a function that only newer versions of botocore have.
        "--ignore=tests/unit/aws/test_signing.py",
    ),
    "pyarrow, fastavro": (
        "tests/unit/files",
        "tests/unit/spark",
        "tests/unit/tabular",
        # It needs neither of them.
        "--ignore=tests/unit/spark/committer",
    ),
    "dask, pyiceberg, pylance, fsspec, greenlet": (
        "tests/integration/dask/test_dataframe.py",
        "tests/unit/iceberg",
        "tests/integration/iceberg/test_catalog.py",
        "tests/unit/lance",
        # The clients in test_clients.py are not installed.
        "tests/integration/fsspec/test_spec.py",
        "tests/integration/fsspec/test_filesystem.py",
        "tests/unit/testing/sim",
        "tests/sim/leases/test_seeded.py",
    ),
}


def test_the_constraints_are_the_declared_floors() -> None:
    """The constraints file has the oldest complete version of each dependency of users."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    declared = config["options"]["install_requires"].split()
    for extra in EXTRAS:
        declared += config["options.extras_require"][extra].split()
    floors = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:,<[\d.]+)?", line) for line in declared]
    assert None not in floors
    lines = [line for line in FLOORS.read_text().splitlines() if not line.startswith("#")]
    oldest = {floor[1]: floor[2] for floor in floors if floor}
    assert sorted(f"{name}=={version}" for name, version in (oldest | COMPLETE).items()) == lines
    assert oldest["pyspark"] == ".".join(map(str, COMMITTER))


@pytest.mark.all
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dependencies", TESTS)
def test_the_floors_work(dependencies: str) -> None:
    """Tests of what uses the dependencies pass with the oldest declared versions of all of them."""
    python = set_up_python("floors")
    done = subprocess.run(
        [
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-m", "not servers and not spark and not campaign and not all", *TESTS[dependencies]),
            # The tests that fsspec 2024.12 has for implementations raise it.
            *("-W", "ignore::pytest.PytestRemovedIn10Warning"),
            # pyiceberg 0.10 uses names that newer versions of pyparsing warn about.
            *("-W", "ignore::DeprecationWarning"),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout
    assert " skipped" not in done.stdout.splitlines()[-1], done.stdout
