"""The index of a local directory: version tokens, metadata and unpublished uploads of its files.

It is an SQLite file in the same directory tree, keyed by inode number. It is also the lock under which
all stores of one directory change it: the holder of a write transaction is the only writer on this
machine, and the lock of a process that dies is released.

A row is written, and durable, *before* its inode gets a visible name, so every visible object has its
row. A row counts only while size and modification time are those of the file: a file that another
program wrote or replaced has no row. SQLite's locks do not work on network file systems, so this does
not either.

The index has its own inode number, too. If it finds another one, the directory was copied: then no row
counts, and the next writer drops all of them but those of uploads, whose bodies are known by name.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Final, TypeVar

from attrs import frozen

from commitlog._util.batching import Batcher
from commitlog._util.fork import close_on_fork
from commitlog._util.sqlite_locking import WalCheckpoints, begin, leave_log_alone
from commitlog.errors import AccessDenied, Busy, CommitError, CorruptRecord, FormatTooNew, Unavailable
from commitlog.stores.local.file_io import full_sync

__all__ = ["Index", "IndexRow", "Transaction", "Upload", "etag_of"]

FORMAT: Final = 1

#: Seconds that a writer waits for the lock. Other writers hold it for milliseconds.
PATIENCE: Final = 60.0

#: Retries of a read-only reader after concurrent changes.
_TRIES: Final = 10

T = TypeVar("T")

# What SQLite raises. The latter comes of a message in which it quotes from a damaged file.
_SQLITE: Final = (sqlite3.Error, UnicodeDecodeError)

_SCHEMA: Final = f"""
PRAGMA synchronous = OFF;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE objects (
    inode    INTEGER PRIMARY KEY,
    size     INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    token    TEXT NOT NULL,
    metadata TEXT NOT NULL
);
CREATE TABLE staged (
    upload_id TEXT PRIMARY KEY,
    path      TEXT NOT NULL,
    initiated REAL NOT NULL,
    inode     INTEGER
) WITHOUT ROWID;
CREATE INDEX staged_by_path ON staged (path);
CREATE TABLE home (
    inode INTEGER NOT NULL
);
PRAGMA user_version = {FORMAT};
COMMIT;
"""


@frozen
class IndexRow:
    """The index row of one file: its version token and its metadata."""

    token: str
    metadata: Mapping[str, str]


def etag_of(found: os.stat_result, row: IndexRow | None) -> str:
    """Return the etag of a file: its token, or what can be made of its inode, size and time.

    Not of its change time: a ``chmod`` or another hard link to it makes no other object of it.
    """
    if row is not None:
        return row.token
    return f"weak-{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"


@frozen
class Upload:
    """An upload that is neither published nor aborted; `path` is relative to the index's directory."""

    upload_id: str
    path: str
    initiated: float


class Transaction:
    """Reads, and in an exclusive one writes, of the index. Not thread-safe.

    Args:
        connection: a connection to the file.
        inode: the inode number of the file.
    """

    def __init__(self, connection: sqlite3.Connection, inode: int) -> None:
        self._connection = connection
        self._inode = _signed(inode)

    def commit(self) -> None:
        """Commit. Without it, the changes are rolled back."""
        self._connection.execute("COMMIT")

    def find(self, found: Iterable[os.stat_result]) -> dict[int, IndexRow]:
        """Return the rows of those files that are still as they were recorded, by inode number."""
        by_inode = {stat.st_ino: stat for stat in found}
        rows: dict[int, IndexRow] = {}
        for inode, stat in by_inode.items():
            row = self._connection.execute(
                "SELECT token, metadata FROM objects WHERE inode = ? AND size = ? AND mtime_ns = ?"
                " AND EXISTS (SELECT * FROM home WHERE home.inode = ?)",
                (_signed(inode), stat.st_size, stat.st_mtime_ns, self._inode),
            ).fetchone()
            if row is not None:
                rows[inode] = _row(*row)
        return rows

    def record(self, stat: os.stat_result, row: IndexRow, upload_id: str | None = None) -> None:
        """Store `row` for the file, in place of an earlier row of its inode number.

        `upload_id` is that of the upload of which the file is the body, if it is one.
        """
        self._connection.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)",
            (
                _signed(stat.st_ino),
                stat.st_size,
                stat.st_mtime_ns,
                row.token,
                json.dumps(dict(row.metadata)),
            ),
        )
        if upload_id is not None:
            self._connection.execute(
                "UPDATE staged SET inode = ? WHERE upload_id = ?", (_signed(stat.st_ino), upload_id)
            )

    def keep_uploads(self, look: Callable[[str], os.stat_result | None]) -> None:
        """If the file is a copy, take leave of the inode numbers of the original.

        A whole body of an upload keeps its row: its name in the private directory is its upload id. The
        other rows are dropped.

        Args:
            look: returns the status of the body of an upload; None if there is none.
        """
        home = self._connection.execute("SELECT inode FROM home").fetchall()
        if home == [(self._inode,)]:
            return
        kept: list[tuple[os.stat_result, IndexRow, str]] = []
        for upload_id, size, *row in self._connection.execute(
            "SELECT upload_id, size, token, metadata FROM staged JOIN objects USING (inode)"
        ):
            found = look(upload_id) if isinstance(upload_id, str) else None
            if found is not None and found.st_size == size:
                kept.append((found, _row(*row), upload_id))
        self._connection.execute("DELETE FROM objects")
        for each in kept:
            self.record(*each)
        self._connection.execute("DELETE FROM home")
        self._connection.execute("INSERT INTO home VALUES (?)", (self._inode,))

    def token(self, inode: int) -> str | None:
        """Return the token that is kept for an inode, whatever file it is of.

        Never raises: a change of names has happened when it is called. None if it cannot be read.
        """
        row = None
        with suppress(*_SQLITE):
            row = self._connection.execute(
                "SELECT token FROM objects WHERE inode = ?", (_signed(inode),)
            ).fetchone()
        return None if row is None else str(row[0])

    def forget(self, inode: int, token: str | None = None) -> None:
        """Drop the row of an inode that has lost its name. Never raises: one that stays does no harm.

        Args:
            inode: the inode.
            token: drop it only if it has this one; a new file may have the inode since.
        """
        with suppress(*_SQLITE):
            self._connection.execute(
                "DELETE FROM objects WHERE inode = ? AND token = coalesce(?, token)",
                (_signed(inode), token),
            )

    def stage(self, upload: Upload) -> None:
        """Keep the record of a new upload."""
        self._connection.execute(
            "INSERT INTO staged (upload_id, path, initiated) VALUES (?, ?, ?)",
            (upload.upload_id, upload.path, upload.initiated),
        )

    def unstage(self, upload_id: str) -> None:
        """Drop the record of an upload that is gone. Never raises: it is swept later."""
        with suppress(*_SQLITE):
            self._connection.execute("DELETE FROM staged WHERE upload_id = ?", (upload_id,))

    def upload(self, upload_id: str) -> Upload | None:
        """Return the record of an upload."""
        row = self._connection.execute(
            "SELECT upload_id, path, initiated FROM staged WHERE upload_id = ?", (upload_id,)
        ).fetchone()
        return None if row is None else _upload(*row)

    def uploads(self, prefix: str) -> list[Upload]:
        """Return the records of all uploads whose path starts with `prefix`, in order of path."""
        rows = self._connection.execute(
            "SELECT upload_id, path, initiated FROM staged WHERE path >= ? ORDER BY path, initiated",
            (prefix,),
        )
        found: list[Upload] = []
        for row in rows:
            upload = _upload(*row)
            if not upload.path.startswith(prefix):
                break
            found.append(upload)
        return found


class Index:
    """One index file. Thread-safe, and usable on both sides of a fork.

    Args:
        file: the SQLite file, which `Index.create` has made.
        inode: its inode number.
        look: returns the status of the body of an upload; see `Transaction.keep_uploads`.
        durable: False leaves it to the operating system when rows reach the disk.
    """

    def __init__(
        self,
        file: str,
        inode: int,
        look: Callable[[str], os.stat_result | None],
        *,
        durable: bool,
    ) -> None:
        self._file = file
        self._inode = inode
        self._look = look
        self._at_home = False
        self._durable = durable
        self._turn = threading.Lock()
        self._returned = threading.Condition()
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._rows: Batcher[tuple[os.stat_result, IndexRow], None] = Batcher(
            self._record, interrupted=partial(_interrupted, file)
        )
        self._checkpoints = WalCheckpoints(file, partial(_connect_to_copy, file, durable))
        close_on_fork(self)

    @staticmethod
    def create(file: str, scratch: str, *, durable: bool) -> None:
        """Make the file, whole or not at all; one that is there already is left alone.

        Args:
            file: its path.
            scratch: an unused name in the same file system.
            durable: False leaves it to the operating system when its content reaches the disk.
        """
        try:
            with _explained(file):
                connection = sqlite3.connect(scratch, isolation_level=None)
                try:
                    connection.executescript(_SCHEMA)
                    inode = _signed(os.stat(scratch).st_ino)
                    connection.execute("INSERT INTO home VALUES (?)", (inode,))
                finally:
                    connection.close()
            if durable:
                # The file is unknown to others before it is linked: once is enough.
                with open(scratch, "rb") as whole:
                    full_sync(whole.fileno())
            os.link(scratch, file)
        except (FileExistsError, FileNotFoundError, CommitError):
            # Another process was faster, and may have swept our scratch file as well, even while it was
            # being written.
            if not os.path.exists(file):
                raise
        finally:
            with suppress(FileNotFoundError):
                os.unlink(scratch)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Return the result of `work` on the committed data; it may be called several times.

        Does not wait. Needs permission to write only while others do: SQLite then has files next to the
        index, which readers write, too.

        Raises:
            AccessDenied: the index cannot be read.
        """
        try:
            with _explained(self._file), self._connection() as connection:
                return work(Transaction(connection, self._inode))
        except AccessDenied as error:
            refused = error
        for _ in range(_TRIES):
            before = self._at_rest()
            if before is None:
                break
            try:
                with (
                    _explained(self._file),
                    closing(_connect(self._file, "ro&immutable=1")) as connection,
                ):
                    outcome = work(Transaction(connection, self._inode))
            except CommitError:
                if self._at_rest() == before:
                    raise
                continue  # it was being written
            if self._at_rest() == before:
                return outcome
        raise AccessDenied(
            f"{refused}. It has to be read, for it has the etags of the files; that takes permission"
            " to write it and its directory, too, while others do"
        ) from refused

    def _at_rest(self) -> tuple[int, int, int] | None:
        """Return what changes with each change of the file; None if it does not have all, or is gone."""
        if os.path.exists(f"{self._file}-wal"):
            return None
        with suppress(OSError):
            found = os.stat(self._file)
            return found.st_ino, found.st_size, found.st_mtime_ns
        return None

    @contextmanager
    def recording(self, *, durable: bool = True) -> Iterator[Transaction]:
        """Yield the transaction of the only writer on this machine, and commit it at the end.

        Args:
            durable: the changes must survive power loss once this has returned.

        Raises:
            Busy: others held the lock for a minute. Nothing was written.
            Unavailable: the disk is full. Nothing was written.
        """
        with self._exclusive(durable=durable) as transaction:
            yield transaction
            transaction.commit()

    def record(self, stat: os.stat_result, row: IndexRow) -> None:
        """Store `row` for the file, so that it survives power loss; see `Transaction.record`.

        Threads that call it at the same time share a transaction, and so one wait for the disk.
        Raises `Unavailable` as `recording` does: the row may be stored, which does no harm.
        """
        self._rows.call((stat, row))

    def _record(self, rows: Sequence[tuple[os.stat_result, IndexRow]]) -> list[None]:
        with self.recording() as transaction:
            for stat, row in rows:
                transaction.record(stat, row)
        return [None] * len(rows)

    @contextmanager
    def changing(self) -> Iterator[Transaction]:
        """Yield the transaction of the only writer on this machine, for a change of names.

        The change may only *remove* rows of the index. So a failed commit is not an error: the names are
        changed, and the remaining rows of missing files and uploads are never read.
        """
        with self._exclusive(durable=False) as transaction:
            yield transaction
            with suppress(*_SQLITE):
                transaction.commit()

    @contextmanager
    def _exclusive(self, *, durable: bool) -> Iterator[Transaction]:
        # Threads queue on a lock; processes can only look again and again.
        turn = self._turn
        until = time.monotonic() + PATIENCE
        if not turn.acquire(timeout=PATIENCE):
            raise Busy(f"waited {PATIENCE:.0f} s for another writer of {self._file}")
        try:
            with _explained(self._file), self._connection() as connection:
                patience = max(0.0, until - time.monotonic())
                try:
                    if not self._at_home:
                        # On the disk before a body that keeps its row gets a visible name.
                        self._begin(connection, patience, durable=True).keep_uploads(self._look)
                        connection.execute("COMMIT")
                        self._at_home = True
                    yield self._begin(connection, patience, durable=durable)
                finally:
                    if connection.in_transaction:
                        with suppress(*_SQLITE):
                            connection.execute("ROLLBACK")
        finally:
            turn.release()

    def _begin(self, connection: sqlite3.Connection, patience: float, *, durable: bool) -> Transaction:
        level = ("FULL" if durable else "NORMAL") if self._durable else "OFF"
        connection.execute(f"PRAGMA synchronous = {level}")
        begin(connection, patience=patience, checkpoints=self._checkpoints)
        return Transaction(connection, self._inode)

    def close(self) -> None:
        """Close the connections that are not in use. Idempotent."""
        with self._returned:
            while self._idle:
                self._idle.pop().close()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection to this thread alone."""
        with self._returned:
            self._lent += 1
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = _connect(self._file)
            sound = False
            try:
                yield connection
                sound = True
            except _SQLITE:
                raise
            except BaseException:  # the caller's own failure says nothing of the connection
                sound = True
                raise
            finally:
                if sound and not connection.in_transaction:
                    self._idle.append(connection)
                else:
                    connection.close()
        finally:
            with self._returned:
                self._lent -= 1
                self._returned.notify_all()

    def put_away(self) -> None:
        """See `commitlog._util.fork`."""
        self._returned.acquire()
        self._returned.wait_for(lambda: not self._lent, timeout=PATIENCE)
        self.close()

    def bring_back(self, *, child: bool) -> None:
        """See `commitlog._util.fork`."""
        if child:
            # Held perhaps by a thread that is not here.
            self._turn = threading.Lock()
        self._returned.release()


def _interrupted(file: str) -> Unavailable:
    return Unavailable(f"the thread that wrote to {file} was interrupted; nothing is visible")


def _connect(file: str, mode: str = "rw") -> sqlite3.Connection:
    # Not rwc: an index that has vanished is an error, not an empty index.
    connection = sqlite3.connect(
        f"file:{_quoted(file)}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=PATIENCE,
        check_same_thread=False,
    )
    try:
        # fsync alone does not reach the platter on macOS. No effect elsewhere.
        connection.execute("PRAGMA fullfsync = ON")
        leave_log_alone(connection)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version < 1:  # a file that was cut to nothing is an empty database
            raise _Damaged("it has no format")
    except sqlite3.Error:
        connection.close()
        raise
    if version > FORMAT:
        connection.close()
        raise FormatTooNew(
            f"{file} has format {version}, and this library knows up to {FORMAT}: upgrade it"
        )
    return connection


def _connect_to_copy(file: str, durable: bool) -> sqlite3.Connection:
    """Open the file for a checkpoint."""
    connection = _connect(file)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
    return connection


class _Damaged(sqlite3.OperationalError):
    """The index is damaged: SQLite has no checksums, and allows any type in any column."""


def _row(token: object, metadata: object) -> IndexRow:
    try:
        kept = json.loads(metadata)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError):
        kept = None
    sound = isinstance(token, str) and isinstance(kept, dict)
    if not sound or not token or not all(isinstance(value, str) for value in kept.values()):
        raise _Damaged("the row of an object is invalid")
    return IndexRow(token, kept)  # type: ignore[arg-type]


def _upload(upload_id: object, path: object, initiated: object) -> Upload:
    if not isinstance(upload_id, str) or not isinstance(path, str) or not isinstance(initiated, float):
        raise _Damaged("the row of an upload is invalid")
    return Upload(upload_id, path, initiated)


def _quoted(file: str) -> str:
    return file.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _signed(inode: int) -> int:
    # inode numbers are unsigned, SQLite's integers are signed
    return inode - (1 << 64) if inode >= 1 << 63 else inode


@contextmanager
def _explained(file: str) -> Iterator[None]:
    try:
        yield
    except _SQLITE as error:
        raise _explain(error, file) from error


def _explain(error: sqlite3.Error | UnicodeDecodeError, file: str) -> CommitError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return AccessDenied(f"cannot use {file} ({error}): check its owner and mode")
    # Our statements fit our tables: an error in one means that the file has others.
    foreign = code == sqlite3.SQLITE_ERROR and not isinstance(error, sqlite3.ProgrammingError)
    if foreign or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptRecord(
            f"{file} is damaged ({error}): stop all writers and remove it. The objects stay; their"
            " etags change, their metadata and unpublished uploads are lost"
        )
    if code == sqlite3.SQLITE_BUSY:
        return Busy(
            f"another process has held the lock of {file} for {PATIENCE:.0f} s: is a writer suspended?"
            f" Nothing was written ({error})"
        )
    return Unavailable(f"{file}: {error}")
