"""What a process remembers of a log: its last records, and what the beginning of a job needs to know.

Records are never changed, so a remembered record is as good as one that is read again. Only the end of
the log is asked for each time. Callers that ask at the same time share the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import frozen

from commitlog._util.batching import Batcher, new_lock
from commitlog.clock import Clock
from commitlog.errors import CorruptRecord, NotFound, Unavailable
from commitlog.outputs.checkpoints import CheckpointHead
from commitlog.outputs.job import Batch, Visibility
from commitlog.outputs.records import CommitRecord, Record
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
    """

    version: int
    commit: int
    schema: str | None
    visibility: Visibility | None
    committed: int | None


@frozen
class _Question:
    job_id: str
    batch: Batch | None


class LogCache:
    """The memory of one log. Thread-safe.

    Args:
        fetch: reads the content of a record; raises `NotFound` if there is none of that number.
        load: returns the head of the last checkpoint, whose index has found some job ids.
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
        self._lock = new_lock()
        self._records: dict[int, tuple[Record, ...]] = {}
        self._loaded: CheckpointHead | None = None
        self._known = 0
        self._confirmed = 0.0
        self._heads: Batcher[_Question, Head] = Batcher(self._answer, interrupted=_interrupted)

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
        if sum(len(each.files) + len(each.replaced) for each in commits) > REMEMBERED_FILES:
            return
        with self._lock:
            self._confirmed = self._clock.monotonic()
            self._records[version] = records
            while len(self._records) > REMEMBERED_RECORDS:
                del self._records[next(iter(self._records))]

    def head(self, job_id: str, batch: Batch | None) -> Head:
        """Return the end of the log, and whether a job is committed, as it is after the call began.

        Takes one request, for the record after the last known one, and one for each new record; and a
        request for the job ids of the last checkpoint, at the first call and at the first call of
        another job. Raises the errors of `fetch` and `load`, and `CorruptRecord`.
        """
        return self._heads.call(_Question(job_id, batch))

    def head_of(self, state: State, job_id: str, batch: Batch | None) -> Head:
        """Return the end of the log, of which `state` is the state. Sends no request."""
        with self._lock:
            self._known = max(self._known, state.version)
        return _head(state, {}, _Question(job_id, batch))

    # inside

    def _answer(self, questions: Sequence[_Question]) -> list[Head | Exception]:
        try:
            state, older = self._advanced({question.job_id for question in questions})
        except BaseException:
            self._forget()  # it may have been taken halfway
            raise
        return [_head(state, older, question) for question in questions]

    def _advanced(self, job_ids: Collection[str]) -> tuple[State, Mapping[str, int]]:
        """Return the state at the end of the log, and the `job_ids` that the last checkpoint has."""
        while True:
            loaded = self._loaded is None
            head = self._load(job_ids) if self._loaded is None else self._loaded
            try:
                jobs = head.jobs.find(job_ids)
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
            if fetched or not state.version or self._is_there(state.version, loaded=loaded):
                return state, jobs
            self._forget()

    def _is_there(self, version: int, *, loaded: bool) -> bool:
        """Return whether the last record is there and as it was, unless it was seen a moment ago."""
        now = self._clock.monotonic()
        if not loaded and now - self._confirmed < CONFIRMED_FOR:
            return True
        try:
            found = self._fetch(version)
        except NotFound:
            if loaded:
                raise self._missing(version) from None
            return False
        self._confirmed = now
        return self._records.get(version, found) == found

    def _forget(self) -> None:
        with self._lock:
            self._loaded = None
            self._known = 0
            self._records.clear()


def _head(state: State, older: Mapping[str, int], question: _Question) -> Head:
    """Return the answer to `question` from a state, and from the jobs that are older than it."""
    committed = older.get(question.job_id, state.jobs.get(question.job_id))
    of = question.batch or Batch.named(question.job_id)
    if of is not None:
        number, version = state.batches.get(of.stream, (-1, 0))
        committed = version if number >= of.number else committed
    return Head(
        version=state.version,
        commit=state.commit,
        schema=state.schema,
        visibility=state.visibility,
        committed=committed,
    )


def _interrupted() -> Exception:
    return Unavailable("the thread that read the log was interrupted; nothing was done")
