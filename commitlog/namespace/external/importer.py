"""Import of existing objects as files of a namespace, in place, at the paths that the objects have.

Nothing is copied. Removing such a file does not remove its object: the objects stay their owners'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any

from attrs import evolve, field, frozen

from commitlog._util.frozen_map import AppendOnly
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    InvalidPath,
    NotADirectory,
    TransactionTooLarge,
    Unavailable,
)
from commitlog.namespace.external.store import with_etag
from commitlog.namespace.model.data import Data, modified_of
from commitlog.namespace.model.keys import split, split_new
from commitlog.namespace.model.records import Entry
from commitlog.namespace.tree import Tree
from commitlog.namespace.write.bulk import BulkLinker
from commitlog.namespace.write.content import is_own
from commitlog.namespace.write.plan_files import NewFile
from commitlog.paths import join
from commitlog.stores.api import ObjectInfo, ObjectStore
from commitlog.tables.api import MAX_TRANSACTION_WRITES

__all__ = ["ImportReport", "Importer", "check_import_prefix"]

#: Objects to import at a time: with the guard of the directory, their files fill a transaction.
_FILES = MAX_TRANSACTION_WRITES - 1


@frozen(kw_only=True)
class ImportReport:
    """The result of an import.

    Attributes:
        files: objects that became files.
        updated: files that were updated, since their objects had changed.
        known: objects that were files already.
        bytes: total size of `files` and `updated`.
        refused: paths of objects that cannot become files, with the reasons.
        last: the last object that was processed; an interrupted import can start after it.
    """

    files: int = 0
    updated: int = 0
    known: int = 0
    bytes: int = 0
    refused: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)
    last: str = ""

    def followed_by(self, other: ImportReport) -> ImportReport:
        """Return the report of this import and of another one, of later objects."""
        return ImportReport(
            files=self.files + other.files,
            updated=self.updated + other.updated,
            known=self.known + other.known,
            bytes=self.bytes + other.bytes,
            refused=self.refused + other.refused,
            last=max(self.last, other.last),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "files": self.files,
            "updated": self.updated,
            "known": self.known,
            "bytes": self.bytes,
            "refused": [{"path": path, "reason": reason} for path, reason in self.refused],
            "last": self.last,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ImportReport:
        """Return the report that `to_json` returned."""
        refused = AppendOnly((each["path"], each["reason"]) for each in found["refused"])
        return cls(**{**found, "refused": refused})


@frozen(kw_only=True)
class Importer:
    """Imports objects of one store.

    Args:
        tree: of the namespace.
        linker: links new files.
        store: has the objects.
        make_directories: creates all directories on a path, as `plan_tree.plan_directories` plans it.
        update: updates the file at a path to the given object, and returns it; None if nothing is at the
            path. Raises `AlreadyExists` if something else is there.
        clock: waited on between attempts.
        backoff: retry policy for conflicts with other clients.
    """

    tree: Tree
    linker: BulkLinker
    store: ObjectStore
    make_directories: Callable[[str, Sequence[Entry]], tuple[Entry, ...]]
    update: Callable[[str, ObjectInfo], Entry | None]
    clock: Clock
    backoff: Backoff

    def import_objects(
        self,
        prefix: str,
        into: str,
        *,
        start_after: str = "",
        objects: Iterable[ObjectInfo] | None = None,
        within: str | None = None,
        progress: Callable[[ImportReport], object] | None = None,
    ) -> ImportReport:
        """See `Maintenance.import_objects`."""
        check_import_prefix(prefix)
        depth = 1 + len(split(into))
        done = ImportReport(last=start_after)
        top = self._top(into, within)
        if objects is None:
            objects = self.store.resume(prefix, after=start_after)
        for directory, infos in groupby(objects, lambda info: info.path.rpartition("/")[0]):
            below = directory[len(prefix) :]
            target = join(into, below) if below else into
            known = top
            for batch in _batches(infos):
                try:
                    known, done = self._import_batch(target, known, batch, done)
                except Conflict as error:
                    raise Conflict(
                        f"{error}. {done.files} objects became files before that; to go on, start after"
                        f" {done.last!r}"
                    ) from error
                if progress is not None:
                    progress(done)
            top = known[:depth]
        return done

    def _top(self, into: str, within: str | None) -> Sequence[Entry]:
        """Return the directories down to `into`, if the id of that directory is given."""
        if within is None:
            return ()
        walk = self.tree.walk(split(into))
        if walk.missing or walk.last.id != within:
            raise Conflict(f"{into!r} was renamed, or deleted; nothing was imported")
        return walk.found

    def _import_batch(
        self, target: str, known: Sequence[Entry], infos: list[ObjectInfo], done: ImportReport
    ) -> tuple[Sequence[Entry], ImportReport]:
        """Import objects of one directory; return the directories on its path, and the new totals."""
        done = evolve(done, last=infos[-1].path)
        infos = [info for info in infos if not is_own(info.path)]
        if not infos:
            return known, done
        try:
            make = partial(self._make, split(target), known)
            known = self.backoff.retry(self.clock, make, on=Conflict)
        except (InvalidPath, NotADirectory, AlreadyExists, TransactionTooLarge) as error:
            return known, _refused(done, infos, error)
        directory = known[-1]
        valid: dict[str, ObjectInfo] = {}
        refused: list[tuple[str, str]] = []
        for listed in infos:
            name = listed.path.rpartition("/")[2]
            try:
                info = with_etag(self.store, listed)
                if info is not None:
                    Data.of(info)
                    split_new(join(target, name))
                    valid[name] = info
            except (InvalidPath, Unavailable) as error:
                refused.append((listed.path, str(error)))
        present = self._present(directory, sorted(valid))
        new: dict[str, ObjectInfo] = {}
        for name, info in valid.items():
            entry = present.get(name)
            try:
                if entry is not None and _is_known(entry, info):
                    done = evolve(done, known=done.known + 1)
                elif entry is None or self.update(join(target, name), info) is None:
                    new[name] = info
                else:
                    done = evolve(done, updated=done.updated + 1, bytes=done.bytes + info.size)
            except (InvalidPath, AlreadyExists, TransactionTooLarge) as error:
                refused.append((info.path, str(error)))
        done = evolve(done, refused=done.refused + refused)
        return known, self._link(target, directory, new, done) if new else done

    def _make(
        self, names: tuple[str, ...], known: Sequence[Entry], existing: int = 0
    ) -> tuple[Entry, ...]:
        """Create directories with one change, or in steps if it is too large; `existing` exist."""
        try:
            return self.make_directories("/".join(names), known[: 1 + len(names)])
        except TransactionTooLarge:
            half = (existing + len(names)) // 2
            if half == existing:
                raise
        upper = self._make(names[:half], known, existing)
        return self._make(names, max(known, upper, key=len), half)

    def _present(self, directory: Entry, names: list[str]) -> dict[str, Entry]:
        """Return the entries of a directory for sorted names, which are neighbours in a listing.

        This takes one request, unless other names lie between them.
        """
        if not names:
            return {}
        found: dict[str, Entry] = {}
        # A prefix of a name sorts right before it, after almost all other names.
        entries = self.tree.entries(directory, after=names[0][:-1], page=2 * len(names))
        for entry in islice(entries, 2 * len(names)):
            if entry.name > names[-1]:
                return found
            found[entry.name] = entry
        if len(found) < 2 * len(names):
            return found
        beyond = {name: self.tree.find(directory, name) for name in names if name > max(found)}
        return found | {name: entry for name, entry in beyond.items() if entry is not None}

    def _link(
        self, target: str, directory: Entry, new: dict[str, ObjectInfo], done: ImportReport
    ) -> ImportReport:
        files = {
            name: NewFile(data=Data.of(info), modified=modified_of(info)) for name, info in new.items()
        }
        try:
            link = partial(self.linker.link, target, files, within=directory.id)
            linked = self.backoff.retry(self.clock, link, on=Conflict)
        except TransactionTooLarge as error:  # of a single file: the path is too deep for every file
            return _refused(done, new.values(), error)
        refused = [(new[name].path, str(error)) for name, error in linked.errors.items()]
        return evolve(
            done,
            files=done.files + len(linked.created),
            known=done.known + len(linked.existing),
            bytes=done.bytes + sum(new[name].size for name in linked.created),
            refused=done.refused + refused,
        )


def check_import_prefix(prefix: str) -> None:
    """Raise `ConfigurationError` unless a prefix is "" or ends in a slash."""
    if prefix and not prefix.endswith("/"):
        raise ConfigurationError(f"prefix {prefix!r} is not a directory: end it in a slash")


def _refused(done: ImportReport, infos: Iterable[ObjectInfo], error: Exception) -> ImportReport:
    refused = [(info.path, str(error)) for info in infos]
    return evolve(done, refused=done.refused + refused)


def _is_known(entry: Entry, info: ObjectInfo) -> bool:
    data = entry.data
    return data is not None and not data.own and data.path == info.path and data.matches(info)


def _batches(infos: Iterable[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    batch: list[ObjectInfo] = []
    for info in infos:
        batch.append(info)
        if len(batch) == _FILES:
            yield batch
            batch = []
    if batch:
        yield batch
