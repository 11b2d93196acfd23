"""File formats of outputs: conversion of Arrow batches to files, and of files to batches."""

from collections.abc import Mapping
from types import MappingProxyType

from commitlog.errors import NotSupported
from commitlog.spark.formats.api import GROUP_BYTES, Format, Keep, Sink
from commitlog.spark.formats.arrow import Arrow
from commitlog.spark.formats.csv import Csv
from commitlog.spark.formats.json import Json
from commitlog.spark.formats.orc import Orc
from commitlog.spark.formats.parquet import Parquet
from commitlog.spark.formats.statistics import ColumnStatistics, decode

__all__ = ["FORMATS", "GROUP_BYTES", "ColumnStatistics", "Format", "Keep", "Sink", "decode", "format_of"]

#: The formats by name. The first is the default.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {known.name: known for known in (Parquet(), Orc(), Csv(), Json(), Arrow())}
)


def format_of(path: str) -> Format:
    """Return the format that the suffix of `path` tells; raise `NotSupported` if it tells none.

    >>> format_of("part-00000-c000.csv.gz").name, format_of("data.parquet").name
    ('csv', 'parquet')
    """
    for known in FORMATS.values():
        if path.endswith(tuple(known.compressions.values())):
            return known
    raise NotSupported(f"the name of file {path!r} does not tell its format: {', '.join(FORMATS)}")
