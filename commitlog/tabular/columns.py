"""The columns of an output: the one description that records keep, and that jobs and readers follow.

A record has it as a JSON text. Usually that is Spark's ``StructType.json()``, with every type that Spark
has. Readers of the log return the columns that have an Arrow type here; others are only known by name
and type. If nobody but the program that wrote the files can tell what is in them, as with a CSV file of
Spark's own writer, the text has the format and the names instead: the columns are *unknown*.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from commitlog.errors import CorruptRecord, NotSupported

__all__ = ["ARROW", "OutputColumns", "arrow_type", "spelled"]

_UNITS = ("day", "hour", "minute", "second")

#: The Arrow types of Spark's simple types that every format has. Timestamps are stored as instants in
#: UTC, independent of the time zone of a session. Spark expects them in that form from a reader.
ARROW: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
)

#: The types of a whole column that readers of the log return, too, from files of Spark's own writers.
#: An interval is stored as microseconds; Arrow has no type for intervals of months.
_READABLE: Mapping[str, pa.DataType] = MappingProxyType(
    {
        **ARROW,
        "void": pa.null(),
        **{f"interval {unit}": pa.duration("us") for unit in _UNITS},
        **{
            f"interval {first} to {last}": pa.duration("us")
            for number, first in enumerate(_UNITS)
            for last in _UNITS[number + 1 :]
        },
    }
)

#: The names in the notation of types that messages spell as SQL does.
_SQL: Mapping[str, str] = MappingProxyType(
    {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
)

_DECIMAL = re.compile(r"decimal\((\d{1,2}),(-?\d{1,2})\)")

#: Member of a column's metadata with the collations of its strings.
_COLLATIONS = "__COLLATIONS"

#: The type in the text of unknown columns.
_UNKNOWN = "unknown"

#: Errors of Python for a text that is not a description.
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


@frozen(kw_only=True)
class OutputColumns:
    """The columns of an output, or of the files of a job.

    Names are the same if they differ in letter case alone; one name has one spelling and one type.

    Attributes:
        fields: the columns in Spark's notation; of unknown columns only their names.
        unknown: None, or the format of the files that only their writer can tell the columns of.
    """

    fields: tuple[Mapping[str, Any], ...]
    unknown: str | None = None

    @classmethod
    def parse(cls, text: str) -> OutputColumns:
        """Return the description in a commit record; raise `CorruptRecord` if `text` is none.

        >>> OutputColumns.parse('{"format":"csv","names":["a"],"type":"unknown"}').names
        ['a']
        """
        try:
            value = json.loads(text)
            if value["type"] == _UNKNOWN:
                return cls.unknown_of(_text(value["format"]), map(_text, value["names"]))
            fields = tuple(value["fields"])
            if value["type"] != "struct" or not all(_is_field(field) for field in fields):
                raise ValueError("it is not a struct")
        except _MALFORMED as error:
            raise CorruptRecord("the schema in the commit record is not in Spark's notation") from error
        return cls(fields=fields)

    @classmethod
    def of_spark(cls, text: str) -> OutputColumns:
        """Return the columns of files that Spark writes, from the text of its schema.

        Everything may be null, and a user-defined type is the type that its values are stored as.
        """
        return cls(fields=cls.parse(json.dumps(_widened(json.loads(text)))).fields)

    @classmethod
    def unknown_of(cls, name: str, columns: Iterable[str]) -> OutputColumns:
        """Return unknown columns, in files of the format `name`."""
        return cls(fields=tuple({"name": column} for column in columns), unknown=name)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [field["name"] for field in self.fields]

    def dump(self) -> str:
        """Return the text for a commit record: the same as Spark's for columns that are known."""
        if self.unknown is None:
            value: Mapping[str, Any] = {"type": "struct", "fields": self.fields}
        else:
            value = {"type": _UNKNOWN, "format": self.unknown, "names": self.names}
        return json.dumps(value, separators=(",", ":"), sort_keys=True)

    def check_known(self) -> None:
        """Raise `NotSupported` if the columns are unknown."""
        if self.unknown is not None:
            raise NotSupported(
                f"the output has files of Spark's own writer of {self.unknown or 'another format'}, and"
                " no record can describe them: read the directory with Spark's reader of that"
                " format, or overwrite the output"
            )

    def arrow(self) -> pa.Schema:
        """Return the columns in Arrow.

        Raises `NotSupported` if they are unknown, or not every format has a type for each.
        """
        self.check_known()
        return pa.schema([_arrow_field(each, each["name"]) for each in self.fields])

    def readable(self) -> pa.Schema:
        """Return the columns that readers of the log can return; none if they are unknown."""
        return self._of(_READABLE)

    def writable(self) -> pa.Schema:
        """Return the columns that every format has types for; none if they are unknown."""
        return self._of(ARROW)

    def _of(self, simple: Mapping[str, pa.DataType]) -> pa.Schema:
        fields = []
        for each in self.fields if self.unknown is None else ():
            try:
                fields.append(_arrow_field(each, each["name"], simple))
            except NotSupported:
                continue
        return pa.schema(fields)

    def merged(self, other: OutputColumns) -> OutputColumns | None:
        """Return the columns of both, those of `self` first.

        None if a column has two types or spellings.
        It is `self` if the other has no further column: concurrent jobs with the same columns do not
        conflict. If the columns of one are unknown, so are those of both.
        """
        unknown = other.unknown if self.unknown is None else self.unknown
        if unknown is not None:
            names = {name.lower(): name for name in (*other.names, *self.names)}
            order = dict.fromkeys(name.lower() for name in (*self.names, *other.names))
            return OutputColumns.unknown_of(unknown, [names[name] for name in order])
        by_name = {field["name"].lower(): field for field in self.fields}
        added = []
        for field in other.fields:
            known = by_name.get(field["name"].lower())
            if known is None:
                added.append(field)
            elif _identity(known) != _identity(field):
                return None
        return evolve(self, fields=(*self.fields, *added)) if added else self

    def with_strings(self, names: Collection[str]) -> OutputColumns:
        """Return the columns, and a string column for each further one of `names`."""
        strings = [{"metadata": {}, "name": n, "nullable": True, "type": "string"} for n in names]
        added = [each for each in strings if each["name"] not in self.names]
        if self.unknown is not None:
            return OutputColumns.unknown_of(self.unknown, dict.fromkeys([*self.names, *names]))
        return evolve(self, fields=(*self.fields, *added)) if added else self

    def __str__(self) -> str:
        """Return the columns as Spark's messages spell them."""
        if self.unknown is not None:
            return f"{', '.join(self.names) or 'without names'} of unknown types"
        return spelled({"type": "struct", "fields": self.fields})


def arrow_type(kind: Any, name: str, simple: Mapping[str, pa.DataType] = ARROW) -> pa.DataType:
    """Return the Arrow type of a type in Spark's notation.

    Args:
        kind: the type.
        name: name of the column, for messages.
        simple: the simple types that a whole column may have.

    Raises `NotSupported` for another type.

    >>> arrow_type({"type": "array", "elementType": "long", "containsNull": True}, "a")
    ListType(list<element: int64>)
    """
    if isinstance(kind, str):
        if kind in simple:
            return simple[kind]
        decimal = _DECIMAL.fullmatch(kind)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
    elif kind["type"] == "array":
        element = arrow_type(kind["elementType"], name)
        return pa.list_(pa.field("element", element, kind["containsNull"]))
    elif kind["type"] == "map":
        key = pa.field("key", arrow_type(kind["keyType"], name), nullable=False)
        value = arrow_type(kind["valueType"], name)
        return pa.map_(key, pa.field("value", value, kind["valueContainsNull"]))
    elif kind["type"] == "struct" and kind["fields"]:
        return pa.struct(
            [_arrow_field(each, f"{name}.{each['name']}", simple) for each in kind["fields"]]
        )
    raise _unreadable(name, spelled(kind))


def _arrow_field(
    field: Mapping[str, Any], name: str, simple: Mapping[str, pa.DataType] = ARROW
) -> pa.Field:
    if collations := field.get("metadata", {}).get(_COLLATIONS):
        raise _unreadable(name, f"string collate {', '.join(map(str, collations.values()))}")
    return pa.field(field["name"], arrow_type(field["type"], name, simple), field["nullable"])


def _unreadable(name: str, kind: str) -> NotSupported:
    return NotSupported(
        f"column {name!r} is of type {kind}, which not every Parquet reader understands: cast it, for"
        " example to string"
    )


def spelled(kind: Any) -> str:
    """Return a type in Spark's notation as Spark's messages spell it."""
    match kind:
        case str():
            return _SQL.get(kind, kind)
        case {"type": "array"}:
            return f"array<{spelled(kind['elementType'])}>"
        case {"type": "map"}:
            return f"map<{spelled(kind['keyType'])},{spelled(kind['valueType'])}>"
        case {"type": "struct"}:
            members = (f"{field['name']}:{spelled(field['type'])}" for field in kind["fields"])
            return f"struct<{','.join(members)}>"
    return str(kind["type"])


def _is_field(field: Mapping[str, Any]) -> bool:
    """Return whether `field` is a column in Spark's notation, of any type; raise if it is malformed."""
    try:
        _arrow_field(field, _text(field["name"]))
    except NotSupported:
        spelled(field["type"])
    return isinstance(field["nullable"], bool)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _identity(field: Mapping[str, Any]) -> tuple[Any, ...]:
    return field["name"], field["type"], field.get("metadata", {}).get(_COLLATIONS)


def _widened(kind: Any) -> Any:
    """Return a type of Spark with everything in it nullable, and without user-defined types."""
    match kind:
        case {"type": "udt"}:
            return _widened(kind["sqlType"])
        case {"type": "array"}:
            return {**kind, "elementType": _widened(kind["elementType"]), "containsNull": True}
        case {"type": "map"}:
            inner = {name: _widened(kind[name]) for name in ("keyType", "valueType")}
            return {**kind, **inner, "valueContainsNull": True}
        case {"type": "struct"}:
            fields = [{**f, "type": _widened(f["type"]), "nullable": True} for f in kind["fields"]]
            return {**kind, "fields": fields}
    return kind
