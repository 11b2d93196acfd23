"""The contract of `ConditionalStore`, for each way to enforce conditions."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlog.commit import ConditionalStore, LeaseSettings
from commitlog.commit.bucket_identity import IDENTITY_PREFIX
from commitlog.commit.probe_report import Kind
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.connect import connect
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigurationError,
    InvalidPath,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
)
from commitlog.stores.memory import MemoryStore
from commitlog.tables.open import open_table
from support.commit import UNKNOWN, World, lost_after, proven, raising

MIB = 1024 * 1024


def _memory_lease() -> ConditionalStore:
    table = open_table("memory://", LEASE_SCHEMA)
    table.create()
    return ConditionalStore(MemoryStore(), table=table, mode="lease")


@pytest.fixture(params=["memory native", "memory lease", "local native", "local lease"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConditionalStore]:
    """A store without faults."""
    ways: dict[str, Any] = {
        "memory native": lambda: ConditionalStore(MemoryStore()),
        "memory lease": _memory_lease,
        "local native": lambda: connect(f"file://{tmp_path}/lake"),
        "local lease": lambda: connect(
            f"file://{tmp_path}/lake", commit="lease", table=f"sqlite://{tmp_path}/commits.db"
        ),
    }
    (tmp_path / "lake").mkdir()
    with ways[request.param]() as opened:
        yield opened


def test_the_first_create_wins(store: ConditionalStore) -> None:
    """The second create is refused and changes nothing."""
    result = store.put_if_absent("a/b", b"one", metadata={"who": "me"}, content_type="text/plain")
    assert result.path == "a/b"
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a/b", b"two")
    found = store.get("a/b")
    assert (found.data, found.etag, found.metadata["who"]) == (b"one", result.etag, "me")


def test_an_update_needs_the_current_etag(store: ConditionalStore) -> None:
    """The etag may have quotes or not. An old one, or one for a missing object, is refused."""
    first = store.put_if_absent("a", b"one").etag
    second = store.put_if_match("a", b"two", etag=first).etag
    with pytest.raises(PreconditionFailed):
        store.put_if_match("a", b"three", etag=first)
    with pytest.raises(PreconditionFailed):
        store.put_if_match("b", b"three", etag=first)
    store.put_if_match("a", b"three", etag=second.strip('"'))
    assert store.get("a").data == b"three"


def test_a_copy_does_not_overwrite(store: ConditionalStore) -> None:
    """It copies the metadata. A missing source and an existing target are refused."""
    store.put_if_absent("a", b"one", metadata={"who": "me"})
    result = store.copy_if_absent("a", "b")
    assert store.head("b").etag == result.etag
    assert store.head("b").metadata["who"] == "me"
    store.put("c", b"three")
    with pytest.raises(AlreadyExists):
        store.copy_if_absent("a", "c")
    with pytest.raises(NotFound):
        store.copy_if_absent("nothing", "d")
    assert store.get("c").data == b"three"


@pytest.mark.parametrize(
    "etag", ["x" * 2000, "\ud800", "a\nb"], ids=["too long", "not Unicode", "not printable"]
)
def test_an_etag_that_no_store_has_is_refused(store: ConditionalStore, etag: str) -> None:
    """It is a mistake of the caller, whatever enforces the condition."""
    store.put_if_absent("a", b"one")
    with pytest.raises(ConfigurationError, match="an etag is printable"):
        store.put_if_match("a", b"two", etag=etag)
    with pytest.raises(ConfigurationError, match="an etag is printable"):
        store.delete_if_match("a", etag=etag)


def test_a_deletion_needs_the_current_etag(store: ConditionalStore) -> None:
    """An old etag, or one for a missing object, is refused."""
    first = store.put_if_absent("a", b"one").etag
    second = store.put_if_match("a", b"two", etag=first).etag
    with pytest.raises(PreconditionFailed):
        store.delete_if_match("a", etag=first)
    store.delete_if_match("a", etag=second)
    with pytest.raises(PreconditionFailed):
        store.delete_if_match("a", etag=second)
    store.put_if_absent("a", b"again")


def test_a_rename_moves_an_object_to_a_free_path(store: ConditionalStore) -> None:
    """The source is removed. An existing target, or the source as target, is refused."""
    store.put_if_absent("a", b"one")
    store.put_if_absent("c", b"three")
    store.rename_if_absent("a", "b")
    assert [info.path for info in store.list()] == ["b", "c"]
    with pytest.raises(AlreadyExists):
        store.rename_if_absent("b", "c")
    with pytest.raises(AlreadyExists):
        store.rename_if_absent("b", "b")
    with pytest.raises(NotFound):
        store.rename_if_absent("a", "d")
    assert [info.path for info in store.list()] == ["b", "c"]


@pytest.mark.parametrize("size", [0, 1, 8 * MIB, 8 * MIB + 1])
def test_a_file_is_stored_from_its_position(store: ConditionalStore, size: int) -> None:
    """This holds for small and large files. The object is complete, or does not exist."""
    body = bytes(range(256)) * (size // 256 + 1)
    file = io.BytesIO(b"skip" + body[:size])
    file.seek(4)
    store.put_if_absent("a", file)
    assert store.get("a").data == body[:size]
    assert not list(store.list_staged())


def test_large_bytes_are_conditional_as_well(store: ConditionalStore) -> None:
    """An existing object is refused before the upload, and other conditions after it."""
    etag = store.put_if_absent("a", memoryview(bytes(9 * MIB))).etag
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a", bytes(9 * MIB))
    store.put_if_match("a", bytearray(9 * MIB + 1), etag=etag)
    with pytest.raises(PreconditionFailed):
        store.put_if_match("a", bytes(9 * MIB), etag=etag)
    assert store.head("a").size == 9 * MIB + 1
    assert not list(store.list_staged())


def test_a_staged_upload_can_be_published_again(store: ConditionalStore) -> None:
    """After the first publication, another publication of the same upload also succeeds."""
    staged = store.stage("a", b"one")
    first = store.publish_if_absent(staged)
    assert store.publish_if_absent(staged).etag == first.etag
    with pytest.raises(AlreadyExists):
        store.publish_if_absent(store.stage("a", b"two"))


def test_plain_calls_go_to_the_store(store: ConditionalStore) -> None:
    """They behave as those of the store itself."""
    store.put("a/1", b"one")
    store.copy("a/1", "a/2")
    store.put("b", b"two")
    assert store.get("a/2", start=1).data == b"ne"
    assert [info.path for info in store.list("a/", start_after="a/1")] == ["a/2"]
    assert store.list_page(delimiter="/").prefixes == ("a/",)
    store.delete("b")
    with pytest.raises(NotFound):
        store.head("b")
    assert store.url == store.object_store.url
    assert store.key("a/1") == store.object_store.key("a/1")
    assert store.begin_head("b")().info is None
    assert store.delete_many(["a/1", "missing"]) == {}
    assert [info.path for info in store.list()] == ["a/2"]


def test_uploads_are_published_over_an_object_or_aborted(store: ConditionalStore) -> None:
    """Until then they are invisible, except in a listing of uploads."""
    store.put("a", b"one")
    with store.begin_stage("a", metadata={"by": "two"}) as writer:
        writer.write(b"two")
        staged = writer.finish()
    dropped = store.stage("b", b"three")
    assert {info.path for info in store.list_staged()} == {"a", "b"}
    assert store.get("a").data == b"one"
    store.publish(staged)
    for info in store.list_staged("b"):
        store.abort(info)
    store.abort(dropped)
    assert (store.get("a").data, store.head("a").metadata["by"]) == (b"two", "two")
    assert [info.path for info in store.list()] == ["a"]
    assert not list(store.list_staged())


def test_an_invalid_path_is_refused_before_a_request(store: ConditionalStore) -> None:
    """Two spellings of one object would have two leases."""
    for path in ("", "/a", "a//b", "../a"):
        with pytest.raises(InvalidPath):
            store.put_if_absent(path, b"")


def test_leaving_the_context_hides_no_error(tmp_path: Path) -> None:
    """An exception of the caller is raised again."""
    with pytest.raises(ZeroDivisionError), ConditionalStore(MemoryStore()):
        raise ZeroDivisionError


# -- choice of the mode ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "lease"},
        {"mode": "always"},
        {"mode": "native", "table": open_table("memory://", LEASE_SCHEMA)},
    ],
)
def test_an_impossible_mode_is_refused(wrong: dict[str, Any]) -> None:
    """Leases need a table, and native conditions must not have one."""
    with pytest.raises(ConfigurationError):
        ConditionalStore(MemoryStore(), **wrong)


CREATES = (Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT, Kind.PUBLISH_IF_ABSENT)
CHANGES = (Kind.PUT_IF_MATCH, Kind.PUBLISH_IF_MATCH, Kind.DELETE_IF_MATCH)


def test_auto_uses_native_conditions_that_are_proven() -> None:
    """If every operation with a condition is proven, each is one request without a lease."""
    world = World(mode="auto", ignores=False, probe_report=proven(*CREATES, *CHANGES))
    etag = world.client.put_if_absent("a", b"one").etag
    world.client.copy_if_absent("a", "b")
    world.client.put_if_match("a", b"two", etag=etag)
    identifying = ["put", "head"]
    assert world.script.log == ["check", *identifying, "put", "copy", "put"]


@pytest.mark.parametrize("unproven", CREATES)
def test_auto_enforces_all_creates_in_one_way(unproven: Kind) -> None:
    """If one kind of create needs the lease, all creates take it. Changes do not compete with them."""
    kinds = [kind for kind in Kind if kind is not unproven]
    world = World(mode="auto", ignores=False, probe_report=proven(*kinds))
    etag = world.client.put_if_absent("a", b"one").etag
    world.client.copy_if_absent("a", "b")
    assert world.script.log.count("take") == 4
    world.client.delete_if_match("a", etag=etag)
    assert world.script.log[-2:] == ["take", "delete"]


@pytest.mark.parametrize("unproven", CHANGES)
def test_auto_enforces_all_changes_in_one_way(unproven: Kind) -> None:
    """If one kind of change needs the lease, all changes take it. Creates do not compete with them."""
    kinds = [kind for kind in Kind if kind is not unproven]
    world = World(mode="auto", ignores=False, probe_report=proven(*kinds))
    etag = world.client.put_if_absent("a", b"one").etag
    assert world.script.log == ["check", "put", "head", "put"]  # first the identity object of the bucket
    etag = world.client.put_if_match("a", b"two", etag=etag).etag
    world.client.delete_if_match("a", etag=etag)
    assert world.script.log.count("take") == 4


def test_without_a_table_each_kind_is_decided_separately() -> None:
    """Proven kinds are native. Other kinds are refused, so they compete with no request."""
    world = World(mode="native", ignores=False, probe_report=proven(Kind.PUT_IF_ABSENT))
    world.client.put_if_absent("a", b"one")
    with pytest.raises(NotSupported, match="copy-if-absent"):
        world.client.copy_if_absent("a", "b")


def test_without_a_table_nothing_unproven_is_sent() -> None:
    """An unproven condition never becomes a plain write. The message names the missing table."""
    world = World(mode="native", ignores=True, probe_report=proven())
    etag = world.objects.put("a", b"one").etag
    staged = world.objects.stage("b", b"one")
    for call in (
        lambda: world.client.put_if_absent("b", b"x"),
        lambda: world.client.put_if_absent("b", bytes(9 * MIB)),
        lambda: world.client.put_if_match("a", b"x", etag=etag),
        lambda: world.client.copy_if_absent("a", "b"),
        lambda: world.client.rename_if_absent("a", "b"),
        lambda: world.client.delete_if_match("a", etag=etag),
        lambda: world.client.publish_if_absent(staged),
    ):
        with pytest.raises(NotSupported, match="table="):
            call()
    assert set(world.script.log) <= {"head"}


def test_an_unknown_kind_is_probed_once() -> None:
    """The first call of a kind probes it, and later calls rely on the result."""
    world = World(mode="auto", ignores=True, probe_report=UNKNOWN)
    world.client.put_if_absent("a", b"one")
    assert not world.client.probe_report.proves(Kind.PUT_IF_ABSENT)
    measured = len(world.script.log)
    world.client.put_if_absent("b", b"one")
    assert world.script.log[measured:] == ["head", "take", "put", "take"]
    assert [info.path for info in world.objects.list() if not info.path.startswith(IDENTITY_PREFIX)] == [
        "a",
        "b",
    ]


def test_a_rename_that_cannot_remove_its_source_is_not_started() -> None:
    """Nothing is copied if the deletion would be refused."""
    world = World(mode="native", ignores=False, probe_report=proven(Kind.COPY_IF_ABSENT))
    world.objects.put("a", b"one")
    with pytest.raises(NotSupported, match="delete-if-match"):
        world.client.rename_if_absent("a", "b")
    with pytest.raises(NotSupported, match="delete-if-match"):
        world.client.check_delete()
    assert [info.path for info in world.objects.list()] == ["a"]


# -- incomplete renames ----------------------------------------------------------------------------


def test_a_rename_whose_deletion_fails_reports_that_both_may_exist() -> None:
    """The error is not a typed failure, because that would mean that nothing happened."""
    world = World()
    world.objects.put("a", b"one")
    world.script.next("delete", raising(AccessDenied("may not delete")))
    with pytest.raises(OutcomeUnknown, match="Both may exist") as caught:
        world.client.rename_if_absent("a", "b")
    assert isinstance(caught.value.__cause__, AccessDenied)
    assert [info.path for info in world.objects.list() if not info.path.startswith(IDENTITY_PREFIX)] == [
        "a",
        "b",
    ]


def test_a_rename_does_not_remove_a_source_that_changed() -> None:
    """Another client wrote to it after the copy."""
    world = World()
    world.objects.put("a", b"one")
    world.script.next("copy", lambda perform: (perform(), world.objects.put("a", b"two"))[0])
    with pytest.raises(OutcomeUnknown) as caught:
        world.client.rename_if_absent("a", "b")
    assert isinstance(caught.value.__cause__, PreconditionFailed)
    assert world.objects.get("a").data == b"two"


def test_a_rename_survives_lost_responses_under_a_lease() -> None:
    """Both of its steps are resolved by reading back."""
    world = World(settings=LeaseSettings(timeout=5.0))
    world.client.put_if_absent("a", b"one")
    world.script.next("copy", lost_after)
    world.script.next("delete", lost_after)
    world.client.rename_if_absent("a", "b")
    assert [info.path for info in world.objects.list()] == ["b"]


def _own(world: World) -> list[str]:
    """Return the paths of all objects except the identity object of the bucket."""
    paths = [info.path for info in world.objects.list()]
    return [path for path in paths if not path.startswith(IDENTITY_PREFIX)]
