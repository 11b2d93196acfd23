"""The private directory of a local store: its place, its content, its writers, and its cleaning.

``.commitlog`` in the directory that was opened first ("the base") holds ``index.sqlite``, ``writing/``
(unfinished bodies, each locked by its living writer), ``staged/`` (uploads that wait to be published,
each with a record in the index) and ``reserve`` (space for the records that come before a removal, for
the day when the disk is full). A store that opens a directory below a base uses that base, so that all
writers of one file wait for one lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

from attrs import frozen

from commitlog.errors import (
    BucketNotFound,
    Busy,
    CommitError,
    ConfigurationError,
    InvalidPath,
    NotFound,
    Unavailable,
)
from commitlog.stores.api import NONCE, Staged, StageWriter
from commitlog.stores.body import WRITE_SIZE, write_block
from commitlog.stores.local.file_io import full_sync, write_all
from commitlog.stores.local.index import Index, IndexRow, Transaction, Upload
from commitlog.stores.local.tree import RESERVED, DirectoryTree, explained, sync_directory

__all__ = ["Base", "LocalWriter", "PrivateFile", "Scratch", "find_base", "innermost", "make_base"]

_INDEX: Final = "index.sqlite"
#: Ends of the names of SQLite's own files next to the index.
_BESIDE: Final = ("-wal", "-shm", "-journal")
_WRITING: Final = "writing"
_STAGED: Final = "staged"
_RESERVE: Final = "reserve"
_NEW_RESERVE: Final = "reserve.new"
#: Bytes held back for a full disk. An abort writes a record and its row, and opens SQLite's log.
RESERVE: Final = 128 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# How our own files are called there. What else is there was put there by others, and is left alone.
_NAME: Final = re.compile("[0-9a-f]{32}(-wal|-shm|-journal)?")


@frozen
class PrivateFile:
    """A body without a visible name: a file in one of the private directories."""

    directory: str
    name: str


@frozen
class Scratch:
    """An unfinished body: an open file under a private name. It is not swept while it is open."""

    fd: int
    file: PrivateFile


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

    tree: DirectoryTree
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
        if self.nested(self.above):
            return False
        with suppress(OSError, InvalidPath):
            found = _index_at(self.tree)
            return found is not None and found.st_ino == self.identity
        return False

    def is_same(self, other: Base) -> bool:
        """Return whether `other` uses the same index."""
        return (self.tree.root, self.identity) == (other.tree.root, other.identity)

    def nested(self, directory: tuple[str, ...]) -> int:
        """Return `innermost` for a directory below the base."""
        return innermost(self.tree.root, directory)

    def rows(self, transaction: Transaction, found: Iterable[os.stat_result]) -> dict[int, IndexRow]:
        """Return the rows of these files, without those on another file system mounted in between."""
        return transaction.find(stat for stat in found if stat.st_dev == self.device)

    @contextmanager
    def private(self, *names: str) -> Iterator[int]:
        """Give a descriptor of a private directory. Raises `InvalidPath` for a symbolic link."""
        parts = (RESERVED, *names)
        with self.tree.directory(parts) as fd:
            if fd is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(parts))
            yield fd

    @staticmethod
    def staged_file(upload_id: str) -> PrivateFile:
        """Return a staged body."""
        return PrivateFile(_STAGED, upload_id)

    def staged_bodies(self) -> set[str]:
        """Return the ids of the uploads that have a body."""
        with self.private(_STAGED) as directory:
            return set(filter(_NAME.fullmatch, os.listdir(directory)))

    def look(self, file: PrivateFile) -> os.stat_result | None:
        """Return the status of a private file; None if there is none."""
        return self.tree.stat((RESERVED, file.directory, file.name))

    def sync_staged(self) -> None:
        """Make the names of staged bodies survive power loss."""
        if self.tree.durable:
            with self.private(_STAGED) as fd:
                full_sync(fd)

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """Give an empty private file; at the end it is dropped, unless it was renamed."""
        while True:
            file = PrivateFile(_WRITING, secrets.token_hex(16))
            with explained(f"{_WRITING}/{file.name}"):
                with self.private(_WRITING) as directory:
                    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    fd = os.open(file.name, flags, 0o666, dir_fd=directory)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX)
                    if os.fstat(fd).st_nlink:
                        break
                except BaseException:
                    os.close(fd)
                    raise
                os.close(fd)  # swept between creation and lock
        swept_later = False
        try:
            yield Scratch(fd, file)
        except Busy:
            swept_later = True  # to drop it now would mean to wait as long again
            raise
        finally:
            with suppress(OSError, CommitError):  # whatever stays is swept later
                if not swept_later:
                    self.drop(file)
            os.close(fd)

    def unlink(self, file: PrivateFile) -> None:
        """Remove a private name."""
        with self.private(file.directory) as directory:
            os.unlink(file.name, dir_fd=directory)

    def drop(self, file: PrivateFile) -> None:
        """Remove a private file, and its row if no object is made of it."""
        if self.look(file) is not None:
            with self.index.changing() as transaction:
                self._drop(transaction, file)

    @contextmanager
    def removing(self) -> Iterator[Transaction]:
        """Yield what `Index.changing` does, for a removal. A full disk does not prevent it.

        SQLite needs space for its log before the first change of a process.
        """
        made = False
        with ExitStack() as opened:
            try:
                transaction = opened.enter_context(self.index.changing())
            except Unavailable as error:
                made = not isinstance(error, Busy) and self.make_room()
                if not made:
                    raise
                transaction = opened.enter_context(self.index.changing())
            yield transaction
        if made:
            self.hold_back()

    def drop_staged(self, upload_id: str) -> None:
        """Remove a staged body and its record."""
        with self.removing() as transaction:
            self._drop(transaction, self.staged_file(upload_id))
            transaction.unstage(upload_id)

    def sweep(self) -> None:
        """Remove what crashed writers have left. Raises only `Busy`: what comes next would wait, too.

        These are unfinished bodies whose writers have died, staged bodies without a record, and records
        without a body. Body and record are made and removed together in one transaction, so a crash
        alone can part them.
        """
        try:
            with self.private(_WRITING) as directory:
                for name in filter(_NAME.fullmatch, os.listdir(directory)):
                    self._drop_stale(name, directory)
            with self.index.changing() as transaction:
                bodies = self.staged_bodies()
                records = {upload.upload_id for upload in transaction.uploads("")}
                for upload_id in records - bodies:
                    transaction.unstage(upload_id)
                for name in bodies - records:
                    self._drop(transaction, self.staged_file(name))
        except Busy:
            raise
        except (OSError, CommitError):
            return
        self.hold_back()

    def hold_back(self) -> None:
        """Hold space back for a full disk, unless some is, or the disk lacks four times as much."""
        with suppress(OSError, InvalidPath), self.private() as directory:
            try:
                os.stat(_RESERVE, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                with _filled(directory, 4 * RESERVE) as fd:
                    os.ftruncate(fd, RESERVE)
                    os.rename(_NEW_RESERVE, _RESERVE, src_dir_fd=directory, dst_dir_fd=directory)

    def make_room(self) -> bool:
        """Free the space that is held back, if the disk is full; return whether it was."""
        with suppress(OSError, InvalidPath), self.private() as directory:
            try:
                with _filled(directory, RESERVE):
                    return False
            except OSError as error:
                if error.errno in _FULL:
                    os.unlink(_RESERVE, dir_fd=directory)
                    return True
        return False

    def _drop_stale(self, name: str, directory: int) -> None:
        """Drop an unfinished body, unless its writer lives. Raises only `Busy`."""
        fd = -1
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a writer that lives has it
            self.drop(PrivateFile(_WRITING, name))
        except Busy:
            raise
        except (OSError, CommitError):  # another's, or gone, or a directory
            return
        finally:
            if fd >= 0:
                os.close(fd)

    def _drop(self, transaction: Transaction, file: PrivateFile) -> None:
        with suppress(FileNotFoundError, IsADirectoryError):
            found = self.look(file)
            self.unlink(file)
            if found is not None and found.st_nlink == 1:
                # Else it has been linked to its place, and the row is the object's.
                transaction.forget(found.st_ino)


class LocalWriter(StageWriter):
    """An upload into a local directory, from its first byte to its durable body. Not thread-safe.

    Args:
        base: the directory that keeps the body.
        record: the record of the upload; the writer stores it.
        path: the path of the future object, as the caller of the store gave it.
        row: the row of the future object, with its nonce in the metadata.
    """

    def __init__(self, base: Base, record: Upload, path: str, row: IndexRow) -> None:
        self._base = base
        self._path = path
        self._upload_id = record.upload_id
        self._row = row
        with ExitStack() as opened:
            # In one transaction, so that a crash alone can part the body from its record.
            with explained(repr(path)), base.index.recording(durable=False) as transaction:
                transaction.stage(record)
                file = base.staged_file(record.upload_id)
                with base.private(file.directory) as directory:
                    create = partial(os.open, mode=0o666, dir_fd=directory)
                    sink = open(file.name, "xb", WRITE_SIZE, opener=create)  # noqa: SIM115
                self._sink = opened.enter_context(sink)
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
                transaction.record(found, self._row, self._upload_id)
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


@contextmanager
def _filled(directory: int, size: int) -> Iterator[int]:
    """Give a new file for a reserve; at the end it is dropped, unless it was renamed.

    Its bytes are random: a file system may neither leave zeros out nor compress them.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(_NEW_RESERVE, flags, 0o666, dir_fd=directory)
    try:
        write_all(fd, os.urandom(size))
        yield fd
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(_NEW_RESERVE, dir_fd=directory)


def innermost(top: str, directory: Sequence[str]) -> int:
    """Return how many names of `directory` lead from `top` to the innermost index below it; 0: none.

    A process made that index before there was one above it, or does not see what is above, such as one
    in a container into which only that directory is mounted. Its writers wait for the lock of that index
    alone, so whoever changes a file below it takes that lock.
    """
    for depth in range(len(directory), 0, -1):
        if os.path.lexists(_index_file(os.path.join(top, *directory[:depth]))):
            return depth
    return 0


def find_base(root: str, *, durable: bool) -> Base | None:
    """Return the base that serves `root`: its own, or that of the nearest parent that has one.

    Parents on another file system do not count. In a directory in which anyone may make files, but may
    not touch those of others (``/tmp``), only an index counts that belongs to this user, to root or to
    the owner of the directory.

    Raises `ConfigurationError` if another user has put an index into such a parent, and others may write
    to `root`: they may write under that index, and this user would not wait for them. Raises
    `InvalidPath` if the index or its directory is a symbolic link.
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
            try:
                base = _base_at(directory, above, device, durable)
            except InvalidPath:
                if not above or _is_trusted(directory, here, root):
                    raise
                base = None
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
            raise _is_link(private)
        for directory in (private, os.path.join(private, _WRITING), os.path.join(private, _STAGED)):
            os.makedirs(directory, exist_ok=True)
            if os.path.islink(directory):
                raise _is_link(directory)
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
    tree = DirectoryTree(directory, durable)
    found = _index_at(tree)
    if found is None:
        return None

    def body(upload_id: str) -> os.stat_result | None:
        with suppress(InvalidPath):  # a link
            if _NAME.fullmatch(upload_id):
                return tree.stat((RESERVED, _STAGED, upload_id))
        return None

    return Base(
        tree=tree,
        index=Index(_index_file(directory), found.st_ino, body, durable=durable),
        device=device,
        identity=found.st_ino,
        above=above,
    )


def _index_at(tree: DirectoryTree) -> os.stat_result | None:
    """Return the status of the index in a directory; None if it has none. Raises `InvalidPath`."""
    found = tree.stat((RESERVED, _INDEX))
    for name in _BESIDE if found is not None else ():
        if os.path.islink(_index_file(tree.root) + name):
            raise _is_link(_index_file(tree.root) + name)
    return found


def _is_link(path: str) -> InvalidPath:
    return InvalidPath(f"{path} is a symbolic link, and links are not followed")


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
