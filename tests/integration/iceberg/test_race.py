"""Processes append to one table through an unreliable network, and some of them are killed."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.table import StaticTable

from commitlog.commit.probe_report import Kind
from commitlog.iceberg import Catalog
from commitlog.testing.proxy import Hazard, Proxy
from support.commit import proven
from support.iceberg import lease_table, records_url, s3_properties, threads_end  # noqa: F401
from support.iceberg_writer import STEPS, Writer
from support.selection import with_all

pytestmark = pytest.mark.servers

#: Faults of requests for the records of the catalog, half of them after the server has acted.
HAZARDS = (
    Hazard(kinds=("PUT",), action="drop_response", rate=0.15, path="/catalog"),
    Hazard(kinds=("PUT",), action="fail", rate=0.1, path="/catalog"),
    Hazard(kinds=("GET",), action="drop_response", rate=0.05, path="/catalog"),
    Hazard(kinds=("PUT",), action="delay", rate=0.1, path="/catalog", seconds=(0.1, 0.5)),
)

#: Appends of the writer that is not killed.
APPENDS = 4


@pytest.mark.parametrize("kind", [with_all("native"), with_all("leased")])
def test_no_append_is_lost_or_doubled(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each acknowledged row is in the table once, no refused one is, and all files can be read."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    server: Any = request.getfixturevalue("seaweedfs" if kind == "native" else "juicefs")
    dynamo: Any = request.getfixturevalue("dynalite") if kind == "leased" else None
    properties = s3_properties(server, server.new_bucket())
    if dynamo is not None:
        table = lease_table(dynamo).removeprefix("dynamodb://").partition("?")[0]
        properties["commitlog.commit"] = f"dynamo:{table}:4000"
    with ExitStack() as stack:
        endpoint = None if dynamo is None else dynamo.endpoint_url
        proxy = stack.enter_context(Proxy(server.endpoint_url, dynamodb=endpoint))

        def start(**options: Any) -> Writer:
            return stack.enter_context(Writer(properties, **options))

        properties["s3.endpoint"] = proxy.endpoint_url
        if kind == "native":
            # Each process would probe for seconds.
            report = tmp_path / "probe.json"
            report.write_text(proven(*Kind, url=records_url(properties)).to_json())
            properties["commitlog.probe-report"] = str(report)
        with Catalog("race", **properties) as catalog:
            catalog.create_namespace("race")
            table_schema = pyarrow.schema([pyarrow.field("id", pyarrow.int64(), nullable=False)])
            catalog.create_table("race.t", table_schema, properties={"commit.retry.num-retries": "9"})
            proxy.endanger(HAZARDS, seed=1)
            whole = start(first=1000, appends=APPENDS)
            killed = [start(first=2000 + 100 * n, appends=1, stop=step) for n, step in enumerate(STEPS)]
            writers = [whole, *killed]
            for writer in writers:
                writer.wait()
            proxy.endanger(())
            strikes = proxy.strikes()
            found = catalog.load_table("race.t")
            rows = Counter(found.scan().to_arrow()["id"].to_pylist())
            static = StaticTable.from_metadata(found.metadata_location, catalog.properties)
            assert Counter(static.scan().to_arrow()["id"].to_pylist()) == rows
    outcomes = {row: outcome for writer in writers for row, outcome in writer.outcomes.items()}
    print(f"\n{kind}: {Counter(outcomes.values())}, {len(rows)} rows, {sum(strikes.values())} faults")
    assert {strike.action for strike in strikes} & {"drop_response", "fail"}
    assert set(rows.values()) == {1} and rows.keys() <= outcomes.keys()
    assert {row for row, outcome in outcomes.items() if outcome == "done"} <= rows.keys()
    assert not {row for row, outcome in outcomes.items() if outcome == "failed"} & rows.keys()
    # Of the appends in which a writer was killed, only the one that had moved the pointer happened.
    assert [writer.killed_at in rows for writer in killed] == [False, False, True]
    assert list(outcomes.values()).count("done") >= APPENDS // 2
