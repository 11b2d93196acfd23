"""The formats of files that others wrote: how slices of them become Arrow batches.

Knows pyarrow, what a source hands out (`Pinned`, `Slice`), and nothing of Spark's classes.
"""

from collections.abc import Mapping
from types import MappingProxyType

from commitlog.spark.inputs.api import Columns, Input, Records
from commitlog.spark.inputs.avro import Avro
from commitlog.spark.inputs.binary import Binary
from commitlog.spark.inputs.csv import Csv
from commitlog.spark.inputs.json import Json
from commitlog.spark.inputs.orc import Orc
from commitlog.spark.inputs.parquet import Parquet
from commitlog.spark.inputs.text import Text

__all__ = ["INPUTS", "Columns", "Input", "Records"]

#: The formats by name, as option ``fileFormat`` has them.
INPUTS: Mapping[str, type[Input]] = MappingProxyType(
    {known.name: known for known in (Avro, Binary, Csv, Json, Orc, Parquet, Text)}
)
