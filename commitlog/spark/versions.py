"""Versions of PySpark that have what parts of this package need."""

from __future__ import annotations

import re
import sys

from commitlog.errors import NotSupported

__all__ = [
    "COMMITTER",
    "DATA_SOURCES",
    "ORC_INSTANTS",
    "STREAM_READERS",
    "STREAM_WRITERS",
    "has_pyspark",
    "require_pyspark",
]

#: The first version for the configured committer.
COMMITTER = (3, 5)

#: The first version with data sources in Python.
DATA_SOURCES = (4, 0)

#: The first version whose data sources write streams in Arrow batches.
STREAM_WRITERS = (4, 1)

#: The first version whose data sources limit the batches of a stream (admission control).
STREAM_READERS = (4, 2)

#: The first version whose own ORC reader knows the type of instants (timestamp with local time zone).
ORC_INSTANTS = (4, 2)


def has_pyspark(needed: tuple[int, int]) -> bool:
    """Return whether the installed PySpark is of version `needed` or newer."""
    from pyspark import __version__ as found

    return tuple(map(int, re.findall(r"\d+", found)[:2])) >= needed


def require_pyspark(needed: tuple[int, int], user: str) -> None:
    """Raise `NotSupported` if the installed PySpark is older than version `needed`.

    Args:
        needed: the first version that has what `user` needs.
        user: the name that needs it, for the error.
    """
    if not has_pyspark(needed):
        from pyspark import __version__ as found

        version = ".".join(map(str, needed))
        raise NotSupported(
            f"{user} needs PySpark {version} or newer, and this is PySpark {found}, in {sys.executable}:"
            f" use Spark {version} or newer (where the platform brings Spark, a newer release of the"
            " platform)"
        )
