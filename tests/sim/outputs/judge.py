"""The judge of a world of outputs: follows each mutation of the output's store.

`WatchedStore` is the server. It reports its mutations to a `Truth`, which raises an error at once if one
breaks an invariant, whichever client requested it. The truth reads stored records without the library.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import define, field, frozen

from commitlog.clock import Clock
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    JobAborted,
    JobAlreadyCommitted,
    PublishIncomplete,
)
from commitlog.outputs import Batch, Snapshot
from commitlog.stores.api import NONCE, PutResult, Staged, StagedInfo, StageWriter
from commitlog.stores.body import Body, chunks
from commitlog.stores.memory import MemoryStore

__all__ = ["OF_S3A", "TOP", "Commit", "Truth", "WatchedStore", "content", "record_of_upload"]

#: The path of the output, and directories in it: files that only the log shows, lists of files, notes.
TOP = "out/"
_HIDDEN = "_commitlog/data/"
_LISTS = "_commitlog/manifests/"
_NOTES = ("_commitlog/alive/", "_commitlog/checkpoints/")

#: The directories in which S3A keeps records of uploads.
_MAGIC = "__magic"

#: The metadata of uploads that S3A begins. They have no nonce.
OF_S3A: Mapping[str, str] = MappingProxyType({"writer": "s3a"})

_RECORD = re.compile(r"_commitlog/(\d{20})\.json")
_READY = re.compile(r"_commitlog/ready/\d{20}-[0-9a-f]{32}\.json")
_PENDING = re.compile(r"_commitlog/pending/([0-9a-f]{32})\.json")
_ATTEMPT = re.compile(r"[0-9a-f]{32}")


def content(job_id: str, path: str) -> bytes:
    """Return the content of the file at `path`, relative to the output, if its job is committed."""
    return f"{job_id} {path}".encode()


def record_of_upload(attempt: str, name: str) -> str:
    """Return the path of the record that S3A writes of the upload of a file of that attempt."""
    return f"{_MAGIC}_job-{attempt}/tasks/__base/{name}.pending"


def _shown(name: str) -> str:
    """Return the path of a file without the directory that hides it."""
    if not name.startswith(_HIDDEN):
        return name
    directory, _, last = name.removeprefix(_HIDDEN).rpartition("/")
    return "/".join([*directory.split("/")[:-1], last])


def _attempt_of(name: str) -> str:
    return _ATTEMPT.findall(name)[-1]


@frozen(kw_only=True)
class Commit:
    """A commit record.

    Attributes:
        version: its number.
        job_id: the job.
        attempt: the attempt of the job.
        logged: whether only the log shows its files.
        nonces: the nonce of each file, by path.
        partitions: the partition of each file, by path.
        rows: the rows of each file, by path. A rewritten file has the rows of the replaced files.
        uploads: the upload of each file, by path.
        replaced: files of earlier versions that this version does not have.
        foreign: files of other programs that it replaces, by path, with their etags.
        batch: stream and number of the batch, or None.
    """

    version: int
    job_id: str
    attempt: str
    logged: bool
    nonces: Mapping[str, str] = field(hash=False)
    partitions: Mapping[str, object] = field(hash=False)
    rows: Mapping[str, tuple[bytes, ...]] = field(hash=False)
    uploads: Mapping[str, str] = field(hash=False)
    replaced: frozenset[str]
    foreign: Mapping[str, str] = field(hash=False)
    batch: tuple[str, int] | None

    @property
    def batch_of_id(self) -> tuple[str, int] | None:
        """Stream and number of the batch whose id the job has."""
        stream, _, number = self.job_id.rpartition("/")
        return (stream, int(number)) if stream and number.isdecimal() else None


@define
class Truth:
    """The true state of an output, and the promises to its clients.

    Attributes:
        server: the store.
        records: number of log records.
        commits: the commit records, by attempt, in order.
        ready: the jobs in each ready entry, by its path: attempt and job id.
        aborted: attempts that cannot be committed.
        aborts: for each of them, the request that wrote its record.
        replaced: files that the output does not have any more, with the version that replaced them.
        rows: the result of all commits except rewrites: partitions with rows, sorted. Readers must see
            them, in whichever files they are.
        expired: versions below this one cannot be read any more.
        success: the version in ``_SUCCESS``.
        visible: existing files, visible or hidden, relative to the output.
        seen: files that ever existed.
        foreign: existing files of other programs, relative to the output, with their etags.
        foreign_paths: paths that ever had such files.
        below: directories of other outputs below it, whose own records are not judged. The files that
            they have at the beginning are foreign, with the etag ""; files of later jobs are `newer`.
        newer: files of outputs below that no job of this output may replace.
        denied: attempts that a caller knows not to be committed, with the error that it got.
        shared: attempts that several callers commit.
        last_signs: the time of each attempt's last sign of life by the server's clock: it began an
            upload, prepared its commit or sent a heartbeat.
        withdrawn: attempts of which a task has aborted its own upload, and so removed a sign of life.
        schema: the schema of the last commit that has one.
        lost: files of committed attempts whose uploads were removed; see `lose`.
        damaged: lost files in whose place another program has put other objects; see `damage`.
        decided: attempts in the order in which records decided them.
    """

    server: WatchedStore
    records: int = 0
    commits: dict[str, Commit] = field(factory=dict)
    ready: dict[str, dict[str, str]] = field(factory=dict)
    aborted: set[str] = field(factory=set)
    aborts: dict[str, str] = field(factory=dict)
    replaced: dict[str, int] = field(factory=dict)
    rows: list[tuple[Any, bytes]] = field(factory=list)
    expired: int = 0
    success: int = 0
    visible: set[str] = field(factory=set)
    seen: set[str] = field(factory=set)
    foreign: dict[str, str] = field(factory=dict)
    foreign_paths: set[str] = field(factory=set)
    below: tuple[str, ...] = ()
    newer: set[str] = field(factory=set)
    denied: dict[str, str] = field(factory=dict)
    shared: set[str] = field(factory=set)
    last_signs: dict[str, float] = field(factory=dict)
    withdrawn: set[str] = field(factory=set)
    schema: str | None = None
    lost: set[str] = field(factory=set)
    damaged: set[str] = field(factory=set)
    decided: list[str] = field(factory=list)

    @property
    def last(self) -> int:
        """The version of the last commit."""
        return max((commit.version for commit in self.commits.values()), default=0)

    def commit_of(self, job_id: str) -> Commit | None:
        """Return the commit of that job."""
        return next((commit for commit in self.commits.values() if commit.job_id == job_id), None)

    def files(self, version: int) -> dict[str, str]:
        """Return the files of the output at a version, with their nonces."""
        return {
            path: nonce
            for commit in self.commits.values()
            if commit.version <= version
            for path, nonce in commit.nonces.items()
            if self.replaced.get(path, version + 1) > version
        }

    def deny(self, attempt: str, error: CommitError) -> None:
        """Record that `Output.commit` raised `error`, so that it added nothing.

        If the attempt is aborted, or another one is committed, this is final. Other errors concern only
        that call.
        """
        final = isinstance(error, (JobAborted, AlreadyExists))
        if final or attempt not in self.shared:
            message = f"{type(error).__name__}: {error}"
            assert attempt not in self.commits, f"{attempt} is committed, but its driver got {message}"
            self.denied[attempt] = message

    def share(self, attempt: str) -> None:
        """Allow another caller to commit the attempt too."""
        self.shared.add(attempt)
        if attempt not in self.aborted:
            self.denied.pop(attempt, None)

    def is_whole(self, commit: Commit) -> bool:
        """Return whether every file of a commit is visible, or was until a later version replaced it.

        A lost file counts as visible once it is replaced.
        """
        return commit.nonces.keys() - (self.lost & self.replaced.keys()) <= self.seen

    def is_done(self, commit: Commit) -> bool:
        """Return whether a commit is whole, and no file that it replaced is visible any more."""
        if commit.foreign.items() & self.foreign.items() or not self.is_whole(commit):
            return False
        return commit.logged or commit.replaced.isdisjoint(self.visible)

    def leave(self, name: str, data: bytes) -> None:
        """Put a file as another program does."""
        result = MemoryStore.put(self.server, TOP + name, data)
        self.foreign_paths.add(name)
        self.foreign[name] = result.etag

    def adopt(self, directory: str, paths: Iterable[str]) -> None:
        """Record the files at these paths of the output in `directory` as foreign ones."""
        names = [f"{directory}/{path}" for path in paths]
        self.newer.difference_update(names)
        self.foreign_paths.update(names)
        self.foreign.update(dict.fromkeys(names, ""))

    def check_below(self, directory: str, paths: Iterable[str]) -> None:
        """Check the files of the output in `directory`, according to its log."""
        names = {f"{directory}/{path}" for path in paths}
        there = {info.path.removeprefix(TOP) for info in self.server.list(TOP + directory)}
        assert names <= there, f"the log of {directory} names files that are gone"
        assert self.newer <= names, f"the log of {directory} has lost files that came later"
        assert names - self.newer <= self.foreign.keys()

    def check_committed(
        self, error: JobAlreadyCommitted | PublishIncomplete, attempt: str | None = None
    ) -> Commit:
        """Check that `attempt` committed the job as `error` says; return its commit."""
        commit = self.commit_of(error.job_id)
        assert commit, f"{error}, but it is not committed"
        assert commit.version == error.version
        assert attempt in (None, commit.attempt), f"{error}, but another attempt is"
        if isinstance(error, PublishIncomplete):
            assert set(error.lost) <= self.lost & commit.nonces.keys(), error
        assert self.lost or "are lost" not in str(error), error
        return commit

    def check_superseded(self, error: JobAlreadyCommitted, job_id: str, batch: Batch | None) -> Commit:
        """Check that the job is committed as `error` says, or its batch or a later batch of the stream.

        A job with the id ``stream/number`` is a batch of that stream, even if its driver names no batch.
        """
        commit = next((c for c in self.commits.values() if c.version == error.version), None)
        stream, _, number = job_id.rpartition("/")
        of = commit and (commit.batch or (batch and commit.batch_of_id))
        if commit is None or commit.job_id == job_id or not (stream and of):
            return self.check_committed(error)
        assert batch in (None, Batch(stream, int(number)))
        assert of[0] == stream, f"{error}, but it is not committed"
        assert of[1] >= int(number), f"{error}, and neither is a later batch"
        return commit

    def check_snapshot(self, snapshot: Snapshot) -> None:
        """Check that `snapshot` has complete jobs, and that all of their files can be read now.

        Files that a newer version has replaced may be gone.
        """
        commits = [commit for commit in self.commits.values() if commit.version <= snapshot.version]
        named = [c.job_id for c in commits if not c.batch and c.job_id != c.attempt]
        assert list(snapshot.jobs) == named
        assert snapshot.version == max((commit.version for commit in commits), default=0)
        files = {file.path: file.nonce for file in snapshot.files}
        assert len(files) == len(snapshot.files), "a snapshot names a file twice"
        assert files == self.files(snapshot.version)
        gone = files.keys() - self.visible
        assert all(self._may_be_gone(path) for path in gone), (
            "a snapshot names a file that is not visible"
        )

    def check_clean(self) -> None:
        """Check the output after the end of all programs and a recovery: it is complete, and clean."""
        for commit in self.commits.values():
            assert self.is_whole(commit), f"files of version {commit.version} are missing"
            assert self.is_done(commit), (
                f"files that version {commit.version} replaced are still visible"
            )
        shown = {path for path in self.visible if not path.startswith("_")}
        assert shown == {path for path in self.files(self.last) if not path.startswith("_")}
        assert self.success == self.last, "_SUCCESS lags behind"
        assert not list(self.server.list_staged()), "an upload is left"
        for what in ("pending/", "ready/", "alive/"):
            left = [info.path for info in self.server.list(f"{TOP}_commitlog/{what}")]
            assert not left, f"entries are left: {left}"

    def check_collected(self) -> None:
        """Check the output after `Output.gc`: every file is needed by some version."""
        hidden = {path for path in self.visible if path.startswith("_")}
        needed = set(self.files(self.last)) | {p for p, v in self.replaced.items() if v > self.expired}
        assert hidden == {path for path in needed if path.startswith("_")}
        listed = {_attempt_of(info.path) for info in self.server.list(TOP + _LISTS)}
        left = sorted(listed - self.commits.keys())
        assert not left, f"lists of files of {left} are left"
        records = [info.path for info in self.server.list(TOP + _MAGIC)]
        assert not records, f"records of uploads are left: {records}"

    def lose(self) -> None:
        """Remove the uploads of all committed attempts, as a lifecycle rule of the store does."""
        for upload in list(self.server.list_staged(TOP)):
            name = upload.path.removeprefix(TOP)
            commit = self.commits.get(_attempt_of(name))
            if commit is not None and commit.uploads.get(name) == upload.upload_id:
                self.lost.add(name)
                MemoryStore.abort(self.server, upload)

    def records_of_uploads(self, attempts: Iterable[str]) -> set[tuple[str, str]]:
        """Return the records that S3A has left of uploads of `attempts`, with their etags."""
        wanted = set(attempts)
        found = self.server.list(TOP + _MAGIC)
        return {(info.path, info.etag) for info in found if _attempt_of(info.path) in wanted}

    def damage(self) -> None:
        """Put an empty object in the place of each lost file that no job has replaced."""
        for name in self.lost - self.replaced.keys() - self.seen:
            self.damaged.add(name)
            MemoryStore.put(self.server, TOP + name, b"")

    def state(self) -> Hashable:
        """Return the state that does not follow from the content of the store."""
        signs = self.last_signs.items()
        sets = (self.denied, self.shared, self.seen, self.lost, self.damaged, self.withdrawn, signs)
        return tuple(map(frozenset, sets))

    def aborted_by(self, first: str) -> set[str]:
        """Return the attempts that a node has aborted by its request `first` or a later one."""
        node = first.rstrip("0123456789")
        return {
            attempt
            for attempt, request in self.aborts.items()
            if request.startswith(node) and int(request.removeprefix(node)) >= int(first[len(node) :])
        }

    def sign(self, path: str) -> None:
        """Record a sign of life of the attempt that `path` names, if any."""
        if found := _ATTEMPT.findall(path):
            self.last_signs[found[-1]] = self.server.clock.epoch()

    # called by the store after each mutation

    def stored(self, path: str, data: bytes) -> None:
        """Record that an object was put."""
        name = path.removeprefix(TOP)
        if name.startswith(_MAGIC) or self._is_of_below(name):
            return
        self.sign(path)
        if _READY.fullmatch(name):
            self.ready[name] = {job["attempt"]: job["job"] for job in json.loads(data)["jobs"]}
        elif match := _RECORD.fullmatch(name):
            self._recorded(int(match[1]), json.loads(data))
        elif name == "_SUCCESS":
            self._advanced(json.loads(data))
        elif name in self.foreign_paths:
            self.foreign[name] = self.server.head(path).etag
        else:
            assert _PENDING.fullmatch(name) or name.startswith((_LISTS, *_NOTES)), f"{path} was put"

    def published(self, staged: Staged, nonce: str | None, data: bytes) -> None:
        """Record that an upload became visible."""
        name = staged.path.removeprefix(TOP)
        if self._is_of_below(name):
            self.newer.add(name)
            return
        if name.startswith(_HIDDEN):
            self._appeared(name)
            return
        if name.startswith("_"):  # a record that is too large for one request
            self.stored(staged.path, data)
            return
        found = [commit for commit in self.commits.values() if name in commit.nonces]
        assert found, f"{staged.path} is visible, but no commit names it"
        same = (nonce or "", staged.upload_id) == (found[0].nonces[name], found[0].uploads[name])
        assert same, f"{staged.path} is not the upload that was committed"
        assert data == b"\n".join(found[0].rows[name]), f"{staged.path} has wrong content"
        self._appeared(name)

    def dropped(self, path: str, upload_id: str) -> None:
        """Record that an existing upload was aborted, but not by its own writer."""
        name = path.removeprefix(TOP)
        if (name.startswith("_") and not name.startswith(_HIDDEN)) or self._is_of_below(name):
            return
        attempt = _attempt_of(name)
        if commit := self.commits.get(attempt):
            assert name in self.seen or commit.uploads.get(name) != upload_id, (
                f"the upload of {path} was dropped, but its attempt is committed"
            )
        else:
            assert attempt in self.aborted, f"the upload of {path} was dropped before it was decided"

    def deleted(self, path: str) -> None:
        """Record that an existing object was deleted."""
        name = path.removeprefix(TOP)
        assert name not in self.newer, f"{path} was deleted, but no job replaces it"
        if name.startswith(_NOTES) or self._is_of_below(name):
            return
        if name.startswith(_MAGIC):
            decided = {*self.commits, *self.aborted}
            assert _attempt_of(name) in decided, f"{path} was deleted before its attempt was decided"
        elif name.startswith(_LISTS):
            assert _attempt_of(name) not in self.commits, f"{path} was deleted, but a record names it"
        elif name in self.foreign_paths:
            etag = self.foreign.pop(name)
            replacing = [each for each in self.commits.values() if each.foreign.get(name) == etag]
            assert replacing, f"{path} was deleted, but no job replaces this version of it"
            assert any(map(self.is_whole, replacing)), (
                f"{path} was deleted before its replacement was visible"
            )
        elif _READY.fullmatch(name):
            jobs = self.ready.pop(name).items()
            left = [a for a, job in jobs if a not in self.aborted and not self._is_refused(job)]
            assert not left, f"{path} was deleted before {left} were decided"
        elif match := _PENDING.fullmatch(name):
            commit = self.commits.get(match[1])
            if commit is None:
                assert match[1] in self.aborted, f"{path} was deleted before its attempt was decided"
            else:
                assert self.is_whole(commit), f"{path} was deleted before all files were visible"
                assert self.is_done(commit), f"{path} was deleted before all replaced files were removed"
        else:
            self._file_deleted(name)

    # inside

    def _is_of_below(self, name: str) -> bool:
        """Return whether a path is in the log of an output below, or of a job of such an output."""
        if not name.startswith(self.below) or name in self.foreign_paths:
            return False
        tag = hashlib.sha256(self.server.key(f"{TOP}_commitlog").encode()).hexdigest()[:8]
        in_log = "/_commitlog/" in name or name.endswith("/_SUCCESS")
        return in_log or not _attempt_of(name).startswith(tag)

    def _is_refused(self, job_id: str) -> bool:
        """Return whether the job, its batch or a later batch of its stream is committed."""
        stream, _, number = job_id.rpartition("/")
        later = (
            batch[0] == stream and number.isdecimal() and batch[1] >= int(number)
            for batch in (commit.batch for commit in self.commits.values())
            if batch
        )
        return self.commit_of(job_id) is not None or any(later)

    def _may_be_gone(self, path: str) -> bool:
        by = self.replaced.get(path)
        return by is not None and (by <= self.expired or not path.startswith("_"))

    def _appeared(self, name: str) -> None:
        assert name not in self.visible, f"{name} was replaced"
        assert not self._may_be_gone(name) or name not in self.seen, f"{name} came back"
        self.visible.add(name)
        self.seen.add(name)

    def _file_deleted(self, name: str) -> None:
        if name in self.damaged - self.visible:
            assert name in self.replaced, f"{name} was deleted"
            self.damaged.remove(name)
            return
        assert name in self.visible, f"{name} was deleted"
        attempt = _attempt_of(name)
        commit = self.commits.get(attempt)
        if name.startswith(_HIDDEN) and (commit is None or name not in commit.nonces):
            assert commit or attempt in self.aborted, f"{name} was deleted before it was decided"
        else:
            assert self._may_be_gone(name), f"{name} was deleted"
            by = next(c for c in self.commits.values() if c.version == self.replaced[name])
            assert self.is_whole(by), f"{name} was deleted before its replacement was visible"
        self.visible.remove(name)

    def _recorded(self, number: int, document: Mapping[str, Any]) -> None:
        assert number > self.records, f"record {number} was replaced"
        assert number == self.records + 1, f"record {number} follows {self.records}"
        self.records = number
        if document["kind"] == "abort":
            # The etag begins with the name of the request.
            request = self.server.head(f"{TOP}_commitlog/{number:020d}.json").etag[1:].partition(".")[0]
            for attempt in document["attempts"]:
                self._aborted(attempt, request)
        elif document["kind"] == "expiry":
            self.expired = max(self.expired, document["before"])
        else:
            jobs = document.get("jobs", [document])
            for job in jobs:
                self._committed(number, job, alone=len(jobs) == 1)

    def _aborted(self, attempt: str, request: str) -> None:
        then = "committed" if attempt in self.commits else "aborted"
        assert attempt not in self.decided, f"{attempt} is {then} and then aborted"
        self.decided.append(attempt)
        if attempt not in self.commits:  # the first record that decides it is the one that counts
            self.aborted.add(attempt)
            self.aborts[attempt] = request

    def _committed(self, number: int, document: Mapping[str, Any], *, alone: bool) -> None:
        job_id, attempt = document["job"], document["attempt"]
        assert attempt not in self.commits, f"{attempt} is committed twice"
        assert attempt not in self.aborted, f"{attempt} is aborted and then committed"
        assert self.commit_of(job_id) is None, f"job {job_id} is committed twice"
        message = self.denied.get(attempt)
        assert message is None, f"{attempt} is committed, but its driver got {message}"
        assert document["mode"] != "error" or not (self.commits or self.foreign), (
            "the output has data, but the job requires an empty one"
        )
        assert alone or (document["mode"], "uploads" in document) == ("append", True), (
            f"{attempt} shares a record that does not say how to publish it"
        )
        logged = document["visibility"] == "logged"
        assert all(commit.logged == logged for commit in self.commits.values()), (
            "the output is both listed and logged"
        )
        files = self._listed(document)
        partitions = {file["path"]: tuple(map(tuple, file["partition"])) for file in files}
        named = self._named(document)
        commit = Commit(
            version=number,
            job_id=job_id,
            attempt=attempt,
            logged=logged,
            nonces={file["path"]: file["nonce"] for file in files},
            partitions=partitions,
            rows=self._rows_of(document, partitions, named),
            uploads={} if logged else self._uploads(document, files),
            replaced=self._replaced_by(document["mode"], set(partitions.values()), named),
            foreign=self._foreign(document),
            batch=document["batch"] and tuple(document["batch"]),
        )
        missed = self._foreign_in(document["mode"], set(partitions.values())) - commit.foreign.items()
        assert not missed, f"{attempt} is committed, but does not replace {sorted(missed)}"
        stream, _, batch = job_id.rpartition("/")
        batches = [c.batch or (document["batch"] and c.batch_of_id) for c in self.commits.values()]
        earlier = [each[1] for each in batches if each and each[0] == stream]
        assert all(last < int(batch) for last in earlier), f"batch {job_id} comes too late"
        schema = document["schema"]
        known = document["mode"] == "overwrite" or None in (schema, self.schema) or schema == self.schema
        assert known, f"{attempt} began with columns that the output no longer has"
        self.schema = schema or self.schema
        if logged:
            assert self.is_whole(commit), f"files that {attempt} commits are gone"
            for path, rows in commit.rows.items():
                assert self.server.get(TOP + path).data == b"\n".join(rows), f"{path} has wrong content"
        self.replaced.update(dict.fromkeys(commit.replaced, number))
        self.commits[attempt] = commit
        self.decided.append(attempt)
        if document["mode"] != "rewrite":
            new = [(partitions[path], row) for path, rows in commit.rows.items() for row in rows]
            self.rows = sorted([*self._kept(document["mode"], set(partitions.values())), *new])
        assert self._rows_there() == self.rows, f"version {number} has duplicate or missing rows"

    def _listed(self, document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the files that a record names, directly or in lists."""
        return [*document["files"], *self._lists(document["manifests"])]

    def _named(self, document: Mapping[str, Any]) -> list[str]:
        """Return the files that a record replaces."""
        listed = (file["path"] for file in self._lists(document.get("replaced_manifests", ())))
        return [*document.get("replaced", ()), *listed]

    def _foreign(self, document: Mapping[str, Any]) -> dict[str, str]:
        """Return the files of other programs that a record replaces, with their etags."""
        listed = self._lists(document.get("foreign_manifests", ()))
        return {file["path"]: file["etag"] for file in [*document.get("foreign", ()), *listed]}

    def _foreign_in(self, mode: str, partitions: set[object]) -> set[tuple[str, str]]:
        """Return the foreign files that a job of this mode must replace in these partitions."""
        if mode == "overwrite":
            return set(self.foreign.items())
        if mode != "overwrite-partitions":
            return set()
        where = {path: (("p", path[2]),) if "/" in path else () for path in self.foreign}
        return {(path, etag) for path, etag in self.foreign.items() if where[path] in partitions}

    def _lists(self, manifests: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for each in manifests:
            data = self.server.get(f"{TOP}{_LISTS}{each['name']}").data
            yield from map(json.loads, gzip.decompress(data).splitlines()[1:])

    def _uploads(
        self, document: Mapping[str, Any], files: Sequence[Mapping[str, Any]]
    ) -> dict[str, str]:
        """Return the uploads in a record, or of the pending entry, which must exist and have `files`."""
        attempt = document["attempt"]
        if "uploads" in document:
            uploads = {
                f["path"]: upload for f, (upload, _) in zip(files, document["uploads"], strict=True)
            }
            self._check_there(attempt, uploads)
            return uploads
        entry = f"{TOP}_commitlog/pending/{attempt}.json"
        assert self.server.begin_head(entry)().info, f"{attempt} is committed without a pending entry"
        pending = self._listed(json.loads(self.server.get(entry).data))
        assert [(f["path"], f["nonce"]) for f in pending] == [(f["path"], f["nonce"]) for f in files]
        uploads = {file["path"]: file["upload"] for file in pending}
        self._check_there(attempt, uploads)
        return uploads

    def _check_there(self, attempt: str, uploads: Mapping[str, str]) -> None:
        there = {upload.upload_id for upload in self.server.list_staged(TOP)}
        assert there >= set(uploads.values()), f"uploads that {attempt} commits are gone"

    def _replaced_by(self, mode: str, partitions: set[object], named: list[str]) -> frozenset[str]:
        current = self.files(self.last)
        where = self._partitions()
        match mode:
            case "overwrite":
                return frozenset(current)
            case "overwrite-partitions":
                return frozenset(path for path in current if where[path] in partitions)
            case "rewrite":
                gone = sorted(set(named) - current.keys())
                assert not gone, f"{gone} are rewritten, but are not part of the output"
                return frozenset(named)
        return frozenset()

    def _kept(self, mode: str, partitions: set[object]) -> list[tuple[Any, bytes]]:
        """Return the rows that a job of this mode with files in these partitions keeps."""
        match mode:
            case "overwrite":
                return []
            case "overwrite-partitions":
                return [(partition, row) for partition, row in self.rows if partition not in partitions]
        return self.rows

    def _rows_of(
        self, document: Mapping[str, Any], paths: Iterable[str], named: list[str]
    ) -> dict[str, tuple[bytes, ...]]:
        """Return the rows of the files of a commit, by path."""
        if document["mode"] != "rewrite":
            return {path: (content(document["job"], _shown(path)),) for path in paths}
        before = {path: rows for commit in self.commits.values() for path, rows in commit.rows.items()}
        [path] = paths
        return {path: tuple(row for old in named for row in before[old])}

    def _rows_there(self) -> list[tuple[Any, bytes]]:
        """Return the rows of the last version, sorted."""
        where = self._partitions()
        rows = {path: rows for commit in self.commits.values() for path, rows in commit.rows.items()}
        return sorted((where[path], row) for path in self.files(self.last) for row in rows[path])

    def _partitions(self) -> dict[str, Any]:
        commits = self.commits.values()
        return {path: each for commit in commits for path, each in commit.partitions.items()}

    def _advanced(self, document: Mapping[str, Any]) -> None:
        version = document["version"]
        assert version > self.success, f"_SUCCESS goes from {self.success} to {version}"
        before = [commit for commit in self.commits.values() if commit.version <= version]
        assert before and before[-1].version == version, (
            f"_SUCCESS names {version}, which is not a commit"
        )
        assert before[-1].job_id == document["job"]
        for commit in before:
            assert self.is_done(commit), (
                f"_SUCCESS names {version}, but commit {commit.version} is not completely visible"
            )
        self.success = version


class WatchedStore(MemoryStore):
    """A store that reports each mutation to a `Truth`, as soon as it has happened.

    Args:
        clock: its clock.
        new_id: makes its ids.
        conditions: whether it enforces conditions.
    """

    def __init__(self, *, clock: Clock, new_id: Callable[[], str], conditions: bool = True) -> None:
        super().__init__(clock=clock, new_id=new_id)
        self.clock = clock
        self._conditions = conditions
        self.truth = Truth(self)

    def _allow(self, key: str, condition: Any, expiry: Any) -> None:
        super()._allow(key, condition if self._conditions else None, expiry)

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        data = b"".join(chunks(body))
        there = self.begin_head(path)().info
        # Without conditions, a request that an intermediary repeats replaces its own object.
        again = there is not None and not self._conditions and self.get(path).data == data
        result = super().put(path, data, **options)
        if not again:
            self.truth.stored(path, data)
        return result

    def begin_stage(self, path: str, **options: Any) -> StageWriter:
        writer = super().begin_stage(path, **options)
        if options.get("metadata") == OF_S3A:
            newest = list(self._space.uploads.values())[-1]
            del newest.metadata[NONCE]
        self.truth.sign(path)
        return _WatchedWriter(writer, self.truth, path)

    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        raise AssertionError("outputs copy nothing")

    def delete(self, path: str, **options: Any) -> None:
        was_there = self.begin_head(path)().info is not None
        super().delete(path, **options)
        if was_there:
            self.truth.deleted(path)

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        for path in paths:
            self.delete(path)
        return {}

    def publish(self, staged: Staged, **options: Any) -> PutResult:
        result = super().publish(staged, **options)
        found = self.get(staged.path)
        self.truth.published(staged, found.nonce, found.data)
        return result

    def abort(self, staged: Staged | StagedInfo) -> None:
        was_there = staged.upload_id in {upload.upload_id for upload in self.list_staged(staged.path)}
        super().abort(staged)
        if was_there:
            self.truth.dropped(staged.path, staged.upload_id)


class _WatchedWriter(StageWriter):
    """A writer that reports the abort of its upload."""

    def __init__(self, inner: StageWriter, truth: Truth, path: str) -> None:
        self._inner = inner
        self._truth = truth
        self._path = path

    def _append(self, data: memoryview) -> None:
        self._inner.write(data)

    def finish(self) -> Staged:
        return self._inner.finish()

    def abort(self) -> None:
        self._inner.abort()
        self._truth.withdrawn.update(_ATTEMPT.findall(self._path))
