"""Cycles of directories, found by pointer doubling. A module of its own for restores and checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from commitlog.namespace.partitioned.dataset import Dataset, Keyed

__all__ = ["Edge", "count", "edges_of_cycles"]

#: The id of a directory, and the id of the directory that contains it.
Edge: TypeAlias = tuple[str, str]


def edges_of_cycles(edges: Dataset[Edge]) -> dict[str, str]:
    """Return the parents of the directories that are their own ancestors, by id.

    In each round, a pointer from a directory to an ancestor is replaced by one to an ancestor that is
    twice as far away. A directory whose pointer leaves the edges has no cycle above it, and is left out.
    So a tree that is `d` directories deep takes about log₂ `d` rounds.

    Args:
        edges: one edge for each directory. A parent without an edge is the top.
    """
    edges = edges.keep()
    pointers, left = edges, count(edges)
    while left:
        pointers = pointers.map(_by_both_ends).group(_doubled).keep()
        before, left = left, count(pointers)
        if left == before:  # no directory is twice as deep, so none is deeper: a cycle is above each
            break
    if not left:
        return {}
    size = count(_targets(pointers))
    while True:  # until no pointer leads to a directory that is only below a cycle
        pointers = pointers.map(_by_both_ends).group(_doubled).keep()
        before, size = size, count(_targets(pointers))
        if size == before:
            members = frozenset(_targets(pointers).collect())
            return dict(edges.map(partial(_starting_in, members)).collect())


def count(dataset: Dataset[Any]) -> int:
    """Return the number of records."""
    return sum(dataset.map(_count).collect())


def _count(records: Iterator[object]) -> Iterator[int]:
    yield sum(1 for _ in records)


def _by_both_ends(pointers: Iterator[Edge]) -> Iterator[Keyed[tuple[bool, str]]]:
    for id, target in pointers:
        yield id, 0, (True, target)
        yield target, 1, (False, id)


def _doubled(node: str, values: Iterator[tuple[bool, str]]) -> Iterator[Edge]:
    """Yield pointers to the target of a node, from the directories that point to the node."""
    is_own, target = next(values)
    if is_own:
        yield from ((id, target) for _, id in values)


def _targets(pointers: Dataset[Edge]) -> Dataset[str]:
    return pointers.map(_by_target).group(_once)


def _by_target(pointers: Iterator[Edge]) -> Iterator[Keyed[None]]:
    for _, target in pointers:
        yield target, 0, None


def _once(key: str, values: Iterable[object]) -> Iterator[str]:
    yield key


def _starting_in(members: Collection[str], edges: Iterator[Edge]) -> Iterator[Edge]:
    return (edge for edge in edges if edge[0] in members)
