"""Immutable maps: the refused operations, and pickling and copying of their holders."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from commitlog._util.frozen_map import AppendOnly, FrozenMap, frozen_map
from commitlog.stores.api import ObjectInfo
from commitlog.urls import parse_store_url


def _in_place(changed: dict[str, str]) -> None:
    changed |= {"c": "d"}


@pytest.mark.parametrize(
    "change",
    [
        lambda map: map.__setitem__("a", "c"),
        lambda map: map.__delitem__("a"),
        lambda map: map.setdefault("c", "d"),
        lambda map: map.update(c="d"),
        lambda map: map.pop("a"),
        lambda map: map.popitem(),
        lambda map: map.clear(),
        _in_place,
    ],
)
def test_a_frozen_map_refuses_every_change(change: Callable[[dict[str, str]], object]) -> None:
    """No method or operator of dict changes it, and a change of its source has no effect."""
    given = {"a": "b"}
    frozen = frozen_map(given)
    with pytest.raises(TypeError, match="make a dict of it"):
        change(frozen)
    given["a"] = "c"
    assert frozen == {"a": "b"}
    assert frozen_map(frozen) is frozen


@pytest.mark.parametrize(
    "holder",
    [
        FrozenMap(a="b"),
        ObjectInfo(path="a", size=1, etag='"e"', last_modified=1.0, metadata={"a": "b"}),
        parse_store_url("s3://bucket?region=eu-west-1"),
    ],
    ids=lambda holder: type(holder).__name__,
)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_the_holder_of_a_frozen_map_can_be_pickled_and_copied(
    holder: Any, copied: Callable[[Any], Any]
) -> None:
    """A copy is equal to the original and also immutable."""
    other = copied(holder)
    assert other == holder
    assert type(other) is type(holder)
    if isinstance(holder, ObjectInfo):
        assert type(other.metadata) is FrozenMap


def test_appending_to_a_sequence_makes_a_new_one() -> None:
    """The original is unchanged. A sequence is equal to a tuple of its items and to its pickled copy."""
    empty: AppendOnly[str] = AppendOnly()
    one, other = empty + "a", empty + "b"
    two, three = one + "bc", one + "d"
    assert (empty, one, other, two, three) == ((), ("a",), ("b",), tuple("abc"), tuple("ad"))
    assert two + two == tuple("abcabc") != two
    assert (two[0], two[-1], two[1:], list(two), len(two)) == ("a", "c", ("b", "c"), [*"abc"], 3)
    with pytest.raises(IndexError):
        one[1]
    assert one != ["a"] and hash(one) == hash(("a",)) and repr(two) == "('a', 'b', 'c')"
    again = pickle.loads(pickle.dumps(one))
    assert again == one and again + "e" == ("a", "e")
