"""Waiting for the lock of an SQLite file: short pauses, and a limit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from commitlog._util import sqlite_locking as locking
from commitlog._util.sqlite_locking import WalCheckpoints, begin
from commitlog.stores.local.store import LocalStore
from commitlog.tables import TableSchema
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock


def _table(directory: Path) -> tuple[Path, Callable[[], object]]:
    table = open_table(f"sqlite://{directory}/names.db", TableSchema(hash_key="path"))
    table.create()
    return directory / "names.db", lambda: table.put({"path": "a"})


def _store(directory: Path) -> tuple[Path, Callable[[], object]]:
    store = LocalStore(directory)
    store.put("a", b"")
    return directory / ".commitlog" / "index.sqlite", lambda: store.put("b", b"")


@pytest.mark.parametrize("made", [_table, _store])
def test_a_waiting_writer_retries_soon(
    made: Callable[[Path], tuple[Path, Callable[[], object]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer that waits for another process retries within two milliseconds, each time.

    SQLite's own pauses grow to a tenth of a second, so that one of two busy writers would starve.
    """
    file, write = made(tmp_path)
    pauses: list[float] = []
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 20:
                other.execute("ROLLBACK")

        clock = ManualClock()
        monkeypatch.setattr(clock, "sleep", pause)
        monkeypatch.setattr(locking, "_CLOCK", clock)
        write()
    assert len(pauses) == 20
    assert max(pauses) <= 0.002


def test_a_writer_stops_waiting_when_its_patience_ends(tmp_path: Path) -> None:
    """The writer gets SQLite's error after its patience, and other statements wait as long."""
    none = WalCheckpoints(str(tmp_path / "a.db"), lambda: sqlite3.connect(tmp_path / "a.db"))
    with (
        closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as one,
        closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other,
    ):
        begin(other, patience=0, checkpoints=none)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            begin(one, patience=0.02, checkpoints=none)
        assert one.execute("PRAGMA busy_timeout").fetchone() == (20,)
        other.execute("COMMIT")
        begin(one, patience=0.02, checkpoints=none)
        assert one.in_transaction
