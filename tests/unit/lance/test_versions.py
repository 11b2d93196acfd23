"""The versions of a table: created once, whatever became of the answers."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.lance.versions import TableVersions
from commitlog.stores import MemoryStore, WriteOperation
from commitlog.stores.api import Page
from commitlog.testing import ManualClock

TABLE = "t-1.lance"
TOP = 2**64 - 1


def name(version: int) -> str:
    """Return the name of a version's manifest in the scheme V2."""
    return f"{TOP - version:020}.manifest"


def stage(store: Any, version: int, writer: str, *, where: str = TABLE) -> str:
    """Stage a manifest as Lance does, and return its name."""
    staged = f"{name(version)}-{writer}"
    store.put(f"{where}/_versions/{staged}", f"manifest of {writer}".encode())
    return staged


class UnsortedStore(MemoryStore):
    """A store that lists objects from the last one, as some servers list them in no order."""

    def list_page(self, *args: Any, **options: Any) -> Page:
        page = super().list_page(*args, **options)
        return evolve(page, objects=page.objects[::-1])


class FaultyStore(MemoryStore):
    """A store whose next copies end in other ways than they should. Each fault is taken once."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[tuple[bool, Exception]] = []

    def copy(self, source: str, target: str, **options: Any) -> Any:
        if not self.faults:
            return super().copy(source, target, **options)
        lands, error = self.faults.pop(0)
        if lands:
            super().copy(source, target, **options)
        raise error


@pytest.fixture
def raw() -> FaultyStore:
    """The store itself."""
    return FaultyStore()


@pytest.fixture
def store(raw: FaultyStore) -> ConditionalStore:
    """Conditional writes to it."""
    return ConditionalStore(raw, clock=ManualClock())


@pytest.fixture
def versions(store: ConditionalStore) -> TableVersions:
    """The versions of a table in it."""
    return TableVersions(store, TABLE)


def test_the_latest_version_of_an_unsorted_listing() -> None:
    """All versions are looked at then."""
    store = ConditionalStore(UnsortedStore(), clock=ManualClock())
    versions = TableVersions(store, TABLE)
    for version in (1, 2, 3):
        versions.create(version, stage(store, version, "A"))
    latest = versions.latest()
    assert latest is not None and latest.version == 3


def test_a_version_is_created_from_its_staged_manifest(
    store: ConditionalStore, versions: TableVersions
) -> None:
    """It has the bytes of the manifest, whose staging name is gone then."""
    assert versions.latest() is None
    created = versions.create(1, stage(store, 1, "A"))
    assert created.path == f"{TABLE}/_versions/{name(1)}"
    assert [info.path for info in store.list()] == [created.path]
    assert store.get(created.path).data == b"manifest of A"
    latest = versions.latest()
    assert latest is not None
    assert (latest.version, latest.size, latest.etag) == (1, 13, created.etag)


def test_the_second_writer_of_a_version_is_refused(
    store: ConditionalStore, versions: TableVersions
) -> None:
    """The first one's manifest stays, and the second one's remains staged."""
    versions.create(1, stage(store, 1, "A"))
    staged = stage(store, 1, "B")
    with pytest.raises(AlreadyExists):
        versions.create(1, staged)
    assert store.get(f"{TABLE}/_versions/{name(1)}").data == b"manifest of A"
    assert store.get(f"{TABLE}/_versions/{staged}").data == b"manifest of B"


def test_an_own_copy_that_was_repeated_on_the_way_is_a_success(
    raw: FaultyStore, store: ConditionalStore, versions: TableVersions
) -> None:
    """A proxy sends the copy twice, and passes on the refusal of the second."""
    raw.faults.append((True, AlreadyExists("of the second request")))
    assert versions.create(1, stage(store, 1, "A")).version == 1


def test_a_lost_answer_of_a_copy_that_landed_is_a_success(
    raw: FaultyStore, store: ConditionalStore, versions: TableVersions
) -> None:
    """The committer finds the target, and cannot know whose it is; the bytes tell."""
    raw.faults.append((True, OutcomeUnknown("lost")))
    assert versions.create(1, stage(store, 1, "A")).version == 1
    assert versions.latest() is not None


def test_a_lost_answer_and_the_version_of_another_writer_is_a_conflict(
    raw: FaultyStore, store: ConditionalStore, versions: TableVersions
) -> None:
    """What is there has other bytes, so the own copy did not land, and cannot any more."""
    versions.create(1, stage(store, 1, "B"))
    raw.faults.append((False, OutcomeUnknown("lost")))
    with pytest.raises(AlreadyExists, match="another writer created"):
        versions.create(1, stage(store, 1, "A"))


def test_a_lost_answer_without_a_version_stays_unknown(
    raw: FaultyStore, store: ConditionalStore, versions: TableVersions
) -> None:
    """It may land later, so it is neither a conflict nor a failure, and stays staged."""
    raw.faults += [(False, OutcomeUnknown("lost"))] * 20
    staged = stage(store, 1, "A")
    with pytest.raises(OutcomeUnknown):
        versions.create(1, staged)
    assert store.head(f"{TABLE}/_versions/{staged}")


def test_a_refusal_that_cannot_be_read_back_is_unknown(
    raw: FaultyStore, store: ConditionalStore, versions: TableVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be that of a repeated request, so it does not prove a conflict."""
    staged = stage(store, 1, "A")
    raw.faults.append((True, AlreadyExists("of the second request")))

    def fail(*_: Any, **__: Any) -> Any:
        raise Unavailable("down")

    monkeypatch.setattr(raw, "get", fail)
    with pytest.raises(OutcomeUnknown, match="reading it back failed"):
        versions.create(1, staged)


def test_a_missing_staged_manifest_creates_nothing(versions: TableVersions) -> None:
    """There is nothing to copy."""
    with pytest.raises(NotFound):
        versions.create(1, f"{name(1)}-gone")
    assert versions.latest() is None


def test_a_store_without_conditional_copies_gets_a_conditional_put(raw: FaultyStore) -> None:
    """As ministack and Ceph, where only a put takes a condition."""
    conditions = {k: v for k, v in raw.capabilities.conditions.items() if k is not WriteOperation.COPY}
    raw.capabilities = evolve(raw.capabilities, conditions=conditions)
    store = ConditionalStore(raw)
    versions = TableVersions(store, TABLE)
    versions.create(1, stage(store, 1, "A"))
    with pytest.raises(AlreadyExists):
        versions.create(1, stage(store, 1, "B"))
    assert store.get(f"{TABLE}/_versions/{name(1)}").data == b"manifest of A"


def test_a_store_without_conditions_is_refused(raw: FaultyStore) -> None:
    """The error names the way out: a table of leases."""
    raw.capabilities = evolve(raw.capabilities, conditions={})
    store = ConditionalStore(raw)
    with pytest.raises(NotSupported, match="table"):
        TableVersions(store, TABLE).create(1, stage(store, 1, "A"))


def test_the_latest_version_comes_first(store: ConditionalStore, versions: TableVersions) -> None:
    """Also behind many staged manifests of later versions, and other files of Lance."""
    for version in range(1, 13):
        versions.create(version, stage(store, version, "A"))
    for number in range(50):
        stage(store, 13, f"dead-{number}")
    store.put(f"{TABLE}/_versions/latest_version_hint.json", b"{}")
    store.put(f"{TABLE}/_versions/d{2**63 + 1}.manifest", b"detached")
    latest = versions.latest()
    assert latest is not None
    assert latest.version == 12
    assert [each.version for each in versions.list()] == list(range(12, 0, -1))


def test_names_of_the_older_scheme_are_read_and_written(
    store: ConditionalStore, versions: TableVersions
) -> None:
    """V1 counts up, so that a listing does not begin with the latest."""
    for version in (1, 2, 10):
        store.put(f"{TABLE}/_versions/{version}.manifest-a", b"%d" % version)
        versions.create(version, f"{version}.manifest-a", scheme="V1")
    latest, found = versions.latest(), versions.find(2)
    assert latest is not None
    assert latest.version == 10
    assert found is not None
    assert found.path == f"{TABLE}/_versions/2.manifest"
    assert versions.find(3) is None


def test_a_branch_has_versions_of_its_own(store: ConditionalStore, versions: TableVersions) -> None:
    """They are where Lance keeps them, in ``tree/``."""
    branch = TableVersions(store, TABLE, branch="dev/a")
    created = branch.create(3, stage(store, 3, "A", where=f"{TABLE}/tree/dev/a"))
    assert created.path == f"{TABLE}/tree/dev/a/_versions/{name(3)}"
    assert versions.latest() is None
    with pytest.raises(ConfigurationError):
        TableVersions(store, TABLE, branch="../other")


def test_old_versions_are_deleted(store: ConditionalStore, versions: TableVersions) -> None:
    """The latest is not: its number would be given out again."""
    for version in range(1, 6):
        versions.create(version, stage(store, version, "A"))
    with pytest.raises(NotSupported, match="version 5 is the latest"):
        versions.delete([(1, -1)])
    assert versions.delete([(1, 3), (4, 5)]) == 3
    assert [each.version for each in versions.list()] == [5, 3]


@pytest.mark.parametrize(
    ("version", "staged", "scheme", "message"),
    [
        (0, "1.manifest-a", "V2", "not the number of a version"),
        (2**63 + 5, "1.manifest-a", "V2", "Detached commits"),
        (1, "1.manifest-a", "V3", "naming scheme"),
        (1, "1.manifest", "V2", "staged manifest"),
        (1, "../1.manifest-a", "V2", "staged manifest"),
    ],
)
def test_names_that_are_not_of_lance_are_refused(
    versions: TableVersions, version: int, staged: str, scheme: str, message: str
) -> None:
    """Nothing is sent for them."""
    with pytest.raises(ConfigurationError, match=message):
        versions.create(version, staged, scheme=scheme)
