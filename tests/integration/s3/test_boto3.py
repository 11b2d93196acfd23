"""A boto3 session and boto3 clients reach real servers."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import urlsplit

import boto3.session
import pytest
from botocore.config import Config

import commitlog
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.stores.open import open_store
from commitlog.tables.api import Key
from commitlog.tables.open import open_table
from commitlog.testing.proxy import Proxy, ProxyFault
from support.servers import Ministack

pytestmark = pytest.mark.servers


def _ministack(server: Ministack, **settings: Any) -> Any:
    return boto3.session.Session(
        server.access_key_id, server.secret_access_key, region_name=server.region, **settings
    )


def test_a_session_reaches_store_and_table(
    ministack: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session serves both services. Ministack checks the signatures of writes under a lease."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack.endpoint_url)
    session = _ministack(ministack)
    table = f"dynamodb://{ministack.new_table_name()}"
    with contextlib.closing(open_table(table, LEASE_SCHEMA, session=session)) as leases:
        leases.create()
    url = f"s3://{ministack.new_bucket()}"
    with commitlog.connect(url, commit="lease", table=table, session=session) as store:
        store.put_if_absent("a", b"1")
        with pytest.raises(commitlog.AlreadyExists):
            store.put_if_absent("a", b"2")


def test_clients_reach_store_and_table(ministack: Ministack) -> None:
    """The clients determine the endpoints and the credentials."""
    url, table = f"s3://{ministack.new_bucket()}", f"dynamodb://{ministack.new_table_name()}"
    clients = {"client": ministack.client("s3"), "table_client": ministack.client("dynamodb")}
    with contextlib.closing(open_table(table, LEASE_SCHEMA, client=clients["table_client"])) as leases:
        leases.create()
        with commitlog.connect(url, commit="lease", table=table, **clients) as store:
            store.put_if_absent("a", b"1")
        item = leases.get(Key("a", "*"))
        assert item is not None and LeaseRecord.from_item(item).released
    got = ministack.client("s3").get_object(Bucket=urlsplit(url).hostname, Key="a")
    assert got["Body"].read() == b"1"


@pytest.mark.parametrize("of", ["session", "client"])
def test_the_number_of_attempts_is_configured(
    ministack: Ministack, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read has as many attempts as `max_attempts` allows. A write has one."""
    with Proxy(ministack.endpoint_url) as proxy:
        config = Config(retries={"max_attempts": 1, "mode": "standard"})
        session = _ministack(ministack)
        given: dict[str, Any] = {"session": session, "endpoint_url": proxy.endpoint_url}
        if of == "client":
            client = session.client("s3", endpoint_url=proxy.endpoint_url, config=config)
            given = {"client": client}
        else:
            session._session.set_default_client_config(config)
        with contextlib.closing(open_store(f"s3://{ministack.new_bucket()}", **given)) as store:
            proxy.requests()
            proxy.inject(ProxyFault(kind="GET", action="answer", status=503, times=9))
            with pytest.raises(commitlog.Unavailable):
                store.get("a")
            assert len(proxy.requests()) == 2
        if of == "client":
            client.close()
