"""Any data in place of a record of a lock, an Iceberg or a Lance catalog is read as stored, or refused.

These records are replaced. A record that can be read is valid, and so is the next change of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
from attrs import frozen
from hypothesis import strategies as st

from commitlog._util.background import Foreground
from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.commit.record import LOCK, LeaseRecord
from commitlog.errors import CommitError, CorruptRecord, FormatTooNew, StaleToken
from commitlog.iceberg.model import (
    Names,
    NamespaceExists,
    Pointer,
    TableEntry,
)
from commitlog.iceberg.records import CatalogRecords
from commitlog.lance.catalog import LanceCatalog
from commitlog.locks import FencedStore, Lock, LockSettings
from commitlog.oplog.codec import Document, encode
from commitlog.stores import MemoryStore
from commitlog.testing import ManualClock
from support.fuzzing import (
    Properties,
    damaged_bytes,
    damaged_json,
    dumps,
    outcome,
    replaced,
    says,
    sealed,
    texts,
    wild_json,
    wild_texts,
)

fuzz = Properties()

#: One read of a damaged record, so that an example takes no pauses.
ONCE = Backoff(tries=1)
SETTINGS = LockSettings(timeout=10, max_clock_skew_rate=1)

TABLE = ("a", "b", "t")
ENTRY = TableEntry(id="1", metadata_location="s3://bucket/0.json")
NAMES_RECORD = (
    Names()
    .create_namespace(("a",), {"owner": "ü"})
    .create_namespace(("a", "b"), {})
    .create_table(TABLE, ENTRY)
    .create_table(("a", "other"), TableEntry(id="2", metadata_location="s3://bucket/1.json"))
    .changed("first")
    .changed("second")
)
POINTER_RECORD = Pointer(table="1", metadata_location="s3://bucket/0.json").moved("m1").moved("m2")
LOCK_RECORD = LeaseRecord(
    path="locks/a",
    etag=LOCK,
    generation=1_800_000_000_003,
    timeout=10_000,
    ttl=253_402_300_799,
    owner="0123456789abcdef" * 2,
    token=1_800_000_000_001,
    holder="host ü",
)


def stored(path: str, data: bytes) -> ConditionalStore:
    """Return a store with this object, and the names of the Iceberg catalog."""
    clock = ManualClock(1_800_000_000)
    store = ConditionalStore(MemoryStore(clock=clock), clock=clock, backoff=ONCE)
    store.put("names.json", encode(NAMES_RECORD.to_document()))
    store.put(path, data)
    return store


def catalog_of(store: ConditionalStore) -> CatalogRecords:
    """Return the Iceberg catalog in a store."""
    return CatalogRecords(store, clock=ManualClock(), backoff=ONCE)


def lance_of(store: ConditionalStore) -> LanceCatalog:
    """Return the Lance catalog in a store."""
    return LanceCatalog(store, new_id=lambda: "0" * 32, clock=ManualClock(), backoff=ONCE)


def read_lock(store: ConditionalStore) -> Mapping[str, Any]:
    """Return the record of the lock, after a holder was seen and another one has taken it over."""
    clock = ManualClock(1_800_000_000)
    lock = Lock(store, "locks/a", settings=SETTINGS, clock=clock, backoff=ONCE, background=Foreground())
    item = lock._tenure._records.get(lock._tenure._keys[0])
    assert item is not None
    record = LeaseRecord.from_item(item)
    holder = lock.holder()
    assert (holder is None) == record.released
    assert lock.acquire(timeout=0) == record.released
    if holder is not None:
        holder.description.encode()
        if record.generation < 2**62:
            assert lock.break_holder(holder.token, wait=False)
            assert lock.acquire(timeout=0)
            assert lock.token > holder.token
            lock.release()
            assert not lock.locked()
    return record.to_item()


def read_names(store: ConditionalStore) -> Mapping[str, Any]:
    """Return the names, after a change of them was read again."""
    records = catalog_of(store)
    found = records.names()
    for namespace in ((), *found.namespaces):
        found.namespaces_in(namespace)
    for table in found.tables:
        assert table in found.tables_in(table[:-1])
        outcome(lambda table=table: records.find(table), CorruptRecord)  # type: ignore[misc]
    if found.version < 2**63 - 1:
        new = ("", "new")
        if not isinstance(
            outcome(
                lambda: records.change(lambda names: names.create_namespace(new, {})), NamespaceExists
            ),
            Exception,
        ):
            assert records.names().has_namespace(new)
    return found.to_document().body


def read_pointer(store: ConditionalStore) -> Mapping[str, Any]:
    """Return the pointer, after it was moved and read again."""
    records = catalog_of(store)
    found = records.find(TABLE)
    if found.version < 2**63 - 1:
        records.move(found, "later")
        later = records.find(TABLE)
        assert (later.metadata_location, later.version) == ("later", found.version + 1)
    return found.to_document().body


def read_table(store: ConditionalStore) -> Mapping[str, Any]:
    """Return the table, after a listing of its directory and its removal."""
    catalog = lance_of(store)
    record = catalog.table(["a", "t"])
    catalog.delete_files(record)
    assert catalog.remove(["a", "t"]) == record
    return {"location": record.location, "properties": dict(record.properties)}


def read_namespace(store: ConditionalStore) -> Mapping[str, Any]:
    """Return the namespace."""
    return {"properties": dict(lance_of(store).namespace(["a"]))}


@frozen
class Kind:
    """A kind of record: its path, its content, and how it is read and used."""

    path: str
    document: Document
    read: Callable[[ConditionalStore], Mapping[str, Any]]


KINDS: dict[str, Kind] = {
    "lock": Kind("locks/a", Document("lock", LOCK_RECORD.to_item()), read_lock),
    "released lock": Kind(
        "locks/a", Document("lock", {**LOCK_RECORD.to_item(), "timeout": 0}), read_lock
    ),
    "names": Kind("names.json", NAMES_RECORD.to_document(), read_names),
    "pointer": Kind("pointers/1.json", POINTER_RECORD.to_document(), read_pointer),
    "table": Kind(
        "_catalog/a/t.json",
        Document("lance-table", {"location": "a/t-1.lance", "properties": {"owner": "ü"}}),
        read_table,
    ),
    "namespace": Kind(
        "_catalog/a/_namespace.json",
        Document("lance-namespace", {"properties": {"owner": "ü"}}),
        read_namespace,
    ),
}

kinds = st.sampled_from(sorted(KINDS))


def read(kind: Kind, data: bytes) -> Mapping[str, Any] | Exception:
    """Return the fields that are read from `data`, or the error."""
    store = stored(kind.path, data)
    found = outcome(lambda: kind.read(store), CorruptRecord, FormatTooNew)
    if isinstance(found, Exception):
        assert kind.path in str(found) or kind.path.split("/")[-1] in str(found)
        assert store.get(kind.path).data == data, "it is left as it is"
    return found


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_sound_record_is_read(name: str) -> None:
    """It is read as it was stored, and a shorter one is corrupt."""
    kind = KINDS[name]
    data = encode(kind.document)
    assert read(kind, data) == kind.document.body
    for length in range(0, len(data), 7):
        assert isinstance(read(kind, data[:length]), CorruptRecord)


@fuzz(
    300,
    data=kinds.flatmap(
        lambda name: st.tuples(st.just(name), damaged_bytes(encode(KINDS[name].document)))
    ),
)
def test_damaged_bytes_never_change_the_content_of_a_record(data: tuple[str, bytes]) -> None:
    """A damaged record is refused, or has the same content."""
    name, damaged = data
    found = read(KINDS[name], damaged)
    assert isinstance(found, Exception) or found == KINDS[name].document.body


@fuzz(
    150,
    name=kinds,
    data=st.binary(max_size=80) | wild_json.map(lambda value: dumps(value).encode()),
)
def test_other_data_than_a_record_is_refused(name: str, data: bytes) -> None:
    """Arbitrary bytes and arbitrary JSON are corrupt, or newer."""
    assert isinstance(read(KINDS[name], data), Exception)


def check_body(name: str, body: Any) -> None:
    """Check that a record with this body and a correct checksum is corrupt, or read as stored."""
    if not isinstance(body, dict):
        return
    kind = KINDS[name]
    for data in (sealed(kind.document.kind, body), escaped(kind.document.kind, body)):
        found = read(kind, data)
        if not isinstance(found, Exception):
            assert says_fields(json.loads(dumps(body)), found)


def escaped(kind: str, body: Mapping[str, Any]) -> bytes:
    """Return a record that spells all characters other than ASCII as escapes, with their checksum."""
    text = dumps(dict(sorted({**body, "kind": kind, "format": 1}.items())))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"checksum":"{digest}",{text[1:]}'.encode()


def says_fields(body: Any, found: Any) -> bool:
    """Return whether `body` says what was `found`; the order of named entries does not count."""
    if isinstance(found, Mapping) and "tables" in found:
        ordered = {
            part: sorted(body[part], key=lambda one: one["levels"]) for part in ("namespaces", "tables")
        }
        body = {**body, **ordered}
    return says(body, found)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_invalid_or_missing_field_is_corrupt(name: str) -> None:
    """Any value of a field is read as stored, or makes the record corrupt."""
    for body in replaced(dict(KINDS[name].document.body)):
        check_body(name, body)


@fuzz(
    300,
    data=kinds.flatmap(
        lambda name: st.tuples(st.just(name), damaged_json(dict(KINDS[name].document.body)))
    ),
)
def test_a_damaged_body_is_valid_or_corrupt(data: tuple[str, Any]) -> None:
    """Even with a correct checksum, a damaged body makes no impossible record."""
    check_body(*data)


@fuzz(60, name=kinds, field=texts, value=wild_json)
def test_unknown_fields_are_ignored(name: str, field: str, value: Any) -> None:
    """A field that a later release adds has no effect in this release."""
    kind = KINDS[name]
    found = read(kind, sealed(kind.document.kind, {**kind.document.body, f"later {field}": value}))
    if isinstance(found, Exception):
        assert "checksum" in str(found) or "JSON" in str(found) or "not text" in str(found)
    else:
        assert found == kind.document.body


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("lock", {"path": "locks/b"}),
        ("lock", {"etag": "*"}),
        ("lock", {"token": -1}),
        ("lock", {"token": LOCK_RECORD.generation + 1}),
        ("lock", {"timeout": -1}),
        ("lock", {"generation": 1.0}),
        ("names", {"tables": NAMES_RECORD.to_document().body["tables"] * 2}),
        ("names", {"namespaces": NAMES_RECORD.to_document().body["namespaces"] * 2}),
        ("names", {"tables": [{"levels": ["t"], "id": "1", "metadata_location": "m"}]}),
        ("names", {"tables": [{"levels": ["a", "t"], "id": "../1", "metadata_location": "m"}]}),
        (
            "names",
            {"tables": [{"levels": ["a", name], "id": "1", "metadata_location": "m"} for name in "tu"]},
        ),
        ("pointer", {"table": "2"}),
        ("pointer", {"version": -1}),
        ("table", {"location": "../other"}),
        ("table", {"location": "/"}),
        ("table", {"location": ""}),
        ("table", {"location": "_catalog/a"}),
        ("table", {"properties": {"a": 1}}),
        ("namespace", {"properties": []}),
    ],
)
def test_an_impossible_record_is_corrupt(name: str, body: dict[str, Any]) -> None:
    """Another lock's or table's record, names that are there twice, and paths that lead elsewhere."""
    kind = KINDS[name]
    data = sealed(kind.document.kind, {**kind.document.body, **body})
    assert isinstance(read(kind, data), CorruptRecord)


# -- fenced objects ----------------------------------------------------------------------------------

FENCED = b"commitlog-fence 1 33 0123456789abcdef0123456789abcdef\n1,a\n"


@fuzz(300, data=damaged_bytes(FENCED) | st.binary(max_size=80))
def test_a_damaged_fenced_object_has_a_token_or_is_refused(data: bytes) -> None:
    """No checksum shows another token or other data. But the first line has a token, or is refused."""
    store = stored("a", data)
    fenced = FencedStore(store, clock=ManualClock(), backoff=ONCE)
    found = outcome(lambda: fenced.get("a"), CorruptRecord, FormatTooNew)
    written = outcome(
        lambda: fenced.put("a", b"2,a\n", token=40), CorruptRecord, FormatTooNew, StaleToken
    )
    if isinstance(found, Exception):
        assert type(written) is type(found)
    else:
        assert data.endswith(b"\n" + found.data) and 0 <= found.token < 2**63
        assert isinstance(written, StaleToken) == (found.token > 40)
    if isinstance(written, Exception):
        assert store.get("a").data == data, "it is left as it is"
    else:
        assert fenced.get("a").token == 40


@fuzz(100, token=wild_texts, keep=st.sampled_from(["content", "metadata"]))
def test_a_token_in_metadata_is_a_number_or_refused(
    token: str, keep: Literal["content", "metadata"]
) -> None:
    """A missing token counts as 0."""
    store = ConditionalStore(MemoryStore(), backoff=ONCE)
    if isinstance(
        outcome(
            lambda: store.put("a", FENCED, metadata={"commitlog-fence": token}), CommitError, ValueError
        ),
        Exception,
    ):
        return
    fenced = FencedStore(store, keep=keep, clock=ManualClock(), backoff=ONCE)
    found = outcome(lambda: fenced.get("a"), CorruptRecord)
    if not isinstance(found, Exception):
        assert found.token == (33 if keep == "content" else int(token))


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed)} examples")
