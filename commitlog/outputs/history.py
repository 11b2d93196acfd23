"""The history of an output: what its last commits added, and how much it held after each of them.

The log is read from the newest checkpoint on, as for an inspection, and backwards from there for as many
records as the caller wants. So the cost does not grow with the log. A record has the files that it adds,
but not the sizes of all files that it replaces. So the size of the output after a commit is computed
from a known state: an earlier one, from which the log is replayed, or a later one, by subtraction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from commitlog._util.bounded import Bound
from commitlog.errors import ConfigurationError, CorruptRecord, NotFound
from commitlog.outputs.job import NAMING, Mode
from commitlog.outputs.log import CommitLog
from commitlog.outputs.records import CommitRecord, Record
from commitlog.outputs.state import State

__all__ = ["CommitSummary", "OutputHistory", "read_history"]


@frozen(kw_only=True)
class CommitSummary:
    """What a commit added, and what the output held after it. Sizes are in bytes.

    Attributes:
        version: its version.
        job_id: its job.
        mode: the mode of its job.
        time: epoch seconds by the clock of its driver.
        added_files: number of files that it added.
        added_bytes: their size.
        added_rows: their rows; None if the rows of a file are not known.
        files: number of files of the output; None if it is not known.
        bytes: their size; None if it is not known.
    """

    version: int
    job_id: str
    mode: Mode
    time: float
    added_files: int
    added_bytes: int
    added_rows: int | None
    files: int | None
    bytes: int | None


@frozen(kw_only=True)
class OutputHistory:
    """The last commits of an output, and the sizes of its files.

    Attributes:
        first: number of the first record that was read; 1 if the whole log was.
        last: number of the last one; 0 if there is none.
        commits: the commits among these records, by version.
        sizes: sizes in bytes of the files of the last version, the smallest first.
        complete: False if a record could not be read, or the log has more records than were to be read.
    """

    first: int
    last: int
    commits: tuple[CommitSummary, ...]
    sizes: tuple[int, ...]
    complete: bool

    @property
    def measured(self) -> int | None:
        """The first version from which on the size of the output is known; None if it never is."""
        return next((each.version for each in self.commits if each.bytes is not None), None)


@frozen
class _Total:
    """Number and size of the files of an output."""

    files: int
    bytes: int


def read_history(log: CommitLog, *, last: int, limit: int | None) -> OutputHistory:
    """Return the history of an output; see `Output.history`.

    Args:
        log: the log of the output.
        last, limit: see `Output.history`.
    """
    if last < 1:
        raise ConfigurationError(f"the history of {last} records cannot be read: give 1 or more")
    newest = log.checkpoints.load()
    bound = Bound(limit)
    tail, whole = _read_tail(log, newest.version, bound)
    end = tail[-1].version if tail else newest.version
    older = _read_back(log, after=max(end - last, 0), until=newest.version)
    first = older[0].version if older else newest.version + 1
    records = [*older, *tail]
    state, known = _start(log, newest, older, first)
    totals = _subtract(older, state) if known else {}
    intact = _replay(log, state, records, totals)
    return OutputHistory(
        first=max(first, end - last + 1, 1),
        last=end,
        commits=tuple(
            _summary(each, totals.get(each.version))
            for each in records
            if isinstance(each, CommitRecord) and each.version > end - last
        ),
        sizes=tuple(sorted(file.size for file in state.files.values())),
        complete=bound.complete and whole and intact and first <= max(end - last + 1, 1),
    )


def _read_tail(log: CommitLog, after: int, bound: Bound) -> tuple[list[Record], bool]:
    """Return the records after number `after`, and whether all could be read."""
    found: list[Record] = []
    try:
        found.extend(bound.take(log.read(after)))
    except CorruptRecord:
        return found, False
    return found, True


def _read_back(log: CommitLog, *, after: int, until: int) -> list[Record]:
    """Return the records from `until` back to the one after number `after`, or to an unreadable one."""
    found: list[Record] = []
    for version in range(until, after, -1):
        try:
            found.extend(reversed(log.get(version)))
        except (CorruptRecord, NotFound):
            break
    return found[::-1]


def _start(log: CommitLog, newest: State, older: list[Record], first: int) -> tuple[State, bool]:
    """Return the earliest state from which the records can be replayed, and whether it is complete."""
    if first == 1:
        return State(), True
    for record in older:
        # Whatever the output held before this commit, nothing of it is left.
        if isinstance(record, CommitRecord) and record.mode == "overwrite":
            return State(version=record.version - 1), False
    return log.checkpoints.load_first(first - 1, newest.version - 1) or newest, True


def _total(state: State) -> _Total:
    return _Total(len(state.files), sum(file.size for file in state.files.values()))


def _replay(log: CommitLog, state: State, records: Iterable[Record], totals: dict[int, _Total]) -> bool:
    """Take `state` to the last record, and add its totals; return whether every record was read."""
    size, begun = _total(state).bytes, state.version
    for record in records:
        if record.version <= begun:
            continue
        try:
            gone = log.apply(record, state)
        except CorruptRecord:
            return False
        if isinstance(record, CommitRecord):
            size += record.bytes - sum(file.size for file in gone)
        totals[record.version] = _Total(len(state.files), size)
    return True


def _subtract(older: list[Record], state: State) -> dict[int, _Total]:
    """Return the totals at the records up to `state`, from the last one back to the last that tells."""
    now = _total(state)
    totals: dict[int, _Total] = {}
    known = {
        file.path: file.size for each in older if isinstance(each, CommitRecord) for file in each.files
    }
    for record in reversed(older):
        if record.version > state.version:
            continue
        totals.setdefault(record.version, now)  # of jobs that share a record, the last one comes first
        if isinstance(record, CommitRecord):
            gone = _replaced(record, known)
            if gone is None:
                break
            now = _Total(
                now.files - record.file_count + gone.files, now.bytes - record.bytes + gone.bytes
            )
    return totals


def _replaced(record: CommitRecord, known: Mapping[str, int]) -> _Total | None:
    """Return number and size of the files that a commit replaced; None if the record does not tell."""
    if not record.replaces:
        return _Total(0, 0)
    if record.mode not in NAMING or not known.keys() >= set(record.replaced):
        return None
    named = record.replaced_manifests
    return _Total(
        record.replaced_count,
        sum(known[path] for path in record.replaced) + sum(each.bytes for each in named),
    )


def _summary(record: CommitRecord, total: _Total | None) -> CommitSummary:
    return CommitSummary(
        version=record.version,
        job_id=record.job_id,
        mode=record.mode,
        time=record.time,
        added_files=record.file_count,
        added_bytes=record.bytes,
        added_rows=record.rows,
        files=None if total is None else total.files,
        bytes=None if total is None else total.bytes,
    )
