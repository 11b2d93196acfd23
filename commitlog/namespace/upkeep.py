"""The upkeep of a namespace: what goes in and out of it in bulk, and what is left to do after changes.

Imports the ground floor, the operation log, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from attrs import evolve

from commitlog.errors import ConfigurationError, CorruptRecord, Fenced, FormatTooNew
from commitlog.namespace.adopt import Adopted, Adopter
from commitlog.namespace.check import AGE, Checked, Checker
from commitlog.namespace.collecting import Collected, Collector
from commitlog.namespace.compaction import Compacted, Compactor
from commitlog.namespace.epoch import FencedLog
from commitlog.namespace.fixes import Fixes
from commitlog.namespace.keys import MARKERS
from commitlog.namespace.looking import Looking
from commitlog.namespace.marker import Marker
from commitlog.namespace.named import named_among
from commitlog.namespace.problems import PROBLEMS, Finding, Problem
from commitlog.namespace.readers import LogReader, StoreReader, TableReader
from commitlog.namespace.records import Entry
from commitlog.namespace.recovery import Recovery
from commitlog.namespace.relog import Relogged, Relogger
from commitlog.namespace.repair import Outcome, Repaired, Repairer
from commitlog.namespace.sweeping import Sweeper, Swept
from commitlog.oplog import Operation
from commitlog.stores.api import ObjectInfo

__all__ = ["Upkeep"]


class Upkeep(Looking):
    """What `Namespace` offers those who run it."""

    def adopt(
        self,
        prefix: str = "",
        into: str = "",
        *,
        start_after: str = "",
        progress: Callable[[Adopted], object] | None = None,
    ) -> Adopted:
        """Make files of the objects that the store has, in place, under the paths that they have.

        Nothing is copied. The objects are not the namespace's own: they stay when the files are deleted
        or overwritten. Objects that were adopted before are passed over, and those that have changed
        since are adopted anew, so it can be repeated, and broken off. What was removed from the store
        stays a file, and `ObjectChanged` for its readers. Objects of `write` are passed over.

        Args:
            prefix: what paths of the objects begin with, with its slash; "" for all.
            into: the directory below which they come.
            start_after: only objects whose path comes after this one in the store's order.
            progress: told after every hundred objects, or each directory, what was done so far.

        Returns what was done, and which objects cannot be files there: two objects of which one has the
        name of the other's directory, names that no file can have, files that are there and something
        else. Several can do it at once: each tells of the files that it has made.

        Files come into the directory at which the path led when it began: if that is renamed, deleted or
        replaced meanwhile, it is a `Conflict` that says how far it came, and the rest was not done.
        """
        self.check()
        self._store.check()

        def make(path: str, known: Sequence[Entry]) -> tuple[Entry, ...]:
            return self._run(lambda: self._planner.make_below(path, known))

        def renew(path: str, info: ObjectInfo) -> Entry | None:
            return self._run(lambda: self._planner.renew(path, info))

        adopter = Adopter(
            tree=self._tree,
            batches=self._batches(),
            store=self._store,
            make_below=make,
            renew=renew,
        )
        return adopter.adopt(prefix, into, start_after=start_after, progress=progress)

    def sweep(self, progress: Callable[[Swept], object] | None = None) -> Swept:
        """Remove what is in the trash; return what was removed, and what could not be.

        Can be broken off and repeated, and done by several at once.

        Args:
            progress: told now and then what was removed so far.
        """
        self.check()
        sweeper = Sweeper(tree=self._tree, keys=self._keys, planner=self._planner, changes=self._changes)
        return sweeper.sweep(progress)

    def collect(self, progress: Callable[[Collected], object] | None = None) -> Collected:
        """Remove content that nothing names, and whose time has come; return what was removed.

        Can be broken off and repeated, and done by several at once. What could not be removed is told,
        and stays listed for the next time. Of objects that `repair` has listed, of which no file was
        known, all records of the table are read once more for each ten thousand: what has become a file
        since stays.

        Args:
            progress: told what was removed so far, after each thousand objects.

        Raises `BucketNotFound`, or `StoreEmpty` if the store is not that of the namespace: what is
        listed stays so.
        """
        self.check()
        collector = Collector(
            table=self._table,
            keys=self._keys,
            store=self._store,
            clock=self._clock,
            backoff=self._backoff,
            prove=self._prove_objects,
            words=self._words,
            named=self._files_among,
        )
        return collector.collect(progress)

    def _prove_objects(self) -> None:
        """Make sure that objects may go that the table lists: of its own store, by its own log."""
        if self._changes.log is not None:
            self._with_log()
        self._joint.outside.prove_if_marked()

    def _files_among(self, paths: Collection[str]) -> Collection[str]:
        log = None if self._changes.log is None else LogReader.of(self._changes.log.log)
        return named_among(set(paths), TableReader.of(self._table), log, by=(Entry,))

    def compact_log(
        self,
        *,
        older_than: float | None = None,
        progress: Callable[[Compacted], object] | None = None,
    ) -> Compacted:
        """Keep the log as short as the namespace is; it can still be restored from it.

        What was decided a while ago is folded into a base, which tells of each file and directory that
        is there, and removed. What was decided a quarter of the log's `settle` before anything was begun
        that is pending, or later, stays: `recover` needs it. It can be broken off and repeated; of
        several at a time one goes on.

        Args:
            older_than: age of a decision in seconds, by the store's clock; at least, and by default, the
                log's `settle`, a day.
            progress: told what was done so far.

        Raises `ConfigurationError` if the namespace was opened without a log, or `older_than` is too
        little; `Fenced`; `Conflict` if somebody else does the same; `CorruptRecord` for an entry that
        cannot be read. All that the log says it still says then.

        It takes a request to read each operation, and one for about ten thousand files to read and to
        write the base. What is folded into it in one turn is held in memory: what some hundred thousand
        files are, or a quarter of the base.
        """
        log = self._with_log()
        compactor = Compactor(
            table=self._table, keys=self._keys, log=log.log, words=self._words, fence=log.check
        )
        return compactor.compact(older_than=older_than, progress=progress)

    def relog(self, *, take_over: bool = False, older_than: float = 3600.0) -> Relogged:
        """Write the log again from the table: where it is damaged, or another table has taken it.

        A new epoch of the log begins with all that the table has; nothing of the log before is needed,
        or removed. Stop those who write first. It can be broken off, and repeated: until it has ended
        nothing can be changed.

        Args:
            take_over: also if the log belongs to another table by now, into which the namespace was
                restored. That table is fenced then. What was changed there is not in this one.
            older_than: only if all that is pending was begun so many seconds ago; see `recover`.

        Raises:
            ConfigurationError: the namespace was opened without a log.
            Fenced: the log belongs to another table, and it is not to be taken over.
            CorruptRecord, FormatTooNew: a record of the table cannot be read; nothing was written.
            Conflict: a change may be under way, and nothing was written; or somebody else restores the
                namespace, and goes on.
        """
        if self._changes.log is None:
            raise ConfigurationError("the namespace was opened without a log: give it one")
        relogger = Relogger(
            table=self._table,
            keys=self._keys,
            epochs=self._changes.log.epochs,
            clock=self._clock,
            words=self._words,
        )
        try:
            return relogger.relog(take_over=take_over, older_than=older_than)
        finally:
            self._marker = None

    def audit(
        self,
        *,
        objects: bool = False,
        unnamed: bool = False,
        grace: float = 5.0,
        pending: float = 3600.0,
        age: float = AGE,
        progress: Callable[[Checked], object] | None = None,
    ) -> Checked:
        """Look for what is wrong with the namespace; change nothing.

        All records are read, and the log if there is one. Others may go on working: what they change
        meanwhile is no finding. `commitlog.namespace.problems.PROBLEMS` says what there can be, what
        that means, and what repairs it. What may be wrong is read twice; directories are held in memory,
        and of each file some hundred bytes, with a log two hundred and fifty.

        Args:
            objects: whether to ask the store about the object of each file, too. In a bound directory
                that is not authoritative, an object that others change is no loss: `sync` takes it.
            unnamed: whether to list the store for objects that nothing names, too.
            grace: seconds after which what was found is looked at again before it is told.
            pending: seconds for which a change may be pending in the log.
            age: seconds for which an object may be in the store before anything names it: longer than
                any job takes.
            progress: told now and then what was looked at.

        Raises `BucketNotFound`, and `StoreEmpty` for objects of a store that is not the namespace's.
        """
        self._marker = None  # as it is now: the namespace may have been restored since
        self._check_marker(mended=True, writing=False)
        log, fenced = self._log_to_compare()
        checker = Checker(
            table=TableReader.of(self._table),
            keys=self._keys,
            clock=self._clock,
            log=log,
            store=self._store_reader() if objects or unnamed else None,
            objects=objects,
            unnamed=unnamed,
            grace=grace,
            pending=pending,
            age=age,
        )
        checked = checker.check(progress)
        return evolve(checked, findings=(*fenced, *checked.findings))

    def repair(
        self,
        findings: Iterable[Finding],
        *,
        dry_run: bool = True,
        only: Collection[str] | None = None,
    ) -> Iterator[Repaired]:
        """Repair what `audit` has found; yield what became of each finding.

        Each is one transaction, made only if everything is still as it was found, and logged like any
        other change. What no path leads to comes into the directory ``lost+found`` of the root, under
        its id. One repair may show what another finding hid: check, and repair, until nothing is found.

        Args:
            findings: of `audit`.
            dry_run: whether only to tell what would be done.
            only: names of the kinds to repair; by default all, but those that have to be asked for.
        """
        wanted = [each for each in findings if _is_wanted(each.problem, only)]
        self._check_marker(mended=any(map(self._mends_marker, wanted)))
        log = None if self._changes.log is None else self._changes.log.log
        fixes = Fixes(
            tree=self._tree,
            keys=self._keys,
            clock=self._clock,
            words=self._words,
            grace=self._planner.grace,
            stable_paths=False,
            planner=self._planner,
            changes=self._changes,
            log=None if log is None else LogReader.of(log),
            store=self._store_reader(),
        )
        reader = TableReader.of(self._table)
        repairer = Repairer(table=reader, fixes=fixes, changes=self._changes)
        pending = [each for each in wanted if each.problem.name == "pending-change"]
        marks = [each for each in wanted if each.problem.name == "no-mark"]
        others = (each for each in wanted if each.problem.name not in ("pending-change", "no-mark"))
        for done in repairer.repair(others, dry_run=dry_run):
            if self._mends_marker(done.finding):
                self._marker = None
            yield done
        if pending and not dry_run:
            with contextlib.suppress(CorruptRecord, FormatTooNew):  # a finding of its own
                self.recover()
        for each in pending:
            left = log is None or log.decision(each.path) is None
            outcome = Outcome.LEFT if left else Outcome.DONE
            yield Repaired(finding=each, outcome=Outcome.PLANNED if dry_run else outcome)
        for each in marks:
            assert each.object is not None
            outcome = Outcome.DONE if dry_run or self._marks.put(each.object) else Outcome.LEFT
            yield Repaired(finding=each, outcome=Outcome.PLANNED if dry_run else outcome)

    def recover(self, *, older_than: float = 3600.0) -> tuple[Operation, ...]:
        """Decide the changes that are pending in the log; return them with the decisions that stand.

        Whether a change happened is told by the records, and by what the log has of changes after it;
        one of which neither tells stays pending. All who change the namespace must use this log, and it
        must be compacted by `compact_log` alone.

        Args:
            older_than: only changes begun so many seconds ago: longer than a request may be on its way,
                and than its sender goes on sending it, 900 s (`commitlog.namespace.change.LATEST`). Less
                is safe if nobody changes the namespace meanwhile.

        Raises `ConfigurationError` if the namespace was opened without a log; and `CorruptRecord` or
        `FormatTooNew` for an entry that cannot be read, after all others were decided of which the rest
        tells enough.
        """
        log = self._with_log()
        return Recovery(table=self._table, log=log.log).recover(older_than=older_than)

    def _check_marker(self, *, mended: bool, writing: bool = True) -> None:
        """Make sure that this library knows the format, if there is a marker that tells.

        Args:
            mended: whether the marker is about to be mended, or only looked at: then it may be damaged.
            writing: whether the namespace is going to be changed.
        """
        item = self._table.get(self._keys.marker)
        if item is not None and not mended:
            self.check(writing=writing)
        elif item is not None:
            with contextlib.suppress(CorruptRecord):
                Marker.from_item(item).check(writing=writing)
                self.check(writing=False)

    def _mends_marker(self, finding: Finding) -> bool:
        """Tell whether a finding is that the marker is damaged, and the log at hand can be its own."""
        rows = [item for item in finding.records if item["place"] == MARKERS]
        if not rows or finding.problem.name == "no-mark":
            return False
        if finding.logged is not None:
            return True
        with contextlib.suppress(CorruptRecord):
            return Marker.from_item(rows[0]).log in (None, self._logged)
        return False

    def _store_reader(self) -> StoreReader:
        # Without a marker nobody knows the mark; what else is wrong is told all the same.
        return StoreReader.of(self._store, None if self._marker is None else self._joint.outside.prove)

    def _with_log(self) -> FencedLog:
        if self._changes.log is None:
            raise ConfigurationError("the namespace was opened without a log: give it one")
        self.check()
        try:
            self._changes.log.check()
        except Fenced:
            if not self._is_renewed():
                raise
            self._changes.log.check()
        return self._changes.log

    def _log_to_compare(self) -> tuple[LogReader | None, tuple[Finding, ...]]:
        """Return what reads the log, if it is that of this table, and the finding that it is not."""
        log = self._changes.log
        if log is None or (self._marker is not None and self._marker.read_only):
            return None, ()
        try:
            log.check()
        except Fenced as error:
            return None, (Finding(problem=PROBLEMS["fenced"], path="", detail=str(error)),)
        return LogReader.of(log.log), ()


def _is_wanted(problem: Problem, only: Collection[str] | None) -> bool:
    return not problem.asked if only is None else problem.name in only
