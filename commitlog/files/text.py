"""``text``, for ingest: each line is a record, as in Spark's own source of this name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import NotSupported
from commitlog.files.base import BATCH_ROWS, InputFormat
from commitlog.files.columns import Columns, Records
from commitlog.files.io import StoredObject
from commitlog.files.lines import LINE_OPTIONS, Lines, as_strings
from commitlog.files.rescue import as_json

if TYPE_CHECKING:
    from commitlog.ingest import Pinned, Slice

__all__ = ["TextInput"]


class TextInput(InputFormat):
    """Lines, or whole files, in a column ``value``.

    In a STRING column, bytes that are not UTF-8 become U+FFFD; a BINARY column keeps them.
    """

    name = "text"
    options = (*LINE_OPTIONS, "wholetext")
    fixed = pa.schema([("value", pa.string())])

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._lines = Lines.of(options)
        self._whole = self._flag("wholetext", False)

    def splits(self, path: str) -> bool:
        """See `InputFormat.splits`."""
        return not self._whole and self._lines.splits(path)

    def check(self, columns: Columns) -> None:
        """See `InputFormat.check`."""
        for field in columns.schema:
            if field.name == "value" and field.type not in (pa.string(), pa.binary()):
                raise NotSupported(
                    f"column 'value' of text is {field.type}: make it a string, or binary"
                )

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `InputFormat.infer`."""
        return self.fixed

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `InputFormat.decode`."""
        rescued = columns.check(pinned.file.path, ["value"])
        known = "value" in columns.schema.names
        kind = columns.schema.field("value").type if known else pa.string()
        for at, lines, begins in self._read(StoredObject.of(pinned), slice):
            for first in range(0, len(lines), BATCH_ROWS):
                some = lines.slice(first, BATCH_ROWS)
                values = some if kind == pa.binary() else as_strings(some)
                batch = pa.RecordBatch.from_arrays([values], names=["value"])
                yield Records(
                    batch if known else batch.select([]),
                    pc.add(begins.slice(first, BATCH_ROWS), at) if columns.offsets else None,
                    as_json(["value"], [values]) if rescued else None,
                )

    def _read(self, source: StoredObject, slice: Slice) -> Iterator[tuple[int, pa.Array, pa.Array]]:
        """Yield lines with their offsets, which are relative to the first item."""
        if not self._whole:
            for place, block in self._lines.read(source, slice.start, slice.end):
                for at, part in self._lines.parts(place, block):
                    yield at, *self._lines.split(part)
            return
        yield 0, pa.array([self._lines.whole(source)], pa.binary()), pa.array([0], pa.int64())
