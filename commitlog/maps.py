"""Maps of texts that never change, for records that never change. Imports nothing of the project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Never

__all__ = ["FrozenMap", "frozen_map"]


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
