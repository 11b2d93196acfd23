"""The list row of a source: how far it has listed, and up to which epoch it has handed out.

One item of the state table. It is replaced as a whole, on condition that it is still the one that was
read, in one transaction with all that goes with it: that makes every step of a source happen once.
Imports the ground floor, the codec of records and the `Table` port.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from commitlog.errors import CorruptRecord
from commitlog.ingest.files import Slice
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.fields import build, count, mapping, moment, text
from commitlog.tables.api import Equals, Item, Key, TableCondition, TableSchema

__all__ = ["HEAD", "INGEST_SCHEMA", "Head", "Sweep", "document_of", "place_of"]

#: How a table of ingest state is keyed. Sources share it; each has a hash key of its own.
INGEST_SCHEMA = TableSchema(hash_key="source", range_key="item")

#: Range key of the list row.
HEAD = "list"

_KIND = "ingest-list"


def place_of(item: Item) -> str:
    """Return what messages call an item."""
    return "/".join(str(item.get(name)) for name in INGEST_SCHEMA.key_names)


def document_of(item: Item, kind: str) -> Document:
    """Return the record in the body of an item. Raises `CorruptRecord`, `FormatTooNew`."""
    body = item.get("body")
    place = place_of(item)
    if not isinstance(body, bytes):
        raise CorruptRecord(f"{place!r} has no body")
    return decode(body, {kind}, path=place)


@frozen(kw_only=True)
class Sweep:
    """One pass over a listing, which may take many epochs.

    Attributes:
        began: epoch second of the store's clock when it began.
        cursor: the last path that was dealt with; "" for none.
        settled: the last path up to which all were modified before the grace window.
    """

    began: float
    cursor: str = ""
    settled: str = ""


@frozen(kw_only=True)
class Head:
    """The list row.

    Attributes:
        source: whose it is.
        revision: how often it was written; grows by one.
        word: that of the call that wrote it: tells it from one of the same revision after a reset.
        born: the word of its creation: tells a source from one that had the id before.
        claim: the word of the query that reads the source, or "" before its first epoch.
        epoch: number of the last epoch that was planned.
        since: objects modified before this epoch second are not wanted; None for no limit.
        floor: objects modified before this epoch second are known; None as long as none are.
        origin: listings begin behind this path.
        sweep: the pass that is under way, or None.
        sweeps: passes that were completed.
        rest: what is not handed out yet of the last file, or None.
        files: files that were handed out, ever.
        bytes: bytes that were handed out, ever.
        passed_over: objects that were too old when they were listed, ever.
    """

    source: str
    revision: int
    word: str
    born: str
    claim: str = ""
    epoch: int = 0
    since: float | None = None
    floor: float | None = None
    origin: str = ""
    sweep: Sweep | None = None
    sweeps: int = 0
    rest: Slice | None = None
    files: int = 0
    bytes: int = 0
    passed_over: int = 0

    @property
    def key(self) -> Key:
        """The key of the row in the table."""
        return Key(self.source, HEAD)

    def unchanged(self) -> TableCondition:
        """Return the condition that the table still holds this very row."""
        return Equals("revision", self.revision) & Equals("word", self.word)

    def to_item(self) -> Item:
        """Return the row as a table item."""
        sweep = self.sweep
        body: dict[str, Any] = {
            "born": self.born,
            "claim": self.claim,
            "epoch": self.epoch,
            "since": self.since,
            "floor": self.floor,
            "origin": self.origin,
            "sweep": sweep and [sweep.began, sweep.cursor, sweep.settled],
            "sweeps": self.sweeps,
            "rest": self.rest and self.rest.to_json(),
            "files": self.files,
            "bytes": self.bytes,
            "passed_over": self.passed_over,
        }
        return {
            INGEST_SCHEMA.hash_key: self.source,
            "item": HEAD,
            "revision": self.revision,
            "word": self.word,
            "body": encode(Document(_KIND, body)),
        }

    @classmethod
    def from_item(cls, item: Item) -> Head:
        """Return the row that `item` holds. Raises `CorruptRecord`, `FormatTooNew`."""
        source, revision, word, body = (
            item.get(each) for each in ("source", "revision", "word", "body")
        )
        place = place_of(item)
        if not isinstance(source, str) or type(revision) is not int:
            raise CorruptRecord(f"{place!r} has no revision")
        if not isinstance(word, str) or not isinstance(body, bytes):
            raise CorruptRecord(f"{place!r} has no body")
        document = decode(body, {_KIND}, path=place)
        fields = document.body

        def make() -> Head:
            sweep, rest = fields["sweep"], fields["rest"]
            return cls(
                source=source,
                revision=revision,
                word=word,
                born=text(fields["born"]),
                claim=text(fields["claim"]),
                epoch=count(fields["epoch"]),
                since=_maybe_moment(fields["since"]),
                floor=_maybe_moment(fields["floor"]),
                origin=text(fields["origin"]),
                sweep=None if sweep is None else _sweep(*sweep),
                sweeps=count(fields["sweeps"]),
                rest=None if rest is None else Slice.from_json(rest),
                files=count(fields["files"]),
                bytes=count(fields["bytes"]),
                passed_over=count(fields["passed_over"]),
            )

        mapping(fields)
        return build(document, make)


def _sweep(began: object, cursor: object, settled: object) -> Sweep:
    return Sweep(began=moment(began), cursor=text(cursor), settled=text(settled))


def _maybe_moment(value: object) -> float | None:
    return None if value is None else moment(value)
