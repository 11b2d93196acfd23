"""Checkpoints: the state of an output at some versions, so that readers need not read the whole log.

A checkpoint is derived from the log, so losing one loses no data: a checkpoint that cannot be read is
skipped. It consists of gzipped JSON lines: a line with the totals, then one line for each file. The
first line is compressed on its own, so the beginning of a job reads and parses that line alone.
"""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Sequence

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import AlreadyExists, CorruptRecord, NotFound
from commitlog.oplog.codec import Document
from commitlog.oplog.validate import build, count, flag, items, mapping, maybe_text, text
from commitlog.outputs.job import Visibility
from commitlog.outputs.records import DataFile, one_of
from commitlog.outputs.state import State
from commitlog.paths import check_path, join

__all__ = ["Checkpoints"]

_log = logging.getLogger(__name__)

#: A checkpoint is due at each multiple of `INTERVAL`. Outputs with more than `MANY_FILES` files have
#: large checkpoints, which are due at each multiple of `LONG_INTERVAL`.
INTERVAL, LONG_INTERVAL, MANY_FILES = 10, 100, 20_000

#: Checkpoints at multiples of this are kept for readers of old versions; of the others the last two.
LANDMARK = 1_000

_FORMAT = 1
_SUFFIX = ".jsonl.gz"

#: Bytes that are read of a checkpoint for its first line: that of some ten thousand job ids.
_HEAD_BYTES = 256 * 1024


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

    def load_head(self) -> State:
        """Return what `load` does, but without its files.

        Takes as many requests, and the same time for any number of files.
        """
        for version in reversed(self._versions()):
            path = self._path(version)
            try:
                line = _first_line(self._store.get(path, end=_HEAD_BYTES).data)
                if line is None:
                    state = self._load(version)
                    state.files.clear()
                    return state
                return _state(_json(line, path), None, version, path)
            except (NotFound, CorruptRecord) as error:
                _log.warning("checkpoint %d of the log is skipped: %s", version, error)
        return State()

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

    def _versions(self) -> list[int]:
        top = join(self._directory, "")
        names = (info.path.removeprefix(top) for info in self._store.list(top))
        numbers = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return sorted(int(number) for number in numbers if number.isdecimal() and len(number) == 20)

    def _path(self, version: int) -> str:
        return join(self._directory, f"{version:020d}{_SUFFIX}")


def _dump(state: State) -> bytes:
    header = {
        "format": _FORMAT,
        "kind": "checkpoint",
        "version": state.version,
        "commit": state.commit,
        "files": len(state.files),
        "replaced": state.replaced,
        "jobs": state.jobs,
        "batches": state.batches,
        "schema": state.schema,
        "visibility": state.visibility,
        "expired": state.expired,
        "decided": state.decided,
    }
    files = "".join(
        f"\n{json.dumps(file.to_json(), ensure_ascii=False)}" for file in state.files.values()
    )
    head = json.dumps(header, ensure_ascii=False)
    return b"".join(gzip.compress(part.encode(), compresslevel=6, mtime=0) for part in (head, files))


def _first_line(data: bytes) -> bytes | None:
    """Return the first line of a checkpoint, from the start of its data; None if that is not enough."""
    reader = zlib.decompressobj(wbits=31)
    try:
        found = reader.decompress(data)
    except zlib.error:
        return None  # reading all of it tells what is wrong
    line, end, _ = found.partition(b"\n")
    return line if end or reader.eof else None


def _json(line: bytes, path: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{path!r} is not a checkpoint: {error}") from error


def _parse(data: bytes, version: int, path: str) -> State:
    try:
        header, *lines = gzip.decompress(data).splitlines()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CorruptRecord(f"{path!r} is not a checkpoint: {error}") from error
    found = [_json(line, path) for line in lines]
    return _state(_json(header, path), found, version, path)


def _state(header: object, lines: Sequence[object] | None, version: int, path: str) -> State:
    """Return the state with the totals of `header` and the files of `lines`; None: without files."""

    def make() -> State:
        fields = mapping(header)
        files = {file.path: file for file in map(DataFile.from_json, lines or ())}
        if fields["format"] != _FORMAT or fields["version"] != version:
            raise ValueError("it is of another format or version")
        if lines is not None and not fields["files"] == len(lines) == len(files):
            raise ValueError("it lacks files")
        batches = {text(stream): items(last) for stream, last in mapping(fields["batches"]).items()}
        return State(
            version=version,
            commit=count(fields["commit"]),
            files=files,
            replaced={check_path(gone): count(by) for gone, by in mapping(fields["replaced"]).items()},
            jobs={text(job): count(at) for job, at in mapping(fields["jobs"]).items()},
            batches={stream: (count(n), count(at)) for stream, (n, at) in batches.items()},
            schema=maybe_text(fields["schema"]),
            visibility=_visibility(fields["visibility"]),
            expired=count(fields["expired"]),
            decided={text(a): flag(done) for a, done in mapping(fields["decided"]).items()},
        )

    return build(Document("checkpoint", {}, path), make)


def _visibility(value: object) -> Visibility | None:
    return None if value is None else one_of(Visibility, value)
