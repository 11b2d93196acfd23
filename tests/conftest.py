"""Fixtures and hygiene for all tests: servers on first use, and no credentials of the developer."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, settings

from commitlog.commit.probe import probe
from support.class_archive import JAVA_OPTIONS
from support.selection import select_examples
from support.servers import Dynalite, Juicefs, Ministack, Seaweedfs
from support.spark_session import spark, spark_logs  # noqa: F401 - fixtures

# The time that an example takes to generate depends on the machine.
_SETTINGS: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow],
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options for the length and the first seed of campaigns (``-m campaign``)."""
    group = parser.getgroup("campaign")
    group.addoption("--campaign-seconds", type=float, default=60.0, help="seconds for each campaign")
    group.addoption("--campaign-seed", type=int, default=0, help="seed of the first run")


@pytest.fixture
def campaign_seconds(request: pytest.FixtureRequest) -> float:
    """Length of a campaign, in seconds."""
    return float(request.config.getoption("--campaign-seconds"))


@pytest.fixture
def campaign_seed(request: pytest.FixtureRequest) -> int:
    """Seed of a campaign's first run; later runs take the next numbers."""
    return int(request.config.getoption("--campaign-seed"))


def pytest_configure(config: pytest.Config) -> None:
    """Isolate the run from the settings of the machine, before they are read; configure Hypothesis."""
    # Without --all, tests take fewer examples.
    number = 100 if select_examples(config.option.markexpr) else 30
    derandomize = bool(os.environ.get("CI"))
    settings.register_profile("tests", **_SETTINGS, derandomize=derandomize, max_examples=number)
    settings.load_profile("tests")
    # A run in the background, or under nohup(1), ignores them, and so would the programs that it starts.
    for interrupt in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(interrupt) == signal.SIG_IGN:
            signal.signal(interrupt, signal.SIG_DFL)
    # Before click 8.2, its runner adds standard error to standard output.
    if "mix_stderr" in inspect.signature(CliRunner).parameters:
        CliRunner.__init__ = functools.partialmethod(CliRunner.__init__, mix_stderr=False)  # type: ignore
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ["AWS_CONFIG_FILE"] = os.devnull
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    # Spark's Python processes import the installed PySpark, not its zip file: see the command `run`.
    os.environ["TESTS_WITHOUT_ZIP"] = "1"
    # Spark's workers would use the first python3 on PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


#: Directories and files in the order in which their tests begin. Long groups and long tests come first,
#: so that all workers of pytest-xdist end at about the same time. (By itself, it sorts groups by their
#: number of tests.)
_ORDER = (
    *("tests/spark/crash", "tests/spark/versions", "tests/spark/ingest", "tests/spark", "tests/docs"),
    "tests/unit/test_floor_versions.py",
    *("tests/mutation", "tests/sim", "tests/integration", "tests/contract", "tests/campaign"),
)


# Before pytest-xdist looks at the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests, and group those with Spark by file."""
    items.sort(key=_rank)
    for item in items:
        # One worker creates the objects that the tests of a file share, such as a cluster or a
        # killed driver.
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _rank(item: pytest.Item) -> int:
    file = f"{item.nodeid.partition('::')[0]}/"
    matches = (number for number, path in enumerate(_ORDER) if file.startswith(f"{path}/"))
    return next(matches, len(_ORDER))


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread running.

    A test that leaves a file open fails by its warning.
    """
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in left:
        thread.join(timeout=30)
    assert not [thread.name for thread in left if thread.is_alive()]


@pytest.fixture(autouse=True, scope="session")
def _short_probes() -> Iterator[None]:
    """Race less in probes: the servers of the tests are known. Tests of the probe name their rounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(probe.__kwdefaults__, "rounds", 8)
        yield


@pytest.fixture(scope="session")
def ministack() -> Iterator[Ministack]:
    """S3 and DynamoDB on one endpoint; it enforces every precondition except that of a copy."""
    with Ministack() as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Seaweedfs]:
    """An S3 store that enforces every precondition, and checks signatures."""
    with Seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def juicefs() -> Iterator[Juicefs]:
    """An S3 store that silently ignores every precondition."""
    with Juicefs() as server:
        yield server


@pytest.fixture(scope="session")
def dynalite() -> Iterator[Dynalite]:
    """A DynamoDB without transactions, TTL, and the old item of a failed condition."""
    with Dynalite() as server:
        yield server
