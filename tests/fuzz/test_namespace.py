"""Any data in place of a namespace record is read as a valid record, or refused with a typed error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError, CorruptRecord, FormatTooNew, InvalidPath
from commitlog.namespace import NAMESPACE_SCHEMA, Data, NamespaceMetadata
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.keys import Keys, shards_of, split
from commitlog.namespace.model.records import Directory, Entry, Garbage, Guard, Shards, Tombstone
from commitlog.paths import join
from commitlog.tables.api import Item, Key
from commitlog.tables.rules import check_item
from support.fuzzing import (
    Properties,
    damaged_bytes,
    damaged_json,
    outcome,
    replaced,
    says,
    sealed,
    wild_texts,
)

fuzz = Properties()

Record = Entry | Directory | Guard | Garbage | Tombstone | NamespaceMetadata

KEYS = Keys("lake")
DATA = Data(path="abc/abcdef", size=7, etag='"e"', version="v")
FILE = Entry(
    key=KEYS.entry("root", 0, "f"),
    id="f" * 32,
    version=3,
    change_id="w" * 32,
    created=1_800_000_000_000,
    modified=1_800_000_000_001,
    updated=1_800_000_000_002,
    data=DATA,
    attributes={"owner": "ü"},
)
RECORDS: dict[str, Record] = {
    "file": FILE,
    "directory entry": evolve(FILE, data=None, shards=Shards(now=8, first=2), attributes={}),
    "adopted file": evolve(FILE, data=evolve(DATA, own=False, stored=1_800_000_000)),
    "bound directory entry": evolve(
        FILE, data=None, binding=Binding(prefix="raw/", max_age=0.5, synced=1_800_000_000_000)
    ),
    "directory": Directory(key=KEYS.directory("d"), parent="root", name="d"),
    "gate": Guard(key=KEYS.guard("d", 1), shards=2, change_id="w"),
    "garbage": Garbage(
        key=KEYS.garbage(5, "abc/abcdef"),
        file="f",
        version=1,
        change_id="w",
        not_before=5,
        data=evolve(DATA, version=None),
    ),
    "tombstone": Tombstone(
        key=KEYS.tombstone("d", "f"), change_id="w", path="raw/f", etag='"e"', stored=5, written=6_000
    ),
    "tombstone of a directory": Tombstone(
        key=KEYS.tombstone("d", "f/"), change_id="w", path="raw/f/", written=6_000
    ),
    "marker": NamespaceMetadata(
        key=KEYS.metadata, store="s3://bucket/p", created=1_800_000_000_000, change_id="w"
    ),
}
#: Values of the attributes of an item.
VALUES: tuple[Any, ...] = ("", "x", "../..", "\ud800", -1, 0, 1, 3, 2**63, 10**38 - 1, True, b"", b"{}")

names = st.sampled_from(sorted(RECORDS))


def check(name: str, item: Item) -> None:
    """Check that `item` is corrupt, or is read as stored and round-trips."""
    kind = type(RECORDS[name])
    found = outcome(lambda: kind.from_item(item), CorruptRecord, FormatTooNew)
    if isinstance(found, Exception):
        return
    again = found.to_item()
    check_item(NAMESPACE_SCHEMA, {**again, "place": "p", "name": "n"})
    assert kind.from_item(again) == found
    assert all(item[each] == again[each] for each in again if each != "body")
    if "body" in again:
        assert says(_body(item), _body(again))


def _body(item: Item) -> Any:
    stored = item["body"]
    assert isinstance(stored, bytes)
    body = json.loads(stored)
    del body["checksum"]
    return body


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_records_round_trip(name: str) -> None:
    """All fields are equal."""
    record = RECORDS[name]
    assert type(record).from_item(record.to_item()) == record
    check_item(NAMESPACE_SCHEMA, record.to_item())


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_an_invalid_attribute_is_corrupt(name: str) -> None:
    """Each attribute of an item in turn is missing, or has any value."""
    item = RECORDS[name].to_item()
    for attribute in item:
        check(name, {each: value for each, value in item.items() if each != attribute})
        for value in VALUES:
            check(name, {**item, attribute: value})


@pytest.mark.parametrize("name", sorted(name for name in RECORDS if "body" in RECORDS[name].to_item()))
def test_an_invalid_field_is_corrupt(name: str) -> None:
    """Each field of a body in turn is missing, or has any value, with a correct checksum."""
    item = RECORDS[name].to_item()
    body = _body(item)
    kind = body.pop("kind")
    del body["format"]
    for damaged in replaced(body):
        if isinstance(damaged, dict):
            check(name, {**item, "body": sealed(kind, damaged)})


@fuzz(
    300,
    damaged=names.filter(lambda name: "body" in RECORDS[name].to_item()).flatmap(
        lambda name: st.tuples(st.just(name), damaged_json(_body(RECORDS[name].to_item())))
    ),
)
def test_a_damaged_body_is_valid_or_corrupt(damaged: tuple[str, Any]) -> None:
    """Bodies with several damaged fields."""
    name, body = damaged
    if isinstance(body, dict):
        stored = sealed(body.pop("kind", None), body, body.pop("format", None))
        check(name, {**RECORDS[name].to_item(), "body": stored})


@fuzz(
    200,
    damaged=names.filter(lambda name: "body" in RECORDS[name].to_item()).flatmap(
        lambda name: st.tuples(st.just(name), damaged_bytes(_stored(name)))
    ),
)
def test_damaged_bytes_are_detected(damaged: tuple[str, bytes]) -> None:
    """A damaged body is refused, or has the same content."""
    name, stored = damaged
    record = RECORDS[name]
    item = {**record.to_item(), "body": stored}
    found = outcome(lambda: type(record).from_item(item), CorruptRecord, FormatTooNew)
    assert isinstance(found, Exception) or found == record


def _stored(name: str) -> bytes:
    stored = RECORDS[name].to_item()["body"]
    assert isinstance(stored, bytes)
    return stored


@fuzz(300, path=wild_texts | st.text("ab./\0 ü", max_size=12))
def test_any_path_is_split_or_refused(path: str) -> None:
    """The names of a path, joined again, are the path. Each of them can be a key."""
    found = outcome(lambda: split(path), InvalidPath)
    if isinstance(found, tuple):
        again = ""
        for name in found:
            again = join(again, name)
            check_item(NAMESPACE_SCHEMA, {"place": "p", "name": name})
            assert shards_of(name, 8, 1)[-1] == 0
        assert again == path


@fuzz(200, name=wild_texts)
def test_any_name_of_a_namespace_is_valid_or_refused(name: str) -> None:
    """All keys of a namespace begin with its name, and with no other name."""
    found = outcome(lambda: Keys(name), ConfigurationError)
    if isinstance(found, Keys):
        assert found.entry("d", 0, "n") == Key(f"{name}/e/d/0", "n")
        assert "/" not in name and name.isascii()


@fuzz(
    200,
    name=wild_texts.filter(lambda text: text.isascii()),
    power=st.integers(0, 6),
    grown=st.integers(0, 6),
)
def test_new_entries_are_found_after_any_resharding(name: str, power: int, grown: int) -> None:
    """The shard of a new entry is among the shards of all later lookups."""
    first = 2**power
    before = shards_of(name, first, first)[0]
    for more in range(power, max(power, grown) + 1):
        places = shards_of(name, 2**more, first)
        assert before in places and all(0 <= place < 2**more for place in places)


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed)} examples")
