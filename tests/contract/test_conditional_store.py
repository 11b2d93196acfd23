"""What `ConditionalStore` promises, whichever way conditions are enforced."""

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
    """A store on which nothing goes wrong."""
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
    """The second one is refused and changes nothing."""
    result = store.put_if_absent("a/b", b"one", metadata={"who": "me"}, content_type="text/plain")
    assert result.path == "a/b"
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a/b", b"two")
    found = store.get("a/b")
    assert (found.data, found.etag, found.metadata["who"]) == (b"one", result.etag, "me")


def test_an_update_needs_the_present_etag(store: ConditionalStore) -> None:
    """Quoted or bare; an old one, or that of nothing, is refused."""
    first = store.put_if_absent("a", b"one").etag
    second = store.put_if_match("a", b"two", etag=first).etag
    with pytest.raises(PreconditionFailed):
        store.put_if_match("a", b"three", etag=first)
    with pytest.raises(PreconditionFailed):
        store.put_if_match("b", b"three", etag=first)
    store.put_if_match("a", b"three", etag=second.strip('"'))
    assert store.get("a").data == b"three"


def test_a_copy_does_not_overwrite(store: ConditionalStore) -> None:
    """It takes the metadata along, and refuses without a source or with a target."""
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


def test_a_deletion_needs_the_present_etag(store: ConditionalStore) -> None:
    """An old one, or that of nothing, is refused."""
    first = store.put_if_absent("a", b"one").etag
    second = store.put_if_match("a", b"two", etag=first).etag
    with pytest.raises(PreconditionFailed):
        store.delete_if_match("a", etag=first)
    store.delete_if_match("a", etag=second)
    with pytest.raises(PreconditionFailed):
        store.delete_if_match("a", etag=second)
    store.put_if_absent("a", b"again")


def test_a_rename_moves_an_object_to_where_nothing_is(store: ConditionalStore) -> None:
    """The source is gone afterwards; a target that is there, or the source itself, is in the way."""
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
    """Small or large, whole or not at all."""
    body = bytes(range(256)) * (size // 256 + 1)
    file = io.BytesIO(b"skip" + body[:size])
    file.seek(4)
    store.put_if_absent("a", file)
    assert store.get("a").data == body[:size]
    assert not list(store.list_staged())


def test_large_bytes_are_conditional_as_well(store: ConditionalStore) -> None:
    """Refused before the upload where the object is there, and after it otherwise."""
    etag = store.put_if_absent("a", memoryview(bytes(9 * MIB))).etag
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a", bytes(9 * MIB))
    store.put_if_match("a", bytearray(9 * MIB + 1), etag=etag)
    with pytest.raises(PreconditionFailed):
        store.put_if_match("a", bytes(9 * MIB), etag=etag)
    assert store.head("a").size == 9 * MIB + 1
    assert not list(store.list_staged())


def test_a_staged_upload_can_be_published_again(store: ConditionalStore) -> None:
    """Once it is there, another publisher of the same upload succeeds too."""
    staged = store.stage("a", b"one")
    first = store.publish_if_absent(staged)
    assert store.publish_if_absent(staged).etag == first.etag
    with pytest.raises(AlreadyExists):
        store.publish_if_absent(store.stage("a", b"two"))


def test_plain_calls_go_through(store: ConditionalStore) -> None:
    """They are the store's own."""
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
    """They stay invisible until then; a listing of uploads shows them."""
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


def test_a_bad_path_is_refused_before_anything_is_sent(store: ConditionalStore) -> None:
    """Two spellings of one object would be two leases on it."""
    for path in ("", "/a", "a//b", "../a"):
        with pytest.raises(InvalidPath):
            store.put_if_absent(path, b"")


def test_leaving_the_context_hides_no_error(tmp_path: Path) -> None:
    """Unlike a lock client that swallowed its caller's exceptions."""
    with pytest.raises(ZeroDivisionError), ConditionalStore(MemoryStore()):
        raise ZeroDivisionError


# -- what is chosen --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "lease"},
        {"mode": "always"},
        {"mode": "native", "table": open_table("memory://", LEASE_SCHEMA)},
    ],
)
def test_a_mode_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """Leases need a table, native conditions none."""
    with pytest.raises(ConfigurationError):
        ConditionalStore(MemoryStore(), **wrong)


CREATES = (Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT, Kind.PUBLISH_IF_ABSENT)
CHANGES = (Kind.PUT_IF_MATCH, Kind.PUBLISH_IF_MATCH, Kind.DELETE_IF_MATCH)


def test_auto_leaves_to_the_store_what_it_enforces() -> None:
    """Every operation of a condition is proven: one request each, and no lease."""
    world = World(mode="auto", ignores=False, probe_report=proven(*CREATES, *CHANGES))
    etag = world.client.put_if_absent("a", b"one").etag
    world.client.copy_if_absent("a", "b")
    world.client.put_if_match("a", b"two", etag=etag)
    identifying = ["put", "head"]
    assert world.script.log == ["check", *identifying, "put", "copy", "put"]


@pytest.mark.parametrize("unproven", CREATES)
def test_auto_does_not_let_creates_compete_in_two_ways(unproven: Kind) -> None:
    """If one of them needs the lease, all of them take it; changes are no rivals of theirs."""
    kinds = [kind for kind in Kind if kind is not unproven]
    world = World(mode="auto", ignores=False, probe_report=proven(*kinds))
    etag = world.client.put_if_absent("a", b"one").etag
    world.client.copy_if_absent("a", "b")
    assert world.script.log.count("take") == 4
    world.client.delete_if_match("a", etag=etag)
    assert world.script.log[-2:] == ["take", "delete"]


@pytest.mark.parametrize("unproven", CHANGES)
def test_auto_does_not_let_changes_compete_in_two_ways(unproven: Kind) -> None:
    """If one of them needs the lease, all of them take it; creates are no rivals of theirs."""
    kinds = [kind for kind in Kind if kind is not unproven]
    world = World(mode="auto", ignores=False, probe_report=proven(*kinds))
    etag = world.client.put_if_absent("a", b"one").etag
    assert world.script.log == ["check", "put", "head", "put"]  # first the identity object of the bucket
    etag = world.client.put_if_match("a", b"two", etag=etag).etag
    world.client.delete_if_match("a", etag=etag)
    assert world.script.log.count("take") == 4


def test_without_a_table_each_operation_stands_alone() -> None:
    """What is proven is native; what is not is refused, and so competes with nothing."""
    world = World(mode="native", ignores=False, probe_report=proven(Kind.PUT_IF_ABSENT))
    world.client.put_if_absent("a", b"one")
    with pytest.raises(NotSupported, match="copy-if-absent"):
        world.client.copy_if_absent("a", "b")


def test_without_a_table_nothing_unproven_is_sent() -> None:
    """Never a silent plain write: the message says what is missing."""
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


def test_what_is_not_known_is_measured_once() -> None:
    """The first call of a kind probes; later ones rely on it."""
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


def test_a_rename_that_cannot_remove_its_source_is_not_begun() -> None:
    """Nothing is copied where the deletion would be refused."""
    world = World(mode="native", ignores=False, probe_report=proven(Kind.COPY_IF_ABSENT))
    world.objects.put("a", b"one")
    with pytest.raises(NotSupported, match="delete-if-match"):
        world.client.rename_if_absent("a", "b")
    assert [info.path for info in world.objects.list()] == ["a"]


# -- renames that get stuck ------------------------------------------------------------------------


def test_a_rename_whose_deletion_fails_says_that_both_exist() -> None:
    """No typed failure, which would say that nothing happened."""
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
    """Somebody wrote to it since it was copied."""
    world = World()
    world.objects.put("a", b"one")
    world.script.next("copy", lambda perform: (perform(), world.objects.put("a", b"two"))[0])
    with pytest.raises(OutcomeUnknown) as caught:
        world.client.rename_if_absent("a", "b")
    assert isinstance(caught.value.__cause__, PreconditionFailed)
    assert world.objects.get("a").data == b"two"


def test_a_rename_survives_lost_answers_under_a_lease() -> None:
    """Both of its steps are settled by reading back."""
    world = World(settings=LeaseSettings(timeout=5.0))
    world.client.put_if_absent("a", b"one")
    world.script.next("copy", lost_after)
    world.script.next("delete", lost_after)
    world.client.rename_if_absent("a", "b")
    assert [info.path for info in world.objects.list()] == ["b"]


def _own(world: World) -> list[str]:
    """Return the paths of all objects but that which identifies the bucket."""
    paths = [info.path for info in world.objects.list()]
    return [path for path in paths if not path.startswith(IDENTITY_PREFIX)]
