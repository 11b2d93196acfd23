"""What repairs each kind of finding: one change, on condition that all is as it was found.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

from attrs import evolve, frozen

from commitlog.errors import CorruptRecord
from commitlog.namespace.against import is_of
from commitlog.namespace.change import Change
from commitlog.namespace.data import Data
from commitlog.namespace.fixing import Fixing, Means, as_is
from commitlog.namespace.items import key_of
from commitlog.namespace.keys import MARKERS, ROOT, TOP, TRASH, TRASH_SHARDS, read_place
from commitlog.namespace.leftovers import NAMELESS, Garbage, Tombstone
from commitlog.namespace.marker import Marker
from commitlog.namespace.problems import Finding
from commitlog.namespace.records import Entry, Gate, Shards
from commitlog.namespace.snapshot import record_of
from commitlog.tables.api import Absent, Equals, Key, TableCondition

__all__ = ["Fixes"]


@frozen(kw_only=True)
class Fixes(Means):
    """Plans repairs of one namespace."""

    def plan(
        self,
        finding: Finding,
        told: Mapping[str, Finding],
        namers: Callable[[], Mapping[str, frozenset[str]] | None],
        *,
        dry_run: bool,
    ) -> Change | None:
        """Return the change that repairs a finding; None if there is none.

        Args:
            finding: what is wrong.
            told: all of which the log says something else, by id.
            namers: tells what names the objects of what the log and the table say different things of;
                None if that is unknown.
            dry_run: whether not even lost+found is made.
        """
        name = finding.problem.name
        if not finding.problem.fix or finding.waits:
            return None
        change = Change(f"repair: {name}", self.words(), self.keys.marker)
        fix = _Fix(self, change, finding, told, namers, dry_run=dry_run)
        match name:
            case "no-marker" | "wrong-marker":
                fix.marker()
            case "corrupt-record" if finding.records[0]["place"] == MARKERS:
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
            case "cycle" | "bad-name":
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
            case (
                "stray-gate"
                | "stray-tombstone"
                | "garbage-in-use"
                | "garbage-listed-twice"
                | "misplaced-record"
            ):
                fix.remove_record()
            case "unlisted-garbage":
                fix.leftover(Absent())
            case "unnamed-object":
                fix.discard_object()
            case "log-newer" | "record-differs":
                fix.as_logged()
            case "row-newer":
                fix.touch(fix.entries[0])
                fix.save_content(fix.entries[0])
        return change if change.writes else None


class _Fix(Fixing):
    """What is done for each kind."""

    def __init__(
        self,
        of: Means,
        change: Change,
        finding: Finding,
        told: Mapping[str, Finding],
        namers: Callable[[], Mapping[str, frozenset[str]] | None],
        *,
        dry_run: bool,
    ) -> None:
        super().__init__(of, change, finding, dry_run=dry_run)
        self._told = told
        self._namers = namers

    # entries

    def touch(self, entry: Entry, *, at_least: int = 0, data: Data | None = None) -> None:
        """Write an entry anew, so that the log has it."""
        new = self._new(entry, max(entry.version, at_least) + 1)
        if data is not None:
            new = evolve(new, data=data)
        self._put(new, entry.unchanged())

    def named_twice(self) -> None:
        """Keep the entry that the log has, or else that which the directory record names."""
        records = [item for item in self._finding.records if "called" in item]
        kept = self._logged_one() or [
            entry
            for entry in self.entries
            if (entry.parent == TOP and entry.name == entry.id)
            or any((item["parent"], item["called"]) == (entry.parent, entry.name) for item in records)
        ]
        if self._finding.logged is not None and len(kept) != 1:
            self.as_logged()
        elif len(kept) == 1:
            self._keep_one(kept[0])
            if any(
                (each["parent"], each["called"]) != (kept[0].parent, kept[0].name) for each in records
            ):
                self._redirect(kept[0], as_is(records[0]))

    def _logged_one(self) -> list[Entry]:
        """Return that of several entries which the log has, or a newer one in the place of that."""
        if self._finding.logged is None:
            return []
        logged = Entry.from_item(self._finding.logged)
        return [entry for entry in self.entries if entry == logged] or [
            entry for entry in self.entries if entry.key == logged.key and entry.version > logged.version
        ]

    def _keep_one(self, kept: Entry) -> None:
        """Remove the other entries; what they name stays, for nobody knows whose it is."""
        others = [entry for entry in self.entries if entry is not kept]
        # Newer than those that go, or the log would say that it is gone.
        self.touch(kept, at_least=max(entry.version for entry in others))
        for entry in others:
            self._change.delete(entry.key, entry.unchanged())

    def file_twice(self) -> None:
        """Keep the entry that the log has, or else that of the higher version.

        If two have that, each of them is a file from now on.
        """
        *_, older, newest = sorted(self.entries, key=lambda entry: entry.version)
        kept = self._logged_one()
        if kept:
            self._keep_one(kept[0])
            self.save_content(kept[0])
        elif self._finding.logged is not None:
            self.as_logged()
        elif older.version < newest.version:
            self._keep_one(newest)
        else:
            others = [entry for entry in self.entries if entry is not newest]
            self.touch(newest)
            for entry in others:
                new = evolve(self._new(entry, 1), id=self._of.words())
                self._change.put(new, entry.unchanged())

    def shard(self) -> None:
        """Move an entry to where it is looked for."""
        entry, upper = self.entries
        self._change.check(upper.key, upper.unchanged())
        self._change.delete(entry.key, entry.unchanged())
        self._move(entry, upper, entry.name, closed=TRASH in (upper.id, upper.parent))

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
        for entry in self.entries:
            if entry.id != id and not self._change.writes_to(entry.key):
                self._change.check(entry.key, Equals("id", entry.id))  # nor does what has its name

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
        """Put the marker that the log has; if it has none, the one that there is, so that it has."""
        rows = self._finding.records
        logged, log = self._finding.logged, self._of.changes.log
        marker = Marker.from_item(rows[0] if logged is None else logged)
        if logged is None and log is not None:
            marker = evolve(marker, log=log.root.prefix)
        self._change.put(evolve(marker, word=self._change.word), as_is(rows[0]) if rows else Absent())

    def leftover(self, was: TableCondition) -> None:
        """Put the tombstone, or the piece of garbage, that the log has."""
        assert self._finding.logged is not None
        kind = read_place(key_of(self._finding.logged).hash).kind
        record = (Tombstone if kind == "t" else Garbage).from_item(self._finding.logged)
        self._change.witness = record.key
        self._change.put(evolve(record, word=self._change.word), was)

    # by the log

    def as_logged(self) -> None:
        """Do what the log says was done; what is in its way goes where the log has that, or with it."""
        rows: dict[Key, Entry] = {}
        coming: dict[Key, Entry] = {}
        pending = [self._finding]
        while pending:
            finding = pending.pop()
            found_rows = _rows_of(finding)
            for row in found_rows:
                rows[row.key] = row
                self._change.witness = row.key
                self._leave_behind(finding, row)
            if finding.logged is None:
                continue
            logged = Entry.from_item(finding.logged)
            logged = self._with_content(finding, logged, found_rows)
            # Newer than those that go, or the log would say that it is gone.
            new = self._new(logged, max(each.version for each in (logged, *found_rows)) + 1)
            found = None if new.key in rows else self._of.tree.table.get(new.key)
            other = None if found is None else self._told.get(str(found.get("id")))
            if found is None and new.key not in coming:
                coming[new.key] = new
                if new.key not in rows:
                    self._keep_open(new)
            elif found is not None and other is not None and Entry.from_item(found) in _rows_of(other):
                coming[new.key] = new
                pending.append(other)
            else:
                new = self._in_lost_and_found(evolve(logged, version=new.version - 1))
            self._named_by(new)
        for key, row in rows.items():
            if key not in coming:
                self._change.delete(key, row.unchanged())
        for key, new in coming.items():
            self._put(new, rows[key].unchanged() if key in rows else Absent())

    def _with_content(self, finding: Finding, logged: Entry, rows: list[Entry]) -> Entry:
        """Return what the log has; with the object of a row, if that is there and the log's is not."""
        if finding.problem.name == "log-newer" or logged.data is None or self._has(logged.data):
            return logged
        found = [row.data for row in rows if row.data is not None and self._has(row.data)]
        return evolve(logged, data=found[0]) if found else logged

    def _is_named(self, row: Entry) -> bool:
        """Tell whether the object of a row is named by anything else, or may be."""
        names = self._namers()
        if names is None or row.data is None or row.data.path not in names:
            return True
        return bool(names[row.data.path] - {f"{row.key.hash} {row.key.range}"})

    def _was_replaced(self, logged: Entry) -> bool:
        """Tell whether the table lists the object of a file as garbage since it was overwritten."""
        names = self._namers()
        path = "" if logged.data is None else logged.data.path
        return names is None or f"x/{logged.id}-{logged.version}" in names.get(path, ())

    def save_content(self, row: Entry) -> None:
        """Put what the log has into lost+found if a newer row, which stays, has other content.

        An overwrite through the namespace lists the content before it as garbage.
        """
        logged = None if self._finding.logged is None else Entry.from_item(self._finding.logged)
        if logged is None or logged.data is None or not logged.data.own:
            return
        if row.data is not None and row.data.path == logged.data.path:
            return
        if self._has(logged.data) and not self._was_replaced(logged):
            saved = evolve(logged, id=self._of.words(), version=0, created=self._now)
            self._move(saved, self._lost_and_found(), f"{logged.id}-{logged.version}")
            self._change.witness = row.key

    def _has(self, data: Data) -> bool:
        """Tell whether the store has an object as a file names it."""
        info = self._of.store.begin_head(data.path)().info
        return info is not None and is_of(data, info)

    def _leave_behind(self, finding: Finding, row: Entry) -> None:
        """Have what the log says is there once a row is gone, or has other content."""
        logged = None if finding.logged is None else Entry.from_item(finding.logged)
        other = logged is None or logged.data != row.data
        differs = finding.problem.name != "log-newer"  # who has written that is not known
        if row.data is not None and row.data.own and other and not differs and not self._is_named(row):
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
        entry = self.entries[0] if self.entries else None
        if self._finding.logged is not None and place.kind == "e":
            logged = Entry.from_item(self._finding.logged)
            self._put(self._new(logged, logged.version + 1), as_is(item))
            self._named_by(logged)
        elif self._finding.logged is not None:
            self.leftover(as_is(item))
        elif place.of == TOP and key.range in (ROOT, TRASH):
            self.root(str(key.range), as_is(item))
        elif place.kind == "d" and entry is not None:
            self.touch(entry)
            self._redirect(entry, as_is(item))
        elif place.kind == "g" and entry is not None and entry.parent != TRASH:
            self._change.check(entry.key, entry.unchanged())
            self._change.witness = key
            gate = Gate(key=key, shards=entry.shards.now, word=self._change.word)
            self._change.put(gate, as_is(item))
        elif place.kind in ("x", "t"):
            self.remove_record()


def _rows_of(finding: Finding) -> list[Entry]:
    """Return what the table has of what a finding is about."""
    return [Entry.from_item(item) for item in finding.records if item.get("id") == finding.id]
