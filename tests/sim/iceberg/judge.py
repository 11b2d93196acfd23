"""The judge of a world of catalogs: follows each mutation of the catalog's records.

It compares each outcome that a client reports with the stored records, at once or when they
contradict it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any

from attrs import define, field

from commitlog.clock import Clock
from commitlog.iceberg.model import Levels
from commitlog.stores.api import PutResult
from commitlog.stores.body import Body, chunks
from commitlog.stores.memory import MemoryStore

_NAMES = "names.json"


@define
class CatalogTruth:
    """The true state of a catalog.

    Attributes:
        tables: the id of each table with a name.
        changes: ids of all changes of names that were stored.
        version: the version of the names.
        chains: for each table id, all locations that its metadata ever had, in order.
        dropping: ids of tables that clients want to drop.
        failed: locations and changes whose clients reported that they did not happen.
    """

    tables: dict[Levels, str] = field(factory=dict)
    changes: set[str] = field(factory=set)
    version: int = 0
    chains: dict[str, list[str]] = field(factory=dict)
    dropping: set[str] = field(factory=set)
    failed: set[str] = field(factory=set)

    def happened(self, mark: str) -> bool:
        """Return whether a location or a change with this mark was stored."""
        return mark in self.changes or any(mark in chain for chain in self.chains.values())

    def done(self, mark: str) -> None:
        """Check a report that a change or a commit happened."""
        assert self.happened(mark), f"{mark} is reported as done, but did not happen"

    def did_not_happen(self, mark: str) -> None:
        """Check a report that a change or a commit did not happen, now and later."""
        assert not self.happened(mark), f"{mark} is reported as failed, but happened"
        self.failed.add(mark)

    def drop(self, table: Levels) -> None:
        """Record that a client is about to drop what has this name."""
        self.dropping.update(id for name, id in self.tables.items() if name == table)

    def at(self, table: Levels) -> tuple[str, int] | None:
        """Return the id of a table and the number of its commits; None if there is no such table."""
        id = self.tables.get(table)
        return None if id is None else (id, len(self.chains[id]))

    def found(self, table: Levels, before: tuple[str, int] | None, id: str, location: str) -> None:
        """Check the location that a client found, which asked when `at` returned `before`."""
        assert location in self.chains[id], f"{table} was never at {location}"
        if before is not None and before[0] == id:
            position = self.chains[id].index(location)
            assert position + 1 >= before[1], f"{table} was found at an old location, {location}"

    def state(self) -> Hashable:
        """Return the state that does not follow from the content of the store."""
        chains = tuple((id, tuple(chain)) for id, chain in sorted(self.chains.items()))
        return frozenset(self.changes), chains, frozenset(self.failed), frozenset(self.dropping)

    # called by the store after each mutation

    def put(self, path: str, data: bytes) -> None:
        """Record that a record was put."""
        body: dict[str, Any] = json.loads(data)
        if path == _NAMES:
            self._put_names(body)
            return
        chain = self.chains[body["table"]]
        location = body["metadata_location"]
        assert location not in self.failed, f"{location} is reported as failed, but happened"
        # The first commit to a table may come after it was dropped, and no reader finds it then.
        if body["table"] in self.tables.values():
            assert chain[-1] == body["previous"][0], f"{path} was replaced"
        chain.append(location)

    def _put_names(self, body: dict[str, Any]) -> None:
        assert body["version"] == self.version + 1, f"{_NAMES} was replaced"
        self.version += 1
        assert body["changes"][0] not in self.failed, "a change is reported as failed, but happened"
        self.changes.add(body["changes"][0])
        tables = {tuple(each["levels"]): each["id"] for each in body["tables"]}
        kept = set(tables.values())
        lost = [name for name, id in self.tables.items() if id not in kept and id not in self.dropping]
        assert not lost, f"the tables {lost} lost their names without being dropped"
        self.tables = tables
        for each in body["tables"]:
            self.chains.setdefault(each["id"], [each["metadata_location"]])

    def deleted(self, path: str) -> None:
        """Record that a record was deleted."""
        id = path.rpartition("/")[2].removesuffix(".json")
        assert id not in self.tables.values(), f"{path} was deleted, and its table has a name"


class WatchedStore(MemoryStore):
    """A store that reports its mutations to a `CatalogTruth`."""

    def __init__(self, *, clock: Clock, new_id: Callable[[], str]) -> None:
        super().__init__(clock=clock, new_id=new_id)
        self.truth = CatalogTruth()

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        data = b"".join(chunks(body))
        result = super().put(path, data, **options)
        self.truth.put(path, data)
        return result

    def delete(self, path: str, **options: Any) -> None:
        super().delete(path, **options)
        self.truth.deleted(path)
