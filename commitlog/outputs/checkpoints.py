"""Checkpoints: the state of an output at some versions, so that readers need not read the whole log.

A checkpoint is derived from the log, so losing one loses no data: a checkpoint that cannot be read is
skipped. It is an object of JSON lines in two gzip members, so that the first one can be read alone:

* the head: a line with what the beginning of a job needs, and the names of the segments of the index of
  jobs (`commitlog.outputs.job_index`);
* the rest: a line with replaced files, and a line for each file.

The beginning of a job reads the head, and of each segment the shard that has its job id if it is
committed. The size of a checkpoint does not depend on the number of jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from attrs import frozen

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import AlreadyExists, CorruptRecord, NotFound
from commitlog.oplog.codec import Document
from commitlog.oplog.validate import build, count, items, mapping, maybe_text, text
from commitlog.outputs.job import Visibility
from commitlog.outputs.job_index import JobIndex, Keys, Segment, extend
from commitlog.outputs.packed import first_member, pack, unpack
from commitlog.outputs.records import DataFile, one_of
from commitlog.outputs.state import State
from commitlog.paths import check_path, join

__all__ = ["CheckpointHead", "OutputCheckpoints"]

_log = logging.getLogger(__name__)

#: A checkpoint is due at each multiple of `INTERVAL`. Outputs with more than `MANY_FILES` files have
#: large checkpoints, which are due at each multiple of `LONG_INTERVAL`.
INTERVAL, LONG_INTERVAL, MANY_FILES = 10, 100, 20_000

#: Checkpoints at multiples of this are kept for readers of old versions; of the others the last two.
LANDMARK = 1_000

_FORMAT = 3
_SUFFIX = ".jsonl.gz"

T = TypeVar("T")


@frozen(kw_only=True)
class CheckpointHead:
    """What the beginning of a job needs of a checkpoint.

    Attributes:
        state: the state without its files. It may be taken on, and then has the keys of later records.
        index: the index of the jobs up to the checkpoint.
    """

    state: State
    index: JobIndex


class OutputCheckpoints:
    """The checkpoints of one output. Thread-safe.

    Args:
        store: the store of the output.
        directory: the directory of the checkpoints.
    """

    def __init__(self, store: ConditionalStore, directory: str) -> None:
        self._store = store
        self._directory = directory

    def load(self, until: int | None = None, *, indexed: bool = False) -> State:
        """Return the state at the last checkpoint, or at the last one up to version `until`.

        Returns that of version 0 if there is none.

        Args:
            until: a version.
            indexed: whether to skip checkpoints whose index is gone. It is removed when later ones are
                stored; the last two have it.
        """
        listed = self._listed()
        for version in reversed(listed.versions):
            if until is None or version <= until:
                state = self._read(version, self._load)
                if state is not None and not (indexed and listed.lacks(state)):
                    return state
        return State()

    def load_head(self, keys: Collection[str]) -> CheckpointHead:
        """Return the head of the last checkpoint that has its index, which has looked for `keys`.

        Takes two requests, and up to two for each segment of the index.
        """
        return self._with_index(lambda head: head.index.find(keys)) or CheckpointHead(
            state=State(), index=JobIndex(self._store, self._directory)
        )

    def load_keys(self) -> tuple[State, Keys]:
        """Return the state at the last checkpoint that has its index, without files; and its keys."""
        keys: Keys = {}

        def read(head: CheckpointHead) -> None:
            nonlocal keys
            keys = head.index.read()

        head = self._with_index(read)
        return (State(), {}) if head is None else (head.state, keys)

    def load_first(self, after: int, until: int) -> State | None:
        """Return the state at the first checkpoint from version `after` up to `until`.

        Returns None if none of them can be read.
        """
        for version in self._listed().versions:
            if after <= version <= until:
                state = self._read(version, self._load)
                if state is not None:
                    return state
        return None

    @staticmethod
    def due(state: State) -> bool:
        """Return whether `state` should be saved as a checkpoint."""
        interval = LONG_INTERVAL if len(state.files) > MANY_FILES else INTERVAL
        return state.version % interval == 0

    def save(self, state: State) -> None:
        """Store `state` as a checkpoint, and remove what is not needed any more.

        The index comes first, and then the checkpoint that names it. Earlier checkpoints, and segments
        that neither it names nor the checkpoint that `state` began with, are removed at the end.

        Args:
            state: the state, taken on from `load` with `indexed`.
        """
        listed = self._listed()
        if state.version in listed.versions:
            return
        segments = extend(self._store, self._directory, state.segments, state.keys, until=state.version)
        try:
            self._store.put_if_absent(self._path(state.version), _dump(state, segments))
        except AlreadyExists:
            return
        for version in sorted({*listed.versions, state.version})[:-2]:
            if version % LANDMARK:
                self._store.delete(self._path(version))
        named = {segment.name for segment in (*state.segments, *segments)}
        for name, until in listed.segments.items():
            # Other clients may be about to name a later one.
            if name not in named and until <= state.indexed:
                self._store.delete(join(self._directory, name))

    def _with_index(self, use: Callable[[CheckpointHead], object]) -> CheckpointHead | None:
        """Return the head of the last checkpoint whose index `use` can read; None if there is none."""
        listed = self._listed()
        for version in reversed(listed.versions):
            head = self._read(version, self._load_head)
            if head is not None and not listed.lacks(head.state):
                try:
                    use(head)
                    return head
                except (NotFound, CorruptRecord) as error:
                    _skipped(version, error)
        return None

    def _read(self, version: int, load: Callable[[int], T]) -> T | None:
        try:
            return load(version)
        except (NotFound, CorruptRecord) as error:
            _skipped(version, error)
            return None

    def _load(self, version: int) -> State:
        path = self._path(version)
        lines = unpack(self._store.get(path).data, path)

        def make() -> State:
            head, rest, *others = lines
            state, files = _head_of(head, version)
            replaced = mapping(mapping(rest)["replaced"])
            state.replaced = {check_path(gone): count(by) for gone, by in replaced.items()}
            state.files = {file.path: file for file in map(DataFile.from_json, others)}
            if not files == len(others) == len(state.files):
                raise ValueError("it lacks files")
            return state

        return self._indexed(_build(path, make))

    def _load_head(self, version: int) -> CheckpointHead:
        path = self._path(version)
        _, line, _ = first_member(self._store, path)
        state = self._indexed(_build(path, lambda: _head_of(line, version)[0]))
        assert state.index is not None
        return CheckpointHead(state=state, index=state.index)

    def _indexed(self, state: State) -> State:
        state.index = JobIndex(self._store, self._directory, state.segments)
        return state

    def _listed(self) -> _Listed:
        top = join(self._directory, "")
        names = [info.path.removeprefix(top) for info in self._store.list(top)]
        stems = {name: name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)}
        versions = sorted(int(s) for s in stems.values() if s.isdecimal() and len(s) == 20)
        parts = {name: stem.split("-") for name, stem in stems.items() if stem.startswith("index-")}
        return _Listed(
            versions=versions,
            segments={name: int(p[1]) for name, p in parts.items() if p[1].isdecimal()},
        )

    def _path(self, version: int) -> str:
        return join(self._directory, f"{version:020d}{_SUFFIX}")


@frozen(kw_only=True)
class _Listed:
    """A listing of the directory of checkpoints.

    Attributes:
        versions: the versions of the checkpoints, in order.
        segments: the segments, with the last record of each.
    """

    versions: list[int]
    segments: dict[str, int]

    def lacks(self, state: State) -> bool:
        """Return whether a segment is gone that the checkpoint of `state` names; log a warning then."""
        gone = [segment.name for segment in state.segments if segment.name not in self.segments]
        if gone:
            _skipped(state.version, f"its index is gone ({gone[0]!r})")
        return bool(gone)


def _skipped(version: int, why: object) -> None:
    _log.warning("checkpoint %d of the log is skipped: %s", version, why)


def _head_of(line: object, version: int) -> tuple[State, int]:
    """Return the state in the first line of a checkpoint, and the number of files; for `build`."""
    fields = mapping(line)
    if fields["format"] != _FORMAT or fields["version"] != version:
        raise ValueError("it is of another format or version")
    batches = {text(stream): items(last) for stream, last in mapping(fields["batches"]).items()}
    state = State(
        version=version,
        record_id=text(fields["record"]),
        commit=count(fields["commit"]),
        batches={stream: (count(n), count(at)) for stream, (n, at) in batches.items()},
        schema=maybe_text(fields["schema"]),
        visibility=_visibility(fields["visibility"]),
        expired=count(fields["expired"]),
        indexed=version,
        segments=tuple(map(Segment.from_json, items(fields["index"]))),
    )
    return state, count(fields["files"])


def _dump(state: State, segments: tuple[Segment, ...]) -> bytes:
    head = {
        "format": _FORMAT,
        "kind": "checkpoint",
        "version": state.version,
        "record": state.record_id,
        "commit": state.commit,
        "files": len(state.files),
        "batches": state.batches,
        "schema": state.schema,
        "visibility": state.visibility,
        "expired": state.expired,
        "index": [segment.to_json() for segment in segments],
    }
    files = (file.to_json() for file in state.files.values())
    return pack([head]) + pack([{"replaced": state.replaced}, *files])


def _build(path: str, make: Callable[[], T]) -> T:
    return build(Document("checkpoint", {}, path), make)


def _visibility(value: object) -> Visibility | None:
    return None if value is None else one_of(Visibility, value)
