"""ORC, as far as pyarrow's writer and Spark's reader agree on it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from commitlog.errors import NotSupported
from commitlog.spark.formats.api import BATCH_ROWS, GROUP_ROWS, Encoder, Format, Keep
from commitlog.spark.formats.files import Reads, SinkFile, stored_file
from commitlog.spark.formats.nested import leaf_types, moments
from commitlog.spark.formats.statistics import Statistics, is_instant

__all__ = ["Orc"]

#: The writer allots memory for a whole stripe of fixed-size values before it sees them.
STRIPE_BYTES = 64 * 1024 * 1024

#: The reader asks for pieces of the columns in turn, 128 kB each.
READ_BLOCK = 4 * 1024 * 1024

_SECOND = 1_000_000
#: 1582-10-15: without a mark that pyarrow cannot set, readers take days before for Julian ones.
_FIRST_DAY = -141_427
#: 1900-01-01, before which Spark's reader mixes up local mean times, and the end of what pyarrow's
#: reader can hold, in whole days.
_FIRST_INSTANT = -25_567 * 86_400 * _SECOND
_LAST_INSTANT = 106_751 * 86_400 * _SECOND

#: By this, Spark knows timestamps without a zone, which it keeps as whole numbers.
_LOCAL = {"spark.sql.catalyst.type": "timestamp_ntz"}


class Orc(Format):
    """ORC whose rows Spark's own reader gets back as they are."""

    name = "orc"
    compressions = MappingProxyType(
        {
            "zstd": ".zstd.orc",
            "zlib": ".zlib.orc",
            "snappy": ".snappy.orc",
            "lz4": ".lz4.orc",
            "none": ".orc",
        }
    )

    def check(self, schema: pa.Schema) -> None:
        """See `Format.check`."""
        for field in schema:
            if _structs(field.type) > 1:
                raise NotSupported(
                    f"column {field.name!r} has a struct in a struct, and pyarrow's ORC writer spoils"
                    " the inner one where it is null: choose fileFormat parquet"
                )

    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """See `Format.encoder`."""
        return _Encoder(file, schema, compression)

    def read(
        self,
        store: Reads,
        path: str,
        size: int,
        schema: pa.Schema,
        columns: Collection[str],
        keep: Keep | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See `Format.read`. The types are those of `schema`, which ORC knows less well."""
        with stored_file(store, path, size, "ORC", block=READ_BLOCK) as source:
            file = orc.ORCFile(source)
            names = file.schema.names
            wanted = [name for name in names if name in columns]
            # Of no column, there would be no rows; and a dot in a name would be taken for a path.
            kept = wanted or names[:1]
            asked = None if any("." in name for name in names) else kept
            target = pa.schema([schema.field(name) for name in kept])
            _check_zones(path, file.schema, target)
            for stripe in range(file.nstripes):
                rows = file.read_stripe(stripe, columns=asked).select(kept)
                for batch in pa.Table.from_batches([rows]).cast(target).to_batches(BATCH_ROWS):
                    yield batch.select(wanted)


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        self._stored = pa.schema([_stored(field) for field in schema])
        leaves = sum(len(list(leaf_types(field.type))) for field in schema)
        # Every batch becomes a stripe: what the writer keeps back of many open files is unbounded.
        self._writer = orc.ORCWriter(
            file,
            compression="uncompressed" if compression == "none" else compression,
            batch_size=max(1024, min(GROUP_ROWS, STRIPE_BYTES // (9 * leaves))),
            stripe_size=1,
            dictionary_key_size_threshold=0.8,
        )

    def write(self, table: pa.Table) -> None:
        _check_moments(table)
        for number, field in enumerate(table.schema):
            if _structs(field.type):
                # The writer takes the values of a struct that is a slice from the wrong place.
                copy = pa.concat_arrays(table.column(number).chunks)
                table = table.set_column(number, field, copy)
        self._writer.write(table.cast(self._stored))

    def close(self, statistics: Statistics) -> None:
        self._writer.close()


def _structs(kind: pa.DataType) -> int:
    """Return how many structs are in each other in a column of type `kind`."""
    if not pa.types.is_nested(kind):
        return 0
    inside = max(_structs(kind.field(i).type) for i in range(kind.num_fields))
    return inside + 1 if pa.types.is_struct(kind) else inside


def _check_moments(table: pa.Table) -> None:
    for name, kind, values in moments(table):
        low, high = (pc.min_max(values)[end].as_py() for end in ("min", "max"))
        if low is None:
            continue
        if pa.types.is_date(kind) and low < _FIRST_DAY:
            raise NotSupported(f"column {name!r} has a date before 1582-10-15, {_ADVICE}")
        if is_instant(kind):
            if low < _FIRST_INSTANT or high >= _LAST_INSTANT:
                raise NotSupported(
                    f"column {name!r} has a time before 1900 or after 2262-04-10, {_ADVICE}"
                )
            if low < 0 and _has_fraction(values.filter(pc.less(values, 0))):
                raise NotSupported(
                    f"column {name!r} has a time before 1970 that is not a whole second, {_ADVICE}"
                )


_ADVICE = "which ORC readers would not get back as it is: choose fileFormat parquet"


def _check_zones(path: str, stored: pa.Schema, target: pa.Schema) -> None:
    for field in target:
        pairs = zip(leaf_types(stored.field(field.name).type), leaf_types(field.type), strict=True)
        if any(
            pa.types.is_timestamp(one) and one.tz is None and is_instant(other) for one, other in pairs
        ):
            raise NotSupported(
                f"column {field.name!r} of {path!r} is in local time, as Spark's own ORC writer stores"
                " it, and pyarrow does not tell of which zone: read the file with Spark's own reader"
            )


def _has_fraction(values: pa.Array) -> bool:
    whole = pc.multiply(pc.divide(values, _SECOND), _SECOND)
    return bool(pc.any(pc.not_equal(whole, values)).as_py())


def _stored(field: pa.Field) -> pa.Field:
    """Return `field` with every timestamp that has no zone kept as Spark keeps it."""
    kind = field.type
    if pa.types.is_timestamp(kind) and not is_instant(kind):
        return field.with_type(pa.int64()).with_metadata(_LOCAL)
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_stored(child) for child in kind]))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_stored(kind.key_field), _stored(kind.item_field)))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_stored(kind.value_field)))
    return field
