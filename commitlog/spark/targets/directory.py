"""A directory of a namespace as data files: their list, and the columns of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from attrs import field, frozen
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from commitlog.errors import Conflict, NotFound, NotSupported
from commitlog.files import StoredObject, output_format_of
from commitlog.namespace import Data, Namespace, Status
from commitlog.outputs import DataFile
from commitlog.outputs.foreign import partition_in
from commitlog.spark.schema import arrow_schema, load_schema, nullable
from commitlog.spark.targets.base import Locate

__all__ = [
    "SCHEMA",
    "DirectorySnapshot",
    "NamespaceFile",
    "columns_in",
    "columns_of",
    "directory_at",
    "files_at",
]

#: Attribute of a directory with the columns of its files, in the notation of commit records.
SCHEMA = "commitlog.schema"

#: Number of attempts to list a directory that other clients replace meanwhile.
_TRIES = 10


@frozen(kw_only=True)
class NamespaceFile(DataFile):
    """A file in a directory of a namespace; its path is relative to the directory.

    Attributes:
        data: refers to the content.
    """

    nonce: str = ""
    data: Data


@frozen(kw_only=True)
class DirectorySnapshot:
    """A directory at one moment. A job that was published since is not in it, in whole or in part.

    Attributes:
        status: status of the directory.
        files: all files below it that are not hidden, by path.
    """

    status: Status
    files: tuple[NamespaceFile, ...] = field(repr=lambda files: f"<{len(files)} files>")


def directory_at(namespace: Namespace, path: str) -> DirectorySnapshot:
    """Return the directory at `path`. Raises `NotFound`, and `Conflict` if it is replaced repeatedly."""
    for _ in range(_TRIES):
        before = namespace.stat(path)
        files = tuple(files_at(namespace, path))
        # If the directory was replaced meanwhile, gc may have removed some of its files already.
        if namespace.stat(path).id == before.id:
            return DirectorySnapshot(status=before, files=files)
    raise Conflict(f"{path!r} was replaced again and again while it was listed")


def files_at(namespace: Namespace, path: str) -> Iterator[NamespaceFile]:
    """Yield the files below `path` that are not hidden, by path."""
    for found in namespace.walk(path):
        name = found.path[len(path) :].lstrip("/") or found.name
        if found.data is not None and not any(map(_is_hidden, name.split("/"))):
            yield NamespaceFile(
                path=name, size=found.size, partition=partition_in(name), data=found.data
            )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def columns_of(found: DirectorySnapshot, locate: Locate) -> StructType:
    """Return the columns that the jobs of a directory have stored, or else those of its first file.

    Raises:
        NotFound: there is neither a job nor a file.
        NotSupported: the format of the first file does not store columns, or a type is unknown.
    """
    stored = found.status.attributes.get(SCHEMA)
    if stored is not None:
        return load_schema(stored)
    if not found.files:
        raise NotFound(f"there is no file at {found.status.path!r}, and no job has stored columns")
    return columns_in(found.files, locate)


def columns_in(files: Sequence[NamespaceFile], locate: Locate) -> StructType:
    """Return the columns in the first of `files`, and those in the names of directories."""
    [first, *_] = files
    try:
        inside = from_arrow_schema(_footer(first, locate), prefer_timestamp_ntz=True)
        columns = nullable(inside)
        arrow_schema(columns)
    except PySparkException as error:
        raise NotSupported(
            f"{first.path!r} has columns of types that Spark does not know; name those to read, in"
            f" schema(…) ({error})"
        ) from error
    there = {column.name for column in columns}
    partitions = [
        StructField(name, _kind_of([file.partition.get(name) for file in files]))
        for name in first.partition
        if name not in there
    ]
    return StructType([*columns, *partitions])


def _kind_of(values: Sequence[str | None]) -> LongType | StringType:
    return LongType() if all(value is None or _is_whole(value) for value in values) else StringType()


def _is_whole(value: str) -> bool:
    try:
        return str(int(value)) == value and abs(int(value)) < 2**63
    except ValueError:
        return False


def _footer(file: NamespaceFile, locate: Locate) -> pa.Schema:
    schema = output_format_of(file.path).stored_schema(StoredObject(*locate(file), file.size))
    if schema is None:
        raise NotSupported(
            f"{file.path!r} does not store its columns, and no job has: name them in schema(…)"
        )
    return schema
