"""Lease records and their layout as items."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.errors import CorruptRecord

FOREIGN = {"path": "dir/key", "etag": "*", "generation": 0, "timeout": 20000, "ttl": 1795239740}

words = st.text(min_size=1, max_size=20)
records = st.builds(
    LeaseRecord,
    path=words,
    etag=words,
    generation=st.integers(0, 10**12),
    timeout=st.integers(0, 10**9),
    ttl=st.integers(0, 10**12),
    owner=st.none() | words,
)


@given(records)
def test_a_record_round_trips(record: LeaseRecord) -> None:
    """An item has all fields of its record."""
    assert LeaseRecord.from_item(record.to_item()) == record


@given(records)
def test_an_item_has_only_strings_and_numbers(record: LeaseRecord) -> None:
    """``object_store`` refuses items with values of other types."""
    assert {type(value) for value in record.to_item().values()} <= {str, int}
    assert LEASE_SCHEMA.key_of(record.to_item()) == record.key


def test_a_record_of_object_store_has_no_owner() -> None:
    """An item of that client is read, and written back without additional attributes."""
    record = LeaseRecord.from_item(FOREIGN)
    assert record.owner is None
    assert record.to_item() == FOREIGN


def test_unknown_attributes_are_ignored() -> None:
    """A later version may add attributes to the record."""
    assert LeaseRecord.from_item({**FOREIGN, "note": b"new"}) == LeaseRecord.from_item(FOREIGN)


@pytest.mark.parametrize(
    "damage",
    [
        {"generation": None},
        {"generation": "0"},
        {"generation": True},
        {"generation": -1},
        {"timeout": -1},
        {"ttl": None},
        {"etag": 7},
        {"owner": 7},
    ],
)
def test_a_damaged_item_is_refused(damage: dict[str, Any]) -> None:
    """An item that cannot be a lease is reported as corrupt, with its key."""
    item = {name: value for name, value in {**FOREIGN, **damage}.items() if value is not None}
    with pytest.raises(CorruptRecord, match="dir/key"):
        LeaseRecord.from_item(item)


@given(records, records)
def test_the_condition_for_an_unchanged_record_matches_no_other(
    record: LeaseRecord, other: LeaseRecord
) -> None:
    """The condition of a takeover fails for any other record under the same key."""
    same = (record.generation, record.owner, record.ttl) == (other.generation, other.owner, other.ttl)
    assert record.unchanged().holds(record.to_item())
    assert record.unchanged().holds(other.to_item()) is same


def test_a_restarted_generation_is_another_record() -> None:
    """A record that TTL removed and another client created again is not confused with the old one."""
    record = LeaseRecord.from_item(FOREIGN)
    assert not record.unchanged().holds({**FOREIGN, "ttl": FOREIGN["ttl"] + 3600})
    assert not record.unchanged().holds({**FOREIGN, "owner": "somebody"})
    assert not record.unchanged().holds(None)
