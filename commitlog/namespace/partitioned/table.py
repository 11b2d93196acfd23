"""The records of a table in partitions, as states for a new log.

A module of its own: the other modules read the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from attrs import frozen

from commitlog.clock import Clock
from commitlog.namespace.log.checkpoint import Checkpoint
from commitlog.namespace.log.entries import ItemState
from commitlog.namespace.log.epoch import Epochs
from commitlog.namespace.log.rewrite import TableStates, states_of_scan
from commitlog.namespace.metadata import Epoch
from commitlog.namespace.partitioned.contents import store_states
from commitlog.namespace.partitioned.cycles import count
from commitlog.namespace.partitioned.dataset import Dataset, Engine, OpenAccess

__all__ = ["PartitionedTable"]

#: Number of segments of the table for each partition.
_SEGMENTS = 4


@frozen(kw_only=True)
class PartitionedTable(TableStates):
    """The records of a table, read and stored in the partitions of an engine.

    Args:
        engine: divides the work.
        open_access: opens table and log in a task.
        namespace: name of the namespace.
        clock: source of dates.
        new_id: returns unique ids.
    """

    engine: Engine
    open_access: OpenAccess
    namespace: str
    clock: Clock
    new_id: Callable[[], str]

    @classmethod
    def of(
        cls,
        engine: Engine,
        open_access: OpenAccess,
        namespace: str,
        clock: Clock,
        new_id: Callable[[], str],
        epochs: Epochs,
    ) -> PartitionedTable:
        """Return the records; see `commitlog.namespace.log.rewrite.OpenTableStates`."""
        return cls(
            engine=engine,
            open_access=open_access,
            namespace=namespace,
            clock=clock,
            new_id=new_id,
        )

    def check(self) -> None:
        """See `TableStates.check`."""
        with self.engine.counting("reading the table") as counter:
            count(self._states().map(counter.count))

    def save(self, epoch: Epoch, metadata: ItemState) -> Checkpoint:
        """See `TableStates.save`."""
        states = self._states().union(self.engine.distribute([metadata]))
        with self.engine.counting("writing the log") as counter:
            counted = states.map(counter.count)
            return store_states(counted, self.open_access, epoch, self.new_id())

    def _states(self) -> Dataset[ItemState]:
        number = _SEGMENTS * self.engine.partitions
        segments = self.engine.distribute([(each, number) for each in range(number)])
        return segments.map(partial(_read, self.open_access, self.namespace, self.clock.epoch()))


def _read(
    open_access: OpenAccess, namespace: str, now: float, segments: Iterator[tuple[int, int]]
) -> Iterator[ItemState]:
    with open_access() as access:
        for segment, number in segments:
            scan = partial(access.table.scan, segment=segment, segments=number)
            yield from states_of_scan(scan, namespace, now)
