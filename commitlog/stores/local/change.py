"""Checks and changes of a local directory that run while no other writer can change it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from attrs import field, frozen

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import Condition, IfAbsent, IfMatch, same_etag
from commitlog.stores.local.index import IndexRow, Transaction, Upload, etag_of
from commitlog.stores.local.scratch import Base, PrivateFile
from commitlog.stores.local.tree import in_the_way

__all__ = ["LocalChange", "changed", "no_upload", "tidy"]


@frozen
class LocalChange:
    """One exclusive transaction on names below a base. Paths are given in parts, from the base.

    `OSError` comes out of it as it is, and then nothing has happened.

    Attributes:
        left: the entries of the index for files that have lost their names: inodes with tokens. `tidy`
            drops them when the change of names is on the disk. A commit of another writer may bring what
            the index has lost to the disk before that (fsync on btrfs writes one file alone); then a
            power loss would leave the old file without its etag and metadata.
    """

    base: Base
    transaction: Transaction
    left: list[tuple[int, str]] = field(factory=list)

    def row_of(self, file: PrivateFile, parts: tuple[str, ...], upload_id: str | None) -> IndexRow:
        """Return the row of a complete private body; raise `NotFound` if there is no such upload."""
        if upload_id is not None:
            upload = self.transaction.upload(upload_id)
            if upload is None or upload.path != "/".join(parts):
                raise no_upload(parts)
        found = self.base.look(file)
        row = None if found is None else self._row(found)
        if row is None:
            raise no_upload(parts)
        return row

    def place(
        self, home: Base, file: PrivateFile, parts: tuple[str, ...], condition: Condition | None
    ) -> None:
        """Give a private body of `home` its visible name, if the condition holds."""
        self._check_nested(parts)
        body, old = home.look(file), self.base.tree.stat(parts)
        if body is None:
            raise no_upload(parts)
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise in_the_way(parts, "a directory")
        self._check(parts, old, condition)
        with (
            home.private(file.directory) as private,
            self.base.tree.made_directory(parts[:-1]) as parent,
        ):
            names = {"src_dir_fd": private, "dst_dir_fd": parent}
            if isinstance(condition, IfAbsent):
                try:
                    os.link(file.name, parts[-1], follow_symlinks=False, **names)
                except FileExistsError:  # made by a program that takes no lock
                    raise _already_exists(parts) from None
            else:
                os.replace(file.name, parts[-1], **names)
        if old is not None and old.st_ino != body.st_ino:
            self._leave(old)

    def stage_file(self, parts: tuple[str, ...], record: Upload) -> os.stat_result:
        """Turn a file into a staged body, unless it is one already; return its status."""
        if self.base.nested(parts[:-1]):
            raise ConfigurationError(
                f"{'/'.join(parts)!r} is in a directory with an index of its own: open that directory to"
                " stage its files. It was not changed"
            )
        file = self.base.staged_file(record.upload_id)
        try:
            with (
                self.base.private(file.directory) as private,
                self.base.tree.directory(parts[:-1]) as parent,
            ):
                if parent is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(parts))
                os.rename(parts[-1], file.name, src_dir_fd=parent, dst_dir_fd=private)
        except FileNotFoundError:
            if self.base.look(file) is None:
                raise
        if self.transaction.upload(record.upload_id) is None:
            self.transaction.stage(record)
        found = self.base.look(file)
        if found is None:
            raise no_upload(parts)
        return found

    def remove(self, parts: tuple[str, ...], condition: IfMatch | None) -> None:
        """Remove an object, if the condition holds of it, and the directories that this leaves empty."""
        self._check_nested(parts)
        tree = self.base.tree
        old = tree.stat(parts)
        if old is not None and not stat.S_ISREG(old.st_mode):
            old = None  # a directory is no object
        self._check(parts, old, condition)
        if old is None:
            return
        with tree.directory(parts[:-1]) as parent:
            if parent is not None:
                with suppress(FileNotFoundError):
                    os.unlink(parts[-1], dir_fd=parent)
        self._leave(old)
        tree.prune(parts[:-1], keep=len(self.base.above))

    def _leave(self, old: os.stat_result) -> None:
        token = self.transaction.token(old.st_ino)
        if token is not None:
            self.left.append((old.st_ino, token))

    def _check_nested(self, parts: tuple[str, ...]) -> None:
        if self.base.nested(parts[:-1]):
            raise Unavailable(
                f"{'/'.join(parts)!r}: another process has just made an index in a directory above it;"
                " nothing was changed. Try again"
            )

    def _check(
        self, parts: tuple[str, ...], old: os.stat_result | None, condition: Condition | None
    ) -> None:
        if isinstance(condition, IfAbsent) and old is not None:
            raise _already_exists(parts)
        if isinstance(condition, IfMatch):
            etag = None if old is None else etag_of(old, self._row(old))
            if etag is None or not same_etag(etag, condition.etag):
                raise changed("/".join(parts), condition, etag)

    def _row(self, found: os.stat_result) -> IndexRow | None:
        return self.base.rows(self.transaction, [found]).get(found.st_ino)


def tidy(base: Base, left: Iterable[tuple[int, str]], upload_id: str | None = None) -> None:
    """Drop what the index has of files that are gone, and of an upload that is published.

    Call it when the change is on the disk. Never raises: what stays does no harm.
    """
    left = tuple(left)
    if left or upload_id is not None:
        with suppress(CommitError), base.index.changing() as transaction:
            for inode, token in left:
                transaction.forget(inode, token)
            if upload_id is not None:
                transaction.unstage(upload_id)


def changed(path: str, condition: IfMatch, etag: str | None) -> PreconditionFailed:
    """Return the error that tells that the object is another one, or, without `etag`, none."""
    seen = "there is no object" if etag is None else f"its etag is {etag}"
    return PreconditionFailed(f"{path!r} should have etag {condition.etag}, but {seen}")


def no_upload(parts: tuple[str, ...]) -> NotFound:
    """Return the error that tells that there is no such upload."""
    return NotFound(f"no staged upload for {'/'.join(parts)!r}: it was published or aborted")


def _already_exists(parts: tuple[str, ...]) -> AlreadyExists:
    return AlreadyExists(f"there is an object at {'/'.join(parts)!r} already")
