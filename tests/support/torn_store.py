"""A store whose reads are torn, as those of the JuiceFS gateway are."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from commitlog.stores.api import ObjectData
from commitlog.stores.memory import MemoryStore

__all__ = ["TornStore"]


class TornStore(MemoryStore):
    """A store in memory that can cut the content of the objects that it returns.

    Attributes:
        torn: the number of the next reads that are cut.
    """

    torn = 0

    def get(self, path: str, **options: Any) -> ObjectData:
        """Return an object; cut its content if `torn` says so."""
        found = super().get(path, **options)
        if not self.torn:
            return found
        self.torn -= 1
        return evolve(found, data=found.data[:-20])
