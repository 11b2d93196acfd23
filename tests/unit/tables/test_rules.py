"""The rules for items, and their encoding."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError, CorruptRecord, TransactionCanceled
from commitlog.tables import (
    Absent,
    All,
    Check,
    ConditionFailed,
    Delete,
    Equals,
    Item,
    Key,
    Put,
    Table,
    TableCondition,
    TableSchema,
    Value,
)
from commitlog.tables.dynamodb.calls import Refused
from commitlog.tables.marshal import marshal, to_json, unmarshal
from commitlog.tables.open import open_table
from commitlog.tables.rules import (
    MAX_INT,
    MAX_TRANSACTION_BYTES,
    check_condition,
    check_item,
    check_writes,
    key_of_token,
    token_of_key,
)

SCHEMA = TableSchema(hash_key="path", range_key="etag", ttl_attribute="ttl")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values: st.SearchStrategy[Value] = st.one_of(
    texts, st.integers(-MAX_INT, MAX_INT), st.binary(max_size=20), st.booleans()
)
items = st.dictionaries(texts.filter(bool), values, max_size=6)

# Few names and values, so that conditions often refer to attributes of the items.
few_values: st.SearchStrategy[Value] = st.sampled_from([0, 1, "1", "", b"1", True, False])
few_names = st.sampled_from(["generation", "owner", "ttl"])
parts = st.one_of(st.builds(Absent, st.none() | few_names), st.builds(Equals, few_names, few_values))
conditions: st.SearchStrategy[TableCondition] = st.one_of(
    parts, st.builds(All, st.lists(parts, max_size=3).map(tuple))
)
few_items = st.dictionaries(few_names, few_values, max_size=3)


@pytest.mark.parametrize(
    "write",
    [
        Put({"path": "z", "etag": "z" * 1000}),
        Delete(Key("z", "z" * 1000)),
        Check(Key("z", "z" * 1000), Absent()),
    ],
)
def test_all_writes_count_toward_the_size_of_a_transaction(write: Put | Delete | Check) -> None:
    """Names and values of puts, deletes and checks together have at most four megabytes."""
    share = MAX_TRANSACTION_BYTES // 16
    keys = len("path") + len("etag") + 2
    puts = [
        Put({"path": "a", "etag": chr(97 + number), "data": b"x" * (share - keys - len("data"))})
        for number in range(16)
    ]
    check_writes(SCHEMA, puts, None)
    with pytest.raises(ValueError, match="4195313 bytes; it takes 4194304"):
        check_writes(SCHEMA, [*puts, write], None)


@given(items)
def test_marshalling_round_trip(item: Item) -> None:
    """An item that is encoded as JSON is decoded to the same values and types."""
    text = to_json(marshal(item))
    text.encode()
    back = unmarshal(json.loads(text))
    assert back == item
    assert [type(value) for value in back.values()] == [type(value) for value in item.values()]


@pytest.mark.parametrize(
    "wire",
    [
        {"N": "1.5"},
        {"N": 1},
        {"S": 1},
        {"B": "no base 64"},
        {"BOOL": "true"},
        {"NULL": True},
        {"L": []},
        {"S": "a", "N": "1"},
        {},
        None,
    ],
)
def test_unmarshal_refuses_unknown_attribute_values(wire: dict[str, object]) -> None:
    """An attribute without a valid value raises an error with its name, rather than being dropped."""
    with pytest.raises(CorruptRecord, match="'size'"):
        unmarshal({"path": {"S": "a"}, "size": wire})


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Table]:
    """A table in memory and one in a file."""
    path: Path = tmp_path_factory.mktemp("tables")
    tables = [open_table(url, SCHEMA) for url in ("memory://", f"sqlite://{path}/table.db")]
    for table in tables:
        table.create()
    return tables


@given(stored=st.none() | few_items, condition=conditions)
def test_a_conditional_write_needs_its_condition(
    tables: list[Table], stored: Item | None, condition: TableCondition
) -> None:
    """A conditional write happens if and only if `holds` is true for the stored item."""
    key = Key("a", "*")
    old = None if stored is None else {**stored, "path": "a", "etag": "*"}
    new: Item = {"path": "a", "etag": "*", "new": True}
    for table in tables:
        table.delete(key)
        if old is not None:
            table.put(old)
        if condition.holds(old):
            table.put(new, condition=condition)
            assert table.get(key) == new
        else:
            with pytest.raises(ConditionFailed) as caught:
                table.delete(key, condition=condition)
            assert caught.value.item_known
            assert caught.value.item == old
            assert table.get(key) == old


@given(st.builds(Key, texts.filter(bool), st.none() | texts.filter(bool)))
def test_token_round_trip(key: Key) -> None:
    """The token of a page decodes to the key that it was made from."""
    assert key_of_token(token_of_key(key)) == key


@pytest.mark.parametrize("token", ["", "x", "[]", '["a"]', "[1, 2]", '["a", 1]', "null"])
def test_a_token_of_something_else_is_refused(token: str) -> None:
    """A token that no table made raises ValueError."""
    with pytest.raises(ValueError, match="not the token"):
        key_of_token(token)


def test_subclasses_of_value_types_are_refused() -> None:
    """A value that would be read back as another type is refused when it is written."""

    class Word(str):
        pass

    with pytest.raises(TypeError, match="'owner' must be str, int, bytes or bool, not Word"):
        check_item(SCHEMA, {"path": "a", "etag": "*", "owner": Word("x")})
    with pytest.raises(TypeError, match="Word"):
        check_condition(Equals("owner", Word("x")))


def test_options_of_a_service_are_refused_by_local_tables() -> None:
    """They are refused rather than ignored."""
    with pytest.raises(ConfigurationError, match="endpoint_url"):
        open_table("memory://", SCHEMA, endpoint_url="http://127.0.0.1:1")


def test_errors_can_be_pickled() -> None:
    """Errors keep their attributes when they come from other processes."""
    failed = ConditionFailed("no", item={"path": "a", "n": 1}, item_known=True)
    canceled = TransactionCanceled("no", (None, failed))
    refused = Refused("no", code="ValidationException", answer={"__type": "x"})
    for error in (failed, canceled, refused):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error)
        assert str(back) == str(error)
    assert pickle.loads(pickle.dumps(canceled)).reasons[1].item == {"path": "a", "n": 1}
    assert pickle.loads(pickle.dumps(refused)).code == "ValidationException"
