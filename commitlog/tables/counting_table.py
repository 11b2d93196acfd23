"""A table that counts its requests.

A module of its own because rules may import it, as they may not import any other table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commitlog._util.request_stats import RequestRecorder
from commitlog.tables.api import (
    Check,
    InFlight,
    Item,
    ItemPage,
    Key,
    Table,
    TableCondition,
    TableInfo,
    Write,
)

__all__ = ["CountingTable"]


class CountingTable(Table):
    """A table whose requests a recorder counts. Thread-safe.

    Args:
        table: the table that performs the requests.
        recorder: counts them as ``gets``, ``queries``, ``scans``, ``puts``, ``deletes`` and
            ``transactions``; and in ``writes`` and ``checks`` the contents of transactions.
    """

    def __init__(self, table: Table, recorder: RequestRecorder) -> None:
        self.url, self.schema = table.url, table.schema
        self._table = table
        self._recorder = recorder

    def create(self) -> bool:
        """See `Table.create`; not counted."""
        return self._table.create()

    def check(self) -> None:
        """See `Table.check`; not counted."""
        self._table.check()

    def describe(self) -> TableInfo:
        """See `Table.describe`; not counted."""
        return self._table.describe()

    def tag(self, tags: Mapping[str, str]) -> None:
        """See `Table.tag`; not counted."""
        self._table.tag(tags)

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        """See `Table.begin_get`."""
        pending = self._recorder.request("gets", lambda: self._table.begin_get(key))
        return lambda: self._recorder.finish(pending)

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """See `Table.begin_put`."""
        pending = self._recorder.request(
            "puts", lambda: self._table.begin_put(item, condition=condition)
        )
        return lambda: self._recorder.finish(pending)

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """See `Table.delete`."""
        self._recorder.request("deletes", lambda: self._table.delete(key, condition=condition))

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.query_page`."""
        return self._recorder.request(
            "queries",
            lambda: self._table.query_page(hash_key, start_after=start_after, limit=limit, token=token),
        )

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.scan_page`."""
        return self._recorder.request(
            "scans",
            lambda: self._table.scan_page(segment=segment, segments=segments, limit=limit, token=token),
        )

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """See `Table.transact`."""
        self._recorder.add("writes", len(writes))
        self._recorder.add("checks", sum(isinstance(write, Check) for write in writes))
        self._recorder.request("transactions", lambda: self._table.transact(writes, token=token))

    def close(self) -> None:
        """See `Table.close`."""
        self._table.close()
