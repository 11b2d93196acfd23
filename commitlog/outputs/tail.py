"""Following an output by its log: which files come between two positions, in what order.

What a position means does not depend on when it is asked for: records are never changed, so that the
same two positions name the same files in every process, before a crash and after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from attrs import define, frozen

from commitlog.errors import (
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
    AbortRecord,
    CommitRecord,
    DataFile,
    Manifest,
    Record,
    one_of,
)
from commitlog.outputs.state import State

__all__ = ["Added", "OnRewrite", "Position", "Tail"]

#: The reaction to a commit that removes rows of earlier versions: stop before it; skip it with the files
#: that it adds; or take the files that it adds.
OnRewrite: TypeAlias = Literal["fail", "skip", "added"]

_FORMAT = 1


@frozen(kw_only=True)
class Position:
    """How far an output was followed.

    Attributes:
        version: number of a record. Those up to it were taken; or else, with `snapshot`, it is the
            version of which some files were taken.
        files: how many files were taken of the record after `version`; or of the snapshot.
        snapshot: whether the files that were part of the output at `version` are being taken.
        mark: what tells the last record of which anything was taken from one of the same number in
            another output; "" if there is none.
        on_rewrite: how commits that remove rows were dealt with on the way here.
    """

    version: int = 0
    files: int = 0
    snapshot: bool = False
    mark: str = ""
    on_rewrite: OnRewrite = "fail"

    @property
    def record(self) -> int:
        """Number of the last record of which anything was taken; 0 if there is none."""
        return self.version + (1 if self.files and not self.snapshot else 0)

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; equal positions give equal texts.

        >>> Position(version=7, mark="a").to_json()
        {'format': 1, 'version': 7, 'files': 0, 'snapshot': False, 'mark': 'a', 'onRewrite': 'fail'}
        """
        return {
            "format": _FORMAT,
            "version": self.version,
            "files": self.files,
            "snapshot": self.snapshot,
            "mark": self.mark,
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
                mark=text(value["mark"]),
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
    """Files that are listed in one place: a record, a state, or a manifest, which is read if need be."""

    count: int
    bytes: int
    where: tuple[DataFile, ...] | Manifest

    @classmethod
    def of(cls, where: tuple[DataFile, ...] | Manifest) -> _Part:
        if isinstance(where, Manifest):
            return cls(count=where.files, bytes=where.bytes, where=where)
        return cls(count=len(where), bytes=sum(file.size for file in where), where=where)


@frozen(kw_only=True)
class _Stretch:
    """What one record adds, in its order; or the files of a snapshot."""

    version: int
    mark: str
    snapshot: bool = False
    commit: CommitRecord | None = None
    schema: str | None = None
    parts: tuple[_Part, ...] = ()

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)

    def at(self, files: int, on_rewrite: OnRewrite) -> Position:
        """Return the position after so many of its files."""
        inside = files < self.count
        return Position(
            version=self.version - (inside and not self.snapshot),
            files=files if inside else 0,
            snapshot=inside and self.snapshot,
            mark=self.mark,
            on_rewrite=on_rewrite,
        )

    def files_at(self, position: Position) -> int:
        """Return how many of its files were taken, if `position` is inside of it; else 0."""
        return position.files if position.record == self.version else 0


@define
class _Room:
    """What a batch may still take. The first file is taken however large it is."""

    files: int | None
    bytes: int | None
    empty: bool = True

    def take(self, files: int, size: int) -> bool:
        """Take `files` files of `size` bytes together, or none of them."""
        if self.files is not None and files > self.files:
            return False
        if self.bytes is not None and size > self.bytes and not (self.empty and files == 1):
            return False
        self.files = None if self.files is None else self.files - files
        self.bytes = None if self.bytes is None else max(0, self.bytes - size)
        self.empty = False
        return True


class Tail:
    """Follows one output; made by `Output.tail`. Not thread-safe.

    It keeps the records that it has read until a later position is requested. So a batch costs a request
    for each new record and a few more.
    """

    def __init__(
        self, log: CommitLog, publisher: Publisher, *, on_rewrite: OnRewrite, roll_forward: bool
    ) -> None:
        self._log = log
        self._publisher = publisher
        self._on_rewrite = on_rewrite
        self._roll_forward = roll_forward
        self._checked = False
        self._seen = 0
        self._stretches: dict[int, _Stretch] = {}
        self._removing: dict[int, bool] = {}
        self._snapshot: _Stretch | None = None
        self._state: State | None = None
        self._listed: tuple[DataFile, ...] = ()
        self._manifest: Manifest | None = None

    @property
    def seen(self) -> int:
        """The last version that is known of, without a request."""
        return self._seen

    def end(self) -> int:
        """Return the number of the last record, or without rolling forward of the last complete one."""
        end = self._publisher.watermark()
        if self._roll_forward:
            for record in self._log.read(end):
                end = record.version
        self._seen = max(self._seen, end)
        return end

    def start(self, at: int | Literal["all", "latest"], *, until: int | None = None) -> Position:
        """Return where to begin.

        Args:
            at: ``all``: with the files of the last version, a snapshot of which is taken first;
                ``latest``: after it; a number: after that record, from 0 on.
            until: number of a record that is taken for the last one.

        Raises `NotFound` if there is no such record.
        """
        if isinstance(at, int):
            return self._after(at)
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
        """Return how far a batch goes that begins at `start`; `start` itself if there is nothing new.

        All files up to there are visible when it returns: if need be, they are published, or, without
        rolling forward, waited for.

        Args:
            start: a position of this output.
            max_files: most files of the batch, from 1 on; None for any number.
            max_bytes: most bytes of it, but a batch has one file at least.
            until: number of the last record to take.

        Raises:
            StateMismatch: `start` is of another output, or of records that are not there any more.
            RowsReplaced: the next commit removes rows, and ``on_rewrite`` is ``fail``.
            CorruptRecord: records were lost, or cannot be read. `FormatTooNew` likewise.
            PublishIncomplete: files cannot be made visible.
        """
        self._forget(start)
        if not self._checked:
            self._check(start)
        complete = self._publisher.watermark()
        if not self._roll_forward:
            until = complete if until is None else min(until, complete)
        position, room = start, _Room(max_files, max_bytes)
        try:
            for stretch in self._walk(start, until, self._on_rewrite, complete=complete):
                begun = stretch.files_at(start)
                taken = begun + self._fitting(stretch, begun, room)
                if taken > begun or taken == stretch.count:
                    position = stretch.at(taken, self._on_rewrite)
                if taken < stretch.count:
                    break
        except RowsReplaced:
            if room.empty:
                raise
        self._seen = max(self._seen, complete)
        if room.empty:
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
        if last is None or (last.version, last.mark) != (end.record, end.mark):
            raise _mismatch(end)

    # inside

    def _walk(
        self, start: Position, until: int | None, on_rewrite: OnRewrite, *, complete: int = 0
    ) -> Iterator[_Stretch]:
        """Yield the stretches after `start` up to record `until`, or to the log's end."""
        if start.snapshot:
            yield self._snapshot_of(start.version)
        version = start.version
        while until is None or version < until:
            version += 1
            stretch = self._stretch(version)
            if stretch is None:
                if version <= complete:
                    raise self._lost(version, complete)
                return
            self._seen = max(self._seen, version)
            yield self._kept(stretch, on_rewrite)

    def _stretch(self, version: int) -> _Stretch | None:
        """Return what record `version` adds; None if there is no such record."""
        if version not in self._stretches:
            try:
                record = self._log.get(version)
            except NotFound:
                return None
            self._stretches[version] = _stretch_of(record)
        return self._stretches[version]

    def _kept(self, stretch: _Stretch, on_rewrite: OnRewrite) -> _Stretch:
        """Return the part of `stretch` to take; raise `RowsReplaced` if the tail must stop here."""
        commit = stretch.commit
        if commit is None or on_rewrite == "added" or not self._removes(commit):
            return stretch
        if on_rewrite == "skip":
            return _Stretch(version=stretch.version, mark=stretch.mark)
        raise RowsReplaced(
            f"version {commit.version} (job {commit.job_id!r}, mode {commit.mode!r}) removed rows of"
            " earlier versions, which may have been read. Skip such commits, or read only the files that"
            " they add (option onRewrite=skip or added); or restart with a new checkpoint",
            job_id=commit.job_id,
            version=commit.version,
        )

    def _removes(self, commit: CommitRecord) -> bool:
        """Tell whether `commit` removes rows. Many that overwrite partitions do not: they are new."""
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

    def _snapshot_of(self, version: int) -> _Stretch:
        """Return the files of the output at `version`, in order of commit."""
        if self._snapshot is None or self._snapshot.version != version:
            last, state = self._stretch(version), self._log.state(until=version)
            if last is None:
                raise _mismatch(Position(version=version))
            if state.version != version:
                raise self._lost(state.version + 1, version)
            self._snapshot = _Stretch(
                version=version,
                mark=last.mark,
                snapshot=True,
                schema=state.schema,
                parts=(_Part.of(tuple(state.files.values())),),
            )
        return self._snapshot

    def _fitting(self, stretch: _Stretch, begun: int, room: _Room) -> int:
        """Return how many of its files there is room for, after the first `begun`."""
        taken = 0
        for part in stretch.parts:
            if begun >= part.count:
                begun -= part.count
            elif not begun and room.take(part.count, part.bytes):
                taken += part.count
            else:
                for file in self._files(part)[begun:]:
                    if not room.take(1, file.size):
                        return taken
                    taken += 1
                begun = 0
        return taken

    def _files(self, part: _Part) -> tuple[DataFile, ...]:
        if not isinstance(part.where, Manifest):
            return part.where
        if part.where != self._manifest:
            # The next batch most likely goes on in the same one.
            self._listed, self._manifest = tuple(self._log.manifests.files(part.where)), part.where
        return self._listed

    def _after(self, version: int) -> Position:
        """Return the position after record `version`, which must be there."""
        if not version:
            return Position(on_rewrite=self._on_rewrite)
        stretch = self._stretch(version)
        if stretch is None:
            raise NotFound(
                f"there is no version {version} to begin after: the log ends with {self.end()}"
            )
        return stretch.at(stretch.count, self._on_rewrite)

    def _check(self, position: Position) -> None:
        """Raise `StateMismatch` unless the last record that was taken is there, as it was."""
        if position.record:
            try:
                there = _mark(self._log.get(position.record))
            except NotFound:
                there = None
            if there != position.mark:
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
        `start` is in. An earlier position is valid all the same: its records are read again.
        """
        if not start.snapshot:
            self._snapshot = None
        for version in [number for number in self._stretches if number <= start.version]:
            del self._stretches[version]
            self._removing.pop(version, None)


def _mark(record: Record) -> str:
    """Return what no other output has under the same number."""
    if isinstance(record, CommitRecord):
        return record.attempt
    if isinstance(record, AbortRecord):
        return min(record.attempts, default="")
    return f"{record.before} {record.time}"


def _stretch_of(record: Record) -> _Stretch:
    """Return the files that `record` adds: none if it only rewrites the same rows."""
    if not isinstance(record, CommitRecord) or record.mode == "rewrite":
        return _Stretch(version=record.version, mark=_mark(record))
    return _Stretch(
        version=record.version,
        mark=record.attempt,
        commit=record,
        schema=record.schema,
        parts=(_Part.of(record.files), *(_Part.of(each) for each in record.manifests)),
    )


def _mismatch(position: Position) -> StateMismatch:
    return StateMismatch(
        f"the checkpoint names record {position.record}, and the log of the output has another one or"
        " none: the output was removed and created again, or an older copy was restored. Restore the"
        " log, or restart with a new checkpoint"
    )
