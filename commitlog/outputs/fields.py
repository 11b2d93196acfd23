"""Fields of stored records: each is of the type that it should be, or the record is corrupt.

Imports errors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from commitlog.errors import CorruptRecord

__all__ = ["build", "count", "mapping", "maybe_count", "maybe_text", "text"]

T = TypeVar("T")


def build(what: str, make: Callable[[], T]) -> T:
    """Return what `make` makes; raise `CorruptRecord` if a field of `what` is missing or malformed."""
    try:
        return make()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRecord(f"{what} lacks a field, or has one of another type: {error!r}") from error


def text(value: object) -> str:
    """Return `value`, which must be a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def maybe_text(value: object) -> str | None:
    """Return `value`, which must be a text or null."""
    return None if value is None else text(value)


def maybe_count(value: object) -> int | None:
    """Return `value`, which must be a whole number from 0, or null."""
    return None if value is None else count(value)


def count(value: object) -> int:
    """Return `value`, which must be a whole number from 0."""
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value


def mapping(value: object) -> Mapping[str, object]:
    """Return `value`, which must be an object."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return value
