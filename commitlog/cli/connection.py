"""The options with which commands connect to a store and a table.

The environment can set each of them instead (``COMMITLOG_…``). Options in the query of a URL take
precedence over both, so that one command can connect to two services. Stores and namespaces are imported
when one is opened: the help of a command does not need them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from attrs import field, fields, frozen

from commitlog.cli.connection_options import (
    ANYTHING,
    METADATA,
    NAMESPACE,
    OBJECT,
    SERVICE,
    STORE,
    Decorator,
)
from commitlog.cli.parameters import DURATION
from commitlog.cli.urls import Location, refuse_secrets, split, split_directory
from commitlog.connect import connect
from commitlog.errors import ConfigurationError, CorruptRecord
from commitlog.urls import Url, bucket_of, parse_store_url, parse_table_url

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore, ProbeReport
    from commitlog.namespace import Namespace, Restorer
    from commitlog.stores.api import ObjectStore
    from commitlog.tables.api import Table, TableSchema

__all__ = [
    "Connection",
    "any_options",
    "grace_option",
    "metadata_options",
    "namespace_options",
    "object_options",
    "store_options",
    "table_options",
    "write_units_option",
]

R = TypeVar("R")
C = TypeVar("C", bound="_Closeable")

_OF_SERVICE = ("endpoint_url", "region", "profile")


@frozen(kw_only=True)
class Connection:
    """The connection options of one command.

    Attributes:
        endpoint_url: the endpoint of the service that the command's URL names. This and the following
            two options apply if the URL does not have them.
        region: the region of the service.
        profile: the profile of the shared AWS configuration.
        addressing_style: ``path``, ``virtual`` or ``auto``; only for S3.
        table: the URL of the table of leases.
        commit: the strategy, as in `commitlog.connect`.
        probe_report: a file with the report of a probe of the store, as printed by ``probe --json``.
        root: the root of a local store to which nothing has been written yet.
        metadata: the URL of the metadata table.
        store: the URL of a namespace's content, if it is not the one of its creation.
        grace: the number of seconds for which a namespace keeps content that it no longer needs.
        write_units: the rate of writes to the metadata table; see `open_namespace`.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    addressing_style: str | None = None
    table: str | None = None
    commit: str = "auto"
    probe_report: str | None = None
    root: str | None = None
    metadata: str | None = None
    store: str | None = None
    grace: float = 3600.0
    write_units: float | None = None
    _namespaces: dict[str, Namespace] = field(factory=dict, init=False, repr=False, eq=False)

    def locate(self, url: str, *, prefix: bool = False) -> Location:
        """Return the location of an object; see `commitlog.cli.urls.split`."""
        return split(url, root=self.root, prefix=prefix)

    def locate_directory(self, url: str) -> Location:
        """Return the location of a whole store or output; see `commitlog.cli.urls.split_directory`."""
        return split_directory(url, root=self.root)

    def leases(self, url: str) -> Table:
        """Open a table of leases. This sends no request."""
        from commitlog.commit.record import LEASE_SCHEMA

        return self.open_table(url, LEASE_SCHEMA)

    def open_table(self, url: str, schema: TableSchema) -> Table:
        """Open a table whose items have the keys `schema`. This sends no request."""
        from commitlog.tables.open import open_table

        return _close_at_end(open_table(self._complete(parse_table_url(url)), schema))

    def open_store(self, url: str) -> ObjectStore:
        """Open a store for reading. This sends no request."""
        return _close_at_end(self.open_input(url))

    def open_input(self, url: str) -> ObjectStore:
        """Open a store for reading, which the caller closes. This sends no request."""
        from commitlog.stores.open import open_store

        return open_store(self._complete(parse_store_url(url)))

    def open(self, store: Url) -> ConditionalStore:
        """Open a store for conditional writes. This sends no request.

        The connection options apply only to the store. Those of the table of leases come from its URL
        and the environment, because it may belong to another service.
        """
        return self._open(store, self._probe_report())

    def open_both(self, one: Url, other: Url) -> tuple[ConditionalStore, ConditionalStore]:
        """Open two stores. The probe report, if any, is passed to the store that it describes."""
        probe_report = self._probe_report()
        if probe_report is None:
            return self._open(one, None), self._open(other, None)
        described = [probe_report.is_of(str(self._with_options(store))) for store in (one, other)]
        # A report that describes neither is passed to both, which refuse it.
        reports = [probe_report if each or not any(described) else None for each in described]
        return self._open(one, reports[0]), self._open(other, reports[1])

    def is_same_store(self, one: Url, other: Url) -> bool:
        """Return whether two URLs are of one store, with the same options or not."""
        return bucket_of(str(self._with_options(one))) == bucket_of(str(self._with_options(other)))

    def namespace(self, name: str) -> Namespace:
        """Open an existing namespace. The same name returns the same instance."""
        if name not in self._namespaces:
            self._namespaces[name] = _close_at_end(self._open_namespace(name))
        return self._namespaces[name]

    def create_namespace(self, name: str, *, log: bool) -> Namespace:
        """Create a namespace, or open the existing one if its content is in the same place."""
        from commitlog.namespaces import create_namespace

        store = self._store()
        if store is None:
            raise click.UsageError("give the URL for its content: --store s3://bucket/prefix")
        return _close_at_end(create_namespace(name, log=log, **self._arguments(store)))

    def restorer(self, name: str) -> Restorer:
        """Return the restorer of a namespace from the log in its store."""
        from commitlog.namespaces import restore_namespace

        return click.get_current_context().with_resource(
            restore_namespace(name, **self.restore_arguments())
        )

    def restore_arguments(self) -> dict[str, Any]:
        """Return the arguments with which any process restores a namespace."""
        store = self._store()
        if store is None:
            raise click.UsageError("give the URL of its content and log: --store s3://bucket/prefix")
        return self._arguments(store)

    def namespaces(self) -> Iterator[str]:
        """Yield the names of all namespaces in the table."""
        from commitlog.namespaces import list_namespaces

        return list_namespaces(self._metadata())

    def namespace_arguments(self, name: str) -> dict[str, Any]:
        """Return the arguments with which another process opens an existing namespace."""
        return self._arguments(self._store() or self._store_with_options(self.namespace(name)))

    def _open_namespace(self, name: str) -> Namespace:
        from commitlog.namespaces import open_namespace

        store = self._store()
        namespace = open_namespace(name, grace=self.grace, **self._arguments(store))
        if store is None and (url := self._store_with_options(namespace)) is not None:
            namespace.close()
            namespace = open_namespace(name, grace=self.grace, **self._arguments(url))
        return namespace

    def _store_with_options(self, namespace: Namespace) -> Url | None:
        """Return the store of a namespace with the options of this command; None if it has none."""
        if not (self.profile or self.addressing_style):
            return None
        url = parse_store_url(namespace.describe(writing=False).store)
        if url.scheme != "s3":
            return None
        return url.with_options({"profile": self.profile, "addressing_style": self.addressing_style})

    def _arguments(self, store: Url | None) -> dict[str, Any]:
        limit = {} if self.write_units is None else {"write_units": self.write_units}
        return {
            **limit,
            "metadata": self._metadata(),
            "store": store,
            "commit": self.commit,
            "leases": self._leases(),
            "probe_report": self._probe_report(),
        }

    def _metadata(self) -> Url | None:
        return None if self.metadata is None else self._complete(parse_table_url(self.metadata))

    def _store(self) -> Url | None:
        return None if self.store is None else self._complete(parse_store_url(self.store))

    def _leases(self) -> Url | None:
        if self.table is None:
            return None
        url = parse_table_url(self.table)
        refuse_secrets(url)
        return url

    def _open(self, store: Url, probe_report: ProbeReport | None) -> ConditionalStore:
        return _close_at_end(
            connect(
                self._with_options(store),
                commit=self.commit,
                table=self._leases(),
                probe_report=probe_report,
            )
        )

    def _probe_report(self) -> ProbeReport | None:
        from commitlog.commit import ProbeReport

        if self.probe_report is None:
            return None
        try:
            return ProbeReport.from_json(Path(self.probe_report).read_text())
        except (CorruptRecord, OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(f"--probe-report {self.probe_report!r}: {reason}") from error

    def _complete(self, url: Url) -> Url:
        """Return a URL with the connection options that it does not have. Refuse secrets in it."""
        refuse_secrets(url)
        return self._with_options(url)

    def _with_options(self, url: Url) -> Url:
        names = {"s3": ("addressing_style", *_OF_SERVICE), "dynamodb": _OF_SERVICE}.get(url.scheme, ())
        return url.with_options({name: getattr(self, name) for name in names if name not in url.options})


class _Closeable(Protocol):
    def close(self) -> None: ...


def _close_at_end(opened: C) -> C:
    click.get_current_context().call_on_close(opened.close)
    return opened


_FIELDS = frozenset(attribute.name for attribute in fields(Connection))


def any_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options for objects, tables and namespaces to `command`, as in `object_options`."""
    return _with_connection(command, ANYTHING)


def object_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options for one object to `command`, as a `Connection` in its first argument."""
    return _with_connection(command, OBJECT)


def store_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options for a whole store to `command`, as in `object_options`."""
    return _with_connection(command, STORE)


def table_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options for a table to `command`, as in `object_options`."""
    return _with_connection(command, SERVICE)


def metadata_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options for a metadata table to `command`, as in `object_options`."""
    return _with_connection(command, METADATA)


def namespace_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options for namespaces, their content and log to `command`, as in `object_options`."""
    return _with_connection(command, NAMESPACE)


def grace_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the option --grace, the time for which content of removed files is kept, to `command`."""
    return click.option(
        "--grace",
        type=DURATION,
        default="1h",
        show_default=True,
        help="How long the content of files that this command removes is kept for their readers.",
    )(command)


def write_units_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the option --write-units, the rate of writes to the metadata table, to `command`."""
    return click.option(
        "--write-units",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="Maximum number of write units of the table per second, as DynamoDB counts them.",
    )(command)


def _with_connection(command: Callable[..., R], options: tuple[Decorator, ...]) -> Callable[..., R]:
    @functools.wraps(command)
    def with_connection(**arguments: Any) -> R:
        settings = {name: arguments.pop(name) for name in _FIELDS.intersection(arguments)}
        return command(Connection(**settings), **arguments)

    decorated: Callable[..., Any] = with_connection
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
