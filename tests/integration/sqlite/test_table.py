"""Tables in SQLite files: processes, forks, kills, expiry, and foreign files."""

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

#: The prelude of the programs below: it opens the table whose URL is their first argument.
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
    """The path of the table."""
    return tmp_path / "table.db"


@pytest.fixture
def table(path: Path) -> Iterator[SqliteTable]:
    """A new table."""
    table = _open(path)
    table.create()
    yield table
    table.close()


# -- processes --------------------------------------------------------------------------------------


def test_each_key_has_one_winner_of_racing_processes(table: SqliteTable) -> None:
    """Four processes create the same keys at once."""
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


def test_a_killed_writer_loses_no_acknowledged_write(table: SqliteTable) -> None:
    """A writer that is killed at any time leaves an intact table with every acknowledged write."""
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
    # The last transaction may exist without its acknowledgement, but only as a whole.
    assert {name[:-1] + "a" for name in stored} == {
        name[:-1] + "a" for name in stored if name[-1] == "b"
    }
    assert len(stored) % 2 == 0
    table.put({"path": "after", "etag": "*"})
    with closing(sqlite3.connect(table.url.removeprefix("sqlite://"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_forked_child_with_open_connections_loses_no_write(table: SqliteTable) -> None:
    """A child that continues with its parent's table loses no write after all others have closed it.

    The last process that closes the file removes the WAL. Locks are not inherited, so a child that
    relied on its parent's locks would write to a removed WAL.
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


def test_a_fork_while_threads_write_loses_no_write(table: SqliteTable) -> None:
    """It does not deadlock either."""
    _run(
        table.url,
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork in a process with threads
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


def test_every_commit_is_synced(path: Path, table: SqliteTable) -> None:
    """Connections use full synchronization with a WAL."""
    with closing(open_file(str(path), "rw", busy_timeout=1.0)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# -- waiting ----------------------------------------------------------------------------------------


@pytest.fixture
def other_writer(path: Path, table: SqliteTable) -> Iterator[sqlite3.Connection]:
    """Another connection in the middle of a write."""
    table.put({"path": "a", "etag": "*"})
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_a_write_to_a_busy_file_is_unavailable(path: Path, other_writer: sqlite3.Connection) -> None:
    """After the timeout nothing has happened, and a later write succeeds."""
    with closing(_open(path, busy_timeout=0.05)) as table:
        with pytest.raises(Unavailable, match="busy with other writers; nothing was changed"):
            table.put({"path": "b", "etag": "*"})
        other_writer.execute("ROLLBACK")
        assert table.get(Key("b", "*")) is None
        table.put({"path": "b", "etag": "*"})


def test_a_transaction_that_gets_the_lock_late_is_not_executed(
    path: Path, other_writer: sqlite3.Connection
) -> None:
    """After half a minute, by either clock, it raises an error although it has the lock."""
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
        with pytest.raises(Unavailable, match="timed out waiting for other writers; nothing was"):
            late.result()
        assert table.get(Key("late", "*")) is None
        table.transact([Put({"path": "late", "etag": "*"})])


def test_reads_do_not_wait_for_a_writer(table: SqliteTable, other_writer: sqlite3.Connection) -> None:
    """Gets, scans and queries succeed during a write."""
    assert table.get(Key("a", "*")) is not None
    assert len(list(table.scan())) == len(list(table.query("a"))) == 1


# -- expiry -----------------------------------------------------------------------------------------


def test_items_found_expired_hours_ago_are_removed(path: Path) -> None:
    """It removes all items that an earlier call found expired."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "first", "etag": "*"})  # with the removal of this minute
        for i in range(150):
            table.put({"path": f"past-{i}", "etag": "*", "ttl": 1009})
        for name, ttl in (("now", 1010), ("future", 1011), ("far", 10**30), ("word", "1")):
            table.put({"path": name, "etag": "*", "ttl": ttl})
        table.put({"path": "ancient", "etag": "*", "ttl": -(10**30)})
        clock.advance(10)
        assert table.remove_expired() == 0
        clock.advance(6 * HOUR)
        assert table.remove_expired() == 0
        clock.advance(1)
        assert table.remove_expired() == 151
        left = {item["path"] for item in table.scan()}
        assert left == {"first", "now", "future", "far", "word"}
        assert table.remove_expired() == 0


def test_a_rewritten_item_has_its_own_expiry(path: Path) -> None:
    """The expiry of an earlier item with its key does not matter."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*", "ttl": 1001})
        clock.advance(10)
        table.remove_expired()
        clock.advance(HOUR)
        table.put({"path": "a", "etag": "*", "ttl": 1000 + 6 * HOUR})
        clock.advance(5 * HOUR + 60)
        assert table.remove_expired() == 0
        clock.advance(5 * HOUR)
        assert table.remove_expired() == 0
        clock.advance(HOUR + 1)
        assert table.remove_expired() == 1


def test_items_expire_after_a_removal_with_a_clock_that_is_ahead(path: Path) -> None:
    """They are removed hours after the next removal with a correct clock."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*", "ttl": 2000})
        clock.set_forward(10**9)
        table.remove_expired()
        clock.set_forward(-(10**9))
        assert table.remove_expired() == 0
        clock.advance(6 * HOUR + 1)
        assert table.remove_expired() == 1


def test_an_earlier_version_removes_expired_items(path: Path) -> None:
    """It removes all items whose number is in the past, and keeps the others."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*", "ttl": 1001})
        table.put({"path": "b", "etag": "*", "ttl": 1100})
        clock.advance(10)
        table.remove_expired()
    _spoil(path, "DELETE FROM items WHERE expires < 1010")
    with closing(_open(path, clock=clock)) as table:
        assert [item["path"] for item in table.scan()] == ["b"]


def test_writes_remove_expired_items(path: Path) -> None:
    """Each write removes a few, and the next one continues soon while there are more."""
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


def test_an_expired_item_exists_until_its_removal(path: Path) -> None:
    """Reads and conditions of writes see the expired item until it is removed."""
    clock = ManualClock(epoch=1000.0)
    with closing(_open(path, clock=clock)) as table:
        table.create()
        table.put({"path": "a", "etag": "*", "ttl": 1001, "n": 1})
        clock.advance(1000)
        item = table.get(Key("a", "*"))
        assert item is not None
        table.delete(Key("a", "*"), condition=Equals("n", 1))


# -- files ------------------------------------------------------------------------------------------


def test_file_names_may_have_special_characters(tmp_path: Path) -> None:
    """Characters with a meaning in URLs may be in the name of the file."""
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


def test_a_missing_directory_is_not_created(tmp_path: Path) -> None:
    """Creating a table in it is an error."""
    table = _open(tmp_path / "none" / "table.db")
    with pytest.raises(ConfigurationError, match=r"no directory .*/none: create it"):
        table.create()
    with pytest.raises(TableNotFound):
        table.check()
    assert not (tmp_path / "none").exists()


def test_reading_creates_no_file(path: Path) -> None:
    """Opening a missing table leaves no file."""
    with pytest.raises(TableNotFound):
        _open(path).get(Key("a", "*"))
    assert not path.exists()


def test_an_empty_file_is_not_a_table(path: Path) -> None:
    """A creator that died may leave an empty file. The next creation succeeds."""
    path.touch()
    with closing(_open(path)) as table:
        with pytest.raises(TableNotFound):
            table.check()
        assert table.create() is True
        table.check()


@pytest.mark.parametrize("method", ["create", "check", "describe"])
def test_a_file_that_is_not_a_database_is_refused(path: Path, method: str) -> None:
    """The error names the file, which is unchanged."""
    path.write_text("precious " * 1000)
    with pytest.raises(CorruptRecord, match=r"not an SQLite database.*left as it is"):
        getattr(_open(path), method)()
    assert path.read_text() == "precious " * 1000


@pytest.mark.parametrize("method", ["create", "check", "describe"])
def test_the_database_of_another_application_is_refused(path: Path, method: str) -> None:
    """It is unchanged."""
    _spoil(path, "CREATE TABLE precious (a)")
    with pytest.raises(WrongTableSchema, match="another application's"):
        getattr(_open(path), method)()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("precious",)]


@pytest.mark.parametrize("method", ["create", "check", "describe"])
def test_a_table_of_a_newer_format_is_refused(path: Path, table: SqliteTable, method: str) -> None:
    """The error asks for an upgrade."""
    table.close()
    _spoil(path, "UPDATE commitlog_table SET format = 2")
    with pytest.raises(FormatTooNew, match="upgrade"):
        getattr(table, method)()
    with pytest.raises(FormatTooNew):
        table.put({"path": "a", "etag": "*"})


def test_a_table_without_its_marker_is_corrupt(path: Path, table: SqliteTable) -> None:
    """Its format is unknown."""
    _spoil(path, "DELETE FROM commitlog_table")
    with pytest.raises(CorruptRecord, match="version marker"):
        table.check()


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"path": {"X": 1}}', '{"path": 1}'])
def test_a_damaged_item_is_corrupt(path: Path, table: SqliteTable, text: str) -> None:
    """It is neither skipped in a scan nor overwritten by a conditional put."""
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
def test_an_unreadable_item_can_be_scanned_and_deleted_by_key(
    path: Path, table: SqliteTable, text: str
) -> None:
    """A scan reports it with its readable attributes, and returns the other items."""
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
    reported: list[UnreadableItem] = []
    assert list(table.scan(unreadable=reported.append)) == items[1:]
    assert len(reported) == 1 and "'a'" in reported[0].reason
    with pytest.raises(CorruptRecord):
        list(table.query("a"))
    with pytest.raises(CorruptRecord):
        table.transact([Delete(Key("a", "*"), Equals("n", 2))])
    table.transact([Delete(Key("a", "*"), Equals("n", 1) if '"n"' in text else None)])
    assert list(table.scan()) == items[1:]


def test_a_read_only_file_cannot_be_used() -> None:
    """The error says that the file cannot be written.

    Readers get it as well, because they would otherwise miss the changes of a concurrent writer.
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
    # In a directory that any user can enter: TMPDIR may be in a directory of root.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        table = _open(Path(directory, "table.db"))
        table.create()
        lines = _run(table.url, program).splitlines()
        os.chmod(directory, 0o755)
    assert len(lines) == 3, lines
    assert all("can be written" in line for line in lines)


def test_a_full_disk_is_reported(table: SqliteTable, tmp_path: Path) -> None:
    """The error asks whether the disk is full, and has the number of free bytes."""
    path = str(tmp_path / "small.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("CREATE TABLE t (a)")
        with (
            pytest.raises(Unavailable, match=r"small.db: .* full\? It has [0-9,]+ bytes left"),
            translated(path, table.schema),
        ):
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))")


def test_a_write_that_fails_while_it_is_committed_is_unknown(table: SqliteTable) -> None:
    """A part of it may be on the disk. The table can be used afterwards."""
    output = _run(
        table.url,
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        table.put(item("a", n=1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        try:
            table.put(item("a", n=2, data=b"x" * 300_000))
        except OutcomeUnknown as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert table.get(Key("a", "*")) == item("a", n=1)
        table.put(item("b"))
        """,
    )
    assert "table.db" in output and "while committing" in output
    assert {item["path"] for item in table.scan()} == {"a", "b"}
