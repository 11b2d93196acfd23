"""Requests and units of each operation, as functions of its size.

They hold for a call that succeeds at the first attempt: without throttling, conflicts, lost answers and
waits for a lease. A process sends a few requests more when it first opens a store or a table. Items of
tables have less than 1 KB, unless names or attributes are long.

``tests/integration/test_cost.py`` runs each operation on servers of S3 and DynamoDB, and compares the
requests with these functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Literal, TypeAlias

from attrs import fields

from commitlog.errors import ConfigurationError
from commitlog.ingest import IngestSettings
from commitlog.namespace import RequestCounts
from commitlog.outputs import Visibility
from commitlog.outputs.checkpoints import INTERVAL
from commitlog.outputs.manifest import MANIFEST_FILES
from commitlog.outputs.pending import INLINE_FILES
from pricing.usage import Usage

__all__ = [
    "ENTRY_BYTES",
    "EPOCH_FILES",
    "ConditionalWrite",
    "bulk_link",
    "collect_garbage",
    "conditional_write",
    "counted_requests",
    "create_file",
    "delete_file",
    "ingest_epoch",
    "ingest_poll",
    "list_directory",
    "look_up",
    "output_job",
    "rename_directory",
    "rename_file",
]

#: A conditional write of one object.
ConditionalWrite: TypeAlias = Literal[
    "put_if_absent", "put_if_match", "copy_if_absent", "delete_if_match"
]

#: Bytes of the item of a file with a name of ten characters, in a namespace with a name of four.
ENTRY_BYTES = 474

#: Most files in an epoch of `ingest_epoch`: the default of ``maxFilesPerTrigger``.
EPOCH_FILES: int = fields(IngestSettings).max_files.default or 0

#: Keys in a page of a listing, and objects in a bulk delete.
_PAGE = 1_000

#: Messages that one request to a queue receives or deletes.
_MESSAGES = 10

#: Bytes of a unit of DynamoDB.
_WRITE_UNIT, _READ_UNIT = 1_024, 4_096

#: Files that one transaction of `bulk_link` makes, besides its guard record.
_BULK = 99

#: Bytes of the item with the files of an epoch: of the item, and of each file in it.
_EPOCH_BYTES, _EPOCH_FILE_BYTES = 250, 30

#: A lease is two writes of its record and a HEAD of the object.
_LEASE = Usage(get_requests=1, write_units=2)

#: A change in the log of a namespace: an intent, the entry, the removal of the intent.
_LOG_ENTRY = Usage(put_requests=2, get_requests=1, free_requests=1)

#: GETs of a job on average: each job reads the records since the last checkpoint, and one in ten writes
#: a checkpoint.
_JOB_GETS = 7.8

#: GETs of each manifest on average: its own job reads it again to publish its files, and so does the
#: next checkpoint.
_MANIFEST_GETS: Mapping[Visibility, float] = MappingProxyType({"listed": 2.0, "logged": 1.0})

_NATIVE: Mapping[ConditionalWrite, Usage] = MappingProxyType(
    {
        "put_if_absent": Usage(put_requests=1),
        "put_if_match": Usage(put_requests=1),
        "copy_if_absent": Usage(put_requests=1),
        "delete_if_match": Usage(free_requests=1),
    }
)


def conditional_write(
    write: ConditionalWrite = "put_if_absent",
    *,
    leases: bool = False,
    refused: bool = False,
    parts: int = 0,
) -> Usage:
    """Return the usage of a conditional write.

    Args:
        write: the kind of the write.
        leases: whether leases enforce the condition, instead of the store.
        refused: whether the condition does not hold. A lease costs one write unit less if the table
            still has the lease of the write that came first.
        parts: number of parts of the body of a put, if it is uploaded in parts: above 8 MiB, and with
            leases of the default length above 160 KiB.

    >>> conditional_write() == Usage(put_requests=1)
    True
    >>> conditional_write(leases=True).write_units
    2
    """
    _check("parts", parts)
    if parts:
        # Nothing is uploaded before the client has looked whether the condition holds.
        upload = Usage(put_requests=parts + 2) + (_LEASE if leases else Usage())
        return Usage(get_requests=1) + (Usage() if refused else upload)
    if leases:
        return _LEASE if refused else _LEASE + _NATIVE[write]
    # After the refusal of a put, the client looks whether the object is its own.
    looks = refused and write.startswith("put")
    return _NATIVE[write] + Usage(get_requests=1 if looks else 0)


def output_job(files: int, *, visibility: Visibility = "listed", leases: bool = False) -> Usage:
    """Return the usage of a job of an output: `begin`, `stage` of each file, and `commit`.

    It is the average of jobs of this size that append to an output with at most 20,000 files, each in a
    new process. Files have at most 8 MiB; a larger one costs a request for each further part.

    Args:
        files: number of files.
        visibility: of the output.
        leases: whether leases enforce the conditions of the log.
    """
    _check("files", files)
    manifests = ceil(files / MANIFEST_FILES) if files > INLINE_FILES else 0
    records = 3 if visibility == "listed" else 2
    commit = Usage(
        put_requests=3 * files + manifests + 2 + records,
        get_requests=_JOB_GETS + manifests * _MANIFEST_GETS[visibility],
        free_requests=1 if visibility == "listed" else 0,
    )
    checkpoint = Usage(put_requests=4, free_requests=2)
    if leases:
        commit += records * _LEASE + Usage(read_units=1)
        checkpoint += _LEASE
    return commit + 1 / INTERVAL * checkpoint


def create_file(path_names: int = 3, *, log: bool = True, leases: bool = False) -> Usage:
    """Return the usage of `Namespace.write` for one file, new or not, with at most 8 MiB of content.

    Args:
        path_names: names in the path.
        log: whether the namespace has a log.
        leases: whether leases enforce the conditions of the log.
    """
    return _change(path_names, 2, log, leases) + Usage(put_requests=1)


def rename_file(path_names: int = 3, *, log: bool = True, leases: bool = False) -> Usage:
    """Return the usage of `Namespace.rename` of a file within its directory.

    Arguments are as for `create_file`.
    """
    return _change(path_names + 1, 3, log, leases)


def rename_directory(
    path_names: int = 3, *, unshared: int = 2, log: bool = True, leases: bool = False
) -> Usage:
    """Return the usage of `Namespace.rename` of a directory, whatever is in it.

    Args:
        path_names: names in the old path, and in the new one.
        unshared: number of directories that are above only one of the two paths: 0 within one parent, 2
            from one parent to another in the same directory.
        log, leases: as for `create_file`.
    """
    return _change(path_names + 1 + unshared // 2, 4 + unshared, log, leases)


def delete_file(path_names: int = 3, *, log: bool = True, leases: bool = False) -> Usage:
    """Return the usage of `Namespace.delete` of a file, without that of `collect_garbage`.

    Arguments are as for `create_file`.
    """
    return _change(path_names, 2, log, leases)


def look_up(path_names: int = 3) -> Usage:
    """Return the usage of `Namespace.stat`; opening the file to read it costs a GET more."""
    return Usage(read_units=path_names)


def list_directory(entries: int, path_names: int = 3, *, entry_bytes: int = ENTRY_BYTES) -> Usage:
    """Return the usage of `Namespace.list` of a directory of one shard, read to its end.

    Args:
        entries: number of its files.
        path_names: names in its path.
        entry_bytes: bytes of the item of each file.
    """
    _check("entries", entries)
    full, rest = divmod(entries, _PAGE)
    sizes = [_PAGE * entry_bytes] * full + [rest * entry_bytes]
    return Usage(read_units=path_names + sum(_units(size, _READ_UNIT) for size in sizes))


def bulk_link(files: int, path_names: int = 3, *, log: bool = True, leases: bool = False) -> Usage:
    """Return the usage of `Namespace.bulk_link` of files whose content is stored already.

    Args:
        files: number of files.
        path_names: names in the path of their directory.
        log, leases: as for `create_file`.
    """
    _check("files", files)
    transactions = ceil(files / _BULK)
    changes = transactions * _logged(log, leases)
    return changes + Usage(read_units=path_names, write_units=2 * (files + transactions))


def collect_garbage(objects: int, *, log: bool = True) -> Usage:
    """Return the usage of `Namespace.maintenance.gc` that removes the content of deleted files.

    Args:
        objects: number of objects to remove, of files that were deleted or replaced.
        log: whether the namespace has a log.
    """
    _check("objects", objects)
    return Usage(
        get_requests=(2 if log else 1) * objects,
        free_requests=ceil(objects / _PAGE),
        write_units=2 * objects,
        read_units=8,
    )


def ingest_epoch(
    files: int,
    *,
    tasks: int = 1,
    listed_keys: int = 0,
    notified: bool = False,
    row_bytes: int | None = None,
) -> Usage:
    """Return the usage of a batch of new files of a source: planning, reading and forgetting them.

    Each file is one slice, which is read by one GET. Formats that read parts of a file, such as Parquet,
    send more.

    Args:
        files: number of new files, at least 1 and at most `EPOCH_FILES`.
        tasks: number of tasks that read them. Each task looks for problems of the epoch.
        listed_keys: number of keys that the batch lists: all below the prefix, or with ``ordered`` or
            ``listLimit`` a part of them.
        notified: whether notifications name the files, one in each message, and nothing is listed. The
            source lists all keys only once in ``listingInterval``, which is not included.
        row_bytes: size of the item with the list of the files; by default about 30 bytes for each.
    """
    _check("tasks", tasks)
    if not 0 < files <= EPOCH_FILES:
        raise ConfigurationError(f"an epoch has 1 to {EPOCH_FILES} files, not {files:g}")
    size = ceil(_EPOCH_BYTES + _EPOCH_FILE_BYTES * files) if row_bytes is None else row_bytes
    # The item is stored with the state, in one transaction, and removed by a later one.
    written = 2 * (1 + 2 * _units(size, _WRITE_UNIT))
    read = Usage(
        get_requests=files, write_units=written, read_units=1 + tasks + _units(size, _READ_UNIT)
    )
    if notified:
        # A HEAD of each file. Messages are received until there are none, and deleted.
        messages = 2 * ceil(files / _MESSAGES)
        read += Usage(get_requests=files, queue_requests=messages)
    return read + ingest_poll(listed_keys=max(files, listed_keys), notified=notified)


def ingest_poll(*, listed_keys: int = 0, notified: bool = False) -> Usage:
    """Return the usage of a batch that finds no new file. Arguments are as for `ingest_epoch`."""
    _check("listed_keys", listed_keys)
    if notified:
        return Usage(read_units=3, queue_requests=1)
    return Usage(put_requests=max(1, ceil(listed_keys / _PAGE)), get_requests=1, read_units=3)


def counted_requests(counts: RequestCounts) -> Usage:
    """Return the usage of requests that a namespace has counted, see `Namespace.request_stats`.

    Each query and scan counts as one read unit, though it takes one for each 4 KB that it reads. Each
    object counts as one request, though a large one is sent in parts. Requests to the log of the
    namespace are not counted. So the result is a lower bound. It is exact without a log, for operations
    that list nothing.

    >>> from commitlog.namespace import RequestCounts
    >>> usage = counted_requests(RequestCounts(gets=3, transactions=1, writes=2, store_puts=1))
    >>> usage.put_requests, usage.write_units, usage.read_units
    (1, 4, 3)
    """
    return Usage(
        put_requests=counts.store_puts
        + counts.store_copies
        + counts.store_lists
        + counts.store_stages
        + counts.store_publishes
        + counts.store_staged_lists,
        get_requests=counts.store_heads + counts.store_gets,
        free_requests=counts.store_deletes + counts.store_bulk_deletes + counts.store_aborts,
        write_units=counts.puts + counts.deletes + 2 * counts.writes,
        read_units=counts.gets + counts.queries + counts.scans,
    )


def _change(reads: int, writes: int, log: bool, leases: bool) -> Usage:
    _check("path_names", reads)
    return _logged(log, leases) + Usage(read_units=reads, write_units=2 * writes)


def _logged(log: bool, leases: bool) -> Usage:
    if not log:
        return Usage()
    return _LOG_ENTRY + (2 * _LEASE if leases else Usage())


def _units(size: float, unit: int) -> int:
    return max(1, ceil(size / unit))


def _check(name: str, number: float) -> None:
    if number < 0:
        raise ConfigurationError(f"{name} must be 0 or more, not {number:g}")
