"""The options by which every command reaches its store and its table.

Each may come from the environment instead (``COMMITLOG_…``). What a URL says of itself in its query
goes before both, so that one command can reach two services. Imports connect, mount, stores, tables and
urls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from attrs import field, fields, frozen

from commitlog.cli.places import Place, refuse_secrets, split, split_directory
from commitlog.commit import ConditionalStore, Verdict
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.connect import connect
from commitlog.errors import ConfigurationError, CorruptRecord
from commitlog.mount import create_namespace, mount, namespaces, restoring
from commitlog.namespace import Namespace, Restorer
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.api import Table, TableSchema
from commitlog.tables.open import open_table
from commitlog.urls import Url, parse_store_url, parse_table_url

__all__ = [
    "Connection",
    "names_options",
    "namespace_options",
    "object_options",
    "store_options",
    "table_options",
]

R = TypeVar("R")
C = TypeVar("C", ConditionalStore, Namespace, ObjectStore, Table)
_Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_OF_SERVICE = ("endpoint_url", "region", "profile")


@frozen(kw_only=True)
class Connection:
    """How to reach services: the options of one command.

    Attributes:
        endpoint_url: of the service that the command's URL names, where the URL does not give one.
        region: likewise.
        profile: of the shared AWS configuration, likewise.
        addressing_style: ``path``, ``virtual`` or ``auto``; S3 alone.
        table: URL of the table that leases are kept in.
        commit: strategy, as `commitlog.connect` takes it.
        verdict: file with what a probe of the store found, as ``commitlog probe --json`` prints it.
        root: root of a local store that nothing has been written to yet.
        names: URL of the table that namespaces are kept in.
        store: URL of a namespace's content, where it is not the one that it was created with.
        grace: seconds for which content is kept that a namespace does not need any more.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    addressing_style: str | None = None
    table: str | None = None
    commit: str = "auto"
    verdict: str | None = None
    root: str | None = None
    names: str | None = None
    store: str | None = None
    grace: float = 3600.0
    _mounted: dict[str, Namespace] = field(factory=dict, init=False, repr=False, eq=False)

    def place(self, url: str, *, prefix: bool = False) -> Place:
        """Cut an object's URL in two; see `commitlog.cli.places.split`."""
        return split(url, root=self.root, prefix=prefix)

    def directory(self, url: str) -> Place:
        """Return the place of a whole store or output; see `commitlog.cli.places.split_directory`."""
        return split_directory(url, root=self.root)

    def leases(self, url: str) -> Table:
        """Open a table of leases; nothing is sent before it is used."""
        return self.opened_table(url, LEASE_SCHEMA)

    def opened_table(self, url: str, schema: TableSchema) -> Table:
        """Open a table whose items have the keys `schema`; nothing is sent before it is used."""
        parsed = parse_table_url(url)
        refuse_secrets(parsed)
        return _closed_at_end(open_table(self._completed(parsed), schema))

    def opened_store(self, url: str) -> ObjectStore:
        """Open a store to read from; nothing is sent before it is used."""
        parsed = parse_store_url(url)
        refuse_secrets(parsed)
        return _closed_at_end(open_store(self._completed(parsed)))

    def open(self, store: Url) -> ConditionalStore:
        """Open the store; nothing is sent before it is used.

        The table goes by its own URL and the environment: it may be another service's.
        """
        return self._open(store, self._verdict())

    def open_both(self, one: Url, other: Url) -> tuple[ConditionalStore, ConditionalStore]:
        """Open two stores; the verdict, if there is one, is given to the one that it is of."""
        verdict = self._verdict()
        if verdict is None:
            return self._open(one, None), self._open(other, None)
        of = [verdict.is_of(str(self._completed(store))) for store in (one, other)]
        # One that is of neither is given to both, and refused.
        given = [verdict if it or not any(of) else None for it in of]
        return self._open(one, given[0]), self._open(other, given[1])

    def namespace(self, name: str) -> Namespace:
        """Open a namespace that is there; the same one for the same name."""
        if name not in self._mounted:
            self._mounted[name] = _closed_at_end(self._mount(name))
        return self._mounted[name]

    def created_namespace(self, name: str, *, log: bool) -> Namespace:
        """Make a namespace, or open the one that is there, and has its content there."""
        store = self._store()
        if store is None:
            raise click.UsageError("say where its content is to be: --store s3://bucket/prefix")
        lake = create_namespace(
            name,
            store=store,
            names=self._names(),
            log=log,
            commit=self.commit,
            leases=self._leases(),
            verdict=self._verdict(),
        )
        return _closed_at_end(lake)

    def restorer(self, name: str) -> Restorer:
        """Return what makes a namespace again from the log in its store."""
        store = self._store()
        if store is None:
            raise click.UsageError("say where its content and log are: --store s3://bucket/prefix")
        return click.get_current_context().with_resource(
            restoring(
                name,
                store=store,
                names=self._names(),
                commit=self.commit,
                leases=self._leases(),
                verdict=self._verdict(),
            )
        )

    def namespaces(self) -> Iterator[str]:
        """Yield the names of all namespaces that the table has."""
        return namespaces(self._names())

    def _mount(self, name: str) -> Namespace:
        def mounted(store: Url | None) -> Namespace:
            return mount(
                name,
                names=self._names(),
                store=store,
                commit=self.commit,
                leases=self._leases(),
                verdict=self._verdict(),
                grace=self.grace,
            )

        store = self._store()
        lake = mounted(store)
        if store is None and (self.profile or self.addressing_style):
            place = parse_store_url(lake.check(writing=False).store)
            if place.scheme == "s3":
                lake.close()
                lake = mounted(
                    place.with_options(
                        {"profile": self.profile, "addressing_style": self.addressing_style}
                    )
                )
        return lake

    def _names(self) -> Url | None:
        if self.names is None:
            return None
        parsed = parse_table_url(self.names)
        refuse_secrets(parsed)
        return self._completed(parsed)

    def _store(self) -> Url | None:
        if self.store is None:
            return None
        parsed = parse_store_url(self.store)
        refuse_secrets(parsed)
        return self._completed(parsed)

    def _leases(self) -> Url | None:
        if self.table is None:
            return None
        parsed = parse_table_url(self.table)
        refuse_secrets(parsed)
        return parsed

    def _open(self, store: Url, verdict: Verdict | None) -> ConditionalStore:
        return _closed_at_end(
            connect(self._completed(store), commit=self.commit, table=self._leases(), verdict=verdict)
        )

    def _verdict(self) -> Verdict | None:
        if self.verdict is None:
            return None
        try:
            return Verdict.from_json(Path(self.verdict).read_text())
        except (CorruptRecord, OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(f"--verdict {self.verdict!r}: {reason}") from error

    def _completed(self, url: Url) -> Url:
        names = {"s3": ("addressing_style", *_OF_SERVICE), "dynamodb": _OF_SERVICE}.get(url.scheme, ())
        return url.with_options({name: getattr(self, name) for name in names if name not in url.options})


def _closed_at_end(opened: C) -> C:
    click.get_current_context().call_on_close(opened.close)
    return opened


def _option(name: str, help: str, **settings: Any) -> _Decorator:
    variable = "COMMITLOG_" + name.upper().replace("-", "_")
    return click.option(f"--{name}", envvar=variable, show_envvar=True, help=help, **settings)


_SERVICE: tuple[_Decorator, ...] = (
    _option("endpoint-url", "Endpoint of the service, if it is not AWS.", metavar="URL"),
    _option("region", "Region of the service."),
    _option("profile", "Profile of the shared AWS configuration, for credentials."),
)
_STORE: tuple[_Decorator, ...] = (
    *_SERVICE,
    _option(
        "addressing-style",
        "Whether the bucket is named in the path or in the host name.",
        type=click.Choice(["path", "virtual", "auto"]),
    ),
    _option("table", "Table of leases: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.", metavar="URL"),
    _option("commit", "auto, native, lease or dynamo:TABLE[:TIMEOUT_MS].", default="auto"),
    _option("verdict", "What the store honours, as probe --json printed it.", metavar="FILE"),
)
_OBJECT: tuple[_Decorator, ...] = (
    *_STORE,
    _option("root", "Root of a local store that holds no .commitlog yet.", metavar="DIR"),
)
_NAMES = _option(
    "names", "Table of namespaces: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.", metavar="URL"
)
_NAMESPACE: tuple[_Decorator, ...] = (
    _NAMES,
    *_STORE,
    click.option("--store", metavar="URL", help="Where its content is, if not where it was created."),
)
_GATHERED = frozenset(attribute.name for attribute in fields(Connection))


def object_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give `command` the options to reach one object, gathered in its first argument, a `Connection`."""
    return _gathered(command, _OBJECT)


def store_options(command: Callable[..., R]) -> Callable[..., R]:
    """Likewise, to reach a whole store."""
    return _gathered(command, _STORE)


def table_options(command: Callable[..., R]) -> Callable[..., R]:
    """Likewise, to reach a table."""
    return _gathered(command, _SERVICE)


def names_options(command: Callable[..., R]) -> Callable[..., R]:
    """Likewise, to reach a table of namespaces."""
    return _gathered(command, (_NAMES, *_SERVICE))


def namespace_options(command: Callable[..., R]) -> Callable[..., R]:
    """Likewise, to reach namespaces with their content and log."""
    return _gathered(command, _NAMESPACE)


def _gathered(command: Callable[..., R], options: tuple[_Decorator, ...]) -> Callable[..., R]:
    @functools.wraps(command)
    def gathered(**arguments: Any) -> R:
        given = {name: arguments.pop(name) for name in _GATHERED.intersection(arguments)}
        return command(Connection(**given), **arguments)

    decorated: Callable[..., Any] = gathered
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
