"""Waiting for one's turn to write an SQLite file that other processes write, too.

SQLite by itself looks again after pauses that grow to a tenth of a second: of several busy writers
nearly all sleep nearly always, and those pass who come anew. Imports the ground floor.
"""

from __future__ import annotations

import itertools
import sqlite3
from time import monotonic, sleep

from commitlog.backoff import Backoff

__all__ = ["begin"]

#: Longest pause before a writer looks again whether another process is writing, in seconds: about as
#: long as a write takes.
_PAUSE = 0.002


def begin(connection: sqlite3.Connection, *, patience: float) -> None:
    """Begin the transaction that is alone in writing.

    Args:
        connection: in no transaction; waits by itself for `patience` from then on.
        patience: longest wait for others that write, in seconds, after which SQLite's error is raised.
    """
    # Real time, as SQLite and locks go by: the other process has no clock of ours.
    deadline = monotonic() + patience
    backoff = Backoff(base=_PAUSE / 4, cap=_PAUSE)
    _wait_inside(connection, 0)
    try:
        for attempt in itertools.count():
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or monotonic() >= deadline:
                    raise
            sleep(backoff.pause(attempt))
    finally:
        _wait_inside(connection, patience)


def _wait_inside(connection: sqlite3.Connection, seconds: float) -> None:
    """Let SQLite wait so long by itself for others that write."""
    connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
