"""Clients that spell the endpoint of a bucket differently recognise that it is the same bucket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlog import connect
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.commit.bucket_identity import BUCKETS, IDENTITY_PREFIX
from commitlog.commit.probe_report import Kind
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    CorruptRecord,
    FormatTooNew,
    NotSupported,
    Unavailable,
)
from commitlog.stores.api import ObjectStore
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, Key, Table, TableCondition
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.commit import Script, ScriptedStore, lost_after, lost_before, proven, raising
from support.servers import Ministack

INSIDE = "s3://lake?endpoint_url=http://minio:9000"
OUTSIDE = "s3://lake?endpoint_url=http://localhost:9000"


class Site:
    """A table, and servers that clients reach by URLs that the test chooses."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table: Table = open_table("memory://", LEASE_SCHEMA, clock=self.clock)
        self.table.create()
        self.server = self.new_server()

    def new_server(self) -> MemoryStore:
        """Return another store."""
        return MemoryStore(f"memory://{random_id()}", clock=self.clock)

    def client(
        self,
        url: str,
        *kinds: Kind,
        server: ObjectStore | None = None,
        script: Script | None = None,
    ) -> ConditionalStore:
        """Return a client whose probe report proves exactly these kinds."""
        whole = server or self.server
        store = ScriptedStore(whole, script or Script(), ignores=False)
        store.url = url
        return ConditionalStore(
            store,
            table=self.table,
            probe_report=proven(*kinds, url=url),
            clock=self.clock,
            backoff=Backoff(tries=3),
        )

    def identities(self) -> list[str]:
        """Return the paths of all identity objects in the bucket."""
        return [found.path for found in self.server.list(IDENTITY_PREFIX)]

    def buckets(self) -> list[Any]:
        """Return the list in the table."""
        item = self.table.get(BUCKETS)
        assert item is not None
        found: list[Any] = json.loads(str(item["buckets"]))["buckets"]
        return found


@pytest.fixture
def site() -> Site:
    return Site()


def goes_natively(client: ConditionalStore, path: str) -> bool:
    """Create an object with the client, and return whether it took no lease."""
    client.put_if_absent(path, b"")
    items = client._table
    assert items is not None
    return items.get(Key(path, "*")) is None


@pytest.mark.parametrize("first", [INSIDE, OUTSIDE])
def test_a_second_url_of_a_bucket_uses_the_finding_of_the_first(site: Site, first: str) -> None:
    """Its own probe report differs, but is not used."""
    second = OUTSIDE if first == INSIDE else INSIDE
    assert goes_natively(site.client(first, *Kind), "a")
    assert goes_natively(site.client(second), "b")
    assert [bucket["urls"] for bucket in site.buckets()] == [[first, second]]
    assert len(site.identities()) == 1
    third = "s3://alias-of-lake?endpoint_url=http://gateway"
    assert goes_natively(site.client(third), "c")
    with pytest.raises(AlreadyExists):
        site.client(third).put_if_absent("a", b"")


def test_another_bucket_of_the_same_name_has_its_own_finding(site: Site) -> None:
    """The finding of one server does not apply to another."""
    assert goes_natively(site.client(INSIDE, *Kind), "a")
    other = site.client(OUTSIDE, server=site.new_server())
    assert not goes_natively(other, "a")
    assert len(site.buckets()) == 2


def test_a_copy_of_a_bucket_is_another_bucket(site: Site) -> None:
    """It has the same identity object, but with another modification time."""
    assert goes_natively(site.client(INSIDE, *Kind), "a")
    site.clock.advance(10)
    copied = site.new_server()
    for path in site.identities():
        copied.put(path, site.server.get(path).data)
    assert not goes_natively(site.client(OUTSIDE, server=copied), "a")


def test_a_finding_that_was_kept_under_a_url_stays_valid(site: Site) -> None:
    """Earlier versions kept findings by URL, without a list. The first client uses that of its URL."""
    assert goes_natively(site.client(INSIDE, *Kind), "a")
    site.table.delete(BUCKETS)
    assert goes_natively(site.client(INSIDE), "b")
    assert goes_natively(site.client(OUTSIDE), "c")


def test_a_bucket_without_identity_object_is_served_under_one_url(site: Site) -> None:
    """Another URL that could be the same bucket is refused. Other buckets are not."""
    script = Script()
    script.next("put", raising(AccessDenied("no")))
    assert goes_natively(site.client(INSIDE, *Kind, script=script), "a")
    assert goes_natively(site.client(INSIDE), "b")
    with pytest.raises(NotSupported, match=r"minio:9000.*no identity object.*commitlog probe --table"):
        site.client(OUTSIDE).put_if_absent("c", b"")
    assert site.server.begin_head("c")().info is None
    elsewhere = "s3://other?endpoint_url=http://localhost:9000"
    assert not goes_natively(site.client(elsewhere, server=site.new_server()), "c")


def test_a_client_that_may_not_read_the_identity_object_is_refused(site: Site) -> None:
    """S3 also answers 403 for a missing object if the client may not list."""
    site.client(INSIDE, *Kind).put_if_absent("a", b"")
    script = Script()
    script.next("head", *[raising(AccessDenied("no"))] * 2)
    with pytest.raises(NotSupported, match=f"{IDENTITY_PREFIX}.*cannot be read"):
        site.client(OUTSIDE, script=script).put_if_absent("b", b"")
    elsewhere = "s3://other?endpoint_url=http://localhost:9000"
    assert not goes_natively(site.client(elsewhere, server=site.new_server(), script=script), "b")


@pytest.mark.parametrize("renewed", [INSIDE, OUTSIDE])
def test_a_new_probe_identifies_the_bucket(site: Site, renewed: str) -> None:
    """It stores the missing identity object, or drops the bucket without one from the list."""
    poor = Script()
    poor.next("put", raising(AccessDenied("no")))
    site.client(INSIDE, *Kind, script=poor).put_if_absent("a", b"")
    with pytest.raises(NotSupported):
        site.client(OUTSIDE).put_if_absent("b", b"")
    site.client(renewed).save_probe_report(proven(*Kind, url=renewed))
    assert goes_natively(site.client(INSIDE), "b")
    assert goes_natively(site.client(OUTSIDE), "c")
    assert len(site.buckets()) == 1


def test_a_new_probe_stores_the_identity_object_again(site: Site) -> None:
    """Here the bucket was emptied. An existing or unreadable identity object is not replaced."""
    site.client(INSIDE, *Kind).put_if_absent("a", b"")
    site.server.delete_many(site.identities())
    site.client(INSIDE).save_probe_report(proven(*Kind, url=INSIDE))
    identities = site.identities()
    assert len(identities) == 1
    site.client(INSIDE).save_probe_report(proven(*Kind, url=INSIDE))
    script = Script()
    script.next("head", raising(AccessDenied("no")))
    site.client(INSIDE, script=script).save_probe_report(proven(*Kind, url=INSIDE))
    assert site.identities() == identities
    assert goes_natively(site.client(OUTSIDE), "b")


@pytest.mark.parametrize("fate", [lost_after, lost_before])
def test_an_identity_object_with_a_lost_response_is_not_used(site: Site, fate: Any) -> None:
    """The request may arrive again and change the modification time that identifies the bucket."""
    script = Script()
    script.next("put", fate)
    assert goes_natively(site.client(INSIDE, *Kind, script=script), "a")
    assert script.log == ["put", "put", "head", "put"]
    assert len(site.identities()) == (2 if fate is lost_after else 1)  # each attempt has its own name
    assert goes_natively(site.client(OUTSIDE), "b")
    script = Script()
    script.next("put", *[fate] * 3)
    with pytest.raises(Unavailable, match="could not be stored"):
        site.client("s3://other", script=script, server=site.new_server()).put_if_absent("c", b"")


def test_two_concurrent_clients_find_the_same_bucket(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client whose change of the list fails looks for the identity object of the other."""
    put = site.table.put
    rival = site.client(OUTSIDE)

    def after_the_rival(item: Item, *, condition: TableCondition | None = None) -> None:
        monkeypatch.setattr(site.table, "put", put)
        assert not goes_natively(rival, "b")
        put(item, condition=condition)

    monkeypatch.setattr(site.table, "put", after_the_rival)
    assert not goes_natively(site.client(INSIDE, *Kind), "a")
    assert [bucket["urls"] for bucket in site.buckets()] == [[OUTSIDE, INSIDE]]


@pytest.mark.parametrize(
    "text",
    [
        7,
        "{}",
        '{"format": 0, "buckets": []}',
        '{"format": 1, "buckets": [{"urls": [], "mark": null}]}',
        '{"format": 1, "buckets": [{"urls": ["ftp://x"], "mark": null}]}',
        '{"format": 1, "buckets": [{"urls": ["s3://lake"], "mark": 3}]}',
        '{"format": 1, "buckets": [{"urls": ["s3://lake"], "mark": {"id": "w", "modified": "now"}}]}',
    ],
)
def test_a_list_that_cannot_be_read_is_reported(site: Site, text: str | int) -> None:
    """Nothing is written, and the error says how to start again."""
    site.table.put({"path": BUCKETS.hash, "etag": str(BUCKETS.range), "buckets": text})
    with pytest.raises(CorruptRecord, match="delete the item"):
        site.client(INSIDE, *Kind).put_if_absent("a", b"")
    assert not list(site.server.list())


def test_a_list_of_a_later_format_is_refused(site: Site) -> None:
    """It may contain data that this version does not know."""
    text = '{"format": 2, "buckets": []}'
    site.table.put({"path": BUCKETS.hash, "etag": str(BUCKETS.range), "buckets": text})
    with pytest.raises(FormatTooNew):
        site.client(INSIDE, *Kind).put_if_absent("a", b"")


def test_two_endpoints_of_one_server(ministack: Ministack) -> None:
    """Clients use two prefixes and two endpoints of one bucket, as inside and outside of a container."""
    bucket = ministack.new_bucket()
    table = open_table("memory://leases-of-two-endpoints", LEASE_SCHEMA)
    table.create()

    def client(prefix: str, endpoint: str, *kinds: Kind) -> ConditionalStore:
        url = f"s3://{bucket}{prefix}?endpoint_url={endpoint}"
        own = {**ministack.options, "endpoint_url": endpoint}
        return connect(url, table=table.url, probe_report=proven(*kinds, url=url), **own)

    here = ministack.endpoint_url
    there = here.replace("127.0.0.1", "localhost")
    assert here != there
    with client("/a", here) as first, client("/a/b", there, *Kind) as second:
        first.put_if_absent("b/k", b"")
        with pytest.raises(AlreadyExists):
            second.put_if_absent("k", b"")
        second.put_if_absent("l", b"")
        assert table.get(Key("a/b/l", "*")) is not None  # its lease
