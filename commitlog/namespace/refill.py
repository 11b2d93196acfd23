"""Writing the records of a namespace that is restored, all but its marker.

Imports its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

from attrs import frozen

from commitlog.errors import AlreadyExists, TransactionCanceled
from commitlog.namespace.against import is_of_others
from commitlog.namespace.change import MAX_WRITES
from commitlog.namespace.items import key_of
from commitlog.namespace.keys import MAX_SHARDS, ROOT, TOP, TRASH, Keys, places_of
from commitlog.namespace.leftovers import Garbage
from commitlog.namespace.logged import State
from commitlog.namespace.records import Directory, Entry, Gate
from commitlog.namespace.takeover import Takeover
from commitlog.stores.api import ObjectStore, Observation, same_etag
from commitlog.tables.api import Absent, Item, Key, Pending, Put, Table

__all__ = ["Lost", "Refill", "Refilled"]

#: Requests under way at a time.
_WINDOW = 32

#: Bytes of a transaction; DynamoDB takes 4 MB.
_MOST_BYTES = 3_000_000

#: How often records are written together of which some are there.
_TRIES = 3


@frozen(kw_only=True)
class Lost:
    """A file that the log has, and whose object the store has not, or has with other content.

    Attributes:
        path: of the file; from its name on, if a directory above is not there.
        object: path of the object.
        changed: whether there is another object under that path.
    """

    path: str
    object: str
    changed: bool


@frozen(kw_only=True)
class Refilled:
    """What was written at once.

    Attributes:
        files, directories, garbage: how many of these.
        records: items that were not there before.
        lost: files that cannot be read.
    """

    files: int
    directories: int
    garbage: int
    records: int
    lost: tuple[Entry, ...]


@frozen(kw_only=True)
class Refill:
    """Writes the records of one namespace.

    Args:
        table: where; nothing that is there already is changed.
        store: has the content; looked at, never written.
        keys: of the namespace.
        begun: the restore; nothing is written any more once it has ended, or another one has begun.
    """

    table: Table
    store: ObjectStore
    keys: Keys
    begun: Takeover

    def write(self, states: Iterable[State]) -> Iterator[Refilled]:
        """Write what the log says of files, directories, garbage and tombstones, and what follows of it.

        Yields what was written after every few. Raises `AlreadyExists` for another record in the place
        of one.
        """
        pending = iter(states)
        while batch := list(islice(pending, _WINDOW)):
            yield self._write(batch)

    def lost(self, changed: Iterable[Entry]) -> Iterator[Lost]:
        """Yield which files are lost, of those whose objects are gone or changed, once all is written.

        One of a bound directory that is an object of its prefix is not: others may change that, and the
        directory shows it as it is, at once or after `sync`.
        """
        find = cache(self._directory)
        return (self.describe(each) for each in changed if not is_of_others(find(each.parent), each))

    def _directory(self, id: str) -> Entry | None:
        """Return the entry of a directory, if it has been written."""
        item = self.table.get(self.keys.directory(id))
        if item is None:
            return None
        record = Directory.from_item(item)
        for place in places_of(record.name, MAX_SHARDS, 1):
            found = self.table.get(self.keys.entry(record.parent, place, record.name))
            if found is not None and found.get("id") == id:
                return Entry.from_item(found)
        return None

    def describe(self, entry: Entry) -> Lost:
        """Return what is lost of a file, once all is written."""
        assert entry.data is not None
        info = self.store.begin_head(entry.data.path)().info
        path, above = entry.name, entry.parent
        passed = {ROOT, TRASH}
        while above not in passed:  # it may be in itself, as things are in a table that is repaired
            passed.add(above)
            item = self.table.get(self.keys.directory(above))
            if item is None:
                break
            directory = Directory.from_item(item)
            path, above = f"{directory.name}/{path}", directory.parent
        return Lost(path=path, object=entry.data.path, changed=info is not None)

    def _write(self, states: list[State]) -> Refilled:
        items: list[Item] = []
        heads: list[tuple[Entry | Garbage, Pending[Observation]]] = []
        lost: list[Entry] = []
        files = directories = garbage = 0
        for state in states:
            assert state.item is not None
            if state.of.startswith("x/"):
                listed = Garbage.from_item(state.item)
                heads.append((listed, self.store.begin_head(listed.data.path)))
                continue
            if state.of.startswith("t/"):
                items.append(state.item)
                continue
            entry = Entry.from_item(state.item)
            items += [record.to_item() for record in self._derived(entry)]
            items.append(state.item)
            if entry.data is not None:
                heads.append((entry, self.store.begin_head(entry.data.path)))
                files += 1
            elif entry.id not in (ROOT, TRASH):
                directories += 1
        for record, head in heads:
            info = head().info
            if isinstance(record, Entry):
                assert record.data is not None
                if info is None or not same_etag(info.etag, record.data.etag):
                    lost.append(record)
            elif info is not None or not record.data.own:  # else it was removed before
                items.append(record.to_item())
                garbage += 1
        return Refilled(
            files=files,
            directories=directories,
            garbage=garbage,
            records=self._put(items),
            lost=tuple(lost),
        )

    def _derived(self, entry: Entry) -> Iterator[Directory | Gate]:
        """Yield what there is besides the entry of a directory."""
        parent = entry.parent
        if not entry.is_directory or entry.id == TRASH:
            return
        if parent != TOP:
            yield Directory(key=self.keys.directory(entry.id), parent=parent, name=entry.name)
        if parent != TRASH:
            for shard in range(entry.shards.now):
                yield Gate(key=self.keys.gate(entry.id, shard), shards=entry.shards.now, word=entry.word)

    def _put(self, items: list[Item]) -> int:
        """Write records that are not there; return how many were not."""
        return sum(map(self._put_together, _batches(items)))

    def _put_together(self, items: Sequence[Item]) -> int:
        """Write records in one transaction, which has no effect once the restore has ended.

        A request that is late could otherwise bring back a record that a client has removed since.
        """
        missing = items
        for _ in range(_TRIES):  # a request that was repeated on its way finds what it has done itself
            try:
                self.table.transact([*(Put(item, Absent()) for item in missing), self.begun.claim])
                return len(missing)
            except TransactionCanceled as error:
                refused = error
            missing = [item for item in missing if not self._has(item)]
            if not missing:
                return 0
        raise self.begun.beaten() from refused

    def _has(self, item: Item) -> bool:
        """Tell whether a record is there, of a call that was broken off."""
        there = self.table.get(key_of(item))
        if there is not None and there != item:
            raise AlreadyExists(
                f"{self.table.url} has another record of {item['name']!r} in {item['place']!r}"
                f" than the log says, of namespace {self.keys.namespace!r}: have it replaced"
                " (`replace`, or --replace), or give another table"
            )
        return there is not None


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Cut records into what one transaction can have beside its check, no key twice."""
    batch: dict[Key, Item] = {}
    size = 0
    for item in items:
        key, length = key_of(item), _size(item)
        if len(batch) == MAX_WRITES - 1 or size + length > _MOST_BYTES or key in batch:
            yield list(batch.values())
            batch, size = {}, 0
        batch[key] = item
        size += length
    if batch:
        yield list(batch.values())


def _size(item: Item) -> int:
    """Return about how many bytes a record takes."""
    return sum(
        len(value) if isinstance(value, bytes) else 4 * len(str(value)) for value in item.values()
    )
