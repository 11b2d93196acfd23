"""Restore of a namespace's table from the operation log alone.

The log has files and directories with their ids and versions; directory records, guard records and
garbage follow from them. A restore begins a new epoch of the log: from then on the log belongs to the
table that the restore creates, and no other table can change anything. The states are first written into
the log of the new epoch, and from there into the table.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import Factory, evolve, field, frozen

from commitlog._util.ids import random_id
from commitlog.errors import (
    AlreadyExists,
    Conflict,
    CorruptRecord,
    Fenced,
    NotFound,
)
from commitlog.namespace.log.contents import LogContents, ReadContents, WholeLog
from commitlog.namespace.log.entries import ItemState
from commitlog.namespace.log.epoch import Epochs
from commitlog.namespace.log.restore_writer import (
    LostFile,
    RestoreClaim,
    RestoreWriter,
    WriteReport,
)
from commitlog.namespace.metadata import Epoch, NamespaceMetadata
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import Keys
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import ObjectStore, same_etag
from commitlog.tables.api import Absent, Check, Equals, Table

__all__ = ["RestoreReport", "Restorer"]

#: Maximum number of attempts to read the log while others change it.
_TRIES = 3


@frozen(kw_only=True)
class RestoreReport:
    """The result of a restore.

    Attributes:
        files, directories: number of restored files and directories, including those in the trash.
        garbage: number of pieces of garbage.
        records: number of items written to the table; existing ones do not count.
        removed: number of items that were first removed from the table.
        operations: number of operations read from the log; a long log is read four times.
        lost: files whose content cannot be read.
        found: ids of entries that moved into ``lost+found``, because they had no place or another entry
            had it: two tables had written the log, or entries of it are missing.
        unreadable: errors of parts of the log that could not be read, and were skipped (`salvage`).
        decided: operations that were pending, with their decisions.
        epoch: the log's new epoch; for a read-only copy, the epoch from which it was read.
    """

    files: int = 0
    directories: int = 0
    garbage: int = 0
    records: int = 0
    removed: int = 0
    operations: int = 0
    lost: tuple[LostFile, ...] = ()
    found: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    decided: tuple[Operation, ...] = ()
    epoch: int = 0


@frozen(kw_only=True)
class Restorer:
    """A restorer of the table of one namespace.

    Args:
        table: the existing table to write; it has no records of the namespace, or only restored ones.
        store: has the content; it is read, never written.
        log: log of the namespace as it was created: that of the first epoch.
        name: name of the namespace.
        new_id: returns unique ids.
        read_contents: reads the log; by default in this process.

    The metadata record is written last: until then, no client finds a namespace. A restore can be
    interrupted at any point, and repeated. Of several concurrent restores, at most one completes: a
    restore claims the table and the next epoch of the log, unless another one has done so since it
    began. So a restore that is suspended for a while harms no namespace that was restored meanwhile.
    A table that owned the log before is fenced: its clients get `Fenced` for each change, from the start
    of the new epoch.
    """

    table: Table
    store: ObjectStore
    log: OperationLog
    name: str
    new_id: Callable[[], str] = field(default=random_id, repr=False)
    read_contents: ReadContents = field(default=WholeLog.of, repr=False)
    _epochs: Epochs = field(
        init=False, repr=False, eq=False, default=Factory(lambda self: Epochs(self.log), takes_self=True)
    )

    def undecided(self) -> tuple[Operation, ...]:
        """Return the pending operations whose outcome the log does not show.

        They were running when the table was lost, or their clients had died before.
        """
        contents = self._read_log(lambda operations: None, salvage=True)
        pending = contents.pending
        pending.decide_pending(None)
        return tuple(pending.operations[id] for id in pending.changes)

    def restore(
        self,
        *,
        decide: Callable[[Operation], Decision] | None = None,
        replace: bool = False,
        read_only: bool = False,
        salvage: bool = False,
        progress: Callable[[RestoreReport], object] | None = None,
    ) -> RestoreReport:
        """Write all records of the namespace; return a report.

        Args:
            decide: decides operations whose outcome the log does not show, the newest first. Both
                answers leave a consistent namespace. A client that got the answer "success" has seen the
                operation committed. So it is best to roll back operations for which no client got an
                answer: then they have not happened, and can be repeated.
            replace: first remove the namespace's records from the table. Nothing is removed before the
                whole log was read, decoded, and saved in the log of the new epoch, and before the table
                accepted a write and a scan.
            read_only: make a read-only copy of the current states, such as for a drill. The log is not
                written, the table that owns it is not fenced, and no client can change the copy. Other
                clients may go on working. Undecided operations are left out unless `decide` says
                otherwise.
            salvage: skip parts of the log that cannot be read, and report them
                (`RestoreReport.unreadable`).
            progress: called from time to time with the report so far.

        Raises:
            NotFound: the log does not have this namespace.
            TableNotFound: the table does not exist.
            AlreadyExists: the table has the namespace, or records that differ from the log. Nothing was
                removed.
            ConfigurationError: `decide` is needed; see `undecided`. Nothing was written.
            Conflict: another restore has claimed the table or the log, and continues or has ended; or
                clients kept changing the log.
            CorruptRecord: an entry of the log cannot be read. Nothing was written.
        """
        keys = Keys(self.name)
        newest = self._epochs.newest()  # first: a restore that ends from now on has claimed a later one
        unless = self._metadata_as_found(keys, replace=replace)
        RestoreClaim.check(self.table, keys, replace=replace)
        report = RestoreReport()

        def notify(now: RestoreReport) -> None:
            nonlocal report
            report = now
            if progress is not None:
                progress(now)

        def read(operations: int) -> None:
            notify(evolve(report, operations=report.operations + operations))

        if read_only and decide is None:
            decide = _rolled_back
        claim: RestoreClaim | None = None
        epoch: Epoch | None = None
        for _ in range(_TRIES):
            contents = self._read_log(read, salvage=salvage)
            contents.decide_pending(decide)
            metadata = self._metadata(contents, keys)
            contents.merge(keys, self._has)
            if claim is None:
                self._check_newest(newest)
                claim = RestoreClaim.begin(
                    self.table, keys, id=self.new_id(), replace=replace, unless=unless
                )
            if read_only:
                break
            if epoch is None:
                epoch = self._claim_epoch(claim, newest)
            # The log has everything sent before the claim: decided or pending.
            if contents.is_current():
                break
        else:
            raise Conflict("the log was changed while it was read: stop all writers, and restore again")
        notify(evolve(report, found=contents.found, unreadable=tuple(sorted(contents.unreadable))))
        decided = contents.decided
        if epoch is None:
            metadata = metadata.of(contents.epoch, read_only=True)
        else:
            decided = tuple(self._decide(contents, operation) for operation in decided)
            metadata = evolve(metadata.of(epoch), change_id=epoch.id)
            item = metadata.to_item()
            contents.save(epoch, ItemState(item_id="m", version=1, item=item, began=contents.first))
        writer = RestoreWriter(table=self.table, store=self.store, keys=keys, claim=claim)
        if replace:
            claim.remove_metadata()
            for removed in contents.remove_all(writer):
                notify(evolve(report, removed=removed))
            claim.end_removal()
        notify(evolve(report, decided=decided, epoch=metadata.epoch.number))

        def written(group: WriteReport) -> None:
            notify(
                evolve(
                    report,
                    files=report.files + group.files,
                    directories=report.directories + group.directories,
                    garbage=report.garbage + group.garbage,
                    records=report.records + group.records,
                )
            )

        lost = contents.write(writer, written)
        if epoch is not None:
            self._check_newest(epoch)
        claim.finish(metadata.to_item())
        notify(evolve(report, records=report.records + 1, lost=lost))
        return report

    def _metadata_as_found(self, keys: Keys, *, replace: bool) -> tuple[Check, ...]:
        """Return the check that the metadata record is as it was found; none if it cannot be read.

        Raises `AlreadyExists` if there is one, and it is not to be replaced.
        """
        try:
            found = self.table.get(keys.metadata)
        except CorruptRecord:
            checks: tuple[Check, ...] = ()
        else:
            as_found = Absent() if found is None else Equals("body", found["body"])
            checks = (Check(keys.metadata, as_found),)
            if found is None:
                return checks
        if not replace:
            raise AlreadyExists(
                f"there is a namespace {self.name!r} in {self.table.url}; to replace it with a restore"
                " from the log, use `replace`, or --replace"
            )
        return checks

    def _check_newest(self, epoch: Epoch) -> None:
        try:
            self._epochs.check(epoch)
        except Fenced as error:
            raise Conflict(
                f"another client restores namespace {self.name!r} too, or has done so meanwhile: this"
                f" call has stopped and left the rest to that client ({error})"
            ) from error

    def _claim_epoch(self, claim: RestoreClaim, newest: Epoch) -> Epoch:
        try:
            return self._epochs.claim(id=self.new_id(), table=self.table.url, after=newest)
        except Conflict:
            claim.withdraw()
            raise

    # contents of the log

    def _read_log(self, read: Callable[[int], object], *, salvage: bool) -> LogContents:
        """Read the log to restore from; read it again if it was compacted meanwhile."""
        for number in range(_TRIES):
            try:
                contents = self.read_contents(self._epochs, self.new_id, read, salvage)
            except NotFound:  # a newer checkpoint has replaced the one that was read
                if number == _TRIES - 1:
                    raise
                continue
            if contents.is_whole():
                return contents
        raise Conflict("the log was compacted again and again while it was read; try again later")

    def _decide(self, contents: LogContents, operation: Operation) -> Operation:
        assert operation.decision is not None
        try:
            stands = contents.log.decide(operation, operation.decision)
        except CorruptRecord as error:
            contents.refuse(error)
            return operation
        if stands is not operation.decision:
            raise AlreadyExists(
                f"another client decided operation {operation.id} as {stands.value}: the namespace is"
                " being changed, or restored. Try again when that has ended"
            )
        return operation

    def _metadata(self, contents: LogContents, keys: Keys) -> NamespaceMetadata:
        found = contents.metadata
        if found is None:
            found = contents.checkpoint_metadata()
        if found is not None and found.item is not None and found.item["name"] == self.name:
            metadata = NamespaceMetadata.from_item(found.item)
            metadata.check(writing=True)
            return metadata
        if not contents.unreadable or found is not None:
            raise NotFound(f"the log at {self.log.prefix!r} does not have a namespace {self.name!r}")
        return NamespaceMetadata(  # its entry is one of the unreadable ones
            key=keys.metadata,
            store=self.store.url,
            log=self.log.prefix,
            created=int(contents.first * 1000),
            change_id=self.new_id(),
        )

    def _has(self, data: Data) -> bool:
        info = self.store.begin_head(data.path)().info
        return info is not None and same_etag(info.etag, data.etag)


def _rolled_back(operation: Operation) -> Decision:
    return Decision.ROLLED_BACK
