"""``binaryFile``, for ingest: each file is one record, as in Spark's own source of this name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from commitlog.errors import InputUnreadable
from commitlog.files.base import InputFormat
from commitlog.files.columns import Columns, Records
from commitlog.files.io import object_url

if TYPE_CHECKING:
    from commitlog.ingest import Pinned, Slice

__all__ = ["BinaryInput"]

#: The most bytes of an array in Arrow and in Java, without some for Java's object header.
MAX_BYTES = 2**31 - 16


class BinaryInput(InputFormat):
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
        """See `InputFormat.infer`."""
        return self.fixed

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `InputFormat.decode`."""
        file = slice.file
        if file.size > MAX_BYTES and "content" in columns.schema.names:
            raise InputUnreadable(
                f"{file.path!r} has {file.size} bytes, and a value in Spark {MAX_BYTES} at most: give a"
                " schema without the column content, or leave out such files with a glob"
            )
        data = pinned.get(file.path).data if "content" in columns.schema.names else None
        values = {
            "path": object_url(pinned.store.url, file.path),
            "modificationTime": int(file.modified * 1_000_000),
            "length": file.size,
            "content": data,
        }
        known = [field for field in columns.schema if field.name in values]
        batch = pa.RecordBatch.from_arrays(
            [pa.array([values[field.name]], field.type) for field in known], schema=pa.schema(known)
        )
        yield Records(batch, pa.array([0], pa.int64()) if columns.offsets else None)
