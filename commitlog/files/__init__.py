"""File formats: the files that an output writes and reads, and the files that ingest reads.

Each format is one module or package, with a class for outputs, for ingest, or both. A module is imported
when its format is first used, because Spark starts many processes, and each needs one or two formats.

Formats share `base` (their base classes), `io` and `compression` (stored files as file objects),
`columns` and `types` (columns and their types), `lines` and `line_parser` (lines of text), `text_values`
and `timestamps` (values as text), `calendars` (dates of old writers), `rescue` (values that do not fit)
and `statistics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Generic, TypeVar, cast

from commitlog.errors import NotSupported
from commitlog.files.base import (
    GROUP_BYTES,
    FormatWriter,
    InputFormat,
    OutputFormat,
    PartFilter,
    combine_batches,
)
from commitlog.files.columns import Columns, NewColumns, Records
from commitlog.files.compression import SUFFIXES
from commitlog.files.io import ReadableStore, StoredObject
from commitlog.files.statistics import ColumnStatistics, decode

__all__ = [
    "GROUP_BYTES",
    "INPUT_FORMATS",
    "OUTPUT_FORMATS",
    "ColumnStatistics",
    "Columns",
    "FormatWriter",
    "InputFormat",
    "NewColumns",
    "OutputFormat",
    "PartFilter",
    "ReadableStore",
    "Records",
    "StoredObject",
    "combine_batches",
    "decode",
    "output_format_of",
]

_Format = TypeVar("_Format")


class _Formats(Mapping[str, _Format], Generic[_Format]):
    """Formats by name. The module of a format is imported when the format is first asked for."""

    def __init__(self, classes: Mapping[str, str], *, instances: bool) -> None:
        self._classes = MappingProxyType(dict(classes))
        self._instances = instances
        self._loaded: dict[str, _Format] = {}

    def __getitem__(self, name: str) -> _Format:
        if name not in self._loaded:
            module, _, kind = self._classes[name].partition(":")
            found = getattr(import_module(f"{__name__}.{module}"), kind)
            self._loaded[name] = cast(_Format, found() if self._instances else found)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)


#: The formats of outputs by name, as option ``fileFormat`` has them. The first is the default.
OUTPUT_FORMATS: Mapping[str, OutputFormat] = _Formats(
    {
        "parquet": "parquet:ParquetOutput",
        "orc": "orc:OrcOutput",
        "csv": "csv.format:CsvOutput",
        "json": "json.format:JsonOutput",
        "arrow": "arrow_ipc:ArrowOutput",
    },
    instances=True,
)

#: The classes of the formats of ingest by name, as option ``fileFormat`` has them.
INPUT_FORMATS: Mapping[str, type[InputFormat]] = _Formats(
    {
        "avro": "avro.format:AvroInput",
        "binaryFile": "binary:BinaryInput",
        "csv": "csv.format:CsvInput",
        "json": "json.format:JsonInput",
        "orc": "orc:OrcInput",
        "parquet": "parquet:ParquetInput",
        "text": "text:TextInput",
    },
    instances=False,
)


def output_format_of(path: str) -> OutputFormat:
    """Return the format of an output's file by the suffix of its path.

    Raises `NotSupported` if no format has this suffix.

    >>> output_format_of("part-00000-c000.csv.gz").name, output_format_of("data.parquet").name
    ('csv', 'parquet')
    """
    for name in OUTPUT_FORMATS:
        # Only text files are compressed as a whole. (Its own table would import the format's module.)
        suffixes = SUFFIXES.values() if name in ("csv", "json") else ("",)
        if path.endswith(tuple(f".{name}{suffix}" for suffix in suffixes)):
            return OUTPUT_FORMATS[name]
    known = ", ".join(OUTPUT_FORMATS)
    raise NotSupported(f"the name of file {path!r} does not tell its format: {known}")
