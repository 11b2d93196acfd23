"""Lines of text files: blocks of the lines that begin in a slice, and blocks as arrays of lines.

A line ends with a line feed, a carriage return, or both, as in Spark's own sources. With option
``lineSep``, it ends with that separator, and with nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen, validators

from commitlog.errors import ConfigurationError, InputUnreadable
from commitlog.files.compression import content_of, is_compressed, ranges_of
from commitlog.files.io import StoredObject

__all__ = ["LINE_OPTIONS", "Lines", "as_strings", "record_mask"]

#: The options that `Lines.of` knows.
LINE_OPTIONS = ("lineSep", "maxRecordBytes")

#: Bytes after a slice in which its last line usually ends.
_BEYOND = 64 * 1024

#: Bytes of a block to split into lines at a time. Even an empty line takes some 100 bytes of memory.
_PART = 1024 * 1024

#: The byte order mark of UTF-8, which some editors put at the start of a file.
_BOM = b"\xef\xbb\xbf"
_LONE = re.compile(rb"\r(?!\n)")


@frozen(kw_only=True)
class Lines:
    """Rules by which a file is split into lines.

    Attributes:
        separator: the end of a line; None: line feed, carriage return, or both.
        max_record: a line of at most this many bytes, with its end, is never refused for its length. A
            longer one is refused if it does not fit into one piece of content. Reading needs a few times
            this much memory.
    """

    separator: bytes | None = field(default=None)
    max_record: int = field(default=128 * 1024 * 1024, validator=validators.in_(range(1, 2**31)))

    @classmethod
    def of(cls, options: Mapping[str, str], encoding: str = "utf-8") -> Lines:
        """Return the rules that options give. Raises `ConfigurationError` for an invalid value."""
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

        A compressed file has no slices. Nor has a file whose separator can overlap itself: only a reader
        from the start of the file can find the ends of its lines.

        >>> Lines().splits("a.csv"), Lines().splits("a.csv.gz"), Lines(separator=b"--").splits("a")
        (True, False, False)
        """
        return not _overlaps(self.separator or b"\n") and not is_compressed(path)

    def read(
        self,
        source: StoredObject,
        start: int = 0,
        end: int | None = None,
        *,
        exact: bool = False,
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that begin in a slice, some MiB at a time, with their ends.

        Each item is the offset of its first byte, in the content as decompressed, and bytes of whole
        lines. Only the last line of a file may lack its end. A carriage return that ends a line alone is
        replaced by a line feed. A byte order mark at the start of the file is left out.

        Args:
            source: the file.
            start: the first byte of the slice. A compressed file has only one slice, from byte 0 on.
            end: the byte after the slice; None for the end of the file.
            exact: whether a carriage return that ends a line alone stays one.

        Raises:
            InputUnreadable: a line is too long, or as `content_of`; whole lines before were yielded.
            Errors of the store.
        """
        for at, block in self._blocks(source, start, source.size if end is None else end):
            if at == 0 and block.startswith(_BOM):
                at, block = len(_BOM), block[len(_BOM) :]
            if block:
                yield at, block if exact else self.with_feeds(block)

    def with_feeds(self, block: bytes) -> bytes:
        """Return a block with a line feed for each carriage return that ends a line alone."""
        if self.separator is None and block.count(b"\r") != block.count(b"\r\n"):
            return _with_feeds(block)
        return block

    def whole(self, source: StoredObject) -> bytes:
        """Return the content of a file that is one record or one document.

        Raises `InputUnreadable` if it is too long, or as `content_of`; and the errors of the store.
        """
        parts: list[bytes] = []
        size = 0
        for part in content_of(source):
            parts.append(part)
            size += len(part)
            if size > self.max_record:
                raise InputUnreadable(
                    f"{source.path!r} has a content of more than {self.max_record} bytes, too many"
                    " to be read at once: raise option maxRecordBytes"
                )
        return b"".join(parts)

    def parts(self, at: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a block of `read`, about a MiB at a time: their offset, and their bytes."""
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
        """Yield the lines of a block that are records: begin, end, and the line without its end.

        Other lines take some 50 ns each, so that a file of only such lines is read fast.

        Args:
            at: offset of the block.
            block: lines, as `read` yields them.
            white: a line of nothing but these bytes is not a record.
            comment: prefix of lines that are not records; empty if there are no such lines.
        """
        for place, part in self.parts(at, block):
            lines, begins = self.split(part)
            ends = pa.concat_arrays([begins[1:], pa.array([len(part)], pa.int64())])
            wanted = record_mask(lines, white, comment)
            if not pc.all(wanted).as_py():
                lines, begins, ends = (each.filter(wanted) for each in (lines, begins, ends))
            places = (pc.add(each, place).to_pylist() for each in (begins, ends))
            yield from zip(*places, lines.to_pylist(), strict=True)

    def split(self, block: bytes) -> tuple[pa.Array, pa.Array]:
        """Return the lines of a block of `read`, without their ends, and their offsets in the block.

        The arrays are binary and int64. Takes some 5 ms for 8 MiB.

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
        # Arrow stores the lines without their ends: in the block, the nth begins n ends later.
        begins = pa.Array.from_buffers(pa.int32(), len(lines), [None, lines.buffers()[1]])
        ends = pc.cumulative_sum(pa.repeat(pa.scalar(len(end), pa.int64()), len(lines)))
        begins = pc.add(begins, pc.subtract(ends, len(end)))
        if block.endswith(end):
            lines, begins = lines[:-1], begins[:-1]
        return pc.replace_substring_regex(lines, r"\r\z", "") if mixed else lines, begins

    def _blocks(self, source: StoredObject, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        path, width = source.path, len(self.separator or b"\n")
        bound: int | None = None
        # A line begins after the end of another, which may be before the slice.
        at = max(start - width, 0)
        if (start == 0 and end == source.size) or is_compressed(path):
            if start:
                return
            pieces = content_of(source)
        else:
            bound = end
            pieces = ranges_of(source, at, end, beyond=_BEYOND)
        begun = start == 0
        kept = b""
        for piece in pieces:
            kept += piece
            if not begun and bound is not None:
                cut = self._next(kept, max(start - width - at, 0))
                begun = cut >= 0
                # Part of an end may be there.
                cut = cut if begun else max(len(kept) - width, 0)
                at, kept = at + cut, kept[cut:]
                if (at if begun else at + len(kept)) >= bound:
                    return
                if not begun:
                    continue
            if bound is not None and at + len(kept) >= bound:
                stop = self._next(kept, max(bound - width - at, 0))
                if stop >= 0:
                    yield at, kept[:stop]
                    return
            if cut := self._last(kept):
                yield at, kept[:cut]
                at, kept = at + cut, kept[cut:]
            if len(kept) > self.max_record:
                raise InputUnreadable(
                    f"{path!r} has a line of more than {self.max_record} bytes from byte {at} on."
                    " If the file is valid, raise option maxRecordBytes",
                    offset=None if is_compressed(path) else at,
                )
        if begun and kept:
            yield at, kept

    def _next(self, data: bytes, start: int) -> int:
        """Return the begin of the line after the first end from `start` on; -1 if it is unknown."""
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
        """Return the begin of the last line that surely begins in `data`; 0 if there is none."""
        if self.separator is None:
            feed = data.rfind(b"\n")
            return max(feed, data.rfind(b"\r", feed + 1, max(len(data) - 1, 0))) + 1
        if _overlaps(self.separator):
            return len(data) - len(data.split(self.separator)[-1])
        return data.rfind(self.separator) + len(self.separator) if self.separator in data else 0


def _with_feeds(block: bytes) -> bytes:
    """Return a block with a line feed for each carriage return that is not followed by one."""
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


def record_mask(lines: pa.Array, white: bytes, comment: bytes) -> pa.Array:
    """Return for each line whether it is a record; arguments as for `Lines.records`.

    >>> record_mask(pa.array([b"", b" x", b"\\t ", b"#x"]), b"\\t ", b"#").to_pylist()
    [False, True, False, False]
    """
    # A binary column is matched as Latin-1: each byte is a character.
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
