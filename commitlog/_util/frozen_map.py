"""Immutable maps and sequences for records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never, TypeVar, overload

__all__ = ["AppendOnly", "FrozenMap", "frozen_map"]

T = TypeVar("T")


class FrozenMap(dict[str, str]):
    """An immutable map of strings; changes raise `TypeError`. It can be pickled and copied.

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
    """Return an immutable copy of `value`.

    >>> frozen_map({"a": "b"})
    {'a': 'b'}
    """
    return value if type(value) is FrozenMap else FrozenMap(value)


class AppendOnly(Sequence[T]):
    """An immutable sequence that can be extended without copying the items.

    So each progress report can carry all earlier findings at no cost. It is equal to any tuple of the
    same items, and can be pickled and copied. One thread may append at a time.

    Args:
        items: the items.

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
        """Return a sequence with more items at the end. The cost depends only on the added items."""
        longer: AppendOnly[T] = AppendOnly()
        # Share the list, unless another sequence that was made of this one has added items to it. Do not
        # share an empty list: it may be a default that all threads use.
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
