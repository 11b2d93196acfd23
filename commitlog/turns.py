"""Waiting for one's turn to write an SQLite file that other processes write, too.

SQLite by itself looks again after pauses that grow to a tenth of a second: of several busy writers
nearly all sleep nearly always, and those pass who come anew.

Checkpoints are made here as well, and only by one who has the turn. SQLite makes them after a commit,
beside the commits of others, and its versions from 3.7.0 to 3.51.2 can then corrupt the file: a
checkpoint that begins just after another one was complete, and just before a commit begins the log from
its start, takes pages of the new log for copied ("Write-Ahead Logging", the WAL-reset bug). A checkpoint
beside which nothing commits cannot. The one that SQLite makes when the last connection is closed is
alone, too: it holds the file's exclusive lock. Imports the ground floor.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from random import Random, SystemRandom
from time import monotonic, sleep

from commitlog.backoff import Backoff
from commitlog.errors import CommitError

__all__ = ["Checkpoints", "begin", "leave_log_alone"]

#: Longest pause before a writer looks again whether another process is writing, in seconds: about as
#: long as a write takes.
_PAUSE = 0.002

#: Bytes of a write-ahead log that call for a checkpoint: a thousand pages, as SQLite has it.
_LARGE = 4 * 1024 * 1024
#: A transaction writes two to four pages: 256 of them fill such a log.
_EVERY = 256

#: What may end a checkpoint; the last comes of a message in which SQLite quotes from a damaged file.
_PASSING = (sqlite3.Error, CommitError, UnicodeDecodeError)


def leave_log_alone(connection: sqlite3.Connection) -> None:
    """Let a new connection make no checkpoints by itself; each is to be made by `Checkpoints`."""
    connection.execute("PRAGMA wal_autocheckpoint = 0")


class Checkpoints:
    """Checkpoints of one SQLite file, made by its writers when it is their turn. Thread-safe.

    A log that was copied is begun again, and its file keeps its length, so that a commit need not make
    it longer. So the length tells how much is in it only while it grows. After that a checkpoint is made
    at one in `_EVERY` transactions, drawn by chance: that needs no count that all processes share.

    Args:
        file: the file.
        connect: opens one more connection to it, which syncs as the file needs it.
        large: bytes of the write-ahead log from which on checkpoints are made; 4 MiB by default.
        chance: where that chance comes from; the system by default, which no fork copies.
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
        """Tell whether a checkpoint is to be made now."""
        try:
            size = os.stat(self._log).st_size
        except OSError:
            return False
        if size < self._large:
            self._grown = self._large
            return False
        if size >= self._grown:
            # A reader may keep the log from being begun again: then not each write is to try.
            self._grown = size + self._large // 4
            return True
        return self._chance.random() < 1 / _EVERY

    def make(self) -> None:
        """Copy the log into the file. To be called while an own connection has the turn to write.

        It waits for no reader. Never raises: what cannot be copied stays in the log.
        """
        with suppress(*_PASSING), closing(self._connect()) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def begin(connection: sqlite3.Connection, *, patience: float, checkpoints: Checkpoints) -> None:
    """Begin the transaction that is alone in writing.

    Args:
        connection: in no transaction; waits by itself for `patience` from then on.
        patience: longest wait for others that write, in seconds, after which SQLite's error is raised.
        checkpoints: makes one first, if it is due.
    """
    # Real time, as SQLite and locks go by: the other process has no clock of ours.
    deadline = monotonic() + patience
    _wait_inside(connection, 0)
    try:
        _begin(connection, deadline)
        if checkpoints.due():
            checkpoints.make()
            # The log can only be begun again by a transaction that begins after the checkpoint.
            connection.execute("ROLLBACK")
            _begin(connection, deadline)
    finally:
        _wait_inside(connection, patience)


def _begin(connection: sqlite3.Connection, deadline: float) -> None:
    backoff = Backoff(base=_PAUSE / 4, cap=_PAUSE)
    for attempt in itertools.count():
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or monotonic() >= deadline:
                raise
        sleep(backoff.pause(attempt))


def _wait_inside(connection: sqlite3.Connection, seconds: float) -> None:
    """Let SQLite wait so long by itself for others that write."""
    connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
