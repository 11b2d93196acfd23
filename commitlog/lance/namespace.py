"""`CommitlogNamespace`: the methods by which Lance finds tables and creates their versions.

Lance calls them from its own threads, with requests as dictionaries or as models of ``lance_namespace``,
and takes every error of `create_table_version` for a possible conflict: it reads the version, compares
the transaction in it with its own, and succeeds, commits again on top of it, or reports an unknown
result. So it never commits twice, and this module need not decide more than `TableVersions` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from lance_namespace import (
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    ConcurrentModificationError,
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    DropTableRequest,
    DropTableResponse,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespace,
    LanceNamespaceError,
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    NamespaceAlreadyExistsError,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    RegisterTableRequest,
    RegisterTableResponse,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableExistsRequest,
    TableExistsResponse,
    TableNotFoundError,
    TableVersion,
    TableVersionNotFoundError,
    UnsupportedOperationError,
)

from commitlog._util.ids import random_id
from commitlog.aws import Boto3Client, Boto3Session
from commitlog.clock import Clock, SystemClock
from commitlog.commit import ConditionalStore, DynamoCommit, ProbeReport, SqliteCommit
from commitlog.connect import connect
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    DirectoryNotEmpty,
    FormatTooNew,
    InvalidPath,
    LeaseTimeout,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
    Unavailable,
)
from commitlog.lance.catalog import LanceCatalog
from commitlog.lance.storage_options import LanceStorage
from commitlog.lance.versions import TableVersions, VersionManifest
from commitlog.urls import Url, parse_store_url

__all__ = ["CommitlogNamespace"]

_log = logging.getLogger(__name__)

_R = TypeVar("_R")

#: Prefix of properties that are options of Lance's own store, as in Lance's namespaces.
_STORAGE: Final = "storage."

#: The error of the protocol for each error of this library; the first class that fits counts.
_ERRORS: tuple[tuple[type[CommitError], type[LanceNamespaceError]], ...] = (
    (OutcomeUnknown, InternalError),
    (NotSupported, UnsupportedOperationError),
    (ConfigurationError, InvalidInputError),
    (InvalidPath, InvalidInputError),
    (AccessDenied, PermissionDeniedError),
    (CorruptRecord, InvalidTableStateError),
    (FormatTooNew, UnsupportedOperationError),
    (AlreadyExists, ConcurrentModificationError),
    (PreconditionFailed, ConcurrentModificationError),
    *((busy, ServiceUnavailableError) for busy in (Unavailable, Conflict, LeaseTimeout, RequestExpired)),
)


class CommitlogNamespace(LanceNamespace):
    """A namespace of Lance over a `ConditionalStore`. Thread-safe.

    Pass it to Lance: ``lance.write_dataset(data, namespace_client=namespace, table_id=["events"])``, and
    ``lance.dataset(namespace_client=namespace, table_id=["events"])``. Or let Lance or LanceDB make it:
    ``lance_namespace.connect("commitlog.lance.CommitlogNamespace", {"root": "s3://bucket/lake"})``.

    Args:
        root: ``s3://bucket/prefix``, ``file:///directory`` or a directory.
        table: the table of leases, where the store does not enforce preconditions; see
            `commitlog.connect`.
        commit: how conditions are enforced; see `commitlog.connect`.
        session, client, table_client, probe_report, clock: see `commitlog.connect`.
        storage_options: options for Lance's own requests, in addition to location, endpoint, region and
            credentials, which it gets from here: ``{"aws_server_side_encryption": "aws:kms"}``.
        new_id: makes unique ids, for the directories of tables.
        options: options of S3, as ``endpoint_url``; those that begin with ``storage.`` are for Lance.

    Guarantees: each version of a table is created once, by one writer. So with all writers of a table
    using such a namespace, with the same table of leases, no committed row is lost to another commit. An
    answer that was lost makes neither a conflict nor a duplicate: Lance succeeds, or reports an unknown
    result and does not try again.

    A pickled dataset loses its namespace, and commits by its URI. With a table of leases, such commits
    are refused, and new tags and branches, which Lance writes itself; see docs/lance.md.

    Non-guarantees: see `TableVersions` and `LanceCatalog`. Tags, and the properties of branches, are
    written by Lance itself, without this class. Lance reports an unknown result, too, for an error
    that proves that nothing happened, such as that of a store that is down. The log of this module
    has that error.

    Raises:
        ConfigurationError: an argument is wrong, or Lance cannot reach the store.

    Its methods raise errors of ``lance_namespace``, whose ``__cause__`` is the `CommitError`.
    """

    def __init__(
        self,
        root: str,
        *,
        table: str | Url | None = None,
        commit: str | DynamoCommit | SqliteCommit = "auto",
        session: Boto3Session | None = None,
        client: Boto3Client | None = None,
        table_client: Boto3Client | None = None,
        probe_report: ProbeReport | None = None,
        clock: Clock | None = None,
        storage_options: Mapping[str, str] | None = None,
        new_id: Callable[[], str] = random_id,
        **options: str,
    ) -> None:
        extra = {k.removeprefix(_STORAGE): v for k, v in options.items() if k.startswith(_STORAGE)}
        extra |= storage_options or {}
        own = {name: value for name, value in options.items() if not name.startswith(_STORAGE)}
        url = parse_store_url(root).with_options(own)
        self._storage = LanceStorage(
            url,
            clock=clock or SystemClock(),
            extra=extra,
            leased=table is not None or commit not in ("auto", "native"),
            session=session,
            client=client,
        )
        self._store: ConditionalStore = connect(
            url,
            commit=commit,
            table=table,
            session=session,
            client=client,
            table_client=table_client,
            probe_report=probe_report,
            clock=clock,
        )
        self._catalog = LanceCatalog(self._store, new_id=new_id, clock=clock)
        # The directory of a table's id, as last read; for reads only.
        self._locations: dict[tuple[str, ...], str] = {}

    @property
    def store(self) -> ConditionalStore:
        """The store of the tables."""
        return self._store

    def namespace_id(self) -> str:
        """Return a name for this namespace, without secrets; Lance shares caches by it."""
        return f"CommitlogNamespace({self._store.url!r})"

    def __repr__(self) -> str:
        return self.namespace_id()

    def close(self) -> None:
        """Release the connections and files of the store and its table of leases. Idempotent."""
        self._store.close()

    def __enter__(self) -> CommitlogNamespace:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- versions ----------------------------------------------------------------------------------

    def create_table_version(self, request: CreateTableVersionRequest) -> CreateTableVersionResponse:
        """Create a version from the manifest that Lance has staged; see `TableVersions.create`.

        Lance calls it for each commit.
        """
        fields = _fields(request)
        names, version = _names(fields), fields["version"]
        with _translated(names):
            versions = self._versions(names, fields, read_record=True)
            staged = str(fields["manifest_path"]).rpartition("/")[2]
            try:
                created = versions.create(version, staged, scheme=fields.get("naming_scheme") or "V2")
            except AlreadyExists:
                raise
            except CommitError as error:
                _log.warning("version %s of table %s was not created: %s", version, _show(names), error)
                raise
        return CreateTableVersionResponse(
            version=self._table_version(created, size=fields.get("manifest_size"))
        )

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        """Return the versions of a table, the latest first."""
        fields = _fields(request)
        names = _names(fields)
        with _translated(names):
            versions = self._versions(names, fields)
            if fields.get("limit") == 1 and not fields.get("page_token"):
                latest = versions.latest()
                found, token = [] if latest is None else [latest], None
            else:
                found, token = _page(
                    versions.list(), fields, lambda manifest: f"{_LAST - manifest.version:020}"
                )
        return ListTableVersionsResponse(
            versions=[self._table_version(manifest) for manifest in found], page_token=token
        )

    def describe_table_version(
        self, request: DescribeTableVersionRequest
    ) -> DescribeTableVersionResponse:
        """Return a version of a table, by default the latest."""
        fields = _fields(request)
        names, version = _names(fields), fields.get("version")
        with _translated(names):
            versions = self._versions(names, fields)
            found = versions.latest() if version is None else versions.find(version)
        if found is None:
            raise TableVersionNotFoundError(f"table {_show(names)} has no version {version or ''}")
        return DescribeTableVersionResponse(version=self._table_version(found))

    def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest
    ) -> BatchDeleteTableVersionsResponse:
        """Remove the manifests of old versions; see `TableVersions.delete`."""
        fields = _fields(request)
        names = _names(fields)
        ranges = [(each["start_version"], each["end_version"]) for each in fields["ranges"]]
        with _translated(names):
            count = self._versions(names, fields, read_record=True).delete(ranges)
        return BatchDeleteTableVersionsResponse(deleted_count=count)

    # -- tables ------------------------------------------------------------------------------------

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        """Add a table without versions; Lance then creates the first one.

        It gets a directory of its own, so a `location` in the request is refused: see `register_table`.
        If the writer dies before the first version, write with mode ``append`` or ``overwrite``.
        """
        fields = _fields(request)
        names = _names(fields)
        if fields.get("location"):
            raise InvalidInputError("the location of a new table is chosen here: leave it out")
        with _translated(names, exists=TableAlreadyExistsError, missing=NamespaceNotFoundError):
            record = self._catalog.declare(names, properties=fields.get("properties") or {})
            self._locations[names] = record.location
            return DeclareTableResponse(
                location=self._storage.uri(record.location),
                storage_options=self._storage_options(fields),
                properties=dict(record.properties),
                managed_versioning=True,
            )

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        """Return the location of a table, and how Lance reaches it.

        The details that need the table to be opened (schema, statistics) are not filled in.
        """
        fields = _fields(request)
        names = _names(fields)
        with _translated(names):
            record = self._catalog.table(names)
            self._locations[names] = record.location
            declared = None
            if fields.get("check_declared") or fields.get("load_detailed_metadata"):
                declared = TableVersions(self._store, record.location).latest() is None
            uri = self._storage.uri(record.location)
            return DescribeTableResponse(
                table=names[-1],
                namespace=list(names[:-1]),
                location=uri,
                table_uri=uri,
                storage_options=self._storage_options(fields),
                properties=dict(record.properties),
                managed_versioning=True,
                is_only_declared=declared,
            )

    def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        """Return if the table exists; else raise ``TableNotFoundError``."""
        names = _names(_fields(request))
        with _translated(names):
            self._catalog.table(names)
        return TableExistsResponse()

    def register_table(self, request: RegisterTableRequest) -> RegisterTableResponse:
        """Add a table that Lance has written below the root, under its URI or its path there.

        Stop all writers that commit to it by its URI first. Register a directory as one table only, and
        none that contains another table: `drop_table` removes all files in it.
        """
        fields = _fields(request)
        names = _names(fields)
        if (fields.get("mode") or "create").lower() != "create":
            raise UnsupportedOperationError("only mode Create: deregister the other table first")
        with _translated(names, exists=TableAlreadyExistsError, missing=NamespaceNotFoundError):
            location = self._storage.location(fields["location"])
            if "://" in location or location.startswith("/"):
                raise ConfigurationError(f"a table has to be below {self._storage.root}")
            if TableVersions(self._store, location).latest() is None:
                raise ConfigurationError(f"there is no table of Lance at {location!r}")
            properties = fields.get("properties") or {}
            record = self._catalog.declare(names, location=location, properties=properties)
        return RegisterTableResponse(
            location=self._storage.uri(record.location), properties=dict(record.properties)
        )

    def deregister_table(self, request: DeregisterTableRequest) -> DeregisterTableResponse:
        """Remove a table from the namespace. Its files stay, and can be registered again."""
        names = _names(_fields(request))
        with _translated(names):
            record = self._catalog.remove(names)
            self._locations.pop(names, None)
        return DeregisterTableResponse(
            id=list(names),
            location=self._storage.uri(record.location),
            properties=dict(record.properties),
        )

    def drop_table(self, request: DropTableRequest) -> DropTableResponse:
        """Remove a table, and then all files in its directory.

        If it is interrupted in between, or its outcome is unknown, files remain in the table's
        directory, which nothing uses any more.
        """
        names = _names(_fields(request))
        with _translated(names):
            record = self._catalog.remove(names)
            self._locations.pop(names, None)
            self._catalog.delete_files(record)
        return DropTableResponse(
            id=list(names),
            location=self._storage.uri(record.location),
            properties=dict(record.properties),
        )

    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """Return the sorted names of the tables in a namespace."""
        fields = _fields(request)
        names = _names(fields)
        with _translated(names, missing=NamespaceNotFoundError):
            found, token = _page(self._catalog.children(names)[1], fields, lambda name: name)
        return ListTablesResponse(tables=found, page_token=token)

    # -- namespaces --------------------------------------------------------------------------------

    def create_namespace(self, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
        """Create a namespace in an existing one; mode ``ExistOk`` accepts one that exists."""
        fields = _fields(request)
        names, properties = _names(fields), fields.get("properties") or {}
        mode = (fields.get("mode") or "create").lower().replace("_", "")
        if mode not in ("create", "existok"):
            raise UnsupportedOperationError("a namespace is not overwritten: use mode Create or ExistOk")
        with _translated(names, exists=NamespaceAlreadyExistsError, missing=NamespaceNotFoundError):
            try:
                self._catalog.create_namespace(names, properties)
            except AlreadyExists:
                if mode == "create":
                    raise
                properties = self._catalog.namespace(names)
        return CreateNamespaceResponse(properties=dict(properties))

    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        """Return the properties of a namespace."""
        names = _names(_fields(request))
        with _translated(names, missing=NamespaceNotFoundError):
            return DescribeNamespaceResponse(properties=dict(self._catalog.namespace(names)))

    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        """Return if the namespace exists; else raise ``NamespaceNotFoundError``."""
        names = _names(_fields(request))
        with _translated(names, missing=NamespaceNotFoundError):
            self._catalog.namespace(names)
        return NamespaceExistsResponse()

    def drop_namespace(self, request: DropNamespaceRequest) -> DropNamespaceResponse:
        """Remove an empty namespace; mode ``Skip`` accepts a missing one."""
        fields = _fields(request)
        names = _names(fields)
        if (fields.get("behavior") or "restrict").lower() != "restrict":
            raise UnsupportedOperationError("drop the tables and namespaces in it first")
        try:
            with _translated(names, missing=NamespaceNotFoundError):
                self._catalog.drop_namespace(names)
        except NamespaceNotFoundError:
            if (fields.get("mode") or "fail").lower() != "skip":
                raise
        return DropNamespaceResponse()

    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        """Return the sorted names of the namespaces in a namespace."""
        fields = _fields(request)
        names = _names(fields)
        with _translated(names, missing=NamespaceNotFoundError):
            found, token = _page(self._catalog.children(names)[0], fields, lambda name: name)
        return ListNamespacesResponse(namespaces=found, page_token=token)

    # -- inside ------------------------------------------------------------------------------------

    def _versions(
        self, names: tuple[str, ...], fields: Mapping[str, Any], *, read_record: bool = False
    ) -> TableVersions:
        location = None if read_record else self._locations.get(names)
        if location is None:
            location = self._catalog.table(names).location
            self._locations[names] = location
        return TableVersions(self._store, location, branch=_branch(fields))

    def _storage_options(self, fields: Mapping[str, Any]) -> dict[str, str] | None:
        if fields.get("vend_credentials") is False:
            return None
        return self._storage.options() or None

    def _table_version(self, manifest: VersionManifest, *, size: int | None = None) -> TableVersion:
        created = manifest.created
        return TableVersion(
            version=manifest.version,
            # As Lance's own store names it: from the root of the bucket or of the file system.
            manifest_path=self._store.key(manifest.path).lstrip("/"),
            manifest_size=manifest.size if size is None else size,
            e_tag=manifest.etag or None,
            timestamp_millis=None if created is None else int(created * 1000),
        )


#: The highest number of a version, for names that sort in descending order.
_LAST: Final = 2**63


def _fields(request: Any) -> dict[str, Any]:
    """Return the fields of a request; Lance's dictionaries lack those that are not set."""
    dump: dict[str, Any] = request.model_dump()
    return dump


def _names(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(fields.get("id") or ())


def _branch(fields: Mapping[str, Any]) -> str | None:
    branch = fields.get("branch")
    return None if branch in (None, "", "main") else str(branch)


def _show(names: Sequence[str]) -> str:
    return repr(".".join(names))


def _page(
    items: Sequence[_R], fields: Mapping[str, Any], key: Callable[[_R], str]
) -> tuple[list[_R], str | None]:
    """Return the items of a page, and the token of the next one: the key of the page's last item."""
    token, limit = fields.get("page_token") or "", fields.get("limit")
    left = [item for item in items if key(item) > token]
    if limit is None or limit < 0 or len(left) <= limit:
        return left, None
    return left[:limit], key(left[limit - 1]) if limit else token or None


@contextmanager
def _translated(
    names: Sequence[str],
    *,
    exists: type[LanceNamespaceError] = ConcurrentModificationError,
    missing: type[LanceNamespaceError] = TableNotFoundError,
) -> Iterator[None]:
    """Raise errors of this library as those of the protocol.

    Args:
        names: id of the namespace or table, for the message.
        exists: the class for `AlreadyExists`.
        missing: the class for `NotFound`.
    """
    try:
        yield
    except CommitError as error:
        named: tuple[tuple[type[CommitError], type[LanceNamespaceError]], ...] = (
            (AlreadyExists, exists),
            (NotFound, missing),
            (DirectoryNotEmpty, NamespaceNotEmptyError),
            *_ERRORS,
        )
        kind = next((theirs for ours, theirs in named if isinstance(error, ours)), InternalError)
        raise kind(f"{_show(names)}: {type(error).__name__}: {error}") from error
