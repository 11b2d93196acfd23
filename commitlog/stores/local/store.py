"""A directory as an object store: objects are plain files, which any program can list and read.

A body is written under a hidden name and then linked (create) or renamed (replace) to its place, so it
appears whole or not at all. `index` has the version tokens, the metadata and the writers' lock,
`scratch` the private directory, `tree` the way down to a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import groupby, islice
from types import MappingProxyType
from typing import Final

from attrs import evolve, frozen

from commitlog.clock import Clock, SystemClock
from commitlog.errors import (
    BucketNotFound,
    Busy,
    CommitError,
    ConfigurationError,
    InvalidPath,
    NotFound,
    OutcomeUnknown,
    RequestExpired,
    Unavailable,
)
from commitlog.paths import check_path, check_prefix
from commitlog.stores.api import (
    NONCE,
    Capabilities,
    Condition,
    IfAbsent,
    IfMatch,
    InFlight,
    ObjectData,
    ObjectInfo,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    RequestExpiry,
    Staged,
    StagedInfo,
    StageWriter,
    WriteOperation,
)
from commitlog.stores.arguments import check_metadata, check_page, check_range
from commitlog.stores.body import Body, chunks
from commitlog.stores.local.change import LocalChange, changed, no_upload, tidy
from commitlog.stores.local.file_io import copy_all, full_sync, read_range, write_all
from commitlog.stores.local.index import IndexRow, Transaction, Upload, etag_of
from commitlog.stores.local.scratch import (
    Base,
    LocalWriter,
    PrivateFile,
    find_base,
    innermost,
    make_base,
)
from commitlog.stores.local.tree import RESERVED, DirectoryTree, TreeEntry, explained
from commitlog.urls import Url, parse_store_url

__all__ = ["LocalStore"]

_EMPTY: Mapping[str, str] = MappingProxyType({})
_BOTH = frozenset({IfAbsent, IfMatch})

#: Longest name of a file, in bytes, on every common file system (NAME_MAX).
_NAME_MAX: Final = 255
#: Number of entries in a page of `list_pages`.
_PAGE: Final = 1000
#: Number of removals in one transaction.
_BATCH: Final = 500
#: Retries of a create whose directory is removed concurrently.
_TRIES: Final = 20
_UPLOAD_ID = re.compile(r"[0-9a-f]{32}")


@frozen
class _Seen:
    """An open file, with its status and index row."""

    fd: int
    stat: os.stat_result
    row: IndexRow | None


@frozen
class _Body:
    """A complete private body: the base that keeps it, its future parts from there, and its name.

    `upload_id` is that of an upload; None: it has no record.
    """

    base: Base
    parts: tuple[str, ...]
    file: PrivateFile
    upload_id: str | None = None


class LocalStore(ObjectStore):
    """A store in a local directory. Thread-safe, fork-safe, and safe for many processes at once.

    Args:
        root: ``file:///dir``, or the path of a directory. Made, with its parents, on first write.
        clock: dates uploads and enforces expiries. The system clock by default.
        durable: True (default): a mutation that returned survives power loss. False: the operating
            system decides when data reaches the disk. A crashed process loses nothing in either case.

    Guarantees:

    * Every mutation is checked and done under one lock per base directory (`scratch`), which is released
      when a process dies. So conditions hold, and creates also exclude foreign programs, by link(2).
    * Etags are random, kept for the file's inode as long as its size and modification time stay the
      same. A file that a foreign program wrote or replaced has an etag that begins with ``weak-``, made
      of inode, size and time. If a foreign program rewrites a file in place, with the same size and
      within one tick of the file system's clock, or sets the time back, the change is not noticed.
    * Nothing is read or written through a symbolic link below the root (`InvalidPath`; not listed).

    Non-guarantees:

    * Not for network file systems: SQLite's locks and flock(2) do not work there. Not for file systems
      that fold case or normalise Unicode either: two paths would be one file.
    * A directory and one below it use one index, that of the outer one if it was written to first.
      Otherwise, or if a process does not see the outer directory (a container that mounts only the inner
      one), there is an index in the inner directory, and only that one counts there: changes through the
      outer directory take its lock. A change that is running while it is made is not excluded, and the
      etags of objects that are there then change. Write to the outer directory first.
    * A process that may read, but not write, ``.commitlog`` may be refused while others write
      (`AccessDenied`).
    * ``content_type`` is not kept.

    A path may have segments of up to 255 bytes, except ``.commitlog``; ``a`` and ``a/b`` cannot both be
    objects (`InvalidPath`). Empty directories are invisible, and directories that a delete leaves empty
    are removed. No space left, or too many open files, raises `Unavailable`. ``.commitlog/reserve`` has
    128 KiB of space, without which nothing could be removed from a full disk.
    """

    capabilities = Capabilities(
        conditions=MappingProxyType(
            {
                WriteOperation.PUT: _BOTH,
                WriteOperation.COPY: _BOTH,
                WriteOperation.PUBLISH: _BOTH,
                WriteOperation.DELETE: frozenset({IfMatch}),
            }
        ),
        enforced=True,
        request_expiry=True,
    )

    def __init__(
        self, root: str | Url | os.PathLike[str], *, clock: Clock | None = None, durable: bool = True
    ) -> None:
        url = root if isinstance(root, Url) else parse_store_url(os.fspath(root))
        if url.scheme != "file":
            raise ConfigurationError(f"{url} is not a file:// URL")
        self.url = str(url)
        # resolved once: two spellings of one directory must find one lock
        self._root = os.path.realpath(url.name)
        try:
            is_directory = stat.S_ISDIR(os.stat(self._root).st_mode)
        except FileNotFoundError:
            is_directory = True  # it will be
        except OSError:
            is_directory = False
        if not is_directory:
            raise ConfigurationError(
                f"{self.url} is, or leads through, something other than a directory"
            )
        self._clock: Clock = SystemClock() if clock is None else clock
        self._durable = durable
        self._found: Base | None = None
        self._swept: Base | None = None
        self._nested: dict[str, Base] = {}
        self._bare = DirectoryTree(self._root, durable)

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    def key(self, path: str) -> str:
        """Return the absolute path of the file."""
        return os.path.join(self._root, *_split(path))

    def portable_key(self, path: str) -> str:
        """Return the path of the file below the directory with the index."""
        base = self._existing()
        return "/".join((() if base is None else base.above) + _split(path))

    # reads

    def check(self) -> None:
        """See `ObjectStore.check`."""
        if not os.path.isdir(self._root):
            raise BucketNotFound(
                f"{self._root} is not there: mount it, or correct the URL. The first write creates it"
            )

    def begin_head(self, path: str) -> InFlight[Observation]:
        """Check the path; the pending call looks."""
        _split(path)

        def look() -> Observation:
            with self._seen(path) as seen:
                info = None if seen is None else _info(path, seen.stat, seen.row)
                return Observation(info=info, store_time=int(self._clock.epoch()))

        return look

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `ObjectStore.get`."""
        check_range(start, end)
        with self._seen(path) as seen:
            if seen is None:
                raise self._not_found(path)
            info = _info(path, seen.stat, seen.row)
            stop = info.size if end is None else min(end, info.size)
            with explained(repr(path)):
                data = read_range(seen.fd, start, stop)
        return ObjectData(
            path=path,
            size=info.size,
            etag=info.etag,
            last_modified=info.last_modified,
            metadata=info.metadata,
            data=data,
        )

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """See `ObjectStore.list_page`. The token is the last entry that was given.

        A page reads each directory on the way to its entries whole; `list_pages` reads every directory
        once.
        """
        check_prefix(prefix)
        check_page(delimiter, limit)
        after = max(start_after, token or "")
        entries = self._walk(prefix, after, roll_up=bool(delimiter))
        with explained(f"list of {prefix!r}"):
            page = list(islice((entry for entry in entries if entry.path != token), limit + 1))
        given = page[:limit]
        return self._page(given, given[-1].path if len(page) > limit else None)

    def list_pages(
        self, prefix: str = "", *, start_after: str = "", delimiter: str = ""
    ) -> Iterator[Page]:
        """See `ObjectStore.list_pages`. Each directory is read once, and one at a time is in memory."""
        check_prefix(prefix)
        check_page(delimiter, _PAGE)
        entries = self._walk(prefix, start_after, roll_up=bool(delimiter))

        def batch() -> tuple[TreeEntry, ...]:
            with explained(f"list of {prefix!r}"):
                return tuple(islice(entries, _PAGE))

        given, rest = batch(), batch()
        while rest:
            yield self._page(given, given[-1].path)
            given, rest = rest, batch()
        yield self._page(given)

    def _page(self, entries: Sequence[TreeEntry], next_token: str | None = None) -> Page:
        with explained(f"list of {self.url}"):
            objects = tuple(self._infos(entry for entry in entries if entry.stat is not None))
        return Page(
            objects=objects,
            prefixes=tuple(entry.path for entry in entries if entry.stat is None),
            next_token=next_token,
        )

    # mutations

    def put(
        self,
        path: str,
        body: Body,
        *,
        condition: Condition | None = None,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.put`. `content_type` is not kept."""
        row = IndexRow(secrets.token_hex(16), check_metadata(metadata))
        base, whole = self._base_of(path)
        with base.scratch() as scratch:
            for chunk in chunks(body):
                with explained(repr(path)):
                    write_all(scratch.fd, chunk)
            self._seal(base, scratch.fd, path, row)
            return self._place(_Body(base, whole, scratch.file), path, condition, expiry)

    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.copy`."""
        _split(target)
        with self._seen(source) as seen:
            if seen is None:
                raise self._not_found(source)
            row = IndexRow(secrets.token_hex(16), _EMPTY if seen.row is None else seen.row.metadata)
            base, whole = self._base_of(target)
            with base.scratch() as scratch:
                with explained(repr(target)):
                    copy_all(seen.fd, scratch.fd)
                self._seal(base, scratch.fd, target, row)
                return self._place(_Body(base, whole, scratch.file), target, condition, expiry)

    def delete(
        self, path: str, *, condition: IfMatch | None = None, expiry: RequestExpiry | None = None
    ) -> None:
        """See `ObjectStore.delete`."""
        _split(path)
        if not os.path.isdir(self._root):
            self._check_expiry(path, expiry)
            if condition is not None:
                raise changed(path, condition, None)
            return
        base, whole = self._base_of(path)
        with explained(repr(path)), base.removing() as transaction:
            self._check_expiry(path, expiry)
            change = LocalChange(base, transaction)
            change.remove(whole, condition)
        self._sync(base, whole[:-1])
        tidy(base, change.left)

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """See `ObjectStore.delete_many`."""
        unique = dict.fromkeys(paths)
        for path in unique:
            _split(path)
        rest = iter(unique)
        errors: dict[str, CommitError] = {}
        while os.path.isdir(self._root) and (batch := tuple(islice(rest, _BATCH))):
            groups: dict[Base, dict[str, tuple[str, ...]]] = {}
            for path in batch:
                try:
                    base, whole = self._base_of(path)
                    groups.setdefault(base, {})[path] = whole
                except Busy as error:  # each of the others would wait as long
                    return errors | dict.fromkeys([*batch, *rest], error)
                except CommitError as error:
                    errors[path] = error
            for base, group in groups.items():
                errors |= self._delete_together(base, group)
            if busy := next((each for each in errors.values() if isinstance(each, Busy)), None):
                errors |= dict.fromkeys(rest, busy)
        return errors

    def _delete_together(
        self, base: Base, batch: Mapping[str, tuple[str, ...]]
    ) -> dict[str, CommitError]:
        """Remove objects of one index, given with their parts from its base; return the errors."""
        errors: dict[str, CommitError] = {}
        try:
            with base.removing() as transaction:
                change = LocalChange(base, transaction)
                for path, whole in batch.items():
                    try:
                        with explained(repr(path)):
                            change.remove(whole, None)
                    except CommitError as error:
                        errors[path] = error
        except CommitError as error:  # it did not begin, but earlier batches may be gone
            return dict.fromkeys(batch, error)
        for directory in {whole[:-1] for whole in batch.values()}:
            try:
                self._sync(base, directory)
            except OutcomeUnknown as error:
                errors |= {path: error for path, whole in batch.items() if whole[:-1] == directory}
                change.left.clear()
        tidy(base, change.left)
        return errors

    # uploads

    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """See `ObjectStore.begin_stage`. `content_type` is not kept."""
        kept = check_metadata(metadata)
        kept.setdefault(NONCE, secrets.token_hex(16))
        upload_id = secrets.token_hex(16)
        parts = _split(path)
        base = self._base()
        with explained(repr(path)):
            base.tree.check_free(base.above + parts)
        record = Upload(upload_id, "/".join(base.above + parts), self._clock.epoch())
        return LocalWriter(base, record, path, IndexRow(secrets.token_hex(16), kept))

    def stage_files(self, files: Mapping[str, str], *, key: str) -> tuple[Staged, ...]:
        """Turn finished files of another program below the root into staged uploads.

        No byte is copied: a file loses its old name, and waits to be published under the new one. A
        repeated call returns the same uploads, until one of them is published or aborted; also after a
        crash in the middle of the first call, unless the next writer has removed what that left.

        Args:
            files: for the path of each file, the path at which it is to appear. No process may write to
                the file any more.
            key: a unique name of the call, the same in a repeated call.

        Returns the uploads, in the order of `files`; durable, if the store is.

        Raises:
            NotFound: one of them is neither a file nor an upload of the same call. Nothing happened.
            InvalidPath: a path is invalid, leads through a symbolic link, or is on another file system;
                or no file can appear at a path. As after any other error, files may have been dropped or
                may be staged; not in the last case.
        """
        parts = {_split(source): _split(target) for source, target in files.items()}
        base = self._base()
        ids = {
            source: _upload_of_file(key, base.above + source, base.above + parts[source])
            for source in parts
        }
        for target in parts.values():
            with explained(repr("/".join(target))):
                base.tree.check_free(base.above + target)
        for source, (upload_id, _) in ids.items():
            self._sync_file(base, source, or_else=base.staged_file(upload_id))
        rest = iter(parts.items())
        staged: list[Staged] = []
        while batch := tuple(islice(rest, _BATCH)):
            # In one transaction, so that a crash alone can part a body from its record.
            with explained("staging of files"), base.index.recording() as transaction:
                change = LocalChange(base, transaction)
                for source, target in batch:
                    upload_id, nonce = ids[source]
                    record = Upload(upload_id, "/".join(base.above + target), self._clock.epoch())
                    found = change.stage_file(base.above + source, record)
                    row = IndexRow(secrets.token_hex(16), {NONCE: nonce})
                    transaction.record(found, row, upload_id)
                    path = "/".join(target)
                    staged.append(
                        Staged(path=path, upload_id=upload_id, size=found.st_size, nonce=nonce)
                    )
                base.sync_staged()
        return tuple(staged)

    def publish(
        self, staged: Staged, *, condition: Condition | None = None, expiry: RequestExpiry | None = None
    ) -> PutResult:
        """See `ObjectStore.publish`."""
        parts = _split(staged.path)
        if _UPLOAD_ID.fullmatch(staged.upload_id):
            for base, whole in self._homes(staged.path):
                file = base.staged_file(staged.upload_id)
                if base.look(file) is not None:
                    body = _Body(base, whole, file, staged.upload_id)
                    return self._place(body, staged.path, condition, expiry)
        raise no_upload(parts)

    def abort(self, staged: Staged | StagedInfo) -> None:
        """See `ObjectStore.abort`."""
        if _UPLOAD_ID.fullmatch(staged.upload_id):
            for base, _ in self._homes(staged.path):
                with explained(repr(staged.path)):
                    if base is self._found:
                        self._swept_once(base)
                    base.drop_staged(staged.upload_id)

    def _homes(self, path: str) -> list[tuple[Base, tuple[str, ...]]]:
        """Return the bases that may have an upload of `path`, each with the parts from there.

        That is the base of this store, and that of a directory on the way with an index of its own:
        others stage files there.
        """
        base, found = self._existing(), self._where(path)
        own = [] if base is None else [(base, base.above + _split(path))]
        return own if found is None or found[0] is base else [*own, found]

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """See `ObjectStore.list_staged`. Yields the uploads that exist at the time of the call."""
        check_prefix(prefix)
        # The last name is that of a file, perhaps of an incomplete one.
        homes = self._homes(prefix.rpartition("/")[0] + "/-" if "/" in prefix else "-")
        found: list[StagedInfo] = []
        for base, whole in homes:
            bodies: set[str] = set()
            with explained(self.url), suppress(InvalidPath):  # a link is not listed
                bodies = base.staged_bodies()
            # What leads from the base to this store, or from this store to the base.
            inside = prefix.count("/") - (len(whole) - 1) + len(base.above)
            outside = "".join(part + "/" for part in prefix.split("/")[:inside])
            start = base.prefix + prefix.removeprefix(outside)
            for upload in base.index.read(partial(Transaction.uploads, prefix=start)):
                if upload.upload_id in bodies:  # a crash may leave a record alone
                    path = outside + upload.path[len(base.prefix) :]
                    found.append(
                        StagedInfo(path=path, upload_id=upload.upload_id, initiated=upload.initiated)
                    )
        return iter(sorted(found, key=lambda each: (each.path, each.initiated)))

    def make_room(self) -> Callable[[], None] | None:
        """See `ObjectStore.make_room`. 128 KiB are held back, in ``.commitlog/reserve``."""
        base = self._existing()
        return base.hold_back if base is not None and base.make_room() else None

    def close(self) -> None:
        """Close the index. Idempotent."""
        base, self._found = self._found, None
        nested, self._nested = self._nested, {}
        for each in (base, *nested.values()):
            if each is not None:
                each.index.close()

    # where

    def _existing(self) -> Base | None:
        """Return the base, if anything was ever written through a store here."""
        base = self._found
        if base is None or not base.is_there:
            with explained(self.url):
                base = self._found = find_base(self._root, durable=self._durable)
        return base

    def _base(self) -> Base:
        """Return the base, made if there is none."""
        base = self._found
        if base is None or not base.is_there:
            with explained(self.url):
                base = self._found = make_base(self._root, durable=self._durable)
        return self._swept_once(base)

    def _swept_once(self, base: Base) -> Base:
        """Return a base in which something is to be changed; at its first change, it is swept."""
        if self._swept is not base:
            base.sweep()
            self._swept = base
        return base

    def _base_of(self, path: str) -> tuple[Base, tuple[str, ...]]:
        """Return the base to change `path` in, made if there is none, and the parts from there."""
        base = self._base()
        return self._where(path) or (base, base.above + _split(path))

    def _where(self, path: str) -> tuple[Base, tuple[str, ...]] | None:
        """Return the base whose index counts at `path`, and the parts from there; None: none is."""
        parts, base = _split(path), self._existing()
        tree, whole = (self._bare, parts) if base is None else (base.tree, base.above + parts)
        depth = innermost(tree.root, whole[:-1])
        if depth:
            return self._nested_base(tree, whole[:depth]), whole[depth:]
        return None if base is None else (base, whole)

    def _nested_base(self, tree: DirectoryTree, directory: tuple[str, ...]) -> Base:
        """Return the base of a directory that has an index of its own."""
        place = os.path.join(tree.root, *directory)
        with explained(place), tree.directory(directory):  # raises where it leads through a link
            found = self._nested.get(place)
            if found is None or not found.is_there:
                found = find_base(place, durable=self._durable)
                if found is None or found.above:
                    raise Unavailable(f"the index in {place} was removed: try again")
                self._nested[place] = found
            return found

    # looking

    @contextmanager
    def _seen(self, path: str) -> Iterator[_Seen | None]:
        """Give the open file and its row, of one moment; None if there is no object."""
        parts = _split(path)
        base = self._existing()
        tree = self._bare if base is None else base.tree
        whole = parts if base is None else base.above + parts
        while True:
            with explained(repr(path)):
                fd = tree.open_file(whole)
            if fd is None:
                yield None
                return
            try:
                with explained(repr(path)):
                    found = os.fstat(fd)
                    row = self._rows_at(path, base, [found]).get(found.st_ino)
                    now = found if row is not None or base is None else tree.stat(whole)
                if now is None or not os.path.samestat(now, found):
                    continue  # the file was replaced, and its row is gone: look again
                yield _Seen(fd, found, row)
                return
            finally:
                os.close(fd)

    def _walk(self, prefix: str, after: str, *, roll_up: bool) -> Iterator[TreeEntry]:
        base = self._existing()
        tree = self._bare if base is None else base.tree
        above = "" if base is None else base.prefix
        for entry in tree.walk(above + prefix, above + after, roll_up=roll_up):
            yield TreeEntry(entry.path[len(above) :], entry.stat) if above else entry

    def _infos(self, entries: Iterable[TreeEntry]) -> Iterator[ObjectInfo]:
        found = [(entry.path, entry.stat) for entry in entries if entry.stat is not None]
        base = self._existing()
        rows = _rows(base, [seen for _, seen in found])
        for _, group in groupby(found, lambda each: each[0].rpartition("/")[0]):
            (path, first), *more = group
            rows |= self._nested_rows(path, base, [first, *(seen for _, seen in more)], rows)
        foreign = [(path, seen) for path, seen in found if seen.st_ino not in rows]
        same = set() if base is None else _unchanged(base, foreign)
        for path, seen in found:
            row = rows.get(seen.st_ino)
            if row is not None or base is None or path in same:
                yield _listed(path, seen, row)
                continue
            with suppress(InvalidPath), self._seen(path) as again:
                if again is not None:
                    yield _listed(path, again.stat, again.row)

    def _rows_at(
        self, path: str, base: Base | None, found: Sequence[os.stat_result]
    ) -> dict[int, IndexRow]:
        """Return the rows of files in the directory of `path`."""
        rows = _rows(base, found)
        return rows | self._nested_rows(path, base, found, rows)

    def _nested_rows(
        self,
        path: str,
        base: Base | None,
        found: Sequence[os.stat_result],
        rows: Mapping[int, IndexRow],
    ) -> dict[int, IndexRow]:
        """Return what takes the place of `rows` if another index than that of `base` counts there.

        A file that only `base` knows has the etag that others see there. It keeps its metadata.
        """
        counting = self._where(path)
        if counting is None or counting[0] is base:
            return {}
        known = {
            seen.st_ino: IndexRow(etag_of(seen, None), rows[seen.st_ino].metadata)
            for seen in found
            if seen.st_ino in rows
        }
        return known | _rows(counting[0], found)

    # changing

    def _seal(self, base: Base, fd: int, path: str, row: IndexRow) -> None:
        """Make a complete body and its row durable; it stays invisible."""
        with explained(repr(path)):
            if self._durable:
                full_sync(fd)
            base.index.record(os.fstat(fd), row)

    def _place(
        self, body: _Body, path: str, condition: Condition | None, expiry: RequestExpiry | None
    ) -> PutResult:
        """Give a sealed body its visible name, which is the moment at which the mutation happens."""
        base, file = body.base, body.file
        target, whole = self._where(path) or (base, body.parts)
        if target.is_same(base):
            target = base  # it may be another object, and would wait for the same lock
        with explained(repr(path)):
            for _ in range(_TRIES):
                try:
                    with ExitStack() as opened:
                        transaction = opened.enter_context(base.index.changing())
                        row = LocalChange(base, transaction).row_of(file, body.parts, body.upload_id)
                        found = base.look(file)
                        if found is None:
                            raise no_upload(body.parts)
                        if target is not base:
                            # Its directory has an index of its own since it was staged.
                            target.index.record(found, row)
                            transaction = opened.enter_context(target.index.changing())
                        change = LocalChange(target, transaction)
                        self._check_expiry(path, expiry)
                        change.place(base, file, whole, condition)
                    break
                except NotFound:
                    raise
                except FileNotFoundError:
                    continue  # another process removed an empty directory
            else:
                raise Unavailable(f"{path!r}: its directory is removed as fast as it is made")
        with suppress(OSError, InvalidPath):  # a link has left the private name; what stays is swept
            base.unlink(file)
        self._sync(target, whole[:-1])
        if target is base:
            tidy(base, change.left, body.upload_id)
        else:
            tidy(target, change.left)
            tidy(base, [(found.st_ino, row.token)], body.upload_id)
        return PutResult(path=path, etag=row.token)

    def _sync_file(self, base: Base, parts: tuple[str, ...], *, or_else: PrivateFile) -> None:
        """Make a file durable; do nothing if it is missing, and `or_else` is there."""
        path = "/".join(parts)
        with explained(repr(path)):
            fd = base.tree.open_file(base.above + parts)
            if fd is None:
                if base.look(or_else) is not None:
                    return
                raise self._not_found(path)
            try:
                if self._durable:
                    full_sync(fd)
            finally:
                os.close(fd)

    def _sync(self, base: Base, directory: tuple[str, ...]) -> None:
        try:
            base.tree.sync(directory)
        except (OSError, CommitError) as error:
            raise OutcomeUnknown(
                f"the change in {'/'.join(directory) or '.'!r} of {self.url} is visible, but may not"
                f" survive power loss: fsync failed ({error})"
            ) from error

    def _check_expiry(self, path: str, expiry: RequestExpiry | None) -> None:
        if expiry is not None and self._clock.epoch() > expiry.expires_at:
            raise RequestExpired(f"the request for {path!r} came after its expiry")

    def _not_found(self, path: str) -> NotFound:
        return NotFound(f"no object at {path!r} in {self.url}")


def _split(path: str) -> tuple[str, ...]:
    parts = tuple(check_path(path).split("/"))
    if RESERVED in parts:
        raise InvalidPath(f"path {path!r}: the name {RESERVED!r} is reserved for the store itself")
    for part in parts:
        if len(part.encode()) > _NAME_MAX:
            raise InvalidPath(f"path {path!r}: a file's name has at most {_NAME_MAX} bytes of UTF-8")
    return parts


def _upload_of_file(key: str, source: tuple[str, ...], target: tuple[str, ...]) -> tuple[str, str]:
    """Return the upload id and the nonce of a staged file, the same ones for the same arguments."""
    text = json.dumps([key, source, target])
    digest = hashlib.sha256(text.encode()).hexdigest()
    return digest[:32], digest[32:]


def _rows(base: Base | None, found: Sequence[os.stat_result]) -> dict[int, IndexRow]:
    if base is None:
        return {}
    return base.index.read(lambda transaction: base.rows(transaction, found))


def _unchanged(base: Base, found: Iterable[tuple[str, os.stat_result]]) -> set[str]:
    """Return the paths at which there is still the file that was found, unchanged.

    So the file was there when its row was looked for, and it has none. A rename or link changes the
    time of the inode (``ctime``), so a later file with the same inode number is not taken for it.
    """
    same: set[str] = set()
    for directory, files in groupby(found, lambda each: each[0].rpartition("/")[0]):
        parts = tuple(directory.split("/")) if directory else ()
        with suppress(InvalidPath), base.tree.directory(base.above + parts) as fd:
            for path, seen in files if fd is not None else ():
                with suppress(OSError):
                    now = os.stat(path.rpartition("/")[2], dir_fd=fd, follow_symlinks=False)
                    if _stamp(now) == _stamp(seen):
                        same.add(path)
    return same


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _info(path: str, found: os.stat_result, row: IndexRow | None) -> ObjectInfo:
    listed = _listed(path, found, row)
    return listed if row is None else evolve(listed, metadata=row.metadata)


def _listed(path: str, found: os.stat_result, row: IndexRow | None) -> ObjectInfo:
    """Return what a listing tells: no metadata."""
    return ObjectInfo(
        path=path, size=found.st_size, etag=etag_of(found, row), last_modified=found.st_mtime
    )
