"""Quarantine of slices that could not be read: one row each in the state table, until a retry.

Executors write the rows, operators read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Literal, TypeAlias

from attrs import evolve, field, frozen

from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import OutcomeUnknown, TransactionCanceled, Unavailable
from commitlog.ingest.files import Slice
from commitlog.ingest.source_state import INGEST_SCHEMA, document_of
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.validate import build, count, flag, maybe_count, moment, text
from commitlog.tables.api import Absent, ConditionFailed, Equals, Item, Key, Put, Table

__all__ = ["PROBLEMS", "WANTED", "InputProblem", "Kind", "Quarantine", "wanted_slice"]

#: Prefixes of the range keys of problems and of slices to retry. The latter sort last, so that a query
#: for them reads no other items.
PROBLEMS = "problem/"
WANTED = "wanted/"

#: The object's content has changed since the listing; the object is missing; its content is unreadable.
Kind: TypeAlias = Literal["changed", "missing", "unreadable"]

_PROBLEM, _WANTED = "ingest-problem", "ingest-wanted"
_MAX_ERROR_CHARS = 2000


@frozen(kw_only=True)
class InputProblem:
    """A slice that was not delivered, or not completely.

    Attributes:
        source: id of the source.
        epoch: number of the epoch.
        slice: the slice.
        kind: kind of the problem.
        error: message of the error.
        records: number of records that were delivered, counted from the start of the slice.
        offset: byte of the object at which reading failed, if known.
        time: epoch seconds by the executor's clock, for display only.
        retried: whether the slice was handed out again since.
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
        """Id of the problem; the same for each attempt at the slice in this epoch. It sorts by epoch."""
        file = self.slice.file
        what = f"{file.path}\0{file.etag}\0{self.slice.start}\0{self.slice.skip}"
        return f"{self.epoch:020d}/{hashlib.sha256(what.encode()).hexdigest()[:32]}"

    @property
    def may_come_back(self) -> bool:
        """Whether the object was not the listed version. If it is again, the slice can be read."""
        return self.kind != "unreadable"

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
    def from_item(cls, item: Item) -> InputProblem:
        """Return the problem in a row. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _PROBLEM)
        fields = document.body

        def make() -> InputProblem:
            kind = text(fields["what"])
            if kind not in ("changed", "missing", "unreadable"):
                raise ValueError(f"unknown kind of problem {kind!r}")
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
    """Return the slice in a row under `WANTED`, a request to read it again."""
    document = document_of(item, _WANTED)
    return build(document, lambda: Slice.from_json(document.body["slice"]))


class Quarantine:
    """The problems of one source. Thread-safe.

    Args:
        table: the state table.
        source: the source's id.
        clock: sets the times of problems; also waits between attempts to write.
        backoff: retry policy of writes.
        new_id: returns a new id for each call, as a token of a transaction.
    """

    def __init__(
        self,
        table: Table,
        source: str,
        *,
        clock: Clock,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self._table = table
        self._source = source
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._new_id = new_id

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
        """Store a problem. Of several reports of a slice in an epoch, the first one is kept.

        When this returns, the problem is stored. Raises `Unavailable` or `OutcomeUnknown` if it may not
        be stored: then the task must fail, or else the slice is skipped without a trace.
        """
        problem = InputProblem(
            source=self._source,
            epoch=epoch,
            slice=slice,
            kind=kind,
            error=error[:_MAX_ERROR_CHARS].encode("utf-8", "replace").decode(),
            records=records,
            offset=offset,
            time=self._clock.epoch(),
        )
        with suppress(ConditionFailed):
            self._backoff.retry(
                self._clock,
                lambda: self._table.put(problem.to_item(), condition=Absent()),
                on=(OutcomeUnknown, Unavailable),
            )

    def __iter__(self) -> Iterator[InputProblem]:
        """Yield all problems, retried ones included, in the order of their epochs."""
        return self.since(0)

    def since(self, epoch: int) -> Iterator[InputProblem]:
        """Yield the problems of an epoch and of all later ones, retried ones included."""
        for item in self._table.query(self._source, start_after=f"{PROBLEMS}{epoch:020d}"):
            if not str(item["item"]).startswith(PROBLEMS):
                return
            yield InputProblem.from_item(item)

    def undelivered(self, epoch: int) -> frozenset[Slice]:
        """Return the slices that an attempt at an epoch has left out, as their objects had changed.

        Later attempts leave them out as well: the problem may be the reason to deliver them again.
        """
        found = takewhile(lambda problem: problem.epoch == epoch, self.since(epoch))
        return frozenset(problem.slice for problem in found if problem.may_come_back)

    def retry(self, problem: InputProblem) -> bool:
        """Hand the rest of a slice, from the first record not delivered, out again in the next epoch.

        Returns False if the slice was retried before. A call whose outcome is unknown can be repeated.
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

    def remove(self, problem: InputProblem) -> None:
        """Delete a problem."""
        self._table.delete(problem.key)
