"""Checkpoints: the state of an output at some versions, so that readers need not read the whole log.

A checkpoint is derived from the log, so losing one loses no data: a checkpoint that cannot be read is
skipped. It is an object of JSON lines in several gzip members, so that parts of it can be read alone:

* the head: a line with what the beginning of a job needs, and the sizes of the shards;
* the shards: a line each, with the job ids whose hash is the number of the shard;
* the rest: a line with replaced files and decided attempts, and a line for each file.

The beginning of a job reads the head, and the one shard that has its job id if it is committed. Their
sizes grow with the square root of the number of job ids.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeVar

from attrs import frozen

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import AlreadyExists, CorruptRecord, NotFound
from commitlog.oplog.codec import Document
from commitlog.oplog.validate import build, count, flag, items, mapping, maybe_text, text
from commitlog.outputs.job import Visibility
from commitlog.outputs.records import DataFile, one_of
from commitlog.outputs.state import State
from commitlog.paths import check_path, join
from commitlog.stores.api import ObjectData, same_etag

__all__ = ["CheckpointHead", "Checkpoints", "JobIndex"]

_log = logging.getLogger(__name__)

#: A checkpoint is due at each multiple of `INTERVAL`. Outputs with more than `MANY_FILES` files have
#: large checkpoints, which are due at each multiple of `LONG_INTERVAL`.
INTERVAL, LONG_INTERVAL, MANY_FILES = 10, 100, 20_000

#: Checkpoints at multiples of this are kept for readers of old versions; of the others the last two.
LANDMARK = 1_000

#: In format 1, the first line has everything except the files. It is still read.
_FORMAT = 2
_SUFFIX = ".jsonl.gz"

#: Bytes of a checkpoint that are read for its head, and the factor by which more are read if it is
#: larger. A small checkpoint is read whole; a head of some hundred thousand job ids fits.
_HEAD_BYTES, _HEAD_GROWTH = 8 * 1024, 8

T = TypeVar("T")


class JobIndex:
    """The job ids of a checkpoint with their versions, of which only the needed shards are read.

    The first shard that is asked for is read alone. When another one is asked for, all are read: a
    process that begins one job reads little, and one that begins many sends one request for them.
    Not thread-safe.

    Args:
        jobs: the jobs that are known; all of them, if there are no shards.
        shards: number of shards.
        read: returns the jobs in the shards from one number to the one before another.
    """

    def __init__(
        self,
        jobs: Mapping[str, int],
        *,
        shards: int = 0,
        read: Callable[[int, int], Mapping[str, int]] = lambda _first, _end: {},
    ) -> None:
        self._jobs = dict(jobs)
        self._shards = shards
        self._read = read
        self._known: set[int] = set()

    def find(self, job_ids: Collection[str]) -> Mapping[str, int]:
        """Return the version of each of `job_ids` that the checkpoint has.

        Sends at most one request. Raises `NotFound` and `CorruptRecord` if the checkpoint was removed or
        replaced since its head was read, or is damaged.
        """
        numbers = {_shard_of(job_id, self._shards) for job_id in job_ids if self._shards}
        if not numbers <= self._known:
            if self._known or len(numbers) > 1:
                numbers = set(range(self._shards))
            self._jobs |= self._read(min(numbers), max(numbers) + 1)
            self._known |= numbers
        return {job_id: self._jobs[job_id] for job_id in job_ids if job_id in self._jobs}


@frozen(kw_only=True)
class CheckpointHead:
    """What the beginning of a job needs of a checkpoint.

    Attributes:
        state: the state without its files, jobs and decided attempts. It may be taken on, and then has
            the jobs of later records.
        jobs: the jobs of the checkpoint.
    """

    state: State
    jobs: JobIndex


class Checkpoints:
    """The checkpoints of one output. Thread-safe.

    Args:
        store: the store of the output.
        directory: the directory of the checkpoints.
    """

    def __init__(self, store: ConditionalStore, directory: str) -> None:
        self._store = store
        self._directory = directory

    def load(self, until: int | None = None) -> State:
        """Return the state at the last checkpoint, or at the last one up to version `until`.

        Returns that of version 0 if there is none.
        """
        for version in reversed(self._versions()):
            if until is None or version <= until:
                try:
                    return self._load(version)
                except (NotFound, CorruptRecord) as error:
                    _log.warning("checkpoint %d of the log is skipped: %s", version, error)
        return State()

    def load_head(self, job_ids: Collection[str]) -> CheckpointHead:
        """Return the head of the checkpoint that `load` loads, whose index has found `job_ids`.

        Takes two requests, and one more if the first bytes of the checkpoint do not contain the job
        ids; the time for one job id hardly depends on the length of the log.
        """
        for version in reversed(self._versions()):
            try:
                head = self._load_head(version)
                head.jobs.find(job_ids)
                return head
            except (NotFound, CorruptRecord) as error:
                _log.warning("checkpoint %d of the log is skipped: %s", version, error)
        return CheckpointHead(state=State(), jobs=JobIndex({}))

    def load_first(self, after: int, until: int) -> State | None:
        """Return the state at the first checkpoint from version `after` up to `until`.

        Returns None if none of them can be read.
        """
        for version in self._versions():
            if after <= version <= until:
                try:
                    return self._load(version)
                except (NotFound, CorruptRecord) as error:
                    _log.warning("checkpoint %d of the log is skipped: %s", version, error)
        return None

    @staticmethod
    def due(state: State) -> bool:
        """Return whether `state` should be saved as a checkpoint."""
        interval = LONG_INTERVAL if len(state.files) > MANY_FILES else INTERVAL
        return state.version % interval == 0

    def save(self, state: State) -> None:
        """Store `state` as a checkpoint, and remove earlier ones that are not needed any more."""
        try:
            self._store.put_if_absent(self._path(state.version), _dump(state))
        except AlreadyExists:
            return
        for version in self._versions()[:-2]:
            if version % LANDMARK:
                self._store.delete(self._path(version))

    def _load(self, version: int) -> State:
        path = self._path(version)
        return _parse(self._store.get(path).data, version, path)

    def _load_head(self, version: int) -> CheckpointHead:
        path = self._path(version)
        found, line, start = self._first_member(path)
        fields = _json(line.partition(b"\n")[0], path)

        def make() -> CheckpointHead:
            head = _Head.of(fields, version)
            ends = list(accumulate(head.shards, initial=start))
            read = partial(self._read_shards, found, ends)
            jobs = JobIndex(_without_places(head.jobs), shards=len(head.shards), read=read)
            return CheckpointHead(state=head.state, jobs=jobs)

        return _build(path, make)

    def _read_shards(
        self, found: ObjectData, ends: Sequence[int], first: int, end: int
    ) -> Mapping[str, int]:
        """Return the jobs in the shards of a checkpoint from number `first` to the one before `end`.

        Args:
            found: the checkpoint, or its first bytes.
            ends: the position in it at which each shard ends, after that at which the first one begins.
            first, end: the shards.
        """
        data = found.data[ends[first] : ends[end]]
        if ends[end] > len(found.data):
            later = self._store.get(found.path, start=ends[first], end=ends[end])
            if not same_etag(later.etag, found.etag):
                raise CorruptRecord(f"{found.path!r} was replaced while it was read")
            data = later.data
        lines = _lines(data, found.path)

        def make() -> Mapping[str, int]:
            if len(lines) != end - first:
                raise ValueError(f"it has {len(lines)} shards of job ids in place of {end - first}")
            return _without_places(_jobs(lines, first, len(ends) - 1))

        return _build(found.path, make)

    def _first_member(self, path: str) -> tuple[ObjectData, bytes, int]:
        """Return the first bytes of a checkpoint, the text of its first member, and where that ends."""
        end = _HEAD_BYTES
        while True:
            found = self._store.get(path, end=end)
            reader = zlib.decompressobj(wbits=31)
            try:
                line = reader.decompress(found.data)
            except zlib.error as error:
                raise CorruptRecord(f"{path!r} is not a checkpoint: {error}") from error
            if reader.eof:
                return found, line, len(found.data) - len(reader.unused_data)
            if len(found.data) < end:
                raise CorruptRecord(f"{path!r} is not a checkpoint: it ends in its first line")
            end *= _HEAD_GROWTH

    def _versions(self) -> list[int]:
        top = join(self._directory, "")
        names = (info.path.removeprefix(top) for info in self._store.list(top))
        numbers = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return sorted(int(number) for number in numbers if number.isdecimal() and len(number) == 20)

    def _path(self, version: int) -> str:
        return join(self._directory, f"{version:020d}{_SUFFIX}")


@frozen(kw_only=True)
class _Head:
    """The first line of a checkpoint.

    Attributes:
        state: the state, without its files; without jobs, replaced files and decided attempts if these
            are in other lines.
        jobs: the jobs, if they are in this line, with version and place in the order of commit.
        shards: the number of bytes of each shard.
        files: number of files.
        job_count: number of jobs.
    """

    state: State
    jobs: Mapping[str, tuple[int, int]]
    shards: tuple[int, ...]
    files: int
    job_count: int

    @classmethod
    def of(cls, line: object, version: int) -> _Head:
        """Return the head in the first line of the checkpoint of `version`; for use in `build`."""
        fields = mapping(line)
        if fields["format"] not in (1, _FORMAT) or fields["version"] != version:
            raise ValueError("it is of another format or version")
        batches = {text(stream): items(last) for stream, last in mapping(fields["batches"]).items()}
        state = State(
            version=version,
            commit=count(fields["commit"]),
            batches={stream: (count(n), count(at)) for stream, (n, at) in batches.items()},
            schema=maybe_text(fields["schema"]),
            visibility=_visibility(fields["visibility"]),
            expired=count(fields["expired"]),
        )
        files = count(fields["files"])
        if fields["format"] == 1:
            _fill(state, fields)
            numbered = enumerate(mapping(fields["jobs"]).items())
            jobs = {text(job_id): (count(at), place) for place, (job_id, at) in numbered}
            return cls(state=state, jobs=jobs, shards=(), files=files, job_count=len(jobs))
        shards = tuple(count(size) for size in items(fields["shards"]))
        if not shards:
            raise ValueError("it has no shards")
        return cls(state=state, jobs={}, shards=shards, files=files, job_count=count(fields["jobs"]))


def _fill(state: State, line: object) -> None:
    """Add the replaced files and decided attempts that `line` has to `state`; for use in `build`."""
    fields = mapping(line)
    state.replaced = {check_path(gone): count(by) for gone, by in mapping(fields["replaced"]).items()}
    state.decided = {text(a): flag(done) for a, done in mapping(fields["decided"]).items()}


def _shard_of(job_id: str, shards: int) -> int:
    """Return the number of the shard that has `job_id` if it is committed."""
    return zlib.crc32(job_id.encode()) % shards


def _jobs(lines: Iterable[object], first: int, shards: int) -> dict[str, tuple[int, int]]:
    """Return the jobs in the lines of shards, the first of which is number `first`; for use in `build`.

    Each has its version and its place in the order of commit. A shard with the jobs of another one is
    refused: a job that is not found would be committed a second time.
    """
    found: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(lines, first):
        fields = mapping(line)
        if fields["shard"] != number:
            raise ValueError(f"it has shard {fields['shard']!r} in place of {number}")
        for job_id, pair in mapping(fields["jobs"]).items():
            if _shard_of(text(job_id), shards) != number:
                raise ValueError(f"it has job {job_id!r} in shard {number}")
            version, place = items(pair)
            found[job_id] = count(version), count(place)
    return found


def _without_places(jobs: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    return {job_id: version for job_id, (version, _) in jobs.items()}


def _dump(state: State) -> bytes:
    shards: list[dict[str, tuple[int, int]]] = [{} for _ in range(max(math.isqrt(len(state.jobs)), 1))]
    for place, (job_id, version) in enumerate(state.jobs.items()):
        shards[_shard_of(job_id, len(shards))][job_id] = version, place
    packed = [_pack([{"shard": number, "jobs": jobs}]) for number, jobs in enumerate(shards)]
    head = {
        "format": _FORMAT,
        "kind": "checkpoint",
        "version": state.version,
        "commit": state.commit,
        "files": len(state.files),
        "jobs": len(state.jobs),
        "batches": state.batches,
        "schema": state.schema,
        "visibility": state.visibility,
        "expired": state.expired,
        "shards": [len(each) for each in packed],
    }
    rest = {"replaced": state.replaced, "decided": state.decided}
    files = (file.to_json() for file in state.files.values())
    return b"".join((_pack([head]), *packed, _pack([rest, *files])))


def _pack(lines: Iterable[object]) -> bytes:
    """Return a gzip member of JSON lines."""
    lines = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    return gzip.compress(lines.encode(), compresslevel=6, mtime=0)


def _lines(data: bytes, path: str) -> list[object]:
    """Return the JSON lines in gzip members."""
    try:
        lines = gzip.decompress(data).splitlines()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CorruptRecord(f"{path!r} is not a checkpoint: {error}") from error
    return [_json(line, path) for line in lines]


def _json(line: bytes, path: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{path!r} is not a checkpoint: {error}") from error


def _parse(data: bytes, version: int, path: str) -> State:
    lines = _lines(data, path)

    def make() -> State:
        head = _Head.of(lines[0] if lines else None, version)
        state, jobs, shards = head.state, head.jobs, len(head.shards)
        others = lines[1:]
        if shards:
            if len(others) <= shards:
                raise ValueError("it lacks lines")
            jobs = _jobs(others[:shards], 0, shards)
            places = {place for _, place in jobs.values()}
            if len(jobs) != head.job_count or places != set(range(len(jobs))):
                raise ValueError("it lacks jobs")
            _fill(state, others[shards])
            others = others[shards + 1 :]
        state.jobs = _without_places(dict(sorted(jobs.items(), key=lambda each: each[1][1])))
        state.files = {file.path: file for file in map(DataFile.from_json, others)}
        if not head.files == len(others) == len(state.files):
            raise ValueError("it lacks files")
        return state

    return _build(path, make)


def _build(path: str, make: Callable[[], T]) -> T:
    return build(Document("checkpoint", {}, path), make)


def _visibility(value: object) -> Visibility | None:
    return None if value is None else one_of(Visibility, value)
