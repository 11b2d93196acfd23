"""Fair waiting for the write lock of an SQLite file that several processes write.

SQLite itself polls with pauses that grow to a tenth of a second. With several busy writers, most of
them sleep most of the time, and newcomers overtake those that wait.

Checkpoints are made here as well, and only by the writer that holds the turn to write. SQLite makes a
checkpoint after a commit, while others may commit, and its versions from 3.7.0 to 3.51.2 can then
corrupt the file: a checkpoint that begins just after another one was complete, and just before a commit
restarts the log, takes pages of the new log for copied ("Write-Ahead Logging", the WAL-reset bug). A
checkpoint during which no commit happens cannot do so. The checkpoint that SQLite makes when the last
connection is closed is safe, too: it holds the file's exclusive lock.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from random import Random, SystemRandom

from commitlog._util.retry import Backoff
from commitlog.clock import SystemClock
from commitlog.errors import CommitError

__all__ = ["WalCheckpoints", "begin", "is_busy", "leave_log_alone"]

# Real time, which SQLite and locks use: the other process does not have our clock.
_CLOCK = SystemClock()

#: Maximum pause before a writer checks again whether another process is writing, in seconds: about the
#: time that a write takes.
_PAUSE = 0.002

#: Size of the write-ahead log, in bytes, that triggers a checkpoint: a thousand pages, as in SQLite.
_LARGE = 4 * 1024 * 1024
#: A transaction writes two to four pages: 256 transactions fill such a log.
_EVERY = 256

#: Errors that may end a checkpoint; the last is raised if SQLite's message quotes from a damaged file.
_PASSING = (sqlite3.Error, CommitError, UnicodeDecodeError)


def leave_log_alone(connection: sqlite3.Connection) -> None:
    """Turn off SQLite's automatic checkpoints for a connection; `WalCheckpoints` makes them."""
    connection.execute("PRAGMA wal_autocheckpoint = 0")


class WalCheckpoints:
    """Checkpoints of one SQLite file, made by a writer that holds the turn to write. Thread-safe.

    A log that was copied is restarted, and its file keeps its length, so that a commit need not extend
    it. So the length shows the amount of data in it only while it grows. After that, one in `_EVERY`
    transactions, drawn at random, makes a checkpoint: that needs no count that all processes share.

    Args:
        file: the file.
        connect: opens one more connection to it, with the right sync mode for the file.
        large: size of the write-ahead log, in bytes, from which checkpoints are made; 4 MiB by default.
        chance: source of randomness; the operating system by default, whose state no fork copies.
    """

    def __init__(
        self,
        file: str,
        connect: Callable[[], sqlite3.Connection],
        *,
        large: int | None = None,
        chance: Random | None = None,
    ) -> None:
        self._log = f"{file}-wal"
        self._connect = connect
        self._large = _LARGE if large is None else large
        self._grown = self._large
        self._chance = SystemRandom() if chance is None else chance

    def due(self) -> bool:
        """Return whether a checkpoint should be made now."""
        try:
            size = os.stat(self._log).st_size
        except OSError:
            return False
        if size < self._large:
            self._grown = self._large
            return False
        if size >= self._grown:
            # A reader may prevent the restart of the log: then not every write should try.
            self._grown = size + self._large // 4
            return True
        return self._chance.random() < 1 / _EVERY

    def make(self) -> None:
        """Copy the log into the file. Call it while a connection of this process has the turn to write.

        It does not wait for readers and never raises: pages that cannot be copied stay in the log.
        """
        with suppress(*_PASSING), closing(self._connect()) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def begin(connection: sqlite3.Connection, *, patience: float, checkpoints: WalCheckpoints) -> None:
    """Begin a write transaction; wait for other writers.

    Args:
        connection: is in no transaction; from then on SQLite itself waits for `patience` on it.
        patience: maximum wait for other writers, in seconds; after it SQLite's error is raised.
        checkpoints: makes a checkpoint first, if one is due.
    """
    deadline = _CLOCK.monotonic() + patience
    _wait_inside(connection, 0)
    try:
        _begin(connection, deadline)
        if checkpoints.due():
            checkpoints.make()
            # Only a transaction that begins after the checkpoint can restart the log.
            connection.execute("ROLLBACK")
            _begin(connection, deadline)
    finally:
        _wait_inside(connection, patience)


def _begin(connection: sqlite3.Connection, deadline: float) -> None:
    Backoff(base=_PAUSE / 4, cap=_PAUSE, tries=sys.maxsize).retry(
        _CLOCK,
        lambda: connection.execute("BEGIN IMMEDIATE"),
        on=sqlite3.OperationalError,
        when=is_busy,
        deadline=deadline,
    )


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether a statement failed because another connection has locked the file."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _wait_inside(connection: sqlite3.Connection, seconds: float) -> None:
    """Set how long SQLite itself waits for other writers, in seconds."""
    connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
