"""Files of a directory in a namespace: their list, their columns, and the place of their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
from attrs import field, frozen
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import SystemClock
from commitlog.errors import Conflict, NotFound, NotSupported
from commitlog.namespace import Data, Namespace, Status
from commitlog.namespace.write.content import Content
from commitlog.outputs import DataFile
from commitlog.outputs.foreign import partition_in
from commitlog.spark.formats import format_of
from commitlog.spark.formats.files import stored_file
from commitlog.spark.reader import Find
from commitlog.spark.schema import arrow_schema, load_schema, nullable
from commitlog.stores.api import ObjectData, ObjectStore
from commitlog.stores.open import open_store
from commitlog.urls import Url

__all__ = [
    "SCHEMA",
    "Directory",
    "NamespaceFile",
    "columns_in",
    "columns_of",
    "content_at",
    "content_in",
    "directory_at",
    "files_at",
    "finding",
]

#: The attribute of a directory that tells the columns of the files in it, as commit records have them.
SCHEMA = "commitlog.schema"

#: How often a directory is looked at again that was replaced meanwhile.
_TRIES = 10


@frozen(kw_only=True)
class NamespaceFile(DataFile):
    """A file in a directory of a namespace; its path is relative to the directory.

    Attributes:
        data: where its content is, and which content that is.
    """

    nonce: str = ""
    data: Data


@frozen(kw_only=True)
class Directory:
    """A directory as it was at one moment: no job that was published since is seen in part.

    Attributes:
        status: of the directory itself.
        files: all files below it that readers do not pass over, by path.
    """

    status: Status
    files: tuple[NamespaceFile, ...] = field(repr=lambda files: f"<{len(files)} files>")


def directory_at(lake: Namespace, path: str) -> Directory:
    """Return the directory at `path`. Raises `NotFound`, and `Conflict` if it is replaced repeatedly."""
    for _ in range(_TRIES):
        before = lake.stat(path)
        files = tuple(files_at(lake, path))
        # What a directory had that was replaced since may be swept away while it is listed.
        if lake.stat(path).id == before.id:
            return Directory(status=before, files=files)
    raise Conflict(f"{path!r} was replaced again and again while it was listed")


def files_at(lake: Namespace, path: str) -> Iterator[NamespaceFile]:
    """Yield the files below `path` that readers do not pass over, by path."""
    for found in lake.walk(path):
        name = found.path[len(path) :].lstrip("/") or found.name
        if found.data is not None and not any(map(_is_hidden, name.split("/"))):
            yield NamespaceFile(
                path=name, size=found.size, partition=partition_in(name), data=found.data
            )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


# -- columns -----------------------------------------------------------------------------------------


def columns_of(found: Directory, find: Find) -> StructType:
    """Return the columns of a directory: those that its jobs have stored, or else its first file's.

    Raises:
        NotFound: there is no file, and nothing tells columns.
        NotSupported: the first file does not tell its columns, or has types that are not known here.
    """
    stored = found.status.attributes.get(SCHEMA)
    if stored is not None:
        return load_schema(stored)
    if not found.files:
        raise NotFound(f"there is no file at {found.status.path!r}, and nothing tells columns")
    return columns_in(found.files, find)


def columns_in(files: Sequence[NamespaceFile], find: Find) -> StructType:
    """Return the columns that the first of `files` tells, and those in the names of directories."""
    [first, *_] = files
    try:
        inside = from_arrow_schema(_footer(first, find), prefer_timestamp_ntz=True)
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


def _footer(file: NamespaceFile, find: Find) -> pa.Schema:
    kind = format_of(file.path).name
    footer: Mapping[str, Callable[[object], pa.Schema]] = {
        "parquet": pa.parquet.read_schema,
        "orc": lambda source: pa.orc.ORCFile(source).schema,
        "arrow": lambda source: pa.ipc.open_file(source).schema,
    }
    if kind not in footer:
        raise NotSupported(
            f"{file.path!r} does not tell its columns, and no job did: name them in schema(…)"
        )
    source, path = find(file)
    with stored_file(source, path, file.size, kind) as opened:
        return footer[kind](opened)


# -- bytes -------------------------------------------------------------------------------------------


@frozen
class _Pinned:
    """Reads one object, as long as it is the one that the file was given."""

    content: Content
    file: NamespaceFile

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        data = self.file.data
        return ObjectData(
            path=data.path,
            size=data.size,
            etag=data.etag,
            last_modified=0.0,
            data=self.content.read(data, start, end),
        )


@contextmanager
def content_at(place: Url) -> Iterator[Find]:
    """Open the store of a namespace to read files of it; an object that was changed is an error."""
    with closing(open_store(place)) as store:
        yield finding(store)


def finding(store: ObjectStore) -> Find:
    """Return what finds the bytes of files in an open store."""
    content = content_in(store)

    def find(file: DataFile) -> tuple[_Pinned, str]:
        assert isinstance(file, NamespaceFile)
        # Its name in the namespace, for that is what tells how it is compressed.
        return _Pinned(content, file), file.path

    return find


def content_in(store: ObjectStore) -> Content:
    """Return the content of a namespace, in a process that has its store alone."""
    return Content(store=store, clock=SystemClock(), backoff=Backoff(), new_id=random_id)
