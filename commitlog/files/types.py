"""Arrow types of files: conversion to the types of a query, and the types that hold several others.

A conversion keeps every value. If it cannot, it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import ConfigurationError

__all__ = [
    "TypeMismatch",
    "as_list",
    "convert",
    "leaf_types",
    "map_leaves",
    "match_names",
    "number_type",
    "replace_leaves",
    "replace_null_types",
    "same_type",
    "spark_type",
    "unify_schemas",
    "unify_types",
    "unknown_members",
]

_is = pa.types

#: The most decimal digits of an integer, by its bits.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


class TypeMismatch(ValueError):
    """A value or type does not fit the expected type."""


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as which Spark would read `kind`; `kind` itself if Spark has no such type.

    >>> spark_type(pa.dictionary(pa.int8(), pa.large_string())), spark_type(pa.uint32())
    (DataType(string), DataType(int64))
    """
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type)
    if _is.is_dictionary(kind) or _is.is_run_end_encoded(kind):
        return spark_type(kind.value_type)
    if _is_text(kind) or _is.is_time(kind):
        return pa.string()
    if _is_bytes(kind):
        return pa.binary()
    if _is.is_unsigned_integer(kind):
        wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
        return wider[kind.bit_width]
    if _is.is_float16(kind):
        return pa.float32()
    if _is.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if _is.is_date(kind):
        return pa.date32()
    if _is.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if _is.is_duration(kind):
        return pa.int64()
    if _is.is_struct(kind):
        return pa.struct([pa.field(field.name, spark_type(field.type)) for field in kind])
    if _is_list(kind):
        return pa.list_(pa.field("element", spark_type(kind.value_type)))
    if _is.is_map(kind):
        key = pa.field("key", spark_type(kind.key_type), nullable=False)
        return pa.map_(key, pa.field("value", spark_type(kind.item_type)))
    return kind


def replace_leaves(field: pa.Field, leaf: Callable[[pa.Field], pa.DataType]) -> pa.Field:
    """Return `field` with other simple types: `leaf` returns them for the simple fields, in order.

    >>> replace_leaves(pa.field("a", pa.list_(pa.int8())), lambda each: pa.int64()).type
    ListType(list<item: int64>)
    """
    kind = field.type
    if _is.is_struct(kind):
        return field.with_type(pa.struct([replace_leaves(each, leaf) for each in kind]))
    if _is.is_map(kind):
        return field.with_type(
            pa.map_(replace_leaves(kind.key_field, leaf), replace_leaves(kind.item_field, leaf))
        )
    if _is_list(kind):
        return field.with_type(pa.list_(replace_leaves(kind.value_field, leaf)))
    return field.with_type(leaf(field))


def convert(array: pa.Array, kind: pa.DataType, zone: str | None = "UTC") -> pa.Array:
    """Return `array` as an array of type `kind`.

    Wider numbers take narrower ones, and doubles take the nearest value of any number. Strings take
    UTF-8 bytes and times of day; binary takes any bytes. Digits after the microsecond are cut off, as in
    Spark. Members of structs are matched by name; missing members are null, unknown ones are left out.

    Args:
        array: the values in the file.
        kind: the type to return.
        zone: time zone of times without one, if `kind` is an instant. None if it is unknown.

    Raises `TypeMismatch` if not all values of the array's type can be read as `kind`, or a value cannot.
    """
    found = array.type
    if found.equals(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        return convert(array.storage, kind, zone)
    if _is.is_dictionary(found):
        return convert(array.dictionary_decode(), kind, zone)
    if _is.is_run_end_encoded(found):
        return convert(pc.run_end_decode(array), kind, zone)
    if _is.is_null(found):
        return pa.nulls(len(array), kind)
    if _is.is_struct(found) and _is.is_struct(kind):
        return _convert_struct(array, kind, zone)
    if _is.is_map(found) and _is.is_map(kind):
        return _convert_map(array, kind, zone)
    if (_is_list(found) or _is.is_map(found)) and _is.is_list(kind):
        return _convert_list(array, kind, zone)
    zoned = not (_is.is_timestamp(found) and _is.is_timestamp(kind)) or found.tz or not kind.tz
    if not zoned and zone is None:
        raise TypeMismatch(f"{found} has no zone, so it cannot be read as {kind}")
    if not _widens(found, kind):
        raise TypeMismatch(f"{found} cannot be read as {kind}")
    try:
        return _cast(array if zoned or zone == "UTC" else pc.assume_timezone(array, zone), kind)
    except pa.ArrowInvalid as error:
        raise TypeMismatch(f"a value of type {found} cannot be read as {kind}: {error}") from error


def same_type(found: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether `found` is how a file stores values of type `kind`.

    Encodings and units of time may differ. Nulls are values of every type.

    >>> same_type(pa.timestamp("ms"), pa.timestamp("us")), same_type(pa.int32(), pa.int64())
    (True, False)
    """
    if found == kind or _is.is_null(found):
        return True
    if isinstance(found, pa.BaseExtensionType):
        return same_type(found.storage_type, kind)
    if _is.is_dictionary(found):
        return same_type(found.value_type, kind)
    if _is.is_struct(found) and _is.is_struct(kind):
        names = [field.name for field in kind]
        return [field.name for field in found] == names and all(
            same_type(one.type, other.type) for one, other in zip(found, kind, strict=True)
        )
    if _is.is_map(found) and _is.is_map(kind):
        return same_type(found.key_type, kind.key_type) and same_type(found.item_type, kind.item_type)
    if _is_list(found) and _is_list(kind):
        return same_type(found.value_type, kind.value_type)
    if _is.is_timestamp(found) and _is.is_timestamp(kind):
        return (found.tz is None) == (kind.tz is None)
    return bool((_is_text(found) and _is_text(kind)) or (_is_bytes(found) and _is_bytes(kind)))


def match_names(
    found: Sequence[str], wanted: Sequence[str], fold: Callable[[str], str] = str.lower
) -> list[int | None]:
    """Return the index in `found` of each name of `wanted`; None for a missing name.

    An equal name precedes a name that is equal when folded. Raises `TypeMismatch` if several match.

    Args:
        found: the names to search.
        wanted: the names to look for.
        fold: names are the same if this returns the same for them; by default, it ignores letter case.

    >>> match_names(["A", "b"], ["b", "a", "c"])
    [1, 0, None]
    """
    exact: dict[str, list[int]] = {}
    folded: dict[str, list[int]] = {}
    for number, name in enumerate(found):
        exact.setdefault(name, []).append(number)
        folded.setdefault(fold(name), []).append(number)
    places: list[int | None] = []
    for name in wanted:
        numbers = exact.get(name) or folded.get(fold(name), [])
        if len(numbers) > 1:
            raise TypeMismatch(f"there are several columns {name!r} that differ only in letter case")
        places.append(numbers[0] if numbers else None)
    return places


def unknown_members(found: pa.DataType, kind: pa.DataType, name: str) -> list[str]:
    """Return the members of structs that column `name` has in a file and `kind` lacks.

    >>> known = pa.struct([("x", pa.int8())])
    >>> unknown_members(pa.struct([*known, ("y", pa.int8())]), known, "a")
    ['a.y']
    """
    if _is.is_struct(found) and _is.is_struct(kind):
        names = [field.name for field in found]
        places = match_names(names, [field.name for field in kind])
        extra = [f"{name}.{each}" for number, each in enumerate(names) if number not in places]
        for field, place in zip(kind, places, strict=True):
            if place is not None:
                extra += unknown_members(found.field(place).type, field.type, f"{name}.{field.name}")
        return extra
    if _is.is_map(found) and _is.is_map(kind):
        return [
            *unknown_members(found.key_type, kind.key_type, f"{name}.key"),
            *unknown_members(found.item_type, kind.item_type, f"{name}.value"),
        ]
    if _is_list(found) and _is.is_list(kind):
        return unknown_members(found.value_type, kind.value_type, f"{name}.element")
    return []


def _widens(found: pa.DataType, kind: pa.DataType) -> bool:
    if _is.is_string(kind):
        return bool(_is_text(found) or _is_bytes(found) or _is.is_time(found))
    if _is.is_binary(kind):
        return _is_text(found) or _is_bytes(found)
    if _is.is_signed_integer(kind):
        spare = 1 if _is.is_unsigned_integer(found) else 0
        whole = _is.is_integer(found) and found.bit_width + spare <= kind.bit_width
        return bool(whole or (_is.is_duration(found) and kind.bit_width == 64))
    if _is.is_float64(kind):
        return bool(_is.is_integer(found) or _is.is_floating(found) or _is.is_decimal(found))
    if _is.is_float32(kind):
        return bool(_is.is_float16(found) or (_is.is_integer(found) and found.bit_width <= 16))
    if _is.is_decimal(kind):
        before = kind.precision - kind.scale
        if _is.is_decimal(found):
            return bool(found.scale <= kind.scale and found.precision - found.scale <= before)
        unsigned = found == pa.uint64()
        return bool(_is.is_integer(found) and _DIGITS[found.bit_width] + unsigned <= before)
    if _is.is_date(kind):
        return bool(_is.is_date(found))
    return bool(_is.is_timestamp(kind) and _is.is_timestamp(found))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    found = array.type
    if _is.is_timestamp(found) and found.unit == "ns":
        nanoseconds = array.cast(pa.int64())
        cut = pc.divide(nanoseconds, 1000)
        # Division rounds towards zero, which is later for times before 1970.
        later = pc.greater(pc.multiply(cut, 1000), nanoseconds)
        return pc.if_else(later, pc.subtract(cut, 1), cut).cast(kind)
    exact = not (_is.is_floating(kind) or _is.is_date(kind))
    return array.cast(kind, safe=exact)


def _convert_struct(array: pa.StructArray, kind: pa.StructType, zone: str | None) -> pa.Array:
    members = array.flatten()
    places = match_names([field.name for field in array.type], [field.name for field in kind])
    converted = [
        pa.nulls(len(array), field.type) if place is None else convert(members[place], field.type, zone)
        for field, place in zip(kind, places, strict=True)
    ]
    return pa.StructArray.from_arrays(converted, fields=list(kind), mask=array.is_null())


def _convert_list(array: pa.Array, kind: pa.ListType, zone: str | None) -> pa.Array:
    lists = array if _is.is_list(array.type) else array.cast(pa.list_(_value_type(array.type)))
    return _with_child(lists, kind, convert(lists.values, kind.value_type, zone))


def _convert_map(array: pa.MapArray, kind: pa.MapType, zone: str | None) -> pa.Array:
    fields = [kind.key_field, kind.item_field]
    pairs = [convert(array.keys, kind.key_type, zone), convert(array.items, kind.item_type, zone)]
    return _with_child(array, kind, pa.StructArray.from_arrays(pairs, fields=fields))


def _with_child(lists: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    """Return lists or maps with other values. Offsets and nulls stay, even those of a slice."""
    return pa.Array.from_buffers(
        kind, len(lists), lists.buffers()[:2], offset=lists.offset, children=[child]
    )


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.field(0).type if _is.is_map(kind) else kind.value_type


def _is_text(kind: pa.DataType) -> bool:
    return bool(_is.is_string(kind) or _is.is_large_string(kind) or _is.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        _is.is_binary(kind)
        or _is.is_large_binary(kind)
        or _is.is_binary_view(kind)
        or _is.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(_is.is_list(kind) or _is.is_large_list(kind) or _is.is_fixed_size_list(kind))


# -- parts of nested types -----------------------------------------------------------------------------


def as_list(array: pa.Array) -> pa.Array:
    """Return a map as the list of its entries, and a list as it is."""
    if pa.types.is_map(array.type):
        return array.cast(pa.list_(array.type.field(0)))
    return array


def map_leaves(array: pa.Array, converts: Iterator[Callable[[pa.Array], pa.Array] | None]) -> pa.Array:
    """Return an array with converted simple values: a function, or None, for each type of `leaf_types`.

    >>> map_leaves(pa.array([[1], None]), iter([lambda each: pc.negate(each)])).to_pylist()
    [[-1], None]
    """
    kind = array.type
    if _is.is_struct(kind):
        members = [map_leaves(each, converts) for each in array.flatten()]
        fields = [field.with_type(each.type) for field, each in zip(kind, members, strict=True)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=array.is_null())
    if _is.is_map(kind):
        pairs = [map_leaves(each, converts) for each in (array.keys, array.items)]
        fields = [
            field.with_type(each.type)
            for field, each in zip((kind.key_field, kind.item_field), pairs, strict=True)
        ]
        child = pa.StructArray.from_arrays(pairs, fields=fields)
        return _with_child(array, pa.map_(*fields), child)
    if _is_list(kind):
        lists = array if _is.is_list(kind) else array.cast(pa.list_(kind.value_field))
        values = map_leaves(lists.values, converts)
        return _with_child(lists, pa.list_(kind.value_field.with_type(values.type)), values)
    convert = next(converts)
    return array if convert is None else convert(array)


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the simple types within `kind`. Parquet and ORC store a column of each.

    >>> list(leaf_types(pa.map_(pa.string(), pa.list_(pa.int8()))))
    [DataType(string), DataType(int8)]
    """
    if pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            yield from leaf_types(kind.field(i).type)
    else:
        yield kind


# -- types that hold several others --------------------------------------------------------------------


def unify_schemas(schemas: Iterable[pa.Schema], *, strings: bool = False) -> pa.Schema:
    """Return a schema with the columns of all `schemas`, in the order of their first appearance.

    A null unifies with every type. Numbers become a number that holds both, at worst a double. Structs,
    lists and maps are unified member by member. All columns are nullable.

    Args:
        schemas: of the files.
        strings: whether every value of the files can be read as a string, as in text formats. Then types
            that do not unify become string.

    Raises:
        ConfigurationError: types of a column do not unify, and `strings` is false.

    >>> a, b = pa.schema([("a", pa.int64())]), pa.schema([("b", pa.null()), ("a", pa.float64())])
    >>> unify_schemas([a, b])
    a: double
    b: null
    """
    columns = pa.struct([])
    for schema in schemas:
        columns = _unified_struct(columns, pa.struct(list(schema)), "", strings)
    return pa.schema(list(columns))


def unify_types(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type that holds the values of all `kinds`, at worst as strings."""
    columns = unify_schemas((pa.schema([("", kind)]) for kind in (pa.null(), *kinds)), strings=True)
    return columns.field(0).type


def number_type(value: int | float) -> pa.DataType:
    """Return the type that Spark infers for a number.

    >>> number_type(2**63 - 1), number_type(2**63), number_type(10**38), number_type(1e3)
    (DataType(int64), Decimal128Type(decimal128(19, 0)), DataType(double), DataType(double))
    """
    if type(value) is float:
        return pa.float64()
    if -(2**63) <= value < 2**63:
        return pa.int64()
    digits = len(str(abs(value)))
    return pa.decimal128(digits, 0) if digits <= 38 else pa.float64()


def replace_null_types(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with strings for columns with nothing but nulls, or structs without members.

    The type of later values is unknown; in text formats, a string holds every value. Spark has no
    structs without members in files, and reads nulls as strings itself.

    >>> replace_null_types(pa.schema([("a", pa.list_(pa.null())), ("b", pa.struct([]))]))
    a: list<element: string>
      child 0, element: string
    b: string
    """
    return pa.schema([pa.field(field.name, _without_nulls(field.type)) for field in schema])


def _without_nulls(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind) or kind == pa.struct([]):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_nulls(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return _list_type(_without_nulls(kind.value_type))
    if pa.types.is_map(kind):
        return _map_type(_without_nulls(kind.key_type), _without_nulls(kind.item_type))
    return kind


def _unified(first: pa.DataType, second: pa.DataType, name: str, strings: bool) -> pa.DataType:
    """Return the type that holds both types of column or member `name`."""
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return _unified_struct(first, second, f"{name}.", strings)
    if pa.types.is_list(first) and pa.types.is_list(second):
        return _list_type(_unified(first.value_type, second.value_type, f"{name}.element", strings))
    if pa.types.is_map(first) and pa.types.is_map(second):
        key, item = (
            _unified(getattr(first, part), getattr(second, part), f"{name}.{label}", strings)
            for part, label in (("key_type", "key"), ("item_type", "value"))
        )
        return _map_type(key, item)
    if _is_number(first) and _is_number(second):
        return _unified_number(first, second)
    if strings:
        return pa.string()
    raise ConfigurationError(
        f"column {name!r} is of type {first} in one file and of type {second} in another: give the"
        " schema, or read the files apart from each other"
    )


def _unified_struct(
    first: pa.StructType, second: pa.StructType, prefix: str, strings: bool
) -> pa.StructType:
    members = {field.name: field.type for field in first}
    for field in second:
        known = members.get(field.name, pa.null())
        members[field.name] = _unified(known, field.type, prefix + field.name, strings)
    return pa.struct([pa.field(name, kind) for name, kind in members.items()])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind))


def _unified_number(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    both = [pa.schema([("", kind)]) for kind in (first, second)]
    kind = pa.unify_schemas(both, promote_options="permissive").field(0).type
    # Neither Spark nor Parquet has decimals of more than 38 digits.
    return pa.float64() if pa.types.is_decimal256(kind) else kind


def _list_type(kind: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("element", kind))


def _map_type(key: pa.DataType, item: pa.DataType) -> pa.MapType:
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", item))
