"""What a source's query runs with, and the schema that was fixed for it: items beside its list row.

The query writes them, so that whoever looks after it needs the state table alone. Nothing that reads
rows depends on them. Imports its siblings, urls, the codec and the `Table` port's records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import asdict, field, frozen

from commitlog.ingest.head import INGEST_SCHEMA, document_of
from commitlog.ingest.names import Names
from commitlog.ingest.settings import IngestSettings
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.fields import build, count, flag, mapping, maybe_count, maybe_text, moment, text
from commitlog.tables.api import Item, Key
from commitlog.urls import parse_store_url

__all__ = ["SCHEMA", "SETTINGS", "About", "schema_item", "schema_text"]

#: Range keys. Both come between the problems and the slices that are wanted, and begin as neither does.
SCHEMA = "schema"
SETTINGS = "settings"

_SCHEMA, _SETTINGS = "ingest-schema", "ingest-settings"


def _without_secrets(url: str) -> str:
    return str(parse_store_url(url))


@frozen(kw_only=True)
class About:
    """What the query of a source was last started with.

    Attributes:
        url: of the store, as `commitlog.stores.open.open_store` takes it. Credentials in it are
            dropped: who opens the store has to have some.
        format: of the files, as the query names it.
        settings: of the source.
    """

    url: str = field(converter=_without_secrets)
    format: str
    settings: IngestSettings

    @property
    def key(self) -> Key:
        """The key of its row."""
        return Key(self.settings.source, SETTINGS)

    def to_item(self) -> Item:
        """Return its row. Raises `ValueError` if a setting is infinite, which JSON cannot say."""
        settings = asdict(self.settings, filter=lambda each, _: each.init and each.name != "source")
        body = {"url": self.url, "files": self.format, "settings": settings}
        return _item(self.key, Document(_SETTINGS, body))

    @classmethod
    def from_item(cls, item: Item) -> About:
        """Return what a row tells.

        Settings that a newer release has added are left out, and those that an older one did not know
        have their defaults. Raises `CorruptRecord`, `FormatTooNew`.
        """
        document = document_of(item, _SETTINGS)
        body = document.body

        def make() -> About:
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


def _names(value: object) -> Names:
    stored = mapping(value)
    return Names(
        glob=maybe_text(stored.get("glob")),
        name=maybe_text(stored.get("name")),
        hidden=flag(stored.get("hidden", False)),
    )


def _starting(value: object) -> str | float:
    return text(value) if isinstance(value, str) else moment(value)


def _maybe_moment(value: object) -> float | None:
    return None if value is None else moment(value)


# What each setting is stored as; the settings themselves know which values make sense.
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
    }
)
