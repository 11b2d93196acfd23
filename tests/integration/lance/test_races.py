"""Processes that append to one Lance table: each row is there once, on every store.

``./run test --all tests/integration/lance`` also shows how many rows Lance without this library loses on
the same store. Eight processes with a hundred commits each race in campaigns, for up to half an hour:
``./run test -m campaign tests/integration/lance``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow
import pytest
from attrs import field, frozen
from lance_namespace import DescribeTableRequest

from commitlog.testing.proxy import Hazard, Proxy
from support.lance_writer import Job, Outcomes, open_namespace, race
from support.selection import examples

pytestmark = [pytest.mark.servers, pytest.mark.filterwarnings("ignore::UserWarning:lance")]

#: Faults of the requests that create a version, and of others of Lance.
HAZARDS = (
    *(
        Hazard(kinds=("COPY",), action=action, rate=0.04)
        for action in ("drop_response", "drop_request", "reset", "duplicate")
    ),
    Hazard(kinds=("PUT",), action="drop_response", rate=0.01, path="_versions"),
)


@frozen
class Race:
    """A table with one row, at a store behind a proxy, and the writers of a race for it.

    Attributes:
        proxy: the proxy.
        job: the work of a writer by the namespace.
        uri: the URI of the table.
        storage: Lance's options for the store, for writers without the namespace.
    """

    proxy: Proxy
    job: Job
    uri: str
    storage: dict[str, str] = field(repr=False)

    def run(self, way: str, writers: int, rows: int) -> list[Outcomes]:
        """Append, in as many processes, that many rows each."""
        common = {"way": way, "root": self.job.root, "leases": self.job.leases, "rows": rows}
        if way == "namespace":
            return race([Job(**common, options=self.job.options, writer=n) for n in range(writers)])
        own = {"location": self.uri, "options": self.storage}
        return race([Job(**common, **own, writer=number) for number in range(writers)])

    def rows(self) -> Counter[tuple[int, int]]:
        """Return how often the table has each row, as it is read by its URI."""
        found = lance.dataset(self.uri, storage_options=self.storage).to_table().to_pydict()
        return Counter(zip(found["writer"], found["number"], strict=True))


def _race(server: Any, leases: Path | None) -> Iterator[Race]:
    with Proxy(server.endpoint_url) as proxy:
        options = {**server.options, "endpoint_url": proxy.endpoint_url}
        job = Job(
            way="namespace",
            root=f"s3://{server.new_bucket()}/lake",
            options=options,
            leases="" if leases is None else str(leases),
        )
        with open_namespace(job) as namespace:
            first = pyarrow.table({"writer": [-1], "number": [-1]})
            lance.write_dataset(first, namespace_client=namespace, table_id=["race"])
            found = namespace.describe_table(DescribeTableRequest(id=["race"]))
        # Lance alone has its conditional writes, which the namespace turns off where it takes leases.
        options = {k: v for k, v in found.storage_options.items() if k != "aws_conditional_put"}
        yield Race(proxy, job, found.location, options)


@pytest.fixture
def ignoring(juicefs: Any, tmp_path: Path) -> Iterator[Race]:
    """A race on a store that ignores preconditions, by leases."""
    yield from _race(juicefs, tmp_path / "leases.db")


@pytest.fixture
def enforcing(seaweedfs: Any) -> Iterator[Race]:
    """A race on a store that enforces preconditions, natively."""
    yield from _race(seaweedfs, None)


def _check(
    race: Race, outcomes: list[Outcomes], capsys: pytest.CaptureFixture[str], what: str
) -> Counter[str]:
    """Count what became of the rows, and show it."""
    found = race.rows()
    counts: Counter[str] = Counter(
        {kind: sum(len(each[kind]) for each in outcomes) for kind in ("committed", "unknown", "failed")}
    )
    counts["rows"] = found.total() - 1
    counts["lost"] = sum(
        not found[writer, number] for writer, each in enumerate(outcomes) for number in each["committed"]
    )
    counts["twice"] = sum(times > 1 for times in found.values())
    with capsys.disabled():
        print(f"\n{what}: {dict(counts)}, faults: {race.proxy.strikes().total()}")
    return counts


def _no_row_is_lost(
    race: Race, writers: int, rows: int, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    race.proxy.endanger(HAZARDS, seed=1)
    outcomes = race.run("namespace", writers, rows)
    race.proxy.endanger(())
    counts = _check(race, outcomes, capsys, what)
    assert counts["lost"] == counts["twice"] == counts["failed"] == 0, outcomes
    assert counts["committed"] + counts["unknown"] == writers * rows
    assert counts["committed"] <= counts["rows"] <= counts["committed"] + counts["unknown"]


@pytest.mark.all
def test_no_row_is_lost_under_leases(ignoring: Race, capsys: pytest.CaptureFixture[str]) -> None:
    """Each committed row is there once, on a store that ignores preconditions, under faults."""
    _no_row_is_lost(ignoring, 4, 8, capsys, "JuiceFS, leases")


def test_no_row_is_lost_natively(enforcing: Race, capsys: pytest.CaptureFixture[str]) -> None:
    """Each committed row is there once, on a store that enforces preconditions, under faults."""
    _no_row_is_lost(enforcing, 4, examples(4, 8), capsys, "SeaweedFS, native")


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_eight_hundred_commits_under_leases(ignoring: Race, capsys: pytest.CaptureFixture[str]) -> None:
    """The same with eight processes and a hundred commits each."""
    _no_row_is_lost(ignoring, 8, 100, capsys, "JuiceFS, leases")


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_eight_hundred_commits_natively(enforcing: Race, capsys: pytest.CaptureFixture[str]) -> None:
    """The same with eight processes and a hundred commits each."""
    _no_row_is_lost(enforcing, 8, 100, capsys, "SeaweedFS, native")


@pytest.mark.all
@pytest.mark.timeout(900)
def test_lance_alone_loses_rows(ignoring: Race, capsys: pytest.CaptureFixture[str]) -> None:
    """Without this library, and without any fault, rows that were committed are gone."""
    outcomes = ignoring.run("plain", 4, 10)
    counts = _check(ignoring, outcomes, capsys, "JuiceFS, Lance alone")
    assert counts["lost"] > 0  # about half of them


@pytest.mark.all
@pytest.mark.timeout(900)
def test_the_lock_keeps_rows_without_faults(ignoring: Race, capsys: pytest.CaptureFixture[str]) -> None:
    """With `commit_lock`, no row is lost while every request is answered in time."""
    counts = _check(ignoring, ignoring.run("lock", 4, 10), capsys, "JuiceFS, commit_lock")
    assert counts["lost"] == counts["twice"] == counts["failed"] == 0
    assert counts["rows"] == counts["committed"] == 40
