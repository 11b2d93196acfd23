"""Checks of the records of a namespace against its log and its store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from attrs import evolve

from commitlog.namespace.fsck.problems import PROBLEMS, Finding
from commitlog.namespace.fsck.readers import LogSnapshot, StoreReader
from commitlog.namespace.fsck.tree_checks import TreeChecks
from commitlog.namespace.log.entries import ItemState
from commitlog.namespace.model.backing import is_external
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.records import Entry
from commitlog.stores.api import ObjectInfo, same_etag
from commitlog.tables.api import Item, Key

__all__ = [
    "check_records",
    "compare_with_log",
    "compare_with_store",
    "find_existing",
    "find_unlisted",
    "has_content",
    "is_logged",
    "is_looked_up",
    "look_up",
    "tombstone_id",
]

#: Number of concurrent requests.
_WINDOW = 32

#: Kinds of findings about several entries with one id. `TreeChecks` yields them before other kinds.
_TWICE = ("duplicate-directory", "duplicate-file")

#: Kinds of findings whose repair writes a new version of an entry. That version then supersedes the
#: earlier one in the log.
_REWRITE = frozenset(
    {
        "bad-name",
        "corrupt-record",
        "cycle",
        "duplicate-directory",
        "duplicate-file",
        "duplicate-name",
        "orphan-directory",
        "no-directory-record",
        "object-shared",
        "unreachable-entry",
        "wrong-directory-record",
        "wrong-shard",
    }
)


def compare_with_log(
    checks: TreeChecks, logged: LogSnapshot, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """Yield the rows that are neither the newest committed version nor a pending one (I8).

    Args:
        checks: the checks of the rows.
        logged: the contents of the log.
        only: the `ItemState.item_id` to compare; by default all.
    """
    rows: dict[str, list[Entry]] = defaultdict(list)
    for entry in checks.snapshot.entries.values():
        rows[entry.id].append(entry)
    if only is None:
        ids = {*rows, *logged.states}
    else:
        ids = {item_id.removeprefix("e/") for item_id in only if item_id.startswith("e/")}
    for id in sorted(ids - logged.touched):
        found = sorted(rows.get(id, ()), key=lambda row: -row.version)
        state = logged.states.get(id)
        finding = _compared(checks, found, state)
        if finding is not None and found and _has_moved(found[0], state):
            hidden = logged.tombstones.get(tombstone_id(found[0]))
            if hidden is not None and hidden.version >= found[0].updated:
                finding = evolve(finding, tombstone=hidden.item)
        if finding is not None:
            yield finding


def is_logged(row: Entry, state: ItemState | None) -> bool:
    """Return whether a row equals the record of the log, as far as this library can read both."""
    return state is not None and state.item is not None and Entry.from_item(state.item) == row


def _compared(checks: TreeChecks, rows: list[Entry], state: ItemState | None) -> Finding | None:
    """Compare the rows of one id, the newest first, with the state of that id in the log."""
    if not rows:
        if state is None or state.item is None:
            return None
        key = key_of(state.item)
        return Finding(
            problem=PROBLEMS["log-newer"],
            path=checks.path_of_key(key),
            detail="the table does not have it",
            missing=(key,),
            id=state.item_id.removeprefix("e/"),
            logged=state.item,
        )
    if any(is_logged(row, state) for row in rows):
        return None  # further rows are reported as duplicates
    row = rows[0]
    if state is not None and state.version == row.version and state.item is not None:
        kind, detail = "record-differs", _differences(row, Entry.from_item(state.item))
    else:
        # A row may still exist unchanged although the log has its removal.
        newer = state is not None and state.version >= row.version
        kind = "log-newer" if newer else "row-newer"
        detail = f"version {row.version}, and the log has {_describe(state)}"
    if kind == "row-newer" and len(rows) > 1:
        return None
    return Finding(
        problem=PROBLEMS[kind],
        path=checks.path(row),
        detail=detail,
        records=tuple(each.to_item() for each in rows),
        id=row.id,
        logged=None if state is None else state.item,
    )


def _differences(row: Entry, logged: Entry) -> str:
    """Return a description of the differences between two records of one version."""
    if row.is_directory != logged.is_directory:
        return f"a {_what(row)}, and a {_what(logged)} in the log"
    parts = [
        ("place", (row.key.hash, row.name), (logged.key.hash, logged.name)),
        ("object", row.data, logged.data),
        ("binding", row.binding, logged.binding),
        ("shards", row.shards, logged.shards),
        ("attributes", row.attributes, logged.attributes),
    ]
    names = [name for name, here, there in parts if here != there]
    return f"version {row.version}, with a different {' and '.join(names) or 'date or change id'}"


def _what(entry: Entry) -> str:
    return "directory" if entry.is_directory else "file"


def tombstone_id(row: Entry) -> str:
    """Return the `ItemState.item_id` of the tombstone that a removed row may leave behind."""
    return f"t/{row.parent}/{row.name}{'/' if row.is_directory else ''}"


def _has_moved(row: Entry, state: ItemState | None) -> bool:
    """Return whether the log has a row as removed, or at another place."""
    if state is None or state.version < row.version:
        return False
    return state.item is None or (state.item["place"], state.item["name"]) != (row.key.hash, row.name)


def compare_with_store(
    checks: TreeChecks, store: StoreReader, entries: Iterable[Entry] | None = None
) -> Iterator[tuple[int, list[Finding]]]:
    """Yield the number of files looked up in the store, and the missing or changed objects (I4).

    Files of bound directories that are up to date by definition are not looked up. In an authoritative
    bound directory, a change of an object by another program is no loss: `sync` imports it.

    Args:
        checks: the checks, which know the directories.
        store: reader of the objects.
        entries: the files to check; by default those of `checks`.

    If an object is missing, raises the errors of `StoreReader.verify`.
    """
    files = (
        entry
        for entry in (checks.snapshot.entries.values() if entries is None else entries)
        if is_looked_up(checks.directory_of(entry), entry)
    )
    for number, odd in look_up(store, files):
        found = []
        for entry, info in odd:
            assert entry.data is not None
            kind = "object-missing" if info is None else "object-changed"
            if is_external(checks.directory_of(entry), entry):
                kind = "out-of-date"
            finding = Finding(
                problem=PROBLEMS[kind],
                path=checks.path(entry),
                detail=f"object {entry.data.path!r}",
                records=(entry.to_item(),),
                object=entry.data.path,
                id=entry.id,
            )
            found.append(finding)
        if any(info is None for _, info in odd):
            store.verify()
        yield number, found


def look_up(
    store: StoreReader, files: Iterable[Entry]
) -> Iterator[tuple[int, list[tuple[Entry, ObjectInfo | None]]]]:
    """Look up the objects of files, some at a time.

    Yields the number of files, and those whose object is missing, or has other content.
    """
    left = iter(files)
    while batch := list(islice(left, _WINDOW)):
        heads = [store.begin_head(entry.data.path) for entry in batch if entry.data is not None]
        found = [(entry, head().info) for entry, head in zip(batch, heads, strict=True)]
        yield (
            len(batch),
            [
                (entry, info)
                for entry, info in found
                if info is None or entry.data is None or not has_content(entry.data, info)
            ],
        )


def find_existing(store: StoreReader, paths: Iterable[str]) -> Iterator[ObjectInfo]:
    """Yield those of some objects that exist; they are looked up, some at a time."""
    left = iter(paths)
    while batch := list(islice(left, _WINDOW)):
        heads = [store.begin_head(path) for path in batch]
        yield from filter(None, (head().info for head in heads))


def find_unlisted(store: StoreReader, listed: Collection[str]) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield the number of objects looked up in the store, and the garbage that it still has.

    Args:
        store: reader of the objects.
        listed: garbage of the log that the table does not list, by `ItemState.item_id`.
    """
    left = iter(sorted(listed))
    while batch := list(islice(left, _WINDOW)):
        heads = [store.begin_head(item_id.split("/", 3)[-1]) for item_id in batch]
        found = [item_id for item_id, head in zip(batch, heads, strict=True) if head().info is not None]
        yield len(batch), frozenset(found)


def check_records(
    checks: TreeChecks, logged: LogSnapshot, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """Yield the problems of records, by themselves and against the log; see `compare_with_log`."""
    reported: set[str | None] = set()
    for finding in _attach_log(checks.findings(), logged):
        if finding.logged is not None:
            reported.add(finding.id)
        yield finding
    yield from (each for each in compare_with_log(checks, logged, only) if each.id not in reported)


def _attach_log(findings: Iterable[Finding], logged: LogSnapshot) -> Iterator[Finding]:
    """Add the record of the log to the findings of records by themselves.

    An unreadable entry is the one that the log has at its place. Of several entries with one id, the
    entry that the log has is correct. A pending change may still alter this. If two entries have one id,
    the wrong one must not be moved before that is repaired.
    """
    at: dict[Key, Item] = {}
    states = sorted(logged.states.values(), key=lambda state: state.began)
    for state in (*states, *logged.tombstones.values(), *logged.garbage.values()):
        if state.item is not None:
            at[key_of(state.item)] = state.item
    twice: set[str | None] = set()
    for finding in findings:
        name = finding.problem.name
        if name in _TWICE:
            twice.add(finding.id)
        if name in _REWRITE:
            ids = {finding.id, *(str(item["id"]) for item in finding.records if "id" in item)}
            waits = not ids.isdisjoint(logged.touched) or (
                name not in _TWICE and not ids.isdisjoint(twice)
            )
            finding = evolve(finding, waits=waits)
        if name == "corrupt-record":
            item = at.get(key_of(finding.records[0]))
            if item is not None:
                id = str(item["id"]) if "id" in item else finding.id
                finding = evolve(finding, logged=item, id=id, waits=id in logged.touched)
        elif name in _TWICE:
            newest = logged.states.get(str(finding.id))
            finding = evolve(finding, logged=None if newest is None else newest.item)
        yield finding


def is_looked_up(directory: Entry | None, entry: Entry) -> bool:
    """Return whether the object of an entry is to be looked up in the store.

    The entry of a file in a bound directory may follow its object without `sync`: see
    `external.overlay`.

    Args:
        directory: the directory of the entry; None if it is unknown.
        entry: the entry.
    """
    if entry.data is None:
        return False
    if directory is None or directory.binding is None or not is_external(directory, entry):
        return True
    return directory.binding.max_age is None and directory.binding.synced is not None


def has_content(data: Data, info: ObjectInfo) -> bool:
    """Return whether an object of the store is the content that a file names."""
    return same_etag(info.etag, data.etag) and info.size == data.size


def _describe(state: ItemState | None) -> str:
    if state is None:
        return "no version of it"
    return "its removal" if state.item is None else f"version {state.version}"
