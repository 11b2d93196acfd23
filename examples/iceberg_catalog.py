"""Processes append to one Iceberg table of a catalog without a server, and every row is counted.

Run ``python examples/iceberg_catalog.py [DIRECTORY]``. With the option
``--catalog boringcatalog.BoringCatalog`` the same race runs with that catalog, if it is installed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyiceberg.catalog import Catalog, load_catalog

_TABLE = "sales.orders"
_SCHEMA = pyarrow.schema([("id", pyarrow.int64())])

#: pyiceberg waits for up to a minute between tries unless a table says otherwise.
_RETRIES = {"commit.retry.num-retries": "20", "commit.retry.max-wait-ms": "500"}


def open_catalog(implementation: str, directory: str) -> Catalog:
    """Open the catalog in a directory."""
    # boringcatalog wants a file, and its directory.
    ours = implementation.startswith("commitlog.")
    uri = f"{directory}/catalog" if ours else f"{directory}/catalog.json"
    properties = {"py-catalog-impl": implementation, "uri": uri, "warehouse": f"{directory}/warehouse"}
    return load_catalog("lake", **properties)


def append(implementation: str, directory: str, first: int, count: int) -> tuple[list[int], list[str]]:
    """Append rows, one in each commit; return those whose commit succeeded, and the errors of others."""
    done, errors = [], []
    with open_catalog(implementation, directory) as catalog:
        for row in range(first, first + count):
            try:
                catalog.load_table(_TABLE).append(pyarrow.table({"id": [row]}, schema=_SCHEMA))
            except Exception as error:
                # After CommitFailedException the row is not there: other commits came before in each
                # try. After CommitStateUnknownException it may be there.
                errors.append(type(error).__name__)
            else:
                done.append(row)
    return done, errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the race, print its result, and return the number of rows that were lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", default=None)
    parser.add_argument("--catalog", default="commitlog.iceberg.Catalog")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--appends", type=int, default=10)
    options: Any = parser.parse_args(arguments)
    directory = str(Path(options.directory or tempfile.mkdtemp()).absolute())
    Path(directory).mkdir(parents=True, exist_ok=True)
    with open_catalog(options.catalog, directory) as catalog:
        catalog.create_namespace("sales")
        catalog.create_table(_TABLE, _SCHEMA, properties=_RETRIES)
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.writers) as pool:
        calls = [
            (options.catalog, directory, 1000 * number, options.appends)
            for number in range(options.writers)
        ]
        results = pool.starmap(append, calls)
    done = [row for rows, _ in results for row in rows]
    errors = Counter(error for _, found in results for error in found)
    seconds = time.perf_counter() - began
    with open_catalog(options.catalog, directory) as catalog:
        rows = Counter(catalog.load_table(_TABLE).scan().to_arrow()["id"].to_pylist())
    lost = sum(row not in rows for row in done)
    doubled = sum(rows.values()) - len(rows)
    print(
        f"{options.catalog}: {len(done)} of {options.writers * options.appends} appends succeeded in"
        f" {seconds:.1f} s; {lost} of their rows are lost, {doubled} are there twice;"
        f" other appends: {dict(errors)}"
    )
    return lost + doubled


if __name__ == "__main__":
    raise SystemExit(bool(main()))
