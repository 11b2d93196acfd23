"""Torn reads: what arrives when an object is replaced while it is read.

Most stores replace an object in one step. The JuiceFS gateway does not: it looks up size, etag, metadata
and content one after the other. A read during a replacement may mix two versions, and the content may be
cut to the length of the version before.

A module of its own, because all packages that replace small records read them through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from attrs import evolve

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import Conflict, CorruptRecord
from commitlog.oplog.codec import Document, decode
from commitlog.stores.api import ObjectData, same_etag

__all__ = ["TRIES", "read_document", "read_record", "read_whole"]

T = TypeVar("T")

#: Maximum number of reads of a record that is damaged. With the default pauses, a record that stays
#: damaged is reported within two seconds.
TRIES = 6


def read_record(read: Callable[[], T], *, clock: Clock, backoff: Backoff) -> T:
    """Return the result of `read`; call it again while the record that it reads is damaged.

    Args:
        read: reads one record that others may replace, and checks it.
        clock: slept on between reads.
        backoff: the pauses; its tries count if they are fewer than `TRIES`.

    Raises `CorruptRecord` if the record is damaged in every read, and what `read` raises.

    >>> from commitlog.testing import ManualClock
    >>> bodies = iter(["cut", "whole"])
    >>> def read():
    ...     if (body := next(bodies)) == "cut":
    ...         raise CorruptRecord("'names.json' is not JSON")
    ...     return body
    >>> read_record(read, clock=ManualClock(), backoff=Backoff())
    'whole'
    """
    few = evolve(backoff, tries=min(backoff.tries, TRIES))
    return few.retry(clock, read, on=CorruptRecord)


def read_document(
    store: ConditionalStore,
    path: str,
    kind: str,
    parse: Callable[[Document, str], T],
    *,
    clock: Clock,
    backoff: Backoff,
) -> T:
    """Return what `parse` makes of a record that others may replace, and of its etag.

    Args:
        store: the store.
        path: path of the record.
        kind: its kind.
        parse: makes the result; raises `CorruptRecord` for a record that is not valid.
        clock, backoff: as for `read_record`.

    Raises `NotFound`, `FormatTooNew`, and `CorruptRecord` if the record is damaged in every read.
    """

    def read() -> T:
        found = store.get(path)
        return parse(decode(found.data, {kind}, path=path), found.etag)

    return read_record(read, clock=clock, backoff=backoff)


def read_whole(store: ConditionalStore, path: str, *, clock: Clock, backoff: Backoff) -> ObjectData:
    """Return an object whose content is at least as new as its etag and metadata.

    The etag is read before the object, and again with it. So this also holds on a server that looks up
    the content first. Two requests. The content may still be cut, which only a checksum shows.

    Args:
        store: the store.
        path: path of the object.
        clock: slept on between tries.
        backoff: the retry policy if the object was replaced in between.

    Raises `NotFound`, and `Conflict` if the object was replaced in every try.
    """

    def read() -> ObjectData:
        before = store.head(path)
        found = store.get(path)
        if not same_etag(before.etag, found.etag):
            raise Conflict(f"{path!r} was replaced again and again while it was read; try again")
        return found

    return backoff.retry(clock, read, on=Conflict)
