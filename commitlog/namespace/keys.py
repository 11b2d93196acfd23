"""Where the items of a namespace are in its table, and which names and paths there can be.

::

    namespaces            <namespace>     marker: which format
    <ns>/e/<dir>/<shard>  <name>          entry: what a directory has under a name
    <ns>/d/<dir>          -               directory: what names it
    <ns>/g/<dir>/<shard>  -               gate: written by whoever adds an entry to that shard
    <ns>/t/<dir>          <name>          tombstone: what it has not, though the store has it
    <ns>/x/<slot>         <time>/<what>   garbage: an object that nothing names any more

Entries are keyed by the *id* of their directory, so what lies below a directory does not notice its
being renamed. A namespace has two directories that nobody made and that never move: its root, and its
trash.

Imports errors and the `Table` port.
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
    "MARKERS",
    "MAX_NAME_BYTES",
    "MAX_SHARDS",
    "NAMESPACE_SCHEMA",
    "ROOT",
    "STAGING",
    "TOP",
    "TRASH",
    "TRASH_SHARDS",
    "Keys",
    "Place",
    "is_in_place",
    "is_name",
    "number_of",
    "places_of",
    "places_of_number",
    "read_place",
    "split",
    "split_new",
]

#: How a table of namespaces is keyed. Any number of namespaces share it.
NAMESPACE_SCHEMA = TableSchema(
    hash_key="place",
    range_key="name",
    use="namespaces",
    when_lost="Names that were in it can be made again from their log: `commitlog namespace restore`",
)

#: Hash key of the markers of all namespaces.
MARKERS = "namespaces"

#: Ids of the directories that every namespace has, and of what they are in.
ROOT, TRASH, TOP = "root", "trash", "top"

#: The directory, in the root, of jobs that are under way. It is found by its name; listings of the root
#: leave it out, for what is in it has not happened yet.
STAGING = ".staging"

#: What the directory of an attempt at a job is called in it.
ATTEMPT = re.compile("[0-9a-f]{32}")

#: Most shards of a directory: with all its gates it still has to fit into one transaction.
MAX_SHARDS = 64
#: Shards of the trash, for good.
TRASH_SHARDS = 8
#: Partitions of the garbage, for good.
GARBAGE_SLOTS = 8

#: Longest name of an entry, in bytes of UTF-8; that of most file systems.
MAX_NAME_BYTES = 255

_ALONE = "-"
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
            # What was meant for a URL may have a secret in it.
            shown = "" if _LIKE_URL.search(str(namespace)) else f" {namespace!r}"
            raise ConfigurationError(
                f"namespace{shown}: a name has 1 to 64 of A-Z a-z 0-9 . _ -, and begins with a"
                " letter or digit"
            )
        self.namespace = namespace

    @property
    def marker(self) -> Key:
        """Key of the marker."""
        return Key(MARKERS, self.namespace)

    def shard(self, directory: str, shard: int) -> str:
        """Return the hash key of the entries in one shard of a directory."""
        return f"{self.namespace}/e/{directory}/{shard}"

    def entry(self, directory: str, shard: int, name: str) -> Key:
        """Return the key of an entry."""
        return Key(self.shard(directory, shard), name)

    def directory(self, id: str) -> Key:
        """Return the key of what tells which entry names a directory."""
        return Key(f"{self.namespace}/d/{id}", _ALONE)

    def gate(self, directory: str, shard: int) -> Key:
        """Return the key of a gate."""
        return Key(f"{self.namespace}/g/{directory}/{shard}", _ALONE)

    def tombstones(self, directory: str) -> str:
        """Return the hash key of the tombstones of a directory."""
        return f"{self.namespace}/t/{directory}"

    def tombstone(self, directory: str, name: str) -> Key:
        """Return the key of a tombstone; the name of one that hides a prefix ends in a slash."""
        return Key(self.tombstones(directory), name)

    def garbage_slot(self, slot: int) -> str:
        """Return the hash key of a part of the garbage."""
        return f"{self.namespace}/x/{slot}"

    def garbage(self, not_before: int, of: str) -> Key:
        """Return the key of an object that may go `not_before` an epoch millisecond.

        Args:
            not_before: that.
            of: tells it from all others: the path of an object of the namespace's own.
        """
        slot = number_of(of) % GARBAGE_SLOTS
        return Key(self.garbage_slot(slot), f"{not_before:015d}/{of}")


@frozen(kw_only=True)
class Place:
    """What a hash key says.

    Attributes:
        namespace: whose it is.
        kind: letter of the kind of record.
        of: id of the directory; for garbage the slot.
        shard: of entries and gates.
    """

    namespace: str
    kind: str
    of: str
    shard: int = 0


@lru_cache(maxsize=4096)  # a scan finds all rows of a directory under a few hash keys
def read_place(place: str) -> Place:
    """Return what a hash key of a namespace's records, other than its marker, says.

    Raises `ValueError` if there are no such keys.

    >>> read_place("lake/e/root/3")
    Place(namespace='lake', kind='e', of='root', shard=3)
    """
    namespace, kind, of, *shard = place.split("/")
    if len(shard) > 1:
        raise ValueError(f"{place!r} has too many parts")
    return Place(namespace=namespace, kind=kind, of=of, shard=int(shard[0]) if shard else 0)


def is_in_place(key: Key) -> bool:
    """Tell whether a record of its kind is ever read under a key.

    >>> is_in_place(Key("lake/d/root", "-")), is_in_place(Key("lake/d/root", "copy"))
    (True, False)

    Raises `ValueError` if there are no such keys.
    """
    place = read_place(key.hash)
    alone = place.kind not in ("d", "g") or key.range == _ALONE
    sharded = f"/{place.shard}" if place.kind in ("e", "g") else ""
    return alone and key.hash == f"{place.namespace}/{place.kind}/{place.of}{sharded}"


def places_of(name: str, shards: int, first: int) -> tuple[int, ...]:
    """Return the shards in which an entry of that name can be, the one for new entries first.

    A directory begins with `first` shards, and doubles them as it grows. What was there stays where it
    is, so an entry can be where it would have been put at any time since.

    >>> places_of("events", 1, 1), places_of("events", 8, 2)
    ((0,), (4, 0))
    """
    return (0,) if shards == 1 else places_of_number(number_of(name), shards, first)


def places_of_number(number: int, shards: int, first: int) -> tuple[int, ...]:
    """Return the same, given the `number_of` the name."""
    places = []
    while shards >= first:
        places.append(number % shards)
        shards //= 2
    return tuple(dict.fromkeys(places))


def number_of(text: str) -> int:
    """Return 64 bits by which a text is told from others: for good, since `places_of` goes by them."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def split(path: str) -> tuple[str, ...]:
    """Return the names that `path` consists of; none for "", the root.

    Paths are relative to the root, and are refused rather than repaired. Names are compared as they are,
    code point by code point: nothing is normalised.

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
    """Tell whether a path can lead to a name.

    >>> is_name("a"), is_name("a/b"), is_name("..")
    (True, False, False)
    """
    try:
        return split(name) == (name,)
    except InvalidPath:
        return False


def split_new(path: str) -> tuple[str, ...]:
    """Return the names of a path at which something is to be, as `split` does.

    Raises `InvalidPath` for one in `STAGING` that is none of an attempt's, and for `STAGING` itself:
    whatever came to be there, no listing of the root would show it.
    """
    names = split(path)
    if names[:1] == (STAGING,) and not ATTEMPT.fullmatch("".join(names[1:2])):
        raise InvalidPath(
            f"nothing can be made at {path!r}: {STAGING!r} in the root is where jobs are that are under"
            " way, and is in no listing. Give it another name"
        )
    return names


def _check_name(path: str, name: str) -> None:
    if name in ("", ".", ".."):
        raise InvalidPath(
            f"path {path!r} has the segment {name!r}: spell it relative to the root, without that"
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidPath(f"path {path!r} is not valid Unicode") from None
    if size > MAX_NAME_BYTES:
        raise InvalidPath(f"a name in {path[:80]!r}… has {size} bytes; the most is {MAX_NAME_BYTES}")
    if _CONTROL.search(name):
        raise InvalidPath(f"path {path!r} has a control character")
