"""The index of a log: which record decided a job or an attempt, without reading the log.

A key stands for a job id, for an attempt, or for a stream of which jobs ran under their ids. A *segment*
has the keys of a range of records. It is derived from them, and never changed. Each checkpoint names
segments whose ranges follow each other from the first record to its own version. It adds the keys since
the last checkpoint as a new segment, and merges the segments before it that are not several times as
large. So a key is written a number of times that grows with the logarithm of the length of the log, and
as many segments are to be searched.

A segment is an object of gzip members: a line with the sizes of its shards, then a line for each shard.
A key determines its shard, so that one shard is read to find it.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias

from attrs import frozen

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import CorruptRecord
from commitlog.oplog.codec import Document
from commitlog.oplog.validate import build, count, items, mapping, path, text
from commitlog.outputs.packed import first_member, pack, unpack
from commitlog.paths import join
from commitlog.stores.api import ObjectData, same_etag

__all__ = [
    "JobIndex",
    "Keys",
    "Segment",
    "add_key",
    "attempt_key",
    "extend",
    "job_ids",
    "job_key",
    "merged",
    "stream_key",
]

#: Keys with their values: of a job, its version and its place among the jobs of that record; of an
#: attempt, the version that decided it first, and 1 if that committed it, or 0; of a stream, the highest
#: number of a job under its id, and the version.
Keys: TypeAlias = Mapping[str, tuple[int, int]]

#: A segment that is less than so many times as large as the ones after it is merged with them.
GROWTH = 8

#: Bytes of a segment that a process reads whole, once it looks for a second key in it.
WHOLE = 1024 * 1024

_FORMAT = 1
_JOB, _ATTEMPT, _STREAM = "j:", "a:", "s:"


def job_key(job_id: str) -> str:
    """Return the key of a job."""
    return _JOB + job_id


def attempt_key(attempt: str) -> str:
    """Return the key of an attempt."""
    return _ATTEMPT + attempt


def stream_key(stream: str) -> str:
    """Return the key of the jobs that ran under ids of batches of a stream."""
    return _STREAM + stream


def job_ids(keys: Keys, *, until: int) -> tuple[str, ...]:
    """Return the job ids among `keys` of records up to number `until`, in order of commit."""
    found = [(value, key) for key, value in keys.items() if key.startswith(_JOB) and value[0] <= until]
    return tuple(key.removeprefix(_JOB) for _, key in sorted(found))


def add_key(keys: dict[str, tuple[int, int]], key: str, value: tuple[int, int]) -> None:
    """Add a key of a later record: the first outcome counts, and the highest number of a stream."""
    before = keys.get(key)
    if before is None or (key.startswith(_STREAM) and before < value):
        keys[key] = value


def merged(older: Keys, newer: Keys) -> dict[str, tuple[int, int]]:
    """Return the keys of two ranges of records."""
    both = dict(older)
    for key, value in newer.items():
        add_key(both, key, value)
    return both


@frozen(kw_only=True)
class Segment:
    """A segment, as a checkpoint names it.

    Attributes:
        name: its name in the directory of checkpoints. It has a digest, so a segment of the same records
            with another content has another name.
        until: number of the last record of its range.
        keys: number of its keys.
    """

    name: str
    until: int
    keys: int

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [self.name, self.until, self.keys]

    @classmethod
    def from_json(cls, item: object) -> Segment:
        """Return the segment that `item` names; for use in `build`."""
        name, until, keys = items(item)
        return cls(name=path(name), until=count(until), keys=count(keys))


class JobIndex:
    """Some segments, of which only the needed shards are read. Not thread-safe.

    Args:
        store: the store of the output.
        directory: the directory of the segments.
        segments: the segments, in the order of their records.
    """

    def __init__(
        self, store: ConditionalStore, directory: str, segments: Iterable[Segment] = ()
    ) -> None:
        self._parts = [_Part(store, join(directory, each.name), each) for each in segments]

    def find(self, keys: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return the values of those of `keys` that it has.

        Reads the shards of a segment at the first call that needs them. Raises `NotFound` if a segment
        was removed, since a later checkpoint has taken its place; and `CorruptRecord`.
        """
        found: dict[str, tuple[int, int]] = {}
        for part in self._parts if keys else ():
            found = merged(found, part.find(keys))
        return found

    def read(self) -> dict[str, tuple[int, int]]:
        """Return all keys. Raises as `find` does."""
        found: dict[str, tuple[int, int]] = {}
        for part in self._parts:
            found = merged(found, part.read())
        return found


def extend(
    store: ConditionalStore, directory: str, segments: Sequence[Segment], keys: Keys, *, until: int
) -> tuple[Segment, ...]:
    """Return segments that have `keys`, too, having stored a new one.

    Args:
        store, directory, segments: see `JobIndex`.
        keys: the keys of the records after those of `segments`.
        until: number of the last of these records.

    Raises the errors of `JobIndex.find`, and of the store.
    """
    kept, new = list(segments), dict(keys)
    while kept and kept[-1].keys < GROWTH * len(new):
        new = merged(JobIndex(store, directory, [kept.pop()]).read(), new)
    if not new:
        return tuple(kept)
    data = _dump(new, until=until)
    digest = hashlib.sha256(json.dumps(sorted(new.items())).encode()).hexdigest()
    name = f"index-{until:020d}-{digest[:16]}.jsonl.gz"
    segment = Segment(name=name, until=until, keys=len(new))
    # Without a condition: under that name, others store the same keys.
    store.put(join(directory, name), data)
    return (*kept, segment)


class _Part:
    """What was read of one segment."""

    def __init__(self, store: ConditionalStore, at: str, segment: Segment) -> None:
        self._store = store
        self._path = at
        self._segment = segment
        self._found: ObjectData | None = None
        self._ends: Sequence[int] = ()
        self._known: set[int] = set()
        self._keys: dict[str, tuple[int, int]] = {}

    def find(self, keys: Collection[str]) -> Keys:
        """Return the values of those of `keys` that it has."""
        shards = self._open()
        missing = {_shard_of(key, shards) for key in keys} - self._known
        if missing and (self._known or len(missing) > 1) and self._ends[-1] <= WHOLE:
            self._read(0, shards)
            missing = set()
        for shard in sorted(missing):
            self._read(shard, shard + 1)
        return {key: self._keys[key] for key in keys if key in self._keys}

    def read(self) -> Keys:
        """Return all keys."""
        shards = self._open()
        self._read(0, shards)
        if len(self._keys) != self._segment.keys:
            raise _damaged(self._path, f"it has {len(self._keys)} keys in place of {self._segment.keys}")
        return self._keys

    def _open(self) -> int:
        """Return the number of shards, having read the first line."""
        if self._found is None:
            found, line, start = first_member(self._store, self._path)
            sizes = build(_document(self._path), partial(_sizes_in, line, self._segment))
            self._ends = list(accumulate(sizes, initial=start))
            self._found = found
        return len(self._ends) - 1

    def _read(self, first: int, end: int) -> None:
        """Read the shards from number `first` to the one before `end`."""
        assert self._found is not None
        begin, stop = self._ends[first], self._ends[end]
        data = self._found.data[begin:stop]
        if stop > len(self._found.data):
            later = self._store.get(self._path, start=begin, end=stop)
            if not same_etag(later.etag, self._found.etag):
                raise _damaged(self._path, "it was replaced while it was read")
            data = later.data
        lines = unpack(data, self._path)
        shards = len(self._ends) - 1
        if len(lines) != end - first:
            raise _damaged(self._path, f"it has {len(lines)} shards in place of {end - first}")
        self._keys |= build(_document(self._path), partial(_keys_in, lines, first, shards))
        self._known |= set(range(first, end))


def _sizes_in(line: object, segment: Segment) -> list[int]:
    """Return the sizes of the shards in the first line of a segment; for use in `build`."""
    fields = mapping(line)
    if (fields["format"], fields["kind"]) != (_FORMAT, "index"):
        raise ValueError("it is of another format")
    if (fields["until"], fields["keys"]) != (segment.until, segment.keys):
        raise ValueError("it is not the segment that the checkpoint names")
    sizes = [count(size) for size in items(fields["shards"])]
    if not sizes:
        raise ValueError("it has no shards")
    return sizes


def _keys_in(lines: Iterable[object], first: int, shards: int) -> Keys:
    """Return the keys in the lines of shards, the first of which is number `first`; for use in `build`.

    A shard with the keys of another one is refused: a job that is not found would be committed a second
    time.
    """
    found: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(lines, first):
        fields = mapping(line)
        if fields["shard"] != number:
            raise ValueError(f"it has shard {fields['shard']!r} in place of {number}")
        for key, value in mapping(fields["keys"]).items():
            if _shard_of(text(key), shards) != number:
                raise ValueError(f"it has key {key!r} in shard {number}")
            version, detail = items(value)
            found[key] = count(version), count(detail)
    return found


def _dump(keys: Keys, *, until: int) -> bytes:
    shards: list[dict[str, tuple[int, int]]] = [{} for _ in range(max(math.isqrt(len(keys)) // 2, 1))]
    for key in sorted(keys):
        shards[_shard_of(key, len(shards))][key] = keys[key]
    packed = [pack([{"shard": number, "keys": each}]) for number, each in enumerate(shards)]
    head = {"format": _FORMAT, "kind": "index", "until": until, "keys": len(keys)}
    return b"".join((pack([{**head, "shards": [len(each) for each in packed]}]), *packed))


def _shard_of(key: str, shards: int) -> int:
    """Return the number of the shard that has `key` if there is such a key."""
    return zlib.crc32(key.encode()) % shards


def _document(at: str) -> Document:
    return Document("index", {}, at)


def _damaged(at: str, why: str) -> CorruptRecord:
    return CorruptRecord(f"{at!r} is not a segment of the index: {why}")
