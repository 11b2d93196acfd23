"""Linking many files independently: an error of one file does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    IsADirectory,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.namespace import LINK_BATCH_SIZE, Data, Namespace, Status
from commitlog.namespaces import create_namespace
from support.namespace import (
    Auditor,
    InterceptedTable,
    atomic_links,
    objects_in,
    watched_transactions,
)
from support.restore import world


@pytest.fixture
def lake() -> Iterator[Namespace]:
    """A new namespace; it is audited after the test."""
    with create_namespace("lake", store="memory://", metadata="memory://", log=False) as namespace:
        yield namespace
        Auditor(namespace.table, "lake", namespace.store).audit()


@pytest.fixture
def transactions(lake: Namespace, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of writes of each transaction after the creation of the namespace."""
    return watched_transactions(monkeypatch)


def stored(lake: Namespace, *paths: str) -> dict[str, Data]:
    """Upload content for each path; the content is the path."""
    return {path: lake.upload(path.encode()) for path in paths}


def kinds(made: Mapping[str, Status | CommitError]) -> dict[str, str]:
    """Return the type of each result."""
    return {path: type(each).__name__ for path, each in made.items()}


def objects(lake: Namespace) -> set[str]:
    """Return the paths of the objects in the store."""
    return {info.path for info in objects_in(lake.store)}


def test_files_without_errors_take_one_transaction(lake: Namespace, transactions: list[int]) -> None:
    """All appear at once, in any directories; the results have the order of the arguments."""
    made = lake.link_many(stored(lake, "b/2", "a", "b/1"), atomic=False)
    assert [status.path for status in made.values() if isinstance(status, Status)] == list(made)
    assert list(made) == ["b/2", "a", "b/1"]
    assert lake.read("b/1") == b"b/1"
    assert len(transactions) == 1
    assert lake.link_many({}, atomic=False) == {}


def test_each_file_has_its_own_error(lake: Namespace) -> None:
    """The other files are made; the content of the failed ones is removed."""
    lake.write("file", b"")
    lake.make_directory("d/taken")
    paths = [f"d/{number:02}" for number in range(LINK_BATCH_SIZE)]
    files = stored(lake, *paths[:9], "d/taken", *paths[9:], "file/x", "a//b", "d/30/below")
    made = lake.link_many(files, atomic=False)
    wrong = {"d/taken": IsADirectory, "file/x": NotADirectory, "d/30/below": NotADirectory}
    assert kinds({path: made[path] for path in wrong}) == {
        path: error.__name__ for path, error in wrong.items()
    }
    assert kinds(made)["a//b"] == "InvalidPath"
    assert all(isinstance(made[path], Status) for path in paths)
    named = {status.data.path for status in lake.walk() if status.data is not None}
    assert objects(lake) == named


def test_options_apply_to_each_file(lake: Namespace) -> None:
    """`overwrite` and `parents` work as for a single link."""
    lake.write("a", b"old")
    made = lake.link_many(stored(lake, "a", "d/x", "b"), overwrite=False, parents=False, atomic=False)
    assert kinds(made) == {"a": AlreadyExists.__name__, "d/x": NotFound.__name__, "b": "Status"}
    assert lake.read("a") == b"old"


def test_many_files_take_several_transactions(lake: Namespace, transactions: list[int]) -> None:
    """Files in new directories and replaced files take more writes than others."""
    paths = [f"{number}/x" for number in range(LINK_BATCH_SIZE)]
    assert set(kinds(lake.link_many(stored(lake, *paths), atomic=False)).values()) == {"Status"}
    assert len(transactions) > 1 and max(transactions) <= 100
    transactions.clear()
    paths = [f"d/{number}" for number in range(LINK_BATCH_SIZE)]
    for _ in range(2):
        lake.link_many(stored(lake, *paths), atomic=False)
    assert len(transactions) == 2  # new files, and replaced files


@pytest.mark.parametrize("stable", [True, False])
def test_files_of_a_bulk_link_go_into_one_directory(stable: bool) -> None:
    """Its path leads to another one before all files are made: the error says how many were made."""
    at = world()
    at.lake.make_directory("d")
    files = {f"{n:03}": Data(path=f"raw/{n}", size=1, etag='"1"', own=False) for n in range(150)}
    wire = InterceptedTable(at.table)
    lake = Namespace(
        wire, at.store, "lake", clock=at.clock, log=at.log, backoff=at.backoff, stable_paths=stable
    )

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and wire.requests[what] == 2:
            at.lake.rename("d", "moved")
            at.lake.write("d/other", b"")
            at.lake.delete("moved/000")
            at.lake.write("moved/149", b"")
        perform()

    wire.step = step
    with pytest.raises(Conflict, match=r"another directory at .d. now: .* of 150"):
        lake.bulk_link("d", files)
    assert [each.name for each in at.lake.list("d")] == ["other"]
    assert at.lake.maintenance.fsck(grace=0).is_clean


@pytest.mark.parametrize("error", [OutcomeUnknown, Unavailable])
def test_an_error_of_the_table_applies_to_all_files(
    lake: Namespace, monkeypatch: pytest.MonkeyPatch, error: type[CommitError]
) -> None:
    """They are not retried one by one; their content is kept if a file may refer to it."""
    files = stored(lake, *"abcdefgh")
    calls = 0

    def link_many(*_: Any, **__: Any) -> None:
        nonlocal calls
        calls += 1
        raise error("no answer")

    monkeypatch.setattr(Namespace, "link_many", atomic_links(link_many))
    made = lake.link_many(files, atomic=False)
    assert calls == 1
    assert set(kinds(made).values()) == {error.__name__} and made.keys() == files.keys()
    left = {data.path for data in files.values()} if error is OutcomeUnknown else set()
    assert objects(lake) == left
