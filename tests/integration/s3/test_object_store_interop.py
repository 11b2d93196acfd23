"""One table shared with the Rust crate ``object_store`` (through obstore 0.8.2), on one server."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from attrs import frozen

import commitlog
from commitlog import ConditionalStore, DynamoCommit
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.errors import AlreadyExists, CommitError, PreconditionFailed
from commitlog.tables.api import Key, Table
from commitlog.tables.open import open_table

obstore = pytest.importorskip("obstore")
pytestmark = pytest.mark.servers

#: The timeout of leases. The other client waits three times as long as the timeout in a record.
TIMEOUT = 3.0

#: Seconds by which the loser of a race starts earlier in the next one.
STEP = 0.002


@frozen
class Place:
    """A bucket and a table, and a client of each kind."""

    ours: ConditionalStore
    theirs: Any
    table: Table
    arguments: tuple[Any, ...]

    def record(self, path: str, etag: str = "*") -> LeaseRecord:
        """Return the record in the table."""
        item = self.table.get(Key(path, etag))
        assert item is not None
        return LeaseRecord.from_item(item)

    def wait_for_release(self, path: str) -> None:
        """Wait for the release in the table, because our client does not wait for its response."""
        while not self.record(path).released:
            time.sleep(0.01)

    def plant(self, path: str, etag: str = "*", *, owner: str | None, timeout: float) -> None:
        """Write the lease of a dead writer."""
        record = LeaseRecord(
            path=path,
            etag=etag,
            generation=0,
            timeout=int(timeout * 1000),
            ttl=int(time.time()) + 3600,
            owner=owner,
        )
        self.table.put(record.to_item())


def rust_store(bucket: str, table: str, options: dict[str, str], timeout_ms: int) -> Any:
    """Open the store with the other client."""
    config = {
        "endpoint": options["endpoint_url"],
        "region": options["region"],
        "access_key_id": options["access_key_id"],
        "secret_access_key": options["secret_access_key"],
        "conditional_put": f"dynamo:{table}:{timeout_ms}",
        "copy_if_not_exists": f"dynamo:{table}:{timeout_ms}",
    }
    return obstore.store.S3Store(bucket, config=config, client_options={"allow_http": True})


@pytest.fixture
def place(ministack: Any) -> Iterator[Place]:
    """A new bucket, and a new table that our client creates."""
    bucket, name = ministack.new_bucket(), ministack.new_table_name()
    commit = DynamoCommit(name, timeout=TIMEOUT, test_interval=0.01, **ministack.options)
    table = open_table(commit.url, LEASE_SCHEMA, **commit.options)
    table.create()
    arguments = (bucket, name, ministack.options, int(TIMEOUT * 1000))
    with commitlog.connect(f"s3://{bucket}", commit=commit, **ministack.options) as ours:
        yield Place(ours, rust_store(*arguments), table, arguments)


def ours_wins(call: Callable[[], object]) -> bool:
    """Return whether our client's call succeeded. The only other outcome is a refusal."""
    try:
        call()
    except (AlreadyExists, PreconditionFailed):
        return False
    return True


def theirs_wins(call: Callable[[], object]) -> bool:
    """Return whether the other client's call succeeded. The only other outcome is a refusal."""
    exceptions = obstore.exceptions
    try:
        call()
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        return False
    return True


def race(rounds: int, ours: Callable[[str], object], theirs: Callable[[str], object]) -> int:
    """Race two calls on one path after the other; return how often ours won.

    The loser starts earlier in the next race, so that races are close, and both win some on any machine.
    """
    won = 0
    lead = 0.0
    with ThreadPoolExecutor(2) as executor:
        for number in range(rounds):
            path = f"race/{number:03}"
            mine = partial(executor.submit, ours_wins, partial(ours, path))
            other = partial(executor.submit, theirs_wins, partial(theirs, path))
            if lead < 0:
                first = mine()
                time.sleep(-lead)
                second = other()
            else:
                second = other()
                time.sleep(lead)
                first = mine()
            assert first.result() + second.result() == 1, path
            won += first.result()
            lead += STEP if first.result() else -STEP
    return won


def test_a_race_to_create_has_one_winner(place: Place) -> None:
    """Neither kind of client always loses, and the object is from the winner."""
    won = race(
        120,
        lambda path: place.ours.put_if_absent(path, b"ours"),
        lambda path: obstore.put(place.theirs, path, b"theirs", mode="create"),
    )
    contents = [place.ours.get(info.path).data for info in place.ours.list("race/")]
    assert contents.count(b"ours") == won
    assert 0 < won < 120


def test_a_race_to_update_has_one_winner(place: Place) -> None:
    """The etag of both clients is that of a HEAD, including quotes, so they use the same record."""
    etags = {}
    for number in range(60):
        path = f"race/{number:03}"
        etags[path] = place.ours.put(path, path.encode()).etag
    won = race(
        60,
        lambda path: place.ours.put_if_match(path, b"ours", etag=etags[path]),
        lambda path: obstore.put(place.theirs, path, b"theirs", mode={"e_tag": etags[path]}),
    )
    contents = [place.ours.get(info.path).data for info in place.ours.list("race/")]
    assert contents.count(b"ours") == won
    assert contents.count(b"theirs") == 60 - won
    assert {place.record(path, etag).etag for path, etag in etags.items()} == set(etags.values())


def test_a_race_to_copy_has_one_winner(place: Place) -> None:
    """Both create the target, so they need the same lease."""
    place.ours.put("ours", b"ours")
    place.ours.put("theirs", b"theirs")
    won = race(
        60,
        lambda path: place.ours.copy_if_absent("ours", path),
        lambda path: obstore.copy(place.theirs, "theirs", path, overwrite=False),
    )
    contents = [place.ours.get(info.path).data for info in place.ours.list("race/")]
    assert contents.count(b"ours") == won


def test_each_client_sees_the_objects_of_the_other(place: Place) -> None:
    """A finished create makes the other client's create fail, whatever records exist."""
    place.ours.put_if_absent("a", b"ours")
    assert not theirs_wins(lambda: obstore.put(place.theirs, "a", b"theirs", mode="create"))
    obstore.put(place.theirs, "b", b"theirs", mode="create")
    assert not ours_wins(lambda: place.ours.put_if_absent("b", b"ours"))
    assert place.record("b").owner is None
    place.wait_for_release("a")


def test_their_client_takes_a_released_lease_at_once(place: Place) -> None:
    """Creating after our create and deletion needs no wait."""
    etag = place.ours.put_if_absent("a", b"ours").etag
    place.ours.delete_if_match("a", etag=etag)
    place.wait_for_release("a")
    started = time.monotonic()
    obstore.put(place.theirs, "a", b"theirs", mode="create")
    assert time.monotonic() - started < 3 * TIMEOUT
    assert place.record("a").generation == 2


@pytest.mark.parametrize("owner", [None, "a-dead-client-of-ours"])
def test_our_client_takes_over_from_a_dead_holder(place: Place, owner: str | None) -> None:
    """After three times the timeout in its record, not our own timeout, for both kinds of holders."""
    place.plant("a", owner=owner, timeout=0.3)
    started = time.monotonic()
    place.ours.put_if_absent("a", b"ours")
    assert 0.9 <= time.monotonic() - started < 3 * TIMEOUT
    place.wait_for_release("a")
    assert place.record("a").generation == 2


@pytest.mark.parametrize("owner", [None, "a-dead-client-of-ours"])
def test_their_client_takes_over_from_a_dead_holder(place: Place, owner: str | None) -> None:
    """It reads our record, which has an owner, like its own."""
    place.plant("a", owner=owner, timeout=0.3)
    started = time.monotonic()
    obstore.put(place.theirs, "a", b"theirs", mode="create")
    assert 0.9 <= time.monotonic() - started < 3 * TIMEOUT
    record = place.record("a")
    assert (record.generation, record.owner) == (1, None)


def test_a_live_holder_is_waited_for(place: Place) -> None:
    """Each client waits for the other's lease, and fails once the object exists."""
    for name, waits in (("ours", ours_wins), ("theirs", theirs_wins)):
        place.plant(name, owner=None if name == "ours" else "alive", timeout=20.0)
        call = {
            "ours": lambda: place.ours.put_if_absent("ours", b"late"),
            "theirs": lambda: obstore.put(place.theirs, "theirs", b"late", mode="create"),
        }[name]
        with ThreadPoolExecutor(1) as executor:
            waiting = executor.submit(waits, call)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            place.ours.put(name, b"first")  # written by the holder of the lease
            assert waiting.result(timeout=30.0) is False
        assert place.ours.get(name).data == b"first"


@pytest.mark.all
def test_the_other_client_takes_over_from_a_killed_writer(place: Place) -> None:
    """After SIGKILL between its lease and its put, the other client waits for the lease to expire."""
    bucket, name, options, _ = place.arguments
    code = f"""
import os, signal
import commitlog
from commitlog.stores.s3.store import S3Store
S3Store.put = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
commit = commitlog.DynamoCommit({name!r}, timeout={TIMEOUT}, **{options!r})
commitlog.connect("s3://{bucket}", commit=commit, **{options!r}).put_if_absent("a", b"ours")
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert place.record("a").owner is not None
    started = time.monotonic()
    obstore.put(place.theirs, "a", b"theirs", mode="create")
    assert 2 * TIMEOUT < time.monotonic() - started < 10 * TIMEOUT
    with pytest.raises(CommitError):
        place.ours.put_if_absent("a", b"ours")
