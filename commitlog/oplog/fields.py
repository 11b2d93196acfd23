"""Fields of stored records: each is of the type that it should be, or the record is corrupt.

A checksum says that a record is as it was written, not that its writer knew what it did: another
program, another release, or a hand may have written it. Imports the ground floor and the codec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from commitlog.errors import CorruptRecord
from commitlog.oplog.codec import ADVICE, Document
from commitlog.paths import check_path

__all__ = [
    "build",
    "count",
    "flag",
    "items",
    "mapping",
    "maybe_count",
    "maybe_text",
    "moment",
    "pairs",
    "path",
    "text",
]

T = TypeVar("T")

#: Largest count: what every tool can hold that reads or writes sizes of files and numbers of rows.
MAX_COUNT = 2**63 - 1


def build(document: Document, make: Callable[[], T]) -> T:
    """Return what `make` makes of the fields of `document`.

    Raises `CorruptRecord` if one is missing, or not what it should be.
    """
    try:
        return make()
    except KeyError as error:
        problem = f"it has no {error}"
    except (TypeError, ValueError) as error:
        problem = str(error)
    raise CorruptRecord(f"{document.path!r} is no {document.kind}: {problem}. {ADVICE}")


def text(value: object) -> str:
    """Return `value`, which must be a text. (JSON can tell of half a character, which is none.)"""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    if not value.isascii():
        value.encode()
    return value


def maybe_text(value: object) -> str | None:
    """Return `value`, which must be a text or null."""
    return None if value is None else text(value)


def path(value: object) -> str:
    """Return `value`, which must be a path that an object can have."""
    return check_path(text(value))


def count(value: object) -> int:
    """Return `value`, which must be a whole number from 0 that 64 bits hold, with its sign."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise TypeError(f"{value!r} is no count")
    return value


def maybe_count(value: object) -> int | None:
    """Return `value`, which must be a count or null."""
    return None if value is None else count(value)


def moment(value: object) -> float:
    """Return `value`, which must be a number of seconds.

    >>> moment(1)
    1.0
    """
    if type(value) is int and abs(value) <= MAX_COUNT:
        return float(value)
    if type(value) is float and math.isfinite(value):
        return value
    raise TypeError(f"{value!r} is no time")


def flag(value: object) -> bool:
    """Return `value`, which must be true or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def mapping(value: object) -> Mapping[str, object]:
    """Return `value`, which must be an object."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return value


def items(value: object) -> Sequence[object]:
    """Return `value`, which must be a list. (Others can be iterated over, too: a text is no list.)"""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def pairs(value: object) -> dict[str, str | None]:
    """Return what a list of names and values says, in its order; each value is a text or null.

    >>> pairs([["year", "2013"], ["city", None]])
    {'year': '2013', 'city': None}
    """
    named: dict[str, str | None] = {}
    for pair in items(value):
        name, each = items(pair)
        if text(name) in named:
            raise ValueError(f"{name!r} is there twice")
        named[text(name)] = maybe_text(each)
    return named
