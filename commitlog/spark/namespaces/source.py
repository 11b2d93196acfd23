"""Data source for directories of a namespace: columns, readers and writers."""

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
from commitlog.spark.namespaces.options import NamespaceOptions, NamespaceWriteOptions
from commitlog.spark.namespaces.writer import (
    Mount,
    NamespaceStreamWriter,
    NamespaceWriter,
    fits,
    publishing,
)
from commitlog.spark.pruning import parse_filters
from commitlog.spark.reader import CommitlogReader, check_asked
from commitlog.spark.schema import nullable
from commitlog.spark.tasks import writable
from commitlog.spark.writer import NothingToWrite
from commitlog.urls import Url

__all__ = ["NamespaceSource", "namespace_of", "physical_files"]

_EMPTY: Mapping[str, str] = MappingProxyType({})


def namespace_of(options: NamespaceOptions) -> Namespace:
    """Open the namespace that options name."""
    return options.mount()


class NamespaceSource:
    """One directory of a namespace, for reading or for writing.

    Args:
        options: as Spark hands them over.
        mount: opens the namespace.

    The files to read are those that exist when the columns are read first.
    """

    def __init__(self, options: Mapping[str, str], mount: Mount = namespace_of) -> None:
        self._given = options
        self._mount = mount
        self._found: tuple[Directory, StructType | None, Url] | None = None

    def schema(self) -> StructType:
        """Return the columns of the directory now. Raises `NotFound`, `NotSupported`."""
        _, columns, _ = self._find(inferring=True)
        assert columns is not None
        return columns

    def reader(self, schema: StructType) -> CommitlogReader:
        """Return the reader of the files."""
        found, stored, place = self._find(inferring=False)
        if stored is None:  # nothing tells columns but the user
            stored = nullable(schema)
        check_asked(nullable(schema), stored)
        pruning = parse_filters(NamespaceOptions.parse(self._given).filters, stored)
        return CommitlogReader(partial(content_at, place), found.files, stored, schema, pruning)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of one job; everything that can be refused is refused here."""
        options = NamespaceWriteOptions.parse(self._given)
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
        return NamespaceWriter(self._mount, options, place, attempt, columns)

    def stream_writer(self, schema: StructType, overwrite: bool) -> NamespaceStreamWriter:
        """Return the writer of a micro-batch of a streaming query."""
        options = NamespaceWriteOptions.parse(self._given)
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
        return NamespaceStreamWriter(self._mount, options, place, columns)

    def _find(self, *, inferring: bool) -> tuple[Directory, StructType | None, Url]:
        # Spark keeps this object from load() on, so all actions on a DataFrame see the same files.
        if self._found is None:
            options = NamespaceOptions.parse(self._given)
            with self._mount(options) as lake:
                found = directory_at(lake, options.path)
                columns = None
                if inferring or SCHEMA in found.status.attributes:
                    columns = columns_of(found, finding(lake.store))
                self._found = found, columns, options.store_of(lake)
        return self._found


def physical_files(url: str, *, options: Mapping[str, str] = _EMPTY) -> list[str]:
    """Return the URLs of the objects of a directory's current files, in the order of the files' paths.

    Use them with Spark's own readers, which read faster than ``format("commitlog")``:
    ``spark.read.schema(columns).parquet(*physical_files("commitlog://lake/events"))``. Such a reader
    finds the columns in the files, but not those in the names of directories. The name of an object
    shows neither its format nor its compression. Files that are overwritten or deleted later can be read
    for the grace period of the namespace; after that, reading them fails.

    Args:
        url: of the directory.
        options: options of the data source; see docs/spark.md.

    Raises `NotFound`, and `ConfigurationError` for an option that is wrong.
    """
    given = NamespaceOptions.parse({**options, "path": url})
    with given.mount() as lake:
        place = given.store_of(lake)
        keys = [lake.store.key(file.data.path) for file in directory_at(lake, given.path).files]
    return [f"file://{key}" if place.scheme == "file" else f"s3a://{place.name}/{key}" for key in keys]
