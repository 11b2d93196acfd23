"""Any data in place of a lease, a finding, an item or a table is read as stored, or refused.

A refusal raises a typed error.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from commitlog.cli import main
from commitlog.commit.conditional import ConditionalStore
from commitlog.commit.probe_report import FORMAT, Kind, ProbeReport, ProbeResult
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import CommitError, CorruptRecord, FormatTooNew, LeaseTimeout, WrongTableSchema
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import TABLE_FORMAT, Absent, Item, ItemPage, Key, Put, TableInfo
from commitlog.tables.marshal import marshal, unmarshal
from commitlog.tables.open import open_table
from commitlog.tables.rules import check_condition, check_item, key_of_token, token_of_key
from commitlog.tables.sqlite import SqliteTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.fuzzing import (
    HOSTILE,
    Properties,
    damaged_bytes,
    damaged_json,
    dumps,
    outcome,
    replaced,
    says,
    scratch,
    wild_json,
    wild_scalars,
    wild_texts,
)

fuzz = Properties()

LEASE: dict[str, Any] = {
    "path": "out/a",
    "etag": "*",
    "generation": 3,
    "timeout": 20_000,
    "ttl": 1_800_003_600,
    "owner": "0123456789abcdef" * 2,
}
VERDICT = ProbeReport(
    url="s3://bucket",
    rows=[
        ProbeResult(kind=Kind.REQUEST_EXPIRY, check="accept", expected="done", got="done", ok=True),
        ProbeResult(kind=Kind.PUT_IF_ABSENT, check="race", expected="one winner", got="two", ok=False),
    ],
)

#: Values that an item can hold.
VALUES = tuple(
    value
    for value in (*HOSTILE, b"", b"\xff", "x" * 400)
    if type(value) in (bool, bytes)
    or (type(value) is int and abs(value) < 10**38)
    or (type(value) is str and value.isprintable())
)


# -- leases ------------------------------------------------------------------------------------------


def check_lease(item: Item) -> None:
    """Check that `item` is a corrupt lease, or is read as stored and can be taken over."""
    found = outcome(lambda: LeaseRecord.from_item(item), CorruptRecord)
    if isinstance(found, Exception):
        return
    assert says(dict(item), found.to_item())
    check_condition(found.unchanged())
    own = {"path": "a", "etag": "*", "generation": found.generation + 1}
    check_item(LEASE_SCHEMA, {**found.to_item(), **own})


def test_a_lease_with_an_invalid_attribute_is_corrupt() -> None:
    """Any value of an attribute is read as stored, or makes the lease corrupt."""
    for item in replaced(LEASE, VALUES):
        if isinstance(item, dict):
            check_lease(item)


@fuzz(200, item=damaged_json(LEASE, st.sampled_from(VALUES[:-3])))
def test_a_damaged_lease_is_valid_or_corrupt(item: Any) -> None:
    """Leases with several damaged attributes."""
    if isinstance(item, dict):
        check_lease(item)


@pytest.mark.parametrize("damage", [{"generation": "3"}, {"timeout": -1}, {"ttl": 2**63}, {"owner": 7}])
def test_a_corrupt_lease_stops_only_writers_of_its_path(damage: dict[str, Any]) -> None:
    """The writer gets an error that names the item, and nothing is written."""
    table = open_table("memory://", LEASE_SCHEMA)
    table.create()
    store = ConditionalStore(MemoryStore(), table=table, mode="lease", clock=ManualClock())
    key = store.key("a")
    table.put({**LEASE, "path": key, **damage})
    with pytest.raises(CorruptRecord, match=rf"'{key}', etag '\*' is corrupt.*Delete the item"):
        store.put_if_absent("a", b"1")
    assert store.begin_head("a")().info is None
    store.put_if_absent("b", b"1")
    table.delete(Key(key, "*"))
    store.put_if_absent("a", b"1")


def test_the_wait_for_a_very_long_lease_is_limited() -> None:
    """An extremely long timeout is a valid number. `max_wait` ends the wait with `LeaseTimeout`."""
    table = open_table("memory://", LEASE_SCHEMA)
    table.create()
    store = ConditionalStore(
        MemoryStore(),
        table=table,
        mode="lease",
        clock=ManualClock(),
        settings=LeaseSettings(max_wait=5.0),
    )
    table.put({**LEASE, "path": store.key("a"), "timeout": 2**62})
    with pytest.raises(LeaseTimeout):
        store.put_if_absent("a", b"1")


# -- findings ----------------------------------------------------------------------------------------


def check_probe_report(text: str) -> None:
    """Check that `text` is refused, or is a probe report that is read as stored."""
    found = outcome(lambda: ProbeReport.from_json(text), CorruptRecord, FormatTooNew)
    if isinstance(found, FormatTooNew):
        assert json.loads(text)["format"] > FORMAT
    elif isinstance(found, ProbeReport):
        assert ProbeReport.from_json(found.to_json()) == found
        assert says(json.loads(text), json.loads(found.to_json()))
        for kind in Kind:
            found.proves(kind)


def test_a_probe_report_with_an_invalid_field_is_corrupt() -> None:
    """Any value of a field is read as stored, or makes the report corrupt."""
    for value in replaced(json.loads(VERDICT.to_json())):
        check_probe_report(dumps(value))


@fuzz(200, value=damaged_json(json.loads(VERDICT.to_json())))
def test_a_damaged_probe_report_is_valid_or_corrupt(value: Any) -> None:
    """Reports with several damaged fields."""
    check_probe_report(dumps(value))


@fuzz(200, text=st.text(max_size=40) | wild_json.map(dumps))
def test_any_text_is_a_probe_report_or_refused(text: str) -> None:
    """This holds for arbitrary texts and arbitrary JSON."""
    check_probe_report(text)


@pytest.mark.parametrize("text", ['{"format": 4}', '{"format": 99, "rows": {}, "url": 1}'])
def test_a_probe_report_of_a_newer_format_is_refused(text: str) -> None:
    """It is recognised by its format alone."""
    with pytest.raises(FormatTooNew):
        ProbeReport.from_json(text)


def test_a_probe_report_with_texts_for_booleans_is_corrupt() -> None:
    """The text "false" would count as true, and so prove a condition that failed."""
    value = json.loads(VERDICT.to_json())
    value["rows"][1]["ok"] = "false"
    with pytest.raises(CorruptRecord):
        ProbeReport.from_json(json.dumps(value))


# -- items -------------------------------------------------------------------------------------------

ITEM: Item = {"path": "a", "etag": "*", "generation": -3, "live": True, "raw": b"\xff\x00"}


def check_wire(wire: Any) -> None:
    """Check that `wire` is refused, or is an item that round-trips."""
    found = outcome(lambda: unmarshal(wire), CorruptRecord)
    if not isinstance(found, Exception):
        assert unmarshal(json.loads(json.dumps(marshal(found)))) == found
        if all(found):
            check_item(LEASE_SCHEMA, {**found, "path": "a", "etag": "*"})


def test_an_invalid_attribute_of_an_item_is_refused() -> None:
    """Any value of an attribute is a valid value, or is refused."""
    for wire in replaced(marshal(ITEM)):
        check_wire(wire)


@fuzz(
    300,
    wire=st.dictionaries(
        wild_texts,
        st.dictionaries(st.sampled_from(["S", "N", "B", "BOOL", "NULL", "L"]), wild_scalars, max_size=2)
        | wild_json,
        max_size=3,
    ),
)
def test_any_wire_value_is_an_item_or_refused(wire: Any) -> None:
    """Numbers in other spellings, lone surrogates, and invalid types."""
    check_wire(wire)


@pytest.mark.parametrize("number", ["1" * 39, "٣", " 1", "1_0", "+1", "1e3", "0x1", "", "-", "1" * 5000])
def test_a_number_has_one_spelling(number: str) -> None:
    """A text that is a number in Python, but not in DynamoDB, is refused."""
    with pytest.raises(CorruptRecord, match="'size'"):
        unmarshal({"size": {"N": number}})


@fuzz(200, token=st.text(max_size=30) | wild_json.map(dumps))
def test_an_invalid_token_is_a_wrong_argument(token: str) -> None:
    """It raises `ValueError`, like other wrong arguments of a table."""
    found = outcome(lambda: key_of_token(token), ValueError)
    if isinstance(found, Key):
        assert key_of_token(token_of_key(found)) == found


# -- tables in files ---------------------------------------------------------------------------------


def pages(page: Callable[..., ItemPage], *words: str, **options: int) -> list[Item]:
    """Return the items of all pages. Fail if the listing does not end."""
    items: list[Item] = []
    token: str | None = None
    for _ in range(100):
        found = page(*words, limit=2, token=token, **options)
        items.extend(found.items)
        token = found.next_token
        if token is None:
            return items
    raise AssertionError("the listing has no end")


CALLS: tuple[Callable[[SqliteTable], object], ...] = (
    lambda table: table.check(),
    lambda table: table.describe(),
    lambda table: table.create(),
    lambda table: table.get(Key("k1", "*")),
    lambda table: pages(table.query_page, "k1"),
    lambda table: list(table.scan()),
    lambda table: pages(table.scan_page, segment=1, segments=2),
    lambda table: table.put({"path": "k1", "etag": "*", "new": 1}, condition=Absent("new")),
    lambda table: table.transact([Put({"path": "k9", "etag": "*"}, Absent())]),
    lambda table: table.delete(Key("k1", "*")),
    lambda table: table.remove_expired(),
)


def open_file(path: Path) -> SqliteTable:
    return SqliteTable(
        parse_table_url(f"sqlite://{path}"), LEASE_SCHEMA, clock=ManualClock(), busy_timeout=0.5
    )


def sample(path: Path) -> bytes:
    """Return the bytes of a table in a file with some items; remove the file."""
    table = open_file(path)
    table.create()
    for number in range(30):
        table.put({**LEASE, "path": f"k{number % 3}", "etag": f"{number:02d}" if number > 2 else "*"})
    table.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory for files that tests make and remove."""
    with scratch() as directory:
        yield directory


@pytest.fixture(scope="module")
def whole(place: Path) -> bytes:
    """The bytes of an undamaged table file."""
    return sample(place / "sample.db")


def use(path: Path, *errors: type[CommitError]) -> list[object]:
    """Return the outcome of each kind of call on the table in the file, and remove the file."""
    try:
        with closing(open_file(path)) as table:
            return [outcome(lambda call=call: call(table), *errors) for call in CALLS]
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


@fuzz(60, data=st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject, place: Path, whole: bytes) -> None:
    """With a truncated, overwritten or altered file, no call raises an error of SQLite."""
    path = place / "damaged.db"
    path.write_bytes(data.draw(damaged_bytes(whole)))
    use(path, CommitError)


@fuzz(60, bits=st.lists(st.integers(0, 40_960 * 8 - 1), min_size=1, max_size=20))
def test_flipped_bits_are_read_or_refused(bits: list[int], place: Path, whole: bytes) -> None:
    """Flipped bits anywhere in the file."""
    damaged = bytearray(whole)
    for bit in bits:
        damaged[bit // 8 % len(damaged)] ^= 1 << bit % 8
    path = place / "flipped.db"
    path.write_bytes(damaged)
    use(path, CommitError)


@fuzz(20, wal=st.binary(min_size=1, max_size=100), shm=st.binary(max_size=100))
def test_foreign_files_next_to_a_table_are_ignored(
    wal: bytes, shm: bytes, place: Path, whole: bytes
) -> None:
    """An invalid WAL file is ignored, and the items of the table are read."""
    path = place / "beside.db"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    Path(f"{path}-wal").write_bytes(wal)
    Path(f"{path}-shm").write_bytes(shm)
    assert not [found for found in use(path, CommitError) if isinstance(found, Exception)]


def _with(place: Path, whole: bytes, statement: str, *values: object) -> Path:
    path = place / "altered.db"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(statement, values)
    return path


#: Values that a column of SQLite can hold, whatever its declared type.
CELLS = tuple(
    value
    for value in (
        *HOSTILE,
        b"",
        b"\xff",
        dumps("@deep@"),
        dumps("@bottomless@"),
        "x",
        '{"path":{"S":"z"}}',
    )
    if type(value) is bytes
    or (type(value) is float and value == value)
    or (type(value) is int and abs(value) < 2**63)
    or (type(value) is str and value.isascii())
)


@pytest.mark.parametrize("column", ["item", "hash", "range"])
def test_an_invalid_item_is_corrupt(column: str, place: Path, whole: bytes) -> None:
    """For any value of a cell, every call ends, at most with a typed error.

    In particular a scan ends: its pages follow the keys, and an item with another key than its row would
    send it back to the start.
    """
    for cell in CELLS:
        statement = f"UPDATE OR REPLACE items SET {column} = ? WHERE hash = x'6b31' AND range = x'2a'"
        found = use(_with(place, whole, statement, cell), CorruptRecord)
        if column == "item":
            assert isinstance(found[3], CorruptRecord), cell
            assert isinstance(found[5], CorruptRecord), cell
            assert "altered.db" in str(found[3]) and "k1" in str(found[3])


@pytest.mark.parametrize("column", ["format", "created", "hash_key", "range_key", "ttl"])
def test_an_invalid_version_marker_is_corrupt(column: str, place: Path, whole: bytes) -> None:
    """For any value of a cell, the marker is valid, or refused with a typed error."""
    allowed = (CorruptRecord, FormatTooNew, WrongTableSchema)
    for cell in (None, *CELLS):
        path = _with(place, whole, f"UPDATE commitlog_table SET {column} = ?", cell)
        with closing(
            sqlite3.connect(path)
        ) as connection:  # the column type converts some texts to numbers
            ((kept,),) = connection.execute(f"SELECT {column} FROM commitlog_table")
        found = use(path, *allowed)
        if isinstance(found[1], TableInfo):
            assert isinstance(found[1].created, float) and isinstance(found[1].schema.hash_key, str)
        if column == "format" and kept != TABLE_FORMAT:
            newer = type(kept) is int and kept > TABLE_FORMAT
            assert {type(each) for each in found} == {FormatTooNew if newer else CorruptRecord}


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("DROP TABLE items", CorruptRecord),
        ("DROP TABLE commitlog_table", WrongTableSchema),
        ("DELETE FROM commitlog_table", CorruptRecord),
        ("ALTER TABLE items DROP COLUMN item", CorruptRecord),
        ("ALTER TABLE commitlog_table DROP COLUMN ttl", CorruptRecord),
        ("ALTER TABLE commitlog_table DROP COLUMN format", CorruptRecord),
        ("UPDATE items SET item = CAST(x'ff61' AS TEXT)", CorruptRecord),
    ],
)
def test_a_table_with_another_schema_is_not_unavailable(
    statement: str, error: type[CommitError], place: Path, whole: bytes
) -> None:
    """The damage is permanent, so the error does not suggest a retry."""
    found = use(_with(place, whole, statement), error)
    assert [each for each in found if isinstance(each, Exception)]


def test_a_newer_format_may_have_other_columns(place: Path, whole: bytes) -> None:
    """The file of a later release is recognised by its format alone."""
    path = _with(place, whole, "UPDATE commitlog_table SET format = 2")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE commitlog_table DROP COLUMN ttl")
        connection.execute("ALTER TABLE items RENAME TO rows")
    assert {type(each) for each in use(path, FormatTooNew)} == {FormatTooNew}


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE items SET item = '{' WHERE hash = x'6b31'", "b'k1'"),
        ("UPDATE items SET item = replace(item, '\"N\"', '\"L\"') WHERE hash = x'6b31'", "'generation'"),
        ("UPDATE commitlog_table SET format = 2", "upgrade"),
        ("DROP TABLE items", "altered.db"),
    ],
)
def test_lease_list_reports_a_damaged_table_in_one_line(
    statement: str, said: str, place: Path, whole: bytes
) -> None:
    """The command exits with status 1. The line names the table and, if there is one, the item."""
    path = _with(place, whole, statement)
    done = CliRunner().invoke(main, ["lease", "list", f"sqlite://{path}"], catch_exceptions=False)
    [line] = done.stderr.splitlines()
    assert done.exit_code == 1
    assert line.startswith("commitlog: ") and "altered.db" in line and said in line


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, '{"format": 2}', VERDICT.to_json()[:-9], "\ud800"]
)
def test_an_invalid_probe_report_is_refused_in_one_line(text: str, place: Path) -> None:
    """The file of `--probe-report` is checked before any request."""
    file = place / "verdict.json"
    file.write_bytes(text.encode(errors="surrogatepass"))
    words = ["cat", f"{place}/x", "--probe-report", str(file)]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    [line] = done.stderr.splitlines()
    assert done.exit_code in (1, 2)
    assert line.startswith("commitlog: ") and "unexpected" not in line


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int, place: Path, whole: bytes) -> None:
    """Run all properties with new examples, for the given time."""
    tried = fuzz.campaign(campaign_seconds, campaign_seed, place=place, whole=whole)
    print(f"{tried} examples")
