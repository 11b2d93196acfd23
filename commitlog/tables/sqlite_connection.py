"""One connection to an SQLite file, usable from all threads, closed during a fork.

It is closed before a fork, and opened again when it is next used.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

from commitlog._util.fork import close_on_fork
from commitlog._util.sqlite_locking import WalCheckpoints, begin, leave_log_alone
from commitlog.errors import (
    AccessDenied,
    Busy,
    CommitError,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.tables.api import TableSchema
from commitlog.tables.rules import damaged, table_not_found

__all__ = ["SqliteConnection", "created", "open_file", "translated"]


class SqliteConnection:
    """A connection that is opened on first use. Thread-safe.

    Args:
        path: the file.
        wanted: the expected content of the file; error messages say how such a table is made.
        busy_timeout: maximum wait for another thread or process that writes, in seconds.
        prepare: called with each new connection before its first use; `use` raises its errors.
    """

    def __init__(
        self,
        path: str,
        wanted: TableSchema,
        *,
        busy_timeout: float,
        prepare: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._path = path
        self._wanted = wanted
        self._busy_timeout = busy_timeout
        self._prepare = prepare
        self._lock = threading.Lock()
        self._open: sqlite3.Connection | None = None
        self._checkpoints = WalCheckpoints(path, lambda: open_file(path, "rw", busy_timeout=0))
        close_on_fork(self)

    def __del__(self) -> None:
        if self._open is not None:
            self._open.close()

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection to this thread alone; errors of SQLite become those of the project."""
        if not self._lock.acquire(timeout=self._busy_timeout):
            raise _busy(self._path)
        try:
            with translated(self._path, self._wanted):
                if self._open is None:
                    self._open = self._connect()
                yield self._open
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection within a transaction that is alone in writing, and commit it.

        Returns once the transaction is on the disk. If the body raises, nothing happened. Raises
        `OutcomeUnknown` if writing to the disk failed half way.
        """
        with self.use() as connection:
            begin(connection, patience=self._busy_timeout, checkpoints=self._checkpoints)
            try:
                yield connection
                with _committing(self._path):
                    connection.execute("COMMIT")
            except BaseException:
                self._roll_back(connection)
                raise

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close()  # which rolls back as well, and the next user gets a sound one

    def close(self) -> None:
        """Close it when it is no longer in use. Idempotent."""
        with self._lock:
            self._close()

    def put_away(self) -> None:
        """See `commitlog._util.fork`."""
        self._lock.acquire()
        self._close()

    def bring_back(self, *, child: bool) -> None:
        """See `commitlog._util.fork`."""
        self._lock.release()

    def _close(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = open_file(self._path, "rw", busy_timeout=self._busy_timeout)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def open_file(path: str, mode: str, *, busy_timeout: float) -> sqlite3.Connection:
    """Open `path` in SQLite's `mode` (``rw``, or ``rwc`` to create it), durable at every commit."""
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode={mode}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        # FULL: a write that was acknowledged survives a power cut; WAL's usual NORMAL may lose it.
        connection.execute("PRAGMA synchronous = FULL")
        # fsync alone does not reach the platter on macOS. No effect elsewhere.
        connection.execute("PRAGMA fullfsync = ON")
        leave_log_alone(connection)
    except BaseException:
        connection.close()
        raise
    return connection


# -- errors -----------------------------------------------------------------------------------------

# The latter comes of a message in which SQLite quotes from a damaged file.
_SQLITE = (sqlite3.Error, UnicodeDecodeError)


@contextmanager
def translated(path: str, wanted: TableSchema) -> Iterator[None]:
    """Turn errors of SQLite into those of the project. Nothing was committed when they come.

    That the file cannot be opened is taken to mean that it is missing, if it is.
    """
    try:
        yield
    except _SQLITE as error:
        if _primary(error) == sqlite3.SQLITE_CANTOPEN and not os.path.exists(path):
            raise table_not_found(f"sqlite://{quote(path)}", wanted) from error
        raise _meaning(path, wanted, error) from error


@contextmanager
def created(path: str, wanted: TableSchema, *, busy_timeout: float) -> Iterator[sqlite3.Connection]:
    """Open `path`, creating it if it is missing; errors of SQLite become those of the project."""
    try:
        with closing(open_file(path, "rwc", busy_timeout=busy_timeout)) as connection:
            yield connection
    except _SQLITE as error:
        raise _meaning(path, wanted, error) from error


@contextmanager
def _committing(path: str) -> Iterator[None]:
    try:
        yield
    except _SQLITE as error:
        if _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL):
            raise
        raise OutcomeUnknown(
            f"{path}: {error} while committing; read the item again to see whether it was stored"
        ) from error


def _meaning(path: str, wanted: TableSchema, error: sqlite3.Error | UnicodeDecodeError) -> CommitError:
    code = _primary(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _busy(path)
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return AccessDenied(
            f"{path}: {error}. It must be a file that can be written, in a directory that can be written"
        )
    # Our statements fit our tables: an error in one means that the file has others.
    foreign = code == sqlite3.SQLITE_ERROR and not isinstance(error, sqlite3.ProgrammingError)
    if foreign or code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return damaged(f"{path} is not an SQLite database, or is damaged ({error})", wanted)
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        # In WAL mode even a reader needs room: for the index that it shares with the writers.
        return Unavailable(
            f"{path}: {error}; nothing was changed. Is the disk full? {_room(path)}; then try again"
        )
    if code == sqlite3.SQLITE_BUSY:
        return _busy(path)
    return Unavailable(f"{path}: {error}; nothing was changed")


def _room(path: str) -> str:
    try:
        free = shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free
    except OSError:
        return "Make sure that its directory can be written"
    return f"It has {free:,} bytes left; make room"


def _busy(path: str) -> Busy:
    return Busy(f"{path} is busy with other writers; nothing was changed, try again")


def _primary(error: sqlite3.Error | UnicodeDecodeError) -> int:
    # Errors of the module itself (a closed connection, say) bear no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
