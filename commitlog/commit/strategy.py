"""Which way a conditional call goes: native where that is known to be enforced, else under a lease.

Imports the ground floor and the `ObjectStore` port.
"""

from __future__ import annotations

from collections.abc import Callable

from commitlog.commit.mutation import Committer
from commitlog.errors import NotSupported
from commitlog.stores.api import Condition, IfAbsent, ObjectStore, Operation

__all__ = ["Strategy"]


class Strategy:
    """Chooses a committer for each kind of call. Thread-safe.

    Args:
        store: where the objects are.
        native: sends the condition along, or None if it is not to be used.
        lease: works under leases, or None if there is no table.
        proven: tells whether the store was seen to enforce a condition on an operation; it may measure
            on its first call. Asked only of stores that do not enforce conditions themselves.

    All writers of one path must come to the same choice: a condition that the store enforces does not
    keep out a writer that writes plainly under a lease. Stores that behave alike towards all clients
    lead all clients on ``auto`` to the same choice.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        native: Committer | None,
        lease: Committer | None,
        proven: Callable[[Operation, Condition], bool],
    ) -> None:
        self._store = store
        self._native = native
        self._lease = lease
        self._proven = proven

    def choose(self, operation: Operation, condition: Condition) -> Committer:
        """Return what carries out `operation` under `condition`, or raise `NotSupported`."""
        if self._native is not None and self._enforced(operation, condition):
            return self._native
        if self._lease is not None:
            return self._lease
        kind = "absent" if isinstance(condition, IfAbsent) else "match"
        raise NotSupported(
            f"{self._store.url} does not enforce {operation.value}-if-{kind} (commitlog probe shows "
            "what it does), and there is no table to keep leases in; nothing was sent. Give one: "
            "table='dynamodb://NAME', or 'sqlite:///FILE' for writers on one machine"
        )

    def _enforced(self, operation: Operation, condition: Condition) -> bool:
        capabilities = self._store.capabilities
        if not capabilities.carries(operation, condition):
            return False
        return capabilities.enforced or self._proven(operation, condition)
