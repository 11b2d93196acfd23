"""The options of the data source on namespaces, checked before anything is touched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.namespace import Namespace
from commitlog.namespaces import METADATA, open_namespace, parse_url
from commitlog.spark.options import (
    JOB,
    JobOptions,
    OptionReader,
    camel,
    connection_names,
    connection_of,
    place_of,
    table_of,
)
from commitlog.urls import SECRET_OPTIONS, Url, parse_store_url, parse_table_url

__all__ = ["NamespaceOptions", "NamespaceWriteOptions", "with_environment"]

_PLACE = (*{*connection_names("table"), *connection_names("metadata")}, "commit", "store")
_WRITE = (*_PLACE, *JOB, "checkpointLocation", "queryName")

#: What outputs have, and directories of a namespace have not.
_ELSEWHERE = ("version", "rollForward", "visibility", "attempt")


@frozen(kw_only=True)
class NamespaceOptions:
    """Which directory of a namespace, and how to get at it.

    Attributes:
        url: of the directory.
        name: of the namespace.
        path: of the directory in it.
        metadata: URL of the table of the namespace. It may have credentials: never shown. None: the
            table of the environment.
        store: URL of the store, if the one that the namespace tells will not do; likewise.
        connection: what completes the URL of the store; never shown either.
        leases: the table that leases of the namespace's log are kept in, if it takes any.
        commit: how conditional writes of that log are enforced.
        filters: as of `ReadOptions`.
    """

    url: str
    name: str
    path: str
    metadata: Url | None = field(repr=False)
    store: Url | None = field(repr=False)
    connection: Mapping[str, str] = field(repr=False)
    leases: Url | None = field(repr=False)
    commit: str
    filters: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> NamespaceOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = _given(options, (*_PLACE, "filters"))
        return cls(**_place(given), filters=given.get("filters"))

    def mount(self) -> Namespace:
        """Open the namespace. Raises as `commitlog.namespaces.mount` does."""
        if self.metadata is None and not os.environ.get(METADATA):
            raise ConfigurationError(
                "no table of names is given: name it in option metadata, or in the environment variable"
                f" {METADATA} before the session starts"
            )
        lake = self._mount(self.store)
        if self.store is not None or not self.connection:
            return lake
        with lake:
            store = parse_store_url(lake.store.url).with_options(self.connection)
        return self._mount(store)

    def _mount(self, store: Url | None) -> Namespace:
        return open_namespace(
            self.name, metadata=self.metadata, store=store, commit=self.commit, leases=self.leases
        )

    def store_of(self, lake: Namespace) -> Url:
        """Return the URL by which workers open the store of a namespace; it may bear credentials."""
        store = self.store or parse_store_url(lake.store.url).with_options(self.connection)
        if store.scheme == "memory":
            raise ConfigurationError("a memory:// store is gone with its process, and Spark has many")
        return store


@frozen(kw_only=True)
class NamespaceWriteOptions(NamespaceOptions, JobOptions):
    """Which directory of a namespace, and what to do to it."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> NamespaceWriteOptions:
        """Return what Spark's `options` say; raise `ConfigurationError` if they make no sense."""
        given = _given(options, _WRITE)
        if given.choice("partitionOverwriteMode", ("static", "dynamic")) == "dynamic":
            raise NotSupported(
                "option partitionOverwriteMode=dynamic does not go with a namespace: overwrite the"
                " directory of each partition, or the whole"
            )
        return cls(**_place(given), **cls.parse_job_options(given))


def with_environment(options: Mapping[str, str]) -> dict[str, str]:
    """Return options that say which table of names the environment of this process tells.

    Data sources run in processes of their own, which have the environment that the JVM was started with.
    Credentials in the URL become options of their own, which Spark does not print.
    """
    told = os.environ.get(METADATA)
    if not told or any(name.lower() == "metadata" for name in options):
        return dict(options)
    url = parse_table_url(told)
    secrets = {f"metadata.{camel(name)}": url.options[name] for name in SECRET_OPTIONS & {*url.options}}
    return {"metadata": str(url), **secrets, **options}


def _given(options: Mapping[str, str], known: tuple[str, ...]) -> OptionReader:
    given = OptionReader(options, known, unlisted=(*_ELSEWHERE, "partitionOverwriteMode"))
    for name in _ELSEWHERE:
        if given.get(name) is not None:
            raise NotSupported(
                f"option {name} does not go with a namespace: it is of outputs that are directories of a"
                " store"
            )
    return given


def _place(given: OptionReader) -> dict[str, Any]:
    url = given.get("path") or ""
    name, path = parse_url(url)
    connection = connection_of(given)
    store = given.get("store")
    return {
        "url": url,
        "name": name,
        "path": path,
        "metadata": _table(given, "metadata"),
        "store": store and parse_store_url(place_of(given, store)[0]).with_options(connection),
        "connection": connection,
        "leases": _table(given, "table"),
        "commit": given.get("commit") or "auto",
    }


def _table(given: OptionReader, name: str) -> Url | None:
    url, options = table_of(given, name)
    return None if url is None else parse_table_url(url).with_options(options)
