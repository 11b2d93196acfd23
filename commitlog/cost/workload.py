"""`Workload`: numbers of operations in a month, and the lines of its bill."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

from attrs import Attribute, field, frozen

from commitlog.cost import operations
from commitlog.cost.usage import Usage
from commitlog.errors import ConfigurationError
from commitlog.outputs import Visibility

__all__ = ["Line", "Workload"]

#: Bytes that DynamoDB adds to each stored item, see
#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html.
_ITEM_OVERHEAD = 100


def _check(_self: object, attribute: Attribute[float], value: float) -> None:
    if not (isfinite(value) and value >= 0):
        raise ConfigurationError(f"{attribute.name} must be a number of 0 or more, not {value:g}")


def _check_share(_self: object, attribute: Attribute[float], value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigurationError(f"{attribute.name} must be from 0 to 1, not {value:g}")


def _check_epoch(_self: object, attribute: Attribute[int], value: int) -> None:
    if not 0 < value <= operations.EPOCH_FILES:
        raise ConfigurationError(
            f"{attribute.name} must be from 1 to {operations.EPOCH_FILES}, not {value:g}"
        )


def _number(default: int = 0) -> Any:
    check: Any = _check
    return field(default=default, validator=check)


@frozen(kw_only=True)
class Line:
    """A line of a bill.

    Attributes:
        operation: its name, for readers.
        times: how often in a month.
        usage: the requests and units of all of them.
    """

    operation: str
    times: int
    usage: Usage


@frozen(kw_only=True)
class Workload:
    """The operations of a month. Raises `ConfigurationError` for a negative number.

    Attributes:
        conditional_writes: calls of `put_if_absent`, `put_if_match` or `copy_if_absent`.
        refused: the share of them whose condition does not hold.
        leases: whether leases enforce conditions, instead of the store.
        jobs: jobs of outputs.
        files_per_job: files of each job.
        visibility: of the outputs.
        names: files that are created in namespaces, one by one.
        linked_names: files that are created by `bulk_link`, whose content is stored already.
        renames: files that are renamed within their directory.
        lookups: calls of `stat`.
        deletes: files that are deleted, and whose content is removed later.
        path_names: names in a path.
        log: whether the namespaces have logs.
        objects: objects that a source of ingest reads.
        epoch_files: objects in each of its batches.
        idle_epochs: batches that find nothing.
        listed_keys: keys that each batch lists.
        notified: whether notifications name the objects, so that nothing is listed.
        stored_names: files whose names are stored in tables.
    """

    conditional_writes: int = _number()
    refused: float = field(default=0.0, validator=_check_share)
    leases: bool = False
    jobs: int = _number()
    files_per_job: int = _number(100)
    visibility: Visibility = "listed"
    names: int = _number()
    linked_names: int = _number()
    renames: int = _number()
    lookups: int = _number()
    deletes: int = _number()
    path_names: int = _number(3)
    log: bool = True
    objects: int = _number()
    epoch_files: int = field(default=100, validator=_check_epoch)
    idle_epochs: int = _number()
    listed_keys: int = _number(1_000)
    notified: bool = False
    stored_names: int = _number()

    @property
    def stored_bytes(self) -> int:
        """Bytes for which DynamoDB charges storage."""
        return self.stored_names * (operations.ENTRY_BYTES + _ITEM_OVERHEAD)

    def lines(self) -> Iterator[Line]:
        """Yield a line for each operation that the month has."""
        for operation, times, usage in (
            *self._conditional_writes(),
            *self._jobs(),
            *self._names(),
            *self._epochs(),
        ):
            if times:
                yield Line(operation=operation, times=times, usage=usage)

    def _conditional_writes(self) -> Iterator[tuple[str, int, Usage]]:
        number, share = self.conditional_writes, self.refused
        how = "by leases" if self.leases else "by the store"
        usage = (number * (1 - share)) * operations.conditional_write(leases=self.leases)
        usage += (number * share) * operations.conditional_write(leases=self.leases, refused=True)
        yield f"conditional write, {how}", number, usage

    def _jobs(self) -> Iterator[tuple[str, int, Usage]]:
        job = operations.output_job(self.files_per_job, visibility=self.visibility, leases=self.leases)
        yield f"job of {self.files_per_job:,} files, {self.visibility}", self.jobs, self.jobs * job

    def _names(self) -> Iterator[tuple[str, int, Usage]]:
        how: dict[str, Any] = {"log": self.log, "leases": self.leases}
        for operation, times, usage in (
            ("create a file", self.names, operations.create_file(self.path_names, **how)),
            ("rename a file", self.renames, operations.rename_file(self.path_names, **how)),
            ("look a file up", self.lookups, operations.look_up(self.path_names)),
            ("delete a file", self.deletes, operations.delete_file(self.path_names, **how)),
        ):
            yield operation, times, times * usage
        linked = operations.bulk_link(self.linked_names, self.path_names - 1, **how)
        yield "link a file in bulk", self.linked_names, linked
        removed = operations.collect_garbage(self.deletes, log=self.log)
        yield "remove the content of a file", self.deletes, removed

    def _epochs(self) -> Iterator[tuple[str, int, Usage]]:
        how: dict[str, Any] = {"listed_keys": self.listed_keys, "notified": self.notified}
        full, rest = divmod(self.objects, self.epoch_files)
        usage = Usage()
        for files, epochs in ((self.epoch_files, full), (rest, min(rest, 1))):
            if epochs:
                usage += epochs * operations.ingest_epoch(files, **how)
        yield f"read an object, {self.epoch_files:,} in a batch", self.objects, usage
        idle = self.idle_epochs * operations.ingest_poll(**how)
        yield "batch without objects", self.idle_epochs, idle
