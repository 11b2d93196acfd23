"""What the rows of a namespace say, against what its log says, and against what the store has.

Imports its siblings and the ports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from attrs import evolve

from commitlog.namespace.data import Data
from commitlog.namespace.items import key_of
from commitlog.namespace.joint import home_of
from commitlog.namespace.logged import State
from commitlog.namespace.problems import PROBLEMS, Finding
from commitlog.namespace.readers import LogSnapshot, StoreReader
from commitlog.namespace.records import Entry
from commitlog.namespace.shape import Shape
from commitlog.stores.api import ObjectInfo, same_etag
from commitlog.tables.api import Item, Key

__all__ = [
    "against_log",
    "against_store",
    "findings_of",
    "hiding",
    "is_logged",
    "is_of",
    "is_of_others",
    "unlisted_among",
]

#: Requests under way at a time.
_WINDOW = 32

#: Kinds of findings that are about several entries with one id. `Shape` yields them before other kinds.
_TWICE = ("directory-named-twice", "file-named-twice")

#: Kinds of findings whose repair writes a new version of an entry, which then counts more than what the
#: log has of the one before.
_REWRITE = frozenset(
    {
        "bad-name",
        "corrupt-record",
        "cycle",
        "directory-named-twice",
        "file-named-twice",
        "name-twice",
        "nameless-directory",
        "no-directory-record",
        "object-named-twice",
        "unreachable-entry",
        "wrong-directory-record",
        "wrong-shard",
    }
)


def against_log(
    shape: Shape, logged: LogSnapshot, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """Yield where a row has not the newest version that is committed, nor one that is pending (I8).

    Args:
        shape: of the rows.
        logged: what the log says.
        only: of what, as `State.of` has it; by default all.
    """
    rows: dict[str, list[Entry]] = defaultdict(list)
    for entry in shape.snapshot.entries.values():
        rows[entry.id].append(entry)
    if only is None:
        ids = {*rows, *logged.states}
    else:
        ids = {of.removeprefix("e/") for of in only if of.startswith("e/")}
    for id in sorted(ids - logged.touched):
        found = sorted(rows.get(id, ()), key=lambda row: -row.version)
        state = logged.states.get(id)
        finding = _compared(shape, found, state)
        if finding is not None and found and _has_left(found[0], state):
            hidden = logged.tombstones.get(hiding(found[0]))
            if hidden is not None and hidden.version >= found[0].updated:
                finding = evolve(finding, tombstone=hidden.item)
        if finding is not None:
            yield finding


def is_logged(row: Entry, state: State | None) -> bool:
    """Tell whether a row says what the log does, as far as this library can read both."""
    return state is not None and state.item is not None and Entry.from_item(state.item) == row


def _compared(shape: Shape, rows: list[Entry], state: State | None) -> Finding | None:
    """Compare the rows that have one id, the newest first, with what the log says of that."""
    if not rows:
        if state is None or state.item is None:
            return None
        key = key_of(state.item)
        return Finding(
            problem=PROBLEMS["log-newer"],
            path=shape.path_of_key(key),
            detail="the table has nothing of it",
            missing=(key,),
            id=state.of.removeprefix("e/"),
            logged=state.item,
        )
    if any(is_logged(row, state) for row in rows):
        return None  # if there are others, they are told as what is named twice
    row = rows[0]
    if state is not None and state.version == row.version and state.item is not None:
        kind, detail = "record-differs", _differences(row, Entry.from_item(state.item))
    else:
        # What should be gone may be there as it was when it went.
        newer = state is not None and state.version >= row.version
        kind = "log-newer" if newer else "row-newer"
        detail = f"version {row.version}, and in the log {_told(state)}"
    if kind == "row-newer" and len(rows) > 1:
        return None
    return Finding(
        problem=PROBLEMS[kind],
        path=shape.path(row),
        detail=detail,
        records=tuple(each.to_item() for each in rows),
        id=row.id,
        logged=None if state is None else state.item,
    )


def _differences(row: Entry, logged: Entry) -> str:
    """Return for people in what two records of one version differ."""
    if row.is_directory != logged.is_directory:
        return f"a {_what(row)}, and in the log a {_what(logged)}"
    parts = [
        ("place", (row.key.hash, row.name), (logged.key.hash, logged.name)),
        ("object", row.data, logged.data),
        ("binding", row.binding, logged.binding),
        ("shards", row.shards, logged.shards),
        ("attributes", row.attributes, logged.attributes),
    ]
    names = [name for name, here, there in parts if here != there]
    return f"version {row.version}, with another {' and '.join(names) or 'date or word'}"


def _what(entry: Entry) -> str:
    return "directory" if entry.is_directory else "file"


def hiding(row: Entry) -> str:
    """Return what the log calls the tombstone that is left where a row has been, if one is."""
    return f"t/{row.parent}/{row.name}{'/' if row.is_directory else ''}"


def _has_left(row: Entry, state: State | None) -> bool:
    """Tell whether the log says that a row is gone, or elsewhere."""
    if state is None or state.version < row.version:
        return False
    return state.item is None or (state.item["place"], state.item["name"]) != (row.key.hash, row.name)


def against_store(
    shape: Shape, store: StoreReader, entries: Iterable[Entry] | None = None
) -> Iterator[tuple[int, list[Finding]]]:
    """Yield of how many files the store was asked, and whose objects are not what they were (I4).

    It is not asked of files of bound directories that are as their objects are, whatever their rows
    say. In one that is authoritative, what others do to an object is no loss: `sync` takes it over.

    Args:
        shape: knows directories.
        store: has the objects.
        entries: which files to look at; by default those of `shape`.

    If any object is missing, raises what `StoreReader.prove` raises.
    """
    files = (
        entry
        for entry in (shape.snapshot.entries.values() if entries is None else entries)
        if entry.data is not None and not _follows(shape.directory_of(entry), entry)
    )
    while batch := list(islice(files, _WINDOW)):
        heads = [store.begin_head(entry.data.path) for entry in batch if entry.data is not None]
        found = []
        missing = False
        for entry, head in zip(batch, heads, strict=True):
            assert entry.data is not None
            info = head().info
            if info is not None and is_of(entry.data, info):
                continue
            missing = missing or info is None
            kind = "object-missing" if info is None else "object-changed"
            if is_of_others(shape.directory_of(entry), entry):
                kind = "out-of-date"
            finding = Finding(
                problem=PROBLEMS[kind],
                path=shape.path(entry),
                detail=f"object {entry.data.path!r}",
                records=(entry.to_item(),),
                object=entry.data.path,
                id=entry.id,
            )
            found.append(finding)
        if missing:
            store.prove()
        yield len(batch), found


def unlisted_among(store: StoreReader, listed: Collection[str]) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield of how many objects the store was asked, and which pieces of garbage it still has.

    Args:
        store: has the objects.
        listed: garbage of the log that the table does not list, as `State.of` has it.
    """
    left = iter(sorted(listed))
    while batch := list(islice(left, _WINDOW)):
        heads = [store.begin_head(of.split("/", 3)[-1]) for of in batch]
        found = [of for of, head in zip(batch, heads, strict=True) if head().info is not None]
        yield len(batch), frozenset(found)


def findings_of(
    shape: Shape, logged: LogSnapshot, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """Yield what is wrong with records, by themselves and against the log; see `against_log`."""
    told: set[str | None] = set()
    for finding in _with_log(shape.findings(), logged):
        if finding.logged is not None:
            told.add(finding.id)
        yield finding
    yield from (each for each in against_log(shape, logged, only) if each.id not in told)


def _with_log(findings: Iterable[Finding], logged: LogSnapshot) -> Iterator[Finding]:
    """Yield what is wrong with records by themselves, with what the log says of these.

    An entry that cannot be read is that which the log has there, and of several entries with one id the
    one is right that the log has. What is pending may say more. Where two entries have one id, nobody
    may move the wrong one before that is repaired.
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
            said = logged.states.get(str(finding.id))
            finding = evolve(finding, logged=None if said is None else said.item)
        yield finding


def _follows(directory: Entry | None, entry: Entry) -> bool:
    """Tell whether a file is, or will be, as its object is, without being told: see `joint`."""
    if directory is None or directory.binding is None or not is_of_others(directory, entry):
        return False
    return directory.binding.max_age is not None or directory.binding.synced is None


def is_of_others(directory: Entry | None, entry: Entry) -> bool:
    """Tell whether a file is an object that others may change: one of the prefix of its directory."""
    return directory is not None and home_of(directory, entry) is not None


def is_of(data: Data, info: ObjectInfo) -> bool:
    """Tell whether an object of the store is the content that a file names."""
    return same_etag(info.etag, data.etag) and info.size == data.size


def _told(state: State | None) -> str:
    if state is None:
        return "there is nothing of it"
    return "it is gone" if state.item is None else f"it is {state.version}"
