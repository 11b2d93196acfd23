"""Requests and units of a job of n files by other systems, and by Spark with ours, as functions of n.

``./run bench cost`` counts the requests of each, and ``tests/integration/test_cost_of_others.py``
compares them with these functions. A file has one part or one block. There is one writer, and no
conflict. docs/cost.md has the versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pricing.usage import Usage

__all__ = ["CONTENDERS"]


def _listed(files: int) -> Usage:
    return Usage(put_requests=3 * files + 6, get_requests=2, free_requests=1)


def _logged(files: int) -> Usage:
    return Usage(put_requests=2 * files + 5, get_requests=3 * files + 2)


def _magic(files: int) -> Usage:
    return Usage(put_requests=12 * files + 14, get_requests=7 * files + 5, free_requests=2 * files + 2)


def _magic_in_memory(files: int) -> Usage:
    return Usage(put_requests=9 * files + 14, get_requests=3 * files + 5, free_requests=files + 2)


def _directory(files: int) -> Usage:
    return Usage(put_requests=3 * files + 9, get_requests=5)


def _file_output(files: int) -> Usage:
    return Usage(put_requests=10 * files + 10, get_requests=10 * files + 5, free_requests=files + 1)


def _delta(files: int) -> Usage:
    # The average between two checkpoints, which are a hundred commits apart: a commit reads all commits
    # since the last one.
    return Usage(
        put_requests=files + 5.03,
        get_requests=114.12,
        free_requests=1,
        write_units=2,
        read_units=2,
    )


def _juicefs(files: int) -> Usage:
    # Only of the object store: the metadata engine is not billed by requests.
    return Usage(put_requests=files)


#: The usage of a job of a number of files, by the name of the system. The first are committers of
#: ``df.write.parquet("s3a://…")``; those of this library are in an output without earlier jobs.
CONTENDERS: Mapping[str, Callable[[int], Usage]] = MappingProxyType(
    {
        "Spark, commitlog, listed": _listed,
        "Spark, commitlog, logged": _logged,
        "Spark, S3A magic": _magic,
        "Spark, S3A magic in memory": _magic_in_memory,
        "Spark, S3A directory": _directory,
        "Spark, FileOutputCommitter v2": _file_output,
        "Delta Lake, S3DynamoDBLogStore": _delta,
        "JuiceFS, object store only": _juicefs,
    }
)
