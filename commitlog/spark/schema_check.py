"""Check that rows fit the existing files, and the schema that results."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql.types import StructType

from commitlog.errors import ConfigurationError
from commitlog.outputs import DataFile
from commitlog.spark.files import OUTPUT_FORMATS
from commitlog.spark.options import JobOptions
from commitlog.spark.schema import dump_schema, load_schema, merge_schemas

__all__ = ["check_schema"]


def check_schema(
    before: str | None,
    files: Callable[[], Iterable[DataFile]],
    columns: StructType,
    options: JobOptions,
    *,
    merge: bool,
) -> str:
    """Return the schema after rows with `columns` are added; raise if they do not fit.

    Args:
        before: the existing schema, as `dump_schema` wrote it; None if there is none.
        files: yields the existing files, from the start at each call.
        columns: columns of the rows to add.
        options: options of the write.
        merge: whether rows may have other columns, and lack some.

    Raises `ConfigurationError`.
    """
    partition = next((tuple(file.partition) for file in files()), None)
    if partition is not None and partition != options.partition_by:
        raise ConfigurationError(
            f"the output is partitioned by {', '.join(partition) or 'nothing'}:"
            " give option partitionBy accordingly"
        )
    if before is None:
        return dump_schema(columns)
    existing = load_schema(before)
    merged = merge_schemas(existing, columns)
    same = {field.name for field in columns} == {field.name for field in existing}
    if merged is None or not (same or merge):
        raise ConfigurationError(
            f"the output has the columns {existing.simpleString()}, the rows to append"
            f" {columns.simpleString()}: they must be the same, in any order"
            + ("" if merged is None else "; option mergeSchema=true lets some be added or lack")
        )
    if options.file_format == "csv" and existing.names != columns.names:
        raise ConfigurationError(
            "CSV files know their columns by their order: select those of the rows to append in the"
            f" output's, {', '.join(existing.names)}"
        )
    csv = tuple(OUTPUT_FORMATS["csv"].compressions.values())
    if merged != existing and any(file.path.endswith(csv) for file in files()):
        raise ConfigurationError(
            "the output has CSV files, which know their columns by their order: none can be added"
        )
    # Return the same text for the same columns, so that concurrent jobs do not conflict.
    return before if merged == existing else dump_schema(merged)
