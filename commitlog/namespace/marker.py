"""What makes a table hold a namespace: its format, where its content is, and which log is its own.

Imports errors, the codec, the `Table` port and its siblings.
"""

from __future__ import annotations

from attrs import evolve, field, frozen, validators

from commitlog.errors import ConfigurationError, FormatTooNew, NotFound
from commitlog.namespace.items import document_of, key_items, key_of
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.fields import (
    build,
    count,
    flag,
    items,
    mapping,
    maybe_text,
    text,
)
from commitlog.tables.api import Item, Key

__all__ = ["FIRST", "FORMAT", "Epoch", "Marker", "not_there"]


#: The newest format that this library knows. It writes the first one, but for a namespace that was
#: restored, or is to be read alone: whoever changes that has to know of epochs, which format 2 has.
FORMAT = 2

_PLAIN, _FENCED = 1, 2

_MARKER = "namespace"


@frozen(kw_only=True)
class Epoch:
    """An epoch of a log: see `commitlog.namespace.epoch`.

    Attributes:
        number: 0 until a restore, or `relog`, begins the next one.
        word: names its log; "" for number 0.
        table: URL of the table that it belongs to, without credentials; for messages.
    """

    number: int = 0
    word: str = ""
    table: str = field(default="", eq=False)


#: The epoch in which a namespace is created.
FIRST = Epoch()


@frozen(kw_only=True)
class Marker:
    """What makes a table hold a namespace.

    Attributes:
        key: where it is stored.
        format: of what is stored.
        min_reader: the least format that a program must know to read it.
        min_writer: the same, to change it. Who writes a record anew does not keep fields that he does
            not know: where records have some that must stay, it is higher than his.
        store: URL of the store that has the data, without credentials.
        log: where in that store every change is logged; None if none is.
        mark: path of the object by which that store is known; None if it could not be stored.
        created: epoch millisecond.
        word: that of the call that made it.
        epoch: which part of the log is that of this table.
        read_only: whether the table is a copy to look at, which nothing changes.
    """

    key: Key
    format: int = field(default=_PLAIN, validator=validators.ge(1))
    min_reader: int = field(default=_PLAIN, validator=validators.ge(1))
    min_writer: int = field(default=_PLAIN, validator=validators.ge(1))
    store: str
    log: str | None = None
    mark: str | None = None
    created: int
    word: str
    epoch: Epoch = FIRST
    read_only: bool = False

    def of(self, epoch: Epoch, *, read_only: bool = False) -> Marker:
        """Return the marker of a table that is made in this epoch."""
        return evolve(
            self,
            epoch=epoch,
            read_only=read_only,
            format=max(self.format, _FENCED),
            min_writer=max(self.min_writer, _FENCED),
        )

    def check(self, *, writing: bool) -> None:
        """Raise `FormatTooNew` unless this library can read, or change, the namespace.

        Raises `ConfigurationError` if it is to be changed, and is a copy to look at.
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
                f"namespace {self.key.range!r} was restored into this table to be read alone"
                " (restore --read-only): change it in the table that it was copied from"
            )

    def to_item(self) -> Item:
        """Return it as a table item."""
        body: dict[str, object] = {
            "namespace_format": self.format,
            "min_reader": self.min_reader,
            "min_writer": self.min_writer,
            "store": self.store,
            "log": self.log,
            "created": self.created,
        }
        if self.mark is not None:
            body["mark"] = self.mark
        if self.epoch.number:
            body["epoch"] = [self.epoch.number, self.epoch.word]
        if self.read_only:
            body["read_only"] = True
        return {**key_items(self.key), "word": self.word, "body": encode(Document(_MARKER, body))}

    @classmethod
    def from_item(cls, item: Item) -> Marker:
        """Return the marker that `item` holds. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _MARKER)
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
                mark=maybe_text(fields.get("mark")),
                created=count(fields["created"]),
                word=text(item["word"]),
                epoch=_epoch(fields.get("epoch")),
                read_only=flag(fields.get("read_only", False)),
            ),
        )


def _epoch(value: object) -> Epoch:
    if value is None:
        return FIRST
    number, word = items(value)
    return Epoch(number=count(number), word=text(word))


def not_there(namespace: str, url: str) -> NotFound:
    """Return the error that tells that a table has no such namespace, and what to do."""
    return NotFound(
        f"there is no namespace {namespace!r} in {url}: if its table was lost, restore it from its log"
        " (`commitlog namespace restore`), else create it first"
    )
