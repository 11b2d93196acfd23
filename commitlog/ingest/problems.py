"""Slices that could not be read: a row for each in the state table, until somebody has them read again.

Written by executors, read by operators. Imports its siblings and the `Table` and `Clock` ports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from attrs import evolve, field, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import CommitError, OutcomeUnknown, TransactionCanceled, Unavailable
from commitlog.ingest.files import Slice
from commitlog.ingest.head import INGEST_SCHEMA, document_of
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.fields import build, count, flag, maybe_count, moment, text
from commitlog.tables.api import Absent, ConditionFailed, Equals, Item, Key, Put, Table
from commitlog.words import random_word

__all__ = ["PROBLEMS", "WANTED", "Kind", "Problem", "Problems", "wanted_slice"]

#: What the range keys of problems begin with, and those of slices that are to be read again. The latter
#: come last in the order of keys, so that asking for them reads nothing else.
PROBLEMS = "problem/"
WANTED = "wanted/"

#: The object has another content than was listed; it is gone; its content cannot be read.
Kind: TypeAlias = Literal["changed", "missing", "unreadable"]

_PROBLEM, _WANTED = "ingest-problem", "ingest-wanted"
_MAX_ERROR_CHARS = 2000


@frozen(kw_only=True)
class Problem:
    """A slice of which some or all was not delivered.

    Attributes:
        source: of which source.
        epoch: of which epoch.
        slice: what was to be read.
        kind: what is wrong.
        error: the error's message.
        records: how many of the slice's records were delivered, counted from its start.
        offset: byte of the object at which reading failed, if known.
        time: epoch seconds by the executor's clock, for people.
        retried: whether it was handed out again since.
    """

    source: str
    epoch: int
    slice: Slice
    kind: Kind
    error: str
    records: int = 0
    offset: int | None = None
    time: float = field(eq=False)
    retried: bool = False

    @property
    def name(self) -> str:
        """Names the problem; the same for each attempt at the slice in this epoch."""
        file = self.slice.file
        what = f"{self.epoch}\0{file.path}\0{file.etag}\0{self.slice.start}\0{self.slice.skip}"
        return hashlib.sha256(what.encode()).hexdigest()[:32]

    @property
    def key(self) -> Key:
        """The key of its row."""
        return Key(self.source, PROBLEMS + self.name)

    def to_item(self) -> Item:
        """Return its row."""
        body = {
            "epoch": self.epoch,
            "slice": self.slice.to_json(),
            "what": self.kind,
            "error": self.error,
            "records": self.records,
            "offset": self.offset,
            "time": self.time,
            "retried": self.retried,
        }
        return {
            INGEST_SCHEMA.hash_key: self.source,
            "item": PROBLEMS + self.name,
            "retried": self.retried,
            "body": encode(Document(_PROBLEM, body)),
        }

    @classmethod
    def from_item(cls, item: Item) -> Problem:
        """Return the problem that a row tells of. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _PROBLEM)
        fields = document.body

        def make() -> Problem:
            kind = text(fields["what"])
            if kind not in ("changed", "missing", "unreadable"):
                raise ValueError(f"{kind!r} is no kind of problem")
            return cls(
                source=text(item.get("source")),
                epoch=count(fields["epoch"]),
                slice=Slice.from_json(fields["slice"]),
                kind=kind,  # type: ignore[arg-type]
                error=text(fields["error"]),
                records=count(fields["records"]),
                offset=maybe_count(fields["offset"]),
                time=moment(fields["time"]),
                retried=flag(fields["retried"]),
            )

        return build(document, make)


def wanted_slice(item: Item) -> Slice:
    """Return the slice of a row that says that it is to be read again."""
    document = document_of(item, _WANTED)
    return build(document, lambda: Slice.from_json(document.body["slice"]))


class Problems:
    """The problems of one source. Thread-safe.

    Args:
        table: the state table.
        source: the source's id.
        clock: dates them; waited on between attempts at writing.
        backoff: how writing is tried again.
        words: makes a new word with each call, for tokens of transactions.
    """

    def __init__(
        self,
        table: Table,
        source: str,
        *,
        clock: Clock,
        backoff: Backoff | None = None,
        words: Callable[[], str] = random_word,
    ) -> None:
        self._table = table
        self._source = source
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._words = words

    def report(
        self,
        epoch: int,
        slice: Slice,
        kind: Kind,
        error: str,
        *,
        records: int = 0,
        offset: int | None = None,
    ) -> None:
        """Keep a problem. The first attempt that reports a slice in an epoch is the one that is kept.

        When this returns, it is stored. Raises `Unavailable` or `OutcomeUnknown` if that stays open:
        then the task must fail, or the slice would be skipped in silence.
        """
        problem = Problem(
            source=self._source,
            epoch=epoch,
            slice=slice,
            kind=kind,
            error=error[:_MAX_ERROR_CHARS].encode("utf-8", "replace").decode(),
            records=records,
            offset=offset,
            time=self._clock.epoch(),
        )
        last: CommitError | None = None
        for _ in self._backoff.attempts(self._clock):
            try:
                self._table.put(problem.to_item(), condition=Absent())
                return
            except ConditionFailed:
                return
            except (OutcomeUnknown, Unavailable) as error_:
                last = error_
        assert last is not None
        raise last

    def __iter__(self) -> Iterator[Problem]:
        """Yield all, in no particular order, those included that were handed out again."""
        for item in self._table.query(self._source, start_after=PROBLEMS):
            if not str(item["item"]).startswith(PROBLEMS):
                return
            yield Problem.from_item(item)

    def retry(self, problem: Problem) -> bool:
        """Have what was not delivered of a slice handed out again, with the next epoch.

        Returns False if that was done before. A call whose outcome is unknown can be repeated.
        """
        rest = evolve(problem.slice, skip=problem.records)
        wanted: Item = {
            INGEST_SCHEMA.hash_key: self._source,
            "item": WANTED + problem.name,
            "body": encode(Document(_WANTED, {"slice": rest.to_json()})),
        }
        done = evolve(problem, retried=True)
        try:
            self._table.transact([Put(done.to_item(), Equals("retried", False)), Put(wanted, Absent())])
        except TransactionCanceled:
            return False
        return True

    def remove(self, problem: Problem) -> None:
        """Forget a problem."""
        self._table.delete(problem.key)
