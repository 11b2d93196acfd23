"""Validation of the fields of stored records: a field of another type makes the record corrupt.

A checksum shows that a record is as it was written, not that its writer was correct: another program,
another release or a person may have written it.
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
    "scalar",
    "text",
]

T = TypeVar("T")

#: Largest count: every tool that handles file sizes and row counts can hold it.
MAX_COUNT = 2**63 - 1


def build(document: Document, make: Callable[[], T]) -> T:
    """Return the result of `make` for the fields of `document`.

    Raises `CorruptRecord` if a field is missing or invalid.
    """
    try:
        return make()
    except KeyError as error:
        problem = f"it has no {error}"
    except (TypeError, ValueError) as error:
        problem = str(error)
    raise CorruptRecord(f"{document.path!r} is not a valid {document.kind}: {problem}. {ADVICE}")


def text(value: object) -> str:
    """Return `value`, which must be a text. (JSON can hold a lone surrogate, which is not.)"""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    if not value.isascii():
        value.encode()
    return value


def maybe_text(value: object) -> str | None:
    """Return `value`, which must be a text or null."""
    return None if value is None else text(value)


def path(value: object) -> str:
    """Return `value`, which must be a valid path of an object."""
    return check_path(text(value))


def count(value: object) -> int:
    """Return `value`, which must be an integer from 0 that fits into 64 bits with sign."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise TypeError(f"{value!r} is not a count")
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
    raise TypeError(f"{value!r} is not a time")


def flag(value: object) -> bool:
    """Return `value`, which must be true or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def scalar(value: object) -> object:
    """Return `value`, which must be null, a truth value, a finite number or a text.

    >>> scalar(1.5), scalar("a"), scalar(None)
    (1.5, 'a', None)
    """
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return text(value)


def mapping(value: object) -> Mapping[str, object]:
    """Return `value`, which must be an object."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def items(value: object) -> Sequence[object]:
    """Return `value`, which must be a list. (A text can be iterated over, too, but is not a list.)"""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def pairs(value: object) -> dict[str, str | None]:
    """Return a list of names and values as a dict, in its order; each value is a text or null.

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
