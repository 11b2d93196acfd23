"""Batch reader of an output: whole files of one version, planned without a listing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from commitlog._util.bin_packing import packed
from commitlog.errors import ConfigurationError
from commitlog.outputs import DataFile, Output
from commitlog.spark.formats import format_of
from commitlog.spark.formats.files import Reads
from commitlog.spark.options import OpenOutput, ReadOptions
from commitlog.spark.partitions import column_of
from commitlog.spark.pruning import Pruning
from commitlog.spark.schema import arrow_schema, select, with_nulls
from commitlog.spark.workers import freeze_gc

__all__ = [
    "CommitlogReader",
    "Content",
    "Find",
    "check_asked",
    "content_of",
    "content_of_output",
    "grouped",
    "rows_of",
]

#: Where a file's bytes are: what reads them, and its name for them.
Find: TypeAlias = Callable[[DataFile], tuple[Reads, str]]

#: Opens the store of the files in a task. It is pickled with the reader.
Content: TypeAlias = Callable[[], AbstractContextManager[Find]]

#: Files are read together up to the first size, each counting as the second at least: that is a few
#: seconds' work for a task. A larger file is a partition of its own.
PARTITION_BYTES = 32 * 1024 * 1024
FILE_BYTES = 1024 * 1024


class CommitlogReader(DataSourceReader):
    """Reads files that are named, and never lists.

    Args:
        content: opens the store in a task.
        files: the files of the version.
        stored: all columns of the version.
        schema: the columns to read.
        pruning: the filters that the DataFrame was loaded with. Files and row groups that cannot hold a
            matching row are skipped.

    Filters of a query are not pushed down, although Spark offers it
    (``spark.sql.python.filterPushdown.enabled``): Spark keeps the partitions of one query with the
    DataFrame and uses them again for the next query, which has other filters or none (measured with
    Spark 4.2 and 4.3). So only filters that belong to the DataFrame itself may skip a file.
    """

    def __init__(
        self,
        content: Content,
        files: Sequence[DataFile],
        stored: StructType,
        schema: StructType,
        pruning: Pruning,
    ) -> None:
        self._content = content
        self._files = [file for file in files if pruning.wants(file)]
        self._stored = arrow_schema(stored)
        self._schema = arrow_schema(schema)
        self._pruning = pruning

    def partitions(self) -> list[InputPartition]:
        """Return partitions of whole files, in their order, so that each is worth a task."""
        return [InputPartition(files) for files in grouped(self._files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files of `partition`."""
        freeze_gc()
        with self._content() as find:
            # Spark makes a partition of None where there is none.
            files = partition.value or ()
            yield from rows_of(find, files, self._stored, self._schema, self._pruning)


@contextmanager
def content_of_output(open_output: OpenOutput, options: ReadOptions) -> Iterator[Find]:
    """Open an output to read committed files of it."""
    output = open_output(options)
    with output.store:
        yield content_of(output)


def content_of(output: Output) -> Find:
    """Return what finds committed files of `output`, whose store is open."""
    return lambda file: (output.store, output.locate(file))


def check_asked(asked: StructType, there: StructType) -> None:
    """Raise `ConfigurationError` unless the columns `asked` for are among those `there`."""
    columns = {field.name: field.dataType for field in there}
    for field in asked:
        if columns.get(field.name) != field.dataType:
            listed = ", ".join(f"{name} {kind.simpleString()}" for name, kind in columns.items())
            raise ConfigurationError(
                f"the output has no {field.name} {field.dataType.simpleString()}; it has {listed}"
            )


def grouped(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Return `files`, in their order, in groups that are worth a task each."""
    return packed(files, lambda file: file.size, group_bytes=PARTITION_BYTES, least_bytes=FILE_BYTES)


def rows_of(
    find: Find,
    files: Iterable[DataFile],
    stored: pa.Schema,
    schema: pa.Schema,
    pruning: Pruning,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files.

    Args:
        find: tells where their bytes are.
        files: the files.
        stored: all columns that there were when they were committed, or later.
        schema: the columns to read; a column that a file lacks is null.
        pruning: which parts of files are left out.
    """
    names = set(schema.names)
    for file in files:
        inside = pa.schema([field for field in stored if field.name not in file.partition])
        known, (source, path) = format_of(file.path), find(file)
        for batch in known.read(source, path, file.size, inside, names, pruning.wants_part):
            yield _complete(batch, file, schema)


def _complete(batch: pa.RecordBatch, file: DataFile, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with all columns of `schema`; add columns in the file's path, and nulls."""
    for field in schema:
        if field.name in file.partition and field.name not in batch.schema.names:
            batch = batch.append_column(field, column_of(file.partition, field, batch.num_rows))
    return select(with_nulls(batch, schema), schema)
