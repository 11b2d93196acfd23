"""Creation of a namespace: the check for an existing namespace or log, and the first records.

Before the records, an object is stored that identifies the store of the namespace. It has a path under a
reserved prefix that holds no user's files, and the metadata record in the table has that path. If a disk
is not mounted, a program that writes there creates a new directory, but never this object.
"""

from __future__ import annotations

import contextlib

from commitlog.commit.bucket_identity import put_identity_object
from commitlog.errors import AlreadyExists, CommitError, Conflict, CorruptRecord
from commitlog.namespace.context import NamespaceContext
from commitlog.namespace.log.checkpoint import NamespaceCheckpoints
from commitlog.namespace.log.entries import parse_change
from commitlog.namespace.metadata import FIRST, NamespaceMetadata
from commitlog.namespace.model.binding import RESERVED
from commitlog.namespace.model.keys import ROOT, TOP, TRASH, TRASH_SHARDS
from commitlog.namespace.model.records import Entry, Guard, Shards
from commitlog.namespace.write.transaction import Change, PlanOutdated
from commitlog.oplog import Decision
from commitlog.tables.api import Absent

__all__ = ["create", "identity_path", "store_identity_object"]


def create(context: NamespaceContext) -> bool:
    """Create a namespace; return False if it exists already. See `Namespace.create`."""
    identity: str | None = None
    tried = False

    def plan() -> tuple[Change | None, bool]:
        nonlocal identity, tried
        if _is_created(context):
            return None, False
        change_id = context.new_id()
        if not tried:  # store the object first: once the table has the namespace, its path is known
            path = identity_path(context.name, change_id)
            identity = path if store_identity_object(context, path) else None
            tried = True
        return _plan_creation(context, change_id, identity), True

    try:
        created = context.run_undescribed(plan)
    except Conflict as error:
        if isinstance(error.__cause__, PlanOutdated) and not _has_metadata(context):
            raise CorruptRecord(
                f"{context.table.url} has records of a namespace {context.name!r}, but not the record of"
                " its format. Restore the table from a backup, or choose another name"
            ) from error
        raise
    if (
        identity is not None and context.describe(writing=False).identity != identity
    ):  # another process was first
        with contextlib.suppress(CommitError):
            context.store.delete(identity)
    return created


def _is_created(context: NamespaceContext) -> bool:
    """Return whether the namespace exists. Raises `AlreadyExists` if only its log does."""
    exists = _has_metadata(context)
    if not exists and _has_log(context):
        exists = _has_metadata(context)  # another process may have created it just now
        if not exists:
            raise AlreadyExists(
                f"the log at {context.metadata.log_prefix!r} in {context.store.url} belongs to a"
                f" namespace, but {context.table.url} has no namespace {context.name!r}: restore it"
                " (`commitlog namespace restore`), or choose another name. Nothing was created"
            )
    if exists:
        context.describe()
    return exists


def _has_metadata(context: NamespaceContext) -> bool:
    return context.table.get(context.keys.metadata) is not None


def _has_log(context: NamespaceContext) -> bool:
    """Return whether the log has more than creations that did not happen."""
    if context.changes.log is None:
        return False
    log = context.changes.log.root
    if context.changes.log.epochs.newest() != FIRST:
        return True
    # Pending operations first: one that is decided or compacted meanwhile is found at its next place.
    if any(parse_change(operation).primary != context.keys.metadata for operation in log.pending()):
        return True
    if any(operation.decision is Decision.COMMITTED for operation in log.history()):
        return True
    return NamespaceCheckpoints(log, new_id=context.new_id).newest() is not None


def _plan_creation(context: NamespaceContext, change_id: str, identity: str | None) -> Change:
    keys = context.keys
    now = int(context.clock.epoch() * 1000)
    change = Change("create a namespace", change_id, keys.metadata)
    metadata = NamespaceMetadata(
        key=keys.metadata,
        store=context.store.url,
        log=context.metadata.log_prefix,
        identity=identity,
        created=now,
        change_id=change.id,
    )
    change.put(metadata, Absent())
    for id, shards in ((ROOT, Shards()), (TRASH, Shards(now=TRASH_SHARDS, first=TRASH_SHARDS))):
        entry = Entry(
            key=keys.entry(TOP, 0, id),
            id=id,
            version=1,
            change_id=change.id,
            created=now,
            modified=now,
            updated=now,
            shards=shards,
        )
        change.put(entry, Absent())
    guard = Guard(key=keys.guard(ROOT, 0), shards=1, change_id=change.id)
    change.put(guard, Absent())
    return change


def identity_path(namespace: str, id: str) -> str:
    """Return the path of a namespace's identity object; `id` is a unique string.

    >>> identity_path("lake", "0b1c")
    '_commitlog/namespaces/lake/mark/0b1c'
    """
    return f"{RESERVED}namespaces/{namespace}/mark/{id}"


def store_identity_object(context: NamespaceContext, path: str) -> bool:
    """Store the object that identifies the store of a namespace; return False if access is denied.

    Raises `BucketNotFound`, `Unavailable`.
    """
    text = b"By this object a namespace knows its store. Leave it here.\n"
    return put_identity_object(
        context.store, lambda: path, text, clock=context.clock, backoff=context.backoff
    )
