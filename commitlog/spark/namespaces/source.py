"""What the data source does with a URL of a namespace: columns, readers and writers.

Imports the rest of this package; pyspark from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    JobAlreadyCommitted,
    NotSupported,
)
from commitlog.namespace import Namespace
from commitlog.spark.namespaces.files import (
    SCHEMA,
    Directory,
    columns_of,
    content_at,
    directory_at,
    finding,
)
from commitlog.spark.namespaces.options import LakeOptions, LakeWriteOptions
from commitlog.spark.namespaces.writer import LakeStreamWriter, LakeWriter, Mount, fits, publishing
from commitlog.spark.pruning import parse_filters
from commitlog.spark.reader import CommitlogReader, check_asked
from commitlog.spark.schema import nullable
from commitlog.spark.task import writable
from commitlog.spark.writer import NothingToWrite
from commitlog.urls import Url

__all__ = ["LakeSource", "mount_lake", "physical_files"]

_EMPTY: Mapping[str, str] = MappingProxyType({})


def mount_lake(options: LakeOptions) -> Namespace:
    """Open the namespace that options name."""
    return options.mount()


class LakeSource:
    """One directory of a namespace, for reading or for writing.

    Args:
        options: as Spark hands them over.
        mount: opens the namespace.

    What was found when the columns were asked for is what is read.
    """

    def __init__(self, options: Mapping[str, str], mount: Mount = mount_lake) -> None:
        self._given = options
        self._mount = mount
        self._found: tuple[Directory, StructType | None, Url] | None = None

    def schema(self) -> StructType:
        """Return the columns of what is there now. Raises `NotFound`, `NotSupported`."""
        _, columns, _ = self._find(inferring=True)
        assert columns is not None
        return columns

    def reader(self, schema: StructType) -> CommitlogReader:
        """Return the reader of what was found."""
        found, stored, place = self._find(inferring=False)
        if stored is None:  # nothing tells columns but the user
            stored = nullable(schema)
        check_asked(nullable(schema), stored)
        pruning = parse_filters(LakeOptions.parse(self._given).filters, stored)
        return CommitlogReader(partial(content_at, place), found.files, stored, schema, pruning)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of one job; everything that can be refused is refused here."""
        options = LakeWriteOptions.parse(self._given)
        mode = options.save_mode(overwrite)
        columns = writable(schema, options)
        with publishing(self._mount, options) as publication:
            place = options.store_of(publication.lake)
            fit = fits(publication, columns, options)
            try:
                attempt = publication.begin(options.job_id, mode=mode, fit=fit)
            except JobAlreadyCommitted:
                if options.on_duplicate == "skip":
                    return NothingToWrite()
                raise
            except AlreadyExists:
                if options.if_exists == "ignore":
                    return NothingToWrite()
                raise
        return LakeWriter(self._mount, options, place, attempt, columns)

    def stream_writer(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:
        """Return the writer of a micro-batch of a streaming query."""
        options = LakeWriteOptions.parse(self._given)
        if overwrite:
            raise NotSupported(
                "output mode 'complete' would replace everything with each batch: use 'append'"
            )
        if options.job_id is not None or options.if_exists != "append":
            raise ConfigurationError(
                "options jobId and ifExists are of batch queries: each batch of a stream is a job by"
                " itself, and appends"
            )
        columns = writable(schema, options)
        with publishing(self._mount, options) as publication:
            place = options.store_of(publication.lake)
        return LakeStreamWriter(self._mount, options, place, columns)

    def _find(self, *, inferring: bool) -> tuple[Directory, StructType | None, Url]:
        # Spark keeps this object from load() on, so all actions on a DataFrame see the same files.
        if self._found is None:
            options = LakeOptions.parse(self._given)
            with self._mount(options) as lake:
                found = directory_at(lake, options.path)
                columns = None
                if inferring or SCHEMA in found.status.attributes:
                    columns = columns_of(found, finding(lake.store))
                self._found = found, columns, options.store_of(lake)
        return self._found


def physical_files(url: str, *, options: Mapping[str, str] = _EMPTY) -> list[str]:
    """Return the URLs of the objects that are the files of a directory now, in the order of their paths.

    They are for Spark's own readers, which read faster than ``format("commitlog")``:
    ``spark.read.schema(columns).parquet(*physical_files("commitlog://lake/events"))``. Such a reader
    finds the columns that are in the files, but none of those that are in the names of directories; a
    file's own name tells neither its format nor how it is compressed. What is overwritten or deleted
    later is readable for the grace of the namespace, and then an error.

    Args:
        url: of the directory.
        options: options of the data source; see docs/spark.md.

    Raises `NotFound`, and `ConfigurationError` for an option that is wrong.
    """
    given = LakeOptions.parse({**options, "path": url})
    with given.mount() as lake:
        place = given.store_of(lake)
        keys = [lake.store.key(file.data.path) for file in directory_at(lake, given.path).files]
    return [f"file://{key}" if place.scheme == "file" else f"s3a://{place.name}/{key}" for key in keys]
