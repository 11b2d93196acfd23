"""The options by which every command reaches its store and its table.

Each may come from the environment instead (``COMMITLOG_…``). What a URL says of itself in its query
goes before both, so that one command can reach two services. Imports connect, stores, tables and urls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from attrs import fields, frozen

from commitlog.cli.places import Place, refuse_secrets, split, split_directory
from commitlog.commit import ConditionalStore, Verdict
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.connect import connect
from commitlog.errors import ConfigurationError, CorruptRecord
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.api import Table, TableSchema
from commitlog.tables.open import open_table
from commitlog.urls import Url, parse_store_url, parse_table_url

__all__ = ["Connection", "object_options", "store_options", "table_options"]

R = TypeVar("R")
C = TypeVar("C", ConditionalStore, ObjectStore, Table)
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
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    addressing_style: str | None = None
    table: str | None = None
    commit: str = "auto"
    verdict: str | None = None
    root: str | None = None

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

    def _open(self, store: Url, verdict: Verdict | None) -> ConditionalStore:
        table = None if self.table is None else parse_table_url(self.table)
        if table is not None:
            refuse_secrets(table)
        return _closed_at_end(
            connect(self._completed(store), commit=self.commit, table=table, verdict=verdict)
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
    _option("table", "Table of leases: dynamodb://NAME or sqlite:///FILE.", metavar="URL"),
    _option("commit", "auto, native, lease or dynamo:TABLE[:TIMEOUT_MS].", default="auto"),
    _option("verdict", "What the store honours, as probe --json printed it.", metavar="FILE"),
)
_OBJECT: tuple[_Decorator, ...] = (
    *_STORE,
    _option("root", "Root of a local store that holds no .commitlog yet.", metavar="DIR"),
)
_NAMES = frozenset(attribute.name for attribute in fields(Connection))


def object_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give `command` the options to reach one object, gathered in its first argument, a `Connection`."""
    return _gathered(command, _OBJECT)


def store_options(command: Callable[..., R]) -> Callable[..., R]:
    """Likewise, to reach a whole store."""
    return _gathered(command, _STORE)


def table_options(command: Callable[..., R]) -> Callable[..., R]:
    """Likewise, to reach a table."""
    return _gathered(command, _SERVICE)


def _gathered(command: Callable[..., R], options: tuple[_Decorator, ...]) -> Callable[..., R]:
    @functools.wraps(command)
    def gathered(**arguments: Any) -> R:
        given = {name: arguments.pop(name) for name in _NAMES.intersection(arguments)}
        return command(Connection(**given), **arguments)

    decorated: Callable[..., Any] = gathered
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
