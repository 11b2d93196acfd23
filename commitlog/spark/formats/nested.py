"""Traversal of nested types and columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["as_list", "leaf_types", "moments"]


def as_list(array: pa.Array) -> pa.Array:
    """Return a map as the list of its entries, and a list as it is."""
    if pa.types.is_map(array.type):
        return array.cast(pa.list_(array.type.field(0)))
    return array


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the simple types that `kind` is made of: Parquet and ORC make a column of each.

    >>> list(leaf_types(pa.map_(pa.string(), pa.list_(pa.int8()))))
    [DataType(string), DataType(int8)]
    """
    if pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            yield from leaf_types(kind.field(i).type)
    else:
        yield kind


def moments(table: pa.Table) -> Iterator[tuple[str, pa.DataType, pa.Array]]:
    """Yield the dates and timestamps, nested or not: their column, their type, and they as int64."""
    for field in table.schema:
        if any(map(pa.types.is_temporal, leaf_types(field.type))):
            for chunk in table.column(field.name).chunks:
                for values in _leaves(chunk):
                    if pa.types.is_temporal(values.type):
                        bits = pa.int32() if pa.types.is_date(values.type) else pa.int64()
                        yield field.name, values.type, values.cast(bits).cast(pa.int64())


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _leaves(child)
    elif pa.types.is_nested(array.type):
        yield from _leaves(pc.list_flatten(as_list(array)))
    else:
        yield array
