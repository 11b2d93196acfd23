"""What an entry of the operation log says of a namespace: a change, and what it makes of what there is.

A namespace can be made again from its log, in whatever order the entries are read: an entry has whole
records with ids and versions, the highest version of an id is what is so, and what was removed stays
removed. Imports the ground floor, the operation log, its siblings, and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import field, frozen

from commitlog.errors import CommitError, Conflict, CorruptRecord
from commitlog.namespace.items import key_of
from commitlog.namespace.keys import MARKERS, is_in_place, read_place
from commitlog.namespace.leftovers import Garbage, Tombstone
from commitlog.oplog import Operation
from commitlog.oplog.codec import Document
from commitlog.oplog.fields import MAX_COUNT, build, count, items, mapping, text
from commitlog.tables.api import Item, Key

__all__ = [
    "LoggedChange",
    "Newest",
    "State",
    "Version",
    "digest_of",
    "fold",
    "item_of",
    "outcome_of",
    "parsed",
    "readable",
]

#: A version of a file or directory: its id and number.
Version = tuple[str, int]


@frozen(kw_only=True)
class State:
    """What one entry says of one thing.

    Attributes:
        of: what: ``e/<id>`` a file or directory, ``m`` the marker, ``t/<directory>/<name>`` a tombstone,
            ``x/<slot>/<name>`` garbage.
        version: the higher one holds; of tombstones that of what the store got later (`outcome_of`).
        item: its record; None: it was removed.
        began: epoch seconds at which the operation that says so was begun, by the clock of who began it.
    """

    of: str
    version: int
    item: Item | None = field(hash=False)
    began: float

    def supersedes(self, other: State | None) -> bool:
        """Tell whether this is so rather than what another one says of the same."""
        return other is None or outcome_of(self) > outcome_of(other)


@frozen(kw_only=True)
class LoggedChange:
    """A change as the log has it.

    Attributes:
        what: verb, for people.
        word: names it.
        witness: key of the record that tells of its success.
        made: versions that it makes.
        seen: versions that it replaces or removes, so that its planner has seen them.
        before: where those were that it replaces or removes.
        states: what is so once it was done.
        clears: whether what tells of its success is that the record is gone.
    """

    what: str
    word: str
    witness: Key
    made: frozenset[Version]
    seen: frozenset[Version]
    before: tuple[tuple[Key, Version], ...]
    states: tuple[State, ...]
    clears: bool


def fold(states: Iterable[State], known: dict[str, State]) -> None:
    """Add to what is known what `states` say beyond that."""
    for state in states:
        if state.supersedes(known.get(state.of)):
            known[state.of] = state


def outcome_of(state: State) -> int:
    """Return a number for what a state says: of two of the same thing, the one with the higher is so."""
    version = state.version
    if state.of.startswith("t/") and state.item is not None:
        # What was stored later was hidden later, whatever the clocks of those say who have hidden it.
        version |= (Tombstone.from_item(state.item).stored or 0) << MAX_COUNT.bit_length()
    return 2 * version + (state.item is None)


def digest_of(item: Item | None) -> int:
    """Return 64 bits by which a record is told from others, whole; 0 for none.

    It is Python's own hash, so it is another one in each process.
    """
    return 0 if item is None else hash(frozenset(item.items())) % 2**64


class Newest:
    """Which of the states that a log has is so of each thing: in few words, so that it is read twice.

    A file takes some hundred and fifty bytes here, and as a `State` two kilobytes.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, int] = {}

    def add(self, states: Iterable[State]) -> None:
        """Take in what the log says."""
        for state in states:
            self._outcomes[state.of] = max(outcome_of(state), self._outcomes.get(state.of, -1))

    def is_gone(self, of: str) -> bool:
        """Tell whether the log says that something is there no more."""
        return self._outcomes.get(of, 0) % 2 == 1

    def select(self, before: Iterable[State], after: Iterable[State]) -> Iterator[State]:
        """Yield what is so, each thing once.

        Args:
            before: what was said before that, each thing once.
            after: what was taken in, in any order; more is left out.

        Raises `Conflict` at the end if some of that is no longer there.
        """
        left = dict(self._outcomes)
        for state in before:
            if outcome_of(state) >= left.get(state.of, -1):
                left.pop(state.of, None)
                yield state
        for state in after:
            if left.get(state.of) == outcome_of(state):
                del left[state.of]
                yield state
        if left:
            raise Conflict("the log was changed while it was read: somebody is at work on it; repeat it")


def parsed(operation: Operation) -> LoggedChange:
    """Return the change that an entry of the log tells of. Raises `CorruptRecord`."""
    body = operation.body
    document = Document("change of a namespace", body, operation.id)

    def make() -> LoggedChange:
        put = [item_of(mapping(each)) for each in items(body["put"])]
        removed = [_removed(each) for each in items(body["removed"])]
        replaced = [_removed(each) for each in items(body["replaced"])]
        removed += [each for each in replaced if "version" in each[1]]
        made = {(text(item["id"]), count(item["version"])): key_of(item) for item in put if "id" in item}
        gone = {
            (text(expected["id"]), count(expected["version"])): key
            for key, expected in removed
            if "version" in expected
        }
        overwritten = {
            (id, number - 1): key
            for (id, number), key in made.items()
            if number > 1 and (id, number - 1) not in gone
        }
        before = {**gone, **overwritten}
        place, name = items(body["witness"])
        witness = Key(text(place), text(name))
        return LoggedChange(
            what=text(body["what"]),
            word=text(body["word"]),
            witness=witness,
            made=frozenset(made),
            seen=frozenset(before),
            before=tuple((key, version) for version, key in before.items()),
            states=tuple(_states(put, removed, operation.time)),
            clears=any(key == witness for key, _ in removed),
        )

    return build(document, make)


def readable(
    operations: Iterable[Operation], unreadable: Callable[[CommitError], object]
) -> Iterator[tuple[Operation, LoggedChange]]:
    """Yield operations with their changes; tell the error of each that is no change."""
    for operation in operations:
        try:
            change = parsed(operation)
        except CorruptRecord as error:
            unreadable(error)
        else:
            yield operation, change


def _states(
    put: Iterable[Item], removed: Iterable[tuple[Key, Mapping[str, object]]], began: float
) -> Iterator[State]:
    for item in put:
        place = text(item["place"])
        if place == MARKERS:
            yield State(of="m", version=1, item=item, began=began)
        elif "id" in item:
            of = f"e/{text(item['id'])}"
            yield State(of=of, version=count(item["version"]), item=item, began=began)
        elif (where := read_place(place)).kind == "x":
            of = f"x/{where.of}/{text(item['name'])}"
            yield State(of=of, version=1, item=item, began=began)
            # Whether the file was removed or overwritten: that version of it is no more.
            garbage = Garbage.from_item(item)
            yield State(of=f"e/{garbage.file}", version=garbage.version, item=None, began=began)
        elif where.kind == "t":
            left = Tombstone.from_item(item)
            yield State(of=f"t/{where.of}/{left.name}", version=left.left, item=item, began=began)
    for key, expected in removed:
        if "version" in expected:
            of, version = f"e/{text(expected['id'])}", count(expected["version"])
            yield State(of=of, version=version, item=None, began=began)
        elif (where := read_place(key.hash)).kind == "d" and is_in_place(key):
            # A directory whose record goes is gone for good, whatever its version was.
            yield State(of=f"e/{where.of}", version=MAX_COUNT, item=None, began=began)


def item_of(fields: Mapping[str, object]) -> Item:
    """Return an item from what a log can keep of one."""
    item: dict[str, str | int | bytes | bool] = {}
    for name, value in fields.items():
        if not isinstance(value, (str, int)):
            raise TypeError(f"{value!r} is nothing that an item has")
        item[name] = value.encode() if name == "body" and isinstance(value, str) else value
    key_of(item)
    return item


def _removed(fields: object) -> tuple[Key, Mapping[str, object]]:
    place, name, expected = items(fields)
    return Key(text(place), text(name)), mapping(expected)
