"""Samples of stored formats: the state of a store and a table as text, and back.

A sample is one JSON file. It has the objects and uploads of a store, the items of a table as DynamoDB's
JSON, and plain values, such as the offsets in a checkpoint of Spark. The scripts that write samples are
in ``tests/fixtures/formats``.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from commitlog.clock import Clock
from commitlog.oplog.codec import Document, encode
from commitlog.stores.memory import MemoryStore, _Object, _Upload
from commitlog.tables.api import Table
from commitlog.tables.marshal import marshal, unmarshal
from commitlog.testing import ManualClock
from support.project import TESTS

__all__ = ["FORMATS", "VERSION", "Ids", "Sample", "explained", "normalised", "samples"]

#: The directory of all samples. It has a directory for each version.
FORMATS = TESTS / "fixtures" / "formats"

#: The version whose samples the present code writes.
VERSION = "0.1"

#: The sizes of the compressed shards of a checkpoint.
_SIZES = re.compile(r'"shards": \[[\d, ]+\]')


class Ids:
    """A function that returns another id at each call, the same ones in each run.

    Args:
        seed: any text; another seed gives other ids.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def __call__(self) -> str:
        """Return 32 hexadecimal digits."""
        self._count += 1
        return hashlib.sha256(f"{self._seed} {self._count}".encode()).hexdigest()[:32]


@define(kw_only=True)
class Sample:
    """The state that a program of one version has left.

    Attributes:
        time: epoch second at which it was written, by all clocks.
        objects: the objects of the store.
        uploads: the uploads of the store that are not published.
        items: the items of the table, as DynamoDB's JSON, each with its body as text.
        values: further values.
    """

    time: float
    objects: list[dict[str, Any]] = field(factory=list)
    uploads: list[dict[str, Any]] = field(factory=list)
    items: list[dict[str, Any]] = field(factory=list)
    values: dict[str, Any] = field(factory=dict)

    @classmethod
    def of(
        cls, clock: Clock, store: MemoryStore | None = None, table: Table | None = None, **values: Any
    ) -> Sample:
        """Return the state of a store and a table."""
        sample = cls(time=clock.epoch(), values=json.loads(json.dumps(values)))
        if store is not None:
            space = store._space
            sample.objects = [
                {
                    "path": path,
                    "etag": found.etag,
                    "modified": found.modified,
                    "metadata": dict(found.metadata),
                    **_shown(found.data),
                }
                for path, found in sorted(space.objects.items())
            ]
            sample.uploads = [
                {
                    "id": upload_id,
                    "path": upload.key,
                    "initiated": upload.initiated,
                    "metadata": dict(upload.metadata),
                    **({} if upload.data is None else _shown(upload.data)),
                }
                for upload_id, upload in space.uploads.items()
            ]
        if table is not None:
            rows = sorted(table.scan(), key=lambda item: [str(item[n]) for n in table.schema.key_names])
            sample.items = [_shown_item(marshal(item)) for item in rows]
        return sample

    @property
    def clock(self) -> ManualClock:
        """A new clock that shows the time of the sample."""
        return ManualClock(self.time)

    def store(self, clock: Clock, new_id: Callable[[], str] | None = None) -> MemoryStore:
        """Return a new store with the objects and uploads."""
        return self.fill(MemoryStore(clock=clock, new_id=Ids("later") if new_id is None else new_id))

    def fill(self, store: MemoryStore) -> Any:
        """Add the objects and uploads to a store; return it."""
        for each in self.objects:
            found = _Object(_data(each), each["etag"], each["modified"], each["metadata"])
            store._space.set(each["path"], found)
        for each in self.uploads:
            data = _data(each) if {"text", "base64"} & each.keys() else None
            upload = _Upload(each["path"], each["initiated"], each["metadata"], data)
            store._space.uploads[each["id"]] = upload
        return store

    def fill_table(self, table: Table) -> Any:
        """Create a table, and add the items; return it."""
        table.create()
        for each in self.items:
            table.put(unmarshal(each["item"]))
        return table

    def write(self, file: Path) -> None:
        """Write the sample to a file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        file.write_text(text + "\n")

    def to_json(self) -> dict[str, Any]:
        """Return the sample as JSON, without empty parts."""
        parts = {"objects": self.objects, "uploads": self.uploads, "items": self.items}
        kept = {name: part for name, part in {**parts, "values": self.values}.items() if part}
        return {"time": self.time, **kept}

    @classmethod
    def read(cls, version: str, name: str) -> Sample:
        """Return the sample of a version."""
        return cls(**json.loads((FORMATS / version / f"{name}.json").read_text()))


def samples(name: str) -> list[str]:
    """Return the versions that have a sample of this name."""
    return sorted(file.parent.name for file in FORMATS.glob(f"*/{name}.json"))


def _shown(data: bytes) -> dict[str, str]:
    """Return bytes as they are kept in a sample; compressed bytes also as text."""
    if data.startswith(b"\x1f\x8b"):
        return {"base64": base64.b64encode(data).decode(), "content": gzip.decompress(data).decode()}
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _data(shown: Mapping[str, Any]) -> bytes:
    return str(shown["text"]).encode() if "text" in shown else base64.b64decode(shown["base64"])


def _shown_item(wire: dict[str, Any]) -> dict[str, Any]:
    body = wire.get("body", {}).get("B")
    if body is None:
        return {"item": wire}
    data = binascii.a2b_base64(body)
    try:
        return {"item": wire, "body": zlib.decompress(data).decode(), "compressed": True}
    except zlib.error:
        return {"item": wire, "body": data.decode()}


# -- comparison ----------------------------------------------------------------------------------------


def normalised(sample: Sample) -> dict[str, Any]:
    """Return a sample as JSON for a comparison: without compressed bytes.

    Two versions of zlib may compress one text to different bytes. So compressed data counts by its
    content. Where a record has the digest of a compressed object, it counts by the name of the object.
    Then the checksum of the record cannot be compared, and is made again. Of the sizes of compressed
    shards only the number counts.
    """
    names: dict[str, str] = {}
    value = json.loads(json.dumps(sample.to_json()))
    for each in value.get("objects", ()):
        if "content" in each:
            digest = hashlib.sha256(base64.b64decode(each.pop("base64"))).hexdigest()
            names[digest] = f"the digest of {each['path']}"
            each["content"] = _SIZES.sub(
                lambda found: f'"shards": {found[0].count(",") + 1}', each["content"]
            )
    for each in value.get("items", ()):
        if each.pop("compressed", False):
            del each["item"]["body"]
    for each in (*value.get("objects", ()), *value.get("uploads", ())):
        if "text" in each:
            each["text"] = _without_digests(each["text"], names)
    return value


def _without_digests(text: str, names: Mapping[str, str]) -> str:
    if not any(digest in text for digest in names):
        return text
    text = re.sub("|".join(names), lambda found: names[found[0]], text)
    fields = json.loads(text)
    body = {name: each for name, each in fields.items() if name not in ("checksum", "format", "kind")}
    again = encode(Document(fields["kind"], body)).decode()
    checksum = json.loads(again)["checksum"]
    return text.replace(fields["checksum"], checksum)


def explained(name: str) -> str:
    """Return the message of a test that finds a changed format."""
    return (
        f"The format of the sample {name!r} has changed since version {VERSION}. If the change is not"
        " wanted, undo it. If earlier versions can read the new format: write it as version"
        f" {VERSION} only before that version is released; else raise VERSION in"
        " tests/support/formats.py, run `python tests/fixtures/formats/make.py`, and keep the earlier"
        " samples. If earlier versions cannot read it, also raise the number of the format, so that they"
        " refuse it; see docs/compatibility.md"
    )
