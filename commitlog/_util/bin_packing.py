"""Packing of work items into groups that are each large enough for a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["packed"]

T = TypeVar("T")


def packed(
    things: Iterable[T], size: Callable[[T], int], *, group_bytes: int, least_bytes: int
) -> list[list[T]]:
    """Return `things`, in their order, in groups of neighbours.

    Args:
        things: the items to group.
        size: returns the size of an item, in bytes.
        group_bytes: maximum size of a group. A larger item is a group of its own.
        least_bytes: minimum size that an item counts as: the bytes that could be read in the time that
            opening it takes.

    >>> packed([10, 50, 10], int, group_bytes=64, least_bytes=1)
    [[10, 50], [10]]
    """
    groups: list[list[T]] = []
    filled = 0
    for each in things:
        cost = max(size(each), least_bytes)
        if not groups or filled + cost > group_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(each)
        filled += cost
    return groups
