"""The contents of a log, as a restore reads, decides, merges and writes them.

`LogContents` is the port. `WholeLog` does everything in one process; the contents that
`commitlog.namespace.partitioned` reads are spread over the processes of a cluster.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from attrs import define, field

from commitlog.errors import CommitError, ConfigurationError, CorruptRecord
from commitlog.namespace.log.checkpoint import Checkpoint, NamespaceCheckpoints
from commitlog.namespace.log.entries import ItemState, LoggedChange, NewestStates, parse_changes
from commitlog.namespace.log.epoch import Epochs
from commitlog.namespace.log.inference import Inference
from commitlog.namespace.log.merge import Corrections, Outline
from commitlog.namespace.log.restore_writer import LostFile, RestoreWriter, WriteReport
from commitlog.namespace.metadata import Epoch
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.model.records import Entry
from commitlog.oplog import Decision, Operation, OperationLog

__all__ = ["LogContents", "ReadContents", "WholeLog", "digest_of_names", "skipped"]

#: Number of operations between two progress reports.
_PROGRESS_STEP = 100

#: Maximum number of states held in memory; a longer log is read again for each pass.
_HELD = 10_000


@define(kw_only=True)
class LogContents(abc.ABC):
    """The contents of a log, in the order of a restore: read, decided, merged, saved and written.

    Args:
        epochs: the epochs of the log.
        new_id: returns unique ids.
        on_read: called from time to time with the number of operations that were read.
        salvage: whether to skip parts that cannot be read.

    Attributes:
        epoch: the epoch whose log was read.
        metadata: the newest metadata record in a change; None if no change has written it.
        first: epoch second at which the first operation of the log began; 0 if there is none.
        unreadable: the errors of parts that were skipped.
        decided: operations that were pending, with the decisions of `decide_pending`.
        pending: operations that are pending, until they are decided.
    """

    epochs: Epochs
    new_id: Callable[[], str]
    on_read: Callable[[int], object]
    salvage: bool
    epoch: Epoch = field(init=False)
    log: OperationLog = field(init=False)
    checkpoints: NamespaceCheckpoints = field(init=False)
    checkpoint: Checkpoint | None = field(default=None, init=False)
    metadata: ItemState | None = field(default=None, init=False)
    first: float = field(default=0.0, init=False)
    unreadable: dict[str, None] = field(factory=dict, init=False)
    decided: tuple[Operation, ...] = field(default=(), init=False)
    pending: Inference = field(init=False)
    _digest: str = field(default="", init=False)
    #: Name of the newest checkpoint before the log was read; "" without one.
    _newest_name: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.epoch = self.epochs.complete(self.new_id)
        self.log = self.epochs.log_of(self.epoch)
        self.checkpoints = NamespaceCheckpoints(self.log, new_id=self.new_id)
        self._digest = self.digest()

    def read(self) -> None:
        """Read the log once. Raises the errors of parts that cannot be read; see `refuse`."""
        self._newest_name = self.checkpoints.newest_name()
        self.pending = Inference.of(
            operation
            for operation, _ in parse_changes(self.log.pending(unreadable=self.refuse), self.refuse)
        )
        try:
            self.checkpoint = self.checkpoints.newest()
        except CorruptRecord as error:
            self.refuse(error)
        self.read_changes()

    def is_current(self) -> bool:
        """Return whether the log still has the entries that it had before it was read."""
        return self.epochs.complete(self.new_id) == self.epoch and self.digest() == self._digest

    def is_whole(self) -> bool:
        """Return whether each entry was read, or is in the checkpoint that was read.

        Otherwise another client has compacted the log meanwhile: it may have removed entries before they
        were read, and they are in a newer checkpoint only.
        """
        return self.checkpoints.newest_name() == self._newest_name

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
                self.add(operation, changes[operation.id])

    def learn_metadata(self, states: Iterable[ItemState]) -> None:
        """Keep the metadata record in the states of a committed change, unless one is known."""
        for state in states:
            if state.item_id == "m" and state.supersedes(self.metadata):
                self.metadata = state

    def refuse(self, error: CommitError) -> None:
        """Skip an unreadable part with `salvage`; otherwise raise the error."""
        self.unreadable[skipped(error, salvage=self.salvage)] = None

    # parts that depend on where the states are

    @abc.abstractmethod
    def digest(self) -> str:
        """Return a digest of the names of the entries of the log, as they are now."""

    @abc.abstractmethod
    def read_changes(self) -> None:
        """Read the decided operations, and learn facts from them and from the checkpoint."""

    @abc.abstractmethod
    def add(self, operation: Operation, change: LoggedChange) -> None:
        """Add the states of an operation that was pending, and is decided as committed."""

    @abc.abstractmethod
    def checkpoint_metadata(self) -> ItemState | None:
        """Return the metadata record in the checkpoint."""

    @abc.abstractmethod
    def merge(self, keys: Keys, exists: Callable[[Data], bool]) -> None:
        """Correct the newest states, so that they are one tree.

        Args:
            keys: keys of the namespace.
            exists: returns whether the store has the content of a file.
        """

    @property
    @abc.abstractmethod
    def found(self) -> tuple[str, ...]:
        """Ids of the entries that `merge` has moved into lost+found."""

    @abc.abstractmethod
    def save(self, epoch: Epoch, metadata: ItemState) -> None:
        """Save the metadata and the corrected states as the first checkpoint of the log of an epoch."""

    @abc.abstractmethod
    def write(
        self, writer: RestoreWriter, notify: Callable[[WriteReport], object]
    ) -> tuple[LostFile, ...]:
        """Write the records of the corrected states; return the files without content.

        Args:
            writer: the writer of the records.
            notify: called with the report of each group of writes.
        """

    @abc.abstractmethod
    def remove_all(self, writer: RestoreWriter) -> Iterator[int]:
        """Remove all records of the namespace; yield the number removed so far. Raises `Conflict`."""


#: Opens the contents of a log, and reads them: the arguments are those of `LogContents`.
ReadContents = Callable[[Epochs, Callable[[], str], Callable[[int], object], bool], LogContents]


def skipped(error: CommitError, *, salvage: bool) -> str:
    """Return the text of an error of a part that is skipped; raise it unless it can be skipped."""
    if not isinstance(error, CorruptRecord):
        raise error
    if not salvage:
        raise CorruptRecord(
            f"{error}. To restore the rest of the log, skip it (`salvage`, or --salvage)"
        ) from error
    return str(error)


def digest_of_names(names: Iterable[str]) -> str:
    """Return a digest of names, in their order."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"\n{name}".encode())
    return digest.hexdigest()


@define(kw_only=True)
class WholeLog(LogContents):
    """The contents of a log in one process: read once to find the newest states, then to return them."""

    newest: NewestStates = field(factory=NewestStates, init=False)
    _corrections: Corrections = field(factory=Corrections, init=False)
    #: Reads the states that were saved in the log of another epoch.
    _saved: Callable[[], Iterator[ItemState]] | None = field(default=None, init=False)
    #: States of operations that were pending, and are decided as committed.
    _more: list[ItemState] = field(factory=list, init=False)
    #: The operations, if there are few enough to hold.
    _held: list[tuple[Operation, LoggedChange]] | None = field(default=None, init=False)

    @classmethod
    def of(
        cls,
        epochs: Epochs,
        new_id: Callable[[], str],
        on_read: Callable[[int], object],
        salvage: bool,
    ) -> WholeLog:
        """Return the contents of the newest complete epoch of a log; see `LogContents`."""
        contents = cls(epochs=epochs, new_id=new_id, on_read=on_read, salvage=salvage)
        contents.read()
        return contents

    def digest(self) -> str:
        """See `LogContents.digest`."""
        return digest_of_names(chain(self.log.names(), self.checkpoints.names()))

    def read_changes(self) -> None:
        """See `LogContents.read_changes`."""
        for operation, change in self._changes():
            self.pending.forget(operation.id)
            self.first = min(self.first or operation.time, operation.time)
            if operation.decision is Decision.COMMITTED:
                self.newest.add(change.states)
                self.learn_metadata(change.states)
                self.pending.learn(change)
        if self.pending.changes:
            self.pending.add_states(self._newest())

    def add(self, operation: Operation, change: LoggedChange) -> None:
        """See `LogContents.add`."""
        self.newest.add(change.states)
        self.learn_metadata(change.states)
        self._more += change.states

    def checkpoint_metadata(self) -> ItemState | None:
        """See `LogContents.checkpoint_metadata`."""
        return next((state for state in self._checkpoint_states() if state.item_id == "m"), None)

    def merge(self, keys: Keys, exists: Callable[[Data], bool]) -> None:
        """See `LogContents.merge`."""
        outline = Outline(keys)
        outline.add_history(self._history())
        for state in self._states():
            outline.add(state)
        self._corrections = outline.merge(self._states, self._history, exists)

    @property
    def found(self) -> tuple[str, ...]:
        """See `LogContents.found`."""
        return self._corrections.found

    def save(self, epoch: Epoch, metadata: ItemState) -> None:
        """See `LogContents.save`."""
        checkpoints = NamespaceCheckpoints(self.epochs.log_of(epoch), new_id=self.new_id)
        parts = checkpoints.store_unsorted_parts(
            chain([metadata], self._corrections.apply(self._states()))
        )
        checkpoints.make_current(parts, after=None)
        self._saved = lambda: checkpoints.states(parts)

    def write(
        self, writer: RestoreWriter, notify: Callable[[WriteReport], object]
    ) -> tuple[LostFile, ...]:
        """See `LogContents.write`."""
        states = self._corrections.apply(self._states()) if self._saved is None else self._saved()
        unreadable: list[Entry] = []
        for written in writer.write(state for state in states if state.item_id != "m"):
            unreadable += written.lost
            notify(written)
        return tuple(writer.lost(unreadable))

    def remove_all(self, writer: RestoreWriter) -> Iterator[int]:
        """See `LogContents.remove_all`."""
        return writer.claim.remove_all()

    def _states(self) -> Iterator[ItemState]:
        """Yield the newest states that have a record, except the metadata record."""
        for state in self._newest():
            kind, _, item_id = state.item_id.partition("/")
            if state.item is None or kind == "m":
                continue
            # When a directory is removed, the log does not get the removal of its tombstones.
            if kind != "t" or not self.newest.is_removed(f"e/{item_id.partition('/')[0]}"):
                yield state

    def _history(self) -> Iterator[ItemState]:
        """Yield all states made since the checkpoint, both older and newer ones."""
        for operation, change in self._changes():
            if operation.decision is Decision.COMMITTED:
                yield from change.states
        yield from self._more

    def _checkpoint_states(self) -> Iterator[ItemState]:
        return self.checkpoints.states(self.checkpoint, unreadable=self.refuse)

    def _newest(self) -> Iterator[ItemState]:
        return self.newest.select(self._checkpoint_states(), self._history())

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


def _counted(operations: Iterable[Operation], read: Callable[[int], object]) -> Iterator[Operation]:
    """Yield operations, and report progress after every hundred."""
    number = 0
    for number, operation in enumerate(operations, 1):
        yield operation
        if number % _PROGRESS_STEP == 0:
            read(_PROGRESS_STEP)
    read(number % _PROGRESS_STEP)
