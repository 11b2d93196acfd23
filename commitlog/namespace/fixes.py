"""What repairs each kind of finding: one change, on condition that all is as it was found.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from commitlog.errors import CorruptRecord
from commitlog.namespace.change import Change
from commitlog.namespace.data import Data
from commitlog.namespace.fixing import Fixing, Means, as_is
from commitlog.namespace.items import key_of
from commitlog.namespace.keys import ROOT, TOP, TRASH, TRASH_SHARDS, read_place
from commitlog.namespace.leftovers import NAMELESS, Garbage, Tombstone
from commitlog.namespace.marker import Marker
from commitlog.namespace.problems import Finding
from commitlog.namespace.readers import logged_as
from commitlog.namespace.records import Entry, Gate, Shards
from commitlog.namespace.snapshot import record_of
from commitlog.tables.api import Absent, Equals, Key, TableCondition

__all__ = ["Fixes"]


@frozen(kw_only=True)
class Fixes(Means):
    """Plans repairs of one namespace."""

    def plan(self, finding: Finding, told: Mapping[str, Finding], *, dry_run: bool) -> Change | None:
        """Return the change that repairs a finding; None if there is none.

        Args:
            finding: what is wrong.
            told: all of which the log says something newer, by id.
            dry_run: whether not even lost+found is made.
        """
        name = finding.problem.name
        if not finding.problem.fix:
            return None
        change = Change(f"repair: {name}", self.words(), self.keys.marker)
        fix = _Fix(self, change, finding, told, dry_run=dry_run)
        match name:
            case "no-marker":
                fix.marker()
            case "corrupt-record":
                fix.corrupt()
            case "no-root":
                fix.root(str(finding.id), Absent())
            case "directory-named-twice":
                fix.named_twice()
            case "file-named-twice":
                fix.file_twice()
            case "no-directory-record" | "wrong-directory-record":
                fix.directory_record()
            case "nameless-directory" | "unreachable-entry":
                fix.found_directory()
            case "cycle":
                fix.into_lost_and_found(fix.entries[0])
            case "no-gate":
                fix.gates(fix.entries[0], finding.missing)
            case "wrong-gate":
                fix.gates(fix.entries[0], [key_of(finding.records[-1])])
            case "wrong-shard":
                fix.shard()
            case "name-twice":
                for entry in fix.entries[1:-1]:
                    fix.into_lost_and_found(entry)
            case "object-named-twice":
                fix.keep_object()
            case "stray-gate" | "stray-tombstone" | "garbage-in-use" | "garbage-listed-twice":
                fix.remove_record()
            case "unnamed-object":
                fix.discard_object()
            case "log-newer":
                fix.as_logged()
            case "row-newer":
                fix.touch(fix.entries[0])
        return change if change.writes else None


class _Fix(Fixing):
    """What is done for each kind."""

    def __init__(
        self, of: Means, change: Change, finding: Finding, told: Mapping[str, Finding], *, dry_run: bool
    ) -> None:
        super().__init__(of, change, finding, dry_run=dry_run)
        self._told = told

    # entries

    def touch(self, entry: Entry, *, at_least: int = 0, data: Data | None = None) -> None:
        """Write an entry anew, so that the log has it."""
        new = self._new(entry, max(entry.version, at_least) + 1)
        if data is not None:
            new = evolve(new, data=data)
        self._put(new, entry.unchanged())

    def named_twice(self) -> None:
        """Keep the entry that the directory record names."""
        records = [item for item in self._finding.records if "called" in item]
        kept = [
            entry
            for entry in self.entries
            for item in records
            if (item["parent"], item["called"]) == (entry.parent, entry.name)
        ]
        if len(kept) != 1:
            return
        others = [entry for entry in self.entries if entry is not kept[0]]
        # Newer than those that go, or the log would say that the directory is gone.
        self.touch(kept[0], at_least=max(entry.version for entry in others))
        for entry in others:
            self._change.delete(entry.key, entry.unchanged())

    def file_twice(self) -> None:
        """Keep the entry of the higher version."""
        *older, newest = sorted(self.entries, key=lambda entry: entry.version)
        if older[-1].version == newest.version:
            return
        self.touch(newest)
        for entry in older:
            self._change.delete(entry.key, entry.unchanged())

    def shard(self) -> None:
        """Move an entry to where it is looked for."""
        entry, upper = self.entries
        self._change.check(upper.key, upper.unchanged())
        self._change.delete(entry.key, entry.unchanged())
        self._move(entry, upper, entry.name)

    def keep_object(self) -> None:
        """Have an object not removed with the files that have it."""
        for entry in self.entries:
            assert entry.data is not None
            self.touch(entry, data=evolve(entry.data, own=False))

    # directories

    def directory_record(self) -> None:
        """Make a directory record of the entry."""
        entry = self.entries[0]
        self.touch(entry)
        record = [item for item in self._finding.records if "called" in item]
        self._redirect(entry, as_is(record[0]) if record else Absent())

    def found_directory(self) -> None:
        """Give a directory that no entry names one in lost+found; remove it if nothing is in it."""
        id = self._finding.id
        assert id is not None
        record = next((item for item in self._finding.records if "called" in item), None)
        was = Absent() if record is None else as_is(record)
        shards, filled = self._shards_of(id)
        if filled:
            moved = self._in_lost_and_found(self._entry(id, shards))
            self._redirect(moved, was)
            gates = [self._keys.gate(id, shard) for shard in range(shards.now)]
            self.gates(moved, gates, checked=True)
        else:
            self._change.witness = self._keys.directory(id)
            self._change.delete(self._keys.directory(id), was)
            self._drop_gates(id)
        for key in self._finding.missing:
            self._change.check(key, Absent())  # still no entry names it

    def root(self, id: str, was: TableCondition) -> None:
        """Make the entry of the root or the trash again."""
        shards = Shards(now=TRASH_SHARDS, first=TRASH_SHARDS) if id == TRASH else self._shards_of(id)[0]
        self._put(evolve(self._entry(id, shards), key=self._keys.entry(TOP, 0, id)), was)

    def into_lost_and_found(self, entry: Entry) -> None:
        """Move an entry to where it can be found."""
        self._change.delete(entry.key, entry.unchanged())
        self._named_by(self._in_lost_and_found(entry))

    # gates and others

    def gates(self, entry: Entry, keys: Iterable[Key], *, checked: bool = False) -> None:
        """Make gates of a directory, whatever is in their places."""
        if not checked:
            self._change.check(entry.key, entry.unchanged())
        for key in keys:
            found = self._of.tree.table.get(key)
            gate = Gate(key=key, shards=entry.shards.now, word=self._change.word)
            if not checked:
                self._change.witness = key
            if found is None or found.get("shards") != entry.shards.now:
                self._change.put(gate, Absent() if found is None else as_is(found))

    def remove_record(self) -> None:
        """Remove the last record of the finding, if the others are as they were."""
        item = self._finding.records[-1]
        self._change.witness = key_of(item)
        self._change.delete(key_of(item), as_is(item))
        for entry in self.entries:
            self._change.check(entry.key, entry.unchanged())
        for key in self._finding.missing:
            self._change.check(key, Absent())

    def discard_object(self) -> None:
        """List an object as garbage."""
        assert self._finding.object is not None
        info = self._of.store.begin_head(self._finding.object)().info
        if info is None:
            return
        not_before = self._now + int(self._of.grace * 1000)
        key = self._keys.garbage(not_before, info.path)
        self._change.witness = key
        data = Data(path=info.path, size=info.size, etag=info.etag, version=info.version)
        garbage = Garbage(
            key=key, file=NAMELESS, version=0, word=self._change.word, not_before=not_before, data=data
        )
        self._change.put(garbage, Absent())

    def marker(self) -> None:
        """Put the marker that the log has."""
        if self._finding.logged is not None:
            marker = evolve(Marker.from_item(self._finding.logged), word=self._change.word)
            self._change.put(marker, Absent())

    # by the log

    def as_logged(self) -> None:
        """Do what the log says was done; what is in its way goes where the log has that, or with it."""
        rows: dict[Key, Entry] = {}
        coming: dict[Key, Entry] = {}
        pending = [self._finding]
        while pending:
            finding = pending.pop()
            row = _row_of(finding)
            if row is not None:
                rows[row.key] = row
                self._change.witness = row.key
                self._leave_behind(finding, row)
            if finding.logged is None:
                continue
            logged = Entry.from_item(finding.logged)
            new = self._new(logged, logged.version + 1)
            found = None if new.key in rows else self._of.tree.table.get(new.key)
            other = None if found is None else self._told.get(str(found.get("id")))
            if found is None and new.key not in coming:
                coming[new.key] = new
                if new.key not in rows:
                    self._keep_open(new)
            elif found is not None and other is not None and _row_of(other) == Entry.from_item(found):
                coming[new.key] = new
                pending.append(other)
            else:
                new = self._in_lost_and_found(logged)
            self._named_by(new)
        for key, row in rows.items():
            if key not in coming:
                self._change.delete(key, row.unchanged())
        for key, new in coming.items():
            self._put(new, rows[key].unchanged() if key in rows else Absent())

    def _leave_behind(self, finding: Finding, row: Entry) -> None:
        """Have what the log says is there once a row is gone, or has other content."""
        logged = None if finding.logged is None else Entry.from_item(finding.logged)
        if row.data is not None and row.data.own and (logged is None or logged.data != row.data):
            self._of._drop_data(self._change, row)
        if row.is_directory and logged is None:
            record = self._of.tree.table.get(self._keys.directory(row.id))
            if record is not None and record.get("called") == row.name:
                self._change.delete(self._keys.directory(row.id), as_is(record))
            self._drop_gates(row.id)
        if finding.tombstone is not None and self._of.tree.table.get(key_of(finding.tombstone)) is None:
            self._change.put(Tombstone.from_item(finding.tombstone), Absent())

    def _keep_open(self, entry: Entry) -> None:
        """Have nobody remove the directory of an entry meanwhile, unless it is closed by now."""
        place = read_place(entry.key.hash)
        key = self._keys.gate(place.of, place.shard)
        found = self._of.tree.table.get(key)
        if found is not None and not self._change.writes_to(key):
            gate = evolve(Gate.from_item(found), word=self._change.word)
            self._change.put(gate, Equals("shards", gate.shards))

    def corrupt(self) -> None:
        """Put what should be there in the place of a record that cannot be read."""
        item = self._finding.records[0]
        with contextlib.suppress(CorruptRecord):
            record_of(item)  # of a newer format it is not corrupt, but somebody's who knows more
        key = key_of(item)
        place = read_place(key.hash)
        entry = None if place.kind == "e" else self._entry_of(place.of)
        if place.kind == "e" and self._of.log is not None:
            for state in logged_as(self._of.log, lambda item: key_of(item) == key).states.values():
                if state.item is not None and key_of(state.item) == key:
                    logged = Entry.from_item(state.item)
                    self._put(self._new(logged, logged.version + 1), as_is(item))
                    self._named_by(logged)
        if self._change.writes:
            return
        if place.of == TOP and key.range in (ROOT, TRASH):
            self.root(str(key.range), as_is(item))
        elif place.kind == "d" and entry is not None:
            self.touch(entry)
            self._redirect(entry, as_is(item))
        elif place.kind == "g" and entry is not None and entry.parent != TRASH:
            self.gates(entry, [key])
        elif place.kind == "x":
            self.remove_record()


def _row_of(finding: Finding) -> Entry | None:
    """Return what the table has of what a finding is about."""
    rows = [Entry.from_item(item) for item in finding.records if item.get("id") == finding.id]
    return rows[0] if rows else None
