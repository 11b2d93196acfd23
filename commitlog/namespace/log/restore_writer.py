"""Writes of a restored namespace's records, and the claim of the restore.

`RestoreWriter` writes all records except the metadata record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

from attrs import field, frozen

from commitlog.errors import AlreadyExists, Conflict, TransactionCanceled
from commitlog.namespace.log.entries import ItemState
from commitlog.namespace.model.backing import is_external
from commitlog.namespace.model.codec import key_items, key_of
from commitlog.namespace.model.keys import MAX_SHARDS, ROOT, TOP, TRASH, Keys, shards_of
from commitlog.namespace.model.records import Directory, Entry, Garbage, Guard
from commitlog.stores.api import ObjectStore, Observation, same_etag
from commitlog.tables.api import (
    MAX_TRANSACTION_WRITES,
    Absent,
    Check,
    Delete,
    Equals,
    InFlight,
    Item,
    Key,
    Put,
    Table,
)

__all__ = ["LostFile", "RestoreClaim", "RestoreWriter", "WriteReport"]

#: Number of concurrent requests.
_WINDOW = 32

#: Maximum size of a transaction in bytes; DynamoDB allows 4 MB.
_MOST_BYTES = 3_000_000

#: Maximum number of attempts to write a group of records of which some exist.
_TRIES = 3


@frozen(kw_only=True)
class LostFile:
    """A file of the log whose object is missing in the store, or has other content.

    Attributes:
        path: path of the file; it begins below the last known directory if an ancestor is missing.
        object: path of the object.
        changed: whether another object has that path.
    """

    path: str
    object: str
    changed: bool


@frozen(kw_only=True)
class WriteReport:
    """The result of one group of writes.

    Attributes:
        files, directories, garbage: number of each.
        records: number of items that did not exist before.
        lost: files whose content cannot be read.
    """

    files: int
    directories: int
    garbage: int
    records: int
    lost: tuple[Entry, ...]

    def __add__(self, other: WriteReport) -> WriteReport:
        """Return the result of both groups."""
        return WriteReport(
            files=self.files + other.files,
            directories=self.directories + other.directories,
            garbage=self.garbage + other.garbage,
            records=self.records + other.records,
            lost=self.lost + other.lost,
        )


@frozen(kw_only=True)
class RestoreWriter:
    """A writer of the records of one namespace.

    Args:
        table: the table to write; existing records are not changed.
        store: has the content; it is read, never written.
        keys: keys of the namespace.
        claim: the claim of the restore; without it, after the end or after a later restore began,
            nothing is written.
    """

    table: Table
    store: ObjectStore
    keys: Keys
    claim: RestoreClaim

    def write(self, states: Iterable[ItemState]) -> Iterator[WriteReport]:
        """Write the records of files, directories, garbage and tombstones, and those derived from them.

        Yields a report after each group. Raises `AlreadyExists` if the table has a different record.
        """
        pending = iter(states)
        while batch := list(islice(pending, _WINDOW)):
            yield self._write(batch)

    def lost(self, changed: Iterable[Entry]) -> Iterator[LostFile]:
        """Yield the lost ones of files whose objects are missing or changed, once all is written.

        An object in the prefix of a bound directory is not lost: other programs may change it, and the
        directory shows its current state, at once or after `sync`.
        """
        find = cache(self._directory)
        return (self.describe(each) for each in changed if not is_external(find(each.parent), each))

    def _directory(self, id: str) -> Entry | None:
        """Return the entry of a directory, if it was written."""
        item = self.table.get(self.keys.directory(id))
        if item is None:
            return None
        record = Directory.from_item(item)
        for place in shards_of(record.name, MAX_SHARDS, 1):
            found = self.table.get(self.keys.entry(record.parent, place, record.name))
            if found is not None and found.get("id") == id:
                return Entry.from_item(found)
        return None

    def describe(self, entry: Entry) -> LostFile:
        """Return the description of a lost file, once all is written."""
        assert entry.data is not None
        info = self.store.begin_head(entry.data.path)().info
        path, above = entry.name, entry.parent
        passed = {ROOT, TRASH}
        while above not in passed:  # a table under repair may have a cycle
            passed.add(above)
            item = self.table.get(self.keys.directory(above))
            if item is None:
                break
            directory = Directory.from_item(item)
            path, above = f"{directory.name}/{path}", directory.parent
        return LostFile(path=path, object=entry.data.path, changed=info is not None)

    def _write(self, states: list[ItemState]) -> WriteReport:
        items: list[Item] = []
        heads: list[tuple[Entry | Garbage, InFlight[Observation]]] = []
        lost: list[Entry] = []
        files = directories = garbage = 0
        for state in states:
            assert state.item is not None
            if state.item_id.startswith("x/"):
                listed = Garbage.from_item(state.item)
                heads.append((listed, self.store.begin_head(listed.data.path)))
                continue
            if state.item_id.startswith("t/"):
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
            elif info is not None or not record.data.own:  # otherwise it was removed before
                items.append(record.to_item())
                garbage += 1
        return WriteReport(
            files=files,
            directories=directories,
            garbage=garbage,
            records=self._put(items),
            lost=tuple(lost),
        )

    def _derived(self, entry: Entry) -> Iterator[Directory | Guard]:
        """Yield the records of a directory other than its entry."""
        parent = entry.parent
        if not entry.is_directory or entry.id == TRASH:
            return
        if parent != TOP:
            yield Directory(key=self.keys.directory(entry.id), parent=parent, name=entry.name)
        if parent != TRASH:
            for shard in range(entry.shards.now):
                yield Guard(
                    key=self.keys.guard(entry.id, shard),
                    shards=entry.shards.now,
                    change_id=entry.change_id,
                )

    def _put(self, items: list[Item]) -> int:
        """Write records that do not exist yet; return their number."""
        return sum(map(self._put_together, _batches(items)))

    def _put_together(self, items: Sequence[Item]) -> int:
        """Write records in one transaction, which has no effect after the end of the restore.

        Otherwise a late request could bring back a record that a client has removed since.
        """
        missing = items
        for _ in range(_TRIES):  # a resent request may find its own records
            try:
                self.table.transact(
                    [*(Put(item, Absent()) for item in missing), self.claim.precondition]
                )
                return len(missing)
            except TransactionCanceled as error:
                refused = error
            missing = [item for item in missing if not self._has(item)]
            if not missing:
                return 0
        raise self.claim.superseded() from refused

    def _has(self, item: Item) -> bool:
        """Return whether a record exists already, from an interrupted call."""
        there = self.table.get(key_of(item))
        if there is not None and there != item:
            raise AlreadyExists(
                f"{self.table.url} has another record of {item['name']!r} in {item['place']!r}"
                f" than the log of namespace {self.keys.namespace!r}: replace it (`replace`, or"
                " --replace), or use another table"
            )
        return there is not None


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Split records into groups for one transaction with a check, without duplicate keys."""
    batch: dict[Key, Item] = {}
    size = 0
    for item in items:
        key, length = key_of(item), _size(item)
        if len(batch) == MAX_TRANSACTION_WRITES - 1 or size + length > _MOST_BYTES or key in batch:
            yield list(batch.values())
            batch, size = {}, 0
        batch[key] = item
        size += length
    if batch:
        yield list(batch.values())


def _size(item: Item) -> int:
    """Return the approximate size of a record in bytes."""
    return sum(
        len(value) if isinstance(value, bytes) else 4 * len(str(value)) for value in item.values()
    )


@frozen(kw_only=True)
class RestoreClaim:
    """The claim of a restore, which holds until another restore begins.

    Args:
        table: the table that is written.
        keys: keys of the namespace.
        precondition: the check that no other restore began later.
        removal: the check that this restore still removes old records; None if it removes none.
        previous: the record of the interrupted restore that this one continues, if there is one.
    """

    table: Table
    keys: Keys
    precondition: Check
    removal: Check | None = None
    previous: Item | None = field(default=None, repr=False)

    @staticmethod
    def check(table: Table, keys: Keys, *, replace: bool) -> Item | None:
        """Return the record of an unfinished restore, if there is one.

        Raises `AlreadyExists` if that restore replaces the namespace, and this one does not.
        """
        found = table.get(_place(keys))
        if found is not None and found.get("replaces") and not replace:
            raise AlreadyExists(
                f"an unfinished restore replaces namespace {keys.namespace!r}, and may have left some of"
                f" its old records in {table.url}: it was interrupted, or is still running. Replace the"
                " namespace (`replace`, or --replace)"
            )
        return found

    @classmethod
    def begin(
        cls, table: Table, keys: Keys, *, id: str, replace: bool, unless: Sequence[Check] = ()
    ) -> RestoreClaim:
        """Claim the restore.

        Args:
            table: the table to write.
            keys: keys of the namespace.
            id: unique id of this restore.
            replace: whether to remove the existing records of the namespace.
            unless: what must still hold, such as that the table has no metadata record.

        Raises `AlreadyExists` if a restore with `replace` was interrupted and this one does not replace,
        and `Conflict` if another one began meanwhile, or has ended.
        """
        place = _place(keys)
        found = cls.check(table, keys, replace=replace)
        own = {**key_items(place), "change_id": id, "replaces": replace}
        seen = Absent() if found is None else Equals("change_id", str(found["change_id"]))
        claim = cls(
            table=table,
            keys=keys,
            precondition=Check(place, Equals("change_id", id)),
            removal=Check(place, Equals("removes", id)) if replace else None,
            previous=found,
        )
        if replace:
            own["removes"] = id
        try:
            table.transact([Put(own, seen), *unless], token=id)
        except TransactionCanceled as error:
            claimed = table.get(place)
            if claimed is None or claimed.get("change_id") != id:
                raise claim.superseded() from error
        return claim

    def withdraw(self) -> None:
        """Take the claim back, before anything was removed or written."""
        place, mine = self.precondition.key, self.precondition.condition
        back = Delete(place, mine) if self.previous is None else Put(self.previous, mine)
        with contextlib.suppress(TransactionCanceled):  # another restore has the claim
            self.table.transact([back])

    def remove_metadata(self) -> None:
        """Remove the metadata record, once the table has accepted a scan. Raises `Conflict`."""
        self.table.scan_page(limit=1)
        try:
            self.table.transact([Delete(self.keys.metadata), self.precondition])
        except TransactionCanceled as error:
            raise self.superseded() from error

    def remove_all(self, *, segment: int = 0, segments: int = 1) -> Iterator[int]:
        """Remove all records of the namespace; yield the number removed so far. Raises `Conflict`.

        Nothing is removed after `end_removal`.

        Args:
            segment, segments: the part of the table to scan, as of `Table.scan`; by default all.
        """
        assert self.removal is not None
        mine = f"{self.keys.namespace}/"
        unreadable: list[Key] = []

        def found() -> Iterator[Key]:
            items = self.table.scan(
                segment=segment,
                segments=segments,
                unreadable=lambda bad: unreadable.append(key_of(bad.item)),
            )
            yield from map(key_of, items)
            yield from unreadable

        others = (key for key in found() if key.hash.startswith(mine) and key != self.precondition.key)
        removed = 0
        while batch := [Delete(key) for key in islice(others, MAX_TRANSACTION_WRITES - 1)]:
            try:
                self.table.transact([*batch, self.removal])
            except TransactionCanceled as error:
                raise self.superseded() from error
            removed += len(batch)
            yield removed

    def end_removal(self) -> None:
        """End the removal of old records, before the first new one is written. Raises `Conflict`.

        A late request to remove records, or one of a task that runs twice, has no effect afterwards.
        """
        place = self.precondition.key
        found = self.table.get(place)
        if found is None:
            raise self.superseded()
        item = {name: value for name, value in found.items() if name != "removes"}
        try:
            self.table.transact([Put(item, self.precondition.condition)])
        except TransactionCanceled as error:
            raise self.superseded() from error

    def finish(self, metadata: Item) -> None:
        """Write the metadata and end the restore; raise `Conflict` if another restore has begun."""
        try:
            self.table.transact(
                [Put(metadata, Absent()), Delete(self.precondition.key, self.precondition.condition)]
            )
        except TransactionCanceled as error:
            # A resent request may find its own metadata record.
            done = self.table.get(self.keys.metadata) == metadata
            if not done or self.table.get(self.precondition.key) is not None:
                raise self.superseded() from error

    def superseded(self) -> Conflict:
        """Return the error for a restore that another one has replaced."""
        return Conflict(
            f"another client restores namespace {self.keys.namespace!r} in {self.table.url} too, or has"
            " done so meanwhile: this call has left the rest to that client. If that was interrupted,"
            " restore again"
        )


def _place(keys: Keys) -> Key:
    return Key(f"{keys.namespace}/r/restore", "-")
