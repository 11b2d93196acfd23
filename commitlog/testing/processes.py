"""`ProcessOwner`: the life of child processes, for the proxy and the stress test."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Self

__all__ = ["ProcessOwner"]


class ProcessOwner(abc.ABC):
    """The base of context managers that start child processes, and end them on exit.

    If the start fails, the processes that were started are ended, too.
    """

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @abc.abstractmethod
    def _start(self) -> None:
        """Start the processes. Return when they are ready."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End the processes. Idempotent, also after a start that failed."""
