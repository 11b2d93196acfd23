"""Public data sets that arrive while the stream runs: the output has exactly their rows."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from attrs import evolve, frozen

from demo.inputs import flights
from support.selection import in_campaigns, with_all
from support.spark_ingest import Landing, new_landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Options = Mapping[str, str]


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """A directory, with a query that copies it to another directory."""
    return new_landing("local", tmp_path, lambda: pytest.fail("no server is needed"))


@frozen
class Flights:
    """The flights that left New York City in 2013.

    Attributes:
        schema: their columns, in Spark's syntax.
        file: the published file.
        table: all flights, as pyarrow reads the file.
    """

    schema: str
    file: Path
    table: pa.Table

    def csv(self, month: int) -> bytes:
        """Return the flights of a month in the published form."""
        header, *lines = self.file.read_bytes().splitlines(keepends=True)
        return header + b"".join(line for line in lines if line.split(b",")[1] == b"%d" % month)

    def json(self, month: int) -> bytes:
        """Return the flights of a month as JSON lines, without missing values."""
        rows = self.table.filter(pc.equal(self.table["month"], month)).to_pylist()
        known = (dict(_known_values(row)) for row in rows)
        return "".join(json.dumps(row, default=datetime.isoformat) + "\n" for row in known).encode()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Flights:
    """The flights, unpacked and read."""
    found = flights(tmp_path_factory.mktemp("flights"))
    assert found.schema is not None
    options = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(found.files[0], convert_options=options)
    return Flights(found.schema, Path(found.files[0]), table)


@pytest.mark.all
@pytest.mark.parametrize(
    ("kind", "months", "options"),
    [in_campaigns("csv", 12, {"header": "true", "nullValue": "NA"}), ("json", 3, {})],
)
def test_flights_arrive_while_the_stream_runs(
    spark: SparkSession, landing: Landing, published: Flights, kind: str, months: int, options: Options
) -> None:
    """With a file for each month, some compressed, some in slices, the output has the same table."""
    landing = landing.with_options(fileFormat=kind, metadata="false", sliceBytes="1MiB", **options)
    flow = evolve(landing.flow, columns=published.schema, select=("*",))
    query = flow.start(spark, processingTime="0 seconds")
    try:
        for month in range(1, months + 1):
            body = getattr(published, kind)(month)
            if month % 3 == 0:
                landing.put_bytes(f"{month}.{kind}.gz", gzip.compress(body, 1))
            else:
                landing.put_bytes(f"{month}.{kind}", body)
            if month % 4 == 1:
                query.processAllAvailable()
        query.processAllAvailable()
    finally:
        query.stop()

    there = published.table
    there = there.filter(pc.less_equal(there["month"], months))
    files = [pq.read_table(io.BytesIO(data)) for data in landing.place.visible().values()]
    got = pa.concat_tables(files)
    everything = [(name, "ascending") for name in there.column_names]
    assert got.num_rows == there.num_rows
    assert got.sort_by(everything).equals(there.cast(got.schema).sort_by(everything))
    assert len(landing.committed()) > 1


def vega(name: str) -> Path:
    """Return a file of the package vega_datasets without an import, which would need pandas."""
    spec = importlib.util.find_spec("vega_datasets")
    assert spec is not None and spec.submodule_search_locations, "./run test installs vega_datasets"
    return Path(spec.submodule_search_locations[0], "_data", name)


def rows_of(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a file as other libraries read them."""
    rows: list[Mapping[str, Any]]
    if path.suffix == ".json":
        rows = json.loads(path.read_text())
    else:
        rows = pyarrow.csv.read_csv(path).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cars.json", {"multiLine": "true"}),
        with_all("barley.json", {"multiLine": "true"}),
        in_campaigns("airports.csv", {"header": "true", "inferSchema": "true"}),
        with_all("seattle-weather.csv", {"header": "true", "inferSchema": "true"}),
    ],
)
def test_public_tables_arrive_with_inferred_columns(
    spark: SparkSession, landing: Landing, name: str, options: Options
) -> None:
    """Each row of JSON documents and of CSV with quotes is there once, with all its values."""
    source = vega(name)
    landing = landing.with_options(fileFormat=source.suffix[1:], metadata="false", **options)
    landing.put_bytes(name, source.read_bytes())
    evolve(landing.flow, columns=None, select=("*",)).run(spark)
    read = spark.read.format("commitlog").load(landing.place.url)
    got = Counter(frozenset(_known_values(row.asDict())) for row in read.collect())
    there = Counter(frozenset(_known_values(row)) for row in rows_of(source))
    assert list((there - got).elements())[:3] == list((got - there).elements())[:3] == []


def _known_values(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if value not in (None, ""):
            yield name, value
