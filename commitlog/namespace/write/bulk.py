"""Links of many files in few transactions: new files in one directory, and files that may fail singly.

`BulkLinker` adds any number of new files to one directory, with some transactions in parallel. The
files do not appear at one moment, so this is for directories that no reader uses yet. `link_separately`
creates as many of some files as it can. `SharedLinks` does so for files of concurrent threads.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Protocol, TypeVar

from attrs import define, field, frozen

from commitlog._util.batching import Batcher
from commitlog._util.concurrency import SERIAL, Executor
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    CommitError,
    Conflict,
    Fenced,
    InvalidPath,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    TransactionTooLarge,
    Unavailable,
)
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import shards_of, split, split_new
from commitlog.namespace.model.records import Entry, Shards
from commitlog.namespace.status import Status
from commitlog.namespace.tree import Tree, Walk
from commitlog.namespace.write.plan_common import PlanContext
from commitlog.namespace.write.plan_files import NewFile, check_distinct, plan_bulk_link
from commitlog.namespace.write.transaction import Changes, PlanOutdated
from commitlog.paths import join
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import MAX_TRANSACTION_WRITES

__all__ = ["LINK_BATCH_SIZE", "BulkLinker", "LinkReport", "SharedLinks", "link_separately"]

File = TypeVar("File")
Made = TypeVar("Made")

#: Number of files to pass to `Namespace.link_many` with ``atomic=False``: one transaction has room for
#: them, even if all replace others.
LINK_BATCH_SIZE = 40

#: How long a transaction waits for the threads of the previous one, as a part of the time of that one.
_GATHER = 0.5

#: Errors that concern all files of a transaction. Any other may concern some of them only.
_OF_ALL = (AccessDenied, Fenced, OutcomeUnknown, Unavailable)


@define
class LinkReport:
    """The result of linking files: which were created, and which not.

    Attributes:
        created: names of files that were created.
        existing: names of files that existed already, with the same data.
        errors: for each name that something else has, the error.
    """

    created: set[str] = field(factory=set)
    existing: set[str] = field(factory=set)
    errors: dict[str, AlreadyExists] = field(factory=dict)

    def progress(self, files: int) -> str:
        """Return how many of `files` files were created, for messages."""
        left = files - len(self.created) - len(self.existing) - len(self.errors)
        return f"{len(self.created)} of {files} files were linked, and {left} were not"


@frozen(kw_only=True)
class BulkLinker:
    """Links new files into one directory. Thread-safe.

    Args:
        planning: what plans use.
        changes: applies changes to the namespace.
        clock: waited on between attempts.
        backoff: retry policy for conflicts with other clients.
        executor: runs transactions, one after the other or in parallel.
    """

    planning: PlanContext
    changes: Changes
    clock: Clock
    backoff: Backoff
    executor: Executor = SERIAL

    def link(self, path: str, files: Mapping[str, NewFile], *, within: str | None = None) -> LinkReport:
        """Make files in the directory at `path`; return the outcome for each.

        A file that exists with the same data is no error, so the call can be repeated. A repeated call
        makes a file again that was renamed or deleted since the first call; then two files have one
        object, which is otherwise not allowed. All files go into one directory: if the path leads to
        another directory, or to none, before all of them are made, the error says how many were made in
        the first one. After a `NotFound` or `NotADirectory` without such a number, no file was made.
        After any other error, some of the files may exist.

        Args:
            path: of the directory.
            files: by name.
            within: id that the directory must have; None: any.
        """
        check_distinct(files)
        for name in files:
            if len(split(name)) != 1:
                raise InvalidPath(f"{name!r} is not the name of a file in a directory")
            split_new(join(path, name))
        report = LinkReport()
        left = dict(files)
        for attempt in self.backoff.attempts(self.clock):
            with contextlib.suppress(PlanOutdated):
                walk = self._walk(path, within, report.progress(len(files)) if attempt else "")
                within = walk.last.id
                # In a directory with one shard that has not grown, the conditions of the transaction
                # find names that exist. Objects without a row are the exception.
                grown = walk.last.shards.now > walk.last.shards.first
                if attempt or grown or not _rows_suffice(walk.last, left):
                    left = self._missing_files(path, walk.last, left, report)
                refused = self._send(walk, left)
                report.created.update(left.keys() - refused)
                left = {name: left[name] for name in refused}
                if not left:
                    return report
            self.planning.tree.forget()
        raise Conflict(
            f"other clients kept changing directory {path!r}: {report.progress(len(files))}; repeat it"
        )

    def _walk(self, path: str, within: str | None, progress: str) -> Walk:
        walk = self.planning.tree.walk(split(path))
        if walk.missing:
            more = f" any more: {progress}" if progress else ""
            raise NotFound(f"there is no directory {path!r}{more}")
        if not walk.last.is_directory:
            more = (
                f", and was a directory: {progress}" if progress else "; nothing can be linked into it"
            )
            raise NotADirectory(f"{path!r} is a file{more}")
        if within is not None and walk.last.id != within:
            raise Conflict(
                f"there is another directory at {path!r} now: {progress or 'nothing was linked into it'}"
            )
        return walk

    def _missing_files(
        self,
        path: str,
        directory: Entry,
        files: Mapping[str, NewFile],
        report: LinkReport,
    ) -> dict[str, NewFile]:
        """Return the files that do not exist yet, and objects without a row, which are to get one."""
        tree = self.planning.tree
        if _rows_suffice(directory, files):
            tree = Tree(tree.table, tree.keys)
        # Listing a directory that has no more entries than this takes fewer requests than lookups.
        first = {entry.name: entry for entry in islice(tree.entries(directory), len(files) + 1)}
        listed = len(first) <= len(files)
        new: dict[str, NewFile] = {}
        for name, file in files.items():
            found = first.get(name) if listed else tree.find(directory, name)
            if found is None:
                new[name] = file
            elif found.data != file.data:
                report.errors[name] = AlreadyExists(f"there is something else at {join(path, name)!r}")
            elif found.is_stored:
                report.existing.add(name)
            else:
                new[name] = file
        return new

    def _send(self, walk: Walk, files: Mapping[str, NewFile]) -> list[str]:
        """Link files; return the names of those whose transactions were canceled."""
        pins = len(walk.found) - 1 if self.planning.stable_paths else 0
        lanes, rest = _batches(files, walk.last.shards, max(1, MAX_TRANSACTION_WRITES - 1 - pins))

        def send(lane: list[list[str]]) -> list[str]:
            return list(chain.from_iterable(self._refused(walk, files, batch) for batch in lane))

        refused = list(chain.from_iterable(self.executor.map(send, lanes)))
        for some in (rest[::2], rest[1::2]):
            refused += chain.from_iterable(self.executor.map(send, [[batch] for batch in some]))
        return refused

    def _refused(self, walk: Walk, files: Mapping[str, NewFile], batch: list[str]) -> list[str]:
        """Link files with one transaction, or more if it is too large; return the names not linked."""
        try:
            new = {name: files[name] for name in batch}
            self.changes.apply(plan_bulk_link(self.planning, walk.found, new))
        except PlanOutdated:
            return batch
        except TransactionTooLarge:
            if len(batch) == 1:
                raise
            half = len(batch) // 2
            return [
                *self._refused(walk, files, batch[:half]),
                *self._refused(walk, files, batch[half:]),
            ]
        return []


def _rows_suffice(directory: Entry, files: Mapping[str, NewFile]) -> bool:
    """Return whether only rows can conflict with new files: any objects there are the files' own."""
    binding = directory.binding
    return binding is None or all(
        not file.data.own and file.data.path == binding.path_of(name) for name, file in files.items()
    )


def _batches(
    names: Iterable[str], shards: Shards, size: int
) -> tuple[list[list[list[str]]], list[list[str]]]:
    """Divide names into transactions, so that few transactions write to the same shard.

    Args:
        names: of new files.
        shards: of the directory.
        size: most files of one shard in a transaction that also writes the guard.

    Returns, for each shard, a list of full transactions, to be sent one after the other; then the
    remaining names of all shards, in transactions of which only neighbours share a shard.

    >>> _batches("abcde", Shards(), 2)
    ([[['a', 'b'], ['c', 'd']]], [['e']])
    """
    by_shard: dict[int, list[str]] = defaultdict(list)
    for name in names:
        by_shard[shards_of(name, shards.now, shards.first)[0]].append(name)
    lanes: list[list[list[str]]] = []
    ends: list[list[str]] = []
    writes = size + 1
    for _, here in sorted(by_shard.items()):
        full = len(here) - len(here) % size
        if full:
            lanes.append([here[at : at + size] for at in range(0, full, size)])
        for number, name in enumerate(here[full:]):
            writes += 1 + (number == 0)
            if writes > size + 1:
                ends.append([])
                writes = 2
            ends[-1].append(name)
    return lanes, ends


def link_separately(
    files: Mapping[str, Data],
    link: Callable[[Mapping[str, Data]], Mapping[str, Status]],
    store: ObjectStore,
) -> dict[str, Status | CommitError]:
    """Create as many files as possible; see `Namespace.link_many`.

    Args:
        files: the content for each path.
        link: creates files in one transaction, all or none; returns the status of each.
        store: the store with the content; that of files that were not created is removed.
    """
    made: dict[str, Status | CommitError] = {}
    unused: list[str] = []
    for path, outcome in _link_each(files, link).items():
        if isinstance(outcome, Exception) and not isinstance(outcome, CommitError):
            raise outcome
        made[path] = outcome
        if isinstance(outcome, CommitError) and not isinstance(outcome, OutcomeUnknown):
            unused += [files[path].path] if files[path].own else []
    if unused:
        with contextlib.suppress(CommitError):
            store.delete_many(unused)
    return made


def _link_each(
    files: Mapping[str, File], link: Callable[[Mapping[str, File]], Mapping[str, Made]]
) -> dict[str, Made | Exception]:
    """Create as many files as possible; return the result, or the error, of each by its path.

    After an error that may concern some files only, each half of the files is tried by itself.
    """
    if not files:
        return {}
    try:
        return dict(link(files))
    except Exception as error:
        if len(files) == 1 or isinstance(error, _OF_ALL):
            return dict.fromkeys(files, error)
    paths = list(files)
    middle = len(paths) // 2
    made: dict[str, Made | Exception] = {}
    for half in (paths[:middle], paths[middle:]):
        made |= _link_each({path: files[path] for path in half}, link)
    return made


class LinkTogether(Protocol):
    """Creates files in one transaction, all or none; returns the entry of each by its path."""

    def __call__(
        self, files: Mapping[str, NewFile], *, overwrite: bool, parents: bool
    ) -> Mapping[str, Entry]: ...


@frozen(kw_only=True)
class _Wanted:
    """A file that a thread wants to create; see `SharedLinks.link`."""

    path: str
    file: NewFile
    overwrite: bool
    parents: bool

    def fits(self, others: Mapping[str, _Wanted]) -> bool:
        """Return whether one transaction may create this file and `others`, which are by their paths."""
        return self.path not in others and all(
            (each.overwrite, each.parents) == (self.overwrite, self.parents)
            and each.file.data.path != self.file.data.path
            for each in others.values()
        )


class SharedLinks:
    """Links of concurrent threads: files of one directory share a transaction. Thread-safe.

    This is a group commit; see `Batcher`. So threads that create files in one directory do not conflict
    with each other, and wait for the disk, or for the log, together. A thread alone does not wait. Each
    file has its own outcome: it is created, or not, as if each thread had a transaction of its own.

    Args:
        link: creates files in one transaction.
        clock: measures the transactions.
    """

    def __init__(self, link: LinkTogether, clock: Clock) -> None:
        self._link = link
        self._batches: Batcher[_Wanted, Entry] = Batcher(
            self._link_all,
            interrupted=_interrupted,
            most=LINK_BATCH_SIZE,
            gather=_GATHER,
            clock=clock,
        )

    @property
    def waiting(self) -> int:
        """Number of threads that wait for the transaction of others to end."""
        return self._batches.waiting

    def link(self, path: str, file: NewFile, *, overwrite: bool, parents: bool) -> Entry:
        """Create one file; return its entry. Arguments and errors are as for `plan_link`.

        Also raises `OutcomeUnknown` if another thread was interrupted while it sent the transaction.
        """
        wanted = _Wanted(path=path, file=file, overwrite=overwrite, parents=parents)
        return self._batches.call(wanted, key=path.rpartition("/")[0])

    def _link_all(self, wanted: Sequence[_Wanted]) -> list[Entry | Exception]:
        outcomes: dict[int, Entry | Exception] = {}
        left = dict(enumerate(wanted))
        while left:
            together: dict[str, _Wanted] = {}
            numbers: dict[str, int] = {}
            for number, each in left.items():
                if each.fits(together):
                    together[each.path], numbers[each.path] = each, number
            first = next(iter(together.values()))
            made = _link_each(
                {path: each.file for path, each in together.items()},
                partial(self._link, overwrite=first.overwrite, parents=first.parents),
            )
            for path, number in numbers.items():
                outcomes[number] = made[path]
                del left[number]
        return [outcomes[number] for number in range(len(wanted))]


def _interrupted() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the thread that sent the transaction for this file was interrupted: look whether it is there"
    )
