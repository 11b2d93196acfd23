"""Conversion of the types in files to those of a query, without changing a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Misfit", "extra_members", "fit", "matched", "plain_type", "rebuilt"]

_is = pa.types

#: Digits that whole numbers of so many bits can have.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


class Misfit(ValueError):
    """A value or type does not fit the expected type."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark would read `kind` as; `kind` itself if there is none.

    >>> plain_type(pa.dictionary(pa.int8(), pa.large_string())), plain_type(pa.uint32())
    (DataType(string), DataType(int64))
    """
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if _is.is_dictionary(kind) or _is.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
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
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if _is_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if _is.is_map(kind):
        key = pa.field("key", plain_type(kind.key_type), nullable=False)
        return pa.map_(key, pa.field("value", plain_type(kind.item_type)))
    return kind


def rebuilt(field: pa.Field, leaf: Callable[[pa.Field], pa.DataType]) -> pa.Field:
    """Return `field` with the types that `leaf` returns for the simple ones in it, in their order.

    >>> rebuilt(pa.field("a", pa.list_(pa.int8())), lambda each: pa.int64()).type
    ListType(list<item: int64>)
    """
    kind = field.type
    if _is.is_struct(kind):
        return field.with_type(pa.struct([rebuilt(each, leaf) for each in kind]))
    if _is.is_map(kind):
        return field.with_type(pa.map_(rebuilt(kind.key_field, leaf), rebuilt(kind.item_field, leaf)))
    if _is_list(kind):
        return field.with_type(pa.list_(rebuilt(kind.value_field, leaf)))
    return field.with_type(leaf(field))


def fit(array: pa.Array, kind: pa.DataType, zone: str | None = "UTC") -> pa.Array:
    """Return `array` as one of type `kind`; raise `Misfit` if not every value of its type is one.

    Wider numbers take narrower ones, doubles take the nearest to any; strings take bytes that are UTF-8,
    binary takes any, and strings times of day. Digits behind the microsecond are cut off, as Spark does.
    Members of structs are taken by name; those that lack are null, and those that are too many are left
    out.

    Args:
        array: the values in the file.
        kind: the type to return.
        zone: time zone of times without one, if `kind` is an instant. None if it is unknown.
    """
    found = array.type
    if found.equals(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        return fit(array.storage, kind, zone)
    if _is.is_dictionary(found):
        return fit(array.dictionary_decode(), kind, zone)
    if _is.is_run_end_encoded(found):
        return fit(pc.run_end_decode(array), kind, zone)
    if _is.is_null(found):
        return pa.nulls(len(array), kind)
    if _is.is_struct(found) and _is.is_struct(kind):
        return _struct(array, kind, zone)
    if _is.is_map(found) and _is.is_map(kind):
        return _map(array, kind, zone)
    if (_is_list(found) or _is.is_map(found)) and _is.is_list(kind):
        return _list(array, kind, zone)
    zoned = not (_is.is_timestamp(found) and _is.is_timestamp(kind)) or found.tz or not kind.tz
    if not zoned and zone is None:
        raise Misfit(f"{found} bears no zone, so it cannot be read as {kind}")
    if not _widens(found, kind):
        raise Misfit(f"{found} cannot be read as {kind}")
    try:
        return _cast(array if zoned or zone == "UTC" else pc.assume_timezone(array, zone), kind)
    except pa.ArrowInvalid as error:
        raise Misfit(f"a value of type {found} cannot be read as {kind}: {error}") from error


def matched(
    found: Sequence[str], wanted: Sequence[str], folded_by: Callable[[str], str] = str.lower
) -> list[int | None]:
    """Return for each name of `wanted` which of `found` it is; None if it lacks.

    The very name goes before others. Raises `Misfit` if there are several.

    Args:
        found: the names that are there.
        wanted: the names to look for.
        folded_by: makes the same of names that are the same: by default, letter case does not count.

    >>> matched(["A", "b"], ["b", "a", "c"])
    [1, 0, None]
    """
    exact: dict[str, list[int]] = {}
    folded: dict[str, list[int]] = {}
    for number, name in enumerate(found):
        exact.setdefault(name, []).append(number)
        folded.setdefault(folded_by(name), []).append(number)
    places: list[int | None] = []
    for name in wanted:
        numbers = exact.get(name) or folded.get(folded_by(name), [])
        if len(numbers) > 1:
            raise Misfit(f"there are several columns {name!r}, letter case aside")
        places.append(numbers[0] if numbers else None)
    return places


def extra_members(found: pa.DataType, kind: pa.DataType, name: str) -> list[str]:
    """Return the members of structs that a column `name` has in a file, and `kind` does not know.

    >>> known = pa.struct([("x", pa.int8())])
    >>> extra_members(pa.struct([*known, ("y", pa.int8())]), known, "a")
    ['a.y']
    """
    if _is.is_struct(found) and _is.is_struct(kind):
        names = [field.name for field in found]
        places = matched(names, [field.name for field in kind])
        extra = [f"{name}.{each}" for number, each in enumerate(names) if number not in places]
        for field, place in zip(kind, places, strict=True):
            if place is not None:
                extra += extra_members(found.field(place).type, field.type, f"{name}.{field.name}")
        return extra
    if _is.is_map(found) and _is.is_map(kind):
        return [
            *extra_members(found.key_type, kind.key_type, f"{name}.key"),
            *extra_members(found.item_type, kind.item_type, f"{name}.value"),
        ]
    if _is_list(found) and _is.is_list(kind):
        return extra_members(found.value_type, kind.value_type, f"{name}.element")
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
        moments = array.cast(pa.int64())
        cut = pc.divide(moments, 1000)
        # Division rounds towards zero, which is later for times before 1970.
        later = pc.greater(pc.multiply(cut, 1000), moments)
        return pc.if_else(later, pc.subtract(cut, 1), cut).cast(kind)
    exact = not (_is.is_floating(kind) or _is.is_date(kind))
    return array.cast(kind, safe=exact)


def _struct(array: pa.StructArray, kind: pa.StructType, zone: str | None) -> pa.Array:
    members = array.flatten()
    places = matched([field.name for field in array.type], [field.name for field in kind])
    fitted = [
        pa.nulls(len(array), field.type) if place is None else fit(members[place], field.type, zone)
        for field, place in zip(kind, places, strict=True)
    ]
    return pa.StructArray.from_arrays(fitted, fields=list(kind), mask=array.is_null())


def _list(array: pa.Array, kind: pa.ListType, zone: str | None) -> pa.Array:
    lists = array if _is.is_list(array.type) else array.cast(pa.list_(_value_type(array.type)))
    # Offsets and nulls stay as they are, even those of a slice.
    return pa.Array.from_buffers(
        kind,
        len(lists),
        lists.buffers()[:2],
        offset=lists.offset,
        children=[fit(lists.values, kind.value_type, zone)],
    )


def _map(array: pa.MapArray, kind: pa.MapType, zone: str | None) -> pa.Array:
    fields = [kind.key_field, kind.item_field]
    pairs = [fit(array.keys, kind.key_type, zone), fit(array.items, kind.item_type, zone)]
    return pa.Array.from_buffers(
        kind,
        len(array),
        array.buffers()[:2],
        offset=array.offset,
        children=[pa.StructArray.from_arrays(pairs, fields=fields)],
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
