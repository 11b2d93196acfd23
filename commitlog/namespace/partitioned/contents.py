"""The contents of a log in partitions, for a restore: see `commitlog.namespace.log.contents`.

The log is divided into ranges of time, and its checkpoint into parts. Each task reads one of them. The
states are then grouped by item, of which the newest counts; by directory, for names, shards and
tombstones; and by object. The driver holds pending operations, and what keeps the states from being one
tree, but no state of a sound item.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen

from commitlog.errors import CommitError
from commitlog.namespace.log.checkpoint import Checkpoint, NamespaceCheckpoints, part_count
from commitlog.namespace.log.contents import LogContents, digest_of_names, skipped
from commitlog.namespace.log.entries import ItemState, LoggedChange, parse_changes, rank_of
from commitlog.namespace.log.epoch import Epochs
from commitlog.namespace.log.inference import CommittedFacts
from commitlog.namespace.log.merge import (
    Corrections,
    MergeConflicts,
    cycles_of,
    find_lost_and_found,
    hash_of_slot,
    is_narrow,
    overwritten_file,
    version_hash,
)
from commitlog.namespace.log.restore_writer import LostFile, RestoreClaim, RestoreWriter, WriteReport
from commitlog.namespace.metadata import Epoch
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import (
    LOST_AND_FOUND,
    ROOT,
    TOP,
    TRASH,
    Keys,
    hash_of,
    parse_hash_key,
)
from commitlog.namespace.model.records import Entry, Garbage, Shards
from commitlog.namespace.partitioned.cycles import Edge, edges_of_cycles
from commitlog.namespace.partitioned.dataset import Dataset, Engine, Keyed, OpenAccess
from commitlog.oplog import Decision, Operation
from commitlog.oplog.record_directory import NameRange
from commitlog.tables.api import Check, Item, Table

__all__ = [
    "PartitionedLog",
    "RangeFacts",
    "ReadLog",
    "SourcedState",
    "facts_alone",
    "newest_states",
    "parts_and_ranges",
    "sourced",
    "state_of",
    "states_alone",
    "store_states",
]

#: Number of ranges of the log for each partition: operations are not spread evenly over time.
_RANGES = 4

#: Where a state is: 0 in the checkpoint, 1 and the id in an operation, 2 and a number in one of the
#: pending operations that were decided as committed. Of equal states the one with the lowest counts.
Source: TypeAlias = tuple[int, str]

_CHECKPOINT, _LOGGED, _DECIDED = 0, 1, 2

#: A range of the operations, or numbers of parts of the checkpoint.
LogPart: TypeAlias = NameRange | tuple[int, ...]


#: A state, and where it was read: the fields of the state in their order, then the source. Like all that
#: is kept or grouped, it has built-in types alone: they are packed in a fifth of the time of others.
SourcedState: TypeAlias = tuple[str, int, Item | None, float, Source]


def sourced(state: ItemState, source: Source) -> SourcedState:
    """Return a state with its source."""
    return state.item_id, state.version, state.item, state.began, source


def state_of(sourced: SourcedState) -> ItemState:
    """Return a state without its source."""
    item_id, version, item, began, _ = sourced
    return ItemState(item_id=item_id, version=version, item=item, began=began)


@define
class RangeFacts:
    """What a task has learned from its part of the log; can be merged with that of other parts.

    Attributes:
        facts: facts about the subjects of pending changes.
        decided: ids of decided operations that were listed as pending.
        operations, states: number of operations, and of states in them and in the checkpoint.
        first: epoch second at which the first operation began; 0 if there is none.
        metadata, last_metadata: the newest metadata record in a change, and the one read last.
        checkpoint_metadata: the metadata record in the checkpoint.
        unreadable: errors of entries and parts that were skipped.
    """

    facts: CommittedFacts
    decided: set[str] = field(factory=set)
    operations: int = 0
    states: int = 0
    first: float = 0.0
    metadata: ItemState | None = None
    last_metadata: ItemState | None = None
    checkpoint_metadata: ItemState | None = None
    unreadable: dict[str, None] = field(factory=dict)


@frozen(kw_only=True)
class ReadLog:
    """Reads parts of a log, as a task. Yields `SourcedState`, and `RangeFacts` at the end of each part.

    Args:
        open_access: opens the log.
        epoch: epoch of the log.
        checkpoint: its checkpoint.
        skip: returns the text of the error of a part that is skipped, or raises the error.
        subjects: the subjects of pending changes, without facts.
        pending: ids of the operations that were listed as pending.
    """

    open_access: OpenAccess
    epoch: Epoch
    checkpoint: Checkpoint | None
    skip: Callable[[CommitError], str]
    subjects: CommittedFacts
    pending: frozenset[str]

    def __call__(self, parts: Iterator[LogPart]) -> Iterator[SourcedState | RangeFacts]:
        """Read the parts."""
        with self.open_access() as access:
            log = Epochs(access.log).log_of(self.epoch)
            for part in parts:
                learned = RangeFacts(self.subjects.copy_subjects())

                def refuse(error: CommitError, learned: RangeFacts = learned) -> None:
                    learned.unreadable[self.skip(error)] = None

                if isinstance(part, NameRange):
                    yield from self._operations(
                        log.history(within=part, unreadable=refuse), learned, refuse
                    )
                else:
                    checkpoints = NamespaceCheckpoints(log, new_id=str)
                    for state in checkpoints.states(self.checkpoint, parts=part, unreadable=refuse):
                        learned.states += 1
                        if state.item_id == "m":
                            learned.checkpoint_metadata = state
                        else:
                            yield sourced(state, (_CHECKPOINT, ""))
                yield learned

    def _operations(
        self,
        operations: Iterable[Operation],
        learned: RangeFacts,
        refuse: Callable[[CommitError], object],
    ) -> Iterator[SourcedState]:
        for operation, change in parse_changes(operations, refuse):
            learned.operations += 1
            learned.first = min(learned.first or operation.time, operation.time)
            if operation.id in self.pending:
                learned.decided.add(operation.id)
            if operation.decision is not Decision.COMMITTED:
                continue
            learned.facts.learn(change)
            for state in change.states:
                learned.states += 1
                if state.item_id != "m":
                    yield sourced(state, (_LOGGED, operation.id))
                    continue
                learned.last_metadata = state
                if state.supersedes(learned.metadata):
                    learned.metadata = state


@define(kw_only=True)
class PartitionedLog(LogContents):
    """The contents of a log in the partitions of an engine.

    Args:
        engine: divides the work.
        open_access: opens table, store and log in a task.
    """

    engine: Engine
    open_access: OpenAccess
    _found: tuple[str, ...] = field(default=(), init=False)
    _ranges: tuple[NameRange, ...] = field(default=(), init=False)
    _logged: Dataset[SourcedState] = field(init=False)
    _states: Dataset[ItemState] = field(init=False)
    _checkpoint_metadata: ItemState | None = field(default=None, init=False)
    _more: list[SourcedState] = field(factory=list, init=False)
    #: Epoch and checkpoint with the corrected states.
    _saved: tuple[Epoch, Checkpoint] | None = field(default=None, init=False)

    @classmethod
    def of(
        cls,
        engine: Engine,
        open_access: OpenAccess,
        epochs: Epochs,
        new_id: Callable[[], str],
        on_read: Callable[[int], object],
        salvage: bool,
    ) -> PartitionedLog:
        """Return the contents of the newest complete epoch of a log; see `LogContents`."""
        contents = cls(
            engine=engine,
            open_access=open_access,
            epochs=epochs,
            new_id=new_id,
            on_read=on_read,
            salvage=salvage,
        )
        contents.read()
        return contents

    def digest(self) -> str:
        """See `LogContents.digest`."""
        self._ranges = self._ranges or self.log.ranges(_RANGES * self.engine.partitions)
        call = _DigestNames(open_access=self.open_access, epoch=self.epoch)
        digests = self.engine.distribute(self._ranges).map(call).collect()
        return digest_of_names(chain(self.log.pending_names(), digests, self.checkpoints.names()))

    def read_changes(self) -> None:
        """See `LogContents.read_changes`."""
        call = ReadLog(
            open_access=self.open_access,
            epoch=self.epoch,
            checkpoint=self.checkpoint,
            skip=partial(skipped, salvage=self.salvage),
            subjects=self.pending.facts.copy_subjects(),
            pending=frozenset(self.pending.changes),
        )
        parts = parts_and_ranges(self.checkpoint, self._ranges, self.engine.partitions)
        with self.engine.counting("reading the log") as counter:
            read = self.engine.distribute(parts).map(call).map(counter.count).keep()
            found = read.map(facts_alone).collect()
        for learned in found:
            self.on_read(learned.operations)
            self.first = min(self.first or learned.first, learned.first or self.first)
            self.unreadable.update(learned.unreadable)
            self.learn_metadata([] if learned.metadata is None else [learned.metadata])
            self._checkpoint_metadata = self._checkpoint_metadata or learned.checkpoint_metadata
            for id in learned.decided:
                self.pending.forget(id)
            self.pending.facts.merge(learned.facts)
        self._logged = read.map(states_alone)
        if self.pending.changes:
            self._learn_states(self.pending.facts)

    def add(self, operation: Operation, change: LoggedChange) -> None:
        """See `LogContents.add`."""
        self.learn_metadata(change.states)
        for state in change.states:
            if state.item_id != "m":
                self._more.append(sourced(state, (_DECIDED, f"{len(self._more):012d}")))

    def checkpoint_metadata(self) -> ItemState | None:
        """See `LogContents.checkpoint_metadata`."""
        return self._checkpoint_metadata

    def merge(self, keys: Keys, exists: Callable[[Data], bool]) -> None:
        """See `LogContents.merge`."""
        history = self._logged.union(self.engine.distribute([tuple(self._more)]).map(_each))
        newest = newest_states(history).keep()
        outline = newest.map(_outline).keep()
        tops = self.engine.distribute([(f"d/{id}", _EXPECTED, "expected") for id in (ROOT, TRASH)])
        grouped = outline.map(_by_subject).union(tops).group(_of_subject).keep()
        live = newest.map(_live_states).union(grouped.map(_newest_states))
        conflicts = self._conflicts(keys, outline, grouped)
        corrections = Corrections()
        if conflicts:
            concerned = live.map(partial(filter, conflicts.concern)).collect()
            overwritten = self._overwritten_files(history, live, conflicts.written)
            corrections = conflicts.corrections(keys, concerned, overwritten, exists)
        self._found = corrections.found
        self._states = live.map(partial(_uncorrected, corrections)).union(
            self.engine.distribute([tuple(corrections.states.values())]).map(_each)
        )

    @property
    def found(self) -> tuple[str, ...]:
        """See `LogContents.found`."""
        return self._found

    def save(self, epoch: Epoch, metadata: ItemState) -> None:
        """See `LogContents.save`."""
        states = self._states.union(self.engine.distribute([metadata]))
        with self.engine.counting("writing the log") as counter:
            counted = states.map(counter.count)
            saved = store_states(counted, self.open_access, epoch, self.new_id())
        checkpoints = NamespaceCheckpoints(self.epochs.log_of(epoch), new_id=self.new_id)
        checkpoints.make_current(saved, after=None)
        self._saved = epoch, saved

    def write(
        self, writer: RestoreWriter, notify: Callable[[WriteReport], object]
    ) -> tuple[LostFile, ...]:
        """See `LogContents.write`."""
        states = self._states
        if self._saved is not None:
            epoch, saved = self._saved
            call = _ReadParts(open_access=self.open_access, epoch=epoch, saved=saved)
            states = self.engine.distribute(_part_groups(saved, _RANGES * self.engine.partitions)).map(
                call
            )
        access = _WriterAccess(self.open_access, writer.keys, writer.claim.precondition)
        with self.engine.counting("writing the table", self._number_of_states) as counter:
            written = states.map(counter.count).map(partial(_write, access)).keep()
            reports = written.map(_reports_alone).collect()
        for report in reports:
            notify(report)
        return tuple(written.map(partial(_describe_lost, access)).collect())

    def remove_all(self, writer: RestoreWriter) -> Iterator[int]:
        """See `LogContents.remove_all`."""
        claim = writer.claim
        access = _WriterAccess(self.open_access, writer.keys, claim.precondition, claim.removal)
        count = _RANGES * self.engine.partitions
        segments = [(number, count) for number in range(count)]
        yield sum(self.engine.distribute(segments).map(partial(_remove, access)).collect())

    # inside

    def _number_of_states(self) -> int | None:
        return None if self._saved is None else self._saved[1].states

    def _learn_states(self, facts: CommittedFacts) -> None:
        """Learn from the newest states of the items of pending changes, and of directories above."""
        known: set[str] = set()
        items = set(self._logged.map(partial(_concerned, facts)).collect())
        while items:
            wanted = self._logged.map(partial(_of_items, frozenset(items)))
            newest = wanted.map(_by_item).group(_newest_of_item).map(_newest_states)
            facts.add_states(newest.collect())
            known |= {item_id.removeprefix("e/") for item_id in items}
            items = {f"e/{id}" for id in facts.missing_parents(known)}

    def _conflicts(self, keys: Keys, outline: Dataset[_Fact], grouped: Dataset[_Fact]) -> MergeConflicts:
        found: dict[str, dict[Any, Any]] = {kind: {} for kind in _COLLECTED}
        for dataset in (outline, grouped):
            for kind, subject, value in dataset.map(_collected_alone).collect():
                found[kind][subject] = value
        cycles = edges_of_cycles(outline.map(_edges))
        names = found["named"]
        return MergeConflicts(
            slots=frozenset(found["slot"]),
            unknown=found["unknown"],
            narrow=found["narrow"],
            cycles=frozenset(map(min, cycles_of(cycles))),
            in_use=frozenset(found["in_use"]),
            garbage=frozenset(found["garbage"]),
            written=frozenset(found["written"]),
            lost_and_found=find_lost_and_found(
                keys,
                (
                    (id, ROOT, name, Shards(now=shards[0], first=shards[1]))
                    for id, (name, shards) in names.items()
                    if shards is not None
                ),
                is_taken={name for name, _ in names.values()}.__contains__,
                is_taken_twice=lambda name: hash_of_slot(ROOT, name) in found["slot"],
            ),
            latest=max(found["latest"], default=0.0),
        )

    def _overwritten_files(
        self, history: Dataset[SourcedState], live: Dataset[ItemState], written: frozenset[int]
    ) -> Iterator[Entry]:
        """Yield files of one table that the other has overwritten, and whose content is unreferenced."""
        if not written:
            return
        found: dict[str, Entry] = {}
        for _, entry in sorted(history.map(partial(_overwritten, written)).collect(), key=_source_of):
            assert entry.data is not None
            found[entry.data.path] = entry
        wanted = frozenset(found)
        referenced = {
            *live.map(partial(_referenced, wanted)).collect(),
            *history.map(partial(_garbage_of_history, wanted)).collect(),
        }
        yield from (entry for path, entry in found.items() if path not in referenced)


def parts_and_ranges(
    checkpoint: Checkpoint | None, ranges: Sequence[NameRange], partitions: int
) -> list[LogPart]:
    """Return the parts into which the reading of a log is divided: ranges of operations come first."""
    return [*ranges, *_part_groups(checkpoint, _RANGES * partitions)]


def _part_groups(checkpoint: Checkpoint | None, count: int) -> list[tuple[int, ...]]:
    """Return the numbers of the parts of a checkpoint in groups, in order."""
    parts = 0 if checkpoint is None else checkpoint.parts
    size = max(1, -(-parts // count))
    return [tuple(range(start, min(start + size, parts))) for start in range(0, parts, size)]


# -- reading -------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _DigestNames:
    """Yields a digest of the names of the operations in each range, as a task."""

    open_access: OpenAccess
    epoch: Epoch

    def __call__(self, ranges: Iterator[NameRange]) -> Iterator[str]:
        with self.open_access() as access:
            log = Epochs(access.log).log_of(self.epoch)
            for each in ranges:
                yield digest_of_names(log.decided_names(each))


def _each(groups: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
    return chain.from_iterable(groups)


def facts_alone(read: Iterator[object]) -> Iterator[RangeFacts]:
    """Yield the facts among the results of `ReadLog`."""
    return (each for each in read if isinstance(each, RangeFacts))


def states_alone(read: Iterator[SourcedState | RangeFacts]) -> Iterator[SourcedState]:
    """Yield the states among the results of `ReadLog`."""
    return (each for each in read if not isinstance(each, RangeFacts))


def _concerned(facts: CommittedFacts, states: Iterator[SourcedState]) -> Iterator[str]:
    """Yield the items of which facts need the newest state."""
    yield from {each[0] for each in states if facts.concerns(state_of(each))}


def _of_items(items: Collection[str], states: Iterator[SourcedState]) -> Iterator[SourcedState]:
    return (each for each in states if each[0] in items)


# -- the newest states, and what keeps them from being one tree ----------------------------------------

#: A kind of fact, its subject, and its value:
#:
#: * ``state``: an item, and the other fields of its newest state
#: * ``removed``: the id of a removed file or directory
#: * ``entry``: the directory of an entry, and the shard and name
#: * ``directory``: a directory, and its shards and parent
#: * ``hidden``: the directory of a tombstone, and its state
#: * ``file``, ``listed``: the object of a file, or of garbage, if the namespace wrote it
#: * the kinds of `_COLLECTED`
_Fact: TypeAlias = tuple[str, Any, Any]

#: Kinds of facts that the driver collects: those with the fields of `MergeConflicts`; entries of the
#: root named like the directory for lost ones, with name and shards; and the latest beginning of a
#: change.
_COLLECTED = ("slot", "unknown", "narrow", "in_use", "garbage", "written", "named", "latest")

#: Orders of the facts about a directory: its own state comes first, then its entries, sorted by name.
_SELF, _REMOVED, _EXPECTED, _ENTRY, _HIDDEN = (0, ""), (1, ""), (2, ""), 3, 4


def newest_states(states: Dataset[SourcedState]) -> Dataset[_Fact]:
    """Return the newest state of each item, with what the older ones show."""
    return states.map(_by_item).group(_newest_of_item)


def _by_item(states: Iterator[SourcedState]) -> Iterator[Keyed[SourcedState]]:
    for each in states:
        yield each[0], (-rank_of(state_of(each)), each[-1]), each


def _newest_of_item(item_id: str, states: Iterator[SourcedState]) -> Iterator[_Fact]:
    """Yield the newest state of an item, and the versions that two tables have written."""
    newest = next(states)
    yield "state", item_id, newest[1:4]
    is_entry = item_id.startswith("e/")
    before: int | None = None
    is_first = True
    for each in chain([newest], states):
        _, version, item, _, source = each
        if source[0] == _CHECKPOINT:
            continue
        if is_first and is_entry and item is None:
            yield "removed", item_id.removeprefix("e/"), None
        is_first = False
        if is_entry and item is not None:
            if before == version:
                yield "written", version_hash(state_of(each)), None
            before = version


def _newest_states(facts: Iterator[_Fact]) -> Iterator[ItemState]:
    """Yield the newest states, removals too."""
    for kind, item_id, value in facts:
        if kind == "state":
            version, item, began = value
            yield ItemState(item_id=item_id, version=version, item=item, began=began)


def _live_states(facts: Iterator[_Fact]) -> Iterator[ItemState]:
    """Yield the newest states of entries and garbage that exist."""
    for state in _newest_states(facts):
        if state.item is not None and not state.item_id.startswith("t/"):
            yield state


def _outline(facts: Iterator[_Fact]) -> Iterator[_Fact]:
    """Yield what the newest states show about directories and objects; each is decoded once."""
    latest = 0.0
    for fact in facts:
        kind, item_id, value = fact
        if kind != "state":
            yield fact
            continue
        _, item, began = value
        if item is None:
            continue
        if item_id.startswith("t/"):
            yield "hidden", item_id.removeprefix("t/").partition("/")[0], (item_id, value)
            continue
        latest = max(latest, began)
        if item_id.startswith("x/"):
            data = Garbage.from_item(item).data
            if data.own:
                yield "listed", data.path, None
        elif item_id.startswith("e/"):
            yield from _outline_of_entry(Entry.from_item(item))
    yield "latest", latest, None


def _outline_of_entry(entry: Entry) -> Iterator[_Fact]:
    place, name = parse_hash_key(entry.key.hash), entry.name
    yield "entry", place.id, (place.shard, name)
    shards = (entry.shards.now, entry.shards.first) if entry.is_directory else None
    if shards is not None:
        yield "directory", entry.id, (shards, place.id)
    elif entry.data is not None and entry.data.own:
        yield "file", entry.data.path, None
    if place.id == ROOT and name.startswith(LOST_AND_FOUND):
        yield "named", entry.id, (name, shards)


def _by_subject(facts: Iterator[_Fact]) -> Iterator[Keyed[Any]]:
    """Yield the facts about a directory, or an object, by that."""
    for kind, subject, value in facts:
        match kind:
            case "entry":
                yield f"d/{subject}", (_ENTRY, value[1]), value
            case "file":
                yield f"o/{subject}", 0, False
            case "directory":
                yield f"d/{subject}", _SELF, (value[0],)
            case "listed":
                yield f"o/{subject}", 1, True
            case "removed":
                yield f"d/{subject}", _REMOVED, "removed"
            case "hidden":
                yield f"d/{subject}", (_HIDDEN, value[0]), ("hidden", *value)


def _of_subject(key: str, values: Iterator[Any]) -> Iterator[_Fact]:
    kind, _, subject = key.partition("/")
    return _in_directory(subject, values) if kind == "d" else _of_object(subject, values)


def _in_directory(id: str, values: Iterator[Any]) -> Iterator[_Fact]:
    """Yield the conflicts of the entries of a directory, and its tombstones unless it was removed."""
    shards: Shards | None = None
    removed = expected = False
    highest = -1
    before: str | None = None
    for value in values:
        if value == "removed":
            removed = True
        elif value == "expected":
            expected = True
        elif len(value) == 1:
            [(now, first)] = value
            shards = Shards(now=now, first=first)
        elif value[0] == "hidden":
            _, item_id, state = value
            is_unknown = shards is None and id != TOP and (expected or highest >= 0)
            if not removed and not is_unknown:
                yield "state", item_id, state
                yield "latest", state[-1], None
        else:
            shard, name = value
            highest = max(shard, highest)
            if name == before:
                yield "slot", hash_of_slot(id, name), None
            before = name
    if shards is None and id != TOP and (expected or highest >= 0):
        yield "unknown", id, max(highest, 0)
    if shards is not None and is_narrow(shards, highest):
        yield "narrow", id, highest


def _of_object(path: str, values: Iterator[bool]) -> Iterator[_Fact]:
    first = next(values)
    garbage = int(first) + sum(values)
    if garbage and not first:
        yield "in_use", hash_of(path), None
    if garbage > 1:
        yield "garbage", hash_of(path), None


def _collected_alone(facts: Iterator[_Fact]) -> Iterator[_Fact]:
    return (fact for fact in facts if fact[0] in _COLLECTED)


def _edges(facts: Iterator[_Fact]) -> Iterator[Edge]:
    """Yield the parents of directories."""
    return ((subject, value[1]) for kind, subject, value in facts if kind == "directory")


def _overwritten(
    written: Collection[int], states: Iterator[SourcedState]
) -> Iterator[tuple[Source, Entry]]:
    for each in states:
        source = each[-1]
        entry = None if source[0] == _CHECKPOINT else overwritten_file(state_of(each), written)
        if entry is not None:
            yield source, entry


def _source_of(found: tuple[Source, Entry]) -> Source:
    return found[0]


def _referenced(wanted: Collection[str], states: Iterator[ItemState]) -> Iterator[str]:
    """Yield the wanted objects to which files or garbage refer."""
    for state in states:
        if state.item is None or state.item_id.startswith("t/"):
            continue
        is_garbage = state.item_id.startswith("x/")
        data = (Garbage if is_garbage else Entry).from_item(state.item).data
        if data is not None and data.own and data.path in wanted:
            yield data.path


def _garbage_of_history(wanted: Collection[str], states: Iterator[SourcedState]) -> Iterator[str]:
    for item_id, _, item, _, source in states:
        if item is not None and item_id.startswith("x/") and source[0] != _CHECKPOINT:
            path = Garbage.from_item(item).data.path
            if path in wanted:
                yield path


def _uncorrected(corrections: Corrections, states: Iterator[ItemState]) -> Iterator[ItemState]:
    """Yield the states that stay as they are."""
    return evolve(corrections, states={}).apply(
        state for state in states if state.item_id not in corrections.states
    )


def store_states(
    states: Dataset[ItemState], open_access: OpenAccess, epoch: Epoch, id: str
) -> Checkpoint:
    """Store states in the log of an epoch, as the parts of a checkpoint.

    Args:
        states: the states.
        open_access: opens the log in a task.
        epoch: the epoch.
        id: a unique id for the parts.

    Returns the checkpoint, which is not current yet.
    """
    ordered = states.map(_by_item_id).sort().keep()
    offsets: dict[str, int] = {}
    parts = 0
    for first, number in ordered.map(_count_parts).collect():
        offsets[first] = parts
        parts += number
    call = _StoreParts(open_access=open_access, epoch=epoch, id=id, offsets=offsets)
    total = sum(ordered.map(call).collect())
    return Checkpoint(number=0, id=id, parts=parts, states=total, written=0.0)


# -- saving and writing --------------------------------------------------------------------------------


def _by_item_id(states: Iterator[ItemState]) -> Iterator[Keyed[ItemState]]:
    for state in states:
        yield state.item_id, 0, state


def _values(records: Iterable[Keyed[ItemState]]) -> Iterator[ItemState]:
    return (state for _, _, state in records)


def _count_parts(records: Iterator[Keyed[ItemState]]) -> Iterator[tuple[str, int]]:
    """Yield the first item and the number of parts, unless there are no records."""
    first = next(records, None)
    if first is not None:
        yield first[0], part_count(_values(chain([first], records)))


@frozen(kw_only=True)
class _StoreParts:
    """Stores sorted states as parts of a checkpoint, as a task; yields the number of states.

    Args:
        open_access: opens the log.
        epoch: epoch of the log.
        id: id of the parts.
        offsets: number of the first part of each partition, by the first item of the partition.
    """

    open_access: OpenAccess
    epoch: Epoch
    id: str
    offsets: Mapping[str, int]

    def __call__(self, records: Iterator[Keyed[ItemState]]) -> Iterator[int]:
        first = next(records, None)
        if first is None:
            return
        with self.open_access() as access:
            checkpoints = NamespaceCheckpoints(Epochs(access.log).log_of(self.epoch), new_id=str)
            states = _values(chain([first], records))
            _, total = checkpoints.store_parts_at(self.id, self.offsets[first[0]], states)
        yield total


@frozen(kw_only=True)
class _ReadParts:
    """Reads the states in parts of a checkpoint, as a task."""

    open_access: OpenAccess
    epoch: Epoch
    saved: Checkpoint

    def __call__(self, groups: Iterator[tuple[int, ...]]) -> Iterator[ItemState]:
        with self.open_access() as access:
            checkpoints = NamespaceCheckpoints(Epochs(access.log).log_of(self.epoch), new_id=str)
            yield from checkpoints.states(self.saved, parts=_each(groups))


@frozen
class _WriterAccess:
    """Opens a writer of restored records in a task."""

    open_access: OpenAccess
    keys: Keys
    precondition: Check
    removal: Check | None = None

    def claim(self, table: Table) -> RestoreClaim:
        """Return the claim of the restore, for the requests of a task."""
        return RestoreClaim(
            table=table, keys=self.keys, precondition=self.precondition, removal=self.removal
        )


def _write(access: _WriterAccess, states: Iterator[ItemState]) -> Iterator[WriteReport | Entry]:
    """Write the records of states; yield a report, and the files that may have lost their content."""
    total = WriteReport(files=0, directories=0, garbage=0, records=0, lost=())
    with access.open_access() as parts:
        claim = access.claim(parts.table)
        writer = RestoreWriter(table=parts.table, store=parts.store, keys=access.keys, claim=claim)
        for group in writer.write(state for state in states if state.item_id != "m"):
            yield from group.lost
            total += evolve(group, lost=())
    yield total


def _reports_alone(written: Iterator[WriteReport | Entry]) -> Iterator[WriteReport]:
    return (each for each in written if isinstance(each, WriteReport))


def _describe_lost(access: _WriterAccess, written: Iterator[WriteReport | Entry]) -> Iterator[LostFile]:
    entries = (each for each in written if isinstance(each, Entry))
    first = next(entries, None)
    if first is None:
        return
    with access.open_access() as parts:
        claim = access.claim(parts.table)
        writer = RestoreWriter(table=parts.table, store=parts.store, keys=access.keys, claim=claim)
        yield from writer.lost(chain([first], entries))


def _remove(access: _WriterAccess, segments: Iterator[tuple[int, int]]) -> Iterator[int]:
    """Remove the records of the namespace in segments of the table; yield their number."""
    with access.open_access() as parts:
        claim = access.claim(parts.table)
        for segment, count in segments:
            yield max(claim.remove_all(segment=segment, segments=count), default=0)
