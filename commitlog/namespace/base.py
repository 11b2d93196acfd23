"""What a namespace's log said before it was compacted: bases, beside the operations of the log.

::

    <log>/base/<number>.json              which parts a base has; the highest number holds
    <log>/base-parts/<word>-<n>.json      states of files, directories and garbage, sorted

A base holds from the moment at which the record with its number is there, which is written last, and if
absent. Imports the ground floor, the operation log, and what entries of the log say.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby, islice
from typing import Any

from attrs import frozen

from commitlog.absence import is_absent
from commitlog.errors import CommitError, CorruptRecord, FormatTooNew, NotFound
from commitlog.namespace.logged import State, fold, item_of
from commitlog.oplog import OperationLog
from commitlog.oplog.codec import Document
from commitlog.oplog.fields import build, count, items, mapping, moment, text
from commitlog.tables.api import Item

__all__ = ["Base", "Bases", "merged"]

#: About how many bytes of records a part has, and how many records at most.
_PART_BYTES, _PART_RECORDS = 4 * 1024 * 1024, 10_000

#: How many states are sorted in memory at a time, and how many a part has of what is sorted so.
_RUN, _RUN_RECORDS = 20_000, 1000


@frozen(kw_only=True)
class Base:
    """Which parts are a base.

    Attributes:
        number: grows by one with each compaction.
        word: names its parts.
        parts: how many there are.
        states: how many they have.
        written: epoch second at which it was written, by the store's clock.
    """

    number: int
    word: str
    parts: int
    states: int
    written: float


class Bases:
    """The bases of one log. Thread-safe.

    Args:
        log: beside which they are.
        words: makes the words that name their parts.
    """

    def __init__(self, log: OperationLog, *, words: Callable[[], str]) -> None:
        self._bases = log.beside("base", frozenset({"namespace-base"}))
        self._parts = log.beside("base-parts", frozenset({"namespace-base-part"}))
        self._words = words

    def newest(self) -> Base | None:
        """Return the base that holds; None if nothing was compacted yet."""
        listed = max(self._bases.list(), key=lambda listed: listed.name, default=None)
        if listed is None:
            return None
        document = self._bases.get(listed.name)
        body = document.body
        return build(
            document,
            lambda: Base(
                number=count(body["number"]),
                word=text(body["word"]),
                parts=count(body["parts"]),
                states=count(body["states"]),
                written=listed.written,
            ),
        )

    def names(self) -> Iterator[str]:
        """Yield the names of the bases that there are."""
        yield from (listed.name for listed in self._bases.list())

    def states(
        self, base: Base | None, *, unreadable: Callable[[CommitError], object] | None = None
    ) -> Iterator[State]:
        """Yield what a base has, sorted by what it is of.

        Args:
            base: that; None has nothing.
            unreadable: is given the error of each part that is missing or cannot be read, which is
                passed over; by default it is raised.

        Raises `NotFound` if a newer base has taken its place, `CorruptRecord` if a part is missing.
        """
        for part in range(0 if base is None else base.parts):
            assert base is not None
            try:
                states = self._read(base, part)
            except (CorruptRecord, FormatTooNew) as error:
                if unreadable is None:
                    raise
                unreadable(error)
                continue
            yield from states

    def _read(self, base: Base, part: int) -> list[State]:
        name = _part(base.word, part)
        try:
            document = self._parts.get(name)
        except NotFound as error:
            holds = self.newest() if is_absent(error) else None
            if holds is None or holds.word != base.word:
                raise
            raise CorruptRecord(
                f"{self._parts.path(name)!r} is missing, which has a part of what the log says. Restore"
                " it from a backup or an older version of the object"
            ) from error
        return build(document, partial(_states, document))

    def write(self, states: Iterable[State], *, after: Base | None) -> str:
        """Store a base of these states, which must be sorted, to follow `after`; return its word.

        Raises `AlreadyExists` if another one follows it already; then nothing of this one holds.
        """
        written = self.stored(states)
        self.hold(written, after=after)
        return written.word

    def stored(self, states: Iterable[State], *, most: int | None = None) -> Base:
        """Store the parts of a base of these states, which must be sorted; it does not hold yet.

        Args:
            states: those.
            most: how many a part has at most; by default as many as a part of a base.
        """
        word = self._words()
        parts = total = 0
        for part in _parted(states, _PART_RECORDS if most is None else most):
            self._parts.add(_part(word, parts), Document("namespace-base-part", {"states": part}))
            parts += 1
            total += len(part)
        return Base(number=0, word=word, parts=parts, states=total, written=0.0)

    def stored_unsorted(self, states: Iterable[State], *, run: int = _RUN) -> Base:
        """Store the parts of a base of states in any order, each of another thing; see `stored`.

        At most `run` of them are held in memory at a time: more are sorted in several runs, which are
        stored as parts themselves, and merged.
        """
        runs: list[Base] = []
        rest = iter(states)
        while batch := sorted(islice(rest, run), key=_of):
            if len(batch) < run and not runs:
                return self.stored(batch)
            runs.append(self.stored(batch, most=_RUN_RECORDS))
        if not runs:
            return self.stored(())
        merged = self.stored(heapq.merge(*(self.parts_of(each) for each in runs), key=_of))
        self._parts.remove_all(_part(each.word, part) for each in runs for part in range(each.parts))
        return merged

    def parts_of(self, stored: Base) -> Iterator[State]:
        """Yield the states of a base whose parts are stored, and that does not hold yet."""
        for part in range(stored.parts):
            document = self._parts.get(_part(stored.word, part))
            yield from build(document, partial(_states, document))

    def hold(self, stored: Base, *, after: Base | None) -> None:
        """Let a base hold whose parts are stored.

        Raises `AlreadyExists` if another one follows `after`.
        """
        number = 1 if after is None else after.number + 1
        body = {
            "number": number,
            "word": stored.word,
            "parts": stored.parts,
            "states": stored.states,
        }
        self._bases.add(_number(number), Document("namespace-base", body))

    def prune(self, base: Base, *, margin: float) -> None:
        """Remove what was there before `base`, the newest, and what else was left unfinished then.

        Parts that are written now for the base after it are not touched: whoever writes them has seen
        this one, and whoever has not will find the next number taken.

        Args:
            base: the newest.
            margin: seconds by which parts must be older than it.
        """
        kept = f"{base.word}-"
        self._parts.remove_all(
            listed.name
            for listed in self._parts.list()
            if not listed.name.startswith(kept) and listed.written < base.written - margin
        )
        holds = _number(base.number)
        self._bases.remove_all(listed.name for listed in self._bases.list() if listed.name < holds)


def merged(states: Iterable[State], changed: Mapping[str, State]) -> Iterator[State]:
    """Yield what sorted states say together with what is known beyond them, sorted."""

    for _, same in groupby(heapq.merge(states, sorted(changed.values(), key=_of), key=_of), key=_of):
        newest: dict[str, State] = {}
        fold(same, newest)
        yield from newest.values()


def _of(state: State) -> str:
    return state.of


def _parted(states: Iterable[State], most: int) -> Iterator[list[list[Any]]]:
    part: list[list[Any]] = []
    size = 0
    for state in states:
        part.append([state.of, state.version, _shown(state.item), state.began])
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


def _states(document: Document) -> list[State]:
    return [_state(each) for each in items(document.body["states"])]


def _state(fields: object) -> State:
    of, version, item, began = items(fields)
    return State(
        of=text(of),
        version=count(version),
        item=None if item is None else item_of(mapping(item)),
        began=moment(began),
    )


def _number(number: int) -> str:
    return f"{number:012d}"


def _part(word: str, part: int) -> str:
    return f"{word}-{part:06d}"
