"""``json``: objects, one a line, or files that are a document each.

The rules are those of Spark where Spark loses no data. Names identify columns, in any order. A missing
member is null. A string column holds the text of any value unchanged. Of several members with one name,
the last one counts. Times are those of ISO 8601, in UTC if they have no zone. A value that Spark would
silently round, truncate or skip does not fit here: excess digits of a decimal, the time of day in a
date, text after the object on its line.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from commitlog.errors import InputUnreadable
from commitlog.ingest import Pinned, Slice
from commitlog.spark.formats.exact import Exact
from commitlog.spark.formats.json import check_keys
from commitlog.spark.formats.objects import Quick
from commitlog.spark.inputs.api import Columns, Input, Records
from commitlog.spark.inputs.guess import Guess
from commitlog.spark.inputs.lines import LINE_OPTIONS, Lines
from commitlog.spark.inputs.parse import WHITE, Parser, check_encoding

__all__ = ["Json"]

#: Bytes from which columns are inferred.
SAMPLE_BYTES = 2 * 1024 * 1024

_MARK = b"\xef\xbb\xbf"


class Json(Input):
    """JSON lines; with option ``multiLine``, files that are an object each, or arrays of objects.

    Such a document may be followed by others; each object is a record.
    """

    name = "json"
    options = (*LINE_OPTIONS, "multiLine", "encoding", "charset")
    strings = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        check_encoding(options)
        self._lines = Lines.of(options)
        self._documents = self._flag("multiLine", False)

    def splits(self, path: str) -> bool:
        """See `Input.splits`."""
        return not self._documents and self._lines.splits(path)

    def check(self, columns: Columns) -> None:
        """See `Input.check`."""
        for field in columns.schema:
            check_keys(field.name, field.type, "make it a map with string keys")

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `Input.infer`. Lines that are no objects are left to those who read the file.

        Numbers are bigint, decimal where that is too narrow, or double; times and dates are strings, as
        Spark takes them by default.
        """
        guess, lines, size = Guess(), 0, 0
        for _, line in self._some(sample):
            if line and not line.isspace():
                lines += 1
                guess.add(line)
                size += len(line)
                if size >= SAMPLE_BYTES:
                    break
        if lines and not guess.objects:
            raise InputUnreadable(f"{sample.file.path!r} has no line that is an object of JSON")
        return guess.schema()

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `Input.decode`."""
        parser = Parser(
            pinned.file.path,
            columns,
            self._lines,
            quick=_quick(columns),
            exact=lambda: Exact(columns.schema, all_known=columns.new != "ignore"),
        )
        if not self._documents:
            for at, block in self._lines.read(pinned, slice):
                yield from parser.block(at, block)
        elif slice.start == 0:
            yield from parser.lines(_documents(self._lines.whole(pinned)))

    def _some(self, sample: Pinned) -> Iterator[tuple[int, bytes]]:
        """Yield the first lines of a file, or all objects of its documents."""
        if self._documents:
            yield from _documents(self._lines.whole(sample))
            return
        first = Slice(sample.file, 0, min(SAMPLE_BYTES, sample.file.size))
        for at, block in self._lines.read(sample, first):
            for begin, _, line in self._lines.records(at, block, white=WHITE):
                yield begin, line


@functools.lru_cache(maxsize=16)
def _quick(columns: Columns) -> Callable[[bytes], tuple[pa.Table, None] | None]:
    # Of thousands of small files with the same columns, each would make one.
    quick = Quick(columns.schema, all_known=columns.new != "ignore")

    def read(lines: bytes) -> tuple[pa.Table, None] | None:
        table = quick.table(lines)
        return None if table is None else (table, None)

    return read


# -- documents -----------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n]*")
_skip = json.JSONDecoder(parse_int=float).raw_decode


def _documents(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each object of some documents as a line, with the byte at which it begins.

    Text that is not an object is yielded unchanged, together with all that follows it.
    """
    at = len(_MARK) if content.startswith(_MARK) else 0
    try:
        text = content[at:].decode()
    except UnicodeDecodeError:
        yield at, content[at:]
        return
    done, place = 0, at
    for begin, end in _parts(text):
        # Only the bracket of an array without an end lies behind.
        place = (
            place + len(text[done:begin].encode()) if begin >= done else at + len(text[:begin].encode())
        )
        # Within strings there are no line ends.
        line = text[begin:end].encode()
        yield place, line.replace(b"\r", b" ").replace(b"\n", b" ")
        done, place = end, place + len(line)


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each object, and of text that is not an object.

    What cannot be read is one part up to the end of the text; an array that has no end, its bracket.
    """
    opened: int | None = None
    at = _space(text, 0)
    while at < len(text):
        if opened is None and text[at] == "[":
            opened, at = at, _space(text, at + 1)
            if text.startswith("]", at):
                opened, at = None, _space(text, at + 1)
            continue
        begin = at
        try:
            end = _skip(text, begin)[1]
        except (RecursionError, ValueError):
            yield begin, len(text)
            return
        yield begin, end
        at = _space(text, end)
        if opened is not None and at < len(text):
            if text[at] not in ",]":
                yield at, len(text)
                return
            opened = opened if text[at] == "," else None
            at = _space(text, at + 1)
    if opened is not None:
        yield opened, opened + 1


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
