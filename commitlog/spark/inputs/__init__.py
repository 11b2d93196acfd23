"""Input formats of ingest: conversion of slices of files to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType

from commitlog.spark.inputs.api import Columns, Input, Records

__all__ = ["INPUTS", "Columns", "Input", "Records"]

#: Module and class of each format.
_HOMES = MappingProxyType(
    {
        "avro": ("avro", "Avro"),
        "binaryFile": ("binary", "Binary"),
        "csv": ("csv", "Csv"),
        "json": ("json", "Json"),
        "orc": ("orc", "Orc"),
        "parquet": ("parquet", "Parquet"),
        "text": ("text", "Text"),
    }
)


class _Formats(Mapping[str, type[Input]]):
    """The formats by name. One is imported when it is asked for: each of Spark's processes needs one."""

    def __getitem__(self, name: str) -> type[Input]:
        module, kind = _HOMES[name]
        found: type[Input] = getattr(import_module(f"{__name__}.{module}"), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


#: The formats by name, as option ``fileFormat`` has them.
INPUTS: Mapping[str, type[Input]] = _Formats()
