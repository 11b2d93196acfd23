"""Any data in place of a source's items is read as stored, or refused as corrupt."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.ingest import (
    IngestSettings,
    InputProblem,
    PathFilter,
    Quarantine,
    SourceMetadata,
    StateTable,
)
from commitlog.ingest.quarantine import wanted_slice
from commitlog.ingest.rows import FilesRow
from commitlog.ingest.source_metadata import schema_item, schema_text
from commitlog.ingest.source_state import SourceState
from commitlog.tables.api import Item
from commitlog.testing import ManualClock
from support.fuzzing import (
    HOSTILE,
    Properties,
    damaged_bytes,
    damaged_json,
    outcome,
    replaced,
    says,
    sealed,
)
from support.ingest import Bucket, Engine, state_table

fuzz = Properties()

SETTINGS = IngestSettings(
    source="s",
    prefix="in/",
    names=PathFilter(glob="**/*.{json,csv}", name="[!x]*"),
    max_files=3,
    max_bytes=5,
    starting_from=1.5,
    list_limit=2,
    max_file_age=1e9,
)


def stored() -> dict[str, Item]:
    """Return an item of each kind, written by a source, by the first segment of its key."""
    clock = ManualClock()
    store, table = Bucket(clock=clock), state_table()
    for path in ("in/a.json", "in/b.json", "in/c/d=1/täglich.csv"):
        store.put(path, b"1234")
    engine = Engine(store=store, table=table, settings=SETTINGS, clock=clock, splits=True)
    assert engine.batch()
    state, problems = StateTable(table, "s"), Quarantine(table, "s", clock=clock)
    state.fix_schema('{"type": "struct", "fields": []}')
    state.describe(SourceMetadata(url="s3://lake/in", format="json", settings=SETTINGS))
    for each in engine.checkpoint.slices[0]:
        problems.report(1, each, "unreadable", "no JSON", records=1, offset=2)
    assert problems.retry(next(iter(problems)))
    return {str(item["item"]).partition("/")[0]: item for item in table.scan()}


ITEMS = stored()

#: For each kind of item, its reader and its writer; None if it has no writer.
PARSERS: dict[str, tuple[Callable[[Item], Any], Callable[[Any], Item] | None]] = {
    "list": (SourceState.from_item, SourceState.to_item),
    "epoch": (FilesRow.from_item, lambda row: row.to_item("s")),
    "problem": (InputProblem.from_item, InputProblem.to_item),
    "settings": (SourceMetadata.from_item, SourceMetadata.to_item),
    "schema": (schema_text, lambda text: schema_item("s", text)),
    "wanted": (wanted_slice, None),
}
KINDS = sorted(PARSERS)


def opened(item: Item) -> bytes:
    """Return the record in the body of an item."""
    body = item["body"]
    assert isinstance(body, bytes)
    return zlib.decompress(body) if str(item["item"]).startswith("epoch/") else body


def with_body(kind: str, data: bytes) -> Item:
    """Return the item of a kind with another record in its body."""
    return {**ITEMS[kind], "body": zlib.compress(data) if kind == "epoch" else data}


def fields_of(kind: str, item: Item) -> dict[str, Any]:
    """Return the fields of the record in an item."""
    value = json.loads(opened(item))
    return {name: value[name] for name in value.keys() - {"format", "kind", "checksum"}}


BODIES = {kind: fields_of(kind, ITEMS[kind]) for kind in KINDS}


def check(kind: str, item: Item) -> None:
    """Check that an item is corrupt, or is read as stored and round-trips."""
    read, write = PARSERS[kind]
    found = outcome(lambda: read(item), CorruptRecord, FormatTooNew)
    if isinstance(found, Exception) or write is None:
        return
    again = write(found)
    assert read(again) == found
    documented, wrote = fields_of(kind, item), fields_of(kind, again)
    if kind == "settings":  # some settings may be missing and have their defaults
        defaults = SourceMetadata(url="s3://lake", format="", settings=IngestSettings(source="s"))
        known = fields_of(kind, defaults.to_item())["settings"]
        names = {**known["names"], **documented["settings"].get("names", {})}
        documented = {
            **documented,
            "settings": {**known, **documented["settings"], "names": names},
            "url": wrote["url"],
        }
    assert says(documented, wrote)


def kind_of(item: Item) -> Any:
    """Return the kind of the record in an item."""
    return json.loads(opened(item))["kind"]


def test_the_items_of_a_source_are_valid() -> None:
    """There is an item of each kind to damage."""
    assert sorted(ITEMS) == KINDS
    for kind in KINDS:
        check(kind, ITEMS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_or_missing_field_is_corrupt(kind: str) -> None:
    """Any value of a field is read as stored, or makes the item corrupt."""
    for body in replaced(BODIES[kind]):
        if isinstance(body, dict):
            check(kind, with_body(kind, sealed(kind_of(ITEMS[kind]), body)))


@fuzz(
    300,
    data=st.sampled_from(KINDS).flatmap(
        lambda kind: st.tuples(st.just(kind), damaged_json(BODIES[kind]))
    ),
)
def test_a_damaged_body_is_valid_or_corrupt(data: tuple[str, Any]) -> None:
    """Bodies with several damaged fields."""
    kind, body = data
    if isinstance(body, dict):
        check(kind, with_body(kind, sealed(kind_of(ITEMS[kind]), body)))


@fuzz(
    200,
    data=st.sampled_from(KINDS).flatmap(
        lambda kind: st.tuples(st.just(kind), damaged_bytes(opened(ITEMS[kind])))
    ),
)
def test_damaged_bytes_never_change_the_content_of_an_item(data: tuple[str, bytes]) -> None:
    """A body with damaged bytes has the same content, or is corrupt."""
    kind, body = data
    found = outcome(lambda: PARSERS[kind][0](with_body(kind, body)), CorruptRecord, FormatTooNew)
    if not isinstance(found, Exception):
        assert found == PARSERS[kind][0](ITEMS[kind])


@fuzz(100, data=damaged_bytes(zlib.compress(b"x" * 100)))
def test_rows_of_files_that_cannot_be_decompressed_are_corrupt(data: bytes) -> None:
    """Any bytes in place of the compressed data are decompressed, or refused as corrupt."""
    outcome(lambda: FilesRow.from_item({**ITEMS["epoch"], "body": data}), CorruptRecord)


@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_or_missing_attribute_is_corrupt(kind: str) -> None:
    """Any value of any attribute, including the body, is read or makes the item corrupt."""
    values = [value for value in HOSTILE if value is None or isinstance(value, (bool, int, str))]
    for name in ITEMS[kind]:
        for value in [*values, b"", b"\xff"]:
            item: Any = {**ITEMS[kind], name: value}
            outcome(lambda: PARSERS[kind][0](item), CorruptRecord)  # noqa: B023
        outcome(
            lambda: PARSERS[kind][0]({k: v for k, v in ITEMS[kind].items() if k != name}),  # noqa: B023
            CorruptRecord,
        )


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed)} examples")
