"""`RecordedStore`: a client's `ConditionalStore` that records its calls as a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from attrs import frozen

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    BucketNotFound,
    CommitError,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    TableNotFound,
    Unavailable,
)
from commitlog.stores.api import ObjectData, ObjectInfo, PutResult, Staged
from commitlog.testing.history import Action, Outcome
from commitlog.testing.recorder import Recorder

__all__ = ["WORD", "RecordedStore"]

T = TypeVar("T")
Info = TypeVar("Info", bound=ObjectInfo)

#: How often a read is repeated, at most, until two in a row agree.
_READS = 20

#: Metadata key under which an object bears the word of its version.
WORD = "version"

#: The meaning of errors for the object of an action. All other errors say that nothing happened.
_TOLD: Mapping[Action, Mapping[type[CommitError], Outcome]] = MappingProxyType(
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
    """One thing that a call does: an action on a key, with the words expected and written."""

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

    A word names a version. No other write of the same key may use it. The object has the word as its
    body and in its metadata, so GET, HEAD and copies preserve it. Results and errors are those of
    `ConditionalStore`. After a foreign exception, a simulated crash or ``KeyboardInterrupt``, the call
    has an unknown outcome in the history.

    Objects of other writers lack that metadata. `get` identifies them by their body; `head` and
    `put_if_match` identify them once their etag has been seen.

    >>> from commitlog.stores.memory import MemoryStore
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
        #: The store that performs the calls; direct calls to it are not recorded.
        self.store = store
        self.client = client
        self._recorder = recorder
        self._whole_reads = whole_reads

    def put_if_absent(self, path: str, word: str) -> PutResult:
        """See `ConditionalStore.put_if_absent`; an `Action.CREATE`."""
        part = _Part(action=Action.CREATE, key=path, version=word)
        return self._write(
            "put_if_absent",
            lambda: self.store.put_if_absent(path, word.encode(), metadata={WORD: word}),
            part,
        )

    def put_if_match(self, path: str, word: str, *, etag: str, expected: str | None = None) -> PutResult:
        """See `ConditionalStore.put_if_match`; an `Action.REPLACE`.

        Args:
            path: path of the object.
            word: the word of the new version.
            etag: the etag of the expected version.
            expected: the word of the expected version. It may be omitted if a write, `head` or `get` of
                this process has shown it.
        """
        part = _Part(action=Action.REPLACE, key=path, expected=self._word(etag, expected), version=word)
        return self._write(
            "put_if_match",
            lambda: self.store.put_if_match(path, word.encode(), etag=etag, metadata={WORD: word}),
            part,
        )

    def copy_if_absent(self, source: str, target: str, *, word: str) -> PutResult:
        """See `ConditionalStore.copy_if_absent`; an `Action.CREATE` of the target.

        `word` is the word of the source. The source must not change while the copy may still happen.
        Copy each source once, to one target.
        """
        part = _Part(action=Action.CREATE, key=target, version=word)
        return self._write("copy_if_absent", lambda: self.store.copy_if_absent(source, target), part)

    def rename_if_absent(self, source: str, target: str, *, word: str) -> PutResult:
        """See `ConditionalStore.rename_if_absent`; an `Action.CREATE` and an `Action.REMOVE`.

        A rename is not atomic: creation of the target and removal of the source may each take effect at
        any time of the call, and if the outcome is unknown, it is that of both. `word` is as for
        `copy_if_absent`.
        """
        return self._write(
            "rename_if_absent",
            lambda: self.store.rename_if_absent(source, target),
            _Part(action=Action.CREATE, key=target, version=word),
            _Part(action=Action.REMOVE, key=source, expected=word),
        )

    def stage(self, path: str, word: str) -> Staged:
        """Upload an object that is invisible until `publish_if_absent`. The call is not recorded."""
        return self.store.stage(path, word.encode(), metadata={WORD: word})

    def publish_if_absent(self, staged: Staged, *, word: str) -> PutResult:
        """See `ConditionalStore.publish_if_absent`; an `Action.CREATE`. Publish an upload once."""
        part = _Part(action=Action.CREATE, key=staged.path, version=word)
        return self._write("publish_if_absent", lambda: self.store.publish_if_absent(staged), part)

    def delete_if_match(self, path: str, *, etag: str, expected: str | None = None) -> None:
        """See `ConditionalStore.delete_if_match`; an `Action.REMOVE`. Arguments as of `put_if_match`."""
        part = _Part(action=Action.REMOVE, key=path, expected=self._word(etag, expected))
        self._run("delete_if_match", lambda: self.store.delete_if_match(path, etag=etag), part)

    def head(self, path: str) -> ObjectInfo:
        """See `ConditionalStore.head`; an `Action.READ`."""
        return self._read("head", path, lambda: self.store.head(path))

    def get(self, path: str) -> ObjectData:
        """See `ConditionalStore.get`, of the whole object; an `Action.READ`."""
        return self._read("get", path, lambda: self.store.get(path))

    def _word(self, etag: str, expected: str | None) -> str:
        word = self._recorder.word(etag) if expected is None else expected
        if word is None:
            raise ValueError(f"which version has etag {etag} was not seen here: say what is expected")
        return word

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
        """Return the word of the version that a read found, if any."""
        word = info.metadata.get(WORD)
        if word is None and isinstance(info, ObjectData):
            word = info.data.decode("ascii", "backslashreplace")
        if word is None:
            return self._recorder.word(info.etag)
        self._recorder.learn(info.etag, word)
        return word

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
                self._recorder.end(number, _told(part.action, error))
            raise
        word = None if seen is None else seen(result)
        outcome = Outcome.NOTHING if seen is not None and word is None else Outcome.DONE
        for number in numbers:
            self._recorder.end(number, outcome, version=word)
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
    raise Unavailable(f"{last.path!r} was another one in each of {_READS} reads")


def _told(action: Action, error: CommitError) -> Outcome:
    """Return the outcome of the action according to `error`."""
    if isinstance(error, (BucketNotFound, TableNotFound)):
        return Outcome.NOTHING
    told = (outcome for kind, outcome in _TOLD[action].items() if isinstance(error, kind))
    return next(told, Outcome.NOTHING)
