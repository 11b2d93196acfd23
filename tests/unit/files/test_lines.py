"""Lines of files: each is in exactly one slice, whatever the cuts, separators and compression."""

from __future__ import annotations

import bz2
import gzip
import re
import subprocess
import sys
import tracemalloc
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.errors import (
    AccessDenied,
    CommitError,
    ConfigurationError,
    InputChanged,
    InputMissing,
    InputUnreadable,
    Unavailable,
)
from commitlog.files import INPUT_FORMATS, Columns, StoredObject, compression
from commitlog.files.compression import content_of
from commitlog.files.lines import Lines
from commitlog.ingest import Pinned
from commitlog.stores import ObjectData
from support.input_files import Counting, pieces_of, pinned, slices
from support.project import TESTS
from support.selection import in_campaigns, with_all


def read(pinned: Pinned, lines: Lines, cuts: list[int]) -> list[tuple[int, bytes]]:
    """Return each line of a file with its offset, slice by slice."""
    found = []
    for each in slices(pinned.file, cuts):
        for at, block in lines.read(StoredObject.of(pinned), each.start, each.end):
            values, begins = lines.split(block)
            assert values.type == pa.binary()
            found += zip((at + begin for begin in begins.to_pylist()), values.to_pylist(), strict=True)
    return found


def expected(data: bytes, separator: bytes | None) -> list[tuple[int, bytes]]:
    """Return the same lines, found with a regular expression."""
    at = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    found = []
    for match in re.finditer(rb"\r\n|\n|\r" if separator is None else re.escape(separator), data):
        if match.end() > at:
            found.append((at, data[at : match.start()]))
            at = match.end()
    if at < len(data):
        found.append((at, data[at:]))
    return found


CUTS = st.lists(st.integers(1, 40), max_size=5)


@example(data=b"\r\n", cuts=[1], piece=1)
@example(data=b"a\r", cuts=[1], piece=1)
@example(data=b"\xef\xbb\xbfa\nb", cuts=[1, 2, 3], piece=2)
@given(
    data=st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xef\xbb\xbf"]), max_size=40).map(b"".join),
    cuts=CUTS,
    piece=st.integers(1, 12),
)
def test_each_line_is_in_one_slice(data: bytes, cuts: list[int], piece: int) -> None:
    """The lines come in order, whatever the cuts and the size of requests."""
    with pieces_of(piece):
        assert read(pinned(data), Lines(), cuts) == expected(data, None)


@given(
    data=st.lists(st.sampled_from([b"|", b"-", b"|-", b"a", b"\n", b"\r"]), max_size=40).map(b"".join),
    separator=st.sampled_from([b"|", b"|-", b"||", b"-|-", b"a"]),
    cuts=CUTS,
    piece=st.integers(1, 12),
)
def test_each_line_with_another_separator_is_in_one_slice(
    data: bytes, separator: bytes, cuts: list[int], piece: int
) -> None:
    """The separator may have any length. A file whose separator overlaps itself has one slice."""
    lines = Lines(separator=separator)
    with pieces_of(piece):
        cuts = cuts if lines.splits("in/file") else []
        assert read(pinned(data), lines, cuts) == expected(data, separator)


PACKED: dict[str, Any] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "deflate": zlib.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("suffix", sorted(PACKED))
def test_compressed_files_have_one_slice(suffix: str) -> None:
    """The suffix gives the compression; several streams in a row are one content."""
    parts = [b"".join(b"%d,%d\n" % (part, line) for line in range(3_000)) for part in range(3)]
    pack = PACKED[suffix]
    source = pinned(b"".join(map(pack, parts)), f"in/file.csv.{suffix}")
    assert not Lines().splits(source.file.path)
    for size in (7, 8 * 1024 * 1024):
        with pieces_of(size):
            assert read(source, Lines(), []) == expected(b"".join(parts), None)
    assert read(pinned(b"", f"in/empty.{suffix}"), Lines(), []) == []
    assert read(pinned(pack(b""), f"in/empty.{suffix}"), Lines(), []) == []


@pytest.mark.parametrize("suffix", sorted(PACKED))
@pytest.mark.parametrize("damage", ["cut", "flipped", "garbage"])
def test_damaged_streams_are_unreadable(suffix: str, damage: str) -> None:
    """The content before the damage is read."""
    data = b"".join(b"%d,%d\n" % (line, line * line * 7919) for line in range(100_000))
    packed = PACKED[suffix](data)
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    elif damage == "flipped":
        middle = len(packed) // 2
        packed = packed[:middle] + bytes(64) + packed[middle + 64 :]
    else:
        packed += b"no such stream"
    source = pinned(packed, f"in/file.{suffix}")
    got: list[tuple[int, bytes]] = []
    with pytest.raises(InputUnreadable, match="in/file") as caught:
        got.extend(Lines().read(StoredObject.of(source)))
    assert caught.value.offset is not None
    assert 0 < caught.value.offset <= len(packed)
    text = b"".join(block for _, block in got)
    sure = int(len(data) * (0.9 if damage == "garbage" else 0.4))
    assert text[:sure] == data[:sure]
    assert text.endswith(b"\n")


@pytest.mark.parametrize("suffix", [*sorted(PACKED), "txt"])
@pytest.mark.parametrize("error", [Unavailable, InputMissing, AccessDenied])
def test_errors_of_the_store_are_raised_unchanged(suffix: str, error: type[CommitError]) -> None:
    """A failed request does not make a compressed file unreadable."""

    class Failing(Pinned):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            if start:
                raise error("no answer")
            return super().get(path, start=start, end=end)

    data = PACKED.get(suffix, bytes)(b"".join(b"%d\n" % (n * n) for n in range(1000)))
    whole = pinned(data, f"in/x.{suffix}")
    failing = Failing(whole.store, whole.file)
    with pieces_of(100), pytest.raises(error, match="no answer"):
        list(Lines().read(StoredObject.of(failing)))


@pytest.mark.parametrize("part", range(1, 8))
def test_both_ends_of_a_line_stay_together(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """A block is searched in parts, and one may end between them."""
    monkeypatch.setattr("commitlog.files.lines._PART", part)
    assert Lines().with_feeds(b"a\rb\r\nc\r\n\rd\r") == b"a\nb\r\nc\r\n\nd\n"
    assert Lines(separator=b"\n").with_feeds(b"a\rb\n") == b"a\rb\n"


def test_zeros_after_a_gzip_stream_are_ignored() -> None:
    """Some programs fill up blocks with zeros."""
    source = pinned(gzip.compress(b"a\n") + bytes(1000) + gzip.compress(b"b\n"), "in/a.gz")
    assert read(source, Lines(), []) == [(0, b"a"), (2, b"b")]


def test_a_stream_that_grows_a_thousandfold_is_read_in_pieces() -> None:
    """The output of a decompressor is limited too."""
    source = pinned(gzip.compress(bytes(1000) * 40_000), "in/a.gz")
    with pieces_of(1024 * 1024):
        sizes = [len(piece) for piece in content_of(StoredObject.of(source))]
    assert sum(sizes) == 40_000_000
    assert max(sizes) <= 2 * 1024 * 1024


def test_a_line_that_is_too_long_is_refused() -> None:
    """The lines before it are read. This bounds the memory."""
    source = pinned(b"first\n" + b"x" * 1000 + b"\nlast\n")
    got: list[tuple[int, bytes]] = []
    with pieces_of(16), pytest.raises(InputUnreadable, match="maxRecordBytes") as caught:
        got.extend(Lines(max_record=500).read(StoredObject.of(source)))
    assert got == [(0, b"first\n")]
    assert caught.value.offset == 6
    with pieces_of(16):
        assert len(read(source, Lines(max_record=1001), [])) == 3


def test_a_slice_within_a_line_reads_its_own_bytes_only() -> None:
    """It does not read up to the end of the line."""
    source = pinned(b"x" * 10_000 + b"\nlast\n")
    counting = Counting(source.store, source.file)
    with pieces_of(64):
        assert list(Lines().read(StoredObject.of(counting), 1000, 2000)) == []
    assert sum(counting.sizes) < 1200


def test_a_small_or_empty_file_is_one_request() -> None:
    """A file that was overwritten since it was listed is detected, even if it was empty."""
    for data in (b"", b"one\ntwo\n"):
        source = pinned(data)
        source.store.put("in/file", b"something else")
        with pytest.raises(InputChanged):
            read(source, Lines(), [])


def test_options_of_lines() -> None:
    """lineSep is a text, maxRecordBytes a number; other values are refused."""
    lines = Lines.of({"lineSep": "§", "maxRecordBytes": "10", "other": ""})
    assert lines == Lines(separator="§".encode(), max_record=10)
    assert Lines.of({}) == Lines()
    for wrong in ({"lineSep": ""}, {"maxRecordBytes": "0"}, {"maxRecordBytes": "1e6"}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Lines.of(wrong)


#: Files with almost no records, though each line must be examined.
EMPTY: list[tuple[str, dict[str, str], bytes]] = [
    ("json", {}, b"\n"),
    ("csv", {}, b"\n"),
    ("csv", {}, b"\r"),
    ("csv", {}, b" \t\n"),
    ("csv", {"comment": "#"}, b"#\n"),
    ("csv", {"header": "true"}, b"\r\n"),
    ("csv", {"multiLine": "true"}, b"\n"),
    ("text", {}, b"\n"),
]
COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("value", pa.string())])


@pytest.mark.parametrize(("kind", "options", "line"), EMPTY)
def test_lines_without_records_take_few_calls(kind: str, options: dict[str, str], line: bytes) -> None:
    """The number of Python calls depends on the bytes, not on the number of lines."""
    source = pinned(gzip.compress(line * (2 * 1024 * 1024 // len(line))), "in/x.gz")
    input = INPUT_FORMATS[kind](options)
    empty = pinned(gzip.compress(line), "in/empty.gz")
    # Imports at the first use do not count.
    list(input.decode(empty, slices(empty.file)[0], Columns(schema=COLUMNS)))
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        rows = sum(map(len, input.decode(source, slices(source.file)[0], Columns(schema=COLUMNS))))
        if kind != "text":
            input.infer(source)
    finally:
        sys.setprofile(None)
    assert rows == (2 * 1024 * 1024 if kind == "text" else 0)
    assert calls < 20_000


@pytest.mark.parametrize(
    ("kind", "options", "line"),
    [
        with_all("json", {}, b"\n"),
        in_campaigns("csv", {}, b"\r\r\n"),
        in_campaigns("csv", {"multiLine": "true"}, b"\n"),
        in_campaigns("text", {}, b"\n"),
    ],
)
def test_lines_without_records_take_little_memory(
    kind: str, options: dict[str, str], line: bytes
) -> None:
    """The number of lines does not matter: a few compressed kB may contain millions."""
    code = f"""
import gzip, resource, sys
import pyarrow as pa
sys.path.insert(0, {str(TESTS)!r})
from support.input_files import pinned, slices
from commitlog.files import INPUT_FORMATS, Columns
source = pinned(sys.stdin.buffer.read(), "in/x.gz")
columns = Columns(schema=pa.schema([("a", pa.int64()), ("value", pa.string())]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for part in INPUT_FORMATS[{kind!r}]({options!r}).decode(source, slices(source.file)[0], columns):
    pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    data = gzip.compress(line * (24 * 1024 * 1024 // len(line)))
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) < 256


@pytest.mark.parametrize("many", [1, 300_000])
def test_lines_within_quotes_take_few_calls(many: int) -> None:
    """Lines without quotes within a record are skipped together."""
    data = b'1,"' + b"\n" * many + b'x"\n2,y\n'
    source = pinned(gzip.compress(data), "in/x.gz")
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        columns = Columns(schema=pa.schema([("a", pa.int64()), ("b", pa.string())]))
        [part] = INPUT_FORMATS["csv"]({"multiLine": "true"}).decode(
            source, slices(source.file)[0], columns
        )
    finally:
        sys.setprofile(None)
    assert part.batch.to_pylist() == [{"a": 1, "b": "\n" * many + "x"}, {"a": 2, "b": "y"}]
    assert calls < 5000


def test_empty_streams_are_not_kept() -> None:
    """A compressed empty stream has 20 bytes, and a file may have any number of them."""
    tracemalloc.start()
    try:
        assert b"".join(compression._gathered(b"" for _ in range(500_000))) == b""
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
