"""The errors of a missing object or item in an existing store or table."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from commitlog.errors import BucketNotFound, TableNotFound

__all__ = ["SuppressAbsent", "is_absent"]


def is_absent(error: BaseException | None) -> bool:
    """Return whether an error says that something is absent from an existing store or table.

    A missing bucket or table is no such error: it proves nothing about the objects in it.
    """
    return isinstance(error, FileNotFoundError) and not isinstance(
        error, (BucketNotFound, TableNotFound)
    )


class SuppressAbsent(AbstractContextManager[None, bool]):
    """A context manager that suppresses errors for which `is_absent` is true."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return is_absent(error)
