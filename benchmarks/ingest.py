#!/usr/bin/env python
"""Speed of reading files as a stream, and cost of a batch by length of history, compared with Spark.

    ./run bench ingest [--quick] [--only listing|history|speed] [--json FILE]

All sources run in one Spark application, in rounds of shuffled order, so that other load on the machine
affects all of them equally. The rows of each run are counted. A ratio of speeds is the median, over the
rounds, of the ratio within a round. docs/benchmarks.md explains the figures.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ingest_history
from attrs import frozen
from ingest_data import ROW_BYTES, DataSet, write_json, write_parquet
from measure import print_ratios, ratio, versions

if TYPE_CHECKING:
    from ingest_queries import Run

#: Targets. They are printed next to the measured ratios and never asserted.
AIMS = {
    "history_growth_time": "<= 1.1",
    "history_growth_memory": "<= 1.1",
    "small_files_over_builtin_tuned": ">= 1.3",
    "large_files_over_builtin_tuned": ">= 1.0",
    "small_parquet_over_builtin_tuned": ">= 1.3",
    "large_parquet_over_builtin_tuned": ">= 1.0",
}

_PARTS = ("listing", "history", "speed")

#: Our ways to read, and what tells them in the names of ratios: first the way of a configured session of
#: classic Spark has.
_READERS = {"ours": "", "ours by Python": "_by_python"}

#: The ending of a ratio's name, by the source that ours is compared with.
_RATIO_ENDINGS = {"built-in": "over_builtin", "built-in tuned": "over_builtin_tuned"}


@frozen(kw_only=True)
class Scale:
    """Sizes of the benchmark.

    Attributes:
        listing: sizes for the ingest rules over a generated listing.
        histories: numbers of files in the directory when Spark's triggers are measured.
        batches: number of triggers that find files, after each of these histories.
        period: seconds from trigger to trigger.
        small_files, small_bytes: number of small files, and the approximate size of each.
        large_files, large_bytes: number of large files, and the approximate size of each.
        data: names of the data sets whose reading speed is measured.
        rounds: measured runs of each source.
        parts: parts to measure unless one part is selected.
    """

    listing: ingest_history.Sizes
    histories: Sequence[int]
    batches: int
    period: float
    small_files: int
    small_bytes: int
    large_files: int
    large_bytes: int
    data: Sequence[str]
    rounds: int
    parts: Sequence[str]


FULL = Scale(
    listing=ingest_history.Sizes(
        histories=(1_000, 10_000, 100_000, 1_000_000), longest_of_others=100_000, batches=10
    ),
    histories=(1_000, 10_000, 100_000),
    batches=5,
    period=5.0,
    small_files=1_000,
    small_bytes=5_000,
    large_files=10,
    large_bytes=60_000_000,
    data=("small_files", "large_files", "small_parquet", "large_parquet"),
    rounds=3,
    parts=_PARTS,
)
QUICK = Scale(
    listing=ingest_history.Sizes(histories=(1_000, 8_000), longest_of_others=8_000, batches=3),
    histories=(100, 1_000),
    batches=1,
    period=1.0,
    small_files=100,
    small_bytes=5_000,
    large_files=3,
    large_bytes=4_000_000,
    data=("small_files", "large_files"),
    rounds=1,
    parts=("listing", "speed"),
)


#: Data sets whose reading speed is measured. Ratios begin with these names.
_DATA: Mapping[str, Callable[[Path, Scale], DataSet]] = {
    "small_files": lambda path, sizes: write_json(
        path, files=sizes.small_files, file_bytes=sizes.small_bytes
    ),
    "large_files": lambda path, sizes: write_json(
        path, files=sizes.large_files, file_bytes=sizes.large_bytes
    ),
    "small_parquet": lambda path, sizes: write_parquet(
        path, files=sizes.small_files, file_rows=sizes.small_bytes // ROW_BYTES
    ),
    "large_parquet": lambda path, sizes: write_parquet(
        path, files=sizes.large_files, file_rows=sizes.large_bytes // ROW_BYTES
    ),
}


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr)


def _measure_spark(sizes: Scale, parts: Sequence[str], scratch: Path) -> dict[str, Any]:
    # Only these parts need Spark, so it is imported here.
    from ingest_queries import HistorySizes, histories_in_spark, history_ways, speeds, ways
    from spark_writers import start

    report: dict[str, Any] = {}
    spark = start("local[2]", scratch)
    try:
        if "history" in parts:
            wanted = HistorySizes(files=sizes.histories, batches=sizes.batches, period=sizes.period)
            report["history"] = histories_in_spark(history_ways(spark), wanted, scratch, _say)
        if "speed" in parts:
            report["speed"], report["ratios"] = [], {}
            for name in sizes.data:
                _say(f"{name}: making files")
                data = _DATA[name](scratch / "data", sizes)
                runs = speeds(ways(spark), data, sizes.rounds, scratch, _say)
                shutil.rmtree(data.path)
                report["speed"] += _speed_figures(name, data, runs)
                report["ratios"] |= _speed_ratios(name, runs)
    finally:
        spark.stop()
    return report


def _speed_figures(name: str, data: DataSet, runs: Mapping[str, Sequence[Run]]) -> list[dict[str, Any]]:
    figures = []
    for way, row in runs.items():
        wall = statistics.median(run.cost.wall for run in row)
        figures.append(
            {
                "data": name,
                "way": way,
                "files": data.files,
                "megabytes": round(data.bytes / 1e6, 1),
                "rows": data.rows,
                "rounds": len(row),
                "wall_seconds": round(wall, 3),
                "batch_seconds": round(statistics.median(run.batches for run in row), 3),
                "cpu_seconds": round(statistics.median(run.cost.cpu for run in row), 2),
                "rows_per_second": round(data.rows / wall),
            }
        )
    return figures


def _speed_ratios(name: str, runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    found = {}
    for (way, reader), (other, ending) in itertools.product(_READERS.items(), _RATIO_ENDINGS.items()):
        mine, theirs = runs[way], runs[other]
        for kind, of in (
            ("", lambda run: run.cost.wall),
            ("_batch", lambda run: run.batches),
            ("_cpu", lambda run: run.cost.cpu),
        ):
            found[f"{name}{kind}{reader}_{ending}"] = round(ratio(map(of, theirs), map(of, mine)), 3)
    return found


def _growth(rows: Sequence[Mapping[str, Any]], way: str, figure: str) -> float:
    """Return a figure of `way` after the longest history, divided by that after the shortest."""
    own = [row[figure] for row in rows if row["way"] == way]
    return round(float(own[-1] / own[0]), 3)


def _listing_ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {}
    for way in ingest_history.WAYS:
        end = "" if way == ingest_history.RECOMMENDED else "_" + way.replace(" ", "_")
        last = next(row for row in reversed(rows) if row["way"] == way)
        found[f"history_growth_time{end}"] = last["growth_time"]
        found[f"history_growth_cpu{end}"] = last["growth_cpu"]
        found[f"history_growth_memory{end}"] = _growth(rows, way, "peak_bytes")
    return found


def _history_ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {}
    for way in dict.fromkeys(row["way"] for row in rows):
        end = way.replace("built-in", "builtin").replace(", ", "_").replace(" ", "_")
        found[f"history_growth_time_{end}"] = _growth(rows, way, "planning_milliseconds")
        found[f"history_growth_trigger_{end}"] = _growth(rows, way, "trigger_milliseconds")
        found[f"history_growth_memory_{end}"] = _growth(rows, way, "driver_bytes")
    return found


def main() -> None:
    """Run the benchmark, print the results, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="rough figures of two parts, in a minute")
    parser.add_argument("--only", choices=_PARTS, help="measure one part")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write ratios and figures")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    parts = (arguments.only,) if arguments.only else sizes.parts
    report: dict[str, Any] = {
        "ratios": {},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "quick": arguments.quick,
        "versions": versions("commitlog-store", "pyspark", "pyarrow"),
    }
    ratios = report["ratios"]
    with tempfile.TemporaryDirectory(prefix="ingest-") as name:
        if "listing" in parts:
            rows = ingest_history.measure_histories(sizes.listing, Path(name), _say)
            report["listing"] = rows
            ratios |= _listing_ratios(rows)
        if set(parts) - {"listing"}:
            found = _measure_spark(sizes, parts, Path(name))
            ratios |= _history_ratios(found.get("history", ())) | found.pop("ratios", {})
            report |= found
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    _show(report)


def _show(report: Mapping[str, Any]) -> None:
    if "listing" in report:
        print("\na batch of new objects, planned by a driver; the listing is made up, and free")
        head = f"{'way':16}{'objects':>10}{'ms':>9}{'CPU ms':>8}{'calls':>7}{'pages':>8}{'table':>7}"
        print(f"{head}{'peak kB':>9}{'ms on S3 (computed)':>21}")
        for row in report["listing"]:
            head = f"{row['way']:16}{row['history']:10}{row['milliseconds']:9.2f}"
            head += f"{row['cpu_milliseconds']:8.2f}{row['calls']:7g}"
            rest = f"{row['pages']:8g}{row['table_requests']:7g}{row['peak_bytes'] / 1e3:9.0f}"
            print(f"{head}{rest}{row['computed_milliseconds_on_s3']:21.0f}")
    if "history" in report:
        print("\na batch of new files of a directory, in Spark: milliseconds, and memory of the driver")
        print(f"{'way':16}{'files':>8}{'planning':>10}{'trigger':>9}{'JVM MB':>8}{'Python MB':>11}")
        for row in report["history"]:
            times = f"{row['planning_milliseconds']:10.0f}{row['trigger_milliseconds']:9.0f}"
            memory = f"{row['heap_bytes'] / 1e6:8.1f}{row['python_bytes'] / 1e6:11.1f}"
            print(f"{row['way']:16}{row['files']:8}{times}{memory}")
    if "speed" in report:
        print("\nfiles read as a stream, all that there are")
        head = f"{'data':16}{'files':>6}{'MB':>7}{'rows':>10}  {'way':16}"
        print(f"{head}{'wall s':>9}{'batch s':>9}{'CPU s':>8}{'rows/s':>10}")
        for row in report["speed"]:
            head = f"{row['data']:16}{row['files']:6}{row['megabytes']:7.0f}{row['rows']:10}"
            times = f"{row['wall_seconds']:9.2f}{row['batch_seconds']:9.2f}{row['cpu_seconds']:8.1f}"
            print(f"{head}  {row['way']:16}{times}{row['rows_per_second']:10}")
    print_ratios(
        "ratios (growth: the longest history over the shortest; others: rows per second)",
        report["ratios"],
        AIMS,
    )


if __name__ == "__main__":
    main()
