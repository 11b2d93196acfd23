"""Parser of lines of CSV and JSON: many lines at a time if the result is certain, else one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import ConfigurationError, InputUnreadable, UnknownColumns
from commitlog.files.base import BATCH_ROWS
from commitlog.files.columns import Columns, Records
from commitlog.files.compression import is_compressed
from commitlog.files.lines import Lines
from commitlog.files.rescue import quoted, standard_json

__all__ = ["WHITE", "LineParser", "LineReader", "check_encoding", "table_of"]

#: If a block of lines cannot be read at once, its lines are tried this many at a time. If these cannot
#: be read at once either, they are read one by one.
CHUNK = 128

#: White space in ASCII. A line of nothing else is not a record.
WHITE = b" \t\r\n\x0b\x0c"

#: The member of a rescued object for a line that is not a record.
_CORRUPT = "_corrupt_record"


class LineReader(Protocol):
    """Reads lines one by one.

    Attributes:
        unknown: members of the last line for which there is no column.
        misfits: members of the last line whose values do not have the column's type. They are null.
        rescued: JSON of the columns and new members of the last line with such values.
    """

    unknown: list[str]
    misfits: list[str]
    rescued: dict[str, str]

    def row(self, line: str) -> list[Any]:
        """Return the values of a line, one for each column. Raises `ValueError` for an invalid line."""


class LineParser:
    """Converts the lines of a file to records. Not thread-safe.

    Args:
        path: of the file.
        columns: the columns to read.
        lines: the rules by which the file is split into lines.
        fast: returns the rows of lines that end with line feeds, one for each, and their rescued values;
            None if the result is uncertain.
        exact: returns the reader for other lines. Both readers return the same row for the same line.
        white: a line of nothing but these bytes is not a record.
    """

    def __init__(
        self,
        path: str,
        columns: Columns,
        lines: Lines,
        *,
        fast: Callable[[bytes], tuple[pa.Table, pa.Array | None] | None],
        exact: Callable[[], LineReader],
        white: bytes = WHITE,
    ) -> None:
        self._path = path
        self._columns = columns
        self._lines = lines
        self._fast = fast
        self._make_exact = exact
        self._exact: LineReader | None = None
        self._white = white

    def block(self, at: int, block: bytes) -> Iterator[Records]:
        """Yield the records of a block of lines.

        Args:
            at: offset of the block in the content of the file.
            block: lines, as `Lines.read` yields them.

        Raises:
            InputUnreadable: a line is not a record, or a value does not have its column's type, and the
                policy is not to rescue. All records before were yielded.
            UnknownColumns: there are new columns, and the policy is to fail.
        """
        found = self._read_fast(block)
        if found is None:
            found_lines = self._lines.records(at, block, white=self._white)
            yield from self.lines((begin, line) for begin, _, line in found_lines)
        else:
            begins = pc.add(self._lines.split(block)[1], at) if self._columns.offsets else None
            yield from _batches(*found, begins)

    def lines(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Records]:
        """Yield the records of lines without their ends, each with its offset. Raises as `block`."""
        for chunk in self._chunks(lines):
            if chunk:
                yield from self._chunk(chunk)

    def _chunks(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
        chunk: list[tuple[int, bytes]] = []
        try:
            for at, line in lines:
                if line.strip(self._white):
                    chunk.append((at, line))
                    if len(chunk) >= CHUNK:
                        yield chunk
                        chunk = []
        except InputUnreadable:
            yield chunk
            raise
        yield chunk

    def _chunk(self, chunk: list[tuple[int, bytes]]) -> Iterator[Records]:
        found = self._read_fast(b"\n".join([line for _, line in chunk]))
        problem: Exception | None = None
        if found is None or len(found[0]) != len(chunk):
            rows: list[list[Any]] = []
            rescued: list[str | None] = []
            for at, line in chunk:
                try:
                    row, members = self._row(at, line)
                except (InputUnreadable, UnknownColumns) as error:
                    problem = error
                    break
                rows.append(row)
                rescued.append(members)
            texts = pa.array(rescued, pa.string()) if any(rescued) else None
            found = table_of(rows, self._columns.schema), texts
        places = [at for at, _ in chunk[: len(found[0])]]
        yield from _batches(*found, pa.array(places, pa.int64()) if self._columns.offsets else None)
        if problem is not None:
            raise problem

    def _read_fast(self, lines: bytes) -> tuple[pa.Table, pa.Array | None] | None:
        separator = self._lines.separator
        # Between other separators, a line may contain what the fast reader takes for the end of a line.
        if separator is None or (separator == b"\n" and b"\r" not in lines):
            return self._fast(lines)
        return None

    def _row(self, at: int, line: bytes) -> tuple[list[Any], str | None]:
        reader = self._exact = self._exact or self._make_exact()
        rescue = self._columns.new == "rescue"
        try:
            row = reader.row(line.decode())
        except ValueError as error:
            if not rescue:
                raise self._unreadable(at, str(error)) from error
            text = line.decode(errors="backslashreplace")
            return [None] * len(self._columns.schema), f'{{"{_CORRUPT}":{quoted(text)}}}'
        if reader.unknown:
            self._columns.check(self._path, reader.unknown)
        if reader.misfits and not rescue:
            name = reader.misfits[0]
            schema = self._columns.schema
            kind = f", {schema.field(name).type}" if name in schema.names else ""
            raise self._unreadable(at, f"the value of {name!r} is not of its type{kind}")
        if not rescue or not reader.rescued:
            return row, None
        members = [f"{quoted(name)}:{standard_json(text)}" for name, text in reader.rescued.items()]
        return row, "{" + ",".join(members) + "}"

    def _unreadable(self, at: int, why: str) -> InputUnreadable:
        return InputUnreadable(
            f"{self._path!r} cannot be read further than to byte {at}: {why}",
            # A position in decompressed content has no known position in the object.
            offset=None if is_compressed(self._path) else at,
        )


def _batches(table: pa.Table, rescued: pa.Array | None, begins: pa.Array | None) -> Iterator[Records]:
    first = 0
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield Records(
            batch,
            None if begins is None else begins.slice(first, len(batch)),
            None if rescued is None else rescued.slice(first, len(batch)),
        )
        first += len(batch)


def table_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return rows of `LineReader.row` as a table."""
    if not schema.names:
        # A table without columns does not know its number of rows.
        return pa.table([pa.nulls(len(rows))], names=[""]).select([])
    columns: Sequence[Any] = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def check_encoding(options: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` if options ask for another encoding than UTF-8."""
    for name in ("encoding", "charset"):
        value = options.get(name, "UTF-8")
        if value.lower().replace("_", "-") not in ("utf-8", "utf8", "us-ascii"):
            raise ConfigurationError(
                f"option {name} is {value!r}, and only UTF-8 can be read: convert files, or read them"
                " as binaryFile"
            )
