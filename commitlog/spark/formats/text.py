"""Common parts of CSV and JSON: values in Spark's notation, checks of years, compressed streams."""

from __future__ import annotations

import bz2
import contextlib
import gzip
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from commitlog.errors import NotSupported
from commitlog.spark.formats.files import Reads, SinkFile, stored_file
from commitlog.spark.formats.nested import leaf_types, moments
from commitlog.spark.formats.statistics import FIRST_DAY, LAST_DAY, is_instant, iso

__all__ = [
    "SUFFIXES",
    "Text",
    "check_text",
    "check_years",
    "compressed",
    "content",
    "decompressed",
    "join",
    "plain",
    "whole_rows",
]

#: Suffix of a file's name by compression. The first is the default, as in Spark.
SUFFIXES = MappingProxyType({"none": "", "gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst"})

#: Rows whose text is made at once: it fits into the 2 GB of an Arrow array, and into caches.
TEXT_ROWS = 8 * 1024

#: Bytes that a reader asks for at once.
READ_BLOCK = 8 * 1024 * 1024

_OPEN: Mapping[str, Callable[[SinkFile], Any]] = {
    "none": lambda file: file,
    "gzip": lambda file: gzip.GzipFile(
        fileobj=cast(BinaryIO, file), mode="wb", compresslevel=6, mtime=0
    ),
    "bzip2": lambda file: bz2.BZ2File(cast(BinaryIO, file), "wb"),
    "zstd": lambda file: pa.CompressedOutputStream(file, "zstd"),
}

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}

#: How floats are spelled where pyarrow's text is not Spark's. A zero's sign would be lost in JSON.
_ZERO = {"-0": "-0.0"}
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def compressed(file: SinkFile, compression: str) -> Any:
    """Return a binary file that compresses its data into `file`; `compression` is one of `SUFFIXES`."""
    return _OPEN[compression](file)


@contextlib.contextmanager
def decompressed(store: Reads, path: str, size: int, what: str) -> Iterator[pa.NativeFile]:
    """Open the content of a stored file as a stream. Its suffix tells the compression.

    Arguments and errors as those of `stored_file`.
    """
    codec = _CODECS.get("." + path.rpartition(".")[2])
    with stored_file(store, path, size, what, block=READ_BLOCK) as stored:
        file = pa.PythonFile(stored, mode="r")
        with file if codec is None else pa.CompressedInputStream(file, codec) as stream:
            yield stream


def whole_rows(stream: pa.NativeFile, end: Callable[[bytes], int]) -> Iterator[bytes]:
    """Yield the content of `stream` in large pieces that end where a row ends.

    Args:
        stream: to be read to its end.
        end: tells how many bytes of what begins with a row are whole rows.
    """
    rest = b""
    while block := stream.read(READ_BLOCK):
        rest += block
        if whole := end(rest):
            yield rest[:whole]
            rest = rest[whole:]
    if rest:
        yield rest


def check_text(table: pa.Table) -> None:
    """Raise `NotSupported` for a string that is not UTF-8: no reader could tell what the file says."""
    for field in table.schema:
        if any(map(pa.types.is_string, leaf_types(field.type))):
            try:
                table.column(field.name).validate(full=True)
            except pa.ArrowInvalid as error:
                raise NotSupported(
                    f"column {field.name!r} has a string that is not UTF-8 ({error}): choose fileFormat"
                    " parquet or orc, or write hex(…) of it"
                ) from error


def check_years(table: pa.Table) -> None:
    """Raise `NotSupported` for a date or timestamp that four digits of a year cannot tell."""
    for name, kind, values in moments(table):
        unit = 1 if pa.types.is_date(kind) else 24 * 60 * 60 * 1_000_000
        low, high = (pc.min_max(values)[end].as_py() for end in ("min", "max"))
        if low is not None and not FIRST_DAY <= low // unit <= high // unit <= LAST_DAY:
            raise NotSupported(
                f"column {name!r} has a date or time outside of the years from 1 to 9999, which readers"
                " of text do not understand: choose fileFormat parquet"
            )


@frozen
class Text:
    """The text of a column: each value with a prefix and a suffix; null for null.

    Combining the parts costs a copy, which `join` avoids if it can.
    """

    before: str
    values: pa.Array
    after: str


def plain(array: pa.Array) -> Text:
    """Return the text of values of a simple type, neither quoted nor escaped."""
    if pa.types.is_temporal(array.type):
        return Text("", iso(array), "Z" if is_instant(array.type) else "")
    text = array.cast(pa.string())
    if pa.types.is_floating(array.type):
        text = _respell(text, _ZERO)
        if pc.all(pc.is_finite(array)).as_py() is False:
            text = _respell(text, _SPECIAL)
    return Text("", text, "")


def join(*parts: str | Text, null: str | None = None) -> pa.Array:
    """Return `parts` one after the other, row by row.

    A `Text` that is null is `null` as a whole; if that is None, a row with one is null.
    """
    pieces: list[str | pa.Array] = []
    for part in parts:
        if isinstance(part, str):
            more = [part]
        elif null is not None and part.values.null_count:
            more = [join(part)]
        else:
            more = [part.before, part.values, part.after]
        for piece in more:
            if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
                pieces[-1] += piece
            else:
                pieces.append(piece)
    handling = "emit_null" if null is None else "replace"
    return pc.binary_join_element_wise(*pieces, "", null_handling=handling, null_replacement=null or "")


def content(lines: pa.Array) -> pa.Buffer:
    """Return the text of all of `lines`, which are whole and none of them null, without copying it."""
    _, bounds, data = lines.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, bounds], offset=lines.offset)
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return data.slice(start, end - start)


def _respell(text: pa.Array, spellings: Mapping[str, str]) -> pa.Array:
    for known, wanted in spellings.items():
        text = pc.if_else(pc.equal(text, known), wanted, text)
    return text
