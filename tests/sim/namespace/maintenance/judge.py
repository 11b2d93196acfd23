"""The judge of a world of maintenance: compares restored tables with the original."""

from __future__ import annotations

from collections.abc import Callable

from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError
from commitlog.namespace import Restorer
from commitlog.namespace.model.records import Garbage
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, Key
from commitlog.testing import ManualClock
from commitlog.testing.sim import EPOCH
from sim.namespace.judge import NAME
from sim.namespace.maintenance.actions import KEYS
from support.namespace import ServiceTable

__all__ = ["check_restorable", "compare_tables"]


def check_restorable(
    table: ServiceTable,
    *,
    logs: MemoryStore,
    store: MemoryStore,
    decide: Callable[[Operation], Decision],
) -> None:
    """Check that a copy of the log can be restored to the content of `table`.

    Args:
        table: the table of the namespace.
        logs: the store with the log.
        store: the store with the content.
        decide: returns the true decision of a pending operation.
    """
    copy = MemoryStore(clock=ManualClock(epoch=EPOCH))
    for path, stored in logs._space.objects.items():
        copy._space.set(path, stored)
    log = OperationLog(ConditionalStore(copy), "log", clock=ManualClock(epoch=EPOCH))
    restored = ServiceTable()
    try:
        Restorer(table=restored, store=store, log=log, name=NAME).restore(decide=decide)
    except CommitError as error:
        raise AssertionError(f"the namespace cannot be restored: {error}") from error
    compare_tables(restored, table, store)


def compare_tables(restored: ServiceTable, original: ServiceTable, store: MemoryStore) -> None:
    """Check that a restored table has the records of the original."""
    found, wanted = _records(restored, store), _records(original, store)
    wrong = sorted(str(key) for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    assert not wrong, f"restored records differ: {wrong}"


def _records(table: ServiceTable, store: MemoryStore) -> dict[Key, Item]:
    """Return the records that a restore must reproduce.

    The change ids of guard records may differ. Garbage records of removed objects may be missing.
    """
    found: dict[Key, Item] = {}
    for item in table.scan():
        key = table.schema.key_of(item)
        if "/r/" in key.hash or key == KEYS.metadata:  # records of the restore, in another epoch
            continue
        if "/g/" in key.hash:
            item = {**item, "change_id": ""}
        elif "/x/" in key.hash:
            data = Garbage.from_item(item).data
            if not data.own or store.begin_head(data.path)().info is None:
                continue
        found[key] = item
    return found
