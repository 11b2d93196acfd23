"""Files as lines: those that begin in a slice, in blocks; and blocks as arrays of lines.

A line ends with a line feed, a carriage return, or both, as in Spark's own sources; or with whatever
option ``lineSep`` says, and then with nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen, validators

from commitlog.errors import ConfigurationError, InputUnreadable
from commitlog.ingest import Pinned, Slice
from commitlog.spark.inputs.content import content_of, is_compressed, ranges_of

__all__ = ["LINE_OPTIONS", "Lines", "as_strings", "counting"]

#: The options that `Lines.of` knows.
LINE_OPTIONS = ("lineSep", "maxRecordBytes")

#: Most lines end within this many bytes behind a slice.
_BEYOND = 64 * 1024

#: Bytes of a block that are split into lines at a time: each may be one, and takes some 100 in memory.
_PART = 1024 * 1024

_MARK = b"\xef\xbb\xbf"
_LONE = re.compile(rb"\r(?!\n)")


@frozen(kw_only=True)
class Lines:
    """How a file falls into lines.

    Attributes:
        separator: what ends a line; None: line feed, carriage return, or both.
        max_record: a line of as many bytes, with its end, is never refused for its length. One of more
            is, as soon as it would have to be put together of pieces. Memory needed is a few times this.
    """

    separator: bytes | None = field(default=None)
    max_record: int = field(default=128 * 1024 * 1024, validator=validators.in_(range(1, 2**30 + 1)))

    @classmethod
    def of(cls, options: Mapping[str, str], encoding: str = "utf-8") -> Lines:
        """Return what `LINE_OPTIONS` say. Raises `ConfigurationError` for a value that is none."""
        separator = options.get("lineSep")
        if separator == "":
            raise ConfigurationError("option lineSep is empty: leave it out for line feeds")
        bound = options.get("maxRecordBytes", "134217728")
        if not (bound.isdecimal() and 1 <= int(bound) <= 2**30):
            raise ConfigurationError(
                f"option maxRecordBytes is {bound!r}: give a whole number from 1 to {2**30}"
            )
        return cls(
            separator=None if separator is None else separator.encode(encoding), max_record=int(bound)
        )

    def splits(self, path: str) -> bool:
        """Return whether slices of this file can be read.

        A compressed file has no slices. Nor has a file whose separator can overlap itself, because only
        a reader from the beginning of the file can find the ends of its lines.

        >>> Lines().splits("a.csv"), Lines().splits("a.csv.gz"), Lines(separator=b"--").splits("a")
        (True, False, False)
        """
        return not _overlaps(self.separator or b"\n") and not is_compressed(path)

    def read(self, pinned: Pinned, slice: Slice) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that begin in a slice, some MiB at a time, with their ends.

        Each item is the offset of its first byte, in the content as decompressed, and bytes of whole
        lines. Only the last line of a file may lack its end. Where a carriage return alone ends a line,
        a line feed is in its place. The mark that some editors put at the begin of a file is left out.

        Raises:
            InputUnreadable: a line is too long, or as `content_of`; whole lines before were yielded.
            InputChanged, InputMissing: as `Pinned.get`.
        """
        lone = self.separator is None
        for at, block in self._blocks(pinned, slice):
            if at == 0 and block.startswith(_MARK):
                at, block = len(_MARK), block[len(_MARK) :]
            if lone and b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
                block = _with_feeds(block)
            if block:
                yield at, block

    def whole(self, pinned: Pinned) -> bytes:
        """Return the content of a file that is one record, or is read like one.

        Raises `InputUnreadable` if it is too long, or as `content_of`; and what `Pinned.get` raises.
        """
        parts: list[bytes] = []
        size = 0
        for part in content_of(pinned):
            parts.append(part)
            size += len(part)
            if size > self.max_record:
                raise InputUnreadable(
                    f"{pinned.file.path!r} has a content of more than {self.max_record} bytes, too many"
                    " to be read at once: raise option maxRecordBytes"
                )
        return b"".join(parts)

    def parts(self, at: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield where the lines of a block of `read` begin, and their bytes, about a MiB at a time."""
        start = 0
        while len(block) - start > _PART and not _overlaps(self.separator or b"\n"):
            end = self._next(block, start + _PART)
            if end < 0:
                break
            yield at + start, block[start:end]
            start = end
        yield at + start, block[start:]

    def records(
        self, at: int, block: bytes, *, white: bytes, comment: bytes = b""
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield those lines of a block that are records: where they begin and end, without their ends.

        Other lines take some 50 ns each, so that a file of only such lines is read fast.

        Args:
            at: where the block begins.
            block: as `read` has it.
            white: bytes that make no record, if a line has no others.
            comment: what lines begin with that are none; empty if there are no such lines.
        """
        for place, part in self.parts(at, block):
            lines, begins = self.split(part)
            ends = pa.concat_arrays([begins[1:], pa.array([len(part)], pa.int64())])
            wanted = counting(lines, white, comment)
            if not pc.all(wanted).as_py():
                lines, begins, ends = (each.filter(wanted) for each in (lines, begins, ends))
            places = (pc.add(each, place).to_pylist() for each in (begins, ends))
            yield from zip(*places, lines.to_pylist(), strict=True)

    def split(self, block: bytes) -> tuple[pa.Array, pa.Array]:
        """Return the lines of a block of `read`, without their ends, and where they begin in it.

        They are binary, and int64. Takes some 5 ms for 8 MiB.

        >>> lines, begins = Lines().split(b"one\\r\\ntwo")
        >>> lines.to_pylist(), begins.to_pylist()
        ([b'one', b'two'], [0, 5])
        """
        end = self.separator or b"\n"
        mixed = False
        if self.separator is None and b"\r\n" in block:
            mixed = block.count(b"\r\n") != block.count(b"\n")
            end = end if mixed else b"\r\n"
        bounds = pa.array([0, len(block)], pa.int32()).buffers()[1]
        whole = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(block)])
        lines = pc.split_pattern(whole, end).values
        # Without ends, lines lie one behind the other: the nth begins n ends further on.
        begins = pa.Array.from_buffers(pa.int32(), len(lines), [None, lines.buffers()[1]])
        ends = pc.cumulative_sum(pa.repeat(pa.scalar(len(end), pa.int64()), len(lines)))
        begins = pc.add(begins, pc.subtract(ends, len(end)))
        if block.endswith(end):
            lines, begins = lines[:-1], begins[:-1]
        return pc.replace_substring_regex(lines, r"\r\z", "") if mixed else lines, begins

    def _blocks(self, pinned: Pinned, slice: Slice) -> Iterator[tuple[int, bytes]]:
        path, width = pinned.file.path, len(self.separator or b"\n")
        start = slice.start
        end: int | None = None
        # An end shows that a line begins behind it, so what lies before the slice has to be seen.
        at = max(start - width, 0)
        if slice.whole or is_compressed(path):
            if start:
                return
            pieces = content_of(pinned)
        else:
            end = slice.end
            pieces = ranges_of(pinned, at, end, beyond=_BEYOND)
        begun = start == 0
        kept = b""
        for piece in pieces:
            kept += piece
            if not begun and end is not None:
                cut = self._next(kept, max(start - width - at, 0))
                begun = cut >= 0
                # Part of an end may be there.
                cut = cut if begun else max(len(kept) - width, 0)
                at, kept = at + cut, kept[cut:]
                if (at if begun else at + len(kept)) >= end:
                    return
                if not begun:
                    continue
            if end is not None and at + len(kept) >= end:
                stop = self._next(kept, max(end - width - at, 0))
                if stop >= 0:
                    yield at, kept[:stop]
                    return
            if cut := self._last(kept):
                yield at, kept[:cut]
                at, kept = at + cut, kept[cut:]
            if len(kept) > self.max_record:
                raise InputUnreadable(
                    f"{path!r} has a line of more than {self.max_record} bytes from byte {at} on."
                    " If that is what it should be, raise option maxRecordBytes",
                    offset=None if is_compressed(path) else at,
                )
        if begun and kept:
            yield at, kept

    def _next(self, data: bytes, start: int) -> int:
        """Return where the line begins that is behind the first end from `start` on; -1 if unknown."""
        if self.separator is not None:
            found = data.find(self.separator, start)
            return found if found < 0 else found + len(self.separator)
        feed = data.find(b"\n", start)
        lone = data.find(b"\r", start, len(data) if feed < 0 else feed)
        if lone < 0 or lone + 1 == feed:
            return feed + 1 or -1
        # A line feed may follow.
        return lone + 1 if lone + 1 < len(data) else -1

    def _last(self, data: bytes) -> int:
        """Return where the last line begins that is known to; 0 if there is no end before."""
        if self.separator is None:
            feed = data.rfind(b"\n")
            return max(feed, data.rfind(b"\r", feed + 1, max(len(data) - 1, 0))) + 1
        if _overlaps(self.separator):
            return len(data) - len(data.split(self.separator)[-1])
        return data.rfind(self.separator) + len(self.separator) if self.separator in data else 0


def _with_feeds(block: bytes) -> bytes:
    """Return a block with a line feed for each carriage return that has none behind it."""
    if b"\r\n" not in block:
        return block.replace(b"\r", b"\n")
    parts: list[bytes] = []
    start = 0
    while start < len(block):
        end = start + _PART
        end += block[end - 1 : end + 1] == b"\r\n"
        parts.append(_LONE.sub(b"\n", block[start:end]))
        start = end
    return b"".join(parts)


def counting(lines: pa.Array, white: bytes, comment: bytes) -> pa.Array:
    """Return for each line whether it is a record, as `Lines.records` knows them.

    >>> counting(pa.array([b"", b" x", b"\\t ", b"#x"]), b"\\t ", b"#").to_pylist()
    [False, True, False, False]
    """
    # Latin-1, so that each byte is a character.
    found = pc.match_substring_regex(lines, f"[^{''.join(f'{chr(92)}x{byte:02x}' for byte in white)}]")
    if comment:
        found = pc.and_not(found, pc.starts_with(lines, comment))
    return found


def as_strings(values: pa.Array) -> pa.Array:
    """Return binary values as strings, with U+FFFD for bytes that are not UTF-8.

    >>> as_strings(pa.array([b"caf\\xc3\\xa9", b"caf\\xe9"])).to_pylist()
    ['café', 'caf�']
    """
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [value and value.decode(errors="replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def _overlaps(mark: bytes) -> bool:
    return any(mark.startswith(mark[i:]) for i in range(1, len(mark)))
