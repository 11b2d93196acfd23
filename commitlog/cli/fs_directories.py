"""Directories that are made while others are: each waits for the one above it, as its files do.

Imports the spots of namespaces, and what jobs are told.
"""

from __future__ import annotations

import threading

from commitlog.cli.fs_paths import Spot
from commitlog.cli.work import Advance
from commitlog.errors import AlreadyExists

__all__ = ["NewDirectory"]

#: Seconds after which one who waits looks whether what he waits for is wanted still.
_PATIENCE = 0.1


class NewDirectory:
    """A directory of a tree that is sent. Thread-safe.

    It is made once, by a job that is begun before those for what is in it: so those can wait for it, in
    whatever threads they are.

    Args:
        at: where it is to be.
        path: in the tree; "" for its top.
        above: the directory of the tree that it is in; None for the top.
    """

    def __init__(self, at: Spot, path: str, above: NewDirectory | None) -> None:
        self._at = at
        self._path = path
        self._above = above
        self._ended = threading.Event()
        self._is_new = False

    def has(self, path: str) -> bool:
        """Tell whether a path of the tree is in it, at any depth."""
        return not self._path or path.startswith(f"{self._path}/")

    def make(self, advance: Advance) -> None:
        """Make it, unless it is there, once the one above it is there; errors of `make_directory`.

        If the one above could not be made, it is tried all the same: that tells what is wrong with it.
        """
        try:
            if self._above is not None:
                self._above.wait(advance)
            make = self._at.namespace.make_directory
            try:
                make(self._at.path, exist_ok=False, parents=False)
                self._is_new = True
            except AlreadyExists:
                make(self._at.path, parents=False)
        finally:
            self._ended.set()

    def wait(self, advance: Advance) -> bool:
        """Wait until it was tried to make it; return whether nobody else can have put anything in it.

        Raises what `advance` does when the rest is not wanted any more, for then it may never be tried.
        """
        while not self._ended.wait(_PATIENCE):
            advance(0)
        return self._is_new
