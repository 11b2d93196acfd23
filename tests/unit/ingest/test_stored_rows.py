"""The rows that a source stores: they fit into the table, and damaged ones are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.ingest.files import File, Slice
from commitlog.ingest.quarantine import InputProblem
from commitlog.ingest.rows import FileEntry, FilesRow, encoded
from commitlog.ingest.source_state import INGEST_SCHEMA, ListingPass, SourceState
from commitlog.ingest.watermarks import Watermarks
from commitlog.oplog.codec import Document, encode
from commitlog.tables.rules import check_item

_FILE = File("a/ü %2F", '"1"', 10, 1.5)
_HEAD = SourceState(
    source="s",
    revision=3,
    change_id="w",
    born="b",
    claim="c",
    epoch=2,
    since=1.0,
    latest=True,
    watermarks=Watermarks(steps=(("a", -math.inf), ("b", 2.0)), tail=2.5),
    tail=ListingPass(began=4.0, watermark=3.0, cursor="c", settled="b"),
    body=ListingPass(began=4.0, watermark=-math.inf, cursor="a"),
    tails=7,
    bodies=6,
    rest=Slice(_FILE, 3, 10, 1),
    files=8,
    bytes=9,
    passed_over=1,
)
_PROBLEM = InputProblem(
    source="s",
    epoch=3,
    slice=Slice(_FILE, 0, 10),
    kind="unreadable",
    error="ü",
    records=4,
    offset=5,
    time=6.0,
)


def test_stored_rows_round_trip() -> None:
    """This holds for the list row, rows of files, and problems."""
    assert SourceState.from_item(_HEAD.to_item()) == _HEAD
    bare = SourceState(source="s", revision=1, change_id="w", born="b")
    assert SourceState.from_item(bare.to_item()) == bare
    assert InputProblem.from_item(_PROBLEM.to_item()) == _PROBLEM
    rows = encoded(4, 9, [(FileEntry(_FILE, ((0, 5, 0), (5, 10, 2))), True), (FileEntry(_FILE), False)])
    assert [row.recent for row in rows] == [False, True]
    for row in rows:
        assert FilesRow.from_item(row.to_item("s")) == row
        assert (row.epoch, row.revision, row.of) == (4, 9, 2)


@given(
    lengths=strategies.lists(strategies.integers(1, 1000), max_size=60),
    times=strategies.integers(1, 60),
)
def test_rows_fit_into_the_table(lengths: list[int], times: int) -> None:
    """For any names, each row is an item that the table accepts, and no entry is lost."""
    names = [f"{number}{'ü' * length}"[:512] for number, length in enumerate(lengths * times)]
    entries = [
        (FileEntry(File(name, '"e"', 1, 1.0), ((0, 1, 0),)), len(name) % 2 == 0) for name in names
    ]
    rows = encoded(1, 1, entries)
    for row in rows:
        check_item(INGEST_SCHEMA, row.to_item("s"))
        assert len({entry.file.path for entry in row.entries}) == len(row.entries)
    assert sorted(entry.file.path for row in rows for entry in row.entries) == sorted(names)
    assert [row.range for row in rows] == sorted(row.range for row in rows)


def _damaged(item: Any, **changes: Any) -> Any:
    return {**item, **changes}


@pytest.mark.parametrize(
    ("read", "item"),
    [
        (SourceState.from_item, _HEAD.to_item()),
        (InputProblem.from_item, _PROBLEM.to_item()),
        (FilesRow.from_item, encoded(1, 1, [(FileEntry(_FILE), True)])[0].to_item("s")),
    ],
    ids=["list row", "problem", "row of files"],
)
def test_damage_is_reported(read: Any, item: Any) -> None:
    """A damaged item raises `CorruptRecord`, and no other error."""
    body = item["body"]
    for wrong in (None, "text", b"", body[:-3], body[:10] + b"x" + body[11:], 7):
        with pytest.raises(CorruptRecord, match="s/"):
            read(_damaged(item, body=wrong))


def test_newer_state_is_refused() -> None:
    """State of a newer release raises `FormatTooNew`."""
    newer = encode(Document("ingest-list", {})).replace(b'"format":1', b'"format":2')
    with pytest.raises(FormatTooNew):
        SourceState.from_item(_damaged(_HEAD.to_item(), body=newer))


def test_fields_of_wrong_types_are_corrupt() -> None:
    """A list row with a valid checksum and fields of wrong types raises `CorruptRecord`."""
    falling: Any = {"floors": [9.0, ["a", 2.0], ["b", 1.0]]}
    for changes in ({}, {"epoch": "1"}, {"tail": [1.0]}, {"rest": ["a"]}, {"born": 1}, falling):
        body = {
            "born": "b",
            "claim": "",
            "epoch": 1,
            "since": None,
            "latest": False,
            "floors": [None],
            "tail": None,
        }
        body |= {"body": None, "tails": 0, "bodies": 0, "rest": None}
        body |= {"files": 0, "bytes": 0, "passed_over": 0}
        item = _damaged(_HEAD.to_item(), body=encode(Document("ingest-list", body | changes)))
        if changes:
            with pytest.raises(CorruptRecord):
                SourceState.from_item(item)
        else:
            assert SourceState.from_item(item).epoch == 1
