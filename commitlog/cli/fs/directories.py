"""Concurrent creation of directories: directories and files wait for their parent directory."""

from __future__ import annotations

import threading

from commitlog.cli.fs.paths import Spot
from commitlog.cli.transfer import Advance
from commitlog.errors import AlreadyExists

__all__ = ["NewDirectory"]

#: Seconds between two checks of a waiting job whether it was cancelled.
_PATIENCE = 0.1


class NewDirectory:
    """A directory of a tree that is sent. Thread-safe.

    One job makes it. That job starts before the jobs for the files and directories in it, so these can
    wait for it in any thread.

    Args:
        at: the path of the new directory.
        path: its path in the tree; "" for the top.
        above: its parent directory in the tree; None for the top.
    """

    def __init__(self, at: Spot, path: str, above: NewDirectory | None) -> None:
        self._at = at
        self._path = path
        self._above = above
        self._ended = threading.Event()
        self._is_new = False

    def has(self, path: str) -> bool:
        """Return whether the directory contains a path of the tree, at any depth."""
        return not self._path or path.startswith(f"{self._path}/")

    def make(self, advance: Advance) -> None:
        """Make the directory, unless it exists, after its parent directory.

        If the parent could not be made, the directory is tried even so, because the error then names the
        reason. Raises the errors of `make_directory`.
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
        """Wait for `make` to end. Return whether it made the directory, which was then empty.

        Raises the errors of `advance`, which cancel the wait: after a cancellation `make` may never run.
        """
        while not self._ended.wait(_PATIENCE):
            advance(0)
        return self._is_new
