"""The counts of `pricing.CONTENDERS` are those of ``./run bench cost``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pricing import CONTENDERS, Usage, operations

from commitlog.testing.proxy import Proxy
from support.project import ROOT, environment
from support.s3a import hadoop_committer_jars, s3a_jars
from support.servers import Ministack

pytestmark = pytest.mark.servers

#: The names of the committers in the benchmark.
SPARK = {
    "listed": "Spark, commitlog, listed",
    "logged": "Spark, commitlog, logged",
    "magic": "Spark, S3A magic",
    "magic in memory": "Spark, S3A magic in memory",
    "directory": "Spark, S3A directory",
    "file v2": "Spark, FileOutputCommitter v2",
}


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the modules of the benchmark programs importable; they are not a package."""
    pytest.importorskip("pyspark")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def quiet(line: str) -> None:
    """Report no progress."""


def usages(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], dict[str, float]]:
    """Return the usage in each row, without the error of a float, by contender and number of files."""
    return {(row["contender"], row["files"]): rounded(Usage(**row["usage"])) for row in rows}


def rounded(usage: Usage) -> dict[str, float]:
    """Return the numbers of a usage without the error of a float."""
    return {name: round(getattr(usage, name), 6) for name in Usage.__slots__ if name[0] != "_"}


@pytest.mark.spark
@pytest.mark.all
@pytest.mark.timeout(900)
def test_committers_of_spark(tmp_path: Path) -> None:
    """Each committer, with few files and with more, in a process without the session of other tests."""
    s3a_jars()
    hadoop_committer_jars()
    result = tmp_path / "cost.json"
    program = [sys.executable, str(ROOT / "benchmarks/cost.py")]
    subprocess.run(
        [*program, "--only", "spark", "--files", "1", "20", "--json", str(result)],
        env=environment(),
        check=True,
    )
    found = usages(json.loads(result.read_text())["rows"])
    expected = {
        (name, files): rounded(CONTENDERS[of](files)) for name, of in SPARK.items() for files in (1, 20)
    }
    assert found == expected


@pytest.mark.campaign
def test_delta_lake(ministack: Ministack) -> None:
    """A period of a hundred commits."""
    pytest.importorskip("deltalake")
    from cost import count_delta

    with Proxy(ministack.endpoint_url) as proxy:
        found = usages([count_delta(ministack, proxy, 20, quiet)])
    assert found == {("delta", 20): rounded(CONTENDERS["Delta Lake, S3DynamoDBLogStore"](20))}


def test_juicefs(ministack: Ministack) -> None:
    """A file is an object, and nothing else is stored."""
    from cost import count_juicefs

    with Proxy(ministack.endpoint_url) as proxy:
        found = usages(count_juicefs(ministack, proxy, [1, 20], quiet))
    expected = CONTENDERS["JuiceFS, object store only"]
    assert found == {("juicefs", files): rounded(expected(files)) for files in (1, 20)}


@pytest.mark.all
def test_the_benchmark_counts_our_jobs_as_the_tests_do(ministack: Ministack) -> None:
    """The proxy of the benchmark, and the meter of `test_cost`, find the same."""
    from cost import count_outputs

    with Proxy(ministack.endpoint_url) as proxy:
        found = usages(count_outputs(ministack, proxy, 3, quiet))
    assert found == {
        ("output, native", 3): rounded(operations.output_job(3)),
        ("output, leases", 3): rounded(operations.output_job(3, leases=True)),
    }
