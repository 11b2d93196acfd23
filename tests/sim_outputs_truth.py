"""What is true of a simulated output: followed from inside its store, mutation by mutation.

`WatchedStore` is the server, and tells a `Truth` of all that it does; the truth objects at once to what
must not be, whoever asked for it, and whatever its answer. It reads stored records with nothing of the
library's, since it is there to judge that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
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
from commitlog.outputs import Snapshot
from commitlog.stores.api import Body, PutResult, Staged, StagedInfo, chunks
from commitlog.stores.memory import MemoryStore

__all__ = ["TOP", "Commit", "Truth", "WatchedStore", "content"]

#: Where the output is.
TOP = "out/"

_RECORD = re.compile(r"_commitlog/(\d{20})\.json")
_PENDING = re.compile(r"_commitlog/pending/([0-9a-f]{32})\.json")
_ATTEMPT = re.compile(r"[0-9a-f]{32}")


def content(job_id: str, path: str) -> bytes:
    """Return what the file at `path`, relative to the output, holds if its job is committed."""
    return f"{job_id} {path}".encode()


@frozen(kw_only=True)
class Commit:
    """A commit record: the nonces of its files by path, and the uploads that they were to come from."""

    version: int
    job_id: str
    attempt: str
    nonces: Mapping[str, str] = field(hash=False)
    uploads: Mapping[str, str] = field(hash=False)


@define
class Truth:
    """What an output holds, and what has been promised of it.

    Attributes:
        server: its store.
        records: how many log records there are.
        commits: those of them that commit, by attempt, in order.
        aborted: attempts that are ruled out.
        success: version that ``_SUCCESS`` names.
        visible: files that are visible, relative to the output.
        denied: attempts of which some caller was told that they are not committed, and what it was told.
        shared: attempts that are committed by several callers.
    """

    server: WatchedStore
    records: int = 0
    commits: dict[str, Commit] = field(factory=dict)
    aborted: set[str] = field(factory=set)
    success: int = 0
    visible: set[str] = field(factory=set)
    denied: dict[str, str] = field(factory=dict)
    shared: set[str] = field(factory=set)

    @property
    def last(self) -> int:
        """Version of the last commit."""
        return max((commit.version for commit in self.commits.values()), default=0)

    def commit_of(self, job_id: str) -> Commit | None:
        """Return the commit of that job."""
        return next((commit for commit in self.commits.values() if commit.job_id == job_id), None)

    def deny(self, attempt: str, error: CommitError) -> None:
        """Remember that a caller of `Output.commit` was told by `error` that nothing was added.

        That the attempt is aborted, or another one committed, is so for good. Anything else is said of
        that call alone.
        """
        final = isinstance(error, (JobAborted, AlreadyExists))
        if final or attempt not in self.shared:
            said = f"{type(error).__name__}: {error}"
            assert attempt not in self.commits, (
                f"{attempt} is committed, and its driver was told: {said}"
            )
            self.denied[attempt] = said

    def share(self, attempt: str) -> None:
        """Let the attempt be committed by another caller, too."""
        self.shared.add(attempt)
        if attempt not in self.aborted:
            self.denied.pop(attempt, None)

    def is_whole(self, commit: Commit) -> bool:
        """Tell whether every file of a commit is visible."""
        return commit.nonces.keys() <= self.visible

    def check_committed(
        self, error: JobAlreadyCommitted | PublishIncomplete, attempt: str | None = None
    ) -> Commit:
        """Check that the job is committed as `error` says, by that attempt, and return its commit."""
        commit = self.commit_of(error.job_id)
        assert commit, f"{error}, but it is not committed"
        assert commit.version == error.version
        assert attempt in (None, commit.attempt), f"{error}, but another attempt is"
        assert "are lost" not in str(error), error
        return commit

    def check_snapshot(self, snapshot: Snapshot) -> None:
        """Check that `snapshot` is whole jobs, and that all of their files are there to be read now."""
        commits = [commit for commit in self.commits.values() if commit.version <= snapshot.version]
        assert snapshot.jobs == tuple(commit.job_id for commit in commits)
        assert snapshot.version == max((commit.version for commit in commits), default=0)
        files = {file.path: file.nonce for file in snapshot.files}
        assert len(files) == len(snapshot.files), "a snapshot names a file twice"
        assert files == {path: nonce for commit in commits for path, nonce in commit.nonces.items()}
        assert files.keys() <= self.visible, "a snapshot names a file that is not visible"

    def check_clean(self) -> None:
        """Check what holds when everybody is done and a recovery was made: all is there, and no more."""
        for commit in self.commits.values():
            assert self.is_whole(commit), f"files of {commit} are missing"
        assert self.success == self.last, "_SUCCESS lags behind"
        assert not list(self.server.list_staged()), "an upload is left"
        left = [info.path for info in self.server.list(f"{TOP}_commitlog/pending/")]
        assert not left, f"pending entries are left: {left}"

    def state(self) -> Hashable:
        """Return what does not follow from the content of the store."""
        return frozenset(self.denied), frozenset(self.shared)

    # told by the store, after each mutation

    def stored(self, path: str, data: bytes) -> None:
        """An object was put."""
        name = path.removeprefix(TOP)
        document = json.loads(data)
        if match := _RECORD.fullmatch(name):
            self._recorded(int(match[1]), document)
        elif name == "_SUCCESS":
            self._advanced(document)
        else:
            assert _PENDING.fullmatch(name), f"{path} was put"

    def published(self, staged: Staged, nonce: str | None, data: bytes) -> None:
        """An upload became visible."""
        name = staged.path.removeprefix(TOP)
        if name.startswith("_"):  # a record that is too large for a single request
            self.stored(staged.path, data)
            return
        found = [commit for commit in self.commits.values() if name in commit.nonces]
        assert found, f"{staged.path} is visible, and no commit names it"
        assert nonce == found[0].nonces[name], f"{staged.path} is another upload than was committed"
        assert data == content(found[0].job_id, name), f"{staged.path} has another content"
        assert name not in self.visible, f"{staged.path} was replaced"
        self.visible.add(name)

    def dropped(self, path: str, upload_id: str) -> None:
        """An upload that was there was aborted, other than by its own writer."""
        name = path.removeprefix(TOP)
        if name.startswith("_"):
            return
        attempt = _ATTEMPT.findall(name)[-1]
        if commit := self.commits.get(attempt):
            assert name in self.visible or commit.uploads.get(name) != upload_id, (
                f"the upload of {path} was dropped, and its attempt is committed"
            )
        else:
            assert attempt in self.aborted, f"the upload of {path} was dropped before it was decided"

    def deleted(self, path: str) -> None:
        """An object that was there was deleted."""
        match = _PENDING.fullmatch(path.removeprefix(TOP))
        assert match, f"{path} was deleted"
        commit = self.commits.get(match[1])
        if commit is None:
            assert match[1] in self.aborted, f"{path} was deleted before its attempt was decided"
        else:
            assert self.is_whole(commit), f"{path} was deleted before all files were visible"

    # inside

    def _recorded(self, number: int, document: Mapping[str, Any]) -> None:
        assert number > self.records, f"record {number} was replaced"
        assert number == self.records + 1, f"record {number} follows {self.records}"
        self.records = number
        if document["kind"] == "abort":
            for attempt in document["attempts"]:
                assert attempt not in self.commits, f"{attempt} is committed and then aborted"
                assert attempt not in self.aborted, f"{attempt} is aborted twice"
                self.aborted.add(attempt)
            return
        job_id, attempt = document["job"], document["attempt"]
        assert attempt not in self.aborted, f"{attempt} is aborted and then committed"
        assert self.commit_of(job_id) is None, f"job {job_id} is committed twice"
        told = self.denied.get(attempt)
        assert told is None, f"{attempt} is committed, and its driver was told: {told}"
        assert document["mode"] == "append" or not self.commits, "there is data where none was wanted"
        entry = f"{TOP}_commitlog/pending/{attempt}.json"
        assert self.server.begin_head(entry)().info, f"{attempt} is committed without a pending entry"
        pending = json.loads(self.server.get(entry).data)
        commit = Commit(
            version=number,
            job_id=job_id,
            attempt=attempt,
            nonces={file["path"]: file["nonce"] for file in document["files"]},
            uploads={file["path"]: file["upload"] for file in pending["files"]},
        )
        assert {file["path"]: file["nonce"] for file in pending["files"]} == commit.nonces
        there = {upload.upload_id for upload in self.server.list_staged(TOP)}
        assert there >= set(commit.uploads.values()), f"uploads are gone that {attempt} commits"
        self.commits[attempt] = commit

    def _advanced(self, document: Mapping[str, Any]) -> None:
        version = document["version"]
        assert version > self.success, f"_SUCCESS goes from {self.success} to {version}"
        before = [commit for commit in self.commits.values() if commit.version <= version]
        assert before and before[-1].version == version, f"_SUCCESS names {version}, which is no commit"
        assert before[-1].job_id == document["job"]
        for commit in before:
            assert self.is_whole(commit), f"_SUCCESS names {version}, and {commit} is not all visible"
        self.success = version


class WatchedStore(MemoryStore):
    """A store whose every mutation is told to a `Truth`, as soon as it has happened.

    Args:
        clock: the store's.
        words: makes its words.
        conditions: whether it enforces conditions.
    """

    def __init__(self, *, clock: Clock, words: Callable[[], str], conditions: bool = True) -> None:
        super().__init__(clock=clock, words=words)
        self._conditions = conditions
        self.truth = Truth(self)

    def _allow(self, key: str, condition: Any, fence: Any) -> None:
        super()._allow(key, condition if self._conditions else None, fence)

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        data = b"".join(chunks(body))
        there = self.begin_head(path)().info
        # Without conditions, a request that is repeated on the way replaces what it put.
        again = there is not None and not self._conditions and self.get(path).data == data
        result = super().put(path, data, **options)
        if not again:
            self.truth.stored(path, data)
        return result

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
