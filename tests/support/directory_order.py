"""Stores that sort paths directory by directory, as SeaweedFS does: ``a/1`` comes before ``a-b``."""

from __future__ import annotations

from collections.abc import Iterator

from commitlog.stores.api import Page
from commitlog.stores.arguments import check_page
from commitlog.stores.memory import MemoryStore
from support.ingest import Bucket

__all__ = ["DirectoryBucket", "DirectoryOrder"]


class DirectoryOrder(MemoryStore):
    """A store in memory in this order. A listing that starts after ``a`` leaves out all below ``a/``."""

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """See `ObjectStore.list_page`. The token is the number of entries that were given."""
        check_page(delimiter, limit)
        entries = list(self._in_order(prefix, start_after, delimiter))
        first = int(token or 0)
        given = entries[first : first + limit]
        whole = super().list_page(prefix, limit=1000)
        assert whole.next_token is None, "made for a few objects"
        infos = {info.path: info for info in whole.objects}
        return Page(
            objects=tuple(infos[entry] for entry in given if entry in infos),
            prefixes=tuple(entry for entry in given if entry not in infos),
            next_token=str(first + limit) if first + limit < len(entries) else None,
        )

    def _in_order(self, prefix: str, start_after: str, delimiter: str) -> Iterator[str]:
        listed = super().list_page(prefix).objects
        before = ""
        for path in sorted((info.path for info in listed), key=lambda path: path.split("/")):
            if path.split("/") <= start_after.split("/") or path.startswith(f"{start_after}/"):
                continue
            rest, slash, _ = path[len(prefix) :].partition(delimiter or "\0")
            entry = prefix + rest + slash
            if entry != before:
                yield entry
            before = entry


class DirectoryBucket(DirectoryOrder, Bucket):
    """A bucket of a source in this order."""
