"""`FencedStore`: objects that refuse the late writes of earlier holders of a lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from attrs import field, frozen

from commitlog._util.ids import random_id
from commitlog._util.parsing import check_choice
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    PreconditionFailed,
    StaleToken,
)
from commitlog.oplog.torn_reads import read_record, read_whole
from commitlog.oplog.validate import MAX_COUNT
from commitlog.stores.api import PutResult, same_etag

__all__ = ["FORMAT", "FencedObject", "FencedStore"]

#: Format of the first line of an object whose token is in its content.
FORMAT = 1

#: The metadata key of the token.
_METADATA = "commitlog-fence"

#: That line: format, token, nonce. The nonce makes each version's bytes unlike those of all others.
_HEADER = re.compile(rb"commitlog-fence (\d{1,9}) (?:(\d{1,19}) [0-9a-zA-Z-]{1,64}\n)?")
_LONGEST_HEADER = 128


def _show_size(data: bytes) -> str:
    return f"<{len(data)} bytes>"


@frozen(kw_only=True)
class FencedObject:
    """An object with its token.

    Attributes:
        path: its path.
        data: the content that was given to `FencedStore.put`.
        token: the token of its last writer; 0 if it was written without one.
        etag: for `FencedStore.put_if_match`.
    """

    path: str
    data: bytes = field(repr=_show_size)
    token: int
    etag: str


class FencedStore:
    """Writes of whole objects, each with a fencing token. Thread-safe.

    Args:
        store: the store, on which all writers of a path agree.
        keep: where an object's token is kept. ``"content"``: in a first line of the content, which other
            readers must skip. ``"metadata"``: in its metadata, and the content is as it was given. Then
            the guarantee holds only if no two versions of an object have the same content; for example,
            because each has a new version number in it. All writers of a path must agree.
        clock, backoff, new_id: for repeated attempts, and for unique content.

    Guarantee: once a write with a token has been stored, no write with a smaller token through a
    `FencedStore` is stored at that path, however late its request arrives. Each write replaces the very
    version whose token it has compared, by the store's own condition or under a lease (see
    `ConditionalStore`). Writes with equal tokens, of one holder, exclude each other by etags only.

    Why ``"metadata"`` is weaker: many stores derive the etag from the content alone. If a later holder
    stored the bytes that an earlier holder saw, the earlier one's condition holds again.

    Non-guarantees: the token of a holder says nothing until it is stored. A late write of an earlier
    holder may land until the first write of the next one. So a holder reads what it depends on after its
    first write, or calls `claim` first, or replaces what it read by `put_if_match`. Plain writes and
    deletions of the path are not fenced; this class has no deletion, because a deleted object has no
    token. Write an empty object instead. On a server with torn reads (docs/stores.md), `get` may return
    data that are cut, if the object is replaced meanwhile; `claim` and `put_if_match` do not use them.

    >>> import commitlog
    >>> fenced = FencedStore(commitlog.connect("memory://"))
    >>> fenced.put("counter", b"1", token=33).path
    'counter'
    >>> fenced.put("counter", b"2", token=34).path
    'counter'
    >>> fenced.put("counter", b"late", token=33)
    Traceback (most recent call last):
    commitlog.errors.StaleToken: 'counter' was written with token 34, which is larger than ...
    >>> fenced.get("counter").data, fenced.get("counter").token
    (b'2', 34)
    """

    def __init__(
        self,
        store: ConditionalStore,
        *,
        keep: Literal["content", "metadata"] = "content",
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        check_choice("keep", keep, ("content", "metadata"))
        self._store = store
        self._in_content = keep == "content"
        self._clock = SystemClock() if clock is None else clock
        self._backoff = Backoff() if backoff is None else backoff
        self._new_id = new_id

    def get(self, path: str) -> FencedObject:
        """Return an object with its token.

        Raises:
            NotFound: there is no object.
            CorruptRecord: it has no valid token. It was left as it is.
            FormatTooNew: a newer version of this library wrote it.
            Conflict: others replaced it in every try.
        """
        return read_record(lambda: self._get(path), clock=self._clock, backoff=self._backoff)

    def put(self, path: str, data: bytes, *, token: int) -> PutResult:
        """Store an object, whatever is there, unless a larger token is.

        Raises:
            StaleToken: the object has a larger token; nothing was written.
            PreconditionFailed, AlreadyExists: others wrote it again and again; nothing was written.
            OutcomeUnknown: see `ConditionalStore.put_if_match`.
            CorruptRecord, FormatTooNew: as `get`; nothing was written.
        """

        def write() -> PutResult:
            try:
                found = self._look(path)
            except NotFound:
                return self.put_if_absent(path, data, token=token)
            return self._replace(found, data, token)

        return self._backoff.retry(
            self._clock,
            write,
            on=(AlreadyExists, PreconditionFailed),
            when=lambda error: not isinstance(error, StaleToken),
        )

    def put_if_match(self, path: str, data: bytes, *, etag: str, token: int) -> PutResult:
        """Replace an object if it still has `etag`, unless it has a larger token.

        Raises:
            StaleToken: the object has a larger token; nothing was written.
            PreconditionFailed: it has another etag, or does not exist; nothing was written.
            OutcomeUnknown: see `ConditionalStore.put_if_match`.
            CorruptRecord, FormatTooNew: as `get`; nothing was written.
        """
        try:
            found = self._look(path)
        except NotFound as error:
            raise PreconditionFailed(f"there is no object at {path!r}; nothing was written") from error
        if not same_etag(found.etag, etag):
            self._compare(found, token)
            raise PreconditionFailed(f"{path!r} has another etag; nothing was written")
        return self._replace(found, data, token)

    def put_if_absent(self, path: str, data: bytes, *, token: int) -> PutResult:
        """Create an object, with its token, unless there is one.

        Raises:
            AlreadyExists: there is one; nothing was written.
            OutcomeUnknown: see `ConditionalStore.put_if_absent`.
        """
        body, metadata = self._prepared(data, token)
        return self._store.put_if_absent(path, body, metadata=metadata)

    def claim(self, path: str, *, token: int) -> FencedObject:
        """Store the token with the present content, and return the object as it is then.

        Afterwards, no earlier holder can change the object. Call it before reading what the work under a
        lock depends on.

        Raises:
            NotFound: there is no object.
            StaleToken: the object has a larger token; nothing was written.
            PreconditionFailed: others wrote it again and again; nothing was written.
            OutcomeUnknown: see `ConditionalStore.put_if_match`.
            CorruptRecord, FormatTooNew: as `get`.
        """

        def write() -> FencedObject:
            found = self.get(path)
            result = self._replace(found, found.data, token)
            if not result.etag:
                return self.get(path)
            return FencedObject(path=path, data=found.data, token=token, etag=result.etag)

        return self._backoff.retry(
            self._clock,
            write,
            on=PreconditionFailed,
            when=lambda error: not isinstance(error, StaleToken),
        )

    # -- inside ------------------------------------------------------------------------------------

    def _get(self, path: str) -> FencedObject:
        found = read_whole(self._store, path, clock=self._clock, backoff=self._backoff)
        if not self._in_content:
            token = self._token_of(path, found.metadata)
            return FencedObject(path=path, data=found.data, token=token, etag=found.etag)
        header = self._header(path, found.data)
        data = found.data[header.end() :]
        return FencedObject(path=path, data=data, token=int(header[2]), etag=found.etag)

    def _look(self, path: str) -> FencedObject:
        """Return an object without its data."""
        return read_record(lambda: self._get_token(path), clock=self._clock, backoff=self._backoff)

    def _get_token(self, path: str) -> FencedObject:
        info = self._store.head(path)
        if not self._in_content:
            token = self._token_of(path, info.metadata)
            return FencedObject(path=path, data=b"", token=token, etag=info.etag)
        start = self._store.get(path, end=_LONGEST_HEADER)
        if not same_etag(start.etag, info.etag):
            raise PreconditionFailed(f"{path!r} was replaced while it was read; nothing was written")
        header = self._header(path, start.data)
        return FencedObject(path=path, data=b"", token=int(header[2]), etag=info.etag)

    def _replace(self, found: FencedObject, data: bytes, token: int) -> PutResult:
        self._compare(found, token)
        body, metadata = self._prepared(data, token)
        return self._store.put_if_match(found.path, body, etag=found.etag, metadata=metadata)

    def _compare(self, found: FencedObject, token: int) -> None:
        _check_token(token)
        if token < found.token:
            raise StaleToken(
                f"{found.path!r} was written with token {found.token}, which is larger than {token};"
                " nothing was written. The lock was lost"
            )

    def _prepared(self, data: bytes, token: int) -> tuple[bytes, Mapping[str, str]]:
        _check_token(token)
        if self._in_content:
            return b"commitlog-fence %d %d %s\n%s" % (FORMAT, token, self._new_id().encode(), data), {}
        return data, {_METADATA: str(token)}

    def _header(self, path: str, data: bytes) -> re.Match[bytes]:
        header = _HEADER.match(data)
        if header is not None and int(header[1]) > FORMAT:
            raise FormatTooNew(
                f"{path!r} has format {int(header[1])}, and this library reads up to {FORMAT}: upgrade"
                " it"
            )
        if header is None or header[2] is None or int(header[2]) > MAX_COUNT:
            raise CorruptRecord(
                f"{path!r} does not begin with a token: it was not written by a FencedStore that keeps"
                " tokens in the content. It was left as it is; use another path, or keep='metadata'"
            )
        return header

    def _token_of(self, path: str, metadata: Mapping[str, str]) -> int:
        text = metadata.get(_METADATA, "0")
        if not re.fullmatch("[0-9]{1,19}", text) or int(text) > MAX_COUNT:
            raise CorruptRecord(
                f"the token of {path!r} is {text!r}. It was left as it is; write it again"
            )
        return int(text)


def _check_token(token: int) -> None:
    if type(token) is not int or not 0 <= token <= MAX_COUNT:
        raise ConfigurationError(f"token is {token!r}; it must be an int of 0 or more: lock.token")
