"""Checkpoints of SQLite files: writers make them, one at a time.

SQLite from 3.7.0 to 3.51.2 can corrupt a file if a commit happens during a checkpoint (the WAL-reset
bug).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commitlog._util import sqlite_locking as locking
from commitlog.errors import Unavailable
from commitlog.stores.local.store import LocalStore
from commitlog.tables import TableSchema
from commitlog.tables.api import Key, Table
from commitlog.urls import parse_table_url

SCHEMA = TableSchema(hash_key="path")
SMALL = 64 * 1024


def opened(file: Path, **options: Any) -> Table:
    """Return a table in this file."""
    from commitlog.clock import SystemClock
    from commitlog.tables.sqlite import SqliteTable

    url = parse_table_url(f"sqlite://{file}")
    table = SqliteTable(url, SCHEMA, clock=SystemClock(), **options)
    table.create()
    return table


def log_size(file: Path) -> int:
    """Return the length of the write-ahead log."""
    return os.stat(f"{file}-wal").st_size


def copied(file: Path) -> int:
    """Return how many WAL frames count as copied: a field of the WAL index, after two headers."""
    # Another process reads the file, because closing it in this process would release the locks.
    index = subprocess.run(["cat", f"{file}-shm"], capture_output=True, check=True).stdout
    return int.from_bytes(index[96:100], sys.byteorder)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the BEGIN, COMMIT, ROLLBACK and checkpoint statements of all new connections."""
    seen: list[str] = []
    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(
            lambda text: (
                seen.append(text.split("(")[0])
                if text.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA wal_checkpoint"))
                else None
            )
        )
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return seen


def a_table(directory: Path) -> tuple[Path, Callable[[int], object]]:
    """Return the file of a table, and a function that writes to it."""
    file = directory / "names.db"
    table = opened(file)
    return file, lambda n: table.put({"path": str(n), "fill": "x" * 500})


def a_store(directory: Path) -> tuple[Path, Callable[[int], object]]:
    """Return the file of a local store's index, and a function that writes to it."""
    store = LocalStore(directory, durable=False)
    store.put("a", b"")
    file = directory / ".commitlog" / "index.sqlite"
    return file, lambda n: store.put("a", b"", metadata={"fill": "x" * 500})


@pytest.mark.parametrize("made", [a_table, a_store])
def test_checkpoints_hold_the_lock_and_keep_the_log_short(
    made: Callable[[Path], tuple[Path, Callable[[int], object]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    statements: list[str],
) -> None:
    """Each checkpoint is between BEGIN IMMEDIATE and ROLLBACK of a writer."""
    monkeypatch.setattr(locking, "_LARGE", SMALL)
    monkeypatch.setattr(locking, "_EVERY", 8)
    file, write = made(tmp_path)
    for n in range(300):
        write(n)
    assert log_size(file) < 8 * SMALL
    at = [n for n, text in enumerate(statements) if text.startswith("PRAGMA wal_checkpoint")]
    assert at
    for n in at:
        assert statements[n - 1] == "BEGIN IMMEDIATE"
        assert statements[n + 1] == "ROLLBACK"


@pytest.mark.parametrize("made", [a_table, a_store])
def test_a_commit_makes_no_checkpoint(
    made: Callable[[Path], tuple[Path, Callable[[int], object]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By default, SQLite would make one after a thousand pages."""
    monkeypatch.setattr(locking, "_LARGE", 2**60)
    file, write = made(tmp_path)
    for n in range(5_000):
        write(n)
        if log_size(file) > 5 * 1024 * 1024:
            break
    assert log_size(file) > 5 * 1024 * 1024
    assert copied(file) == 0


def test_no_checkpoint_is_made_while_another_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    """The writer waits for the lock first. Without the lock, nothing is copied."""
    file = tmp_path / "names.db"
    monkeypatch.setattr(locking, "_LARGE", SMALL)

    def copies() -> int:
        return sum(text.startswith("PRAGMA wal_checkpoint") for text in statements)

    with closing(opened(file, busy_timeout=0.05)) as table:
        table.put({"path": "a", "fill": "x" * 2 * SMALL})
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="busy"):
                table.put({"path": "b"})
            assert copies() == copied(file) == 0
            other.execute("ROLLBACK")
        table.put({"path": "b"})
        assert copies() == 1


def test_a_long_reader_does_not_cause_a_checkpoint_at_each_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    """It prevents a restart of the log, so the next attempt comes when the log is a quarter longer."""
    monkeypatch.setattr(locking, "_LARGE", SMALL)
    monkeypatch.setattr(locking, "_EVERY", 10**9)
    file, write = a_table(tmp_path)
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM items").fetchone()
        for n in range(60):
            write(n)
        tries = sum(text.startswith("PRAGMA wal_checkpoint") for text in statements)
        assert 0 < tries <= 1 + (log_size(file) - SMALL) / (SMALL / 4)


_WRITER = """
import json, sys
from commitlog._util import sqlite_locking as locking
locking._LARGE, locking._EVERY = 64 * 1024, 10
from commitlog.tables import TableSchema
from commitlog.tables.api import Absent, Equals, Key
from commitlog.tables.open import open_table

table = open_table(sys.argv[1], TableSchema(hash_key="path"))
name, writes, rounds = sys.argv[2], 0, int(sys.argv[3])
for round in range(rounds):
    for n in range(3):
        table.put({"path": f"{name}-{writes}", "fill": "x" * 300})
        writes += 1
    while True:
        item = table.get(Key("counter"))
        try:
            table.put(
                {"path": "counter", "n": 1 if item is None else item["n"] + 1},
                condition=Absent() if item is None else Equals("n", item["n"]),
            )
            break
        except Exception as error:
            if type(error).__name__ != "ConditionFailed":
                raise
print(json.dumps(writes), flush=True)
"""


def test_processes_that_are_stopped_at_random_lose_no_write(tmp_path: Path) -> None:
    """Processes that write and copy are stopped and continued at random, also during a checkpoint.

    A process that is stopped during a checkpoint holds the lock, and the others wait.
    """
    file, rounds, chance = tmp_path / "names.db", 150, random.Random(7)
    opened(file).close()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, f"sqlite://{file}", name, str(rounds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    try:
        while any(writer.poll() is None for writer in writers):
            victim = chance.choice(writers)
            if victim.poll() is None:
                victim.send_signal(signal.SIGSTOP)
                for other in writers:
                    with_time = chance.uniform(0.001, 0.01)
                    if other is not victim and other.poll() is None:
                        try:
                            other.wait(with_time)
                        except subprocess.TimeoutExpired:
                            continue
                victim.send_signal(signal.SIGCONT)
        written = [json.loads(writer.communicate()[0]) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with closing(opened(file)) as table:
        counter = table.get(Key("counter"))
        assert counter is not None and counter["n"] == 3 * rounds
        assert sum(1 for _ in table.scan()) == sum(written) + 1
