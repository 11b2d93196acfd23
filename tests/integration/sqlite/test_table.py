"""Tables in SQLite files: processes, forks, kills, expiry, and files that are none of ours."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from commitlog.errors import (
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    TableNotFound,
    Unavailable,
    WrongTableSchema,
)
from commitlog.tables import Absent, Delete, Equals, Key, Put, TableSchema
from commitlog.tables.api import TRANSACT_WITHIN, UnreadableItem
from commitlog.tables.open import open_table
from commitlog.tables.sqlite import SqliteTable
from commitlog.tables.sqlite_connection import open_file, translated
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url

HOUR = 3600
SCHEMA = TableSchema(hash_key="path", range_key="etag", ttl_attribute="ttl")

#: What the programs below begin with: the table, whose URL is their first argument.
PRELUDE = """
    import json, os, sys, threading
    from commitlog.errors import *
    from commitlog.tables import *
    from commitlog.tables.open import open_table
    table = open_table(sys.argv[1], TableSchema(hash_key="path", range_key="etag", ttl_attribute="ttl"))
    def item(path, **attributes):
        return {"path": str(path), "etag": "*", **attributes}
"""


def _open(path: Path, *, busy_timeout: float = 10.0, clock: ManualClock | None = None) -> SqliteTable:
    url = parse_table_url(f"sqlite://{path}")
    return SqliteTable(url, SCHEMA, clock=clock or ManualClock(), busy_timeout=busy_timeout)


def _program(text: str) -> str:
    return textwrap.dedent(PRELUDE) + textwrap.dedent(text)


def _start(table: SqliteTable, program: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _program(program), table.url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _run(url: str, program: str) -> str:
    command = [sys.executable, "-c", _program(program), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the table of the test is."""
    return tmp_path / "table.db"


@pytest.fixture
def table(path: Path) -> Iterator[SqliteTable]:
    """A new table."""
    table = _open(path)
    table.create()
    yield table
    table.close()


# -- processes --------------------------------------------------------------------------------------


def test_racing_processes(table: SqliteTable) -> None:
    """Of four processes that create the same keys at once, one wins each of them."""
    racer = """
        wins = []
        table.check()
        print("ready", flush=True)
        sys.stdin.readline()
        for key in range(40):
            try:
                table.put(item(key, owner=os.getpid()), condition=Absent())
            except ConditionFailed:
                continue
            wins.append(key)
        print(json.dumps({"owner": os.getpid(), "wins": wins}))
    """
    racers = [_start(table, racer) for _ in range(4)]
    for process in racers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in racers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [json.loads(process.communicate(timeout=60)[0]) for process in racers]
    owners = {str(key): result["owner"] for result in results for key in result["wins"]}
    assert sum(len(result["wins"]) for result in results) == 40
    assert {item["path"]: item["owner"] for item in table.scan()} == owners


def test_killed_writer(table: SqliteTable) -> None:
    """A writer killed at any moment leaves a sound table with every write that it was told of."""
    writer = """
        for number in range(1_000_000):
            table.transact([Put(item(f"{number}-{side}", data=b"x" * 2000)) for side in "ab"])
            print(number, flush=True)
    """
    with _start(table, writer) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    stored = {str(item["path"]) for item in table.scan()}
    assert {f"{number}-{side}" for number in acknowledged for side in "ab"} <= stored
    # The last one may be there without its acknowledgement, but not half of it.
    assert {name[:-1] + "a" for name in stored} == {
        name[:-1] + "a" for name in stored if name[-1] == "b"
    }
    assert len(stored) % 2 == 0
    table.put({"path": "after", "etag": "*"})
    with closing(sqlite3.connect(table.url.removeprefix("sqlite://"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_fork_with_open_connections(table: SqliteTable) -> None:
    """A child that goes on with its parent's table loses nothing once all others have closed it.

    Whoever closes last removes the log. Locks are not inherited: a child that took its parent's for
    its own would go on writing to a log that is gone.
    """
    table.close()
    _run(
        table.url,
        """
        table.put(item("parent"))
        table.get(Key("parent", "*"))
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        child = os.fork()
        if not child:
            table.put(item("child-1"))
            os.write(from_child, b"x")
            os.read(to_child, 1)
            table.put(item("child-2"))
            os._exit(0)
        os.read(to_parent, 1)
        table.close()
        other = open_table(sys.argv[1], table.schema)
        other.put(item("other"))
        other.close()
        os.write(from_parent, b"x")
        assert os.waitpid(child, 0)[1] == 0
        """,
    )
    assert {item["path"] for item in table.scan()} == {"parent", "child-1", "child-2", "other"}


def test_fork_while_threads_write(table: SqliteTable) -> None:
    """Forking while other threads write neither deadlocks nor loses a write."""
    _run(
        table.url,
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        def write(name):
            for number in range(30):
                table.put(item(f"{name}-{number}"))
        threads = [threading.Thread(target=write, args=(f"thread-{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        children = []
        for n in range(3):
            child = os.fork()
            if not child:
                write(f"child-{n}")
                os._exit(0)
            children.append(child)
        for thread in threads:
            thread.join()
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        """,
    )
    assert len(list(table.scan())) == 6 * 30


def test_durability(path: Path, table: SqliteTable) -> None:
    """Every commit is synced to the disk, log included."""
    with closing(open_file(str(path), "rw", busy_timeout=1.0)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# -- waiting ----------------------------------------------------------------------------------------


@pytest.fixture
def other_writer(path: Path, table: SqliteTable) -> Iterator[sqlite3.Connection]:
    """Somebody else who is in the middle of a write."""
    table.put({"path": "a", "etag": "*"})
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_busy_file(path: Path, other_writer: sqlite3.Connection) -> None:
    """A write gives up when others write for too long; nothing happened, and later it works."""
    with closing(_open(path, busy_timeout=0.05)) as table:
        with pytest.raises(Unavailable, match="busy with other writers; nothing was changed"):
            table.put({"path": "b", "etag": "*"})
        other_writer.execute("ROLLBACK")
        assert table.get(Key("b", "*")) is None
        table.put({"path": "b", "etag": "*"})


def test_transaction_whose_turn_comes_late(path: Path, other_writer: sqlite3.Connection) -> None:
    """After half a minute, by whichever clock, it is not done any more, though it could."""
    asked = threading.Event()

    class Asked(ManualClock):
        def epoch(self) -> float:
            asked.set()
            return super().epoch()

    clock = Asked()
    opened = closing(_open(path, busy_timeout=600.0, clock=clock))
    with opened as table, ThreadPoolExecutor() as threads:
        asked.clear()
        late = threads.submit(table.transact, [Put({"path": "late", "etag": "*"})])
        assert asked.wait(60)
        clock.suspend(TRANSACT_WITHIN + 1)
        other_writer.rollback()
        with pytest.raises(Unavailable, match="too late; nothing was changed"):
            late.result()
        assert table.get(Key("late", "*")) is None
        table.transact([Put({"path": "late", "etag": "*"})])


def test_reading_beside_a_writer(table: SqliteTable, other_writer: sqlite3.Connection) -> None:
    """Reads do not wait for a writer."""
    assert table.get(Key("a", "*")) is not None
    assert len(list(table.scan())) == len(list(table.query("a"))) == 1


# -- expiry -----------------------------------------------------------------------------------------


def test_sweep(path: Path) -> None:
    """A sweep removes what an earlier one found expired hours ago, however much it is."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "first", "etag": "*"})  # the sweep of this minute
        for i in range(150):
            table.put({"path": f"past-{i}", "etag": "*", "ttl": 1009})
        for name, ttl in (("now", 1010), ("future", 1011), ("far", 10**30), ("word", "1")):
            table.put({"path": name, "etag": "*", "ttl": ttl})
        table.put({"path": "ancient", "etag": "*", "ttl": -(10**30)})
        clock.advance(10)
        assert table.sweep() == 0
        clock.advance(6 * HOUR)
        assert table.sweep() == 0
        clock.advance(1)
        assert table.sweep() == 151
        left = {item["path"] for item in table.scan()}
        assert left == {"first", "now", "future", "far", "word"}
        assert table.sweep() == 0


def test_what_is_written_again_expires_anew(path: Path) -> None:
    """That an earlier item of its key was found expired does not matter."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*", "ttl": 1001})
        clock.advance(10)
        table.sweep()
        clock.advance(HOUR)
        table.put({"path": "a", "etag": "*", "ttl": 1000 + 6 * HOUR})
        clock.advance(5 * HOUR + 60)
        assert table.sweep() == 0
        clock.advance(5 * HOUR)
        assert table.sweep() == 0
        clock.advance(HOUR + 1)
        assert table.sweep() == 1


def test_a_sweep_while_the_clock_is_ahead_keeps_nothing_for_ever(path: Path) -> None:
    """What it found expired is removed hours after the next sweep with a clock that is right."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*", "ttl": 2000})
        clock.set_forward(10**9)
        table.sweep()
        clock.set_forward(-(10**9))
        assert table.sweep() == 0
        clock.advance(6 * HOUR + 1)
        assert table.sweep() == 1


def test_an_earlier_version_removes_what_was_found(path: Path) -> None:
    """It removes all whose number is in the past, as it always did, and what expires later stays."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*", "ttl": 1001})
        table.put({"path": "b", "etag": "*", "ttl": 1100})
        clock.advance(10)
        table.sweep()
    _spoil(path, "DELETE FROM items WHERE expires < 1010")
    with closing(_open(path, clock=clock)) as table:
        assert [item["path"] for item in table.scan()] == ["b"]


def test_sweeping_beside_writes(path: Path) -> None:
    """Writes remove expired items in passing, a few at a time, and soon again while there are more."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*"})
        for i in range(150):
            table.put({"path": "old", "etag": str(i), "ttl": 1})

        def write_after(seconds: float) -> int:
            clock.advance(seconds)
            table.put({"path": "a", "etag": "*"})
            return len(list(table.query("old")))

        assert [write_after(seconds) for seconds in (60, 1, 6 * HOUR)] == [150, 150, 50]
        assert [write_after(seconds) for seconds in (0.5, 0.5)] == [50, 0]


def test_expired_item_is_there_until_it_is_removed(path: Path) -> None:
    """A put sees the expired item that it replaces: reads and conditions agree until the sweep."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*", "ttl": 1001, "n": 1})
        clock.advance(1000)
        item = table.get(Key("a", "*"))
        assert item is not None
        table.delete(Key("a", "*"), condition=Equals("n", 1))


# -- files ------------------------------------------------------------------------------------------


def test_odd_file_names(tmp_path: Path) -> None:
    """Characters that mean something in a URL may be in the name of the file."""
    path = tmp_path / "a b?c#d%41ü&e.db"
    with closing(_open(Path(quote(str(path))))) as table:
        table.create()
        table.put({"path": "a", "etag": "*"})
    assert path.exists()
    with closing(open_table(table.url, SCHEMA)) as again:
        assert again.get(Key("a", "*")) is not None


def _spoil(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def test_missing_directory(tmp_path: Path) -> None:
    """A table is not created in a directory that does not exist, and nor is the directory."""
    table = _open(tmp_path / "none" / "table.db")
    with pytest.raises(ConfigurationError, match=r"no directory .*/none: create it"):
        table.create()
    with pytest.raises(TableNotFound):
        table.check()
    assert not (tmp_path / "none").exists()


def test_reading_creates_no_file(path: Path) -> None:
    """Asking for a table that is not there leaves nothing behind."""
    with pytest.raises(TableNotFound):
        _open(path).get(Key("a", "*"))
    assert not path.exists()


def test_empty_file(path: Path) -> None:
    """A file without anything in it, as a creator that died leaves it, is no table yet."""
    path.touch()
    with closing(_open(path)) as table:
        with pytest.raises(TableNotFound):
            table.check()
        assert table.create() is True
        table.check()


@pytest.mark.parametrize("method", ["create", "check", "describe"])
def test_file_that_is_no_database(path: Path, method: str) -> None:
    """A file of something else is named, and left as it is."""
    path.write_text("precious " * 1000)
    with pytest.raises(CorruptRecord, match=r"no SQLite database.*left as it is"):
        getattr(_open(path), method)()
    assert path.read_text() == "precious " * 1000


@pytest.mark.parametrize("method", ["create", "check", "describe"])
def test_database_of_another_application(path: Path, method: str) -> None:
    """A database that others made is refused, and left as it is."""
    _spoil(path, "CREATE TABLE precious (a)")
    with pytest.raises(WrongTableSchema, match="another application's"):
        getattr(_open(path), method)()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("precious",)]


@pytest.mark.parametrize("method", ["create", "check", "describe"])
def test_newer_format(path: Path, table: SqliteTable, method: str) -> None:
    """A table of a later release is refused with the advice to upgrade."""
    table.close()
    _spoil(path, "UPDATE commitlog_table SET format = 2")
    with pytest.raises(FormatTooNew, match="upgrade"):
        getattr(table, method)()
    with pytest.raises(FormatTooNew):
        table.put({"path": "a", "etag": "*"})


def test_lost_marker(path: Path, table: SqliteTable) -> None:
    """A table whose version marker was removed is not taken for one of any format."""
    _spoil(path, "DELETE FROM commitlog_table")
    with pytest.raises(CorruptRecord, match="version marker"):
        table.check()


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"path": {"X": 1}}', '{"path": 1}'])
def test_damaged_item(path: Path, table: SqliteTable, text: str) -> None:
    """An item that cannot be read says so, and is neither dropped nor overwritten by a condition."""
    table.put({"path": "a", "etag": "*"})
    _spoil(path, f"UPDATE items SET item = '{text}'")
    for call in (
        lambda: table.get(Key("a", "*")),
        lambda: list(table.scan()),
        lambda: table.put({"path": "a", "etag": "*"}, condition=Absent()),
    ):
        with pytest.raises(CorruptRecord):
            call()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"path": {"S": "b"}}', '{"n": {"N": "1"}, "l": {"L": []}}']
)
def test_unreadable_item_is_scanned_over_and_removed_by_its_key(
    path: Path, table: SqliteTable, text: str
) -> None:
    """A scan passes it on with what can be read of it; its neighbours are read all the same."""
    items = [{"path": name, "etag": "*"} for name in "abc"]
    for item in items:
        table.put(item)
    _spoil(path, f"UPDATE items SET item = '{text}' WHERE hash = x'61'")
    for limit in (1, 3):
        pages = [table.scan_page(limit=limit)]
        while token := pages[-1].next_token:
            pages.append(table.scan_page(limit=limit, token=token))
        found = [each for page in pages for each in page.unreadable]
        assert [item for page in pages for item in page.items] == items[1:]
        assert [table.schema.key_of(each.item) for each in found] == [Key("a", "*")]
        assert [each.item.get("n") for each in found] == [1 if '"n"' in text else None]
    told: list[UnreadableItem] = []
    assert list(table.scan(unreadable=told.append)) == items[1:]
    assert len(told) == 1 and "'a'" in told[0].reason
    with pytest.raises(CorruptRecord):
        list(table.query("a"))
    with pytest.raises(CorruptRecord):
        table.transact([Delete(Key("a", "*"), Equals("n", 2))])
    table.transact([Delete(Key("a", "*"), Equals("n", 1) if '"n"' in text else None)])
    assert list(table.scan()) == items[1:]


def test_read_only_file() -> None:
    """A file that may be read only can be neither used nor created, and the message says why.

    That goes for readers, too, who would otherwise miss what a writer does beside them.
    """
    program = """
        import stat
        table.put(item("a"))
        table.close()
        directory = os.path.dirname(sys.argv[1].removeprefix("sqlite://"))
        for name in os.listdir(directory):
            os.chmod(os.path.join(directory, name), 0o444)
        os.chmod(directory, 0o555)
        if os.geteuid() == 0:
            os.setuid(65534)  # Permissions are nothing to root.
        calls = (
            lambda: table.put(item("b")),
            lambda: table.get(Key("a", "*")),
            open_table(sys.argv[1] + "2", table.schema).create,
        )
        for call in calls:
            try:
                call()
            except AccessDenied as error:
                print(error)
        """
    # Where everybody may go: TMPDIR may be in a directory of root's own.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        table = _open(Path(directory, "table.db"))
        table.create()
        lines = _run(table.url, program).splitlines()
        os.chmod(directory, 0o755)
    assert len(lines) == 3, lines
    assert all("can be written" in line for line in lines)


def test_disk_that_is_full_is_named(table: SqliteTable, tmp_path: Path) -> None:
    """The error tells what to look at first, and how much room there is."""
    path = str(tmp_path / "small.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("CREATE TABLE t (a)")
        with (
            pytest.raises(Unavailable, match=r"small.db: .* full\? It has [0-9,]+ bytes left"),
            translated(path, table.schema),
        ):
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))")


def test_disk_that_fails(table: SqliteTable) -> None:
    """A write that the disk refuses is not acknowledged, and the table goes on afterwards."""
    output = _run(
        table.url,
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        table.put(item("a", n=1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        try:
            table.put(item("a", n=2, data=b"x" * 300_000))
        except (OutcomeUnknown, Unavailable) as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert table.get(Key("a", "*")) == item("a", n=1)
        table.put(item("b"))
        """,
    )
    assert "table.db" in output
    assert {item["path"] for item in table.scan()} == {"a", "b"}
