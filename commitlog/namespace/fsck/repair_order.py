"""The order of repairs, and the findings whose repairs depend on each other.

A repair relies on the stages before its own to be complete. Within a stage, repairs that depend on each
other keep the order of their findings.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator

from attrs import frozen

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.fsck.problems import Finding
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.keys import LOST_AND_FOUND, NAMESPACES, ROOT, TRASH, parse_hash_key
from commitlog.namespace.model.records import Entry
from commitlog.tables.api import Item, Key

__all__ = [
    "RepairEffects",
    "Stage",
    "described_objects",
    "effects_of",
    "ids_of",
    "in_order",
    "is_common",
    "rows_of",
    "stage_of",
]


class Stage(enum.IntEnum):
    """The stage of a repair."""

    METADATA = 0
    """The metadata record."""
    UNREADABLE = 1
    """Records that cannot be read; the log may have them."""
    LOG = 2
    """Records that differ from the log. They may resolve findings of later stages."""
    ROOT = 3
    """The root and the trash, if the log does not have them."""
    DUPLICATES = 4
    """Entries with the same id. Else the wrong entry could be moved, and become the newer one."""
    OTHERS = 5
    """All other findings about records."""
    ORPHANS = 6
    """Unreferenced objects. The repairs before may have referred to them."""


_ORDER = {
    "no-metadata": Stage.METADATA,
    "wrong-metadata": Stage.METADATA,
    "corrupt-record": Stage.UNREADABLE,
    "log-newer": Stage.LOG,
    "record-differs": Stage.LOG,
    "row-newer": Stage.LOG,
    "no-root": Stage.ROOT,
    "duplicate-directory": Stage.DUPLICATES,
    "duplicate-file": Stage.DUPLICATES,
    "orphan-object": Stage.ORPHANS,
}

#: Kinds of findings about a file whose repair may replace content.
_WITH_OBJECTS = frozenset({"duplicate-file", "log-newer", "row-newer"})

#: Kinds of findings whose last record is a directory that the repair only reads.
_BELOW = frozenset({"duplicate-name", "wrong-shard"})

#: Kinds of findings whose repair depends on whether a directory has entries.
_OF_CONTENTS = frozenset({"orphan-directory", "unreachable-entry"})


def stage_of(finding: Finding) -> Stage:
    """Return the stage of a finding's repair."""
    return _ORDER.get(finding.problem.name, Stage.OTHERS)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of their repairs; those of `is_common` come first in each stage."""
    return sorted(findings, key=lambda each: (stage_of(each), not is_common(each)))


def ids_of(finding: Finding) -> set[str]:
    """Return the ids of the affected files and directories."""
    found = {str(item["id"]) for item in finding.records if "id" in item}
    return found if finding.id is None else {*found, finding.id}


def rows_of(finding: Finding) -> list[Entry]:
    """Return the rows with the id of a finding."""
    return [Entry.from_item(item) for item in finding.records if item.get("id") == finding.id]


def described_objects(finding: Finding) -> Iterator[str]:
    """Yield the objects whose references the repair of a finding needs.

    These are the object of a row that is replaced, which may become garbage; and the object of the log
    if the row stays, which may have been overwritten.
    """
    name = finding.problem.name
    if name not in _WITH_OBJECTS:
        return
    logged = None if finding.logged is None else Entry.from_item(finding.logged)
    if name == "log-newer":
        for row in rows_of(finding):
            replaced = logged is None or logged.data != row.data
            if row.data is not None and row.data.own and replaced:
                yield row.data.path
    elif logged is not None and logged.data is not None and logged.data.own:
        yield logged.data.path


@frozen(kw_only=True)
class RepairEffects:
    """The effects of a repair, and its preconditions. Both name ids, keys, objects and contents.

    Two repairs depend on each other if one of them may change what the other changes or reads.

    Attributes:
        changes: everything that it may change.
        reads: everything else on which it relies.
    """

    changes: frozenset[str]
    reads: frozenset[str]


def effects_of(finding: Finding) -> RepairEffects:
    """Return the effects of the repair of a finding, and its preconditions.

    Guard records of a directory to which an entry is added are left out: the number of shards in them is
    what counts, and concurrent additions do not change that.
    """
    upper, items, keys = _parts_of(finding)
    changes = {*_names_of(items), *_names_of_keys(keys)}
    if finding.id is not None:
        changes.add(f"id {finding.id}")
    if finding.object is not None:
        changes.add(f"object {finding.object}")
    if finding.problem.name in _OF_CONTENTS:
        changes.add(f"contents {finding.id}")
    reads = {*_names_of(upper), *_names_of_keys(map(key_of, upper))}
    reads |= {f"contents {_place(key)[1]}" for key in keys if _place(key)[0] == "e"}
    return RepairEffects(changes=frozenset(changes), reads=frozenset(reads - changes))


def is_common(finding: Finding) -> bool:
    """Return whether many repairs may rely on that of a finding.

    It concerns the metadata record, the root, the trash, or the directory lost+found.
    """
    _, items, keys = _parts_of(finding)
    ids = {finding.id, *(item.get("id") for item in items)}
    ids |= {id for kind, id in map(_place, keys) if kind in ("d", "g")}
    return not ids.isdisjoint((ROOT, TRASH)) or any(
        key.hash == NAMESPACES or (_place(key) == ("e", ROOT) and key.range == LOST_AND_FOUND)
        for key in keys
    )


def _parts_of(finding: Finding) -> tuple[list[Item], list[Item], set[Key]]:
    """Return the directories that a repair only reads, the other items of a finding, and their keys."""
    items = list(finding.records)
    upper = [items.pop()] if finding.problem.name in _BELOW else []
    items += [item for item in (finding.logged, finding.tombstone) if item is not None]
    return upper, items, {*map(key_of, items), *finding.missing}


def _names_of(items: Iterable[Item]) -> Iterator[str]:
    """Yield the ids in items, and the objects that belong to the namespace."""
    for item in items:
        if "id" in item:
            yield f"id {item['id']!s}"
        if "id" in item and "body" in item:
            with contextlib.suppress(CorruptRecord, FormatTooNew):
                data = Entry.from_item(item).data
                if data is not None and data.own:
                    yield f"object {data.path}"


def _names_of_keys(keys: Iterable[Key]) -> Iterator[str]:
    """Yield keys, and the ids of the directories to which records with such keys belong."""
    for key in keys:
        yield f"key {key.hash} {key.range}"
        kind, id = _place(key)
        if kind in ("d", "g"):
            yield f"id {id}"


def _place(key: Key) -> tuple[str, str]:
    """Return the kind of record under a key, and the id in the key."""
    if key.hash == NAMESPACES:
        return "m", ""
    with contextlib.suppress(ValueError):
        place = parse_hash_key(key.hash)
        return place.kind, place.id
    return "", ""
