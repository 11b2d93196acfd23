"""A lost answer becomes a success or an unknown outcome, never a failure; then no file is deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.commit.probe_report import Kind
from commitlog.errors import Conflict, LeaseTimeout, OutcomeUnknown, Unavailable
from commitlog.iceberg import Catalog
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.commit import Fate, Script, ScriptedStore, lost_after, lost_before, proven, raising
from support.iceberg import ROWS, SCHEMA, threads_end  # noqa: F401


@frozen(kw_only=True)
class World:
    """A catalog whose requests follow a script, another client of it, and the directory of tables."""

    script: Script
    catalog: Catalog
    other: Catalog
    files: Path

    def metadata_files(self) -> int:
        """Return the number of metadata files."""
        return len(list(self.files.rglob("*.metadata.json")))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A catalog with the table ``a.t``, which has three rows."""
    server, script = MemoryStore(), Script()
    scripted = ConditionalStore(
        ScriptedStore(server, script, ignores=False),
        clock=ManualClock(),
        backoff=Backoff(tries=2),
        probe_report=proven(*Kind, url=server.url),
    )
    properties = {"warehouse": f"file://{tmp_path}"}
    with (
        Catalog("one", store=scripted, **properties) as catalog,
        Catalog("other", store=ConditionalStore(server), **properties) as other,
    ):
        catalog.create_namespace("a")
        catalog.create_table("a.t", SCHEMA, properties={"commit.retry.num-retries": "0"}).append(ROWS)
        yield World(script=script, catalog=catalog, other=other, files=tmp_path)


def overtaken(call: Callable[[], object], *, first: Fate) -> Fate:
    """Return a fate after which another client changes the same record, and the answer is lost."""

    def fate(perform: Callable[[], Any]) -> Any:
        try:
            first(perform)
        finally:
            call()

    return fate


def test_a_commit_whose_answer_is_lost_succeeds(world: World) -> None:
    """The pointer has the new location."""
    table = world.catalog.load_table("a.t")
    world.script.next("put", lost_after)
    table.append(ROWS)
    assert world.other.load_table("a.t").scan().to_arrow().num_rows == 6


def test_a_commit_that_was_built_upon_succeeds(world: World) -> None:
    """Its answer is lost, and another commit follows before the pointer is read back."""
    table = world.catalog.load_table("a.t")
    follow = overtaken(lambda: world.other.load_table("a.t").append(ROWS), first=lost_after)
    world.script.next("put", follow)
    table.append(ROWS)
    assert world.other.load_table("a.t").scan().to_arrow().num_rows == 9


def test_a_commit_that_may_have_happened_is_unknown(world: World) -> None:
    """Another commit is there, and the request may still be on its way. All files are kept."""
    table = world.catalog.load_table("a.t")
    before = world.metadata_files()
    rival = overtaken(lambda: world.other.load_table("a.t").append(ROWS), first=lost_before)
    world.script.next("put", rival)
    with pytest.raises(CommitStateUnknownException):
        table.append(ROWS)
    assert world.metadata_files() == before + 2
    assert len(list(world.files.rglob("*.parquet"))) == 3
    assert world.other.load_table("a.t").scan().to_arrow().num_rows == 6


def test_an_outcome_that_cannot_be_read_is_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the pointer cannot be read after a lost answer, the commit is not called a failure."""
    table = world.catalog.load_table("a.t")
    store: Any = world.catalog._store

    def lose(*_: object, **__: object) -> None:
        monkeypatch.setattr(store, "get", _unavailable)
        raise OutcomeUnknown("lost")

    monkeypatch.setattr(store, "put_if_match", lose)
    with pytest.raises(CommitStateUnknownException, match="lost"):
        table.append(ROWS)


@pytest.mark.parametrize("change", ["created", "renamed"])
def test_a_changed_table_that_cannot_be_loaded_is_no_failure(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Its name is there, so the error does not say that nothing happened."""
    store: Any = world.catalog._store
    put = store.put_if_match

    def then_fail(*arguments: Any, **options: Any) -> Any:
        result = put(*arguments, **options)
        monkeypatch.setattr(store, "get", _unavailable)
        return result

    calls: dict[str, Callable[[], object]] = {
        "created": lambda: world.catalog.create_table("a.new", SCHEMA),
        "renamed": lambda: world.catalog.rename_table("a.t", "a.new"),
    }
    monkeypatch.setattr(store, "put_if_match", then_fail)
    with pytest.raises(CommitStateUnknownException, match=f"Table a.new was {change}, .*down"):
        calls[change]()
    assert world.other.table_exists("a.new")


def _unavailable(*_: object, **__: object) -> None:
    raise Unavailable("down")


@pytest.mark.parametrize("error", [Conflict("x"), LeaseTimeout("x"), Unavailable("x")], ids=repr)
def test_a_commit_that_did_not_happen_can_be_made_again(world: World, error: Exception) -> None:
    """It fails with the error after which pyiceberg tries again, and its metadata file is removed."""
    table = world.catalog.load_table("a.t")
    before = world.metadata_files()
    world.script.next("put", *[raising(error)] * 2)
    with pytest.raises(CommitFailedException, match=r"Table a\.t was not changed"):
        table.append(ROWS)
    assert world.metadata_files() == before
    world.other.load_table("a.t").append(ROWS)


def test_an_overtaken_commit_fails(world: World) -> None:
    """The other commit stays, and the metadata file of the failed one is removed."""
    table = world.catalog.load_table("a.t")

    def rival(perform: Callable[[], Any]) -> Any:
        world.other.load_table("a.t").append(ROWS)
        return perform()

    world.script.next("put", rival)
    before = world.metadata_files()
    with pytest.raises(CommitFailedException):
        table.append(ROWS)
    assert world.metadata_files() == before + 1
    assert world.other.load_table("a.t").scan().to_arrow().num_rows == 6


def test_a_commit_to_a_dropped_table_fails(world: World) -> None:
    """A commit that began before the drop has an unknown outcome: nothing shows it any more."""
    table = world.catalog.load_table("a.t")

    def rival(perform: Callable[[], Any]) -> Any:
        world.other.drop_table("a.t")
        return perform()

    world.script.next("put", rival)
    with pytest.raises(CommitStateUnknownException, match="the table was dropped"):
        table.append(ROWS)
    with pytest.raises(NoSuchTableError):
        table.append(ROWS)


def test_a_commit_that_a_proxy_repeats_succeeds(world: World) -> None:
    """The second request is refused, also if another commit has followed the first one."""
    table = world.catalog.load_table("a.t")

    def repeat(perform: Callable[[], Any]) -> Any:
        perform()
        world.other.load_table("a.t").append(ROWS)
        return perform()

    world.script.next("put", repeat)
    table.append(ROWS)
    assert world.other.load_table("a.t").scan().to_arrow().num_rows == 9


@pytest.mark.parametrize("fate", [lost_after, lost_before], ids=["after", "before"])
@pytest.mark.parametrize("overtake", [False, True], ids=["alone", "overtaken"])
def test_a_change_of_names_whose_answer_is_lost(world: World, fate: Fate, overtake: bool) -> None:
    """It succeeds if the names show it, is made again if it cannot happen any more, or is unknown."""
    rival = overtaken(lambda: world.other.create_namespace("b"), first=fate)
    world.script.next("put", rival if overtake else fate)
    if overtake and fate is lost_before:
        with pytest.raises(CommitStateUnknownException):
            world.catalog.rename_table("a.t", "a.u")
        assert world.other.list_tables("a") == [("a", "t")]
    else:
        assert world.catalog.rename_table("a.t", "a.u").name() == ("a", "u")
        assert world.other.list_tables("a") == [("a", "u")]


def test_a_table_whose_creation_is_unknown_keeps_its_file(world: World) -> None:
    """The table may exist, so its metadata file stays."""
    before = world.metadata_files()
    rival = overtaken(lambda: world.other.create_namespace("b"), first=lost_before)
    world.script.next("put", rival)
    with pytest.raises(CommitStateUnknownException):
        world.catalog.create_table("a.u", SCHEMA)
    assert world.metadata_files() == before + 1


def test_of_two_creations_one_wins(world: World) -> None:
    """The file of the other is removed."""
    before = world.metadata_files()

    def rival(perform: Callable[[], Any]) -> Any:
        world.other.create_table("a.u", SCHEMA)
        return perform()

    world.script.next("put", rival)
    with pytest.raises(TableAlreadyExistsError):
        world.catalog.create_table("a.u", SCHEMA)
    assert world.metadata_files() == before + 1
    assert world.catalog.load_table("a.u").metadata == world.other.load_table("a.u").metadata


def test_a_pointer_that_a_drop_leaves_is_removed_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The table is dropped all the same, and `remove_leftovers` finds the pointer."""
    world.script.next("delete", raising(Unavailable("down")))
    with caplog.at_level(logging.WARNING):
        world.catalog.drop_table("a.t")
    assert "is left: down" in caplog.text
    assert not world.other.table_exists("a.t")
    assert (world.other.remove_leftovers(), world.other.remove_leftovers()) == (1, 0)


def test_a_purge_keeps_a_table_that_has_its_name_since(world: World) -> None:
    """A purge deletes the files of the table that it drops, whatever had the name before."""
    world.catalog.create_table("a.u", SCHEMA).append(ROWS)

    def swap(perform: Callable[[], Any]) -> Any:
        world.other.rename_table("a.t", "a.kept")
        world.other.rename_table("a.u", "a.t")
        return perform()

    world.script.next("put", swap)
    world.catalog.purge_table("a.t")
    assert world.other.list_tables("a") == [("a", "kept")]
    assert world.other.load_table("a.kept").scan().to_arrow().num_rows == 3
