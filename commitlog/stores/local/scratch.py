"""The private directory of a local store: its place, its content, its writers, and its cleaning.

``.commitlog`` in the directory that was opened first ("the base") holds ``index.sqlite``, ``writing/``
(unfinished bodies, each locked by its living writer) and ``staged/`` (uploads that wait to be published,
each with a record in the index). A store that opens a directory below a base uses that base, so that all
writers of one file wait for one lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from attrs import frozen

from commitlog.errors import BucketNotFound, CommitError, ConfigurationError, NotFound, Unavailable
from commitlog.stores.api import NONCE, Staged, StageWriter
from commitlog.stores.body import WRITE_SIZE, write_block
from commitlog.stores.local.file_io import full_sync
from commitlog.stores.local.index import Index, Row, Transaction, Upload
from commitlog.stores.local.tree import RESERVED, Tree, explained, sync_directory

__all__ = ["Base", "LocalWriter", "Scratch", "find_base", "make_base"]

_INDEX: Final = "index.sqlite"
_WRITING: Final = "writing"
_STAGED: Final = "staged"
# How our own files are called there. What else is there was put there by others, and is left alone.
_NAME: Final = re.compile("[0-9a-f]{32}(-wal|-shm|-journal)?")


@frozen
class Scratch:
    """An unfinished body: an open file under a private name. It is not swept while it is open."""

    fd: int
    file: str


@frozen(eq=False)
class Base:
    """A directory with its index. Thread-safe.

    Attributes:
        tree: the base directory.
        index: its index.
        device: the file system that inode numbers in the index belong to.
        identity: inode of the index file, by which its removal is noticed.
        above: the directories from the base to the directory that was opened.
    """

    tree: Tree
    index: Index
    device: int
    identity: int
    above: tuple[str, ...]

    @property
    def prefix(self) -> str:
        """The prefix, as seen from the base, of paths below the opened directory."""
        return "".join(f"{name}/" for name in self.above)

    @property
    def is_there(self) -> bool:
        """False once the base was removed, and perhaps made again, or has another one below it."""
        if self.nested(self.above) is not None:
            return False
        with suppress(OSError):
            return os.stat(_index_file(self.tree.root)).st_ino == self.identity
        return False

    def nested(self, directory: tuple[str, ...]) -> str | None:
        """Return the uppermost directory with an index of its own, on the way from the base to this one.

        A process made it that does not see the base, such as one in a container into which only that
        directory is mounted. Its writers do not wait for the lock of this base.
        """
        place = self.tree.root
        for name in directory:
            place = os.path.join(place, name)
            if os.path.lexists(_index_file(place)):
                return place
        return None

    def rows(self, transaction: Transaction, found: Iterable[os.stat_result]) -> dict[int, Row]:
        """Return the rows of these files, without those on another file system mounted in between."""
        return transaction.find(stat for stat in found if stat.st_dev == self.device)

    def staged_file(self, upload_id: str) -> str:
        """Return the name of a staged body."""
        return os.path.join(self.tree.root, RESERVED, _STAGED, upload_id)

    def sync_staged(self) -> None:
        """Make the names of staged bodies survive power loss."""
        if self.tree.durable:
            sync_directory(self._private(_STAGED))

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """Give an empty private file; at the end it is dropped, unless it was renamed."""
        while True:
            file = os.path.join(self._private(_WRITING), secrets.token_hex(16))
            with explained(file):
                fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX)
                    if os.fstat(fd).st_nlink:
                        break
                except BaseException:
                    os.close(fd)
                    raise
                os.close(fd)  # swept between creation and lock
        try:
            yield Scratch(fd, file)
        finally:
            with suppress(OSError, CommitError):  # whatever stays is swept later
                self.drop(file)
            os.close(fd)

    def drop(self, file: str) -> None:
        """Remove a private file, and its row if no object is made of it."""
        if os.path.lexists(file):
            with self.index.changing() as transaction:
                _drop(transaction, file)

    def drop_staged(self, upload_id: str) -> None:
        """Remove a staged body and its record."""
        with self.index.changing() as transaction:
            _drop(transaction, self.staged_file(upload_id))
            transaction.unstage(upload_id)

    def remove_stale(self) -> None:
        """Remove bodies whose writers have died. Never raises."""
        with suppress(OSError, CommitError):
            for name in filter(_NAME.fullmatch, os.listdir(self._private(_WRITING))):
                file = os.path.join(self._private(_WRITING), name)
                with suppress(OSError):  # another's, or gone, or a directory
                    fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                    try:
                        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        self.drop(file)
                    except BlockingIOError:
                        continue  # its writer lives
                    finally:
                        os.close(fd)

    def remove_stale_uploads(self) -> None:
        """Remove staged bodies without a record, and records without a body.

        Both are made and removed together in one transaction, so a crash alone can part them.
        """
        with explained(self._private(_STAGED)), self.index.changing() as transaction:
            bodies = set(filter(_NAME.fullmatch, os.listdir(self._private(_STAGED))))
            records = {upload.upload_id for upload in transaction.uploads("")}
            for upload_id in records - bodies:
                transaction.unstage(upload_id)
            for name in bodies - records:
                _drop(transaction, self.staged_file(name))

    def _private(self, name: str) -> str:
        return os.path.join(self.tree.root, RESERVED, name)


class LocalWriter(StageWriter):
    """An upload into a local directory, from its first byte to its durable body. Not thread-safe.

    Args:
        base: the directory that keeps the body.
        record: the record of the upload; the writer stores it.
        path: the path of the future object, as the caller of the store gave it.
        row: the row of the future object, with its nonce in the metadata.
    """

    def __init__(self, base: Base, record: Upload, path: str, row: Row) -> None:
        self._base = base
        self._path = path
        self._upload_id = record.upload_id
        self._row = row
        with ExitStack() as opened:
            # In one transaction, so that a crash alone can part the body from its record.
            with explained(repr(path)), base.index.recording(durable=False) as transaction:
                transaction.stage(record)
                file = base.staged_file(record.upload_id)
                self._sink = opened.enter_context(open(file, "xb", WRITE_SIZE))
            opened.pop_all()  # from here on, `finish` or `abort` closes it

    def _append(self, data: memoryview) -> None:
        self._check_open()
        with explained(repr(self._path)):
            write_block(self._sink, data)

    def finish(self) -> Staged:
        """See `StageWriter.finish`. Durable, if the store is."""
        self._check_open()
        self._check_whole()
        with explained(repr(self._path)):
            self._sink.flush()
            if self._base.tree.durable:
                full_sync(self._sink.fileno())
            found = os.fstat(self._sink.fileno())
            with self._base.index.recording() as transaction:
                if transaction.upload(self._upload_id) is None:
                    raise NotFound(f"the upload of {self._path!r} was aborted by another client")
                transaction.record(found, self._row)
            self._base.sync_staged()
            self._sink.close()
        return Staged(
            path=self._path,
            upload_id=self._upload_id,
            size=found.st_size,
            nonce=self._row.metadata[NONCE],
        )

    def abort(self) -> None:
        """See `StageWriter.abort`."""
        if not self._sink.closed:
            with suppress(OSError):  # the buffered bytes are not needed
                self._sink.close()
            with explained(repr(self._path)):
                self._base.drop_staged(self._upload_id)

    def _check_open(self) -> None:
        if self._sink.closed:
            raise ConfigurationError(f"the upload of {self._path!r} is finished or aborted already")


def _drop(transaction: Transaction, file: str) -> None:
    with suppress(FileNotFoundError, IsADirectoryError):
        found = os.lstat(file)
        os.unlink(file)
        if found.st_nlink == 1:  # else it has been linked to its place, and the row is the object's
            transaction.forget(found.st_ino)


def find_base(root: str, *, durable: bool) -> Base | None:
    """Return the base that serves `root`: its own, or that of the nearest parent that has one.

    Parents on another file system do not count. In a directory in which anyone may make files, but may
    not touch those of others (``/tmp``), only an index counts that belongs to this user, to root or to
    the owner of the directory.

    Raises `ConfigurationError` if another user has put an index into such a parent, and others may write
    to `root`: they may write under that index, and this user would not wait for them.
    """
    device: int | None = None
    directory = root
    above: tuple[str, ...] = ()
    while True:
        try:
            here = os.stat(directory)
        except (FileNotFoundError, NotADirectoryError):
            here = None
        if here is not None:
            device = here.st_dev if device is None else device
            if here.st_dev != device:
                return None
            base = _base_at(directory, above, device, durable)
            if base is not None and (not above or _is_trusted(directory, here, root)):
                return base
        directory, name = os.path.split(directory)
        if not name:
            return None
        above = (name, *above)


def _is_trusted(directory: str, found: os.stat_result, root: str) -> bool:
    """Return whether to use the index in a parent of `root`."""
    shared = stat.S_IWOTH | stat.S_ISVTX
    if found.st_mode & shared != shared:
        # Without the sticky bit, who may put an index there may as well replace everything below.
        return True
    with suppress(FileNotFoundError):
        if os.lstat(os.path.join(directory, RESERVED)).st_uid in {0, os.geteuid(), found.st_uid}:
            return True
    with suppress(FileNotFoundError):
        own = os.stat(root)
        if own.st_uid != os.geteuid() or own.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigurationError(
                f"{directory} has the index of a store of another user, and others may write to {root}: "
                f"which of two indices they use cannot be known. Use a directory outside of "
                f"{directory}, or take the right to write to {root} from the others"
            )
    return False


def make_base(root: str, *, durable: bool) -> Base:
    """Return the base that serves `root`, made in `root` itself if there is none yet."""
    base = find_base(root, durable=durable)
    if base is not None:
        return base
    with explained(f"directory {root}"):
        try:
            _make_directories(root, durable)
        except (FileExistsError, NotADirectoryError):
            raise BucketNotFound(f"{root} is, or leads through, a file: it cannot be a store") from None
        private = os.path.join(root, RESERVED)
        if os.path.islink(private):
            raise ConfigurationError(f"{private} is a symbolic link, and links are not followed")
        for directory in (private, os.path.join(private, _WRITING), os.path.join(private, _STAGED)):
            os.makedirs(directory, exist_ok=True)
        scratch = os.path.join(private, _WRITING, secrets.token_hex(16))
        Index.create(_index_file(root), scratch, durable=durable)
        if durable:
            sync_directory(private)
            sync_directory(root)
    base = find_base(root, durable=durable)
    if base is None:
        raise Unavailable(f"{root} was removed just after it was made: try again")
    return base


def _base_at(directory: str, above: tuple[str, ...], device: int, durable: bool) -> Base | None:
    file = _index_file(directory)
    try:
        found = os.stat(file, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Base(
        tree=Tree(directory, durable),
        index=Index(file, durable=durable),
        device=device,
        identity=found.st_ino,
        above=above,
    )


def _index_file(directory: str) -> str:
    return os.path.join(directory, RESERVED, _INDEX)


def _make_directories(path: str, durable: bool) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_directories(parent, durable)
    with suppress(FileExistsError):
        os.mkdir(path)
    if not os.path.isdir(path):
        raise NotADirectoryError(path)
    if durable:
        sync_directory(parent)
