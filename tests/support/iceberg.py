"""Tables of Iceberg catalogs for tests, and the properties of catalogs on test servers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pyarrow
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.utils.concurrent import ExecutorFactory

from commitlog.commit.record import LEASE_SCHEMA
from commitlog.tables.open import open_table
from commitlog.urls import parse_store_url

__all__ = ["ROWS", "SCHEMA", "lease_table", "records_url", "s3_properties", "threads_end"]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "city", StringType()),
    identifier_field_ids=[1],
)
ROWS = pyarrow.table(
    {"id": [1, 2, 3], "city": ["Oslo", "Rome", None]},
    schema=pyarrow.schema(
        [pyarrow.field("id", pyarrow.int64(), nullable=False), ("city", pyarrow.string())]
    ),
)


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """End pyiceberg's threads after each test. pyiceberg starts others for the next one."""
    yield
    pool = ExecutorFactory._instance
    if pool is not None:
        pool.shutdown()
        ExecutorFactory._instance = None


def s3_properties(server: Any, bucket: str, *, endpoint_url: str | None = None) -> dict[str, str]:
    """Return the properties of a catalog in a bucket, with the server's credentials."""
    return {
        "s3.endpoint": endpoint_url or server.endpoint_url,
        "s3.region": server.region,
        "s3.access-key-id": server.access_key_id,
        "s3.secret-access-key": server.secret_access_key,
        "uri": f"s3://{bucket}/catalog",
        "warehouse": f"s3://{bucket}/warehouse",
    }


def records_url(properties: Mapping[str, str]) -> str:
    """Return the URL of the store of the records, as a probe report names it."""
    place = parse_store_url(properties["uri"])
    options = {"endpoint_url": properties["s3.endpoint"], "region": properties["s3.region"]}
    return str(place.with_options(options))


def lease_table(server: Any, **options: str) -> str:
    """Create a table of leases; return its URL. `options` replace those of the server."""
    url = f"dynamodb://{server.new_table_name()}?{urlencode(server.options | options)}"
    with contextlib.closing(open_table(url, LEASE_SCHEMA)) as table:
        table.create()
    return url
