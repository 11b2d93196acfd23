"""Which errors say that something is not there. Imports the errors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from commitlog.errors import BucketNotFound, TableNotFound

__all__ = ["SuppressAbsent", "is_absent"]


def is_absent(error: BaseException | None) -> bool:
    """Tell whether an error says that something is not there, in a store and a table that are.

    `NotFound` alone does not: a store that is not there has told nothing of what is in it.
    """
    return isinstance(error, FileNotFoundError) and not isinstance(
        error, (BucketNotFound, TableNotFound)
    )


class SuppressAbsent(AbstractContextManager[None, bool]):
    """Leaves its block quietly where an error says that something `is_absent`."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return is_absent(error)
