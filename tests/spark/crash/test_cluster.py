"""Races of task attempts on a cluster: a speculative attempt wins, and the first one goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlog.outputs import Output
from commitlog.spark.targets.output import ReadOptions
from support.s3a import jars_of_session, s3a_settings
from support.selection import in_campaigns
from support.spark_cluster import Cluster, Gate

if TYPE_CHECKING:
    from support.servers import Ministack

pytestmark = [
    pytest.mark.all,
    pytest.mark.spark,
    # Three Java processes start at once, and two more that these start.
    pytest.mark.timeout(900),
]

ROWS = 40_000

Place = tuple[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts and a driver."""
    with Cluster(tmp_path_factory.mktemp("cluster"), jars_of_session()) as cluster:
        yield cluster


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An output in a directory, or on S3."""
    if request.param == "local":
        return str(tmp_path / "out"), {}
    return on_s3(request.getfixturevalue("ministack"))


def on_s3(server: Ministack) -> Place:
    """Return a new output on S3."""
    service = {
        "endpointUrl": server.endpoint_url,
        "region": "us-east-1",
        "accessKeyId": server.access_key_id,
        "secretAccessKey": server.secret_access_key,
    }
    return f"s3://{server.new_bucket()}/out", service


def opened(place: Place) -> Output:
    """Return the output for checks without Spark."""
    url, options = place
    return Output(ReadOptions.parse({**options, "path": url}).open())


def stray(output: Output) -> list[str]:
    """Return the visible and staged files that no commit refers to."""
    named = {file.path for file in output.snapshot().files}
    found = {info.path for info in output.store.list() if not info.path.endswith((".json", "_SUCCESS"))}
    staged = [upload.path for upload in output.store.list_staged()]
    return sorted(found - named) + staged


def check(output: Output) -> None:
    """Check that each number is there once, in two files, and that there is no other file."""
    files = output.snapshot().files
    tables = [pq.read_table(pa.BufferReader(output.store.get(file.path).data)) for file in files]
    assert sorted(pa.concat_tables(tables).column("id").to_pylist()) == list(range(ROWS))
    assert len(files) == 2
    assert stray(output) == []


@pytest.mark.parametrize(
    ("place", "visibility"),
    [("local", "listed"), in_campaigns("local", "logged"), in_campaigns("s3", "listed")],
    indirect=["place"],
)
def test_a_zombie_that_writes_after_the_commit_is_never_referenced(
    cluster: Cluster, place: Place, visibility: str
) -> None:
    """The attempt that lost the race writes its file after the commit of the job, and gc removes it."""
    url, options = place
    options = {**options, "visibility": visibility}
    with Gate() as gate:
        cluster.save(gate, source="commitlog-gated", url=url, options=options, rows=ROWS)
        with cluster.visitor(gate) as zombie:
            with cluster.visitor(gate) as winner:
                assert winner.host != zombie.host
                winner.let_go_on()
                assert winner.hear() == "staged"
                winner.let_go_on()
                assert cluster.answer() == ""
            output = opened(place)
            with output.store:
                check(output)
                zombie.let_go_on()
                assert zombie.hear() == "staged"
                assert len(stray(output)) == 1
                output.gc(older_than=0)
                check(output)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_files_staged_by_a_dead_host_are_dropped(cluster: Cluster, place: Place) -> None:
    """A host dies after staging a file and before reporting it. Another host writes the rows again."""
    url, options = place
    with Gate() as gate:
        cluster.save(gate, source="commitlog-gated", url=url, options=options, rows=ROWS)
        with cluster.visitor(gate) as lost:
            lost.let_go_on()
            assert lost.hear() == "staged"
            cluster.kill(lost.host)
            assert lost.hear() == ""
        with cluster.visitor(gate) as other:
            assert other.host != lost.host
            output = opened(place)
            with output.store:
                assert len(stray(output)) > 0
                other.let_go_on()
                assert other.hear() == "staged"
                other.let_go_on()
                assert cluster.answer() == ""
                check(output)
    cluster.start_worker(lost.host)


@pytest.mark.parametrize("way", ["directory", in_campaigns("S3A", marks=[pytest.mark.servers])])
def test_the_configured_committer_drops_files_of_a_zombie(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path, way: str
) -> None:
    """With the configured committer, the file of the attempt that lost the race is not committed."""
    place: Place = (str(tmp_path / "out"), {})
    url, options = place[0], {}
    if way == "S3A":
        server: Ministack = request.getfixturevalue("ministack")
        place = on_s3(server)
        url = place[0].replace("s3:", "s3a:")
        hadoop = s3a_settings(server).items()
        options = {name.removeprefix("spark.hadoop."): value for name, value in hadoop}
    with Gate() as gate:
        cluster.save(gate, source="parquet", url=url, options=options, rows=ROWS)
        with cluster.visitor(gate) as loser:
            with cluster.visitor(gate) as winner:
                winner.let_go_on()
                assert cluster.answer() == ""
            output = opened(place)
            with output.store:
                files = output.snapshot().files
                loser.let_go_on()
                cluster.settle()
                output.gc(older_than=0)
                assert output.snapshot().files == files
                check(output)
