"""Which classes of the library a world runs: the originals, or copies with one rule broken."""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["GetClass", "original"]

_T = TypeVar("_T")


class GetClass(Protocol):
    """A function that returns the class that takes the place of a class of the library."""

    def __call__(self, original: type[_T], /) -> type[_T]: ...


def original(cls: type[_T]) -> type[_T]:
    """Return the class itself."""
    return cls
