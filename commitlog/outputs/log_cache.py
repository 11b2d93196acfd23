"""What a process remembers of a log: its last records, and what the beginning of a job needs to know.

Records are never changed, so a remembered record is as good as one that is read again. Only the end of
the log is asked for each time. Callers that ask at the same time share the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from attrs import evolve, frozen

from commitlog._util.batching import Batcher
from commitlog._util.fork import WorkLock, renew_in_child
from commitlog.clock import Clock
from commitlog.errors import CorruptRecord, NotFound, Unavailable
from commitlog.outputs.checkpoints import CheckpointHead
from commitlog.outputs.job import Batch, Visibility
from commitlog.outputs.job_index import Keys, attempt_key, job_key, merged, stream_key
from commitlog.outputs.records import CommitRecord, Record, record_id
from commitlog.outputs.state import State

__all__ = ["Head", "LogCache"]

#: Most records that are remembered, and most files of a remembered one.
REMEMBERED_RECORDS, REMEMBERED_FILES = 256, 100

#: Seconds for which the last record counts as there, without looking again. It is only missed if the
#: output was removed while it was in use.
CONFIRMED_FOR = 10.0


@frozen(kw_only=True)
class Head:
    """The end of the log, as the beginning of a job needs it.

    Attributes:
        version: number of the last record.
        commit: number of the last commit; 0 if there is none.
        schema: schema of the last commit that had one.
        visibility: the visibility of the commits, or None if there is no commit.
        committed: version that committed the job, or its batch, or a later batch; None: not committed.
        record_id: identifies the last record; see `commitlog.outputs.records.record_id`.
        decided: of each decided attempt that was asked for, the version that decided it, and whether
            that committed it.
    """

    version: int
    commit: int
    schema: str | None
    visibility: Visibility | None
    committed: int | None
    record_id: str
    decided: Mapping[str, tuple[int, bool]]


@frozen
class _Question:
    job_id: str = ""
    batch: Batch | None = None
    attempts: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """The keys whose values are needed for the answer."""
        keys = [job_key(self.job_id)] if self.job_id else []
        if self.batch is not None:
            keys.append(stream_key(self.batch.stream))
        return keys + list(map(attempt_key, self.attempts))


class LogCache:
    """The memory of one log. Thread-safe.

    Args:
        fetch: reads the content of a record; raises `NotFound` if there is none of that number.
        load: returns the head of the last checkpoint, whose index has looked for some keys.
        missing: makes the error for a checkpoint whose record is gone.
        clock: measures how long ago the last record was seen.
    """

    def __init__(
        self,
        fetch: Callable[[int], tuple[Record, ...]],
        load: Callable[[Collection[str]], CheckpointHead],
        missing: Callable[[int], Exception],
        clock: Clock,
    ) -> None:
        self._fetch = fetch
        self._load = load
        self._missing = missing
        self._clock = clock
        self._lock = WorkLock()
        self.renew()
        renew_in_child(self)
        self._heads: Batcher[_Question, Head] = Batcher(self._answer, interrupted=_interrupted)

    def renew(self) -> None:
        """Remember nothing: in a forked child process, a thread that is not there may have begun to."""
        self._records: dict[int, tuple[Record, ...]] = {}
        self._ids: dict[int, str] = {}
        self._loaded: CheckpointHead | None = None
        self._known = 0
        self._confirmed = 0.0

    @property
    def known(self) -> int:
        """Number of the last record up to which all were read, by this process or at a checkpoint."""
        with self._lock:
            while self._known + 1 in self._records:
                self._known += 1
            return self._known

    def get(self, version: int) -> tuple[Record, ...] | None:
        """Return the content of a record, if it is remembered. Sends no request."""
        return self._records.get(version)

    def read(self, version: int) -> tuple[Record, ...]:
        """Return the content of a record, and remember it. Raises what `fetch` does."""
        found = self._records.get(version)
        if found is None:
            found = self._fetch(version)
            self.keep(version, found)
        return found

    def keep(self, version: int, records: tuple[Record, ...]) -> None:
        """Remember a record that was read, or that this process has written."""
        commits = [each for each in records if isinstance(each, CommitRecord)]
        files = sum(len(each.files) + len(each.replaced) for each in commits)
        with self._lock:
            self._confirmed = self._clock.monotonic()
            self._ids[version] = record_id(records[0])
            if files <= REMEMBERED_FILES:
                self._records[version] = records
            for memory in (self._records, self._ids):
                while len(memory) > REMEMBERED_RECORDS:
                    del memory[next(iter(memory))]

    def still_has(self, version: int, known_id: str) -> bool:
        """Return whether the log has the record of that number and id, and forget it if it does not.

        Another log may be in its place, or none. Sends up to two requests, unless the last known record
        was seen in the last ten seconds.

        Args:
            version: number of a record; 0 for none.
            known_id: its id; "" if that is not known.
        """
        known = self.known
        confirmed = known and self._clock.monotonic() - self._confirmed < CONFIRMED_FOR
        if known and not confirmed and not self._is_still(known, self._ids.get(known, "")):
            self._forget()
            confirmed = False
        if not version or (confirmed and known == version and not known_id):
            return True
        remembered = self._ids.get(version)
        if remembered is not None:
            return known_id in ("", remembered)
        return self._is_still(version, known_id)

    def _is_still(self, version: int, known_id: str) -> bool:
        try:
            found = record_id(self._fetch(version)[0])
        except NotFound:
            return False
        self._confirmed = self._clock.monotonic()
        return known_id in ("", found)

    def head(self, job_id: str, batch: Batch | None, attempts: Iterable[str] = ()) -> Head:
        """Return the end of the log, and what it tells of a job, as it is after the call began.

        Takes one request, for the record after the last known one, and one for each new record; and
        requests for the index of the last checkpoint. Raises the errors of `fetch` and `load`, and
        `CorruptRecord`.

        Args:
            job_id: the job; "" for none.
            batch: the batch that it is, or None.
            attempts: attempts whose outcomes are wanted.
        """
        return self._heads.call(_Question(job_id, batch, tuple(attempts)))

    def head_of(
        self, state: State, job_id: str, batch: Batch | None, attempts: Iterable[str] = ()
    ) -> Head:
        """Return what `head` does for the end of the log, of which `state` is the state.

        Sends requests for the index alone.
        """
        question = _Question(job_id, batch, tuple(attempts))
        try:
            older = {} if state.index is None else state.index.find(question.keys)
        except NotFound:  # later checkpoints have replaced it
            found = self.head(job_id, batch, attempts)
            return evolve(found, version=state.version, commit=state.commit, record_id=state.record_id)
        with self._lock:
            self._known = max(self._known, state.version)
            self._ids[state.version] = state.record_id
            self._confirmed = self._clock.monotonic()
        return _head(state, older, question)

    # inside

    def _answer(self, questions: Sequence[_Question]) -> list[Head | Exception]:
        try:
            state, older = self._advanced({key for question in questions for key in question.keys})
        except BaseException:
            self._forget()  # it may have been taken halfway
            raise
        return [_head(state, older, question) for question in questions]

    def _advanced(self, keys: Collection[str]) -> tuple[State, Keys]:
        """Return the state at the end of the log, and those of `keys` that the last checkpoint has."""
        while True:
            loaded = self._loaded is None
            head = self._load(keys) if self._loaded is None else self._loaded
            try:
                older = head.index.find(keys)
            except (NotFound, CorruptRecord):
                self._forget()  # a later checkpoint has replaced this one
                continue
            state = head.state
            fetched = False
            while True:
                known = self.get(state.version + 1)
                try:
                    records = known or self.read(state.version + 1)
                except NotFound:
                    break
                fetched = fetched or known is None
                for record in records:
                    state.apply(record, ())
            self._loaded = head
            with self._lock:
                self._known = max(self._known, state.version)
                self._ids[state.version] = state.record_id
            if fetched or not state.version or self._is_there(state, loaded=loaded):
                return state, older
            self._forget()

    def _is_there(self, state: State, *, loaded: bool) -> bool:
        """Return whether the last record is there and as it was, unless it was seen a moment ago."""
        if not loaded and self._clock.monotonic() - self._confirmed < CONFIRMED_FOR:
            return True
        if self._is_still(state.version, state.record_id):
            return True
        if loaded:
            raise self._missing(state.version)
        return False

    def _forget(self) -> None:
        with self._lock:
            self._loaded = None
            self._known = 0
            self._records.clear()
            self._ids.clear()


def _head(state: State, older: Keys, question: _Question) -> Head:
    """Return the answer to `question` from a state, and from the keys that are older than it."""
    wanted = {key: older[key] for key in question.keys if key in older}
    found = merged(wanted, {key: state.keys[key] for key in question.keys if key in state.keys})
    committed = found.get(job_key(question.job_id), (None, 0))[0]
    of = question.batch or Batch.named(question.job_id)
    if of is not None:
        # A batch comes after jobs that ran under ids of batches, too.
        under_ids = found.get(stream_key(of.stream), (-1, 0)) if question.batch else (-1, 0)
        for number, version in (under_ids, state.batches.get(of.stream, (-1, 0))):
            if committed is None and number >= of.number:
                committed = version
    outcomes = {attempt: found.get(attempt_key(attempt)) for attempt in question.attempts}
    return Head(
        version=state.version,
        commit=state.commit,
        schema=state.schema,
        visibility=state.visibility,
        committed=committed,
        record_id=state.record_id,
        decided={a: (each[0], bool(each[1])) for a, each in outcomes.items() if each is not None},
    )


def _interrupted() -> Exception:
    return Unavailable("the thread that read the log was interrupted; nothing was done")
