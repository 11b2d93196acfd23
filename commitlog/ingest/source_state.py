"""State row of a source: its position in the listing, and the last epoch that it has handed out.

It is one item of the state table. Each step replaces it in one transaction with the step's other writes,
on condition that it is unchanged since it was read. So every step of a source happens once.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from commitlog.errors import CorruptRecord
from commitlog.ingest.files import Slice
from commitlog.ingest.watermarks import Watermarks, watermark_from, watermark_json
from commitlog.oplog.codec import Document, decode, encode
from commitlog.oplog.validate import build, count, flag, items, mapping, moment, text
from commitlog.tables.api import Equals, Item, Key, TableCondition, TableSchema

__all__ = ["INGEST_SCHEMA", "STATE_KEY", "ListingPass", "SourceState", "document_of", "item_name"]

#: Keys of a table with ingest state. Sources share the table; each has its own hash key.
INGEST_SCHEMA = TableSchema(hash_key="source", range_key="item", use="ingest")

#: Range key of the state row.
STATE_KEY = "list"

_KIND = "ingest-list"


def item_name(item: Item) -> str:
    """Return the name of an item for messages."""
    return "/".join(str(item.get(name)) for name in INGEST_SCHEMA.key_names)


def document_of(item: Item, kind: str) -> Document:
    """Return the record in the body of an item. Raises `CorruptRecord`, `FormatTooNew`."""
    body = item.get("body")
    name = item_name(item)
    if not isinstance(body, bytes):
        raise CorruptRecord(f"{name!r} has no body")
    return decode(body, {kind}, path=name)


@frozen(kw_only=True)
class ListingPass:
    """One sweep of the tail or of the body of a listing. It may take many epochs.

    Attributes:
        began: when it began, in epoch seconds by the store's clock.
        watermark: once it is complete, objects modified before this time (epoch seconds) are known. Of
            the other objects it remembers those that it hands out. Decided at the begin, as settings
            change.
        cursor: the last path that was processed; "" for none.
        settled: the last path up to which all objects were modified before the grace window.
    """

    began: float
    watermark: float
    cursor: str = ""
    settled: str = ""

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [self.began, watermark_json(self.watermark), self.cursor, self.settled]

    @classmethod
    def from_json(cls, value: object) -> ListingPass:
        """Return the sweep that `value` describes; for use in `commitlog.oplog.validate.build`."""
        began, watermark, cursor, settled = items(value)
        return cls(
            began=moment(began),
            watermark=watermark_from(watermark),
            cursor=text(cursor),
            settled=text(settled),
        )


@frozen(kw_only=True)
class SourceState:
    """The state row.

    Attributes:
        source: id of the source.
        revision: number of writes; grows by one.
        change_id: id of the write. It differs from that of an equal revision before a reset.
        born: id of the write that created the state. It differs for an earlier source with the same id.
        claim: id of the query that reads the source, or "" before its first epoch.
        epoch: number of the last planned epoch.
        since: objects modified before this time (epoch seconds) are not read; None for no limit.
        latest: whether this holds for the first sweep alone. It remembers them like files that were
            handed out.
        watermarks: the watermarks, and the boundary where the tail of the listing begins.
        tail: the current sweep of the tail, or None.
        body: the current sweep of the body, or None.
        tails: number of completed sweeps of the tail.
        bodies: number of completed sweeps of the body.
        rest: the part of the last file that is not handed out yet, or None.
        files: total number of files handed out.
        bytes: total number of bytes handed out.
        passed_over: total number of objects that were skipped because they were too old when listed.
    """

    source: str
    revision: int
    change_id: str
    born: str
    claim: str = ""
    epoch: int = 0
    since: float | None = None
    latest: bool = False
    watermarks: Watermarks = field(factory=Watermarks)
    tail: ListingPass | None = None
    body: ListingPass | None = None
    tails: int = 0
    bodies: int = 0
    rest: Slice | None = None
    files: int = 0
    bytes: int = 0
    passed_over: int = 0

    @property
    def key(self) -> Key:
        """The key of the row in the table."""
        return Key(self.source, STATE_KEY)

    @property
    def skips(self) -> bool:
        """Whether the current or next sweep of the tail skips the objects that exist at the start."""
        return self.latest and not self.tails

    def finish(self, *, ordered: bool) -> tuple[int, int]:
        """Return the values of `tails` and `bodies` at which all current objects have been processed.

        A current sweep may have passed some of them already, so it does not count. `ordered`: whether
        the boundary may move.
        """
        bodies = 0
        # Else the whole listing is the tail, and a sweep of it starts now.
        if self.watermarks.boundary or (ordered and self.tail is not None):
            bodies = 1 if self.body is None else 2
        return self.tails + (1 if self.tail is None else 2), self.bodies + bodies

    def unchanged(self) -> TableCondition:
        """Return the condition that the table still holds exactly this row."""
        return Equals("revision", self.revision) & Equals("change_id", self.change_id)

    def to_item(self) -> Item:
        """Return the row as a table item."""
        body: dict[str, Any] = {
            "born": self.born,
            "claim": self.claim,
            "epoch": self.epoch,
            "since": self.since,
            "latest": self.latest,
            "floors": self.watermarks.to_json(),
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
            "item": STATE_KEY,
            "revision": self.revision,
            "change_id": self.change_id,
            "body": encode(Document(_KIND, body)),
        }

    @classmethod
    def from_item(cls, item: Item) -> SourceState:
        """Return the row that `item` holds. Raises `CorruptRecord`, `FormatTooNew`."""
        source, revision, change_id, body = (
            item.get(each) for each in ("source", "revision", "change_id", "body")
        )
        name = item_name(item)
        if not isinstance(source, str) or type(revision) is not int:
            raise CorruptRecord(f"{name!r} has no revision")
        if not isinstance(change_id, str) or not isinstance(body, bytes):
            raise CorruptRecord(f"{name!r} has no body")
        document = decode(body, {_KIND}, path=name)
        fields = document.body

        def make() -> SourceState:
            rest = fields["rest"]
            return cls(
                source=source,
                revision=revision,
                change_id=change_id,
                born=text(fields["born"]),
                claim=text(fields["claim"]),
                epoch=count(fields["epoch"]),
                since=_maybe_moment(fields["since"]),
                latest=flag(fields["latest"]),
                watermarks=Watermarks.from_json(fields["floors"]),
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


def _maybe_sweep(value: object) -> ListingPass | None:
    return None if value is None else ListingPass.from_json(value)


def _maybe_moment(value: object) -> float | None:
    return None if value is None else moment(value)
