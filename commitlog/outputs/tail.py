"""The tail of an output: which files come between two positions of its log, and in which order.

Records never change. So the same two positions name the same files in every process, before and after a
crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

from attrs import define, frozen

from commitlog._util.parsing import check_choice
from commitlog._util.tracing import traced
from commitlog.errors import (
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    RowsReplaced,
    StateMismatch,
)
from commitlog.oplog.codec import Document
from commitlog.oplog.validate import build, count, flag, text
from commitlog.outputs.log import CommitLog
from commitlog.outputs.publishing import Publisher
from commitlog.outputs.records import (
    CommitRecord,
    DataFile,
    Manifest,
    Record,
    one_of,
    record_id,
)
from commitlog.outputs.state import State

__all__ = ["Added", "OnRewrite", "Position", "Tail"]

#: The reaction to a commit that removes rows of earlier versions: stop before it; skip it with the files
#: that it adds; or take the files that it adds.
OnRewrite: TypeAlias = Literal["fail", "skip", "added"]

_FORMAT = 1


@frozen(kw_only=True)
class Position:
    """A position in the log of an output: the files before it were taken.

    Attributes:
        version: number of a record. All records up to it were taken; with `snapshot`, it is the version
            of the snapshot of which some files were taken.
        files: number of files that were taken of the record after `version`, or of the snapshot.
        snapshot: whether the position is inside a snapshot, the files of the output at `version`.
        record_id: identifies the last record of which files were taken; a record of that number in
            another output has another id. "" if there is no such record.
        on_rewrite: the reaction to commits that remove rows, on the way to this position.
    """

    version: int = 0
    files: int = 0
    snapshot: bool = False
    record_id: str = ""
    on_rewrite: OnRewrite = "fail"

    @property
    def record(self) -> int:
        """Number of the last record of which anything was taken; 0 if there is none."""
        return self.version + (1 if self.files and not self.snapshot else 0)

    def to_json(self) -> dict[str, Any]:
        """Return the value for a checkpoint; equal positions give equal texts.

        >>> Position(version=7, record_id="a").to_json()
        {'format': 1, 'version': 7, 'files': 0, 'snapshot': False, 'mark': 'a', 'onRewrite': 'fail'}
        """
        return {
            "format": _FORMAT,
            "version": self.version,
            "files": self.files,
            "snapshot": self.snapshot,
            "mark": self.record_id,
            "onRewrite": self.on_rewrite,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Position:
        """Return the position that `to_json` wrote. Raises `CorruptRecord`, `FormatTooNew`."""
        given = value.get("format")
        if type(given) is int and given > _FORMAT:
            raise FormatTooNew(
                f"the checkpoint has positions of format {given}; this library reads up to {_FORMAT}:"
                " upgrade it"
            )

        def make() -> Position:
            if count(given) != _FORMAT:
                raise ValueError(f"it is of format {given}")
            return cls(
                version=count(value["version"]),
                files=count(value["files"]),
                snapshot=flag(value["snapshot"]),
                record_id=text(value["mark"]),
                on_rewrite=one_of(OnRewrite, value["onRewrite"]),
            )

        return build(Document("position", {}, "the checkpoint's offset"), make)


@frozen(kw_only=True)
class Added:
    """Files that one version added, or some of them.

    Attributes:
        version: the version; for a snapshot, the version of the snapshot.
        schema: schema of the output at that version, if its writer gave it.
        files: the files.
    """

    version: int
    schema: str | None
    files: tuple[DataFile, ...]


@frozen(kw_only=True)
class _Part:
    """A list of files: in a record, in a state, or in a manifest, which is read when it is needed."""

    count: int
    bytes: int
    where: tuple[DataFile, ...] | Manifest

    @classmethod
    def of(cls, where: tuple[DataFile, ...] | Manifest) -> _Part:
        if isinstance(where, Manifest):
            return cls(count=where.files, bytes=where.bytes, where=where)
        return cls(count=len(where), bytes=sum(file.size for file in where), where=where)


@frozen(kw_only=True)
class _Addition:
    """The files that one record adds, in its order; or the files of a snapshot."""

    version: int
    record_id: str
    snapshot: bool = False
    commit: CommitRecord | None = None
    schema: str | None = None
    parts: tuple[_Part, ...] = ()

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)

    def at(self, files: int, on_rewrite: OnRewrite) -> Position:
        """Return the position after the first `files` of its files."""
        inside = files < self.count
        return Position(
            version=self.version - (inside and not self.snapshot),
            files=files if inside else 0,
            snapshot=inside and self.snapshot,
            record_id=self.record_id,
            on_rewrite=on_rewrite,
        )

    def files_at(self, position: Position) -> int:
        """Return the number of its files before `position`, if that is inside it; else 0."""
        return position.files if position.record == self.version else 0


@define
class _BatchLimits:
    """The number of files and bytes that a batch can still take. The first file always fits."""

    files: int | None
    bytes: int | None
    empty: bool = True

    def take(self, files: int, size: int) -> bool:
        """Take `files` files of `size` bytes in total; if they do not fit, take none, return False."""
        if self.files is not None and files > self.files:
            return False
        if self.bytes is not None and size > self.bytes and not (self.empty and files == 1):
            return False
        self.files = None if self.files is None else self.files - files
        self.bytes = None if self.bytes is None else max(0, self.bytes - size)
        self.empty = False
        return True


@traced(lambda tail, _arguments: {"commitlog.log": tail._log.directory})
class Tail:
    """The tail of one output, made by `Output.tail`. Not thread-safe.

    It caches the records that it has read until a later position is requested. So a batch takes one
    request for each new record, and a few more.

    Raises `ConfigurationError` for an unknown `on_rewrite`.
    """

    def __init__(
        self, log: CommitLog, publisher: Publisher, *, on_rewrite: OnRewrite, roll_forward: bool
    ) -> None:
        check_choice("on_rewrite", on_rewrite, get_args(OnRewrite))
        self._log = log
        self._publisher = publisher
        self._on_rewrite = on_rewrite
        self._roll_forward = roll_forward
        self._checked = False
        self._seen = 0
        self._additions: dict[int, _Addition] = {}
        self._removing: dict[int, bool] = {}
        self._snapshot: _Addition | None = None
        self._state: State | None = None
        self._listed: tuple[DataFile, ...] = ()
        self._manifest: Manifest | None = None

    @property
    def seen(self) -> int:
        """The last known version. Sends no request."""
        return self._seen

    def end(self) -> int:
        """Return the number of the last record; without rolling forward, of the last complete one."""
        end = self._publisher.watermark()
        if self._roll_forward:
            for record in self._log.read(end):
                end = record.version
        self._seen = max(self._seen, end)
        return end

    def start(self, at: int | Literal["all", "latest"], *, until: int | None = None) -> Position:
        """Return the first position.

        Args:
            at: ``all``: before the files of the last version, as a snapshot; ``latest``: after the last
                version; a number: after that record, from 0 on.
            until: number of the record to treat as the last one; None: the last one.

        Raises `NotFound` if there is no such record, and `ConfigurationError` for another text.
        """
        if isinstance(at, int):
            return self._after(at)
        check_choice("at", at, ("all", "latest"))
        end = self.end() if until is None else until
        if at == "latest" or not end:
            return self._after(end)
        snapshot = self._snapshot_of(end)
        return snapshot.at(0, self._on_rewrite)

    def advance(
        self,
        start: Position,
        *,
        max_files: int | None = None,
        max_bytes: int | None = None,
        until: int | None = None,
    ) -> Position:
        """Return the end of the batch that begins at `start`; `start` itself if there is nothing new.

        All files of the batch are visible when it returns: the others are published. Without rolling
        forward, the batch ends before the first record with files that may not be visible.

        Args:
            start: a position of this output.
            max_files: most files of the batch, at least 1; None for any number.
            max_bytes: most bytes of the batch; None for any number. A batch has at least one file.
            until: number of the last record to take; None: the last one.

        Raises:
            ConfigurationError: `max_files` is below 1.
            StateMismatch: `start` is of another output, or of records that no longer exist.
            RowsReplaced: the next commit removes rows, and ``on_rewrite`` is ``fail``.
            CorruptRecord: records were lost, or cannot be read. `FormatTooNew` likewise.
            PublishIncomplete: files cannot be made visible.
        """
        if max_files is not None and max_files < 1:
            raise ConfigurationError(f"max_files is {max_files}; it must be at least 1")
        self._forget(start)
        if not self._checked:
            self._check(start)
        complete = self._publisher.watermark()
        if not self._roll_forward:
            until = complete if until is None else min(until, complete)
        position, limits = start, _BatchLimits(max_files, max_bytes)
        try:
            for addition in self._walk(start, until, self._on_rewrite, complete=complete):
                begun = addition.files_at(start)
                taken = begun + self._take(addition, begun, limits)
                if taken > begun or taken == addition.count:
                    position = addition.at(taken, self._on_rewrite)
                if taken < addition.count:
                    break
        except RowsReplaced:
            if limits.empty:
                raise
        self._seen = max(self._seen, complete)
        if limits.empty:
            return start
        self._check(start)
        if complete < position.record:
            self._publisher.roll_forward(until=position.record, strict=False)
        return position

    def added(self, start: Position, end: Position) -> Iterator[Added]:
        """Yield the files between two positions that `advance` returned, in this process or another.

        A file that a later version replaced may already be gone. Then reading it raises `NotFound`, and
        never returns another file's rows.

        Raises `StateMismatch` if `end` is of another output, or of records that no longer exist, or was
        reached from an earlier snapshot than `start`.
        """
        inside = end.files and not end.snapshot
        if start.snapshot and (end.record < start.version or (end.record == start.version and inside)):
            raise StateMismatch(
                f"the first batch was planned from a snapshot before version {start.version}, and now it"
                " would begin with that version: restart with a new checkpoint"
            )
        last = None
        for last in self._walk(start, end.record, end.on_rewrite):
            begun, until = last.files_at(start), last.files_at(end) or last.count
            for part in last.parts:
                if begun < min(until, part.count):
                    files = self._files(part)[begun:until]
                    yield Added(version=last.version, schema=last.schema, files=files)
                begun, until = max(0, begun - part.count), max(0, until - part.count)
        if last is None and start == end:
            return
        if last is None or (last.version, last.record_id) != (end.record, end.record_id):
            raise _mismatch(end)

    # inside

    def _walk(
        self, start: Position, until: int | None, on_rewrite: OnRewrite, *, complete: int = 0
    ) -> Iterator[_Addition]:
        """Yield the additions after `start` up to record `until`, or to the end of the log."""
        if start.snapshot:
            yield self._snapshot_of(start.version)
        version = start.version
        while until is None or version < until:
            version += 1
            addition = self._addition(version)
            if addition is None:
                if version <= complete:
                    raise self._lost(version, complete)
                return
            self._seen = max(self._seen, version)
            yield self._kept(addition, on_rewrite)

    def _addition(self, version: int) -> _Addition | None:
        """Return what record `version` adds; None if there is no such record."""
        if version not in self._additions:
            try:
                records = self._log.get(version)
            except NotFound:
                return None
            self._additions[version] = _addition_of(records)
        return self._additions[version]

    def _kept(self, addition: _Addition, on_rewrite: OnRewrite) -> _Addition:
        """Return the files of `addition` to take; raise `RowsReplaced` if the tail must stop here."""
        commit = addition.commit
        if commit is None or on_rewrite == "added" or not self._removes(commit):
            return addition
        if on_rewrite == "skip":
            return _Addition(version=addition.version, record_id=addition.record_id)
        raise RowsReplaced(
            f"version {commit.version} (job {commit.job_id!r}, mode {commit.mode!r}) removed rows of"
            " earlier versions, which may have been read. Skip such commits, or read only the files that"
            " they add (option onRewrite=skip or added); or restart with a new checkpoint",
            job_id=commit.job_id,
            version=commit.version,
        )

    def _removes(self, commit: CommitRecord) -> bool:
        """Return whether `commit` removes rows. An overwrite of new partitions removes none."""
        if not commit.replaces:
            return False
        if commit.version not in self._removing:
            before = commit.version - 1
            state, self._state = self._state, None
            if state is None or state.version > before:
                state = self._log.state(until=before)
            for record in self._log.read(state.version, before):
                self._log.apply(record, state)
            self._removing[commit.version] = bool(self._log.apply(commit, state))
            self._state = state
        return self._removing[commit.version]

    def _snapshot_of(self, version: int) -> _Addition:
        """Return the files of the output at `version`, in order of commit."""
        if self._snapshot is None or self._snapshot.version != version:
            last, state = self._addition(version), self._log.state(until=version)
            if last is None:
                raise _mismatch(Position(version=version))
            if state.version != version:
                raise self._lost(state.version + 1, version)
            self._snapshot = _Addition(
                version=version,
                record_id=last.record_id,
                snapshot=True,
                schema=state.schema,
                parts=(_Part.of(tuple(state.files.values())),),
            )
        return self._snapshot

    def _take(self, addition: _Addition, begun: int, limits: _BatchLimits) -> int:
        """Take files of `addition` from number `begun` on, as far as they fit; return how many."""
        taken = 0
        for part in addition.parts:
            if begun >= part.count:
                begun -= part.count
            elif not begun and limits.take(part.count, part.bytes):
                taken += part.count
            else:
                for file in self._files(part)[begun:]:
                    if not limits.take(1, file.size):
                        return taken
                    taken += 1
                begun = 0
        return taken

    def _files(self, part: _Part) -> tuple[DataFile, ...]:
        if not isinstance(part.where, Manifest):
            return part.where
        if part.where != self._manifest:
            # The next batch probably continues in the same manifest.
            self._listed, self._manifest = tuple(self._log.manifests.files(part.where)), part.where
        return self._listed

    def _after(self, version: int) -> Position:
        """Return the position after record `version`, which must be there."""
        if not version:
            return Position(on_rewrite=self._on_rewrite)
        addition = self._addition(version)
        if addition is None:
            raise NotFound(
                f"there is no version {version} to begin after: the log ends with {self.end()}"
            )
        return addition.at(addition.count, self._on_rewrite)

    def _check(self, position: Position) -> None:
        """Raise `StateMismatch` unless the log has the last record that was taken."""
        if position.record:
            try:
                there = record_id(self._log.get(position.record)[0])
            except NotFound:
                there = None
            if there != position.record_id:
                raise _mismatch(position)
        self._checked = True

    def _lost(self, version: int, later: int) -> CorruptRecord:
        return CorruptRecord(
            f"{self._log.directory!r} has no record {version}, though there is a version {later}:"
            " records were lost. Restore them"
        )

    def _forget(self, start: Position) -> None:
        """Drop the cache entries that a batch from `start` does not need.

        Such a batch begins with the record after `start.version`, or with the rest of the snapshot that
        `start` is in. An earlier position stays valid: its records are read again.
        """
        if not start.snapshot:
            self._snapshot = None
        for version in [number for number in self._additions if number <= start.version]:
            del self._additions[version]
            self._removing.pop(version, None)


def _addition_of(records: tuple[Record, ...]) -> _Addition:
    """Return the files that a record adds: none if it only rewrites the same rows.

    Jobs that share a record append files, and have the same schema.
    """
    commits = [each for each in records if isinstance(each, CommitRecord) and each.mode != "rewrite"]
    first = records[0]
    if not commits:
        return _Addition(version=first.version, record_id=record_id(first))
    parts: list[_Part] = []
    for commit in commits:
        parts += _Part.of(commit.files), *map(_Part.of, commit.manifests)
    return _Addition(
        version=first.version,
        record_id=record_id(first),
        commit=commits[0],
        schema=commits[0].schema,
        parts=tuple(parts),
    )


def _mismatch(position: Position) -> StateMismatch:
    return StateMismatch(
        f"the checkpoint names record {position.record}, and the log of the output has another one or"
        " none: the output was removed and created again, or an older copy was restored. Restore the"
        " log, or restart with a new checkpoint"
    )
