"""The changes in a namespace's operation log, and the states that they leave.

A namespace can be restored from its log, in whatever order the entries are read. An entry has whole
records with ids and versions; the highest version of an id is current, and a removed item stays removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import field, frozen

from commitlog.errors import CommitError, Conflict, CorruptRecord
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.keys import NAMESPACES, is_valid_key, parse_hash_key
from commitlog.namespace.model.records import Garbage, Tombstone
from commitlog.oplog import Operation
from commitlog.oplog.codec import Document
from commitlog.oplog.validate import MAX_COUNT, build, count, items, mapping, text
from commitlog.tables.api import Item, Key

__all__ = [
    "ItemState",
    "LoggedChange",
    "NewestStates",
    "Version",
    "digest_of",
    "fold",
    "item_from_json",
    "parse_change",
    "parse_changes",
    "rank_of",
]

#: A version of a file or directory: its id and number.
Version = tuple[str, int]


@frozen(kw_only=True)
class ItemState:
    """The state of one item in one entry of the log.

    Attributes:
        item_id: the item: ``e/<id>`` for a file or directory, ``m`` for the metadata record,
            ``t/<directory>/<name>`` for a tombstone, ``x/<slot>/<name>`` for garbage.
        version: the highest version is current; tombstones also compare the dates of the hidden objects
            (`rank_of`).
        item: the record; None if it was removed.
        began: start of the operation in epoch seconds, by the clock of the client that began it. It
            orders nothing: clocks differ, and may be set.
        taken: for a removal, number of the checkpoint that took it from the log; 0 if none did.
    """

    item_id: str
    version: int
    item: Item | None = field(hash=False)
    began: float
    taken: int = 0

    def supersedes(self, other: ItemState | None) -> bool:
        """Return whether this state is newer than another one of the same item."""
        return other is None or rank_of(self) > rank_of(other)


@frozen(kw_only=True)
class LoggedChange:
    """A change as the log has it.

    Attributes:
        what: a verb, for people.
        id: id of the change.
        primary: key of the record that shows whether the change succeeded.
        written: versions that the change writes.
        replaced: versions that the change replaces or removes, and therefore has read.
        replaced_at: the keys of the replaced or removed versions.
        states: the states after the change.
        removes_primary: whether the removal of the primary record shows the success.
    """

    what: str
    id: str
    primary: Key
    written: frozenset[Version]
    replaced: frozenset[Version]
    replaced_at: tuple[tuple[Key, Version], ...]
    states: tuple[ItemState, ...]
    removes_primary: bool


def fold(states: Iterable[ItemState], known: dict[str, ItemState]) -> None:
    """Update `known` with those `states` that are newer."""
    for state in states:
        if state.supersedes(known.get(state.item_id)):
            known[state.item_id] = state


def rank_of(state: ItemState) -> int:
    """Return a number that orders the states of one item: the highest is current."""
    version = state.version
    if state.item_id.startswith("t/") and state.item is not None:
        # A tombstone that hides a younger object is newer, whatever the clocks of the clients show.
        version |= (Tombstone.from_item(state.item).stored or 0) << MAX_COUNT.bit_length()
    return 2 * version + (state.item is None)


def digest_of(item: Item | None) -> int:
    """Return a 64-bit digest of a whole record; 0 for None.

    It is Python's own hash, so it differs between processes.
    """
    return 0 if item is None else hash(frozenset(item.items())) % 2**64


class NewestStates:
    """A compact selection of the newest state of each item in a log, for two passes over the log.

    A file takes about 150 bytes here, and two kilobytes as a whole state.
    """

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}

    def add(self, states: Iterable[ItemState]) -> None:
        """Add states of the log."""
        for state in states:
            self._ranks[state.item_id] = max(rank_of(state), self._ranks.get(state.item_id, -1))

    def is_removed(self, item_id: str) -> bool:
        """Return whether the log has an item as removed."""
        return self._ranks.get(item_id, 0) % 2 == 1

    def select(self, before: Iterable[ItemState], after: Iterable[ItemState]) -> Iterator[ItemState]:
        """Yield the newest state of each item once.

        Args:
            before: states of the checkpoint, one of each item.
            after: states that were added with `add`, in any order; others are left out.

        Raises `Conflict` at the end if the newest state of an item was not found again.
        """
        left = dict(self._ranks)
        for state in before:
            if rank_of(state) >= left.get(state.item_id, -1):
                left.pop(state.item_id, None)
                yield state
        for state in after:
            if left.get(state.item_id) == rank_of(state):
                del left[state.item_id]
                yield state
        if left:
            raise Conflict("the log was changed while it was read: another client writes it; try again")


def parse_change(operation: Operation) -> LoggedChange:
    """Return the change in an entry of the log. Raises `CorruptRecord`."""
    body = operation.body
    document = Document("change of a namespace", body, operation.id)

    def make() -> LoggedChange:
        put = [item_from_json(mapping(each)) for each in items(body["put"])]
        removed = [_removed(each) for each in items(body["removed"])]
        replaced = [_removed(each) for each in items(body["replaced"])]
        removed += [each for each in replaced if "version" in each[1]]
        written = {
            (text(item["id"]), count(item["version"])): key_of(item) for item in put if "id" in item
        }
        gone = {
            (text(expected["id"]), count(expected["version"])): key
            for key, expected in removed
            if "version" in expected
        }
        overwritten = {
            (id, number - 1): key
            for (id, number), key in written.items()
            if number > 1 and (id, number - 1) not in gone
        }
        before = {**gone, **overwritten}
        place, name = items(body["primary"])
        primary = Key(text(place), text(name))
        return LoggedChange(
            what=text(body["what"]),
            id=text(body["change_id"]),
            primary=primary,
            written=frozenset(written),
            replaced=frozenset(before),
            replaced_at=tuple((key, version) for version, key in before.items()),
            states=tuple(_states(put, removed, operation.time)),
            removes_primary=any(key == primary for key, _ in removed),
        )

    return build(document, make)


def parse_changes(
    operations: Iterable[Operation], unreadable: Callable[[CommitError], object]
) -> Iterator[tuple[Operation, LoggedChange]]:
    """Yield operations with their changes; pass the errors of unreadable changes to `unreadable`."""
    for operation in operations:
        try:
            change = parse_change(operation)
        except CorruptRecord as error:
            unreadable(error)
        else:
            yield operation, change


def _states(
    put: Iterable[Item], removed: Iterable[tuple[Key, Mapping[str, object]]], began: float
) -> Iterator[ItemState]:
    for item in put:
        place = text(item["place"])
        if place == NAMESPACES:
            yield ItemState(item_id="m", version=1, item=item, began=began)
        elif "id" in item:
            item_id = f"e/{text(item['id'])}"
            yield ItemState(item_id=item_id, version=count(item["version"]), item=item, began=began)
        elif (where := parse_hash_key(place)).kind == "x":
            item_id = f"x/{where.id}/{text(item['name'])}"
            yield ItemState(item_id=item_id, version=1, item=item, began=began)
            # The file was removed or overwritten, so this version of it is gone.
            garbage = Garbage.from_item(item)
            yield ItemState(item_id=f"e/{garbage.file}", version=garbage.version, item=None, began=began)
        elif where.kind == "t":
            tombstone = Tombstone.from_item(item)
            yield ItemState(
                item_id=f"t/{where.id}/{tombstone.name}",
                version=tombstone.written,
                item=item,
                began=began,
            )
    for key, expected in removed:
        if "version" in expected:
            item_id, version = f"e/{text(expected['id'])}", count(expected["version"])
            yield ItemState(item_id=item_id, version=version, item=None, began=began)
        elif (where := parse_hash_key(key.hash)).kind == "d" and is_valid_key(key):
            # A removed directory record means that the directory is removed, whatever its version was.
            yield ItemState(item_id=f"e/{where.id}", version=MAX_COUNT, item=None, began=began)


def item_from_json(fields: Mapping[str, object]) -> Item:
    """Return an item from its representation in a log."""
    item: dict[str, str | int | bytes | bool] = {}
    for name, value in fields.items():
        if not isinstance(value, (str, int)):
            raise TypeError(f"{value!r} cannot be the value of an item's field")
        item[name] = value.encode() if name == "body" and isinstance(value, str) else value
    key_of(item)
    return item


def _removed(fields: object) -> tuple[Key, Mapping[str, object]]:
    place, name, expected = items(fields)
    return Key(text(place), text(name)), mapping(expected)
