"""Which way a conditional call goes: native where that is known to be enforced, else under a lease."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from commitlog.commit.mutation import Committer
from commitlog.commit.probe_cache import ProbeCache
from commitlog.commit.probe_report import Kind
from commitlog.errors import NotSupported
from commitlog.stores.api import Condition, IfAbsent, IfMatch, ObjectStore, Operation

__all__ = ["Strategy"]

#: The operations that can compete under a kind of condition, those that are quick to measure first.
_RIVALS: Mapping[type[Condition], tuple[Operation, ...]] = MappingProxyType(
    {
        IfAbsent: (Operation.PUT, Operation.COPY, Operation.PUBLISH),
        IfMatch: (Operation.PUT, Operation.DELETE, Operation.PUBLISH),
    }
)


class Strategy:
    """Chooses a committer for each kind of call. Thread-safe.

    Args:
        store: where the objects are.
        native: sends the condition along, or None if it is not to be used.
        lease: works under leases, or None if there is no table.
        evidence: the known probe results of the store.

    A condition that the store enforces does not exclude a plain write under a lease, nor the lease the
    condition. So calls that can compete for one version of an object use the same way: with a table, a
    condition is left to the store only if it enforces it on every operation that takes it. Conditions of
    different kinds never compete: one needs an object, the other needs none. All *clients* of one path
    must make the same choice, too; those that share a table do, see `StoredReports`.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        native: Committer | None,
        lease: Committer | None,
        evidence: ProbeCache,
    ) -> None:
        self._store = store
        self._native = native
        self._lease = lease
        self._evidence = evidence

    def choose(self, operation: Operation, condition: Condition) -> Committer:
        """Return what carries out `operation` under `condition`, or raise `NotSupported`."""
        if self._native is not None and self._enforced(operation, condition):
            rivals = _RIVALS[type(condition)]
            if self._lease is None or all(self._enforced(rival, condition) for rival in rivals):
                return self._native
        if self._lease is not None:
            return self._lease
        kind = "absent" if isinstance(condition, IfAbsent) else "match"
        raise NotSupported(
            f"{self._store.url} does not enforce {operation.value}-if-{kind} (commitlog probe shows "
            "what it does), and there is no table to keep leases in; nothing was sent. Give one: "
            "table='dynamodb://NAME', or 'sqlite:///ABSOLUTE/FILE' for writers on one machine"
        )

    def _enforced(self, operation: Operation, condition: Condition) -> bool:
        if not self._store.capabilities.carries(operation, condition):
            return False
        kind = Kind.of(operation, condition)
        return kind is not None and self._evidence.proves(kind)
