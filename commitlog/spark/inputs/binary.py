"""``binaryFile``: each file is one record, as Spark's own source of this name has it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from commitlog.errors import InputUnreadable
from commitlog.ingest import Pinned, Slice
from commitlog.spark.inputs.api import Columns, Input, Records, location

__all__ = ["Binary"]

#: Neither Arrow nor Java has longer arrays of bytes; Java's own bookkeeping needs some.
MAX_BYTES = 2**31 - 16


class Binary(Input):
    """Whole files: path, modification time, length and content."""

    name = "binaryFile"
    fixed = pa.schema(
        [
            ("path", pa.string()),
            ("modificationTime", pa.timestamp("us", tz="UTC")),
            ("length", pa.int64()),
            ("content", pa.binary()),
        ]
    )

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `Input.infer`."""
        return self.fixed

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `Input.decode`."""
        file = slice.file
        if file.size > MAX_BYTES and "content" in columns.schema.names:
            raise InputUnreadable(
                f"{file.path!r} has {file.size} bytes, and a value in Spark {MAX_BYTES} at most: give a"
                " schema without the column content, or leave out such files with a glob"
            )
        data = pinned.get(file.path).data if "content" in columns.schema.names else None
        values = {
            "path": location(pinned.store.url, file.path),
            "modificationTime": int(file.modified * 1_000_000),
            "length": file.size,
            "content": data,
        }
        known = [field for field in columns.schema if field.name in values]
        batch = pa.RecordBatch.from_arrays(
            [pa.array([values[field.name]], field.type) for field in known], schema=pa.schema(known)
        )
        yield Records(batch, pa.array([0], pa.int64()) if columns.offsets else None)
