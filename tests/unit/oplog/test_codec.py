"""The envelope of stored records: encoding and decoding, and refusal of all other data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.oplog.codec import FORMAT, Document, decode, encode

KINDS = frozenset({"note"})

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=10,
)
bodies = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"])).filter(
        lambda name: name not in ("format", "kind", "checksum")
    ),
    values,
    max_size=5,
)


def read(data: bytes) -> Document:
    return decode(data, KINDS, path="x/1.json")


@given(bodies)
def test_records_round_trip(body: dict[str, Any]) -> None:
    """Every JSON object makes the round trip."""
    assert read(encode(Document("note", body))) == Document("note", body)


@given(bodies)
def test_a_record_is_written_canonically_and_read_in_any_layout(body: dict[str, Any]) -> None:
    """It is canonical JSON, with the checksum as a field. Whitespace does not change a record."""
    encoded = encode(Document("note", body))
    fields = json.loads(encoded)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert encoded == text.encode()
    assert read(json.dumps(fields, indent=1).encode()) == Document("note", body)


@given(bodies, st.data())
def test_a_truncated_record_is_corrupt(body: dict[str, Any], data: st.DataObject) -> None:
    """No prefix of a record is a record."""
    encoded = encode(Document("note", body))
    length = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(CorruptRecord):
        read(encoded[:length])


@given(bodies, st.data())
def test_an_altered_byte_never_changes_the_content(body: dict[str, Any], data: st.DataObject) -> None:
    """A record with a changed byte is refused with a typed error, or has the same content."""
    encoded = bytearray(encode(Document("note", body)))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        document = read(bytes(encoded))
    except (CorruptRecord, FormatTooNew):
        return
    assert document == Document("note", body)


@given(st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
def test_other_data_is_corrupt(data: bytes) -> None:
    """Arbitrary bytes and arbitrary JSON are refused with `CorruptRecord`."""
    with pytest.raises(CorruptRecord):
        read(data)


@given(bodies, st.integers(FORMAT + 1))
def test_a_newer_format_is_refused_as_such(body: dict[str, Any], version: int) -> None:
    """A record of a newer format raises `FormatTooNew`, whatever its other fields are."""
    with pytest.raises(FormatTooNew, match=r"x/1\.json"):
        read(json.dumps({**body, "format": version}).encode())


@pytest.mark.parametrize("version", [0, -1, 1.0, True, "1", None])
def test_a_format_is_a_positive_number(version: object) -> None:
    """Formats that no version of the library wrote are corrupt."""
    fields = json.loads(encode(Document("note", {})))
    with pytest.raises(CorruptRecord):
        read(json.dumps({**fields, "format": version}).encode())


def test_a_record_of_another_kind_is_corrupt() -> None:
    """A record that was copied to a place of another kind is refused."""
    with pytest.raises(CorruptRecord, match="'memo', not note"):
        read(encode(Document("memo", {})))


def test_two_writers_of_one_record_write_the_same_bytes() -> None:
    """The encoding does not depend on the order of the fields."""
    assert encode(Document("note", {"a": 1, "b": 2})) == encode(Document("note", {"b": 2, "a": 1}))


@pytest.mark.parametrize("body", [{"kind": 1}, {"checksum": 1}, {"format": 1}, {"x": float("nan")}])
def test_fields_that_cannot_be_stored_are_refused(body: dict[str, Any]) -> None:
    """This includes fields of the envelope, and numbers that JSON does not have."""
    with pytest.raises(ValueError):
        encode(Document("note", body))


@pytest.mark.parametrize(
    "text", [b'{"format":1,"x":"\\ud800"}', b"[" * 100_000, b'{"format":1,"x":NaN}']
)
def test_hostile_json_is_corrupt(text: bytes) -> None:
    """Lone surrogates, deep nesting and NaN raise `CorruptRecord` and no other error."""
    with pytest.raises(CorruptRecord):
        read(text)
