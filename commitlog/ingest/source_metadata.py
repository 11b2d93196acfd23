"""Metadata of a source: the settings of its query and its fixed schema, stored in the state table.

The query writes them, so that an operator needs the state table only. Reading rows does not depend on
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import asdict, field, frozen

from commitlog.ingest.path_filter import PathFilter
from commitlog.ingest.settings import IngestSettings
from commitlog.ingest.source_state import INGEST_SCHEMA, document_of
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.validate import build, count, flag, mapping, maybe_count, maybe_text, moment, text
from commitlog.tables.api import Item, Key
from commitlog.urls import parse_store_url

__all__ = ["SCHEMA", "SETTINGS", "SourceMetadata", "schema_item", "schema_text"]

#: Range keys. Both sort between the problems and the slices to retry, and share no prefix with them.
SCHEMA = "schema"
SETTINGS = "settings"

_SCHEMA, _SETTINGS = "ingest-schema", "ingest-settings"


def _without_secrets(url: str) -> str:
    return str(parse_store_url(url))


@frozen(kw_only=True)
class SourceMetadata:
    """The configuration with which the query of a source was last started.

    Attributes:
        url: URL of the store for `commitlog.stores.open.open_store`, without credentials: each caller
            that opens the store needs its own.
        format: format of the files, as the query names it.
        settings: settings of the source.
    """

    url: str = field(converter=_without_secrets)
    format: str
    settings: IngestSettings

    @property
    def key(self) -> Key:
        """The key of its row."""
        return Key(self.settings.source, SETTINGS)

    def to_item(self) -> Item:
        """Return its row."""
        settings = asdict(self.settings, filter=lambda each, _: each.init and each.name != "source")
        body = {"url": self.url, "files": self.format, "settings": settings}
        return _item(self.key, Document(_SETTINGS, body))

    @classmethod
    def from_item(cls, item: Item) -> SourceMetadata:
        """Return the metadata in a row.

        Settings that only a newer release knows are ignored. Settings that an older release did not know
        have their defaults. Raises `CorruptRecord`, `FormatTooNew`.
        """
        document = document_of(item, _SETTINGS)
        body = document.body

        def make() -> SourceMetadata:
            stored = mapping(body["settings"])
            settings = {name: check(stored[name]) for name, check in _CHECKS.items() if name in stored}
            return cls(
                url=text(body["url"]),
                format=text(body["files"]),
                settings=IngestSettings(source=text(item["source"]), **settings),
            )

        return build(document, make)


def schema_item(source: str, schema: str) -> Item:
    """Return the row of a fixed schema."""
    return _item(Key(source, SCHEMA), Document(_SCHEMA, {"schema": schema}))


def schema_text(item: Item) -> str:
    """Return the schema that a row holds. Raises `CorruptRecord`, `FormatTooNew`."""
    document = document_of(item, _SCHEMA)
    return build(document, lambda: text(document.body["schema"]))


def _item(key: Key, document: Document) -> Item:
    return {INGEST_SCHEMA.hash_key: key.hash, "item": str(key.range), "body": encode(document)}


def _names(value: object) -> PathFilter:
    stored = mapping(value)
    return PathFilter(
        glob=maybe_text(stored.get("glob")),
        name=maybe_text(stored.get("name")),
        hidden=flag(stored.get("hidden", False)),
    )


def _starting(value: object) -> str | float:
    return text(value) if isinstance(value, str) else moment(value)


def _maybe_moment(value: object) -> float | None:
    return None if value is None else moment(value)


# The stored type of each setting. `IngestSettings` checks the values.
_CHECKS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "prefix": text,
        "names": _names,
        "max_files": count,
        "max_bytes": maybe_count,
        "starting_from": _starting,
        "max_file_age": _maybe_moment,
        "grace": moment,
        "remember": text,
        "ordered": flag,
        "list_limit": maybe_count,
        "slice_bytes": count,
        "keep_epochs": count,
        "changed": text,
        "missing": text,
        "unreadable": text,
        "clean": text,
        "clean_delay": moment,
        "archive": text,
        "listing_interval": moment,
    }
)
