"""Synthetic namespaces of any size for `fsck`, and synthetic states.

The records, the parts of the log's checkpoint and the objects are made in several processes, without the
requests of clients. Clients then make further changes, so that the log has operations, too.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from hashlib import blake2b
from pathlib import Path

from attrs import evolve, frozen

from commitlog.namespace import NAMESPACE_SCHEMA, Data
from commitlog.namespace.log.checkpoint import Checkpoint, NamespaceCheckpoints
from commitlog.namespace.log.entries import ItemState
from commitlog.namespace.model.keys import NAMESPACES, ROOT, Keys
from commitlog.namespace.model.records import Directory, Entry, Guard
from commitlog.namespace.partitioned.contents import SourcedState, newest_states, sourced
from commitlog.namespace.partitioned.dataset import Engine
from commitlog.namespaces import create_namespace, open_namespace, open_parts
from commitlog.stores.local.index import etag_of
from commitlog.tables.api import Item
from commitlog.tables.marshal import marshal, to_json

__all__ = ["NAME", "Place", "reduce_states"]

NAME = "lake"

#: Files in a directory, and such directories in one that is in the root.
_FILES, _DIRECTORIES = 100, 50
#: Entries of one of those in the root, with itself: a part of the log's checkpoint.
_CHUNK = 1 + _DIRECTORIES * (1 + _FILES)

#: Maximum numbers of entries that clients create after the checkpoint, and of those that they rename.
_NEW, _RENAMED = 20_000, 200

#: Date of all records, in epoch seconds.
_DATE = 1_700_000_000

#: Columns of a row of the table's file: hash key, range key and item.
_Row = tuple[bytes, bytes, str]

_KEYS = Keys(NAME)


@frozen
class Place:
    """A namespace in a scratch directory."""

    scratch: Path

    @property
    def store(self) -> str:
        """URL of the store."""
        return f"file://{self.scratch}/store"

    @property
    def metadata(self) -> str:
        """URL of the table."""
        return self.table("names")

    def table(self, name: str) -> str:
        """Return the URL of a table."""
        return f"sqlite://{self.scratch}/{name}.db"

    def remove(self, name: str) -> None:
        """Remove a table."""
        for path in self.scratch.glob(f"{name}.db*"):
            path.unlink()

    def fill(self, entries: int) -> None:
        """Create the namespace, with this number of files and directories."""
        new = min(_NEW, entries // 100 + 2)
        for prefix in range(4096):
            (self.scratch / f"store/{prefix:03x}").mkdir(parents=True, exist_ok=True)
        create_namespace(NAME, store=self.store, metadata=self.metadata).store.close()
        chunks = [
            _Chunk(place=self, number=number, entries=min(_CHUNK, entries - new - start))
            for number, start in enumerate(range(0, entries - new, _CHUNK))
        ]
        states = 0
        with (
            closing(sqlite3.connect(self.scratch / "names.db", isolation_level=None)) as connection,
            multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool,
        ):
            connection.execute("PRAGMA synchronous = OFF")
            for number, rows in pool.imap(_Chunk.make, chunks):
                connection.execute("BEGIN")
                connection.executemany("INSERT INTO items VALUES (?, ?, NULL, ?)", rows)
                connection.execute("COMMIT")
                states += number
        with open_parts(NAME, metadata=self.metadata, store=self.store) as parts:
            stored = Checkpoint(number=0, id=_PARTS, parts=len(chunks), states=states, written=0.0)
            NamespaceCheckpoints(parts.log, new_id=str).make_current(stored, after=None)
        self._change(new)

    def _change(self, new: int) -> None:
        """Change the namespace as its clients do, so that it has `new` files and directories more."""
        names = [f"new-{number}" for number in range(new - 1)]
        with open_namespace(NAME, metadata=self.metadata) as lake:
            lake.store.put("raw/object", b"1")
            content = Data.of(lake.store.head("raw/object"))
            lake.make_directory("new")
            for start in range(0, len(names), _FILES):
                lake.bulk_link("new", dict.fromkeys(names[start : start + _FILES], content))
            for number in range(min(_RENAMED, _FILES, new)):
                lake.rename(f"0/0/{number:03d}", f"0/0/renamed-{number}")

    def digest(self, name: str) -> tuple[int, int]:
        """Return the number of records in a table, and a digest that does not depend on their order.

        The metadata record does not count, and not the ids of changes in guard records: a restore
        writes others.
        """
        digest = count = 0
        path = self.scratch / f"{name}.db"
        with closing(sqlite3.connect(path)) as connection:
            for place, text in connection.execute("SELECT CAST(hash AS TEXT), item FROM items"):
                if place != NAMESPACES:
                    item = json.loads(text)
                    if place.startswith(f"{NAME}/g/"):
                        del item["change_id"]
                    shown = repr(sorted(item.items())).encode()
                    digest ^= int.from_bytes(blake2b(shown, digest_size=8).digest())
                    count += 1
        return count, digest


#: Id of the parts of the checkpoint.
_PARTS = "0" * 32


@frozen(kw_only=True)
class _Chunk:
    """A directory in the root, with all that is in it.

    Args:
        place: the namespace.
        number: its number, which is also that of its part of the checkpoint.
        entries: number of files and directories, itself included.
    """

    place: Place
    number: int
    entries: int

    def make(self) -> tuple[int, list[_Row]]:
        """Store the objects, and the part of the checkpoint; return the number of entries and rows."""
        # One file: each object is another name of it. A file system allows some ten thousand.
        file = self.place.scratch / f"file-{self.number}"
        file.write_bytes(b"1")
        rows: list[_Row] = []

        def states() -> Iterator[ItemState]:
            for entry in self._tree(Data(path="a", size=1, etag=etag_of(file.stat(), None))):
                if entry.data is None:
                    for record in _derived(entry):
                        rows.append(_row(record.to_item()))
                else:
                    os.link(file, self.place.scratch / "store" / entry.data.path)
                item = entry.to_item()
                rows.append(_row(item))
                yield ItemState(item_id=f"e/{entry.id}", version=1, item=item, began=_DATE)

        with open_parts(NAME, metadata=self.place.metadata, store=self.place.store) as parts:
            checkpoints = NamespaceCheckpoints(parts.log, new_id=str)
            stored, number = checkpoints.store_parts_at(_PARTS, self.number, states())
        assert stored == 1 and number == self.entries
        return number, rows

    def _tree(self, data: Data) -> Iterator[Entry]:
        """Yield the entries, sorted by their ids."""
        first = self.number * _CHUNK
        top = _entry(first, ROOT, f"{self.number}", None)
        yield top
        below = top.id
        for each in range(self.entries - 1):
            directory, file = divmod(each, 1 + _FILES)
            if file == 0:
                entry = _entry(first + 1 + each, top.id, f"{directory}", None)
                below = entry.id
                yield entry
            else:
                path = blake2b(f"{first + each}".encode(), digest_size=16).hexdigest()
                own = evolve(data, path=f"{path[:3]}/{path}", stored=_DATE)
                yield _entry(first + 1 + each, below, f"{file - 1:03d}", own)


def _entry(number: int, parent: str, name: str, data: Data | None) -> Entry:
    rest = blake2b(f"{number}".encode(), digest_size=11).hexdigest()
    return Entry(
        key=_KEYS.entry(parent, 0, name),
        id=f"{number:010x}{rest}",
        version=1,
        change_id=f"{number:032x}",
        created=_DATE * 1000,
        modified=_DATE * 1000,
        updated=_DATE * 1000,
        data=data,
    )


def _derived(entry: Entry) -> Iterator[Directory | Guard]:
    yield Directory(key=_KEYS.directory(entry.id), parent=entry.parent, name=entry.name)
    yield Guard(key=_KEYS.guard(entry.id, 0), shards=1, change_id=entry.change_id)


def _row(item: Item) -> _Row:
    """Return a row of `commitlog.tables.sqlite`."""
    key = NAMESPACE_SCHEMA.key_of(item)
    return key.hash.encode(), str(key.range).encode(), to_json(marshal(item))


# -- states for a reduction ----------------------------------------------------------------------------

#: Number of states in a task.
_TASK = 100_000


def reduce_states(engine: Engine, count: int) -> int:
    """Return the number of items among `count` synthetic states, of which each item has two."""
    tasks = [(start, min(start + _TASK, count)) for start in range(0, count, _TASK)]
    states = engine.distribute(tasks).map(partial(_synthetic, count // 2))
    return sum(newest_states(states).map(_count).collect())


def _synthetic(items: int, tasks: Iterable[tuple[int, int]]) -> Iterator[SourcedState]:
    """Yield states in random order."""
    entry = _entry(0, ROOT, "name", Data(path="abc/abc" + "0" * 29, size=1, etag="etag"))
    template = entry.to_item()
    for start, stop in tasks:
        numbers = list(range(start, stop))
        random.Random(start).shuffle(numbers)
        for each in numbers:
            version, number = divmod(each, items)
            id = f"{number:032x}"
            item = {**template, "id": id, "name": id, "version": version + 1}
            state = ItemState(item_id=f"e/{id}", version=version + 1, item=item, began=_DATE)
            yield sourced(state, (1, f"{each:032d}"))


def _count(records: Iterator[object]) -> Iterator[int]:
    yield sum(1 for _ in records)
