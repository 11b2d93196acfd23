"""What keeps a directory that is renamed from ending up below itself, whatever others rename meanwhile.

Imports nothing of the project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

__all__ = ["links_to_check"]


def links_to_check(here: Sequence[str], there: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield which directories must still have which parents when a directory moves between two others.

    Args:
        here: ids of the directories from the root to the old parent, as they were seen, both included.
        there: the same of the new parent.

    Yields pairs of ids: a directory that is above one of the parents alone, or is it, and its own
    parent.

    Then, with the parent of what moves, the ways from both parents to the last common directory L are as
    they were seen at the moment of the move. If the moving X were above its new parent by then, it would
    not be on the way from there to L, for it would have been seen there; so it would be above L, and
    hence above its own old parent, and there was a cycle before. L need not be the last common one by
    then, nor need all have been seen at one time.

    To check the way from the new parent alone is not enough: while ``c`` moves from below ``b`` to below
    ``a``, which has ``b``, somebody moves ``b`` to the root and ``a`` below ``c``.

    >>> list(links_to_check(["root", "a", "b"], ["root", "a"]))
    [('b', 'a')]
    >>> list(links_to_check(["root", "a"], ["root", "c", "d"]))
    [('a', 'root'), ('c', 'root'), ('d', 'c')]
    """
    common = 0
    while common < min(len(here), len(there)) and here[common] == there[common]:
        common += 1
    for chain in (here, there):
        for upper, lower in pairwise(chain[common - 1 :]):
            yield lower, upper
