"""Restore of a namespace's table from the operation log alone.

The log has files and directories with their ids and versions; directory records, guard records and
garbage follow from them. A restore begins a new epoch of the log: from then on the log belongs to the
table that the restore creates, and no other table can change anything. The states are first written into
the log of the new epoch, and from there into the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from attrs import Factory, define, evolve, field, frozen

from commitlog._util.ids import random_id
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    Fenced,
    NotFound,
)
from commitlog.namespace.log.checkpoint import Checkpoint, Checkpoints
from commitlog.namespace.log.entries import LoggedChange, NewestStates, State, parse_changes
from commitlog.namespace.log.epoch import Epochs
from commitlog.namespace.log.inference import Inference
from commitlog.namespace.log.merge import Corrections, Outline
from commitlog.namespace.log.restore_writer import LostFile, RestoreClaim, RestoreWriter
from commitlog.namespace.metadata import Epoch, NamespaceMetadata
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.model.records import Entry
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import ObjectStore, same_etag
from commitlog.tables.api import Table

__all__ = ["RestoreReport", "Restorer"]

#: Number of operations between two progress reports.
_PROGRESS_STEP = 100

#: Maximum number of states held in memory; a longer log is read again for each pass.
_HELD = 10_000

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

    The metadata record is written last: until then, no client finds a namespace. A restore can be
    interrupted at any point, and repeated. Of several concurrent restores, the one that began last
    continues. A table that owned the log before is fenced: its clients get `Fenced` for each change,
    from the start of the new epoch.
    """

    table: Table
    store: ObjectStore
    log: OperationLog
    name: str
    new_id: Callable[[], str] = field(default=random_id, repr=False)
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
            Conflict: another restore began later, and continues; or clients kept changing the log. There
                is no metadata record.
            CorruptRecord: an entry of the log cannot be read. Nothing was written.
        """
        keys = Keys(self.name)
        if not replace and self._exists(keys):
            raise AlreadyExists(
                f"there is a namespace {self.name!r} in {self.table.url}; to replace it with a restore"
                " from the log, use `replace`, or --replace"
            )
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
        epoch: Epoch | None = None
        for _ in range(_TRIES):
            contents = self._read_log(read, salvage=salvage)
            contents.decide_pending(decide)
            metadata = self._metadata(contents, keys)
            corrections = self._merge(contents, keys)
            if read_only:
                break
            if epoch is None:
                epoch = self._epochs.claim(id=self.new_id(), table=self.table.url)
            # The log has everything sent before the claim: decided or pending.
            if self._digest() == (contents.epoch, contents.digest):
                break
        else:
            raise Conflict("the log was changed while it was read: stop all writers, and restore again")
        notify(evolve(report, found=corrections.found, unreadable=tuple(contents.unreadable)))
        decided = contents.decided
        if epoch is None:
            metadata = metadata.of(contents.epoch, read_only=True)
            states = corrections.apply(contents.states())
        else:
            decided = tuple(self._decide(contents, operation) for operation in decided)
            metadata = evolve(metadata.of(epoch), change_id=epoch.id)
            states = self._save(contents, epoch, corrections, metadata)
        claim = RestoreClaim.begin(
            self.table, keys, id=self.new_id(), replace=replace, epoch=metadata.epoch.number
        )
        if replace:
            for removed in claim.remove_all():
                notify(evolve(report, removed=removed))
        notify(evolve(report, decided=decided, epoch=metadata.epoch.number))
        writer = RestoreWriter(table=self.table, store=self.store, keys=keys, claim=claim)
        unreadable: list[Entry] = []
        for written in writer.write(state for state in states if state.item_id != "m"):
            unreadable += written.lost
            notify(
                evolve(
                    report,
                    files=report.files + written.files,
                    directories=report.directories + written.directories,
                    garbage=report.garbage + written.garbage,
                    records=report.records + written.records,
                )
            )
        lost = tuple(writer.lost(unreadable))
        if epoch is not None:
            try:
                self._epochs.check(epoch)
            except Fenced as error:
                raise Conflict(
                    f"another client restores namespace {self.name!r} too, and began later: this call"
                    f" has stopped and left the rest to that client ({error})"
                ) from error
        claim.finish(metadata.to_item())
        notify(evolve(report, records=report.records + 1, lost=lost))
        return report

    def _exists(self, keys: Keys) -> bool:
        try:
            return self.table.get(keys.metadata) is not None
        except CorruptRecord:
            return True

    # contents of the log

    def _read_log(self, read: Callable[[int], object], *, salvage: bool) -> _LogContents:
        """Read the log to restore from."""
        epoch, digest = self._digest()
        log = self._epochs.log_of(epoch)
        contents = _LogContents(
            log=log,
            checkpoints=Checkpoints(log, new_id=self.new_id),
            epoch=epoch,
            digest=digest,
            on_read=read,
            salvage=salvage,
        )
        contents.read()
        return contents

    def _digest(self) -> tuple[Epoch, str]:
        """Return the epoch to restore from, and a digest of the names of its log's entries."""
        epoch = self._epochs.complete(self.new_id)
        log = self._epochs.log_of(epoch)
        digest = hashlib.sha256()
        for name in chain(log.names(), Checkpoints(log, new_id=self.new_id).names()):
            digest.update(f"\n{name}".encode())
        return epoch, digest.hexdigest()

    def _decide(self, contents: _LogContents, operation: Operation) -> Operation:
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

    def _metadata(self, contents: _LogContents, keys: Keys) -> NamespaceMetadata:
        found = contents.metadata
        if found is None:
            found = next((state for state in contents.checkpoint_states() if state.item_id == "m"), None)
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

    def _merge(self, contents: _LogContents, keys: Keys) -> Corrections:
        outline = Outline(keys)
        outline.add_history(contents.history())
        for state in contents.states():
            outline.add(state)
        return outline.merge(contents.states, contents.history, self._has)

    def _has(self, data: Data) -> bool:
        info = self.store.begin_head(data.path)().info
        return info is not None and same_etag(info.etag, data.etag)

    def _save(
        self, contents: _LogContents, epoch: Epoch, corrections: Corrections, metadata: NamespaceMetadata
    ) -> Iterator[State]:
        """Save all restored states in the log of an epoch; return them."""
        checkpoints = Checkpoints(self._epochs.log_of(epoch), new_id=self.new_id)
        metadata_state = State(item_id="m", version=1, item=metadata.to_item(), began=contents.first)
        parts = checkpoints.store_unsorted_parts(
            chain([metadata_state], corrections.apply(contents.states()))
        )
        checkpoints.make_current(parts, after=None)
        return checkpoints.states(parts)


@define(kw_only=True)
class _LogContents:
    """The contents of a log: read once to find the newest states, and again to return them.

    Args:
        log: the log.
        checkpoints: its checkpoints.
        epoch: its epoch.
        digest: digest of the names of its entries, from before it was read.
        on_read: called after each hundred operations.
        salvage: whether to skip parts that cannot be read.
    """

    log: OperationLog
    checkpoints: Checkpoints
    epoch: Epoch
    digest: str
    on_read: Callable[[int], object]
    salvage: bool
    checkpoint: Checkpoint | None = field(default=None, init=False)
    newest: NewestStates = field(factory=NewestStates, init=False)
    metadata: State | None = field(default=None, init=False)
    first: float = field(default=0.0, init=False)
    unreadable: dict[str, None] = field(factory=dict, init=False)
    decided: tuple[Operation, ...] = field(default=(), init=False)
    pending: Inference = field(init=False)
    #: States of operations that were pending, and are decided as committed.
    _more: list[State] = field(factory=list, init=False)
    #: The operations, if there are few enough to hold.
    _held: list[tuple[Operation, LoggedChange]] | None = field(default=None, init=False)

    def read(self) -> None:
        """Read the log once."""
        self.pending = Inference.of(
            operation
            for operation, _ in parse_changes(self.log.pending(unreadable=self.refuse), self.refuse)
        )
        try:
            self.checkpoint = self.checkpoints.newest()
        except CorruptRecord as error:
            self.refuse(error)
        for operation, change in self._changes():
            self.pending.forget(operation.id)
            self.first = min(self.first or operation.time, operation.time)
            if operation.decision is Decision.COMMITTED:
                self._add(change)
                self.pending.learn(change)
        if self.pending.changes:
            self.pending.add_states(self._newest())

    def decide_pending(self, decide: Callable[[Operation], Decision] | None) -> None:
        """Decide pending operations. Raises `ConfigurationError` if `decide` is needed and missing."""
        changes = dict(self.pending.changes)
        self.decided = self.pending.decide_pending(decide)
        if self.pending.changes:
            raise ConfigurationError(
                f"the log does not show the outcome of {len(self.pending.changes)} operations, such as"
                f" {next(iter(self.pending.changes.values())).what!r}; decide them (`decide`). Nothing"
                " was written"
            )
        for operation in self.decided:
            if operation.decision is Decision.COMMITTED:
                self._add(changes[operation.id])
                self._more += changes[operation.id].states

    def states(self) -> Iterator[State]:
        """Yield the newest states that have a record, except the metadata record."""
        for state in self._newest():
            kind, _, item_id = state.item_id.partition("/")
            if state.item is None or kind == "m":
                continue
            # When a directory is removed, the log does not get the removal of its tombstones.
            if kind != "t" or not self.newest.is_removed(f"e/{item_id.partition('/')[0]}"):
                yield state

    def history(self) -> Iterator[State]:
        """Yield all states made since the checkpoint, both older and newer ones."""
        for operation, change in self._changes():
            if operation.decision is Decision.COMMITTED:
                yield from change.states
        yield from self._more

    def checkpoint_states(self) -> Iterator[State]:
        """Yield the states of the checkpoint."""
        return self.checkpoints.states(self.checkpoint, unreadable=self.refuse)

    def refuse(self, error: CommitError) -> None:
        """Skip an unreadable part with `salvage`; otherwise raise the error."""
        if not isinstance(error, CorruptRecord):
            raise error
        if not self.salvage:
            raise CorruptRecord(
                f"{error}. To restore the rest of the log, skip it (`salvage`, or --salvage)"
            ) from error
        self.unreadable[str(error)] = None

    def _newest(self) -> Iterator[State]:
        return self.newest.select(self.checkpoint_states(), self.history())

    def _add(self, change: LoggedChange) -> None:
        self.newest.add(change.states)
        for state in change.states:
            if state.item_id == "m" and state.supersedes(self.metadata):
                self.metadata = state

    def _changes(self) -> Iterator[tuple[Operation, LoggedChange]]:
        if self._held is not None:
            yield from self._held
            return
        held: list[tuple[Operation, LoggedChange]] | None = []
        states = 0
        operations = _counted(self.log.history(unreadable=self.refuse), self.on_read)
        for found in parse_changes(operations, self.refuse):
            states += len(found[1].states)
            if held is not None and states <= _HELD:
                held.append(found)
            else:
                held = None
            yield found
        self._held = held


def _rolled_back(operation: Operation) -> Decision:
    return Decision.ROLLED_BACK


def _counted(operations: Iterable[Operation], read: Callable[[int], object]) -> Iterator[Operation]:
    """Yield operations, and report progress after every hundred."""
    number = 0
    for number, operation in enumerate(operations, 1):
        yield operation
        if number % _PROGRESS_STEP == 0:
            read(_PROGRESS_STEP)
    read(number % _PROGRESS_STEP)
