"""Which bucket a store leads to, for all clients of one table, however they spell its endpoint.

Inside and outside a container network, one bucket has two URLs. Findings of probes belong to the
bucket (`commitlog.commit.probe_cache`), so a URL alone does not say which findings apply. The table
holds a list
of buckets. Each has the URLs that lead to it, and a mark: an object at the root of the bucket, under a
name that is used once. A client with a URL that is not in the list looks for the marks. If it finds
one, its URL is added to that bucket. If it finds none, it stores a mark and adds a bucket.

The list is one item, which is replaced only if it has not changed, and a mark is stored before the list
names it. So of two clients that come at once, the second to change the list looks for the mark of the
first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TypeAlias

from attrs import evolve, field, frozen, validators

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    AccessDenied,
    CommitError,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotSupported,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Absent, ConditionFailed, Equals, Key, Table
from commitlog.urls import bucket_of, parse_store_url

__all__ = ["BUCKETS", "FORMAT", "MARK", "Bucket", "Root", "put_mark"]

#: Opens the whole bucket of a store, for as long as its marks are looked at.
Root: TypeAlias = Callable[[], AbstractContextManager[ObjectStore]]

#: Format of the list of buckets.
FORMAT = 1

#: The key of the list. Its hash is the beginning of the keys of all findings, and of no other key.
BUCKETS = Key("../PROBE/", "buckets")

#: What marks are called, at the root of their bucket.
MARK = ".commitlog-bucket-"

_TEXT = (
    b"By this object, clients that spell the endpoint differently know their bucket. Leave it here.\n"
)


def _word(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} is {value!r}")
    return value


@frozen(kw_only=True)
class _Mark:
    """The mark of a bucket: its word, and the second at which the store says it was written.

    A bucket that was copied to another store has the object, too, but not of that second.
    """

    word: str
    modified: int = field(validator=validators.instance_of(int))

    @property
    def path(self) -> str:
        return MARK + self.word


@frozen(kw_only=True)
class _Known:
    """A bucket of the list: its URLs, the first of which keys its findings, and its mark."""

    urls: tuple[str, ...] = field(validator=validators.min_len(1))
    mark: _Mark | None

    @property
    def name(self) -> str:
        return self.urls[0]

    def may_be(self, url: str) -> bool:
        """Tell whether it could be the bucket at `url`, if no mark can tell: it has the same name."""
        mine, other = parse_store_url(self.name), parse_store_url(url)
        return (mine.scheme, mine.name) == (other.scheme, other.name)


class Bucket:
    """Finds out under which URL the findings about a store's bucket are kept. Thread-safe.

    Args:
        table: where the list is (`commitlog.commit.record.LEASE_SCHEMA`).
        store: the store whose bucket it is.
        root: opens the whole bucket of `store` when marks are needed; None: it cannot be opened, and no
            mark is stored.
        clock, backoff: on what, and how often, requests are tried again.
        new_id: makes words that are never made again.

    Guarantees: two clients of a table whose stores are one bucket get one name, as long as the mark
    stays, and as long as a look that was begun after the mark was written sees it. A client that cannot
    find out whether its bucket is one of the list gets `NotSupported`.

    Non-guarantees: a URL that is in the list is believed. One URL that means different stores on
    different machines (``localhost``) has one name.
    """

    def __init__(
        self,
        table: Table,
        store: ObjectStore,
        *,
        root: Root | None,
        clock: Clock,
        backoff: Backoff,
        new_id: Callable[[], str],
    ) -> None:
        self._table = table
        self._root = root
        self._clock = clock
        self._backoff = backoff
        self._new_id = new_id
        #: The URL of the bucket as this client spells it.
        self.url = bucket_of(store.url)
        # What a store enforces by itself is in no findings.
        self._needed = not store.capabilities.enforced
        self._name: str | None = None

    def name(self) -> str:
        """Return the URL under which findings about the bucket are kept. Asks the table once.

        Raises:
            NotSupported: the bucket may be one that another URL leads to, but its mark cannot be read,
                or it has none.
            Unavailable: the store or the table did not answer, or the list was changed again and again.
            CorruptRecord, FormatTooNew: the list cannot be read.
        """
        if not self._needed:
            return self.url
        if self._name is None:
            self._name = self._agree(self._found)
        return self._name

    def renew(self) -> str:
        """Give the bucket a mark if it has none, forget what stands in the way of it; return the name.

        Buckets of the same name that have no mark are dropped from the list: who works on one of them
        adds it again. Call it while no client is at work. Raises as `name`.
        """
        if not self._needed:
            return self.url
        self._name = self._agree(self._renewed)
        return self._name

    def _agree(self, change: Callable[[tuple[_Known, ...], _Marks], tuple[_Known, ...]]) -> str:
        """Apply `change` to the list, retrying on conflicts; return the list's entry for this URL."""
        with _Marks(self._root, clock=self._clock, backoff=self._backoff, new_id=self._new_id) as marks:
            last: CommitError | None = None
            for _ in self._backoff.attempts(self._clock):
                text, known = self._read()
                changed = change(known, marks)
                try:
                    if changed != known:
                        self._write(changed, text)
                except (ConditionFailed, OutcomeUnknown) as error:
                    last = error
                    continue
                return next(bucket.name for bucket in changed if self.url in bucket.urls)
        raise Unavailable(
            f"the bucket of {self.url} could not be listed in the table ({last}); nothing was sent, "
            "try again"
        ) from last

    def _found(self, known: tuple[_Known, ...], marks: _Marks) -> tuple[_Known, ...]:
        """Return the list with my URL in it."""
        if any(self.url in bucket.urls for bucket in known):
            return known
        doubtful: list[_Known] = []
        for bucket in known:
            there = marks.has(bucket.mark)
            if there:
                more = evolve(bucket, urls=(*bucket.urls, self.url))
                return tuple(more if each is bucket else each for each in known)
            if there is None and bucket.may_be(self.url):
                doubtful.append(bucket)
        if doubtful:
            raise NotSupported(self._doubt(doubtful[0]))
        return (*known, _Known(urls=(self.url,), mark=marks.mine()))

    def _renewed(self, known: tuple[_Known, ...], marks: _Marks) -> tuple[_Known, ...]:
        kept = tuple(
            bucket
            for bucket in known
            if self.url in bucket.urls or bucket.mark is not None or not bucket.may_be(self.url)
        )
        return tuple(
            evolve(bucket, mark=marks.mine())
            if self.url in bucket.urls and (bucket.mark is None or marks.has(bucket.mark) is False)
            else bucket
            for bucket in self._found(kept, marks)
        )

    def _doubt(self, bucket: _Known) -> str:
        why = "it has no mark" if bucket.mark is None else f"its mark {bucket.mark.path} cannot be read"
        return (
            f"{self.url} may be the bucket that the table has as {bucket.name}, or another one of that "
            f"name: {why}. Nothing was sent. Spell the endpoint as there; or allow s3:GetObject on "
            f"{MARK}* at the root of the bucket, and s3:ListBucket; or run 'commitlog probe --table' "
            "while no writer is at work, as one who may also write there; or let all clients use "
            "commit='lease'"
        )

    def _read(self) -> tuple[str | None, tuple[_Known, ...]]:
        item = self._table.get(BUCKETS)
        if item is None:
            return None, ()
        text = item.get("buckets")
        try:
            if not isinstance(text, str):
                raise ValueError("it is not text")
            value = json.loads(text)
            format = value["format"]
            if type(format) is not int or format < 1:
                raise ValueError(f"its format is {format!r}")
            if format > FORMAT:
                raise FormatTooNew(
                    f"the list of buckets in the table has format {format}; this library reads {FORMAT}"
                )
            return text, tuple(_parse(row) for row in value["buckets"])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise CorruptRecord(
                f"the list of buckets in the table is corrupt ({error}); nothing was sent. Stop the "
                f"writers, delete the item {BUCKETS.hash!r}, {BUCKETS.range!r}, and run "
                "'commitlog probe --table'"
            ) from error

    def _write(self, known: tuple[_Known, ...], before: str | None) -> None:
        rows = [
            {
                "urls": list(bucket.urls),
                "mark": bucket.mark and {"word": bucket.mark.word, "modified": bucket.mark.modified},
            }
            for bucket in known
        ]
        text = json.dumps({"format": FORMAT, "buckets": rows})
        item = {"path": BUCKETS.hash, "etag": str(BUCKETS.range), "buckets": text}
        condition = Absent() if before is None else Equals("buckets", before)
        self._table.put(item, condition=condition)


def _parse(row: dict[str, object]) -> _Known:
    urls, mark = row["urls"], row["mark"]
    if not isinstance(urls, list):
        raise ValueError(f"the URLs of a bucket are {urls!r}")
    known = tuple(_word(url, "a URL") for url in urls)
    for url in known:
        parse_store_url(url)
    if mark is None:
        return _Known(urls=known, mark=None)
    if not isinstance(mark, dict):
        raise ValueError(f"a mark is {mark!r}")
    return _Known(urls=known, mark=_Mark(word=_word(mark["word"], "a mark"), modified=mark["modified"]))


class _Marks:
    """Looks for marks at the root of a bucket, and stores one there. A context manager.

    Args:
        root: opens the bucket when it is first needed; None: it cannot be opened.
        clock, backoff, new_id: as of `Bucket`.
    """

    def __init__(
        self,
        root: Root | None,
        *,
        clock: Clock,
        backoff: Backoff,
        new_id: Callable[[], str],
    ) -> None:
        self._open = root
        self._until_exit = ExitStack()
        self._clock = clock
        self._backoff = backoff
        self._new_id = new_id
        self._root: ObjectStore | None = None
        self._mine: _Mark | None = None
        self._tried = False

    def __enter__(self) -> _Marks:
        return self

    def __exit__(self, *_: object) -> None:
        self._until_exit.close()

    def has(self, mark: _Mark | None) -> bool | None:
        """Tell whether the bucket has this mark; None if that cannot be found out."""
        if mark is None or self._open is None:
            return None
        try:
            seen = self._head(mark.path)
        except AccessDenied:
            return None
        return seen == mark.modified

    def mine(self) -> _Mark | None:
        """Store a mark, once, and return it; None if that is denied, or the root cannot be opened."""
        if not self._tried and self._open is not None:
            self._tried = True
            self._mine = self._stored(self._opened())
        return self._mine

    def _stored(self, root: ObjectStore) -> _Mark | None:
        word = ""

        def path() -> str:
            # A new one for each attempt: a request that arrives late must not change the date of
            # a mark that is in the list.
            nonlocal word
            word = self._new_id()
            return MARK + word

        if not put_mark(root, path, _TEXT, clock=self._clock, backoff=self._backoff):
            return None
        try:
            modified = self._head(MARK + word)
        except AccessDenied:
            return None
        return None if modified is None else _Mark(word=word, modified=modified)

    def _head(self, path: str) -> int | None:
        info = self._opened().begin_head(path)().info
        return None if info is None else int(info.last_modified)

    def _opened(self) -> ObjectStore:
        assert self._open is not None
        if self._root is None:
            self._root = self._until_exit.enter_context(self._open())
        return self._root


def put_mark(
    store: ObjectStore, path: Callable[[], str], text: bytes, *, clock: Clock, backoff: Backoff
) -> bool:
    """Store an object by which a store is recognised; return False if that is denied.

    Args:
        store: where.
        path: makes the path of each attempt.
        text: what the object says to people.
        clock: waited on between attempts.
        backoff: how often it is tried.

    Raises `BucketNotFound`, and `Unavailable` if no attempt was answered with success. Objects of
    earlier attempts may stay.
    """
    last: CommitError | None = None
    tried = ""
    for _ in backoff.attempts(clock):
        tried = path()
        try:
            store.put(tried, text)
        except AccessDenied:
            return False
        except (Conflict, OutcomeUnknown, Unavailable) as error:
            last = error
            continue
        return True
    raise Unavailable(f"{tried!r} could not be stored in {store.url} ({last})") from last
