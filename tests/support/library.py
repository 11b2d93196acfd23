"""The choice of classes that a world runs: those of the library, or copies with one rule broken."""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["GetClass", "original"]

_T = TypeVar("_T")


class GetClass(Protocol):
    """A function that returns the class to use for a class of the library."""

    def __call__(self, original: type[_T], /) -> type[_T]: ...


def original(cls: type[_T]) -> type[_T]:
    """Return the class itself."""
    return cls
