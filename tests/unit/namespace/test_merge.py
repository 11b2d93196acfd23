"""The states of two histories in one log become one tree."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from commitlog.namespace.log.entries import ItemState
from commitlog.namespace.log.merge import Corrections, Outline
from commitlog.namespace.model.keys import ROOT, TOP, TRASH, Keys
from commitlog.namespace.model.records import Entry, Shards

KEYS = Keys("lake")


def directory(id: str, name: str, *, parent: str = ROOT, shards: int = 1) -> Entry:
    """Return the entry of a directory with this number of shards."""
    return entry(id, name, parent=parent, shards=Shards(now=shards, first=1))


def entry(id: str, name: str, *, parent: str, shard: int = 0, shards: Shards | None = None) -> Entry:
    """Return an entry in one shard of its directory."""
    return Entry(
        key=KEYS.entry(parent, shard, name),
        id=id,
        version=1,
        change_id="x",
        created=1,
        modified=1,
        updated=1,
        shards=Shards(now=1, first=1) if shards is None else shards,
    )


def merged(entries: Iterable[Entry]) -> Corrections:
    """Return the corrections of a namespace with these entries besides its root and trash."""
    top = [directory(id, id, parent=TOP) for id in (ROOT, TRASH)]
    states = [
        ItemState(item_id=f"e/{each.id}", version=each.version, item=each.to_item(), began=1.0)
        for each in (*top, *entries)
    ]
    outline = Outline(KEYS)
    for state in states:
        outline.add(state)
    return outline.merge(lambda: states, lambda: (), lambda data: True)


@pytest.mark.parametrize("shard", [0, 1, 2, 3, 4, 7, 8, 63])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_directory_has_each_shard_in_which_it_has_entries(shard: int, known: bool) -> None:
    """Also one that is made again. Readers look up a name in no other shard."""
    own = directory("d", "d", shards=4)
    child = entry("c", "c", parent="d", shard=shard)
    done = merged([own, child] if known else [child])
    if known and shard < 4:
        assert not done.states
        return
    found = Entry.from_item(done.states["e/d"].item or {})
    assert shard < found.shards.now <= max(2 * shard, 1)
    assert found.shards.now & (found.shards.now - 1) == 0
    assert done.found == (() if known else ("d",))
