"""Keys of the items of a namespace in its table, and rules for names and paths.

::

    namespaces            <namespace>     metadata: the format and the epoch
    <ns>/e/<dir>/<shard>  <name>          entry: a file or directory, under its name in its parent
    <ns>/d/<dir>          -               directory: which entry names it
    <ns>/g/<dir>/<shard>  -               guard: written with each entry that is added to the shard
    <ns>/t/<dir>          <name>          tombstone: hides an object, or a prefix, of a bound directory
    <ns>/x/<slot>         <time>/<what>   garbage: an object that no file refers to any more

Entries are keyed by the *id* of their directory, so renaming a directory changes nothing below it. A
namespace has two directories that always exist and never move: its root and its trash.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from attrs import frozen

from commitlog.errors import ConfigurationError, InvalidPath
from commitlog.tables.api import Key, TableSchema

__all__ = [
    "ATTEMPT",
    "GARBAGE_SLOTS",
    "LOST_AND_FOUND",
    "LOST_AND_FOUND_SHARDS",
    "MAX_NAME_BYTES",
    "MAX_SHARDS",
    "NAMESPACES",
    "NAMESPACE_SCHEMA",
    "ROOT",
    "STAGING",
    "TOP",
    "TRASH",
    "TRASH_SHARDS",
    "HashKey",
    "Keys",
    "hash_of",
    "is_name",
    "is_valid_key",
    "kind_of",
    "parse_hash_key",
    "shards_of",
    "shards_of_hash",
    "split",
    "split_new",
]

#: Key schema of a metadata table. Any number of namespaces share one table.
NAMESPACE_SCHEMA = TableSchema(
    hash_key="place",
    range_key="name",
    use="namespaces",
    when_lost="Names that were in it can be made again from their log: `commitlog namespace restore`",
)

#: Hash key of the metadata records of all namespaces.
NAMESPACES = "namespaces"

#: Ids of the directories that every namespace has, and of the parent of both.
ROOT, TRASH, TOP = "root", "trash", "top"

#: Name of the directory, in the root, of entries that had no path, and that a repair or restore found.
LOST_AND_FOUND = "lost+found"

#: Name of the directory, in the root, of unpublished jobs. Listings of the root leave it out; a lookup
#: by name finds it.
STAGING = ".staging"

#: Names of the directories of job attempts in `STAGING`.
ATTEMPT = re.compile("[0-9a-f]{32}")

#: Most shards of a directory. A transaction has to hold all of its guards.
MAX_SHARDS = 64
#: Number of shards of the directory `LOST_AND_FOUND` when it is made: many repairs add to it at a time.
LOST_AND_FOUND_SHARDS = MAX_SHARDS
#: Number of shards of the trash. Never changes.
TRASH_SHARDS = 8
#: Number of partitions of the garbage. Never changes.
GARBAGE_SLOTS = 8

#: Longest name of an entry, in bytes of UTF-8; the same as in most file systems.
MAX_NAME_BYTES = 255

_SINGLE = "-"
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LIKE_URL = re.compile("[:@?=]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Keys:
    """The keys of one namespace. Immutable.

    >>> Keys("lake").entry("root", 0, "events")
    Key(hash='lake/e/root/0', range='events')
    """

    def __init__(self, namespace: str) -> None:
        if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
            # The text may be a URL with a secret in it: do not show it.
            shown = "" if _LIKE_URL.search(str(namespace)) else f" {namespace!r}"
            raise ConfigurationError(
                f"namespace{shown}: a name has 1 to 64 characters of A-Z a-z 0-9 . _ -, and begins with"
                " a letter or digit"
            )
        self.namespace = namespace

    @property
    def metadata(self) -> Key:
        """The key of the metadata record."""
        return Key(NAMESPACES, self.namespace)

    def shard(self, directory: str, shard: int) -> str:
        """Return the hash key of the entries in one shard of a directory."""
        return f"{self.namespace}/e/{directory}/{shard}"

    def entry(self, directory: str, shard: int, name: str) -> Key:
        """Return the key of an entry."""
        return Key(self.shard(directory, shard), name)

    def directory(self, id: str) -> Key:
        """Return the key of a directory record, which says which entry names the directory."""
        return Key(f"{self.namespace}/d/{id}", _SINGLE)

    def guard(self, directory: str, shard: int) -> Key:
        """Return the key of the guard of a shard."""
        return Key(f"{self.namespace}/g/{directory}/{shard}", _SINGLE)

    def tombstones(self, directory: str) -> str:
        """Return the hash key of the tombstones of a directory."""
        return f"{self.namespace}/t/{directory}"

    def tombstone(self, directory: str, name: str) -> Key:
        """Return the key of a tombstone; the name of one for a prefix ends in a slash."""
        return Key(self.tombstones(directory), name)

    def garbage_slot(self, slot: int) -> str:
        """Return the hash key of one partition of the garbage."""
        return f"{self.namespace}/x/{slot}"

    def garbage(self, not_before: int, object: str) -> Key:
        """Return the key of the garbage record of an object.

        Args:
            not_before: epoch millisecond before which the object must not be removed.
            object: identifies the object: the path of an object that the namespace owns.
        """
        slot = hash_of(object) % GARBAGE_SLOTS
        return Key(self.garbage_slot(slot), f"{not_before:015d}/{object}")


@frozen(kw_only=True)
class HashKey:
    """The parts of a hash key.

    Attributes:
        namespace: name of the namespace.
        kind: letter of the kind of record.
        id: of the directory; for garbage the number of the partition.
        shard: of entries and guards.
    """

    namespace: str
    kind: str
    id: str
    shard: int = 0


@lru_cache(maxsize=4096)  # a scan returns many rows with the same hash key
def parse_hash_key(hash_key: str) -> HashKey:
    """Return the parts of a hash key of a namespace's records; not of its metadata record.

    Raises `ValueError` if the text is no such key.

    >>> parse_hash_key("lake/e/root/3")
    HashKey(namespace='lake', kind='e', id='root', shard=3)
    """
    namespace, kind, id, *shard = hash_key.split("/")
    if len(shard) > 1:
        raise ValueError(f"{hash_key!r} has too many parts")
    return HashKey(namespace=namespace, kind=kind, id=id, shard=int(shard[0]) if shard else 0)


def kind_of(key: Key) -> str | None:
    """Return the letter of the kind of record that is under a key; None if there are no such keys."""
    try:
        return parse_hash_key(key.hash).kind
    except ValueError:
        return None


def is_valid_key(key: Key) -> bool:
    """Return whether a record of its kind is ever read under this key.

    >>> is_valid_key(Key("lake/d/root", "-")), is_valid_key(Key("lake/d/root", "copy"))
    (True, False)

    Raises `ValueError` if the text is no such key.
    """
    parts = parse_hash_key(key.hash)
    single = parts.kind not in ("d", "g") or key.range == _SINGLE
    sharded = f"/{parts.shard}" if parts.kind in ("e", "g") else ""
    return single and key.hash == f"{parts.namespace}/{parts.kind}/{parts.id}{sharded}"


def shards_of(name: str, shards: int, first: int) -> tuple[int, ...]:
    """Return the shards in which an entry of that name can be, the one for new entries first.

    A directory begins with `first` shards, and the number doubles as it grows. Entries stay in the shard
    in which they were put, so an entry can be in any shard that was ever right for its name.

    >>> shards_of("events", 1, 1), shards_of("events", 8, 2)
    ((0,), (4, 0))
    """
    return (0,) if shards == 1 else shards_of_hash(hash_of(name), shards, first)


def shards_of_hash(number: int, shards: int, first: int) -> tuple[int, ...]:
    """Return the same for the `hash_of` the name."""
    found = []
    while shards >= first:
        found.append(number % shards)
        shards //= 2
    return tuple(dict.fromkeys(found))


def hash_of(text: str) -> int:
    """Return a 64-bit hash of a text. Never changes, since stored entries are placed by it."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def split(path: str) -> tuple[str, ...]:
    """Return the names in `path`; none for "", the root.

    Paths are relative to the root. A wrong path is refused, not corrected. Names are compared code point
    by code point, without normalisation.

    >>> split("a/b c"), split("")
    (('a', 'b c'), ())
    """
    if not isinstance(path, str):
        raise InvalidPath(f"a path is a str, not {type(path).__name__}")
    if not path:
        return ()
    names = tuple(path.split("/"))
    for name in names:
        _check_name(path, name)
    return names


def is_name(name: str) -> bool:
    """Return whether a text is valid as a name in a path.

    >>> is_name("a"), is_name("a/b"), is_name("..")
    (True, False, False)
    """
    try:
        return split(name) == (name,)
    except InvalidPath:
        return False


def split_new(path: str) -> tuple[str, ...]:
    """Return the names of a path at which something is to be made, as `split` does.

    Raises `InvalidPath` for `STAGING` itself, and for a path in it that does not belong to an attempt:
    listings of the root would not show it.
    """
    names = split(path)
    if names[:1] == (STAGING,) and not ATTEMPT.fullmatch("".join(names[1:2])):
        raise InvalidPath(
            f"nothing can be made at {path!r}: {STAGING!r} in the root holds unpublished jobs, and is in"
            " no listing. Choose another name"
        )
    return names


def _check_name(path: str, name: str) -> None:
    if name in ("", ".", ".."):
        raise InvalidPath(
            f"path {path!r} has the segment {name!r}: remove it, paths are relative to the root"
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidPath(f"path {path!r} is not valid Unicode") from None
    if size > MAX_NAME_BYTES:
        raise InvalidPath(f"a name in {path[:80]!r}… has {size} bytes; the most is {MAX_NAME_BYTES}")
    if _CONTROL.search(name):
        raise InvalidPath(f"path {path!r} has a control character")
