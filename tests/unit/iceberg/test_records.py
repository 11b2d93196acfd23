"""The records of a catalog: their rules, and what is read while others change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    Conflict,
    CorruptRecord,
    FormatTooNew,
    OutcomeUnknown,
    PreconditionFailed,
)
from commitlog.iceberg.model import (
    NAMES,
    REMEMBERED,
    Names,
    NamespaceExists,
    NamespaceMissing,
    NotEmpty,
    Pointer,
    TableEntry,
    TableExists,
    TableMissing,
)
from commitlog.iceberg.records import CatalogRecords
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.torn_reads import TRIES
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.torn_store import TornStore

ENTRY = TableEntry(id="1", metadata_location="file:///m0")


@pytest.fixture
def store() -> ConditionalStore:
    """An empty store."""
    return ConditionalStore(MemoryStore(), clock=ManualClock())


def records_of(store: ConditionalStore) -> CatalogRecords:
    """Return a client of the catalog in `store`."""
    return CatalogRecords(store, clock=ManualClock(), backoff=Backoff(tries=3))


def filled(store: ConditionalStore) -> CatalogRecords:
    """Return a client of a catalog with the table ``a.t``."""
    records = records_of(store)
    records.change(lambda names: names.create_namespace(("a",), {}).create_table(("a", "t"), ENTRY))
    return records


NAMES_BEFORE = (
    Names()
    .create_namespace(("a",), {"x": "1"})
    .create_namespace(("p", "c"), {})
    .create_table(("a", "t"), ENTRY)
)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda names: names.create_namespace(("a",), {}), NamespaceExists),
        (lambda names: names.create_namespace(("p",), {}), NamespaceExists),
        (lambda names: names.drop_namespace(("a",)), NotEmpty),
        (lambda names: names.drop_namespace(("p",)), NotEmpty),
        (lambda names: names.drop_namespace(("b",)), NamespaceMissing),
        (lambda names: names.set_properties(("b",), {}), NamespaceMissing),
        (lambda names: names.create_table(("b", "t"), ENTRY), NamespaceMissing),
        (lambda names: names.create_table(("a", "t"), ENTRY), TableExists),
        (lambda names: names.rename_table(("a", "u"), ("a", "v")), TableMissing),
        (lambda names: names.rename_table(("a", "t"), ("b", "t")), NamespaceMissing),
        (lambda names: names.rename_table(("a", "t"), ("a", "t")), TableExists),
        (lambda names: names.drop_table(("a", "u")), TableMissing),
        (lambda names: names.tables_in(("b",)), NamespaceMissing),
    ],
)
def test_a_change_against_a_rule(change: Callable[[Names], object], error: type[Exception]) -> None:
    """Each rule has its error."""
    with pytest.raises(error):
        change(NAMES_BEFORE)


def test_a_parent_exists_while_something_is_below_it() -> None:
    """A namespace that was not created exists as long as it has a namespace or a table."""
    assert NAMES_BEFORE.has_namespace(("p",))
    assert not NAMES_BEFORE.drop_namespace(("p", "c")).has_namespace(("p",))
    moved = NAMES_BEFORE.rename_table(("a", "t"), ("p", "t")).drop_namespace(("p", "c"))
    assert moved.namespaces_in(()) == [("a",), ("p",)]
    assert moved.tables_in(("p",)) == [("p", "t")]


def test_records_are_read_as_they_were_written() -> None:
    """Names and pointers keep all of their fields, and the last changes only."""
    names = NAMES_BEFORE
    for number in range(REMEMBERED + 1):
        names = names.changed(f"change {number}")
    assert len(names.changes) == REMEMBERED and names.changes[0] == f"change {REMEMBERED}"
    document = decode(encode(names.to_document()), {NAMES}, path="names.json")
    assert Names.from_document(document, "e") == names
    pointer = first = Pointer(table="1", metadata_location="m0")
    for number in range(REMEMBERED + 1):
        pointer = pointer.moved(f"m{number + 1}")
    assert pointer.version == REMEMBERED + 1
    assert Pointer.from_document(pointer.to_document(), "e", table="1") == pointer
    assert pointer.shows_move("m1", first)
    # After 33 moves, "m0" may have been a move after the first one only if there was one more.
    assert pointer.shows_move("other", first) is False
    assert pointer.moved("more").shows_move("other", first) is None
    assert names.shows_change(f"change {REMEMBERED}", NAMES_BEFORE)
    assert names.shows_change("other", NAMES_BEFORE.changed("x")) is False
    assert names.shows_change("other", NAMES_BEFORE) is None


@pytest.mark.parametrize(
    "body",
    [
        {"version": 1},
        {"version": -1, "changes": [], "namespaces": [], "tables": []},
        {"version": 1, "changes": [1], "namespaces": [], "tables": []},
        {"version": 1, "changes": [], "namespaces": [{"levels": []}], "tables": []},
        {"version": 1, "changes": [], "namespaces": [{"levels": ["a"]}], "tables": []},
        {"version": 1, "changes": [], "namespaces": [], "tables": [{"levels": ["a", "t"], "id": 1}]},
    ],
)
def test_a_damaged_record_is_refused(store: ConditionalStore, body: dict[str, Any]) -> None:
    """It is not overwritten."""
    data = encode(Document(NAMES, body))
    store.put("names.json", data)
    with pytest.raises(CorruptRecord):
        records_of(store).change(lambda names: names.create_namespace(("a",), {}))
    assert store.get("names.json").data == data


def test_a_record_of_a_newer_version_is_refused(store: ConditionalStore) -> None:
    """Its other fields are not read."""
    store.put("names.json", b'{"format":9,"kind":"iceberg-names"}')
    with pytest.raises(FormatTooNew):
        records_of(store).names()


def test_changes_of_names_come_one_after_another(store: ConditionalStore) -> None:
    """A change that another client came before is made again with the newer names, a few times."""
    records, other = records_of(store), records_of(store)

    def edit(names: Names) -> Names:
        if names.version < most:
            other.change(lambda before: before.create_namespace((f"n{before.version}",), {}))
        return names.create_namespace(("mine",), {})

    most = 2
    records.change(edit)
    assert records.names().namespaces_in(()) == [("mine",), ("n0",), ("n1",)]
    most = 99
    with pytest.raises(Conflict, match="in every try; nothing was written"):
        records.change(lambda names: edit(names.drop_namespace(("mine",))))
    assert records.names().has_namespace(("mine",))


def test_pointers_move_from_what_was_read(store: ConditionalStore) -> None:
    """A pointer that was moved since it was read is not moved; also the first time."""
    records = filled(store)
    first = records.find(("a", "t"))
    assert first.metadata_location == ENTRY.metadata_location
    records.move(first, "m1")
    with pytest.raises((PreconditionFailed, FileExistsError)):
        records.move(first, "m2")
    second = records.find(("a", "t"))
    assert (second.metadata_location, second.previous) == ("m1", ("file:///m0",))
    records.move(second, "m2")
    with pytest.raises(PreconditionFailed):
        records.move(second, "m3")
    records.change(lambda names: names.rename_table(("a", "t"), ("a", "u")))
    assert records.find(("a", "u")).metadata_location == "m2"


def test_a_table_that_is_dropped_while_it_is_found(
    store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first location is not taken for the present one, even if another table has its name."""
    records, other = filled(store), records_of(store)
    records.move(records.find(("a", "t")), "m1")
    read = records._read

    def drop_before_reading(table: str) -> Pointer | None:
        monkeypatch.undo()
        other.remove(other.drop(("a", "t")).id)
        if replaced:
            new = TableEntry(id="2", metadata_location="n0")
            other.change(lambda names: names.create_table(("a", "t"), new))
        return read(table)

    replaced = True
    monkeypatch.setattr(records, "_read", drop_before_reading)
    assert records.find(("a", "t")).metadata_location == "n0"
    replaced = False
    monkeypatch.setattr(records, "_read", drop_before_reading)
    with pytest.raises(TableMissing):
        records.find(("a", "t"))


def test_leftovers_are_pointers_without_a_name(store: ConditionalStore) -> None:
    """Pointers of tables with a name are none."""
    records = filled(store)
    records.move(records.find(("a", "t")), "m1")
    assert records.leftovers() == []
    entry = records.drop(("a", "t"))
    assert records.pointer(entry).metadata_location == "m1"
    assert records.leftovers() == ["1"]
    records.remove("1")
    assert records.leftovers() == []
    assert records.pointer(entry).metadata_location == ENTRY.metadata_location


def test_records_that_are_replaced_while_they_are_read_are_read_again() -> None:
    """Each may be cut to the length of the one before. A record that stays damaged is corrupt."""
    clock = ManualClock()
    memory = TornStore(clock=clock)
    records = CatalogRecords(ConditionalStore(memory, clock=clock), clock=clock)
    records.change(lambda names: names.create_namespace(("a",), {}).create_table(("a", "t"), ENTRY))
    records.move(records.find(("a", "t")), "file:///m1")
    for read in (records.names, lambda: records.find(("a", "t")), lambda: records.pointer(ENTRY)):
        memory.torn = 1
        assert read()
        assert not memory.torn
        memory.torn = 1_000
        with pytest.raises(CorruptRecord, match="left as it is"):
            read()
        assert memory.torn == 1_000 - TRIES


def test_a_pointer_of_another_table_is_corrupt(store: ConditionalStore) -> None:
    """Otherwise a commit would move the pointer of that table."""
    records = filled(store)
    store.put("pointers/1.json", encode(Pointer(table="2", metadata_location="m").to_document()))
    with pytest.raises(CorruptRecord, match="it is the pointer of table '2'"):
        records.find(("a", "t"))


def test_a_refusal_that_no_record_explains_any_more_is_unknown(store: ConditionalStore) -> None:
    """The first of two equal requests may have moved the pointer, before many other moves."""
    records = filled(store)
    before = records.find(("a", "t"))
    for number in range(REMEMBERED + 2):
        records.move(records.find(("a", "t")), f"m{number}")
    with pytest.raises(OutcomeUnknown, match="changed too often"):
        records.move(before, "late")
