"""Checks of the records of a namespace by themselves: its tree, guard records, shards and garbage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain

from commitlog.namespace.fsck.problems import PROBLEMS, Finding
from commitlog.namespace.fsck.readers import ScannedRecords
from commitlog.namespace.log.merge import cycles_of
from commitlog.namespace.model.codec import item_name
from commitlog.namespace.model.keys import (
    MAX_SHARDS,
    ROOT,
    STAGING,
    TOP,
    TRASH,
    Keys,
    is_name,
    kind_of,
    parse_hash_key,
    shards_of,
)
from commitlog.namespace.model.records import Entry, Garbage, Guard, Record, Shards
from commitlog.tables.api import Item, Key

__all__ = ["TreeChecks", "has_path", "is_in_place"]


def has_path(entry: Entry) -> bool:
    """Return whether an entry has a valid name, and does not block the staging directory."""
    in_the_way = entry.parent == ROOT and entry.name == STAGING and not entry.is_directory
    return is_name(entry.name) and not in_the_way


def is_in_place(name: str, shard: int, shards: Shards) -> bool:
    """Return whether readers look for an entry of a directory in this shard."""
    return shard in shards_of(name, shards.now, shards.first)


class TreeChecks:
    """Checks of the records of one namespace.

    Args:
        snapshot: all records of directories, and all other records or at least the suspect ones.
        keys: keys of the namespace.

    Attributes:
        snapshot: as given.
    """

    def __init__(self, snapshot: ScannedRecords, keys: Keys) -> None:
        self.snapshot = snapshot
        self._keys = keys
        self._directories_by_id: dict[str, list[Entry]] = defaultdict(list)
        self._files_by_id: dict[str, list[Entry]] = defaultdict(list)
        self._children: dict[str, list[Entry]] = defaultdict(list)
        self._guards_by_id: dict[str, dict[int, Guard]] = defaultdict(dict)
        # In the order of keys, so that findings do not depend on the order of a scan.
        for entry in sorted(snapshot.entries.values(), key=_place_of):
            (self._directories_by_id if entry.is_directory else self._files_by_id)[entry.id].append(
                entry
            )
            self._children[entry.parent].append(entry)
        for (id, shard), guard in snapshot.guards.items():
            self._guards_by_id[id][shard] = guard
        #: Unreadable records do exist.
        self._corrupt = {key.hash for key in snapshot.corrupt}

    def findings(self) -> Iterator[Finding]:
        """Yield the problems that the records show."""
        yield from self._unreadable()
        for id in {**self._directories_by_id, **self._files_by_id}:
            yield from self._names(id)
        for entry in self.snapshot.entries.values():
            if not has_path(entry):
                yield self._finding("bad-name", [entry], id=entry.id)
        directories = {**self._directories_by_id, **self.snapshot.directories, **self._children}
        for id in directories:
            yield from self._directory(id)
        yield from self._cycles()
        for id in {**self._directories_by_id, **self._guards_by_id}:
            yield from self._guards(id)
        yield from self._shards()
        yield from self._objects()

    def findings_of(self, id: str) -> Iterator[Finding]:
        """Yield the problems of one id that its own records show.

        These are its entries, its directory record and its guard records; and whether it has entries.
        """
        yield from self._names(id)
        yield from self._directory(id)
        yield from self._guards(id)

    # paths

    def path(self, entry: Entry) -> str:
        """Return the path of an entry, for people."""
        return self.path_of_key(entry.key)

    def path_of_key(self, key: Key) -> str:
        """Return the path of an entry with this key, for people."""
        above = parse_hash_key(key.hash).id
        if above == TOP:
            return "" if key.range == ROOT else f"[{key.range}]"
        names, seen = [str(key.range)], {above}
        while above not in (ROOT, TRASH) and len(self._directories_by_id.get(above, ())) == 1:
            entry = self._directories_by_id[above][0]
            names.append(entry.name)
            above = entry.parent
            if above in seen:
                break
            seen.add(above)
        top = [] if above == ROOT else [f"[{above}]"]
        return "/".join([*top, *reversed(names)])

    def directory_of(self, entry: Entry) -> Entry | None:
        """Return the directory of an entry; None if it is unknown, or named twice."""
        named = self._directories_by_id.get(entry.parent, ())
        return named[0] if len(named) == 1 else None

    def shards_of(self, id: str) -> Shards | None:
        """Return the shards of a directory; None if it is unknown, or named twice."""
        named = self._directories_by_id.get(id, ())
        return named[0].shards if len(named) == 1 else None

    # unreadable records

    def _unreadable(self) -> Iterator[Finding]:
        for key, (item, reason) in self.snapshot.corrupt.items():
            kind, entry = PROBLEMS["corrupt-record"], self._entry_of(key)
            records = (item,) if entry is None else (item, entry.to_item())
            yield Finding(problem=kind, path=item_name(item), detail=reason, records=records)
        for key, item in self.snapshot.strange.items():
            misplaced = kind_of(key) in ("d", "g")
            kind = PROBLEMS["misplaced-record" if misplaced else "strange-record"]
            yield Finding(problem=kind, path=item_name(item), records=(item,))
        for id in (ROOT, TRASH):
            key = self._keys.entry(TOP, 0, id)
            if key not in self.snapshot.entries and key not in self.snapshot.corrupt:
                yield Finding(problem=PROBLEMS["no-root"], path=f"[{id}]", missing=(key,), id=id)

    def _entry_of(self, key: Key) -> Entry | None:
        """Return the entry of the directory whose record or guard record has this key, if known."""
        place = parse_hash_key(key.hash)
        entries = self._directories_by_id.get(place.id, ()) if place.kind in ("d", "g") else ()
        return entries[0] if len(entries) == 1 else None

    # the tree

    def _names(self, id: str) -> Iterator[Finding]:
        directories = self._directories_by_id.get(id, [])
        files = self._files_by_id.get(id, [])
        if directories and len(directories) + len(files) > 1:
            record = self.snapshot.directories.get(id)
            yield self._finding("duplicate-directory", [*directories, *files], record, id=id)
        elif len(files) > 1:
            yield self._finding("duplicate-file", files, id=id)

    def _directory(self, id: str) -> Iterator[Finding]:
        entries = self._directories_by_id.get(id, [])
        record = self.snapshot.directories.get(id)
        key = self._keys.directory(id)
        if len(entries) == 1 and id not in (ROOT, TRASH):
            [entry] = entries
            if record is None:
                if key.hash not in self._corrupt:
                    yield self._finding("no-directory-record", [entry], missing=[key], id=id)
            elif (record.parent, record.name) != (entry.parent, entry.name):
                yield self._finding("wrong-directory-record", [entry], record, id=id)
        if record is not None and not entries:
            candidates = shards_of(record.name, MAX_SHARDS, 1)
            missing = [self._keys.entry(record.parent, place, record.name) for place in candidates]
            yield self._finding(
                "orphan-directory",
                [],
                record,
                missing=missing,
                path=self.path_of_key(missing[0]),
                id=id,
                detail=f"{self.snapshot.inside[id]} entries are in it",
            )
        if self.is_unknown(id) and self._children.get(id):
            yield self._finding(
                "unreachable-entry",
                self._children[id][:1],
                missing=[key],
                id=id,
                detail=f"{self.snapshot.inside[id]} entries are in it",
            )

    def is_unknown(self, id: str) -> bool:
        """Return whether a directory has no record at all."""
        known = (
            id in self._directories_by_id or id in self.snapshot.directories or id in (ROOT, TRASH, TOP)
        )
        return not known and self._keys.directory(id).hash not in self._corrupt

    def _cycles(self) -> Iterator[Finding]:
        above = {
            id: entries[0].parent for id, entries in self._directories_by_id.items() if len(entries) == 1
        }
        for members in map(sorted, cycles_of(above)):
            entries = [self._directories_by_id[each][0] for each in members]
            yield self._finding("cycle", entries, id=members[0], detail=f"{len(members)} directories")

    # guard records and shards

    def _guards(self, id: str) -> Iterator[Finding]:
        left = dict(self._guards_by_id.get(id, {}))
        entries = self._directories_by_id.get(id, [])
        if entries and id != TRASH and (entries[0].parent != TRASH or len(entries) > 1):
            entry = entries[0]
            for shard in range(entry.shards.now):
                guard = left.pop(shard, None)
                key = self._keys.guard(id, shard)
                if guard is None:
                    if key.hash not in self._corrupt:
                        yield self._finding("no-guard", [entry], missing=[key], id=id)
                elif guard.shards != entry.shards.now:
                    yield self._finding("wrong-guard", [entry], guard, id=id)
        if not entries and (id == ROOT or id in self.snapshot.directories):
            return  # the repair of the directory includes its guard records
        missing = [] if entries else [self._keys.directory(id)]
        for guard in left.values():
            yield self._finding(
                "stray-guard", entries[:1], guard, missing=missing, path=f"[{id}]", id=id
            )

    def _shards(self) -> Iterator[Finding]:
        for id, children in self._children.items():
            upper = self._directories_by_id.get(id, [])
            if len(upper) != 1:
                continue
            shards = upper[0].shards
            names: dict[str, list[Entry]] = defaultdict(list)
            for entry in children:
                names[entry.name].append(entry)
                if not is_in_place(entry.name, parse_hash_key(entry.key.hash).shard, shards):
                    yield self._finding("wrong-shard", [entry, upper[0]], id=entry.id)
            for name, entries in names.items():
                if len(entries) > 1:
                    candidates = shards_of(name, shards.now, shards.first)
                    found = sorted(
                        entries, key=lambda each: _rank(candidates, parse_hash_key(each.key.hash).shard)
                    )
                    yield self._finding("duplicate-name", found, upper[0])
        for key, tombstone in self.snapshot.tombstones.items():
            id = parse_hash_key(key.hash).id
            if self.is_unknown(id):
                missing = [self._keys.directory(id)]
                path = f"[{id}]/{tombstone.name}"
                yield self._finding("stray-tombstone", [], tombstone, missing=missing, path=path)

    # objects

    def _objects(self) -> Iterator[Finding]:
        named: dict[str, list[Entry]] = defaultdict(list)
        for entry in chain.from_iterable(self._files_by_id.values()):
            if entry.data is not None:
                named[entry.data.path].append(entry)
        for path, entries in named.items():
            if len({each.id for each in entries}) > 1 and any(
                each.data.own for each in entries if each.data
            ):
                yield self._finding("object-shared", entries, object=path)
        listed: dict[str, Garbage] = {}
        # Report the later of two: the object would already be removed with the earlier one.
        for garbage in sorted(self.snapshot.garbage.values(), key=_age_of):
            path = garbage.data.path
            if not garbage.data.own:
                continue
            if path in named:
                yield self._finding("garbage-in-use", named[path][:1], garbage, object=path)
            if path in listed:
                yield self._finding(
                    "duplicate-garbage", [], listed[path], garbage, path=path, object=path
                )
            listed[path] = garbage

    # results

    def _finding(
        self,
        kind: str,
        entries: Iterable[Entry],
        *records: Record | None,
        missing: Iterable[Key] = (),
        path: str | None = None,
        detail: str = "",
        id: str | None = None,
        object: str | None = None,
    ) -> Finding:
        all_records: list[Record] = [*entries, *(each for each in records if each is not None)]
        items: list[Item] = [record.to_item() for record in all_records]
        return Finding(
            problem=PROBLEMS[kind],
            path=self.path_of_key(all_records[0].key) if path is None else path,
            detail=detail,
            records=tuple(items),
            missing=tuple(missing),
            id=id,
            object=object,
        )

    @cached_property
    def tree(self) -> dict[str, Entry]:
        """The entry of each path below the root."""
        found: dict[str, Entry] = {}
        seen = {ROOT}
        pending = [("", ROOT)]
        while pending:
            path, id = pending.pop()
            for entry in self._children[id]:
                at = f"{path}/{entry.name}" if path else entry.name
                found[at] = entry
                if entry.is_directory and entry.id not in seen:
                    seen.add(entry.id)
                    pending.append((at, entry.id))
        return found


def _place_of(entry: Entry) -> tuple[str, str | None]:
    return entry.key.hash, entry.key.range


def _age_of(garbage: Garbage) -> tuple[int, Key]:
    return garbage.not_before, garbage.key


def _rank(candidates: tuple[int, ...], shard: int) -> int:
    return candidates.index(shard) if shard in candidates else len(candidates)
