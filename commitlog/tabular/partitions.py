"""Columns as directories (``month=1/day=2/``), in the layout of Hive, Spark, Athena and DuckDB.

A partition column is not in the files: its value is in their paths. The spelling of a value determines
which rows a job replaces, so each value has one spelling:

* numbers in plain digits, a decimal with all digits of its scale
* ``true`` and ``false``
* ISO 8601 for dates (``2013-03-10``) and for instants in UTC (``2013-03-10T02:30:00.5Z``)
* the same with a space, as in Spark, for timestamps without a zone
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import ConfigurationError, CorruptRecord, NotSupported
from commitlog.outputs.foreign import NULL

__all__ = [
    "NULL",
    "check_partitioning",
    "check_spelling",
    "column_of",
    "directory_of",
    "partition_of",
    "split_batch",
    "value_of",
]

# The characters that Hive and Spark escape in the name of a directory.
_SPECIAL = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


def check_partitioning(schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise unless rows of `schema` can be partitioned by the columns `names`."""
    for name in names:
        if name not in schema.names:
            raise ConfigurationError(
                f"there is no column {name!r} to partition by; the columns are {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if not _is_nameable(kind):
            raise NotSupported(
                f"partition column {name!r} is of type {kind}, and a directory can be named"
                " after whole numbers, decimals, strings, dates, timestamps and booleans only: cast it"
                " to one of these"
            )
        if name.startswith("."):
            raise NotSupported(
                f"partition column {name!r}: readers ignore directories with such a name: rename it"
            )
    if len(set(names)) != len(names):
        raise ConfigurationError(f"a partition column is named twice: {', '.join(names)}")
    if names and len(names) == len(schema.names):
        raise ConfigurationError("every column is a partition column: nothing is left for the files")


def _is_nameable(kind: pa.DataType) -> bool:
    # A floating-point number has many spellings. Values with different spellings are equal, such as 0.0
    # and -0.0.
    return (
        pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_timestamp(kind)
        or kind in (pa.string(), pa.bool_(), pa.date32())
    )


def split_batch(
    batch: pa.RecordBatch, names: Sequence[str]
) -> Iterator[tuple[tuple[object, ...], pa.RecordBatch]]:
    """Yield, for each combination of values of the columns `names`, the values and their rows.

    The rows have the other columns, in their order. Raises `NotSupported` for a value that cannot be in
    the name of a directory.

    >>> batch = pa.record_batch({"m": [2, 1, 2], "v": ["a", "b", "c"]})
    >>> [(values, rows.column("v").to_pylist()) for values, rows in split_batch(batch, ["m"])]
    [((2,), ['a', 'c']), ((1,), ['b'])]
    """
    if not batch.num_rows:
        return
    codes = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    for name in names:
        encoded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
        codes = pc.add(pc.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        # Renumber the codes: their product would overflow after some columns.
        codes = pc.dictionary_encode(codes).indices.cast(pa.int64())
    order = pc.sort_indices(codes)  # stable
    ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
    rest = [name for name in batch.schema.names if name not in names]
    start = 0
    for end in ends:
        rows = batch.take(order.slice(start, end - start))
        yield tuple(_python(name, rows.column(name)[0]) for name in names), rows.select(rest)
        start = end


def _python(name: str, value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        raise NotSupported(
            f"partition column {name!r} has a string that is not UTF-8, and a directory is"
            " named in UTF-8: replace it, or write it as another column, such as hex(…)"
        ) from error
    except (OverflowError, ValueError) as error:
        raise NotSupported(
            f"partition column {name!r} has a date or a time outside of the years 1 to 9999"
        ) from error


def partition_of(names: Sequence[str], values: Sequence[object]) -> dict[str, str | None]:
    """Return `values` of the columns `names` as text, None for null.

    >>> partition_of(["month", "late"], [1, True])
    {'month': '1', 'late': 'true'}
    """
    return {name: _text(name, value) for name, value in zip(names, values, strict=True)}


def directory_of(partition: Mapping[str, str | None]) -> str:
    """Return the directory of the rows of `partition`, with a slash at the end.

    >>> directory_of({"year": "2013", "city": "a/b"}), directory_of({"city": None}), directory_of({})
    ('year=2013/city=a%2Fb/', 'city=__HIVE_DEFAULT_PARTITION__/', '')
    """
    pairs = ((name, NULL if value is None else value) for name, value in partition.items())
    return "".join(f"{_escape(name)}={_escape(value)}/" for name, value in pairs)


def value_of(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value of type `kind` from its text; raise `CorruptRecord` if it is not one."""
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise CorruptRecord(f"partition value {text!r} is not of type {kind}") from error


def check_spelling(partition: Mapping[str, str | None], schema: pa.Schema) -> None:
    """Raise `NotSupported` if the spelling of a value is not that of `partition_of`."""
    for name, text in partition.items():
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        try:
            usual = partition_of([name], [_python(name, value_of(text, kind))])[name]
        except CorruptRecord:
            usual = None
        if text != usual:
            raise NotSupported(
                f"the value {text!r} of partition column {name!r} is not spelled as the output spells"
                f" {kind}: write with format('commitlog')"
            )


def column_of(partition: Mapping[str, str | None], field: pa.Field, rows: int) -> pa.Array:
    """Return the column `field` for `rows` rows of a file in `partition`."""
    if field.name not in partition:
        raise CorruptRecord(f"column {field.name!r} is neither in the file nor in its path")
    return pa.repeat(value_of(partition[field.name], field.type), rows)


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _text(name: str, value: object) -> str | None:
    if value is None:
        return None
    text = spelled(value)
    if text in ("", NULL):
        raise NotSupported(
            f"partition column {name!r} has the value {text!r}, which the name of a directory"
            " cannot distinguish from null: replace it in the rows"
        )
    return text


def spelled(value: object) -> str:
    """Return the text of a value in the name of a directory, before characters are escaped."""
    match value:
        case bool():
            return str(value).lower()
        case Decimal():
            return format(value, "f")
        case datetime(tzinfo=None):
            return _moment(value, " ")
        case datetime():
            return _moment(value.astimezone(UTC).replace(tzinfo=None), "T") + "Z"
    return str(value)


def _moment(value: datetime, separator: str) -> str:
    text = value.isoformat(separator)
    return text.rstrip("0") if value.microsecond else text
