"""Changes that repair findings: of entries, directory records, guard records and others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

from attrs import evolve, frozen

from commitlog.errors import CorruptRecord
from commitlog.namespace.fsck.cross_checks import has_content
from commitlog.namespace.fsck.problems import Finding
from commitlog.namespace.fsck.readers import StoreReader
from commitlog.namespace.fsck.repair_order import rows_of
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import (
    LOST_AND_FOUND,
    LOST_AND_FOUND_SHARDS,
    MAX_SHARDS,
    NAMESPACES,
    ROOT,
    TOP,
    TRASH,
    TRASH_SHARDS,
    parse_hash_key,
)
from commitlog.namespace.model.records import (
    NO_FILE,
    Directory,
    Entry,
    Garbage,
    Guard,
    Shards,
    Tombstone,
    record_of,
)
from commitlog.namespace.write.plan_common import PlanContext, add_entry, add_garbage, entry_key
from commitlog.namespace.write.plan_tree import plan_make_directory
from commitlog.namespace.write.transaction import Change, Changes, PlanOutdated
from commitlog.tables.api import Absent, All, Equals, Item, Key, TableCondition

__all__ = ["RepairContext", "is_unchanged", "plan_repair"]


@frozen(kw_only=True)
class RepairContext:
    """What repairs of one namespace use.

    Args:
        planning: what plans of the namespace use.
        row_planning: the same, for plans that concern records alone.
        changes: applies changes to the namespace.
        store: reader of the objects.
        began: epoch millisecond from which the grace period of unreferenced objects counts. It is the
            same if a repair is made again, and so is the key of its record.
    """

    planning: PlanContext
    row_planning: PlanContext
    changes: Changes
    store: StoreReader
    began: int


def plan_repair(
    context: RepairContext,
    finding: Finding,
    differing: Mapping[str, Finding],
    references: Callable[[], Mapping[str, frozenset[str]] | None],
    *,
    dry_run: bool,
) -> Change | None:
    """Return the change that repairs a finding; None if there is none.

    Args:
        context: the context.
        finding: the problem.
        differing: the findings whose records differ from the log, by id.
        references: returns the references to the objects of the records that differ between log and
            table; None if they are unknown.
        dry_run: whether lost+found must not be created.
    """
    name = finding.problem.name
    if not finding.problem.fix or finding.waits:
        return None
    change = Change(f"repair: {name}", context.row_planning.new_id(), context.row_planning.keys.metadata)
    fix = _RepairPlan(context, change, finding, differing, references, dry_run=dry_run)
    match name:
        case "no-metadata" | "wrong-metadata":
            fix.rewrite_metadata()
        case "corrupt-record" if finding.records[0]["place"] == NAMESPACES:
            fix.rewrite_metadata()
        case "corrupt-record":
            fix.replace_corrupt_record()
        case "no-root":
            fix.recreate_root(str(finding.id), Absent())
        case "duplicate-directory":
            fix.keep_one_directory()
        case "duplicate-file":
            fix.keep_one_file()
        case "no-directory-record" | "wrong-directory-record":
            fix.rewrite_directory_record()
        case "orphan-directory" | "unreachable-entry":
            fix.recover_directory()
        case "cycle" | "bad-name":
            fix.move_to_lost_and_found(fix.entries[0])
        case "no-guard":
            fix.write_guards(fix.entries[0], finding.missing)
        case "wrong-guard":
            fix.write_guards(fix.entries[0], [key_of(finding.records[-1])])
        case "wrong-shard":
            fix.move_to_right_shard()
        case "duplicate-name":
            for entry in fix.entries[1:-1]:
                fix.move_to_lost_and_found(entry)
        case "object-shared":
            fix.disown_object()
        case (
            "stray-guard"
            | "stray-tombstone"
            | "garbage-in-use"
            | "duplicate-garbage"
            | "misplaced-record"
        ):
            fix.remove_record()
        case "unlisted-garbage":
            fix.restore_logged(Absent())
        case "orphan-object":
            fix.list_as_garbage()
        case "log-newer" | "record-differs":
            fix.apply_log()
        case "row-newer":
            fix.write_again(fix.entries[0])
            fix.save_content(fix.entries[0])
    return change if change.writes else None


class _RepairPlan:
    """The change that repairs one finding, with the repair of each kind of problem.

    Args:
        context: the context.
        change: the change to fill.
        finding: the problem to repair.
        differing, references, dry_run: see `plan_repair`.

    Attributes:
        entries: the readable entries of the finding.
    """

    def __init__(
        self,
        context: RepairContext,
        change: Change,
        finding: Finding,
        differing: Mapping[str, Finding],
        references: Callable[[], Mapping[str, frozenset[str]] | None],
        *,
        dry_run: bool,
    ) -> None:
        self._context = context
        self._rows = context.row_planning
        self._keys = context.row_planning.keys
        self._table = context.row_planning.tree.table
        self._change = change
        self._finding = finding
        self._differing = differing
        self._references = references
        self._dry_run = dry_run
        self._now = context.row_planning.now()
        readable = [item for item in finding.records if "id" in item and "body" in item]
        if finding.problem.name == "corrupt-record":
            readable = [item for item in finding.records[1:] if item in readable]
        self.entries = [Entry.from_item(item) for item in readable]

    def _new(self, entry: Entry, version: int) -> Entry:
        return evolve(entry, version=version, change_id=self._change.id, updated=self._now)

    def _entry(self, id: str, shards: Shards) -> Entry:
        """Return an entry for a directory of which only the id is known."""
        return Entry(
            key=Key("", id),
            id=id,
            version=self._now,  # higher than any earlier version
            change_id=self._change.id,
            created=self._now,
            modified=self._now,
            updated=self._now,
            shards=shards,
        )

    def _put(self, entry: Entry, condition: TableCondition) -> None:
        self._change.primary = entry.key
        self._change.put(entry, condition)

    def _write_directory_record(self, entry: Entry, condition: TableCondition) -> None:
        key = self._keys.directory(entry.id)
        self._change.put(Directory(key=key, parent=entry.parent, name=entry.name), condition)

    def _put_directory_record(self, entry: Entry) -> None:
        """Write the directory record of an entry, and replace an existing one."""
        if entry.is_directory and entry.parent != TOP:
            record = self._table.get(self._keys.directory(entry.id))
            self._write_directory_record(entry, Absent() if record is None else is_unchanged(record))

    def _move(self, entry: Entry, into: Entry, name: str, *, closed: bool = False) -> Entry:
        """Put an entry into a directory; `closed` means that the directory takes no new entries."""
        new = evolve(self._new(entry, entry.version + 1), key=entry_key(self._rows, into, name))
        self._change.primary = new.key
        if closed:  # the trash and the directories in it have no guard records
            self._change.put(new, Absent())
        else:
            add_entry(self._rows, self._change, into, new)
        return new

    def _in_lost_and_found(self, entry: Entry) -> Entry:
        return self._move(entry, self._lost_and_found(), entry.id)

    def _lost_and_found(self) -> Entry:
        found = self._find_lost_and_found()
        if found is not None:
            return found
        change, made = plan_make_directory(
            self._context.planning, LOST_AND_FOUND, shards=LOST_AND_FOUND_SHARDS
        )
        if change is None or self._dry_run:
            return made
        try:
            self._context.changes.apply(change)
        except PlanOutdated:  # another repair may have made it meanwhile
            found = self._find_lost_and_found()
            if found is None:
                raise
            return found
        return made

    def _find_lost_and_found(self) -> Entry | None:
        found = self._rows.tree.find(self._rows.tree.root(), LOST_AND_FOUND)
        return found if found is not None and found.is_directory else None

    def _shards_of(self, id: str) -> tuple[Shards, bool]:
        """Return the apparent shards of a directory, and whether it has entries."""
        now, filled = 1, False
        for shard in range(MAX_SHARDS):
            guard = self._table.get(self._keys.guard(id, shard))
            if guard is not None and isinstance(guard.get("shards"), int):
                now = max(now, Guard.from_item(guard).shards)
            if next(self._table.query(self._keys.shard(id, shard)), None) is not None:
                filled = True
                now = max(now, 1 << shard.bit_length())
        return Shards(now=now, first=1), filled

    def _drop_guards(self, id: str) -> None:
        for shard in range(MAX_SHARDS):
            key = self._keys.guard(id, shard)
            found = self._table.get(key)
            if found is not None:
                self._change.delete(key, is_unchanged(found))

    # entries

    def write_again(self, entry: Entry, *, at_least: int = 0, data: Data | None = None) -> None:
        """Write a new version of an entry, so that the log has it."""
        new = self._new(entry, max(entry.version, at_least) + 1)
        if data is not None:
            new = evolve(new, data=data)
        self._put(new, entry.unchanged())

    def keep_one_directory(self) -> None:
        """Keep the entry that the log has, or else the one that the directory record names."""
        records = [item for item in self._finding.records if "entry_name" in item]
        kept = self._logged_entries() or [
            entry
            for entry in self.entries
            if (entry.parent == TOP and entry.name == entry.id)
            or any(
                (item["parent"], item["entry_name"]) == (entry.parent, entry.name) for item in records
            )
        ]
        if self._finding.logged is not None and len(kept) != 1:
            self.apply_log()
        elif len(kept) == 1:
            self._keep_one(kept[0])
            if any(
                (each["parent"], each["entry_name"]) != (kept[0].parent, kept[0].name)
                for each in records
            ):
                self._write_directory_record(kept[0], is_unchanged(records[0]))

    def _logged_entries(self) -> list[Entry]:
        """Return the one of several entries that the log has, or a newer one at its place."""
        if self._finding.logged is None:
            return []
        logged = Entry.from_item(self._finding.logged)
        return [entry for entry in self.entries if entry == logged] or [
            entry for entry in self.entries if entry.key == logged.key and entry.version > logged.version
        ]

    def _keep_one(self, kept: Entry) -> None:
        """Remove the other entries; their objects stay, since their owners are unknown."""
        others = [entry for entry in self.entries if entry is not kept]
        # Exceed the removed versions, or the log would have the kept entry as removed.
        self.write_again(kept, at_least=max(entry.version for entry in others))
        for entry in others:
            self._change.delete(entry.key, entry.unchanged())

    def keep_one_file(self) -> None:
        """Keep the entry that the log has, or else the one with the highest version.

        If several have that version, each becomes a separate file.
        """
        *_, older, newest = sorted(self.entries, key=lambda entry: entry.version)
        kept = self._logged_entries()
        if kept:
            self._keep_one(kept[0])
            self.save_content(kept[0])
        elif self._finding.logged is not None:
            self.apply_log()
        elif older.version < newest.version:
            self._keep_one(newest)
        else:
            others = [entry for entry in self.entries if entry is not newest]
            self.write_again(newest)
            for entry in others:
                new = evolve(self._new(entry, 1), id=self._rows.new_id())
                self._change.put(new, entry.unchanged())

    def move_to_right_shard(self) -> None:
        """Move an entry to the right shard."""
        entry, upper = self.entries
        self._change.check(upper.key, upper.unchanged())
        self._change.delete(entry.key, entry.unchanged())
        self._move(entry, upper, entry.name, closed=TRASH in (upper.id, upper.parent))

    def disown_object(self) -> None:
        """Keep an object when the files that refer to it are removed."""
        for entry in self.entries:
            assert entry.data is not None
            self.write_again(entry, data=evolve(entry.data, own=False))

    # directories

    def rewrite_directory_record(self) -> None:
        """Rebuild a directory record from its entry."""
        entry = self.entries[0]
        self.write_again(entry)
        record = [item for item in self._finding.records if "entry_name" in item]
        self._write_directory_record(entry, is_unchanged(record[0]) if record else Absent())

    def recover_directory(self) -> None:
        """Move a directory without an entry into lost+found; remove it if it is empty."""
        id = self._finding.id
        assert id is not None
        record = next((item for item in self._finding.records if "entry_name" in item), None)
        was = Absent() if record is None else is_unchanged(record)
        shards, filled = self._shards_of(id)
        if filled:
            moved = self._in_lost_and_found(self._entry(id, shards))
            self._write_directory_record(moved, was)
            guards = [self._keys.guard(id, shard) for shard in range(shards.now)]
            self.write_guards(moved, guards, checked=True)
        else:
            self._change.primary = self._keys.directory(id)
            self._change.delete(self._keys.directory(id), was)
            self._drop_guards(id)
        for key in self._finding.missing:
            self._change.check(key, Absent())  # it still has no entry
        for entry in self.entries:
            if entry.id != id and not self._change.writes_to(entry.key):
                self._change.check(entry.key, Equals("id", entry.id))  # nor one at this place

    def recreate_root(self, id: str, was: TableCondition) -> None:
        """Create the entry of the root or the trash again."""
        shards = Shards(now=TRASH_SHARDS, first=TRASH_SHARDS) if id == TRASH else self._shards_of(id)[0]
        self._put(evolve(self._entry(id, shards), key=self._keys.entry(TOP, 0, id)), was)

    def move_to_lost_and_found(self, entry: Entry) -> None:
        """Move an entry into lost+found."""
        self._change.delete(entry.key, entry.unchanged())
        self._put_directory_record(self._in_lost_and_found(entry))

    # guard records and others

    def write_guards(self, entry: Entry, keys: Iterable[Key], *, checked: bool = False) -> None:
        """Write guard records of a directory, and replace existing ones."""
        if not checked:
            self._change.check(entry.key, entry.unchanged())
        for key in keys:
            found = self._table.get(key)
            guard = Guard(key=key, shards=entry.shards.now, change_id=self._change.id)
            if not checked:
                self._change.primary = key
            if found is None or found.get("shards") != entry.shards.now:
                self._change.put(guard, Absent() if found is None else is_unchanged(found))

    def remove_record(self) -> None:
        """Remove the last record of the finding, if the others are unchanged."""
        item = self._finding.records[-1]
        self._change.primary = key_of(item)
        self._change.delete(key_of(item), is_unchanged(item))
        for entry in self.entries:
            self._change.check(entry.key, entry.unchanged())
        for key in self._finding.missing:
            self._change.check(key, Absent())

    def list_as_garbage(self) -> None:
        """List an object as garbage."""
        assert self._finding.object is not None
        info = self._context.store.begin_head(self._finding.object)().info
        if info is None:
            return
        not_before = self._context.began + int(self._rows.grace * 1000)
        key = self._keys.garbage(not_before, info.path)
        self._change.primary = key
        data = Data(path=info.path, size=info.size, etag=info.etag, version=info.version)
        garbage = Garbage(
            key=key,
            file=NO_FILE,
            version=0,
            change_id=self._change.id,
            not_before=not_before,
            data=data,
        )
        self._change.put(garbage, Absent())

    def rewrite_metadata(self) -> None:
        """Put the metadata record of the log; if it has none, put the current one again and log it."""
        rows = self._finding.records
        logged, log = self._finding.logged, self._context.changes.log
        metadata = NamespaceMetadata.from_item(rows[0] if logged is None else logged)
        if logged is None and log is not None:
            metadata = evolve(metadata, log=log.root.prefix)
        self._change.put(
            evolve(metadata, change_id=self._change.id), is_unchanged(rows[0]) if rows else Absent()
        )

    def restore_logged(self, was: TableCondition) -> None:
        """Put the tombstone, or the piece of garbage, of the log."""
        assert self._finding.logged is not None
        kind = parse_hash_key(key_of(self._finding.logged).hash).kind
        record = (Tombstone if kind == "t" else Garbage).from_item(self._finding.logged)
        self._change.primary = record.key
        self._change.put(evolve(record, change_id=self._change.id), was)

    # from the log

    def apply_log(self) -> None:
        """Apply the log; move an entry that is in the way to its place in the log, or remove it."""
        rows: dict[Key, Entry] = {}
        coming: dict[Key, Entry] = {}
        pending = [self._finding]
        while pending:
            finding = pending.pop()
            found_rows = rows_of(finding)
            for row in found_rows:
                rows[row.key] = row
                self._change.primary = row.key
                self._put_side_effects(finding, row)
            if finding.logged is None:
                continue
            logged = Entry.from_item(finding.logged)
            logged = self._with_content(finding, logged, found_rows)
            # Exceed the removed versions, or the log would have the new entry as removed.
            new = self._new(logged, max(each.version for each in (logged, *found_rows)) + 1)
            found = None if new.key in rows else self._table.get(new.key)
            other = None if found is None else self._differing.get(str(found.get("id")))
            if found is None and new.key not in coming:
                coming[new.key] = new
                if new.key not in rows:
                    self._prevent_removal(new)
            elif found is not None and other is not None and Entry.from_item(found) in rows_of(other):
                coming[new.key] = new
                pending.append(other)
            else:
                new = self._in_lost_and_found(evolve(logged, version=new.version - 1))
            self._put_directory_record(new)
        for key, row in rows.items():
            if key not in coming:
                self._change.delete(key, row.unchanged())
        for key, new in coming.items():
            self._put(new, rows[key].unchanged() if key in rows else Absent())

    def _with_content(self, finding: Finding, logged: Entry, rows: list[Entry]) -> Entry:
        """Return the entry of the log; if its object is missing, use an existing one of the rows."""
        if (
            finding.problem.name == "log-newer"
            or logged.data is None
            or self._content_exists(logged.data)
        ):
            return logged
        found = [row.data for row in rows if row.data is not None and self._content_exists(row.data)]
        return evolve(logged, data=found[0]) if found else logged

    def _is_referenced(self, row: Entry) -> bool:
        """Return whether anything else refers, or may refer, to the object of a row."""
        names = self._references()
        if names is None or row.data is None or row.data.path not in names:
            return True
        return bool(names[row.data.path] - {f"{row.key.hash} {row.key.range}"})

    def _was_replaced(self, logged: Entry) -> bool:
        """Return whether the table lists the object of a file as garbage because it was overwritten."""
        names = self._references()
        path = "" if logged.data is None else logged.data.path
        return names is None or f"x/{logged.id}-{logged.version}" in names.get(path, ())

    def save_content(self, row: Entry) -> None:
        """Put the logged file into lost+found if a newer row, which stays, has other content.

        An overwrite through the namespace lists the earlier content as garbage.
        """
        logged = None if self._finding.logged is None else Entry.from_item(self._finding.logged)
        if logged is None or logged.data is None or not logged.data.own:
            return
        if row.data is not None and row.data.path == logged.data.path:
            return
        if self._content_exists(logged.data) and not self._was_replaced(logged):
            saved = evolve(logged, id=self._rows.new_id(), version=0, created=self._now)
            self._move(saved, self._lost_and_found(), f"{logged.id}-{logged.version}")
            self._change.primary = row.key

    def _content_exists(self, data: Data) -> bool:
        """Return whether the store has the object that a file names, unchanged."""
        info = self._context.store.begin_head(data.path)().info
        return info is not None and has_content(data, info)

    def _put_side_effects(self, finding: Finding, row: Entry) -> None:
        """Put the garbage, tombstone and removals that follow when a row is removed or overwritten."""
        logged = None if finding.logged is None else Entry.from_item(finding.logged)
        other = logged is None or logged.data != row.data
        differs = finding.problem.name != "log-newer"  # the writer of that row is unknown
        if (
            row.data is not None
            and row.data.own
            and other
            and not differs
            and not self._is_referenced(row)
        ):
            add_garbage(self._rows, self._change, row)
        if row.is_directory and logged is None:
            record = self._table.get(self._keys.directory(row.id))
            if record is not None and record.get("entry_name") == row.name:
                self._change.delete(self._keys.directory(row.id), is_unchanged(record))
            self._drop_guards(row.id)
        if finding.tombstone is not None and self._table.get(key_of(finding.tombstone)) is None:
            self._change.put(Tombstone.from_item(finding.tombstone), Absent())

    def _prevent_removal(self, entry: Entry) -> None:
        """Keep the directory of an entry from being removed meanwhile, unless it is already closed."""
        place = parse_hash_key(entry.key.hash)
        key = self._keys.guard(place.id, place.shard)
        found = self._table.get(key)
        if found is not None and not self._change.writes_to(key):
            guard = evolve(Guard.from_item(found), change_id=self._change.id)
            self._change.put(guard, Equals("shards", guard.shards))

    def replace_corrupt_record(self) -> None:
        """Replace an unreadable record by a correct one."""
        item = self._finding.records[0]
        with contextlib.suppress(CorruptRecord):
            record_of(item)  # a newer format is not corrupt: `FormatTooNew` ends the repair
        key = key_of(item)
        place = parse_hash_key(key.hash)
        entry = self.entries[0] if self.entries else None
        if self._finding.logged is not None and place.kind == "e":
            logged = Entry.from_item(self._finding.logged)
            self._put(self._new(logged, logged.version + 1), is_unchanged(item))
            self._put_directory_record(logged)
        elif self._finding.logged is not None:
            self.restore_logged(is_unchanged(item))
        elif place.id == TOP and key.range in (ROOT, TRASH):
            self.recreate_root(str(key.range), is_unchanged(item))
        elif place.kind == "d" and entry is not None:
            self.write_again(entry)
            self._write_directory_record(entry, is_unchanged(item))
        elif place.kind == "g" and entry is not None and entry.parent != TRASH:
            self._change.check(entry.key, entry.unchanged())
            self._change.primary = key
            guard = Guard(key=key, shards=entry.shards.now, change_id=self._change.id)
            self._change.put(guard, is_unchanged(item))
        elif place.kind in ("x", "t"):
            self.remove_record()


def is_unchanged(item: Item) -> TableCondition:
    """Return the condition that a record is unchanged, as far as the log can represent it.

    The condition leaves out the id and the version. In the log they would mean that this version of a
    file or directory was replaced, but a damaged record may have the id and version of another one.
    """
    parts = [
        Equals(name, value)
        for name, value in item.items()
        if name not in ("place", "name", "id", "version") and not isinstance(value, bytes)
    ]
    return All(tuple(parts)) if parts else Equals("name", item["name"])
