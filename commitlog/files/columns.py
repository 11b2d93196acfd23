"""Columns of input files, and how the columns of a file become the columns of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from commitlog.errors import InputUnreadable, UnknownColumns
from commitlog.files.io import READER_ERRORS
from commitlog.files.rescue import as_json
from commitlog.files.types import TypeMismatch, convert, match_names, unknown_members

__all__ = ["BATCH_BYTES", "ColumnMapping", "Columns", "NewColumns", "Records", "first_failure"]

#: A batch of more Arrow bytes is yielded in parts.
BATCH_BYTES = 16 * 1024 * 1024

#: The policy for columns that a file has and the query lacks.
NewColumns: TypeAlias = Literal["ignore", "fail", "rescue"]


@frozen(kw_only=True)
class Columns:
    """The columns that a query reads from the content of files.

    Attributes:
        schema: columns and their types. Files may lack some.
        new: policy for other columns. ``rescue`` also keeps values that are not of their column's type.
        in_path: names of the columns of `schema` whose values the path of the file contains as well. A
            file that identifies columns by position only does not contain them.
        offsets: whether `Records` need their offsets.
    """

    schema: pa.Schema
    new: NewColumns = "ignore"
    in_path: frozenset[str] = frozenset()
    offsets: bool = False

    def check(self, path: str, names: Sequence[str]) -> list[str]:
        """Return the columns among `names` of a file that are new and must be rescued.

        Raises `UnknownColumns` if there are new columns, and the policy is to fail.

        >>> columns = Columns(schema=pa.schema([("a", pa.int64())]), new="rescue")
        >>> columns.check("x", ["a", "b"])
        ['b']
        """
        if self.new == "ignore":
            return []
        unknown = [name for name in names if name not in self.schema.names]
        if unknown and self.new == "fail":
            raise UnknownColumns(
                f"{path!r} has columns that the query does not know: {', '.join(map(repr, unknown))}."
                " Give them in its schema, or set option newColumns to ignore or rescue; nothing was"
                " lost"
            )
        return unknown


@frozen
class Records:
    """Consecutive records of a slice.

    Attributes:
        batch: the columns of `Columns.schema` that the file has, of these types, in any order.
        offsets: int64: where each record begins. In text, the byte of the content (as decompressed); in
            formats with rows, the row's number in its file, from 0. None if `Columns.offsets` is false.
        rescued: string: for each record a JSON object of the values that are not in `batch`, or null.
            None if all are null.
    """

    batch: pa.RecordBatch
    offsets: pa.Array | None = None
    rescued: pa.Array | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def slice(self, first: int, size: int) -> Records:
        """Return at most `size` of the records, from record `first` on."""
        return Records(
            self.batch.slice(first, size),
            None if self.offsets is None else self.offsets.slice(first, size),
            None if self.rescued is None else self.rescued.slice(first, size),
        )


class ColumnMapping:
    """How batches of one file become records, for formats with a schema in the file.

    Columns are matched by name, letter case aside, and so are members of structs. `Columns.new` is the
    policy for columns that the query lacks. If structs of a column have members to rescue, the value of
    the column is rescued as a whole. A column with another type makes the file unreadable; under
    ``rescue``, its values are null and rescued.

    Args:
        path: of the file, for messages.
        found: the columns of the file.
        columns: the columns to read.
        zone: time zone of times without one, as for `convert`.

    Raises `InputUnreadable` and `UnknownColumns`.
    """

    def __init__(
        self, path: str, found: pa.Schema, columns: Columns, *, zone: str | None = "UTC"
    ) -> None:
        self._path = path
        self._columns = columns
        self._zone = zone
        #: The columns of the query that the file has, and their names in the file.
        self._known: list[tuple[pa.Field, str]] = []
        self._rescued: set[str] = set()
        try:
            places = match_names(found.names, columns.schema.names)
            unknown = [name for number, name in enumerate(found.names) if number not in places]
            self._rescued.update(columns.check(path, unknown))
            for field, place in zip(columns.schema, places, strict=True):
                if place is not None:
                    self._add(field, found.field(place))
        except TypeMismatch as error:
            raise InputUnreadable(f"{path!r} cannot be read: {error}") from error
        wanted = self._rescued.union(name for _, name in self._known)
        #: The columns to read from the file, in its order.
        self.names = [name for name in found.names if name in wanted]

    def _add(self, field: pa.Field, found: pa.Field) -> None:
        if self._columns.check(self._path, unknown_members(found.type, field.type, field.name)):
            self._rescued.add(found.name)
        try:
            convert(pa.nulls(0, found.type), field.type, self._zone)
        except TypeMismatch as error:
            if self._columns.new != "rescue":
                raise InputUnreadable(
                    f"column {found.name!r} of {self._path!r} does not fit: {error}"
                ) from error
            self._rescued.add(found.name)
        else:
            self._known.append((field, found.name))

    def records(self, batch: pa.RecordBatch, first: int) -> Iterator[Records]:
        """Yield a batch of the file as records; `first` is the number of its first row in the file.

        Raises `InputUnreadable`, which names the row, if a value cannot be converted and is not rescued;
        the rows before it were yielded.
        """
        rescued = set(self._rescued)
        converted: dict[pa.Field, pa.Array] = {}
        for field, name in self._known:
            column = batch.column(name)
            try:
                converted[field] = convert(column, field.type, self._zone)
            except TypeMismatch as error:
                if self._columns.new == "rescue":
                    rescued.add(name)
                    continue
                good = first_failure(len(column), partial(self._convert_range, column, field))
                if good:
                    yield from self.records(batch.slice(0, good), first)
                raise InputUnreadable(
                    f"column {name!r} of {self._path!r} does not fit in row {first + good}: {error}"
                ) from error
        kept = [name for name in self.names if name in rescued]
        rows = pa.RecordBatch.from_arrays(list(converted.values()), schema=pa.schema(list(converted)))
        whole = Records(
            rows if converted else batch.select([]),
            _numbers(first, batch.num_rows) if self._columns.offsets else None,
            as_json(kept, [batch.column(name) for name in kept]),
        )
        size = max(1, len(whole) * BATCH_BYTES // max(rows.nbytes, BATCH_BYTES))
        for start in range(0, len(whole), size):
            yield whole if size >= len(whole) else whole.slice(start, size)

    def _convert_range(self, column: pa.Array, field: pa.Field, start: int, end: int) -> None:
        convert(column.slice(start, end - start), field.type, self._zone)


def first_failure(count: int, check: Callable[[int, int], object]) -> int:
    """Return the number of the first element that fails a check, by bisection.

    Args:
        count: the number of elements. At least one fails.
        check: checks the elements from one number up to, but without, another; raises one of
            `READER_ERRORS` if one of them fails.

    >>> first_failure(8, lambda start, end: [1 / (each - 5) for each in range(start, end)])
    5
    """
    start, end = 0, count
    while end - start > 1:
        middle = (start + end) // 2
        try:
            check(start, middle)
        except READER_ERRORS:
            end = middle
        else:
            start = middle
    return start


def _numbers(first: int, count: int) -> pa.Array:
    return pc.add(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), first - 1)
