"""Servers of others: what they honour, which rules of the port they break, and leases on them.

docs/campaigns.md has the command. It installs the servers on first use. A server that cannot be
installed is skipped, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commitlog import connect
from commitlog.commit.probe import ROUNDS, THREADS, probe
from commitlog.commit.probe_report import Kind
from commitlog.errors import AlreadyExists, CommitError, ConfigurationError, PreconditionFailed
from commitlog.stores.open import open_store
from commitlog.testing.contract.store import CHECKS
from commitlog.testing.contract.store_run import StoreRun
from support.foreign_servers import FOREIGN, ForeignServer

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(2400)]

_CREATE, _UPDATE = Kind.PUT_IF_ABSENT, Kind.PUT_IF_MATCH
_EXPIRY = Kind.REQUEST_EXPIRY

#: What a probe proves. docs/stores.md has it, too.
PROVEN: Mapping[str, frozenset[Kind]] = {
    "s3proxy": frozenset({_EXPIRY}),
    "s3mock": frozenset(),
    "versitygateway": frozenset(
        {_CREATE, _UPDATE, Kind.PUBLISH_IF_ABSENT, Kind.PUBLISH_IF_MATCH, _EXPIRY}
    ),
    "rclone": frozenset({_EXPIRY}),
    "gofakes3": frozenset({_CREATE, _UPDATE}),
    "s3sfs": frozenset({_EXPIRY}),
    "s3rver": frozenset({_EXPIRY}),
}

#: The checks of the contract that may fail, without its conditions: faults of the servers.
BROKEN: Mapping[str, frozenset[str]] = {
    name: frozenset(checks.split())
    for name, checks in {
        "s3proxy": "missing list publish racing_publishers",
        "s3mock": "abort list racing_publishers writer",
        "versitygateway": "abort",
        "rclone": "missing copy list publish racing_publishers",
        "gofakes3": "list list_staged metadata publish",
        "s3sfs": "abort aborted_by_others bodies copy delete_many list_staged metadata missing names"
        " nonces not_supported overwrite publish racing_publishers writer",
        "s3rver": "abort aborted_by_others delete_many list list_staged publish racing_reads ranges"
        " resume writer",
    }.items()
}


@pytest.fixture(scope="module", params=list(FOREIGN))
def server(request: pytest.FixtureRequest) -> Iterator[ForeignServer]:
    """Each server in turn."""
    try:
        with FOREIGN[request.param](startup_timeout=300.0) as running:
            yield running
    except ConfigurationError as error:
        pytest.skip(str(error))


def _name(server: ForeignServer) -> str:
    return type(server).__name__.lower()


def test_a_probe_proves_what_the_server_honours(server: ForeignServer) -> None:
    """Several probes agree."""
    store = open_store(f"s3://{server.new_bucket()}/below", **server.options)
    for _ in range(3):
        with ThreadPoolExecutor(THREADS) as executor:
            report = probe(store, executor=executor, rounds=ROUNDS)
        assert {kind for kind in Kind if report.proves(kind)} == PROVEN[_name(server)]
    store.close()


def test_the_port_holds_but_for_known_faults(server: ForeignServer) -> None:
    """A check that fails is a fault of the server, or of this library."""
    store = open_store(f"s3://{server.new_bucket()}/below", **server.options)
    run = StoreRun(
        store=store,
        byte_order=False,
        conditions={},
        races={},
        enforces_expiry=False,
        nested=False,
        fresh_etags=False,
        forgets_uploads=False,
        threads=2,
        keys=1,
    )
    broken: dict[str, str] = {}
    for check in CHECKS:
        try:
            check(run)
        except (AssertionError, CommitError) as error:
            broken[check.__name__.removeprefix("_check_")] = f"{type(error).__name__}: {error}"
    store.close()
    assert set(broken) <= BROKEN[_name(server)], broken


def test_writes_under_leases(server: ForeignServer, tmp_path: Path) -> None:
    """They work on a server that honours no condition."""
    url, table = f"s3://{server.new_bucket()}/below", f"sqlite://{tmp_path}/leases.db"
    with connect(url, commit="lease", table=table, **server.options) as store:
        store.put_if_absent("a", bytes(200_000))
        with pytest.raises(AlreadyExists):
            store.put_if_absent("a", b"x")
        # Some servers answer to the completion of an upload with another etag than the object has.
        etag = store.put_if_match("a", b"0123456789", etag=store.head("a").etag).etag
        store.copy_if_absent("a", "b")
        with pytest.raises(PreconditionFailed):
            store.delete_if_match("b", etag='"other"')
        assert store.get("b", start=2, end=4).data == b"23"
        assert sorted(info.path for info in store.list()) == ["a", "b"]
        store.delete_if_match("a", etag=etag)
        assert [info.path for info in store.list()] == ["b"]
