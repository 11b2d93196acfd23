"""The metadata record of a namespace: its format, its store, and the epoch of its log."""

from __future__ import annotations

from attrs import evolve, field, frozen, validators

from commitlog.errors import ConfigurationError, FormatTooNew, NotFound
from commitlog.namespace.model.codec import document_of, key_items, key_of
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.validate import (
    build,
    count,
    flag,
    items,
    mapping,
    maybe_text,
    text,
)
from commitlog.tables.api import Item, Key

__all__ = ["FIRST", "FORMAT", "Epoch", "NamespaceMetadata", "namespace_not_found"]


#: The newest format that this library knows. It writes format 1, and format 2 only for a namespace that
#: was restored or is read-only: a client that changes it has to know epochs, which are new in format 2.
FORMAT = 2

_PLAIN, _FENCED = 1, 2

_KIND = "namespace"


@frozen(kw_only=True)
class Epoch:
    """An epoch of a log: see `commitlog.namespace.log.epoch`.

    Attributes:
        number: 0 until a restore, or `Maintenance.rewrite_log`, begins the next epoch.
        id: the unique string in the path of its log; "" for number 0.
        table: URL of the table that it belongs to, without credentials; for messages.
    """

    number: int = 0
    id: str = ""
    table: str = field(default="", eq=False)


#: The epoch in which a namespace is created.
FIRST = Epoch()


@frozen(kw_only=True)
class NamespaceMetadata:
    """The metadata of a namespace, stored in its table.

    Attributes:
        key: the key of this record.
        format: the format of the stored records.
        min_reader: the lowest format that a program must know to read the namespace.
        min_writer: the same, to change it. A program that rewrites a record drops the fields that it
            does not know. So this number is higher if records have fields that must be kept.
        store: URL of the store that has the data, without credentials.
        log: path of the log in that store; None if changes are not logged.
        identity: path of the object that identifies that store; None if it could not be stored.
        created: epoch millisecond.
        change_id: id of the change that wrote this record.
        epoch: the epoch of the log that belongs to this table.
        read_only: whether the table is a read-only copy.
    """

    key: Key
    format: int = field(default=_PLAIN, validator=validators.ge(1))
    min_reader: int = field(default=_PLAIN, validator=validators.ge(1))
    min_writer: int = field(default=_PLAIN, validator=validators.ge(1))
    store: str
    log: str | None = None
    identity: str | None = None
    created: int
    change_id: str
    epoch: Epoch = FIRST
    read_only: bool = False

    def of(self, epoch: Epoch, *, read_only: bool = False) -> NamespaceMetadata:
        """Return the metadata of a table that is created in this epoch."""
        return evolve(
            self,
            epoch=epoch,
            read_only=read_only,
            format=max(self.format, _FENCED),
            min_writer=max(self.min_writer, _FENCED),
        )

    def check(self, *, writing: bool) -> None:
        """Raise `FormatTooNew` unless this library can read, or change, the namespace.

        If it is going to be changed and is a read-only copy, raises `ConfigurationError`.
        """
        least = self.min_writer if writing else self.min_reader
        if least > FORMAT:
            verb = "change" if writing else "read"
            raise FormatTooNew(
                f"namespace {self.key.range!r} has format {self.format}: to {verb} it takes a library"
                f" that knows format {least}, and this one knows {FORMAT}. Upgrade it"
            )
        if writing and self.read_only:
            raise ConfigurationError(
                f"namespace {self.key.range!r} was restored into this table as read-only"
                " (restore --read-only): change it in the table that it was copied from"
            )

    def to_item(self) -> Item:
        """Return the metadata as a table item."""
        body: dict[str, object] = {
            "namespace_format": self.format,
            "min_reader": self.min_reader,
            "min_writer": self.min_writer,
            "store": self.store,
            "log": self.log,
            "created": self.created,
        }
        if self.identity is not None:
            body["mark"] = self.identity
        if self.epoch.number:
            body["epoch"] = [self.epoch.number, self.epoch.id]
        if self.read_only:
            body["read_only"] = True
        return {
            **key_items(self.key),
            "change_id": self.change_id,
            "body": encode(Document(_KIND, body)),
        }

    @classmethod
    def from_item(cls, item: Item) -> NamespaceMetadata:
        """Return the metadata in `item`. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _KIND)
        fields = mapping(document.body)
        return build(
            document,
            lambda: cls(
                key=key_of(item),
                format=count(fields["namespace_format"]),
                min_reader=count(fields["min_reader"]),
                min_writer=count(fields["min_writer"]),
                store=text(fields["store"]),
                log=maybe_text(fields["log"]),
                identity=maybe_text(fields.get("mark")),
                created=count(fields["created"]),
                change_id=text(item["change_id"]),
                epoch=_epoch(fields.get("epoch")),
                read_only=flag(fields.get("read_only", False)),
            ),
        )


def _epoch(value: object) -> Epoch:
    if value is None:
        return FIRST
    number, id = items(value)
    return Epoch(number=count(number), id=text(id))


def namespace_not_found(namespace: str, url: str) -> NotFound:
    """Return the error for a namespace that the table does not have, with a message on how to fix it."""
    return NotFound(
        f"there is no namespace {namespace!r} in {url}: if its table was lost, restore it from its log"
        " (`commitlog namespace restore`), else create it first"
    )
