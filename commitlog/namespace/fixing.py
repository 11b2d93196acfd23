"""What a repair is put together of, whatever it repairs: entries, what names them, and gates.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from attrs import evolve, frozen

from commitlog.namespace.change import Change, Changes
from commitlog.namespace.keys import MAX_SHARDS, TOP
from commitlog.namespace.parts import Parts
from commitlog.namespace.planning import Planner
from commitlog.namespace.problems import Finding
from commitlog.namespace.readers import LogReader, StoreReader
from commitlog.namespace.records import Directory, Entry, Gate, Shards
from commitlog.tables.api import Absent, All, Equals, Item, Key, TableCondition

__all__ = ["LOST_AND_FOUND", "Fixing", "Means", "as_is"]

#: Directory in the root for what no path led to.
LOST_AND_FOUND = "lost+found"


@frozen(kw_only=True)
class Means(Parts):
    """What repairs of one namespace take.

    Args:
        planner, changes: those of the namespace.
        log: reads its log, if it keeps one.
        store: looks at its objects.
    """

    planner: Planner
    changes: Changes
    log: LogReader | None
    store: StoreReader


class Fixing:
    """Fills the change that repairs one finding.

    Args:
        of: what it takes.
        change: that.
        finding: what is wrong.
        dry_run: whether not even lost+found is made.

    Attributes:
        entries: those that it is about, if they can be read.
    """

    def __init__(self, of: Means, change: Change, finding: Finding, *, dry_run: bool) -> None:
        self._of = of
        self._keys = of.keys
        self._change = change
        self._finding = finding
        self._dry_run = dry_run
        self._now = int(of.clock.epoch() * 1000)
        readable = [item for item in finding.records if "id" in item and "body" in item]
        if finding.problem.name == "corrupt-record":
            readable = [item for item in finding.records[1:] if item in readable]
        self.entries = [Entry.from_item(item) for item in readable]

    def _new(self, entry: Entry, version: int) -> Entry:
        return evolve(entry, version=version, word=self._change.word, updated=self._now)

    def _entry(self, id: str, shards: Shards) -> Entry:
        """Return an entry for a directory of which nothing is known but its id."""
        return Entry(
            key=Key("", id),
            id=id,
            version=self._now,  # more than it can have had
            word=self._change.word,
            created=self._now,
            modified=self._now,
            updated=self._now,
            shards=shards,
        )

    def _put(self, entry: Entry, condition: TableCondition) -> None:
        self._change.witness = entry.key
        self._change.put(entry, condition)

    def _redirect(self, entry: Entry, condition: TableCondition) -> None:
        key = self._keys.directory(entry.id)
        self._change.put(Directory(key=key, parent=entry.parent, name=entry.name), condition)

    def _named_by(self, entry: Entry) -> None:
        """Have the record of a directory name its entry, whatever there is in its place."""
        if entry.is_directory and entry.parent != TOP:
            record = self._of.tree.table.get(self._keys.directory(entry.id))
            self._redirect(entry, Absent() if record is None else as_is(record))

    def _move(self, entry: Entry, into: Entry, name: str, *, closed: bool = False) -> Entry:
        """Put an entry into a directory, or, if that is closed, have it elsewhere in that."""
        new = evolve(self._new(entry, entry.version + 1), key=self._of._place(into, name))
        self._change.witness = new.key
        if closed:  # the trash, and what is in it, has no gates
            self._change.put(new, Absent())
        else:
            self._of._add(self._change, into, new)
        return new

    def _in_lost_and_found(self, entry: Entry) -> Entry:
        return self._move(entry, self._lost_and_found(), entry.id)

    def _lost_and_found(self) -> Entry:
        found = self._of.tree.find(self._of.tree.root(), LOST_AND_FOUND)
        if found is not None and found.is_directory:
            return found
        change, made = self._of.planner.make_directory(LOST_AND_FOUND, shards=1)
        if change is not None and not self._dry_run:
            self._of.changes.apply(change)
        return made

    def _shards_of(self, id: str) -> tuple[Shards, bool]:
        """Return over how many shards a directory seems to be spread, and whether it has anything."""
        now, filled = 1, False
        for shard in range(MAX_SHARDS):
            gate = self._of.tree.table.get(self._keys.gate(id, shard))
            if gate is not None and isinstance(gate.get("shards"), int):
                now = max(now, Gate.from_item(gate).shards)
            if next(self._of.tree.table.query(self._keys.shard(id, shard)), None) is not None:
                filled = True
                now = max(now, 1 << shard.bit_length())
        return Shards(now=now, first=1), filled

    def _drop_gates(self, id: str) -> None:
        for shard in range(MAX_SHARDS):
            key = self._keys.gate(id, shard)
            found = self._of.tree.table.get(key)
            if found is not None:
                self._change.delete(key, as_is(found))


def as_is(item: Item) -> TableCondition:
    """Return the condition that a record is as it was found, as far as the log can tell of it.

    It does not have the id and the version. In the log these would say that this version of a file or
    directory was replaced, and a damaged record may have those of another one.
    """
    parts = [
        Equals(name, value)
        for name, value in item.items()
        if name not in ("place", "name", "id", "version") and not isinstance(value, bytes)
    ]
    return All(tuple(parts)) if parts else Equals("name", item["name"])
