"""Interface of the input formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias

import pyarrow as pa
from attrs import field, frozen

from commitlog.errors import ConfigurationError, UnknownColumns
from commitlog.ingest import Pinned, Slice
from commitlog.urls import parse_store_url

__all__ = ["BATCH_ROWS", "Columns", "Input", "NewColumns", "Records", "location"]

#: Rows that an input hands on at a time, at most.
BATCH_ROWS = 64 * 1024

#: What to do about columns that a file has and the query does not know.
NewColumns: TypeAlias = Literal["ignore", "fail", "rescue"]


@frozen(kw_only=True)
class Columns:
    """The columns that a query reads from the content of files.

    Attributes:
        schema: columns and their types. Files may lack some.
        new: policy for other columns. ``rescue`` also keeps values that are not of their column's type.
        told: names of the columns of `schema` whose values the path of the file contains as well. A file
            that identifies columns by position only does not contain them.
        offsets: whether records need their places.
    """

    schema: pa.Schema
    new: NewColumns = field(default="ignore")
    told: frozenset[str] = frozenset()
    offsets: bool = False

    def check(self, path: str, names: Sequence[str]) -> list[str]:
        """Return those of a file's columns `names` that are to be rescued.

        Raises `UnknownColumns` if there are new ones, and that is the policy.

        >>> columns = Columns(schema=pa.schema([("a", pa.int64())]), new="rescue")
        >>> columns.check("x", ["a", "b"])
        ['b']
        """
        if self.new == "ignore":
            return []
        news = [name for name in names if name not in self.schema.names]
        if news and self.new == "fail":
            raise UnknownColumns(
                f"{path!r} has columns that the query does not know: {', '.join(map(repr, news))}. Give"
                " them in its schema, or set option newColumns to ignore or rescue; nothing was lost"
            )
        return news


@frozen
class Records:
    """Some records of a slice, one after the other.

    Attributes:
        batch: those columns of `Columns.schema` that the file has, of these types, in any order.
        offsets: int64: where each record begins. In text, the byte of the content (as decompressed); in
            formats with rows, the row's number in its file, from 0. None if it was not asked for.
        rescued: string: for each record a JSON object of what `batch` could not take, or null. None if
            all are null.
    """

    batch: pa.RecordBatch
    offsets: pa.Array | None = None
    rescued: pa.Array | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def part(self, first: int, size: int) -> Records:
        """Return `size` of the records, from the given one on, or as many as there are."""
        return Records(
            self.batch.slice(first, size),
            None if self.offsets is None else self.offsets.slice(first, size),
            None if self.rescued is None else self.rescued.slice(first, size),
        )


class Input(ABC):
    """A kind of file, as the options of a query describe it. Thread-safe; pickled along with readers.

    Args:
        options: those of `options` that were given, by their documented names.

    Raises `ConfigurationError` for a value that is none.
    """

    #: As option ``fileFormat`` has it.
    name: ClassVar[str]
    #: The options that it knows, as documented.
    options: ClassVar[tuple[str, ...]] = ()
    #: Whether whatever a file has can be read as a string: see `merge`.
    strings: ClassVar[bool] = False
    #: The columns that all of its files have, if there is nothing to infer.
    fixed: ClassVar[pa.Schema | None] = None

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def splits(self, path: str) -> bool:
        """Tell whether slices of this file can be read: not if it is compressed as a whole, say."""
        return False

    def check(self, columns: Columns) -> None:  # noqa: B027 - most formats hold everything
        """Raise `NotSupported`, with name and type, if files cannot have one of the columns."""

    @abstractmethod
    def infer(self, sample: Pinned) -> pa.Schema:
        """Return the columns that a file has, as far as a look at it tells. Of few bytes, if possible.

        A column of which nothing but nulls was seen is of type null. Raises `InputUnreadable`.
        """

    @abstractmethod
    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """Yield the records that begin in a slice, in order, the same ones each time.

        Memory is bounded by the size of one read and of the largest record.

        Raises:
            InputUnreadable: the next record is not valid; all records before it were yielded. Under
                ``rescue``, an invalid record or value is rescued instead, if possible.
            UnknownColumns: there are new columns, and the policy is to fail.
            InputChanged, InputMissing: as `Pinned.get`.
        """

    def _flag(self, name: str, default: bool) -> bool:
        value = self._options.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise ConfigurationError(f"option {name} is {value!r}: give true or false")
        return value == "true"


def location(store: str, path: str) -> str:
    """Return the URL of an object, readable rather than quoted, and without options.

    >>> location("s3://landing/events?region=eu-west-1", "a b/c%.json")
    's3://landing/events/a b/c%.json'
    """
    url = parse_store_url(store)
    prefix = f"{url.prefix}/" if url.prefix else ""
    return f"{url.scheme}://{url.name}/{prefix}{path}"
