"""Whether a file of an output has the columns that its commit record states, by the file's footer."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from commitlog.errors import CorruptRecord
from commitlog.files.types import leaf_types, same_type

__all__ = ["OtherColumns", "check_file_columns", "spark_kinds"]

#: No types of Spark.
_NONE: Mapping[str, str] = MappingProxyType({})

#: The types of Spark that files store as whole numbers.
_NUMBERS = ("interval ", "time(")

#: The simple types of Spark that every reader finds in the file.
_SIMPLE = frozenset(
    (
        *("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
    )
)


class OtherColumns(CorruptRecord):
    """A file has other columns than its commit record states, or than a copy of it could have."""


def check_file_columns(
    path: str,
    found: pa.Schema,
    schema: pa.Schema,
    wanted: Collection[str],
    kinds: Mapping[str, str] = _NONE,
    *,
    whole: bool = False,
) -> list[str]:
    """Return the columns among `wanted` that a file has, in its order.

    Args:
        path: of the file, for messages.
        found: the columns of the file, by its footer.
        schema: the columns that the file should have; it may lack some.
        wanted: names of the columns to read.
        kinds: Spark's types of columns of the file that are not what Arrow takes them for.
        whole: whether `schema` must have all that the file has.

    Raises `OtherColumns` if a column is of another type or spelling; if `whole`, also if `schema` lacks
    one, or Spark alone has its type.
    """
    spellings = {name.lower(): name for name in schema.names if name in wanted or whole}
    for field in found:
        name, kind = field.name, kinds.get(field.name, "")
        spelling = name if name in schema.names else spellings.get(name.lower())
        has = f"{path!r} has a column {name!r} of type {kind or field.type}"
        if whole and (kind or spelling is None):
            raise OtherColumns(f"{has}, which a new file could not keep")
        if spelling not in (name, None):
            raise OtherColumns(f"{has}, and its commit record has {spelling!r}. It was not changed")
        if spelling is None or (name not in wanted and not whole):
            continue
        stated = schema.field(name).type
        if not _is_stored_as(field.type, stated, kind):
            raise OtherColumns(f"{has}, and its commit record says {stated}. It was not changed")
    return [name for name in found.names if name in wanted]


def _is_stored_as(found: pa.DataType, stated: pa.DataType, kind: str) -> bool:
    """Return whether values of type `stated` are `found` in a file, where Spark calls it `kind`."""
    if kind.startswith(_NUMBERS) or any(map(pa.types.is_duration, leaf_types(stated))):
        day_time = pa.types.is_duration(stated) and kind.startswith("interval ")
        return day_time and found == pa.int64()
    return same_type(found, stated)


def spark_kinds(text: bytes | None) -> dict[str, str]:
    """Return the types of a file's columns that only Spark has, from its schema in the footer.

    >>> text = b'{"type":"struct","fields":[{"name":"a","type":"long"},{"name":"b","type":"variant"}]}'
    >>> spark_kinds(text)
    {'b': 'variant'}
    """
    try:
        fields = json.loads(text or b"{}").get("fields", [])
        return {field["name"]: odd for field in fields if (odd := _odd(field))}
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return {}  # not of Spark, or of one that knew none of these types


def _odd(field: Mapping[str, Any]) -> str:
    """Return the first type in a column that only Spark has; "" if there is none."""
    if field.get("metadata", {}).get("__COLLATIONS"):
        return "string with a collation"
    match field["type"]:
        case str() as kind:
            return "" if kind in _SIMPLE or kind.startswith("decimal(") else kind
        case {"type": "struct", "fields": fields}:
            parts = fields
        case {"type": "array" | "map"} as kind:
            parts = [
                {"type": kind[part]} for part in ("elementType", "keyType", "valueType") if part in kind
            ]
        case kind:
            return str(kind["type"])
    return next(filter(None, map(_odd, parts)), "")
