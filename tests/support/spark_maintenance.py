"""A namespace in files, for its maintenance by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen

from commitlog.commit import ConditionalStore
from commitlog.namespace import NAMESPACE_SCHEMA
from commitlog.namespace.model.keys import NAMESPACES
from commitlog.oplog import OperationLog
from commitlog.stores.open import open_store
from commitlog.tables.api import Item
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.restore import LAKE, World, fill

__all__ = ["LOG", "Place", "open_place"]

#: Path of the log of a namespace that `create_namespace` has created.
LOG = f"_commitlog/namespaces/{LAKE}/log"


@frozen
class Place:
    """A namespace in files, which other processes can open.

    Attributes:
        directory: the directory of all files.
        at: the namespace.
    """

    directory: Path
    at: World

    @property
    def store(self) -> str:
        """URL of the store."""
        return f"file://{self.directory}/store"

    @property
    def metadata(self) -> str:
        """URL of the table."""
        return self.table("names")

    def table(self, name: str) -> str:
        """Return the URL of a table."""
        return f"sqlite://{self.directory}/{name}.db"

    def rows(self, name: str) -> list[Item]:
        """Return all records of the namespace in a table, without the metadata record."""
        with closing(open_table(self.table(name), NAMESPACE_SCHEMA)) as table:
            found = [item for item in table.scan() if item["place"] != NAMESPACES]
        return sorted(found, key=lambda item: (str(item["place"]), str(item["name"])))


@contextmanager
def open_place(directory: Path) -> Iterator[Place]:
    """Create a namespace with a bit of everything in a directory. Two of them have the same ids."""
    (directory / "store").mkdir(parents=True)
    clock, ids = ManualClock(), Random(0)
    with (
        closing(open_table(f"sqlite://{directory}/names.db", NAMESPACE_SCHEMA)) as table,
        closing(open_store(f"file://{directory}/store")) as store,
    ):
        table.create()
        log = OperationLog(ConditionalStore(store), LOG, clock=clock)
        at: Any = World(clock, table, store, log, ids)  # type: ignore[arg-type]
        at.lake.create()
        fill(at.lake, clock)
        yield Place(directory, at)
