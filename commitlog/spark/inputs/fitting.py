"""Mapping of a file's columns to those of a query, for formats with a schema in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import InputUnreadable
from commitlog.spark.formats.files import COMPLAINTS
from commitlog.spark.inputs.api import Columns, Records
from commitlog.spark.inputs.rescue import as_json
from commitlog.spark.inputs.types import Misfit, extra_members, fit, matched

__all__ = ["Fitting", "sound"]

#: A batch of more bytes is handed on in parts.
BATCH_BYTES = 16 * 1024 * 1024


class Fitting:
    """How batches of a file become records.

    Args:
        path: of the file, for messages.
        found: the columns that it tells it has.
        columns: the columns to read.
        zone: that of times which bear none, as of `fit`.

    Columns are matched by name, letter case aside, and so are members of structs. What the query does
    not know is as `Columns.new` says; of a column whose structs have members that are to be rescued,
    the value is rescued as a whole. A column whose type does not fit makes the file unreadable, or is
    null and rescued.

    Raises `InputUnreadable` and `UnknownColumns`.
    """

    def __init__(
        self, path: str, found: pa.Schema, columns: Columns, *, zone: str | None = "UTC"
    ) -> None:
        self._path = path
        self._columns = columns
        self._zone = zone
        #: The columns of the query that the file has, and what these are called there.
        self._taken: list[tuple[pa.Field, str]] = []
        self._rescued: set[str] = set()
        try:
            places = matched(found.names, columns.schema.names)
            unknown = [name for number, name in enumerate(found.names) if number not in places]
            self._rescued.update(columns.check(path, unknown))
            for field, place in zip(columns.schema, places, strict=True):
                if place is not None:
                    self._take(field, found.field(place))
        except Misfit as error:
            raise InputUnreadable(f"{path!r} cannot be read: {error}") from error
        wanted = self._rescued.union(name for _, name in self._taken)
        #: The columns to read from the file, in its order.
        self.names = [name for name in found.names if name in wanted]

    def _take(self, field: pa.Field, found: pa.Field) -> None:
        if self._columns.check(self._path, extra_members(found.type, field.type, field.name)):
            self._rescued.add(found.name)
        try:
            fit(pa.nulls(0, found.type), field.type, self._zone)
        except Misfit as error:
            self._refuse(found.name, error)
            self._rescued.add(found.name)
        else:
            self._taken.append((field, found.name))

    def _refuse(self, name: str, error: Misfit) -> None:
        if self._columns.new != "rescue":
            raise InputUnreadable(f"column {name!r} of {self._path!r} does not fit: {error}") from error

    def records(self, batch: pa.RecordBatch, first: int) -> Iterator[Records]:
        """Yield a batch of the file as records; `first` is the number of its first row there.

        Raises `InputUnreadable`, which names the row, if a value does not fit and nothing is to be
        rescued; the rows before it were yielded.
        """
        rescued = set(self._rescued)
        fitted: dict[pa.Field, pa.Array] = {}
        for field, name in self._taken:
            column = batch.column(name)
            try:
                fitted[field] = fit(column, field.type, self._zone)
            except Misfit as error:
                if self._columns.new == "rescue":
                    rescued.add(name)
                    continue
                good = sound(len(column), partial(self._fit, column, field))
                if good:
                    yield from self.records(batch.slice(0, good), first)
                raise InputUnreadable(
                    f"column {name!r} of {self._path!r} does not fit in row {first + good}: {error}"
                ) from error
        kept = [name for name in self.names if name in rescued]
        rows = pa.RecordBatch.from_arrays(list(fitted.values()), schema=pa.schema(list(fitted)))
        whole = Records(
            rows if fitted else batch.select([]),
            _numbers(first, batch.num_rows) if self._columns.offsets else None,
            as_json(kept, [batch.column(name) for name in kept]),
        )
        size = max(1, len(whole) * BATCH_BYTES // max(rows.nbytes, BATCH_BYTES))
        for start in range(0, len(whole), size):
            yield whole if size >= len(whole) else whole.part(start, size)

    def _fit(self, column: pa.Array, field: pa.Field, start: int, end: int) -> None:
        fit(column.slice(start, end - start), field.type, self._zone)


def sound(count: int, check: Callable[[int, int], object]) -> int:
    """Return the number of the first element that does not pass a check.

    Args:
        count: the number of elements. One of them does not pass.
        check: raises one of `COMPLAINTS` if one of those from a number on and before another one does
            not pass.

    >>> sound(8, lambda start, end: [1 / (each - 5) for each in range(start, end)])
    5
    """
    start, end = 0, count
    while end - start > 1:
        middle = (start + end) // 2
        try:
            check(start, middle)
        except (*COMPLAINTS, Misfit):
            end = middle
        else:
            start = middle
    return start


def _numbers(first: int, count: int) -> pa.Array:
    return pc.add(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), first - 1)
