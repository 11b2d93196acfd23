"""The identity of a bucket, for clients of one table that use different URLs for it.

One bucket may have several URLs, such as one inside and one outside a container network. The results of
probes belong to the bucket (`commitlog.commit.probe_cache`), so a URL alone does not say which results
apply. Therefore the table has a list of buckets. A bucket in the list has the URLs that lead to it, and
an identity object: an object with a unique name at the root of the bucket. A client whose URL is not in
the list looks for the identity objects. If it finds one, it adds its URL to that bucket. If it finds
none, it stores an identity object and adds a bucket.

The list is one item, which is replaced only if it has not changed, and an identity object is stored
before it is in the list. So of two concurrent clients, the second one to change the list finds the
identity object of the first.
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

__all__ = ["BUCKETS", "FORMAT", "IDENTITY_PREFIX", "BucketIdentity", "Root", "put_identity_object"]

#: Opens the whole bucket of a store, while its identity objects are read or written.
Root: TypeAlias = Callable[[], AbstractContextManager[ObjectStore]]

#: Format of the list of buckets.
FORMAT = 1

#: The key of the list. Its hash is the prefix of the keys of all probe results, and of no other key.
BUCKETS = Key("../PROBE/", "buckets")

#: The prefix of the names of identity objects, at the root of their bucket.
IDENTITY_PREFIX = ".commitlog-bucket-"

_TEXT = (
    b"By this object, clients that spell the endpoint differently know their bucket. Leave it here.\n"
)


def _text(value: object, what: str) -> str:
    """Return `value`; raise `ValueError` unless it is text and not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} is {value!r}")
    return value


@frozen(kw_only=True)
class _IdentityObject:
    """The identity object of a bucket.

    A copy of the bucket in another store has the object too, but with another time.

    Attributes:
        id: the unique part of its name.
        modified: the time of writing by the store's clock, in whole epoch seconds.
    """

    id: str
    modified: int = field(validator=validators.instance_of(int))

    @property
    def path(self) -> str:
        return IDENTITY_PREFIX + self.id


@frozen(kw_only=True)
class _ListedBucket:
    """A bucket of the list.

    Attributes:
        urls: the URLs that lead to it. The first one is its name, the key of its probe results.
        identity: its identity object, or None.
    """

    urls: tuple[str, ...] = field(validator=validators.min_len(1))
    identity: _IdentityObject | None

    @property
    def name(self) -> str:
        return self.urls[0]

    def may_be(self, url: str) -> bool:
        """Return whether it could be the bucket at `url`, as far as the names of both show."""
        mine, other = parse_store_url(self.name), parse_store_url(url)
        return (mine.scheme, mine.name) == (other.scheme, other.name)


#: Returns a changed list of buckets; called again with the present list after a conflict.
_Change: TypeAlias = "Callable[[tuple[_ListedBucket, ...], _IdentityObjects], tuple[_ListedBucket, ...]]"


class BucketIdentity:
    """The identity of the bucket of one store: its name for all clients of a table. Thread-safe.

    Args:
        table: the table with the list (`commitlog.commit.record.LEASE_SCHEMA`).
        store: the store.
        root: opens the whole bucket of `store` when identity objects are needed; None: it cannot be
            opened, and no identity object is stored.
        clock, backoff: the clock and the retry policy of requests.
        new_id: makes unique ids of identity objects.

    Guarantees: clients of a table whose stores are in one bucket get one name, as long as the identity
    object stays, and if the store shows an object to every read that begins after its write. A client
    that cannot find out whether its bucket is in the list gets `NotSupported`.

    Non-guarantees: a URL in the list is trusted. A URL that means different stores on different machines
    (``localhost``) has one name.
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
        # A store that enforces conditions by itself is never probed.
        self._needed = not store.capabilities.enforced
        self._name: str | None = None

    def name(self) -> str:
        """Return the name of the bucket: the URL under which its probe results are kept.

        Only the first call reads the table.

        Raises:
            NotSupported: a bucket of the list may be the same one, but its identity object is missing or
                cannot be read.
            Unavailable: the store or the table did not answer, or other clients changed the list before
                each attempt to change it.
            CorruptRecord, FormatTooNew: the list cannot be read.
        """
        if not self._needed:
            return self.url
        if self._name is None:
            self._name = self._update(self._with_url)
        return self._name

    def renew(self) -> str:
        """Give the bucket an identity object if it has none, and return the name of the bucket.

        Other buckets of the list that have no identity object, and could be the same one, are removed
        from the list; a client of such a bucket adds it again. Call this while no client is active.
        Raises the errors of `name`.
        """
        if not self._needed:
            return self.url
        self._name = self._update(self._with_identity)
        return self._name

    def _update(self, change: _Change) -> str:
        """Change the list, unless `change` leaves it as it is; return the name of this bucket in it.

        If another client changes the list at the same time, `change` is applied again to the new list.
        So the list has the change exactly once, also after a lost answer.
        """
        with _IdentityObjects(
            self._root, clock=self._clock, backoff=self._backoff, new_id=self._new_id
        ) as identities:

            def agree() -> str:
                text, known = self._read()
                changed = change(known, identities)
                if changed != known:
                    self._write(changed, text)
                return next(bucket.name for bucket in changed if self.url in bucket.urls)

            return self._backoff.retry(
                self._clock,
                agree,
                on=(ConditionFailed, OutcomeUnknown),
                exhausted=lambda error: Unavailable(
                    f"the bucket of {self.url} could not be listed in the table ({error}); nothing was"
                    " sent, try again"
                ),
            )

    def _with_url(
        self, known: tuple[_ListedBucket, ...], identities: _IdentityObjects
    ) -> tuple[_ListedBucket, ...]:
        """Return the list with the URL of this client; raise `NotSupported` if its bucket is unclear."""
        if any(self.url in bucket.urls for bucket in known):
            return known
        unclear: list[_ListedBucket] = []
        for bucket in known:
            there = identities.has(bucket.identity)
            if there:
                more = evolve(bucket, urls=(*bucket.urls, self.url))
                return tuple(more if each is bucket else each for each in known)
            if there is None and bucket.may_be(self.url):
                unclear.append(bucket)
        if unclear:
            raise NotSupported(self._unclear(unclear[0]))
        return (*known, _ListedBucket(urls=(self.url,), identity=identities.new()))

    def _with_identity(
        self, known: tuple[_ListedBucket, ...], identities: _IdentityObjects
    ) -> tuple[_ListedBucket, ...]:
        """Return the list with the URL of this client and an identity object for its bucket."""
        kept = tuple(
            bucket
            for bucket in known
            if self.url in bucket.urls or bucket.identity is not None or not bucket.may_be(self.url)
        )
        return tuple(
            evolve(bucket, identity=identities.new())
            if self.url in bucket.urls
            and (bucket.identity is None or identities.has(bucket.identity) is False)
            else bucket
            for bucket in self._with_url(kept, identities)
        )

    def _unclear(self, bucket: _ListedBucket) -> str:
        identity = bucket.identity
        why = (
            f"its identity object {identity.path} cannot be read"
            if identity
            else "it has no identity object"
        )
        return (
            f"{self.url} may be the bucket that the table has as {bucket.name}, or another one of that "
            f"name: {why}. Nothing was sent. Spell the endpoint as there; or allow s3:GetObject on "
            f"{IDENTITY_PREFIX}* at the root of the bucket, and s3:ListBucket; or run "
            "'commitlog probe --table' while no writer is active, with permission to write there; or "
            "let all clients use commit='lease'"
        )

    def _read(self) -> tuple[str | None, tuple[_ListedBucket, ...]]:
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

    def _write(self, known: tuple[_ListedBucket, ...], before: str | None) -> None:
        rows = [
            {
                "urls": list(bucket.urls),
                "mark": bucket.identity
                and {"id": bucket.identity.id, "modified": bucket.identity.modified},
            }
            for bucket in known
        ]
        text = json.dumps({"format": FORMAT, "buckets": rows})
        item = {"path": BUCKETS.hash, "etag": str(BUCKETS.range), "buckets": text}
        condition = Absent() if before is None else Equals("buckets", before)
        self._table.put(item, condition=condition)


def _parse(row: dict[str, object]) -> _ListedBucket:
    urls, identity = row["urls"], row["mark"]
    if not isinstance(urls, list):
        raise ValueError(f"the URLs of a bucket are {urls!r}")
    known = tuple(_text(url, "a URL") for url in urls)
    for url in known:
        parse_store_url(url)
    if identity is None:
        return _ListedBucket(urls=known, identity=None)
    if not isinstance(identity, dict):
        raise ValueError(f"an identity object is {identity!r}")
    return _ListedBucket(
        urls=known,
        identity=_IdentityObject(
            id=_text(identity["id"], "the name of an identity object"), modified=identity["modified"]
        ),
    )


class _IdentityObjects:
    """The identity objects at the root of a bucket. Not thread-safe.

    A context manager, which closes the bucket at the end.

    Args:
        root: opens the bucket when it is first needed; None: it cannot be opened.
        clock, backoff, new_id: as for `BucketIdentity`.
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
        self._new: _IdentityObject | None = None
        self._tried = False

    def __enter__(self) -> _IdentityObjects:
        return self

    def __exit__(self, *_: object) -> None:
        self._until_exit.close()

    def has(self, identity: _IdentityObject | None) -> bool | None:
        """Return whether the bucket has this identity object; None if it is None or cannot be read."""
        if identity is None or self._open is None:
            return None
        try:
            seen = self._head(identity.path)
        except AccessDenied:
            return None
        return seen == identity.modified

    def new(self) -> _IdentityObject | None:
        """Return a new identity object, which the first call stores; None if that is not possible."""
        if not self._tried and self._open is not None:
            self._tried = True
            self._new = self._store(self._opened())
        return self._new

    def _store(self, root: ObjectStore) -> _IdentityObject | None:
        id = ""

        def path() -> str:
            # Each attempt has its own name: a delayed request must not change the time of an object that
            # is in the list.
            nonlocal id
            id = self._new_id()
            return IDENTITY_PREFIX + id

        if not put_identity_object(root, path, _TEXT, clock=self._clock, backoff=self._backoff):
            return None
        try:
            modified = self._head(IDENTITY_PREFIX + id)
        except AccessDenied:
            return None
        return None if modified is None else _IdentityObject(id=id, modified=modified)

    def _head(self, path: str) -> int | None:
        info = self._opened().begin_head(path)().info
        return None if info is None else int(info.last_modified)

    def _opened(self) -> ObjectStore:
        assert self._open is not None
        if self._root is None:
            self._root = self._until_exit.enter_context(self._open())
        return self._root


def put_identity_object(
    store: ObjectStore, path: Callable[[], str], text: bytes, *, clock: Clock, backoff: Backoff
) -> bool:
    """Store an object that identifies a store; return False if permission is denied.

    Args:
        store: the store.
        path: makes the path of each attempt.
        text: the content, which explains the object to people.
        clock, backoff: the clock and the retry policy.

    Raises `BucketNotFound`, and `Unavailable` if no attempt succeeded. Objects of earlier attempts may
    remain.
    """
    tried = ""

    def put() -> bool:
        nonlocal tried
        tried = path()
        try:
            store.put(tried, text)
        except AccessDenied:
            return False
        return True

    return backoff.retry(
        clock,
        put,
        on=(Conflict, OutcomeUnknown, Unavailable),
        exhausted=lambda error: Unavailable(f"{tried!r} could not be stored in {store.url} ({error})"),
    )
