"""Checkpoints of a namespace's log, next to its operations.

::

    <log>/checkpoints/<number>.json       the parts of a checkpoint; the highest number is current
    <log>/checkpoint-parts/<id>-<n>.json  states of files, directories and garbage, sorted

A checkpoint becomes current when the record with its number exists. That record is written last, if
absent.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby, islice
from typing import Any

from attrs import evolve, field, frozen

from commitlog.errors import AlreadyExists, CommitError, CorruptRecord, FormatTooNew, NotFound
from commitlog.namespace.log.entries import ItemState, fold, item_from_json
from commitlog.oplog import OperationLog
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.validate import build, count, items, mapping, moment, text
from commitlog.tables.api import Item

__all__ = ["Checkpoint", "NamespaceCheckpoints", "merge_states", "part_count"]

#: Approximate size of a part in bytes, and its maximum number of records.
_PART_BYTES, _PART_RECORDS = 4 * 1024 * 1024, 10_000

#: Number of states sorted in memory at a time, and maximum number of records in a part of a sorted run.
_RUN, _RUN_RECORDS = 20_000, 1000


@frozen(kw_only=True)
class Checkpoint:
    """A checkpoint of a log.

    Attributes:
        number: grows by one with each compaction.
        id: id of its parts.
        parts: number of parts.
        states: number of states.
        written: time of writing in epoch seconds, by the store's clock.
        census: number of the checkpoint whose compaction has counted the operations of the log.
        counted: hashes of the ids of all operations that the log had then, pending or decided.
    """

    number: int
    id: str
    parts: int
    states: int
    written: float
    census: int = 0
    counted: frozenset[int] = field(default=frozenset(), repr=False)


class NamespaceCheckpoints:
    """The checkpoints of one log. Thread-safe.

    Args:
        log: the log.
        new_id: returns unique ids for parts.
    """

    def __init__(self, log: OperationLog, *, new_id: Callable[[], str]) -> None:
        self._records = log.sibling("checkpoints", frozenset({"namespace-checkpoint"}))
        self._parts = log.sibling("checkpoint-parts", frozenset({"namespace-checkpoint-part"}))
        self._new_id = new_id

    def newest(self) -> Checkpoint | None:
        """Return the current checkpoint; None if the log was never compacted."""
        listed = max(self._records.list(), key=lambda listed: listed.name, default=None)
        if listed is None:
            return None
        document = self._records.get(listed.name)
        body = document.body
        return build(
            document,
            lambda: Checkpoint(
                number=count(body["number"]),
                id=text(body["id"]),
                parts=count(body["parts"]),
                states=count(body["states"]),
                written=listed.written,
                census=count(body["census"]),
                counted=_hashes(text(body["counted"])),
            ),
        )

    def newest_name(self) -> str:
        """Return the name of the current checkpoint; "" if the log was never compacted."""
        return max(self.names(), default="")

    def names(self) -> Iterator[str]:
        """Yield the names of the existing checkpoints."""
        yield from (listed.name for listed in self._records.list())

    def states(
        self,
        checkpoint: Checkpoint | None,
        *,
        parts: Iterable[int] | None = None,
        unreadable: Callable[[CommitError], object] | None = None,
    ) -> Iterator[ItemState]:
        """Yield the states of a checkpoint, sorted by `ItemState.item_id`.

        Args:
            checkpoint: the checkpoint; None has no states.
            parts: numbers of the parts to read, in order; by default all.
            unreadable: called with the error of each part that is missing or cannot be read, which is
                skipped; by default the error is raised.

        Raises `NotFound` if a newer checkpoint has replaced it, `CorruptRecord` if a part is missing.
        """
        if checkpoint is None:
            return
        for part in range(checkpoint.parts) if parts is None else parts:
            try:
                states = self._read(checkpoint, part)
            except (CorruptRecord, FormatTooNew) as error:
                if unreadable is None:
                    raise
                unreadable(error)
                continue
            yield from states

    def _read(self, checkpoint: Checkpoint, part: int) -> list[ItemState]:
        name = _part(checkpoint.id, part)
        try:
            document = self._parts.get(name)
        except NotFound as error:
            current = self.newest()
            if current is None or current.id != checkpoint.id:
                raise
            raise CorruptRecord(
                f"{self._parts.path(name)!r} is missing, a part of the log's checkpoint. Restore it"
                " from a backup or an older version of the object"
            ) from error
        return build(document, partial(_states, document))

    def write(
        self,
        states: Iterable[ItemState],
        *,
        after: Checkpoint | None,
        census: int,
        counted: frozenset[int],
    ) -> str:
        """Store a checkpoint of sorted states after `after`, and make it current; return its id.

        `census` and `counted` are those of `Checkpoint`. Raises `AlreadyExists` if another checkpoint
        follows `after`; then this one has no effect.
        """
        written = evolve(self.store_parts(states), census=census, counted=counted)
        self.make_current(written, after=after)
        return written.id

    def store_parts(self, states: Iterable[ItemState], *, most: int | None = None) -> Checkpoint:
        """Store the parts of a checkpoint of sorted states, without making it current.

        Args:
            states: the states.
            most: maximum number of states in a part; by default that of a checkpoint's part.
        """
        id = self._new_id()
        parts = total = 0
        for part in _parted(states, _PART_RECORDS if most is None else most):
            self._parts.add(_part(id, parts), Document("namespace-checkpoint-part", {"states": part}))
            parts += 1
            total += len(part)
        return Checkpoint(number=0, id=id, parts=parts, states=total, written=0.0)

    def store_parts_at(self, id: str, first: int, states: Iterable[ItemState]) -> tuple[int, int]:
        """Store parts of sorted states, as one of several processes that store one checkpoint.

        The call can be repeated with the same arguments: existing parts with the same states stay.

        Args:
            id: id of the parts of the checkpoint.
            first: number of the first of these parts; see `part_count`.
            states: the states.

        Returns the number of parts and of states. Raises `AlreadyExists` if a part has other states.
        """
        parts = total = 0
        for part in _parted(states, _PART_RECORDS):
            self._store_part(
                _part(id, first + parts), Document("namespace-checkpoint-part", {"states": part})
            )
            parts += 1
            total += len(part)
        return parts, total

    def _store_part(self, name: str, document: Document) -> None:
        try:
            self._parts.add(name, document)
        except AlreadyExists:
            if encode(self._parts.get(name)) != encode(document):
                raise

    def store_unsorted_parts(self, states: Iterable[ItemState], *, run: int = _RUN) -> Checkpoint:
        """Store the parts of a checkpoint of unsorted states, one for each item; see `store_parts`.

        At most `run` states are held in memory at a time: more are sorted in several runs, which are
        stored as parts themselves, and then merged.
        """
        runs: list[Checkpoint] = []
        rest = iter(states)
        while batch := sorted(islice(rest, run), key=_of):
            if len(batch) < run and not runs:
                return self.store_parts(batch)
            runs.append(self.store_parts(batch, most=_RUN_RECORDS))
        if not runs:
            return self.store_parts(())
        merged = self.store_parts(heapq.merge(*(self.read_parts(each) for each in runs), key=_of))
        self._parts.remove_all(_part(each.id, part) for each in runs for part in range(each.parts))
        return merged

    def read_parts(self, stored: Checkpoint) -> Iterator[ItemState]:
        """Yield the states of a checkpoint whose parts are stored, and that is not current yet."""
        for part in range(stored.parts):
            document = self._parts.get(_part(stored.id, part))
            yield from build(document, partial(_states, document))

    def make_current(self, stored: Checkpoint, *, after: Checkpoint | None) -> None:
        """Make a checkpoint current whose parts are stored.

        Raises `AlreadyExists` if another checkpoint follows `after`.
        """
        number = 1 if after is None else after.number + 1
        body = {
            "number": number,
            "id": stored.id,
            "parts": stored.parts,
            "states": stored.states,
            "census": stored.census,
            "counted": "".join(f"{each:016x}" for each in sorted(stored.counted)),
        }
        self._records.add(_number(number), Document("namespace-checkpoint", body))

    def prune(self, checkpoint: Checkpoint, *, margin: float) -> None:
        """Remove all earlier checkpoints and unfinished parts.

        Parts of the next checkpoint, which another client may be writing, are kept: a writer that has
        seen `checkpoint` writes younger parts, and one that has not will find its number taken.

        Args:
            checkpoint: the current checkpoint.
            margin: seconds by which removed parts must be older than it.
        """
        kept = f"{checkpoint.id}-"
        self._parts.remove_all(
            listed.name
            for listed in self._parts.list()
            if not listed.name.startswith(kept) and listed.written < checkpoint.written - margin
        )
        current = _number(checkpoint.number)
        self._records.remove_all(listed.name for listed in self._records.list() if listed.name < current)


def part_count(states: Iterable[ItemState]) -> int:
    """Return the number of parts in which `NamespaceCheckpoints.store_parts_at` stores sorted states."""
    return sum(1 for _ in _parted(states, _PART_RECORDS))


def merge_states(states: Iterable[ItemState], changed: Mapping[str, ItemState]) -> Iterator[ItemState]:
    """Yield the newest of sorted states and of other, changed states, sorted."""
    for _, same in groupby(heapq.merge(states, sorted(changed.values(), key=_of), key=_of), key=_of):
        newest: dict[str, ItemState] = {}
        fold(same, newest)
        yield from newest.values()


def _of(state: ItemState) -> str:
    return state.item_id


def _parted(states: Iterable[ItemState], most: int) -> Iterator[list[list[Any]]]:
    part: list[list[Any]] = []
    size = 0
    for state in states:
        part.append([state.item_id, state.version, _shown(state.item), state.began, state.taken])
        body = None if state.item is None else state.item.get("body")
        size += 200 + (len(body) if isinstance(body, bytes) else 0)
        if size >= _PART_BYTES or len(part) == most:
            yield part
            part, size = [], 0
    if part:
        yield part


def _shown(item: Item | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in item.items()}


def _states(document: Document) -> list[ItemState]:
    return [_state(each) for each in items(document.body["states"])]


def _state(fields: object) -> ItemState:
    of, version, item, began, taken = items(fields)
    return ItemState(
        item_id=text(of),
        version=count(version),
        item=None if item is None else item_from_json(mapping(item)),
        began=moment(began),
        taken=count(taken),
    )


def _hashes(digits: str) -> frozenset[int]:
    return frozenset(int(digits[at : at + 16], 16) for at in range(0, len(digits), 16))


def _number(number: int) -> str:
    return f"{number:012d}"


def _part(id: str, part: int) -> str:
    return f"{id}-{part:06d}"
