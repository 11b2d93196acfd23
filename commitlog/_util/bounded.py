"""Iteration that stops at a limit, and that knows whether it did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["Bound"]

T = TypeVar("T")


class Bound:
    """A bound for several listings, each of which may have `limit` items. Not thread-safe.

    Attributes:
        complete: False once a listing had more items.

    >>> bound = Bound(2)
    >>> list(bound.take("ab")), bound.complete, list(bound.take("abc")), bound.complete
    (['a', 'b'], True, ['a', 'b'], False)
    """

    def __init__(self, limit: int | None) -> None:
        self.complete = True
        self._limit = limit

    def take(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items up to the limit; with None as limit, all of them."""
        for number, item in enumerate(items):
            if number == self._limit:
                self.complete = False
                return
            yield item
