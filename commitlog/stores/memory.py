"""Objects in this process's memory: for tests, for the simulator, and for trying things out.

It is the shortest complete implementation of the `ObjectStore` port, and so its reference. Every
mutation is one critical section under one lock.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from weakref import WeakValueDictionary

from attrs import define, frozen

from commitlog._util.fork import fork_safe_lock
from commitlog.clock import Clock, SystemClock
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    NotFound,
    PreconditionFailed,
    RequestExpired,
)
from commitlog.paths import check_path, check_prefix
from commitlog.stores.api import (
    NONCE,
    Capabilities,
    Condition,
    IfAbsent,
    IfMatch,
    InFlight,
    ObjectData,
    ObjectInfo,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    RequestExpiry,
    Staged,
    StagedInfo,
    StageWriter,
    WriteOperation,
    same_etag,
)
from commitlog.stores.arguments import check_metadata, check_page, check_range
from commitlog.stores.body import Body, chunks
from commitlog.urls import Url, parse_store_url

__all__ = ["MemoryStore"]

_EMPTY: Mapping[str, str] = MappingProxyType({})
_BOTH = frozenset({IfAbsent, IfMatch})


@frozen
class _Object:
    data: bytes
    etag: str
    modified: float
    metadata: dict[str, str]


@define
class _Upload:
    key: str
    initiated: float
    metadata: dict[str, str]
    data: bytes | None = None  # None until it is finished


class _Space:
    """The state that all stores of one name share. `lock` guards all of it."""

    def __init__(self) -> None:
        self.lock = fork_safe_lock()
        self.objects: dict[str, _Object] = {}
        self.keys: list[str] = []  # sorted; code point order of str is the byte order of UTF-8
        self.uploads: dict[str, _Upload] = {}

    def set(self, key: str, value: _Object) -> None:
        if key not in self.objects:
            insort(self.keys, key)
        self.objects[key] = value

    def remove(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


# Module-level state: a name can only mean the same store in the whole process if the process remembers
# it. Weak, so a name is forgotten with the last store that was opened on it. `tables/memory.py` does the
# same for tables.
_spaces: WeakValueDictionary[str, _Space] = WeakValueDictionary()
_spaces_lock = fork_safe_lock()


def _space(name: str) -> _Space:
    new = _Space()
    if not name:
        return new
    with _spaces_lock:
        return _spaces.setdefault(name, new)


def _random_word() -> str:
    return secrets.token_hex(16)


class MemoryStore(ObjectStore):
    """A store in memory. Thread-safe; every condition and every expiry is enforced.

    Args:
        url: ``memory://name`` or ``memory://name/prefix``. Stores of one name share their objects as
            long as one of them is referenced; ``memory://`` is not shared.
        clock: the *store's* clock: dates objects and enforces expiries. The system clock by default.
        new_id: makes etags, upload ids and nonces; each call must return a new text. Random by default.

    Does not survive the process, and is not shared with a forked one: the child has a copy of its
    own, which it may use, as of a moment at which no call was under way.

    >>> store = MemoryStore()
    >>> etag = store.put("a/b", b"hello").etag
    >>> store.get("a/b", start=1, end=3).data
    b'el'
    """

    capabilities = Capabilities(
        conditions=MappingProxyType(
            {
                WriteOperation.PUT: _BOTH,
                WriteOperation.COPY: _BOTH,
                WriteOperation.PUBLISH: _BOTH,
                WriteOperation.DELETE: frozenset({IfMatch}),
            }
        ),
        enforced=True,
        request_expiry=True,
    )

    def __init__(
        self,
        url: str | Url = "memory://",
        *,
        clock: Clock | None = None,
        new_id: Callable[[], str] = _random_word,
    ) -> None:
        parsed = parse_store_url(url) if isinstance(url, str) else url
        if parsed.scheme != "memory":
            raise ConfigurationError(f"{parsed} is not a memory:// URL")
        self.url = str(parsed)
        self._prefix = f"{parsed.prefix}/" if parsed.prefix else ""
        self._clock: Clock = SystemClock() if clock is None else clock
        self._word = new_id
        self._space = _space(parsed.name)

    def __repr__(self) -> str:
        return f"MemoryStore({self.url!r})"

    def key(self, path: str) -> str:
        """Return `path` below the prefix that was opened."""
        return check_path(self._prefix + check_path(path))

    # reads

    def begin_head(self, path: str) -> InFlight[Observation]:
        """Read at once; the in-flight call returns the object of this moment."""
        key = self.key(path)
        with self._space.lock:
            found = self._space.objects.get(key)
            now = self._clock.epoch()
        info = None if found is None else self._info(key, found)
        seen = Observation(info=info, store_time=int(now))
        return lambda: seen

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `ObjectStore.get`."""
        key = self.key(path)
        check_range(start, end)
        with self._space.lock:
            found = self._space.objects.get(key)
        if found is None:
            raise self._not_found(path)
        return ObjectData(
            path=path,
            size=len(found.data),
            etag=found.etag,
            last_modified=found.modified,
            metadata=found.metadata,
            data=found.data[start:end],
        )

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """See `ObjectStore.list_page`. The token is the last entry that was given."""
        check_prefix(prefix)
        check_page(delimiter, limit)
        objects: list[ObjectInfo] = []
        prefixes: list[str] = []
        with self._space.lock:
            entries = self._entries(prefix, max(start_after, token or ""), delimiter)
            if token is not None and token.endswith("/"):  # a rolled-up prefix: go on behind it
                entries = (entry for entry in entries if entry != token)
            page = list(islice(entries, limit + 1))
            for entry in page[:limit]:
                if entry.endswith("/"):
                    prefixes.append(entry)
                else:
                    key = self._prefix + entry
                    objects.append(self._info(key, self._space.objects[key], with_metadata=False))
        more = len(page) > limit
        return Page(
            objects=tuple(objects),
            prefixes=tuple(prefixes),
            next_token=page[limit - 1] if more else None,
        )

    def _entries(self, prefix: str, after: str, delimiter: str) -> Iterator[str]:
        """Yield paths and rolled-up prefixes in order. The lock is held."""
        keys, low = self._space.keys, self._prefix + prefix
        at = bisect_left(keys, low)
        if after:
            at = max(at, bisect_right(keys, self._prefix + after))
        while at < len(keys) and keys[at].startswith(low):
            cut = keys[at].find(delimiter, len(low)) if delimiter else -1
            if cut < 0:
                yield keys[at][len(self._prefix) :]
                at += 1
            else:
                yield keys[at][len(self._prefix) : cut + 1]
                # "0" is the character after "/"
                at = bisect_left(keys, keys[at][:cut] + "0", at)

    # mutations

    def put(
        self,
        path: str,
        body: Body,
        *,
        condition: Condition | None = None,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.put`. `content_type` is not kept."""
        key = self.key(path)
        kept = check_metadata(metadata)
        data = body if type(body) is bytes else b"".join(chunks(body))
        with self._space.lock:
            self._allow(key, condition, expiry)
            return self._set(key, data, kept)

    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.copy`."""
        source_key, key = self.key(source), self.key(target)
        with self._space.lock:
            found = self._space.objects.get(source_key)
            if found is None:
                raise self._not_found(source)
            self._allow(key, condition, expiry)
            return self._set(key, found.data, found.metadata)

    def delete(
        self, path: str, *, condition: IfMatch | None = None, expiry: RequestExpiry | None = None
    ) -> None:
        """See `ObjectStore.delete`."""
        key = self.key(path)
        with self._space.lock:
            self._allow(key, condition, expiry)
            self._space.remove(key)

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """See `ObjectStore.delete_many`. Nothing can fail here, so the result is empty."""
        keys = [self.key(path) for path in paths]
        with self._space.lock:
            for key in keys:
                self._space.remove(key)
        return {}

    # uploads

    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """See `ObjectStore.begin_stage`. `content_type` is not kept."""
        key = self.key(path)
        kept = check_metadata(metadata)
        kept.setdefault(NONCE, self._word())
        upload_id = self._word()
        with self._space.lock:
            self._space.uploads[upload_id] = _Upload(key, self._clock.epoch(), kept)
        return _MemoryWriter(self._space, path, upload_id, kept[NONCE])

    def publish(
        self, staged: Staged, *, condition: Condition | None = None, expiry: RequestExpiry | None = None
    ) -> PutResult:
        """See `ObjectStore.publish`."""
        key = self.key(staged.path)
        with self._space.lock:
            upload = self._space.uploads.get(staged.upload_id)
            if upload is None or upload.key != key or upload.data is None:
                raise NotFound(f"no staged upload for {staged.path!r}: it was published or aborted")
            self._allow(key, condition, expiry)
            del self._space.uploads[staged.upload_id]
            return self._set(key, upload.data, upload.metadata)

    def abort(self, staged: Staged | StagedInfo) -> None:
        """See `ObjectStore.abort`."""
        with self._space.lock:
            self._space.uploads.pop(staged.upload_id, None)

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """See `ObjectStore.list_staged`. Yields the uploads that exist at the time of the call."""
        check_prefix(prefix)
        low = self._prefix + prefix
        with self._space.lock:
            found = [
                StagedInfo(
                    path=upload.key[len(self._prefix) :], upload_id=upload_id, initiated=upload.initiated
                )
                for upload_id, upload in self._space.uploads.items()
                if upload.key.startswith(low)
            ]
        return iter(sorted(found, key=lambda info: (info.path, info.initiated)))

    # inside; the lock is held in those that change something

    def _allow(self, key: str, condition: Condition | None, expiry: RequestExpiry | None) -> None:
        if expiry is not None and self._clock.epoch() > expiry.expires_at:
            raise RequestExpired(f"the request for {key!r} came after its expiry")
        there = self._space.objects.get(key)
        if isinstance(condition, IfAbsent) and there is not None:
            raise AlreadyExists(f"there is an object at {key!r} already")
        if isinstance(condition, IfMatch) and (
            there is None or not same_etag(there.etag, condition.etag)
        ):
            seen = "there is no object" if there is None else f"its etag is {there.etag}"
            raise PreconditionFailed(f"{key!r} should have etag {condition.etag}, but {seen}")

    def _set(self, key: str, data: bytes, metadata: dict[str, str]) -> PutResult:
        etag = f'"{self._word()}"'  # random, so that equal content written twice has two etags
        self._space.set(key, _Object(data, etag, self._clock.epoch(), metadata))
        return PutResult(path=key[len(self._prefix) :], etag=etag)

    def _info(self, key: str, found: _Object, *, with_metadata: bool = True) -> ObjectInfo:
        return ObjectInfo(
            path=key[len(self._prefix) :],
            size=len(found.data),
            etag=found.etag,
            last_modified=found.modified,
            metadata=found.metadata if with_metadata else _EMPTY,
        )

    def _not_found(self, path: str) -> NotFound:
        return NotFound(f"no object at {path!r} in {self.url}")


class _MemoryWriter(StageWriter):
    def __init__(self, space: _Space, path: str, upload_id: str, nonce: str) -> None:
        self._space = space
        self._path = path
        self._upload_id = upload_id
        self._nonce = nonce
        self._pieces: list[bytes] | None = []  # None once finished or aborted

    def _append(self, data: memoryview) -> None:
        if self._pieces is None:
            raise ConfigurationError(f"the upload of {self._path!r} is finished or aborted already")
        self._pieces.append(bytes(data))

    def finish(self) -> Staged:
        if self._pieces is None:
            raise ConfigurationError(f"the upload of {self._path!r} is finished or aborted already")
        self._check_whole()
        data = b"".join(self._pieces)
        with self._space.lock:
            upload = self._space.uploads.get(self._upload_id)
            if upload is None:
                raise NotFound(f"the upload of {self._path!r} was aborted by another client")
            upload.data = data
        self._pieces = None
        return Staged(path=self._path, upload_id=self._upload_id, size=len(data), nonce=self._nonce)

    def abort(self) -> None:
        if self._pieces is not None:
            self._pieces = None
            with self._space.lock:
                self._space.uploads.pop(self._upload_id, None)
