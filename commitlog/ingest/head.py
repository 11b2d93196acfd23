"""The list row of a source: how far it has listed, and up to which epoch it has handed out.

One item of the state table. It is replaced as a whole, on condition that it is still the one that was
read, in one transaction with all that goes with it: that makes every step of a source happen once.
Imports its siblings, the codec of records and the `Table` port.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from commitlog.errors import CorruptRecord
from commitlog.ingest.files import Slice
from commitlog.ingest.floors import Floors, floor_from, floor_json
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.fields import build, count, items, mapping, moment, text
from commitlog.tables.api import Equals, Item, Key, TableCondition, TableSchema

__all__ = ["HEAD", "INGEST_SCHEMA", "Head", "Sweep", "document_of", "place_of"]

#: How a table of ingest state is keyed. Sources share it; each has a hash key of its own.
INGEST_SCHEMA = TableSchema(hash_key="source", range_key="item", use="ingest")

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
    """One pass over the tail of a listing, or over its body, which may take many epochs.

    Attributes:
        began: epoch second of the store's clock when it began.
        floor: objects modified before this epoch second are known once it is complete, and what it
            hands out of the others is remembered. Decided when it begins, as settings change.
        cursor: the last path that was dealt with; "" for none.
        settled: the last path up to which all were modified before the grace window.
    """

    began: float
    floor: float
    cursor: str = ""
    settled: str = ""

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [self.began, floor_json(self.floor), self.cursor, self.settled]

    @classmethod
    def from_json(cls, value: object) -> Sweep:
        """Return the sweep that `value` describes; for use in `commitlog.oplog.fields.build`."""
        began, floor, cursor, settled = items(value)
        return cls(
            began=moment(began), floor=floor_from(floor), cursor=text(cursor), settled=text(settled)
        )


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
        floors: where the tail of the listing begins, and what is known by its time.
        tail: the sweep of the tail that is under way, or None.
        body: the sweep of the body that is under way, or None.
        tails: sweeps of the tail that were completed.
        bodies: sweeps of the body that were completed.
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
    floors: Floors = field(factory=Floors)
    tail: Sweep | None = None
    body: Sweep | None = None
    tails: int = 0
    bodies: int = 0
    rest: Slice | None = None
    files: int = 0
    bytes: int = 0
    passed_over: int = 0

    @property
    def key(self) -> Key:
        """The key of the row in the table."""
        return Key(self.source, HEAD)

    def finish(self, *, ordered: bool) -> tuple[int, int]:
        """Return how many sweeps of tail and body must be complete for all that is there now to have
        been dealt with. A sweep that is under way may be past some of it.

        `ordered` tells whether the mark may move.
        """
        bodies = 0
        # Else all is tail, and is swept from now on.
        if self.floors.mark or (ordered and self.tail is not None):
            bodies = 1 if self.body is None else 2
        return self.tails + (1 if self.tail is None else 2), self.bodies + bodies

    def unchanged(self) -> TableCondition:
        """Return the condition that the table still holds this very row."""
        return Equals("revision", self.revision) & Equals("word", self.word)

    def to_item(self) -> Item:
        """Return the row as a table item."""
        body: dict[str, Any] = {
            "born": self.born,
            "claim": self.claim,
            "epoch": self.epoch,
            "since": self.since,
            "floors": self.floors.to_json(),
            "tail": self.tail and self.tail.to_json(),
            "body": self.body and self.body.to_json(),
            "tails": self.tails,
            "bodies": self.bodies,
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
            rest = fields["rest"]
            return cls(
                source=source,
                revision=revision,
                word=word,
                born=text(fields["born"]),
                claim=text(fields["claim"]),
                epoch=count(fields["epoch"]),
                since=_maybe_moment(fields["since"]),
                floors=Floors.from_json(fields["floors"]),
                tail=_maybe_sweep(fields["tail"]),
                body=_maybe_sweep(fields["body"]),
                tails=count(fields["tails"]),
                bodies=count(fields["bodies"]),
                rest=None if rest is None else Slice.from_json(rest),
                files=count(fields["files"]),
                bytes=count(fields["bytes"]),
                passed_over=count(fields["passed_over"]),
            )

        mapping(fields)
        return build(document, make)


def _maybe_sweep(value: object) -> Sweep | None:
    return None if value is None else Sweep.from_json(value)


def _maybe_moment(value: object) -> float | None:
    return None if value is None else moment(value)
