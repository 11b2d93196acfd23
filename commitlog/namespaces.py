"""Opening, creation and restore of namespaces by name.

These functions open the metadata table, the store of the content, and the log of a namespace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.commit import ConditionalStore, ProbeReport
from commitlog.connect import connect
from commitlog.errors import ConfigurationError, NotFound
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace, NamespaceMetadata, Restorer
from commitlog.namespace.metadata import namespace_not_found
from commitlog.namespace.model.keys import NAMESPACES, Keys
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.api import Table
from commitlog.tables.open import open_table
from commitlog.tables.rate_limit import RateLimitedTable, bucket_of_process
from commitlog.urls import Url, parse_store_url, parse_table_url

if TYPE_CHECKING:
    from commitlog.aws import Boto3Session

__all__ = [
    "METADATA",
    "NamespaceParts",
    "create_namespace",
    "list_namespaces",
    "metadata_table_url",
    "open_namespace",
    "open_parts",
    "parse_url",
    "restore_namespace",
    "store_of",
]

#: Environment variable with the URL of the metadata table, used if no URL is given.
METADATA = "COMMITLOG_METADATA"

#: Options of the store's URL that apply only to the client that created the namespace.
_OF_CREATOR = frozenset({"profile", "verify"})

_SCHEME = "commitlog://"

#: Number of log entries that are read in parallel. With more, threads would wait for Python's lock.
_ENTRIES_AT_A_TIME = 16


def parse_url(url: str) -> tuple[str, str]:
    """Return the name of the namespace in a URL, and the path in it.

    The path after the name is not percent-encoded, and there is no query.

    Raises `ConfigurationError` if it is not such a URL.

    >>> parse_url("commitlog://lake/events/day=1/")
    ('lake', 'events/day=1')
    >>> parse_url("commitlog://lake")
    ('lake', '')
    """
    if not isinstance(url, str) or not url.startswith(_SCHEME):
        raise ConfigurationError("the URL of a namespace must be commitlog://NAME/PATH")
    name, _, path = url.removeprefix(_SCHEME).partition("/")
    return Keys(name).namespace, path.removesuffix("/")


def list_namespaces(
    metadata: str | Url | None = None,
    *,
    clock: Clock | None = None,
    session: Boto3Session | None = None,
) -> Iterator[str]:
    """Yield the names of the namespaces in a table, in order.

    Arguments and errors are as for `open_namespace`.
    """
    table = _open_metadata(metadata, _clock_of(clock), session)
    with closing(table):
        for item in table.query(NAMESPACES):
            yield str(item["name"])


def open_namespace(
    name: str,
    *,
    metadata: str | Url | None = None,
    store: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    session: Boto3Session | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
    grace: float = 3600.0,
    stable_paths: bool = False,
    write_units: float | None = None,
) -> Namespace:
    """Open an existing namespace. One item of the table is read.

    Args:
        name: the name of the namespace.
        metadata: its table: ``dynamodb://table``, ``sqlite:///file`` or ``memory://name``. Default: the
            environment variable ``COMMITLOG_METADATA``.
        store: the URL of the store with its content, if it is not the URL that the namespace was created
            with: another endpoint, other credentials, another directory to which a disk is mounted.
        commit, leases, probe_report: how the conditional writes of its log are enforced; `commit`,
            `table` and `probe_report` of `connect`. A namespace without a log needs none of them.
        session: a boto3 session, for table and store.
        clock, backoff, grace, stable_paths: see `Namespace`.
        write_units: the rate of writes to the table, in write units of DynamoDB per second (1 KiB; a
            write in a transaction takes two or more). All clients of this process with the same table
            and rate share it. After each change the caller waits, so this is for bulk work. By default
            there is no limit.

    Returns a namespace; close it when done.

    Raises:
        ConfigurationError: an argument is wrong, or `store` names another bucket than the namespace's.
        NotFound: the table has no such namespace.
        TableNotFound: the table does not exist.
        FormatTooNew: it was created by a newer version of this library.

    >>> lake = create_namespace("lake", store="memory://mounted", metadata="memory://mounted-names")
    >>> lake.write("a/b", b"rows").size
    4
    >>> open_namespace("lake", metadata="memory://mounted-names").read("a/b")
    b'rows'
    """
    options = _Options(
        commit=commit,
        leases=leases,
        probe_report=probe_report,
        session=session,
        clock=clock,
        backoff=backoff,
        grace=grace,
        stable_paths=stable_paths,
    )
    with ExitStack() as undone:
        table = undone.enter_context(
            closing(_open_metadata(metadata, options.clock, session, write_units))
        )
        namespace = _open_existing(name, table, None if store is None else _parsed(store), options)
        undone.pop_all()
        return namespace


def create_namespace(
    name: str,
    *,
    store: str | Url,
    metadata: str | Url | None = None,
    log: bool = True,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    session: Boto3Session | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
    grace: float = 3600.0,
    stable_paths: bool = False,
) -> Namespace:
    """Create a namespace and open it. If it exists, only open it.

    An existing namespace must have its content in `store`; otherwise this raises `ConfigurationError`.
    `log` has no effect on it.

    A metadata table in SQLite or in memory is created, too. A DynamoDB table must exist
    (``commitlog table create --for namespaces``).

    Args:
        store: the store for its content; this cannot be changed later.
        log: whether every change is logged in the store, below ``_commitlog/``: the names can be
            restored from the log if the table is lost. It costs four requests for each change.

    Other arguments and errors are as for `open_namespace`, except that a missing namespace is created.
    Raises `AlreadyExists` if `store` has the log of a namespace with that name, but the table does not
    have the namespace: its table was lost, or is another one. Restore it, or choose another name.
    """
    options = _Options(
        commit=commit,
        leases=leases,
        probe_report=probe_report,
        session=session,
        clock=clock,
        backoff=backoff,
        grace=grace,
        stable_paths=stable_paths,
    )
    location = _parsed(store)
    with ExitStack() as undone:
        table = undone.enter_context(closing(_open_metadata(metadata, options.clock, session)))
        _create_embedded(table)
        if table.get(Keys(name).metadata) is None:
            namespace = options.open(name, table, location, log=_log_of(name) if log else None)
            undone.callback(namespace.store.close)
            if namespace.create():
                undone.pop_all()
                return namespace
            namespace.store.close()
        namespace = _open_existing(name, table, location, options)
        undone.callback(namespace.store.close)
        found = namespace.describe(writing=False)
        if _location(parse_store_url(found.store)) != _location(location):
            raise _other_store(name, found, location)
        undone.pop_all()
        return namespace


@contextmanager
def restore_namespace(
    name: str,
    *,
    store: str | Url,
    metadata: str | Url | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    session: Boto3Session | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
    write_units: float | None = None,
) -> Iterator[Restorer]:
    """Return a context manager that yields a `Restorer`: it restores lost names from the log in `store`.

    The table must exist, except that a table in SQLite or in memory is created if there is a log.
    Arguments and errors are as for `open_namespace`. `store` must be the store that the namespace was
    created with: after the loss of the table no other record has it.
    """
    options = _Options(
        commit=commit,
        leases=leases,
        probe_report=probe_report,
        session=session,
        clock=clock,
        backoff=backoff,
    )
    with (
        closing(_open_metadata(metadata, options.clock, session, write_units)) as table,
        options.connect(store) as logged,
    ):
        log = options.log(logged, _log_of(Keys(name).namespace))
        if not any(logged.list(log.prefix)):
            raise NotFound(
                f"{logged.url} has no log of a namespace {name!r}: name the store that it was"
                " created with"
            )
        _create_embedded(table)
        yield Restorer(table=table, store=logged.object_store, log=log, name=name)


@frozen(kw_only=True)
class NamespaceParts:
    """The table, the store and the log of a namespace, for work that needs no `Namespace`.

    Attributes:
        table: the table.
        store: the store of the content.
        log: the log of the first epoch.
    """

    table: Table
    store: ObjectStore
    log: OperationLog


@contextmanager
def open_parts(
    name: str,
    *,
    metadata: str | Url,
    store: str | Url,
    log: str | None = None,
    commit: str = "auto",
    leases: str | Url | None = None,
    probe_report: ProbeReport | None = None,
    write_units: float | None = None,
) -> Iterator[NamespaceParts]:
    """Open the parts of a namespace in one of many processes. This reads nothing.

    Args:
        name: the name of the namespace.
        metadata: its table.
        store: the store of its content.
        log: path of its log; by default that of a namespace that `create_namespace` has created.
        commit, leases, probe_report, write_units: see `open_namespace`.
    """
    options = _Options(
        commit=commit, leases=leases, probe_report=probe_report, session=None, clock=None, backoff=None
    )
    with (
        closing(_open_metadata(metadata, options.clock, None, write_units)) as table,
        options.connect(store) as logged,
    ):
        path = _log_of(Keys(name).namespace) if log is None else log
        yield NamespaceParts(table=table, store=logged.object_store, log=options.log(logged, path))


def _clock_of(clock: Clock | None) -> Clock:
    return SystemClock() if clock is None else clock


@frozen(kw_only=True)
class _Options:
    """Options for opening a namespace; see `open_namespace`."""

    commit: str
    leases: str | Url | None
    probe_report: ProbeReport | None
    session: Boto3Session | None
    clock: Clock = field(converter=_clock_of)
    backoff: Backoff | None
    grace: float = 3600.0
    stable_paths: bool = False

    def connect(self, location: str | Url) -> ConditionalStore:
        """Open a store with a log in it."""
        return connect(
            location,
            commit=self.commit,
            table=self.leases,
            session=self.session,
            probe_report=self.probe_report,
            clock=self.clock,
            backoff=self.backoff,
        )

    def open(self, name: str, table: Table, location: Url, *, log: str | None) -> Namespace:
        """Open the namespace, and the store of its log."""
        operations = None
        if log is None:
            store = open_store(location, clock=self.clock, session=self.session)
        else:
            logged = self.connect(location)
            store = logged.object_store
            operations = self.log(logged, log)
        return Namespace(
            table,
            store,
            name,
            clock=self.clock,
            backoff=self.backoff,
            log=operations,
            grace=self.grace,
            stable_paths=self.stable_paths,
        )

    def log(self, store: ConditionalStore, path: str) -> OperationLog:
        """Return the operation log at `path`."""
        open_executor = None if _answers_at_once(store) else _reading_threads
        return OperationLog(
            store, path, clock=self.clock, open_executor=open_executor, backoff=self.backoff
        )


def _answers_at_once(store: ConditionalStore) -> bool:
    # A store on this machine answers before another thread could send a request.
    return parse_store_url(store.url).scheme != "s3"


def _reading_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_ENTRIES_AT_A_TIME, "commitlog-log")


def _open_existing(name: str, table: Table, store: Url | None, options: _Options) -> Namespace:
    item = table.get(Keys(name).metadata)
    if item is None:
        raise namespace_not_found(name, table.url)
    metadata = NamespaceMetadata.from_item(item)
    metadata.check(writing=False)
    location = store_of(metadata)
    # A directory may be mounted at another path; a bucket has only one name.
    if store is not None and (
        location.scheme != store.scheme
        or (location.scheme == "s3" and _location(location) != _location(store))
    ):
        raise _other_store(name, metadata, store)
    return options.open(name, table, location if store is None else store, log=metadata.log)


def _parsed(store: str | Url) -> Url:
    return parse_store_url(store) if isinstance(store, str) else store


def _log_of(name: str) -> str:
    return f"_commitlog/namespaces/{name}/log"


def _without_options(url: Url, options: frozenset[str]) -> Url:
    return evolve(url, options={k: v for k, v in url.options.items() if k not in options})


def _location(url: Url) -> tuple[str, str]:
    return os.path.realpath(url.name) if url.scheme == "file" else url.name, url.prefix


def _other_store(name: str, metadata: NamespaceMetadata, store: Url) -> ConfigurationError:
    return ConfigurationError(
        f"the content of namespace {name!r} is in {metadata.store}, not in {store}"
    )


def store_of(metadata: NamespaceMetadata) -> Url:
    """Return the URL of the store of a namespace, without the options of the client that created it."""
    return _without_options(parse_store_url(metadata.store), _OF_CREATOR)


def metadata_table_url(metadata: str | Url | None) -> str | Url:
    """Return the URL of the table: `metadata`, or by default the environment variable.

    Raises `ConfigurationError` if there is neither.
    """
    url = metadata or os.environ.get(METADATA)
    if not url:
        raise ConfigurationError(
            "no metadata table is given: dynamodb://NAME or sqlite:///ABSOLUTE/FILE, as argument or"
            f" option 'metadata', or in the environment variable {METADATA}"
        )
    return url


def _open_metadata(
    metadata: str | Url | None,
    clock: Clock,
    session: Boto3Session | None,
    write_units: float | None = None,
) -> Table:
    table = open_table(metadata_table_url(metadata), NAMESPACE_SCHEMA, clock=clock, session=session)
    if write_units is None:
        return table
    try:
        return RateLimitedTable(table, bucket_of_process(table.url, write_units, clock))
    except ConfigurationError:
        table.close()
        raise


def _create_embedded(table: Table) -> None:
    if parse_table_url(table.url).scheme != "dynamodb":
        table.create()
