"""`Catalog`: a pyiceberg catalog over a `ConditionalStore`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pyiceberg.catalog import (
    LOCATION,
    MANIFEST,
    MANIFEST_LIST,
    METADATA,
    PREVIOUS_METADATA,
    WAREHOUSE_LOCATION,
    MetastoreCatalog,
    PropertiesUpdateSummary,
    delete_data_files,
    delete_files,
)
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    LeaseTimeout,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
    Unavailable,
)
from commitlog.iceberg.model import (
    Levels,
    Names,
    NamespaceExists,
    NamespaceMissing,
    NotEmpty,
    Pointer,
    TableEntry,
    TableExists,
    TableMissing,
    show,
)
from commitlog.iceberg.properties import open_records
from commitlog.iceberg.records import CatalogRecords

if TYPE_CHECKING:
    import pyarrow

    from commitlog.commit import ConditionalStore

__all__ = ["Catalog"]

logger = logging.getLogger(__name__)

#: The errors of pyiceberg for the rules of names.
_ERRORS: tuple[tuple[type[CommitError], type[Exception]], ...] = (
    (NamespaceMissing, NoSuchNamespaceError),
    (NamespaceExists, NamespaceAlreadyExistsError),
    (NotEmpty, NamespaceNotEmptyError),
    (TableMissing, NoSuchTableError),
    (TableExists, TableAlreadyExistsError),
    (OutcomeUnknown, CommitStateUnknownException),
)

#: Errors of a write that did not happen, and may happen if it is made again after a refresh.
_RETRYABLE = (
    PreconditionFailed,
    AlreadyExists,
    Conflict,
    LeaseTimeout,
    RequestExpired,
    Unavailable,
)


class Catalog(MetastoreCatalog):
    """Iceberg tables whose names and pointers are records in a store. No server is needed.

    Args:
        name: the name of the catalog, for messages. Catalogs with the same `uri` are the same catalog.
        store: the store of the records, in place of `uri`. The catalog closes it.
        properties: ``uri``: URL of the directory of the records, as for `commitlog.connect`.
            ``commitlog.table`` and ``commitlog.commit``: the arguments ``table`` and ``commit`` of
            `commitlog.connect`. ``commitlog.probe-report``: a file with the output of
            ``commitlog probe --json``, so that the catalog need not probe. ``warehouse``: where tables
            are stored that have no location. All others are those of pyiceberg, whose `FileIO` reads and
            writes metadata and data. The endpoint, region, profile and credentials in ``s3.…`` and
            ``client.…`` also apply to the records, unless `uri` has its own.

    Guarantees: a commit succeeds, or raises ``CommitFailedException`` and has not happened, or raises
    ``CommitStateUnknownException`` and may have happened. Then no file is deleted. Of all commits that
    begin with the same metadata at most one succeeds. Creating, renaming and dropping tables and
    namespaces is atomic, a rename to another namespace included.

    Not guaranteed: the store's lifecycle rules, and programs that write the records in another way. A
    commit that runs while its table is dropped may succeed although the table is gone. Views are not
    supported (``NotImplementedError``).

    In addition to the errors of pyiceberg, all methods may raise those of `commitlog.ConditionalStore`.
    Methods may be called from any thread. A table object may not.

    Raises:
        NoSuchPropertyException: neither `uri` nor `store` is given.
        ConfigurationError: the URL or an option is wrong.

    >>> from pyiceberg.catalog import load_catalog
    >>> catalog = load_catalog(
    ...     "lake", **{"py-catalog-impl": "commitlog.iceberg.Catalog", "uri": "memory://doc-iceberg"}
    ... )
    >>> catalog.create_namespace("sales")
    >>> catalog.list_namespaces()
    [('sales',)]
    """

    def __init__(self, name: str, *, store: ConditionalStore | None = None, **properties: str) -> None:
        super().__init__(name, **properties)
        self._store = open_records(properties) if store is None else store
        self._records = CatalogRecords(self._store)

    # -- tables ------------------------------------------------------------------------------------

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pyarrow.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table; see pyiceberg.

        Raises:
            NoSuchNamespaceError, TableAlreadyExistsError: nothing was created.
            ValueError: there is neither a location nor a warehouse.
            CommitStateUnknownException: the table may exist, or was created and could not be loaded.
                Load it to find out.
        """
        levels = _namespace_and_name(identifier, NoSuchNamespaceError)
        with _translated():
            self._records.names().require_free(levels)
        staged = self._create_staged_table(
            identifier, schema, location, partition_spec, sort_order, properties
        )
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        with _removed_if_unused(staged), _translated():
            self._add(levels, staged.metadata_location)
        return self._load_changed(levels, "created")

    def register_table(
        self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False
    ) -> Table:
        """Give a name to a table that exists; see pyiceberg.

        Raises:
            NoSuchNamespaceError, TableAlreadyExistsError, FileNotFoundError: nothing was registered.
            NotImplementedError: for `overwrite`.
            CommitStateUnknownException: the table may be registered. Load it to find out.
        """
        if overwrite:
            raise NotImplementedError("`overwrite` is not supported: drop the table, then register it")
        levels = _namespace_and_name(identifier, NoSuchNamespaceError)
        table = self._read_table(levels, metadata_location)
        with _translated():
            self._add(levels, metadata_location)
        return table

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the table of that name; see pyiceberg. Raises ``NoSuchTableError``."""
        levels = _namespace_and_name(identifier, NoSuchTableError)
        with _translated():
            pointer = self._records.find(levels)
        return self._read_table(levels, pointer.metadata_location)

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Return whether there is a table of that name. Its metadata is not read."""
        try:
            levels = _namespace_and_name(identifier, NoSuchTableError)
        except NoSuchTableError:
            return False
        return levels in self._records.names().tables

    def drop_table(self, identifier: str | Identifier) -> None:
        """Remove the name of a table, and keep its files; see pyiceberg.

        Raises:
            NoSuchTableError: nothing was dropped.
            CommitStateUnknownException: the table may be dropped.
        """
        levels = _namespace_and_name(identifier, NoSuchTableError)
        with _translated():
            entry = self._records.drop(levels)
        self._forget(entry)

    def purge_table(self, identifier: str | Identifier) -> None:
        """Remove a table and its files; see pyiceberg.

        Files are deleted after the name is gone. A file that can not be deleted is logged and left. The
        files of a commit that runs meanwhile may be left.

        Raises:
            NoSuchTableError: nothing was deleted.
            CommitStateUnknownException: the table may be dropped. No file was deleted.
            CommitError, FileNotFoundError: the table was dropped, but its pointer or metadata could not
                be read. Its files are left.
        """
        levels = _namespace_and_name(identifier, NoSuchTableError)
        with _translated():
            entry = self._records.drop(levels)
        table = self._read_table(levels, self._records.pointer(entry).metadata_location)
        metadata, io = table.metadata, table.io
        manifests = [each for snapshot in metadata.snapshots for each in snapshot.manifests(io)]
        delete_data_files(io, manifests)
        delete_files(io, {each.manifest_path for each in manifests}, MANIFEST)
        delete_files(io, {each.manifest_list for each in metadata.snapshots}, MANIFEST_LIST)
        delete_files(io, {each.metadata_file for each in metadata.metadata_log}, PREVIOUS_METADATA)
        delete_files(io, {table.metadata_location}, METADATA)
        self._forget(entry)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table in one step, also to another namespace; see pyiceberg. Its files stay.

        Raises:
            NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError: nothing was renamed.
            CommitStateUnknownException: the table has one of the two names, or was renamed and could not
                be loaded.
        """
        source = _namespace_and_name(from_identifier, NoSuchTableError)
        target = _namespace_and_name(to_identifier, NoSuchNamespaceError)
        with _translated():
            self._records.change(lambda names: names.rename_table(source, target))
        return self._load_changed(target, "renamed")

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Apply updates to a table if the requirements hold; see pyiceberg.

        Raises:
            NoSuchTableError: the table does not exist. Nothing happened.
            CommitFailedException: a requirement does not hold, another commit came before, or the store
                could not be reached. Nothing happened, and the new metadata file was removed.
            TableAlreadyExistsError: another client has created the table. Nothing happened.
            CommitStateUnknownException: the commit may have happened. Nothing was removed.
        """
        levels = table.name()
        creates = any(isinstance(each, AssertCreate) for each in requirements)
        pointer: Pointer | None = None
        current: Table | None = None
        try:
            with _translated():
                pointer = self._records.find(levels)
            current = self._read_table(levels, pointer.metadata_location)
        except NoSuchTableError:
            if not creates:
                raise
        staged = self._update_and_stage_table(current, levels, requirements, updates)
        if current is not None and staged.metadata == current.metadata:
            return _answer(current)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        with _removed_if_unused(staged):
            if pointer is None:
                with _translated():
                    self._add(levels, staged.metadata_location)
            else:
                with _translated_commit(levels):
                    self._records.move(pointer, staged.metadata_location)
        return _answer(staged)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables of a namespace, sorted; see pyiceberg. Raises ``NoSuchNamespaceError``."""
        with _translated():
            return self._records.names().tables_in(_namespace(namespace))

    def remove_leftovers(self) -> int:
        """Remove the pointers of dropped tables that a drop could not remove; return their number.

        It may run at any time, together with any other call. Metadata and data files are not touched.
        """
        leftovers = self._records.leftovers()
        for table in leftovers:
            self._records.remove(table)
        return len(leftovers)

    # -- namespaces --------------------------------------------------------------------------------

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace, of any number of levels; see pyiceberg.

        Raises:
            NamespaceAlreadyExistsError: there is one, or there is something below it.
            NoSuchNamespaceError: the name, or a level of it, is empty.
            ValueError: a property is not a text.
            CommitStateUnknownException: the namespace may exist.
        """
        levels = _namespace(namespace)
        _check_texts(properties)
        with _translated():
            self._records.change(lambda names: names.create_namespace(levels, properties))

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Remove an empty namespace; see pyiceberg.

        Raises:
            NoSuchNamespaceError: there is none.
            NamespaceNotEmptyError: it has tables or namespaces.
            CommitStateUnknownException: the namespace may be gone.
        """
        levels = _namespace(namespace)
        with _translated():
            self._records.change(lambda names: names.drop_namespace(levels))

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Return whether a namespace was created, or has a namespace or table below it."""
        try:
            levels = _namespace(namespace)
        except NoSuchNamespaceError:
            return False
        return self._records.names().has_namespace(levels)

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces one level below another, sorted; see pyiceberg.

        Raises ``NoSuchNamespaceError``.
        """
        levels = _namespace(namespace) if namespace else ()
        with _translated():
            return self._records.names().namespaces_in(levels)

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Return the properties of a namespace; see pyiceberg. Raises ``NoSuchNamespaceError``."""
        with _translated():
            return dict(self._records.names().properties(_namespace(namespace)))

    def update_namespace_properties(
        self,
        namespace: str | Identifier,
        removals: set[str] | None = None,
        updates: Properties = EMPTY_DICT,
    ) -> PropertiesUpdateSummary:
        """Change properties of a namespace in one step; see pyiceberg.

        Raises:
            NoSuchNamespaceError: there is none.
            ValueError: a property is both changed and removed, or is not a text.
            CommitStateUnknownException: the properties may be changed.
        """
        levels = _namespace(namespace)
        _check_texts(updates)
        summaries: list[PropertiesUpdateSummary] = []

        def edit(names: Names) -> Names:
            summary, changed = self._get_updated_props_and_update_summary(
                dict(names.properties(levels)), removals, updates
            )
            summaries.append(summary)
            return names.set_properties(levels, changed)

        with _translated():
            self._records.change(edit)
        return summaries[-1]

    # -- views -------------------------------------------------------------------------------------

    def list_views(self, namespace: str | Identifier) -> NoReturn:
        """Raise ``NotImplementedError``: there are no views."""
        raise NotImplementedError

    def view_exists(self, identifier: str | Identifier) -> NoReturn:
        """Raise ``NotImplementedError``: there are no views."""
        raise NotImplementedError

    def load_view(self, identifier: str | Identifier) -> NoReturn:
        """Raise ``NotImplementedError``: there are no views."""
        raise NotImplementedError

    def create_view(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise ``NotImplementedError``: there are no views."""
        raise NotImplementedError

    def register_view(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise ``NotImplementedError``: there are no views."""
        raise NotImplementedError

    def drop_view(self, identifier: str | Identifier) -> NoReturn:
        """Raise ``NotImplementedError``: there are no views."""
        raise NotImplementedError

    # -- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the connections and files of the store of the records. Idempotent."""
        self._store.close()

    # -- inside ------------------------------------------------------------------------------------

    def _create_staged_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pyarrow.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> StagedTable:
        # That of pyiceberg takes namespaces of one level only.
        levels = _namespace_and_name(identifier, NoSuchNamespaceError)
        version: Any = properties.get(
            TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION
        )
        converted = self._convert_schema_if_needed(schema, int(version))  # type: ignore[arg-type]
        location = location.rstrip("/") if location else self._default_location(levels)
        provider = load_location_provider(location, properties)
        metadata_location = provider.new_table_metadata_file_location()
        metadata = new_table_metadata(
            location=location,
            schema=converted,
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties=properties,
        )
        io = self._load_file_io(properties=properties, location=metadata_location)
        return StagedTable(
            identifier=levels,
            metadata=metadata,
            metadata_location=metadata_location,
            io=io,
            catalog=self,
        )

    def _default_location(self, levels: Levels) -> str:
        """Return ``WAREHOUSE/NAMESPACE/TABLE``, or the same below the location of the namespace."""
        *namespace, name = levels
        if {".", ".."} & set(levels):
            raise ValueError(f"{show(levels)} has no default path: specify a location")
        base = self.load_namespace_properties(tuple(namespace)).get(LOCATION)
        if base:
            return f"{base.rstrip('/')}/{name}"
        warehouse = self.properties.get(WAREHOUSE_LOCATION)
        if not warehouse:
            raise ValueError("No default path is set, please specify a location when creating a table")
        return f"{warehouse.rstrip('/')}/{'.'.join(namespace)}/{name}"

    def _read_table(self, levels: Levels, metadata_location: str) -> Table:
        io = self._load_file_io(location=metadata_location)
        metadata = FromInputFile.table_metadata(io.new_input(metadata_location))
        return Table(
            identifier=levels,
            metadata=metadata,
            metadata_location=metadata_location,
            io=self._load_file_io(metadata.properties, metadata_location),
            catalog=self,
        )

    def _load_changed(self, levels: Levels, change: str) -> Table:
        """Return a table that was just created or renamed.

        An error of loading it must not look as if nothing had happened.
        """
        try:
            return self.load_table(levels)
        except Exception as error:
            raise CommitStateUnknownException(
                f"Table {show(levels)} was {change}, and could not be loaded ({error}). Load it again"
            ) from error

    def _add(self, levels: Levels, metadata_location: str) -> None:
        entry = self._records.new_entry(metadata_location)
        self._records.change(lambda names: names.create_table(levels, entry))

    def _forget(self, dropped: TableEntry) -> None:
        """Remove the pointer of a dropped table; `remove_leftovers` does it if this fails."""
        try:
            self._records.remove(dropped.id)
        except CommitError as error:
            logger.warning("The pointer of a dropped table, id %s, is left: %s", dropped.id, error)


def _answer(table: Table) -> CommitTableResponse:
    fields: dict[str, Any] = {"metadata": table.metadata, "metadata_location": table.metadata_location}
    return CommitTableResponse(**fields)


def _namespace(namespace: str | Identifier) -> Levels:
    """Return the levels of a namespace. Raises ``NoSuchNamespaceError`` if one is blank."""
    levels = MetastoreCatalog.identifier_to_tuple(namespace)
    if not levels or not all(level.strip() for level in levels):
        raise NoSuchNamespaceError(f"The name of a namespace is empty, or has an empty level: {levels}")
    return levels


def _namespace_and_name(identifier: str | Identifier, error: type[Exception]) -> Levels:
    """Return the levels of a namespace and the name of a table in it. Raises `error`."""
    levels = MetastoreCatalog.identifier_to_tuple(identifier)
    if len(levels) < 2 or not all(level.strip() for level in levels):
        raise error(f"A table has a namespace and a name, and neither is empty: {levels}")
    return levels


def _check_texts(properties: Properties) -> None:
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"property {name!r} is {value!r}: names and values must be texts")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of pyiceberg in place of those of names and of unknown outcomes."""
    try:
        yield
    except CommitError as error:
        for ours, theirs in _ERRORS:
            if isinstance(error, ours):
                raise theirs(str(error)) from error
        raise


@contextlib.contextmanager
def _translated_commit(levels: Levels) -> Iterator[None]:
    """Raise the errors of pyiceberg in place of those of moving a pointer."""
    with _translated():
        try:
            yield
        except _RETRYABLE as error:
            raise CommitFailedException(
                f"Table {show(levels)} was not changed: {error}. Refresh it and try again"
            ) from error


@contextlib.contextmanager
def _removed_if_unused(staged: StagedTable) -> Iterator[None]:
    """Remove a new metadata file after an error that proves that nothing points to it."""
    try:
        yield
    except (CommitStateUnknownException, OutcomeUnknown):
        raise
    except (CommitFailedException, TableAlreadyExistsError, NoSuchNamespaceError, CommitError):
        delete_files(staged.io, {staged.metadata_location}, METADATA)
        raise
