"""Checks of a namespace in S3 by a listing and by an inventory; the etags are those of a server."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from commitlog.namespace import FsckReport
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.namespace.partitioned.objects import ObjectListing
from commitlog.namespace.partitioned.survey import PartitionedSurveyor
from commitlog.namespaces import create_namespace, open_parts
from commitlog.spark.inventory import open_inventory
from commitlog.stores import open_store
from commitlog.urls import parse_store_url
from support.inventory import inventory_of, write_inventory
from support.selection import in_campaigns


@pytest.mark.all
@pytest.mark.servers
@pytest.mark.parametrize("kind", ["ministack", in_campaigns("seaweedfs")])
def test_findings_are_those_of_one_process(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Of a namespace below a prefix, with imported objects, and an object in several parts."""
    server = request.getfixturevalue(kind)
    source, reports = server.new_bucket(), server.new_bucket()
    store = parse_store_url(f"s3://{source}/some/lake").with_options(server.options)
    place: dict[str, Any] = {"metadata": f"sqlite://{tmp_path}/names.db", "store": store}
    with create_namespace("lake", **place) as lake:

        def check(listing: ObjectListing | None = None, *, divided: bool = True) -> FsckReport:
            open_access = partial(open_parts, "lake", **place)
            surveyor = partial(
                PartitionedSurveyor.of, SerialEngine(partitions=3), open_access, listing=listing
            )
            report = lake.maintenance.fsck(
                objects=True,
                orphans=True,
                grace=0,
                age=-1e9,
                open_surveyor=surveyor if divided else None,
            )
            return evolve(report, states=0, listed=0)

        for number in range(70):
            lake.store.put(f"raw/ü +%2B{number}", b"1")
        lake.maintenance.import_objects("raw/", "in")
        with lake.open_writer("large") as writer:
            writer.write(bytes(9 << 20))
            writer.commit()
        lost = lake.write("lost", b"1").entry.data
        assert lost is not None
        assert check().is_clean
        with closing(open_store(f"s3://{reports}", **server.options)) as opened:
            path = write_inventory(
                opened, inventory_of(lake.store.list(), "some/lake/"), "CSV", bucket=source
            )
        place_of_reports = parse_store_url(f"s3://{reports}/{path}").with_options(server.options)
        inventory = open_inventory(place_of_reports, lake.store.url)
        assert check(inventory).is_clean
        lake.store.put("raw/ü +%2B1", b"22")
        lake.store.delete(lost.path)
        lake.store.put("abc/abc" + 29 * "0", b"nobody's")
        expected = check(divided=False)
        assert len(expected.findings) == 3
        assert check() == expected
        assert check(inventory).is_clean
