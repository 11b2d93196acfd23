"""Maps and sequences that never change, for records. Imports nothing of the project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never, TypeVar, overload

__all__ = ["AppendOnly", "FrozenMap", "frozen_map"]

T = TypeVar("T")


class FrozenMap(dict[str, str]):
    """A map of texts that refuses to be changed, with `TypeError`. It can be pickled and copied.

    >>> FrozenMap({"a": "b"})["a"]
    'b'
    >>> FrozenMap()["a"] = "b"
    Traceback (most recent call last):
    TypeError: this map does not change: make a dict of it, and change that
    """

    __slots__ = ()

    def _refuse(self, *args: Any, **kwargs: Any) -> Never:
        raise TypeError("this map does not change: make a dict of it, and change that")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[FrozenMap], tuple[dict[str, str]]]:
        return FrozenMap, (dict(self),)


def frozen_map(value: Mapping[str, str]) -> FrozenMap:
    """Return a map that is as `value` is now, and stays so.

    >>> frozen_map({"a": "b"})
    {'a': 'b'}
    """
    return value if type(value) is FrozenMap else FrozenMap(value)


class AppendOnly(Sequence[T]):
    """A sequence that never changes, and from which a longer one is made without copying the items.

    So a report can carry all that was found so far, each time that something is found. It is equal to
    any tuple of the same items, and can be pickled and copied. One thread may append at a time.

    Args:
        items: what is in it.

    >>> one = AppendOnly("a")
    >>> two = one + "bc"
    >>> one, two
    (('a',), ('a', 'b', 'c'))
    >>> one + "d"
    ('a', 'd')
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def __add__(self, items: Iterable[T]) -> AppendOnly[T]:
        """Return a sequence with more items at the end. It costs as much as these."""
        longer: AppendOnly[T] = AppendOnly()
        # The list is shared, unless it has the items of another sequence that was made of this one. An
        # empty one may be a default that all threads share.
        shared = 0 < self._length == len(self._items)
        longer._items = self._items if shared else list(self)
        longer._items += items
        longer._length = len(longer._items)
        return longer

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        """Return an item, or a tuple of some."""
        if isinstance(at, slice):
            return tuple(self._items[number] for number in range(*at.indices(self._length)))
        return self._items[range(self._length)[at]]

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (tuple, AppendOnly)):
            return NotImplemented
        return self[:] == other[:]

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        return repr(self[:])

    def __reduce__(self) -> tuple[type[AppendOnly[T]], tuple[tuple[T, ...]]]:
        return AppendOnly, (self[:],)
