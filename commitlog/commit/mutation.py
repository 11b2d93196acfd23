"""A conditional mutation of one object: its request, its condition, and how to recognise its result.

`commitlog.commit.native_committer` and `commitlog.commit.lease_committer` decide whether and when to
send it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, TypeAlias

from attrs import frozen

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    OutcomeUnknown,
    PreconditionFailed,
)
from commitlog.stores.api import (
    Condition,
    Dialect,
    IfAbsent,
    IfMatch,
    ObjectInfo,
    PutResult,
    RequestExpiry,
    WriteOperation,
    same_etag,
)

__all__ = [
    "Committer",
    "Mutation",
    "Reading",
    "Send",
    "bare",
    "contradiction",
    "holds",
    "matching",
    "quoted",
]

#: Sends the request once, with its condition and expiry; a deletion has no result.
Send: TypeAlias = Callable[[Condition | None, RequestExpiry | None], PutResult | None]


#: Bytes of the longest etag with its quotes: what the key of a lease holds.
_MAX_ETAG = 1024


class Reading(enum.Enum):
    """The outcome of a mutation with a lost response, as the present object shows it."""

    #: It happened.
    LANDED = "landed"
    #: All is as before: it did not happen so far.
    UNCHANGED = "unchanged"
    #: Something else is there: it may have happened before that, or not at all.
    OTHER = "other"


def quoted(etag: str) -> str:
    """Return an etag in quotes, as RFC 9110 has it, however it was spelt.

    Raises `ConfigurationError` for a value that is not text, or that no store has as an etag.

    >>> quoted("abc"), quoted('"abc"'), bare('"abc"')
    ('"abc"', '"abc"', 'abc')
    """
    if not isinstance(etag, str):
        raise ConfigurationError(f"an etag is a str, not {etag!r}; nothing was sent")
    found = etag if etag.startswith("W/") else f'"{bare(etag)}"'
    if len(found.encode(errors="replace")) > _MAX_ETAG or not found.isprintable():
        raise ConfigurationError(
            f"an etag is printable, and has at most {_MAX_ETAG - 2} bytes of UTF-8, not {etag!r:.80}; "
            "nothing was sent"
        )
    return found


def bare(etag: str) -> str:
    """Return an etag without its quotes."""
    return etag.strip('"')


def matching(etag: str, dialect: Dialect) -> IfMatch:
    """Return the condition on an etag, written as the dialect wants it.

    >>> matching('"abc"', Dialect.BARE).etag
    'abc'
    """
    return IfMatch(bare(etag) if dialect is Dialect.BARE else quoted(etag), dialect)


def holds(condition: Condition, info: ObjectInfo | None) -> bool:
    """Return whether `condition` holds for the present object."""
    if isinstance(condition, IfAbsent):
        return info is None
    return info is not None and same_etag(info.etag, condition.etag)


def contradiction(path: str, condition: Condition, info: ObjectInfo | None) -> CommitError:
    """Return the typed failure of `condition`, which does not hold of `info`."""
    if isinstance(condition, IfAbsent):
        return AlreadyExists(f"there is an object at {path!r} already; nothing was written")
    found = "there is no object" if info is None else f"it has {info.etag} now"
    return PreconditionFailed(
        f"object at {path!r} does not have etag {condition.etag} any more: {found}. "
        "Nothing was changed; read it again"
    )


@frozen(kw_only=True)
class Mutation:
    """One conditional call on one object.

    Attributes:
        operation: the kind of request.
        path: the object that it creates, replaces or deletes.
        condition: the condition on that object.
        send: sends the request.
        nonce: the nonce in the metadata of the new object. None for a copy, which has the metadata of
            its source, and for a deletion.
        source: returns the source of a copy; None for other operations.
        body: size of the request's body in bytes, if it may exceed `LeaseSettings.largest_body`.
        shared: whether others may send the same request: publish the same upload.
    """

    operation: WriteOperation
    path: str
    condition: Condition
    send: Send
    nonce: str | None = None
    source: Callable[[], ObjectInfo | None] | None = None
    body: int = 0
    shared: bool = False

    def holds(self, info: ObjectInfo | None) -> bool:
        """Return whether the condition holds for the present object."""
        return holds(self.condition, info)

    def contradiction(self, info: ObjectInfo | None) -> CommitError:
        """Return the typed failure of a condition that does not hold of `info`."""
        return contradiction(self.path, self.condition, info)

    def recognises(self, info: ObjectInfo | None) -> bool:
        """Return whether `info` has the nonce of this call."""
        return self.nonce is not None and info is not None and info.nonce == self.nonce

    def read(self, info: ObjectInfo | None, *, exclusive: bool) -> Reading:
        """Return what the present object shows about a request whose response was lost.

        Args:
            info: the result of a HEAD that began after the request was sent.
            exclusive: no other client could write since the condition was seen to hold: a lease is held.

        Without a nonce, the target of a copy or the absence of a deleted object could be the work of any
        client. Under the lease it can only be this client's: before the request was sent the condition
        held, and every other writer of that version needs the same lease. But a copy may have been
        replaced since, under another lease; then its etag, which must be returned, is unknown. Raises
        the errors of the HEAD of the source.
        """
        if self.recognises(info):
            return Reading.LANDED
        if self.holds(info):
            return Reading.UNCHANGED
        if exclusive and self.operation is WriteOperation.DELETE and info is None:
            return Reading.LANDED
        if exclusive and self.source is not None and _is_copy(info, self.source()):
            return Reading.LANDED
        return Reading.OTHER

    def confirmed(
        self, said: PutResult | None, info: ObjectInfo | None, lost: CommitError | None
    ) -> PutResult | None:
        """Return the result of a request that was answered with success, as the object shows it.

        An answer of success proves nothing where the same request may have come before: a store may
        answer a repeated one at once, and refuse the first one a moment later. Versity Gateway does this
        for uploads that it is completing.

        Args:
            said: the result by the answer.
            info: the result of a HEAD that began after the answer.
            lost: the loss of an earlier answer.

        Raises `OutcomeUnknown` if the object has neither the nonce of this call nor, of a copy, the etag
        in the answer; or if a deleted object is still there.
        """
        if self.recognises(info):
            return self.result(info)
        if self.operation is WriteOperation.DELETE and not self.holds(info):
            return said
        if self.source is not None and said and info and same_etag(said.etag, info.etag):
            return self.result(info)
        there = "there is no object" if info is None else f"the object has etag {info.etag}"
        raise self.unknown(
            f"it was sent more than once, and answered with success, but {there}"
        ) from lost

    def result(self, info: ObjectInfo | None) -> PutResult | None:
        """Return the result that the store would have sent, derived from the present object."""
        if info is None:
            return None
        return PutResult(path=self.path, etag=info.etag, version=info.version)

    def unknown(self, why: str) -> OutcomeUnknown:
        """Return the error for an outcome that reading back could not settle."""
        sign = f": it happened if the metadata has commitlog-nonce={self.nonce}" if self.nonce else ""
        return OutcomeUnknown(
            f"{self.operation.value} of {self.path!r} may or may not have happened: {why}. Do not clean "
            f"up; look at the object again later{sign}"
        )


def _is_copy(info: ObjectInfo | None, source: ObjectInfo | None) -> bool:
    if info is None or source is None:
        return False
    # The etag of a copy need not be that of its source: uploads in parts and encryption change it.
    return same_etag(info.etag, source.etag) or (info.nonce is not None and info.nonce == source.nonce)


class Committer(Protocol):
    """A way to carry out a `Mutation` so that its condition is enforced."""

    def run(self, mutation: Mutation) -> PutResult | None:
        """Carry it out, or raise a typed failure (nothing happened) or `OutcomeUnknown`."""
