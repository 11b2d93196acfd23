"""`RecordedStore`: a client of a `ConditionalStore` that records its calls in a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from attrs import frozen

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import ObjectData, ObjectInfo, PutResult, Staged
from commitlog.testing.history import Action, Outcome
from commitlog.testing.recorder import Recorder

__all__ = ["VERSION", "RecordedStore"]

T = TypeVar("T")
Info = TypeVar("Info", bound=ObjectInfo)

#: Maximum number of repetitions of a read until two in a row agree.
_READS = 20

#: The metadata key that holds the version of an object.
VERSION = "version"

#: The meaning of errors for the object of an action. All other errors say that nothing happened.
_OUTCOMES: Mapping[Action, Mapping[type[CommitError], Outcome]] = MappingProxyType(
    {
        Action.CREATE: {AlreadyExists: Outcome.CONTRADICTED},
        Action.REPLACE: {PreconditionFailed: Outcome.CONTRADICTED},
        # A rename without a source: the object to remove does not have the expected version.
        Action.REMOVE: {PreconditionFailed: Outcome.CONTRADICTED, NotFound: Outcome.CONTRADICTED},
        Action.READ: {NotFound: Outcome.DONE},
    }
)


@frozen(kw_only=True)
class _Part:
    """One action of a call on a key, with the expected and the written version."""

    action: Action
    key: str
    expected: str | None = None
    version: str | None = None


class RecordedStore:
    """A store that records the conditional calls and reads of one client. Thread-safe.

    Args:
        store: performs the calls. Several clients may share a store.
        recorder: records the calls; one for all clients of the process.
        client: the name of the client. Use a separate client for each thread.
        whole_reads: whether one read shows one version. A read of the gateway of JuiceFS may show parts
            of two versions. If False, a read counts only if the next read agrees with it.

    A version is a text. No other write of the same key may use it. The object has its version as its
    body and in its metadata, so GET, HEAD and copies preserve it. Results and errors are those of
    `ConditionalStore`. After a foreign exception, a simulated crash or ``KeyboardInterrupt``, the call
    has an unknown outcome in the history.

    Objects of other writers lack that metadata. `get` identifies them by their body; `head` and
    `put_if_match` identify them once their etag has been seen.

    >>> from commitlog.stores import MemoryStore
    >>> recorder = Recorder()
    >>> store = RecordedStore(ConditionalStore(MemoryStore()), recorder, client="A")
    >>> etag = store.put_if_absent("k", "w1").etag
    >>> _ = store.put_if_match("k", "w2", etag=etag)
    >>> [(call.name, call.expected, call.version) for call in recorder.history()]
    [('put_if_absent', None, 'w1'), ('put_if_match', 'w1', 'w2')]
    """

    def __init__(
        self, store: ConditionalStore, recorder: Recorder, *, client: str, whole_reads: bool = True
    ) -> None:
        #: The store that performs the calls. Direct calls to it are not recorded.
        self.unrecorded = store
        self.client = client
        self._recorder = recorder
        self._whole_reads = whole_reads

    def put_if_absent(self, path: str, version: str) -> PutResult:
        """See `ConditionalStore.put_if_absent`; an `Action.CREATE`."""
        part = _Part(action=Action.CREATE, key=path, version=version)
        return self._write(
            "put_if_absent",
            lambda: self.unrecorded.put_if_absent(path, version.encode(), metadata={VERSION: version}),
            part,
        )

    def put_if_match(
        self, path: str, version: str, *, etag: str, expected: str | None = None
    ) -> PutResult:
        """See `ConditionalStore.put_if_match`; an `Action.REPLACE`.

        Args:
            path: path of the object.
            version: the version to write.
            etag: the etag of the expected version.
            expected: the expected version. It may be omitted if a write, `head` or `get` of
                this process has shown it.
        """
        part = _Part(
            action=Action.REPLACE, key=path, expected=self._version(etag, expected), version=version
        )
        return self._write(
            "put_if_match",
            lambda: self.unrecorded.put_if_match(
                path, version.encode(), etag=etag, metadata={VERSION: version}
            ),
            part,
        )

    def copy_if_absent(self, source: str, target: str, *, version: str) -> PutResult:
        """See `ConditionalStore.copy_if_absent`; an `Action.CREATE` of the target.

        `version` is that of the source. The source must not change while the copy may still happen.
        Copy each source once, to one target.
        """
        part = _Part(action=Action.CREATE, key=target, version=version)
        return self._write(
            "copy_if_absent", lambda: self.unrecorded.copy_if_absent(source, target), part
        )

    def rename_if_absent(self, source: str, target: str, *, version: str) -> PutResult:
        """See `ConditionalStore.rename_if_absent`; an `Action.CREATE` and an `Action.REMOVE`.

        A rename is not atomic: creation of the target and removal of the source may each take effect at
        any time of the call, and if the outcome is unknown, it is that of both. `version` is as for
        `copy_if_absent`.
        """
        return self._write(
            "rename_if_absent",
            lambda: self.unrecorded.rename_if_absent(source, target),
            _Part(action=Action.CREATE, key=target, version=version),
            _Part(action=Action.REMOVE, key=source, expected=version),
        )

    def stage(self, path: str, version: str) -> Staged:
        """Upload an object that is invisible until `publish_if_absent`. The call is not recorded."""
        return self.unrecorded.stage(path, version.encode(), metadata={VERSION: version})

    def publish_if_absent(self, staged: Staged, *, version: str) -> PutResult:
        """See `ConditionalStore.publish_if_absent`; an `Action.CREATE`. Publish an upload once."""
        part = _Part(action=Action.CREATE, key=staged.path, version=version)
        return self._write("publish_if_absent", lambda: self.unrecorded.publish_if_absent(staged), part)

    def delete_if_match(self, path: str, *, etag: str, expected: str | None = None) -> None:
        """See `ConditionalStore.delete_if_match`; an `Action.REMOVE`. Arguments as of `put_if_match`."""
        part = _Part(action=Action.REMOVE, key=path, expected=self._version(etag, expected))
        self._run("delete_if_match", lambda: self.unrecorded.delete_if_match(path, etag=etag), part)

    def head(self, path: str) -> ObjectInfo:
        """See `ConditionalStore.head`; an `Action.READ`."""
        return self._read("head", path, lambda: self.unrecorded.head(path))

    def get(self, path: str) -> ObjectData:
        """See `ConditionalStore.get`, of the whole object; an `Action.READ`."""
        return self._read("get", path, lambda: self.unrecorded.get(path))

    def _version(self, etag: str, expected: str | None) -> str:
        version = self._recorder.version_of(etag) if expected is None else expected
        if version is None:
            raise ValueError(f"the version with etag {etag} was not seen here: pass `expected`")
        return version

    def _write(self, name: str, perform: Callable[[], PutResult], *parts: _Part) -> PutResult:
        result = self._run(name, perform, *parts)
        assert parts[0].version is not None
        self._recorder.learn(result.etag, parts[0].version)
        return result

    def _read(self, name: str, path: str, perform: Callable[[], Info]) -> Info:
        part = _Part(action=Action.READ, key=path)
        read = perform if self._whole_reads else lambda: _agreed(perform)
        return self._run(name, read, part, seen=self._seen)

    def _seen(self, info: ObjectInfo) -> str | None:
        """Return the version that a read found, or None if it is unknown."""
        version = info.metadata.get(VERSION)
        if version is None and isinstance(info, ObjectData):
            version = info.data.decode("ascii", "backslashreplace")
        if version is None:
            return self._recorder.version_of(info.etag)
        self._recorder.learn(info.etag, version)
        return version

    def _run(
        self,
        name: str,
        perform: Callable[[], T],
        *parts: _Part,
        seen: Callable[[T], str | None] | None = None,
    ) -> T:
        """Perform a call that consists of one or more actions, and record each action."""
        numbers = [
            self._recorder.begin(
                self.client,
                part.action,
                part.key,
                expected=part.expected,
                version=part.version,
                name=name,
            )
            for part in parts
        ]
        try:
            result = perform()
        except OutcomeUnknown:
            raise
        except CommitError as error:
            for number, part in zip(numbers, parts, strict=True):
                self._recorder.end(number, _outcome(part.action, error))
            raise
        version = None if seen is None else seen(result)
        outcome = Outcome.NOTHING if seen is not None and version is None else Outcome.DONE
        for number in numbers:
            self._recorder.end(number, outcome, version=version)
        return result


def _agreed(read: Callable[[], Info]) -> Info:
    """Repeat a read until two in a row agree; raise `Unavailable` if none of several reads do.

    The second read begins after the first has ended, and no version returns. So a version that both
    reads show was current when the first one ended.
    """
    last = read()
    for _ in range(_READS):
        found = read()
        if found == last and found.etag:
            return found
        last = found
    raise Unavailable(f"{last.path!r} had another version in each of {_READS} reads")


def _outcome(action: Action, error: CommitError) -> Outcome:
    """Return the outcome of the action according to `error`."""
    found = (outcome for kind, outcome in _OUTCOMES[action].items() if isinstance(error, kind))
    return next(found, Outcome.NOTHING)
