"""Lines of text to records: many at a time where that is sure, and one by one where it is not.

What JSON and CSV share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import ConfigurationError, InputUnreadable, UnknownColumns
from commitlog.spark.formats.exact import table_of
from commitlog.spark.inputs.api import BATCH_ROWS, Columns, Records
from commitlog.spark.inputs.content import is_compressed
from commitlog.spark.inputs.lines import Lines

__all__ = ["WHITE", "Parser", "Reader", "check_encoding", "quoted"]

#: Lines that are read at once where not all of a block can be. Where not even they can, they are read
#: one by one: an odd line slows down so many.
CHUNK = 128

#: Bytes that make no record, if a line has no others.
WHITE = b" \t\r\n\x0b\x0c"

#: What a line that is no record is called where it is rescued.
_CORRUPT = "_corrupt_record"


class Reader(Protocol):
    """Reads lines one by one.

    Attributes:
        unknown: members of the last row for which there is no column.
        misfits: members of the last row whose values are not of their type. Null is in their place.
        odd: JSON of the columns and new members of the last row that have such within.
    """

    unknown: list[str]
    misfits: list[str]
    odd: dict[str, str]

    def row(self, line: str) -> list[Any]:
        """Return the values of a line, one for each column. Raises `ValueError` if it is no record."""


class Parser:
    """Makes records of the lines of a file. Not thread-safe.

    Args:
        path: of the file.
        columns: the columns to read.
        lines: how it falls into lines.
        quick: returns the rows of lines that end with line feeds, one for each, and their rescued
            values; None if the result is uncertain.
        exact: makes what reads the others. Both ways of reading a line come to the same.
        white: bytes that make no record, if a line has no others.
    """

    def __init__(
        self,
        path: str,
        columns: Columns,
        lines: Lines,
        *,
        quick: Callable[[bytes], tuple[pa.Table, pa.Array | None] | None],
        exact: Callable[[], Reader],
        white: bytes = WHITE,
    ) -> None:
        self._path = path
        self._columns = columns
        self._lines = lines
        self._quick = quick
        self._make_exact = exact
        self._exact: Reader | None = None
        self._white = white

    def block(self, at: int, block: bytes) -> Iterator[Records]:
        """Yield the records of whole lines, which are those that are not only white space.

        Args:
            at: where the first begins, in the content of the file.
            block: as `Lines.read` has them.

        Raises:
            InputUnreadable: a line is no record, or a value is not of its column's type, and nothing is
                to be rescued. All before were yielded.
            UnknownColumns: there are new ones, and that is the policy.
        """
        found = self._quick(block) if self._lines.separator is None else None
        if found is None:
            found_lines = self._lines.records(at, block, white=self._white)
            yield from self.lines((begin, line) for begin, _, line in found_lines)
        else:
            begins = pc.add(self._lines.split(block)[1], at) if self._columns.offsets else None
            yield from _batches(*found, begins)

    def lines(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Records]:
        """Yield the records of lines without their ends, each with its place. Raises as `block`."""
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
        found = self._quick(b"\n".join([line for _, line in chunk]))
        problem: Exception | None = None
        # With other ends, a line may have what looks like one.
        if found is None or len(found[0]) != len(chunk) or self._lines.separator is not None:
            rows: list[list[Any]] = []
            rescued: list[str | None] = []
            for at, line in chunk:
                try:
                    row, told = self._row(at, line)
                except (InputUnreadable, UnknownColumns) as error:
                    problem = error
                    break
                rows.append(row)
                rescued.append(told)
            odd = pa.array(rescued, pa.string()) if any(rescued) else None
            found = table_of(rows, self._columns.schema), odd
        places = [at for at, _ in chunk[: len(found[0])]]
        yield from _batches(*found, pa.array(places, pa.int64()) if self._columns.offsets else None)
        if problem is not None:
            raise problem

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
        if not rescue or not reader.odd:
            return row, None
        odd = [f"{quoted(name)}:{_as_json(text)}" for name, text in reader.odd.items()]
        return row, "{" + ",".join(odd) + "}"

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


def _as_json(text: str) -> str:
    """Return JSON that all readers accept: NaN and the infinities become strings."""
    if "NaN" in text or "Infinity" in text:
        return json.dumps(json.loads(text, parse_constant=str, parse_int=_short))
    return text


def _short(digits: str) -> int | float:
    # Python makes no integers of thousands.
    return int(digits) if len(digits) < 1000 else float(digits)


def quoted(text: str) -> str:
    """Return a string of JSON; of text that is not all Unicode in ASCII."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def check_encoding(options: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` if the text is to be something else than UTF-8."""
    for name in ("encoding", "charset"):
        value = options.get(name, "UTF-8")
        if value.lower().replace("_", "-") not in ("utf-8", "utf8", "us-ascii"):
            raise ConfigurationError(
                f"option {name} is {value!r}, and only UTF-8 can be read: convert files, or read them"
                " as binaryFile"
            )
