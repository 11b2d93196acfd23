"""Merge of the schemas of several files into one."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from commitlog.errors import ConfigurationError

__all__ = ["merge", "settled"]


def merge(schemas: Iterable[pa.Schema], *, strings: bool = False) -> pa.Schema:
    """Return the columns that files have together, those first that come first.

    A null goes with every type, and a number becomes one that holds both, at worst a double. Structs,
    lists and maps are merged member by member. All is nullable.

    Args:
        schemas: of the files.
        strings: whether whatever a file has can be read as a string, as it can in text. Then types that
            do not go together make one.

    Raises:
        ConfigurationError: types of a column do not go together, and are not to be strings.

    >>> a, b = pa.schema([("a", pa.int64())]), pa.schema([("b", pa.null()), ("a", pa.float64())])
    >>> merge([a, b])
    a: double
    b: null
    """
    columns = pa.struct([])
    for schema in schemas:
        columns = _structs(columns, pa.struct(list(schema)), "", strings)
    return pa.schema(list(columns))


def settled(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with strings where nothing but nulls, or structs without members, were seen.

    Of what may come there nothing is known; a string holds it all in text formats. Spark has no structs
    without members in files, and makes strings of nulls itself.

    >>> settled(pa.schema([("a", pa.list_(pa.null())), ("b", pa.struct([]))]))
    a: list<element: string>
      child 0, element: string
    b: string
    """
    return pa.schema([pa.field(field.name, _settled(field.type)) for field in schema])


def _settled(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind) or kind == pa.struct([]):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return _list(_settled(kind.value_type))
    if pa.types.is_map(kind):
        return _map(_settled(kind.key_type), _settled(kind.item_type))
    return kind


def _widened(first: pa.DataType, second: pa.DataType, name: str, strings: bool) -> pa.DataType:
    """Return the type that holds both, of the column or member that messages call `name`."""
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return _structs(first, second, f"{name}.", strings)
    if pa.types.is_list(first) and pa.types.is_list(second):
        return _list(_widened(first.value_type, second.value_type, f"{name}.element", strings))
    if pa.types.is_map(first) and pa.types.is_map(second):
        key, item = (
            _widened(getattr(first, part), getattr(second, part), f"{name}.{word}", strings)
            for part, word in (("key_type", "key"), ("item_type", "value"))
        )
        return _map(key, item)
    if _is_number(first) and _is_number(second):
        return _number(first, second)
    if strings:
        return pa.string()
    raise ConfigurationError(
        f"column {name!r} is of type {first} in one file and of type {second} in another: give the"
        " schema, or read the files apart from each other"
    )


def _structs(first: pa.StructType, second: pa.StructType, prefix: str, strings: bool) -> pa.StructType:
    members = {field.name: field.type for field in first}
    for field in second:
        known = members.get(field.name, pa.null())
        members[field.name] = _widened(known, field.type, prefix + field.name, strings)
    return pa.struct([pa.field(name, kind) for name, kind in members.items()])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind))


def _number(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    both = [pa.schema([("", kind)]) for kind in (first, second)]
    kind = pa.unify_schemas(both, promote_options="permissive").field(0).type
    # Neither Spark nor Parquet has decimals of more than 38 digits.
    return pa.float64() if pa.types.is_decimal256(kind) else kind


def _list(kind: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("element", kind))


def _map(key: pa.DataType, item: pa.DataType) -> pa.MapType:
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", item))
