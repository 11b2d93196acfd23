"""Whole files as records."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from commitlog.errors import InputUnreadable
from commitlog.files import Columns
from commitlog.files.binary import BinaryInput
from commitlog.ingest import Pinned, Slice
from support.input_files import pinned


def test_a_large_file_is_refused_before_it_is_fetched() -> None:
    """Spark has no values of 2 GiB. The other columns of such a file can be read."""
    small = pinned(b"x")
    file = evolve(small.file, size=2**31)
    large = Pinned(small.store, file)
    with pytest.raises(InputUnreadable, match="has 2147483648 bytes"):
        list(BinaryInput({}).decode(large, Slice(file, 0, file.size), Columns(schema=BinaryInput.fixed)))
    columns = Columns(schema=pa.schema([("length", pa.int64())]))
    (found,) = BinaryInput({}).decode(large, Slice(file, 0, file.size), columns)
    assert found.batch.to_pylist() == [{"length": 2**31}]
