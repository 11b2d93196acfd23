"""What the rows of a namespace say, against what its log says, and against what the store has.

Imports its siblings and the ports.
"""

from __future__ import annotations

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

__all__ = ["against_log", "against_store", "hiding", "is_of"]

#: Requests under way at a time.
_WINDOW = 32


def against_log(
    shape: Shape, logged: LogSnapshot, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """Yield where a row has not the newest version that is committed, nor one that is pending (I8).

    Args:
        shape: of the rows.
        logged: what the log says.
        only: of what, as `State.of` has it; by default all.
    """
    rows = {entry.id: entry for entry in shape.snapshot.entries.values()}
    touched = {id for change in logged.changes for id, _ in change.made | change.seen}
    ids = {*rows, *logged.states} if only is None else {of.removeprefix("e/") for of in only}
    for id in sorted(ids - touched):
        row, state = rows.get(id), logged.states.get(id)
        finding = _compared(shape, row, state)
        if finding is not None and row is not None and _has_left(row, state):
            hidden = logged.tombstones.get(hiding(row))
            if hidden is not None and hidden.version >= row.updated:
                finding = evolve(finding, tombstone=hidden.item)
        if finding is not None:
            yield finding


def _compared(shape: Shape, row: Entry | None, state: State | None) -> Finding | None:
    if row is None:
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
    if state is None:
        newer = False
    elif state.item is None:
        newer = state.version >= row.version  # it should be gone
    elif state.version == row.version:
        return None
    else:
        newer = state.version > row.version
    return Finding(
        problem=PROBLEMS["log-newer" if newer else "row-newer"],
        path=shape.path(row),
        detail=f"version {row.version}, and in the log {_told(state)}",
        records=(row.to_item(),),
        id=row.id,
        logged=None if state is None else state.item,
    )


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

    It is not asked of files that are as their objects are, whatever their rows say.

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


def _follows(directory: Entry | None, entry: Entry) -> bool:
    """Tell whether a file is, or will be, as its object is, without being told: see `joint`."""
    if directory is None or directory.binding is None or home_of(directory, entry) is None:
        return False
    return directory.binding.max_age is not None or directory.binding.synced is None


def is_of(data: Data, info: ObjectInfo) -> bool:
    """Tell whether an object of the store is the content that a file names."""
    return same_etag(info.etag, data.etag) and info.size == data.size


def _told(state: State | None) -> str:
    if state is None:
        return "there is nothing of it"
    return "it is gone" if state.item is None else f"it is {state.version}"
